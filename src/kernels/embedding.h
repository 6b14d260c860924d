/* embedding.cl's parameters. Numbers of elements, strides in elements. */
#ifndef XPU_KERNELS_EMBEDDING_H
#define XPU_KERNELS_EMBEDDING_H
#include "fault.h"

typedef struct bag_params {
    xpu_addr weight, indices, offsets;
    xpu_addr given;       /* a factor for each index, or 0 */
    xpu_addr out;         /* [bags, width] */
    xpu_addr bag;         /* of each index */
    xpu_addr sizes;       /* of the bags, less what is left out */
    xpu_addr chosen;      /* maxima: [bags, width], the weight's rows */
    xpu_addr parts;       /* with splits: their sums or maxima, [bags, splits, width] … */
    xpu_addr part_places; /* … where the maxima were found … */
    xpu_addr part_counts; /* … and how many indices they are of, [bags, splits] */
    struct fault_watch watch;
    xpu_i64 rows, count, bags;
    xpu_i64 left_out; /* a row that counts for nothing, or -1 */
    xpu_i64 row_stride, given_stride;
    xpu_u32 width;
    xpu_u32 splits;      /* of each bag */
    xpu_i32 last_is_end; /* there is one more offset than bags */
    xpu_i32 mean;
} bag_params;

typedef struct rows_gradient_params {
    xpu_addr grad, keys, places; /* grad's rows; the indices in order, and where each was */
    xpu_addr bag, sizes,
        given;             /* the row of an index, else its place; its divisor; its factor; each may be 0 */
    xpu_addr out;          /* [rows, width] */
    xpu_addr heads, tails; /* [chunks, width]: sums of runs that other chunks have a part in */
    struct fault_watch watch;
    xpu_i64 rows, count, left_out, given_stride;
    xpu_i64 chunk, chunks;
    xpu_u32 width;
    xpu_i32 by_frequency;
} rows_gradient_params;

typedef struct bag_weights_params {
    xpu_addr grad, weight, indices, bag, out;
    struct fault_watch watch;
    xpu_i64 rows, count, bags, left_out, row_stride;
    xpu_u32 width, reserved;
} bag_weights_params;
#endif
