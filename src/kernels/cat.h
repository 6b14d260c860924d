/* Parameters of cat.cl. Sizes and offsets count elements of E bytes. */
#ifndef XPU_KERNELS_CAT_H
#define XPU_KERNELS_CAT_H
#include "shared.h"

#define CAT_INPUTS 28

struct cat_input {
    xpu_addr data;
    xpu_i64 columns, offset;
    xpu_i64 first; /* index of its first work-group */
};

/* 952 bytes. The inputs are read from `table`, or with -DINLINE=1 from here. */
struct cat_params {
    xpu_addr out, table;
    xpu_i64 rows, row_size;
    xpu_i64 count, groups;
    xpu_i64 band; /* with -DBANDS: rows of a group */
    struct cat_input input[CAT_INPUTS];
};
#endif
