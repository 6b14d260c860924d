/* xpu/ops/embedding.h: embedding bags, and gradients of embeddings.
 *
 * Dtypes: floating. Indices, offsets, bag numbers and sizes have one dtype, XPU_INT64 or XPU_INT32.
 * Tensors are contiguous unless a stride is a parameter. Deterministic. */
#ifndef XPU_OPS_EMBEDDING_H
#define XPU_OPS_EMBEDDING_H

#include "../fault.h"
#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_bag_mode { XPU_BAG_SUM, XPU_BAG_MEAN, XPU_BAG_MAX } xpu_bag_mode;

/* Bag b has the indices offsets[b] … offsets[b+1]-1. The last bag extends to the end or, with `last_is_end`,
 * to offsets[bags]. */
typedef struct xpu_bags {
    xpu_dtype dtype, index_dtype; /* dtype of weight and bags; of indices */
    int64_t rows, width;          /* of the weight */
    int64_t row_stride;           /* of the weight, in elements; rows are contiguous */
    int64_t count, bags;          /* number of indices, of bags */
    int64_t padding_index;        /* an index to ignore, or -1 */
    int64_t sample_weight_stride; /* of sample_weights, in elements */
    bool last_is_end;
} xpu_bags;

/* Embedding bags.
 *
 * out[b]: sum, mean or maximum of the bag's rows; 0 for an empty bag.
 * sizes[b]: number of rows in the bag.
 * bag[i]: the bag of index i.
 * max_indices[b]: for XPU_BAG_MAX, the rows that hold the maxima, the first of equals; -1 for an empty bag.
 * sample_weights: factors of the rows, or NULL. Not for XPU_BAG_MAX.
 * An index out of range is ignored and reported (xpu/fault.h). */
XPU_API xpu_status xpu_bag_forward(xpu_stream *stream, xpu_bag_mode mode, const xpu_bags *args,
                                   const void *weight, const void *indices, const void *offsets,
                                   const void *sample_weights, void *out, void *bag, void *sizes,
                                   void *max_indices, xpu_fault *fault);

/* Gradient of the sample weights: out[i] = grad[bag[i]] · weight[indices[i]], and 0 for ignored indices. */
XPU_API xpu_status xpu_bag_weights_backward(xpu_stream *stream, const xpu_bags *args, const void *grad,
                                            const void *weight, const void *indices, const void *bag,
                                            void *out, xpu_fault *fault);

/* Gradient of the weight: out[k] = the sum of grad[bag[i]] · sample_weights[i] / sizes[bag[i]] over all i
 * with index k, in the order of i. With `scale_by_frequency`, divided by their number.
 *
 * keys: the sorted indices. positions (XPU_INT64): the i of each key.
 * bag: NULL if grad has a row for each i. sizes, sample_weights: may be NULL.
 * Rows of `out` that no index names, padding_index, and indices out of range are left unchanged. */
XPU_API xpu_status xpu_embedding_backward(xpu_stream *stream, const xpu_bags *args, const void *grad,
                                          const void *keys, const int64_t *positions, const void *bag,
                                          const void *sizes, const void *sample_weights,
                                          bool scale_by_frequency, void *out);

#ifdef __cplusplus
}
#endif
#endif
