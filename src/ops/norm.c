/* Layer norm and RMS norm along rows. */
#include "norm.h"

#include "kernel.h"
#include "kernels/norm_row.h"
#include "row_group.h"
#include "xpu/memory.h"
#include "xpu/trace.h"

#define COLUMN_LANES 32
#define HOST_ROW_GROUPS 64 /* backward: most partial gradients of the parameters */
#define SHARE_BYTES (64 << 20)

typedef enum row_kernel { FORWARD, BACKWARD, BACKWARD_PARTIAL, SUM_COLUMNS } row_kernel;

static xpu_status get_kernel(int index, const xpu_device_properties *device, const xpu_row_norm *args,
                             row_kernel which, const row_plan *plan, xpu_kernel **kernel) {
    static const char *const names[] = {"norm_row", "norm_row_backward", "norm_row_backward",
                                        "norm_row_columns"};
    const int pack = plan->pack;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_NORM);
    row_group_spec(&spec, plan->row_group, compute_dtype(args->dtype));
    spec_dtype(&spec, "T", args->dtype);
    spec_dtype(&spec, "W", args->parameter_dtype);
    spec_int(&spec, "REGISTERS", plan->registers, 8);
    spec_int(&spec, "VECTOR_SIZE", pack, 8);
    spec_option(&spec, "T_BITS=", vector_type(pack, args->dtype));
    spec_option(&spec, "W_BITS=", vector_type(pack, args->parameter_dtype));
    spec_enum(&spec, "BUILD_", names, which, 4);
    spec_flag(&spec, "RMS", args->rms);
    spec_flag(&spec, "HAS_WEIGHT", args->weight);
    spec_flag(&spec, "HAS_BIAS", args->bias);
    spec_option_flag(&spec, "PARTIAL", which == BACKWARD_PARTIAL);
    if (which == SUM_COLUMNS) {
        spec_option_int(&spec, "COLUMN_LANES", COLUMN_LANES);
        spec_option_int(&spec, "SLICES", device->type == XPU_DEVICE_CPU ? 1 : 8);
    }
    spec_int_if(&spec, plan->length, "LENGTH", plan->length, 32);
    *kernel = kernel_find(index, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(index, &spec, "norm_row.cl", names[which], kernel, "%s_%s %s",
                            args->rms ? "rms" : "layer", names[which], dtype_token(args->dtype));
}

static xpu_status check(const xpu_device_properties *device, const xpu_row_norm *args) {
    XPU_TRY(check_floating(device, "layer norm", args->dtype));
    XPU_TRY(check_floating(device, "layer norm", args->parameter_dtype));
    if (args->rows < 0 || args->length < 0 || args->length > UINT32_MAX)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "layer norm: a size is negative, or a row has 2^32 elements or more");
    return XPU_SUCCESS;
}

static norm_row_params describe(const xpu_row_norm *args) {
    norm_row_params p = {.weight = XPU_ADDR(args->weight),
                         .bias = XPU_ADDR(args->bias),
                         .rows = args->rows,
                         .length = (uint32_t)args->length,
                         .eps = (float)args->eps};
    p.eps_rest = (float)(args->eps - p.eps);
    return p;
}

xpu_status statistics_of_empty(xpu_stream *stream, xpu_dtype dtype, int64_t count, void *mean, void *rstd) {
    const uint64_t zero = 0;
    const uint64_t nan = dtype == XPU_FLOAT64   ? 0x7ff8000000000000
                         : dtype == XPU_FLOAT32 ? 0x7fc00000
                         : dtype == XPU_FLOAT16 ? 0x7e00
                                                : 0x7fc0;
    const size_t size = xpu_dtype_size(dtype);
    if (mean) XPU_TRY(xpu_memset(stream, mean, &zero, size, (size_t)count * size));
    return xpu_memset(stream, rstd, &nan, size, (size_t)count * size);
}

xpu_status xpu_row_norm_forward(xpu_stream *stream, const xpu_row_norm *args, const void *input, void *output,
                                void *mean, void *rstd) {
    const int index = xpu_stream_device(stream);
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(index, &device));
    XPU_TRY(check(device, args));
    if (args->rows == 0) return XPU_SUCCESS;
    if (args->length == 0)
        return statistics_of_empty(stream, compute_dtype(args->dtype), args->rows, args->rms ? NULL : mean,
                                   rstd);

    norm_row_params p = describe(args);
    p.input = XPU_ADDR(input);
    p.result = XPU_ADDR(output);
    const size_t size = xpu_dtype_size(args->dtype), parameter = xpu_dtype_size(args->parameter_dtype);
    const row_plan plan = plan_row(device, args->length, size > parameter ? size : parameter,
                                   p.input | p.result | p.weight | p.bias);
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(index, device, args, FORWARD, &plan, &kernel));
    p.mean = XPU_ADDR(mean);
    p.rstd = XPU_ADDR(rstd);
    p.rows_per_row_group = rows_per_row_group_for(device, args->length, args->rows);
    const uint64_t row_groups = ((uint64_t)args->rows + p.rows_per_row_group - 1) / p.rows_per_row_group;
    const xpu_range range =
        row_group_range(plan.row_group, row_groups, (uint64_t)args->rows * (uint64_t)args->length * 4);
    return xpu_launch(stream, kernel, &range, &p, sizeof p);
}

/* Number of row groups if each accumulates a partial gradient of the parameters. */
static int64_t sharing_row_groups(const xpu_device_properties *device, const xpu_row_norm *args) {
    const int64_t share = TUNED(device->type == XPU_DEVICE_CPU, NORM_SHARE_ROWS);
    int64_t row_groups = (args->rows + share - 1) / share, most, fit;
    most = device->type == XPU_DEVICE_CPU ? HOST_ROW_GROUPS : 8 * (int64_t)device->max_compute_units;
    if (row_groups < (int64_t)device->max_compute_units) row_groups = (int64_t)device->max_compute_units;
    fit = SHARE_BYTES / (args->length * 8);
    if (row_groups > most) row_groups = most;
    if (row_groups > fit) row_groups = fit;
    if (row_groups > args->rows) row_groups = args->rows;
    return row_groups < 1 ? 1 : row_groups;
}

xpu_status xpu_row_norm_backward(xpu_stream *stream, const xpu_row_norm *args, const void *grad_output,
                                 const void *input, const void *mean, const void *rstd, void *grad_input,
                                 void *grad_weight, void *grad_bias) {
    const int index = xpu_stream_device(stream);
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(index, &device));
    XPU_TRY(check(device, args));
    const bool share = grad_weight || grad_bias;
    if (args->length == 0 || (args->rows == 0 && !share)) return XPU_SUCCESS;

    norm_row_params p = describe(args);
    p.input = XPU_ADDR(input);
    p.grad = XPU_ADDR(grad_output);
    p.result = XPU_ADDR(grad_input);
    p.mean = XPU_ADDR(mean);
    p.rstd = XPU_ADDR(rstd);
    p.grad_weight = XPU_ADDR(grad_weight);
    p.grad_bias = XPU_ADDR(grad_bias);

    const size_t length = (size_t)args->length, width = xpu_dtype_size(compute_dtype(args->dtype));
    const uint64_t elements = (uint64_t)args->rows * length;
    row_plan plan = plan_row(device, args->length, width, 1); /* element by element */
    plan.row_group.row_groups = 1; /* each row group writes a partial gradient, so none may be idle */
    const row_plan no_row_group = {.row_group = {.lanes = 1}, .pack = 1};
    xpu_kernel *rows, *columns = NULL;
    XPU_TRY(get_kernel(index, device, args, share ? BACKWARD_PARTIAL : BACKWARD, &plan, &rows));
    if (share) XPU_TRY(get_kernel(index, device, args, SUM_COLUMNS, &no_row_group, &columns));

    /* dx goes to scratch memory if it isn't requested. */
    void *scratch = NULL;
    size_t partial_size = 0, unwanted = grad_input ? 0 : elements * xpu_dtype_size(args->dtype);
    if (share && args->rows > 0) {
        p.row_groups = sharing_row_groups(device, args);
        p.rows_per_row_group = (uint32_t)((args->rows + p.row_groups - 1) / p.row_groups);
        p.row_groups = (args->rows + p.rows_per_row_group - 1) / p.rows_per_row_group;
        partial_size = (size_t)p.row_groups * 2 * length * width;
    } else if (args->rows > 0) {
        p.rows_per_row_group = rows_per_row_group_for(device, args->length, args->rows);
        p.row_groups = (args->rows + p.rows_per_row_group - 1) / p.rows_per_row_group;
    }
    if (partial_size + unwanted > 0) XPU_TRY(xpu_workspace_take(stream, partial_size + unwanted, &scratch));
    p.partial = XPU_ADDR(scratch);
    if (!grad_input) p.result = p.partial + partial_size;

    const xpu_range row_range = row_group_range(plan.row_group, (uint64_t)p.row_groups, elements * 6);
    xpu_status status = args->rows > 0 ? xpu_launch(stream, rows, &row_range, &p, sizeof p) : XPU_SUCCESS;
    if (status == XPU_SUCCESS && share) {
        const bool host = device->type == XPU_DEVICE_CPU;
        const xpu_range range = {.dims = 2,
                                 .groups = {(length + COLUMN_LANES - 1) / COLUMN_LANES, 1},
                                 .local = {COLUMN_LANES, host ? 1 : 8},
                                 .work = (uint64_t)p.row_groups * length * 2};
        status = xpu_launch(stream, columns, &range, &p, sizeof p);
    }
    return workspace_release(scratch, status);
}
