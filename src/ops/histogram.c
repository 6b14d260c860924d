/* Histograms: counts in local memory if the bins fit, otherwise in global memory (kernels/histogram.cl). */
#include "xpu/ops/histogram.h"

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
    const bool weighted = p->weights != XPU_DTYPE_COUNT;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_HISTOGRAM);
    spec_dtype(&spec, "T", p->dtype);
    spec_option_int(&spec, "LOCAL", GROUP);
    spec_flag(&spec, "BY_VALUE", p->by_value);
    spec_option_flag(&spec, "REAL", dtype_class(p->dtype) == DTYPE_CLASS_FLOAT);
    spec_option_flag(&spec, "ACC_IS_DOUBLE", p->dtype == XPU_FLOAT64);
    spec_key_only(&spec, "W", p->weights, 8);
    spec_option(&spec, "W=", weighted ? dtype_token(p->weights) : NULL);
    spec_option_flag(&spec, "W_DOUBLE", p->weights == XPU_FLOAT64);
    spec_int_if(&spec, p->local, "LOCAL_BINS", p->local ? local_bins : 0, 32);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "histogram.cl", "histogram", kernel, "histogram %s",
                            dtype_token(p->dtype));
}

/* A bound in the kernel's compute type. */
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
        return op_fail(
            XPU_ERROR_INVALID_ARGUMENT,
            "histogram: the number of bins, the bounds or the number of elements (%lld) is invalid",
            (long long)numel);
    if (!dtype_is_ordered(dtype) || (dtype_needs_fp64(dtype) && !properties->has_fp64))
        return op_unsupported_dtype("histogram", dtype, properties);
    if (weights && dtype_needs_fp64(weights_dtype) && !properties->has_fp64)
        return op_unsupported_dtype("histogram", weights_dtype, properties);
    if (weights && weights_dtype == XPU_FLOAT64 && !properties->has_atomic64)
        return op_fail(XPU_ERROR_NOT_SUPPORTED,
                       "histogram: float64 weights need 64-bit atomics, which %s lacks", properties->name);
    if (weights && weights_dtype != XPU_FLOAT32 && weights_dtype != XPU_FLOAT64)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "histogram: weights must be float32 or float64");
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
