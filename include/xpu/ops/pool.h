/* xpu/ops/pool.h: maximum and average pooling over one to three dimensions, by fixed, adaptive or
 * fractional windows.
 *
 * Tensors are contiguous [batch, channels, depth, height, width], or with channels_last [batch, depth,
 * height, width, channels]; fewer dimensions have size 1 in front, and windows of 1 there. Dtypes are fp16,
 * bf16, fp32, fp64; sums in fp32 (fp64 for fp64). Gradients come out the same each time. */
#ifndef XPU_OPS_POOL_H
#define XPU_OPS_POOL_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_pool {
    int64_t batch, channels;
    int in[3], out[3]; /* depth, height, width */
    bool channels_last;
    xpu_dtype dtype;
    bool maximum;  /* else the average */
    bool adaptive; /* windows from in and out alone; the members below are not used */
    int kernel[3], stride[3], pad[3], dilation[3]; /* dilation: 1 for averages */
    const void
        *samples;   /* NULL, or fractional windows, of `kernel` elements and where these numbers in 0 … 1 put
                       them (depth, height, width), [batch, channels, 3] of the dtype: maxima, forward alone,
                       not channels_last. Source: B. Graham, Fractional Max-Pooling, arXiv:1412.6071. */
    bool count_pad; /* averages divide by the window's size, padding included, */
    int divisor;    /* or, if not 0, by this */
} xpu_pool;

/* indices (maximum only): int64, shaped as the output: where in its plane of the input the maximum is. */
XPU_API xpu_status xpu_pool_forward(xpu_stream *stream, const xpu_pool *args, const void *input, void *output,
                                    void *indices);
XPU_API xpu_status xpu_pool_backward(xpu_stream *stream, const xpu_pool *args, const void *grad_output,
                                     const void *indices, void *grad_input);

#ifdef __cplusplus
}
#endif
#endif
