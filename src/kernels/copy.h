/* Parameters of copy.cl. Strides are in bytes. */
#ifndef XPU_KERNELS_COPY_H
#define XPU_KERNELS_COPY_H
#include "shared.h"

#define COPY_DIMS 14 /* batch dimensions, besides the two of the plane */

/* A plane of two dimensions ([0] runs along rows), in which a work-item copies a rectangle, and the batch. */
struct copy_params {
    xpu_addr to, from;
    xpu_u64 plane[2], block[2]; /* elements of the plane and of a rectangle */
    xpu_i64 to_plane[2], from_plane[2];
    xpu_u64 batch, dims; /* of the batch dimensions: product of the sizes, number */
    xpu_u64 size[COPY_DIMS];
    xpu_i64 to_stride[COPY_DIMS], from_stride[COPY_DIMS];
};
#endif
