/* Parameters of nested.cl. Sizes count elements of E bytes. */
#ifndef XPU_KERNELS_NESTED_H
#define XPU_KERNELS_NESTED_H
#include "fault.h"

#define NESTED_LEVELS 5

struct nested_params {
    xpu_addr values, padded;
    struct fault_watch watch;
    xpu_addr offset[NESTED_LEVELS];
    xpu_i64 length[NESTED_LEVELS + 1]; /* number of indices of each level; last: rows of values */
    xpu_i64 size[NESTED_LEVELS];
    xpu_i64 row_size;
    xpu_i64 segments, down; /* total; per work-group */
    xpu_u64 padding[2];     /* the padding element, repeated to fill 16 bytes */
};
#endif
