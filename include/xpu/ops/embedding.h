/* xpu/ops/embedding.h: bags of a matrix's rows, and sums of rows by index.
 *
 * Everything repeats to the bit. Floating dtypes; indices, offsets, bags and sizes have one dtype, XPU_INT64
 * or XPU_INT32. Tensors are contiguous where no stride is given. */
#ifndef XPU_OPS_EMBEDDING_H
#define XPU_OPS_EMBEDDING_H

#include "../fault.h"
#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_bag_mode { XPU_BAG_SUM, XPU_BAG_MEAN, XPU_BAG_MAX } xpu_bag_mode;

/* Bag b has the indices offsets[b] … offsets[b+1]-1, the last one those up to the end or, with `last_is_end`,
 * to offsets[bags]. */
typedef struct xpu_bags {
    xpu_dtype dtype, index_dtype; /* of the weight and the bags; of indices */
    int64_t rows, width;          /* of the weight */
    int64_t row_stride;           /* of the weight, in elements; the elements of a row have no gaps */
    int64_t count, bags;          /* indices, bags */
    int64_t left_out;             /* an index that counts for nothing, or -1 */
    int64_t given_stride;         /* of `given`, in elements */
    bool last_is_end;
} xpu_bags;

/* out[b] = the bag's sum, mean or maximum of rows, 0 of an empty one; sizes[b] = how many those are;
 * bag[i] = index i's bag; for maxima chosen[b] = the rows that they are in, of equal ones the first, -1 for
 * an empty bag. `given` (may be NULL, and is for maxima) are factors of the rows. An index out of range is
 * left out and reported. */
XPU_API xpu_status xpu_bag_forward(xpu_stream *stream, xpu_bag_mode mode, const xpu_bags *args,
                                   const void *weight, const void *indices, const void *offsets,
                                   const void *given, void *out, void *bag, void *sizes, void *chosen,
                                   xpu_fault *fault);

/* out[i] = grad[bag[i]] · weight[indices[i]], 0 for what is left out: the gradient of the factors. */
XPU_API xpu_status xpu_bag_weights(xpu_stream *stream, const xpu_bags *args, const void *grad,
                                   const void *weight, const void *indices, const void *bag, void *out,
                                   xpu_fault *fault);

/* out[k] = the sum of grad[bag[i]] · given[i] / sizes[bag[i]] over the i with index k, in the order of i;
 * divided by their number with `by_frequency`. `keys` are the indices in order and `places` (XPU_INT64) the i
 * of each. Without `bag` grad has a row for each i; `sizes` and `given` may be NULL. Rows of `out` that no
 * index names, `left_out` and indices out of range are left alone. */
XPU_API xpu_status xpu_rows_gradient(xpu_stream *stream, const xpu_bags *args, const void *grad,
                                     const void *keys, const int64_t *places, const void *bag,
                                     const void *sizes, const void *given, bool by_frequency, void *out);

#ifdef __cplusplus
}
#endif
#endif
