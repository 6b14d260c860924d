/* Deformable convolution: columns and their gradients (kernels/deform.cl). */
#include "xpu/ops/deform.h"

#include "kernel.h"
#include "kernels/deform.h"
#include "row_group.h"

enum { COLUMNS, GRAD_IMAGE, GRAD_OFFSET };

static xpu_status run(xpu_stream *stream, int which, const xpu_deform *args, deform_params *p,
                      int64_t total) {
    static const char *const names[] = {"deform_columns", "deform_grad_image", "deform_grad_offset"};
    const int index = xpu_stream_device(stream);
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(index, &device));
    XPU_TRY(check_floating(device, "deform", args->dtype));
    if (p->grad_image && args->dtype == XPU_FLOAT64 && !device->has_atomic64)
        return op_fail(
            XPU_ERROR_NOT_SUPPORTED,
            "deform_conv2d: the gradient in float64 needs 64-bit atomics, which this device lacks");
    if (args->groups < 1 || args->channels % args->groups)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "deform_conv2d: %d channels can't be divided into %d groups", args->channels,
                       args->groups);
    p->total = total;
    p->channels = args->channels;
    p->groups = args->groups;
    for (int d = 0; d < 2; d++) {
        p->in[d] = args->in[d];
        p->out[d] = args->out[d];
        p->window[d] = args->kernel[d];
        p->stride[d] = args->stride[d];
        p->padding[d] = args->padding[d];
        p->dilation[d] = args->dilation[d];
    }
    if (total == 0) return XPU_SUCCESS;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_DEFORM);
    spec_dtype(&spec, "T", args->dtype);
    spec_option(&spec, "ACC=", args->dtype == XPU_FLOAT64 ? "double" : "float");
    spec_option_flag(&spec, "ACC_IS_DOUBLE", args->dtype == XPU_FLOAT64);
    spec_enum(&spec, "BUILD_", names, which, 2);
    xpu_kernel *kernel = kernel_find(index, &spec);
    if (!kernel)
        XPU_TRY(kernel_from_file(index, &spec, "deform.cl", names[which], &kernel, "%s %s", names[which],
                                 dtype_token(args->dtype)));
    const xpu_range range = {.dims = 1,
                             .groups = {((size_t)total + 63) / 64},
                             .local = {64},
                             .work = (uint64_t)total * (uint64_t)(args->kernel[0] * args->kernel[1]) * 32};
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

static int64_t places(const xpu_deform *args) { return args->batch * args->out[0] * args->out[1]; }

xpu_status xpu_deform_columns(xpu_stream *stream, const xpu_deform *args, const void *image,
                              const void *offset, const void *mask, void *columns) {
    deform_params p = {.image = XPU_ADDR(image),
                       .offset = XPU_ADDR(offset),
                       .mask = XPU_ADDR(mask),
                       .columns = XPU_ADDR(columns)};
    return run(stream, COLUMNS, args, &p, places(args) * args->channels);
}

xpu_status xpu_deform_backward(xpu_stream *stream, const xpu_deform *args, const void *grad_columns,
                               const void *image, const void *offset, const void *mask, void *grad_image,
                               void *grad_offset, void *grad_mask) {
    deform_params p = {.image = XPU_ADDR(image),
                       .offset = XPU_ADDR(offset),
                       .mask = XPU_ADDR(mask),
                       .columns = XPU_ADDR(grad_columns),
                       .grad_image = XPU_ADDR(grad_image),
                       .grad_offset = XPU_ADDR(grad_offset),
                       .grad_mask = XPU_ADDR(grad_mask)};
    if (grad_image) XPU_TRY(run(stream, GRAD_IMAGE, args, &p, places(args) * args->channels));
    p.grad_image = 0;
    return run(stream, GRAD_OFFSET, args, &p,
               places(args) * args->groups * args->kernel[0] * args->kernel[1]);
}
