/* Binary search and set membership (kernels/search.cl). */
#include "xpu/ops/search.h"

#include "kernels/search.h"
#include "ops/iter.h"
#include "ops/kernel.h"
#include "xpu/fault.h"

#define GROUP 256
#define MEMBER XPU_DTYPE_COUNT /* instead of the output dtype: a membership test */

static xpu_status run(xpu_stream *stream, const char *name, xpu_dtype dtype, xpu_dtype out,
                      const search_params *p) {
    const int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    if (!dtype_is_ordered(dtype) || (dtype_needs_fp64(dtype) && !properties->has_fp64))
        return op_unsupported_dtype("search", dtype, properties);
    const bool repeat = p->differs.place != 0;
    const int64_t items = repeat && p->count < p->length ? p->length : p->count;
    if (items == 0) return XPU_SUCCESS;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_SEARCH);
    spec_dtype(&spec, "T", dtype);
    spec_key_only(&spec, "OUT", out, 8);
    spec_option(&spec, "OUT=", out == MEMBER ? NULL : dtype_token(out));
    spec_flag(&spec, "REPEAT", repeat);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(
            kernel_from_file(device, &spec, "search.cl", name, &kernel, "%s %s", name, dtype_token(dtype)));
    const xpu_range range = {1, {(size_t)((items + GROUP - 1) / GROUP)}, {GROUP}, (uint64_t)items * 60};
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

xpu_status xpu_search(xpu_stream *stream, xpu_dtype dtype, const void *sequence, int64_t length,
                      const int64_t *sorter, const void *values, int64_t count, int64_t a_row, bool right,
                      xpu_dtype out_dtype, void *out) {
    if (out_dtype != XPU_INT32 && out_dtype != XPU_INT64)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "search: the output must be int32 or int64");
    const search_params p = {.sequence = XPU_ADDR(sequence),
                             .sorter = XPU_ADDR(sorter),
                             .values = XPU_ADDR(values),
                             .out = XPU_ADDR(out),
                             .count = count,
                             .a_row = a_row,
                             .length = length,
                             .one = a_row == 0,
                             .right = right};
    return run(stream, "search", dtype, out_dtype, &p);
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
    return run(stream, "is_member", dtype, MEMBER, &p);
}

xpu_status xpu_repeat(xpu_stream *stream, const int64_t *ends, int64_t length, int64_t count,
                      xpu_dtype out_dtype, void *out) {
    if (out_dtype != XPU_INT32 && out_dtype != XPU_INT64)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "repeat: the output must be int32 or int64");
    if (length < 1 || count < 0)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "repeat: invalid sizes: %lld elements repeated to %lld",
                       (long long)length, (long long)count);
    xpu_fault *place;
    XPU_TRY(xpu_fault_watch(stream, &place));
    const search_params p = {
        .sequence = XPU_ADDR(ends),
        .out = XPU_ADDR(out),
        .count = count,
        .length = length,
        .one = true,
        .right = true,
        .falls = {XPU_ADDR(place), XPU_ADDR("repeats can not be negative")},
        .differs = {XPU_ADDR(place), XPU_ADDR("allocated size does not match required size: output_size of "
                                              "repeat_interleave is not the sum of repeats")}};
    XPU_TRY(run(stream, "repeat", XPU_INT64, out_dtype, &p));
    return xpu_fault_raise(stream, place);
}
