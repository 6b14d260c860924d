/* xpu/ops/sparse.h: building blocks of sparse tensor operations, besides sorting and index_select.
 *
 * The coordinates of an element become one number, its key. Keys are sorted and searched; elements with
 * equal keys are then adjacent and are combined.
 * Lengths and positions are XPU_INT64 unless stated otherwise. Memory is contiguous unless strides (in
 * elements) are parameters.
 * Deterministic. */
#ifndef XPU_OPS_SPARSE_H
#define XPU_OPS_SPARSE_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* keys[i] = Σ indices[d][i] · step[d]. indices: XPU_INT64 [dims][count], any strides, at most XPU_MAX_DIMS
 * rows. An index outside 0 … size[d]-1 is a fault (xpu/fault.h). */
XPU_API xpu_status xpu_sparse_keys(xpu_stream *stream, const xpu_tensor *indices, const int64_t *size,
                                   const int64_t *step, int64_t *keys);

/* Checks the compressed indices of matrices: faults (xpu/fault.h) if starts [batch][rows + 1] don't rise from
 * 0 to `count` in each, or if columns [batch][count], unless NULL, are outside 0 … width-1.
 *
 * dtype: of both, XPU_INT64 or XPU_INT32. */
typedef struct xpu_sparse_check_args {
    xpu_dtype dtype;
    const void *starts, *columns;
    int64_t batch, rows, count, width;
} xpu_sparse_check_args;
XPU_API xpu_status xpu_sparse_check(xpu_stream *stream, const xpu_sparse_check_args *args);

/* positions[i] = the number of elements of `sorted` (`length` ascending ones) that are less than keys[i];
 * with `upper`, less than or equal.
 *
 * keys: NULL means keys[i] = i.
 * Dtypes: sorted and keys: one of XPU_INT64, XPU_INT32. positions: position_dtype, one of the same. */
typedef struct xpu_sparse_search_args {
    xpu_dtype dtype, position_dtype;
    const void *sorted, *keys;
    void *positions;
    int64_t length, count;
    bool upper;
} xpu_sparse_search_args;
XPU_API xpu_status xpu_sparse_search(xpu_stream *stream, const xpu_sparse_search_args *args);

/* out[s][w] = the reduction of values[positions[k]][w] over starts[s] <= k < starts[s + 1], in that order.
 *
 * reduction: sum (bool: or), maximum, product (bool: and). Maxima: no complex dtypes; NaN wins.
 * The last segment ends at `count`. positions: NULL means k itself. fp16 and bf16 are computed in fp32. */
typedef enum xpu_sparse_reduction { XPU_SPARSE_SUM, XPU_SPARSE_MAX, XPU_SPARSE_PRODUCT } xpu_sparse_reduction;
typedef struct xpu_sparse_reduce_args {
    xpu_sparse_reduction reduction;
    xpu_dtype dtype;
    const void *values;
    const int64_t *positions, *starts;
    void *out;
    int64_t segments, count, width;
} xpu_sparse_reduce_args;
XPU_API xpu_status xpu_sparse_reduce(xpu_stream *stream, const xpu_sparse_reduce_args *args);

/* Sparse rows times a dense matrix (rows x width):
 *
 *     out[r][n] = beta in[r][n] + alpha Σ values[e] dense[columns[e]][n]
 *     e = positions[k],  starts[r] <= k < starts[r + 1]
 *
 * positions: NULL means k itself.
 * starts (rows + 1) and columns: index_dtype, XPU_INT64 or XPU_INT32.
 * Starts that don't rise from 0 to `count`, the number of elements, and a column outside 0 … height-1 are
 *     faults (xpu/fault.h).
 * dense: contiguous rows, dense_stride apart.
 * in: any strides; not read if beta is 0.
 * out: contiguous; may be `in`.
 * Dtypes: any but bool, computed as in matrix products. */
typedef struct xpu_sparse_product_args {
    xpu_dtype dtype, index_dtype;
    const void *starts, *columns, *values, *dense, *in;
    const int64_t *positions;
    void *out;
    int64_t rows, count, width, height, dense_stride, in_stride[2];
    xpu_scalar alpha, beta;
} xpu_sparse_product_args;
XPU_API xpu_status xpu_sparse_product(xpu_stream *stream, const xpu_sparse_product_args *args);

#ifdef __cplusplus
}
#endif
#endif
