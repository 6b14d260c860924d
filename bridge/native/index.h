// Shared by the operator families that use index tensors.
#pragma once

#include "operands.h"
#include "xpu/ops/index.h"

namespace openxpu {

// As tensor_of and input_of, with an unsigned dtype of the same size: for operations that only move elements,
// so that they take every dtype there is.
inline xpu_dtype bits_dtype(const at::TensorBase &tensor) {
    const auto size = tensor.element_size();
    return size == 1   ? XPU_UINT8
           : size == 2 ? XPU_UINT16
           : size == 4 ? XPU_UINT32
           : size == 8 ? XPU_UINT64
                       : XPU_COMPLEX128;
}
inline xpu_tensor bits_of(const at::TensorBase &tensor) {
    return {.data = tensor.mutable_data_ptr(),
            .dtype = bits_dtype(tensor),
            .dims = static_cast<int>(tensor.dim()),
            .size = tensor.sizes().data(),
            .stride = tensor.strides().data()};
}
inline xpu_tensor input_bits_of(const at::TensorBase &tensor) {
    return {.data = input_data(tensor),
            .dtype = bits_dtype(tensor),
            .dims = static_cast<int>(tensor.dim()),
            .size = tensor.sizes().data(),
            .stride = tensor.strides().data()};
}

// The order in which elements that meet are combined: the same in every run where PyTorch is asked for it.
xpu_scatter_order scatter_order();

// Raises as the CPU does where `out` has no element along `dim` that an index could name, before any launch.
void check_places(const char *op, const at::Tensor &out, int64_t dim, const at::Tensor &index, bool as_index);

// Writes source[i…] to the places of `out`, taken as flat memory, that `positions` names.
void put_flat(const at::Tensor &out, const at::Tensor &positions, const at::Tensor &source, bool accumulate,
              xpu_fault *fault);

} // namespace openxpu
