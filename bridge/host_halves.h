#pragma once

#include "xpu/ops/gemm.h"

namespace openxpu {

// Has PyTorch's library what multiply_wide needs?
bool has_wide_products();

// out = A B of bfloat16 with the sums as float32; alpha, beta and C are not looked at. False, and nothing
// done, where strides or the processor don't suit.
bool multiply_wide(const xpu_gemm_args &args);

} // namespace openxpu
