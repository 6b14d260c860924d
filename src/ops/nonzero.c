/* nonzero: counts per chunk, scans the counts on the host, then writes the coordinates. */
#include <string.h>

#include "core/memory.h"
#include "ops/index_walk.h"
#include "ops/iter.h"
#include "xpu/graph.h"
#include "xpu/memory.h"
#include "xpu/ops/index.h"

/* Elements per work-item: CPUs have few threads, GPUs need many work-items. */
static int64_t chunk_of(bool host, int64_t numel) { return host ? 1024 : numel > (1 << 20) ? 256 : 32; }

static int64_t parts_of(int64_t numel, int64_t chunk) { return (numel + chunk - 1) / chunk; }

size_t xpu_nonzero_scratch(int device, int64_t numel) {
    const xpu_device_properties *properties;
    if (xpu_device_get_properties(device, &properties) != XPU_SUCCESS) return 0;
    return (size_t)parts_of(numel, chunk_of(device_is_synchronous(properties), numel)) * sizeof(int64_t);
}

static xpu_status launch(xpu_stream *stream, const xpu_tensor *in, bool write,
                         const struct nonzero_params *params) {
    int device = xpu_stream_device(stream);
    int dims = write ? in->dims : 0;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_NONZERO);
    spec_dtype(&spec, "T", in->dtype);
    spec_int(&spec, "DIMS", dims, 8);
    spec_option_flag(&spec, "KIND_c", dtype_is_complex(in->dtype));
    spec_key_only(&spec, "write", write, 1);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(kernel_from_file(device, &spec, "nonzero.cl", write ? "nonzero_write" : "nonzero_count",
                                 &kernel, "nonzero %s", dtype_token(in->dtype)));
    size_t parts = (size_t)parts_of(params->numel, params->chunk);
    size_t local =
        params->chunk > 256 ? 16 : 64; /* large chunks: small groups, so that every thread gets some */
    xpu_range range = {1, {(parts + local - 1) / local}, {local}, (uint64_t)params->numel * 4};
    return xpu_launch(stream, kernel, &range, params, sizeof *params);
}

static int64_t sums_before(int64_t *counts, int64_t parts) {
    int64_t total = 0;
    for (int64_t i = 0; i < parts; i++) {
        int64_t count = counts[i];
        counts[i] = total;
        total += count;
    }
    return total;
}

static struct nonzero_params params_of(const xpu_tensor *in, const xpu_device_properties *properties,
                                       const void *scratch) {
    struct nonzero_params params = {.in = XPU_ADDR(in->data), .counts = XPU_ADDR(scratch), .numel = 1};
    for (int d = 0; d < in->dims; d++) params.numel *= params.size[d] = in->size[d];
    params.dims = in->dims;
    params.chunk = chunk_of(device_is_synchronous(properties), params.numel);
    return params;
}

xpu_status xpu_nonzero_count(xpu_stream *stream, const xpu_tensor *in, void *scratch, int64_t *count) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    if (dtype_needs_fp64(in->dtype) && !properties->has_fp64)
        return op_unsupported_dtype("nonzero", in->dtype, properties);
    struct nonzero_params params = params_of(in, properties, scratch);
    if (params.numel == 0) {
        *count = 0;
        return XPU_SUCCESS;
    }
    XPU_TRY(
        xpu_stream_refuse_capture(stream, "counting elements to determine the size of a result (nonzero)"));
    XPU_TRY(launch(stream, in, false, &params));
    int64_t parts = parts_of(params.numel, params.chunk);
    if (device_is_synchronous(properties)) {
        *count = sums_before(scratch, parts);
        return XPU_SUCCESS;
    }
    size_t size = (size_t)parts * sizeof(int64_t);
    int64_t *counts = core_malloc(size);
    if (!counts)
        return op_fail(XPU_ERROR_OUT_OF_HOST_MEMORY,
                       "nonzero: out of host memory: could not allocate %zu bytes", size);
    xpu_status status = xpu_memcpy(stream, counts, scratch, size, true);
    int64_t total = 0;
    if (status == XPU_SUCCESS) {
        total = sums_before(counts, parts);
        status = xpu_memcpy(stream, scratch, counts, size, true);
    }
    core_free(counts);
    if (status == XPU_SUCCESS) *count = total;
    return status;
}

xpu_status xpu_nonzero(xpu_stream *stream, const xpu_tensor *in, const void *scratch, int64_t *out,
                       int64_t row_stride, int64_t column_stride, int64_t limit) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    if (in->dims > XPU_MAX_DIMS)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "nonzero: more than %d dimensions", XPU_MAX_DIMS);
    struct nonzero_params params = params_of(in, properties, scratch);
    if (params.numel == 0 || in->dims == 0 || limit == 0) return XPU_SUCCESS;
    params.out = XPU_ADDR(out);
    params.row_stride = row_stride;
    params.column_stride = column_stride;
    params.limit = limit;
    return launch(stream, in, true, &params);
}
