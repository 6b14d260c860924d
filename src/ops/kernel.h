/* How an operation finds its kernels: by a small key on the warm path, by building source on the cold. */
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

/* What to build when the spec is new. The source is prelude + `text`, where text is an embedded file
 * (`file`, as "softmax.cl" or "gemm.cl", without its folder; the headers that it includes are put in its
 * place) or generated text. */
typedef struct kernel_recipe {
    const char *file;    /* an embedded file, or NULL */
    const char *text;    /* generated source put after the file; or NULL */
    const char *options; /* "-DT=f32 -DROWS=4"; or NULL; kernel_make has them from the spec */
    const char *name;    /* the __kernel function */
    const char *label;   /* for errors and profiles: op and dtypes, "softmax f32->f32"; copied */
    const char
        *written; /* what `text` was written from, as the family's reader below takes it: "reduce sum" */
} kernel_recipe;

/* The kernel for `spec` on `device`, or NULL when it was not built yet. Takes no lock. */
xpu_kernel *kernel_find(int device, const kernel_spec *spec);
/* Builds it and files it under the spec's key. Threads that come with the same at once get the same kernel.
 */
xpu_status kernel_make(int device, const kernel_spec *spec, const kernel_recipe *recipe, xpu_kernel **kernel);
/* The same for the kernel `name` of an embedded file; the rest is its label, printf-like. */
xpu_status kernel_of_file(int device, const kernel_spec *spec, const char *file, const char *name,
                          xpu_kernel **kernel, const char *label, ...) TEXT_PRINTF(6, 7);

/* The whole source that belongs to a recipe. */
xpu_status kernel_source(text *out, const xpu_device_properties *properties, const kernel_recipe *recipe);

/* Notes that a recipe was met that this process had not built before (request.c). */
void request_met(const xpu_device_properties *properties, const kernel_recipe *recipe);

/* Write a recipe's text from its `written`, less the first word, which is the family's name. False where it
 * can't be read. */
bool pointwise_read(text *out, const char *written);
bool foreach_read(text *out, const char *written);
bool reduce_read(text *out, const char *written);
bool scan_read(text *out, const char *written);

/* Gives an operation's workspace back, or nothing where it is NULL, when its last use is submitted or has
 * failed. `status` is the work's; what went wrong first is returned. */
static inline xpu_status workspace_done(void *workspace, xpu_status status) {
    const xpu_status freed = xpu_workspace_give_back(workspace);
    return status == XPU_SUCCESS ? freed : status;
}

/* Records the calling thread's error text: `return op_fail(XPU_ERROR_NOT_SUPPORTED, "…", …);` */
xpu_status op_fail(xpu_status status, const char *format, ...) TEXT_PRINTF(2, 3);

/* XPU_ERROR_NOT_SUPPORTED in the words of array libraries, `"sort" not implemented for 'ComplexFloat'`; with
 * `device` the reason too, where that is what it lacks. `operation` may be in capitals. */
xpu_status op_lacks(const char *operation, xpu_dtype dtype, const xpu_device_properties *device);

#endif
