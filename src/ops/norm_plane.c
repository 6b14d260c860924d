/* Batch norm and group norm: statistics of sets of planes, a finishing kernel per channel or group,
 * application. */

#include "kernel.h"
#include "kernels/norm_plane.h"
#include "norm.h"
#include "row_group.h"
#include "xpu/trace.h"

#define LANES 64             /* for columns, and for work done once per channel */
#define APPLY_ELEMENTS 16384 /* of a group */
#define LEAST_POSITIONS 64   /* of a slice of columns */
#define HOST_SETS 16         /* sets that keep a CPU busy */
#define HOST_LANES 16        /* of columns there, … */
#define HOST_WIDE 4          /* … and channels of each at most */

/* In the order of `names`. */
typedef enum plane_kernel {
    PLANE_STATISTICS,
    PLANE_SUMS,
    PLANE_APPLY,
    COLUMN_STATISTICS,
    COLUMN_SUMS,
    COLUMN_APPLY,
    BATCH_FINISH,
    BATCH_FINISH_BACKWARD,
    GROUP_FINISH,
    GROUP_FINISH_BACKWARD,
    GROUP_PARAMETERS,
    BATCH_BACKWARD
} plane_kernel;
static const char *const names[] = {"norm_plane_statistics", "norm_plane_sums",
                                    "norm_plane_apply",      "norm_column_statistics",
                                    "norm_column_sums",      "norm_column_apply",
                                    "norm_batch_finish",     "norm_batch_finish_backward",
                                    "norm_group_finish",     "norm_group_finish_backward",
                                    "norm_group_parameters", "norm_batch_backward"};

static const char *part_of(plane_kernel which) {
    return which <= PLANE_APPLY || which == BATCH_BACKWARD ? "PLANES"
           : which <= COLUMN_APPLY                         ? "COLUMNS"
                                                           : "FINISH";
}

/* One call: device, parameters and scratch memory. */
typedef struct call {
    xpu_stream *stream;
    const xpu_device_properties *device;
    const xpu_plane_norm *args;
    bool columns;
    int wide; /* columns: channels of a lane */
    row_group row_group;
    norm_plane_params p;
    void *scratch;
} call;

static xpu_status get_kernel(const call *c, plane_kernel which, xpu_kernel **kernel) {
    const xpu_plane_norm *args = c->args;
    const row_group t =
        which <= COLUMN_APPLY || which == BATCH_BACKWARD ? c->row_group : (row_group){.lanes = 1};
    const int index = xpu_stream_device(c->stream);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_NORM_PLANE);
    row_group_spec(&spec, t, compute_dtype(args->dtype));
    spec_dtype(&spec, "T", args->dtype);
    spec_dtype(&spec, "W", args->parameter_dtype);
    spec_dtype(&spec, "RUNNING", args->running_dtype);
    spec_dtype(&spec, "SAVE", args->saved_dtype);
    spec_int(&spec, "WIDE", c->wide, 8);
    spec_option(&spec, part_of(which), "");
    spec_enum(&spec, "BUILD_", names, which, 8);
    spec_flag(&spec, "GROUPED", args->groups > 0);
    *kernel = kernel_find(index, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(index, &spec, "norm_plane.cl", names[which], kernel, "%s %s", names[which],
                            dtype_token(args->dtype));
}

static xpu_status launch(call *c, plane_kernel which, xpu_range range) {
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(c, which, &kernel));
    return xpu_launch(c->stream, kernel, &range, &c->p, sizeof c->p);
}

static xpu_status launch_each(call *c, plane_kernel which, int64_t count, uint64_t work_each) {
    return launch(c, which,
                  (xpu_range){.dims = 1,
                              .groups = {(size_t)(count + LANES - 1) / LANES},
                              .local = {LANES},
                              .work = (uint64_t)count * work_each});
}

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t clamp(int64_t v, int64_t least, int64_t most) {
    return v > most ? most : v < least ? least : v;
}

static int64_t elements(const call *c) { return c->p.planes * c->p.length / (c->columns ? c->p.batch : 1); }

/* Channels last: `slices` along the positions, of equal size except the last. */
static void slice_positions(call *c, int64_t slices) {
    c->p.positions_per_slice = divide_up(c->p.length, clamp(slices, 1, c->p.length));
    c->p.slices = divide_up(c->p.length, c->p.positions_per_slice);
}

static xpu_status launch_columns(call *c, plane_kernel which, uint64_t work) {
    const bool all = which == COLUMN_APPLY && c->device->type == XPU_DEVICE_CPU; /* channels in a group */
    const int64_t blocks = all ? 1 : divide_up(c->p.channels, c->row_group.lanes * c->wide);
    return launch(c, which,
                  (xpu_range){.dims = 2,
                              .groups = {(size_t)blocks, (size_t)c->p.slices},
                              .local = {(size_t)c->row_group.lanes, 1},
                              .work = (uint64_t)elements(c) * work});
}

static bool is_empty(const xpu_plane_norm *args) {
    return args->batch == 0 || args->channels == 0 || args->length == 0;
}

static xpu_status start(call *c, xpu_stream *stream, const xpu_plane_norm *args) {
    *c = (call){.stream = stream, .args = args};
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &c->device));
    const xpu_dtype dtypes[] = {args->dtype, args->parameter_dtype, args->running_dtype, args->saved_dtype};
    for (int i = 0; i < 4; i++) XPU_TRY(check_floating(c->device, "norm", dtypes[i]));
    if (args->batch < 0 || args->channels < 0 || args->length < 0 || args->groups < 0 ||
        (args->groups && args->channels % args->groups))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "norm: a size is negative, or the channels are not divisible by the groups");
    if (args->groups && (args->channels_last || args->evaluate))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "group norm: channels_last and evaluate are not supported");
    norm_plane_params *p = &c->p;
    c->columns = !args->groups && (args->channels_last || args->length == 1);
    p->batch = args->batch;
    p->channels = args->channels;
    p->groups = args->groups;
    p->length = c->columns ? args->batch * args->length : args->length;
    p->planes = args->batch * args->channels;
    p->channel_elements = args->batch * args->length;
    p->weight = XPU_ADDR(args->weight);
    p->bias = XPU_ADDR(args->bias);
    p->running_mean = XPU_ADDR(args->running_mean);
    p->running_var = XPU_ADDR(args->running_var);
    p->evaluate = args->evaluate;
    p->eps = (float)args->eps;
    p->eps_rest = (float)(args->eps - p->eps);
    p->momentum = (float)args->momentum;
    p->momentum_rest = (float)(args->momentum - p->momentum);
    p->sets = args->groups ? args->batch * args->groups : args->channels;
    if (is_empty(args)) return XPU_SUCCESS;

    /* Few sets are split into slices, so that all compute units are busy. */
    const bool host = c->device->type == XPU_DEVICE_CPU;
    const int64_t wanted = host ? HOST_SETS : 4 * (int64_t)c->device->max_compute_units;
    if (c->columns) {
        c->row_group = (row_group){.lanes = host ? HOST_LANES : LANES};
        c->wide = host ? (int)clamp(divide_up(p->channels, HOST_LANES), 1, HOST_WIDE) : 1;
        const int64_t blocks = divide_up(p->channels, c->row_group.lanes * c->wide);
        slice_positions(c, clamp(divide_up(host ? wanted : 4 * wanted, blocks > 0 ? blocks : 1), 1,
                                 divide_up(p->length, LEAST_POSITIONS)));
    } else {
        const int64_t length = args->groups ? p->length * (args->channels / args->groups) : p->length;
        c->row_group = row_group_for(c->device, host ? length : length * args->batch);
        const int64_t slices =
            args->groups ? 1 : clamp(divide_up(wanted, p->sets > 0 ? p->sets : 1), 1, args->batch);
        p->planes_per_slice = divide_up(args->batch, slices > 0 ? slices : 1);
        p->slices =
            args->groups ? 1 : divide_up(args->batch, p->planes_per_slice > 0 ? p->planes_per_slice : 1);
        p->planes_per_row_group = rows_per_row_group_for(c->device, args->length, p->planes);
    }
    return XPU_SUCCESS;
}

/* Scratch memory for the partial results (`width` values each) and the coefficients. */
static xpu_status get_scratch(call *c, int64_t partials, int width) {
    const size_t size = xpu_dtype_size(compute_dtype(c->args->dtype));
    const int64_t coefficients = c->args->groups ? c->p.planes : c->p.channels;
    XPU_TRY(xpu_workspace_take(c->stream, (size_t)(partials * width + 4 * coefficients) * size, &c->scratch));
    c->p.partial = XPU_ADDR(c->scratch);
    c->p.coefficients = c->p.partial + (size_t)(partials * width) * size;
    return XPU_SUCCESS;
}

static xpu_status finish(call *c, xpu_status status) { return workspace_release(c->scratch, status); }

/* Computes y or dx from the coefficients. */
static xpu_status apply(call *c) {
    if (c->columns) {
        const int64_t across = c->device->type == XPU_DEVICE_CPU ? c->p.channels : LANES;
        slice_positions(c, divide_up(c->p.length, clamp(APPLY_ELEMENTS / across, 1, c->p.length)));
        return launch_columns(c, COLUMN_APPLY, 2);
    }
    return launch(c, PLANE_APPLY,
                  row_group_range(c->row_group, (uint64_t)divide_up(c->p.planes, c->p.planes_per_row_group),
                                  (uint64_t)elements(c) * 2));
}

static xpu_status forward(call *c, const void *output) {
    norm_plane_params *p = &c->p;
    if (!output) p->coefficients = 0;
    if (!p->evaluate) {
        if (c->columns)
            XPU_TRY(launch_columns(c, COLUMN_STATISTICS, 3));
        else
            XPU_TRY(launch(
                c, PLANE_STATISTICS,
                row_group_range(c->row_group, (uint64_t)(p->sets * p->slices), (uint64_t)elements(c) * 3)));
        if (c->args->groups) { /* statistics treat a set as one plane, application as its channels */
            XPU_TRY(launch_each(c, GROUP_FINISH, p->planes, 16));
            p->length = c->args->length;
            return apply(c);
        }
    }
    XPU_TRY(launch_each(c, BATCH_FINISH, p->channels, 16 * (uint64_t)p->slices));
    return output ? apply(c) : XPU_SUCCESS;
}

xpu_status xpu_plane_norm_forward(xpu_stream *stream, const xpu_plane_norm *args, const void *input,
                                  void *output, void *mean, void *rstd) {
    call c;
    XPU_TRY(start(&c, stream, args));
    if (is_empty(args))
        return args->evaluate ? XPU_SUCCESS
                              : statistics_of_empty(stream, args->saved_dtype, c.p.sets, mean, rstd);
    c.p.input = XPU_ADDR(input);
    c.p.result = XPU_ADDR(output);
    c.p.mean = XPU_ADDR(mean);
    c.p.rstd = XPU_ADDR(rstd);
    if (args->groups) c.p.length = args->length * (args->channels / args->groups);
    XPU_TRY(get_scratch(&c, c.p.sets * c.p.slices, 3));
    return finish(&c, forward(&c, output));
}

/* CPU: can everything be done in one launch with a row group per channel? */
static bool is_whole(const call *c) {
    return c->device->type == XPU_DEVICE_CPU && !c->columns && !c->args->groups && c->p.slices == 1;
}

static xpu_status backward(call *c, const void *grad_input) {
    norm_plane_params *p = &c->p;
    if (grad_input && is_whole(c))
        return launch(c, BATCH_BACKWARD,
                      row_group_range(c->row_group, (uint64_t)p->sets, (uint64_t)elements(c) * 5));
    if (c->columns)
        XPU_TRY(launch_columns(c, COLUMN_SUMS, 3));
    else
        XPU_TRY(
            launch(c, PLANE_SUMS,
                   row_group_range(c->row_group,
                                   (uint64_t)(c->args->groups ? divide_up(p->planes, p->planes_per_row_group)
                                                              : p->sets * p->slices),
                                   (uint64_t)elements(c) * 3)));
    if (c->args->groups) {
        if (p->grad_weight || p->grad_bias)
            XPU_TRY(launch_each(c, GROUP_PARAMETERS, p->channels, 4 * (uint64_t)p->batch));
        if (grad_input)
            XPU_TRY(launch_each(c, GROUP_FINISH_BACKWARD, p->sets, 16 * (uint64_t)(p->channels / p->groups)));
    } else {
        XPU_TRY(launch_each(c, BATCH_FINISH_BACKWARD, p->channels, 16 * (uint64_t)p->slices));
    }
    return grad_input ? apply(c) : XPU_SUCCESS;
}

xpu_status xpu_plane_norm_backward(xpu_stream *stream, const xpu_plane_norm *args, const void *grad_output,
                                   const void *input, const void *mean, const void *rstd, void *grad_input,
                                   void *grad_weight, void *grad_bias) {
    call c;
    XPU_TRY(start(&c, stream, args));
    if (is_empty(args)) return XPU_SUCCESS;
    c.p.input = XPU_ADDR(input);
    c.p.grad = XPU_ADDR(grad_output);
    c.p.result = XPU_ADDR(grad_input);
    c.p.mean = args->evaluate ? XPU_ADDR(args->running_mean) : XPU_ADDR(mean);
    c.p.rstd = args->evaluate ? XPU_ADDR(args->running_var) : XPU_ADDR(rstd);
    c.p.grad_weight = XPU_ADDR(grad_weight);
    c.p.grad_bias = XPU_ADDR(grad_bias);
    XPU_TRY(get_scratch(&c, args->groups ? c.p.planes : c.p.sets * c.p.slices, 2));
    return finish(&c, backward(&c, grad_input));
}
