/* Matrix products: chooses between the host's BLAS, the device's matrix engine and portable kernels. */
#include "ops/gemm/gemm.h"

#include "ops/gemm/epilogue.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/gemm/host_provider.h"
#include "ops/row_group.h"

xpu_status gemm_check(const xpu_gemm_args *args, const xpu_device_properties *properties) {
    XPU_TRY(product_check_dtype(properties, args->dtype, "matrix product", false));
    if (args->batch < 0 || args->m < 0 || args->n < 0 || args->k < 0)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "matrix product: a size is negative");
    const xpu_post_ops ending = gemm_post_ops_of(args);
    return post_ops_check("matrix product", args->dtype, &ending, args->other.data);
}

/* Few rows times a large matrix are bound by memory, and host BLAS libraries are several times slower than
 * that: gemm_skinny reads whole columns by one subgroup. Exceptions: oneDNN multiplies bf16 by instructions
 * that OpenCL C lacks, and small matrices are in the cache. `args` receives the problem with the longer side
 * across. */
static bool is_skinny(const xpu_device_properties *properties, const xpu_gemm_args *given,
                      gemm_problem *args) {
    const xpu_dtype dtype = given->dtype;
    const int64_t longer = given->m > given->n ? given->m : given->n;
    if (longer * given->k < TUNED(true, SKINNY_ELEMENTS))
        return false; /* first, since small products spend much time here */
    *args = gemm_problem_of(given);
    if (args->n < args->m) gemm_transpose(args);
    const int64_t rows = dtype == XPU_BFLOAT16 ? TUNED(true, SKINNY_ROWS_BF16) : TUNED(true, SKINNY_ROWS);
    return (dtype == XPU_FLOAT32 || dtype == XPU_FLOAT16 || dtype == XPU_BFLOAT16) && args->m <= rows &&
           args->n >= 16 && args->a.column_stride == 1 && args->b.row_stride == 1 &&
           properties->type == XPU_DEVICE_CPU && row_group_for(properties, args->k).subgroup;
}

static xpu_status thin(xpu_stream *stream, const gemm_problem *args) {
    gemm_choice choice = {.kernel = KERNEL_SKINNY, .rows = args->m > 2 ? 4 : (int)args->m};
    choice.streams = args->k * choice.rows <= TUNED(true, SKINNY_STREAMED) ? 1 : 4;
    const int64_t columns = 16 / choice.rows;
    xpu_kernel *kernel;
    XPU_TRY(gemm_kernel_of(xpu_stream_device(stream), args, choice, &kernel));
    const gemm_params params = gemm_params_for(args);
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)((args->n + columns - 1) / columns * args->batch)},
                             .local = {16},
                             .work = (uint64_t)(args->batch * args->n) * (uint64_t)args->k};
    return xpu_launch(stream, kernel, &range, &params, sizeof params);
}

/* gemm_host: fp32 and half precision on CPUs without a BLAS. Very few rows don't pay for packing B. */
enum { HOST_COLUMNS = 32, HOST_BAND = 96, HOST_LOCAL = 80 << 10 }; /* of a group: kernels/gemm/gemm_host.h */
static bool suits_host_kernel(const xpu_device_properties *properties, const gemm_problem *args) {
    const bool halves = args->operand == XPU_FLOAT16 || args->operand == XPU_BFLOAT16;
    if (halves && (args->dtype != args->operand || properties->local_mem_size < HOST_LOCAL)) return false;
    return uses_cpu_policy(properties) && (halves || args->operand == XPU_FLOAT32) && !args->lines &&
           !args->after.a.data && !args->after.b.data && !args->after.way && args->m >= 4 && args->n >= 16 &&
           args->k >= 8;
}

static xpu_status multiply_on_host(xpu_stream *stream, const xpu_device_properties *properties,
                                   const gemm_problem *args) {
    gemm_choice choice = {.kernel = KERNEL_HOST,
                          .a_k_major = args->a.column_stride == 1,
                          .b_k_major = args->b.row_stride == 1 && args->b.column_stride != 1};
    choice.rows = host_rows_of(args->m);
    /* Several groups per core if there are enough rows; a group packs its columns of B for all of its rows.
     */
    const groups_shape shape = gemm_shape_of_groups(args);
    const int64_t across = div_up(shape.n, HOST_COLUMNS) * args->batch;
    const int64_t bands = div_up(4 * (int64_t)properties->max_compute_units, across);
    int64_t band = align_up(div_up(shape.m, bands), choice.rows);
    if (band > HOST_BAND) band = HOST_BAND / choice.rows * choice.rows;
    xpu_kernel *kernel;
    XPU_TRY(gemm_kernel_of(xpu_stream_device(stream), args, choice, &kernel));
    gemm_params params = gemm_params_for(args);
    params.slice = band;
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)gemm_tiles_of(args, band, HOST_COLUMNS)},
                             .local = {1},
                             .work = (uint64_t)(args->batch * args->m * args->n) * (uint64_t)args->k / 8 + 1};
    return xpu_launch(stream, kernel, &range, &params, sizeof params);
}

/* Computes a product of unquantized operands with libxpu's kernels. */
static xpu_status multiply(xpu_stream *stream, const xpu_device_properties *properties, gemm_problem args,
                           matrix_unit unit, bool emulated) {
    const int device = xpu_stream_device(stream);
    gemm_plan plan = {0};
    if (!gemm_plan_matrix(device, properties, &args, unit, emulated, &plan))
        gemm_plan_plain(properties, &args, &plan);
    return gemm_launch(stream, &args, &plan);
}

/* Chooses the kernel; packs operands first if that pays. */
static xpu_status compute(xpu_stream *stream, const xpu_device_properties *properties,
                          const gemm_problem *given, bool tf32) {
    gemm_problem args = *given;
    bool emulated = false;
    matrix_unit unit = matrix_unit_for(properties, args.operand, tf32, &emulated);
    bool plain_dot = false;
    const matrix_unit dot = matrix_dot_of(properties, args.operand, &plain_dot);
    if (unit == MATRIX_UNIT_NONE && dot == MATRIX_UNIT_NONE &&
        matrix_fma_of(properties) == MATRIX_UNIT_NONE) {
        if (suits_host_kernel(properties, &args)) return multiply_on_host(stream, properties, &args);
        gemm_problem transposed = args; /* a product with few columns is the transpose of one with few rows */
        gemm_transpose(&transposed);
        if (suits_host_kernel(properties, &transposed))
            return multiply_on_host(stream, properties, &transposed);
    }
    gemm_operand sides[2] = {{0}};
    xpu_status status = gemm_pack(stream, properties, &args, unit ? unit : dot, sides);
    if (status == XPU_SUCCESS) status = multiply(stream, properties, args, unit, emulated);
    for (int i = 0; i < 2; i++) status = workspace_release(sides[i].workspace, status);
    return status;
}

/* Computes the product by the host's BLAS; post-ops are a separate pass. */
static xpu_status gemm_by_host(xpu_stream *stream, const xpu_gemm_args *args, const xpu_post_ops *ending) {
    if (post_ops_is_none(ending)) return host_gemm(stream, args);
    if (ending->combine != XPU_COMBINE_NONE && args->other.data == args->out.data)
        return XPU_ERROR_NOT_SUPPORTED; /* the product would overwrite C or the post-op's operand */
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
    return xpu_post_ops_apply(stream, ending, &tensor[1], &tensor[0]);
}

static xpu_status gemm(xpu_stream *stream, const xpu_gemm_args *given, bool tf32) {
    if (given->batch == 0 || given->m == 0 || given->n == 0) return XPU_SUCCESS;
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    const xpu_post_ops ending = gemm_post_ops_of(given);
    XPU_TRY(post_ops_check("matrix product", given->dtype, &ending, given->other.data));
    gemm_problem rows;
    if (is_skinny(properties, given, &rows)) return thin(stream, &rows);
    const xpu_status by_host = gemm_by_host(stream, given, &ending);
    if (by_host != XPU_ERROR_NOT_SUPPORTED) return by_host;

    XPU_TRY(gemm_check(given, properties));
    const gemm_problem args = gemm_problem_of(given);
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
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "grouped product: unknown grouped dimension %d",
                       (int)grouped);
    if (!dtype_is_floating(args->dtype) || args->c.data || args->combine != XPU_COMBINE_NONE ||
        args->epilogue != XPU_EPILOGUE_NONE || args->batch > INT32_MAX)
        return op_fail(XPU_ERROR_NOT_SUPPORTED,
                       "grouped product of %s: only floating-point dtypes without C, epilogue or binary "
                       "post-op, in fewer than 2^31 groups, are supported",
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
                        const gemm_post_process *after) {
    if (args->batch == 0 || args->m == 0 || args->n == 0) return XPU_SUCCESS;
    gemm_problem p = gemm_problem_of(args);
    p.grouped = grouped, p.ends = ends;
    if (after) p.after = *after;
    XPU_TRY(xpu_fault_watch(stream, &p.fault));
    XPU_TRY(compute(stream, properties, &p, false));
    return xpu_fault_raise(stream, p.fault);
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

xpu_status xpu_gemm_engine(int device, xpu_dtype dtype, bool tf32, const char **unit) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    if ((unsigned)dtype >= XPU_DTYPE_COUNT)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "matrix product: unknown dtype %d", (int)dtype);
    XPU_TRY(product_check_dtype(properties, dtype, "matrix product", false));
    if (xpu_host_provider_active(device)) {
        *unit = "the host's BLAS";
        return XPU_SUCCESS;
    }
    bool emulated = false;
    const matrix_unit found = matrix_first_unit(properties, dtype, tf32, &emulated);
    *unit = matrix_unit_text(found, dtype, emulated);
    return XPU_SUCCESS;
}

bool gemm_vector_scale_of(const xpu_quant_params *q, bool is_left, int64_t k, vector_scale *scale) {
    const int64_t across = is_left ? q->group_rows : q->group_columns;
    const int64_t along = is_left ? q->group_columns : q->group_rows;
    *scale = (vector_scale){NULL, XPU_FLOAT32, 0, 0};
    if (q->global_scale) return false;
    if (!q->scale) return true;
    const int64_t stride = is_left ? q->scale_row_stride : q->scale_column_stride;
    *scale = (vector_scale){q->scale, q->scale_dtype, q->scale_batch_stride, across ? stride : 0};
    const bool is_known =
        q->scale_dtype == XPU_FLOAT32 || q->scale_dtype == XPU_BFLOAT16 || q->scale_dtype == XPU_FLOAT16;
    return is_known && !q->scale_is_swizzled && (along == 0 || along >= k) && across <= 1;
}

/* int8 operands with a scale per row or column, or one for all; integer results have no scales. */
static bool is_bytes(const xpu_quant_params *q, bool is_left, int64_t k, bool is_scaled,
                     vector_scale *scale) {
    return q->dtype == XPU_INT8 && !q->zero && !q->zero_offset && (q->scale != NULL) == is_scaled &&
           gemm_vector_scale_of(q, is_left, k, scale);
}

bool gemm_supports_int8(const xpu_device_properties *properties, const xpu_gemm_args *args,
                        const xpu_quant_params *a, const xpu_quant_params *b, gemm_post_process *after) {
    bool emulated = false;
    const bool is_scaled = args->dtype != XPU_INT32;
    return a && b && is_bytes(a, true, args->k, is_scaled, &after->a) &&
           is_bytes(b, false, args->k, is_scaled, &after->b) &&
           (!is_scaled || matrix_unit_for(properties, XPU_INT8, false, &emulated) != MATRIX_UNIT_NONE ||
            matrix_dot_of(properties, XPU_INT8, &emulated) != MATRIX_UNIT_NONE);
}

xpu_status gemm_int8(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *given,
                     const gemm_post_process *after) {
    gemm_problem args = gemm_problem_of(given);
    args.operand = XPU_INT8, args.after = *after;
    return compute(stream, properties, &args, false);
}

/* Plans an int8 product for the engine, if it can. XMX multiplies uint8 directly; for others uint8 is shifted
 * by -128, and zero points with it. Zero points of A need the sums of B's columns. */
static bool plan_bytes(int device, matrix_unit unit, bool emulated, const xpu_device_properties *properties,
                       gemm_problem *args, gemm_plan *plan) {
    gemm_problem p = *args;
    gemm_post_process *after = &p.after;
    const bool as_such = unit == MATRIX_UNIT_XMX || unit == MATRIX_UNIT_XMX8;
    if (p.a_unsigned && !as_such) after->compensation_a.plus -= 128;
    after->is_compensated = after->compensation_a.data || after->compensation_a.plus != 0;
    if ((after->is_compensated && !after->compensation_b.data) ||
        !gemm_plan_unit(device, unit, emulated, properties, &p, plan))
        return false;
    *args = p;
    return true;
}

bool gemm_try_int8(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *given,
                   bool a_unsigned, const gemm_post_process *after, xpu_status *status) {
    const int device = xpu_stream_device(stream);
    bool emulated = false, plain_dot = false;
    const matrix_unit unit = matrix_unit_for(properties, XPU_INT8, false, &emulated);
    const matrix_unit dot = matrix_dot_of(properties, XPU_INT8, &plain_dot);
    if (!unit && !dot) return false;
    gemm_problem args = gemm_problem_of(given);
    args.operand = XPU_INT8, args.after = *after;
    args.a_unsigned = a_unsigned;
    gemm_operand sides[2] = {{0}};
    gemm_plan plan = {0};
    *status = gemm_pack(stream, properties, &args, unit ? unit : dot, sides);
    const bool is_planned =
        *status == XPU_SUCCESS && (plan_bytes(device, unit, emulated, properties, &args, &plan) ||
                                   plan_bytes(device, dot, plain_dot, properties, &args, &plan));
    if (is_planned) *status = gemm_launch(stream, &args, &plan);
    const bool is_over = is_planned || *status != XPU_SUCCESS;
    for (int i = 0; i < 2; i++) *status = workspace_release(sides[i].workspace, *status);
    return is_over;
}

bool gemm_try_dequant_on_the_fly(xpu_stream *stream, const xpu_device_properties *properties,
                                 const xpu_gemm_args *given, const int32_t *ends, const quantized_operand *b,
                                 const gemm_post_process *after, xpu_status *status) {
    gemm_problem args = gemm_problem_of(given);
    args.after = *after, args.lines = b;
    if (ends) args.grouped = XPU_GROUPED_ROWS, args.ends = ends;
    args.b.row_stride = 1, args.b.column_stride = b->lines.across;
    bool emulated = false;
    const matrix_unit unit = matrix_unit_of(properties, args.operand, &emulated);
    gemm_plan plan = {0};
    if (!gemm_plan_unit(xpu_stream_device(stream), unit, emulated, properties, &args, &plan)) return false;
    *status = ends ? xpu_fault_watch(stream, &args.fault) : XPU_SUCCESS;
    if (*status == XPU_SUCCESS) *status = gemm_launch(stream, &args, &plan);
    if (*status == XPU_SUCCESS && ends) *status = xpu_fault_raise(stream, args.fault);
    return true;
}

/* The host's BLAS sums in float32, also for bfloat16; one pass over the sums applies the rest. */
static xpu_status sums_by_host(xpu_stream *stream, const gemm_problem *args) {
    const int64_t m = args->m, n = args->n, results = args->batch * m * n;
    void *sums = NULL;
    xpu_kernel *finish;
    const int device = xpu_stream_device(stream);
    const bool is_wide = args->operand == XPU_BFLOAT16 && host_has_fast_wide(device);
    if (!is_wide && (args->operand != XPU_FLOAT32 || !xpu_host_provider_active(device)))
        return XPU_ERROR_NOT_SUPPORTED;
    const int neighbors = (args->out.column_stride == 1) | (args->c.column_stride == 1) << 1 |
                          (args->other.column_stride == 1) << 2 | (args->after.b.line == 1) << 3;
    const gemm_choice choice = {.kernel = KERNEL_EPILOGUE, .neighbors = neighbors};
    XPU_TRY(gemm_kernel_of(device, args, choice, &finish));
    XPU_TRY(xpu_workspace_take(stream, (size_t)results * sizeof(float), &sums));
    const xpu_gemm_args bare = {.dtype = args->operand,
                                .batch = args->batch,
                                .m = m,
                                .n = n,
                                .k = args->k,
                                .a = args->a,
                                .b = args->b,
                                .out = {sums, m * n, n, 1},
                                .alpha = {XPU_FLOAT64, {.f = 1}}};
    xpu_status status = is_wide ? host_gemm_wide(stream, &bare) : host_gemm(stream, &bare);
    gemm_params params = gemm_params_for(args);
    params.partial = XPU_ADDR(sums), params.slices = 1, params.slice = args->k;
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)(args->batch * m * div_up(n, GEMM_EPILOGUE_SPAN))},
                             .local = {GEMM_EPILOGUE_LANES},
                             .work = (uint64_t)results};
    if (status == XPU_SUCCESS) status = xpu_launch(stream, finish, &range, &params, sizeof params);
    return workspace_release(sums, status);
}

xpu_status gemm_scaled(xpu_stream *stream, const xpu_device_properties *properties,
                       const xpu_gemm_args *given, xpu_dtype operand, const gemm_post_process *after) {
    gemm_problem args = gemm_problem_of(given);
    args.operand = operand, args.after = *after;
    const xpu_status by_host = sums_by_host(stream, &args);
    return by_host == XPU_ERROR_NOT_SUPPORTED ? compute(stream, properties, &args, false) : by_host;
}
