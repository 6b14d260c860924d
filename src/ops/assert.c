/* Device-side assertions: checked by a kernel, reported without synchronization. */
#include "core/status.h"
#include "kernels/assert.h"
#include "ops/kernel.h"
#include "xpu/fault.h"

xpu_status xpu_assert(xpu_stream *stream, const void *flag, const char *message) {
    XPU_REJECT_IF(!stream || !flag || !message, "stream, flag or message is NULL");
    const int device = xpu_stream_device(stream);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_ASSERT);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel) XPU_TRY(kernel_from_file(device, &spec, "assert.cl", "assert_flag", &kernel, "assert"));
    xpu_fault *place;
    XPU_TRY(xpu_fault_watch(stream, &place));
    const struct assert_params p = {XPU_ADDR(flag), {XPU_ADDR(place), XPU_ADDR(message)}};
    const xpu_range range = {.dims = 1, .groups = {1}, .local = {1}, .work = 1};
    XPU_TRY(xpu_launch(stream, kernel, &range, &p, sizeof p));
    return xpu_fault_raise(stream, place);
}
