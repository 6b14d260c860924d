#pragma once

#include "lower.h"

namespace openxpu {

// check() for xpu_gemm: where PyTorch's CPU kernel threw, its exception goes on.
void check_product(xpu_status status);

} // namespace openxpu
