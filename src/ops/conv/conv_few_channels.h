/* Gradient of x for x with few channels, e.g. images (kernels/conv/conv_few_channels.cl). */
#ifndef XPU_OPS_CONV_FEW_CHANNELS_H
#define XPU_OPS_CONV_FEW_CHANNELS_H

#include "ops/conv/conv_geometry.h"

/* Supports GPUs, x with 1 to 4 channels per group, and dtypes without a matrix engine. *done tells whether it
 * was launched. */
xpu_status conv_by_few_channels(xpu_stream *stream, xpu_dtype dtype, conv_direction direction,
                                const conv_params *p, bool *done);

#endif
