/* 3 x 3 convolutions by Winograd F(2x2, 3x3) on GPUs without a matrix engine: 4 of 9 multiplications
 * (kernels/conv/conv_winograd.cl). */
#ifndef XPU_OPS_CONV_WINOGRAD_H
#define XPU_OPS_CONV_WINOGRAD_H

#include "ops/conv/conv_geometry.h"

/* Estimated clock cycles by the cost model of matrix.h; HUGE_VAL if the convolution is not supported. */
double conv_winograd_clocks(int device, xpu_dtype dtype, conv_direction direction, const conv_params *p);
/* Computes a supported convolution, without post-ops. */
xpu_status conv_by_winograd(xpu_stream *stream, xpu_dtype dtype, conv_direction direction,
                            const conv_params *p);

#endif
