// Multi-label margin loss.
#include "xpu/ops/margin.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/LossMulti.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/multilabel_margin_loss_backward_native.h>
#include <ATen/ops/multilabel_margin_loss_forward_native.h>

#include "operands.h"

namespace at::native {

using namespace openxpu;
using openxpu::check;

namespace {

// What kernels read: rows of scores with their targets.
struct MarginScores {
    Tensor scores, targets; // contiguous
    xpu_margin args;
};

MarginScores margin_scores(const Tensor &self, const Tensor &target) {
    int64_t rows, classes;
    multilabel_margin_loss_shape_check(rows, classes, self.dim(), self, target);
    TORCH_CHECK(target.scalar_type() == kLong, "multilabel_margin_loss: expected targets of dtype Long, got ",
                target.scalar_type());
    TORCH_CHECK(target.device() == self.device(), "multilabel_margin_loss: input is on ", self.device(),
                ", target on ", target.device());
    MarginScores s = {self.contiguous(), target.contiguous(), {}};
    s.args = {
        .rows = rows, .classes = classes, .dtype = dtype_of(self), .targets = s.targets.const_data_ptr()};
    return s;
}

ScalarType losses_dtype(const Tensor &self) { return self.scalar_type() == kDouble ? kDouble : kFloat; }

} // namespace

std::tuple<Tensor, Tensor> multilabel_margin_loss_forward_xpu(const Tensor &self, const Tensor &target,
                                                              int64_t reduction) {
    const auto s = margin_scores(self, target);
    const auto is_target = at::empty(target.sizes(), self.options());
    auto losses = at::empty({s.args.rows}, self.options().dtype(losses_dtype(self)));
    xpu_fault fault = {};
    check(xpu_margin_forward(current_stream(self), &s.args, s.scores.const_data_ptr(),
                             is_target.mutable_data_ptr(), losses.mutable_data_ptr(), &fault));
    TORCH_CHECK(!fault.state, "argument #2 'target' is out of range: got ", fault.index, " for ",
                fault.extent, " classes");
    if (reduction == Reduction::Mean) losses = losses.mean();
    if (reduction == Reduction::Sum) losses = losses.sum();
    if (target.dim() <= 1) losses = losses.reshape({});
    return {losses.to(self.scalar_type()), is_target};
}

std::tuple<Tensor &, Tensor &> multilabel_margin_loss_forward_out_xpu(const Tensor &self,
                                                                      const Tensor &target, int64_t reduction,
                                                                      Tensor &output, Tensor &is_target) {
    const auto [loss, found] = multilabel_margin_loss_forward_xpu(self, target, reduction);
    return std::forward_as_tuple(give(loss, output), give(found, is_target));
}

Tensor multilabel_margin_loss_backward_xpu(const Tensor &grad_output, const Tensor &self,
                                           const Tensor &target, int64_t reduction, const Tensor &is_target) {
    const auto s = margin_scores(self, target);
    TORCH_CHECK(is_target.sizes() == target.sizes(), "multilabel_margin_loss_backward: is_target has shape ",
                is_target.sizes(), ", target ", target.sizes());
    const auto found = is_target.to(self.scalar_type()).contiguous();
    auto grad = grad_output.to(losses_dtype(self));
    if (reduction == Reduction::Mean) grad = grad / s.args.rows;
    grad = grad.expand({s.args.rows}).contiguous();
    const auto result = at::empty(self.sizes(), self.options());
    check(xpu_margin_backward(current_stream(self), &s.args, grad.const_data_ptr(), s.scores.const_data_ptr(),
                              found.const_data_ptr(), result.mutable_data_ptr()));
    return result;
}

Tensor &multilabel_margin_loss_backward_out_xpu(const Tensor &grad_output, const Tensor &self,
                                                const Tensor &target, int64_t reduction,
                                                const Tensor &is_target, Tensor &grad_input) {
    return give(multilabel_margin_loss_backward_xpu(grad_output, self, target, reduction, is_target),
                grad_input);
}

} // namespace at::native
