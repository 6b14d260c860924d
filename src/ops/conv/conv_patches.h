/* Gradient of x if w's taps divide it into disjoint patches, one per pixel of y (vision transformers). */
#ifndef XPU_OPS_CONV_PATCHES_H
#define XPU_OPS_CONV_PATCHES_H

#include "ops/conv/conv_geometry.h"

/* Supports GPUs without a matrix engine for the dtype, x with 1 to 4 channels, strides equal to w's size that
 * are too large for conv_few_channels.cl, and patches that cover x. Computes y times w into a workspace,
 * patch by patch, and copies that to x. *done tells whether it was launched. Bias and post-ops are left to
 * the caller. */
xpu_status conv_by_patches(xpu_stream *stream, xpu_dtype dtype, conv_direction direction,
                           const conv_params *p, bool *done);

#endif
