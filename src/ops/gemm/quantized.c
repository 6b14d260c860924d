/* Products with quantized operands: dequantized on the fly, or first into a workspace, or multiplied as int8.
 */

#include "ops/gemm/epilogue.h"
#include "ops/gemm/gemm.h"
#include "ops/gemm/gemm_joined.h"
#include "ops/gemm/host_provider.h"
#include "ops/gemm/matrix.h"
#include "ops/gemm/product.h"
#include "ops/gemm/quantized.h"
#include "ops/iter.h"

/* quantized_read.h's */
enum { FORM_SIGNED, FORM_UNSIGNED, FORM_FLOAT4, FORM_E4M3FN, FORM_E5M2, FORM_OTHER, FORM_NONE };
enum { ROWS_AT_ONCE = 4 }; /* of gemm_few, at most */
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

static int zero_form_of(const xpu_quantized *q) {
    return !q->zero                  ? ZERO_NONE
           : q->zero_is_added        ? ZERO_ADDED
           : is_whole(q->zero_dtype) ? ZERO_WHOLE
                                     : ZERO_FRACTION;
}

static xpu_status check(const xpu_quantized *q, int64_t rows, int64_t columns, xpu_dtype dtype,
                        const char *what) {
    if (!is_single(dtype)) return op_lacks("quantized product", dtype, NULL);
    if (form_of(q->dtype) == FORM_NONE) return op_lacks("quantized operand", q->dtype, NULL);
    if (q->scale && !is_single(q->scale_dtype) && !is_float8(q->scale_dtype))
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "%s: no scales of dtype %s", what,
                       xpu_dtype_name(q->scale_dtype));
    if (q->zero && !is_single(q->zero_dtype) && !is_float8(q->zero_dtype) && !is_whole(q->zero_dtype))
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "%s: no zero points of dtype %s", what,
                       xpu_dtype_name(q->zero_dtype));
    if (q->scale_is_tiled && (!q->scale || q->zero || (q->group_rows == 1) == (q->group_columns == 1) ||
                              q->group_rows == 0 || q->group_columns == 0))
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "%s: scales in tiles are of lines, several elements each, without zero points; not of "
                       "%lld x %lld",
                       what, (long long)q->group_rows, (long long)q->group_columns);
    if (q->group_rows < 0 || q->group_columns < 0)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT, "%s: groups of %lld x %lld elements", what,
                       (long long)q->group_rows, (long long)q->group_columns);
    if (rows >= INT32_MAX || columns >= INT32_MAX)
        return op_fail(XPU_ERROR_NOT_SUPPORTED, "%s: an operand of %lld x %lld is too large", what,
                       (long long)rows, (long long)columns);
    return XPU_SUCCESS;
}

/* --- an operand as lines --- */

/* Lines along the rows' or columns' direction, whichever has neighbors, but where scales' tiles say. */
static quantized_operand operand_of(const xpu_matrix *m, const xpu_quantized *q, int64_t rows,
                                    int64_t columns, bool by_columns) {
    if (q->scale_is_tiled) by_columns = q->group_columns == 1;
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
                                     .middle = q->middle},
                           .count = by_columns ? columns : rows,
                           .length = by_columns ? rows : columns,
                           .by_columns = by_columns};
    if (o.lines.group_across < 1) o.lines.group_across = 1;
    if (o.lines.group_along < 1) o.lines.group_along = 1;
    if (o.lines.group_along > o.length && o.length > 0) o.lines.group_along = o.length;
    if (q->scale_is_tiled)
        o.lines.scale.across = divided_up(o.length, o.lines.group_along * TILE_GROUPS) * TILE_SCALES;
    const fast_divisor along = fast_divisor_of((uint32_t)o.lines.group_along);
    o.lines.along_factor = along.multiplier, o.lines.along_shift = along.shift;
    return o;
}
static bool has_neighbors_down(const xpu_matrix *m) { return m->row_stride == 1 && m->column_stride != 1; }

/* Do octets of neighbors lie at multiples of eight elements? */
static bool is_aligned(const quantized_operand *o) {
    const quantized_lines *l = &o->lines;
    return (l->along == 1 || o->length == 1) && l->across % 8 == 0 && l->batch % 8 == 0 &&
           l->data % (uint64_t)bits_of(o->q->dtype) == 0;
}
/* … and have a scale and a zero in common? */
static bool is_shared(const quantized_operand *o) {
    return o->lines.group_along % 8 == 0 || o->lines.group_along == o->length;
}

bool quantized_has_octets(const quantized_operand *o) { return is_aligned(o) && is_shared(o); }

/* The greatest power of two, 3 at most, that divides it. */
static int power_in(uint64_t v) {
    int power = 0;
    while (power < 3 && !(v >> power & 1)) power++;
    return power;
}

int quantized_bits(const quantized_operand *o) { return bits_of(o->q->dtype); }
int quantized_octets_alike(const quantized_operand *o) {
    return o->lines.group_along == o->length ? 3 : power_in((uint64_t)o->lines.group_along / 8);
}
int quantized_line_bytes(const quantized_operand *o) {
    const uint64_t pitch = (uint64_t)(o->lines.across | o->lines.batch) * (uint64_t)bits_of(o->q->dtype) / 8;
    return power_in((o->lines.data | pitch) / 2);
}

bool quantized_has_blocks(const quantized_operand *o) {
    const quantized_lines *l = &o->lines;
    const int bits = bits_of(o->q->dtype);
    const matrix_lines bytes = {(const void *)(uintptr_t)l->data, 1, l->across * bits / 8,
                                l->batch * bits / 8};
    return is_aligned(o) && o->length * bits % 8 == 0 &&
           (l->group_along % 32 == 0 || l->group_along == o->length) &&
           matrix_reads_blocks(&bytes, o->length * bits / 8, o->count, XPU_INT8);
}

/* Has its scale so few bits that products with integers in kernels/gemm/quantized_read.h are exact? */
static bool has_short_scale(const xpu_quantized *q) {
    const bool is_small = q->middle >= -128 && q->middle <= 128 &&
                          (!q->zero || q->zero_dtype == XPU_INT8 || q->zero_dtype == XPU_UINT8);
    return is_small && (!q->scale || q->scale_dtype == XPU_BFLOAT16 || is_float8(q->scale_dtype) ||
                        (q->scale_dtype == XPU_FLOAT16 && bits_of(q->dtype) == 4));
}

void quantized_spec(kernel_spec *spec, const quantized_operand *o) {
    const xpu_quantized *q = o->q;
    spec_dtype(spec, "E", q->dtype);
    spec_follows_number(spec, "E_BITS", bits_of(q->dtype));
    spec_follows_number(spec, "E_FORM", form_of(q->dtype));
    spec_pack(spec, "scale", q->scale ? q->scale_dtype + 1 : 0, 8);
    spec_follows(spec, "SCALE=", q->scale ? xpu_dtype_name(q->scale_dtype) : NULL);
    spec_pack(spec, "zero", q->zero ? q->zero_dtype + 1 : 0, 8);
    spec_follows(spec, "ZERO=", q->zero ? xpu_dtype_name(q->zero_dtype) : NULL);
    spec_number(spec, "ZERO_FORM", zero_form_of(q), 2);
    spec_bool(spec, "TILED", q->scale_is_tiled);
    spec_bool(spec, "SCALE_IS_SHORT", has_short_scale(q));
    spec_bool(spec, "HAS_MIDDLE", q->middle != 0);
}

/* --- its numbers written down --- */

/* `is_padded`: the host's BLAS may multiply the padding of a row by zeros, so it must not be NaN. */
static xpu_status write_numbers(xpu_stream *stream, const quantized_operand *o, int64_t batch,
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
    spec_pack(&spec, "which", 0, 1);
    spec_dtype(&spec, "T", dtype);
    spec_number(&spec, "LANES", lanes, 8);
    spec_bool(&spec, "ALIGNED", is_aligned(o));
    spec_bool(&spec, "SHARED", is_shared(o));
    const uint64_t size = xpu_dtype_size(dtype);
    const bool is_whole_line = out_across % 8 == 0 || o->count == 1,
               is_whole_batch = out_batch % 8 == 0 || batch == 1;
    spec_bool(&spec, "OUT_ALIGNED", XPU_ADDR(out) % (8 * size) == 0 && is_whole_line && is_whole_batch);
    spec_number(&spec, "CUT", o->cut, 2);
    quantized_spec(&spec, o);
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(kernel_of_file(device, &spec, "quantized.cl", "dequantize", &kernel, "dequantize %s->%s",
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
    const int64_t groups = divided_up(o->length, p.span) * o->count * batch;
    const xpu_range range = {.dims = 1,
                             .groups = {(size_t)groups},
                             .local = {(size_t)lanes},
                             .work = (uint64_t)(o->count * o->length * batch)};
    return xpu_launch(stream, kernel, &range, &p, sizeof p);
}

xpu_status xpu_dequantize(xpu_stream *stream, const xpu_matrix *matrix, const xpu_quantized *q, int64_t batch,
                          int64_t rows, int64_t columns, xpu_dtype dtype, const xpu_matrix *out) {
    XPU_TRY(check(q, rows, columns, dtype, "dequantize"));
    const bool by_columns = has_neighbors_down(out);
    if ((by_columns ? out->row_stride : out->column_stride) != 1)
        return op_fail(XPU_ERROR_INVALID_ARGUMENT,
                       "dequantize: neither rows nor columns of the result are neighbors");
    const quantized_operand o = operand_of(matrix, q, rows, columns, by_columns);
    if (o.by_columns != by_columns || q->whole_scale)
        return op_fail(
            XPU_ERROR_NOT_SUPPORTED,
            "dequantize: scales in tiles are of lines that are neighbors in the result, and there "
            "are none of a whole matrix");
    return write_numbers(stream, &o, batch, dtype, out->data, out->batch_stride,
                         by_columns ? out->column_stride : out->row_stride, false);
}

/* In place of a product's quantized operand, its numbers in a workspace; lines begin at multiples of 64
 * bytes. */
static xpu_status write_lines(xpu_stream *stream, xpu_matrix *m, const quantized_operand *o, int64_t batch,
                              xpu_dtype dtype, void **workspace) {
    const int64_t element = (int64_t)xpu_dtype_size(dtype), pitch = rounded_up(o->length, 64 / element);
    const xpu_quantized *q = o->q;
    const bool is_one = m->batch_stride == 0 && q->scale_batch_stride == 0 && q->zero_batch_stride == 0;
    const int64_t copies = is_one ? 1 : batch, each = is_one ? 0 : pitch * o->count;
    XPU_TRY(xpu_workspace_take(stream, (size_t)(pitch * o->count * copies * element), workspace));
    XPU_TRY(write_numbers(stream, o, copies, dtype, *workspace, each, pitch, true));
    *m = (xpu_matrix){*workspace, each, o->by_columns ? 1 : pitch, o->by_columns ? pitch : 1};
    return XPU_SUCCESS;
}
static xpu_status write_operand(xpu_stream *stream, xpu_matrix *m, const xpu_quantized *q, int64_t batch,
                                int64_t rows, int64_t columns, xpu_dtype dtype, void **workspace) {
    const quantized_operand o = operand_of(m, q, rows, columns, has_neighbors_down(m));
    return write_lines(stream, m, &o, batch, dtype, workspace);
}

/* --- a few rows --- */

static bool lies_in_pieces(const quantized_lines *l, int bits) {
    return (l->data | (uint64_t)(l->across * bits / 8) | (uint64_t)(l->batch * bits / 8)) % 16 == 0;
}

/* Work-groups of (lanes, teams), each of which has `lines` of B and `rows` of A at once; of a team's lines,
 * `columns`, each lane has eight elements at a time. */
typedef struct few {
    int rows, columns, lines, lanes, teams, octets, subgroup;
    bool a_whole, a_alike;
    /* gemm_few_units: `sets` of 16 lines, whose teams share k out. Local memory has A's rows in `room`
     * vectors, of which a work-item reads `each` a row, and with `ring` steps, and `numbers` of lines. */
    bool by_units, emulated, k_whole, single, ring, is_one_set; /* the last is what the caller wants */
    bool on_host, nibbles; /* gemm_few_host, whose local memory has `room` numbers of each row */
    int room, sets, numbers, each;
} few;

/* Lines' elements, less a whole zero point, as numbers of 16 bits: are all of them exact? Those of 4 bits are
 * written into the mantissa of 64 first (kernels/gemm/gemm_few_units.h). */
static bool are_exact_halves(const xpu_quantized *q) {
    if (form_of(q->dtype) > FORM_UNSIGNED) return !q->zero;
    if (q->zero && (q->zero_is_added || (q->zero_dtype != XPU_INT8 && q->zero_dtype != XPU_UINT8)))
        return false;
    const int bits = bits_of(q->dtype), most = 256, raised = bits == 4 ? 64 + 8 : 0;
    const int low = form_of(q->dtype) == FORM_SIGNED ? -(1 << (bits - 1)) : 0, high = low + (1 << bits) - 1;
    const int least_zero = q->zero_dtype == XPU_INT8 ? -128 : 0;
    const int less_low = q->middle + (q->zero ? least_zero : 0),
              less_high = q->middle + (q->zero ? least_zero + 255 : 0);
    return high - less_low <= most && low - less_high >= -most && raised + less_high <= most &&
           raised + less_low >= -most;
}

/* gemm_small_m_mma: rows are read 16 bytes at a time, and a step of four such vectors has one scale. */
static bool plan_few_by_units(const xpu_device_properties *properties, const xpu_gemm_args *args,
                              const quantized_operand *b, few *plan) {
    const quantized_lines *l = &b->lines;
    const int bits = bits_of(b->q->dtype), chunk = 128 / bits, step = 4 * chunk;
    const int64_t most = 1 << 28; /* groups are a 32-bit number of bytes apart */
    if (matrix_unit_of(properties, args->dtype, &plan->emulated) != MATRIX_UNIT_PTX || !plan->a_whole ||
        plan->a_alike || args->k % chunk != 0 || !lies_in_pieces(l, bits) || b->q->scale_is_tiled ||
        (l->group_along % step != 0 && l->group_along != b->length) || !are_exact_halves(b->q) ||
        l->scale.along < 0 || l->scale.along >= most || l->zero.along < 0 || l->zero.along >= most)
        return false;
    const int64_t steps = divided_up(args->k, step);
    plan->by_units = true, plan->k_whole = args->k % step == 0;
    plan->rows = args->m > 8 ? 16 : 8;
    plan->lines = 16, plan->lanes = 32, plan->sets = 1;
    const bool each_line = l->group_across == 1 || (!b->q->scale && !b->q->zero);
    plan->single = args->batch == 1 && args->m <= plan->rows && each_line;
    /* A group's beginning and end take as long as some of a team's steps: where there are many lines each has
     * several sets of 16, and half or a quarter of its teams for each. */
    const int64_t units = (int64_t)properties->gpu_subslice_count,
                  sets = divided_up(args->n, 16) * divided_up(args->m, plan->rows) * args->batch;
    const bool is_long = steps > 32 && plan->rows <= 8;
    const int many = is_long ? 16 : 8;
    plan->sets = plan->is_one_set || 2 * sets < (is_long ? 3 : 5) * units ? 1 : sets < 12 * units ? 2 : 4;
    for (plan->teams = 1; plan->teams * plan->sets < many && plan->teams * 2 <= steps;) plan->teams *= 2;
    plan->teams *= plan->sets, plan->lines = 16 * plan->sets;
    static const int rooms[] = {2304, 1152, 576, 288}; /* vectors of 16 bytes: 36 KiB */
    const int64_t rows = args->m < plan->rows ? args->m : plan->rows, pieces = rows * (steps * step / 8 + 4);
    plan->room = 0;
    for (int i = 0; i < 4 && pieces <= rooms[i]; i++) plan->room = rooms[i];
    plan->each = plan->room ? (int)divided_up(steps * step, 8 * 32 * plan->teams) : 0;
    /* Two steps of each team, and lines' scales and zeros, where A leaves room for them. */
    const int64_t of_lines =
                      b->q->scale || b->q->zero ? divided_up(args->k, l->group_along) * plan->lines : 0,
                  numbers = rounded_up(of_lines, 32 * plan->teams);
    plan->ring = plan->room > 0 && plan->room * 16 + plan->room * 4 * 8 / step + numbers * 8 +
                                           plan->teams * (2 * 1024 + 4 * plan->rows) <=
                                       (48 << 10) - 256;
    plan->numbers = plan->ring ? (int)numbers : 0;
    return true;
}

/* gemm_small_m_host: rows and their groups can be read 16 elements at a time. */
static void plan_few_on_host(const xpu_device_properties *properties, const xpu_gemm_args *args,
                             const quantized_operand *b, few *plan) {
    enum { BLOCK = 128, LEAST_ROOM = 512, MOST_TEAMS = 16, GROUPS_EACH = 4 };
    const int64_t along = b->lines.group_along, k = args->k;
    plan->lines = plan->columns = plan->rows > 2 ? 2 : 4, plan->lanes = plan->teams = 1;
    plan->nibbles = bits_of(b->q->dtype) == 4 && form_of(b->q->dtype) <= FORM_UNSIGNED && k % BLOCK == 0 &&
                    (along % BLOCK == 0 || along >= k);
    if (plan->nibbles) {
        for (plan->room = LEAST_ROOM; plan->room < k;) plan->room *= 2;
        plan->nibbles = (uint64_t)(plan->rows * plan->room) * sizeof(float) <= properties->local_mem_size / 2;
    }
    plan->on_host = plan->nibbles || (k % 16 == 0 && (along % 16 == 0 || along >= k));
    if (!plan->on_host) return;
    const int64_t each = divided_up(args->n, plan->columns) / (GROUPS_EACH * properties->gpu_subslice_count);
    while (plan->teams * 2 <= each && plan->teams < MOST_TEAMS) plan->teams *= 2;
    plan->lines = plan->columns * plan->teams;
}

/* `alike`: A has elements as B has, float8. */
static bool plan_few(const xpu_device_properties *properties, const xpu_gemm_args *args,
                     const quantized_operand *b, bool alike, few *plan) {
    const bool host = matrix_fma_of(properties) == MATRIX_UNIT_NONE; /* a CPU, but for tests */
    if (alike && host) return false; /* whose work-items would each make numbers of A anew */
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
    if (plan_few_by_units(properties, args, b, plan)) return true;
    plan->octets = 1;
    if (host) {
        plan_few_on_host(properties, args, b, plan);
        return true;
    }
    const quantized_lines *l = &b->lines; /* 16 bytes at a time */
    const int bits = bits_of(b->q->dtype), many = 128 / bits;
    if (lies_in_pieces(l, bits) && (l->group_along % many == 0 || l->group_along == b->length))
        plan->octets = many / 8;
    if (plan->rows > 2) plan->subgroup = matrix_intel_lanes(properties);
    plan->columns = plan->rows > 2 ? 2 : 4, plan->lanes = 32, plan->teams = 4;
    const int64_t groups =
        divided_up(args->n, plan->columns * plan->teams) * divided_up(args->m, plan->rows) * args->batch;
    if (groups < 2 * (int64_t)properties->gpu_subslice_count)
        plan->columns = 2, plan->lanes = 128, plan->teams = 1;
    plan->lines = plan->columns * plan->teams;
    return true;
}

/* `joined`: several B, of which `b` is the first; NULL for one. */
static xpu_status multiply_few(xpu_stream *stream, const xpu_gemm_args *args, const quantized_operand *b,
                               const gemm_after *after, const few *plan, joined_product *joined) {
    const int device = xpu_stream_device(stream);
    kernel_spec spec;
    spec_begin(&spec, FAMILY_QUANTIZED);
    spec_pack(&spec, "which", 1, 1);
    product_spec(&spec, args->dtype);
    const gemm_quantized_params params = {.gemm = gemm_params_of(args, after), .b = b->lines};
    joined_spec(&spec, joined ? &joined->form : &(joined_form){0});
    gemm_after_spec(&spec, after);
    ending_spec(&spec, &params.gemm.end);
    spec_number(&spec, "TEAMS", plan->teams, 5);
    spec_pack(&spec, "by_units", plan->by_units, 1);
    if (plan->by_units) {
        spec_follows_flag(&spec, "FEW_BY_UNITS", true);
        spec_number(&spec, "ROW_BLOCKS", plan->rows / 8, 2);
        spec_bool(&spec, "K_WHOLE", plan->k_whole);
        spec_bool(&spec, "SINGLE", plan->single);
        spec_number(&spec, "X_ROOM", plan->room, 12);
        spec_number(&spec, "SETS", plan->sets, 4);
        spec_bool(&spec, "RING", plan->ring);
        spec_number(&spec, "SCALE_ROOM", plan->numbers, 14);
        spec_number(&spec, "X_EACH", plan->each, 8);
        spec_flag(&spec, "MATRIX_EMULATED", plan->emulated);
    } else if (plan->on_host) {
        spec_follows_flag(&spec, "FEW_ON_HOST", true);
        spec_pack(&spec, "on_host", 0, 3); /* where others have ROWS */
        spec_number(&spec, "NIBBLES", plan->nibbles, 1);
        spec_number(&spec, "ROWS", plan->rows, 3);
        spec_number(&spec, "COLUMNS", plan->columns, 3);
        spec_number_if(&spec, plan->nibbles, "X_ROOM", plan->room, 18);
    } else {
        spec_follows_flag(&spec, "FEW", true);
        spec_number(&spec, "ROWS", plan->rows, 3);
        spec_number(&spec, "COLUMNS", plan->columns, 3);
        spec_number(&spec, "LANES", plan->lanes, 8);
        spec_number(&spec, "OCTETS", plan->octets, 3);
        spec_number_if(&spec, plan->subgroup > 0, "SUBGROUP", plan->subgroup, 7);
        spec_bool(&spec, "A_WHOLE", plan->a_whole);
        spec_bool(&spec, "A_ALIKE", plan->a_alike);
    }
    quantized_spec(&spec, b);
    const char *name = plan->by_units ? "gemm_few_units" : plan->on_host ? "gemm_few_host" : "gemm_few";
    xpu_kernel *kernel = kernel_find(device, &spec);
    if (!kernel)
        XPU_TRY(kernel_of_file(device, &spec, "gemm.cl", name, &kernel, "%s %s x %s", name,
                               xpu_dtype_name(args->dtype), xpu_dtype_name(b->q->dtype)));
    const int64_t blocks = joined ? joined_blocks(joined, plan->lines) : divided_up(args->n, plan->lines);
    const xpu_range range = {.dims = 2,
                             .groups = {(size_t)(blocks * divided_up(args->m, plan->rows) * args->batch), 1},
                             .local = {(size_t)plan->lanes, (size_t)plan->teams},
                             .work = (uint64_t)(args->batch * args->m * args->n) * (uint64_t)args->k};
    if (!joined) return xpu_launch(stream, kernel, &range, &params, sizeof params);
    joined->params.given = params;
    return xpu_launch(stream, kernel, &range, &joined->params, sizeof joined->params);
}

/* --- the product --- */

/* Are scales the same along k? Then sums are multiplied by them, and not the elements: what is left of the
 * operand, `bare`, are numbers of 8 bits or fewer, which halves hold exactly. */
static bool take_scale(const xpu_quantized *q, bool is_left, int64_t k, line_scale *scale,
                       xpu_quantized *bare) {
    const bool is_exact = form_of(q->dtype) > FORM_UNSIGNED || (q->middle >= -1 && q->middle <= 128);
    *bare = *q;
    if (q->zero || !is_exact || !gemm_scale_of_lines(q, is_left, k, scale)) {
        *scale = (line_scale){NULL, XPU_FLOAT32, 0, 0};
        return false;
    }
    bare->scale = NULL, bare->group_rows = bare->group_columns = 0;
    bare->scale_batch_stride = bare->scale_row_stride = bare->scale_column_stride = 0;
    return true;
}

/* What sums are multiplied by of an operand whose other scales, if any, stay its own. */
static line_scale whole_of(const xpu_quantized *q) {
    if (!q || !q->whole_scale) return (line_scale){NULL, XPU_FLOAT32, 0, 0};
    return (line_scale){q->whole_scale, XPU_FLOAT32, q->whole_scale_stride, 0};
}

/* A and B, NULL where they aren't quantized, without the scales of their lines. */
typedef struct bare_operands {
    const xpu_quantized *a, *b;
    xpu_quantized kept[2];
    gemm_after after;
    bool are_bare; /* no other scales are left */
} bare_operands;

static void find_bare(const xpu_gemm_args *args, const xpu_quantized *a, const xpu_quantized *b,
                      bare_operands *bare) {
    *bare = (bare_operands){.a = a, .b = b};
    bare->after.a = whole_of(a), bare->after.b = whole_of(b);
    const bool keeps_a = a && a->whole_scale, keeps_b = b && b->whole_scale;
    const bool has_a = !a || (!keeps_a && take_scale(a, true, args->k, &bare->after.a, &bare->kept[0]));
    const bool has_b = !b || (!keeps_b && take_scale(b, false, args->k, &bare->after.b, &bare->kept[1]));
    if (a && !keeps_a) bare->a = &bare->kept[0];
    if (b && !keeps_b) bare->b = &bare->kept[1];
    bare->are_bare = has_a && has_b;
}

static quantized_operand right_of(const xpu_gemm_args *args, const xpu_quantized *b) {
    return operand_of(&args->b, b, args->k, args->n, args->b.row_stride == 1);
}

/* By units once A is written down? Several rows then cost what one does. */
static bool is_for_units(const xpu_device_properties *properties, const xpu_gemm_args *args,
                         const quantized_operand *b) {
    xpu_gemm_args written = *args;
    written.a = (xpu_matrix){NULL, args->m * args->k, args->k, 1};
    few plan = {0};
    return args->m > ROWS_AT_ONCE && plan_few(properties, &written, b, false, &plan) && plan.by_units;
}

/* A few rows, both float8, as they are read. */
static bool try_alike(xpu_stream *stream, const xpu_device_properties *properties, const xpu_gemm_args *args,
                      const bare_operands *bare, xpu_status *status) {
    const xpu_quantized *a = bare->a, *b = bare->b;
    if (!a || !b || a->dtype != b->dtype || !is_float8(a->dtype) || a->scale || a->zero) return false;
    const quantized_operand o = right_of(args, b);
    few plan = {0};
    if (is_for_units(properties, args, &o) || !plan_few(properties, args, &o, true, &plan)) return false;
    *status = multiply_few(stream, args, &o, &bare->after, &plan, NULL);
    return true;
}

/* More rows are better multiplied with a B that is written down. */
static int64_t most_rows_as_read(const xpu_device_properties *properties, xpu_dtype dtype) {
    const bool host = properties->type == XPU_DEVICE_CPU;
    bool emulated = false;
    const bool by_blocks = matrix_unit_of(properties, dtype, &emulated) == MATRIX_UNIT_XMX;
    return by_blocks ? TUNED(host, QUANTIZED_BLOCKS) : TUNED(host, QUANTIZED_TILES);
}

/* B as it is read, where that goes; A consists of numbers. */
static bool try_as_read(xpu_stream *stream, const xpu_device_properties *properties,
                        const xpu_gemm_args *args, const bare_operands *bare, xpu_status *status) {
    if (!bare->b) return false;
    const bool host = properties->type == XPU_DEVICE_CPU;
    const quantized_operand o = right_of(args, bare->b);
    few plan = {0};
    const bool by_few = plan_few(properties, args, &o, false, &plan);
    if (!plan.by_units && args->m >= TUNED(host, QUANTIZED_UNITS) &&
        args->m <= most_rows_as_read(properties, args->dtype) &&
        gemm_try_lines(stream, properties, args, NULL, &o, &bare->after, status))
        return true;
    if (by_few) *status = multiply_few(stream, args, &o, &bare->after, &plan, NULL);
    return by_few;
}

/* In place of numbers of one dtype those of another, in a workspace. */
static xpu_status copy_operand(xpu_stream *stream, xpu_matrix *m, xpu_dtype from, int64_t batch, int64_t rows,
                               int64_t columns, xpu_dtype to, void **workspace) {
    const bool by_columns = has_neighbors_down(m);
    const int64_t copies = m->batch_stride == 0 ? 1 : batch, pitch = by_columns ? rows : columns;
    XPU_TRY(xpu_workspace_take(stream, (size_t)(copies * rows * columns) * xpu_dtype_size(to), workspace));
    const xpu_matrix out = {*workspace, m->batch_stride == 0 ? 0 : rows * columns, by_columns ? 1 : pitch,
                            by_columns ? pitch : 1};
    XPU_TRY(gemm_copy(stream, &out, to, m, from, copies, rows, columns));
    *m = out;
    return XPU_SUCCESS;
}

/* Columns from `first` on, `count` of them, of a product and of what B's elements lie in; `first` is even,
 * and a multiple of a group. */
static xpu_matrix columns_from(const xpu_matrix *m, int64_t first, int bits) {
    xpu_matrix part = *m;
    if (m->data) part.data = (char *)m->data + first * m->column_stride * bits / 8;
    return part;
}
static const void *part_from(const void *data, xpu_dtype dtype, int64_t far) {
    return data ? (const char *)data + far * (int64_t)xpu_dtype_size(dtype) : NULL;
}
static void take_columns(xpu_gemm_args *args, xpu_quantized *b, gemm_after *after, int64_t first,
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

/* As many columns of B at a time as QUANTIZED_WRITTEN lets be written down; the fewest parts of a size. */
static int64_t columns_at_once(const xpu_device_properties *properties, const xpu_gemm_args *args,
                               const xpu_quantized *b, const gemm_after *after, xpu_dtype operand) {
    const int64_t group = b->group_columns > 1 ? b->group_columns : 1, whole = rounded_up(256, group);
    const int64_t copies = args->b.batch_stride ? args->batch : 1;
    const int64_t column = args->k * copies * (int64_t)xpu_dtype_size(operand);
    const int64_t most = TUNED(properties->type == XPU_DEVICE_CPU, QUANTIZED_WRITTEN);
    if (after->way || column == 0 || args->n <= most / column || whole % 2 || whole % group ||
        b->scale_is_tiled)
        return args->n;
    const int64_t parts =
        divided_up(args->n, most / column / whole > 0 ? most / column / whole * whole : whole);
    return rounded_up(divided_up(args->n, parts), whole);
}

/* The product with B's numbers, which are written down first. */
static xpu_status multiply_written(xpu_stream *stream, const xpu_device_properties *properties,
                                   const xpu_gemm_args *given, const bare_operands *bare, xpu_dtype operand,
                                   bool goes_on, void **workspace) {
    const int64_t step = columns_at_once(properties, given, bare->b, &bare->after, operand);
    xpu_status status = XPU_SUCCESS;
    for (int64_t first = 0; first < given->n && status == XPU_SUCCESS; first += step) {
        xpu_gemm_args args = *given;
        xpu_quantized b = *bare->b;
        gemm_after after = bare->after;
        take_columns(&args, &b, &after, first, given->n - first < step ? given->n - first : step);
        status = workspace_done(*workspace, status), *workspace = NULL;
        if (status == XPU_SUCCESS)
            status = write_operand(stream, &args.b, &b, args.batch, args.k, args.n, operand, workspace);
        if (status == XPU_SUCCESS)
            status =
                goes_on ? gemm_scaled(stream, properties, &args, operand, &after) : xpu_gemm(stream, &args);
    }
    return status;
}

/* Dequantizes operands into workspaces; for the host's BLAS in float32, or in bfloat16 if that is fast with
 * float32 sums. */
static xpu_status multiply_bare(xpu_stream *stream, const xpu_device_properties *properties,
                                const xpu_gemm_args *given, const bare_operands *bare, bool host,
                                void *workspace[2]) {
    xpu_gemm_args args = *given;
    xpu_status status = XPU_SUCCESS;
    const bool goes_on = bare->after.a.data || bare->after.b.data || bare->after.way;
    const bool keeps_dtype = args.dtype == XPU_BFLOAT16 && host_has_fast_wide(xpu_stream_device(stream));
    const xpu_dtype operand = host && goes_on && !keeps_dtype ? XPU_FLOAT32 : args.dtype;
    const bool are_few = args.m <= TUNED(host, QUANTIZED_ROWS);
    xpu_dtype of_a = args.dtype;
    if (try_alike(stream, properties, &args, bare, &status)) return status;
    if (bare->a) {
        of_a = are_few ? args.dtype : operand;
        XPU_TRY(write_operand(stream, &args.a, bare->a, args.batch, args.m, args.k, of_a, &workspace[0]));
    }
    if (of_a == args.dtype && try_as_read(stream, properties, &args, bare, &status)) return status;
    void *wide = NULL; /* A's */
    if (of_a != operand)
        XPU_TRY(copy_operand(stream, &args.a, of_a, args.batch, args.m, args.k, operand, &wide));
    if (bare->b) {
        status = multiply_written(stream, properties, &args, bare, operand, goes_on, &workspace[1]);
        return workspace_done(wide, status);
    }
    if (operand != args.dtype)
        status =
            copy_operand(stream, &args.b, args.dtype, args.batch, args.k, args.n, operand, &workspace[1]);
    if (status == XPU_SUCCESS)
        status =
            goes_on ? gemm_scaled(stream, properties, &args, operand, &bare->after) : xpu_gemm(stream, &args);
    return workspace_done(wide, status);
}

/* float16 has too few powers of two for the numbers of two operands with scales of groups along k: their
 * product is float32's. */
static xpu_status multiply(xpu_stream *stream, const xpu_device_properties *properties,
                           const xpu_gemm_args *given, const xpu_quantized *a, const xpu_quantized *b,
                           void *workspace[3]) {
    const bool host = xpu_host_provider_active(xpu_stream_device(stream));
    xpu_gemm_args args = *given;
    bare_operands bare;
    find_bare(given, a, b, &bare);
    const bool in_single = given->dtype == XPU_FLOAT16 && a && b && !bare.are_bare;
    if (in_single) {
        if (args.combine != XPU_COMBINE_NONE)
            return op_fail(XPU_ERROR_NOT_SUPPORTED,
                           "quantized product: nothing is combined with float16 of two such operands");
        args.dtype = XPU_FLOAT32;
        XPU_TRY(xpu_workspace_take(stream, (size_t)(args.batch * args.m * args.n) * sizeof(float),
                                   &workspace[2]));
        args.out = (xpu_matrix){workspace[2], args.m * args.n, args.n, 1};
        if (args.c.data) { /* in place of the result */
            XPU_TRY(gemm_copy(stream, &args.out, XPU_FLOAT32, &given->c, XPU_FLOAT16, args.batch, args.m,
                              args.n));
            args.c = args.out;
        }
    }
    XPU_TRY(multiply_bare(stream, properties, &args, &bare, host, workspace));
    if (!in_single) return XPU_SUCCESS;
    return gemm_copy(stream, &given->out, XPU_FLOAT16, &args.out, XPU_FLOAT32, args.batch, args.m, args.n);
}

/* Do kernels for one serve the other, but for addresses and what is written in gemm_part? */
static bool are_alike(const quantized_operand *a, const gemm_after *of_a, const quantized_operand *b,
                      const gemm_after *of_b) {
    const xpu_quantized *p = a->q, *q = b->q;
    const quantized_lines *l = &a->lines, *m = &b->lines;
    return p->dtype == q->dtype && p->scale_dtype == q->scale_dtype && p->zero_dtype == q->zero_dtype &&
           p->middle == q->middle && p->zero_is_added == q->zero_is_added && !p->scale == !q->scale &&
           p->scale_is_tiled == q->scale_is_tiled && !p->zero == !q->zero && l->across == m->across &&
           l->along == m->along && l->scale.across == m->scale.across && l->zero.across == m->zero.across &&
           ((!p->scale && !p->zero) || l->group_across == m->group_across) &&
           l->group_along == m->group_along && !of_a->b.data == !of_b->b.data &&
           of_a->b.dtype == of_b->b.dtype && of_a->b.line == of_b->b.line;
}
static bool is_same_plan(const few *a, const few *b) {
    return a->rows == b->rows && a->lines == b->lines && a->lanes == b->lanes && a->teams == b->teams &&
           a->columns == b->columns && a->octets == b->octets && a->by_units == b->by_units &&
           a->k_whole == b->k_whole && a->single == b->single && a->room == b->room && a->sets == b->sets &&
           a->ring == b->ring && a->numbers == b->numbers && a->each == b->each && a->a_whole == b->a_whole;
}

xpu_status joined_as_read(xpu_stream *stream, const xpu_device_properties *properties,
                          const xpu_gemm_args *args, joined_product *joined) {
    const xpu_joined *given = joined->given;
    xpu_gemm_args all[GEMM_PARTS];
    bare_operands bare[GEMM_PARTS];
    quantized_operand lines[GEMM_PARTS];
    few plan[GEMM_PARTS] = {{0}};
    for (int i = 0; i < given->count; i++) {
        const xpu_gemm_part *part = &given->part[i];
        all[i] = joined_args(args, part);
        XPU_TRY(check(part->quantized, args->k, part->n, args->dtype, "joined product"));
        find_bare(&all[i], NULL, part->quantized, &bare[i]);
        xpu_gemm_args one = all[i];
        one.n = part->n;
        lines[i] = right_of(&one, bare[i].b);
        plan[i].is_one_set = joined->form.cached == 2; /* of heads, which share few sets' lines */
        if (!plan_few(properties, &all[i], &lines[i], false, &plan[i]) || !is_same_plan(&plan[0], &plan[i]) ||
            !are_alike(&lines[0], &bare[0].after, &lines[i], &bare[i].after))
            return XPU_ERROR_NOT_SUPPORTED;
        gemm_part *to = &joined->params.part[i];
        to->b = lines[i].lines.data;
        to->scale = lines[i].lines.scale.data, to->scale_along = lines[i].lines.scale.along;
        to->zero = lines[i].lines.zero.data, to->zero_along = lines[i].lines.zero.along;
        to->b_scale = XPU_ADDR(bare[i].after.b.data);
    }
    const bool by_tiles =
        !plan[0].by_units && args->m >= TUNED(false, QUANTIZED_UNITS); /* several launches */
    const bool may_overflow = joined->form.normed && plan[0].by_units && args->dtype == XPU_FLOAT16;
    const bool by_vectors = plan[0].lanes == 1; /* CPUs */
    if (by_tiles || by_vectors || may_overflow || (joined->form.normed && !plan[0].a_whole))
        return XPU_ERROR_NOT_SUPPORTED;
    if (!joined_shares_heads(joined, divided_up(args->m, plan[0].rows), plan[0].lines))
        return XPU_ERROR_NOT_SUPPORTED;
    return multiply_few(stream, &all[0], &lines[0], &bare[0].after, &plan[0], joined);
}

xpu_status xpu_gemm_quantized(xpu_stream *stream, const xpu_gemm_args *args, const xpu_quantized *a,
                              const xpu_quantized *b) {
    if (!a && !b) return xpu_gemm(stream, args);
    const xpu_device_properties *properties;
    gemm_after after = {0};
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    XPU_TRY(gemm_check(args, properties));
    const bool is_empty = args->batch == 0 || args->m == 0 || args->n == 0;
    if (gemm_takes_int8(properties, args, a, b, &after))
        return is_empty ? XPU_SUCCESS : gemm_int8(stream, properties, args, &after);
    if (a) XPU_TRY(check(a, args->m, args->k, args->dtype, "quantized product"));
    if (b) XPU_TRY(check(b, args->k, args->n, args->dtype, "quantized product"));
    if (is_empty) return XPU_SUCCESS;
    void *workspace[3] = {NULL};
    xpu_status status = multiply(stream, properties, args, a, b, workspace);
    for (int i = 0; i < 3; i++) status = workspace_done(workspace[i], status);
    return status;
}

/* An operand of groups written down; where its scales are cut as it is, by groups. */
static xpu_status write_cut(xpu_stream *stream, xpu_matrix *m, const xpu_quantized *q,
                            const xpu_gemm_args *args, xpu_grouped grouped, const int32_t *ends, bool is_left,
                            void **workspace) {
    const bool by_lines = grouped == (is_left ? XPU_GROUPED_ROWS : XPU_GROUPED_COLUMNS);
    const bool by_k = grouped == XPU_GROUPED_K;
    xpu_quantized whole = *q;
    if (by_lines || by_k) whole.scale_batch_stride = whole.zero_batch_stride = 0;
    quantized_operand o = operand_of(m, &whole, is_left ? args->m : args->k, is_left ? args->k : args->n,
                                     has_neighbors_down(m));
    o.ends = ends, o.groups = args->batch;
    if (!by_lines && !by_k)
        o.cut = m->batch_stride ? CUT_BATCH : CUT_NONE;
    else if (q->scale_is_tiled)
        o.cut = by_lines ? CUT_LINES : CUT_ALONG;
    return write_lines(stream, m, &o, args->batch, args->dtype, workspace);
}

/* A is written down, without its scales where the sums can be multiplied by them; so is B where it isn't
 * taken as it is read. */
xpu_status xpu_gemm_grouped_quantized(xpu_stream *stream, const xpu_gemm_args *given, xpu_grouped grouped,
                                      const int32_t *ends, const xpu_quantized *a, const xpu_quantized *b) {
    if (!a && !b) return xpu_gemm_grouped(stream, given, grouped, ends);
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    XPU_TRY(gemm_grouped_check(given, properties, grouped, ends));
    if (a) XPU_TRY(check(a, given->m, given->k, given->dtype, "grouped product"));
    if (b) XPU_TRY(check(b, given->k, given->n, given->dtype, "grouped product"));
    bare_operands bare;
    xpu_gemm_args args = gemm_grouped_args(given, grouped);
    find_bare(&args, a, b, &bare);
    if (!bare.are_bare && a && b && args.dtype == XPU_FLOAT16)
        return op_fail(XPU_ERROR_NOT_SUPPORTED,
                       "grouped product of quantized operands in float16: scales are "
                       "a line's along k, or all lines'");
    if (args.batch == 0 || args.m == 0 || args.n == 0) return XPU_SUCCESS;
    void *workspace[2] = {NULL};
    xpu_status status = XPU_SUCCESS;
    if (bare.a) status = write_cut(stream, &args.a, bare.a, &args, grouped, ends, true, &workspace[0]);
    bool is_done = false;
    if (bare.b && status == XPU_SUCCESS && grouped == XPU_GROUPED_ROWS &&
        args.m <= args.batch * most_rows_as_read(properties, args.dtype)) {
        const quantized_operand o = right_of(&args, bare.b);
        is_done = gemm_try_lines(stream, properties, &args, ends, &o, &bare.after, &status);
    }
    if (bare.b && status == XPU_SUCCESS && !is_done)
        status = write_cut(stream, &args.b, bare.b, &args, grouped, ends, false, &workspace[1]);
    if (status == XPU_SUCCESS && !is_done)
        status = bare.after.a.data || bare.after.b.data
                     ? gemm_grouped(stream, properties, &args, grouped, ends, &bare.after)
                     : xpu_gemm_grouped(stream, &args, grouped, ends);
    for (int i = 0; i < 2; i++) status = workspace_done(workspace[i], status);
    return status;
}

/* --- to bytes --- */

/* Zero points of rows of bytes. */
static bool zeros_of_rows(const xpu_quantized *a, int64_t k, line_number *zeros) {
    *zeros = (line_number){NULL, 0, a->middle};
    if (!a->zero) return true;
    const bool by_row = a->group_columns == 0 || a->group_columns >= k;
    *zeros = (line_number){a->zero, a->group_rows ? a->zero_row_stride : 0, a->middle};
    return a->zero_dtype == XPU_INT32 && !a->zero_is_added && by_row && a->group_rows <= 1;
}

/* Is it an int8 product, and what is the zero-point compensation? A sum of 2^16 such products fits 32 bits.
 */
static bool are_bytes(const xpu_gemm_args *args, const xpu_quantized *a, const xpu_quantized *b,
                      const int32_t *b_sums, gemm_after *after) {
    xpu_quantized bare;
    if (!a || !b || !leaving_is_byte(a->dtype) || b->dtype != XPU_INT8 || b->zero || b->middle ||
        args->k > 1 << 16)
        return false;
    bare = *a, bare.zero = NULL;
    if (!gemm_scale_of_lines(&bare, true, args->k, &after->a) ||
        !gemm_scale_of_lines(b, false, args->k, &after->b) || !zeros_of_rows(a, args->k, &after->less_a))
        return false;
    after->less_b = (line_number){b_sums, 1, 0};
    return true;
}

xpu_status xpu_gemm_requantized(xpu_stream *stream, const xpu_gemm_args *args, const xpu_quantized *a,
                                const xpu_quantized *b, const int32_t *b_sums, const xpu_way_out *way) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(xpu_stream_device(stream), &properties));
    XPU_TRY(gemm_check(args, properties));
    if (args->dtype != XPU_FLOAT32 || args->batch != 1 || args->combine > XPU_COMBINE_ADD ||
        !leaving_takes(way->dtype) || !leaving_takes(way->other_dtype))
        return op_fail(
            XPU_ERROR_INVALID_ARGUMENT,
            "requantized product: one float32 product to %s, to which %s may be added, is not what "
            "is asked for",
            xpu_dtype_name(way->dtype), xpu_dtype_name(way->other_dtype));
    if (a) XPU_TRY(check(a, args->m, args->k, args->dtype, "requantized product"));
    if (b) XPU_TRY(check(b, args->k, args->n, args->dtype, "requantized product"));
    if (args->m == 0 || args->n == 0) return XPU_SUCCESS;
    const bool host = xpu_host_provider_active(xpu_stream_device(stream));
    gemm_after after = {.way = way};
    xpu_status status = XPU_SUCCESS;
    if (args->m > TUNED(host, QUANTIZED_ROWS) && are_bytes(args, a, b, b_sums, &after) &&
        gemm_try_bytes(stream, properties, args, a->dtype == XPU_UINT8, &after, &status))
        return status;
    bare_operands bare;
    find_bare(args, a, b, &bare);
    bare.after.way = way;
    void *workspace[2] = {NULL};
    status = multiply_bare(stream, properties, args, &bare, host, workspace);
    for (int i = 0; i < 2; i++) status = workspace_done(workspace[i], status);
    return status;
}
