/* Kernel lookup: by a small key on the warm path; on the cold path the source is composed and built. */
#ifndef XPU_OPS_KERNEL_H
#define XPU_OPS_KERNEL_H

#include <stdint.h>

#include "core/text.h"
#include "core/tuning.h"
#include "ops/dtype.h"
#include "ops/spec.h"
#include "xpu/device.h"
#include "xpu/ops.h"
#include "xpu/program.h"
#include "xpu/trace.h"

/* What to build for a new key. The source is the prelude, then the embedded file (`file`, e.g. "softmax.cl",
 * without its folder; its includes are expanded), then the generated `text`. */
typedef struct kernel_build_spec {
    const char *file;    /* an embedded file, or NULL */
    const char *text;    /* generated source, or NULL */
    const char *options; /* "-DT=f32 -DROWS=4", or NULL; kernel_build sets them from the spec */
    const char *name;    /* the __kernel function */
    const char *label;   /* for errors and profiles: op and dtypes, "softmax f32->f32"; copied */
    const char *written; /* description that `text` can be generated from by a reader below: "reduce sum" */
} kernel_build_spec;

/* The kernel for `spec` on `device`, or NULL when it was not built yet. Takes no lock. */
xpu_kernel *kernel_find(int device, const kernel_spec *spec);
/* Builds the kernel and inserts it under the spec's key. Concurrent calls with the same key return the same
 * kernel. */
xpu_status kernel_build(int device, const kernel_spec *spec, const kernel_build_spec *build_spec,
                        xpu_kernel **kernel);
/* The same for kernel `name` of an embedded file; the other arguments format its label. */
xpu_status kernel_from_file(int device, const kernel_spec *spec, const char *file, const char *name,
                            xpu_kernel **kernel, const char *label, ...) TEXT_PRINTF(6, 7);

/* The complete source of a build spec. */
xpu_status kernel_source(text_buffer *out, const xpu_device_properties *properties,
                         const kernel_build_spec *build_spec);

/* Records a build spec that this process builds for the first time (request.c). */
void record_build_request(int device, const kernel_build_spec *build_spec);

/* Regenerate `text` from `written` without its first word (the family's name). Return false for invalid
 * input. */
bool pointwise_read(text_buffer *out, const char *written);
bool foreach_read(text_buffer *out, const char *written);
bool reduce_read(text_buffer *out, const char *written);
bool scan_read(text_buffer *out, const char *written);

/* Releases an operation's workspace (may be NULL) after its last use is submitted or has failed. Returns
 * `status`, the status of the work, if that is an error, otherwise the status of the release. */
static inline xpu_status workspace_release(void *workspace, xpu_status status) {
    const xpu_status freed = xpu_workspace_give_back(workspace);
    return status == XPU_SUCCESS ? freed : status;
}

/* Sets the calling thread's error message: `return op_fail(XPU_ERROR_NOT_SUPPORTED, "…", …);` */
xpu_status op_fail(xpu_status status, const char *format, ...) TEXT_PRINTF(2, 3);

/* XPU_ERROR_NOT_SUPPORTED with PyTorch's wording, `"sort" not implemented for 'ComplexFloat'`; if `device`
 * lacks fp64 for it, the message says so. `operation` may be in capitals. */
xpu_status op_unsupported_dtype(const char *operation, xpu_dtype dtype, const xpu_device_properties *device);

#endif
