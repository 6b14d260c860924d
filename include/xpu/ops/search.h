/* xpu/ops/search.h: binary search in rows that are in order. Real dtypes; tensors are contiguous. */
#ifndef XPU_OPS_SEARCH_H
#define XPU_OPS_SEARCH_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] (XPU_INT32 or XPU_INT64) = how many elements of a sequence of `length` come before values[i], with
 * `right` also those that are equal. Each `a_row` values search a sequence of their own, or, where a_row is
 * 0, all the one there is. `sorter` (XPU_INT64, or NULL) tells the order of each sequence by place. */
XPU_API xpu_status xpu_search(xpu_stream *stream, xpu_dtype dtype, const void *sequence, int64_t length,
                              const int64_t *sorter, const void *values, int64_t count, int64_t a_row,
                              bool right, xpu_dtype out_dtype, void *out);

/* out[i] (bool) = is values[i] among the `length` elements of the sequence in order? `invert`: is it not? */
XPU_API xpu_status xpu_is_member(xpu_stream *stream, xpu_dtype dtype, const void *sequence, int64_t length,
                                 const void *values, int64_t count, bool invert, void *out);

#ifdef __cplusplus
}
#endif
#endif
