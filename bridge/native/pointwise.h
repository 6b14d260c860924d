// Runs an entry of the pointwise table on an iterator.
#pragma once

#include <initializer_list>

#include "lower.h"
#include "xpu/ops/pointwise.h"

namespace openxpu {

// Computes `op` on a built iterator in the dtype `compute`, or in the inputs' dtype if that is Undefined.
// `scalars` are the parameters in the table.
void pointwise(at::TensorIteratorBase &iter, c10::ScalarType compute, xpu_pointwise_op op,
               std::initializer_list<xpu_scalar> scalars = {});

} // namespace openxpu
