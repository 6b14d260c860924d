/* Parameters of histogram.cl. */
#ifndef XPU_KERNELS_HISTOGRAM_H
#define XPU_KERNELS_HISTOGRAM_H
#include "shared.h"

typedef struct histogram_params {
    xpu_addr in, weights; /* weights: of W, or 0 */
    xpu_addr counts;      /* one a bin: u32, or W */
    xpu_i64 numel, bins;
    xpu_i64 step;      /* work-items of the launch */
    xpu_u64 low, high; /* the bounds, in the type computed in */
} histogram_params;
#endif
