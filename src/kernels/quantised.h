/* What kernels are told of an operand in fewer bits (xpu_quantised): lines of elements, and what makes
 * numbers of them. */
#ifndef XPU_KERNELS_QUANTISED_H
#define XPU_KERNELS_QUANTISED_H
#include "gemm.h"

/* One for each group; distances count groups. */
typedef struct quantised_part {
    xpu_addr data;
    xpu_i64 batch, across, along;
} quantised_part;

typedef struct quantised_lines {
    xpu_addr data;
    xpu_i64 batch, across, along; /* elements from one to the next */
    quantised_part scale, zero;
    xpu_i64 group_across, group_along; /* lines, and elements of a line, that share a scale and a zero */
    xpu_u32 along_factor, along_shift; /* i / group_along is (mul_hi(i, factor) + i) >> shift for i < 2^31 */
    xpu_i32 middle, unused;
} quantised_lines;

typedef struct dequantise_params {
    quantised_lines from;
    xpu_addr out;
    xpu_i64 out_batch, out_across; /* elements; neighbours in a line lie beside each other */
    xpu_i64 lines, length, batch;
    xpu_i64 span; /* elements of a line that a work-group has: a multiple of 8 */
} dequantise_params;

/* A product whose B is read as it lies. */
typedef struct gemm_quantised_params {
    gemm_params gemm;
    quantised_lines b;
} gemm_quantised_params;
#endif
