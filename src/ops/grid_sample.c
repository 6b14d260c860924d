/* Grid sampling and gradients (kernels/grid_sample.cl). */
#include "xpu/ops/grid_sample.h"

#include "kernel.h"
#include "kernels/grid_sample.h"
#include "row_group.h"

static xpu_status get_kernel(int device, const xpu_grid_sample *args, bool backward, xpu_kernel **kernel) {
    static const char *const modes[] = {"LINEAR", "NEAREST", "CUBIC"};
    static const char *const paddings[] = {"ZEROS", "BORDER", "REFLECTION"};
    const char *name = backward ? "grid_sample_backward" : "grid_sample_forward";
    kernel_spec spec;
    spec_begin(&spec, FAMILY_GRID_SAMPLE);
    spec_dtype(&spec, "T", args->dtype);
    spec_option(&spec, "ACC=", args->dtype == XPU_FLOAT64 ? "double" : "float");
    spec_option_flag(&spec, "ACC_IS_DOUBLE", args->dtype == XPU_FLOAT64);
    spec_int(&spec, "DIMS", args->dims, 8);
    spec_enum(&spec, "", modes, args->mode, 4);
    spec_enum(&spec, "", paddings, args->padding, 4);
    spec_key_only(&spec, "backward", backward, 1);
    spec_option(&spec, "BUILD_", name);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "grid_sample.cl", name, kernel, "%s %s %s", name,
                            modes[args->mode], dtype_token(args->dtype));
}

static xpu_status run(xpu_stream *stream, const xpu_grid_sample *args, bool backward, grid_sample_params *p) {
    const int index = xpu_stream_device(stream);
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(index, &device));
    XPU_TRY(check_floating(device, "grid_sample", args->dtype));
    if (args->dims < 2 || args->dims > 3 || (args->mode == XPU_GRID_CUBIC && args->dims != 2))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "grid_sample: %d spatial dimensions are not supported in this mode", args->dims);
    if (p->grad_input && args->dtype == XPU_FLOAT64 && !device->has_atomic64)
        return op_fail(XPU_ERROR_NOT_SUPPORTED,
                       "grid_sample: the gradient in float64 needs 64-bit atomics, which this device lacks");
    p->channels = args->channels;
    p->positions = args->batch * args->out[0] * args->out[1] * args->out[2];
    p->align_corners = args->align_corners;
    for (int d = 0; d < 3; d++) {
        p->in[d] = args->in[d];
        p->out[d] = args->out[d];
    }
    if (p->positions == 0) return XPU_SUCCESS;
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(index, args, backward, &kernel));
    const xpu_range range = {.dims = 1,
                             .groups = {((size_t)p->positions + 63) / 64},
                             .local = {64},
                             .work = (uint64_t)p->positions * (uint64_t)(args->channels + 4) * 32};
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

xpu_status xpu_grid_sample_forward(xpu_stream *stream, const xpu_grid_sample *args, const void *input,
                                   const void *grid, void *output) {
    grid_sample_params p = {.input = XPU_ADDR(input), .grid = XPU_ADDR(grid), .output = XPU_ADDR(output)};
    return run(stream, args, false, &p);
}

xpu_status xpu_grid_sample_backward(xpu_stream *stream, const xpu_grid_sample *args, const void *grad_output,
                                    const void *input, const void *grid, void *grad_input, void *grad_grid) {
    grid_sample_params p = {.input = XPU_ADDR(input),
                            .grid = XPU_ADDR(grid),
                            .output = XPU_ADDR(grad_output),
                            .grad_input = XPU_ADDR(grad_input),
                            .grad_grid = XPU_ADDR(grad_grid)};
    return run(stream, args, true, &p);
}
