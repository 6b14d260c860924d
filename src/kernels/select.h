/* Parameters of select.cl. Rows are contiguous. */
#ifndef XPU_KERNELS_SELECT_H
#define XPU_KERNELS_SELECT_H
#include "shared.h"

/* Progress of a row's search: the high bits of the key, and the rank k among the elements that have them. */
typedef struct select_state {
    xpu_u64 prefix;
    xpu_i64 k;
    xpu_i32 found; /* the lowest position with that key */
    xpu_i32 reserved;
} select_state;

/* One per value of a digit, and one for NaN. Padded, because Intel's GPU compiler (IGC 2.40) makes a loop of
 * 256 work-items over 257 elements a single store of the first one. */
#define SELECT_COUNTS 260

typedef struct select_params {
    xpu_addr in, order;       /* order: i64, of mode's rows */
    xpu_addr values, indices; /* one a row */
    xpu_addr counts, states;  /* of rows that are split */
    xpu_i64 rows, length, k;
    xpu_u32 splits; /* work-groups a row */
    xpu_i32 shift;  /* the digit's lowest bit */
} select_params;
#endif
