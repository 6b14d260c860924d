// C functions for the fused operators of frozen and quantized models. torchgen doesn't generate them;
// PyTorch declares them in shim_xpu.h.
#define USE_XPU
#include <torch/csrc/inductor/aoti_torch/c/shim_xpu.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace {

using namespace torch::aot_inductor;

at::Tensor tensor(AtenTensorHandle handle) { return *tensor_handle_to_tensor_pointer(handle); }
std::optional<at::Tensor> tensor(const AtenTensorHandle *handle) {
    return handle ? std::make_optional(tensor(*handle)) : std::nullopt;
}
std::vector<int64_t> list(const int64_t *values, int64_t size) { return {values, values + size}; }
c10::List<std::optional<c10::Scalar>> list(const double **values, int64_t size) {
    c10::List<std::optional<c10::Scalar>> result;
    for (int64_t i = 0; i < size; i++)
        result.push_back(values[i] ? std::make_optional<c10::Scalar>(*values[i]) : std::nullopt);
    return result;
}
std::optional<c10::Scalar> scalar(const double *value) {
    return value ? std::make_optional<c10::Scalar>(*value) : std::nullopt;
}
std::optional<std::string> text(const char **value) {
    return value ? std::make_optional<std::string>(*value) : std::nullopt;
}
std::optional<int64_t> dtype(const int32_t *value) {
    return value ? std::make_optional<int64_t>(*value) : std::nullopt;
}

template <class... Arguments>
AOTITorchError call(AtenTensorHandle *result, const char *name, const char *overload,
                    const Arguments &...arguments) {
    AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
        const c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                                       c10::autocast_dispatch_keyset);
        const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
        torch::jit::Stack stack;
        torch::jit::push(stack, arguments...);
        op.callBoxed(stack);
        *result = new_tensor_handle(torch::jit::pop(stack).toTensor());
    });
}

} // namespace

extern "C" {

AOTITorchError aoti_torch_xpu_mkldnn__convolution_pointwise(
    AtenTensorHandle x, AtenTensorHandle w, AtenTensorHandle *b, const int64_t *padding, int64_t paddings,
    const int64_t *stride, int64_t strides, const int64_t *dilation, int64_t dilations, int64_t groups,
    const char *attribute, const double **scalars, int64_t scalar_count, const char **algorithm,
    AtenTensorHandle *result) {
    return call(result, "mkldnn::_convolution_pointwise", "", tensor(x), tensor(w), tensor(b),
                list(padding, paddings), list(stride, strides), list(dilation, dilations), groups,
                std::string(attribute), list(scalars, scalar_count), text(algorithm));
}

AOTITorchError aoti_torch_xpu_mkldnn__convolution_pointwise_binary(
    AtenTensorHandle x, AtenTensorHandle other, AtenTensorHandle w, AtenTensorHandle *b,
    const int64_t *padding, int64_t paddings, const int64_t *stride, int64_t strides, const int64_t *dilation,
    int64_t dilations, int64_t groups, const char *binary, double *alpha, const char **unary,
    const double **scalars, int64_t scalar_count, const char **algorithm, AtenTensorHandle *result) {
    return call(result, "mkldnn::_convolution_pointwise", "binary", tensor(x), tensor(other), tensor(w),
                tensor(b), list(padding, paddings), list(stride, strides), list(dilation, dilations), groups,
                std::string(binary), scalar(alpha), text(unary), list(scalars, scalar_count),
                text(algorithm));
}

AOTITorchError aoti_torch_xpu_mkldnn__convolution_pointwise_binary_(
    AtenTensorHandle other, AtenTensorHandle x, AtenTensorHandle w, AtenTensorHandle *b,
    const int64_t *padding, int64_t paddings, const int64_t *stride, int64_t strides, const int64_t *dilation,
    int64_t dilations, int64_t groups, const char *binary, double *alpha, const char **unary,
    const double **scalars, int64_t scalar_count, const char **algorithm, AtenTensorHandle *result) {
    return call(result, "mkldnn::_convolution_pointwise_", "binary", tensor(other), tensor(x), tensor(w),
                tensor(b), list(padding, paddings), list(stride, strides), list(dilation, dilations), groups,
                std::string(binary), scalar(alpha), text(unary), list(scalars, scalar_count),
                text(algorithm));
}

AOTITorchError aoti_torch_xpu__qlinear_pointwise_tensor(
    AtenTensorHandle x, AtenTensorHandle x_scale, AtenTensorHandle x_zero_point, AtenTensorHandle w,
    AtenTensorHandle w_scales, AtenTensorHandle w_zero_points, AtenTensorHandle *b, double scale,
    int64_t zero_point, const int32_t *output_dtype, const char *post, const double **post_arguments,
    int64_t post_count, const char *algorithm, AtenTensorHandle *result) {
    return call(result, "onednn::qlinear_pointwise", "tensor", tensor(x), tensor(x_scale),
                tensor(x_zero_point), tensor(w), tensor(w_scales), tensor(w_zero_points), tensor(b), scale,
                zero_point, dtype(output_dtype), std::string(post), list(post_arguments, post_count),
                std::string(algorithm));
}

AOTITorchError aoti_torch_xpu__qlinear_pointwise_binary_tensor(
    AtenTensorHandle x, AtenTensorHandle x_scale, AtenTensorHandle x_zero_point, AtenTensorHandle w,
    AtenTensorHandle w_scales, AtenTensorHandle w_zero_points, AtenTensorHandle *other, AtenTensorHandle *b,
    double scale, int64_t zero_point, const int32_t *output_dtype, double other_scale,
    int64_t other_zero_point, const char *binary, double alpha, const char *unary,
    const double **unary_arguments, int64_t unary_count, const char *algorithm, AtenTensorHandle *result) {
    return call(result, "onednn::qlinear_pointwise", "binary_tensor", tensor(x), tensor(x_scale),
                tensor(x_zero_point), tensor(w), tensor(w_scales), tensor(w_zero_points), tensor(other),
                tensor(b), scale, zero_point, dtype(output_dtype), other_scale, other_zero_point,
                std::string(binary), alpha, std::string(unary), list(unary_arguments, unary_count),
                std::string(algorithm));
}

AOTITorchError aoti_torch_xpu__qconv_pointwise_tensor(
    AtenTensorHandle x, AtenTensorHandle x_scale, AtenTensorHandle x_zero_point, AtenTensorHandle w,
    AtenTensorHandle w_scales, AtenTensorHandle w_zero_points, AtenTensorHandle *b, const int64_t *stride,
    int64_t strides, const int64_t *padding, int64_t paddings, const int64_t *dilation, int64_t dilations,
    int64_t groups, double scale, int64_t zero_point, const int32_t *output_dtype, const char *post,
    const double **post_arguments, int64_t post_count, const char **algorithm, AtenTensorHandle *result) {
    return call(result, "onednn::qconv_pointwise", "tensor", tensor(x), tensor(x_scale), tensor(x_zero_point),
                tensor(w), tensor(w_scales), tensor(w_zero_points), tensor(b), list(stride, strides),
                list(padding, paddings), list(dilation, dilations), groups, scale, zero_point,
                dtype(output_dtype), std::string(post), list(post_arguments, post_count), text(algorithm));
}

AOTITorchError aoti_torch_xpu__qconv2d_pointwise_binary_tensor(
    AtenTensorHandle x, AtenTensorHandle x_scale, AtenTensorHandle x_zero_point, AtenTensorHandle w,
    AtenTensorHandle w_scales, AtenTensorHandle w_zero_points, AtenTensorHandle accumulator,
    AtenTensorHandle *b, const int64_t *stride, int64_t strides, const int64_t *padding, int64_t paddings,
    const int64_t *dilation, int64_t dilations, int64_t groups, double scale, int64_t zero_point,
    const int32_t *output_dtype, double accumulator_scale, int64_t accumulator_zero_point, const char *binary,
    double *alpha, const char **unary, const double **unary_arguments, int64_t unary_count,
    const char **algorithm, AtenTensorHandle *result) {
    return call(result, "onednn::qconv2d_pointwise", "binary_tensor", tensor(x), tensor(x_scale),
                tensor(x_zero_point), tensor(w), tensor(w_scales), tensor(w_zero_points), tensor(accumulator),
                tensor(b), list(stride, strides), list(padding, paddings), list(dilation, dilations), groups,
                scale, zero_point, dtype(output_dtype), accumulator_scale, accumulator_zero_point,
                std::string(binary), scalar(alpha), text(unary), list(unary_arguments, unary_count),
                text(algorithm));
}

} // extern "C"
