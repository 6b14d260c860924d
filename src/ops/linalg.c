/* Blocked Cholesky and LU factorizations and triangular solves: panels by kernels/linalg.cl, updates by
 * matrix products. */
#include "xpu/ops/linalg.h"

#include "kernels/linalg.h"
#include "ops/kernel.h"
#include "xpu/device.h"
#include "xpu/memory.h"

#define BLOCK LINALG_BLOCK
#define OUTER 128      /* columns of an outer block: depth of the trailing update */
#define PANEL_WORDS 32 /* dwords of a panel in the registers of a work-item */
#define PERMUTATION_GROUP 64
#define PERMUTATION_HELD 4096
#define WIDEST 64 /* columns of a panel that is the whole matrix */

typedef enum linalg_kernel { PANEL, PANEL_ROWS, SWAP, PERMUTATION, TRIANGLE, CHOLESKY } linalg_kernel;

/* Build options; 0 and false if a kernel doesn't use them. */
typedef struct variant {
    linalg_kernel which;
    xpu_dtype dtype;
    int group, held, width, columns, each, strip;
    bool rows_first;
} variant;

static xpu_status get_kernel(int device, const variant *v, xpu_kernel **kernel) {
    static const char *const names[] = {"lu_panel",       "lu_panel_below",   "lu_swap",
                                        "lu_permutation", "triangular_block", "cholesky_block"};
    kernel_spec spec;
    spec_begin(&spec, FAMILY_LINALG);
    spec_enum(&spec, "BUILD_", names, v->which, 4);
    spec_dtype(&spec, "T", v->dtype);
    spec_option(&spec, "R=", dtype_computed(dtype_real(v->dtype)));
    spec_option_flag(&spec, "COMPLEX", dtype_is_complex(v->dtype));
    spec_int(&spec, "GROUP", v->group, 12);
    spec_int(&spec, "HELD", v->held, 16);
    spec_int_if(&spec, v->width > 0, "WIDTH", v->width, 8);
    spec_int_if(&spec, v->columns > 0, "COLUMNS", v->columns, 8);
    spec_int_if(&spec, v->each > 0, "EACH", v->each, 8);
    spec_int_if(&spec, v->each > 0, "STRIP", v->strip, 8);
    spec_flag(&spec, "ROWS_FIRST", v->rows_first);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(device, &spec, "linalg.cl", names[v->which], kernel, "%s %s", names[v->which],
                            dtype_token(v->dtype));
}

static xpu_status check_dtype(int device, const char *name, xpu_dtype dtype) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    const xpu_dtype real = dtype_real(dtype);
    if ((real != XPU_FLOAT32 && real != XPU_FLOAT64) || (dtype_needs_fp64(dtype) && !properties->has_fp64))
        return op_unsupported_dtype(name, dtype, properties);
    return XPU_SUCCESS;
}

static xpu_matrix swapped(xpu_matrix a) {
    return (xpu_matrix){a.data, a.batch_stride, a.column_stride, a.row_stride};
}

static xpu_matrix part(xpu_matrix a, xpu_dtype dtype, int64_t row, int64_t column) {
    a.data =
        (char *)a.data + (row * a.row_stride + column * a.column_stride) * (int64_t)xpu_dtype_size(dtype);
    return a;
}

/* out -= a b */
static xpu_status subtract_product(xpu_stream *stream, xpu_gemm_args args) {
    if (args.m == 0 || args.n == 0 || args.batch == 0) return XPU_SUCCESS;
    args.c = args.out;
    args.alpha = (xpu_scalar){.dtype = XPU_FLOAT64, .value.f = -1};
    args.beta = (xpu_scalar){.dtype = XPU_FLOAT64, .value.f = 1};
    return xpu_gemm(stream, &args);
}

/* --- triangular solves --- */

static xpu_status solve_block(xpu_stream *stream, const xpu_triangular_args *args, int64_t first,
                              int64_t rows) {
    const bool one = args->columns == 1;
    const variant v = {.which = TRIANGLE,
                       .dtype = args->dtype,
                       .columns = one ? 1 : 8,
                       .group = BLOCK * (one ? 1 : 8),
                       .rows_first = args->x.row_stride == 1 || one};
    const int64_t tiles = (args->columns + v.columns - 1) / v.columns;
    /* An upper triangle is a lower one traversed from the end. */
    const int64_t begin = args->upper ? first + rows - 1 : first, sign = args->upper ? -1 : 1;
    const triangular_params p = {.a = XPU_ADDR(part(args->a, args->dtype, begin, begin).data),
                                 .x = XPU_ADDR(part(args->x, args->dtype, begin, 0).data),
                                 .a_batch_stride = args->a.batch_stride,
                                 .a_row_stride = sign * args->a.row_stride,
                                 .a_column_stride = sign * args->a.column_stride,
                                 .x_batch_stride = args->x.batch_stride,
                                 .x_row_stride = sign * args->x.row_stride,
                                 .x_column_stride = args->x.column_stride,
                                 .columns = args->columns,
                                 .tiles = tiles,
                                 .rows = (uint32_t)rows,
                                 .unit = args->unit,
                                 .conjugate = args->conjugate};
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)(tiles * args->batch)},
                             .local = {(size_t)v.group},
                             .work = (uint64_t)(rows * rows * tiles * v.columns * args->batch)};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), &v, &kernel));
    return xpu_launch(stream, kernel, &range, &p, sizeof p);
}

/* Solves rows first … first + rows - 1 recursively by halves, so that most of the work is in few large
 * products. */
static xpu_status solve_rows(xpu_stream *stream, const xpu_triangular_args *args, int64_t first,
                             int64_t rows) {
    if (rows <= BLOCK) return solve_block(stream, args, first, rows);
    const int64_t half = (rows / 2 + BLOCK - 1) / BLOCK * BLOCK, rest = rows - half;
    const int64_t lower = first + half;
    xpu_gemm_args product = {.dtype = args->dtype,
                             .conjugate_a = args->conjugate && dtype_is_complex(args->dtype),
                             .batch = args->batch,
                             .n = args->columns};
    if (args->upper) {
        XPU_TRY(solve_rows(stream, args, lower, rest));
        product.m = half;
        product.k = rest;
        product.a = part(args->a, args->dtype, first, lower);
        product.b = part(args->x, args->dtype, lower, 0);
        product.out = part(args->x, args->dtype, first, 0);
        XPU_TRY(subtract_product(stream, product));
        return solve_rows(stream, args, first, half);
    }
    XPU_TRY(solve_rows(stream, args, first, half));
    product.m = rest;
    product.k = half;
    product.a = part(args->a, args->dtype, lower, first);
    product.b = part(args->x, args->dtype, first, 0);
    product.out = part(args->x, args->dtype, lower, 0);
    XPU_TRY(subtract_product(stream, product));
    return solve_rows(stream, args, lower, rest);
}

xpu_status xpu_triangular_solve(xpu_stream *stream, const xpu_triangular_args *args) {
    XPU_TRY(check_dtype(xpu_stream_device(stream), "triangular_solve", args->dtype));
    if (args->batch == 0 || args->n == 0 || args->columns == 0) return XPU_SUCCESS;
    return solve_rows(stream, args, 0, args->n);
}

static xpu_status clear_info(xpu_stream *stream, const xpu_factor_args *args) {
    const int32_t none = 0;
    return xpu_memset(stream, args->info, &none, sizeof none, (size_t)args->batch * sizeof none);
}

/* --- LU --- */

static factor_params describe(const xpu_factor_args *args, int64_t first, int64_t width) {
    return (factor_params){.info = XPU_ADDR(args->info),
                           .batch_stride = args->a.batch_stride,
                           .row_stride = args->a.row_stride,
                           .column_stride = args->a.column_stride,
                           .first = first,
                           .rows = args->m - first,
                           .width = (uint32_t)width};
}

/* The variant with rows in registers; false if there are too many rows. */
static bool holds_rows(const factor_params *p, xpu_dtype dtype, const xpu_device_properties *device,
                       variant *v) {
    const int words = (int)xpu_dtype_size(dtype) / 4, most = (int)device->max_work_group_size;
    v->which = PANEL_ROWS;
    v->group = 64;
    v->each = 1;
    while (v->group < p->rows && v->group * 2 <= (most < 1024 ? most : 1024)) v->group *= 2;
    while ((int64_t)v->group * v->each < p->rows && v->each <= PANEL_WORDS) v->each *= 2;
    v->strip = PANEL_WORDS / (v->each * words);
    if (v->strip > 8) v->strip = 8;
    return v->strip >= 2;
}

static xpu_status factor_panel(xpu_stream *stream, const xpu_factor_args *args, factor_params p) {
    static const int held[] = {2048, 8192, 24576}; /* bytes */
    const int64_t elements = p.rows * p.width, size = (int64_t)xpu_dtype_size(args->dtype);
    const xpu_device_properties *device;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &device));
    variant v = {.dtype = args->dtype};
    if (elements * size <= held[2] || !holds_rows(&p, args->dtype, device, &v)) {
        v = (variant){
            .which = PANEL, .dtype = args->dtype, .group = 32, .width = p.width > BLOCK ? WIDEST : BLOCK};
        while (v.group < 256 && v.group < p.rows && (uint64_t)v.group * 2 <= device->max_work_group_size)
            v.group *= 2;
        for (size_t i = 3; i-- > 0;)
            if (elements * size <= held[i]) v.held = held[i] / (int)size;
    }
    p.a = XPU_ADDR(part(args->a, args->dtype, p.first, p.first).data);
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)args->batch},
                             .local = {(size_t)v.group},
                             .work = (uint64_t)(elements * p.width * args->batch)};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), &v, &kernel));
    return xpu_launch(stream, kernel, &range, &p, sizeof p);
}

/* Applies the panel's row exchanges to columns `from` to `to`, except the panel's own. */
static xpu_status exchange_rows(xpu_stream *stream, const xpu_factor_args *args, factor_params p,
                                int64_t from, int64_t to, int64_t hole, int64_t hole_width) {
    const variant v = {
        .which = SWAP, .dtype = args->dtype, .group = xpu_dtype_size(args->dtype) > 8 ? 32 : 64};
    p.columns = to - from - hole_width;
    if (p.columns == 0) return XPU_SUCCESS;
    p.column = from;
    p.hole = hole;
    p.hole_width = hole_width;
    p.a = XPU_ADDR(args->a.data);
    const int64_t tiles = (p.columns + v.group - 1) / v.group;
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)(tiles * args->batch)},
                             .local = {(size_t)v.group},
                             .work = (uint64_t)(p.columns * p.width * 4 * args->batch)};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), &v, &kernel));
    return xpu_launch(stream, kernel, &range, &p, sizeof p);
}

/* Trailing update: applies the factored columns first … first + width - 1 to `columns` columns from `next`
 * on. */
static xpu_status update(xpu_stream *stream, const xpu_factor_args *args, int64_t first, int64_t width,
                         int64_t next, int64_t columns) {
    if (columns == 0) return XPU_SUCCESS;
    const xpu_dtype dtype = args->dtype;
    const int64_t below = first + width;
    const xpu_triangular_args solve = {.dtype = dtype,
                                       .unit = true,
                                       .batch = args->batch,
                                       .n = width,
                                       .columns = columns,
                                       .a = part(args->a, dtype, first, first),
                                       .x = part(args->a, dtype, first, next)};
    XPU_TRY(solve_rows(stream, &solve, 0, width));
    return subtract_product(stream, (xpu_gemm_args){.dtype = dtype,
                                                    .batch = args->batch,
                                                    .m = args->m - below,
                                                    .n = columns,
                                                    .k = width,
                                                    .a = part(args->a, dtype, below, first),
                                                    .b = solve.x,
                                                    .out = part(args->a, dtype, below, next)});
}

xpu_status xpu_lu_factor(xpu_stream *stream, const xpu_factor_args *args, bool pivot, int32_t *pivots) {
    XPU_TRY(check_dtype(xpu_stream_device(stream), "lu_factor", args->dtype));
    const int64_t steps = args->m < args->n ? args->m : args->n;
    if (args->batch == 0) return XPU_SUCCESS;
    if (steps == 0) return clear_info(stream, args);
    const bool small = args->n <= WIDEST && args->m * args->n * (int64_t)xpu_dtype_size(args->dtype) <= 24576;
    for (int64_t first = 0; first < steps; first += OUTER) {
        const int64_t end = steps - first < OUTER ? steps : first + OUTER;
        for (int64_t panel = first; panel < end; panel += BLOCK) {
            const int64_t next = end - panel < BLOCK ? end : panel + BLOCK;
            factor_params p = describe(args, panel, small ? args->n : next - panel);
            p.pivots = XPU_ADDR(pivots);
            p.pivot_stride = steps;
            p.pivot = pivot;
            XPU_TRY(factor_panel(stream, args, p));
            if (small) return XPU_SUCCESS;
            if (pivot) XPU_TRY(exchange_rows(stream, args, p, first, end, panel, next - panel));
            XPU_TRY(update(stream, args, panel, next - panel, next, end - next));
        }
        factor_params p = describe(args, first, end - first);
        p.pivots = XPU_ADDR(pivots);
        p.pivot_stride = steps;
        if (pivot) XPU_TRY(exchange_rows(stream, args, p, 0, args->n, first, end - first));
        XPU_TRY(update(stream, args, first, end - first, end, args->n - end));
    }
    return XPU_SUCCESS;
}

xpu_status xpu_lu_permutation(xpu_stream *stream, const int32_t *pivots, int64_t batch, int64_t count,
                              int64_t rows, bool inverse, int64_t *permutation, xpu_fault *fault) {
    if (fault) fault->state = 0;
    if (count > rows)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "lu_permutation: %lld pivots exceed %lld rows",
                       (long long)count, (long long)rows);
    if (batch == 0 || rows == 0) return XPU_SUCCESS;
    const variant v = {
        .which = PERMUTATION, .dtype = XPU_FLOAT32, .group = PERMUTATION_GROUP, .held = PERMUTATION_HELD};
    permutation_params p = {.pivots = XPU_ADDR(pivots),
                            .permutation = XPU_ADDR(permutation),
                            .count = count,
                            .rows = rows,
                            .inverse = inverse,
                            .held = rows <= PERMUTATION_HELD};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), &v, &kernel));
    xpu_fault *place = NULL;
    if (fault) XPU_TRY(xpu_fault_watch(stream, &place));
    p.watch = (struct fault_watch){XPU_ADDR(place), XPU_ADDR("lu_solve or lu_unpack")};
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)batch},
                             .local = {PERMUTATION_GROUP},
                             .work = (uint64_t)(batch * (rows + count * 4))};
    XPU_TRY(xpu_launch(stream, kernel, &range, &p, sizeof p));
    if (fault) xpu_fault_take(stream, place, fault);
    return XPU_SUCCESS;
}

/* --- Cholesky --- */

static xpu_status factor_block(xpu_stream *stream, const xpu_factor_args *args, factor_params p) {
    const variant v = {.which = CHOLESKY, .dtype = args->dtype, .group = BLOCK * 4};
    p.a = XPU_ADDR(part(args->a, args->dtype, p.first, p.first).data);
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)args->batch},
                             .local = {(size_t)v.group},
                             .work = (uint64_t)(args->batch * p.width * p.width * p.width)};
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), &v, &kernel));
    return xpu_launch(stream, kernel, &range, &p, sizeof p);
}

/* Symmetric trailing update by columns first … first + width - 1 of L: `columns` columns from `next` on, from
 * the diagonal down. */
static xpu_status subtract_square(xpu_stream *stream, const xpu_factor_args *args, int64_t first,
                                  int64_t width, int64_t next, int64_t columns) {
    const xpu_matrix below = part(args->a, args->dtype, next, first);
    return subtract_product(stream, (xpu_gemm_args){.dtype = args->dtype,
                                                    .conjugate_b = dtype_is_complex(args->dtype),
                                                    .batch = args->batch,
                                                    .m = args->m - next,
                                                    .n = columns,
                                                    .k = width,
                                                    .a = below,
                                                    .b = swapped(below),
                                                    .out = part(args->a, args->dtype, next, next)});
}

xpu_status xpu_cholesky(xpu_stream *stream, const xpu_factor_args *args) {
    XPU_TRY(check_dtype(xpu_stream_device(stream), "cholesky", args->dtype));
    if (args->batch == 0) return XPU_SUCCESS;
    if (args->m == 0) return clear_info(stream, args);
    for (int64_t first = 0; first < args->m; first += OUTER) {
        const int64_t end = args->m - first < OUTER ? args->m : first + OUTER;
        for (int64_t block = first; block < end; block += BLOCK) {
            const int64_t next = end - block < BLOCK ? end : block + BLOCK, width = next - block;
            XPU_TRY(factor_block(stream, args, describe(args, block, width)));
            if (next == args->m) return XPU_SUCCESS;
            /* The block B below the diagonal becomes X with X L^H = B: conj(L) X^T = B^T. */
            const xpu_triangular_args solve = {.dtype = args->dtype,
                                               .conjugate = true,
                                               .batch = args->batch,
                                               .n = width,
                                               .columns = args->m - next,
                                               .a = part(args->a, args->dtype, block, block),
                                               .x = swapped(part(args->a, args->dtype, next, block))};
            XPU_TRY(solve_block(stream, &solve, 0, width));
            XPU_TRY(subtract_square(stream, args, block, width, next, end - next));
        }
        XPU_TRY(subtract_square(stream, args, first, end - first, end, args->m - end));
    }
    return XPU_SUCCESS;
}
