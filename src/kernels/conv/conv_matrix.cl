/* Implicit GEMM: convolution y = x * w and its two gradients as matrix products whose im2col operand is
 * formed on the fly from channels-last tensors. fp16 and bf16 on matrix engines (matrix.h, matrix_xmx.h,
 * matrix_xmx8.h), any dtype by multiply-adds on GPUs (matrix_fma.h).
 *
 * DIRECTION=0   y: rows are pixels of y, k is (tap, c): x at the pixel's taps times w
 * DIRECTION=1   gradient of x: rows are pixels of x, k is (tap, channel of y): y at the pixels whose taps
 *               they are, times w. With strides, only some taps reach a pixel, and all pixels with the same
 *               remainder are reached by the same ones: these form a phase, each of which is a product of its
 *               own
 * DIRECTION=2   gradient of w: rows are channels of y, columns (tap, c), k the pixels of y
 *
 * Kernels:
 *   conv_matrix   a work-group computes one tile; MATRIX_T and the options of matrix.h, with MATRIX_FMA of
 *                 matrix_fma.h, with MATRIX_XMX of matrix_xmx.h (pixels come in blocks of eight of a row, for
 *                 w sixteen, which `extent` counts)
 *   conv_matrix_reduce_slices   split-K: adds up the slices; PARTS work-items for four elements, OUT_QUADS=1:
 *                               these can be stored as one
 *   conv_pack     packs to channels-last; PIXELS_CONTIGUOUS=1: from pixels that are closer in memory than
 *                 channels, by SIDE x SIDE tiles
 * Options: T, COMPLEX_T, FLOAT_T, DOUBLE_T (gemm_tile.h); OPERAND_T=i8, quantized: sums have a scale per
 * channel, a bias and post-ops (COMBINE, EPILOGUE: epilogue_math.h), and are converted as quantize_output.h
 * says. Matrix engines multiply integers and compensate x's zero point in the sums; multiply-adds (SUM_T=f32)
 * subtract it first. A_UNSIGNED, x is uint8, shifted by -128 except on XMX; HAS_PAD_VALUE=1, x's padding
 * isn't zero. PADDED=1, taps may be outside; IS_1X1=1, all of a step of k has one tap; VOLUME=1, three
 * dimensions; PHASES=1, several phases; OUT_PAIRS=1, two contiguous results can be stored as one;
 * OUT_VECTORS=1, a vector can; PIXELS_CONTIGUOUS=1, pixels are contiguous: y or x is stored by vectors of
 * them, and for w y is read so; IS_SPLIT=1, conv_matrix stores partial sums to `partial`. A vector has
 * VECTOR_ELEMENTS channels; all strides that parameters count in vectors are multiples of it:
 * 16 bytes on matrix engines (32 on XMX with 8 lanes), four elements for multiply-adds. */
#include "conv/conv_geometry.h"
#include "gemm/gemm_tile.h"
#include "matrix/tile_copy.h"
#include "matrix/quad.h"
#if defined(A_UNSIGNED) && defined(MATRIX_XMX)
#define MULTIPLY_BYTES(a, b, sum) intel_sub_group_u8_i8_matrix_mad_k32(as_ushort8(a), b, sum)
#elif defined(A_UNSIGNED) && defined(MATRIX_XMX8)
#define MULTIPLY_BYTES(a, b, sum) intel_sub_group_u8_i8_matrix_mad_k32(as_uint8(a), b, sum)
#else
#define MULTIPLY_BYTES intel_sub_group_i8_i8_matrix_mad_k32
#endif
#if defined(A_UNSIGNED) && !defined(MATRIX_XMX) && !defined(MATRIX_XMX8)
#define A_FLIP 0x80808080u
#endif
#if defined(MATRIX_EMULATED) && (defined(MATRIX_XMX) || defined(MATRIX_XMX8))
#include "matrix/xmx_emulation.cl" /* here, because a file is included once */
#endif
#ifdef MATRIX_XMX
#define VECTOR_ELEMENTS (16 / ELEMENT)
#define A_K_MAJOR (DIRECTION != 2)
#define B_K_MAJOR 0        /* w is packed with contiguous columns, also for the forward pass */
#define ALTERNATE_HALVES 0 /* too few registers */
#include "matrix/matrix_xmx.h"
#elif defined(TILE_M)
#define A_K_MAJOR (DIRECTION != 2 || PIXELS_CONTIGUOUS)
#define B_K_MAJOR (DIRECTION == 0)
#ifdef MATRIX_FMA
#include "matrix/matrix_fma.h"
#elif defined(MATRIX_XMX8)
#define VECTOR_ELEMENTS (32 / ELEMENT)
#include "matrix/matrix_xmx8.h"
#else
#include "matrix/matrix.h"
#endif
#endif

/* Loads four adjacent elements in parts that are aligned, or returns zeros if not `on`; `from` must be
 * readable either way. */
static inline void read_quad(__private quad *to, xpu_addr from, bool on) {
    for (int i = 0; i < QUAD_PARTS; i++) {
        const PART part = XPU_CPTR(PART, from)[i];
        to->parts[i] = on ? part : (PART)0;
    }
}

#define post_ops_t value_t
#include "matrix/epilogue_math.h"
#include "matrix/quantize_output.h"
#ifdef TILE_M
#define OUT_SIZE ((int)sizeof(RAW(OUT_T)))
#ifdef MATRIX_FMA
#define RESULT_VECTOR 4 /* elements */
#else
#define RESULT_VECTOR (16 / OUT_SIZE)
#endif
#endif

/* Loads and stores four partial sums. */
static inline run read_sums(__global const acc_t *from) {
    run r;
    for (int i = 0; i < RUN_PARTS; i++) r.parts[i] = ((__global const uint4 *)from)[i];
    return r;
}
static inline void write_sums(__global acc_t *to, __private const run *r) {
    for (int i = 0; i < RUN_PARTS; i++) ((__global uint4 *)to)[i] = r->parts[i];
}

#ifndef VECTOR_SIZE
/* Decodes a position along K (w: along the columns), counted in vectors: the vector of channels and the tap
 * of the phase. */
typedef struct tap {
    uint vec, d, h, w;
} tap;

static inline tap tap_of(const conv_matrix_params *p, const product *z, uint pieces) {
    tap at;
    const uint number = quotient(pieces, p->per_tap), lines = quotient(number, z->w.taps);
    at.vec = pieces - number * p->per_tap.value;
    at.w = number - lines * z->w.taps.value;
#if VOLUME
    at.d = quotient(lines, z->h.taps);
    at.h = lines - at.d * z->h.taps.value;
#else
    at.d = 0;
    at.h = lines;
#endif
    return at;
}

/* The offset of a row or column of the product in the result, in elements; -1 if it is out of range. */
#if DIRECTION == 2
static inline long place_of_row(const conv_matrix_params *p, const product *z, uint row) {
    return row < p->rows ? (z->group * (long)p->result_channels + row) * p->result_stride[0] : -1;
}
static inline long place_of_column(const conv_matrix_params *p, const product *z, uint column) {
    const tap at = tap_of(p, z, column / VECTOR_ELEMENTS);
    const uint c = at.vec * VECTOR_ELEMENTS + column % VECTOR_ELEMENTS;
    if (column >= p->columns || c >= p->channels) return -1;
    return c * p->result_stride[1] + at.d * p->result_stride[2] + at.h * p->result_stride[3] +
           at.w * p->result_stride[4];
}
#else
static inline long place_of_row(const conv_matrix_params *p, const product *z, uint row) {
    const pixel q = pixel_of(p, row);
    const int d = (int)q.d * p->pixel_step[0] + z->d.pixel, h = (int)q.h * p->pixel_step[1] + z->h.pixel;
    const int w = (int)q.w * p->pixel_step[2] + z->w.pixel;
    if (row >= p->rows || d >= p->size[0] || h >= p->size[1] || w >= p->size[2]) return -1;
    return q.n * p->result_stride[0] + d * p->result_stride[2] + h * p->result_stride[3] +
           w * p->result_stride[4];
}
#if OUT_VECTORS
/* The offset of the row's first channel, in vectors. */
static inline int vector_of_row(const conv_matrix_params *p, const product *z, uint row) {
    const pixel q = pixel_of(p, row);
    const int d = (int)q.d * p->pixel_step[0] + z->d.pixel, h = (int)q.h * p->pixel_step[1] + z->h.pixel;
    const int w = (int)q.w * p->pixel_step[2] + z->w.pixel;
    if (row >= p->rows || d >= p->size[0] || h >= p->size[1] || w >= p->size[2]) return -1;
    return (int)q.n * p->result_pitch[0] + d * p->result_pitch[1] + h * p->result_pitch[2] +
           w * p->result_pitch[3] + (int)(z->group * p->result_channels / RESULT_VECTOR);
}
#endif
static inline long place_of_column(const conv_matrix_params *p, const product *z, uint column) {
    return column < p->columns ? (z->group * (long)p->result_channels + column) * p->result_stride[1] : -1;
}
#endif

/* How the sums of a column are processed. */
typedef struct channel {
    value_t bias;
#if REQUANTIZED
    int less;
    float scale;
#endif
} channel;

#if REQUANTIZED
static inline int zero_of(const conv_matrix_params *p) {
    return p->bytes.less + (p->bytes.x_zero ? XPU_CPTR(int, p->bytes.x_zero)[0] : 0);
}
#endif

static inline channel channel_of(const conv_matrix_params *p, const product *z, uint column) {
    channel c;
    const long number = z->group * (long)p->result_channels + min(column, p->columns - 1);
    const bool has_bias = DIRECTION != 2 && p->bias && column < p->columns;
    c.bias = has_bias ? (value_t)LOAD(T, XPU_CPTR(STORED(T), p->bias), number * p->bias_stride) : (value_t)0;
#if REQUANTIZED
    const conv_int8_params *q = &p->bytes;
    c.less = 0;
#ifndef INT8_AS_SUM_T
    if (q->w_sums) c.less = zero_of(p) * XPU_CPTR(int, q->w_sums)[number];
#endif
    c.scale = q->factor;
    if (q->x_scale) c.scale *= XPU_CPTR(float, q->x_scale)[0];
    if (q->w_scale) c.scale *= XPU_CPTR(float, q->w_scale)[number * q->w_scale_stride];
#endif
    return c;
}

/* The value that is stored for a sum; `place` is its offset in the result. */
static inline COMPUTED(OUT_T)
    result_of(const conv_matrix_params *p, __private const channel *c, acc_t sum, long place) {
#if REQUANTIZED
#ifndef INT8_AS_SUM_T
    sum -= c->less;
#endif
    const value_t v = fma((value_t)sum, c->scale, c->bias);
#if COMBINE
    return quantize_output(
        &p->bytes.leave,
        apply_post_ops(&p->bytes.end, v, load_post_op_operand(&p->bytes.leave, p->bytes.end.other, place)));
#else
    return quantize_output(&p->bytes.leave, apply_post_ops(&p->bytes.end, v, (value_t)0));
#endif
#else
    return (COMPUTED(OUT_T))(sum + c->bias);
#endif
}

static inline void put(const conv_matrix_params *p, __private const channel *c, long row, long column,
                       acc_t sum) {
    if (row >= 0 && column >= 0)
        STORE(OUT_T, XPU_PTR(STORED(OUT_T), p->result), row + column, result_of(p, c, sum, row + column));
}

/* Rounds and stores four adjacent sums, of adjacent channels (apart = 1) or of one channel (0). */
#define OUT_PART XPU_CAT(PART_, OUT_T)
typedef union output_quad {
    OUT_PART parts[4 * sizeof(RAW(OUT_T)) / sizeof(OUT_PART)];
    RAW(OUT_T) of[4];
} output_quad;
static inline void write_quad(const conv_matrix_params *p, __private const channel *c, const int apart,
                              long place, __private const run *r) {
    output_quad q;
    for (int i = 0; i < 4; i++) q.of[i] = NARROW(OUT_T, result_of(p, &c[i * apart], r->of[i], place + i));
    const xpu_addr to = p->result + place * (long)sizeof q.of[0];
    for (int i = 0; i < (int)(sizeof q / sizeof(OUT_PART)); i++) XPU_PTR(OUT_PART, to)[i] = q.parts[i];
}
#endif

#ifdef TILE_M
/* The tile at row m and column n of a product. The work-group's number is (slice, phase, group, band of BAND
 * rows of tiles, column, row in the band): work-groups that run at the same time share rows and columns,
 * which are then in the cache. */
typedef struct tile_origin {
    uint m, n, product;
} tile_origin;

static inline tile_origin find_conv_tile(const conv_matrix_params *p) {
    const uint tiles_m = (p->rows + TILE_M - 1) / TILE_M, tiles_n = (p->columns + TILE_N - 1) / TILE_N;
    const uint each = tiles_m * tiles_n, number = (uint)XPU_GROUP(0), t = number % each;
    const uint band = t / (BAND * tiles_n) * BAND, rows = min(tiles_m - band, (uint)BAND);
    return (tile_origin){(band + t % (BAND * tiles_n) % rows) * TILE_M, t % (BAND * tiles_n) / rows * TILE_N,
                         number / each};
}
#endif

#ifdef MATRIX_XMX
#include "conv/conv_xmx.h"
#elif defined(TILE_M)
#include "conv/conv_store.h"
#ifdef MATRIX_XMX8
#include "conv/conv_xmx8.h"
#else
#include "conv/conv_im2col.h"
#endif
#endif

#ifdef FINISH
#define QUADS (256 / PARTS)
static inline void add_run(__private run *sum, run other) {
    for (int i = 0; i < 4; i++) sum->of[i] += other.of[i];
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void
conv_matrix_reduce_slices(const conv_matrix_params p) {
    const uint x = (uint)get_local_id(0) % QUADS, part = (uint)get_local_id(0) / QUADS;
    const uint width = (uint)(p.pitch / 4), each = p.rows * width;
    const uint count = p.groups * p.phases[0] * p.phases[1] * p.phases[2] * each,
               i = (uint)XPU_GROUP(0) * QUADS + x;
    run sum;
    for (int j = 0; j < 4; j++) sum.of[j] = (acc_t)0;
    if (i < count)
        for (uint s = part; s < (uint)p.slices; s += PARTS)
            add_run(&sum, read_sums(XPU_CPTR(acc_t, p.partial) + ((size_t)s * count + i) * 4));
#if PARTS > 1
    __local run sums[PARTS][QUADS];
    sums[part][x] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (part > 0) return;
    for (int other = 1; other < PARTS; other++) add_run(&sum, sums[other][x]);
#endif
    if (i >= count) return;
    const product z = product_of(&p, i / each);
    const uint rest = i % each, row = rest / width, column = rest % width * 4;
    channel c[4];
    for (uint j = 0; j < 4; j++) c[j] = channel_of(&p, &z, column + j);
    const long place = place_of_row(&p, &z, row);
#if OUT_QUADS
    const long first = place_of_column(&p, &z, column);
    if (place >= 0 && first >= 0) write_quad(&p, c, 1, place + first, &sum);
#else
    for (uint j = 0; j < 4; j++) put(&p, &c[j], place, place_of_column(&p, &z, column + j), sum.of[j]);
#endif
}
#endif

#ifdef VECTOR_SIZE
#include "conv/conv_pack.h"
#endif
