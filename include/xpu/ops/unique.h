/* xpu/ops/unique.h: unique rows of a matrix, or elements of a vector (width 1). Real dtypes; contiguous
 * tensors; positions are XPU_INT64. Fewer than 2^31 rows. */
#ifndef XPU_OPS_UNIQUE_H
#define XPU_OPS_UNIQUE_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* order[i] = the row at position i after sorting rows lexicographically. */
XPU_API xpu_status xpu_sort_rows(xpu_stream *stream, xpu_dtype dtype, const void *in, int64_t rows,
                                 int64_t width, int64_t *order);

/* Gives each row an id. ids[i] is the id of the i-th row of a sequence: 0 for the first, and 1 more wherever
 * a row differs from the previous one. The last id plus 1 is the number of unique rows.
 *
 * order: row numbers in the order to compare; ignored if `in_order`. NULL means memory order. */
XPU_API xpu_status xpu_unique_ids(xpu_stream *stream, xpu_dtype dtype, const void *in, int64_t rows,
                                  int64_t width, const int64_t *order, bool in_order, int64_t *ids);

/* From those ids: the `unique_count` unique rows, the id of each row at its original position (by `order`),
 *     and the count of each. Any of the three outputs may be NULL. With `in_order`, the rows of `in` are
 *     already sorted. */
XPU_API xpu_status xpu_unique(xpu_stream *stream, xpu_dtype dtype, const void *in, int64_t rows,
                              int64_t width, const int64_t *order, bool in_order, const int64_t *ids,
                              int64_t unique_count, void *out, int64_t *inverse, int64_t *counts);

#ifdef __cplusplus
}
#endif
#endif
