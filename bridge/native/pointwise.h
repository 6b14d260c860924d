// Runs an entry of the pointwise table on an iterator.
#pragma once

#include <initializer_list>

#include "lower.h"
#include "xpu/ops/pointwise.h"

namespace openxpu {

// Computes `op` in the dtype `compute` over a built iterator; `compute` may be Undefined where all inputs
// have one dtype: then that is it. `scalars` are the table's.
void pointwise(at::TensorIteratorBase &iter, c10::ScalarType compute, xpu_pointwise_op op,
               std::initializer_list<xpu_scalar> scalars = {});

} // namespace openxpu
