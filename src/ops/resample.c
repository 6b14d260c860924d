/* Interpolation, padding and gradients (kernels/resample.cl). */
#include "xpu/ops/resample.h"

#include "kernel.h"
#include "kernels/resample.h"
#include "ops/resample_filter.h"
#include "row_group.h"

#define GROUP 256 /* work-items */
#define MOST_LANES 64

/* The kernel's dtype: modes that only copy share kernels between dtypes of one size. */
static xpu_status element_dtype(const xpu_device_properties *device, const xpu_resample *args, bool backward,
                                xpu_dtype *dtype) {
    const bool pads = args->kind == XPU_RESAMPLE_REFLECT || args->kind == XPU_RESAMPLE_REPLICATE;
    const bool nearest = args->kind == XPU_RESAMPLE_NEAREST || args->kind == XPU_RESAMPLE_NEAREST_EXACT;
    *dtype = args->dtype;
    if (!backward && (pads || (nearest && args->dtype == XPU_UINT8))) {
        const xpu_dtype bits = dtype_of_size(xpu_dtype_size(args->dtype));
        if (bits != XPU_DTYPE_COUNT) {
            *dtype = bits;
            return XPU_SUCCESS;
        }
    }
    if (pads && args->dtype == XPU_COMPLEX64) return XPU_SUCCESS;
    return check_floating(device, "resampling",
                          pads && args->dtype == XPU_COMPLEX128 ? XPU_FLOAT64 : args->dtype);
}

static xpu_status get_kernel(int device, const xpu_resample *args, xpu_dtype dtype, bool backward,
                             xpu_kernel **kernel) {
    static const char *const kinds[] = {"NEAREST", "NEAREST_EXACT", "LINEAR",
                                        "CUBIC",   "REFLECT",       "REPLICATE"};
    const char *name = backward ? "resample_backward" : "resample_forward";
    kernel_spec spec;
    spec_begin(&spec, FAMILY_RESAMPLE);
    spec_dtype(&spec, "T", dtype);
    spec_option(&spec, "ACC=", dtype == XPU_FLOAT64 || dtype == XPU_COMPLEX128 ? "double" : "float");
    spec_enum(&spec, "", kinds, args->kind, 4);
    spec_flag(&spec, "LAST", args->channels_last);
    spec_key_only(&spec, "backward", backward, 1);
    spec_option(&spec, "BUILD_", name);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "resample.cl", name, kernel, "%s %s %s", name, kinds[args->kind],
                            dtype_token(dtype));
}

static xpu_status run(xpu_stream *stream, const xpu_resample *args, bool backward, resample_params *p) {
    const int index = xpu_stream_device(stream);
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(index, &device));
    xpu_dtype dtype;
    XPU_TRY(element_dtype(device, args, backward, &dtype));
    const int *size = backward ? args->in : args->out;
    const int64_t positions = args->batch * size[0] * size[1] * size[2];
    if (positions == 0 || args->channels == 0) return XPU_SUCCESS;

    p->batch = args->batch;
    p->channels = args->channels;
    p->align_corners = args->align_corners;
    for (int d = 0; d < 3; d++) {
        p->in[d] = args->in[d];
        p->out[d] = args->out[d];
        p->scale[d] = (float)args->scale[d];
        p->scale_rest[d] = args->dtype == XPU_FLOAT64 ? (float)(args->scale[d] - p->scale[d]) : 0;
        p->before[d] = args->before[d];
    }
    const uint64_t along = args->channels_last ? (uint64_t)args->channels : (uint64_t)size[2];
    p->rows = args->channels_last ? positions : positions / size[2] * args->channels;
    size_t lanes = 8;
    while (lanes < along && lanes < MOST_LANES) lanes *= 2;
    const size_t group_rows = GROUP / lanes;
    const xpu_range range = {
        .dims = 2,
        .groups = {(along + lanes - 1) / lanes, ((uint64_t)p->rows + group_rows - 1) / group_rows},
        .local = {lanes, group_rows},
        .work = (uint64_t)positions * (uint64_t)args->channels * 16};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(index, args, dtype, backward, &kernel));
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

xpu_status xpu_resample_forward(xpu_stream *stream, const xpu_resample *args, const void *input,
                                void *output) {
    if (resample_filters(args)) return resample_filter_forward(stream, args, input, output);
    resample_params p = {.input = XPU_ADDR(input), .output = XPU_ADDR(output)};
    return run(stream, args, false, &p);
}

xpu_status xpu_resample_backward(xpu_stream *stream, const xpu_resample *args, const void *grad_output,
                                 void *grad_input) {
    if (resample_filters(args)) return resample_filter_backward(stream, args, grad_output, grad_input);
    resample_params p = {.input = XPU_ADDR(grad_input), .output = XPU_ADDR(grad_output)};
    return run(stream, args, true, &p);
}
