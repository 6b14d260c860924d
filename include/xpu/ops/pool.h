/* xpu/ops/pool.h: maximum and average pooling over one to three dimensions, with fixed, adaptive or
 * fractional windows.
 *
 * Shapes: contiguous [batch, channels, depth, height, width] or, with channels_last, [batch, depth, height,
 *     width, channels]. Missing dimensions are leading ones of size 1, with windows of 1.
 * Dtypes: fp16, bf16, fp32, fp64; sums in fp32 (fp64 for fp64). Gradients are deterministic. */
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
    bool adaptive; /* windows follow from `in` and `out`; the members below are ignored */
    int kernel[3], stride[3], pad[3], dilation[3]; /* dilation: 1 for averages */
    const void *samples; /* NULL, or fractional windows of `kernel` elements at random offsets: values in 0 …
                            1 (depth, height, width), [batch, channels, 3] of the dtype. Maxima, forward only,
                            not channels_last. Source: B. Graham, Fractional Max-Pooling, arXiv:1412.6071. */
    bool count_pad;      /* averages divide by the window size with padding, */
    int divisor;         /* or by this, if not 0 */
} xpu_pool;

/* indices (maximum only): int64, the output's shape: flat index of the maximum in its input plane; -1 for a
 * window without elements. Backward: others out of range are a fault (xpu/fault.h). */
XPU_API xpu_status xpu_pool_forward(xpu_stream *stream, const xpu_pool *args, const void *input, void *output,
                                    void *indices);
XPU_API xpu_status xpu_pool_backward(xpu_stream *stream, const xpu_pool *args, const void *grad_output,
                                     const void *indices, void *grad_input);

#ifdef __cplusplus
}
#endif
#endif
