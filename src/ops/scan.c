/* Scans along one dimension: a work-item per row for many rows, a work-group per row for few; very long rows
 * are split into chunks, whose totals are computed first. */
#include "xpu/ops/scan.h"

#include <stdio.h>
#include <string.h>

#include "kernels/scan.h"
#include "ops/iter.h"
#include "ops/kernel.h"
#include "ops/row_walk.h"
#include "xpu/trace.h"

static const struct row {
    const char *name, *identity, *combine, *classes;
    bool indexed;
} table[XPU_SCAN_COUNT] = {
    [XPU_SCAN_SUM] = {"cumsum", "return ACC((A)(0));", "return PLUS(a, b);", "biufc", false},
    [XPU_SCAN_PROD] = {"cumprod", "return ACC(ONE);", "return TIMES(a, b);", "biufc", false},
    [XPU_SCAN_MAX] = {"cummax", "acc a = {0, -1}; return a;", "LAST(>=)", "biuf", true},
    [XPU_SCAN_MIN] = {"cummin", "acc a = {0, -1}; return a;", "LAST(<=)", "biuf", true},
    [XPU_SCAN_LOGSUMEXP] = {"logcumsumexp", "return LOWEST;", "return log_add_exp(a, b);", "fc", false},
};

typedef enum scan_entry { ENTRY_COLUMNS, ENTRY_ROWS, ENTRY_TOTALS, ENTRY_CARRIES } scan_entry;

#define MOST_CHUNKS 1024
#define ACC_BYTES 32

static void write_functions(text_buffer *t, const struct row *row) {
    text_addf(
        t,
        "static inline acc scan_identity(void) { %s }\nstatic inline acc scan_combine(acc a, acc b) { %s }\n",
        row->identity, row->combine);
}

bool scan_read(text_buffer *out, const char *written) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, written)) return write_functions(out, &table[i]), true;
    return false;
}

static xpu_status find_kernel(int device, xpu_scan_op op, xpu_dtype in, xpu_dtype out, int row_dims,
                              int local, scan_entry entry, xpu_kernel **kernel) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    static const char *const entries[] = {"scan_columns", "scan_rows", "scan_totals", "scan_carries"};
    const struct row *row = &table[op];
    kernel_spec spec;
    spec_begin(&spec, FAMILY_SCAN);
    spec_key_only(&spec, "op", op, 8);
    spec_key_only(&spec, "entry", entry, 8);
    spec_dtype(&spec, "IN", in);
    spec_dtype(&spec, "OUT", out);
    /* Sums, products and logsumexp use double-word arithmetic; fp64 on CPUs and, where a small difference of
     * large logarithms is all that is left, on all devices that have it. */
    const bool real = dtype_class(out) == 'f', twice = real || dtype_class(out) == 'c';
    const bool log_sum = op == XPU_SCAN_LOGSUMEXP && real;
    const bool wide =
        real && !row->indexed && (properties->type == XPU_DEVICE_CPU || log_sum) && properties->has_fp64;
    spec_option(&spec, "A=", dtype_computed(wide ? XPU_FLOAT64 : out));
    spec_int(&spec, "ROW_DIMS", row_dims, 8);
    spec_int(&spec, "LOCAL", local, 16);
    spec_option_flag(&spec, "A_FLOAT", dtype_class(out) == 'f');
    spec_option_flag(&spec, "A_COMPLEX", dtype_class(out) == 'c');
    spec_option_flag(&spec, "INDEXED", row->indexed);
    spec_option_flag(&spec, "DOUBLE_WORD", (op == XPU_SCAN_SUM || op == XPU_SCAN_PROD) && twice && !wide);
    spec_option_flag(&spec, "LOG_SUM", log_sum);
    spec_option_flag(&spec, "WIDE", log_sum && wide && !dtype_needs_fp64(out));
    spec_option_flag(&spec, "A_DOUBLE", log_sum && dtype_needs_fp64(out));
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    char written[48], label[64];
    text_buffer source = {0};
    write_functions(&source, row);
    snprintf(written, sizeof written, "scan %s", row->name);
    snprintf(label, sizeof label, "%s %s->%s", row->name, dtype_token(in), dtype_token(out));
    kernel_build_spec build_spec = {
        .file = "scan.cl", .text = source.data, .name = entries[entry], .label = label, .written = written};
    xpu_status status = source.failed ? op_fail(XPU_ERROR_OUT_OF_HOST_MEMORY,
                                                "out of host memory for the source of kernel %s", label)
                                      : kernel_build(device, &spec, &build_spec, kernel);
    text_free(&source);
    return status;
}

static bool same_shape(const xpu_tensor *a, const xpu_tensor *b) {
    return a->dims == b->dims &&
           (a->dims == 0 || !memcmp(a->size, b->size, (size_t)a->dims * sizeof *a->size));
}

static xpu_status check(xpu_scan_op op, const xpu_tensor *out, const xpu_tensor *index, const xpu_tensor *in,
                        int dim, const xpu_device_properties *device) {
    if ((unsigned)op >= XPU_SCAN_COUNT)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "scan: unknown operation %d", (int)op);
    const struct row *row = &table[op];
    if (!same_shape(in, out) || (index && !same_shape(in, index)) || dim < 0 || dim >= in->dims ||
        in->dims > XPU_MAX_DIMS)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "%s: the shapes differ, or dimension %d is out of range",
                       row->name, dim);
    if ((index != NULL) != row->indexed || (index && (index->dtype != XPU_INT64 || in->dtype != out->dtype)))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "%s: %s", row->name,
                       row->indexed ? "needs an int64 index, and input and output of the same dtype"
                                    : "takes no index");
    bool complex_in = dtype_class(in->dtype) == 'c', complex_out = dtype_class(out->dtype) == 'c';
    if (!strchr(row->classes, dtype_class(out->dtype)) ||
        ((complex_in || complex_out) && in->dtype != out->dtype))
        return op_unsupported_dtype(row->name, out->dtype, NULL);
    if (!device->has_fp64 && (dtype_needs_fp64(out->dtype) || dtype_needs_fp64(in->dtype)))
        return op_unsupported_dtype(row->name, dtype_needs_fp64(out->dtype) ? out->dtype : in->dtype, device);
    return XPU_SUCCESS;
}

xpu_status xpu_scan(xpu_stream *stream, xpu_scan_op op, const xpu_tensor *out, const xpu_tensor *index,
                    const xpu_tensor *in, int dim) {
    int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    XPU_TRY(check(op, out, index, in, dim, properties));
    const xpu_tensor *operands[3] = {in, out, index ? index : out};
    scan_params p;
    memset(&p, 0, sizeof p);
    int row_dims = row_walk_fill(operands, dim, &p.walk);
    p.in = XPU_ADDR(in->data);
    p.out = XPU_ADDR(out->data);
    p.index = XPU_ADDR(index ? index->data : NULL);
    p.length = in->size[dim];
    p.chunk = p.length;
    p.chunks = 1;
    if (p.walk.rows == 0 || p.length == 0) return XPU_SUCCESS;

    bool cpu = properties->type == XPU_DEVICE_CPU;
    int64_t units = (int64_t)properties->max_compute_units;
    uint64_t work = (uint64_t)(p.walk.rows * p.length) * 4;
    /* CPUs scan rows one by one, unless adjacent rows are contiguous. */
    bool side_by_side = row_dims > 0 && p.walk.stride[0][0] == 1 && p.walk.size[0] >= 16;
    bool by_itself = cpu && op != XPU_SCAN_LOGSUMEXP;
    bool columns = p.length < 16 || (p.walk.rows >= units * (cpu ? 32 : 512) && (side_by_side || !by_itself));
    if (columns) {
        int local = cpu ? 16 : 64;
        xpu_kernel *kernel;
        XPU_TRY(find_kernel(device, op, in->dtype, out->dtype, row_dims, local, ENTRY_COLUMNS, &kernel));
        xpu_range range = {1, {(size_t)((p.walk.rows + local - 1) / local)}, {(size_t)local}, work};
        return xpu_launch(stream, kernel, &range, &p, sizeof p);
    }

    int local = by_itself ? 1 : cpu ? 32 : 128;
    const int64_t longest = TUNED(cpu, SCAN_CHUNK);
    if (p.walk.rows < 4 * units && p.length > longest) {
        int64_t chunks = (p.length + longest - 1) / longest;
        if (chunks > MOST_CHUNKS) chunks = MOST_CHUNKS;
        p.chunk = (p.length + chunks - 1) / chunks;
        p.chunks = (p.length + p.chunk - 1) / p.chunk;
    }
    xpu_kernel *scan, *totals = NULL, *carries = NULL;
    XPU_TRY(find_kernel(device, op, in->dtype, out->dtype, row_dims, local, ENTRY_ROWS, &scan));
    xpu_range range = {1, {(size_t)(p.walk.rows * p.chunks)}, {(size_t)local}, work};
    if (p.chunks == 1) return xpu_launch(stream, scan, &range, &p, sizeof p);

    XPU_TRY(find_kernel(device, op, in->dtype, out->dtype, row_dims, local, ENTRY_TOTALS, &totals));
    XPU_TRY(find_kernel(device, op, in->dtype, out->dtype, row_dims, local, ENTRY_CARRIES, &carries));
    void *memory;
    XPU_TRY(xpu_workspace_take(stream, (size_t)(p.walk.rows * p.chunks) * ACC_BYTES, &memory));
    p.totals = XPU_ADDR(memory);
    xpu_range few = {1,
                     {(size_t)((p.walk.rows + local - 1) / local)},
                     {(size_t)local},
                     (uint64_t)(p.walk.rows * p.chunks)};
    xpu_status status = xpu_launch(stream, totals, &range, &p, sizeof p);
    if (status == XPU_SUCCESS) status = xpu_launch(stream, carries, &few, &p, sizeof p);
    if (status == XPU_SUCCESS) status = xpu_launch(stream, scan, &range, &p, sizeof p);
    return workspace_release(memory, status);
}
