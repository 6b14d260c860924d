/* xpu/ops/epilogue.h: post-ops of a product or a convolution.
 *
 *     out = epilogue(combine(v, other))
 *
 * A binary post-op, then an element-wise function, both in the accumulator's type: fp16 and bf16 results are
 * rounded once. Floating dtypes only. */
#ifndef XPU_OPS_EPILOGUE_H
#define XPU_OPS_EPILOGUE_H

#include "xpu/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element-wise functions. s0 and s1 are the scalars of xpu_post_ops. */
typedef enum xpu_epilogue {
    XPU_EPILOGUE_NONE,
    XPU_EPILOGUE_RELU, /* NaN stays NaN */
    XPU_EPILOGUE_GELU, /* exact, with erf */
    XPU_EPILOGUE_GELU_TANH,
    XPU_EPILOGUE_SILU, /* v / (1 + exp(-v)) */
    XPU_EPILOGUE_SIGMOID,
    XPU_EPILOGUE_TANH,
    XPU_EPILOGUE_HARDSWISH,   /* v * clamp(v + 3, 0, 6) / 6 */
    XPU_EPILOGUE_LEAKY_RELU,  /* v > 0 ? v : s0 v */
    XPU_EPILOGUE_CLAMP,       /* min(max(v, s0), s1); NaN stays NaN */
    XPU_EPILOGUE_HARDSIGMOID, /* clamp(v + 3, 0, 6) / 6 */
    XPU_EPILOGUE_ELU,         /* v > 0 ? v : s0 (exp(v) - 1) */
    XPU_EPILOGUE_MISH,        /* v tanh(log(1 + exp(v))) */
    XPU_EPILOGUE_ABS
} xpu_epilogue;

typedef enum xpu_combine {
    XPU_COMBINE_NONE,
    XPU_COMBINE_ADD, /* v + other: a residual connection */
    XPU_COMBINE_SUB, /* v - other */
    XPU_COMBINE_MUL,
    XPU_COMBINE_DIV /* v / other */
} xpu_combine;

typedef struct xpu_post_ops {
    xpu_combine combine;
    xpu_epilogue epilogue;
    double scalar[2];
} xpu_post_ops;

/* The post-ops as an operation of their own, in place on `x`.
 *
 * other: same sizes and dtype as `x`; strides of 0 broadcast. NULL if `combine` is XPU_COMBINE_NONE.
 * Unlike the fused form, the result of `combine` is rounded to the dtype before the element-wise function.
 *
 * Errors: XPU_ERROR_INVALID_ARGUMENT for tensors that don't match and for unknown enumerators.
 * XPU_ERROR_NOT_SUPPORTED for dtypes that are not floating. */
XPU_API xpu_status xpu_post_ops_apply(xpu_stream *stream, const xpu_post_ops *post_ops,
                                      const xpu_tensor *other, const xpu_tensor *x);

#ifdef __cplusplus
}
#endif
#endif
