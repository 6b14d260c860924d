/* xpu/ops/margin.h: multi-label margin loss, with gradients.
 *
 * scores: contiguous [rows, classes].
 * targets: int64 [rows, classes]: the target classes of each row. The first negative value ends the list;
 *     before it, values that are not below `classes` are skipped.
 * loss of a row: the sum of max(0, 1 - score[t] + score[c]) over targets t and non-target classes c, divided
 *     by the number of classes.
 * Dtypes: fp16, bf16, fp32, fp64, computed in fp32 (fp64 for fp64). Deterministic.
 * A value below -1 or not below `classes`, also after the list's end, is reported as in xpu/fault.h: by
 * forward unless `fault` is NULL, by backward always.
 */
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

/* is_target: [rows, classes], 1 for target classes, else 0. losses: fp32 (fp64 for fp64) [rows]. */
XPU_API xpu_status xpu_margin_forward(xpu_stream *stream, const xpu_margin *args, const void *scores,
                                      void *is_target, void *losses, xpu_fault *fault);
/* grad_losses: fp32 (fp64 for fp64) [rows]. is_target: from forward. */
XPU_API xpu_status xpu_margin_backward(xpu_stream *stream, const xpu_margin *args, const void *grad_losses,
                                       const void *scores, const void *is_target, void *grad_scores);

#ifdef __cplusplus
}
#endif
#endif
