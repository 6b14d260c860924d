/* Parameters of the sort kernels. Between passes the rows are contiguous in `keys` (the input's dtype) and
 * `positions` (i32); passes alternate between two such buffers. */
#ifndef XPU_KERNELS_SORT_H
#define XPU_KERNELS_SORT_H
#include "row_walk.h"

typedef struct sort_params {
    xpu_addr in, values, indices;
    xpu_addr keys[2], positions[2]; /* from, to */
    xpu_i64 length;
    xpu_i64 run;          /* elements already in order, from each multiple of it */
    xpu_i64 first, count; /* what is stored of each row */
    row_walk walk;        /* of in, values, indices */
} sort_params;

#endif
