#pragma once

#include "xpu/ops/gemm.h"

namespace openxpu {

// Has PyTorch's library what multiply_brgemm needs?
bool has_bf16_gemm();

// out = A B of bfloat16 with the sums as float32; alpha, beta and C are not looked at. False, and nothing
// done, where strides or the processor don't suit.
bool multiply_brgemm(const xpu_gemm_args &args);

} // namespace openxpu
