/* xpu/ops/epilogue.h: what a product or a convolution does to each number of its result on the way out.
 *
 *     out = epilogue(combine(v, other))
 *
 * in the type of the sums, so that halves are rounded once. For floating dtypes. */
#ifndef XPU_OPS_EPILOGUE_H
#define XPU_OPS_EPILOGUE_H

#include "xpu/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* s0 and s1 are the ending's scalars. */
typedef enum xpu_epilogue {
    XPU_EPILOGUE_NONE,
    XPU_EPILOGUE_RELU, /* NaN stays NaN */
    XPU_EPILOGUE_GELU, /* with erf */
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

typedef struct xpu_ending {
    xpu_combine combine;
    xpu_epilogue epilogue;
    double scalar[2];
} xpu_ending;

/* The same by itself, for what was computed elsewhere: in place. `other` has the sizes and the dtype of `x`,
 * strides of 0 to broadcast, and is NULL where nothing is combined. What is combined is rounded to the dtype
 * before the epilogue here. Errors: XPU_ERROR_INVALID_ARGUMENT for tensors that don't fit each other and for
 * unknown enumerators, XPU_ERROR_NOT_SUPPORTED for dtypes that aren't floating. */
XPU_API xpu_status xpu_ending_apply(xpu_stream *stream, const xpu_ending *ending, const xpu_tensor *other,
                                    const xpu_tensor *x);

#ifdef __cplusplus
}
#endif
#endif
