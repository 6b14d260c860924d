/* Parameters of margin.cl. */
#ifndef XPU_KERNELS_MARGIN_H
#define XPU_KERNELS_MARGIN_H
#include "fault.h"

typedef struct margin_params {
    xpu_addr scores, is_target; /* T [rows, classes] */
    xpu_addr targets;           /* int64 [rows, classes] */
    xpu_addr losses;            /* ACC [rows]; or their gradients */
    xpu_addr grad_scores;       /* T */
    struct fault_watch watch;
    xpu_i64 rows, classes;
} margin_params;
#endif
