/* Plans a product: kernel, tiles and launch. */
#include "ops/gemm/gemm_plan.h"

#include "ops/gemm/epilogue.h"
#include "ops/gemm/host_provider.h"
#include "ops/iter.h"

xpu_post_ops gemm_post_ops_of(const xpu_gemm_args *args) {
    return (xpu_post_ops){
        args->combine, args->epilogue, {args->epilogue_scalar[0], args->epilogue_scalar[1]}};
}

gemm_problem gemm_problem_of(const xpu_gemm_args *args) {
    return (gemm_problem){.dtype = args->dtype,
                          .operand = args->dtype,
                          .ending = gemm_post_ops_of(args),
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

/* One row of results is many small sums: no tile would be filled. A single column is a row of the transposed
 * product. */
static xpu_matrix transposed(xpu_matrix m) {
    return (xpu_matrix){m.data, m.batch_stride, m.column_stride, m.row_stride};
}
void gemm_transpose(gemm_problem *args) {
    gemm_problem t = *args;
    t.m = args->n, t.n = args->m;
    t.a = transposed(args->b), t.b = transposed(args->a);
    t.c = transposed(args->c), t.out = transposed(args->out), t.other = transposed(args->other);
    t.conjugate_a = args->conjugate_b, t.conjugate_b = args->conjugate_a;
    t.a_unsigned = args->b_unsigned, t.b_unsigned = args->a_unsigned;
    t.after.a = args->after.b, t.after.b = args->after.a;
    t.after.compensation_a = args->after.compensation_b, t.after.compensation_b = args->after.compensation_a;
    if (args->grouped && args->grouped != XPU_GROUPED_K)
        t.grouped = args->grouped == XPU_GROUPED_ROWS ? XPU_GROUPED_COLUMNS : XPU_GROUPED_ROWS;
    *args = t;
}

xpu_status gemm_kernel_of(int device, const gemm_problem *args, gemm_choice choice, xpu_kernel **kernel) {
    static const char *const names[] = {"gemm",        "gemm_host", "gemm_matrix",        "gemv_portable",
                                        "gemm_skinny", "gemv",      "gemm_reduce_slices", "gemm_epilogue"};
    const bool tiled = choice.kernel == KERNEL_TILES, thin = choice.kernel == KERNEL_SKINNY;
    kernel_spec spec;
    spec_begin(&spec, FAMILY_GEMM);
    product_spec(&spec, args->dtype);
    spec_key_only(&spec, "OPERAND_T", args->operand, 8);
    spec_option(&spec, "OPERAND_T=", args->operand == args->dtype ? NULL : dtype_token(args->operand));
    gemm_post_process_spec(&spec, &args->after);
    spec_flag(&spec, "A_UNSIGNED", args->a_unsigned);
    spec_flag(&spec, "B_UNSIGNED", args->b_unsigned);
    spec_flag(&spec, "QUANTIZED_B", args->lines != NULL);
    if (args->lines) quantized_spec(&spec, args->lines);
    if (args->lines) spec_bool(&spec, "ROWS_SHARE_SCALES", args->lines->lines.group_across != 1);
    if (args->lines && choice.matrix.unit == MATRIX_UNIT_PTX) {
        const int alike = quantized_vec8_per_scale(args->lines), bytes = quantized_row_alignment(args->lines);
        spec_key_only(&spec, "alike", alike, 2);
        spec_option_int(&spec, "GROUP_OCTETS", 1 << alike);
        spec_key_only(&spec, "bytes", bytes, 2);
        spec_option_int(&spec, "ROW_ALIGNMENT", 2 << bytes);
    }
    spec_int_if(&spec, tiled, "TILE", choice.tile.size, 8);
    spec_int_if(&spec, tiled, "TILE_K", choice.tile.depth, 5);
    spec_int_if(&spec, tiled, "SIDE", choice.tile.side, 4);
    const bool host = choice.kernel == KERNEL_HOST, finish = choice.kernel == KERNEL_FINISH;
    spec_key_only(&spec, "rows", choice.rows, 6);
    if (thin || host || finish)
        spec_option_int(&spec, thin ? "SKINNY" : host ? "HOST_ROWS" : "PARTS", choice.rows);
    spec_int_if(&spec, thin, "COLUMNS_AT_ONCE", choice.streams, 4);
    spec_option_flag(&spec, "HALVES", host && args->operand != XPU_FLOAT32);
    spec_key_only(&spec, "which", choice.kernel, 4);
    spec_option_flag(&spec, "ROW", choice.kernel == KERNEL_GEMV_PORTABLE);
    spec_option_flag(&spec, "FINISH", finish);
    spec_option_flag(&spec, "ROWS_OF_SUMS", choice.kernel == KERNEL_EPILOGUE);
    spec_int_if(&spec, choice.kernel == KERNEL_EPILOGUE, "CONTIGUOUS_MASK", choice.neighbors, 4);
    matrix_spec(&spec, &choice.matrix, args->operand);
    const bool by_matrix = choice.kernel == KERNEL_MATRIX;
    spec_int_if(&spec, by_matrix, "OUT_VECTOR_BYTES", choice.out_vector_bytes, 5);
    spec_int_if(&spec, by_matrix, "C_FORM", !choice.has_c ? 0 : choice.c_vector_bytes ? 2 : 1, 2);
    spec_int_if(&spec, by_matrix, "C_VECTOR_BYTES", choice.c_vector_bytes, 5);
    const bool by_vector = choice.kernel == KERNEL_GEMV;
    spec_option_flag(&spec, "VECTOR", by_vector);
    spec_int_if(&spec, by_vector, "LANES", choice.lanes, 9);
    spec_int_if(&spec, by_vector, "SUBGROUPS", choice.subgroups, 9);
    spec_int_if(&spec, by_vector, "COLUMNS", choice.columns, 3);
    spec_int_if(&spec, by_vector, "A_WHOLE", choice.a_whole, 1);
    const bool combines = args->ending.combine != XPU_COMBINE_NONE;
    spec_int_if(&spec, by_matrix && combines, "OTHER_VECTOR_BYTES", choice.other_vector_bytes, 5);
    const post_ops_params end = post_ops_params_of(args->dtype, &args->ending, NULL);
    post_ops_spec(&spec, &end);
    spec_bool(&spec, "CONJUGATE_A", args->conjugate_a);
    spec_bool(&spec, "CONJUGATE_B", args->conjugate_b);
    spec_bool(&spec, "A_K_MAJOR", choice.a_k_major);
    spec_bool(&spec, "B_K_MAJOR", choice.b_k_major);
    spec_bool(&spec, "IS_SPLIT", choice.sliced);
    if (by_vector) fused_spec(&spec, &args->fused); /* other kernels have no room for it in their keys */
    spec_int_if(&spec, args->grouped != 0, "GROUPED", args->grouped, 2);
    *kernel = kernel_find(device, &spec);
    if (*kernel) return XPU_SUCCESS;
    return kernel_from_file(
        device, &spec, "gemm.cl", names[choice.kernel], kernel, "%s %s%s%s%s", names[choice.kernel],
        args->after.way && args->operand == XPU_INT8 ? "of int8 to " : "",
        xpu_dtype_name(args->after.way ? args->after.way->dtype : args->dtype), args->lines ? " x " : "",
        args->lines ? xpu_dtype_name(args->lines->q->dtype) : "");
}

/* Both sides' scales have one of three dtypes. */
static void scale_spec(kernel_spec *spec, const char *name, const vector_scale *s) {
    const unsigned which = !s->data ? 0 : s->dtype == XPU_FLOAT32 ? 1 : s->dtype == XPU_BFLOAT16 ? 2 : 3;
    spec_key_only(spec, name, which, 2);
    spec_option(spec, name, s->data ? dtype_token(s->dtype) : NULL);
}
void gemm_post_process_spec(kernel_spec *spec, const gemm_post_process *after) {
    scale_spec(spec, "A_SCALE=", &after->a);
    scale_spec(spec, "B_SCALE=", &after->b);
    spec_flag(spec, "ZERO_COMPENSATION", after->is_compensated);
    output_quant_spec(spec, after->way);
}

static gemm_strides strides_of(const xpu_matrix *matrix) {
    return (gemm_strides){matrix->batch_stride, matrix->row_stride, matrix->column_stride};
}

gemm_params gemm_params_for(const gemm_problem *args) {
    gemm_params params = {.a = XPU_ADDR(args->a.data),
                          .b = XPU_ADDR(args->b.data),
                          .c = XPU_ADDR(args->c.data),
                          .out = XPU_ADDR(args->out.data),
                          .ends = XPU_ADDR(args->ends),
                          .partial = XPU_ADDR(args->fault),
                          .slices = (int64_t)XPU_ADDR(GEMM_BAD_ENDS),
                          .batch = args->batch,
                          .m = args->m,
                          .n = args->n,
                          .k = args->k,
                          .a_stride = strides_of(&args->a),
                          .b_stride = strides_of(&args->b),
                          .c_stride = strides_of(&args->c),
                          .out_stride = strides_of(&args->out),
                          .other_stride = strides_of(&args->other),
                          .end = post_ops_params_of(args->dtype, &args->ending, args->other.data),
                          .a_scale = XPU_ADDR(args->after.a.data),
                          .b_scale = XPU_ADDR(args->after.b.data),
                          .a_scale_stride = {args->after.a.batch, args->after.a.line},
                          .b_scale_stride = {args->after.b.batch, args->after.b.line}};
    const vector_zero_point *const less[2] = {&args->after.compensation_a, &args->after.compensation_b};
    for (int i = 0; i < 2; i++) {
        params.compensation[i] = XPU_ADDR(less[i]->data), params.compensation_stride[i] = less[i]->line;
        params.compensation_common[i] = less[i]->plus;
    }
    params.leave = output_quant_params_of(args->after.way);
    product_scalar(args->dtype, &args->alpha, params.alpha);
    if (args->c.data) product_scalar(args->dtype, &args->beta, params.beta);
    return params;
}

gemm_params gemm_params_of(const xpu_gemm_args *args, const gemm_post_process *after) {
    gemm_problem all = gemm_problem_of(args);
    all.after = *after;
    return gemm_params_for(&all);
}

groups_shape gemm_shape_of_groups(const gemm_problem *args) {
    groups_shape s = {args->m, args->n, args->k};
    int64_t *const cut[] = {NULL, &s.m, &s.n, &s.k};
    if (args->grouped) *cut[args->grouped] = div_up(*cut[args->grouped], args->batch);
    return s;
}

int64_t gemm_tiles_of(const gemm_problem *args, int64_t tile_m, int64_t tile_n) {
    const int64_t down = div_up(args->m, tile_m), across = div_up(args->n, tile_n);
    if (args->grouped == XPU_GROUPED_ROWS) return (args->m / tile_m + args->batch) * across;
    if (args->grouped == XPU_GROUPED_COLUMNS) return down * (args->n / tile_n + args->batch);
    return down * across * args->batch;
}

bool gemm_find_layout(const xpu_matrix *matrix, int64_t x_stride, int64_t k_stride, bool *k_major,
                      strided_view *lines) {
    *k_major = k_stride == 1;
    *lines = (strided_view){matrix->data, *k_major ? k_stride : x_stride, *k_major ? x_stride : k_stride,
                            matrix->batch_stride};
    return lines->along == 1;
}

bool gemm_offsets_fit_32bit(const strided_view *lines, xpu_dtype dtype) {
    return lines->across >= 0 && lines->across <= UINT32_MAX / 256 / (int64_t)xpu_dtype_size(dtype);
}

/* Bytes of a contiguous run of the result, or of C, that are accessed at a time; 0 if it is not
 * contiguous. */
static int run_vector_bytes(const xpu_matrix *matrix, matrix_unit unit, xpu_dtype dtype) {
    const strided_view lines = {matrix->data, matrix->column_stride, matrix->row_stride,
                                matrix->batch_stride};
    const int run = (unit == MATRIX_UNIT_FMA || unit == MATRIX_UNIT_DOT ? 4 : 8) * (int)xpu_dtype_size(dtype);
    if (unit == MATRIX_UNIT_XMX || unit == MATRIX_UNIT_XMX8 || lines.along != 1)
        return 0; /* each lane has one column */
    const int aligned = matrix_alignment(&lines, dtype);
    return aligned < run ? aligned : run;
}

/* Offsets of rows and of blocks of 256 rows must fit 32 bits. */
static bool strides_fit_32bit(const quantized_lines *l) {
    const int64_t most = INT32_MAX / 256 / 8, steps[] = {l->across, l->scale.across, l->zero.across};
    for (int i = 0; i < 3; i++)
        if (steps[i] < 0 || steps[i] > most) return false;
    return true;
}

/* Does the engine's kernel dequantize aligned runs of eight elements of B on the fly
 * (kernels/matrix/mma_dequant.h, kernels/gemm/gemm_xmx_dequant.h)? */
static bool reads_vec8(matrix_unit unit, const gemm_problem *args) {
    const quantized_operand *b = args->lines;
    if (unit == MATRIX_UNIT_XMX) return b->by_columns && quantized_has_blocks(b);
    return unit == MATRIX_UNIT_PTX && args->k >= 8 && args->k % 8 == 0 && b->by_columns &&
           quantized_has_vec8(b) && strides_fit_32bit(&b->lines);
}

bool gemm_plan_unit(int device, matrix_unit unit, bool emulated, const xpu_device_properties *properties,
                    gemm_problem *args, gemm_plan *plan) {
    const int b_bits = args->lines ? quantized_bits(args->lines) : 0;
    gemm_choice choice = {.kernel = KERNEL_MATRIX,
                          .matrix = {.device = device, .unit = unit, .emulated = emulated, .b_bits = b_bits}};
    matrix_choice *matrix = &choice.matrix;
    if (matrix->unit == MATRIX_UNIT_NONE || args->m == 1 || args->n == 1) return false;
    if (args->lines && !reads_vec8(unit, args)) return false;
    gemm_problem oriented = *args;
    if (oriented.k == 1) oriented.a.column_stride = oriented.b.row_stride = 1;
    if (oriented.batch == 1)
        oriented.a.batch_stride = oriented.b.batch_stride = oriented.out.batch_stride = 0;
    const bool by_blocks = matrix->unit == MATRIX_UNIT_XMX, by_dot = matrix->unit == MATRIX_UNIT_DOT;
    const bool by_fma = matrix->unit == MATRIX_UNIT_FMA || by_dot;
    const bool is_half =
        xpu_dtype_size(args->operand) == 2; /* for which XMX allows both operands not K-major */
    const bool is_narrow = oriented.n <= 16 && oriented.n < oriented.m; /* tiles of so few are of rows */
    if (oriented.lines        ? false
        : by_blocks           ? oriented.a.column_stride != 1 && oriented.b.row_stride == 1
        : by_fma && is_narrow ? true
                              : oriented.out.row_stride == 1 && oriented.out.column_stride != 1)
        gemm_transpose(&oriented);

    strided_view a, b;
    if (!gemm_find_layout(&oriented.a, oriented.a.row_stride, oriented.a.column_stride, &choice.a_k_major,
                          &a) ||
        !gemm_find_layout(&oriented.b, oriented.b.column_stride, oriented.b.row_stride, &choice.b_k_major,
                          &b))
        return false;
    if (by_blocks &&
        !((choice.a_k_major || (is_half && !choice.b_k_major)) &&
          matrix_reads_blocks(&a, choice.a_k_major ? oriented.k : oriented.m,
                              choice.a_k_major ? oriented.m : oriented.k, args->operand) &&
          (oriented.lines || matrix_reads_blocks(&b, choice.b_k_major ? oriented.k : oriented.n,
                                                 choice.b_k_major ? oriented.n : oriented.k, args->operand))))
        return false;
    if ((by_fma || matrix->unit == MATRIX_UNIT_XMX8) &&
        !(gemm_offsets_fit_32bit(&a, args->operand) && gemm_offsets_fit_32bit(&b, args->operand)))
        return false;
    const int element = (int)xpu_dtype_size(args->operand);
    const bool a_is_cut = gemm_left_of(&oriented).is_cut[choice.a_k_major],
               b_is_cut = gemm_right_of(&oriented).is_cut[choice.b_k_major];
    if (by_blocks && (a_is_cut || b_is_cut)) return false;
    matrix->a_alignment = a_is_cut ? element : matrix_alignment(&a, args->operand);
    matrix->b_alignment = oriented.lines ? 16 : b_is_cut ? element : matrix_alignment(&b, args->operand);
    if (oriented.lines && matrix->a_alignment != 16) return false;
    const int least = by_dot ? 4 : matrix->unit == MATRIX_UNIT_XMX8 ? 16 : 0; /* both along k */
    if (least && !(choice.a_k_major && choice.b_k_major && matrix->a_alignment >= least &&
                   matrix->b_alignment >= least))
        return false;
    if (oriented.batch == 1) oriented.c.batch_stride = oriented.other.batch_stride = 0;
    choice.has_c = oriented.c.data != NULL;
    const xpu_output_quant *way = oriented.after.way;
    choice.out_vector_bytes = run_vector_bytes(&oriented.out, unit, way ? way->dtype : args->dtype);
    if (oriented.grouped == XPU_GROUPED_COLUMNS && choice.out_vector_bytes > element)
        choice.out_vector_bytes = element;
    choice.c_vector_bytes = choice.has_c ? run_vector_bytes(&oriented.c, unit, args->dtype) : 0;
    const bool combines = oriented.ending.combine != XPU_COMBINE_NONE;
    const bool is_alike = !way || way->other_dtype == args->dtype;
    choice.other_vector_bytes =
        combines && is_alike ? run_vector_bytes(&oriented.other, unit, args->dtype) : 0;
    const groups_shape shape = gemm_shape_of_groups(&oriented);
    matrix->tile = matrix_tile_for(matrix, args->operand, properties, oriented.batch, shape.m, shape.n,
                                   shape.k, choice.a_k_major + choice.b_k_major, &plan->slices);
    if (oriented.grouped) plan->slices = 1;
    if (matrix->tile < 0) return false;
    matrix_for_intel(matrix, properties);
    const matrix_tile *tile = matrix_tile_of(matrix);
    plan->choice = choice;
    plan->groups = gemm_tiles_of(&oriented, tile->m, tile->n);
    plan->slice = align_up(div_up(oriented.k, plan->slices), matrix_step(tile, matrix->unit, args->operand));
    if (oriented.k > 0) plan->slices = div_up(oriented.k, plan->slice);
    plan->local[0] = (size_t)(tile->subgroups_m * tile->subgroups_n * matrix_subgroup_size(matrix->unit)),
    plan->local[1] = 1;
    *args = oriented;
    return true;
}

bool gemm_plan_matrix(int device, const xpu_device_properties *properties, gemm_problem *args,
                      matrix_unit unit, bool emulated, gemm_plan *plan) {
    bool plain_dot = false;
    const matrix_unit dot = matrix_dot_of(properties, args->operand, &plain_dot);
    return gemm_plan_unit(device, unit, emulated, properties, args, plan) ||
           gemm_plan_unit(device, dot, plain_dot, properties, args, plan) ||
           gemm_plan_unit(device, matrix_fma_of(properties), false, properties, args, plan);
}

/* GEMV: one row of A. A work-item computes one column of B or a part of it. It is bound by memory, so B must
 * allow 16-byte loads. */
static bool plan_gemv(const xpu_device_properties *properties, const gemm_problem *args, gemm_plan *plan) {
    gemm_choice *choice = &plan->choice;
    const int width = 16 / (int)xpu_dtype_size(args->operand);
    xpu_matrix b = args->b;
    if (args->batch == 1) b.batch_stride = 0;
    if (args->n == 1 && b.row_stride == 1) b.column_stride = args->k + width - 1;
    strided_view lines;
    if (args->m != 1 || matrix_fma_of(properties) == MATRIX_UNIT_NONE ||
        !gemm_find_layout(&b, b.column_stride, b.row_stride, &choice->b_k_major, &lines))
        return false;
    if (args->n == 1 && choice->b_k_major) lines.across = 0;
    if (matrix_alignment(&lines, args->operand) != 16) return false;
    const strided_view a = {args->a.data, args->a.column_stride, 0,
                            args->batch == 1 ? 0 : args->a.batch_stride};
    choice->kernel = KERNEL_GEMV;
    choice->a_whole = choice->b_k_major && a.along == 1 && matrix_alignment(&a, args->operand) == 16;
    const int64_t units = (int64_t)properties->gpu_subslice_count;
    if (choice->b_k_major) {
        choice->lanes = args->k > 64 * width ? 128 : args->k > 16 * width ? 32 : 8;
        choice->subgroups = 128 / choice->lanes;
        choice->columns = args->n == 1 ? 1 : args->n / 4 * args->batch < 2 * units ? 2 : 4;
        plan->groups = div_up(args->n, choice->columns * choice->subgroups);
    } else {
        choice->columns = 0;
        choice->lanes = args->n * args->batch >= 32 * width * units ? 16 : 4;
        choice->subgroups = 256 / choice->lanes;
        plan->groups = div_up(args->n, choice->lanes * width);
    }
    plan->local[0] = (size_t)choice->lanes, plan->local[1] = (size_t)choice->subgroups;
    return true;
}

/* Bytes of B that a work-group reads. Below UNCUT_BYTES, splitting K costs more than it gains, because a
 * second kernel must add up the slices; fewer than MANY_SLICES slices are added up by one work-item. */
enum { UNCUT_BYTES = 256 << 10, MANY_SLICES = 32 };
static int64_t gemv_bytes(const gemm_problem *args, const gemm_choice *choice) {
    const int64_t line = args->k * (int64_t)xpu_dtype_size(args->operand);
    return choice->b_k_major ? line * choice->columns * choice->subgroups : args->k * choice->lanes * 16;
}

xpu_status fused_by_gemv(xpu_stream *stream, const xpu_device_properties *properties,
                         const xpu_gemm_args *given, fused_product *fused) {
    const int count = fused->given->count;
    gemm_plan plan = {0};
    gemm_problem first = {0};
    for (int i = 0; i < count; i++) {
        const xpu_gemm_part *part = &fused->given->part[i];
        const xpu_gemm_args all = fused_args(given, part);
        gemm_problem one = gemm_problem_of(&all);
        one.n = i == 0 ? given->n : one.n;
        if (i > 0 && one.b.column_stride != first.b.column_stride) return XPU_ERROR_NOT_SUPPORTED;
        if (one.n == 1 || !plan_gemv(properties, &one, &plan) || !plan.choice.b_k_major ||
            (fused->form.normed && !plan.choice.a_whole))
            return XPU_ERROR_NOT_SUPPORTED;
        if (i == 0) first = one;
        fused->params.part[i].b = XPU_ADDR(part->b.data);
    }
    if (!fused_shares_heads(fused, 1, plan.choice.columns * plan.choice.subgroups))
        return XPU_ERROR_NOT_SUPPORTED;
    const int64_t groups = fused_blocks(fused, plan.choice.columns * plan.choice.subgroups);
    const int64_t slices = product_split_count(properties, groups, given->k, given->n);
    if (slices > 1 && gemv_bytes(&first, &plan.choice) > UNCUT_BYTES) return XPU_ERROR_NOT_SUPPORTED;
    first.fused = fused->form;
    plan.choice.a_k_major = false;
    xpu_kernel *kernel;
    XPU_TRY(gemm_kernel_of(xpu_stream_device(stream), &first, plan.choice, &kernel));
    fused->params.given.gemm = gemm_params_for(&first);
    fused->params.given.gemm.slices = 1, fused->params.given.gemm.slice = given->k;
    const xpu_range range = {.dims = 2,
                             .groups = {(size_t)groups, 1},
                             .local = {plan.local[0], plan.local[1]},
                             .work = (uint64_t)given->n * (uint64_t)(given->k + 1)};
    return xpu_launch(stream, kernel, &range, &fused->params, sizeof fused->params);
}

void gemm_plan_plain(const xpu_device_properties *properties, gemm_problem *args, gemm_plan *plan) {
    gemm_choice *choice = &plan->choice;
    if (args->n == 1 && args->m != 1) gemm_transpose(args);
    const bool by_vector = !args->grouped && plan_gemv(properties, args, plan);
    if (by_vector) {
        choice->a_k_major = false;
    } else if (args->m == 1 && !args->grouped) {
        choice->b_k_major = args->b.row_stride == 1 && args->b.column_stride != 1;
        choice->kernel = KERNEL_GEMV_PORTABLE;
        choice->a_k_major = false;
        plan->groups = choice->b_k_major ? args->n : (args->n + 15) / 16;
        plan->local[0] = choice->b_k_major ? 1 : 16, plan->local[1] = choice->b_k_major ? 64 : 16;
    } else {
        choice->b_k_major = args->b.row_stride == 1 && args->b.column_stride != 1;
        choice->kernel = KERNEL_TILES;
        choice->a_k_major = args->a.column_stride == 1;
        const groups_shape shape = gemm_shape_of_groups(args);
        choice->tile = tile_for(properties, args->operand, shape.m, shape.n, args->batch);
        plan->groups = gemm_tiles_of(args, choice->tile.size, choice->tile.size);
        plan->local[0] = plan->local[1] = (size_t)(choice->tile.size / choice->tile.side);
    }
    if (choice->kernel != KERNEL_TILES) plan->groups *= args->batch;
    plan->slices = product_split_count(properties, plan->groups, args->k, args->batch * args->m * args->n);
    if (args->grouped) plan->slices = 1;
    if (by_vector && gemv_bytes(args, choice) <= UNCUT_BYTES) plan->slices = 1;
    plan->slice = div_up(args->k, plan->slices);
    if (by_vector) plan->slice = align_up(plan->slice, 64);
    if (args->k > 0) plan->slices = div_up(args->k, plan->slice); /* none is empty */
}

xpu_status gemm_launch(xpu_stream *stream, const gemm_problem *args, gemm_plan *plan) {
    const int device = xpu_stream_device(stream);
    gemm_quantized_params params = {.gemm = gemm_params_for(args)};
    if (args->lines) params.b = args->lines->lines;
    const size_t size = args->lines ? sizeof params : sizeof params.gemm;
    if (!args->grouped) params.gemm.slices = plan->slices;
    params.gemm.slice = plan->slice;
    plan->choice.sliced = plan->slices > 1;
    const groups_shape shape = gemm_shape_of_groups(args);
    const int64_t results = args->batch * shape.m * shape.n;
    const xpu_range range = {.dims = 2,
                             .groups = {(size_t)(plan->groups * plan->slices), 1, 1},
                             .local = {plan->local[0], plan->local[1]},
                             .work = (uint64_t)results * (uint64_t)(shape.k + 1)};
    split_k_product product = {
        .range = range, .dtype = args->operand, .results = results, .slices = plan->slices};
    XPU_TRY(gemm_kernel_of(device, args, plan->choice, &product.sum));
    if (plan->slices == 1) return xpu_launch(stream, product.sum, &range, &params, size);
    const gemm_choice last = {.kernel = KERNEL_FINISH,
                              .rows = plan->slices >= MANY_SLICES ? product_reduce_lanes(plan->slices) : 1};
    XPU_TRY(gemm_kernel_of(device, args, last, &product.finish));
    product.finished = 256 / last.rows;
    return product_split_k(stream, &product, &params, size, &params.gemm.partial);
}
