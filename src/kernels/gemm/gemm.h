/* Parameters of gemm.cl: one product or a batch of products. */
#ifndef XPU_KERNELS_GEMM_H
#define XPU_KERNELS_GEMM_H
#include "fault.h"
#include "matrix/epilogue.h"

typedef struct gemm_strides {
    xpu_i64 batch, row, column; /* elements */
} gemm_strides;

typedef struct gemm_params {
    xpu_addr a, b, c, out;
    xpu_addr partial; /* split-K partial sums: [slice][batch][m][n] of the accumulator's type; GROUPED, which
                         isn't split: where ends that are out of range are reported, and `slices` the text */
    xpu_addr ends;    /* GROUPED: int32 [batch], the exclusive end (row, column or k) of each group */
    xpu_i64 batch, m, n, k;
    xpu_i64 slices, slice; /* split-K: number of slices, elements of k in a slice */
    gemm_strides a_stride, b_stride, c_stride, out_stride, other_stride;
    xpu_u64 alpha[2], beta[2]; /* the bits of the accumulator's type; two words for complex */
    xpu_addr a_scale, b_scale; /* of A's rows and B's columns */
    xpu_i64 a_scale_stride[2], b_scale_stride[2]; /* batch; row or column */
    xpu_addr compensation[2]; /* zero-point compensation: int32 of A's rows and B's columns; their product is
                          subtracted */
    xpu_i64 compensation_stride[2];
    xpu_i32 compensation_common[2]; /* added to each of them, or used alone */
    output_quant_params leave;
    post_ops_params end;
} gemm_params;

/* gemm_epilogue: work-items and columns of a work-group. */
#define GEMM_EPILOGUE_LANES 16
#define GEMM_EPILOGUE_SPAN 4096
#endif
