/* Calls the host's BLAS (xpu_host_provider in xpu/ops/gemm.h) on CPU devices. */
#ifndef XPU_OPS_HOST_PROVIDER_H
#define XPU_OPS_HOST_PROVIDER_H

#include "xpu/ops/gemm.h"

/* Computes a product by the provider. XPU_ERROR_NOT_SUPPORTED, without an error message, if there is none or
 * it declines. */
xpu_status host_gemm(xpu_stream *stream, const xpu_gemm_args *args);

/* The same for bfloat16 operands and float32 results. Is that faster than a float32 product? */
xpu_status host_gemm_wide(xpu_stream *stream, const xpu_gemm_args *args);
bool host_has_fast_wide(int device);

/* The same for grouped products. */
#define GEMM_BAD_ENDS "grouped product: offsets don't ascend, or are out of range"
typedef struct grouped_call {
    xpu_gemm_args args;
    xpu_grouped grouped;
    const int32_t *ends;
} grouped_call;
xpu_status host_gemm_grouped(xpu_stream *stream, const grouped_call *call);

#endif
