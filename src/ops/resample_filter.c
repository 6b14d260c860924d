/* Antialiased resampling, one dimension after the other (kernels/resample_filter.cl). */
#include "ops/resample_filter.h"

#include "kernels/resample_filter.h"
#include "ops/kernel.h"
#include "ops/row_group.h"

#define GROUP 256 /* work-items */
#define MOST_LANES 64

typedef enum filter_kernel { FILTER_FORWARD, FILTER_TOTALS, FILTER_BACKWARD } filter_kernel;

/* The resampling of one dimension. */
typedef struct step {
    int dimension;
    const void *from;
    void *to;
    xpu_dtype source, result;
} step;

static xpu_status get_kernel(int device, const xpu_resample *args, const step *s, bool inner,
                             filter_kernel which, xpu_kernel **kernel) {
    static const char *const names[] = {"filter_forward", "filter_totals", "filter_backward"};
    static const char *const kinds[] = {"LINEAR", "CUBIC", "LANCZOS"};
    const char *name = names[which];
    const int kind = (int)args->kind - XPU_RESAMPLE_FILTER_LINEAR;
    const bool wide = args->dtype == XPU_FLOAT64;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_RESAMPLE_FILTER);
    spec_dtype(&spec, "SRC", s->source);
    spec_dtype(&spec, "DST", s->result);
    spec_option_flag(&spec, "DST_BYTE", s->result == XPU_UINT8);
    spec_flag(&spec, "ACC_IS_DOUBLE", wide);
    spec_option(&spec, "ACC=", wide ? "double" : "float");
    spec_flag(&spec, "INNER", inner);
    spec_enum(&spec, "FILTER_", kinds, kind, 2);
    spec_enum(&spec, "BUILD_", names, which, 2);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "resample_filter.cl", name, kernel, "%s %s %s", name, kinds[kind],
                            dtype_token(args->dtype));
}

/* Products of the current sizes outside and inside of dimension d. */
static void around(const xpu_resample *args, const int *size, int d, int64_t *outer, int64_t *inner) {
    *outer = args->batch * (args->channels_last ? 1 : args->channels);
    *inner = args->channels_last ? args->channels : 1;
    for (int i = 0; i < d; i++) *outer *= size[i];
    for (int i = d + 1; i < 3; i++) *inner *= size[i];
}

static xpu_status launch(xpu_stream *stream, const xpu_resample *args, const step *s, const int *size,
                         bool backward) {
    const int device = xpu_stream_device(stream), d = s->dimension;
    resample_filter_params p = {.from = XPU_ADDR(s->from),
                                .to = XPU_ADDR(s->to),
                                .in = args->in[d],
                                .out = args->out[d],
                                .scale = (float)args->scale[d]};
    if (args->dtype == XPU_FLOAT64) p.scale_rest = (float)(args->scale[d] - p.scale);
    around(args, size, d, &p.outer, &p.inner);
    const bool inner = p.inner > 1;
    const uint64_t length = (uint64_t)(backward ? p.in : p.out);
    const uint64_t lane_count = inner ? (uint64_t)p.inner : length;
    const uint64_t rows = (uint64_t)p.outer * (inner ? length : 1);
    const uint64_t taps = (uint64_t)(p.in / p.out + 1) * 8;
    xpu_kernel *kernel;
    void *totals = NULL;
    if (backward) {
        XPU_TRY(get_kernel(device, args, s, inner, FILTER_TOTALS, &kernel));
        XPU_TRY(xpu_workspace_take(stream, (size_t)p.out * sizeof(double), &totals));
        p.totals = XPU_ADDR(totals);
        const xpu_range range = {.dims = 1,
                                 .groups = {((size_t)p.out + MOST_LANES - 1) / MOST_LANES},
                                 .local = {MOST_LANES},
                                 .work = (uint64_t)p.out * taps};
        const xpu_status status = xpu_launch(stream, kernel, &range, &p, sizeof p);
        if (status != XPU_SUCCESS) return workspace_release(totals, status);
    }
    size_t lanes = 8;
    while (lanes < lane_count && lanes < MOST_LANES) lanes *= 2;
    const size_t group_rows = GROUP / lanes;
    const xpu_range range = {
        .dims = 2,
        .groups = {(lane_count + lanes - 1) / lanes, (rows + group_rows - 1) / group_rows},
        .local = {lanes, group_rows},
        .work = lane_count * rows * taps};
    xpu_status status =
        get_kernel(device, args, s, inner, backward ? FILTER_BACKWARD : FILTER_FORWARD, &kernel);
    if (status == XPU_SUCCESS) status = xpu_launch(stream, kernel, &range, &p, sizeof p);
    return workspace_release(totals, status);
}

/* Forward resamples the last dimension first, backward last. Intermediate results are not rounded. */
static xpu_status run(xpu_stream *stream, const xpu_resample *args, bool backward, const void *from,
                      void *to) {
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &device));
    if (backward || args->dtype != XPU_UINT8) XPU_TRY(check_floating(device, "resampling", args->dtype));
    int size[3];
    int64_t numel = args->batch * args->channels;
    for (int d = 0; d < 3; d++) {
        size[d] = backward ? args->out[d] : args->in[d];
        numel *= (int64_t)args->in[d] * args->out[d];
    }
    if (numel == 0) return XPU_SUCCESS;

    int dimensions[3], steps = 0;
    for (int i = 0; i < 3; i++) {
        const int d = backward ? i : 2 - i;
        if (args->in[d] != args->out[d] || args->scale[d] != 1) dimensions[steps++] = d;
    }
    if (steps == 0) dimensions[steps++] = 2;
    const xpu_dtype between = compute_dtype(args->dtype);
    void *held = NULL;
    xpu_status status = XPU_SUCCESS;
    for (int i = 0; i < steps && status == XPU_SUCCESS; i++) {
        const int d = dimensions[i];
        const bool last = i == steps - 1;
        void *next = NULL;
        int64_t outer, inner;
        step s = {d, i == 0 ? from : held, to, i == 0 ? args->dtype : between, last ? args->dtype : between};
        around(args, size, d, &outer, &inner);
        const int length = backward ? args->in[d] : args->out[d];
        if (!last) {
            const size_t bytes = (size_t)(outer * inner * length) * xpu_dtype_size(between);
            status = xpu_workspace_take(stream, bytes, &next);
            s.to = next;
        }
        if (status == XPU_SUCCESS) status = launch(stream, args, &s, size, backward);
        size[d] = length;
        status = workspace_release(held, status);
        held = next;
    }
    return workspace_release(held, status);
}

xpu_status resample_filter_forward(xpu_stream *stream, const xpu_resample *args, const void *input,
                                   void *output) {
    return run(stream, args, false, input, output);
}

xpu_status resample_filter_backward(xpu_stream *stream, const xpu_resample *args, const void *grad_output,
                                    void *grad_input) {
    return run(stream, args, true, grad_output, grad_input);
}
