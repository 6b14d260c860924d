/* Who does the heavy work on host devices: see xpu_host_provider in xpu/ops/gemm.h. */
#ifndef XPU_OPS_HOST_PROVIDER_H
#define XPU_OPS_HOST_PROVIDER_H

#include "xpu/ops/gemm.h"

/* The provider to ask for work on `stream`, or NULL. What the stream was given before is done on return. */
const xpu_host_provider *host_provider(xpu_stream *stream);

/* Returns from an operation when the provider's `function` did it, or failed at it. */
#define TRY_HOST_PROVIDER(stream, function, ...)                                                             \
    do {                                                                                                     \
        const xpu_host_provider *provider_ = host_provider(stream);                                          \
        if (provider_ && provider_->function) {                                                              \
            xpu_status status_ = provider_->function(__VA_ARGS__);                                           \
            if (status_ != XPU_ERROR_NOT_SUPPORTED) return status_;                                          \
        }                                                                                                    \
    } while (0)

#endif
