/* Series and triangles: chooses types, fills parameters, launches. */
#include "xpu/ops/factory.h"

#include <string.h>

#include "kernels/factory.h"
#include "ops/kernel.h"

enum { ARANGE, LINSPACE, LOGSPACE, TRIANGLE, TRIANGLE_INDICES };

static double as_double(const xpu_scalar *s) {
    switch (s->dtype) {
    case XPU_FLOAT64: return s->value.f;
    case XPU_COMPLEX128: return s->value.c[0];
    case XPU_UINT64: return (double)s->value.u;
    default: return (double)s->value.i;
    }
}

static int64_t as_int64(const xpu_scalar *s) {
    switch (s->dtype) {
    case XPU_FLOAT64: return (int64_t)s->value.f;
    case XPU_COMPLEX128: return (int64_t)s->value.c[0];
    default: return s->value.i;
    }
}

static uint64_t float_bits(double value, bool wide) {
    uint64_t bits = 0;
    float narrow = (float)value;
    if (wide)
        memcpy(&bits, &value, sizeof value);
    else
        memcpy(&bits, &narrow, sizeof narrow);
    return bits;
}

static const char *const series_name[] = {"arange", "linspace", "logspace"};

static xpu_status series(xpu_stream *stream, int which, xpu_dtype dtype, void *out, int64_t count,
                         const xpu_scalar *start, const xpu_scalar *end, const xpu_scalar *step,
                         double base) {
    char class = dtype_class(dtype);
    if (!dtype_is_ordered(dtype) || class == DTYPE_CLASS_BOOL)
        return op_unsupported_dtype(series_name[which], dtype, NULL);
    if (count <= 0) return XPU_SUCCESS;

    int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    bool integer = class != 'f', wide = dtype == XPU_FLOAT64;
    bool wide_spacing = wide || (integer && properties->has_fp64);

    const char *spacing = wide_spacing ? "double" : "float";
    kernel_spec spec;
    spec_begin(&spec, FAMILY_FACTORY);
    spec_key_only(&spec, "which", which, 8);
    spec_dtype(&spec, "T", dtype);
    spec_option(&spec, "C=", integer ? "long" : spacing);
    spec_option(&spec, "S=", spacing);
    spec_option_flag(&spec, "INTEGER", integer);
    spec_option_flag(&spec, "WIDE", wide_spacing);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(kernel_from_file(device, &spec, "factory.cl", series_name[which], &kernel, "%s %s",
                                 series_name[which], dtype_token(dtype)));
    series_params params = {.out = XPU_ADDR(out), .count = count, .base = float_bits(base, wide_spacing)};
    if (integer) {
        params.start = (uint64_t)as_int64(start);
        params.end = end ? (uint64_t)as_int64(end) : 0;
        params.step = step ? (uint64_t)as_int64(step) : 0;
    } else {
        params.start = float_bits(as_double(start), wide);
        params.end = end ? float_bits(as_double(end), wide) : 0;
        params.step = step ? float_bits(as_double(step), wide) : 0;
    }
    size_t local = properties->max_work_group_size < 256 ? properties->max_work_group_size : 256;
    xpu_range range = {
        1, {((size_t)count + local - 1) / local}, {local}, (uint64_t)count * (which == LOGSPACE ? 16 : 2)};
    return xpu_launch(stream, kernel, &range, &params, sizeof params);
}

xpu_status xpu_arange(xpu_stream *stream, xpu_dtype dtype, void *out, int64_t count, const xpu_scalar *start,
                      const xpu_scalar *step) {
    return series(stream, ARANGE, dtype, out, count, start, NULL, step, 0);
}

xpu_status xpu_linspace(xpu_stream *stream, xpu_dtype dtype, void *out, int64_t count,
                        const xpu_scalar *start, const xpu_scalar *end) {
    return series(stream, LINSPACE, dtype, out, count, start, end, NULL, 0);
}

xpu_status xpu_logspace(xpu_stream *stream, xpu_dtype dtype, void *out, int64_t count,
                        const xpu_scalar *start, const xpu_scalar *end, double base) {
    return series(stream, LOGSPACE, dtype, out, count, start, end, NULL, base);
}

xpu_status xpu_triangle(xpu_stream *stream, const xpu_tensor *in, const xpu_tensor *out, int64_t diagonal,
                        bool upper) {
    int dims = out->dims;
    if (dims < 2 || dims != in->dims || in->dtype != out->dtype)
        return op_fail(
            XPU_ERROR_INVALID_ARGUMENT,
            "tril/triu: input and output must have the same dtype and shape, with at least 2 dimensions");
    if (dims - 2 > TRIANGLE_BATCH_DIMS)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "tril/triu: more than %d dimensions",
                       TRIANGLE_BATCH_DIMS + 2);
    triangle_params params = {
        .in = XPU_ADDR(in->data),
        .out = XPU_ADDR(out->data),
        .rows = out->size[dims - 2],
        .columns = out->size[dims - 1],
        .diagonal = diagonal,
        .upper = upper,
        .in_stride = {in->stride[dims - 2], in->stride[dims - 1]},
        .out_stride = {out->stride[dims - 2], out->stride[dims - 1]},
    };
    int64_t batches = 1;
    for (int d = dims - 3; d >= 0; d--) {
        if (in->size[d] != out->size[d])
            return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                           "tril/triu: the shapes of input and output differ in dimension %d", d);
        batches *= out->size[d];
        if (out->size[d] == 1) continue;
        int at = params.batch_dims++;
        params.batch_size[at] = out->size[d];
        params.in_batch_stride[at] = in->stride[d];
        params.out_batch_stride[at] = out->stride[d];
    }
    int64_t count = batches * params.rows * params.columns;
    if (count == 0) return XPU_SUCCESS;

    int device = xpu_stream_device(stream);
    size_t size = xpu_dtype_size(out->dtype);
    static const char *const word[] = {
        [1] = "uchar", [2] = "ushort", [4] = "uint", [8] = "ulong", [16] = "ulong2"};
    kernel_spec spec;
    spec_begin(&spec, FAMILY_FACTORY);
    spec_key_only(&spec, "which", TRIANGLE, 8);
    spec_enum(&spec, "E=", word, (int64_t)size, 8);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(
            kernel_from_file(device, &spec, "factory.cl", "triangle", &kernel, "triangle %zu bytes", size));
    size_t local = params.columns < 64 ? 16 : 256;
    xpu_range range = {3,
                       {((size_t)params.columns + local - 1) / local, (size_t)params.rows, (size_t)batches},
                       {local, 1, 1},
                       (uint64_t)count * 2};
    return xpu_launch(stream, kernel, &range, &params, sizeof params);
}

xpu_status xpu_triangle_indices(xpu_stream *stream, xpu_dtype dtype, void *out, int64_t count, int64_t rows,
                                int64_t columns, int64_t diagonal, bool upper) {
    if (dtype != XPU_INT32 && dtype != XPU_INT64)
        return op_unsupported_dtype("triangle_indices", dtype, NULL);
    if (count <= 0) return XPU_SUCCESS;
    int device = xpu_stream_device(stream);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_FACTORY);
    spec_key_only(&spec, "which", TRIANGLE_INDICES, 8);
    spec_key_only(&spec, "I", dtype, 8);
    spec_option(&spec, "I=", dtype == XPU_INT32 ? "int" : "long");
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(
            kernel_from_file(device, &spec, "factory.cl", "triangle_indices", &kernel, "triangle_indices"));
    triangle_indices_params params = {.out = XPU_ADDR(out),
                                      .count = count,
                                      .rows = rows,
                                      .columns = columns,
                                      .diagonal = diagonal,
                                      .upper = upper};
    size_t local = 64;
    xpu_range range = {1, {((size_t)count + local - 1) / local}, {local}, (uint64_t)count * 64};
    return xpu_launch(stream, kernel, &range, &params, sizeof params);
}
