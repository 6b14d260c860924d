/* Parameters of softmax.cl. Tensors are contiguous [outer, length, inner]. */
#ifndef XPU_KERNELS_SOFTMAX_H
#define XPU_KERNELS_SOFTMAX_H
#include "shared.h"

typedef struct softmax_params {
    xpu_addr result; /* forward: the output; backward: the input's gradient */
    xpu_addr input;  /* forward: the input; backward: the output's gradient */
    xpu_addr output; /* backward: the output of forward */
    xpu_addr mask;   /* bool, true leaves the element out; or 0 */
    xpu_addr parts;  /* partial results of the chunks of tiles */
    xpu_i64 columns; /* outer * inner */
    xpu_i64 inner;
    xpu_i64 tiles;         /* per outer */
    xpu_u32 chunk, chunks; /* elements of a column per work-group; number of chunks */
    xpu_u32 width;         /* columns of a tile */
    xpu_u32 length;
    xpu_u32 rows_per_row_group, reserved;
} softmax_params;
#endif
