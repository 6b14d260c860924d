/* Post-ops and output quantization (epilogue.h); as separate passes if a library computed the product. */
#include "ops/gemm/epilogue.h"

#include "ops/gemm/product.h"
#include "ops/iter.h"
#include "xpu/ops/pointwise.h"

/* The pointwise operation of an epilogue, applied as a separate pass: it takes the first `own` of the two
 * scalars of the post-ops, then ones. */
static const struct pass {
    xpu_pointwise_op op;
    int own, scalars;
} epilogues[] = {
    [XPU_EPILOGUE_RELU] = {XPU_POINTWISE_RELU, 0, 0},
    [XPU_EPILOGUE_GELU] = {XPU_POINTWISE_GELU, 0, 0},
    [XPU_EPILOGUE_GELU_TANH] = {XPU_POINTWISE_GELU_TANH, 0, 0},
    [XPU_EPILOGUE_SILU] = {XPU_POINTWISE_SILU, 0, 0},
    [XPU_EPILOGUE_SIGMOID] = {XPU_POINTWISE_SIGMOID, 0, 0},
    [XPU_EPILOGUE_TANH] = {XPU_POINTWISE_TANH, 0, 0},
    [XPU_EPILOGUE_HARDSWISH] = {XPU_POINTWISE_HARDSWISH, 0, 0},
    [XPU_EPILOGUE_LEAKY_RELU] = {XPU_POINTWISE_LEAKY_RELU, 1, 1},
    [XPU_EPILOGUE_CLAMP] = {XPU_POINTWISE_CLAMP, 2, 2},
    [XPU_EPILOGUE_HARDSIGMOID] = {XPU_POINTWISE_HARDSIGMOID, 0, 0},
    [XPU_EPILOGUE_ELU] = {XPU_POINTWISE_ELU, 1, 3},
    [XPU_EPILOGUE_MISH] = {XPU_POINTWISE_MISH, 0, 0},
    [XPU_EPILOGUE_ABS] = {XPU_POINTWISE_ABS, 0, 0},
};
static const xpu_pointwise_op combines[] = {
    [XPU_COMBINE_ADD] = XPU_POINTWISE_ADD,
    [XPU_COMBINE_SUB] = XPU_POINTWISE_SUB,
    [XPU_COMBINE_MUL] = XPU_POINTWISE_MUL,
    [XPU_COMBINE_DIV] = XPU_POINTWISE_DIV,
};

xpu_status post_ops_check(const char *what, xpu_dtype dtype, const xpu_post_ops *ending, const void *other) {
    if ((size_t)ending->epilogue >= sizeof epilogues / sizeof *epilogues)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "%s: unknown epilogue %d", what, (int)ending->epilogue);
    if ((size_t)ending->combine >= sizeof combines / sizeof *combines)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "%s: unknown binary post-op %d", what,
                       (int)ending->combine);
    if (ending->combine != XPU_COMBINE_NONE && !other)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "%s: the binary post-op has no operand", what);
    if (!post_ops_is_none(ending) && !(dtype >= XPU_FLOAT16 && dtype <= XPU_FLOAT64))
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "%s: epilogues are not supported for dtype %s", what,
                       xpu_dtype_name(dtype));
    return XPU_SUCCESS;
}

post_ops_params post_ops_params_of(xpu_dtype dtype, const xpu_post_ops *ending, const void *other) {
    post_ops_params params = {.combine = (xpu_u32)ending->combine, .epilogue = (xpu_u32)ending->epilogue};
    if (params.combine) params.other = XPU_ADDR(other);
    if (ending->epilogue != XPU_EPILOGUE_NONE)
        for (int i = 0; i < 2; i++) {
            const xpu_scalar s = {.dtype = XPU_FLOAT64, .value.f = ending->scalar[i]};
            uint64_t word[2];
            product_scalar(dtype, &s, word);
            params.scalar[i] = word[0];
        }
    return params;
}

void post_ops_spec(kernel_spec *spec, const post_ops_params *params) {
    spec_int_if(spec, params->epilogue != XPU_EPILOGUE_NONE, "EPILOGUE", params->epilogue, 8);
    spec_int_if(spec, params->combine != XPU_COMBINE_NONE, "COMBINE", params->combine, 4);
}

bool output_quant_is_8bit(xpu_dtype dtype) { return dtype == XPU_INT8 || dtype == XPU_UINT8; }
bool output_quant_supports(xpu_dtype dtype) {
    return output_quant_is_8bit(dtype) || dtype == XPU_FLOAT32 || dtype == XPU_FLOAT16 ||
           dtype == XPU_BFLOAT16;
}

output_quant_params output_quant_params_of(const xpu_output_quant *way) {
    if (!way) return (output_quant_params){0};
    return (output_quant_params){1.0f / (float)way->scale, (float)way->other_scale, way->zero,
                                 way->other_zero};
}

static void side_spec(kernel_spec *spec, const char *name, const char *bytes, xpu_dtype dtype) {
    spec_key_only(spec, name, dtype == XPU_FLOAT32 ? 0 : dtype, 4);
    spec_option(spec, name, dtype == XPU_FLOAT32 ? NULL : dtype_token(dtype));
    spec_option(spec, bytes, dtype == XPU_INT8 ? "127" : dtype == XPU_UINT8 ? "255" : NULL);
}
void output_quant_spec(kernel_spec *spec, const xpu_output_quant *way) {
    side_spec(spec, "OUT_T=", "OUT_BYTES=", way ? way->dtype : XPU_FLOAT32);
    side_spec(spec, "OTHER_T=", "OTHER_BYTES=", way ? way->other_dtype : XPU_FLOAT32);
}

/* --- epilogue as a separate pass --- */

static xpu_status combine(xpu_stream *stream, xpu_combine how, xpu_iter iter) {
    const xpu_scalar one = {.dtype = XPU_FLOAT64, .value.f = 1};
    int outputs, inputs, scalars;
    XPU_TRY(xpu_pointwise_arity(combines[how], &outputs, &inputs, &scalars));
    return xpu_pointwise(stream, combines[how], iter.operand[0].dtype, &iter, &one, scalars);
}

static xpu_status activate(xpu_stream *stream, const xpu_post_ops *ending, xpu_iter iter) {
    const struct pass *pass = &epilogues[ending->epilogue];
    xpu_scalar scalars[3];
    for (int i = 0; i < 3; i++)
        scalars[i] = (xpu_scalar){.dtype = XPU_FLOAT64, .value.f = i < pass->own ? ending->scalar[i] : 1};
    iter.inputs = 1;
    return xpu_pointwise(stream, pass->op, iter.operand[0].dtype, &iter, scalars, pass->scalars);
}

xpu_status xpu_post_ops_apply(xpu_stream *stream, const xpu_post_ops *ending, const xpu_tensor *other,
                              const xpu_tensor *x) {
    XPU_TRY(post_ops_check("epilogue", x->dtype, ending, other ? other->data : NULL));
    if (x->dims > XPU_MAX_DIMS)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "epilogue: more than %d dimensions", XPU_MAX_DIMS);
    const xpu_tensor *const with = ending->combine == XPU_COMBINE_NONE ? x : other;
    bool fits = with->dtype == x->dtype && with->dims == x->dims;
    for (int i = 0; i < x->dims && fits; i++) fits = with->size[i] == x->size[i];
    if (!fits)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "epilogue: the binary post-op's operand must have the result's shape and dtype");
    const int64_t element = (int64_t)xpu_dtype_size(x->dtype);
    xpu_iter iter = {.outputs = 1, .inputs = 2, .dims = x->dims};
    for (int i = 0; i < 3; i++) {
        const xpu_tensor *const t = i < 2 ? x : with;
        iter.operand[i] = (xpu_operand){.data = t->data, .dtype = t->dtype};
        for (int d = 0; d < x->dims; d++) iter.operand[i].stride[d] = t->stride[d] * element;
    }
    for (int d = 0; d < x->dims; d++) iter.size[d] = x->size[d];
    iter_sort(&iter, 0);
    xpu_iter_coalesce(&iter);
    if (ending->combine != XPU_COMBINE_NONE) XPU_TRY(combine(stream, ending->combine, iter));
    return ending->epilogue == XPU_EPILOGUE_NONE ? XPU_SUCCESS : activate(stream, ending, iter);
}
