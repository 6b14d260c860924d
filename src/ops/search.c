/* Binary search and set membership (kernels/search.cl). */
#include "xpu/ops/search.h"

#include "kernels/search.h"
#include "ops/iter.h"
#include "ops/kernel.h"

#define GROUP 256
#define MEMBER XPU_DTYPE_COUNT /* in place of the dtype of places */

static xpu_status run(xpu_stream *stream, xpu_dtype dtype, xpu_dtype out, const search_params *p) {
    const int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    if (!dtype_is_ordered(dtype) || (dtype_needs_fp64(dtype) && !properties->has_fp64))
        return op_lacks("search", dtype, properties);
    if (p->count == 0) return XPU_SUCCESS;
    const char *name = out == MEMBER ? "is_member" : "search";
    kernel_spec spec;
    spec_begin(&spec, FAMILY_SEARCH);
    spec_dtype(&spec, "T", dtype);
    spec_pack(&spec, "OUT", out, 8);
    spec_follows(&spec, "OUT=", out == MEMBER ? NULL : dtype_token(out));
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(kernel_of_file(device, &spec, "search.cl", name, &kernel, "%s %s", name, dtype_token(dtype)));
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
