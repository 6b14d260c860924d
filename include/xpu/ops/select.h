/* xpu/ops/select.h: k-th smallest element, median and mode of rows.
 *
 * Real dtypes. Rows are contiguous, with 1 to 2^31 - 1 elements. There is one result per row; indices are
 * XPU_INT64 positions in the row. NaN is the greatest. */
#ifndef XPU_OPS_SELECT_H
#define XPU_OPS_SELECT_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_selection {
    XPU_SELECT_KTH,       /* the k-th smallest, k from 0 */
    XPU_SELECT_MEDIAN,    /* lower median; NaN if the row contains NaN */
    XPU_SELECT_NAN_MEDIAN /* lower median of the others; NaN if all are NaN */
} xpu_selection;

/* The first of equal elements is selected. `indices` may be NULL. */
XPU_API xpu_status xpu_select(xpu_stream *stream, xpu_selection which, xpu_dtype dtype, const void *in,
                              int64_t rows, int64_t length, int64_t k, void *values, int64_t *indices);

/* Mode of sorted rows: the most frequent element, the smallest of several, and the original position of its
 * last occurrence. `order` holds the original positions. */
XPU_API xpu_status xpu_mode(xpu_stream *stream, xpu_dtype dtype, const void *in, const int64_t *order,
                            int64_t rows, int64_t length, void *values, int64_t *indices);

#ifdef __cplusplus
}
#endif
#endif
