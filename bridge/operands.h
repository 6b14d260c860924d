// Data pointers of inputs and outputs.
#pragma once

#include "lower.h"

namespace openxpu {

// Memory that is only read: what lazy clones share (copy on write) stays shared. tensor_of and
// mutable_data_ptr() are for what a kernel writes.
inline void *input_data(const at::TensorBase &tensor) { return const_cast<void *>(tensor.const_data_ptr()); }
inline xpu_tensor input_of(const at::TensorBase &tensor) {
    return {.data = input_data(tensor),
            .dtype = dtype_of(tensor),
            .dims = static_cast<int>(tensor.dim()),
            .size = tensor.sizes().data(),
            .stride = tensor.strides().data()};
}

// As as_cpu, of a tensor that the CPU's kernel only reads.
at::Tensor as_cpu_input(const at::Tensor &tensor);

// Where a kernel that only writes contiguous memory (or that of `format`) puts what belongs into a caller's
// `out`: there if it can, else beside it; deliver() copies it over then. `dtype` is what it writes, and what
// `out` must have.
at::Tensor dense_for(const at::Tensor &out, c10::ScalarType dtype,
                     at::MemoryFormat format = at::MemoryFormat::Contiguous);
inline void deliver(const at::Tensor &dense, const at::Tensor &out) {
    if (!dense.is_same(out)) out.copy_(dense);
}

// What was computed elsewhere into a caller's `out`, which is resized if need be and must have its dtype; or
// may have another, which it is converted to.
at::Tensor &give(const at::Tensor &value, at::Tensor &out);
at::Tensor &give_converted(const at::Tensor &value, at::Tensor &out);

} // namespace openxpu
