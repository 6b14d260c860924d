/* xpu/ops/index.h: gather, scatter, and reading and writing by index tensors.
 *
 * Index tensors are all XPU_INT64 or all XPU_INT32.
 * An index out of range never accesses memory outside the tensor. The element is skipped, and reported
 * unless `fault` is NULL (xpu/fault.h). */
#ifndef XPU_OPS_INDEX_H
#define XPU_OPS_INDEX_H

#include "../fault.h"
#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define XPU_MAX_INDICES 6

/* The indexed dimensions: `count` of them, each with its size and its stride in bytes. With `wrap`, negative
 *     indices count from the end. */
typedef struct xpu_indexed {
    int count;
    bool wrap;
    int64_t extent[XPU_MAX_INDICES], stride[XPU_MAX_INDICES];
} xpu_indexed;

/* Operands of `iter`: 0 the output, 1 the input, 2 … the index tensors, one per indexed dimension.
 *
 * get: reads the input at the iteration's own offset plus the sum of index times stride.
 * put: writes the output there. If two elements have the same destination, either may win.
 * Output and input have the same dtype. */
XPU_API xpu_status xpu_index_get(xpu_stream *stream, const xpu_iter *iter, const xpu_indexed *indexed,
                                 xpu_fault *fault);
XPU_API xpu_status xpu_index_put(xpu_stream *stream, const xpu_iter *iter, const xpu_indexed *indexed,
                                 xpu_fault *fault);

/* How elements with the same destination combine. XPU_SCATTER_SET: the last one wins. */
typedef enum xpu_scatter_op {
    XPU_SCATTER_SET,
    XPU_SCATTER_ADD,
    XPU_SCATTER_MUL,
    XPU_SCATTER_MIN,
    XPU_SCATTER_MAX
} xpu_scatter_op;

/* The order in which they combine.
 *
 * ANY: the faster one that the device supports.
 * FIXED: input order; deterministic, slow on GPUs.
 * ATOMIC: none. XPU_ERROR_NOT_SUPPORTED for complex128, for complex64 except ADD, and for 8-byte dtypes
 *     without has_atomic64. */
typedef enum xpu_scatter_order { XPU_ORDER_ANY, XPU_ORDER_FIXED, XPU_ORDER_ATOMIC } xpu_scatter_order;

/* xpu_index_put that combines with the output's current elements. */
XPU_API xpu_status xpu_index_accumulate(xpu_stream *stream, const xpu_iter *iter, const xpu_indexed *indexed,
                                        xpu_scatter_op op, xpu_scatter_order order, xpu_fault *fault);

/* out[i][j][k] = in[index[i][j][k]][j][k] for dim 0; other dims likewise.
 *
 * out: has index's shape. in: at least as large in every other dimension.
 * 0-dimensional tensors count as one element of one dimension. From here to xpu_index_fill there are no
 * negative indices. */
XPU_API xpu_status xpu_gather(xpu_stream *stream, const xpu_tensor *out, const xpu_tensor *in, int dim,
                              const xpu_tensor *index, xpu_fault *fault);

/* out[index[i][j][k]][j][k] op= in[i][j][k], over index's shape. */
XPU_API xpu_status xpu_scatter(xpu_stream *stream, const xpu_tensor *out, int dim, const xpu_tensor *index,
                               const xpu_tensor *in, xpu_scatter_op op, xpu_scatter_order order,
                               xpu_fault *fault);

/* out[i][j][k] = in[index[i]][j][k]. index: one dimension, of out's size in `dim`. */
XPU_API xpu_status xpu_index_select(xpu_stream *stream, const xpu_tensor *out, const xpu_tensor *in, int dim,
                                    const xpu_tensor *index, xpu_fault *fault);

/* out[index[i]][j][k] op= in[i][j][k]. index: one dimension, of in's size in `dim`. */
XPU_API xpu_status xpu_index_scatter(xpu_stream *stream, const xpu_tensor *out, int dim,
                                     const xpu_tensor *index, const xpu_tensor *in, xpu_scatter_op op,
                                     xpu_scatter_order order, xpu_fault *fault);

/* out[index[i]][j][k] = in[i][j][k]. Index -1 is the last. */
XPU_API xpu_status xpu_index_fill(xpu_stream *stream, const xpu_tensor *out, int dim, const xpu_tensor *index,
                                  const xpu_tensor *in, xpu_fault *fault);

/* Coordinates of the nonzero elements of `in` (contiguous), in two calls.
 *
 * count: counts, and stores partial counts in `scratch` (device memory, xpu_nonzero_scratch(device, numel)
 *     bytes). Waits for the device.
 * nonzero: writes the first `limit` coordinates, in ascending order, into `out` [count][dims] of XPU_INT64
 *     with the strides (in elements) as passed. */
XPU_API size_t xpu_nonzero_scratch(int device, int64_t numel);
XPU_API xpu_status xpu_nonzero_count(xpu_stream *stream, const xpu_tensor *in, void *scratch, int64_t *count);
XPU_API xpu_status xpu_nonzero(xpu_stream *stream, const xpu_tensor *in, const void *scratch, int64_t *out,
                               int64_t row_stride, int64_t column_stride, int64_t limit);

#ifdef __cplusplus
}
#endif
#endif
