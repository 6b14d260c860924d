/* Parameters of unique.cl. */
#ifndef XPU_KERNELS_UNIQUE_H
#define XPU_KERNELS_UNIQUE_H
#include "shared.h"

typedef struct unique_params {
    xpu_addr in;              /* rows of `width` elements */
    xpu_addr order;           /* i64: the permutation that sorts the rows, or 0: identity */
    xpu_addr positions[2];    /* i32: the permutation during the sort, source and destination */
    xpu_addr ids;             /* i64: unique id of each sorted row */
    xpu_addr out;             /* the unique rows, or 0 */
    xpu_addr first;           /* i64: first sorted row of each id */
    xpu_addr inverse, counts; /* i64, or 0 */
    xpu_i64 rows, width, unique_count;
    xpu_i64 run;                /* of the merge */
    xpu_i32 in_order, reserved; /* `in` itself is in order: `order` says where its rows came from */
} unique_params;
#endif
