/* The gradient of x where w's taps divide it into patches, each of one pixel of y, as vision transformers do.
 */
#ifndef XPU_OPS_CONV_PATCHES_H
#define XPU_OPS_CONV_PATCHES_H

#include "ops/conv/conv_geometry.h"

/* Does it where x has 1 to 4 channels, strides are as large as w and too large for conv_few.cl, patches cover
 * x, and a GPU multiplies without units: y times w into a workspace, patch by patch, which is copied to x.
 * Tells whether it did. Nothing is added to x yet. */
xpu_status conv_by_patches(xpu_stream *stream, xpu_dtype dtype, sought sought, const conv_params *p,
                           bool *done);

#endif
