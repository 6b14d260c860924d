/* Who does the heavy work on host devices: see xpu_host_provider in xpu/ops/gemm.h. */
#ifndef XPU_OPS_HOST_PROVIDER_H
#define XPU_OPS_HOST_PROVIDER_H

#include "xpu/ops/gemm.h"

/* Has the provider do a product. XPU_ERROR_NOT_SUPPORTED, without an error's text, where there is none or it
 * declines. */
xpu_status host_gemm(xpu_stream *stream, const xpu_gemm_args *args);

/* The same of bfloat16 to float32; is it faster than a product of float32? */
xpu_status host_gemm_wide(xpu_stream *stream, const xpu_gemm_args *args);
bool host_has_fast_wide(int device);

/* The same of xpu_gemm_grouped's. */
typedef struct grouped_call {
    xpu_gemm_args args;
    xpu_grouped grouped;
    const int32_t *ends;
} grouped_call;
xpu_status host_gemm_grouped(xpu_stream *stream, const grouped_call *call);

#endif
