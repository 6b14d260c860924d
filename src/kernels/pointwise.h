/* The parameters of the pointwise kernels, whose text src/ops/pointwise.c writes. */
#ifndef XPU_KERNELS_POINTWISE_H
#define XPU_KERNELS_POINTWISE_H
#include "shared.h"

#define POINTWISE_OPERANDS 8
#define POINTWISE_SCALARS 4
#define POINTWISE_DIMS 16

/* Every operand is contiguous, or one element, or a value. */
typedef struct pointwise_flat {
    xpu_addr pointer[POINTWISE_OPERANDS];
    xpu_u64 value[POINTWISE_OPERANDS][2]; /* of operands that are no tensors: in the compute type */
    xpu_u64 scalar[POINTWISE_SCALARS][2];
    xpu_u64 count; /* elements */
} pointwise_flat;

/* Any strides; fewer than 2^31 elements, and offsets that fit 31 bits. Strides and offsets are bytes.
 * n / size[d] = (mul_hi(n, multiplier[d]) + n) >> shift[d]. */
typedef struct pointwise_strided {
    xpu_addr pointer[POINTWISE_OPERANDS];
    xpu_u64 value[POINTWISE_OPERANDS][2];
    xpu_u64 scalar[POINTWISE_SCALARS][2];
    xpu_u32 count; /* elements; of rows in the kernel for rows */
    xpu_u32 inner; /* elements in a row, in the kernel for rows */
    xpu_u32 size[POINTWISE_DIMS], multiplier[POINTWISE_DIMS], shift[POINTWISE_DIMS];
    xpu_i32 stride[POINTWISE_DIMS][POINTWISE_OPERANDS];
} pointwise_strided;
#endif
