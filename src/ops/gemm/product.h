/* What matrix products and convolutions share: accumulators, tiles, and cutting the sums. */
#ifndef XPU_OPS_PRODUCT_H
#define XPU_OPS_PRODUCT_H

#include "kernels/shared.h"
#include "ops/kernel.h"

/* A tile of size x size results, tiles `depth` deep, side x side results a work-item. */
typedef struct tile_shape {
    int size, depth, side;
} tile_shape;

static inline int64_t divided_up(int64_t length, int64_t size) { return (length + size - 1) / size; }
static inline int64_t rounded_up(int64_t length, int64_t size) { return divided_up(length, size) * size; }
static inline int64_t tiles(int64_t length, int size) { return divided_up(length, size); }

/* Of how many rows, at most HOST_ROWS, products on processors hold the sums in registers at a time, where
 * there are `rows` in all: so that few are left over. */
enum { HOST_ROWS = 6 };
static inline int host_rows_of(int64_t rows) {
    if (rows < HOST_ROWS) return (int)rows;
    return rows > 24 || rows % 6 == 0 ? 6 : rows % 5 == 0 ? 5 : rows % 4 == 0 ? 4 : 6;
}

/* "-DT=bf16 -DCOMPLEX_T=0 -DFLOAT_T=1 -DDOUBLE_T=0" */
const char *product_dtype_options(xpu_dtype dtype);
static inline void product_spec(kernel_spec *spec, xpu_dtype dtype) {
    spec_pack(spec, "T", dtype, 8);
    spec_follows_options(spec, product_dtype_options(dtype));
}
/* Bytes of an accumulator. */
size_t product_sum_size(xpu_dtype dtype);
/* The bits of a scalar in the accumulator's type. */
void product_scalar(xpu_dtype dtype, const xpu_scalar *scalar, uint64_t word[2]);
/* Is there a product for this dtype on the device? */
xpu_status product_check_dtype(const xpu_device_properties *properties, xpu_dtype dtype, const char *what,
                               bool floating_only);

/* The largest tiles that still give every compute unit one. */
tile_shape tile_for(const xpu_device_properties *properties, xpu_dtype dtype, int64_t m, int64_t n,
                    int64_t batch);
/* In how many slices to cut sums of `k` products when there are `groups` work-groups without, and
 * `results` results. */
int64_t product_slices(const xpu_device_properties *properties, int64_t groups, int64_t k, int64_t results);

/* Among how many work-items the slices of one sum are shared out when they are added up, a power of two. */
int product_parts(int64_t slices);

/* A product whose sums are cut: `sum` writes those of each slice to `partial` of the parameters, `finish`
 * adds them up, a work-item for each of the `results`, or `finished` of them a work-group of 256. */
typedef struct sliced_product {
    xpu_kernel *sum, *finish;
    xpu_range range; /* of `sum`, for all slices */
    xpu_dtype dtype;
    int64_t results, slices, finished;
} sliced_product;
xpu_status product_in_slices(xpu_stream *stream, const sliced_product *product, const void *params,
                             size_t size, xpu_addr *partial);

#endif
