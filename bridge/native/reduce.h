// Runs an entry of the reduction table.
#pragma once

#include <functional>
#include <initializer_list>

#include <ATen/core/Tensor.h>
#include <ATen/native/ReduceOpsUtils.h>

#include "xpu/ops/reduce.h"

namespace openxpu {

using Outputs = std::initializer_list<std::reference_wrapper<const at::Tensor>>;

// The dimensions of `self` that an overload's `dim` selects: all if it is None or an empty list.
at::native::DimMask reduced_dims(const at::Tensor &self, int64_t dim);
at::native::DimMask reduced_dims(const at::Tensor &self, std::optional<int64_t> dim);
at::native::DimMask reduced_dims(const at::Tensor &self, at::OptionalIntArrayRef dims);
at::native::DimMask reduced_dims(const at::Tensor &self, at::IntArrayRef dims);
at::native::DimMask all_dims();

// Reduces the masked dimensions of `self` into outputs of the right shape.
void reduce(xpu_reduction reduction, const at::Tensor &self, Outputs outputs, const at::native::DimMask &mask,
            bool keepdim, double parameter = 0);

// The same for overloads with a dtype: equivalent to converting `self` to the output's dtype first.
void reduce_converted(xpu_reduction reduction, const at::Tensor &self, Outputs outputs,
                      const at::native::DimMask &mask, bool keepdim);

// The same with a new output of the dtype.
at::Tensor reduced(xpu_reduction reduction, const at::Tensor &self, const at::native::DimMask &mask,
                   bool keepdim, at::ScalarType dtype);

} // namespace openxpu
