/* xpu/ops/index.h: reading and writing the elements that index tensors name.
 *
 * Index tensors are XPU_INT64 or XPU_INT32, all of one dtype. An index out of range never touches memory
 * outside the tensor: the element is skipped, and reported where `fault` isn't NULL: see xpu/fault.h. */
#ifndef XPU_OPS_INDEX_H
#define XPU_OPS_INDEX_H

#include "../fault.h"
#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define XPU_MAX_INDICES 6

/* The dimensions that the index tensors choose from: `count` of them, each with its number of elements
 * and its stride in bytes. With `wrap`, index -1 is the last element. */
typedef struct xpu_indexed {
    int count;
    bool wrap;
    int64_t extent[XPU_MAX_INDICES], stride[XPU_MAX_INDICES];
} xpu_indexed;

/* Operands of `iter`: 0 the output, 1 the input, 2 … the index tensors, one for each of `indexed`. Get
 * reads the input at its own place plus the sum of index times stride; put writes the output there. Where
 * two elements of a put have the same place, either may win. Output and input have the same dtype. */
XPU_API xpu_status xpu_index_get(xpu_stream *stream, const xpu_iter *iter, const xpu_indexed *indexed,
                                 xpu_fault *fault);
XPU_API xpu_status xpu_index_put(xpu_stream *stream, const xpu_iter *iter, const xpu_indexed *indexed,
                                 xpu_fault *fault);

/* How elements that meet at the same place combine. XPU_SCATTER_SET: the later one stays. */
typedef enum xpu_scatter_op {
    XPU_SCATTER_SET,
    XPU_SCATTER_ADD,
    XPU_SCATTER_MUL,
    XPU_SCATTER_MIN,
    XPU_SCATTER_MAX
} xpu_scatter_op;

/* In which order they combine. FIXED: that of the input, so that results repeat to the bit; slow on GPUs.
 * ATOMIC: none; XPU_ERROR_NOT_SUPPORTED for complex128, for complex64 other than ADD, and for 8-byte
 * dtypes without has_atomic64. ANY: whichever is faster on the device and supported. */
typedef enum xpu_scatter_order { XPU_ORDER_ANY, XPU_ORDER_FIXED, XPU_ORDER_ATOMIC } xpu_scatter_order;

/* As xpu_index_put, combining with what the output holds. */
XPU_API xpu_status xpu_index_accumulate(xpu_stream *stream, const xpu_iter *iter, const xpu_indexed *indexed,
                                        xpu_scatter_op op, xpu_scatter_order order, xpu_fault *fault);

/* out[i][j][k] = in[index[i][j][k]][j][k] for dim 0, and alike for others. out has index's shape; in is
 * at least as large in every other dimension. 0-dimensional tensors count as one element of one
 * dimension. No negative indices, here and below up to xpu_index_fill. */
XPU_API xpu_status xpu_gather(xpu_stream *stream, const xpu_tensor *out, const xpu_tensor *in, int dim,
                              const xpu_tensor *index, xpu_fault *fault);

/* out[index[i][j][k]][j][k] op= in[i][j][k], over index's shape. */
XPU_API xpu_status xpu_scatter(xpu_stream *stream, const xpu_tensor *out, int dim, const xpu_tensor *index,
                               const xpu_tensor *in, xpu_scatter_op op, xpu_scatter_order order,
                               xpu_fault *fault);

/* out[i][j][k] = in[index[i]][j][k]; index has one dimension, of out's size in `dim`. */
XPU_API xpu_status xpu_index_select(xpu_stream *stream, const xpu_tensor *out, const xpu_tensor *in, int dim,
                                    const xpu_tensor *index, xpu_fault *fault);

/* out[index[i]][j][k] op= in[i][j][k]; index has one dimension, of in's size in `dim`. */
XPU_API xpu_status xpu_index_scatter(xpu_stream *stream, const xpu_tensor *out, int dim,
                                     const xpu_tensor *index, const xpu_tensor *in, xpu_scatter_op op,
                                     xpu_scatter_order order, xpu_fault *fault);

/* out[index[i]][j][k] = in[i][j][k]; index -1 is the last. */
XPU_API xpu_status xpu_index_fill(xpu_stream *stream, const xpu_tensor *out, int dim, const xpu_tensor *index,
                                  const xpu_tensor *in, xpu_fault *fault);

/* Where `in` (contiguous) is not zero. The first call counts and leaves the counts of its parts in
 * `scratch` (device memory, xpu_nonzero_scratch(device, numel) bytes); it waits for the device. The second
 * writes the coordinates, in rising order, into `out` [count][dims] of XPU_INT64 with the given strides (in
 * elements), the first `limit` of them. */
XPU_API size_t xpu_nonzero_scratch(int device, int64_t numel);
XPU_API xpu_status xpu_nonzero_count(xpu_stream *stream, const xpu_tensor *in, void *scratch, int64_t *count);
XPU_API xpu_status xpu_nonzero(xpu_stream *stream, const xpu_tensor *in, const void *scratch, int64_t *out,
                               int64_t row_stride, int64_t column_stride, int64_t limit);

#ifdef __cplusplus
}
#endif
#endif
