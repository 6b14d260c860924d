/* xpu/ops/resample.h: interpolation, with or without antialiasing, and reflection and replication padding,
 * over one to three dimensions, with gradients.
 *
 * Shapes: contiguous [batch, channels, depth, height, width] or, with channels_last, [batch, depth, height,
 *     width, channels]. Missing dimensions are leading ones of size 1.
 * Dtypes: fp16, bf16, fp32, fp64; computed in fp32 (fp64 for fp64).
 * - Padding: forward every dtype, backward complex ones too.
 * - Nearest and filters: forward uint8 too; filters round once, at the end.
 * Gradients are deterministic. */
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
    XPU_RESAMPLE_REFLECT, /* padding: `before` elements in front, mirrored about the first and last element */
    XPU_RESAMPLE_REPLICATE, /* padding with the first and last element */
    /* Antialiasing filters as in Pillow: triangle, Keys' cubic with a = -1/2, Lanczos with 3 lobes. The
     * support on each side is at least 1, 2 or 3 input elements, and scales with the downsampling factor.
     * Weights sum to 1. */
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
    bool align_corners; /* linear, cubic: output o samples o · scale, else (o + 1/2) · scale - 1/2 */
    double scale[3];    /* input elements per output element */
    int before[3];      /* padding in front; negative values crop */
} xpu_resample;

XPU_API xpu_status xpu_resample_forward(xpu_stream *stream, const xpu_resample *args, const void *input,
                                        void *output);
XPU_API xpu_status xpu_resample_backward(xpu_stream *stream, const xpu_resample *args,
                                         const void *grad_output, void *grad_input);

#ifdef __cplusplus
}
#endif
#endif
