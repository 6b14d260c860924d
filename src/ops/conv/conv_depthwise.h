/* Depthwise and other convolutions with few channels per group (kernels/conv/conv_depthwise.cl). */
#ifndef XPU_OPS_CONV_DEPTHWISE_H
#define XPU_OPS_CONV_DEPTHWISE_H

#include "ops/conv/conv_geometry.h"

/* Supports groups with 1, 2 or 4 channels of x and as many of y, and channels-last tensors aligned to 16
 * bytes. *done tells whether the convolution was launched. */
xpu_status conv_by_depthwise(xpu_stream *stream, xpu_dtype dtype, conv_direction direction,
                             const conv_params *p, bool *done);

#endif
