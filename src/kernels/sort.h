/* What the sort kernels are given. Between the passes the rows lie one after the other in `keys` (in the
 * dtype of the input) and `places` (i32); the passes go to and fro between two such buffers. */
#ifndef XPU_KERNELS_SORT_H
#define XPU_KERNELS_SORT_H
#include "shared.h"

#define SORT_DIMS 15

typedef struct sort_params {
    xpu_addr in, values, indices;
    xpu_addr keys[2], places[2]; /* from, to */
    xpu_i64 rows, length;
    xpu_i64 run;             /* elements already in order, from each multiple of it */
    xpu_i64 first, count;    /* what is stored of each row */
    xpu_i64 along[3];        /* strides of in, values, indices in the sorted dimension */
    xpu_i64 size[SORT_DIMS]; /* the other dimensions, ROW_DIMS of them */
    xpu_i64 stride[3][SORT_DIMS];
} sort_params;

#endif
