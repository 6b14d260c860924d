/* Parameters of resample.cl. Arrays are in the order depth, height, width. */
#ifndef XPU_KERNELS_RESAMPLE_H
#define XPU_KERNELS_RESAMPLE_H
#include "shared.h"

typedef struct resample_params {
    xpu_addr input, output; /* T; backward: the gradients of both */
    xpu_i64 batch, channels;
    xpu_i64 rows; /* of the range: positions along all dimensions but the first */
    xpu_i32 in[3], out[3];
    float scale[3], scale_rest[3]; /* input positions per output position: scale + scale_rest */
    xpu_i32 before[3];             /* padding in front, may be negative */
    xpu_i32 align_corners;
} resample_params;
#endif
