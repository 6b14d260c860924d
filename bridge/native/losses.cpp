// Elementwise losses with a reduction.
#include <ATen/core/Reduction.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mse_loss_native.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/smooth_l1_loss_native.h>
#include <ATen/ops/sum.h>

#include "native/pointwise.h"
#include "operands.h"

namespace at::native {

using openxpu::pointwise;
using openxpu::scalar_of;

namespace {

using Scalars = std::initializer_list<xpu_scalar>;

void reduce_into(Tensor &out, const Tensor &losses, int64_t reduction) {
    if (reduction == at::Reduction::Mean)
        at::mean_out(out, losses, IntArrayRef{});
    else
        at::sum_out(out, losses, IntArrayRef{});
}

// The losses of the elements, reduced into `out` unless the reduction is none.
Tensor &loss_into(Tensor &out, const Tensor &self, const Tensor &target, int64_t reduction,
                  xpu_pointwise_op op, Scalars scalars = {}) {
    if (reduction == at::Reduction::None) {
        auto iter = TensorIterator::borrowing_binary_op(out, self, target);
        pointwise(iter, iter.common_dtype(), op, scalars);
        return out;
    }
    Tensor losses;
    auto iter = TensorIterator::borrowing_binary_op(losses, self, target);
    pointwise(iter, iter.common_dtype(), op, scalars);
    reduce_into(out, iter.output(), reduction);
    return out;
}

// The divisor of the gradient of a mean.
double share(const Tensor &self, int64_t reduction) {
    return reduction == at::Reduction::Mean ? 1.0 / static_cast<double>(self.numel()) : 1.0;
}

Tensor &gradient_into(Tensor &grad_input, const Tensor &grad_output, const Tensor &self, const Tensor &target,
                      xpu_pointwise_op op, Scalars scalars = {}) {
    auto iter = TensorIteratorConfig()
                    .add_output(grad_input)
                    .add_const_input(grad_output)
                    .add_const_input(self)
                    .add_const_input(target)
                    .build();
    pointwise(iter, self.scalar_type(), op, scalars);
    return grad_input;
}

} // namespace

TORCH_IMPL_FUNC(mse_loss_out_xpu)
(const Tensor &self, const Tensor &target, int64_t reduction, const Tensor &out) {
    if (reduction == at::Reduction::None)
        pointwise(*this, common_dtype_, XPU_POINTWISE_MSE_LOSS);
    else
        loss_into(const_cast<Tensor &>(out), self, target, reduction, XPU_POINTWISE_MSE_LOSS);
}

Tensor &mse_loss_backward_out_xpu(const Tensor &grad_output, const Tensor &self, const Tensor &target,
                                  int64_t reduction, Tensor &grad_input) {
    return gradient_into(grad_input, grad_output, self, target, XPU_POINTWISE_MSE_LOSS_BACKWARD,
                         {scalar_of(2 * share(self, reduction))});
}
Tensor mse_loss_backward_xpu(const Tensor &grad_output, const Tensor &self, const Tensor &target,
                             int64_t reduction) {
    auto grad_input = at::empty_like(self, LEGACY_CONTIGUOUS_MEMORY_FORMAT);
    return mse_loss_backward_out_xpu(grad_output, self, target, reduction, grad_input);
}

TORCH_IMPL_FUNC(smooth_l1_loss_out_xpu)
(const Tensor &self, const Tensor &target, int64_t reduction, double beta, const Tensor &out) {
    if (reduction == at::Reduction::None)
        pointwise(*this, common_dtype_, XPU_POINTWISE_SMOOTH_L1_LOSS, {scalar_of(beta)});
    else
        loss_into(const_cast<Tensor &>(out), self, target, reduction, XPU_POINTWISE_SMOOTH_L1_LOSS,
                  {scalar_of(beta)});
}

Tensor &smooth_l1_loss_backward_out_xpu(const Tensor &grad_output, const Tensor &self, const Tensor &target,
                                        int64_t reduction, double beta, Tensor &grad_input) {
    return gradient_into(grad_input, grad_output, self, target, XPU_POINTWISE_SMOOTH_L1_LOSS_BACKWARD,
                         {scalar_of(beta), scalar_of(share(self, reduction))});
}

Tensor &huber_loss_out_xpu(const Tensor &self, const Tensor &target, int64_t reduction, double delta,
                           Tensor &out) {
    TORCH_CHECK(delta > 0, "huber_loss does not support non-positive values for delta.");
    return loss_into(out, self, target, reduction, XPU_POINTWISE_HUBER_LOSS, {scalar_of(delta)});
}
Tensor huber_loss_xpu(const Tensor &self, const Tensor &target, int64_t reduction, double delta) {
    auto out = at::empty({0}, self.options().dtype(at::result_type(self, target)));
    return huber_loss_out_xpu(self, target, reduction, delta, out);
}

Tensor &huber_loss_backward_out_xpu(const Tensor &grad_output, const Tensor &self, const Tensor &target,
                                    int64_t reduction, double delta, Tensor &grad_input) {
    return gradient_into(grad_input, grad_output, self, target, XPU_POINTWISE_HUBER_LOSS_BACKWARD,
                         {scalar_of(delta), scalar_of(share(self, reduction))});
}

Tensor &binary_cross_entropy_out_xpu(const Tensor &self, const Tensor &target,
                                     const std::optional<Tensor> &weight, int64_t reduction, Tensor &out) {
    const bool weighted = weight.has_value() && weight->defined();
    if (!weighted) return loss_into(out, self, target, reduction, XPU_POINTWISE_BCE_LOSS);
    Tensor losses;
    auto iter = TensorIterator::borrowing_binary_op(losses, self, target);
    pointwise(iter, iter.common_dtype(), XPU_POINTWISE_BCE_LOSS);
    losses = iter.output();
    losses.mul_(*weight);
    if (reduction == at::Reduction::None) return openxpu::give_converted(losses, out);
    reduce_into(out, losses, reduction);
    return out;
}
Tensor binary_cross_entropy_xpu(const Tensor &self, const Tensor &target, const std::optional<Tensor> &weight,
                                int64_t reduction) {
    auto out = at::empty({0}, self.options());
    return binary_cross_entropy_out_xpu(self, target, weight, reduction, out);
}

Tensor &binary_cross_entropy_backward_out_xpu(const Tensor &grad_output, const Tensor &self,
                                              const Tensor &target, const std::optional<Tensor> &weight,
                                              int64_t reduction, Tensor &grad_input) {
    gradient_into(grad_input, grad_output, self, target, XPU_POINTWISE_BCE_LOSS_BACKWARD);
    if (weight.has_value() && weight->defined()) grad_input.mul_(*weight);
    if (reduction == at::Reduction::Mean) grad_input.div_(self.numel());
    return grad_input;
}
Tensor binary_cross_entropy_backward_xpu(const Tensor &grad_output, const Tensor &self, const Tensor &target,
                                         const std::optional<Tensor> &weight, int64_t reduction) {
    auto grad_input = at::empty_like(self);
    return binary_cross_entropy_backward_out_xpu(grad_output, self, target, weight, reduction, grad_input);
}

} // namespace at::native
