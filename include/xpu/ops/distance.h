/* xpu/ops/distance.h: distances between the rows of two matrices, or between all pairs of rows of one, with
 * gradients.
 *
 * Matrices are contiguous [batch, rows1, columns] and [batch, rows2, columns], distances [batch, rows1,
 * rows2]; with `pairs` x2 is x1, and distances are those of rows i < j, [batch, rows (rows - 1) / 2] in the
 * order (0, 1), (0, 2), …, (1, 2), …. The distance is the p-norm of the difference: for p = 0 the number of
 * elements that differ, for infinity the largest. Dtypes are fp32 and fp64. Results come out the same each
 * time. */
#ifndef XPU_OPS_DISTANCE_H
#define XPU_OPS_DISTANCE_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_distance {
    int64_t batch, rows1, rows2, columns;
    double p; /* from 0 to infinity */
    xpu_dtype dtype;
    bool pairs; /* rows2 is rows1 */
} xpu_distance;

XPU_API xpu_status xpu_distance_forward(xpu_stream *stream, const xpu_distance *args, const void *x1,
                                        const void *x2, void *distances);
/* The gradient of x1; `distances` as forward gave them. Where the distance has no derivative, it is that to
 * 0. */
XPU_API xpu_status xpu_distance_backward(xpu_stream *stream, const xpu_distance *args,
                                         const void *grad_distances, const void *x1, const void *x2,
                                         const void *distances, void *grad_x1);

#ifdef __cplusplus
}
#endif
#endif
