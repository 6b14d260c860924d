/* Convolutions of 3 x 3 taps by GPUs' multiply-adds, with 4 of 9 multiplications
 * (kernels/conv/conv_winograd.cl). */
#ifndef XPU_OPS_CONV_WINOGRAD_H
#define XPU_OPS_CONV_WINOGRAD_H

#include "ops/conv/conv_geometry.h"

/* The clocks that it is expected to take by the model of matrix.h; HUGE_VAL where it doesn't serve the
 * convolution. */
double conv_winograd_clocks(int device, xpu_dtype dtype, sought sought, const conv_params *p);
/* Does it, where it serves. Without the ending. */
xpu_status conv_by_winograd(xpu_stream *stream, xpu_dtype dtype, sought sought, const conv_params *p);

#endif
