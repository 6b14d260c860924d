#pragma once

#include "lower.h"

namespace openxpu {

// check() for xpu_gemm: rethrows the exception if PyTorch's CPU kernel threw one.
void check_product(xpu_status status);

} // namespace openxpu
