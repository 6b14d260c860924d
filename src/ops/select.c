/* k-th values, medians and modes: a work-group per row, or several if there are few rows. */
#include "xpu/ops/select.h"

#include "kernels/select.h"
#include "ops/iter.h"
#include "ops/kernel.h"
#include "xpu/memory.h"
#include "xpu/trace.h"

#define GROUP 256
#define GROUPS_A_UNIT 8

typedef enum select_entry { ROW, COUNT, PICK, FIND, STORE, MODE } select_entry;

static xpu_status run(xpu_stream *stream, select_entry entry, int which, xpu_dtype dtype,
                      const select_params *p, int64_t groups, int64_t work) {
    static const char *const names[] = {"select_row",  "select_count", "select_pick",
                                        "select_find", "select_store", "mode_row"};
    const int device = xpu_stream_device(stream);
    const char class = dtype_class(dtype);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_SELECT);
    spec_dtype(&spec, "T", dtype);
    spec_option_int(&spec, "LOCAL", GROUP);
    spec_option_int(&spec, "BITS", 8 * (int64_t)xpu_dtype_size(dtype));
    spec_int(&spec, "WHICH", which, 8);
    spec_key_only(&spec, "entry", entry, 8);
    spec_option(&spec, "BUILD_", entry == MODE ? "mode" : "select");
    spec_option_flag(&spec, "T_FLOAT", class == DTYPE_CLASS_FLOAT);
    spec_option_flag(&spec, "SIGNED", class == DTYPE_CLASS_SIGNED);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(kernel_from_file(device, &spec, "select.cl", names[entry], &kernel, "%s %s", names[entry],
                                 dtype_token(dtype)));
    const xpu_range range = {1, {(size_t)groups}, {GROUP}, (uint64_t)work};
    return xpu_launch(stream, kernel, &range, p, sizeof *p);
}

static xpu_status check(xpu_stream *stream, xpu_dtype dtype, int64_t rows, int64_t length,
                        const xpu_device_properties **device) {
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), device));
    if (rows < 0 || length < 1 || length >= INT32_MAX)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "select: %lld rows of %lld elements are not supported",
                       (long long)rows, (long long)length);
    if (!dtype_is_ordered(dtype) || (dtype_needs_fp64(dtype) && !(*device)->has_fp64))
        return op_unsupported_dtype("select", dtype, *device);
    return XPU_SUCCESS;
}

/* Two launches per digit: all work-groups count, one per row picks. */
static xpu_status select_split(xpu_stream *stream, int which, xpu_dtype dtype, select_params *p) {
    const size_t states = (size_t)p->rows * sizeof(select_state);
    const size_t counts = (size_t)p->rows * SELECT_COUNTS * sizeof(uint32_t);
    const int64_t groups = p->rows * p->splits, elements = p->rows * p->length;
    const char zero = 0;
    void *memory;
    XPU_TRY(xpu_workspace_take(stream, states + counts, &memory));
    p->states = XPU_ADDR(memory);
    p->counts = p->states + states;
    xpu_status status = xpu_memset(stream, (char *)memory + states, &zero, 1, counts);
    for (p->shift = (int)(8 * xpu_dtype_size(dtype)) - 8; p->shift >= 0 && status == XPU_SUCCESS;
         p->shift -= 8) {
        status = run(stream, COUNT, which, dtype, p, groups, elements * 6);
        if (status == XPU_SUCCESS) status = run(stream, PICK, which, dtype, p, p->rows, p->rows * 4096);
    }
    if (status == XPU_SUCCESS) status = run(stream, FIND, which, dtype, p, groups, elements * 4);
    if (status == XPU_SUCCESS)
        status = run(stream, STORE, which, dtype, p, (p->rows + GROUP - 1) / GROUP, p->rows * 4);
    return workspace_release(memory, status);
}

xpu_status xpu_select(xpu_stream *stream, xpu_selection which, xpu_dtype dtype, const void *in, int64_t rows,
                      int64_t length, int64_t k, void *values, int64_t *indices) {
    const xpu_device_properties *device;
    XPU_TRY(check(stream, dtype, rows, length, &device));
    if (which == XPU_SELECT_KTH && (k < 0 || k >= length))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "select: k = %lld is out of range for %lld elements",
                       (long long)k, (long long)length);
    if (rows == 0) return XPU_SUCCESS;
    select_params p = {.in = XPU_ADDR(in),
                       .values = XPU_ADDR(values),
                       .indices = XPU_ADDR(indices),
                       .rows = rows,
                       .length = length,
                       .k = k};
    const int64_t wanted = GROUPS_A_UNIT * (int64_t)device->max_compute_units;
    int64_t splits = (wanted + rows - 1) / rows;
    const int64_t least = TUNED(false, SELECT_SPLIT);
    if (splits > length / least) splits = length / least;
    p.splits = splits > 1 ? (uint32_t)splits : 1;
    if (splits > 1) return select_split(stream, (int)which, dtype, &p);
    return run(stream, ROW, (int)which, dtype, &p, rows, rows * length * 24);
}

xpu_status xpu_mode(xpu_stream *stream, xpu_dtype dtype, const void *in, const int64_t *order, int64_t rows,
                    int64_t length, void *values, int64_t *indices) {
    const xpu_device_properties *device;
    XPU_TRY(check(stream, dtype, rows, length, &device));
    if (rows == 0) return XPU_SUCCESS;
    const select_params p = {.in = XPU_ADDR(in),
                             .order = XPU_ADDR(order),
                             .values = XPU_ADDR(values),
                             .indices = XPU_ADDR(indices),
                             .rows = rows,
                             .length = length,
                             .splits = 1};
    return run(stream, MODE, 0, dtype, &p, rows, rows * length * 4);
}
