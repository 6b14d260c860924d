/* xpu/ops/grid_sample.h: samples an image at positions from a second tensor, with gradients.
 *
 * Shapes, contiguous; with dims = 2 the depths are 1:
 *     input  [batch, channels, depth, height, width]
 *     grid   [batch, depth', height', width', dims]
 *     output [batch, channels, depth', height', width']
 * grid: its last dimension is x, y (, z), each from -1 to 1 over the image.
 * Dtypes: fp16, bf16, fp32, fp64; computed in fp32 (fp64 for fp64). */
#ifndef XPU_OPS_GRID_SAMPLE_H
#define XPU_OPS_GRID_SAMPLE_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_grid_mode { XPU_GRID_LINEAR, XPU_GRID_NEAREST, XPU_GRID_CUBIC } xpu_grid_mode;
/* Outside the image: zeros, the nearest border element, or the mirrored image. */
typedef enum xpu_grid_padding { XPU_GRID_ZEROS, XPU_GRID_BORDER, XPU_GRID_REFLECTION } xpu_grid_padding;

typedef struct xpu_grid_sample {
    int64_t batch, channels;
    int in[3], out[3]; /* depth, height, width */
    int dims;          /* 2 or 3; CUBIC: 2 */
    xpu_dtype dtype;
    xpu_grid_mode mode;
    xpu_grid_padding padding;
    bool align_corners; /* -1 and 1 are the centers of the first and last elements, else their outer edges */
} xpu_grid_sample;

XPU_API xpu_status xpu_grid_sample_forward(xpu_stream *stream, const xpu_grid_sample *args, const void *input,
                                           const void *grid, void *output);
/* grad_input: fp32 (fp64 for fp64), or NULL. Accumulated into with atomics, in no fixed order: initialize it
 * to 0.
 * Errors: XPU_ERROR_NOT_SUPPORTED for fp64 on a device without has_atomic64. */
XPU_API xpu_status xpu_grid_sample_backward(xpu_stream *stream, const xpu_grid_sample *args,
                                            const void *grad_output, const void *input, const void *grid,
                                            void *grad_input, void *grad_grid);

#ifdef __cplusplus
}
#endif
#endif
