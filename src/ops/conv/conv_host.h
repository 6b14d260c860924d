/* Convolutions of fp32, fp16 and bf16 on CPUs. */
#ifndef XPU_OPS_CONV_HOST_H
#define XPU_OPS_CONV_HOST_H

#include "kernels/conv/conv.h"
#include "xpu/ops.h"

/* y = x * w + bias by im2col. Supports CPU devices, contiguous w and enough channels. *done tells whether it
 * was computed. Post-ops (p->end) are left to the caller. */
xpu_status conv_on_host(xpu_stream *stream, xpu_dtype dtype, const conv_params *p, bool *done);

#endif
