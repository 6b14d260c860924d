/* Parameters of deform.cl. */
#ifndef XPU_KERNELS_DEFORM_H
#define XPU_KERNELS_DEFORM_H
#include "shared.h"

typedef struct deform_params {
    xpu_addr image, offset, mask;                /* T; mask may be 0 */
    xpu_addr columns;                            /* T; backward: their gradient */
    xpu_addr grad_image, grad_offset, grad_mask; /* ACC, T, T; the last may be 0 */
    xpu_i64 total;                               /* work-items */
    xpu_i32 channels, groups;                    /* groups of channels with the same offsets */
    xpu_i32 in[2], out[2], window[2];            /* height, width */
    xpu_i32 stride[2], padding[2], dilation[2];
} deform_params;
#endif
