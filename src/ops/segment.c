/* Segmented reductions and gradients (kernels/segment.cl). */
#include "xpu/ops/segment.h"

#include <string.h>

#include "kernels/segment.h"
#include "ops/kernel.h"
#include "ops/row_group.h"
#include "xpu/fault.h"

#define GROUP 128
#define SIDE_BY_SIDE 16 /* from as many on a work-item has a segment to itself */

typedef enum segment_kernel { EACH, SUBGROUPS, TIES, BACKWARD } segment_kernel;

static xpu_status get_kernel(int device, const xpu_segments *args, segment_kernel which, row_group t,
                             xpu_kernel **kernel) {
    static const char *const names[] = {"segment_each", "segment_row_groups", "segment_ties",
                                        "segment_backward"};
    static const char *const reductions[] = {"MAX", "MEAN", "MIN", "SUM", "PROD"};
    kernel_spec spec;
    spec_begin(&spec, FAMILY_SEGMENT);
    row_group_spec(&spec, t, compute_dtype(args->dtype));
    spec_option_flag(&spec, "ACC_IS_DOUBLE", args->dtype == XPU_FLOAT64);
    spec_dtype(&spec, "T", args->dtype);
    spec_enum(&spec, "REDUCE_", reductions, args->reduction, 4);
    spec_enum(&spec, "BUILD_", names, which, 4);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "segment.cl", names[which], kernel, "%s %s %s", names[which],
                            reductions[args->reduction], dtype_token(args->dtype));
}

static xpu_status describe(xpu_stream *stream, const xpu_segments *args, const xpu_device_properties **device,
                           segment_params *p) {
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), device));
    XPU_TRY(check_floating(*device, "segment_reduce", args->dtype));
    if ((unsigned)args->reduction > XPU_SEGMENT_PROD || args->segments < 0 || args->length < 0)
        return op_fail(
            XPU_ERROR_INVALID_ARGUMENT,
            "segment_reduce: invalid reduction %d, or a negative size: %lld segments of %lld elements",
            (int)args->reduction, (long long)args->segments, (long long)args->length);
    xpu_fault *place;
    XPU_TRY(xpu_fault_watch(stream, &place));
    p->watch = (struct fault_watch){XPU_ADDR(place),
                                    XPU_ADDR("segment_reduce: offsets don't ascend, or are out of range")};
    p->offsets = XPU_ADDR(args->offsets);
    p->outer = args->outer;
    p->segments = args->segments;
    p->length = args->length;
    p->inner = args->inner;
    p->has_initial = args->has_initial;
    const float narrow = (float)args->initial;
    if (args->dtype == XPU_FLOAT64)
        memcpy(&p->initial, &args->initial, sizeof args->initial);
    else
        memcpy(&p->initial, &narrow, sizeof narrow);
    return XPU_SUCCESS;
}

static xpu_status launch(xpu_stream *stream, xpu_kernel *kernel, const xpu_range *range,
                         const segment_params *p) {
    XPU_TRY(xpu_launch(stream, kernel, range, p, sizeof *p));
    return xpu_fault_raise(stream, (const xpu_fault *)(uintptr_t)p->watch.place);
}

static xpu_status run_each(xpu_stream *stream, const xpu_segments *args, segment_kernel which, uint64_t items,
                           uint64_t work, const segment_params *p) {
    const xpu_range range = {
        .dims = 1, .groups = {(size_t)((items + GROUP - 1) / GROUP)}, .local = {GROUP}, .work = work};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), args, which, (row_group){.lanes = 1}, &kernel));
    return launch(stream, kernel, &range, p);
}

xpu_status xpu_segment_forward(xpu_stream *stream, const xpu_segments *args, const void *data, void *output) {
    const xpu_device_properties *device;
    segment_params p = {.data = XPU_ADDR(data), .output = XPU_ADDR(output)};
    XPU_TRY(describe(stream, args, &device, &p));
    const uint64_t outputs = (uint64_t)(p.outer * p.segments * p.inner);
    const uint64_t work = outputs + (uint64_t)(p.outer * p.length * p.inner);
    if (outputs == 0) return XPU_SUCCESS;
    if (args->inner >= SIDE_BY_SIDE || args->reduction == XPU_SEGMENT_PROD || uses_cpu_policy(device))
        return run_each(stream, args, EACH, outputs, work, &p);
    const row_group t = row_group_for(device, args->length / args->segments);
    const xpu_range range = row_group_range(t, outputs, work);
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), args, SUBGROUPS, t, &kernel));
    return launch(stream, kernel, &range, &p);
}

xpu_status xpu_segment_backward(xpu_stream *stream, const xpu_segments *args, const void *grad_output,
                                const void *output, const void *data, void *grad_data) {
    const xpu_device_properties *device;
    segment_params p = {.data = XPU_ADDR(data),
                        .output = XPU_ADDR(output),
                        .grad_output = XPU_ADDR(grad_output),
                        .grad_data = XPU_ADDR(grad_data)};
    XPU_TRY(describe(stream, args, &device, &p));
    const uint64_t outputs = (uint64_t)(p.outer * p.segments * p.inner);
    const uint64_t elements = (uint64_t)(p.outer * p.length * p.inner);
    const uint64_t segments = (uint64_t)(p.outer * p.segments);
    if (elements == 0) return XPU_SUCCESS;
    void *ties = NULL;
    xpu_status status = XPU_SUCCESS;
    if (outputs && (args->reduction == XPU_SEGMENT_MAX || args->reduction == XPU_SEGMENT_MIN)) {
        XPU_TRY(xpu_workspace_take(stream, (size_t)outputs * sizeof(int32_t), &ties));
        p.ties = XPU_ADDR(ties);
        status = run_each(stream, args, TIES, outputs, elements + outputs, &p);
    }
    if (status == XPU_SUCCESS)
        status =
            run_each(stream, args, BACKWARD, elements > segments ? elements : segments, elements * 8, &p);
    return workspace_release(ties, status);
}
