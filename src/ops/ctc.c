/* CTC loss and gradient (kernels/ctc.cl). */
#include "xpu/ops/ctc.h"

#include "kernels/ctc.h"
#include "ops/kernel.h"
#include "ops/row_group.h"

#define MOST_LANES 256 /* of the work-group of a batch entry */
#define GRAD_LANES 64

typedef enum ctc_kernel { CTC_ALPHA, CTC_BETA, CTC_LINKS, CTC_GRAD } ctc_kernel;

static xpu_status get_kernel(xpu_stream *stream, const xpu_ctc *args, ctc_kernel which, int lanes,
                             xpu_kernel **kernel) {
    static const char *const names[] = {"ctc_alpha", "ctc_beta", "ctc_links", "ctc_grad"};
    const int device = xpu_stream_device(stream);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_CTC);
    row_group_spec(&spec, (row_group){.lanes = lanes}, args->dtype);
    spec_dtype(&spec, "T", args->dtype);
    spec_dtype(&spec, "TARGET", args->target_dtype);
    spec_enum(&spec, "BUILD_", names, which, 4);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "ctc.cl", names[which], kernel, "%s %s", names[which],
                            dtype_token(args->dtype));
}

static xpu_status describe(xpu_stream *stream, const xpu_ctc *args, ctc_params *p) {
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &device));
    if (args->dtype != XPU_FLOAT32 && !(args->dtype == XPU_FLOAT64 && device->has_fp64))
        return op_unsupported_dtype("ctc_loss", args->dtype, device);
    if (args->target_dtype != XPU_INT32 && args->target_dtype != XPU_INT64)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "ctc_loss: targets of dtype %s; must be int32 or int64",
                       xpu_dtype_name(args->target_dtype));
    if (args->blank < 0 || args->blank >= args->labels)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "ctc_loss: blank is %lld, which is not one of the %lld labels", (long long)args->blank,
                       (long long)args->labels);
    *p = (ctc_params){.log_probs = XPU_ADDR(args->log_probs),
                      .targets = XPU_ADDR(args->targets),
                      .input_lengths = XPU_ADDR(args->input_lengths),
                      .target_lengths = XPU_ADDR(args->target_lengths),
                      .target_starts = XPU_ADDR(args->target_starts),
                      .time = args->time,
                      .batch = args->batch,
                      .labels = args->labels,
                      .states = 2 * args->longest + 1,
                      .longest = args->longest,
                      .blank = args->blank,
                      .zero_infinity = args->zero_infinity};
    return XPU_SUCCESS;
}

/* Runs a recursion (alpha or beta) for all batch entries. */
static xpu_status walk(xpu_stream *stream, const xpu_ctc *args, ctc_kernel which, const ctc_params *p) {
    int lanes = 16;
    while (lanes < p->states && lanes < MOST_LANES) lanes *= 2;
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(stream, args, which, lanes, &kernel));
    const uint64_t work = (uint64_t)(args->batch * (args->time + 1) * p->states) * 32;
    const xpu_range range = row_group_range((row_group){.lanes = lanes}, (uint64_t)args->batch, work);
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

xpu_status xpu_ctc_forward(xpu_stream *stream, const xpu_ctc *args, void *loss, void *log_alpha,
                           xpu_fault *fault) {
    ctc_params p;
    XPU_TRY(describe(stream, args, &p));
    if (args->batch == 0) return XPU_SUCCESS;
    p.loss = XPU_ADDR(loss);
    p.alpha = XPU_ADDR(log_alpha);
    xpu_fault *place = NULL;
    if (fault) XPU_TRY(xpu_fault_watch(stream, &place));
    p.watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR("ctc_loss")};
    XPU_TRY(walk(stream, args, CTC_ALPHA, &p));
    if (fault) xpu_fault_take(stream, place, fault);
    return XPU_SUCCESS;
}

static xpu_status link_targets(xpu_stream *stream, const xpu_ctc *args, const ctc_params *p) {
    if (args->longest == 0) return XPU_SUCCESS;
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(stream, args, CTC_LINKS, GRAD_LANES, &kernel));
    const xpu_range range = {
        .dims = 2,
        .groups = {((size_t)args->longest + GRAD_LANES - 1) / GRAD_LANES, (size_t)args->batch},
        .local = {GRAD_LANES, 1},
        .work = (uint64_t)(args->longest * args->longest * args->batch)};
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

static xpu_status gradients(xpu_stream *stream, const xpu_ctc *args, const ctc_params *p) {
    XPU_TRY(walk(stream, args, CTC_BETA, p));
    XPU_TRY(link_targets(stream, args, p));
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(stream, args, CTC_GRAD, GRAD_LANES, &kernel));
    const uint64_t steps = (uint64_t)(args->batch * args->time);
    const xpu_range range = row_group_range((row_group){.lanes = GRAD_LANES}, steps,
                                            steps * (uint64_t)(args->labels + 4 * p->states) * 8);
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

xpu_status xpu_ctc_backward(xpu_stream *stream, const xpu_ctc *args, const void *grad_loss, const void *loss,
                            const void *log_alpha, void *grad) {
    ctc_params p;
    XPU_TRY(describe(stream, args, &p));
    if (args->batch == 0 || args->time == 0) return XPU_SUCCESS;
    p.loss = XPU_ADDR(loss);
    p.grad_loss = XPU_ADDR(grad_loss);
    p.alpha = XPU_ADDR(log_alpha);
    p.grad = XPU_ADDR(grad);
    const size_t beta_bytes = (size_t)(args->batch * args->time * p.states) * xpu_dtype_size(args->dtype);
    const size_t link_bytes = (size_t)(args->batch * args->longest) * sizeof(int32_t);
    void *workspace;
    XPU_TRY(xpu_workspace_take(stream, beta_bytes + link_bytes, &workspace));
    p.beta = XPU_ADDR(workspace);
    p.links = p.beta + beta_bytes;
    xpu_fault *place;
    xpu_status status = xpu_fault_watch(stream, &place);
    p.watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR("ctc_loss_backward")};
    if (status == XPU_SUCCESS) status = gradients(stream, args, &p);
    if (status == XPU_SUCCESS) status = xpu_fault_raise(stream, place);
    return workspace_release(workspace, status);
}
