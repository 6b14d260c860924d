/* Parameters of the pointwise kernels, whose source src/ops/pointwise.c generates. */
#ifndef XPU_KERNELS_POINTWISE_H
#define XPU_KERNELS_POINTWISE_H
#include "shared.h"

#define POINTWISE_OPERANDS 8
#define POINTWISE_SCALARS 4
#define POINTWISE_DIMS 16

/* Every operand is contiguous, a single element, or a scalar value. */
typedef struct pointwise_flat {
    xpu_addr pointer[POINTWISE_OPERANDS];
    xpu_u64 value[POINTWISE_OPERANDS][2]; /* of scalar operands, in the compute type */
    xpu_u64 scalar[POINTWISE_SCALARS][2];
    xpu_u64 count; /* elements */
} pointwise_flat;

/* Any strides; fewer than 2^31 elements, and offsets that fit 31 bits. Strides and offsets are bytes. n /
 * size[d] = (mul_hi(n, multiplier[d]) + n) >> shift[d]. */
typedef struct pointwise_strided {
    xpu_addr pointer[POINTWISE_OPERANDS];
    xpu_u64 value[POINTWISE_OPERANDS][2];
    xpu_u64 scalar[POINTWISE_SCALARS][2];
    xpu_u32 count; /* elements; of rows in the kernel for rows */
    xpu_u32 inner; /* elements in a row, in the kernel for rows */
    xpu_u32 size[POINTWISE_DIMS], multiplier[POINTWISE_DIMS], shift[POINTWISE_DIMS];
    xpu_i32 stride[POINTWISE_DIMS][POINTWISE_OPERANDS];
} pointwise_strided;

#ifdef __OPENCL_VERSION__
/* Strided 4-byte elements. On many CPUs gather instructions are several times slower than scalar loads;
 * loading two 16-bit halves makes compilers generate scalar loads. */
#ifdef XPU_IS_CPU
static inline uint load_vectors(__global const void *p) {
    __global const ushort *piece = (__global const ushort *)p;
    return (uint)piece[0] | (uint)piece[1] << 16;
}
static inline void store_vectors(__global void *p, uint v) {
    __global ushort *piece = (__global ushort *)p;
    piece[0] = (ushort)v;
    piece[1] = (ushort)(v >> 16);
}
#define load_strided_f32(p, i) as_float(load_vectors((p) + (i)))
#define load_strided_i32(p, i) as_int(load_vectors((p) + (i)))
#define load_strided_u32(p, i) load_vectors((p) + (i))
#define store_strided_f32(p, i, v) store_vectors((p) + (i), as_uint((float)(v)))
#define store_strided_i32(p, i, v) store_vectors((p) + (i), (uint)(v))
#define store_strided_u32(p, i, v) store_vectors((p) + (i), (uint)(v))
#else
#define load_strided_f32 load_f32
#define load_strided_i32 load_i32
#define load_strided_u32 load_u32
#define store_strided_f32 store_f32
#define store_strided_i32 store_i32
#define store_strided_u32 store_u32
#endif
#endif
#endif
