/* xpu/ops/sparse.h: what operations on sparse tensors are made of, beside sorting and index_select. An
 * element's coordinates become one number, its key; keys are sorted and looked up in sorted keys, and
 * elements with equal keys, which lie side by side then, are combined. Everything repeats to the bit.
 *
 * Lengths and positions are XPU_INT64 where nothing else is said; memory is contiguous unless strides are
 * given (in elements). */
#ifndef XPU_OPS_SPARSE_H
#define XPU_OPS_SPARSE_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* keys[i] = Σ indices[d][i] · step[d]. `indices` is XPU_INT64, [dims][count], any strides; at most
 * XPU_MAX_DIMS rows. */
XPU_API xpu_status xpu_sparse_keys(xpu_stream *stream, const xpu_tensor *indices, const int64_t *step,
                                   int64_t *keys);

/* places[i] = how many of the `length` rising numbers `sorted` are smaller than keys[i]; with `upper`, not
 * greater. Without keys (NULL) keys[i] = i. `sorted` and `keys` are of one dtype, XPU_INT64 or XPU_INT32;
 * `places` are of `place_dtype`, one of these too. */
typedef struct xpu_sparse_search_args {
    xpu_dtype dtype, place_dtype;
    const void *sorted, *keys;
    void *places;
    int64_t length, count;
    bool upper;
} xpu_sparse_search_args;
XPU_API xpu_status xpu_sparse_search(xpu_stream *stream, const xpu_sparse_search_args *args);

/* out[s][w] = the sum (bool: or), maximum or product (bool: and) of values[places[k]][w] over
 * starts[s] <= k < starts[s + 1], in that order; the last segment ends at `count`. places may be NULL, for k
 * itself. Halves are computed in fp32. A maximum has no complex numbers, and NaN wins. */
typedef enum xpu_sparse_reduction { XPU_SPARSE_SUM, XPU_SPARSE_MAX, XPU_SPARSE_PRODUCT } xpu_sparse_reduction;
typedef struct xpu_sparse_reduce_args {
    xpu_sparse_reduction reduction;
    xpu_dtype dtype;
    const void *values;
    const int64_t *places, *starts;
    void *out;
    int64_t segments, count, width;
} xpu_sparse_reduce_args;
XPU_API xpu_status xpu_sparse_reduce(xpu_stream *stream, const xpu_sparse_reduce_args *args);

/* out[r][n] = beta in[r][n] + alpha Σ values[e] dense[columns[e]][n], e = places[k], over
 * starts[r] <= k < starts[r + 1]: sparse rows times a dense matrix, rows x n. places may be NULL, for k
 * itself. starts (rows + 1 of them) and columns are of `index_dtype`, XPU_INT64 or XPU_INT32; a column
 * outside 0 … height-1 is left out. dense has rows without gaps, `dense_stride` apart; `in` any strides, and
 * isn't read if beta is 0; out, contiguous, may be `in`. Any dtype but bool, computed as matrix products are.
 */
typedef struct xpu_sparse_product_args {
    xpu_dtype dtype, index_dtype;
    const void *starts, *columns, *values, *dense, *in;
    const int64_t *places;
    void *out;
    int64_t rows, width, height, dense_stride, in_stride[2];
    xpu_scalar alpha, beta;
} xpu_sparse_product_args;
XPU_API xpu_status xpu_sparse_product(xpu_stream *stream, const xpu_sparse_product_args *args);

#ifdef __cplusplus
}
#endif
#endif
