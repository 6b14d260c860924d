/* xpu/ops/distance.h: p-norm distances between the rows of two matrices, or between all pairs of rows of
 * one, with gradients.
 *
 * Shapes, contiguous: x1 [batch, rows1, columns], x2 [batch, rows2, columns], distances [batch, rows1,
 *     rows2].
 * With `pairs`, x2 is x1, and distances [batch, rows (rows - 1) / 2] are those of rows i < j in the order
 * (0, 1), (0, 2), …, (1, 2), ….
 * p = 0: the number of elements that differ. p = infinity: the largest difference.
 * Dtypes: fp32, fp64. Deterministic. */
#ifndef XPU_OPS_DISTANCE_H
#define XPU_OPS_DISTANCE_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_distance {
    int64_t batch, rows1, rows2, columns;
    double p; /* 0 to infinity */
    xpu_dtype dtype;
    bool pairs; /* rows2 equals rows1 */
} xpu_distance;

XPU_API xpu_status xpu_distance_forward(xpu_stream *stream, const xpu_distance *args, const void *x1,
                                        const void *x2, void *distances);
/* Gradient of x1. `distances` are those of forward. Where the distance is not differentiable, the gradient
 * is 0. */
XPU_API xpu_status xpu_distance_backward(xpu_stream *stream, const xpu_distance *args,
                                         const void *grad_distances, const void *x1, const void *x2,
                                         const void *distances, void *grad_x1);

#ifdef __cplusplus
}
#endif
#endif
