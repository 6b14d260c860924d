/* Pooling and gradients (kernels/pool.cl). */
#include "xpu/ops/pool.h"

#include <string.h>

#include "kernel.h"
#include "kernels/pool.h"
#include "row_group.h"
#include "xpu/fault.h"

#define GROUP 256 /* work-items */
#define MOST_LANES 64
#define LONGEST_APART 16384
#define BLOCK 64 /* channels */

typedef struct pool_plan {
    bool backward, planes, lines;
    int apart; /* elements of local memory for a plane's sums; 0: sums are kept in the result */
} pool_plan;

static xpu_status get_kernel(int device, const xpu_pool *args, const pool_plan *plan, xpu_kernel **kernel) {
    static const char *const names[2][2] = {{"pool_forward", "pool_forward_planes"},
                                            {"pool_backward", "pool_backward_planes"}};
    const char *name = plan->lines ? "pool_forward_lines" : names[plan->backward][plan->planes];
    kernel_spec spec;
    spec_begin(&spec, FAMILY_POOL);
    spec_dtype(&spec, "T", args->dtype);
    spec_option(&spec, "ACC=", args->dtype == XPU_FLOAT64 ? "double" : "float");
    spec_option(&spec, "MASK=", args->dtype == XPU_FLOAT64 ? "long" : "int");
    spec_option_int(&spec, "BLOCK", BLOCK);
    spec_flag(&spec, "MAXIMUM", args->maximum);
    spec_flag(&spec, "ADAPTIVE", args->adaptive);
    spec_flag(&spec, "FRACTIONAL", args->samples != NULL);
    spec_option_flag(&spec, "ACC_IS_DOUBLE", args->dtype == XPU_FLOAT64);
    spec_flag(&spec, "LAST", args->channels_last);
    spec_key_only(&spec, "backward", plan->backward, 1);
    spec_key_only(&spec, "planes", plan->planes, 1);
    spec_key_only(&spec, "lines", plan->lines, 1);
    spec_option(&spec, "BUILD_", name);
    spec_int_if(&spec, plan->apart, "APART", plan->apart, 32);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "pool.cl", name, kernel, "%s_%s%s %s",
                            args->maximum ? "max" : "average",
                            args->adaptive  ? "adaptive_"
                            : args->samples ? "fractional_"
                                            : "",
                            name, dtype_token(args->dtype));
}

/* CPU: work-items of the kernels for planes (a plane, or several channels of a batch entry) and for output
 * rows. */
static int64_t plane_tasks(const xpu_pool *args) {
    return args->batch * (args->channels_last ? (args->channels + BLOCK - 1) / BLOCK : args->channels);
}

static int64_t line_tasks(const xpu_pool *args) { return args->batch * args->out[0] * args->out[1]; }

static pool_plan make_plan(const xpu_device_properties *device, const xpu_pool *args, bool backward) {
    pool_plan plan = {.backward = backward};
    plan.lines = device->type == XPU_DEVICE_CPU && args->channels_last && !backward &&
                 line_tasks(args) >= (int64_t)device->max_compute_units;
    if (plan.lines) return plan;
    const bool narrow = args->dtype != compute_dtype(args->dtype);
    if (device->type != XPU_DEVICE_CPU || plane_tasks(args) < (int64_t)device->max_compute_units ||
        (args->channels_last && (!backward || narrow)))
        return plan;
    plan.planes = true;
    if (!backward || !narrow) return plan;
    const int64_t elements = (int64_t)args->in[0] * args->in[1] * args->in[2];
    int apart = 1024;
    while (apart < elements && apart < LONGEST_APART) apart *= 2;
    if (apart >= elements && (uint64_t)apart * sizeof(float) <= device->local_mem_size)
        plan.apart = apart;
    else
        plan.planes = false;
    return plan;
}

/* The distance between windows, as bits of the compute type. */
static uint64_t alpha_of(const xpu_pool *args, int d) {
    const int room = args->in[d] - args->kernel[d], steps = args->out[d] > 1 ? args->out[d] - 1 : 1;
    const double wide = (double)room / steps;
    const float narrow = (float)room / (float)steps;
    uint64_t bits = 0;
    if (args->dtype == XPU_FLOAT64)
        memcpy(&bits, &wide, sizeof wide);
    else
        memcpy(&bits, &narrow, sizeof narrow);
    return bits;
}

static xpu_status run(xpu_stream *stream, const xpu_pool *args, bool backward, pool_params *p) {
    const int index = xpu_stream_device(stream);
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(index, &device));
    XPU_TRY(check_floating(device, "pooling", args->dtype));
    const int *size = backward ? args->in : args->out;
    const int64_t positions = args->batch * size[0] * size[1] * size[2];
    if (positions == 0 || args->channels == 0) return XPU_SUCCESS;

    if (args->samples && (backward || args->adaptive || args->channels_last || !args->maximum))
        return op_fail(XPU_ERROR_NOT_SUPPORTED,
                       "fractional pooling: only forward max pooling of channels-first tensors is supported");
    uint64_t window = 1;
    p->samples = XPU_ADDR(args->samples);
    p->batch = args->batch;
    p->channels = args->channels;
    p->divisor = args->divisor;
    p->count_pad = args->count_pad && !args->adaptive;
    for (int d = 0; d < 3; d++) {
        p->in[d] = args->in[d];
        p->out[d] = args->out[d];
        p->window[d] = args->kernel[d];
        p->stride[d] = args->stride[d];
        p->pad[d] = args->pad[d];
        p->dilation[d] = args->dilation[d];
        if (args->samples) p->alpha[d] = alpha_of(args, d);
        window *=
            (uint64_t)(args->adaptive ? (args->in[d] + args->out[d] - 1) / args->out[d] : args->kernel[d]);
    }
    const pool_plan plan = make_plan(device, args, backward);
    const uint64_t along = args->channels_last ? (uint64_t)args->channels : (uint64_t)size[2];
    p->rows = args->channels_last ? positions : positions / size[2] * args->channels;
    size_t lanes = 8;
    while (lanes < along && lanes < MOST_LANES) lanes *= 2;
    const size_t group_rows = GROUP / lanes;
    xpu_range range = {
        .dims = 2,
        .groups = {(along + lanes - 1) / lanes, ((uint64_t)p->rows + group_rows - 1) / group_rows},
        .local = {lanes, group_rows},
        .work = (uint64_t)positions * (uint64_t)args->channels * (window + 4)};
    if (plan.planes || plan.lines)
        range = (xpu_range){.dims = 1,
                            .groups = {(size_t)(plan.lines ? line_tasks(args) : plane_tasks(args))},
                            .local = {1},
                            .work = range.work};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(index, args, &plan, &kernel));
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
    if (!args->maximum) return run(stream, args, true, &p);
    xpu_fault *place;
    XPU_TRY(xpu_fault_watch(stream, &place));
    p.watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR("max_pool_backward")};
    XPU_TRY(run(stream, args, true, &p));
    return xpu_fault_raise(stream, place);
}
