/* Non-maximum suppression, several thousand boxes per launch (kernels/nms.cl). */
#include "xpu/ops/nms.h"

#include "kernel.h"
#include "kernels/nms.h"
#include "row_group.h"
#include "xpu/memory.h"

/* Boxes whose overlaps are computed per launch, a multiple of 64; boxes that earlier launches removed are
 * skipped. */
#define ROWS 4096

static xpu_status get_kernel(int device, xpu_dtype dtype, int lanes, bool keep, xpu_kernel **kernel) {
    const char *name = keep ? "nms_keep" : "nms_covers";
    kernel_spec spec;
    spec_begin(&spec, FAMILY_NMS);
    spec_dtype(&spec, "T", dtype);
    spec_option(&spec, "ACC=", dtype == XPU_FLOAT64 ? "double" : "float");
    spec_int(&spec, "LANES", lanes, 16);
    spec_key_only(&spec, "keep", keep, 1);
    spec_option(&spec, "BUILD_", name);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "nms.cl", name, kernel, "%s %s", name, dtype_token(dtype));
}

xpu_status xpu_nms(xpu_stream *stream, int64_t count, xpu_dtype dtype, const void *boxes, double threshold,
                   uint8_t *keep) {
    const int index = xpu_stream_device(stream);
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(index, &device));
    XPU_TRY(check_floating(device, "nms", dtype));
    if (count < 0)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "nms: the number of boxes is %lld; must not be negative",
                       (long long)count);
    if (count == 0) return XPU_SUCCESS;
    const int lanes = uses_cpu_policy(device) ? 16 : 256;
    xpu_kernel *covers, *kept;
    XPU_TRY(get_kernel(index, dtype, lanes, false, &covers));
    XPU_TRY(get_kernel(index, dtype, lanes, true, &kept));
    const int64_t words = (count + 63) / 64, rows = count < ROWS ? count : ROWS;
    uint64_t *memory;
    XPU_TRY(xpu_workspace_take(stream, (size_t)(words + rows * words) * sizeof *memory, (void **)&memory));
    nms_params p = {.boxes = XPU_ADDR(boxes),
                    .removed = XPU_ADDR(memory),
                    .covers = XPU_ADDR(memory + words),
                    .keep = XPU_ADDR(keep),
                    .count = count,
                    .words = words,
                    .threshold = (float)threshold};
    p.threshold_rest = (float)(threshold - (double)p.threshold);
    const uint64_t none = 0;
    xpu_status status = xpu_memset(stream, memory, &none, sizeof none, (size_t)words * sizeof *memory);
    for (; status == XPU_SUCCESS && p.first < count; p.first += rows) {
        p.rows = count - p.first < rows ? count - p.first : rows;
        const xpu_range each = {.dims = 2,
                                .groups = {(size_t)(words + 63) / 64, (size_t)p.rows},
                                .local = {64, 1},
                                .work = (uint64_t)(p.rows * words) * 256};
        const xpu_range one = {
            .dims = 1, .groups = {1}, .local = {(size_t)lanes}, .work = (uint64_t)(p.rows * words)};
        status = xpu_launch(stream, covers, &each, &p, sizeof p);
        if (status == XPU_SUCCESS) status = xpu_launch(stream, kept, &one, &p, sizeof p);
    }
    return workspace_release(memory, status);
}
