/* Accumulators and split-K of products (product.h). */
#include "ops/gemm/product.h"

#include <string.h>

#include "ops/iter.h"

/* Build options of gemm_tile.h by dtype class; "" for classes without products. */
#define OPTIONS(token, complex, single, twice)                                                               \
    "-DT=" token " -DCOMPLEX_T=" complex " -DFLOAT_T=" single " -DDOUBLE_T=" twice
#define SINGLE_NOTHING "1"
#define SINGLE_FP64 "0"
#define DOUBLE_NOTHING "0"
#define DOUBLE_FP64 "1"
#define OPTIONS_b(token, needs) ""
#define OPTIONS_i(token, needs) OPTIONS(token, "0", "0", "0")
#define OPTIONS_u(token, needs) OPTIONS(token, "0", "0", "0")
#define OPTIONS_f(token, needs) OPTIONS(token, "0", SINGLE_##needs, DOUBLE_##needs)
#define OPTIONS_c(token, needs) OPTIONS(token, "1", SINGLE_##needs, DOUBLE_##needs)
#define OPTIONS_n(token, needs) ""
#define OPTIONS_p(token, needs) ""

const char *product_dtype_options(xpu_dtype dtype) {
    static const char *const options[XPU_DTYPE_COUNT] = {
#define X(name, token, bits, class, stored, computed, needs, ...) OPTIONS_##class(#token, needs),
#include "xpu/dtype.def"
#undef X
    };
    return (unsigned)dtype < XPU_DTYPE_COUNT ? options[dtype] : "";
}

size_t product_sum_size(xpu_dtype dtype) {
    const size_t size = xpu_dtype_size(dtype);
    return size < 4 ? 4 : size;
}

static double real_of(const xpu_scalar *s) {
    switch (s->dtype) {
    case XPU_FLOAT64: return s->value.f;
    case XPU_COMPLEX128: return s->value.c[0];
    case XPU_UINT64: return (double)s->value.u;
    default: return (double)s->value.i;
    }
}

static uint64_t integer_of(const xpu_scalar *s) {
    switch (s->dtype) {
    case XPU_FLOAT64: return (uint64_t)(int64_t)s->value.f;
    case XPU_COMPLEX128: return (uint64_t)(int64_t)s->value.c[0];
    default: return s->value.u;
    }
}

void product_scalar(xpu_dtype dtype, const xpu_scalar *scalar, uint64_t word[2]) {
    const double part[2] = {real_of(scalar), scalar->dtype == XPU_COMPLEX128 ? scalar->value.c[1] : 0};
    word[0] = word[1] = 0;
    if (!dtype_is_floating(dtype) && !dtype_is_complex(dtype)) {
        word[0] = integer_of(scalar);
    } else if (dtype_needs_fp64(dtype)) {
        memcpy(word, part, sizeof part);
    } else {
        for (int i = 0; i < 2; i++) {
            const float narrow = (float)part[i];
            memcpy(&word[i], &narrow, sizeof narrow);
        }
    }
}

xpu_status product_check_dtype(const xpu_device_properties *properties, xpu_dtype dtype, const char *what,
                               bool floating_only) {
    if (!*product_dtype_options(dtype) ||
        (floating_only && !(dtype >= XPU_FLOAT16 && dtype <= XPU_COMPLEX128)))
        return op_unsupported_dtype(what, dtype, NULL);
    if (dtype_needs_fp64(dtype) && !properties->has_fp64)
        return op_unsupported_dtype(what, dtype, properties);
    return XPU_SUCCESS;
}

tile_shape tile_for(const xpu_device_properties *properties, xpu_dtype dtype, int64_t m, int64_t n,
                    int64_t batch) {
    const int64_t units = (int64_t)properties->max_compute_units;
    const bool wide = xpu_dtype_size(dtype) > 4; /* 8 x 8 accumulators of these would not fit registers */
    if (!wide && m > 64 && n > 64 && tiles(m, 128) * tiles(n, 128) * batch >= units)
        return (tile_shape){128, 8, 8};
    return m > 32 && n > 32 ? (tile_shape){64, 16, 4} : (tile_shape){32, 16, 2};
}

int64_t product_split_count(const xpu_device_properties *properties, int64_t groups, int64_t k,
                            int64_t results) {
    const int64_t wanted = 2 * (int64_t)properties->max_compute_units;
    /* Each slice should be worth the extra pass, and the sums should stay small: at most 64 MiB of fp32. */
    int64_t slices = groups < wanted ? wanted / groups : 1;
    const int64_t shortest = TUNED(properties->type == XPU_DEVICE_CPU, SPLIT_K_MIN);
    if (slices > k / shortest) slices = k / shortest;
    if (results > 0 && slices > (16 << 20) / results) slices = (16 << 20) / results;
    return slices < 1 ? 1 : slices;
}

int product_reduce_lanes(int64_t slices) { return slices >= 64 ? 32 : slices >= 8 ? 8 : slices >= 4 ? 4 : 1; }

xpu_status product_split_k(xpu_stream *stream, const split_k_product *product, const void *params,
                           size_t size, xpu_addr *partial) {
    void *sums = NULL;
    const uint64_t all = (uint64_t)product->slices * (uint64_t)product->results;
    XPU_TRY(xpu_workspace_take(stream, (size_t)all * product_sum_size(product->dtype), &sums));
    *partial = XPU_ADDR(sums);
    xpu_status status = xpu_launch(stream, product->sum, &product->range, params, size);
    const int64_t groups = div_up(product->results, product->finished ? product->finished : 256);
    const xpu_range range = {.dims = 1, .groups = {(size_t)groups}, .local = {256}, .work = all};
    if (status == XPU_SUCCESS) status = xpu_launch(stream, product->finish, &range, params, size);
    return workspace_release(sums, status);
}
