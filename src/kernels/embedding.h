/* Parameters of embedding.cl. Sizes and strides count elements. */
#ifndef XPU_KERNELS_EMBEDDING_H
#define XPU_KERNELS_EMBEDDING_H
#include "fault.h"

typedef struct bag_params {
    xpu_addr weight, indices, offsets;
    xpu_addr sample_weights; /* weight of each index, or 0 */
    xpu_addr out;            /* [bags, width] */
    xpu_addr bag;            /* bag of each index */
    xpu_addr sizes;          /* number of indices of each bag, without the padding index */
    xpu_addr max_indices;    /* MAX: [bags, width], row of the weight with the maximum */
    xpu_addr parts;          /* splits: partial sums or maxima, [bags, splits, width]; */
    xpu_addr part_positions; /* positions of the maxima; */
    xpu_addr part_counts;    /* numbers of indices, [bags, splits] */
    struct fault_watch watch;
    xpu_i64 rows, count, bags;
    xpu_i64 padding_index; /* a row that is ignored, or -1 */
    xpu_i64 row_stride, sample_weight_stride;
    xpu_u32 width;
    xpu_u32 splits;      /* per bag */
    xpu_i32 last_is_end; /* there is one more offset than bags */
    xpu_i32 mean;
} bag_params;

typedef struct rows_gradient_params {
    xpu_addr grad, keys, places; /* rows of the gradient; sorted indices; original position of each */
    xpu_addr bag, sizes,
        sample_weights;    /* row of each index (0: its position); divisor; weight; each may be 0 */
    xpu_addr out;          /* [rows, width] */
    xpu_addr heads, tails; /* [chunks, width]: partial sums of runs that cross chunks */
    struct fault_watch watch;
    xpu_i64 rows, count, bags, padding_index, sample_weight_stride; /* bags: rows of the gradient */
    xpu_i64 chunk, chunks;
    xpu_u32 width;
    xpu_i32 by_frequency;
} rows_gradient_params;

typedef struct bag_weights_params {
    xpu_addr grad, weight, indices, bag, out;
    struct fault_watch watch;
    xpu_i64 rows, count, bags, padding_index, row_stride;
    xpu_u32 width, reserved;
} bag_weights_params;
#endif
