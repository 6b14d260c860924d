/* Convolutions of fp32, fp16 and bf16 on processors. */
#ifndef XPU_OPS_CONV_HOST_H
#define XPU_OPS_CONV_HOST_H

#include "kernels/conv/conv.h"
#include "xpu/ops.h"

/* y = x * w + bias by products, where the device is a host's processor, w lies without gaps and there are
 * channels enough; tells whether it did. p->end is left to the caller. */
xpu_status conv_on_host(xpu_stream *stream, xpu_dtype dtype, const conv_params *p, bool *done);

#endif
