// Convolutions, and PyTorch's fused ones (mkldnn::_convolution_…).
//
// On CPU devices PyTorch's CPU convolutions (oneDNN) work on the same memory and choose the result's
// layout. Other devices use the same rule: channels last if input or weight is.
#include <ATen/Context.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/native/utils/ParamUtils.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/convolution_backward_overrideable_native.h>
#include <ATen/ops/convolution_overrideable_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "../host_memory.h"
#include "../operands.h"
#include "onednn_faults.h"
#include "post_ops.h"
#include "xpu/ops/conv.h"

namespace {

using at::IntArrayRef;
using at::Tensor;

xpu_conv conv_of(int dims, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
                 IntArrayRef output_padding, int64_t groups) {
    TORCH_CHECK_NOT_IMPLEMENTED(dims >= 1 && dims <= XPU_CONV_MAX_DIMS, "convolution with ", dims,
                                " spatial dimensions");
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

Tensor widened(const Tensor &cpu) {
    return cpu.defined() && openxpu::is_slow_on_host(cpu.scalar_type()) ? cpu.to(at::kFloat) : cpu;
}
// The tensor in the layout that PyTorch's CPU convolutions assume: dense, with regular strides in
// dimensions of size 1 too. oneDNN derives the layout from those strides; irregular ones give wrong
// results or a crash. slow_conv2d rejects them.
Tensor in_order(const Tensor &cpu, at::MemoryFormat format) {
    if (!cpu.defined()) return cpu;
    const Tensor dense = cpu.contiguous(format);
    const auto plain = c10::contiguous_strides(dense.sizes());
    const auto strides =
        format == at::MemoryFormat::ChannelsLast     ? c10::get_channels_last_strides_2d(dense.sizes())
        : format == at::MemoryFormat::ChannelsLast3d ? c10::get_channels_last_strides_3d(dense.sizes())
                                                     : std::vector<int64_t>(plain.begin(), plain.end());
    return dense.strides() == IntArrayRef(strides) ? dense : dense.as_strided(dense.sizes(), strides);
}
Tensor for_host(const Tensor &tensor, at::MemoryFormat format = at::MemoryFormat::Contiguous) {
    return widened(in_order(openxpu::as_cpu_input(tensor), format));
}
Tensor narrowed(Tensor result, at::ScalarType type) {
    return !result.defined() || result.scalar_type() == type ? std::move(result) : result.to(type);
}
Tensor from_host(const openxpu::HostScope &scope, Tensor result, at::ScalarType type) {
    return scope.adopt(narrowed(std::move(result), type));
}

struct ConvSettings {
    const std::vector<int64_t> stride, padding, dilation;
    const bool transposed;
    const std::vector<int64_t> output_padding;
    const int64_t groups;

    std::vector<int64_t> output_size(const Tensor &input, const Tensor &weight) const {
        return transposed
                   ? at::native::conv_input_size(input.sizes(), weight.sizes(), padding, output_padding,
                                                 stride, dilation, groups)
                   : at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
    }
};

// Arguments of a convolution, without post-ops.
struct Convolution : ConvSettings {
    const Tensor &input, &weight;
    const Tensor bias; // may be undefined

    std::vector<int64_t> output_size() const { return ConvSettings::output_size(input, weight); }
    c10::DeviceIndex device() const { return input.device().index(); }
};

void convolve(const Convolution &c, const xpu_post_ops &post_ops, const Tensor &other, const Tensor &output) {
    if (output.numel() == 0) return;
    const xpu_conv conv = conv_of(static_cast<int>(c.input.dim()) - 2, c.stride, c.padding, c.dilation,
                                  c.transposed, c.output_padding, c.groups);
    const xpu_tensor x = openxpu::input_of(c.input), w = openxpu::input_of(c.weight),
                     y = openxpu::tensor_of(output);
    xpu_tensor b{}, z{};
    if (c.bias.defined()) b = openxpu::input_of(c.bias);
    if (other.defined()) z = openxpu::input_of(other);
    openxpu::check(xpu_conv_forward_post_ops(openxpu::current_stream(c.input), &conv, &x, &w,
                                             c.bias.defined() ? &b : nullptr, &post_ops,
                                             other.defined() ? &z : nullptr, &y));
}

// Cases in which PyTorch doesn't use oneDNN. Its own kernels then accumulate in bfloat16, once per tap.
bool adds_bias_in_bf16(const ConvSettings &s) {
    if (!at::globalContext().userEnabledMkldnn()) return true;
    for (size_t i = 0; s.transposed && i < s.stride.size(); i++)
        if (s.output_padding[i] >= s.stride[i]) return true;
    return false;
}
Tensor widened(const Tensor &cpu, const ConvSettings &s) {
    const bool adds = cpu.defined() && cpu.scalar_type() == at::kBFloat16 && adds_bias_in_bf16(s);
    return adds ? cpu.to(at::kFloat) : widened(cpu);
}

// Gradients and transposed convolutions write the other side: oneDNN computes them by the same kernels.
bool is_wrong_with_amx(const Tensor &input, const Tensor &weight, const ConvSettings &s) {
    return openxpu::has_amx() && at::isReducedFloatingType(input.scalar_type()) &&
           (input.size(-1) == 1 ||
            openxpu::is_wrong_with_amx(s.output_size(input, weight), weight.sizes(), s.stride, s.padding));
}

// Whether to put zeros around the wide side instead of padding.
bool has_no_whole_window(const Tensor &input, const Tensor &weight, const ConvSettings &s) {
    const auto output = s.output_size(input, weight);
    const IntArrayRef in = input.sizes(), out = output;
    return openxpu::has_no_whole_window(s.transposed ? out : in, s.transposed ? in : out, weight.sizes(),
                                        s.stride, s.padding, s.dilation);
}
ConvSettings without_padding(const ConvSettings &s) {
    return {s.stride, std::vector<int64_t>(s.stride.size(), 0), s.dilation, s.transposed, s.output_padding,
            s.groups};
}
Tensor with_zeros_around(const Tensor &wide, const std::vector<int64_t> &padding) {
    std::vector<int64_t> both; // the last dimension first
    for (size_t i = padding.size(); i-- > 0;) both.insert(both.end(), 2, padding[i]);
    return at::constant_pad_nd(wide, both);
}
Tensor without_border(Tensor wide, const std::vector<int64_t> &padding) {
    if (!wide.defined()) return wide;
    const auto format = wide.suggest_memory_format();
    for (size_t i = 0; i < padding.size(); i++) {
        const auto dim = static_cast<int64_t>(i) + 2;
        wide = wide.slice(dim, padding[i], wide.size(dim) - padding[i]);
    }
    return wide.contiguous(format);
}
Tensor host_operand(const Tensor &cpu, const ConvSettings &s, bool in_float) {
    return in_float && cpu.defined() ? cpu.to(at::kFloat) : widened(cpu, s);
}

// Convolution with PyTorch's CPU operator.
std::array<Tensor, 1> convolution_cpu(const ConvSettings &s, const std::array<Tensor, 3> &x) {
    if (has_no_whole_window(x[0], x[1], s)) {
        if (!s.transposed)
            return convolution_cpu(without_padding(s), {with_zeros_around(x[0], s.padding), x[1], x[2]});
        return {without_border(convolution_cpu(without_padding(s), x)[0], s.padding)};
    }
    const auto format = format_of(x[0], x[1]);
    const bool in_float = is_wrong_with_amx(x[0], x[1], s);
    std::optional<Tensor> bias;
    if (x[2].defined()) bias = host_operand(x[2].contiguous(), s, in_float);
    return {narrowed(at::convolution(host_operand(in_order(x[0], format), s, in_float),
                                     host_operand(in_order(x[1], format), s, in_float), bias, s.stride,
                                     s.padding, s.dilation, s.transposed, s.output_padding, s.groups),
                     x[0].scalar_type())};
}
Tensor convolve_on_host(const Convolution &c) {
    return openxpu::on_host<1, 3, ConvSettings>("host convolution", c.device(), {c.input, c.weight, c.bias},
                                                c, convolution_cpu)[0];
}

struct ConvGradient {
    ConvSettings of;
    int64_t channels; // of the result
    std::array<bool, 3> wanted;
};
std::array<Tensor, 3> gradients_of_onednn(const ConvGradient &g, const std::array<Tensor, 3> &x) {
    const bool needs_plain =
        g.of.transposed && openxpu::has_wrong_transposed_gradient(x[1].sizes(), x[2].sizes());
    const auto format = needs_plain ? at::MemoryFormat::Contiguous : format_of(x[1], x[2]);
    const bool in_float = is_wrong_with_amx(x[1], x[2], g.of);
    auto [input, weight, bias] = at::convolution_backward(
        host_operand(in_order(x[0], format), g.of, in_float),
        host_operand(in_order(x[1], format), g.of, in_float),
        host_operand(in_order(x[2], format), g.of, in_float), IntArrayRef(&g.channels, 1), g.of.stride,
        g.of.padding, g.of.dilation, g.of.transposed, g.of.output_padding, g.of.groups, g.wanted);
    const auto type = x[1].scalar_type();
    return {narrowed(std::move(input), type), narrowed(std::move(weight), type),
            narrowed(std::move(bias), type)};
}

// The gradient of a weight of one tap, from the pixels that the kernel doesn't skip.
Tensor gradient_of_one_tap(const ConvGradient &g, std::array<Tensor, 3> x) {
    const int64_t dims = x[1].dim() - 2;
    Tensor &wide = x[g.of.transposed ? 0 : 1];
    const Tensor narrow = x[g.of.transposed ? 1 : 0];
    for (int64_t i = 0; i < dims; i++)
        wide = wide.slice(i + 2, 0, (narrow.size(i + 2) - 1) * g.of.stride[i] + 1, g.of.stride[i]);
    const std::vector<int64_t> one(dims, 1), zero(dims, 0);
    return gradients_of_onednn(
        {{one, zero, one, g.of.transposed, zero, g.of.groups}, g.channels, {false, true, false}}, x)[1];
}

// {of the result, input, weight} -> gradients of {input, weight, bias}, each only if it is wanted.
std::array<Tensor, 3> convolution_gradients_cpu(const ConvGradient &g, const std::array<Tensor, 3> &x) {
    const int wide = g.of.transposed ? 0 : 1;
    const int64_t channels = x[wide].size(1) / g.of.groups;
    if (has_no_whole_window(x[1], x[2], g.of)) {
        auto padded = x;
        padded[wide] = with_zeros_around(x[wide], g.of.padding);
        auto result = convolution_gradients_cpu({without_padding(g.of), g.channels, g.wanted}, padded);
        if (!g.of.transposed) result[0] = without_border(std::move(result[0]), g.of.padding);
        return result;
    }
    const bool is_apart =
        g.wanted[1] && x[0].numel() > 0 && x[1].numel() > 0 &&
        openxpu::has_wrong_weight_gradient(x[2].sizes(), channels, g.of.stride, g.of.padding);
    if (!is_apart) return gradients_of_onednn(g, x);
    std::array<Tensor, 3> result;
    if (g.wanted[0] || g.wanted[2])
        result = gradients_of_onednn({g.of, g.channels, {g.wanted[0], false, g.wanted[2]}}, x);
    result[1] = gradient_of_one_tap(g, x);
    return result;
}

// --- fused convolutions ---

// The checks and messages of at::convolution.
void check_shapes(const Convolution &c) {
    const auto input = c.input.sizes(), weight = c.weight.sizes();
    const int64_t dims = c.input.dim();
    at::checkAllSameType("xpu_convolution", {{c.input, "input", 1}, {c.weight, "weight", 2}});
    at::checkAllSameGPU("xpu_convolution", {{c.input, "input", 1}, {c.weight, "weight", 2}});
    TORCH_CHECK(c.groups > 0, "non-positive groups is not supported");
    TORCH_CHECK(c.weight.dim() == dims, "Expected ", c.weight.dim(), "-dimensional input for ",
                c.weight.dim(), "-dimensional weight ", weight, ", but got ", dims,
                "-dimensional input of size ", input, " instead");
    for (int64_t i = 0; i < dims - 2; i++) {
        TORCH_CHECK(c.padding[i] >= 0, "negative padding is not supported");
        TORCH_CHECK(c.stride[i] > 0, "non-positive stride is not supported");
        TORCH_CHECK(c.dilation[i] > 0, "non-positive dilation is not supported");
        TORCH_CHECK(c.output_padding[i] >= 0, "negative output_padding is not supported");
    }
    TORCH_CHECK(weight[0] >= c.groups && weight[0] % c.groups == 0, "Given groups=", c.groups,
                ", expected weight to be divisible by ", c.groups, " at dimension 0, but got weight of size ",
                weight, " instead");
    const int64_t channels = c.transposed ? weight[0] : weight[1] * c.groups;
    const int64_t outputs = c.transposed ? weight[1] * c.groups : weight[0];
    TORCH_CHECK(input[1] == channels, "Given groups=", c.groups, ", weight of size ", weight,
                ", expected input", input, " to have ", channels, " channels, but got ", input[1],
                " channels instead");
    TORCH_CHECK(!c.bias.defined() || (c.bias.dim() == 1 && c.bias.size(0) == outputs),
                "Given weight of size ", weight, ", expected bias to be 1-dimensional with ", outputs,
                " elements, but got bias of size ", c.bias.defined() ? c.bias.sizes() : IntArrayRef(),
                " instead");
    if (c.bias.defined())
        at::checkAllSameType("xpu_convolution", {{c.input, "input", 1}, {c.bias, "bias", 3}});
    for (int64_t size : c.output_size())
        TORCH_CHECK(size >= 0 && (size > 0 || input[0] == 0 || outputs == 0), "Calculated output size ",
                    c.output_size(), " of input ", input, " and kernel ", weight,
                    ". Kernel size can't be greater than actual input size");
}

Convolution convolution_of(const Tensor &input, const Tensor &weight, const std::optional<Tensor> &bias,
                           IntArrayRef padding, IntArrayRef stride, IntArrayRef dilation, int64_t groups,
                           std::optional<IntArrayRef> output_padding = std::nullopt) {
    const int64_t dims = input.dim() - 2;
    TORCH_CHECK(dims >= 1 && dims <= 3, "convolution only supports 3D, 4D, 5D tensor");
    using at::native::expand_param_if_needed;
    const Convolution c{
        {expand_param_if_needed(stride, "stride", dims), expand_param_if_needed(padding, "padding", dims),
         expand_param_if_needed(dilation, "dilation", dims), output_padding.has_value(),
         expand_param_if_needed(output_padding.value_or(IntArrayRef{0}), "output_padding", dims), groups},
        input,
        weight,
        bias && bias->defined() ? *bias : Tensor()};
    check_shapes(c);
    return c;
}

// The result's layout that Inductor assumes: the input's; channels first if it has both.
at::MemoryFormat fused_format(const Convolution &c) {
    const bool first = c.input.is_contiguous() || c.input.stride(0) == 0 || c.input.dim() == 3;
    return first                ? at::MemoryFormat::Contiguous
           : c.input.dim() == 5 ? at::MemoryFormat::ChannelsLast3d
                                : at::MemoryFormat::ChannelsLast;
}

// True if oneDNN fuses the post-ops, so that PyTorch's CPU operators are used.
template <typename Signature> auto host_operator(const char *name, const char *overload) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Signature>();
}
template <typename Result, typename First, typename Second>
using HostBinary = Result(First, Second, const Tensor &, const std::optional<Tensor> &, IntArrayRef,
                          IntArrayRef, IntArrayRef, int64_t, std::string_view, std::optional<at::Scalar>,
                          std::optional<std::string_view>, openxpu::Scalars, std::optional<std::string_view>);
bool fuses_on_host(const Convolution &c, const xpu_post_ops &post_ops) {
    const auto type = c.input.scalar_type();
    const bool simple = post_ops.combine == XPU_COMBINE_NONE ? post_ops.epilogue < XPU_EPILOGUE_ELU
                                                             : post_ops.epilogue == XPU_EPILOGUE_NONE ||
                                                                   post_ops.epilogue == XPU_EPILOGUE_RELU;
    // a graph records it separately
    return simple && !c.transposed && !openxpu::is_captured(c.device()) &&
           at::globalContext().userEnabledMkldnn() && c.input.dim() > 3 && c.input.numel() > 0 &&
           c.weight.numel() > 0 && (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf) &&
           !is_wrong_with_amx(c.input, c.weight, c) && !has_no_whole_window(c.input, c.weight, c);
}

// Applies post-ops that oneDNN doesn't fuse.
void apply_post_ops_separately(const xpu_post_ops &post_ops, const Tensor &other, const Tensor &result) {
    const Tensor combined = other.defined() ? other.expand(result.sizes()) : other;
    const xpu_tensor y = openxpu::tensor_of(result);
    xpu_tensor z{};
    if (combined.defined()) z = openxpu::input_of(combined);
    openxpu::check(xpu_post_ops_apply(openxpu::current_stream(result), &post_ops,
                                      combined.defined() ? &z : nullptr, &y));
}

struct Unary {
    std::string_view name;
    const openxpu::Scalars &scalars;
    std::optional<std::string_view> algorithm;
};

Tensor fused(const Convolution &c, const Unary &unary) {
    const xpu_post_ops post_ops = openxpu::post_ops_of(unary.name, unary.scalars, unary.algorithm);
    const auto format = fused_format(c);
    if (!openxpu::uses_host_kernels(c.device())) {
        Tensor output = at::empty(c.output_size(), c.input.options().memory_format(format));
        convolve(c, post_ops, {}, output);
        return output;
    }
    Tensor output;
    const auto lies = format_of(c.input, c.weight);
    if (fuses_on_host(c, post_ops)) {
        using Signature =
            Tensor(const Tensor &, const Tensor &, const std::optional<Tensor> &, IntArrayRef, IntArrayRef,
                   IntArrayRef, int64_t, std::string_view, openxpu::Scalars, std::optional<std::string_view>);
        static const auto op = host_operator<Signature>("mkldnn::_convolution_pointwise", "");
        const openxpu::HostScope scope(c.device());
        output =
            from_host(scope,
                      op.call(for_host(c.input, lies), for_host(c.weight, lies), for_host(c.bias), c.padding,
                              c.stride, c.dilation, c.groups, unary.name, unary.scalars, unary.algorithm),
                      c.input.scalar_type());
    } else {
        output = convolve_on_host(c);
        apply_post_ops_separately(post_ops, {}, output);
    }
    return output.contiguous(format);
}

// `place`: the destination, which is also `other`; or null.
Tensor fused_binary(const Convolution &c, const Tensor &other, std::string_view binary,
                    const std::optional<at::Scalar> &alpha, const Unary &unary, const Tensor *place) {
    xpu_post_ops post_ops = openxpu::post_ops_of(unary.name, unary.scalars, unary.algorithm);
    post_ops.combine = openxpu::combine_of(binary);
    TORCH_CHECK(!alpha || alpha->toDouble() == 1,
                "mkldnn_convolution_pointwise_binary: the alpha value should be none or 1.0");
    at::checkAllSameType("xpu_convolution", {{c.input, "input", 1}, {other, "other", 4}});
    const auto sizes = c.output_size();
    TORCH_CHECK(!place || other.sizes() == IntArrayRef(sizes),
                "Binary Fusion's inputs should have same shape");
    const auto format = fused_format(c);
    if (!openxpu::uses_host_kernels(c.device())) {
        Tensor output = place ? *place : at::empty(sizes, c.input.options().memory_format(format));
        convolve(c, post_ops, place ? *place : openxpu::lying_as(other, output), output);
        return output;
    }
    Tensor output;
    const auto lies = format_of(c.input, c.weight);
    std::optional<std::string_view> name;
    if (post_ops.epilogue != XPU_EPILOGUE_NONE) name = unary.name;
    // PyTorch fuses channels-last convolutions of one group. Otherwise it adds after the convolution, and
    // its add with relu doesn't support bfloat16.
    const bool is_plain = lies == at::MemoryFormat::Contiguous || c.groups != 1;
    if (!fuses_on_host(c, post_ops) || (is_plain && other.scalar_type() == at::kBFloat16)) {
        output = convolve_on_host(c);
        apply_post_ops_separately(post_ops, other, output);
    } else if (place && post_ops.combine == XPU_COMBINE_ADD && place->is_contiguous(lies) &&
               !openxpu::is_slow_on_host(other.scalar_type())) {
        static const auto op = host_operator<HostBinary<Tensor &, Tensor &, const Tensor &>>(
            "mkldnn::_convolution_pointwise_", "binary");
        const openxpu::HostScope scope(c.device());
        Tensor alias = in_order(openxpu::as_cpu(*place), lies);
        op.call(alias, for_host(c.input, lies), for_host(c.weight, lies), for_host(c.bias), c.padding,
                c.stride, c.dilation, c.groups, binary, alpha, name, unary.scalars, unary.algorithm);
        return *place;
    } else {
        static const auto op = host_operator<HostBinary<Tensor, const Tensor &, const Tensor &>>(
            "mkldnn::_convolution_pointwise", "binary");
        const openxpu::HostScope scope(c.device());
        output = from_host(scope,
                           op.call(for_host(c.input, lies), for_host(other.expand(sizes), lies),
                                   for_host(c.weight, lies), for_host(c.bias), c.padding, c.stride,
                                   c.dilation, c.groups, binary, alpha, name, unary.scalars, unary.algorithm),
                           c.input.scalar_type());
    }
    return place ? place->copy_(output) : output.contiguous(format);
}

Tensor convolution_pointwise(const Tensor &input, const Tensor &weight, const std::optional<Tensor> &bias,
                             IntArrayRef padding, IntArrayRef stride, IntArrayRef dilation, int64_t groups,
                             std::string_view unary, openxpu::Scalars scalars,
                             std::optional<std::string_view> algorithm) {
    return fused(convolution_of(input, weight, bias, padding, stride, dilation, groups),
                 {unary, scalars, algorithm});
}

Tensor convolution_transpose_pointwise(const Tensor &input, const Tensor &weight,
                                       const std::optional<Tensor> &bias, IntArrayRef padding,
                                       IntArrayRef output_padding, IntArrayRef stride, IntArrayRef dilation,
                                       int64_t groups, std::string_view unary, openxpu::Scalars scalars,
                                       std::optional<std::string_view> algorithm) {
    return fused(convolution_of(input, weight, bias, padding, stride, dilation, groups, output_padding),
                 {unary, scalars, algorithm});
}

Tensor convolution_pointwise_binary(const Tensor &input, const Tensor &other, const Tensor &weight,
                                    const std::optional<Tensor> &bias, IntArrayRef padding,
                                    IntArrayRef stride, IntArrayRef dilation, int64_t groups,
                                    std::string_view binary, std::optional<at::Scalar> alpha,
                                    std::optional<std::string_view> unary, openxpu::Scalars scalars,
                                    std::optional<std::string_view> algorithm) {
    return fused_binary(convolution_of(input, weight, bias, padding, stride, dilation, groups), other, binary,
                        alpha, {unary.value_or("none"), scalars, algorithm}, nullptr);
}

Tensor &convolution_pointwise_binary_(Tensor &other, const Tensor &input, const Tensor &weight,
                                      const std::optional<Tensor> &bias, IntArrayRef padding,
                                      IntArrayRef stride, IntArrayRef dilation, int64_t groups,
                                      std::string_view binary, std::optional<at::Scalar> alpha,
                                      std::optional<std::string_view> unary, openxpu::Scalars scalars,
                                      std::optional<std::string_view> algorithm) {
    fused_binary(convolution_of(input, weight, bias, padding, stride, dilation, groups), other, binary, alpha,
                 {unary.value_or("none"), scalars, algorithm}, &other);
    return other;
}

} // namespace

namespace at::native {

Tensor convolution_overrideable_xpu(const Tensor &input, const Tensor &weight,
                                    const std::optional<Tensor> &bias, IntArrayRef stride,
                                    IntArrayRef padding, IntArrayRef dilation, bool transposed,
                                    IntArrayRef output_padding, int64_t groups) {
    const Convolution c{
        {stride.vec(), padding.vec(), dilation.vec(), transposed, output_padding.vec(), groups},
        input,
        weight,
        bias && bias->defined() ? *bias : Tensor()};
    if (openxpu::uses_host_kernels(c.device())) return convolve_on_host(c);
    Tensor output = at::empty(c.output_size(), input.options().memory_format(format_of(input, weight)));
    convolve(c, {}, {}, output);
    return output;
}

std::tuple<Tensor, Tensor, Tensor>
convolution_backward_overrideable_xpu(const Tensor &grad_output, const Tensor &input, const Tensor &weight,
                                      IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                                      bool transposed, IntArrayRef output_padding, int64_t groups,
                                      std::array<bool, 3> output_mask) {
    const auto device = input.device().index();
    if (openxpu::uses_host_kernels(device)) {
        const ConvGradient settings{
            {stride.vec(), padding.vec(), dilation.vec(), transposed, output_padding.vec(), groups},
            grad_output.size(1),
            output_mask};
        auto [grad_input, grad_weight, grad_bias] =
            openxpu::on_host<3, 3>("host convolution backward", device, {grad_output, input, weight},
                                   settings, convolution_gradients_cpu);
        return {grad_input, grad_weight, grad_bias};
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

TORCH_LIBRARY_IMPL(mkldnn, XPU, m) {
    m.impl("_convolution_pointwise", convolution_pointwise);
    m.impl("_convolution_pointwise.binary", convolution_pointwise_binary);
    m.impl("_convolution_pointwise_.binary", convolution_pointwise_binary_);
    m.impl("_convolution_transpose_pointwise", convolution_transpose_pointwise);
}
