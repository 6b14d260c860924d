#include "xpu/ops/search.h"

#include <stdio.h>

#include "kernels/search.h"
#include "ops/iter.h"
#include "ops/kernel.h"

#define GROUP 256
#define MEMBER XPU_DTYPE_COUNT /* in place of the dtype of places */

static xpu_status run(xpu_stream *stream, xpu_dtype dtype, xpu_dtype out, const search_params *p) {
    const int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    if (dtype_is_complex(dtype) || (dtype_needs_fp64(dtype) && !properties->has_fp64))
        return op_lacks("search", dtype, properties);
    if (p->count == 0) return XPU_SUCCESS;
    const kernel_key key = {FAMILY_SEARCH, {(uint64_t)dtype | (uint64_t)out << 8, 0, 0}};
    xpu_kernel *kernel = kernel_find(device, &key);
    if (!kernel) {
        char options[48], label[48];
        const char *name = out == MEMBER ? "is_member" : "search";
        int n = snprintf(options, sizeof options, "-DT=%s", dtype_token(dtype));
        if (out != MEMBER) snprintf(options + n, sizeof options - (size_t)n, " -DOUT=%s", dtype_token(out));
        snprintf(label, sizeof label, "%s %s", name, dtype_token(dtype));
        const kernel_recipe recipe = {
            .file = "search_ref.cl", .options = options, .name = name, .label = label};
        XPU_TRY(kernel_make(device, &key, &recipe, &kernel));
    }
    const xpu_range range = {1, {(size_t)((p->count + GROUP - 1) / GROUP)}, {GROUP}, (uint64_t)p->count * 60};
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

xpu_status xpu_search(xpu_stream *stream, xpu_dtype dtype, const void *sequence, int64_t length,
                      const int64_t *sorter, const void *values, int64_t count, int64_t a_row, bool right,
                      xpu_dtype out_dtype, void *out) {
    if (out_dtype != XPU_INT32 && out_dtype != XPU_INT64)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "search: places are int32 or int64");
    const search_params p = {.sequence = XPU_ADDR(sequence),
                             .sorter = XPU_ADDR(sorter),
                             .values = XPU_ADDR(values),
                             .out = XPU_ADDR(out),
                             .count = count,
                             .a_row = a_row,
                             .length = length,
                             .one = a_row == 0,
                             .right = right};
    return run(stream, dtype, out_dtype, &p);
}

xpu_status xpu_is_member(xpu_stream *stream, xpu_dtype dtype, const void *sequence, int64_t length,
                         const void *values, int64_t count, bool invert, void *out) {
    const search_params p = {.sequence = XPU_ADDR(sequence),
                             .values = XPU_ADDR(values),
                             .out = XPU_ADDR(out),
                             .count = count,
                             .length = length,
                             .one = true,
                             .right = invert};
    return run(stream, dtype, MEMBER, &p);
}
