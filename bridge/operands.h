// Data pointers of inputs and outputs.
#pragma once

#include "lower.h"

namespace openxpu {

// For memory that is only read: keeps lazy clones (copy on write) shared. For memory that a kernel
// writes, use tensor_of and mutable_data_ptr().
inline void *input_data(const at::TensorBase &tensor) { return const_cast<void *>(tensor.const_data_ptr()); }
inline xpu_tensor input_of(const at::TensorBase &tensor) {
    return {.data = input_data(tensor),
            .dtype = dtype_of(tensor),
            .dims = static_cast<int>(tensor.dim()),
            .size = tensor.sizes().data(),
            .stride = tensor.strides().data()};
}

// The destination for a kernel that writes contiguous memory (or memory of `format`): the caller's `out`
// if it has that layout, else a temporary that deliver() copies to `out`. `dtype` is the kernel's result
// dtype, which `out` must have.
at::Tensor dense_for(const at::Tensor &out, c10::ScalarType dtype,
                     at::MemoryFormat format = at::MemoryFormat::Contiguous);
inline void deliver(const at::Tensor &dense, const at::Tensor &out) {
    if (!dense.is_same(out)) out.copy_(dense);
}

// Copies a result to the caller's `out`, resizing it if needed. `give` requires equal dtypes;
// `give_converted` converts.
at::Tensor &give(const at::Tensor &value, at::Tensor &out);
at::Tensor &give_converted(const at::Tensor &value, at::Tensor &out);

} // namespace openxpu
