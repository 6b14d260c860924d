/* Convolutions by matrix units. */
#ifndef XPU_OPS_CONV_MATRIX_H
#define XPU_OPS_CONV_MATRIX_H

#include "conv_geometry.h"
#include "kernel.h"

/* Does it where the device has such units, and they serve this convolution; tells whether it did. `p` holds
 * what doesn't depend on the kernel. */
xpu_status conv_by_units(xpu_stream *stream, xpu_dtype dtype, sought sought, const conv_params *p,
                         bool *done);

#endif
