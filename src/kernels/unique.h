/* unique.cl's parameters. */
#ifndef XPU_KERNELS_UNIQUE_H
#define XPU_KERNELS_UNIQUE_H
#include "shared.h"

typedef struct unique_params {
    xpu_addr in;              /* rows of `width` elements */
    xpu_addr order;           /* i64: which row comes where, or 0: as they lie */
    xpu_addr places[2];       /* i32: the same while rows are sorted, from and to */
    xpu_addr numbers;         /* i64: which of the different ones each is, in order */
    xpu_addr out;             /* the different rows, or 0 */
    xpu_addr first;           /* i64: where each begins, in order */
    xpu_addr inverse, counts; /* i64, or 0 */
    xpu_i64 rows, width, different;
    xpu_i64 run;                /* of the merge */
    xpu_i32 in_order, reserved; /* `in` itself is in order: `order` says where its rows came from */
} unique_params;
#endif
