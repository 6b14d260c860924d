/* Products of quantized operands, and dequantization, against float64: dtypes of elements, scales and zero
 * points, groups along and across K, layouts, alignments, batches.
 *
 *     test_quantized [problems [seed]]
 *
 * OPENXPU_MATRIX=ptx (or xmx, xmx8, dot: int8 only) tests kernels that dequantize B on the fly on a matrix
 * engine, emulated on CPUs; fma those that GPUs use for few rows. */
#include <math.h>

#include "ops/dtype.h"
#include "quantized_test.h"
#include "xpu/ops/gemm.h"
#include "xpu/ops/tiles.h"
#include "xpu/tuning.h"

static bool as_read; /* lay out B so that it can be dequantized on the fly; rows at multiples of 64 bytes for
                        XMX with SIMD16 */
static bool nibbles; /* … with 4 bits and groups of a multiple of 128 or a whole row, for the CPU kernel */
static enum { NO_TILES, OF_ROWS, OF_COLUMNS } tiles; /* swizzled scales, of such rows */
static int by_few, by_few_host, by_few_units, by_numbers, by_units, by_bytes;
static size_t of_units; /* work-groups of the last launch on a matrix engine */

static void count_launch(const xpu_work *work, xpu_trace_point point, xpu_status status, void *unused) {
    if (point == XPU_TRACE_BEGIN && strstr(work->name, "gemm_small_m ")) by_few++;
    if (point == XPU_TRACE_BEGIN && strstr(work->name, "gemm_small_m_host")) by_few_host++;
    if (point == XPU_TRACE_BEGIN && strstr(work->name, "gemm_small_m_mma")) by_few_units++;
    if (point == XPU_TRACE_BEGIN && strstr(work->name, "dequantize")) by_numbers++;
    if (point == XPU_TRACE_BEGIN && strstr(work->name, "gemm_matrix") && strstr(work->name, " x "))
        by_units++, of_units = work->range->groups[0];
    if (point == XPU_TRACE_BEGIN && strstr(work->name, "gemm_matrix of int8")) by_bytes++;
}

static int bits_of(xpu_dtype dtype) { return dtype == XPU_FLOAT4_E2M1FN_X2 ? 4 : xpu_dtype_bits(dtype); }

/* The values of elements, from the formats' definitions. */
static double minifloat(unsigned bits, int exponent_bits, int mantissa_bits, int bias) {
    const int mantissa = (int)(bits & ((1u << mantissa_bits) - 1));
    const int exponent = (int)(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
    const double m = ldexp(mantissa + (exponent ? 1 << mantissa_bits : 0),
                           (exponent ? exponent : 1) - bias - mantissa_bits);
    return bits >> (exponent_bits + mantissa_bits) & 1 ? -m : m;
}
static double element_value(xpu_dtype dtype, unsigned bits) {
    switch (dtype) {
    case XPU_INT8: return (int8_t)bits;
    case XPU_INT4: return (int)(bits ^ 8) - 8;
    case XPU_FLOAT4_E2M1FN_X2: return minifloat(bits, 2, 1, 1);
    case XPU_FLOAT8_E4M3FN: return minifloat(bits, 4, 3, 7);
    case XPU_FLOAT8_E5M2: return minifloat(bits, 5, 2, 15);
    case XPU_FLOAT8_E4M3FNUZ: return minifloat(bits, 4, 3, 8);
    case XPU_FLOAT8_E5M2FNUZ: return minifloat(bits, 5, 2, 16);
    default: return bits;
    }
}
/* No NaN or infinity and, in wide formats, no values so large that they hide the others. */
static unsigned some_element(xpu_dtype dtype) {
    if (bits_of(dtype) == 4) return (unsigned)pick(0, 15);
    const unsigned sign = (unsigned)pick(0, 1) << 7;
    switch (dtype) {
    case XPU_FLOAT8_E4M3FN: return sign | (unsigned)pick(0, 0x50);
    case XPU_FLOAT8_E5M2: return sign | (unsigned)pick(0, 0x44);
    case XPU_FLOAT8_E4M3FNUZ: return sign ? sign | (unsigned)pick(1, 0x50) : (unsigned)pick(0, 0x50);
    case XPU_FLOAT8_E5M2FNUZ: return sign ? sign | (unsigned)pick(1, 0x48) : (unsigned)pick(0, 0x48);
    default: return (unsigned)pick(0, 255);
    }
}

/* An operand, quantized or not, and its values in float64. */
typedef struct operand {
    memory data, scale, zero;
    xpu_matrix matrix;
    xpu_quant_params q;
    double *number; /* [batch][rows][columns] */
} operand;

static double put_part(xpu_dtype dtype, const memory *m, int64_t i, double value) {
    const float f = (float)value;
    switch (dtype) {
    case XPU_FLOAT32: ((float *)m->host)[i] = f; return f;
    case XPU_FLOAT16:
    case XPU_BFLOAT16:
        ((uint16_t *)m->host)[i] = encode(dtype, value);
        return decode(dtype, encode(dtype, value));
    case XPU_INT32: ((int32_t *)m->host)[i] = (int32_t)value; return (int32_t)value;
    case XPU_INT16: ((int16_t *)m->host)[i] = (int16_t)value; return (int16_t)value;
    case XPU_INT8: ((int8_t *)m->host)[i] = (int8_t)value; return (int8_t)value;
    case XPU_UINT8: m->host[i] = (uint8_t)value; return (uint8_t)value;
    default: m->host[i] = dtype_narrow(dtype, f); return dtype_widen(dtype, m->host[i]);
    }
}
static size_t part_size(xpu_dtype dtype) { return xpu_dtype_size(dtype); }

static int64_t groups_of(int64_t length, int64_t group) { return group ? (length + group - 1) / group : 1; }

/* Scale number s of row l, of `count`. */
static int64_t place_in_tiles(int64_t l, int64_t s, int64_t count) {
    return (l / 128 * ((count + 3) / 4) + s / 4) * 512 + l % 32 * 16 + l / 32 % 4 * 4 + s % 4;
}

static operand make(xpu_dtype dtype, bool quantized, int64_t batch, int64_t rows, int64_t columns,
                    bool turned) {
    operand o = {.number = malloc((size_t)(batch * rows * columns + 1) * sizeof(double))};
    const int64_t lines = turned ? columns : rows, length = turned ? rows : columns;
    const bool tidy = quantized && as_read;
    const bool blocks = by_xmx && as_read;
    const int64_t align = blocks               ? 128
                          : tidy || pick(0, 2) ? 32
                                               : 1,
                  apart = blocks || tidy || pick(0, 9) ? 1 : 2;
    int64_t pitch = (length * apart + align - 1) / align * align, first = align * pick(0, 2);
    if (quantized && bits_of(dtype) == 4) first = (first + 1) / 2 * 2;
    const int64_t each = pick(0, 4) ? pitch * lines : 0, count = first + pitch * lines * batch;
    const int bits = quantized ? bits_of(dtype) : (int)xpu_dtype_size(dtype) * 8;
    o.data = memory_of((size_t)((count * bits + 7) / 8));
    o.matrix = (xpu_matrix){(char *)o.data.device + first * bits / 8, batch > 1 ? each : 0,
                            turned ? apart : pitch, turned ? pitch : apart};
    static const xpu_dtype scales[] = {XPU_FLOAT32, XPU_BFLOAT16, XPU_FLOAT16, XPU_FLOAT8_E8M0FNU,
                                       XPU_FLOAT8_E4M3FN};
    static const xpu_dtype zeros[] = {XPU_INT8, XPU_UINT8, XPU_INT32, XPU_BFLOAT16, XPU_FLOAT32, XPU_INT16};
    static const int64_t sizes[] = {0, 1, 8, 16, 32, 128, 5, 0};
    xpu_quant_params *q = &o.q;
    q->dtype = dtype;
    if (quantized) {
        const bool integers =
            dtype == XPU_INT8 || dtype == XPU_UINT8 || dtype == XPU_INT4 || dtype == XPU_UINT4;
        q->group_rows = blocks ? sizes[pick(4, 5)]
                        : tidy ? sizes[pick(2, by_ptx ? 5 : 4)]
                               : sizes[pick(0, 7)];
        if (by_ptx && pick(0, 2) == 0) q->group_rows = 0;
        if (nibbles) q->group_rows = pick(0, 2) ? 128 : 0;
        q->group_columns = sizes[pick(0, 7)];
        q->scale_dtype = scales[pick(0, 4)], q->zero_dtype = zeros[pick(0, 5)];
        q->zero_is_added = pick(0, 2) == 0;
        q->zero_offset = integers && pick(0, 1) ? 8 : 0;
        if (tiles) {
            int64_t *const along = tiles == OF_ROWS ? &q->group_columns : &q->group_rows;
            *(tiles == OF_ROWS ? &q->group_rows : &q->group_columns) = 1;
            if (*along < 2) *along = 32;
        }
        const int64_t r = groups_of(rows, q->group_rows), c = groups_of(columns, q->group_columns);
        const bool with_scale = tiles || pick(0, 5) > 0, with_zero = !tiles && pick(0, 1);
        const bool scale_turned = pick(0, 1);
        const int64_t tiled =
            tiles == OF_ROWS ? (r + 127) / 128 * ((c + 3) / 4) * 512 : (c + 127) / 128 * ((r + 3) / 4) * 512;
        const int64_t each_scales = tiles ? tiled : r * c;
        o.scale = memory_of((size_t)(batch * each_scales) * part_size(q->scale_dtype));
        o.zero = memory_of((size_t)(batch * r * c) * part_size(q->zero_dtype));
        q->scale = with_scale ? o.scale.device : NULL, q->zero = with_zero ? o.zero.device : NULL;
        q->scale_is_swizzled = tiles != NO_TILES;
        q->zero_batch_stride = batch > 1 && pick(0, 1) ? r * c : 0;
        q->scale_batch_stride = q->zero_batch_stride ? each_scales : 0;
        q->scale_row_stride = scale_turned ? 1 : c, q->scale_column_stride = scale_turned ? r : 1;
        q->zero_row_stride = c, q->zero_column_stride = 1;
        double *scale = malloc((size_t)(batch * each_scales) * sizeof(double)),
               *zero = malloc((size_t)(batch * r * c) * sizeof(double));
        for (int64_t i = 0; i < batch * each_scales; i++)
            scale[i] =
                put_part(q->scale_dtype, &o.scale, i, ldexp((double)pick(8, 15) / 8, (int)pick(-6, -3)));
        for (int64_t i = 0; i < batch * r * c; i++) {
            zero[i] = put_part(q->zero_dtype, &o.zero, i,
                               (double)pick(0, 8) / (q->zero_dtype == XPU_FLOAT32 ? 8 : 1));
        }
        for (int64_t b = 0; b < batch; b++)
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < columns; j++) {
                    const int64_t at = first + b * o.matrix.batch_stride + i * o.matrix.row_stride +
                                       j * o.matrix.column_stride;
                    const unsigned bits_now = some_element(dtype);
                    uint8_t *byte = &o.data.host[bits == 4 ? at / 2 : at];
                    if (b == 0 || o.matrix.batch_stride) {
                        if (bits == 4)
                            *byte =
                                (uint8_t)(at % 2 ? (*byte & 15) | bits_now << 4 : (*byte & 240) | bits_now);
                        else
                            *byte = (uint8_t)bits_now;
                    }
                }
        for (int64_t b = 0; b < batch; b++)
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < columns; j++) {
                    const int64_t at = first + b * o.matrix.batch_stride + i * o.matrix.row_stride +
                                       j * o.matrix.column_stride;
                    const unsigned raw =
                        bits == 4 ? o.data.host[at / 2] >> (at % 2 * 4) & 15 : o.data.host[at];
                    const int64_t gr = q->group_rows ? i / q->group_rows : 0,
                                  gc = q->group_columns ? j / q->group_columns : 0;
                    const int64_t place = tiles == OF_ROWS ? place_in_tiles(gr, gc, c)
                                          : tiles == OF_COLUMNS
                                              ? place_in_tiles(gc, gr, r)
                                              : gr * q->scale_row_stride + gc * q->scale_column_stride;
                    const double s = with_scale ? scale[b * q->scale_batch_stride + place] : 1;
                    const double z = with_zero ? zero[b * q->zero_batch_stride + gr * c + gc] : 0;
                    const double e = element_value(dtype, raw) - q->zero_offset;
                    o.number[(b * rows + i) * columns + j] = q->zero_is_added ? e * s + z : (e - z) * s;
                }
        free(scale), free(zero);
        send(&o.scale, (size_t)(batch * each_scales) * part_size(q->scale_dtype));
        send(&o.zero, (size_t)(batch * r * c) * part_size(q->zero_dtype));
    } else {
        for (int64_t i = 0; i < count; i++) put_number(dtype, o.data.host, i, (double)pick(-8, 8) / 8);
        for (int64_t b = 0; b < batch; b++)
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < columns; j++)
                    o.number[(b * rows + i) * columns + j] =
                        get_number(dtype, o.data.host,
                                   first + b * o.matrix.batch_stride + i * o.matrix.row_stride +
                                       j * o.matrix.column_stride);
    }
    send(&o.data, (size_t)((count * bits + 7) / 8));
    return o;
}
static void drop_operand(operand *o) {
    drop(&o->data);
    if (o->scale.device) drop(&o->scale), drop(&o->zero);
    free(o->number);
}

static const xpu_dtype stored[] = {XPU_INT8,
                                   XPU_UINT8,
                                   XPU_INT4,
                                   XPU_UINT4,
                                   XPU_FLOAT4_E2M1FN_X2,
                                   XPU_FLOAT8_E4M3FN,
                                   XPU_FLOAT8_E5M2,
                                   XPU_FLOAT8_E4M3FNUZ,
                                   XPU_FLOAT8_E5M2FNUZ};
enum { STORED = sizeof stored / sizeof *stored };
static xpu_dtype some_dtype(void) { return stored[pick(0, STORED - 1)]; }
static xpu_dtype some_single(void) {
    static const xpu_dtype all[] = {XPU_FLOAT32, XPU_BFLOAT16, XPU_FLOAT16};
    return all[pick(0, 2)];
}

/* Has each kernel been used often enough? */
static bool have_all_some(void) {
    if (by_ptx || by_xmx) return by_units > problems / 4 && (by_xmx || by_few_units >= problems / 12);
    if (is_host && by_few_host < problems / 10) return false;
    return problems < 20 || (by_few + by_few_host > problems / 4 && by_numbers > problems / 4);
}

static void tune(const char *name, int64_t value) {
    SUCCEEDS(xpu_tuning_set(0, xpu_tuning_index(name), value));
}

/* XMX: the tile whose subgroups share dequantized elements. */
static int shared_tile(void) {
    xpu_tile tile = {0};
    for (int i = 0; i < xpu_tile_count(); i++) {
        SUCCEEDS(xpu_tile_get(0, XPU_BFLOAT16, false, i, &tile));
        if (tile.is_candidate && tile.m == 256) return i;
    }
    fail_msg("no tile of 256 rows");
    return -1;
}

/* Arguments of A times K-major B, with rows `pitch` elements apart. */
static xpu_gemm_args args_of(xpu_dtype dtype, int64_t m, int64_t n, int64_t k, int64_t pitch, const memory *a,
                             const memory *b, const memory *out) {
    return (xpu_gemm_args){.dtype = dtype,
                           .batch = 1,
                           .m = m,
                           .n = n,
                           .k = k,
                           .a = {a->device, 0, pitch, 1},
                           .b = {b->device, 0, 1, pitch},
                           .out = {out->device, 0, n, 1},
                           .alpha = {XPU_FLOAT64, {.f = 1}}};
}

/* Runs the requested number of random problems, and more until each kernel has been used. */
static void products_of_whatever_comes(void **unused) {
    int i = 0, in_several_parts = 0;
    for (; i < problems || (i < 20 * problems && !have_all_some()); i++) {
        nibbles = !by_ptx && !by_xmx && i % 4 == 1;
        as_read = by_ptx || nibbles || pick(0, 1 + by_xmx);
        const xpu_dtype dtype =
            by_ptx || (by_xmx && as_read) ? (pick(0, 1) ? XPU_BFLOAT16 : XPU_FLOAT16) : some_single();
        const bool blocks = by_xmx && as_read;
        const bool a_too = !as_read && pick(0, 1), b_too = !a_too || pick(0, 1);
        const bool shared = blocks && i % 3 == 0, in_parts = !as_read && b_too && i % 3 == 0;
        if (by_xmx) tune("matrix_tile", shared ? shared_tile() : 1 << 20);
        tune("quantized_workspace", in_parts ? 1 : 1 << 26);
        const int64_t batch = pick(0, 2) ? 1 : pick(2, 3), m = by_ptx                  ? pick(1, 40)
                                                               : shared && pick(0, 1)  ? pick(257, 530)
                                                               : blocks                ? pick(3, 40)
                                                               : as_read || pick(0, 1) ? pick(1, 17)
                                                                                       : pick(18, 70);
        const int64_t n = in_parts                           ? pick(250, 600)
                          : shared && m <= 256 && pick(0, 1) ? pick(129, 260)
                                                             : pick(1, 70);
        const int64_t k = nibbles                ? pick(1, 9) * 128
                          : shared               ? pick(16, 150) * 8
                          : blocks               ? pick(16, 50) * 8
                          : by_ptx && pick(0, 2) ? pick(1, 60) * 32
                          : by_ptx && pick(0, 4) ? pick(1, 30) * 8
                          : pick(0, 1)           ? pick(1, 8) * 32
                                                 : pick(1, 200);
        tiles = pick(0, 4) ? NO_TILES : OF_ROWS;
        operand a = make(a_too ? some_dtype() : dtype, a_too, batch, m, k, !as_read && pick(0, 1));
        tiles = in_parts || pick(0, 4) ? NO_TILES : OF_COLUMNS;
        const xpu_dtype of_b = nibbles ? pick(0, 1) ? XPU_INT4 : XPU_UINT4 : b_too ? some_dtype() : dtype;
        operand b = make(of_b, b_too, batch, k, n, as_read || pick(0, 1));
        tiles = NO_TILES;
        operand c = make(dtype, false, batch, m, n, false);
        const size_t size = (size_t)(batch * m * n) * xpu_dtype_size(dtype);
        memory out = memory_of(size);
        const bool with_c = pick(0, 1);
        const xpu_gemm_args args = {.dtype = dtype,
                                    .epilogue = pick(0, 1) ? XPU_EPILOGUE_RELU : XPU_EPILOGUE_NONE,
                                    .batch = batch,
                                    .m = m,
                                    .n = n,
                                    .k = k,
                                    .a = a.matrix,
                                    .b = b.matrix,
                                    .c = with_c ? c.matrix : (xpu_matrix){0},
                                    .out = {out.device, m * n, n, 1},
                                    .alpha = {XPU_FLOAT64, {.f = 0.5}},
                                    .beta = {XPU_FLOAT64, {.f = 2}}};
        const int written = by_numbers;
        SUCCEEDS(xpu_gemm_quantized(stream, &args, a_too ? &a.q : NULL, b_too ? &b.q : NULL));
        if (in_parts && by_numbers - written > 1 + a_too) in_several_parts++;
        SUCCEEDS(xpu_memcpy(stream, out.host, out.device, size, true));
        /* The rounding of a result and, if operands are dequantized into a workspace, of their elements. */
        const double unit = dtype == XPU_FLOAT32 ? 0x1p-20 : dtype == XPU_FLOAT16 ? 0x1p-11 : 0x1p-8;
        for (int64_t z = 0; z < batch; z++)
            for (int64_t r = 0; r < m; r++)
                for (int64_t s = 0; s < n; s++) {
                    double sum = 0, size_of_it = 0;
                    for (int64_t t = 0; t < k; t++) {
                        const double p = a.number[(z * m + r) * k + t] * b.number[(z * k + t) * n + s];
                        sum += p, size_of_it += fabs(p);
                    }
                    double v = 0.5 * sum + (with_c ? 2 * c.number[(z * m + r) * n + s] : 0);
                    if (args.epilogue == XPU_EPILOGUE_RELU && v < 0) v = 0;
                    const double got = get_number(dtype, out.host, (z * m + r) * n + s);
                    if (dtype == XPU_FLOAT16 && fabs(v) > 65000 && got * v > 65000.0 * 65000)
                        continue; /* the end of the row */
                    if (!(fabs(got - v) <= unit * (size_of_it + fabs(v)) + 1e-6))
                        fail_msg("problem %d, %s x %s in %s, %d x %d x %d: %g at %d, %d instead of %g", i,
                                 a_too ? xpu_dtype_name(a.q.dtype) : "-",
                                 b_too ? xpu_dtype_name(b.q.dtype) : "-", xpu_dtype_name(dtype), (int)m,
                                 (int)n, (int)k, got, (int)r, (int)s, v);
                }
        drop_operand(&a), drop_operand(&b), drop_operand(&c), drop(&out);
    }
    nibbles = false;
    tune("matrix_tile", 1 << 20), tune("quantized_workspace", 1 << 26);
    assert_true(by_ptx || by_xmx || problems < 20 ||
                in_several_parts > 0); /* which seldom dequantize into a workspace */
    print_message(
        "%d problems: %d launches read the elements, %d of them by units, %d of a few rows; %d wrote numbers "
        "down\n",
        i, by_few + by_few_host + by_few_units + by_units, by_few_units + by_units, by_few_units, by_numbers);
    assert_true(have_all_some());
}

/* int8 products that the engine does not support use other kernels and must not be misread: sums are
 * exact. */
static void what_units_do_not_read(void **unused) {
    static const struct {
        int64_t m, n, k, a_row, a_column, a_first, b_across, b_first, group;
        enum { NONE, TILES, LINES } units;
    } all[] = {
        {6, 10, 32, 32, 1, 0, 32, 0, 0, LINES}, {6, 10, 32, 1, 8, 0, 32, 0, 0, TILES},
        {6, 10, 32, 40, 1, 0, 64, 8, 8, TILES}, {1, 10, 32, 32, 1, 0, 32, 0, 0, LINES},
        {6, 1, 32, 32, 1, 0, 32, 0, 0, LINES},  {6, 10, 28, 32, 1, 0, 32, 0, 0, NONE},
        {6, 10, 4, 8, 1, 0, 8, 0, 0, NONE},     {6, 10, 32, 33, 1, 0, 32, 0, 0, NONE},
        {6, 10, 32, 32, 1, 1, 32, 0, 0, NONE},  {6, 10, 32, 64, 2, 0, 32, 0, 0, NONE},
        {6, 10, 32, 32, 1, 0, 33, 0, 0, NONE},  {6, 10, 32, 32, 1, 0, 32, 3, 0, NONE},
        {6, 10, 32, 32, 1, 0, 32, 0, 5, NONE},  {6, 10, 32, 0, 1, 0, 32, 0, 0, LINES},
        {6, 10, 32, 1, 9, 0, 32, 0, 0, NONE},   {16, 10, 48, 48, 1, 0, 48, 0, 0, LINES},
        {6, 10, 40, 40, 1, 0, 48, 0, 0, TILES}, {17, 10, 32, 32, 1, 0, 32, 0, 0, TILES},
        {6, 10, 64, 64, 1, 0, 64, 8, 0, TILES}, {2, 17, 80, 80, 1, 8, 96, 16, 64, LINES},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        memory a = memory_of(4096), b = memory_of(4096), out = memory_of(4096), scale = memory_of(4096);
        for (int j = 0; j < 1024; j++) put_number(XPU_FLOAT16, a.host, j, (double)pick(-4, 4));
        for (int j = 0; j < 4096; j++) b.host[j] = (uint8_t)pick(-8, 8);
        for (int j = 0; j < 1024; j++) ((float *)scale.host)[j] = j % 2 ? 2 : 0.5f;
        send(&a, 4096), send(&b, 4096), send(&scale, 4096);
        const int64_t groups = groups_of(all[i].k, all[i].group), n = all[i].n;
        const xpu_quant_params q = {.dtype = XPU_INT8,
                                    .scale_dtype = XPU_FLOAT32,
                                    .scale = scale.device,
                                    .group_rows = all[i].group,
                                    .group_columns = 1,
                                    .scale_row_stride = n,
                                    .scale_column_stride = 1};
        const xpu_gemm_args args = {
            .dtype = XPU_FLOAT16,
            .batch = 1,
            .m = all[i].m,
            .n = n,
            .k = all[i].k,
            .a = {(uint16_t *)a.device + all[i].a_first, 0, all[i].a_row, all[i].a_column},
            .b = {(int8_t *)b.device + all[i].b_first, 0, 1, all[i].b_across},
            .out = {out.device, 0, n, 1},
            .alpha = {XPU_FLOAT64, {.f = 1}}};
        const int tiles = by_units, lines = by_few_units;
        SUCCEEDS(xpu_gemm_quantized(stream, &args, NULL, &q));
        SUCCEEDS(xpu_memcpy(stream, out.host, out.device, 4096, true));
        if (by_ptx) assert_int_equal(by_units - tiles, all[i].units == TILES);
        if (by_ptx) assert_int_equal(by_few_units - lines, all[i].units == LINES);
        assert_true(groups * n <= 1024);
        for (int64_t r = 0; r < all[i].m; r++)
            for (int64_t c = 0; c < n; c++) {
                double sum = 0;
                for (int64_t k = 0; k < all[i].k; k++) {
                    const int64_t g = all[i].group ? k / all[i].group : 0;
                    sum += get_number(XPU_FLOAT16, a.host,
                                      all[i].a_first + r * all[i].a_row + k * all[i].a_column) *
                           (int8_t)b.host[all[i].b_first + c * all[i].b_across + k] *
                           ((float *)scale.host)[g * n + c];
                }
                const double got = get_number(XPU_FLOAT16, out.host, r * n + c);
                if (fabs(got - sum) > 0x1p-11 * fabs(sum))
                    fail_msg("case %d: %g instead of %g", (int)i, got, sum);
            }
        drop(&a), drop(&b), drop(&out), drop(&scale);
    }
}

/* Scales that are constant along K multiply the sums, so the error is that of rounding the result. */
static void sums_have_the_scales(void **unused) {
    enum { M = 20, N = 24, K = 64 };
    static const int rows[] = {1, 3, 6, M};
    for (int i = 0; i < 4; i++)
        for (int both = 0; both < 2; both++) {
            const int m = rows[i];
            const xpu_dtype dtype = both ? XPU_FLOAT16 : XPU_BFLOAT16;
            memory a = memory_of(M * K * 2), b = memory_of(N * K), out = memory_of(M * N * 2);
            memory scale = memory_of(M * 4 + N * 4);
            for (int j = 0; j < M * K; j++)
                if (both)
                    a.host[j] = (uint8_t)some_element(XPU_FLOAT8_E4M3FN);
                else
                    put_number(dtype, a.host, j, (double)pick(-8, 8));
            for (int j = 0; j < N * K; j++) b.host[j] = (uint8_t)some_element(XPU_FLOAT8_E4M3FN);
            for (int j = 0; j < M + N; j++) ((float *)scale.host)[j] = (float)pick(1000, 9999) * 0x1p-20f;
            send(&a, M * K * 2), send(&b, N * K), send(&scale, M * 4 + N * 4);
            const xpu_quant_params qa = {.dtype = XPU_FLOAT8_E4M3FN,
                                         .scale_dtype = XPU_FLOAT32,
                                         .scale = scale.device,
                                         .group_rows = 1,
                                         .scale_row_stride = 1};
            const xpu_quant_params qb = {.dtype = XPU_FLOAT8_E4M3FN,
                                         .scale_dtype = XPU_FLOAT32,
                                         .scale = (float *)scale.device + M,
                                         .group_columns = 1,
                                         .scale_column_stride = 1};
            const xpu_gemm_args args = args_of(dtype, m, N, K, K, &a, &b, &out);
            const int before = by_numbers, lines = by_few_units;
            SUCCEEDS(xpu_gemm_quantized(stream, &args, both ? &qa : NULL, &qb));
            if (by_ptx) assert_int_equal(by_few_units - lines, m <= 6); /* A is dequantized first */
            SUCCEEDS(xpu_memcpy(stream, out.host, out.device, M * N * 2, true));
            if (by_fma && m < 5) assert_int_equal(by_numbers, before); /* A is dequantized on the fly, too */
            for (int r = 0; r < m; r++)
                for (int c = 0; c < N; c++) {
                    double sum = 0, size = 0;
                    for (int k = 0; k < K; k++) {
                        const double x = both ? element_value(XPU_FLOAT8_E4M3FN, a.host[r * K + k]) *
                                                    ((float *)scale.host)[r]
                                              : get_number(dtype, a.host, r * K + k);
                        const double p = x * element_value(XPU_FLOAT8_E4M3FN, b.host[c * K + k]) *
                                         ((float *)scale.host)[M + c];
                        sum += p, size += fabs(p);
                    }
                    const double got = get_number(dtype, out.host, r * N + c);
                    const double half_unit = both ? 0x1p-11 : 0x1p-8;
                    if (fabs(got - sum) > half_unit * fabs(sum) * 1.001 + size * 1e-6 + 0x1p-25)
                        fail_msg("%d rows, %s: %g instead of %g", m, xpu_dtype_name(dtype), got, sum);
                }
            drop(&a), drop(&b), drop(&out), drop(&scale);
        }
}

/* A NaN among the weights makes its column NaN, and nothing else. */
static void nan_of_float8(void **unused) {
    enum { M = 24, N = 40, K = 160 };
    static const xpu_dtype of[] = {XPU_FLOAT8_E4M3FN, XPU_FLOAT8_E5M2};
    for (int i = 0; i < 12; i++) {
        const int m = i / 4 == 0 ? 8 : i / 4 == 1 ? M : 1;
        memory a = memory_of(M * 192 * 2), b = memory_of((size_t)N * 192), out = memory_of(M * N * 4);
        const xpu_dtype dtype = i % 2 ? XPU_FLOAT16 : XPU_BFLOAT16;
        for (int j = 0; j < M * 192; j++) put_number(dtype, a.host, j, 1);
        for (int j = 0; j < N * 192; j++) b.host[j] = (uint8_t)(j % 64); /* which are positive values */
        b.host[5 * 192 + 37] = 0x7f, b.host[39 * 192 + 159] = 0xff;
        send(&a, M * 192 * 2), send(&b, (size_t)N * 192);
        const xpu_quant_params q = {.dtype = of[i / 2 % 2]};
        const xpu_gemm_args args = args_of(dtype, m, N, K, 192, &a, &b, &out);
        const int before = by_units + by_few_units;
        SUCCEEDS(xpu_gemm_quantized(stream, &args, NULL, &q));
        SUCCEEDS(xpu_memcpy(stream, out.host, out.device, (size_t)m * N * 2, true));
        if (by_ptx || (by_xmx && m > 1)) assert_true(by_units + by_few_units > before);
        for (int j = 0; j < m * N; j++) {
            const int bits = ((uint16_t *)out.host)[j] & 0x7fff;
            if ((bits > (i % 2 ? 0x7c00 : 0x7f80)) != (j % N == 5 || j % N == 39))
                fail_msg("%s, %s: bits %x at %d, %d", xpu_dtype_name(q.dtype), xpu_dtype_name(dtype),
                         (unsigned)bits, j / N, j % N);
        }
        drop(&a), drop(&b), drop(&out);
    }
}

/* 4-bit elements times the identity show elements minus zero points: all int8 zero points, and the extreme
 * zero_offsets that count as small, and one that doesn't. Results are rounded once. */
static void every_zero_point(void **unused) {
    enum { N = 256, K = 128, GROUP = 64 };
    static const struct {
        xpu_dtype dtype, elements;
        int zero_offset;
    } all[] = {
        {XPU_BFLOAT16, XPU_INT4, 0},    {XPU_BFLOAT16, XPU_UINT4, 0},   {XPU_FLOAT16, XPU_INT4, 0},
        {XPU_FLOAT16, XPU_UINT4, 0},    {XPU_BFLOAT16, XPU_INT4, 128},  {XPU_BFLOAT16, XPU_UINT4, 128},
        {XPU_BFLOAT16, XPU_INT4, -128}, {XPU_FLOAT16, XPU_UINT4, -128}, {XPU_BFLOAT16, XPU_UINT4, 1001}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const xpu_dtype dtype = all[i].dtype;
        memory a = memory_of(K * K * 2), b = memory_of(N * K / 2), out = memory_of(K * N * 2),
               scale = memory_of(2 * N * 2), zero = memory_of(2 * N);
        for (int j = 0; j < K * K; j++) put_number(dtype, a.host, j, j / K == j % K);
        for (int j = 0; j < N * K / 2; j++) b.host[j] = (uint8_t)pick(0, 255);
        for (int j = 0; j < 2 * N; j++) put_number(dtype, scale.host, j, j % 3 ? 0.5 : -2);
        for (int j = 0; j < 2 * N; j++) zero.host[j] = (uint8_t)(j / N ? 255 - j % N : j);
        send(&a, K * K * 2), send(&b, N * K / 2), send(&scale, 2 * N * 2), send(&zero, 2 * N);
        const xpu_quant_params q = {.dtype = all[i].elements,
                                    .zero_offset = all[i].zero_offset,
                                    .scale_dtype = dtype,
                                    .scale = scale.device,
                                    .group_rows = GROUP,
                                    .group_columns = 1,
                                    .scale_row_stride = N,
                                    .scale_column_stride = 1,
                                    .zero_dtype = XPU_INT8,
                                    .zero = all[i].zero_offset ? NULL : zero.device,
                                    .zero_row_stride = N,
                                    .zero_column_stride = 1};
        const xpu_gemm_args args = args_of(dtype, K, N, K, K, &a, &b, &out);
        const int before = by_units;
        SUCCEEDS(xpu_gemm_quantized(stream, &args, NULL, &q));
        SUCCEEDS(xpu_memcpy(stream, out.host, out.device, K * N * 2, true));
        if (by_ptx) assert_int_equal(by_units, before + 1);
        for (int k = 0; k < K; k++)
            for (int n = 0; n < N; n++) {
                const int at = n * K + k, group = k / GROUP * N + n;
                const double element =
                    element_value(all[i].elements, (unsigned)b.host[at / 2] >> at % 2 * 4 & 15);
                const double away = all[i].zero_offset ? all[i].zero_offset : (int8_t)zero.host[group];
                const double right = (element - away) * (group % 3 ? 0.5 : -2);
                const double got = get_number(dtype, out.host, k * N + n);
                if (got != rounded(dtype, right))
                    fail_msg("%s of %s: %g less %g is %g instead of %g", xpu_dtype_name(all[i].elements),
                             xpu_dtype_name(dtype), element, away, got, right);
            }
        drop(&a), drop(&b), drop(&out), drop(&scale), drop(&zero);
    }
}

/* A single group per row, and a row without negative elements: the bias of integers in the mantissa adds up
 * to thousands of times the result. */
static void long_groups(void **unused) {
    enum { N = 64, K = 4096 };
    memory a = memory_of(K * 2), b = memory_of(N * K / 2), out = memory_of(N * 2), scale = memory_of(N * 2);
    for (int j = 0; j < K; j++) put_number(XPU_FLOAT16, a.host, j, 1 + (double)pick(0, 1023) / 1024);
    for (int j = 0; j < N * K / 2; j++) b.host[j] = (uint8_t)pick(0, 255);
    for (int j = 0; j < N; j++) put_number(XPU_FLOAT16, scale.host, j, 1);
    send(&a, K * 2), send(&b, N * K / 2), send(&scale, N * 2);
    for (int i = 0; i < 2; i++) {
        const xpu_quant_params q = {.dtype = i ? XPU_UINT4 : XPU_INT4,
                                    .zero_offset = i ? 8 : 0,
                                    .scale_dtype = XPU_FLOAT16,
                                    .scale = scale.device,
                                    .group_columns = 1,
                                    .scale_column_stride = 1};
        const xpu_gemm_args args = args_of(XPU_FLOAT16, 1, N, K, K, &a, &b, &out);
        SUCCEEDS(xpu_gemm_quantized(stream, &args, NULL, &q));
        SUCCEEDS(xpu_memcpy(stream, out.host, out.device, N * 2, true));
        for (int n = 0; n < N; n++) {
            double sum = 0;
            for (int k = 0; k < K; k++) {
                const int at = n * K + k;
                const double element = element_value(q.dtype, (unsigned)b.host[at / 2] >> at % 2 * 4 & 15);
                sum += get_number(XPU_FLOAT16, a.host, k) * (element - q.zero_offset);
            }
            const double got = get_number(XPU_FLOAT16, out.host, n);
            if (fabs(got - sum) > 0x1p-11 * fabs(sum) + 0.5)
                fail_msg("%s, line %d: %g instead of %g", xpu_dtype_name(q.dtype), n, got, sum);
        }
    }
    drop(&a), drop(&b), drop(&out), drop(&scale);
}

/* Returns the number of work-groups of 128 rows times n rows of quantized integers, and checks the
 * results. */
static size_t groups_of_rows(xpu_dtype dtype, int64_t n) {
    enum { M = 128, K = 512 };
    const int64_t bytes = n * K * bits_of(dtype) / 8;
    memory a = memory_of(M * K * 2), b = memory_of((size_t)bytes), out = memory_of((size_t)(M * n) * 2);
    for (int j = 0; j < M * K; j++) put_number(XPU_BFLOAT16, a.host, j, (double)pick(-2, 2));
    for (int64_t j = 0; j < bytes; j++) b.host[j] = (uint8_t)(dtype == XPU_INT4 ? pick(0, 255) : pick(-8, 8));
    send(&a, M * K * 2), send(&b, (size_t)bytes);
    const xpu_quant_params q = {.dtype = dtype};
    const xpu_gemm_args args = args_of(XPU_BFLOAT16, M, n, K, K, &a, &b, &out);
    const int before = by_units;
    SUCCEEDS(xpu_gemm_quantized(stream, &args, NULL, &q));
    SUCCEEDS(xpu_memcpy(stream, out.host, out.device, (size_t)(M * n) * 2, true));
    assert_int_equal(by_units, before + 1);
    for (int m = 0; m < M; m += 37)
        for (int64_t c = 0; c < n; c += 7) {
            double sum = 0;
            for (int64_t k = 0; k < K; k++) {
                const int64_t at = c * K + k;
                const unsigned bits = dtype == XPU_INT4 ? b.host[at / 2] >> at % 2 * 4 & 15u : b.host[at];
                sum += get_number(XPU_BFLOAT16, a.host, m * K + k) * element_value(dtype, bits);
            }
            const double got = get_number(XPU_BFLOAT16, out.host, m * n + c);
            if (fabs(got - sum) > 0x1p-8 * fabs(sum))
                fail_msg("%d, %d: %g instead of %g", m, (int)c, got, sum);
        }
    drop(&a), drop(&b), drop(&out);
    return of_units;
}

/* Elements are dequantized once for 128 rows, so each compute unit gets one tile; unquantized weights would
 * use two of 64 rows. */
static void high_tiles(void **unused) {
    const xpu_device_properties *p;
    SUCCEEDS(xpu_device_get_properties(0, &p));
    if (by_ptx) assert_int_equal(groups_of_rows(XPU_INT8, 64 * p->gpu_subslice_count), p->gpu_subslice_count);
}

/* Three tiles of 64 columns per compute unit: with 4-bit weights two run at a time, and the third takes as
 * long again. Wider tiles, which run all at once, are better. */
static void one_wave(void **unused) {
    const xpu_device_properties *p;
    SUCCEEDS(xpu_device_get_properties(0, &p));
    const int64_t n = 64 * 3 * (int64_t)p->gpu_subslice_count;
    if (by_ptx) assert_int_equal(groups_of_rows(XPU_INT4, n), (n + 127) / 128);
}

/* 8-bit activations with zero points, weights with scales per channel, bias, added tensor, activation, and a
 * quantized or floating result. */
static void layers_of_bytes(void **unused) {
    static const xpu_dtype ways[] = {XPU_FLOAT32, XPU_BFLOAT16, XPU_FLOAT16, XPU_INT8, XPU_UINT8};
    static const int64_t few[] = {1, 2, 7, 16}, many[] = {17, 33, 64, 70};
    for (int i = 0; i < 12 + problems / 2; i++) {
        const xpu_dtype of_a = pick(0, 1) ? XPU_UINT8 : XPU_INT8, to = ways[pick(0, 4)],
                        of_other = ways[pick(0, 4)];
        const bool tidy = i % 4 > 0, by_row = pick(0, 2) == 0, with_sums = pick(0, 5) > 0, adds = pick(0, 1);
        const int64_t m = i % 3 ? many[pick(0, 3)] : few[pick(0, 3)],
                      n = tidy ? pick(1, 5) * 16 : pick(1, 70);
        const int64_t k = tidy ? pick(1, 4) * 64 : pick(1, 150), along = pick(0, 3) > 0;
        const int64_t pitch = tidy ? k : k + pick(0, 3), b_row = along ? 1 : n, b_column = along ? pitch : 1;
        const size_t b_size = (size_t)(pitch * n), out_size = (size_t)(m * n * 4);
        memory a = memory_of((size_t)(m * pitch)), b = memory_of(b_size), out = memory_of(out_size);
        memory other = memory_of(out_size), scale = memory_of((size_t)(m + n) * 4);
        memory zero = memory_of((size_t)m * 4), sums = memory_of((size_t)n * 4),
               bias = memory_of((size_t)n * 4);
        for (int64_t j = 0; j < m * pitch; j++) a.host[j] = (uint8_t)pick(0, 255);
        for (int64_t j = 0; j < pitch * n; j++) b.host[j] = (uint8_t)pick(0, 255);
        for (int64_t j = 0; j < m * n; j++)
            if (xpu_dtype_size(of_other) == 1)
                other.host[j] = (uint8_t)pick(0, 255);
            else
                put_number(of_other, other.host, j, (double)pick(-16, 16) / 4);
        for (int64_t j = 0; j < m + n; j++) ((float *)scale.host)[j] = (float)pick(10, 30) * 0x1p-10f;
        for (int64_t j = 0; j < m; j++) ((int32_t *)zero.host)[j] = (int32_t)pick(-5, 140);
        for (int64_t c = 0; c < n; c++) {
            ((float *)bias.host)[c] = (float)pick(-8, 8) / 2;
            for (int64_t z = 0; z < k; z++)
                ((int32_t *)sums.host)[c] += (int8_t)b.host[z * b_row + c * b_column];
        }
        send(&a, (size_t)(m * pitch)), send(&b, b_size), send(&other, out_size), send(&zero, (size_t)m * 4);
        send(&scale, (size_t)(m + n) * 4), send(&sums, (size_t)n * 4), send(&bias, (size_t)n * 4);
        const int32_t zero_offset = by_row ? 0 : (int32_t)pick(-3, 130);
        const xpu_quant_params qa = {.dtype = of_a,
                                     .scale_dtype = XPU_FLOAT32,
                                     .zero_dtype = XPU_INT32,
                                     .zero_offset = zero_offset,
                                     .scale = scale.device,
                                     .zero = by_row ? zero.device : NULL,
                                     .group_rows = by_row,
                                     .scale_row_stride = by_row,
                                     .zero_row_stride = by_row};
        const xpu_quant_params qb = {.dtype = XPU_INT8,
                                     .scale_dtype = XPU_FLOAT32,
                                     .scale = (float *)scale.device + m,
                                     .group_columns = 1,
                                     .scale_column_stride = 1};
        const xpu_output_quant way = {to,      adds ? of_other : XPU_FLOAT32, 0.25,
                                      0.03125, to == XPU_UINT8 ? 99 : -7,     3};
        const xpu_gemm_args args = {.dtype = XPU_FLOAT32,
                                    .batch = 1,
                                    .m = m,
                                    .n = n,
                                    .k = k,
                                    .a = {a.device, 0, pitch, 1},
                                    .b = {b.device, 0, b_row, b_column},
                                    .c = {bias.device, 0, 0, 1},
                                    .out = {out.device, 0, n, 1},
                                    .alpha = {XPU_FLOAT64, {.f = 1}},
                                    .beta = {XPU_FLOAT64, {.f = 1}},
                                    .combine = adds ? XPU_COMBINE_ADD : XPU_COMBINE_NONE,
                                    .other = {adds ? other.device : NULL, 0, n, 1},
                                    .epilogue = i % 2 ? XPU_EPILOGUE_RELU : XPU_EPILOGUE_NONE};
        const int before = by_bytes;
        SUCCEEDS(xpu_gemm_requantized(stream, &args, &qa, &qb, with_sums ? sums.device : NULL, &way));
        SUCCEEDS(xpu_memcpy(stream, out.host, out.device, out_size, true));
        if (by_ptx && m > 16 && n > 1 && with_sums && tidy) assert_true(by_bytes > before);
        for (int64_t r = 0; r < m; r++)
            for (int64_t c = 0; c < n; c++) {
                int64_t sum = 0;
                const int64_t z = by_row ? ((int32_t *)zero.host)[r] : zero_offset;
                for (int64_t j = 0; j < k; j++) {
                    const uint8_t u = a.host[r * pitch + j];
                    sum +=
                        ((of_a == XPU_UINT8 ? u : (int8_t)u) - z) * (int8_t)b.host[j * b_row + c * b_column];
                }
                double v = (double)sum * ((float *)scale.host)[by_row ? r : 0] * ((float *)scale.host)[m + c];
                const double error = (double)k * 2e-6 + 1e-6 * fabs(v);
                v += ((float *)bias.host)[c];
                if (adds) v += byte_or_number(of_other, &other, r * n + c, 0.03125, 3);
                if (i % 2 && v < 0) v = 0;
                if (to == XPU_FLOAT16 && fabs(v) > 65000) continue;
                const double got = byte_or_number(to, &out, r * n + c, 0.25, way.zero);
                double most = error + fabs(v) * (to == XPU_BFLOAT16  ? 0x1p-8
                                                 : to == XPU_FLOAT16 ? 0x1p-10
                                                                     : 0);
                if (xpu_dtype_size(to) == 1) {
                    const double low = ((to == XPU_UINT8 ? 0 : -128) - way.zero) * 0.25;
                    v = fmin(fmax(v, low), low + 255 * 0.25), most += 0.125;
                }
                if (!(fabs(got - v) <= most))
                    fail_msg("layer %d, %s to %s, %d x %d x %d: %g at %d, %d instead of %g", i,
                             xpu_dtype_name(of_a), xpu_dtype_name(to), (int)m, (int)n, (int)k, got, (int)r,
                             (int)c, v);
            }
        drop(&a), drop(&b), drop(&out), drop(&other), drop(&scale), drop(&zero), drop(&sums), drop(&bias);
    }
    print_message("%d products of bytes\n", by_bytes);
    if (has_unit) assert_true(by_bytes > 1);
}

/* All values of all formats, exactly. */
static void every_element(void **unused) {
    for (size_t d = 0; d < (size_t)STORED; d++)
        for (int odd = 0; odd < 2; odd++) {
            const int64_t count = bits_of(stored[d]) == 4 ? 16 : 256;
            memory in = memory_of((size_t)count), out = memory_of((size_t)count * 4);
            for (int64_t i = 0; i < count; i++)
                if (bits_of(stored[d]) == 4)
                    in.host[i / 2] |= (uint8_t)(i << (i % 2 * 4));
                else
                    in.host[i] = (uint8_t)i;
            send(&in, (size_t)count);
            const xpu_quant_params q = {.dtype = stored[d]};
            const xpu_matrix from = {in.device, 0, count, 1}, to = {out.device, 0, count, 1};
            const int64_t columns = count - odd * 3;
            SUCCEEDS(xpu_dequantize(stream, &from, &q, 1, 1, columns, XPU_FLOAT32, &to));
            SUCCEEDS(xpu_memcpy(stream, out.host, out.device, (size_t)columns * 4, true));
            for (int64_t i = 0; i < columns; i++) {
                const bool is_float8 = stored[d] >= XPU_FLOAT8_E4M3FN && stored[d] <= XPU_FLOAT8_E5M2FNUZ;
                const double v =
                    is_float8 ? dtype_widen(stored[d], (uint8_t)i) : element_value(stored[d], (unsigned)i);
                const double got = ((float *)out.host)[i];
                if (!(got == v || (isnan(got) && isnan(v))))
                    fail_msg("%s %d: %g instead of %g", xpu_dtype_name(stored[d]), (int)i, got, v);
            }
            drop(&in), drop(&out);
        }
}

static void what_is_refused(void **unused) {
    xpu_gemm_args args = {.dtype = XPU_FLOAT32, .batch = 1, .m = 1, .n = 1, .k = 8};
    xpu_quant_params q = {.dtype = XPU_FLOAT64};
    assert_int_equal(xpu_gemm_quantized(stream, &args, NULL, &q), XPU_ERROR_NOT_SUPPORTED);
    q = (xpu_quant_params){.dtype = XPU_INT8, .scale = &q, .scale_dtype = XPU_INT8};
    assert_int_equal(xpu_gemm_quantized(stream, &args, NULL, &q), XPU_ERROR_NOT_SUPPORTED);
    q = (xpu_quant_params){.dtype = XPU_INT8, .zero = &q, .zero_dtype = XPU_INT64};
    assert_int_equal(xpu_gemm_quantized(stream, &args, NULL, &q), XPU_ERROR_NOT_SUPPORTED);
    q = (xpu_quant_params){.dtype = XPU_INT8, .group_rows = -1};
    assert_int_equal(xpu_gemm_quantized(stream, &args, NULL, &q), XPU_ERROR_INVALID_ARGUMENT);
    args.dtype = XPU_FLOAT64, q = (xpu_quant_params){.dtype = XPU_INT8};
    assert_int_equal(xpu_gemm_quantized(stream, &args, NULL, &q), XPU_ERROR_NOT_SUPPORTED);
}

int main(int count, char **words) {
    read_words(count, words);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_element),
                                       cmocka_unit_test(products_of_whatever_comes),
                                       cmocka_unit_test(what_units_do_not_read),
                                       cmocka_unit_test(sums_have_the_scales),
                                       cmocka_unit_test(nan_of_float8),
                                       cmocka_unit_test(layers_of_bytes),
                                       cmocka_unit_test(every_zero_point),
                                       cmocka_unit_test(high_tiles),
                                       cmocka_unit_test(one_wave),
                                       cmocka_unit_test(long_groups),
                                       cmocka_unit_test(what_is_refused)};
    return cmocka_run_group_tests(tests, set_up, NULL);
}
