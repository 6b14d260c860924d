// Grouped matrix products with group sizes on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include "xpu/ops/gemm.h"

namespace openxpu {

// A result with 16-byte aligned rows, as on PyTorch's CPU and in Inductor.
at::Tensor grouped_result(const at::Tensor &like, at::IntArrayRef size, c10::ScalarType dtype);

// Arguments of a grouped product. A 2D operand is split into groups along its rows or columns; if both
// are 2D, along k. `offs` has the end of each group. Throws for operands that don't match.
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
