/* Parameters of sparse.cl. */
#ifndef XPU_KERNELS_SPARSE_H
#define XPU_KERNELS_SPARSE_H
#include "shared.h"

struct sparse_keys_params {
    xpu_addr indices, keys;
    xpu_i64 count, row_stride, column_stride, dims;
    xpu_i64 step[16];
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
    xpu_i64 rows, width, height, dense_stride, in_row, in_column;
    xpu_u64 alpha[2], beta[2]; /* the bits of the accumulator's type */
};
#endif
