#include "operands.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

namespace openxpu {

at::Tensor dense_for(const at::Tensor &out, c10::ScalarType dtype, at::MemoryFormat format) {
    TORCH_CHECK(out.scalar_type() == dtype, "Expected out tensor to have dtype ", dtype, ", but got ",
                out.scalar_type(), " instead");
    at::assert_no_internal_overlap(out);
    return out.is_contiguous(format) ? out : at::empty(out.sizes(), out.options().memory_format(format));
}

at::Tensor &give(const at::Tensor &value, at::Tensor &out) {
    TORCH_CHECK(out.scalar_type() == value.scalar_type(), "Expected out tensor to have dtype ",
                value.scalar_type(), ", but got ", out.scalar_type(), " instead");
    return give_converted(value, out);
}

at::Tensor &give_converted(const at::Tensor &value, at::Tensor &out) {
    at::native::resize_output(out, value.sizes());
    return out.copy_(value);
}

} // namespace openxpu
