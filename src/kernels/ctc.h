/* Parameters of ctc.cl. */
#ifndef XPU_KERNELS_CTC_H
#define XPU_KERNELS_CTC_H
#include "fault.h"

typedef struct ctc_params {
    xpu_addr log_probs;                                    /* T [time, batch, labels] */
    xpu_addr targets;                                      /* TARGET */
    xpu_addr input_lengths, target_lengths, target_starts; /* long [batch] */
    xpu_addr loss, grad_loss;                              /* T [batch] */
    xpu_addr alpha, beta;                                  /* T [batch, time, states] */
    xpu_addr links;                                        /* int [batch, longest], see ctc_links */
    xpu_addr grad;                                         /* T [time, batch, labels] */
    struct fault_watch watch;
    xpu_i64 time, batch, labels, states, longest, blank;
    xpu_i32 zero_infinity;
    xpu_i32 unused;
} ctc_params;
#endif
