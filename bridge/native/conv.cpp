// Convolutions. On host devices PyTorch's own CPU convolutions (oneDNN) work on the same memory; they
// choose the result's layout, and these functions choose it alike for other devices: channels last if input
// or weight is.
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/convolution_backward_overrideable_native.h>
#include <ATen/ops/convolution_overrideable_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include "../host_memory.h"
#include "../operands.h"
#include "xpu/ops/conv.h"

namespace {

using at::IntArrayRef;
using at::Tensor;

xpu_conv conv_of(int dims, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
                 IntArrayRef output_padding, int64_t groups) {
    TORCH_CHECK_NOT_IMPLEMENTED(dims >= 1 && dims <= XPU_CONV_MAX_DIMS, "convolution of ", dims,
                                " dimensions");
    xpu_conv conv{.dims = dims, .transposed = transposed, .groups = groups};
    for (int i = 0; i < dims; i++) {
        conv.stride[i] = stride[i];
        conv.padding[i] = padding[i];
        conv.dilation[i] = dilation[i];
        conv.output_padding[i] = transposed ? output_padding[i] : 0;
    }
    return conv;
}

at::MemoryFormat format_of(const Tensor &input, const Tensor &weight) {
    const auto wanted = input.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
    const bool can = input.dim() == 4 || input.dim() == 5;
    return can && (input.suggest_memory_format() == wanted || weight.suggest_memory_format() == wanted)
               ? wanted
               : at::MemoryFormat::Contiguous;
}

Tensor for_host(const Tensor &tensor) {
    Tensor cpu = openxpu::as_cpu_input(tensor);
    return cpu.defined() && openxpu::is_slow_on_host(cpu.scalar_type()) ? cpu.to(at::kFloat) : cpu;
}
Tensor from_host(const openxpu::HostScope &scope, Tensor result, at::ScalarType type) {
    if (!result.defined()) return result;
    return scope.adopt(result.scalar_type() == type ? std::move(result) : result.to(type));
}

} // namespace

namespace at::native {

Tensor convolution_overrideable_xpu(const Tensor &input, const Tensor &weight,
                                    const std::optional<Tensor> &bias, IntArrayRef stride,
                                    IntArrayRef padding, IntArrayRef dilation, bool transposed,
                                    IntArrayRef output_padding, int64_t groups) {
    const auto device = input.device().index();
    if (openxpu::uses_host_kernels(device)) {
        const openxpu::HostScope scope(device);
        std::optional<Tensor> host_bias;
        if (bias && bias->defined()) host_bias = for_host(*bias);
        return from_host(scope,
                         at::convolution(for_host(input), for_host(weight), host_bias, stride, padding,
                                         dilation, transposed, output_padding, groups),
                         input.scalar_type());
    }
    const auto sizes = transposed
                           ? conv_input_size(input.sizes(), weight.sizes(), padding, output_padding, stride,
                                             dilation, groups)
                           : conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
    Tensor output = at::empty(sizes, input.options().memory_format(format_of(input, weight)));
    if (output.numel() == 0) return output;
    const xpu_conv conv = conv_of(static_cast<int>(input.dim()) - 2, stride, padding, dilation, transposed,
                                  output_padding, groups);
    const xpu_tensor x = openxpu::input_of(input), w = openxpu::input_of(weight),
                     y = openxpu::tensor_of(output);
    xpu_tensor b{};
    const bool biased = bias && bias->defined();
    if (biased) b = openxpu::input_of(*bias);
    openxpu::check(
        xpu_conv_forward(openxpu::current_stream(input), &conv, &x, &w, biased ? &b : nullptr, &y));
    return output;
}

std::tuple<Tensor, Tensor, Tensor>
convolution_backward_overrideable_xpu(const Tensor &grad_output, const Tensor &input, const Tensor &weight,
                                      IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                                      bool transposed, IntArrayRef output_padding, int64_t groups,
                                      std::array<bool, 3> output_mask) {
    const auto device = input.device().index();
    if (openxpu::uses_host_kernels(device)) {
        const openxpu::HostScope scope(device);
        const int64_t channels = grad_output.size(1);
        auto [grad_input, grad_weight, grad_bias] = at::convolution_backward(
            for_host(grad_output), for_host(input), for_host(weight), IntArrayRef(&channels, 1), stride,
            padding, dilation, transposed, output_padding, groups, output_mask);
        const auto type = input.scalar_type();
        return {from_host(scope, std::move(grad_input), type), from_host(scope, std::move(grad_weight), type),
                from_host(scope, std::move(grad_bias), type)};
    }
    const auto format = format_of(input, weight);
    Tensor grad_input, grad_weight, grad_bias;
    xpu_tensor gx{}, gw{}, gb{};
    if (output_mask[0])
        grad_input = at::empty_like(input, input.options().memory_format(format)),
        gx = openxpu::tensor_of(grad_input);
    if (output_mask[1])
        grad_weight = at::empty_like(weight, weight.options().memory_format(format)),
        gw = openxpu::tensor_of(grad_weight);
    if (output_mask[2])
        grad_bias = at::empty({grad_output.size(1)}, weight.options()), gb = openxpu::tensor_of(grad_bias);
    if (grad_output.numel() == 0 || input.numel() == 0 || weight.numel() == 0) {
        for (Tensor *grad : {&grad_input, &grad_weight, &grad_bias})
            if (grad->defined()) grad->zero_();
        return {grad_input, grad_weight, grad_bias};
    }
    const xpu_conv conv = conv_of(static_cast<int>(input.dim()) - 2, stride, padding, dilation, transposed,
                                  output_padding, groups);
    const xpu_tensor gy = openxpu::input_of(grad_output), x = openxpu::input_of(input),
                     w = openxpu::input_of(weight);
    openxpu::check(xpu_conv_backward(openxpu::current_stream(input), &conv, &gy, &x, &w,
                                     output_mask[0] ? &gx : nullptr, output_mask[1] ? &gw : nullptr,
                                     output_mask[2] ? &gb : nullptr));
    return {grad_input, grad_weight, grad_bias};
}

} // namespace at::native
