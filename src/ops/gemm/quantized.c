/* Products with quantized operands: dequantized on the fly, or first into a workspace, or multiplied as int8.
 */

#include "ops/gemm/epilogue.h"
#include "ops/gemm/gemm.h"
#include "ops/gemm/gemm_fused.h"
#include "ops/gemm/host_provider.h"
#include "ops/gemm/matrix.h"
#include "ops/gemm/product.h"
#include "ops/gemm/quantized.h"
#include "ops/iter.h"

/* quantized_load.h's */
enum { FORM_SIGNED, FORM_UNSIGNED, FORM_FLOAT4, FORM_E4M3FN, FORM_E5M2, FORM_OTHER, FORM_NONE };
enum { ROWS_AT_ONCE = 4 }; /* of gemm_small_m, at most */
enum { ZERO_NONE, ZERO_WHOLE, ZERO_FRACTION, ZERO_ADDED };

static int form_of(xpu_dtype dtype) {
    switch (dtype) {
    case XPU_INT8:
    case XPU_INT4: return FORM_SIGNED;
    case XPU_UINT8:
    case XPU_UINT4: return FORM_UNSIGNED;
    case XPU_FLOAT4_E2M1FN_X2: return FORM_FLOAT4;
    case XPU_FLOAT8_E4M3FN: return FORM_E4M3FN;
    case XPU_FLOAT8_E5M2: return FORM_E5M2;
    case XPU_FLOAT8_E4M3FNUZ:
    case XPU_FLOAT8_E5M2FNUZ: return FORM_OTHER;
    default: return FORM_NONE;
    }
}
static int bits_of(xpu_dtype dtype) { return dtype == XPU_FLOAT4_E2M1FN_X2 ? 4 : xpu_dtype_bits(dtype); }
static bool is_float8(xpu_dtype dtype) { return dtype >= XPU_FLOAT8_E4M3FN && dtype <= XPU_FLOAT8_E8M0FNU; }
static bool is_single(xpu_dtype dtype) {
    return dtype == XPU_FLOAT16 || dtype == XPU_BFLOAT16 || dtype == XPU_FLOAT32;
}
static bool is_whole(xpu_dtype dtype) { return dtype >= XPU_INT8 && dtype <= XPU_UINT32; }

static int zero_form_of(const xpu_quant_params *q) {
    return !q->zero                  ? ZERO_NONE
           : q->zero_is_added        ? ZERO_ADDED
           : is_whole(q->zero_dtype) ? ZERO_WHOLE
                                     : ZERO_FRACTION;
}

static xpu_status check(const xpu_quant_params *q, int64_t rows, int64_t columns, xpu_dtype dtype,
                        const char *what) {
    if (!is_single(dtype)) return op_unsupported_dtype("quantized product", dtype, NULL);
    if (form_of(q->dtype) == FORM_NONE) return op_unsupported_dtype("quantized operand", q->dtype, NULL);
    if (q->scale && !is_single(q->scale_dtype) && !is_float8(q->scale_dtype))
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "%s: scales of dtype %s are not supported", what,
                       xpu_dtype_name(q->scale_dtype));
    if (q->zero && !is_single(q->zero_dtype) && !is_float8(q->zero_dtype) && !is_whole(q->zero_dtype))
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "%s: zero points of dtype %s are not supported", what,
                       xpu_dtype_name(q->zero_dtype));
    if (q->scale_is_swizzled && (!q->scale || q->zero || (q->group_rows == 1) == (q->group_columns == 1) ||
                                 q->group_rows == 0 || q->group_columns == 0))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "%s: swizzled scales need groups of several elements along K and one element across, "
                       "without zero points; got groups of %lld x %lld",
                       what, (long long)q->group_rows, (long long)q->group_columns);
    if (q->group_rows < 0 || q->group_columns < 0)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "%s: groups of %lld x %lld elements are negative", what,
                       (long long)q->group_rows, (long long)q->group_columns);
    if (rows >= INT32_MAX || columns >= INT32_MAX)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "%s: an operand of %lld x %lld is too large", what,
                       (long long)rows, (long long)columns);
    return XPU_SUCCESS;
}

/* --- quantized operands as contiguous rows --- */

/* Views the operand as rows along its contiguous dimension, or along the one that swizzled scales require. */
static quantized_operand operand_of(const xpu_matrix *m, const xpu_quant_params *q, int64_t rows,
                                    int64_t columns, bool by_columns) {
    if (q->scale_is_swizzled) by_columns = q->group_columns == 1;
    const int64_t group_rows = q->group_rows ? q->group_rows : rows;
    const int64_t group_columns = q->group_columns ? q->group_columns : columns;
    const quantized_part scale = {XPU_ADDR(q->scale), q->scale_batch_stride,
                                  by_columns ? q->scale_column_stride : q->scale_row_stride,
                                  by_columns ? q->scale_row_stride : q->scale_column_stride};
    const quantized_part zero = {XPU_ADDR(q->zero), q->zero_batch_stride,
                                 by_columns ? q->zero_column_stride : q->zero_row_stride,
                                 by_columns ? q->zero_row_stride : q->zero_column_stride};
    quantized_operand o = {.q = q,
                           .lines = {.data = XPU_ADDR(m->data),
                                     .batch = m->batch_stride,
                                     .across = by_columns ? m->column_stride : m->row_stride,
                                     .along = by_columns ? m->row_stride : m->column_stride,
                                     .scale = scale,
                                     .zero = zero,
                                     .group_across = by_columns ? group_columns : group_rows,
                                     .group_along = by_columns ? group_rows : group_columns,
                                     .zero_offset = q->zero_offset},
                           .count = by_columns ? columns : rows,
                           .length = by_columns ? rows : columns,
                           .by_columns = by_columns};
    if (o.lines.group_across < 1) o.lines.group_across = 1;
    if (o.lines.group_along < 1) o.lines.group_along = 1;
    if (o.lines.group_along > o.length && o.length > 0) o.lines.group_along = o.length;
    if (q->scale_is_swizzled)
        o.lines.scale.across = div_up(o.length, o.lines.group_along * SCALE_TILE_GROUPS) * SCALE_TILE_SIZE;
    const fast_divisor along = fast_divisor_of((uint32_t)o.lines.group_along);
    o.lines.along_factor = along.multiplier, o.lines.along_shift = along.shift;
    return o;
}
static bool is_column_contiguous(const xpu_matrix *m) { return m->row_stride == 1 && m->column_stride != 1; }

/* Do aligned runs of eight contiguous elements start at multiples of eight elements? */
static bool is_aligned(const quantized_operand *o) {
    const quantized_lines *l = &o->lines;
    return (l->along == 1 || o->length == 1) && l->across % 8 == 0 && l->batch % 8 == 0 &&
           l->data % (uint64_t)bits_of(o->q->dtype) == 0;
}
/* … and share a scale and a zero point? */
static bool is_shared(const quantized_operand *o) {
    return o->lines.group_along % 8 == 0 || o->lines.group_along == o->length;
}

bool quantized_has_vec8(const quantized_operand *o) { return is_aligned(o) && is_shared(o); }

/* The exponent of the largest power of two, at most 2^3, that divides `v`. */
static int power_in(uint64_t v) {
    int power = 0;
    while (power < 3 && !(v >> power & 1)) power++;
    return power;
}

int quantized_bits(const quantized_operand *o) { return bits_of(o->q->dtype); }
int quantized_vec8_per_scale(const quantized_operand *o) {
    return o->lines.group_along == o->length ? 3 : power_in((uint64_t)o->lines.group_along / 8);
}
int quantized_row_alignment(const quantized_operand *o) {
    const uint64_t pitch = (uint64_t)(o->lines.across | o->lines.batch) * (uint64_t)bits_of(o->q->dtype) / 8;
    return power_in((o->lines.data | pitch) / 2);
}

bool quantized_has_blocks(const quantized_operand *o) {
    const quantized_lines *l = &o->lines;
    const int bits = bits_of(o->q->dtype);
    const strided_view bytes = {(const void *)(uintptr_t)l->data, 1, l->across * bits / 8,
                                l->batch * bits / 8};
    return is_aligned(o) && o->length * bits % 8 == 0 &&
           (l->group_along % 32 == 0 || l->group_along == o->length) &&
           matrix_reads_blocks(&bytes, o->length * bits / 8, o->count, XPU_INT8);
}

/* Does the scale have so few bits that its products with integers are exact (kernels/gemm/quantized_load.h)?
 */
static bool has_short_scale(const xpu_quant_params *q) {
    const bool is_small = q->zero_offset >= -128 && q->zero_offset <= 128 &&
                          (!q->zero || q->zero_dtype == XPU_INT8 || q->zero_dtype == XPU_UINT8);
    return is_small && (!q->scale || q->scale_dtype == XPU_BFLOAT16 || is_float8(q->scale_dtype) ||
                        (q->scale_dtype == XPU_FLOAT16 && bits_of(q->dtype) == 4));
}

void quantized_spec(kernel_spec *spec, const quantized_operand *o) {
    const xpu_quant_params *q = o->q;
    spec_dtype(spec, "E", q->dtype);
    spec_option_int(spec, "E_BITS", bits_of(q->dtype));
    spec_option_int(spec, "E_FORM", form_of(q->dtype));
    spec_key_only(spec, "scale", q->scale ? q->scale_dtype + 1 : 0, 8);
    spec_option(spec, "SCALE=", q->scale ? xpu_dtype_name(q->scale_dtype) : NULL);
    spec_key_only(spec, "zero", q->zero ? q->zero_dtype + 1 : 0, 8);
    spec_option(spec, "ZERO=", q->zero ? xpu_dtype_name(q->zero_dtype) : NULL);
    spec_int(spec, "ZERO_FORM", zero_form_of(q), 2);
    spec_bool(spec, "TILED", q->scale_is_swizzled);
    spec_bool(spec, "SCALE_IS_SHORT", has_short_scale(q));
    spec_bool(spec, "HAS_ZERO_OFFSET", q->zero_offset != 0);
}

/* --- dequantizing into a workspace --- */

/* `is_padded`: the host's BLAS may multiply the padding of a row by zeros, so it must not be NaN. */
static xpu_status dequantize_rows(xpu_stream *stream, const quantized_operand *o, int64_t batch,
                                  xpu_dtype dtype, void *out, int64_t out_batch, int64_t out_across,
                                  bool is_padded) {
    const int device = xpu_stream_device(stream);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    if (batch == 0 || o->count == 0 || o->length == 0) return XPU_SUCCESS;
    const bool host = properties->type == XPU_DEVICE_CPU;
    const int lanes = host ? 1 : 64; /* CPU: eight elements are a vector */
    kernel_spec spec;
    spec_begin(&spec, FAMILY_QUANTIZED);
    spec_key_only(&spec, "which", 0, 1);
    spec_dtype(&spec, "T", dtype);
    spec_int(&spec, "LANES", lanes, 8);
    spec_bool(&spec, "ALIGNED", is_aligned(o));
    spec_bool(&spec, "SHARED", is_shared(o));
    const uint64_t size = xpu_dtype_size(dtype);
    const bool is_whole_line = out_across % 8 == 0 || o->count == 1,
               is_whole_batch = out_batch % 8 == 0 || batch == 1;
    spec_bool(&spec, "OUT_ALIGNED", XPU_ADDR(out) % (8 * size) == 0 && is_whole_line && is_whole_batch);
    spec_int(&spec, "CUT", o->cut, 2);
    quantized_spec(&spec, o);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(kernel_from_file(device, &spec, "quantized.cl", "dequantize", &kernel, "dequantize %s->%s",
                                 xpu_dtype_name(o->q->dtype), xpu_dtype_name(dtype)));
    const dequantize_params p = {.from = o->lines,
                                 .out = XPU_ADDR(out),
                                 .out_batch = out_batch,
                                 .out_across = out_across,
                                 .lines = o->count,
                                 .length = o->length,
                                 .batch = batch,
                                 .span = host ? 16384 : 2048,
                                 .padded = is_padded && host ? out_across : 0,
                                 .ends = XPU_ADDR(o->ends),
                                 .groups = o->groups,
                                 .scales = o->cut ? o->q->scale_count : 0};
    const int64_t groups = div_up(o->length, p.span) * o->count * batch;
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)groups},
                             .local = {(size_t)lanes},
                             .work = (uint64_t)(o->count * o->length * batch)};
    return xpu_launch(stream, kernel, &range, &p, sizeof p);
}

xpu_status xpu_dequantize(xpu_stream *stream, const xpu_matrix *matrix, const xpu_quant_params *q,
                          int64_t batch, int64_t rows, int64_t columns, xpu_dtype dtype,
                          const xpu_matrix *out) {
    XPU_TRY(check(q, rows, columns, dtype, "dequantize"));
    const bool by_columns = is_column_contiguous(out);
    if ((by_columns ? out->row_stride : out->column_stride) != 1)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "dequantize: the result must be contiguous along its rows or its columns");
    const quantized_operand o = operand_of(matrix, q, rows, columns, by_columns);
    if (o.by_columns != by_columns || q->global_scale)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "dequantize: swizzled scales must run along the result's "
                                                "contiguous dimension, and a global scale is not supported");
    return dequantize_rows(stream, &o, batch, dtype, out->data, out->batch_stride,
                           by_columns ? out->column_stride : out->row_stride, false);
}

/* Replaces a quantized operand by its dequantized elements in a workspace; rows start at multiples of 64
 * bytes. */
static xpu_status dequantize_lines(xpu_stream *stream, xpu_matrix *m, const quantized_operand *o,
                                   int64_t batch, xpu_dtype dtype, void **workspace) {
    const int64_t element = (int64_t)xpu_dtype_size(dtype), pitch = align_up(o->length, 64 / element);
    const xpu_quant_params *q = o->q;
    const bool is_one = m->batch_stride == 0 && q->scale_batch_stride == 0 && q->zero_batch_stride == 0;
    const int64_t copies = is_one ? 1 : batch, each = is_one ? 0 : pitch * o->count;
    XPU_TRY(xpu_workspace_take(stream, (size_t)(pitch * o->count * copies * element), workspace));
    XPU_TRY(dequantize_rows(stream, o, copies, dtype, *workspace, each, pitch, true));
    *m = (xpu_matrix){*workspace, each, o->by_columns ? 1 : pitch, o->by_columns ? pitch : 1};
    return XPU_SUCCESS;
}
static xpu_status dequantize_operand(xpu_stream *stream, xpu_matrix *m, const xpu_quant_params *q,
                                     int64_t batch, int64_t rows, int64_t columns, xpu_dtype dtype,
                                     void **workspace) {
    const quantized_operand o = operand_of(m, q, rows, columns, is_column_contiguous(m));
    return dequantize_lines(stream, m, &o, batch, dtype, workspace);
}

/* --- products of few rows --- */

static bool is_vector_aligned(const quantized_lines *l, int bits) {
    return (l->data | (uint64_t)(l->across * bits / 8) | (uint64_t)(l->batch * bits / 8)) % 16 == 0;
}

/* Work-groups of (lanes, subgroups). Each processes `lines` rows of K-major B and `rows` rows of A at once; a
 * subgroup has `columns` rows of B, of which each lane reads eight elements at a time. */
typedef struct few {
    int rows, columns, lines, lanes, subgroups, octets, subgroup;
    bool a_whole, a_alike;
    /* gemm_small_m_mma: `sets` of 16 rows of B, whose subgroups split K. Local memory has A's rows in `room`
     * vectors, of which a work-item reads `each` per row, and with `ring` also steps of B and `numbers`
     * scales of rows of B. */
    bool by_units, emulated, k_whole, single, ring, is_one_set; /* is_one_set is set by the caller */
    bool on_host, nibbles; /* gemm_small_m_host; local memory has `room` elements of each row of A */
    int room, sets, numbers, each;
} few;

/* Is every element minus its integer zero point exact in half precision? 4-bit elements are written into the
 * mantissa of 64 first (kernels/gemm/gemm_small_m_mma.h). */
static bool are_exact_in_half_precision(const xpu_quant_params *q) {
    if (form_of(q->dtype) > FORM_UNSIGNED) return !q->zero;
    if (q->zero && (q->zero_is_added || (q->zero_dtype != XPU_INT8 && q->zero_dtype != XPU_UINT8)))
        return false;
    const int bits = bits_of(q->dtype), most = 256, raised = bits == 4 ? 64 + 8 : 0;
    const int low = form_of(q->dtype) == FORM_SIGNED ? -(1 << (bits - 1)) : 0, high = low + (1 << bits) - 1;
    const int least_zero = q->zero_dtype == XPU_INT8 ? -128 : 0;
    const int less_low = q->zero_offset + (q->zero ? least_zero : 0),
              less_high = q->zero_offset + (q->zero ? least_zero + 255 : 0);
    return high - less_low <= most && low - less_high >= -most && raised + less_high <= most &&
           raised + less_low >= -most;
}

/* gemm_small_m_mma: rows are read 16 bytes at a time, and a step of four such vectors has one scale. */
static bool plan_small_m_mma(const xpu_device_properties *properties, const xpu_gemm_args *args,
                             const quantized_operand *b, few *plan) {
    const quantized_lines *l = &b->lines;
    const int bits = bits_of(b->q->dtype), chunk = 128 / bits, step = 4 * chunk;
    const int64_t most = 1 << 28; /* groups are a 32-bit number of bytes apart */
    if (matrix_unit_of(properties, args->dtype, &plan->emulated) != MATRIX_UNIT_PTX || !plan->a_whole ||
        plan->a_alike || args->k % chunk != 0 || !is_vector_aligned(l, bits) || b->q->scale_is_swizzled ||
        (l->group_along % step != 0 && l->group_along != b->length) || !are_exact_in_half_precision(b->q) ||
        l->scale.along < 0 || l->scale.along >= most || l->zero.along < 0 || l->zero.along >= most)
        return false;
    const int64_t steps = div_up(args->k, step);
    plan->by_units = true, plan->k_whole = args->k % step == 0;
    plan->rows = args->m > 8 ? 16 : 8;
    plan->lines = 16, plan->lanes = 32, plan->sets = 1;
    const bool each_line = l->group_across == 1 || (!b->q->scale && !b->q->zero);
    plan->single = args->batch == 1 && args->m <= plan->rows && each_line;
    /* The start and end of a work-group take as long as several steps. If B has many rows, a work-group has
     * several sets of 16, with a half or a quarter of its subgroups for each. */
    const int64_t units = (int64_t)properties->gpu_subslice_count,
                  sets = div_up(args->n, 16) * div_up(args->m, plan->rows) * args->batch;
    const bool is_long = steps > 32 && plan->rows <= 8;
    const int many = is_long ? 16 : 8;
    plan->sets = plan->is_one_set || 2 * sets < (is_long ? 3 : 5) * units ? 1 : sets < 12 * units ? 2 : 4;
    for (plan->subgroups = 1; plan->subgroups * plan->sets < many && plan->subgroups * 2 <= steps;)
        plan->subgroups *= 2;
    plan->subgroups *= plan->sets, plan->lines = 16 * plan->sets;
    static const int rooms[] = {2304, 1152, 576, 288}; /* vectors of 16 bytes: 36 KiB */
    const int64_t rows = args->m < plan->rows ? args->m : plan->rows, pieces = rows * (steps * step / 8 + 4);
    plan->room = 0;
    for (int i = 0; i < 4 && pieces <= rooms[i]; i++) plan->room = rooms[i];
    plan->each = plan->room ? (int)div_up(steps * step, 8 * 32 * plan->subgroups) : 0;
    /* If A leaves room: two steps per subgroup, and the rows' scales and zero points. */
    const int64_t of_lines = b->q->scale || b->q->zero ? div_up(args->k, l->group_along) * plan->lines : 0,
                  numbers = align_up(of_lines, 32 * plan->subgroups);
    plan->ring = plan->room > 0 && plan->room * 16 + plan->room * 4 * 8 / step + numbers * 8 +
                                           plan->subgroups * (2 * 1024 + 4 * plan->rows) <=
                                       (48 << 10) - 256;
    plan->numbers = plan->ring ? (int)numbers : 0;
    return true;
}

/* gemm_small_m_host: rows and their groups can be read 16 elements at a time. */
static void plan_small_m_on_host(const xpu_device_properties *properties, const xpu_gemm_args *args,
                                 const quantized_operand *b, few *plan) {
    enum { BLOCK = 128, LEAST_ROOM = 512, MOST_SUBGROUPS = 16, GROUPS_EACH = 4 };
    const int64_t along = b->lines.group_along, k = args->k;
    plan->lines = plan->columns = plan->rows > 2 ? 2 : 4, plan->lanes = plan->subgroups = 1;
    plan->nibbles = bits_of(b->q->dtype) == 4 && form_of(b->q->dtype) <= FORM_UNSIGNED && k % BLOCK == 0 &&
                    (along % BLOCK == 0 || along >= k);
    if (plan->nibbles) {
        for (plan->room = LEAST_ROOM; plan->room < k;) plan->room *= 2;
        plan->nibbles = (uint64_t)(plan->rows * plan->room) * sizeof(float) <= properties->local_mem_size / 2;
    }
    plan->on_host = plan->nibbles || (k % 16 == 0 && (along % 16 == 0 || along >= k));
    if (!plan->on_host) return;
    const int64_t each =
        div_up(args->n, plan->columns) / (int64_t)(GROUPS_EACH * properties->gpu_subslice_count);
    while (plan->subgroups * 2 <= each && plan->subgroups < MOST_SUBGROUPS) plan->subgroups *= 2;
    plan->lines = plan->columns * plan->subgroups;
}

/* `alike`: A has the same float8 format as B. */
static bool plan_small_m(const xpu_device_properties *properties, const xpu_gemm_args *args,
                         const quantized_operand *b, bool alike, few *plan) {
    const bool host = matrix_fma_of(properties) == MATRIX_UNIT_NONE; /* a CPU, but for tests */
    if (alike && host) return false; /* each work-item would dequantize A again */
    if (args->m > TUNED(host, QUANTIZED_ROWS) || !b->by_columns || !is_aligned(b) || !is_shared(b) ||
        args->k == 0 || (args->a.column_stride != 1 && args->k > 1))
        return false;
    const uint64_t octet = alike ? 8 : 8 * xpu_dtype_size(args->dtype);
    plan->rows = args->m > 2 ? ROWS_AT_ONCE : (int)args->m;
    plan->a_whole = (XPU_ADDR(args->a.data) | (uint64_t)args->a.row_stride * octet / 8 |
                     (uint64_t)args->a.batch_stride * octet / 8) %
                        octet ==
                    0;
    plan->a_alike = alike;
    if (alike && !plan->a_whole) return false;
    if (plan_small_m_mma(properties, args, b, plan)) return true;
    plan->octets = 1;
    if (host) {
        plan_small_m_on_host(properties, args, b, plan);
        return true;
    }
    const quantized_lines *l = &b->lines; /* 16 bytes at a time */
    const int bits = bits_of(b->q->dtype), many = 128 / bits;
    if (is_vector_aligned(l, bits) && (l->group_along % many == 0 || l->group_along == b->length))
        plan->octets = many / 8;
    if (plan->rows > 2) plan->subgroup = matrix_intel_lanes(properties);
    plan->columns = plan->rows > 2 ? 2 : 4, plan->lanes = 32, plan->subgroups = 4;
    const int64_t groups =
        div_up(args->n, plan->columns * plan->subgroups) * div_up(args->m, plan->rows) * args->batch;
    if (groups < 2 * (int64_t)properties->gpu_subslice_count)
        plan->columns = 2, plan->lanes = 128, plan->subgroups = 1;
    plan->lines = plan->columns * plan->subgroups;
    return true;
}

/* `fused`: several B, of which `b` is the first; NULL for one. */
static xpu_status multiply_small_m(xpu_stream *stream, const xpu_gemm_args *args, const quantized_operand *b,
                                   const gemm_post_process *after, const few *plan, fused_product *fused) {
    const int device = xpu_stream_device(stream);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_QUANTIZED);
    spec_key_only(&spec, "which", 1, 1);
    product_spec(&spec, args->dtype);
    const gemm_quantized_params params = {.gemm = gemm_params_of(args, after), .b = b->lines};
    fused_spec(&spec, fused ? &fused->form : &(fused_form){0});
    gemm_post_process_spec(&spec, after);
    post_ops_spec(&spec, &params.gemm.end);
    spec_int(&spec, "SUBGROUPS", plan->subgroups, 5);
    spec_key_only(&spec, "by_units", plan->by_units, 1);
    if (plan->by_units) {
        spec_option_flag(&spec, "SMALL_M_MMA", true);
        spec_int(&spec, "ROW_BLOCKS", plan->rows / 8, 2);
        spec_bool(&spec, "K_WHOLE", plan->k_whole);
        spec_bool(&spec, "SINGLE", plan->single);
        spec_int(&spec, "X_ROOM", plan->room, 12);
        spec_int(&spec, "SETS", plan->sets, 4);
        spec_bool(&spec, "RING", plan->ring);
        spec_int(&spec, "SCALE_ROOM", plan->numbers, 14);
        spec_int(&spec, "X_EACH", plan->each, 8);
        spec_flag(&spec, "MATRIX_EMULATED", plan->emulated);
    } else if (plan->on_host) {
        spec_option_flag(&spec, "SMALL_M_ON_HOST", true);
        spec_key_only(&spec, "on_host", 0, 3); /* has the place of ROWS in the key */
        spec_int(&spec, "NIBBLES", plan->nibbles, 1);
        spec_int(&spec, "ROWS", plan->rows, 3);
        spec_int(&spec, "COLUMNS", plan->columns, 3);
        spec_int_if(&spec, plan->nibbles, "X_ROOM", plan->room, 18);
    } else {
        spec_option_flag(&spec, "FEW", true);
        spec_int(&spec, "ROWS", plan->rows, 3);
        spec_int(&spec, "COLUMNS", plan->columns, 3);
        spec_int(&spec, "LANES", plan->lanes, 8);
        spec_int(&spec, "OCTETS", plan->octets, 3);
        spec_int_if(&spec, plan->subgroup > 0, "SUBGROUP_SIZE", plan->subgroup, 7);
        spec_bool(&spec, "A_WHOLE", plan->a_whole);
        spec_bool(&spec, "A_ALIKE", plan->a_alike);
    }
    quantized_spec(&spec, b);
    const char *name = plan->by_units  ? "gemm_small_m_mma"
                       : plan->on_host ? "gemm_small_m_host"
                                       : "gemm_small_m";
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(kernel_from_file(device, &spec, "gemm.cl", name, &kernel, "%s %s x %s", name,
                                 xpu_dtype_name(args->dtype), xpu_dtype_name(b->q->dtype)));
    const int64_t blocks = fused ? fused_blocks(fused, plan->lines) : div_up(args->n, plan->lines);
    const xpu_range range = {.dims = 2,
                             .groups = {(size_t)(blocks * div_up(args->m, plan->rows) * args->batch), 1},
                             .local = {(size_t)plan->lanes, (size_t)plan->subgroups},
                             .work = (uint64_t)(args->batch * args->m * args->n) * (uint64_t)args->k};
    if (!fused) return xpu_launch(stream, kernel, &range, &params, sizeof params);
    fused->params.given = params;
    return xpu_launch(stream, kernel, &range, &fused->params, sizeof fused->params);
}

/* --- the product --- */

/* If scales are constant along K, they are applied to the sums instead of the elements. What is left of the
 * operand, `unscaled`, has elements of at most 8 bits, which are exact in half precision. */
static bool take_scale(const xpu_quant_params *q, bool is_left, int64_t k, vector_scale *scale,
                       xpu_quant_params *unscaled) {
    const bool is_exact =
        form_of(q->dtype) > FORM_UNSIGNED || (q->zero_offset >= -1 && q->zero_offset <= 128);
    *unscaled = *q;
    if (q->zero || !is_exact || !gemm_vector_scale_of(q, is_left, k, scale)) {
        *scale = (vector_scale){NULL, XPU_FLOAT32, 0, 0};
        return false;
    }
    unscaled->scale = NULL, unscaled->group_rows = unscaled->group_columns = 0;
    unscaled->scale_batch_stride = unscaled->scale_row_stride = unscaled->scale_column_stride = 0;
    return true;
}

/* The operand's global scale, applied to the sums; other scales stay with the elements. */
static vector_scale whole_of(const xpu_quant_params *q) {
    if (!q || !q->global_scale) return (vector_scale){NULL, XPU_FLOAT32, 0, 0};
    return (vector_scale){q->global_scale, XPU_FLOAT32, q->global_scale_stride, 0};
}

/* A and B (NULL if unquantized) without the scales that are applied to sums. */
typedef struct unscaled_operands {
    const xpu_quant_params *a, *b;
    xpu_quant_params kept[2];
    gemm_post_process after;
    bool are_unscaled; /* no other scales are left */
} unscaled_operands;

static void find_unscaled(const xpu_gemm_args *args, const xpu_quant_params *a, const xpu_quant_params *b,
                          unscaled_operands *unscaled) {
    *unscaled = (unscaled_operands){.a = a, .b = b};
    unscaled->after.a = whole_of(a), unscaled->after.b = whole_of(b);
    const bool keeps_a = a && a->global_scale, keeps_b = b && b->global_scale;
    const bool has_a =
        !a || (!keeps_a && take_scale(a, true, args->k, &unscaled->after.a, &unscaled->kept[0]));
    const bool has_b =
        !b || (!keeps_b && take_scale(b, false, args->k, &unscaled->after.b, &unscaled->kept[1]));
    if (a && !keeps_a) unscaled->a = &unscaled->kept[0];
    if (b && !keeps_b) unscaled->b = &unscaled->kept[1];
    unscaled->are_unscaled = has_a && has_b;
}

static quantized_operand right_of(const xpu_gemm_args *args, const xpu_quant_params *b) {
    return operand_of(&args->b, b, args->k, args->n, args->b.row_stride == 1);
}

/* Would dequantizing A first allow tensor cores? They compute several rows at the cost of one. */
static bool suits_matrix_engine(const xpu_device_properties *properties, const xpu_gemm_args *args,
                                const quantized_operand *b) {
    xpu_gemm_args written = *args;
    written.a = (xpu_matrix){NULL, args->m * args->k, args->k, 1};
    few plan = {0};
    return args->m > ROWS_AT_ONCE && plan_small_m(properties, &written, b, false, &plan) && plan.by_units;
}

/* Few rows, both operands in the same float8 format, dequantized on the fly. */
static bool try_same_format(xpu_stream *stream, const xpu_device_properties *properties,
                            const xpu_gemm_args *args, const unscaled_operands *unscaled,
                            xpu_status *status) {
    const xpu_quant_params *a = unscaled->a, *b = unscaled->b;
    if (!a || !b || a->dtype != b->dtype || !is_float8(a->dtype) || a->scale || a->zero) return false;
    const quantized_operand o = right_of(args, b);
    few plan = {0};
    if (suits_matrix_engine(properties, args, &o) || !plan_small_m(properties, args, &o, true, &plan))
        return false;
    *status = multiply_small_m(stream, args, &o, &unscaled->after, &plan, NULL);
    return true;
}

/* For more rows, dequantizing B into a workspace is faster. */
static int64_t max_rows_on_the_fly(const xpu_device_properties *properties, xpu_dtype dtype) {
    const bool host = properties->type == XPU_DEVICE_CPU;
    bool emulated = false;
    const bool by_blocks = matrix_unit_of(properties, dtype, &emulated) == MATRIX_UNIT_XMX;
    return by_blocks ? TUNED(host, QUANTIZED_XMX16) : TUNED(host, QUANTIZED_TILES);
}

/* Dequantizes B on the fly if a kernel supports it; A is unquantized. */
static bool try_on_the_fly(xpu_stream *stream, const xpu_device_properties *properties,
                           const xpu_gemm_args *args, const unscaled_operands *unscaled, xpu_status *status) {
    if (!unscaled->b) return false;
    const bool host = properties->type == XPU_DEVICE_CPU;
    const quantized_operand o = right_of(args, unscaled->b);
    few plan = {0};
    const bool by_few = plan_small_m(properties, args, &o, false, &plan);
    if (!plan.by_units && args->m >= TUNED(host, QUANTIZED_TENSOR_CORES) &&
        args->m <= max_rows_on_the_fly(properties, args->dtype) &&
        gemm_try_dequant_on_the_fly(stream, properties, args, NULL, &o, &unscaled->after, status))
        return true;
    if (by_few) *status = multiply_small_m(stream, args, &o, &unscaled->after, &plan, NULL);
    return by_few;
}

/* Replaces an operand by a copy of another dtype in a workspace. */
static xpu_status copy_operand(xpu_stream *stream, xpu_matrix *m, xpu_dtype from, int64_t batch, int64_t rows,
                               int64_t columns, xpu_dtype to, void **workspace) {
    const bool by_columns = is_column_contiguous(m);
    const int64_t copies = m->batch_stride == 0 ? 1 : batch, pitch = by_columns ? rows : columns;
    XPU_TRY(xpu_workspace_take(stream, (size_t)(copies * rows * columns) * xpu_dtype_size(to), workspace));
    const xpu_matrix out = {*workspace, m->batch_stride == 0 ? 0 : rows * columns, by_columns ? 1 : pitch,
                            by_columns ? pitch : 1};
    XPU_TRY(gemm_copy(stream, &out, to, m, from, copies, rows, columns));
    *m = out;
    return XPU_SUCCESS;
}

/* `count` columns of the product from `first` on, and of B's elements; `first` is even and a multiple of a
 * group. */
static xpu_matrix columns_from(const xpu_matrix *m, int64_t first, int bits) {
    xpu_matrix part = *m;
    if (m->data) part.data = (char *)m->data + first * m->column_stride * bits / 8;
    return part;
}
static const void *part_from(const void *data, xpu_dtype dtype, int64_t far) {
    return data ? (const char *)data + far * (int64_t)xpu_dtype_size(dtype) : NULL;
}
static void take_columns(xpu_gemm_args *args, xpu_quant_params *b, gemm_post_process *after, int64_t first,
                         int64_t count) {
    const int bits = xpu_dtype_bits(args->dtype);
    args->n = count;
    args->b = columns_from(&args->b, first, bits_of(b->dtype));
    args->c = columns_from(&args->c, first, bits), args->out = columns_from(&args->out, first, bits);
    args->other = columns_from(&args->other, first, bits);
    const int64_t group = b->group_columns ? first / b->group_columns : 0;
    b->scale = part_from(b->scale, b->scale_dtype, group * b->scale_column_stride);
    b->zero = part_from(b->zero, b->zero_dtype, group * b->zero_column_stride);
    after->b.data = part_from(after->b.data, after->b.dtype, first * after->b.line);
}

/* Columns of B to dequantize at a time, limited by QUANTIZED_WORKSPACE; parts of about equal size. */
static int64_t columns_at_once(const xpu_device_properties *properties, const xpu_gemm_args *args,
                               const xpu_quant_params *b, const gemm_post_process *after, xpu_dtype operand) {
    const int64_t group = b->group_columns > 1 ? b->group_columns : 1, whole = align_up(256, group);
    const int64_t copies = args->b.batch_stride ? args->batch : 1;
    const int64_t column = args->k * copies * (int64_t)xpu_dtype_size(operand);
    const int64_t most = TUNED(properties->type == XPU_DEVICE_CPU, QUANTIZED_WORKSPACE);
    if (after->way || column == 0 || args->n <= most / column || whole % 2 || whole % group ||
        b->scale_is_swizzled)
        return args->n;
    const int64_t parts = div_up(args->n, most / column / whole > 0 ? most / column / whole * whole : whole);
    return align_up(div_up(args->n, parts), whole);
}

/* Dequantizes B into a workspace and multiplies with that. */
static xpu_status multiply_dequantized(xpu_stream *stream, const xpu_device_properties *properties,
                                       const xpu_gemm_args *given, const unscaled_operands *unscaled,
                                       xpu_dtype operand, bool goes_on, void **workspace) {
    const int64_t step = columns_at_once(properties, given, unscaled->b, &unscaled->after, operand);
    xpu_status status = XPU_SUCCESS;
    for (int64_t first = 0; first < given->n && status == XPU_SUCCESS; first += step) {
        xpu_gemm_args args = *given;
        xpu_quant_params b = *unscaled->b;
        gemm_post_process after = unscaled->after;
        take_columns(&args, &b, &after, first, given->n - first < step ? given->n - first : step);
        status = workspace_release(*workspace, status), *workspace = NULL;
        if (status == XPU_SUCCESS)
            status = dequantize_operand(stream, &args.b, &b, args.batch, args.k, args.n, operand, workspace);
        if (status == XPU_SUCCESS)
            status =
                goes_on ? gemm_scaled(stream, properties, &args, operand, &after) : xpu_gemm(stream, &args);
    }
    return status;
}

/* Dequantizes operands into workspaces; for the host's BLAS in float32, or in bfloat16 if that is fast with
 * float32 sums. */
static xpu_status multiply_unscaled(xpu_stream *stream, const xpu_device_properties *properties,
                                    const xpu_gemm_args *given, const unscaled_operands *unscaled, bool host,
                                    void *workspace[2]) {
    xpu_gemm_args args = *given;
    xpu_status status = XPU_SUCCESS;
    const bool goes_on = unscaled->after.a.data || unscaled->after.b.data || unscaled->after.way;
    const bool keeps_dtype = args.dtype == XPU_BFLOAT16 && host_has_fast_wide(xpu_stream_device(stream));
    const xpu_dtype operand = host && goes_on && !keeps_dtype ? XPU_FLOAT32 : args.dtype;
    const bool are_few = args.m <= TUNED(host, QUANTIZED_ROWS);
    xpu_dtype of_a = args.dtype;
    if (try_same_format(stream, properties, &args, unscaled, &status)) return status;
    if (unscaled->a) {
        of_a = are_few ? args.dtype : operand;
        XPU_TRY(dequantize_operand(stream, &args.a, unscaled->a, args.batch, args.m, args.k, of_a,
                                   &workspace[0]));
    }
    if (of_a == args.dtype && try_on_the_fly(stream, properties, &args, unscaled, &status)) return status;
    void *wide = NULL; /* A's */
    if (of_a != operand)
        XPU_TRY(copy_operand(stream, &args.a, of_a, args.batch, args.m, args.k, operand, &wide));
    if (unscaled->b) {
        status = multiply_dequantized(stream, properties, &args, unscaled, operand, goes_on, &workspace[1]);
        return workspace_release(wide, status);
    }
    if (operand != args.dtype)
        status =
            copy_operand(stream, &args.b, args.dtype, args.batch, args.k, args.n, operand, &workspace[1]);
    if (status == XPU_SUCCESS)
        status = goes_on ? gemm_scaled(stream, properties, &args, operand, &unscaled->after)
                         : xpu_gemm(stream, &args);
    return workspace_release(wide, status);
}

/* The range of float16 is too small for products of two operands with scales per group along K, so the
 * product is computed in float32. */
static xpu_status multiply(xpu_stream *stream, const xpu_device_properties *properties,
                           const xpu_gemm_args *given, const xpu_quant_params *a, const xpu_quant_params *b,
                           void *workspace[3]) {
    const bool host = xpu_host_provider_active(xpu_stream_device(stream));
    xpu_gemm_args args = *given;
    unscaled_operands unscaled;
    find_unscaled(given, a, b, &unscaled);
    const bool in_single = given->dtype == XPU_FLOAT16 && a && b && !unscaled.are_unscaled;
    if (in_single) {
        if (args.combine != XPU_COMBINE_NONE)
            return op_fail(
                XPU_ERROR_NOT_SUPPORTED,
                "quantized product: a float16 product of two quantized operands can't have a binary post-op");
        args.dtype = XPU_FLOAT32;
        XPU_TRY(xpu_workspace_take(stream, (size_t)(args.batch * args.m * args.n) * sizeof(float),
                                   &workspace[2]));
        args.out = (xpu_matrix){workspace[2], args.m * args.n, args.n, 1};
        if (args.c.data) { /* instead of the result */
            XPU_TRY(gemm_copy(stream, &args.out, XPU_FLOAT32, &given->c, XPU_FLOAT16, args.batch, args.m,
                              args.n));
            args.c = args.out;
        }
    }
    XPU_TRY(multiply_unscaled(stream, properties, &args, &unscaled, host, workspace));
    if (!in_single) return XPU_SUCCESS;
    return gemm_copy(stream, &given->out, XPU_FLOAT16, &args.out, XPU_FLOAT32, args.batch, args.m, args.n);
}

/* Can both operands use the same kernel, with only the fields of gemm_part different? */
static bool have_same_format(const quantized_operand *a, const gemm_post_process *of_a,
                             const quantized_operand *b, const gemm_post_process *of_b) {
    const xpu_quant_params *p = a->q, *q = b->q;
    const quantized_lines *l = &a->lines, *m = &b->lines;
    return p->dtype == q->dtype && p->scale_dtype == q->scale_dtype && p->zero_dtype == q->zero_dtype &&
           p->zero_offset == q->zero_offset && p->zero_is_added == q->zero_is_added &&
           !p->scale == !q->scale && p->scale_is_swizzled == q->scale_is_swizzled && !p->zero == !q->zero &&
           l->across == m->across && l->along == m->along && l->scale.across == m->scale.across &&
           l->zero.across == m->zero.across &&
           ((!p->scale && !p->zero) || l->group_across == m->group_across) &&
           l->group_along == m->group_along && !of_a->b.data == !of_b->b.data &&
           of_a->b.dtype == of_b->b.dtype && of_a->b.line == of_b->b.line;
}
static bool is_same_plan(const few *a, const few *b) {
    return a->rows == b->rows && a->lines == b->lines && a->lanes == b->lanes &&
           a->subgroups == b->subgroups && a->columns == b->columns && a->octets == b->octets &&
           a->by_units == b->by_units && a->k_whole == b->k_whole && a->single == b->single &&
           a->room == b->room && a->sets == b->sets && a->ring == b->ring && a->numbers == b->numbers &&
           a->each == b->each && a->a_whole == b->a_whole;
}

xpu_status fused_on_the_fly(xpu_stream *stream, const xpu_device_properties *properties,
                            const xpu_gemm_args *args, fused_product *fused) {
    const xpu_gemm_fusion *given = fused->given;
    xpu_gemm_args all[GEMM_PARTS];
    unscaled_operands unscaled[GEMM_PARTS];
    quantized_operand lines[GEMM_PARTS];
    few plan[GEMM_PARTS] = {{0}};
    for (int i = 0; i < given->count; i++) {
        const xpu_gemm_part *part = &given->part[i];
        all[i] = fused_args(args, part);
        XPU_TRY(check(part->quantized, args->k, part->n, args->dtype, "fused product"));
        find_unscaled(&all[i], NULL, part->quantized, &unscaled[i]);
        xpu_gemm_args one = all[i];
        one.n = part->n;
        lines[i] = right_of(&one, unscaled[i].b);
        plan[i].is_one_set =
            fused->form.cached == 2; /* for normalized heads, which must not be split among sets */
        if (!plan_small_m(properties, &all[i], &lines[i], false, &plan[i]) ||
            !is_same_plan(&plan[0], &plan[i]) ||
            !have_same_format(&lines[0], &unscaled[0].after, &lines[i], &unscaled[i].after))
            return XPU_ERROR_NOT_SUPPORTED;
        gemm_part *to = &fused->params.part[i];
        to->b = lines[i].lines.data;
        to->scale = lines[i].lines.scale.data, to->scale_along = lines[i].lines.scale.along;
        to->zero = lines[i].lines.zero.data, to->zero_along = lines[i].lines.zero.along;
        to->b_scale = XPU_ADDR(unscaled[i].after.b.data);
    }
    const bool by_tiles =
        !plan[0].by_units && args->m >= TUNED(false, QUANTIZED_TENSOR_CORES); /* several launches */
    const bool may_overflow = fused->form.normed && plan[0].by_units && args->dtype == XPU_FLOAT16;
    const bool by_vectors = plan[0].lanes == 1; /* CPUs */
    if (by_tiles || by_vectors || may_overflow || (fused->form.normed && !plan[0].a_whole))
        return XPU_ERROR_NOT_SUPPORTED;
    if (!fused_shares_heads(fused, div_up(args->m, plan[0].rows), plan[0].lines))
        return XPU_ERROR_NOT_SUPPORTED;
    return multiply_small_m(stream, &all[0], &lines[0], &unscaled[0].after, &plan[0], fused);
}

xpu_status xpu_gemm_quantized(xpu_stream *stream, const xpu_gemm_args *args, const xpu_quant_params *a,
                              const xpu_quant_params *b) {
    if (!a && !b) return xpu_gemm(stream, args);
    const xpu_device_properties *properties;
    gemm_post_process after = {0};
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    XPU_TRY(gemm_check(args, properties));
    const bool is_empty = args->batch == 0 || args->m == 0 || args->n == 0;
    if (gemm_supports_int8(properties, args, a, b, &after))
        return is_empty ? XPU_SUCCESS : gemm_int8(stream, properties, args, &after);
    if (a) XPU_TRY(check(a, args->m, args->k, args->dtype, "quantized product"));
    if (b) XPU_TRY(check(b, args->k, args->n, args->dtype, "quantized product"));
    if (is_empty) return XPU_SUCCESS;
    void *workspace[3] = {NULL};
    xpu_status status = multiply(stream, properties, args, a, b, workspace);
    for (int i = 0; i < 3; i++) status = workspace_release(workspace[i], status);
    return status;
}

/* Dequantizes a grouped operand into a workspace; swizzled scales restart in each group. */
static xpu_status dequantize_grouped(xpu_stream *stream, xpu_matrix *m, const xpu_quant_params *q,
                                     const xpu_gemm_args *args, xpu_grouped grouped, const int32_t *ends,
                                     bool is_left, void **workspace) {
    const bool by_lines = grouped == (is_left ? XPU_GROUPED_ROWS : XPU_GROUPED_COLUMNS);
    const bool by_k = grouped == XPU_GROUPED_K;
    xpu_quant_params whole = *q;
    if (by_lines || by_k) whole.scale_batch_stride = whole.zero_batch_stride = 0;
    quantized_operand o = operand_of(m, &whole, is_left ? args->m : args->k, is_left ? args->k : args->n,
                                     is_column_contiguous(m));
    o.ends = ends, o.groups = args->batch;
    if (!by_lines && !by_k)
        o.cut = m->batch_stride ? CUT_BATCH : CUT_NONE;
    else if (q->scale_is_swizzled)
        o.cut = by_lines ? CUT_ROWS : CUT_ALONG;
    return dequantize_lines(stream, m, &o, args->batch, args->dtype, workspace);
}

/* Dequantizes A into a workspace, leaving out scales that can be applied to sums; B likewise, unless it is
 * dequantized on the fly. */
xpu_status xpu_gemm_grouped_quantized(xpu_stream *stream, const xpu_gemm_args *given, xpu_grouped grouped,
                                      const int32_t *ends, const xpu_quant_params *a,
                                      const xpu_quant_params *b) {
    if (!a && !b) return xpu_gemm_grouped(stream, given, grouped, ends);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    XPU_TRY(gemm_grouped_check(given, properties, grouped, ends));
    if (a) XPU_TRY(check(a, given->m, given->k, given->dtype, "grouped product"));
    if (b) XPU_TRY(check(b, given->k, given->n, given->dtype, "grouped product"));
    unscaled_operands unscaled;
    xpu_gemm_args args = gemm_grouped_args(given, grouped);
    find_unscaled(&args, a, b, &unscaled);
    if (!unscaled.are_unscaled && a && b && args.dtype == XPU_FLOAT16)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "grouped product of quantized operands in float16: scales "
                                                "must be per row or column, or per tensor");
    if (args.batch == 0 || args.m == 0 || args.n == 0) return XPU_SUCCESS;
    void *workspace[2] = {NULL};
    xpu_status status = XPU_SUCCESS;
    if (unscaled.a)
        status = dequantize_grouped(stream, &args.a, unscaled.a, &args, grouped, ends, true, &workspace[0]);
    bool is_done = false;
    if (unscaled.b && status == XPU_SUCCESS && grouped == XPU_GROUPED_ROWS &&
        args.m <= args.batch * max_rows_on_the_fly(properties, args.dtype)) {
        const quantized_operand o = right_of(&args, unscaled.b);
        is_done = gemm_try_dequant_on_the_fly(stream, properties, &args, ends, &o, &unscaled.after, &status);
    }
    if (unscaled.b && status == XPU_SUCCESS && !is_done)
        status = dequantize_grouped(stream, &args.b, unscaled.b, &args, grouped, ends, false, &workspace[1]);
    if (status == XPU_SUCCESS && !is_done)
        status = unscaled.after.a.data || unscaled.after.b.data
                     ? gemm_grouped(stream, properties, &args, grouped, ends, &unscaled.after)
                     : xpu_gemm_grouped(stream, &args, grouped, ends);
    for (int i = 0; i < 2; i++) status = workspace_release(workspace[i], status);
    return status;
}

/* --- int8 products and output quantization --- */

/* Zero points per row of an int8 operand. */
static bool row_zero_points(const xpu_quant_params *a, int64_t k, vector_zero_point *zeros) {
    *zeros = (vector_zero_point){NULL, 0, a->zero_offset};
    if (!a->zero) return true;
    const bool by_row = a->group_columns == 0 || a->group_columns >= k;
    *zeros = (vector_zero_point){a->zero, a->group_rows ? a->zero_row_stride : 0, a->zero_offset};
    return a->zero_dtype == XPU_INT32 && !a->zero_is_added && by_row && a->group_rows <= 1;
}

/* Is it an int8 product, and what is the zero-point compensation? A sum of 2^16 such products fits 32 bits.
 */
static bool are_int8(const xpu_gemm_args *args, const xpu_quant_params *a, const xpu_quant_params *b,
                     const int32_t *b_sums, gemm_post_process *after) {
    xpu_quant_params unscaled;
    if (!a || !b || !output_quant_is_8bit(a->dtype) || b->dtype != XPU_INT8 || b->zero || b->zero_offset ||
        args->k > 1 << 16)
        return false;
    unscaled = *a, unscaled.zero = NULL;
    if (!gemm_vector_scale_of(&unscaled, true, args->k, &after->a) ||
        !gemm_vector_scale_of(b, false, args->k, &after->b) ||
        !row_zero_points(a, args->k, &after->compensation_a))
        return false;
    after->compensation_b = (vector_zero_point){b_sums, 1, 0};
    return true;
}

xpu_status xpu_gemm_requantized(xpu_stream *stream, const xpu_gemm_args *args, const xpu_quant_params *a,
                                const xpu_quant_params *b, const int32_t *b_sums,
                                const xpu_output_quant *way) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    XPU_TRY(gemm_check(args, properties));
    if (args->dtype != XPU_FLOAT32 || args->batch != 1 || args->combine > XPU_COMBINE_ADD ||
        !output_quant_supports(way->dtype) || !output_quant_supports(way->other_dtype))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "requantized product: needs a float32 product without batch and with no post-op but "
                       "an addition; got output dtype %s and added dtype %s",
                       xpu_dtype_name(way->dtype), xpu_dtype_name(way->other_dtype));
    if (a) XPU_TRY(check(a, args->m, args->k, args->dtype, "requantized product"));
    if (b) XPU_TRY(check(b, args->k, args->n, args->dtype, "requantized product"));
    if (args->m == 0 || args->n == 0) return XPU_SUCCESS;
    const bool host = xpu_host_provider_active(xpu_stream_device(stream));
    gemm_post_process after = {.way = way};
    xpu_status status = XPU_SUCCESS;
    if (args->m > TUNED(host, QUANTIZED_ROWS) && are_int8(args, a, b, b_sums, &after) &&
        gemm_try_int8(stream, properties, args, a->dtype == XPU_UINT8, &after, &status))
        return status;
    unscaled_operands unscaled;
    find_unscaled(args, a, b, &unscaled);
    unscaled.after.way = way;
    void *workspace[2] = {NULL};
    status = multiply_unscaled(stream, properties, args, &unscaled, host, workspace);
    for (int i = 0; i < 2; i++) status = workspace_release(workspace[i], status);
    return status;
}
