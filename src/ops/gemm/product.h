/* Shared by matrix products and convolutions: accumulators, tiles and split-K. */
#ifndef XPU_OPS_PRODUCT_H
#define XPU_OPS_PRODUCT_H

#include "kernels/shared.h"
#include "ops/kernel.h"

/* A tile of size x size results with steps of `depth` along k; side x side results per work-item. */
typedef struct tile_shape {
    int size, depth, side;
} tile_shape;

static inline int64_t div_up(int64_t length, int64_t size) { return (length + size - 1) / size; }
static inline int64_t align_up(int64_t length, int64_t size) { return div_up(length, size) * size; }
static inline int64_t tiles(int64_t length, int size) { return div_up(length, size); }

/* Rows (at most HOST_ROWS) of the register tile of products on CPUs, chosen so that few of `rows` are left
 * over. */
enum { HOST_ROWS = 6 };
static inline int host_rows_of(int64_t rows) {
    if (rows < HOST_ROWS) return (int)rows;
    return rows > 24 || rows % 6 == 0 ? 6 : rows % 5 == 0 ? 5 : rows % 4 == 0 ? 4 : 6;
}

/* "-DT=bf16 -DCOMPLEX_T=0 -DFLOAT_T=1 -DDOUBLE_T=0" */
const char *product_dtype_options(xpu_dtype dtype);
static inline void product_spec(kernel_spec *spec, xpu_dtype dtype) {
    spec_key_only(spec, "T", dtype, 8);
    spec_option_text(spec, product_dtype_options(dtype));
}
/* Size of an accumulator in bytes. */
size_t product_sum_size(xpu_dtype dtype);
/* The bits of a scalar in the accumulator's type. */
void product_scalar(xpu_dtype dtype, const xpu_scalar *scalar, uint64_t word[2]);
/* Does the device support products of this dtype? */
xpu_status product_check_dtype(const xpu_device_properties *properties, xpu_dtype dtype, const char *what,
                               bool floating_only);

/* The largest tile that still gives every compute unit one. */
tile_shape tile_for(const xpu_device_properties *properties, xpu_dtype dtype, int64_t m, int64_t n,
                    int64_t batch);
/* Number of split-K slices for sums over `k`, given the `groups` work-groups without a split and the number
 * of `results`. */
int64_t product_split_count(const xpu_device_properties *properties, int64_t groups, int64_t k,
                            int64_t results);

/* Number of work-items that add up the slices of one result, a power of two. */
int product_reduce_lanes(int64_t slices);

/* A split-K product: `sum` writes each slice's partial sums to `partial` of the parameters; `finish` adds
 * them up, one work-item per result or, if `finished` isn't 0, `finished` results per work-group of 256. */
typedef struct split_k_product {
    xpu_kernel *sum, *finish;
    xpu_range range; /* of `sum`, for all slices */
    xpu_dtype dtype;
    int64_t results, slices, finished;
} split_k_product;
xpu_status product_split_k(xpu_stream *stream, const split_k_product *product, const void *params,
                           size_t size, xpu_addr *partial);

#endif
