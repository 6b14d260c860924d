/* The gradient of x where that has few channels, as images have. */
#ifndef XPU_OPS_CONV_FEW_H
#define XPU_OPS_CONV_FEW_H

#include "ops/conv/conv_geometry.h"

/* Does it on GPUs, by multiply-adds, where x has 1 to 4 channels a group and no matrix unit serves its dtype;
 * tells whether it did. */
xpu_status conv_by_few(xpu_stream *stream, xpu_dtype dtype, sought sought, const conv_params *p, bool *done);

#endif
