/* Parameters of factory.cl. */
#ifndef XPU_KERNELS_FACTORY_H
#define XPU_KERNELS_FACTORY_H
#include "shared.h"

/* Scalars are stored in the low bits of a word, in the type that the kernel computes in. */
typedef struct series_params {
    xpu_addr out;
    xpu_i64 count;
    xpu_u64 start, end, step;
    xpu_u64 base; /* of type S */
} series_params;

#define TRIANGLE_BATCH_DIMS 14
typedef struct triangle_params {
    xpu_addr in, out;
    xpu_i64 rows, columns, diagonal;
    xpu_i64 in_stride[2], out_stride[2];     /* of rows and columns; elements */
    xpu_i64 batch_size[TRIANGLE_BATCH_DIMS]; /* fastest first */
    xpu_i64 in_batch_stride[TRIANGLE_BATCH_DIMS], out_batch_stride[TRIANGLE_BATCH_DIMS];
    xpu_i32 batch_dims, upper;
} triangle_params;

typedef struct triangle_indices_params {
    xpu_addr out;
    xpu_i64 count, rows, columns, diagonal;
    xpu_i32 upper, reserved;
} triangle_indices_params;
#endif
