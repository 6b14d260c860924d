#include "gemm.h"

#include <string.h>

#include "epilogue.h"
#include "gemm_joined.h"
#include "host_provider.h"
#include "iter.h"
#include "matrix.h"
#include "product.h"
#include "team.h"
#include "xpu/ops/copy.h"
#include "xpu/trace.h"

/* One product: xpu_gemm_args, and what operands have that are narrower than the result. */
typedef struct problem {
    xpu_dtype dtype, operand; /* of C and the result; of A and B */
    xpu_ending ending;
    bool conjugate_a, conjugate_b;
    int64_t batch, m, n, k;
    xpu_matrix a, b, c, out, other;
    xpu_scalar alpha, beta;
    bool a_unsigned, b_unsigned; /* operand: int8 */
    gemm_after after;
    const quantised_operand *lines; /* B, where it is quantised */
    joined_form joined;
    xpu_grouped grouped; /* 0: all of the batch are alike */
    const int32_t *ends; /* of groups */
} problem;

static xpu_ending ending_of(const xpu_gemm_args *args) {
    return (xpu_ending){args->combine, args->epilogue, {args->epilogue_scalar[0], args->epilogue_scalar[1]}};
}

static problem problem_of(const xpu_gemm_args *args) {
    return (problem){.dtype = args->dtype,
                     .operand = args->dtype,
                     .ending = ending_of(args),
                     .conjugate_a = args->conjugate_a,
                     .conjugate_b = args->conjugate_b,
                     .batch = args->batch,
                     .m = args->m,
                     .n = args->n,
                     .k = args->k,
                     .a = args->a,
                     .b = args->b,
                     .c = args->c,
                     .out = args->out,
                     .other = args->other,
                     .alpha = args->alpha,
                     .beta = args->beta};
}

typedef enum gemm_kernel {
    KERNEL_TILES,
    KERNEL_HOST,
    KERNEL_MATRIX,
    KERNEL_ROW,
    KERNEL_THIN,
    KERNEL_VECTOR,
    KERNEL_FINISH,
    KERNEL_ROWS
} gemm_kernel;

typedef struct gemm_choice {
    gemm_kernel kernel;
    tile_shape tile;
    matrix_choice matrix;
    bool a_k_fast, b_k_fast, sliced;
    int rows, streams; /* KERNEL_THIN: rows of A and columns of B at once; KERNEL_HOST: rows */
    int out_piece, c_piece,
        other_piece; /* KERNEL_MATRIX: bytes beside each other that are written or read at a time, or 0 */
    bool has_c;
    int lanes, teams, columns; /* KERNEL_VECTOR */
    bool a_whole;
    int neighbours; /* KERNEL_ROWS */
} gemm_choice;

static xpu_status get_kernel(int device, const problem *args, gemm_choice choice, xpu_kernel **kernel) {
    static const char *const names[] = {"gemm",      "gemm_host",   "gemm_matrix", "gemm_row",
                                        "gemm_thin", "gemm_vector", "gemm_finish", "gemm_rows"};
    const bool tiled = choice.kernel == KERNEL_TILES, thin = choice.kernel == KERNEL_THIN;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_GEMM);
    product_spec(&spec, args->dtype);
    spec_pack(&spec, "OPERAND_T", args->operand, 8);
    spec_follows(&spec, "OPERAND_T=", args->operand == args->dtype ? NULL : dtype_token(args->operand));
    gemm_after_spec(&spec, &args->after);
    spec_flag(&spec, "A_UNSIGNED", args->a_unsigned);
    spec_flag(&spec, "B_UNSIGNED", args->b_unsigned);
    spec_flag(&spec, "QUANTISED_B", args->lines != NULL);
    if (args->lines) quantised_spec(&spec, args->lines);
    if (args->lines) spec_bool(&spec, "LINES_SHARE", args->lines->lines.group_across != 1);
    spec_number_if(&spec, tiled, "TILE", choice.tile.size, 8);
    spec_number_if(&spec, tiled, "TILE_K", choice.tile.depth, 5);
    spec_number_if(&spec, tiled, "SIDE", choice.tile.side, 4);
    spec_number_if(&spec, thin, "THIN", choice.rows, 4);
    spec_number_if(&spec, thin, "STREAMS", choice.streams, 4);
    spec_number_if(&spec, choice.kernel == KERNEL_HOST, "HOST_ROWS", choice.rows, 4);
    spec_follows_flag(&spec, "HALVES", choice.kernel == KERNEL_HOST && args->operand != XPU_FLOAT32);
    spec_pack(&spec, "which", choice.kernel, 4);
    spec_follows_flag(&spec, "ROW", choice.kernel == KERNEL_ROW);
    spec_follows_flag(&spec, "FINISH", choice.kernel == KERNEL_FINISH);
    spec_follows_flag(&spec, "ROWS_OF_SUMS", choice.kernel == KERNEL_ROWS);
    spec_number_if(&spec, choice.kernel == KERNEL_ROWS, "NEIGHBOURS", choice.neighbours, 4);
    matrix_spec(&spec, &choice.matrix, args->operand);
    const bool by_matrix = choice.kernel == KERNEL_MATRIX;
    spec_number_if(&spec, by_matrix, "OUT_PIECE", choice.out_piece, 5);
    spec_number_if(&spec, by_matrix, "C_FORM", !choice.has_c ? 0 : choice.c_piece ? 2 : 1, 2);
    spec_number_if(&spec, by_matrix, "C_PIECE", choice.c_piece, 5);
    const bool by_vector = choice.kernel == KERNEL_VECTOR;
    spec_follows_flag(&spec, "VECTOR", by_vector);
    spec_number_if(&spec, by_vector, "LANES", choice.lanes, 9);
    spec_number_if(&spec, by_vector, "TEAMS", choice.teams, 9);
    spec_number_if(&spec, by_vector, "COLUMNS", choice.columns, 3);
    spec_number_if(&spec, by_vector, "A_WHOLE", choice.a_whole, 1);
    const bool combines = args->ending.combine != XPU_COMBINE_NONE;
    spec_number_if(&spec, by_matrix && combines, "OTHER_PIECE", choice.other_piece, 5);
    const ending_params end = ending_params_of(args->dtype, &args->ending, NULL);
    ending_spec(&spec, &end);
    spec_bool(&spec, "CONJUGATE_A", args->conjugate_a);
    spec_bool(&spec, "CONJUGATE_B", args->conjugate_b);
    spec_bool(&spec, "A_K_FAST", choice.a_k_fast);
    spec_bool(&spec, "B_K_FAST", choice.b_k_fast);
    spec_bool(&spec, "SLICED", choice.sliced);
    if (by_vector) joined_spec(&spec, &args->joined); /* others' keys have no room */
    spec_number_if(&spec, args->grouped != 0, "GROUPED", args->grouped, 2);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_of_file(device, &spec, "gemm.cl", names[choice.kernel], kernel, "%s %s%s%s%s",
                          names[choice.kernel],
                          args->after.way && args->operand == XPU_INT8 ? "of int8 to " : "",
                          xpu_dtype_name(args->after.way ? args->after.way->dtype : args->dtype),
                          args->lines ? " x " : "", args->lines ? xpu_dtype_name(args->lines->q->dtype) : "");
}

/* Both sides' scales have one of three dtypes. */
static void scale_spec(kernel_spec *spec, const char *name, const line_scale *s) {
    const unsigned which = !s->data ? 0 : s->dtype == XPU_FLOAT32 ? 1 : s->dtype == XPU_BFLOAT16 ? 2 : 3;
    spec_pack(spec, name, which, 2);
    spec_follows(spec, name, s->data ? dtype_token(s->dtype) : NULL);
}
void gemm_after_spec(kernel_spec *spec, const gemm_after *after) {
    scale_spec(spec, "A_SCALE=", &after->a);
    scale_spec(spec, "B_SCALE=", &after->b);
    spec_flag(spec, "MINUS", after->is_lessened);
    leaving_spec(spec, after->way);
}

static gemm_strides strides_of(const xpu_matrix *matrix) {
    return (gemm_strides){matrix->batch_stride, matrix->row_stride, matrix->column_stride};
}

xpu_status gemm_check(const xpu_gemm_args *args, const xpu_device_properties *properties) {
    XPU_TRY(product_check_dtype(properties, args->dtype, "matrix product", false));
    if (args->batch < 0 || args->m < 0 || args->n < 0 || args->k < 0)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "matrix product: a size is negative");
    const xpu_ending ending = ending_of(args);
    return ending_check("matrix product", args->dtype, &ending, args->other.data);
}

/* One row of results is many small sums: no tile would be filled. A single column is a row of the
 * transposed product. */
static xpu_matrix transposed(xpu_matrix m) {
    return (xpu_matrix){m.data, m.batch_stride, m.column_stride, m.row_stride};
}
static void transpose(problem *args) {
    problem t = *args;
    t.m = args->n, t.n = args->m;
    t.a = transposed(args->b), t.b = transposed(args->a);
    t.c = transposed(args->c), t.out = transposed(args->out), t.other = transposed(args->other);
    t.conjugate_a = args->conjugate_b, t.conjugate_b = args->conjugate_a;
    t.a_unsigned = args->b_unsigned, t.b_unsigned = args->a_unsigned;
    t.after.a = args->after.b, t.after.b = args->after.a;
    t.after.less_a = args->after.less_b, t.after.less_b = args->after.less_a;
    if (args->grouped && args->grouped != XPU_GROUPED_K)
        t.grouped = args->grouped == XPU_GROUPED_ROWS ? XPU_GROUPED_COLUMNS : XPU_GROUPED_ROWS;
    *args = t;
}

/* A few rows times a large matrix take as long as reading that matrix does, and the host's libraries are
 * several times slower: one subgroup reads whole columns of it. oneDNN multiplies bf16 by instructions that
 * OpenCL C lacks; small matrices lie in the cache. `args` is what to do then, the longer side across. */
static bool is_thin(const xpu_device_properties *properties, const xpu_gemm_args *given, problem *args) {
    const xpu_dtype dtype = given->dtype;
    const int64_t longer = given->m > given->n ? given->m : given->n;
    if (longer * given->k < TUNED(true, THIN_ELEMENTS)) return false; /* before half of its time is spent */
    *args = problem_of(given);
    if (args->n < args->m) transpose(args);
    const int64_t rows = dtype == XPU_BFLOAT16 ? TUNED(true, THIN_ROWS_BF16) : TUNED(true, THIN_ROWS);
    return (dtype == XPU_FLOAT32 || dtype == XPU_FLOAT16 || dtype == XPU_BFLOAT16) && args->m <= rows &&
           args->n >= 16 && args->a.column_stride == 1 && args->b.row_stride == 1 &&
           properties->type == XPU_DEVICE_CPU && team_for(properties, args->k).subgroup;
}

static gemm_params params_of(const problem *args) {
    gemm_params params = {.a = XPU_ADDR(args->a.data),
                          .b = XPU_ADDR(args->b.data),
                          .c = XPU_ADDR(args->c.data),
                          .out = XPU_ADDR(args->out.data),
                          .ends = XPU_ADDR(args->ends),
                          .batch = args->batch,
                          .m = args->m,
                          .n = args->n,
                          .k = args->k,
                          .a_stride = strides_of(&args->a),
                          .b_stride = strides_of(&args->b),
                          .c_stride = strides_of(&args->c),
                          .out_stride = strides_of(&args->out),
                          .other_stride = strides_of(&args->other),
                          .end = ending_params_of(args->dtype, &args->ending, args->other.data),
                          .a_scale = XPU_ADDR(args->after.a.data),
                          .b_scale = XPU_ADDR(args->after.b.data),
                          .a_scale_stride = {args->after.a.batch, args->after.a.line},
                          .b_scale_stride = {args->after.b.batch, args->after.b.line}};
    const line_number *const less[2] = {&args->after.less_a, &args->after.less_b};
    for (int i = 0; i < 2; i++) {
        params.minus[i] = XPU_ADDR(less[i]->data), params.minus_stride[i] = less[i]->line;
        params.minus_plus[i] = less[i]->plus;
    }
    params.leave = leaving_params_of(args->after.way);
    product_scalar(args->dtype, &args->alpha, params.alpha);
    if (args->c.data) product_scalar(args->dtype, &args->beta, params.beta);
    return params;
}

gemm_params gemm_params_of(const xpu_gemm_args *args, const gemm_after *after) {
    problem all = problem_of(args);
    all.after = *after;
    return params_of(&all);
}

static xpu_status thin(xpu_stream *stream, const problem *args) {
    gemm_choice choice = {.kernel = KERNEL_THIN, .rows = args->m > 2 ? 4 : (int)args->m};
    choice.streams = args->k * choice.rows <= TUNED(true, THIN_STREAMED) ? 1 : 4;
    const int64_t columns = 16 / choice.rows;
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), args, choice, &kernel));
    const gemm_params params = params_of(args);
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)((args->n + columns - 1) / columns * args->batch)},
                             .local = {16},
                             .work = (uint64_t)(args->batch * args->n) * (uint64_t)args->k};
    return xpu_launch(stream, kernel, &range, &params, sizeof params);
}

/* What a product of a batch has, or one of groups on average. */
typedef struct groups_shape {
    int64_t m, n, k;
} groups_shape;
static groups_shape shape_of_groups(const problem *args) {
    groups_shape s = {args->m, args->n, args->k};
    int64_t *const cut[] = {NULL, &s.m, &s.n, &s.k};
    if (args->grouped) *cut[args->grouped] = divided_up(*cut[args->grouped], args->batch);
    return s;
}

/* How many tiles there are, at most: each group can have one that isn't full. */
static int64_t tiles_of(const problem *args, int64_t tile_m, int64_t tile_n) {
    const int64_t down = divided_up(args->m, tile_m), across = divided_up(args->n, tile_n);
    if (args->grouped == XPU_GROUPED_ROWS) return (args->m / tile_m + args->batch) * across;
    if (args->grouped == XPU_GROUPED_COLUMNS) return down * (args->n / tile_n + args->batch);
    return down * across * args->batch;
}

/* fp32 and halves on processors, where the host's libraries don't. Very few rows are not worth B's copies. */
enum { HOST_COLUMNS = 32, HOST_BAND = 96, HOST_LOCAL = 80 << 10 }; /* of a group: kernels/gemm_host.h */
static bool is_for_host(const xpu_device_properties *properties, const problem *args) {
    const bool halves = args->operand == XPU_FLOAT16 || args->operand == XPU_BFLOAT16;
    if (halves && (args->dtype != args->operand || properties->local_mem_size < HOST_LOCAL)) return false;
    return plans_for_processor(properties) && (halves || args->operand == XPU_FLOAT32) && !args->lines &&
           !args->after.a.data && !args->after.b.data && !args->after.way && args->m >= 4 && args->n >= 16 &&
           args->k >= 8;
}

static xpu_status multiply_on_host(xpu_stream *stream, const xpu_device_properties *properties,
                                   const problem *args) {
    gemm_choice choice = {.kernel = KERNEL_HOST,
                          .a_k_fast = args->a.column_stride == 1,
                          .b_k_fast = args->b.row_stride == 1 && args->b.column_stride != 1};
    choice.rows = host_rows_of(args->m);
    /* Each processor has some groups, if there are rows enough; one copies its columns of B for all its rows.
     */
    const groups_shape shape = shape_of_groups(args);
    const int64_t across = divided_up(shape.n, HOST_COLUMNS) * args->batch;
    const int64_t bands = divided_up(4 * (int64_t)properties->max_compute_units, across);
    int64_t band = rounded_up(divided_up(shape.m, bands), choice.rows);
    if (band > HOST_BAND) band = HOST_BAND / choice.rows * choice.rows;
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), args, choice, &kernel));
    gemm_params params = params_of(args);
    params.slice = band;
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)tiles_of(args, band, HOST_COLUMNS)},
                             .local = {1},
                             .work = (uint64_t)(args->batch * args->m * args->n) * (uint64_t)args->k / 8 + 1};
    return xpu_launch(stream, kernel, &range, &params, sizeof params);
}

/* A launch: which kernel, how many groups of which shape for one slice, and into how many slices k is cut. */
typedef struct gemm_plan {
    gemm_choice choice;
    int64_t groups, slices, slice;
    size_t local[2];
} gemm_plan;

/* Each operand as lines of neighbours: along k, or along its rows or columns. */
static bool find_lines(const xpu_matrix *matrix, int64_t x_stride, int64_t k_stride, bool *k_fast,
                       matrix_lines *lines) {
    *k_fast = k_stride == 1;
    *lines = (matrix_lines){matrix->data, *k_fast ? k_stride : x_stride, *k_fast ? x_stride : k_stride,
                            matrix->batch_stride};
    return lines->along == 1;
}

/* Within a tile places are 32-bit numbers of bytes. */
static bool is_near(const matrix_lines *lines, xpu_dtype dtype) {
    return lines->across >= 0 && lines->across <= UINT32_MAX / 256 / (int64_t)xpu_dtype_size(dtype);
}

/* How many bytes of a run of neighbours in the result, or in C, go at a time; 0 where they aren't neighbours.
 */
static int run_piece(const xpu_matrix *matrix, matrix_unit unit, xpu_dtype dtype) {
    const matrix_lines lines = {matrix->data, matrix->column_stride, matrix->row_stride,
                                matrix->batch_stride};
    const int run = (unit == MATRIX_UNIT_FMA || unit == MATRIX_UNIT_DOT ? 4 : 8) * (int)xpu_dtype_size(dtype);
    if (unit == MATRIX_UNIT_XMX || unit == MATRIX_UNIT_XMX8 || lines.along != 1)
        return 0; /* whose lanes have a column each */
    const int aligned = matrix_alignment(&lines, dtype);
    return aligned < run ? aligned : run;
}

/* --- operands that a unit can't read well, or not at all, are copied first --- */

/* An operand as the unit goes through it: `count` rows of A, or columns of B, and k. */
typedef struct operand {
    xpu_matrix *matrix;
    int64_t *stride, *k_stride;
    int64_t count, k, batch;
    bool is_cut[2]; /* neighbours across k, or along it, are of several groups: none begins at a multiple */
    void *workspace;
} operand;

static operand left_of(problem *args) {
    xpu_matrix *a = &args->a;
    return (operand){.matrix = a,
                     .stride = &a->row_stride,
                     .k_stride = &a->column_stride,
                     .count = args->m,
                     .k = args->k,
                     .batch = args->batch,
                     .is_cut = {args->grouped == XPU_GROUPED_ROWS, args->grouped == XPU_GROUPED_K}};
}
static operand right_of(problem *args) {
    xpu_matrix *b = &args->b;
    return (operand){.matrix = b,
                     .stride = &b->column_stride,
                     .k_stride = &b->row_stride,
                     .count = args->n,
                     .k = args->k,
                     .batch = args->batch,
                     .is_cut = {args->grouped == XPU_GROUPED_COLUMNS, args->grouped == XPU_GROUPED_K}};
}

static bool reads_well(matrix_unit unit, const matrix_lines *lines, bool k_fast, int64_t length,
                       int64_t count, xpu_dtype dtype) {
    const int quad = 4 * (int)xpu_dtype_size(dtype);
    if (unit == MATRIX_UNIT_XMX8)
        return k_fast && is_near(lines, dtype) && matrix_alignment(lines, dtype) == 16;
    if (unit == MATRIX_UNIT_DOT)
        return k_fast && is_near(lines, dtype) && matrix_alignment(lines, dtype) >= 4;
    if (unit == MATRIX_UNIT_XMX) return matrix_reads_blocks(lines, length, count, dtype);
    if (unit == MATRIX_UNIT_FMA)
        return is_near(lines, dtype) && matrix_alignment(lines, dtype) >= (quad < 16 ? quad : 16);
    return matrix_alignment(lines, dtype) == 16;
}

static bool is_ready(matrix_unit unit, const operand *o, xpu_dtype dtype) {
    matrix_lines lines;
    bool k_fast;
    return find_lines(o->matrix, *o->stride, *o->k_stride, &k_fast, &lines) && !o->is_cut[k_fast] &&
           reads_well(unit, &lines, k_fast, k_fast ? o->k : o->count, k_fast ? o->count : o->k, dtype);
}

/* Lines along k, or across it, that begin at multiples of 64 bytes. */
static matrix_lines packed_lines(const operand *o, bool k_fast, xpu_dtype dtype) {
    const int64_t line = 64 / (int64_t)xpu_dtype_size(dtype);
    const int64_t length = rounded_up(k_fast ? o->k : o->count, line), count = k_fast ? o->count : o->k;
    return (matrix_lines){NULL, 1, length, o->matrix->batch_stride == 0 ? 0 : length * count};
}
static bool can_pack(matrix_unit unit, const operand *o, bool k_fast, xpu_dtype dtype) {
    const matrix_lines lines = packed_lines(o, k_fast, dtype);
    return !o->is_cut[k_fast] &&
           reads_well(unit, &lines, k_fast, k_fast ? o->k : o->count, k_fast ? o->count : o->k, dtype);
}

xpu_status gemm_copy(xpu_stream *stream, const xpu_matrix *to, xpu_dtype to_dtype, const xpu_matrix *from,
                     xpu_dtype from_dtype, int64_t batch, int64_t rows, int64_t columns) {
    const int64_t t = (int64_t)xpu_dtype_size(to_dtype), f = (int64_t)xpu_dtype_size(from_dtype);
    xpu_iter iter = {
        .outputs = 1,
        .inputs = 1,
        .dims = 3,
        .size = {columns, rows, batch},
        .operand = {{.data = to->data,
                     .dtype = to_dtype,
                     .stride = {to->column_stride * t, to->row_stride * t, to->batch_stride * t}},
                    {.data = from->data,
                     .dtype = from_dtype,
                     .stride = {from->column_stride * f, from->row_stride * f, from->batch_stride * f}}}};
    iter_sort(&iter, 0);
    xpu_iter_coalesce(&iter);
    return xpu_copy(stream, &iter);
}

static xpu_status pack(xpu_stream *stream, operand *o, bool k_fast, xpu_dtype dtype) {
    const matrix_lines lines = packed_lines(o, k_fast, dtype);
    const int64_t count = k_fast ? o->count : o->k, batch = lines.batch == 0 ? 1 : o->batch;
    const size_t numbers = (size_t)(lines.across * count * batch);
    XPU_TRY(xpu_workspace_take(stream, numbers * xpu_dtype_size(dtype), &o->workspace));
    const xpu_matrix to = {o->workspace, lines.batch, lines.across, 1};
    const xpu_matrix from = {o->matrix->data, o->matrix->batch_stride, k_fast ? *o->stride : *o->k_stride,
                             k_fast ? *o->k_stride : *o->stride};
    XPU_TRY(gemm_copy(stream, &to, dtype, &from, dtype, batch, count, k_fast ? o->k : o->count));
    o->matrix->data = o->workspace;
    o->matrix->batch_stride = lines.batch;
    *(k_fast ? o->k_stride : o->stride) = 1;
    *(k_fast ? o->stride : o->k_stride) = lines.across;
    return XPU_SUCCESS;
}

/* Is it worth a copy? What has no lines is the plain kernel's, several times slower; lines that aren't
 * aligned cost the multiply-adds little. */
static bool is_worth(const problem *args, matrix_unit unit, bool has_lines, int64_t from) {
    const groups_shape s = shape_of_groups(args);
    const double size = (double)args->batch * (double)s.m * (double)s.n * (double)s.k;
    return size * (!has_lines ? 16 : unit == MATRIX_UNIT_FMA ? 1.0 / 32 : 1) >= (double)from;
}

/* Copies what the unit, or else a GPU's multiply-adds, would read badly. */
static xpu_status pack_operands(xpu_stream *stream, const xpu_device_properties *properties, problem *args,
                                matrix_unit unit, operand sides[2]) {
    const xpu_dtype dtype = args->operand;
    const int64_t from = TUNED(properties->type == XPU_DEVICE_CPU, PACKED_PRODUCT);
    if (args->m == 1 || args->n == 1 || args->k < 2) return XPU_SUCCESS;
    if (args->batch == 1) args->a.batch_stride = args->b.batch_stride = 0;
    sides[0] = left_of(args), sides[1] = right_of(args);
    bool k_fast[2], ready[2];
    for (;;) {
        bool can = unit != MATRIX_UNIT_NONE, along = unit != MATRIX_UNIT_XMX || xpu_dtype_size(dtype) == 2;
        for (int i = 0; i < 2; i++) {
            operand *o = &sides[i];
            ready[i] = is_ready(unit, o, dtype);
            k_fast[i] = *o->k_stride <= *o->stride;
            if (!ready[i] && !can_pack(unit, o, k_fast[i], dtype)) k_fast[i] = !k_fast[i];
            can = can && (ready[i] || can_pack(unit, o, k_fast[i], dtype));
            along = along || (ready[i] ? *o->k_stride == 1 : k_fast[i]);
        }
        if (can && !along) { /* halves aside, Intel's units want one along k */
            can = can_pack(unit, &sides[0], true, dtype);
            ready[0] = false, k_fast[0] = true;
        }
        if (can) break;
        const matrix_unit other = matrix_fma_of(properties);
        if (unit == other || other == MATRIX_UNIT_NONE) return XPU_SUCCESS;
        unit = other;
    }
    for (int i = 0; i < 2; i++) {
        const bool has_lines = *sides[i].stride == 1 || *sides[i].k_stride == 1;
        ready[i] = ready[i] || !is_worth(args, unit, has_lines, from);
    }
    for (int i = 0; i < 2; i++)
        if (!ready[i]) XPU_TRY(pack(stream, &sides[i], k_fast[i], dtype));
    return XPU_SUCCESS;
}

/* Of lines, and of the groups of 256 of them, places are 32-bit numbers. */
static bool are_near(const quantised_lines *l) {
    const int64_t most = INT32_MAX / 256 / 8, steps[] = {l->across, l->scale.across, l->zero.across};
    for (int i = 0; i < 3; i++)
        if (steps[i] < 0 || steps[i] > most) return false;
    return true;
}

/* Does the unit make numbers of B's octets as it reads them (kernels/matrix_quantised.h, gemm_octets.h)? */
static bool reads_octets(matrix_unit unit, const problem *args) {
    const quantised_operand *b = args->lines;
    if (unit == MATRIX_UNIT_XMX) return b->by_columns && quantised_has_blocks(b);
    return unit == MATRIX_UNIT_PTX && args->k >= 8 && args->k % 8 == 0 && b->by_columns &&
           quantised_has_octets(b) && are_near(&b->lines);
}

/* True where the unit does it. The product may be turned: so that rows of results lie in memory, or so that
 * the left operand lies along k. */
static bool plan_unit(int device, matrix_unit unit, bool emulated, const xpu_device_properties *properties,
                      problem *args, gemm_plan *plan) {
    gemm_choice choice = {
        .kernel = KERNEL_MATRIX,
        .matrix = {.device = device, .unit = unit, .emulated = emulated, .makes_b = args->lines != NULL}};
    matrix_choice *matrix = &choice.matrix;
    if (matrix->unit == MATRIX_UNIT_NONE || args->m == 1 || args->n == 1) return false;
    if (args->lines && !reads_octets(unit, args)) return false;
    problem turned = *args;
    if (turned.k == 1) turned.a.column_stride = turned.b.row_stride = 1;
    if (turned.batch == 1) turned.a.batch_stride = turned.b.batch_stride = turned.out.batch_stride = 0;
    const bool by_blocks = matrix->unit == MATRIX_UNIT_XMX, by_dot = matrix->unit == MATRIX_UNIT_DOT;
    const bool by_fma = matrix->unit == MATRIX_UNIT_FMA || by_dot;
    const bool is_half =
        xpu_dtype_size(args->operand) == 2; /* which Intel's units take across k on both sides */
    const bool is_narrow = turned.n <= 16 && turned.n < turned.m; /* tiles of so few are of rows */
    if (turned.lines          ? false
        : by_blocks           ? turned.a.column_stride != 1 && turned.b.row_stride == 1
        : by_fma && is_narrow ? true
                              : turned.out.row_stride == 1 && turned.out.column_stride != 1)
        transpose(&turned);

    matrix_lines a, b;
    if (!find_lines(&turned.a, turned.a.row_stride, turned.a.column_stride, &choice.a_k_fast, &a) ||
        !find_lines(&turned.b, turned.b.column_stride, turned.b.row_stride, &choice.b_k_fast, &b))
        return false;
    if (by_blocks &&
        !((choice.a_k_fast || (is_half && !choice.b_k_fast)) &&
          matrix_reads_blocks(&a, choice.a_k_fast ? turned.k : turned.m,
                              choice.a_k_fast ? turned.m : turned.k, args->operand) &&
          (turned.lines || matrix_reads_blocks(&b, choice.b_k_fast ? turned.k : turned.n,
                                               choice.b_k_fast ? turned.n : turned.k, args->operand))))
        return false;
    if ((by_fma || matrix->unit == MATRIX_UNIT_XMX8) &&
        !(is_near(&a, args->operand) && is_near(&b, args->operand)))
        return false;
    const int element = (int)xpu_dtype_size(args->operand);
    const bool a_is_cut = left_of(&turned).is_cut[choice.a_k_fast],
               b_is_cut = right_of(&turned).is_cut[choice.b_k_fast];
    if (by_blocks && (a_is_cut || b_is_cut)) return false;
    matrix->a_piece = a_is_cut ? element : matrix_alignment(&a, args->operand);
    matrix->b_piece = turned.lines ? 16 : b_is_cut ? element : matrix_alignment(&b, args->operand);
    if (turned.lines && matrix->a_piece != 16) return false;
    const int least = by_dot ? 4 : matrix->unit == MATRIX_UNIT_XMX8 ? 16 : 0; /* both along k */
    if (least &&
        !(choice.a_k_fast && choice.b_k_fast && matrix->a_piece >= least && matrix->b_piece >= least))
        return false;
    if (turned.batch == 1) turned.c.batch_stride = turned.other.batch_stride = 0;
    choice.has_c = turned.c.data != NULL;
    const xpu_way_out *way = turned.after.way;
    choice.out_piece = run_piece(&turned.out, unit, way ? way->dtype : args->dtype);
    if (turned.grouped == XPU_GROUPED_COLUMNS && choice.out_piece > element) choice.out_piece = element;
    choice.c_piece = choice.has_c ? run_piece(&turned.c, unit, args->dtype) : 0;
    const bool combines = turned.ending.combine != XPU_COMBINE_NONE;
    const bool is_alike = !way || way->other_dtype == args->dtype;
    choice.other_piece = combines && is_alike ? run_piece(&turned.other, unit, args->dtype) : 0;
    const groups_shape shape = shape_of_groups(&turned);
    matrix->tile = matrix_tile_for(matrix, args->operand, properties, turned.batch, shape.m, shape.n, shape.k,
                                   choice.a_k_fast + choice.b_k_fast, &plan->slices);
    if (turned.grouped) plan->slices = 1;
    if (matrix->tile < 0) return false;
    matrix_for_intel(matrix, properties);
    const matrix_tile *tile = matrix_tile_of(matrix);
    plan->choice = choice;
    plan->groups = tiles_of(&turned, tile->m, tile->n);
    plan->slice =
        rounded_up(divided_up(turned.k, plan->slices), matrix_step(tile, matrix->unit, args->operand));
    if (turned.k > 0) plan->slices = divided_up(turned.k, plan->slice);
    plan->local[0] = (size_t)(tile->teams_m * tile->teams_n * matrix_team(matrix->unit)), plan->local[1] = 1;
    *args = turned;
    return true;
}

/* True where the device's matrix units do it, or GPUs' multiply-adds by the same plan. */
static bool plan_matrix(int device, const xpu_device_properties *properties, problem *args, matrix_unit unit,
                        bool emulated, gemm_plan *plan) {
    bool plain_dot = false;
    const matrix_unit dot = matrix_dot_of(properties, args->operand, &plain_dot);
    return plan_unit(device, unit, emulated, properties, args, plan) ||
           plan_unit(device, dot, plain_dot, properties, args, plan) ||
           plan_unit(device, matrix_fma_of(properties), false, properties, args, plan);
}

/* One row of results, a line of B, or a part of each, a work-item: where B's lines can be read 16 bytes at a
 * time, which is what takes time. */
static bool plan_vector(const xpu_device_properties *properties, const problem *args, gemm_plan *plan) {
    gemm_choice *choice = &plan->choice;
    const int width = 16 / (int)xpu_dtype_size(args->operand);
    xpu_matrix b = args->b;
    if (args->batch == 1) b.batch_stride = 0;
    if (args->n == 1 && b.row_stride == 1) b.column_stride = args->k + width - 1;
    matrix_lines lines;
    if (args->m != 1 || matrix_fma_of(properties) == MATRIX_UNIT_NONE ||
        !find_lines(&b, b.column_stride, b.row_stride, &choice->b_k_fast, &lines))
        return false;
    if (args->n == 1 && choice->b_k_fast) lines.across = 0;
    if (matrix_alignment(&lines, args->operand) != 16) return false;
    const matrix_lines a = {args->a.data, args->a.column_stride, 0,
                            args->batch == 1 ? 0 : args->a.batch_stride};
    choice->kernel = KERNEL_VECTOR;
    choice->a_whole = choice->b_k_fast && a.along == 1 && matrix_alignment(&a, args->operand) == 16;
    const int64_t units = (int64_t)properties->gpu_subslice_count;
    if (choice->b_k_fast) {
        choice->lanes = args->k > 64 * width ? 128 : args->k > 16 * width ? 32 : 8;
        choice->teams = 128 / choice->lanes;
        choice->columns = args->n == 1 ? 1 : args->n / 4 * args->batch < 2 * units ? 2 : 4;
        plan->groups = divided_up(args->n, choice->columns * choice->teams);
    } else {
        choice->columns = 0;
        choice->lanes = args->n * args->batch >= 32 * width * units ? 16 : 4;
        choice->teams = 256 / choice->lanes;
        plan->groups = divided_up(args->n, choice->lanes * width);
    }
    plan->local[0] = (size_t)choice->lanes, plan->local[1] = (size_t)choice->teams;
    return true;
}

/* What a work-group reads of B, and how much is worth less than a second kernel that adds slices up. */
enum { UNCUT_BYTES = 256 << 10 };
static int64_t vector_bytes(const problem *args, const gemm_choice *choice) {
    const int64_t line = args->k * (int64_t)xpu_dtype_size(args->operand);
    return choice->b_k_fast ? line * choice->columns * choice->teams : args->k * choice->lanes * 16;
}

xpu_status joined_by_vector(xpu_stream *stream, const xpu_device_properties *properties,
                            const xpu_gemm_args *given, joined_product *joined) {
    const int count = joined->given->count;
    gemm_plan plan = {0};
    problem first = {0};
    for (int i = 0; i < count; i++) {
        const xpu_gemm_part *part = &joined->given->part[i];
        const xpu_gemm_args all = joined_args(given, part);
        problem one = problem_of(&all);
        one.n = i == 0 ? given->n : one.n;
        if (i > 0 && one.b.column_stride != first.b.column_stride) return XPU_ERROR_NOT_SUPPORTED;
        if (one.n == 1 || !plan_vector(properties, &one, &plan) || !plan.choice.b_k_fast ||
            (joined->form.normed && !plan.choice.a_whole))
            return XPU_ERROR_NOT_SUPPORTED;
        if (i == 0) first = one;
        joined->params.part[i].b = XPU_ADDR(part->b.data);
    }
    if (!joined_shares_heads(joined, 1, plan.choice.columns * plan.choice.teams))
        return XPU_ERROR_NOT_SUPPORTED;
    const int64_t groups = joined_blocks(joined, plan.choice.columns * plan.choice.teams);
    const int64_t slices = product_slices(properties, groups, given->k, given->n);
    if (slices > 1 && vector_bytes(&first, &plan.choice) > UNCUT_BYTES) return XPU_ERROR_NOT_SUPPORTED;
    first.joined = joined->form;
    plan.choice.a_k_fast = false;
    xpu_kernel *kernel;
    XPU_TRY(get_kernel(xpu_stream_device(stream), &first, plan.choice, &kernel));
    joined->params.given.gemm = params_of(&first);
    joined->params.given.gemm.slices = 1, joined->params.given.gemm.slice = given->k;
    const xpu_range range = {.dims = 2,
                             .groups = {(size_t)groups, 1},
                             .local = {plan.local[0], plan.local[1]},
                             .work = (uint64_t)given->n * (uint64_t)(given->k + 1)};
    return xpu_launch(stream, kernel, &range, &joined->params, sizeof joined->params);
}

static void plan_plain(const xpu_device_properties *properties, problem *args, gemm_plan *plan) {
    gemm_choice *choice = &plan->choice;
    if (args->n == 1 && args->m != 1) transpose(args);
    const bool by_vector = !args->grouped && plan_vector(properties, args, plan);
    if (by_vector) {
        choice->a_k_fast = false;
    } else if (args->m == 1 && !args->grouped) {
        choice->b_k_fast = args->b.row_stride == 1 && args->b.column_stride != 1;
        choice->kernel = KERNEL_ROW;
        choice->a_k_fast = false;
        plan->groups = choice->b_k_fast ? args->n : (args->n + 15) / 16;
        plan->local[0] = choice->b_k_fast ? 1 : 16, plan->local[1] = choice->b_k_fast ? 64 : 16;
    } else {
        choice->b_k_fast = args->b.row_stride == 1 && args->b.column_stride != 1;
        choice->kernel = KERNEL_TILES;
        choice->a_k_fast = args->a.column_stride == 1;
        const groups_shape shape = shape_of_groups(args);
        choice->tile = tile_for(properties, args->operand, shape.m, shape.n, args->batch);
        plan->groups = tiles_of(args, choice->tile.size, choice->tile.size);
        plan->local[0] = plan->local[1] = (size_t)(choice->tile.size / choice->tile.side);
    }
    if (choice->kernel != KERNEL_TILES) plan->groups *= args->batch;
    plan->slices = product_slices(properties, plan->groups, args->k, args->batch * args->m * args->n);
    if (args->grouped) plan->slices = 1;
    if (by_vector && vector_bytes(args, choice) <= UNCUT_BYTES) plan->slices = 1;
    plan->slice = divided_up(args->k, plan->slices);
    if (by_vector) plan->slice = rounded_up(plan->slice, 64);
    if (args->k > 0) plan->slices = divided_up(args->k, plan->slice); /* none is empty */
}

static xpu_status launch(xpu_stream *stream, const problem *args, gemm_plan *plan) {
    const int device = xpu_stream_device(stream);
    gemm_quantised_params params = {.gemm = params_of(args)};
    if (args->lines) params.b = args->lines->lines;
    const size_t size = args->lines ? sizeof params : sizeof params.gemm;
    params.gemm.slices = plan->slices;
    params.gemm.slice = plan->slice;
    plan->choice.sliced = plan->slices > 1;
    const groups_shape shape = shape_of_groups(args);
    const int64_t results = args->batch * shape.m * shape.n;
    const xpu_range range = {.dims = 2,
                             .groups = {(size_t)(plan->groups * plan->slices), 1, 1},
                             .local = {plan->local[0], plan->local[1]},
                             .work = (uint64_t)results * (uint64_t)(shape.k + 1)};
    sliced_product product = {
        .range = range, .dtype = args->operand, .results = results, .slices = plan->slices};
    XPU_TRY(get_kernel(device, args, plan->choice, &product.sum));
    if (plan->slices == 1) return xpu_launch(stream, product.sum, &range, &params, size);
    XPU_TRY(get_kernel(device, args, (gemm_choice){.kernel = KERNEL_FINISH}, &product.finish));
    return product_in_slices(stream, &product, &params, size, &params.gemm.partial);
}

/* By this library's kernels, none of the operands quantised. */
static xpu_status multiply(xpu_stream *stream, const xpu_device_properties *properties, problem args,
                           matrix_unit unit, bool emulated) {
    const int device = xpu_stream_device(stream);
    gemm_plan plan = {0};
    if (!plan_matrix(device, properties, &args, unit, emulated, &plan)) plan_plain(properties, &args, &plan);
    return launch(stream, &args, &plan);
}

/* By whatever kernel suits; packs operands first where that is worth it. */
static xpu_status compute(xpu_stream *stream, const xpu_device_properties *properties, const problem *given,
                          bool tf32) {
    problem args = *given;
    bool emulated = false;
    matrix_unit unit = matrix_unit_for(properties, args.operand, tf32, &emulated);
    bool plain_dot = false;
    const matrix_unit dot = matrix_dot_of(properties, args.operand, &plain_dot);
    if (unit == MATRIX_UNIT_NONE && dot == MATRIX_UNIT_NONE &&
        matrix_fma_of(properties) == MATRIX_UNIT_NONE) {
        if (is_for_host(properties, &args)) return multiply_on_host(stream, properties, &args);
        problem turned = args; /* few columns are few rows of the transpose */
        transpose(&turned);
        if (is_for_host(properties, &turned)) return multiply_on_host(stream, properties, &turned);
    }
    operand sides[2] = {{0}};
    xpu_status status = pack_operands(stream, properties, &args, unit ? unit : dot, sides);
    if (status == XPU_SUCCESS) status = multiply(stream, properties, args, unit, emulated);
    for (int i = 0; i < 2; i++) status = workspace_done(sides[i].workspace, status);
    return status;
}

/* By the host's library, whose results are ended by a pass of their own. */
static xpu_status gemm_by_host(xpu_stream *stream, const xpu_gemm_args *args, const xpu_ending *ending) {
    if (ending_is_none(ending)) return host_gemm(stream, args);
    if (ending->combine != XPU_COMBINE_NONE && args->other.data == args->out.data)
        return XPU_ERROR_NOT_SUPPORTED; /* which the product would write over */
    xpu_gemm_args bare = *args;
    bare.epilogue = XPU_EPILOGUE_NONE, bare.combine = XPU_COMBINE_NONE;
    XPU_TRY(host_gemm(stream, &bare));
    const int64_t size[] = {args->batch, args->m, args->n};
    const xpu_matrix *const m[] = {&args->out, &args->other};
    int64_t stride[2][3];
    xpu_tensor tensor[2];
    for (int i = 0; i < 2; i++) {
        stride[i][0] = m[i]->batch_stride, stride[i][1] = m[i]->row_stride;
        stride[i][2] = m[i]->column_stride;
        tensor[i] = (xpu_tensor){m[i]->data, args->dtype, 3, size, stride[i]};
    }
    return xpu_ending_apply(stream, ending, &tensor[1], &tensor[0]);
}

static xpu_status gemm(xpu_stream *stream, const xpu_gemm_args *given, bool tf32) {
    if (given->batch == 0 || given->m == 0 || given->n == 0) return XPU_SUCCESS;
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    const xpu_ending ending = ending_of(given);
    XPU_TRY(ending_check("matrix product", given->dtype, &ending, given->other.data));
    problem rows;
    if (is_thin(properties, given, &rows)) return thin(stream, &rows);
    const xpu_status by_host = gemm_by_host(stream, given, &ending);
    if (by_host != XPU_ERROR_NOT_SUPPORTED) return by_host;

    XPU_TRY(gemm_check(given, properties));
    const problem args = problem_of(given);
    return compute(stream, properties, &args, tf32);
}

xpu_status xpu_gemm(xpu_stream *stream, const xpu_gemm_args *args) { return gemm(stream, args, false); }

xpu_status xpu_gemm_tf32(xpu_stream *stream, const xpu_gemm_args *args) {
    return gemm(stream, args, args->dtype == XPU_FLOAT32);
}

xpu_status gemm_grouped_check(const xpu_gemm_args *args, const xpu_device_properties *properties,
                              xpu_grouped grouped, const int32_t *ends) {
    XPU_TRY(gemm_check(args, properties));
    if (grouped != XPU_GROUPED_ROWS && grouped != XPU_GROUPED_COLUMNS && grouped != XPU_GROUPED_K)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "grouped product: no dimension %d", (int)grouped);
    if (!dtype_is_floating(args->dtype) || args->c.data || args->combine != XPU_COMBINE_NONE ||
        args->epilogue != XPU_EPILOGUE_NONE || args->batch > INT32_MAX)
        return op_fail(XPU_ERROR_NOT_SUPPORTED,
                       "grouped product of %s: floating dtypes without C, combination and epilogue, in up to "
                       "2^31 groups",
                       xpu_dtype_name(args->dtype));
    if (!ends && args->batch > 0) return op_fail(XPU_ERROR_INVALID_ARGUMENT, "grouped product: ends is NULL");
    return XPU_SUCCESS;
}

xpu_gemm_args gemm_grouped_args(const xpu_gemm_args *args, xpu_grouped grouped) {
    xpu_gemm_args g = *args;
    xpu_matrix *const whole[][2] = {{0}, {&g.a, &g.out}, {&g.b, &g.out}, {&g.a, &g.b}};
    for (int i = 0; i < 2; i++) whole[grouped][i]->batch_stride = 0;
    return g;
}

xpu_status gemm_grouped(xpu_stream *stream, const xpu_device_properties *properties,
                        const xpu_gemm_args *args, xpu_grouped grouped, const int32_t *ends,
                        const gemm_after *after) {
    if (args->batch == 0 || args->m == 0 || args->n == 0) return XPU_SUCCESS;
    problem p = problem_of(args);
    p.grouped = grouped, p.ends = ends;
    if (after) p.after = *after;
    return compute(stream, properties, &p, false);
}

xpu_status xpu_gemm_grouped(xpu_stream *stream, const xpu_gemm_args *given, xpu_grouped grouped,
                            const int32_t *ends) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    XPU_TRY(gemm_grouped_check(given, properties, grouped, ends));
    const grouped_call call = {gemm_grouped_args(given, grouped), grouped, ends};
    const xpu_status by_host = host_gemm_grouped(stream, &call);
    return by_host == XPU_ERROR_NOT_SUPPORTED
               ? gemm_grouped(stream, properties, &call.args, grouped, ends, NULL)
               : by_host;
}

xpu_status xpu_gemm_unit(int device, xpu_dtype dtype, bool tf32, const char **unit) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    if ((unsigned)dtype >= XPU_DTYPE_COUNT)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "matrix product: no dtype %d", (int)dtype);
    XPU_TRY(product_check_dtype(properties, dtype, "matrix product", false));
    if (xpu_host_provider_active(device)) {
        *unit = "the host's libraries";
        return XPU_SUCCESS;
    }
    bool emulated = false;
    const matrix_unit found = matrix_first_unit(properties, dtype, tf32, &emulated);
    *unit = matrix_unit_text(found, dtype, emulated);
    return XPU_SUCCESS;
}

bool gemm_scale_of_lines(const xpu_quantised *q, bool is_left, int64_t k, line_scale *scale) {
    const int64_t across = is_left ? q->group_rows : q->group_columns;
    const int64_t along = is_left ? q->group_columns : q->group_rows;
    *scale = (line_scale){NULL, XPU_FLOAT32, 0, 0};
    if (q->whole_scale) return false;
    if (!q->scale) return true;
    const int64_t stride = is_left ? q->scale_row_stride : q->scale_column_stride;
    *scale = (line_scale){q->scale, q->scale_dtype, q->scale_batch_stride, across ? stride : 0};
    const bool is_known =
        q->scale_dtype == XPU_FLOAT32 || q->scale_dtype == XPU_BFLOAT16 || q->scale_dtype == XPU_FLOAT16;
    return is_known && !q->scale_is_tiled && (along == 0 || along >= k) && across <= 1;
}

/* int8 with a scale for each line, or for all of them, and none where results are integers. */
static bool is_bytes(const xpu_quantised *q, bool is_left, int64_t k, bool is_scaled, line_scale *scale) {
    return q->dtype == XPU_INT8 && !q->zero && !q->middle && (q->scale != NULL) == is_scaled &&
           gemm_scale_of_lines(q, is_left, k, scale);
}

bool gemm_takes_int8(const xpu_device_properties *properties, const xpu_gemm_args *args,
                     const xpu_quantised *a, const xpu_quantised *b, gemm_after *after) {
    bool emulated = false;
    const bool is_scaled = args->dtype != XPU_INT32;
    return a && b && is_bytes(a, true, args->k, is_scaled, &after->a) &&
           is_bytes(b, false, args->k, is_scaled, &after->b) &&
           (!is_scaled || matrix_unit_for(properties, XPU_INT8, false, &emulated) != MATRIX_UNIT_NONE ||
            matrix_dot_of(properties, XPU_INT8, &emulated) != MATRIX_UNIT_NONE);
}

xpu_status gemm_int8(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *given,
                     const gemm_after *after) {
    problem args = problem_of(given);
    args.operand = XPU_INT8, args.after = *after;
    return compute(stream, properties, &args, false);
}

/* By the unit, if it can. Intel's matrix units multiply uint8 as such, others less 128, and so do zero points
 * go with them; those of A need the sums of B's columns. */
static bool plan_bytes(int device, matrix_unit unit, bool emulated, const xpu_device_properties *properties,
                       problem *args, gemm_plan *plan) {
    problem p = *args;
    gemm_after *after = &p.after;
    const bool as_such = unit == MATRIX_UNIT_XMX || unit == MATRIX_UNIT_XMX8;
    if (p.a_unsigned && !as_such) after->less_a.plus -= 128;
    after->is_lessened = after->less_a.data || after->less_a.plus != 0;
    if ((after->is_lessened && !after->less_b.data) ||
        !plan_unit(device, unit, emulated, properties, &p, plan))
        return false;
    *args = p;
    return true;
}

bool gemm_try_bytes(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *given,
                    bool a_unsigned, const gemm_after *after, xpu_status *status) {
    const int device = xpu_stream_device(stream);
    bool emulated = false, plain_dot = false;
    const matrix_unit unit = matrix_unit_for(properties, XPU_INT8, false, &emulated);
    const matrix_unit dot = matrix_dot_of(properties, XPU_INT8, &plain_dot);
    if (!unit && !dot) return false;
    problem args = problem_of(given);
    args.operand = XPU_INT8, args.after = *after;
    args.a_unsigned = a_unsigned;
    operand sides[2] = {{0}};
    gemm_plan plan = {0};
    *status = pack_operands(stream, properties, &args, unit ? unit : dot, sides);
    const bool is_planned =
        *status == XPU_SUCCESS && (plan_bytes(device, unit, emulated, properties, &args, &plan) ||
                                   plan_bytes(device, dot, plain_dot, properties, &args, &plan));
    if (is_planned) *status = launch(stream, &args, &plan);
    const bool is_over = is_planned || *status != XPU_SUCCESS;
    for (int i = 0; i < 2; i++) *status = workspace_done(sides[i].workspace, *status);
    return is_over;
}

bool gemm_try_lines(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *given,
                    const int32_t *ends, const quantised_operand *b, const gemm_after *after,
                    xpu_status *status) {
    problem args = problem_of(given);
    args.after = *after, args.lines = b;
    if (ends) args.grouped = XPU_GROUPED_ROWS, args.ends = ends;
    args.b.row_stride = 1, args.b.column_stride = b->lines.across;
    bool emulated = false;
    const matrix_unit unit = matrix_unit_of(properties, args.operand, &emulated);
    gemm_plan plan = {0};
    if (!plan_unit(xpu_stream_device(stream), unit, emulated, properties, &args, &plan)) return false;
    *status = launch(stream, &args, &plan);
    return true;
}

/* The host's library sums in float32, and one pass over the sums does the rest. */
static xpu_status sums_by_host(xpu_stream *stream, const problem *args) {
    const int64_t m = args->m, n = args->n, results = args->batch * m * n;
    void *sums = NULL;
    xpu_kernel *finish;
    if (args->operand != XPU_FLOAT32 || !xpu_host_provider_active(xpu_stream_device(stream)))
        return XPU_ERROR_NOT_SUPPORTED;
    const int neighbours = (args->out.column_stride == 1) | (args->c.column_stride == 1) << 1 |
                           (args->other.column_stride == 1) << 2 | (args->after.b.line == 1) << 3;
    const gemm_choice choice = {.kernel = KERNEL_ROWS, .neighbours = neighbours};
    XPU_TRY(get_kernel(xpu_stream_device(stream), args, choice, &finish));
    XPU_TRY(xpu_workspace_take(stream, (size_t)results * sizeof(float), &sums));
    const xpu_gemm_args bare = {.dtype = XPU_FLOAT32,
                                .batch = args->batch,
                                .m = m,
                                .n = n,
                                .k = args->k,
                                .a = args->a,
                                .b = args->b,
                                .out = {sums, m * n, n, 1},
                                .alpha = {XPU_FLOAT64, {.f = 1}}};
    xpu_status status = host_gemm(stream, &bare);
    gemm_params params = params_of(args);
    params.partial = XPU_ADDR(sums), params.slices = 1, params.slice = args->k;
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)(args->batch * m * divided_up(n, GEMM_ROW_SPAN))},
                             .local = {GEMM_ROW_LANES},
                             .work = (uint64_t)results};
    if (status == XPU_SUCCESS) status = xpu_launch(stream, finish, &range, &params, sizeof params);
    return workspace_done(sums, status);
}

xpu_status gemm_scaled(xpu_stream *stream, const xpu_device_properties *properties,
                       const xpu_gemm_args *given, xpu_dtype operand, const gemm_after *after) {
    problem args = problem_of(given);
    args.operand = operand, args.after = *after;
    const xpu_status by_host = sums_by_host(stream, &args);
    return by_host == XPU_ERROR_NOT_SUPPORTED ? compute(stream, properties, &args, false) : by_host;
}
