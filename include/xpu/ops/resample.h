/* xpu/ops/resample.h: interpolation to another size, with or without a filter against aliasing, and padding
 * by reflection or replication, over one to three dimensions, with gradients.
 *
 * Tensors are contiguous [batch, channels, depth, height, width], or with channels_last [batch, depth,
 * height, width, channels]; fewer dimensions have size 1 in front. Dtypes are fp16, bf16, fp32, fp64;
 * computed in fp32 (fp64 for fp64). Besides, padding forward takes every dtype, its gradient complex numbers,
 * and nearest and filters forward uint8, which filters round once, at the end. Gradients come out the same
 * each time. */
#ifndef XPU_OPS_RESAMPLE_H
#define XPU_OPS_RESAMPLE_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_resample_kind {
    XPU_RESAMPLE_NEAREST,       /* floor(o · scale) */
    XPU_RESAMPLE_NEAREST_EXACT, /* floor((o + 1/2) · scale) */
    XPU_RESAMPLE_LINEAR,
    XPU_RESAMPLE_CUBIC,
    XPU_RESAMPLE_REFLECT,   /* padding: `before` elements in front, mirrored at the first and last */
    XPU_RESAMPLE_REPLICATE, /* padding by the first and last */
    /* Filters as wide as an output position is in the input, and at least 1, 2 or 3 input positions to each
     * side; weights add up to 1. Pillow's: a triangle, Keys' cubic with a = -1/2, Lanczos' window of 3. */
    XPU_RESAMPLE_FILTER_LINEAR,
    XPU_RESAMPLE_FILTER_CUBIC,
    XPU_RESAMPLE_FILTER_LANCZOS
} xpu_resample_kind;

typedef struct xpu_resample {
    int64_t batch, channels;
    int in[3], out[3];
    bool channels_last;
    xpu_dtype dtype;
    xpu_resample_kind kind;
    bool align_corners; /* linear, cubic: position o is at o · scale, else at (o + 1/2) · scale - 1/2 */
    double scale[3];    /* input positions an output position */
    int before[3];      /* padding in front; negative cuts off */
} xpu_resample;

XPU_API xpu_status xpu_resample_forward(xpu_stream *stream, const xpu_resample *args, const void *input,
                                        void *output);
XPU_API xpu_status xpu_resample_backward(xpu_stream *stream, const xpu_resample *args,
                                         const void *grad_output, void *grad_input);

#ifdef __cplusplus
}
#endif
#endif
