/* xpu/ops/softmax.h: softmax and log softmax along one dimension, and their backwards.
 *
 * Tensors are contiguous [outer, length, inner], length being the dimension along which it goes. Dtypes are
 * fp16, bf16, fp32 and fp64; computed in fp32 (fp64 for fp64). A row of -inf alone, or with NaN or +inf in
 * it, gives NaN. Results and inputs may be the same memory where their dtypes are the same. */
#ifndef XPU_OPS_SOFTMAX_H
#define XPU_OPS_SOFTMAX_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_softmax {
    int64_t outer, length, inner;
    xpu_dtype input_dtype;  /* of the input and its gradient */
    xpu_dtype output_dtype; /* of the output and its gradient: the same, or fp32 for a half input */
    bool logarithm;         /* log softmax */
    const void *mask;       /* bool [outer, length, inner], true leaves an element out; or NULL */
} xpu_softmax;

XPU_API xpu_status xpu_softmax_forward(xpu_stream *stream, const xpu_softmax *args, const void *input,
                                       void *output);
/* The input's gradient from the output's and the output itself; 0 where the mask is true. */
XPU_API xpu_status xpu_softmax_backward(xpu_stream *stream, const xpu_softmax *args, const void *grad_output,
                                        const void *output, void *grad_input);

#ifdef __cplusplus
}
#endif
#endif
