/* Region-of-interest operators and gradients (kernels/roi.cl). */
#include "xpu/ops/roi.h"

#include "kernel.h"
#include "kernels/roi.h"
#include "row_group.h"

/* Channels of a work-item, which share the samples' positions. */
static int channels_together(const xpu_roi *args) { return args->kind == XPU_ROI_ALIGN ? 8 : 1; }

/* Does each bin read a channel of its own? */
static bool is_by_place(const xpu_roi *args) {
    return args->kind == XPU_ROI_PS_ALIGN || args->kind == XPU_ROI_PS_POOL;
}

static xpu_status get_kernel(int device, const xpu_roi *args, bool backward, xpu_kernel **kernel) {
    static const char *const kinds[] = {"ALIGN", "MAXIMUM", "ALIGN", "MEAN"};
    static const char *const labels[] = {"roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"};
    const char *name = backward ? "roi_backward" : "roi_forward";
    kernel_spec spec;
    spec_begin(&spec, FAMILY_ROI);
    spec_dtype(&spec, "T", args->dtype);
    spec_option(&spec, "ACC=", args->dtype == XPU_FLOAT64 ? "double" : "float");
    spec_option_flag(&spec, "ACC_IS_DOUBLE", args->dtype == XPU_FLOAT64);
    spec_enum(&spec, "", kinds, args->kind, 4);
    spec_option_flag(&spec, "POSITION_SENSITIVE", is_by_place(args));
    spec_option_int(&spec, "CHANNELS_PER_ITEM", channels_together(args));
    spec_key_only(&spec, "backward", backward, 1);
    spec_option(&spec, "BUILD_", name);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "roi.cl", name, kernel, "%s%s %s", labels[args->kind],
                            backward ? " backward" : "", dtype_token(args->dtype));
}

static xpu_status run(xpu_stream *stream, const xpu_roi *args, bool backward, roi_params *p,
                      xpu_fault *fault) {
    const int index = xpu_stream_device(stream);
    const xpu_device_properties *device;
    if (fault) fault->state = 0;
    XPU_TRY(xpu_device_get_properties(index, &device));
    XPU_TRY(check_floating(device, "roi", args->dtype));
    if (backward && args->dtype == XPU_FLOAT64 && !device->has_atomic64)
        return op_fail(XPU_ERROR_NOT_SUPPORTED,
                       "roi: the gradient in float64 needs 64-bit atomics, which this device lacks");
    if (args->rows < 1 || args->columns < 1 || args->height < 0 || args->width < 0 || args->samples < 0)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "roi: %d x %d bins, images of %d x %d and %d samples are not valid sizes", args->rows,
                       args->columns, args->height, args->width, args->samples);
    const bool by_place = is_by_place(args);
    const int bins = args->rows * args->columns;
    if (by_place && args->channels % bins)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "roi: %d channels are not divisible by %d bins",
                       args->channels, bins);
    p->planes = by_place ? args->channels / bins : args->channels;
    const int together = channels_together(args);
    p->total = args->regions * ((p->planes + together - 1) / together) * bins;
    p->images = args->images;
    p->channels = args->channels;
    p->height = args->height;
    p->width = args->width;
    p->rows = args->rows;
    p->columns = args->columns;
    p->samples = args->samples;
    p->aligned = args->aligned;
    p->scale = (float)args->scale;
    p->scale_rest = (float)(args->scale - (double)p->scale);
    if (p->total == 0) return XPU_SUCCESS;
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(index, args, backward, &kernel));
    xpu_fault *place = NULL;
    if (fault) XPU_TRY(xpu_fault_watch(stream, &place));
    p->watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR("regions of interest")};
    const xpu_range range = {.dims = 1,
                             .groups = {((size_t)p->total + 63) / 64},
                             .local = {64},
                             .work = (uint64_t)p->total * (uint64_t)together * 64};
    XPU_TRY(xpu_launch(stream, kernel, &range, p, sizeof *p));
    if (fault) xpu_fault_take(stream, place, fault);
    return XPU_SUCCESS;
}

xpu_status xpu_roi_forward(xpu_stream *stream, const xpu_roi *args, const void *image, const void *regions,
                           void *output, int32_t *argmax, xpu_fault *fault) {
    roi_params p = {.image = XPU_ADDR(image),
                    .regions = XPU_ADDR(regions),
                    .output = XPU_ADDR(output),
                    .argmax = XPU_ADDR(argmax)};
    return run(stream, args, false, &p, fault);
}

xpu_status xpu_roi_backward(xpu_stream *stream, const xpu_roi *args, const void *grad_output,
                            const void *regions, const int32_t *argmax, void *grad_image, xpu_fault *fault) {
    roi_params p = {.regions = XPU_ADDR(regions),
                    .output = XPU_ADDR(grad_output),
                    .argmax = XPU_ADDR(argmax),
                    .grad_image = XPU_ADDR(grad_image)};
    return run(stream, args, true, &p, fault);
}
