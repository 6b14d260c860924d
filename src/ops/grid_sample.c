#include "xpu/ops/grid_sample.h"

#include <stdio.h>

#include "kernel.h"
#include "kernels/grid_sample.h"
#include "team.h"

static xpu_status get_kernel(int device, const xpu_grid_sample *args, bool backward, xpu_kernel **kernel) {
    static const char *const modes[] = {"LINEAR", "NEAREST", "CUBIC"};
    static const char *const paddings[] = {"ZEROS", "BORDER", "REFLECTION"};
    const kernel_key key = {.family = FAMILY_GRID_SAMPLE,
                            .word = {(uint64_t)args->dtype | (uint64_t)args->mode << 8 |
                                     (uint64_t)args->padding << 16 | (uint64_t)args->dims << 24 |
                                     (uint64_t)backward << 32}};
    *kernel = kernel_find(device, &key);
    if (*kernel) return XPU_SUCCESS;
    const char *name = backward ? "grid_sample_backward" : "grid_sample_forward";
    char options[160], label[64];
    snprintf(options, sizeof options, "-DT=%s -DACC=%s -DDIMS=%d -D%s -D%s -DBUILD_%s",
             dtype_token(args->dtype), args->dtype == XPU_FLOAT64 ? "double -DACC_IS_DOUBLE" : "float",
             args->dims, modes[args->mode], paddings[args->padding], name);
    snprintf(label, sizeof label, "%s %s %s", name, modes[args->mode], dtype_token(args->dtype));
    return kernel_make(
        device, &key,
        &(kernel_recipe){.file = "grid_sample_ref.cl", .options = options, .name = name, .label = label},
        kernel);
}

static xpu_status run(xpu_stream *stream, const xpu_grid_sample *args, bool backward, grid_sample_params *p) {
    const int index = xpu_stream_device(stream);
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(index, &device));
    XPU_TRY(check_floating(device, "grid_sample", args->dtype));
    if (args->dims < 2 || args->dims > 3 || (args->mode == XPU_GRID_CUBIC && args->dims != 2))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "grid_sample: %d dimensions", args->dims);
    if (p->grad_input && args->dtype == XPU_FLOAT64 && !device->has_atomic64)
        return op_fail(XPU_ERROR_NOT_SUPPORTED,
                       "grid_sample: this device has no 64-bit atomics for its gradient");
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
