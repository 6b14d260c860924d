/* xpu/ops/factory.h: tensors made from numbers alone, and triangles of matrices.
 *
 * Outputs given as a pointer are contiguous and hold `count` elements. */
#ifndef XPU_OPS_FACTORY_H
#define XPU_OPS_FACTORY_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] = start + i·step. Integers are computed in int64, halves in fp32. Not for bool and complex. */
XPU_API xpu_status xpu_arange(xpu_stream *stream, xpu_dtype dtype, void *out, int64_t count,
                              const xpu_scalar *start, const xpu_scalar *step);

/* `count` numbers from `start` to `end`, both included, evenly spaced: the lower half is counted from the
 * start, the upper half from the end. One number is the start. Not for bool and complex. */
XPU_API xpu_status xpu_linspace(xpu_stream *stream, xpu_dtype dtype, void *out, int64_t count,
                                const xpu_scalar *start, const xpu_scalar *end);

/* base raised to xpu_linspace's numbers. */
XPU_API xpu_status xpu_logspace(xpu_stream *stream, xpu_dtype dtype, void *out, int64_t count,
                                const xpu_scalar *start, const xpu_scalar *end, double base);

/* out[…, i, j] = in[…, i, j] where j - i <= diagonal (`upper` false) or j - i >= diagonal (`upper` true),
 * else 0. The shapes are equal, at least two dimensions; in and out may be the same tensor. */
XPU_API xpu_status xpu_triangle(xpu_stream *stream, const xpu_tensor *in, const xpu_tensor *out,
                                int64_t diagonal, bool upper);

/* Row and column numbers of the elements of a triangle, row by row: out is int32 or int64 [2, count],
 * where count is that of the elements of a rows×columns matrix with j - i <= diagonal (or >=). */
XPU_API xpu_status xpu_triangle_indices(xpu_stream *stream, xpu_dtype dtype, void *out, int64_t count,
                                        int64_t rows, int64_t columns, int64_t diagonal, bool upper);

#ifdef __cplusplus
}
#endif
#endif
