/* xpu/ops/loss.h: negative log likelihood loss, forward and backward. (Elementwise losses are entries of the
 * pointwise table, followed by a reduction.)
 *
 * Shapes: input and its gradient [batch, classes, inner], contiguous; target [batch, inner], contiguous;
 *     weight [classes].
 * Dtypes: fp16, bf16, fp32, fp64, accumulated in fp32 (fp64 for fp64); weight has the input's. Target: int64
 *     or uint8.
 * Deterministic.
 * A target out of range makes the loss NaN, and is reported unless `fault` is NULL (xpu/fault.h). */
#ifndef XPU_OPS_LOSS_H
#define XPU_OPS_LOSS_H

#include "../fault.h"
#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_loss_reduction { XPU_LOSS_NONE, XPU_LOSS_MEAN, XPU_LOSS_SUM } xpu_loss_reduction;

typedef struct xpu_nll_loss {
    int64_t batch, classes, inner;
    xpu_dtype dtype, target_dtype;
    xpu_loss_reduction reduction;
    int64_t ignore_index;
    const void *target, *weight; /* weight may be NULL */
} xpu_nll_loss;

/* output: [batch, inner], or one element if reduced. total_weight: one element, 0 if not reduced. */
XPU_API xpu_status xpu_nll_loss_forward(xpu_stream *stream, const xpu_nll_loss *args, const void *input,
                                        void *output, void *total_weight, xpu_fault *fault);
/* grad_output: the shape of `output`. total_weight: from forward. A target out of range is reported as
 * in xpu/fault.h. */
XPU_API xpu_status xpu_nll_loss_backward(xpu_stream *stream, const xpu_nll_loss *args,
                                         const void *grad_output, const void *total_weight, void *grad_input);

#ifdef __cplusplus
}
#endif
#endif
