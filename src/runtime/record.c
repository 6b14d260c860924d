/* Records which kernels a process builds (xpu/request.h). The runtime's own kernels and the operations' are
 * recorded here. */
#include <stdlib.h>

#include "cl/cl.h"
#include "core/os.h"
#include "core/status.h"
#include "core/text.h"
#include "xpu/request.h"

xpu_status xpu_request_kind(int device, const char **kind) {
    cl_device *d;
    XPU_TRY(cl_get(device, &d));
    const xpu_device_properties *p = &d->properties;
    *kind = p->type == XPU_DEVICE_CPU          ? "cpu"
            : p->vendor_id == XPU_VENDOR_INTEL ? "intel"
            : p->has_inline_ptx                ? "nvidia"
                                               : "gpu";
    return XPU_SUCCESS;
}

void xpu_request_record(int device, const char *request) {
    const char *path = os_environment("OPENXPU_RECORD_KERNELS"), *kind;
    if (!path || !*path || xpu_request_kind(device, &kind) != XPU_SUCCESS) return;
    text_buffer line = {0};
    text_addf(&line, "%ld\t%s\t%s\n", os_process_id(), kind, request);
    if (!line.failed) os_file_append(path, line.data, line.size); /* if it can't, the program goes on */
    text_free(&line);
}
