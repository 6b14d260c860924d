/* Parameters of sparse.cl. */
#ifndef XPU_KERNELS_SPARSE_H
#define XPU_KERNELS_SPARSE_H
#include "fault.h"

struct sparse_keys_params {
    xpu_addr indices, keys;
    xpu_i64 count, row_stride, column_stride, dims;
    xpu_i64 size[16], step[16];
    struct fault_watch watch;
};

struct sparse_check_params {
    xpu_addr starts, columns;            /* columns: or 0 */
    xpu_i64 length, batch, count, width; /* of a matrix: starts; matrices; elements; columns */
    struct fault_watch bad_starts, bad_column;
};

struct sparse_search_params {
    xpu_addr sorted, keys, positions;
    xpu_i64 length, count, upper;
};

struct sparse_reduce_params {
    xpu_addr values, positions, starts, out;
    xpu_i64 segments, count, width;
};

struct sparse_product_params {
    xpu_addr starts, columns, positions, values, dense, in, out;
    xpu_i64 rows, count, width, height, dense_stride, in_row, in_column;
    xpu_u64 alpha[2], beta[2]; /* the bits of the accumulator's type */
    struct fault_watch bad_starts, bad_column;
};
#endif
