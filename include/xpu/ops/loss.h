/* xpu/ops/loss.h: negative log likelihood, forward and backward. (Losses that compare element by element
 * are lines of the pointwise table and a reduction.)
 *
 * Input and its gradient: contiguous [batch, classes, inner]; target: contiguous [batch, inner], int64 or
 * uint8; weight: [classes] of the input's dtype. Dtypes are fp16, bf16, fp32 and fp64, summed in fp32 (fp64
 * for fp64), in the same order each time. A target out of range makes the loss NaN, and is
 * reported where `fault` isn't NULL: see xpu/fault.h. */
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

/* output: [batch, inner], or one element when reduced; total_weight: one element, 0 if not reduced. */
XPU_API xpu_status xpu_nll_loss_forward(xpu_stream *stream, const xpu_nll_loss *args, const void *input,
                                        void *output, void *total_weight, xpu_fault *fault);
/* grad_output is shaped as the output; total_weight as forward gave it. */
XPU_API xpu_status xpu_nll_loss_backward(xpu_stream *stream, const xpu_nll_loss *args,
                                         const void *grad_output, const void *total_weight, void *grad_input);

#ifdef __cplusplus
}
#endif
#endif
