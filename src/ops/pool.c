#include "xpu/ops/pool.h"

#include <stdio.h>

#include "kernel.h"
#include "kernels/pool.h"
#include "team.h"

#define GROUP 256 /* work-items */
#define MOST_LANES 64

static xpu_status get_kernel(int device, const xpu_pool *args, bool backward, xpu_kernel **kernel) {
    const kernel_key key = {.family = FAMILY_POOL,
                            .word = {(uint64_t)args->dtype | (uint64_t)backward << 8 |
                                     (uint64_t)args->maximum << 9 | (uint64_t)args->adaptive << 10 |
                                     (uint64_t)args->channels_last << 11}};
    *kernel = kernel_find(device, &key);
    if (*kernel) return XPU_SUCCESS;
    const char *name = backward ? "pool_backward" : "pool_forward";
    char options[256], label[64];
    snprintf(options, sizeof options, "-DT=%s -DACC=%s%s%s%s -DBUILD_%s", dtype_token(args->dtype),
             args->dtype == XPU_FLOAT64 ? "double" : "float", args->maximum ? " -DMAXIMUM" : "",
             args->adaptive ? " -DADAPTIVE" : "", args->channels_last ? " -DLAST" : "", name);
    snprintf(label, sizeof label, "%s_%s%s %s", args->maximum ? "max" : "average",
             args->adaptive ? "adaptive_" : "", name, dtype_token(args->dtype));
    return kernel_make(device, &key,
                       &(kernel_recipe){.file = "pool.cl", .options = options, .name = name, .label = label},
                       kernel);
}

/* The widest of the adaptive windows along one dimension. */
static int widest(int in, int out) {
    int most = 0;
    for (int64_t o = 0; o < out; o++) {
        const int64_t start = o * in / out, end = ((o + 1) * in + out - 1) / out;
        if (end - start > most) most = (int)(end - start);
    }
    return most;
}

static xpu_status run(xpu_stream *stream, const xpu_pool *args, bool backward, pool_params *p) {
    const int index = xpu_stream_device(stream);
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(index, &device));
    XPU_TRY(check_floating(device, "pooling", args->dtype));
    const int *size = backward ? args->in : args->out;
    const int64_t positions = args->batch * size[0] * size[1] * size[2];
    if (positions == 0 || args->channels == 0) return XPU_SUCCESS;

    uint64_t window = 1;
    p->batch = args->batch;
    p->channels = args->channels;
    p->divisor = args->divisor;
    p->count_pad = args->count_pad && !args->adaptive;
    for (int d = 0; d < 3; d++) {
        p->in[d] = args->in[d];
        p->out[d] = args->out[d];
        p->window[d] = args->adaptive ? (backward ? 1 : widest(args->in[d], args->out[d])) : args->kernel[d];
        p->stride[d] = args->stride[d];
        p->pad[d] = args->pad[d];
        p->dilation[d] = args->dilation[d];
        window *= (uint64_t)p->window[d];
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
        .work = (uint64_t)positions * (uint64_t)args->channels * (window + 4)};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(index, args, backward, &kernel));
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

xpu_status xpu_pool_forward(xpu_stream *stream, const xpu_pool *args, const void *input, void *output,
                            void *indices) {
    pool_params p = {.input = XPU_ADDR(input), .output = XPU_ADDR(output), .indices = XPU_ADDR(indices)};
    return run(stream, args, false, &p);
}

xpu_status xpu_pool_backward(xpu_stream *stream, const xpu_pool *args, const void *grad_output,
                             const void *indices, void *grad_input) {
    pool_params p = {
        .input = XPU_ADDR(grad_input), .output = XPU_ADDR(grad_output), .indices = XPU_ADDR(indices)};
    return run(stream, args, true, &p);
}
