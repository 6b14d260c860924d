/* Convolutions with few channels a group. */
#ifndef XPU_OPS_CONV_DEPTH_H
#define XPU_OPS_CONV_DEPTH_H

#include "ops/conv/conv_geometry.h"

/* Does it where each group has 1, 2 or 4 channels of x and as many of y, and the tensors lie with channels
 * innermost, aligned to 16 bytes; tells whether it did. */
xpu_status conv_by_depth(xpu_stream *stream, xpu_dtype dtype, sought sought, const conv_params *p,
                         bool *done);

#endif
