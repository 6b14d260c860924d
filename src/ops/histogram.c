#include "xpu/ops/histogram.h"

#include <stdio.h>
#include <string.h>

#include "kernels/histogram.h"
#include "ops/iter.h"
#include "ops/kernel.h"

#define GROUP 256
#define ELEMENTS 32 /* a work-item, where there are many */
#define LOCAL_BYTES 16384
#define GROUPS_A_UNIT 16

typedef struct plan {
    xpu_dtype dtype, weights; /* weights: XPU_DTYPE_COUNT for none */
    bool by_value, local;
} plan;

static xpu_status get_kernel(int device, const plan *p, int64_t local_bins, xpu_kernel **kernel) {
    const kernel_key key = {FAMILY_HISTOGRAM,
                            {(uint64_t)p->dtype | (uint64_t)p->weights << 8 | (uint64_t)p->by_value << 16 |
                                 (uint64_t)p->local << 17,
                             0, 0}};
    *kernel = kernel_find(device, &key);
    if (*kernel) return XPU_SUCCESS;
    char options[192], label[48];
    const char class = dtype_class(p->dtype);
    int n = snprintf(options, sizeof options, "-DT=%s -DLOCAL=%d%s%s%s", dtype_token(p->dtype), GROUP,
                     p->by_value ? " -DBY_VALUE" : "", class == DTYPE_CLASS_FLOAT ? " -DREAL" : "",
                     p->dtype == XPU_FLOAT64 ? " -DACC_IS_DOUBLE" : "");
    if (p->weights != XPU_DTYPE_COUNT)
        n += snprintf(options + n, sizeof options - (size_t)n, " -DW=%s%s", dtype_token(p->weights),
                      p->weights == XPU_FLOAT64 ? " -DW_DOUBLE" : "");
    if (p->local)
        snprintf(options + n, sizeof options - (size_t)n, " -DLOCAL_BINS=%lld", (long long)local_bins);
    snprintf(label, sizeof label, "histogram %s", dtype_token(p->dtype));
    const kernel_recipe recipe = {
        .file = "histogram_ref.cl", .options = options, .name = "histogram", .label = label};
    return kernel_make(device, &key, &recipe, kernel);
}

/* A bound as the kernel computes with it. */
static uint64_t bound(const xpu_scalar *value, xpu_dtype dtype) {
    uint64_t bits[2] = {0};
    const xpu_dtype in = dtype == XPU_FLOAT64                      ? XPU_FLOAT64
                         : dtype_class(dtype) == DTYPE_CLASS_FLOAT ? XPU_FLOAT32
                                                                   : XPU_INT64;
    scalar_bits(value, in, bits);
    return bits[0];
}

xpu_status xpu_histogram(xpu_stream *stream, xpu_dtype dtype, const void *in, int64_t numel, int64_t bins,
                         const xpu_scalar *low, const xpu_scalar *high, const void *weights,
                         xpu_dtype weights_dtype, void *counts) {
    const int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    const bool real = dtype_class(dtype) == DTYPE_CLASS_FLOAT;
    if (bins <= 0 || numel < 0 || numel > INT32_MAX || (low == NULL) != (high == NULL) || (real && !low))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "histogram: bins, bounds or elements (%lld) out of range",
                       (long long)numel);
    if (dtype_is_complex(dtype) || (dtype_needs_fp64(dtype) && !properties->has_fp64))
        return op_lacks("histogram", dtype, properties);
    if (weights && dtype_needs_fp64(weights_dtype) && !properties->has_fp64)
        return op_lacks("histogram", weights_dtype, properties);
    if (weights && weights_dtype == XPU_FLOAT64 && !properties->has_atomic64)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "histogram: %s can't add to float64 atomically",
                       properties->name);
    if (weights && weights_dtype != XPU_FLOAT32 && weights_dtype != XPU_FLOAT64)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "histogram: weights are float32 or float64");
    if (numel == 0) return XPU_SUCCESS;

    const int64_t local_bins = LOCAL_BYTES / (weights && weights_dtype == XPU_FLOAT64 ? 8 : 4);
    const plan p = {dtype, weights ? weights_dtype : XPU_DTYPE_COUNT, !low, bins <= local_bins};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(device, &p, local_bins, &kernel));
    int64_t groups = (numel + GROUP * ELEMENTS - 1) / (GROUP * ELEMENTS);
    const int64_t most = GROUPS_A_UNIT * (int64_t)properties->max_compute_units;
    if (groups > most) groups = most;
    histogram_params params = {.in = XPU_ADDR(in),
                               .weights = XPU_ADDR(weights),
                               .counts = XPU_ADDR(counts),
                               .numel = numel,
                               .bins = bins,
                               .step = groups * GROUP};
    if (low) {
        params.low = bound(low, dtype);
        params.high = bound(high, dtype);
    }
    const xpu_range range = {1, {(size_t)groups}, {GROUP}, (uint64_t)numel * 8};
    return xpu_launch(stream, kernel, &range, &params, sizeof params);
}
