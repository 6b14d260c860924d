// Negative log likelihood, forward and backward.
#include "xpu/ops/loss.h"

#include <ATen/core/Reduction.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nll_loss2d_backward_native.h>
#include <ATen/ops/nll_loss2d_forward_native.h>
#include <ATen/ops/nll_loss_backward_native.h>
#include <ATen/ops/nll_loss_forward_native.h>

#include "operands.h"

namespace at::native {

using namespace openxpu;
using openxpu::check;

namespace {

// The input is [N, C, …] or [C].
xpu_nll_loss nll_of(const Tensor &input, const Tensor &target, const Tensor &weight, int64_t reduction,
                    int64_t ignore_index) {
    xpu_nll_loss args = {.batch = 1, .classes = input.size(0), .inner = 1};
    if (input.dim() > 1) {
        args.batch = input.size(0);
        args.classes = input.size(1);
        for (int64_t i = 2; i < input.dim(); i++) args.inner *= input.size(i);
    }
    args.dtype = dtype_of(input);
    args.target_dtype = dtype_of(target);
    args.reduction = reduction == Reduction::None   ? XPU_LOSS_NONE
                     : reduction == Reduction::Mean ? XPU_LOSS_MEAN
                                                    : XPU_LOSS_SUM;
    args.ignore_index = ignore_index;
    args.target = target.const_data_ptr();
    args.weight = weight.defined() ? weight.const_data_ptr() : nullptr;
    return args;
}

Tensor dense_weight(const Tensor &weight, const Tensor &input) {
    return weight.defined() ? weight.to(input.scalar_type()).contiguous() : weight;
}

void nll_forward(const Tensor &input, const Tensor &target, const Tensor &weight, int64_t reduction,
                 int64_t ignore_index, const Tensor &output, const Tensor &total_weight) {
    const auto x = input.contiguous(), t = target.contiguous(), w = dense_weight(weight, input);
    const auto args = nll_of(x, t, w, reduction, ignore_index);
    const auto out = dense_for(output, input.scalar_type()),
               total = dense_for(total_weight, input.scalar_type());
    xpu_fault fault = {};
    check(xpu_nll_loss_forward(current_stream(input), &args, x.const_data_ptr(), out.mutable_data_ptr(),
                               total.mutable_data_ptr(), &fault));
    TORCH_CHECK_INDEX(!fault.state, "Target ", fault.index, " is out of bounds.");
    deliver(out, output);
    deliver(total, total_weight);
}

void nll_backward(const Tensor &grad_output, const Tensor &input, const Tensor &target, const Tensor &weight,
                  int64_t reduction, int64_t ignore_index, const Tensor &total_weight,
                  const Tensor &grad_input) {
    const auto count = reduction == Reduction::None ? target.numel() : 1;
    TORCH_CHECK(grad_output.numel() == count, "nll_loss_backward: expected grad_output of ", count,
                " elements, but got ", grad_output.sizes());
    if (grad_input.numel() == 0) return;
    const auto t = target.contiguous(), w = dense_weight(weight, input), g = grad_output.contiguous();
    const auto args = nll_of(input, t, w, reduction, ignore_index);
    const auto out = dense_for(grad_input, input.scalar_type());
    check(xpu_nll_loss_backward(current_stream(input), &args, g.const_data_ptr(),
                                total_weight.const_data_ptr(), out.mutable_data_ptr()));
    deliver(out, grad_input);
}

void check_nll2d(const Tensor &self, const Tensor &target, const Tensor &weight) {
    TORCH_CHECK(
        target.dim() == 3,
        "only batches of spatial targets supported (3D tensors) but got targets of size: : ", target.sizes());
    TORCH_CHECK(
        self.dim() == 4,
        "only batches of spatial inputs supported (4D tensors), but got input of size: ", self.sizes());
    TORCH_CHECK(!weight.defined() || weight.numel() == self.size(1),
                "weight tensor should be defined either for all or no classes");
    TORCH_CHECK(self.size(0) == target.size(0) && self.size(2) == target.size(1) &&
                    self.size(3) == target.size(2),
                "input and target batch or spatial sizes don't match: target ", target.sizes(), ", input ",
                self.sizes());
}

} // namespace

TORCH_IMPL_FUNC(nll_loss_forward_xpu)(const Tensor &self, const Tensor &target, OptionalTensorRef weight,
                                      int64_t reduction, int64_t ignore_index, const Tensor &output,
                                      const Tensor &total_weight) {
    nll_forward(self, target, weight.getTensorRef(), reduction, ignore_index, output, total_weight);
}

TORCH_IMPL_FUNC(nll_loss_backward_xpu)(const Tensor &grad_output, const Tensor &self, const Tensor &target,
                                       OptionalTensorRef weight, int64_t reduction, int64_t ignore_index,
                                       const Tensor &total_weight, const Tensor &grad_input) {
    nll_backward(grad_output, self, target, weight.getTensorRef(), reduction, ignore_index, total_weight,
                 grad_input);
}

std::tuple<Tensor &, Tensor &> nll_loss2d_forward_xpu_out(const Tensor &self, const Tensor &target,
                                                          const std::optional<Tensor> &weight,
                                                          int64_t reduction, int64_t ignore_index,
                                                          Tensor &output, Tensor &total_weight) {
    const auto w = weight.value_or(Tensor());
    check_nll2d(self, target, w);
    resize_output(total_weight, {});
    if (reduction == Reduction::None)
        resize_output(output, target.sizes());
    else
        resize_output(output, {});
    nll_forward(self, target, w, reduction, ignore_index, output, total_weight);
    return std::forward_as_tuple(output, total_weight);
}

std::tuple<Tensor, Tensor> nll_loss2d_forward_xpu(const Tensor &self, const Tensor &target,
                                                  const std::optional<Tensor> &weight, int64_t reduction,
                                                  int64_t ignore_index) {
    auto output = at::empty({0}, self.options()), total_weight = at::empty({0}, self.options());
    nll_loss2d_forward_xpu_out(self, target, weight, reduction, ignore_index, output, total_weight);
    return {output, total_weight};
}

Tensor &nll_loss2d_backward_xpu_out(const Tensor &grad_output, const Tensor &self, const Tensor &target,
                                    const std::optional<Tensor> &weight, int64_t reduction,
                                    int64_t ignore_index, const Tensor &total_weight, Tensor &grad_input) {
    const auto w = weight.value_or(Tensor());
    check_nll2d(self, target, w);
    resize_output(grad_input, self.sizes());
    TORCH_CHECK(total_weight.numel() == 1,
                "expected total_weight to be a single element tensor, got: ", total_weight.sizes(), " (",
                total_weight.numel(), " elements)");
    nll_backward(grad_output, self, target, w, reduction, ignore_index, total_weight, grad_input);
    return grad_input;
}

Tensor nll_loss2d_backward_xpu(const Tensor &grad_output, const Tensor &self, const Tensor &target,
                               const std::optional<Tensor> &weight, int64_t reduction, int64_t ignore_index,
                               const Tensor &total_weight) {
    auto grad_input = at::empty_like(self, MemoryFormat::Contiguous);
    return nll_loss2d_backward_xpu_out(grad_output, self, target, weight, reduction, ignore_index,
                                       total_weight, grad_input);
}

} // namespace at::native
