/* xpu/ops/ctc.h: connectionist temporal classification loss (Graves et al. 2006), with gradients.
 *
 * log_probs [time, batch, labels]: log-probabilities, contiguous, fp32 or fp64.
 * input_lengths[b] <= time: steps of batch entry b.
 * targets: entry b has target_lengths[b] <= longest elements from target_starts[b] on. A target out of range
 *     has probability 0.
 * loss: a path assigns a label to each step. It stands for the sequence that remains when repetitions, then
 *     blanks are removed. The loss is the negative log-probability of all paths that stand for the targets,
 *     and infinity if there are none.
 * log_alpha [batch, time, 2 longest + 1]: for each step, the log-probability of all partial paths that end
 * in a
 *     target, in the blank before it, or in the final blank. Backward reads it. Elements beyond an entry's
 *     lengths are not written.
 * Gradients: with respect to the input of the log_softmax that produced log_probs; 0 beyond the lengths.
 * Deterministic. */
#ifndef XPU_OPS_CTC_H
#define XPU_OPS_CTC_H

#include "../fault.h"
#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_ctc {
    int64_t time, batch, labels;
    int64_t longest;    /* maximum target length */
    int64_t blank;      /* label of the blank */
    bool zero_infinity; /* backward: infinite losses have gradient 0, else NaN */
    xpu_dtype dtype;
    xpu_dtype target_dtype; /* int32 or int64 */
    const void *log_probs, *targets;
    const int64_t *input_lengths, *target_lengths, *target_starts; /* in device memory */
} xpu_ctc;

/* loss [batch]. A target out of range is reported to `fault`, unless NULL (xpu/fault.h). */
XPU_API xpu_status xpu_ctc_forward(xpu_stream *stream, const xpu_ctc *args, void *loss, void *log_alpha,
                                   xpu_fault *fault);
/* A target out of range is a fault (xpu/fault.h). */
XPU_API xpu_status xpu_ctc_backward(xpu_stream *stream, const xpu_ctc *args, const void *grad_loss,
                                    const void *loss, const void *log_alpha, void *grad);

#ifdef __cplusplus
}
#endif
#endif
