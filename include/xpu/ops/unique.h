/* xpu/ops/unique.h: the different rows of a matrix, or elements of a vector (width 1). Real dtypes; tensors
 * are contiguous, places are XPU_INT64. Fewer than 2^31 rows. */
#ifndef XPU_OPS_UNIQUE_H
#define XPU_OPS_UNIQUE_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* order[i] = the row that is number i when rows are compared by their elements, the first counts the most. */
XPU_API xpu_status xpu_sort_rows(xpu_stream *stream, xpu_dtype dtype, const void *in, int64_t rows,
                                 int64_t width, int64_t *order);

/* numbers[i] = which of the different rows row i is, counted from 0, where only neighbours are compared: rows
 * in the order of `order`, or as they lie if that is NULL or `in_order`. The last number tells how many there
 * are. */
XPU_API xpu_status xpu_unique_number(xpu_stream *stream, xpu_dtype dtype, const void *in, int64_t rows,
                                     int64_t width, const int64_t *order, bool in_order, int64_t *numbers);

/* With those numbers: the `different` rows, the number of each row where it came from by `order`, and how
 * many there are of each. Any of the three may be NULL. With `in_order` the rows of `in` lie in order
 * already. */
XPU_API xpu_status xpu_unique(xpu_stream *stream, xpu_dtype dtype, const void *in, int64_t rows,
                              int64_t width, const int64_t *order, bool in_order, const int64_t *numbers,
                              int64_t different, void *out, int64_t *inverse, int64_t *counts);

#ifdef __cplusplus
}
#endif
#endif
