/* unique: sorts rows by comparison, ids the distinct ones, stores one of each. */
#include "xpu/ops/unique.h"

#include "kernels/unique.h"
#include "ops/iter.h"
#include "ops/kernel.h"
#include "xpu/trace.h"
#include "xpu/ops/scan.h"

#define GROUP 128 /* work-items; a tile of the sort has twice as many rows */

typedef enum unique_entry { TILES, MERGE, WIDEN, HEADS, STORE, COUNTS } unique_entry;

static xpu_status run(xpu_stream *stream, unique_entry entry, xpu_dtype dtype, const unique_params *p,
                      int64_t items, int64_t cost) {
    static const char *const names[] = {"unique_tiles", "unique_merge", "unique_widen",
                                        "unique_heads", "unique_store", "unique_counts"};
    const int device = xpu_stream_device(stream);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_UNIQUE);
    spec_dtype(&spec, "T", dtype);
    spec_option_int(&spec, "LOCAL", GROUP);
    spec_option_flag(&spec, "T_FLOAT", dtype_class(dtype) == DTYPE_CLASS_FLOAT);
    spec_key_only(&spec, "entry", entry, 8);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(kernel_from_file(device, &spec, "unique.cl", names[entry], &kernel, "%s %s", names[entry],
                                 dtype_token(dtype)));
    const xpu_range range = {1, {(size_t)((items + GROUP - 1) / GROUP)}, {GROUP}, (uint64_t)(items * cost)};
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

static xpu_status check(xpu_stream *stream, xpu_dtype dtype, int64_t rows, int64_t width) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    if (rows < 0 || rows >= INT32_MAX - 4 * GROUP || width < 0)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "unique: %lld rows of %lld elements are not supported",
                       (long long)rows, (long long)width);
    if (!dtype_is_ordered(dtype) || (dtype_needs_fp64(dtype) && !properties->has_fp64))
        return op_unsupported_dtype("unique", dtype, properties);
    return XPU_SUCCESS;
}

xpu_status xpu_sort_rows(xpu_stream *stream, xpu_dtype dtype, const void *in, int64_t rows, int64_t width,
                         int64_t *order) {
    XPU_TRY(check(stream, dtype, rows, width));
    if (rows == 0) return XPU_SUCCESS;
    const size_t bytes = ((size_t)rows * sizeof(int32_t) + 63) / 64 * 64;
    void *memory;
    XPU_TRY(xpu_workspace_take(stream, 2 * bytes, &memory));
    unique_params p = {.in = XPU_ADDR(in),
                       .order = XPU_ADDR(order),
                       .positions = {XPU_ADDR(memory) + bytes, XPU_ADDR(memory)},
                       .rows = rows,
                       .width = width};
    const int64_t tile = 2 * GROUP;
    xpu_status status = run(stream, TILES, dtype, &p, (rows + tile - 1) / tile * GROUP, 200);
    for (p.run = tile;; p.run *= 2) {
        const xpu_addr from = p.positions[1];
        p.positions[1] = p.positions[0];
        p.positions[0] = from;
        if (p.run >= rows || status != XPU_SUCCESS) break;
        status = run(stream, MERGE, dtype, &p, rows, 60);
    }
    if (status == XPU_SUCCESS) status = run(stream, WIDEN, dtype, &p, rows, 2);
    return workspace_release(memory, status);
}

xpu_status xpu_unique_ids(xpu_stream *stream, xpu_dtype dtype, const void *in, int64_t rows, int64_t width,
                          const int64_t *order, bool in_order, int64_t *ids) {
    XPU_TRY(check(stream, dtype, rows, width));
    if (rows == 0) return XPU_SUCCESS;
    const unique_params p = {.in = XPU_ADDR(in),
                             .order = XPU_ADDR(order),
                             .ids = XPU_ADDR(ids),
                             .rows = rows,
                             .width = width,
                             .in_order = in_order};
    XPU_TRY(run(stream, HEADS, dtype, &p, rows, 4));
    const int64_t one = 1;
    const xpu_tensor all = {.data = ids, .dtype = XPU_INT64, .dims = 1, .size = &rows, .stride = &one};
    return xpu_scan(stream, XPU_SCAN_SUM, &all, NULL, &all, 0);
}

xpu_status xpu_unique(xpu_stream *stream, xpu_dtype dtype, const void *in, int64_t rows, int64_t width,
                      const int64_t *order, bool in_order, const int64_t *ids, int64_t unique_count,
                      void *out, int64_t *inverse, int64_t *counts) {
    XPU_TRY(check(stream, dtype, rows, width));
    if (rows == 0) return XPU_SUCCESS;
    void *memory = NULL;
    if (counts) XPU_TRY(xpu_workspace_take(stream, (size_t)unique_count * sizeof(int64_t), &memory));
    const unique_params p = {.in = XPU_ADDR(in),
                             .order = XPU_ADDR(order),
                             .ids = XPU_ADDR(ids),
                             .out = XPU_ADDR(out),
                             .first = XPU_ADDR(memory),
                             .inverse = XPU_ADDR(inverse),
                             .counts = XPU_ADDR(counts),
                             .rows = rows,
                             .width = width,
                             .unique_count = unique_count,
                             .in_order = in_order};
    xpu_status status = run(stream, STORE, dtype, &p, rows, 6);
    if (status == XPU_SUCCESS && counts) status = run(stream, COUNTS, dtype, &p, unique_count, 2);
    return workspace_release(memory, status);
}
