/* Rows of three tensors whose shapes differ only in the dimension worked along: a row is that dimension at
 * one position of all others. Strides count elements. Option: ROW_DIMS, the number of other dimensions. */
#ifndef XPU_KERNELS_ROW_WALK_H
#define XPU_KERNELS_ROW_WALK_H
#include "shared.h"

#define ROW_WALK_DIMS 15

typedef struct row_walk {
    xpu_i64 rows;
    xpu_i64 along[3];            /* strides in the dimension worked along */
    xpu_i64 size[ROW_WALK_DIMS]; /* the other dimensions, the fastest first */
    xpu_i64 stride[3][ROW_WALK_DIMS];
} row_walk;

#ifdef ROW_DIMS
/* Offset of row `row` of a tensor. */
static inline long row_offset(const row_walk *w, ulong row, int tensor) {
    long offset = 0;
#pragma unroll
    for (int d = 0; d < ROW_DIMS; d++) {
        ulong c = row;
        if (d + 1 < ROW_DIMS) {
            row = c / (ulong)w->size[d];
            c -= row * (ulong)w->size[d];
        }
        offset += (long)c * w->stride[tensor][d];
    }
    return offset;
}
#endif
#endif
