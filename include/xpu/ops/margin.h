/* xpu/ops/margin.h: by how much scores of classes that aren't asked for come within 1 of those that are
 * (multi-label margin loss), with gradients.
 *
 * Scores are contiguous [rows, classes], targets int64 [rows, classes]: the classes asked for of each row, up
 * to the first negative number. A row's loss is the sum over targets t and classes c that aren't among them
 * of max(0, 1 - score[t] + score[c]), divided by the number of classes. Dtypes are fp16, bf16, fp32 and fp64,
 * computed in fp32 (fp64 for fp64), in the same order each time. Targets below -1 or of `classes` and more
 * count nothing, and are reported where `fault` isn't NULL: see xpu/fault.h. */
#ifndef XPU_OPS_MARGIN_H
#define XPU_OPS_MARGIN_H

#include "../fault.h"
#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_margin {
    int64_t rows, classes;
    xpu_dtype dtype;
    const void *targets;
} xpu_margin;

/* is_target: [rows, classes], 1 for the classes asked for, else 0; losses: fp32 (fp64 for fp64) [rows]. */
XPU_API xpu_status xpu_margin_forward(xpu_stream *stream, const xpu_margin *args, const void *scores,
                                      void *is_target, void *losses, xpu_fault *fault);
/* grad_losses: fp32 (fp64 for fp64) [rows]; is_target as forward gave it. */
XPU_API xpu_status xpu_margin_backward(xpu_stream *stream, const xpu_margin *args, const void *grad_losses,
                                       const void *scores, const void *is_target, void *grad_scores);

#ifdef __cplusplus
}
#endif
#endif
