/* xpu/ops/search.h: binary search in sorted rows. Real dtypes; contiguous tensors. */
#ifndef XPU_OPS_SEARCH_H
#define XPU_OPS_SEARCH_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] (XPU_INT32 or XPU_INT64) = the number of elements of a sequence of `length` that are less than
 * values[i]; with `right`, less than or equal.
 *
 * values_per_row: consecutive values that share a sequence; 0: all values search the only one.
 * sorter: XPU_INT64 positions that sort each sequence, or NULL. */
XPU_API xpu_status xpu_search(xpu_stream *stream, xpu_dtype dtype, const void *sequence, int64_t length,
                              const int64_t *sorter, const void *values, int64_t count,
                              int64_t values_per_row, bool right, xpu_dtype out_dtype, void *out);

/* out[i] (bool): is values[i] among the `length` elements of the sorted sequence? `invert` negates the
 *     answer. */
XPU_API xpu_status xpu_is_member(xpu_stream *stream, xpu_dtype dtype, const void *sequence, int64_t length,
                                 const void *values, int64_t count, bool invert, void *out);

/* out[i] (XPU_INT32 or XPU_INT64), i < count: the first k < length with ends[k] > i, so that k occurs
 * ends[k] - ends[k - 1] times.
 *
 * ends: cumulative sums of the repeats. An end less than the one before it, or a last end other than
 *     `count`, is a fault (xpu/fault.h). */
XPU_API xpu_status xpu_repeat(xpu_stream *stream, const int64_t *ends, int64_t length, int64_t count,
                              xpu_dtype out_dtype, void *out);

#ifdef __cplusplus
}
#endif
#endif
