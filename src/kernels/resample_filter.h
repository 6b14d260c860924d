/* Parameters of resample_filter.cl: one dimension of tensors [outer, in, inner] and [outer, out, inner]. */
#ifndef XPU_KERNELS_RESAMPLE_FILTER_H
#define XPU_KERNELS_RESAMPLE_FILTER_H
#include "shared.h"

typedef struct resample_filter_params {
    xpu_addr from, to; /* SRC, DST */
    xpu_addr totals;   /* backward: ACC [out], the sum of the weights of each output position */
    xpu_i64 outer, inner;
    xpu_i32 in, out;
    float scale, scale_rest; /* input positions per output position: scale + scale_rest */
} resample_filter_params;
#endif
