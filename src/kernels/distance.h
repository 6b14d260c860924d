/* Parameters of distance.cl. */
#ifndef XPU_KERNELS_DISTANCE_H
#define XPU_KERNELS_DISTANCE_H
#include "shared.h"

typedef struct distance_params {
    xpu_addr x1, x2;    /* T [batch, rows1, columns], [batch, rows2, columns] */
    xpu_addr distances; /* T [batch, rows1, rows2], or [batch, pairs] */
    xpu_addr grad;      /* T, as distances */
    xpu_addr grad_x1;
    xpu_i64 rows1, rows2, columns;
    xpu_i64 pairs;   /* of a batch entry, or 0 */
    xpu_i64 tiles;   /* of rows1 */
    float p, p_rest; /* their sum is p */
} distance_params;
#endif
