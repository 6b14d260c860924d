#include "product.h"

#include <string.h>

#include "iter.h"

const char *product_dtype_options(xpu_dtype dtype) {
    switch (dtype) {
#define CASE(name, token, complex, single, twice)                                                            \
    case XPU_##name: return "-DT=" token " -DCOMPLEX_T=" complex " -DFLOAT_T=" single " -DDOUBLE_T=" twice;
        CASE(INT8, "i8", "0", "0", "0")
        CASE(UINT8, "u8", "0", "0", "0")
        CASE(INT16, "i16", "0", "0", "0")
        CASE(UINT16, "u16", "0", "0", "0")
        CASE(INT32, "i32", "0", "0", "0")
        CASE(UINT32, "u32", "0", "0", "0")
        CASE(INT64, "i64", "0", "0", "0")
        CASE(UINT64, "u64", "0", "0", "0")
        CASE(FLOAT16, "f16", "0", "1", "0")
        CASE(BFLOAT16, "bf16", "0", "1", "0")
        CASE(FLOAT32, "f32", "0", "1", "0")
        CASE(FLOAT64, "f64", "0", "0", "1")
        CASE(COMPLEX64, "c64", "1", "1", "0")
        CASE(COMPLEX128, "c128", "1", "0", "1")
#undef CASE
    default: return "";
    }
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
    switch (dtype) {
    case XPU_FLOAT16:
    case XPU_BFLOAT16:
    case XPU_FLOAT32:
    case XPU_COMPLEX64:
        for (int i = 0; i < 2; i++) {
            const float narrow = (float)part[i];
            memcpy(&word[i], &narrow, sizeof narrow);
        }
        break;
    case XPU_FLOAT64:
    case XPU_COMPLEX128: memcpy(word, part, sizeof part); break;
    default: word[0] = integer_of(scalar);
    }
}

xpu_status product_check_dtype(const xpu_device_properties *properties, xpu_dtype dtype, const char *what,
                               bool floating_only) {
    if (!*product_dtype_options(dtype) ||
        (floating_only && !(dtype >= XPU_FLOAT16 && dtype <= XPU_COMPLEX128)))
        return op_lacks(what, dtype, NULL);
    if (dtype_needs_fp64(dtype) && !properties->has_fp64) return op_lacks(what, dtype, properties);
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

int64_t product_slices(const xpu_device_properties *properties, int64_t groups, int64_t k, int64_t results) {
    const int64_t wanted = 2 * (int64_t)properties->max_compute_units;
    /* Each slice should be worth the extra pass, and the sums should stay small: at most 64 MiB of fp32. */
    int64_t slices = groups < wanted ? wanted / groups : 1;
    const int64_t shortest = TUNED(properties->type == XPU_DEVICE_CPU, SLICE_PRODUCTS);
    if (slices > k / shortest) slices = k / shortest;
    if (results > 0 && slices > (16 << 20) / results) slices = (16 << 20) / results;
    return slices < 1 ? 1 : slices;
}
