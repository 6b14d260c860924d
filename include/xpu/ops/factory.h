/* xpu/ops/factory.h: arange, linspace, logspace, tril and triu.
 *
 * Outputs passed as a pointer are contiguous with `count` elements. */
#ifndef XPU_OPS_FACTORY_H
#define XPU_OPS_FACTORY_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] = start + i·step. Integers are computed in int64, fp16 and bf16 in fp32. Not for bool and complex
 * dtypes. */
XPU_API xpu_status xpu_arange(xpu_stream *stream, xpu_dtype dtype, void *out, int64_t count,
                              const xpu_scalar *start, const xpu_scalar *step);

/* `count` evenly spaced values from `start` to `end`, both included. The first half is computed from
 * `start`, the second from `end`. A single value is `start`. Not for bool and complex dtypes. */
XPU_API xpu_status xpu_linspace(xpu_stream *stream, xpu_dtype dtype, void *out, int64_t count,
                                const xpu_scalar *start, const xpu_scalar *end);

/* `base` to the power of xpu_linspace's values. */
XPU_API xpu_status xpu_logspace(xpu_stream *stream, xpu_dtype dtype, void *out, int64_t count,
                                const xpu_scalar *start, const xpu_scalar *end, double base);

/* tril and triu: out[…, i, j] = in[…, i, j] where j - i <= diagonal (`upper` false) or j - i >= diagonal
 *     (`upper` true), else 0. Equal shapes of at least two dimensions; `in` and `out` may be the same
 *     tensor. */
XPU_API xpu_status xpu_triangle(xpu_stream *stream, const xpu_tensor *in, const xpu_tensor *out,
                                int64_t diagonal, bool upper);

/* Row and column indices of a triangle of a rows × columns matrix, row by row. out: int32 or int64 [2,
 * count], where count is the number of elements with j - i <= diagonal (`upper`: >=). */
XPU_API xpu_status xpu_triangle_indices(xpu_stream *stream, xpu_dtype dtype, void *out, int64_t count,
                                        int64_t rows, int64_t columns, int64_t diagonal, bool upper);

#ifdef __cplusplus
}
#endif
#endif
