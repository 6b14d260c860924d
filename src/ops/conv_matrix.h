/* Convolutions as products by matrix units, or by GPUs' multiply-adds. */
#ifndef XPU_OPS_CONV_MATRIX_H
#define XPU_OPS_CONV_MATRIX_H

#include "conv_geometry.h"
#include "kernel.h"

/* Does it where the device has units that serve this convolution, or is a GPU, on which multiply-adds are
 * expected to be faster than the plain kernel; tells whether it did. `p` holds what doesn't depend on the
 * kernel. */
xpu_status conv_by_matrix(xpu_stream *stream, xpu_dtype dtype, sought sought, const conv_params *p,
                          bool *done);

#endif
