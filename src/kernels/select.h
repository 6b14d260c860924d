/* select.cl's parameters. Rows lie one after the other. */
#ifndef XPU_KERNELS_SELECT_H
#define XPU_KERNELS_SELECT_H
#include "shared.h"

/* What is known of a row's element so far: its key's high bits, and which it is of those that have them. */
typedef struct select_state {
    xpu_u64 prefix;
    xpu_i64 k;
    xpu_i32 found; /* the least place that has the key */
    xpu_i32 reserved;
} select_state;

#define SELECT_COUNTS 257 /* of a digit's values, and of NaN */

typedef struct select_params {
    xpu_addr in, order;       /* order: i64, of mode's rows */
    xpu_addr values, indices; /* one a row */
    xpu_addr counts, states;  /* of rows that are split */
    xpu_i64 rows, length, k;
    xpu_u32 splits; /* work-groups a row */
    xpu_i32 shift;  /* the digit's lowest bit */
} select_params;
#endif
