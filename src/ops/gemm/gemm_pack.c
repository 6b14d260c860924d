/* Packing: operands that the kernel can't read, or reads inefficiently, are copied first. */
#include "ops/gemm/gemm_plan.h"
#include "ops/iter.h"
#include "xpu/ops/copy.h"

gemm_operand gemm_left_of(gemm_problem *args) {
    xpu_matrix *a = &args->a;
    return (gemm_operand){.matrix = a,
                          .stride = &a->row_stride,
                          .k_stride = &a->column_stride,
                          .count = args->m,
                          .k = args->k,
                          .batch = args->batch,
                          .is_cut = {args->grouped == XPU_GROUPED_ROWS, args->grouped == XPU_GROUPED_K}};
}
gemm_operand gemm_right_of(gemm_problem *args) {
    xpu_matrix *b = &args->b;
    return (gemm_operand){.matrix = b,
                          .stride = &b->column_stride,
                          .k_stride = &b->row_stride,
                          .count = args->n,
                          .k = args->k,
                          .batch = args->batch,
                          .is_cut = {args->grouped == XPU_GROUPED_COLUMNS, args->grouped == XPU_GROUPED_K}};
}

static bool reads_well(matrix_unit unit, const strided_view *lines, bool k_major, int64_t length,
                       int64_t count, xpu_dtype dtype) {
    const int quad = 4 * (int)xpu_dtype_size(dtype);
    if (unit == MATRIX_UNIT_XMX8)
        return k_major && gemm_offsets_fit_32bit(lines, dtype) && matrix_alignment(lines, dtype) == 16;
    if (unit == MATRIX_UNIT_DOT)
        return k_major && gemm_offsets_fit_32bit(lines, dtype) && matrix_alignment(lines, dtype) >= 4;
    if (unit == MATRIX_UNIT_XMX) return matrix_reads_blocks(lines, length, count, dtype);
    if (unit == MATRIX_UNIT_FMA)
        return gemm_offsets_fit_32bit(lines, dtype) &&
               matrix_alignment(lines, dtype) >= (quad < 16 ? quad : 16);
    return matrix_alignment(lines, dtype) == 16;
}

static bool is_ready(matrix_unit unit, const gemm_operand *o, xpu_dtype dtype) {
    strided_view lines;
    bool k_major;
    return gemm_find_layout(o->matrix, *o->stride, *o->k_stride, &k_major, &lines) && !o->is_cut[k_major] &&
           reads_well(unit, &lines, k_major, k_major ? o->k : o->count, k_major ? o->count : o->k, dtype);
}

/* Layout of a packed operand: rows (K-major or not) that start at multiples of 64 bytes. */
static strided_view packed_lines(const gemm_operand *o, bool k_major, xpu_dtype dtype) {
    const int64_t line = 64 / (int64_t)xpu_dtype_size(dtype);
    const int64_t length = align_up(k_major ? o->k : o->count, line), count = k_major ? o->count : o->k;
    return (strided_view){NULL, 1, length, o->matrix->batch_stride == 0 ? 0 : length * count};
}
static bool can_pack(matrix_unit unit, const gemm_operand *o, bool k_major, xpu_dtype dtype) {
    const strided_view lines = packed_lines(o, k_major, dtype);
    return !o->is_cut[k_major] &&
           reads_well(unit, &lines, k_major, k_major ? o->k : o->count, k_major ? o->count : o->k, dtype);
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

static xpu_status pack(xpu_stream *stream, gemm_operand *o, bool k_major, xpu_dtype dtype) {
    const strided_view lines = packed_lines(o, k_major, dtype);
    const int64_t count = k_major ? o->count : o->k, batch = lines.batch == 0 ? 1 : o->batch;
    const size_t numbers = (size_t)(lines.across * count * batch);
    XPU_TRY(xpu_workspace_take(stream, numbers * xpu_dtype_size(dtype), &o->workspace));
    const xpu_matrix to = {o->workspace, lines.batch, lines.across, 1};
    const xpu_matrix from = {o->matrix->data, o->matrix->batch_stride, k_major ? *o->stride : *o->k_stride,
                             k_major ? *o->k_stride : *o->stride};
    XPU_TRY(gemm_copy(stream, &to, dtype, &from, dtype, batch, count, k_major ? o->k : o->count));
    o->matrix->data = o->workspace;
    o->matrix->batch_stride = lines.batch;
    *(k_major ? o->k_stride : o->stride) = 1;
    *(k_major ? o->stride : o->k_stride) = lines.across;
    return XPU_SUCCESS;
}

/* Is packing worth it? An operand without a contiguous dimension would need the portable kernel, which is
 * several times slower. Misaligned rows cost plain multiply-adds little. */
static bool is_worth(const gemm_problem *args, matrix_unit unit, bool has_lines, int64_t from) {
    const groups_shape s = gemm_shape_of_groups(args);
    const double size = (double)args->batch * (double)s.m * (double)s.n * (double)s.k;
    return size * (!has_lines ? 16 : unit == MATRIX_UNIT_FMA ? 1.0 / 32 : 1) >= (double)from;
}

xpu_status gemm_pack(xpu_stream *stream, const xpu_device_properties *properties, gemm_problem *args,
                     matrix_unit unit, gemm_operand sides[2]) {
    const xpu_dtype dtype = args->operand;
    const int64_t from = TUNED(properties->type == XPU_DEVICE_CPU, PACKED_PRODUCT);
    if (args->m == 1 || args->n == 1 || args->k < 2) return XPU_SUCCESS;
    if (args->batch == 1) args->a.batch_stride = args->b.batch_stride = 0;
    sides[0] = gemm_left_of(args), sides[1] = gemm_right_of(args);
    bool k_major[2], ready[2];
    for (;;) {
        bool can = unit != MATRIX_UNIT_NONE, along = unit != MATRIX_UNIT_XMX || xpu_dtype_size(dtype) == 2;
        for (int i = 0; i < 2; i++) {
            gemm_operand *o = &sides[i];
            ready[i] = is_ready(unit, o, dtype);
            k_major[i] = *o->k_stride <= *o->stride;
            if (!ready[i] && !can_pack(unit, o, k_major[i], dtype)) k_major[i] = !k_major[i];
            can = can && (ready[i] || can_pack(unit, o, k_major[i], dtype));
            along = along || (ready[i] ? *o->k_stride == 1 : k_major[i]);
        }
        if (can && !along) { /* except in half precision, XMX needs one K-major operand */
            can = can_pack(unit, &sides[0], true, dtype);
            ready[0] = false, k_major[0] = true;
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
        if (!ready[i]) XPU_TRY(pack(stream, &sides[i], k_major[i], dtype));
    return XPU_SUCCESS;
}
