// softmax, log_softmax and masked softmax, forward and backward.
#include "xpu/ops/softmax.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_log_softmax_backward_data_native.h>
#include <ATen/ops/_log_softmax_native.h>
#include <ATen/ops/_masked_softmax_backward_native.h>
#include <ATen/ops/_masked_softmax_native.h>
#include <ATen/ops/_softmax_backward_data_native.h>
#include <ATen/ops/_softmax_native.h>
#include <ATen/ops/empty_like.h>

#include "operands.h"

namespace at::native {

using namespace openxpu;
using openxpu::check;

namespace {

xpu_softmax softmax_over(const Tensor &tensor, int64_t dim) {
    const auto sizes = tensor.sizes();
    xpu_softmax args = {.outer = 1, .length = 1, .inner = 1};
    if (sizes.empty()) return args;
    dim = maybe_wrap_dim(dim, tensor.dim());
    for (int64_t i = 0; i < dim; i++) args.outer *= sizes[i];
    args.length = sizes[dim];
    for (int64_t i = dim + 1; i < tensor.dim(); i++) args.inner *= sizes[i];
    return args;
}

void softmax_forward(const Tensor &self, int64_t dim, bool logarithm, const Tensor &mask, const Tensor &out) {
    if (self.numel() == 0) return;
    auto args = softmax_over(self, dim);
    const auto input = self.contiguous(), contiguous_mask = mask.defined() ? mask.contiguous() : mask;
    const auto result = dense_for(out, out.scalar_type());
    args.input_dtype = dtype_of(self);
    args.output_dtype = dtype_of(out);
    args.logarithm = logarithm;
    args.mask = mask.defined() ? contiguous_mask.const_data_ptr() : nullptr;
    check(
        xpu_softmax_forward(current_stream(self), &args, input.const_data_ptr(), result.mutable_data_ptr()));
    deliver(result, out);
}

void softmax_backward(const Tensor &grad_output, const Tensor &output, int64_t dim, bool logarithm,
                      const Tensor &mask, const Tensor &grad_input) {
    TORCH_CHECK(grad_output.sizes() == output.sizes(), logarithm ? "log_softmax" : "softmax",
                "_backward: a gradient of shape ", grad_output.sizes(), " doesn't fit an output of shape ",
                output.sizes());
    if (output.numel() == 0) return;
    auto args = softmax_over(output, dim);
    const auto grad = grad_output.contiguous(), y = output.contiguous();
    const auto contiguous_mask = mask.defined() ? mask.contiguous() : mask;
    const auto result = dense_for(grad_input, grad_input.scalar_type());
    args.input_dtype = dtype_of(grad_input);
    args.output_dtype = dtype_of(y);
    args.logarithm = logarithm;
    args.mask = mask.defined() ? contiguous_mask.const_data_ptr() : nullptr;
    check(xpu_softmax_backward(current_stream(output), &args, grad.const_data_ptr(), y.const_data_ptr(),
                               result.mutable_data_ptr()));
    deliver(result, grad_input);
}

// The mask, expanded to the input: [L, L] (type 0), [B, L] for an input [B, H, L, L] (type 1), or the
// input's own shape (type 2).
Tensor mask_for(const Tensor &self, const Tensor &mask, std::optional<int64_t> type) {
    TORCH_CHECK(mask.scalar_type() == kBool, "Mask should be a boolean tensor");
    if (type == 1 && self.dim() == 4 && mask.dim() == 2 && mask.size(0) == self.size(0) &&
        mask.size(1) == self.size(3))
        return mask.view({self.size(0), 1, 1, self.size(3)}).expand_as(self);
    if (type == 0 && self.dim() == 4 && mask.dim() == 2)
        return mask.view({1, 1, mask.size(0), mask.size(1)}).expand_as(self);
    TORCH_CHECK(mask.sizes() == self.sizes(), "Mask shape should match input. mask: ", mask.sizes(),
                " input: ", self.sizes());
    return mask;
}

} // namespace

TORCH_IMPL_FUNC(softmax_xpu)(const Tensor &self, int64_t dim, bool half_to_float, const Tensor &out) {
    softmax_forward(self, dim, false, {}, out);
}

TORCH_IMPL_FUNC(log_softmax_xpu)(const Tensor &self, int64_t dim, bool half_to_float, const Tensor &out) {
    softmax_forward(self, dim, true, {}, out);
}

TORCH_IMPL_FUNC(softmax_backward_xpu)(const Tensor &grad_output, const Tensor &output, int64_t dim,
                                      ScalarType input_dtype, const Tensor &grad_input) {
    softmax_backward(grad_output, output, dim, false, {}, grad_input);
}

TORCH_IMPL_FUNC(log_softmax_backward_xpu)(const Tensor &grad_output, const Tensor &output, int64_t dim,
                                          ScalarType input_dtype, const Tensor &grad_input) {
    softmax_backward(grad_output, output, dim, true, {}, grad_input);
}

Tensor masked_softmax_xpu(const Tensor &self, const Tensor &mask, std::optional<int64_t> dim,
                          std::optional<int64_t> mask_type) {
    auto out = at::empty_like(self, MemoryFormat::Contiguous);
    softmax_forward(self, dim.value_or(-1), false, mask_for(self, mask, mask_type), out);
    return out;
}

Tensor masked_softmax_backward_xpu(const Tensor &grad_output, const Tensor &output, const Tensor &mask,
                                   std::optional<int64_t> dim) {
    auto grad_input = at::empty_like(output, MemoryFormat::Contiguous);
    softmax_backward(grad_output, output, dim.value_or(-1), false, mask_for(output, mask, 2), grad_input);
    return grad_input;
}

} // namespace at::native
