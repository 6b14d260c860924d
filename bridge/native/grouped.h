// Grouped matrix products with group sizes on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include "xpu/ops/gemm.h"

namespace openxpu {

// A result as PyTorch's CPU and Inductor have it: rows begin at multiples of 16 bytes.
at::Tensor grouped_result(const at::Tensor &like, at::IntArrayRef size, c10::ScalarType dtype);

// Two operands of which one has two dimensions, and is cut into groups along its rows (columns), or both,
// which are along k; `offs` has each group's end. What doesn't fit is refused.
struct Groups {
    Groups(const at::Tensor &a, const at::Tensor &b, const at::Tensor &offs);
    at::Tensor a, b, offs;
    xpu_grouped grouped;
    int64_t count, m, n, k;

    at::Tensor empty_result(c10::ScalarType dtype) const;
    xpu_gemm_args args_for(const at::Tensor &out) const;
    const int32_t *ends() const { return offs.const_data_ptr<int32_t>(); }
};

} // namespace openxpu
