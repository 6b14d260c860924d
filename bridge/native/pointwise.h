// What the kernels written from the table of pointwise operations call.
#pragma once

#include <initializer_list>

#include "lower.h"
#include "xpu/ops/pointwise.h"

namespace openxpu {

template <class Number> xpu_scalar lower(const Number &number) { return scalar_of(number); }

// Runs one line of the table over a built iterator; `compute` is its common dtype.
inline void pointwise(at::TensorIteratorBase &iter, c10::ScalarType compute, xpu_pointwise_op op,
                      std::initializer_list<xpu_scalar> scalars = {}) {
    if (iter.numel() == 0) return;
    const auto lowered = iter_of(iter);
    check(xpu_pointwise(current_stream(iter.device().index()), op, dtype_of(compute), &lowered,
                        scalars.begin(), static_cast<int>(scalars.size())));
}

} // namespace openxpu
