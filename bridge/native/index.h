// Shared by the operator families that use index tensors.
#pragma once

#include "operands.h"
#include "xpu/ops/index.h"

namespace openxpu {

// tensor_of and input_of with an unsigned dtype of the same size, so that operations that only copy
// elements accept every dtype.
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

// The order in which elements with the same destination combine: fixed if PyTorch's deterministic mode is
// on.
xpu_scatter_order scatter_order();

// Throws like the CPU if `out` is empty along `dim`, so that every index is invalid. Called before any
// launch.
void check_positions(const char *op, const at::Tensor &out, int64_t dim, const at::Tensor &index,
                     bool as_index);

// Writes source[i…] to the flat offsets `positions` of `out`.
void put_flat(const at::Tensor &out, const at::Tensor &positions, const at::Tensor &source, bool accumulate,
              xpu_fault *fault);

} // namespace openxpu
