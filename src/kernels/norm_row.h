/* Parameters of norm_row.cl. x, y, dy, dx are contiguous [rows, length], weight and bias [length]. */
#ifndef XPU_KERNELS_NORM_ROW_H
#define XPU_KERNELS_NORM_ROW_H
#include "shared.h"

typedef struct norm_row_params {
    xpu_addr result;                 /* y or dx */
    xpu_addr input;                  /* x */
    xpu_addr grad;                   /* dy */
    xpu_addr weight, bias;           /* or 0 */
    xpu_addr mean, rstd;             /* ACC [rows] */
    xpu_addr partial;                /* ACC [row groups, 2, length]: each row group's part of dw and db */
    xpu_addr grad_weight, grad_bias; /* or 0 */
    xpu_i64 rows;
    xpu_i64 row_groups;
    xpu_u32 length;
    xpu_u32 rows_per_row_group;
    float eps, eps_rest; /* eps is their sum: fp64 wants more digits */
} norm_row_params;
#endif
