/* xpu/ops/select.h: elements of rows by their rank or frequency. Real dtypes; rows are contiguous and have
 * from 1 to 2^31 - 1 elements; results are one a row, indices (XPU_INT64) places in the row. NaN is the
 * greatest. */
#ifndef XPU_OPS_SELECT_H
#define XPU_OPS_SELECT_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_selection {
    XPU_SELECT_KTH,       /* the k-th smallest, k from 0 */
    XPU_SELECT_MEDIAN,    /* the lower median; NaN where the row has one */
    XPU_SELECT_NAN_MEDIAN /* that of the numbers; NaN where the row has none */
} xpu_selection;

/* Of equal elements the first is taken. `indices` may be NULL. */
XPU_API xpu_status xpu_select(xpu_stream *stream, xpu_selection which, xpu_dtype dtype, const void *in,
                              int64_t rows, int64_t length, int64_t k, void *values, int64_t *indices);

/* Of rows in order, whose elements came from the places `order`: the most frequent element, of several the
 * smallest, and where its last one came from. */
XPU_API xpu_status xpu_mode(xpu_stream *stream, xpu_dtype dtype, const void *in, const int64_t *order,
                            int64_t rows, int64_t length, void *values, int64_t *indices);

#ifdef __cplusplus
}
#endif
#endif
