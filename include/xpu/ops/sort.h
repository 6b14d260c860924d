/* xpu/ops/sort.h: stable sorting along one dimension. */
#ifndef XPU_OPS_SORT_H
#define XPU_OPS_SORT_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sorts `in` (any strides, real dtypes) along `dim` and stores places first, first+1, … of each sorted row:
 * as many as `values` has in that dimension. So sort is first = 0 with in's own shape, top-k a shorter
 * `values`, the k-th smallest first = k-1 with size 1. `values` has in's dtype; `indices` (XPU_INT64, the
 * shape of `values`) are the places in `in`. Equal elements keep their order; NaN is greater than every
 * number. Rows have fewer than 2^31 elements. Errors: XPU_ERROR_INVALID_ARGUMENT for shapes or dtypes that
 * don't fit, XPU_ERROR_NOT_SUPPORTED for complex dtypes. */
XPU_API xpu_status xpu_sort(xpu_stream *stream, const xpu_tensor *values, const xpu_tensor *indices,
                            const xpu_tensor *in, int dim, bool descending, int64_t first);

#ifdef __cplusplus
}
#endif
#endif
