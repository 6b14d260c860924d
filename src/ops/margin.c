/* Multi-label margin loss and gradient (kernels/margin.cl). */
#include "xpu/ops/margin.h"

#include "kernels/margin.h"
#include "ops/kernel.h"
#include "ops/row_group.h"

#define GROUP 64

typedef enum margin_kernel { TARGETS, LOSS, BACKWARD } margin_kernel;

static xpu_status get_kernel(int device, const xpu_margin *args, margin_kernel which, row_group t,
                             xpu_kernel **kernel) {
    static const char *const names[] = {"margin_targets", "margin_loss", "margin_backward"};
    kernel_spec spec;
    spec_begin(&spec, FAMILY_MARGIN);
    row_group_spec(&spec, t, compute_dtype(args->dtype));
    spec_dtype(&spec, "T", args->dtype);
    spec_enum(&spec, "BUILD_", names, which, 4);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "margin.cl", names[which], kernel, "%s %s", names[which],
                            dtype_token(args->dtype));
}

static xpu_status run_each(xpu_stream *stream, const xpu_margin *args, margin_kernel which,
                           const margin_params *p) {
    const uint64_t rows = (uint64_t)args->rows, classes = (uint64_t)args->classes;
    const xpu_range range = {.dims = 2,
                             .groups = {(size_t)((classes + GROUP - 1) / GROUP), (size_t)rows},
                             .local = {GROUP, 1},
                             .work = rows * classes * 16};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), args, which, (row_group){.lanes = 1}, &kernel));
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

static xpu_status describe(xpu_stream *stream, const xpu_margin *args, const xpu_device_properties **device,
                           margin_params *p) {
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), device));
    XPU_TRY(check_floating(*device, "multilabel_margin_loss", args->dtype));
    p->targets = XPU_ADDR(args->targets);
    p->rows = args->rows;
    p->classes = args->classes;
    return XPU_SUCCESS;
}

xpu_status xpu_margin_forward(xpu_stream *stream, const xpu_margin *args, const void *scores, void *is_target,
                              void *losses, xpu_fault *fault) {
    const xpu_device_properties *device;
    margin_params p = {
        .scores = XPU_ADDR(scores), .is_target = XPU_ADDR(is_target), .losses = XPU_ADDR(losses)};
    XPU_TRY(describe(stream, args, &device, &p));
    if (args->rows == 0 || args->classes == 0) return XPU_SUCCESS;
    xpu_fault *place = NULL;
    if (fault) XPU_TRY(xpu_fault_watch(stream, &place));
    p.watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR("multilabel_margin_loss")};
    XPU_TRY(run_each(stream, args, TARGETS, &p));
    const row_group t = row_group_for(device, args->classes);
    const xpu_range range =
        row_group_range(t, (uint64_t)args->rows, (uint64_t)args->rows * (uint64_t)args->classes * 16);
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), args, LOSS, t, &kernel));
    XPU_TRY(xpu_launch(stream, kernel, &range, &p, sizeof p));
    if (fault) xpu_fault_take(stream, place, fault);
    return XPU_SUCCESS;
}

xpu_status xpu_margin_backward(xpu_stream *stream, const xpu_margin *args, const void *grad_losses,
                               const void *scores, const void *is_target, void *grad_scores) {
    const xpu_device_properties *device;
    margin_params p = {.scores = XPU_ADDR(scores),
                       .is_target = XPU_ADDR(is_target),
                       .losses = XPU_ADDR(grad_losses),
                       .grad_scores = XPU_ADDR(grad_scores)};
    XPU_TRY(describe(stream, args, &device, &p));
    if (args->rows == 0 || args->classes == 0) return XPU_SUCCESS;
    xpu_fault *place;
    XPU_TRY(xpu_fault_watch(stream, &place));
    p.watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR("multilabel_margin_loss_backward")};
    XPU_TRY(run_each(stream, args, BACKWARD, &p));
    return xpu_fault_raise(stream, place);
}
