/* Parameters of loss.cl: negative log likelihood of input [batch, classes, inner], target [batch, inner]. */
#ifndef XPU_KERNELS_LOSS_H
#define XPU_KERNELS_LOSS_H
#include "fault.h"

typedef struct loss_params {
    xpu_addr input;
    xpu_addr target;       /* TARGET */
    xpu_addr weight;       /* T [classes] or 0 */
    xpu_addr output;       /* none: T [batch, inner]; reduced: T, one element */
    xpu_addr total_weight; /* T, one element */
    xpu_addr partial;      /* ACC [row_groups, 2]: loss and weight */
    xpu_addr grad_output;  /* T [batch, inner] or one element */
    xpu_addr grad_input;   /* T */
    struct fault_watch watch;
    xpu_i64 batch, classes, inner;
    xpu_i64 ignore_index;
    xpu_i64 per_row_group, row_groups;
    xpu_u32 mean; /* the sum is divided by the total weight */
    xpu_u32 reduced;
} loss_params;
#endif
