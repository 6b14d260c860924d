// Pointwise operators that PyTorch gives no structured shape function: iterator by hand, formula from the
// table. What is not here is written by generate.py.
#include "native/pointwise.h"

#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/abs_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/real.h>
#include <ATen/ops/where_native.h>

#include <limits>

namespace openxpu {

void pointwise(at::TensorIteratorBase &iter, c10::ScalarType compute, xpu_pointwise_op op,
               std::initializer_list<xpu_scalar> scalars) {
    if (iter.numel() == 0) return;
    if (compute == c10::ScalarType::Undefined) compute = iter.dtype(iter.ninputs() > 0 ? iter.noutputs() : 0);
    const xpu_iter lowered = iter_of(iter);
    check(xpu_pointwise(current_stream(iter.device(0).index()), op, dtype_of(compute), &lowered, scalars.begin(),
                        static_cast<int>(scalars.size())));
}

} // namespace openxpu

namespace at::native {

using openxpu::pointwise;
using openxpu::scalar_of;

namespace {

constexpr auto in_its_own = ScalarType::Undefined;

// The result is real where the input is complex, and an `out` of either kind is accepted.
void complex_to_real(const Tensor &self, Tensor &out, xpu_pointwise_op op, bool integers_to_float) {
    const auto real = toRealValueType(self.scalar_type());
    if (self.is_complex() && !out.is_complex()) {
        TORCH_CHECK(canCast(real, out.scalar_type()), "result type ", real,
                    " can't be cast to the desired output type ", out.scalar_type());
        auto iter = TensorIteratorConfig().check_all_same_dtype(false).add_output(out).add_const_input(self).build();
        pointwise(iter, self.scalar_type(), op);
        return;
    }
    auto iter = integers_to_float ? TensorIterator::unary_float_op(out, self) : TensorIterator::unary_op(out, self);
    pointwise(iter, iter.common_dtype(), op);
}

// Devices of where's operands may differ only by CPU tensors of no dimension.
Device where_device(const Tensor &condition, const Tensor &self, const Tensor &other) {
    for (const auto *tensor : {&condition, &self, &other})
        if (tensor->dim() > 0 || !tensor->is_cpu()) return tensor->device();
    return condition.device();
}

} // namespace

Tensor &abs_out_xpu(const Tensor &self, Tensor &out) {
    complex_to_real(self, out, XPU_POINTWISE_ABS, false);
    return out;
}

Tensor &where_out_xpu(const Tensor &condition, const Tensor &self, const Tensor &other, Tensor &out) {
    const auto result_type = at::native::result_type(self, other);
    TORCH_CHECK(out.scalar_type() == result_type, "Expected out type to be ", result_type, " but got ",
                out.scalar_type());
    if (condition.scalar_type() == kByte) {
        TORCH_WARN_ONCE("where received a uint8 condition tensor. This behavior is deprecated and will be removed in "
                        "a future version of PyTorch. Use a boolean condition instead.");
    } else {
        TORCH_CHECK(condition.scalar_type() == kBool,
                    "where expected condition to be a boolean tensor, but got a tensor with dtype ",
                    condition.scalar_type());
    }
    auto iter = TensorIteratorConfig()
                    .check_all_same_dtype(false)
                    .add_output(out)
                    .add_const_input(condition)
                    .add_const_input(self)
                    .add_const_input(other)
                    .build();
    pointwise(iter, result_type, XPU_POINTWISE_WHERE);
    return out;
}

Tensor where_xpu(const Tensor &condition, const Tensor &self, const Tensor &other) {
    const auto options = self.options().dtype(at::native::result_type(self, other));
    auto out = at::empty({0}, options.device(where_device(condition, self, other)));
    return where_out_xpu(condition, self, other, out);
}

} // namespace at::native
