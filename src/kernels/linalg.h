/* Parameters of linalg.cl. Strides count elements. */
#ifndef XPU_KERNELS_LINALG_H
#define XPU_KERNELS_LINALG_H
#include "fault.h"

#define LINALG_BLOCK 32 /* rows of a triangle that a work-group solves or factors at once */

typedef struct factor_params {
    xpu_addr a;      /* element (first, first) of the first matrix; lu_swap: element (0, 0) */
    xpu_addr pivots; /* int32 [batch, pivot_stride] */
    xpu_addr info;   /* int32 [batch] */
    xpu_i64 batch_stride, row_stride, column_stride, pivot_stride;
    xpu_i64 first; /* the panel's first row and column */
    xpu_i64 rows;  /* of the matrix from there on */
    xpu_i64 columns, column, hole,
        hole_width; /* lu_swap: columns [column, column + columns) except the `hole` */
    xpu_u32 width;  /* the panel's columns */
    xpu_u32 pivot;
} factor_params;

typedef struct permutation_params {
    xpu_addr pivots, permutation; /* int32 [batch, count], int64 [batch, rows] */
    struct fault_watch watch;
    xpu_i64 count, rows;
    xpu_u32 inverse, held;
} permutation_params;

typedef struct triangular_params {
    xpu_addr a, x; /* element (0, 0) of a lower triangle of `rows`, and of the unknowns */
    xpu_i64 a_batch_stride, a_row_stride, a_column_stride;
    xpu_i64 x_batch_stride, x_row_stride, x_column_stride;
    xpu_i64 columns, tiles;
    xpu_u32 rows, unit, conjugate, reserved;
} triangular_params;
#endif
