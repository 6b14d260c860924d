/* xpu/ops/ctc.h: connectionist temporal classification (Graves et al. 2006), with gradients.
 *
 * log_probs [time, batch, labels] are logarithms of probabilities, contiguous, fp32 or fp64. Entry b of the
 * batch has input_lengths[b] ≤ time steps, and the targets target_starts[b], … of target_lengths[b] ≤ longest
 * elements. A path is a label for each step; it stands for what is left of it when repetitions and then
 * blanks are taken out. The loss is the negative logarithm of the probability of all paths that stand for the
 * targets, infinity where there is none. log_alpha [batch, time, 2 longest + 1] holds for each step the
 * probability of the paths up to it that have come to a target or the blank before it (or behind the last);
 * backward reads it. What lies beyond an entry's lengths isn't written. Gradients are as if log_probs came
 * from log_softmax: that of what went into it, 0 beyond the lengths. A target out of range has probability 0.
 * Gradients come out the same each time. */
#ifndef XPU_OPS_CTC_H
#define XPU_OPS_CTC_H

#include "../fault.h"
#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_ctc {
    int64_t time, batch, labels;
    int64_t longest;    /* of the targets */
    int64_t blank;      /* the blank's label */
    bool zero_infinity; /* backward: entries whose loss is infinite have no gradient, else NaN */
    xpu_dtype dtype;
    xpu_dtype target_dtype; /* int32 or int64 */
    const void *log_probs, *targets;
    const int64_t *input_lengths, *target_lengths, *target_starts; /* in device memory */
} xpu_ctc;

/* `loss` [batch]. A target out of range is a fault, which goes to `fault` if it isn't NULL (see xpu/fault.h).
 */
XPU_API xpu_status xpu_ctc_forward(xpu_stream *stream, const xpu_ctc *args, void *loss, void *log_alpha,
                                   xpu_fault *fault);
XPU_API xpu_status xpu_ctc_backward(xpu_stream *stream, const xpu_ctc *args, const void *grad_loss,
                                    const void *loss, const void *log_alpha, void *grad);

#ifdef __cplusplus
}
#endif
#endif
