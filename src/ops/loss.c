/* Negative log likelihood and gradient (kernels/loss.cl). */
#include "xpu/ops/loss.h"

#include "kernel.h"
#include "kernels/loss.h"
#include "row_group.h"
#include "xpu/trace.h"

#define LANES 256              /* of kernels with a work-item an element */
#define ROW_GROUP_TARGETS 4096 /* summed by one row_group */
#define MAX_SUBGROUPS 256

typedef enum loss_kernel { NLL_EACH, NLL_SUM, NLL_FINISH, NLL_BACKWARD } loss_kernel;

static xpu_status get_kernel(xpu_stream *stream, const xpu_nll_loss *args, loss_kernel which, row_group t,
                             xpu_kernel **kernel) {
    static const char *const names[] = {"nll_each", "nll_sum", "nll_finish", "nll_backward"};
    const int device = xpu_stream_device(stream);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_LOSS);
    row_group_spec(&spec, t, compute_dtype(args->dtype));
    spec_dtype(&spec, "T", args->dtype);
    spec_dtype(&spec, "TARGET", args->target_dtype);
    spec_enum(&spec, "BUILD_", names, which, 4);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "loss.cl", names[which], kernel, "%s %s", names[which],
                            dtype_token(args->dtype));
}

static xpu_status describe(xpu_stream *stream, const xpu_nll_loss *args, const xpu_device_properties **device,
                           loss_params *p) {
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), device));
    XPU_TRY(check_floating(*device, "nll_loss", args->dtype));
    if (args->target_dtype != XPU_INT64 && args->target_dtype != XPU_UINT8)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "nll_loss: targets of dtype %s; must be int64 or uint8",
                       xpu_dtype_name(args->target_dtype));
    *p = (loss_params){.target = XPU_ADDR(args->target),
                       .weight = XPU_ADDR(args->weight),
                       .batch = args->batch,
                       .classes = args->classes,
                       .inner = args->inner,
                       .ignore_index = args->ignore_index,
                       .mean = args->reduction == XPU_LOSS_MEAN,
                       .reduced = args->reduction != XPU_LOSS_NONE};
    return XPU_SUCCESS;
}

static xpu_status sum(xpu_stream *stream, const xpu_device_properties *device, const xpu_nll_loss *args,
                      loss_params *p) {
    const int64_t targets = p->batch * p->inner;
    const row_group t = row_group_for(device, targets < ROW_GROUP_TARGETS ? targets : ROW_GROUP_TARGETS);
    p->row_groups = (targets + ROW_GROUP_TARGETS - 1) / ROW_GROUP_TARGETS;
    p->row_groups = p->row_groups < 1 ? 1 : p->row_groups > MAX_SUBGROUPS ? MAX_SUBGROUPS : p->row_groups;
    p->per_row_group = (targets + p->row_groups - 1) / p->row_groups;

    void *partial = NULL;
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(stream, args, NLL_SUM, t, &kernel));
    if (p->row_groups > 1)
        XPU_TRY(xpu_workspace_take(stream, (size_t)p->row_groups * 2 * sizeof(double), &partial));
    p->partial = XPU_ADDR(partial);
    xpu_range range = row_group_range(t, (uint64_t)p->row_groups, (uint64_t)targets * 8);
    xpu_status status = xpu_launch(stream, kernel, &range, p, sizeof *p);
    if (status == XPU_SUCCESS && p->row_groups > 1) {
        status = get_kernel(stream, args, NLL_FINISH, t, &kernel);
        range = row_group_range(t, 1, (uint64_t)p->row_groups);
        if (status == XPU_SUCCESS) status = xpu_launch(stream, kernel, &range, p, sizeof *p);
    }
    return workspace_release(partial, status);
}

static xpu_status each(xpu_stream *stream, const xpu_nll_loss *args, loss_params *p) {
    const uint64_t targets = (uint64_t)(p->batch * p->inner);
    const xpu_range range = {
        .dims = 1, .groups = {targets / LANES + 1}, .local = {LANES}, .work = targets * 8};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(stream, args, NLL_EACH, (row_group){.lanes = 1}, &kernel));
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

xpu_status xpu_nll_loss_forward(xpu_stream *stream, const xpu_nll_loss *args, const void *input, void *output,
                                void *total_weight, xpu_fault *fault) {
    const xpu_device_properties *device;
    loss_params p;
    XPU_TRY(describe(stream, args, &device, &p));
    p.input = XPU_ADDR(input);
    p.output = XPU_ADDR(output);
    p.total_weight = XPU_ADDR(total_weight);
    xpu_fault *place = NULL;
    if (fault) XPU_TRY(xpu_fault_watch(stream, &place));
    p.watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR("nll_loss")};
    XPU_TRY(p.reduced ? sum(stream, device, args, &p) : each(stream, args, &p));
    if (fault) xpu_fault_take(stream, place, fault);
    return XPU_SUCCESS;
}

xpu_status xpu_nll_loss_backward(xpu_stream *stream, const xpu_nll_loss *args, const void *grad_output,
                                 const void *total_weight, void *grad_input) {
    const xpu_device_properties *device;
    loss_params p;
    XPU_TRY(describe(stream, args, &device, &p));
    p.grad_output = XPU_ADDR(grad_output);
    p.total_weight = XPU_ADDR(total_weight);
    p.grad_input = XPU_ADDR(grad_input);
    xpu_fault *place;
    XPU_TRY(xpu_fault_watch(stream, &place));
    p.watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR("nll_loss_backward")};
    const uint64_t row = (uint64_t)(p.classes * p.inner);
    const xpu_range range = {.dims = 2,
                             .groups = {(size_t)((row + LANES - 1) / LANES), (size_t)p.batch},
                             .local = {LANES, 1},
                             .work = row * (uint64_t)p.batch * 2};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(stream, args, NLL_BACKWARD, (row_group){.lanes = 1}, &kernel));
    XPU_TRY(xpu_launch(stream, kernel, &range, &p, sizeof p));
    return xpu_fault_raise(stream, place);
}
