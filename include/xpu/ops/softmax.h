/* xpu/ops/softmax.h: softmax and log softmax along one dimension, forward and backward.
 *
 * Shapes: contiguous [outer, length, inner]; `length` is the softmax dimension.
 * Dtypes: fp16, bf16, fp32, fp64; computed in fp32 (fp64 for fp64).
 * A row of only -inf, or with NaN or +inf, gives NaN.
 * Aliasing: results and inputs may be the same memory if their dtypes are equal. */
#ifndef XPU_OPS_SOFTMAX_H
#define XPU_OPS_SOFTMAX_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_softmax {
    int64_t outer, length, inner;
    xpu_dtype input_dtype;  /* of the input and its gradient */
    xpu_dtype output_dtype; /* of the output and its gradient: the same, or fp32 for fp16 and bf16 inputs */
    bool logarithm;         /* log softmax */
    const void *mask;       /* bool [outer, length, inner], true excludes an element; or NULL */
} xpu_softmax;

XPU_API xpu_status xpu_softmax_forward(xpu_stream *stream, const xpu_softmax *args, const void *input,
                                       void *output);
/* Gradient of the input from the output and its gradient; 0 where the mask is true. */
XPU_API xpu_status xpu_softmax_backward(xpu_stream *stream, const xpu_softmax *args, const void *grad_output,
                                        const void *output, void *grad_input);

#ifdef __cplusplus
}
#endif
#endif
