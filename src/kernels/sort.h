/* What the sort kernels are given. Between the passes the rows lie one after the other in `keys` (in the
 * dtype of the input) and `places` (i32); the passes go to and fro between two such buffers. */
#ifndef XPU_KERNELS_SORT_H
#define XPU_KERNELS_SORT_H
#include "row_walk.h"

typedef struct sort_params {
    xpu_addr in, values, indices;
    xpu_addr keys[2], places[2]; /* from, to */
    xpu_i64 length;
    xpu_i64 run;          /* elements already in order, from each multiple of it */
    xpu_i64 first, count; /* what is stored of each row */
    row_walk walk;        /* of in, values, indices */
} sort_params;

#endif
