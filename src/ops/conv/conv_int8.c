/* Quantized (int8) convolutions. */
#include "ops/conv/conv_matrix.h"
#include "ops/gemm/epilogue.h"
#include "xpu/ops/conv.h"

static xpu_status refuse(const char *why) {
    return op_fail(XPU_ERROR_NOT_SUPPORTED, "requantized convolution: %s", why);
}

static xpu_status check_shapes(const xpu_conv *conv, const xpu_tensor *x, const xpu_tensor *w,
                               const xpu_tensor *bias, const xpu_tensor *y) {
    bool fit = conv->dims >= 1 && conv->dims <= XPU_CONV_MAX_DIMS && conv->groups >= 1 && !conv->transposed &&
               x->dims == conv->dims + 2 && w->dims == x->dims && y->dims == x->dims;
    if (fit && !conv_sizes_fit_32bit(conv, x, w, y)) return refuse("a dimension has 2^31 elements or more");
    fit = fit && x->size[0] == y->size[0] && w->size[1] * conv->groups == x->size[1] &&
          w->size[0] == y->size[1] && y->size[1] % conv->groups == 0;
    for (int d = 0; d < conv->dims && fit; d++) {
        const int64_t reach = conv->dilation[d] * (w->size[2 + d] - 1) + 1,
                      room = x->size[2 + d] + 2 * conv->padding[d] - reach;
        fit = conv->stride[d] > 0 && conv->dilation[d] > 0 && conv->padding[d] >= 0 && room >= 0 &&
              y->size[2 + d] == room / conv->stride[d] + 1;
    }
    fit = fit && (!bias || (bias->dims == 1 && bias->size[0] == y->size[1] && bias->dtype == XPU_FLOAT32));
    return fit ? XPU_SUCCESS
               : op_fail(XPU_ERROR_INVALID_ARGUMENT,
                         "requantized convolution: the shapes of input, weight, bias and output don't match");
}

static xpu_status check_ways(const xpu_tensor *x, const xpu_tensor *w, const xpu_post_ops *ending,
                             const xpu_tensor *other, const xpu_output_quant *way, const xpu_tensor *y) {
    XPU_TRY(post_ops_check("requantized convolution", XPU_FLOAT32, ending, other ? other->data : NULL));
    const bool adds = ending->combine == XPU_COMBINE_ADD;
    if (!output_quant_is_8bit(x->dtype) || w->dtype != XPU_INT8 || ending->combine > XPU_COMBINE_ADD ||
        !output_quant_supports(way->dtype) || y->dtype != way->dtype ||
        !output_quant_supports(way->other_dtype) || (adds && other->dtype != way->other_dtype))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "requantized convolution: unsupported dtypes or post-op: input %s, weight %s, output "
                       "%s, added operand %s",
                       xpu_dtype_name(x->dtype), xpu_dtype_name(w->dtype), xpu_dtype_name(way->dtype),
                       xpu_dtype_name(way->other_dtype));
    bool alike = !adds || other->dims == y->dims;
    for (int i = 0; adds && i < y->dims && alike; i++)
        alike = other->size[i] == y->size[i] && (other->stride[i] == y->stride[i] || y->size[i] < 2);
    return alike ? XPU_SUCCESS
                 : op_fail(
                       XPU_ERROR_INVALID_ARGUMENT,
                       "requantized convolution: the added operand must have the output's sizes and strides");
}

xpu_status xpu_conv_requantized(xpu_stream *stream, const xpu_conv *conv, const xpu_tensor *input,
                                const xpu_quant_params *of_input, const xpu_tensor *weight,
                                const xpu_quant_params *of_weight, const int32_t *weight_sums, double factor,
                                const xpu_tensor *bias, const xpu_post_ops *ending, const xpu_tensor *other,
                                const xpu_output_quant *way, const xpu_tensor *output) {
    XPU_TRY(check_shapes(conv, input, weight, bias, output));
    XPU_TRY(check_ways(input, weight, ending, other, way, output));
    const xpu_quant_params *const a = of_input, *const b = of_weight;
    if ((a->scale && a->scale_dtype != XPU_FLOAT32) || (b->scale && b->scale_dtype != XPU_FLOAT32) ||
        (a->zero && (a->zero_dtype != XPU_INT32 || a->zero_is_added || a->zero_offset)) || a->group_rows ||
        a->group_columns || b->group_rows > 1 || b->group_columns)
        return refuse("the input must have one float32 scale and one int32 zero point, and the weight "
                      "float32 scales per channel");
    if (b->zero || b->zero_offset) return refuse("the weight must not have zero points");
    const bool is_unsigned = input->dtype == XPU_UINT8;
    const int32_t low = is_unsigned ? 0 : -128;
    if (!a->zero && (a->zero_offset < low || a->zero_offset > low + 255))
        return refuse("the input's zero point is out of range for its dtype");
    if (!weight_sums && (a->zero || a->zero_offset || is_unsigned))
        return refuse("a uint8 input, or one with a zero point, needs the sums of the weight");
    const conv_params shape = conv_params_of(conv, input, weight, output);
    if (shape.c * conv_volume(shape.taps) > 1 << 16)
        return refuse("each output sums more than 2^16 products");
    for (int d = 0; d < output->dims; d++)
        if (output->size[d] == 0) return XPU_SUCCESS;

    conv_params p = shape;
    if (bias) p.bias = XPU_ADDR(bias->data), p.bias_stride = bias->stride[0];
    const conv_int8 bytes = {
        .params = {.end = post_ops_params_of(XPU_FLOAT32, ending, other ? other->data : NULL),
                   .leave = output_quant_params_of(way),
                   .x_scale = XPU_ADDR(a->scale),
                   .x_zero = XPU_ADDR(a->zero),
                   .w_scale = XPU_ADDR(b->scale),
                   .w_sums = XPU_ADDR(weight_sums),
                   .w_scale_stride = b->group_rows ? b->scale_row_stride : 0,
                   .factor = (float)factor,
                   .less = a->zero_offset},
        .x_unsigned = is_unsigned,
        .blank = (uint8_t)a->zero_offset,
        .way = way};
    bool done = false;
    XPU_TRY(conv_int8_by_matrix(stream, &bytes, &p, &done));
    return done ? XPU_SUCCESS : refuse("no kernel on this device supports it");
}
