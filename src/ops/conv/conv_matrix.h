/* Convolutions as products by matrix units, or by GPUs' multiply-adds. */
#ifndef XPU_OPS_CONV_MATRIX_H
#define XPU_OPS_CONV_MATRIX_H

#include "ops/conv/conv_geometry.h"
#include "ops/kernel.h"
#include "xpu/ops/gemm.h"

/* Does it where the device has units that serve this convolution, or is a GPU, on which multiply-adds are
 * expected to be faster than the plain kernel; tells whether it did. `p` holds what doesn't depend on the
 * kernel. */
xpu_status conv_by_matrix(xpu_stream *stream, xpu_dtype dtype, sought sought, const conv_params *p,
                          bool *done);

/* y of bytes. */
typedef struct conv_bytes {
    conv_bytes_params params; /* but `blank`; `less` is x's zero point */
    bool x_unsigned;
    uint8_t blank; /* what x is in its padding, where params.x_zero doesn't tell */
    const xpu_way_out *way;
} conv_bytes;
/* Likewise, w being int8; p->bias is float32. */
xpu_status conv_bytes_by_matrix(xpu_stream *stream, const conv_bytes *bytes, const conv_params *p,
                                bool *done);

#endif
