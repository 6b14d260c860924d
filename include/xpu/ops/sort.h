/* xpu/ops/sort.h: stable sorting along one dimension. */
#ifndef XPU_OPS_SORT_H
#define XPU_OPS_SORT_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sorts `in` (any strides, real dtypes) along `dim` and stores positions first, first+1, … of each sorted
 * row, as many as `values` has in that dimension. Stable; NaN is greater than every number.
 *
 * values: in's dtype. Sort: first = 0 and in's shape. Top-k: a smaller size. k-th smallest: first = k-1 and
 * size 1.
 * indices: positions in `in`, XPU_INT64, the shape of `values`.
 * Rows have fewer than 2^31 elements.
 * Errors: XPU_ERROR_INVALID_ARGUMENT for shapes or dtypes that don't fit; XPU_ERROR_NOT_SUPPORTED for
 *     complex dtypes. */
XPU_API xpu_status xpu_sort(xpu_stream *stream, const xpu_tensor *values, const xpu_tensor *indices,
                            const xpu_tensor *in, int dim, bool descending, int64_t first);

#ifdef __cplusplus
}
#endif
#endif
