/* Convolution y = x * w and its two gradients as products whose operands are gathered on the way from tensors with
 * channels innermost: in fp16 and bf16 by matrix units, NVIDIA's (matrix.h) or Intel's (matrix_xmx.h); in any dtype by
 * GPUs' multiply-adds (matrix_fma.h).
 *
 * -DT=<dtype> -DCOMPLEX_T -DFLOAT_T -DDOUBLE_T: the dtype and its class (gemm_tile.h)
 * -DOPERAND_T=i8: y of bytes; sums have a scale a channel, a bias, what is combined with them and an epilogue
 *             (-DEPILOGUE -DCOMBINE: epilogue_math.h), and leave as leaving.h says. Units multiply integers, from whose
 *             sums x's zero point is taken, multiply-adds (-DSUM_T=f32) numbers that it was taken from.
 *             -DA_UNSIGNED where x is uint8, which is taken less 128, but by Intel's units; -DBLANK=1 where its
 *             padding isn't zeros
 * -DSOUGHT=0  y: rows are pixels of y, k is (tap, c): x at the pixel's taps times w along k
 *         =1  x: rows are pixels of x, k is (tap, channel of y): y at the pixels whose taps they are times w.
 *             With a stride a pixel is reached by some of the taps only, all pixels at one distance from its
 *             multiples by the same ones: these are a phase, each a product of its own.
 *         =2  w: rows are channels of y, columns (tap, c), k the pixels of y
 * conv_matrix: tiles, one a work-group; -DMATRIX_T and what matrix.h wants, or, with -DMATRIX_FMA, what matrix_fma.h
 *              wants, or, with -DMATRIX_XMX, matrix_xmx.h: pixels come in blocks of eight of a line then (w: of
 *              sixteen), `extent` counts these;
 *              -DPADDED 1 where taps may lie outside, -DONE_TAP 1 where all of a step of k is of one tap,
 *              -DVOLUME 1 where there are three dimensions, -DPHASES 1 where there are several,
 *              -DOUT_PAIRS 1 where two numbers beside each other can be written as one, -DOUT_PIECES 1 where
 *              a piece can
 * conv_matrix_finish: sums the slices; -DPARTS work-items for four numbers, -DOUT_QUADS 1 where these can be written
 *              as one
 * conv_pack:   puts channels innermost; -DPIXELS_FAST 1: from where pixels lie closer, by tiles of SIDE x SIDE
 * A piece has PIECE channels, and all distances that the parameters count in pieces are its multiples: 16 bytes for
 * units, a quad for multiply-adds. With -DSLICED=1 conv_matrix writes its bare sums to `partial`. */
#include "conv_geometry.h"
#include "gemm_tile.h"
#include "pieces.h"
#include "quad.h"
#if defined(A_UNSIGNED) && defined(MATRIX_XMX)
#define MULTIPLY_BYTES(a, b, sum) intel_sub_group_u8_i8_matrix_mad_k32(as_ushort8(a), b, sum)
#else
#define MULTIPLY_BYTES intel_sub_group_i8_i8_matrix_mad_k32
#endif
#if defined(A_UNSIGNED) && !defined(MATRIX_XMX)
#define A_FLIP 0x80808080u
#endif
#ifdef MATRIX_XMX
#define PIECE (16 / ELEMENT)
#define A_K_FAST (SOUGHT != 2)
#define B_K_FAST 0 /* w comes with its columns innermost, for y too: packed */
#define BY_TURNS 0 /* for which there are no registers */
#include "matrix_xmx.h"
#elif defined(TILE_M)
#define A_K_FAST (SOUGHT != 2)
#define B_K_FAST (SOUGHT == 0)
#ifdef MATRIX_FMA
#include "matrix_fma.h"
#else
#include "matrix.h"
#endif
#endif

/* A quad that is aligned by its parts, or, where not `on`, zeros; from an address that can be read either way. */
static inline void read_quad(__private quad *to, xpu_addr from, bool on) {
    for (int i = 0; i < QUAD_PARTS; i++) {
        const PART part = XPU_CPTR(PART, from)[i];
        to->parts[i] = on ? part : (PART)0;
    }
}

#define ending_t value_t
#include "epilogue_math.h"
#include "leaving.h"
#ifdef TILE_M
#define OUT_SIZE ((int)sizeof(RAW(OUT_T)))
#ifdef MATRIX_FMA
#define RESULT_PIECE 4 /* elements */
#else
#define RESULT_PIECE (16 / OUT_SIZE)
#endif
#endif

/* Four sums in memory. */
static inline run read_sums(__global const acc_t *from) {
    run r;
    for (int i = 0; i < RUN_PARTS; i++) r.parts[i] = ((__global const uint4 *)from)[i];
    return r;
}
static inline void write_sums(__global acc_t *to, __private const run *r) {
    for (int i = 0; i < RUN_PARTS; i++)((__global uint4 *)to)[i] = r->parts[i];
}

#ifndef PACK
/* A tap of a phase, counted in pieces of k (w: of columns): the channels' piece and the tap. */
typedef struct tap {
    uint piece, d, h, w;
} tap;

static inline tap tap_of(const conv_matrix_params *p, const product *z, uint pieces) {
    tap at;
    const uint number = quotient(pieces, p->per_tap), lines = quotient(number, z->w.taps);
    at.piece = pieces - number * p->per_tap.value;
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

/* Where a row or a column of the product lies in the result, in elements; -1 where it doesn't. */
#if SOUGHT == 2
static inline long place_of_row(const conv_matrix_params *p, const product *z, uint row) {
    return row < p->rows ? (z->group * (long)p->result_channels + row) * p->result_stride[0] : -1;
}
static inline long place_of_column(const conv_matrix_params *p, const product *z, uint column) {
    const tap at = tap_of(p, z, column / PIECE);
    const uint c = at.piece * PIECE + column % PIECE;
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
    return q.n * p->result_stride[0] + d * p->result_stride[2] + h * p->result_stride[3] + w * p->result_stride[4];
}
#if OUT_PIECES
/* Where its channels begin, in pieces. */
static inline int piece_of_row(const conv_matrix_params *p, const product *z, uint row) {
    const pixel q = pixel_of(p, row);
    const int d = (int)q.d * p->pixel_step[0] + z->d.pixel, h = (int)q.h * p->pixel_step[1] + z->h.pixel;
    const int w = (int)q.w * p->pixel_step[2] + z->w.pixel;
    if (row >= p->rows || d >= p->size[0] || h >= p->size[1] || w >= p->size[2]) return -1;
    return (int)q.n * p->result_pitch[0] + d * p->result_pitch[1] + h * p->result_pitch[2] + w * p->result_pitch[3] +
           (int)(z->group * p->result_channels / RESULT_PIECE);
}
#endif
static inline long place_of_column(const conv_matrix_params *p, const product *z, uint column) {
    return column < p->columns ? (z->group * (long)p->result_channels + column) * p->result_stride[1] : -1;
}
#endif

/* What becomes of a column's sums. */
typedef struct channel {
    value_t bias;
#if REQUANTISED
    int less;
    float scale;
#endif
} channel;

#if REQUANTISED
static inline int zero_of(const conv_matrix_params *p) {
    return p->bytes.less + (p->bytes.x_zero ? XPU_CPTR(int, p->bytes.x_zero)[0] : 0);
}
#endif

static inline channel channel_of(const conv_matrix_params *p, const product *z, uint column) {
    channel c;
    const long number = z->group * (long)p->result_channels + min(column, p->columns - 1);
    const bool has_bias = SOUGHT != 2 && p->bias && column < p->columns;
    c.bias = has_bias ? (value_t)LOAD(T, XPU_CPTR(STORED(T), p->bias), number * p->bias_stride) : (value_t)0;
#if REQUANTISED
    const conv_bytes_params *q = &p->bytes;
    c.less = 0;
#ifndef BYTES_AS_NUMBERS
    if (q->w_sums) c.less = zero_of(p) * XPU_CPTR(int, q->w_sums)[number];
#endif
    c.scale = q->factor;
    if (q->x_scale) c.scale *= XPU_CPTR(float, q->x_scale)[0];
    if (q->w_scale) c.scale *= XPU_CPTR(float, q->w_scale)[number * q->w_scale_stride];
#endif
    return c;
}

/* A sum as it is written at a place of the result. */
static inline COMPUTED(OUT_T) result_of(const conv_matrix_params *p, __private const channel *c, acc_t sum, long place) {
#if REQUANTISED
#ifndef BYTES_AS_NUMBERS
    sum -= c->less;
#endif
    const value_t v = fma((value_t)sum, c->scale, c->bias);
#if COMBINE
    return leaving(&p->bytes.leave, ended(&p->bytes.end, v, coming(&p->bytes.leave, p->bytes.end.other, place)));
#else
    return leaving(&p->bytes.leave, ended(&p->bytes.end, v, (value_t)0));
#endif
#else
    return (COMPUTED(OUT_T))(sum + c->bias);
#endif
}

static inline void put(const conv_matrix_params *p, __private const channel *c, long row, long column, acc_t sum) {
    if (row >= 0 && column >= 0)
        STORE(OUT_T, XPU_PTR(STORED(OUT_T), p->result), row + column, result_of(p, c, sum, row + column));
}

/* Four sums beside each other, rounded and written. */
#define OUT_PART XPU_CAT(PART_, OUT_T)
typedef union leaving_quad {
    OUT_PART parts[4 * sizeof(RAW(OUT_T)) / sizeof(OUT_PART)];
    RAW(OUT_T) of[4];
} leaving_quad;
static inline void write_quad(const conv_matrix_params *p, __private const channel *c, long place, __private const run *r) {
    leaving_quad q;
    for (int i = 0; i < 4; i++) q.of[i] = NARROW(OUT_T, result_of(p, &c[i], r->of[i], place + i));
    const xpu_addr to = p->result + place * (long)sizeof q.of[0];
    for (int i = 0; i < (int)(sizeof q / sizeof(OUT_PART)); i++) XPU_PTR(OUT_PART, to)[i] = q.parts[i];
}
#endif

#ifdef TILE_M
/* What a work-group computes: the tile that begins at row m and column n of a product. Its number is (slice, phase,
 * group, band of BAND rows of tiles, column, row in the band): groups that run at a time share rows and columns, which
 * lie in the cache then. */
typedef struct tile_place {
    uint m, n, product;
} tile_place;

static inline tile_place find_tile(const conv_matrix_params *p) {
    const uint tiles_m = (p->rows + TILE_M - 1) / TILE_M, tiles_n = (p->columns + TILE_N - 1) / TILE_N;
    const uint each = tiles_m * tiles_n, number = (uint)XPU_GROUP(0), t = number % each;
    const uint band = t / (BAND * tiles_n) * BAND, rows = min(tiles_m - band, (uint)BAND);
    return (tile_place){(band + t % (BAND * tiles_n) % rows) * TILE_M, t % (BAND * tiles_n) / rows * TILE_N,
                        number / each};
}
#endif

#ifdef MATRIX_XMX
#define NOT_WRITTEN_OUT __attribute__((opencl_unroll_hint(1)))

/* How the pixels of a line of the source lie that a tap meets along the width. With a step, pixels a step apart are a
 * surface, which begins `shift` pixels from the line's first. */
typedef struct tap_line {
    int shift, ahead; /* of the surface's rows: that of a pixel is so far ahead of it */
    int height, pitch;
} tap_line;
static inline tap_line tap_line_of(const conv_matrix_params *p, const product *z, int w) {
    const int at = z->w.first + w * p->tap_step[2], step = p->step[2], over = at % step;
    const int shift = over < 0 ? over + step : over;
    return (tap_line){shift, (at - shift) / step, (p->source[2] - shift + step - 1) / step,
                      max(p->gathered_pitch[3] * step * 16, (int)p->per_tap.value * 16)};
}

#if SOUGHT != 2
/* A block of eight rows: pixels beside each other along the width. */
typedef struct block {
    uint n;
    int d, h, w; /* of the product's pixels */
} block;

/* Where the line of the source's pixels begins that a block meets at a tap, and the first of these of the block's; where
 * it is outside, one so far before the line that zeros are read. */
static inline __global void *line_of(const conv_matrix_params *p, const product *z, xpu_addr base, const block *b,
                                     int d_tap, int h_tap, int ahead, __private int *first) {
    const int d = b->d * p->step[0] + z->d.first + d_tap * p->tap_step[0];
    const int h = b->h * p->step[1] + z->h.first + h_tap * p->tap_step[1];
    const bool inside = (uint)d < (uint)p->source[0] && (uint)h < (uint)p->source[1];
    const long pieces = (long)b->n * p->gathered_pitch[0] + (long)d * p->gathered_pitch[1] +
                        (long)h * p->gathered_pitch[2];
    *first = inside ? b->w + ahead : -8;
    return XPU_PTR(void, base + (inside ? pieces : 0) * 16);
}

__attribute__((intel_reqd_sub_group_size(MATRIX_TEAM))) __attribute__((reqd_work_group_size(THREADS, 1, 1)))
__kernel void conv_matrix(const conv_matrix_params p) {
    const tile_place t = find_tile(&p);
    const product z = product_of(&p, t.product);
    const uint team = (uint)get_local_id(0) / MATRIX_TEAM, lane = (uint)get_local_id(0) % MATRIX_TEAM;
    const uint m0 = t.m + team % TEAMS_M * (SUMS_M * 8), n0 = t.n + team / TEAMS_M * (SUMS_N * 16);
    const xpu_addr gathered = p.gathered + (long)z.group * p.gathered_group * 16;
    const xpu_addr other = p.other + ((long)z.group * p.other_group + z.d.tap * p.other_tap_first[0] +
                                      z.h.tap * p.other_tap_first[1] + z.w.tap * p.other_tap_first[2]) * 16;
    block blocks[SUMS_M];
    sum_block sum[SUMS_M][SUMS_N];
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) {
        const pixel q = pixel_of(&p, min(m0 / 8 + i, p.rows / 8 - 1));
        blocks[i] = (block){q.n, (int)q.d, (int)q.h, (int)q.w * 8};
        WRITTEN_OUT for (int j = 0; j < SUMS_N; j++) sum[i][j] = 0;
    }

    const int depth = (int)p.per_tap.value * 8; /* words */
    NOT_WRITTEN_OUT for (int d = 0; d < (int)z.d.taps.value; d++)
        NOT_WRITTEN_OUT for (int h = 0; h < (int)z.h.taps.value; h++)
            NOT_WRITTEN_OUT for (int w = 0; w < (int)z.w.taps.value; w++) {
                const tap_line line = tap_line_of(&p, &z, w);
                if (line.height <= 0) continue;
                __global void *lines[SUMS_M];
                int first[SUMS_M];
                WRITTEN_OUT for (int i = 0; i < SUMS_M; i++)
                    lines[i] = line_of(&p, &z, gathered + (long)line.shift * p.gathered_pitch[3] * 16, &blocks[i], d, h,
                                       line.ahead, &first[i]);
                const long tap = (long)d * p.other_tap[0] + (long)h * p.other_tap[1] + (long)w * p.other_tap[2];
                const surface b = {XPU_PTR(void, other + tap * 16), p.other_width, (int)p.depth,
                                   max(p.other_pitch * 16, p.other_width)};
                NOT_WRITTEN_OUT for (int k = 0; k < depth; k += 32) {
                    short8 left[2][SUMS_M];
                    int8 right[SUMS_N][2];
                    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) {
                        union {
                            ushort numbers[16];
                            short8 halves[2];
                        } rows;
                        intel_sub_group_2d_block_read_16b_8r16x2c(lines[i], depth * 2, line.height, line.pitch,
                                                                  (int2)(k, first[i]), rows.numbers);
                        left[0][i] = rows.halves[0], left[1][i] = rows.halves[1];
                    }
                    WRITTEN_OUT for (int j = 0; j < SUMS_N; j += 2) read_b_twice(&right[j], &b, (int)n0 + j * 16,
                                                                                   k * 2 / ELEMENT);
                    multiply_blocks(sum, left, right);
                }
            }

    WRITTEN_OUT for (int j = 0; j < SUMS_N; j++) {
        const uint n = n0 + j * 16 + lane;
        const long column = place_of_column(&p, &z, n);
        const channel c = channel_of(&p, &z, n);
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) {
            const int d = blocks[i].d * p.pixel_step[0] + z.d.pixel, h = blocks[i].h * p.pixel_step[1] + z.h.pixel;
            if (m0 / 8 + i >= p.rows / 8 || d >= p.size[0] || h >= p.size[1]) continue;
            const long line = blocks[i].n * p.result_stride[0] + d * p.result_stride[2] + h * p.result_stride[3];
            const acc_t rows[8] = {sum[i][j].s0, sum[i][j].s1, sum[i][j].s2, sum[i][j].s3,
                                   sum[i][j].s4, sum[i][j].s5, sum[i][j].s6, sum[i][j].s7};
            WRITTEN_OUT for (int r = 0; r < 8; r++) {
                const int w = (blocks[i].w + r) * p.pixel_step[2] + z.w.pixel;
                if (w < p.size[2]) put(&p, &c, line + w * p.result_stride[4], column, rows[r]);
            }
        }
    }
}
#else
/* 32 columns, channels of x at one tap. */
typedef struct columns {
    int d, h, channel; /* where the source of pixel 0 lies */
    tap_line line;
} columns;
static inline columns columns_of(const conv_matrix_params *p, const product *z, uint n) {
    const tap at = tap_of(p, z, min(n, p->columns - 1) / PIECE);
    columns c = {(int)at.d * p->tap_step[0] + z->d.first, (int)at.h * p->tap_step[1] + z->h.first,
                 (int)at.piece * PIECE, tap_line_of(p, z, (int)at.w)};
    /* What y hasn't got is no row here either: a zero times infinity is none. */
    c.line.height = min(c.line.height, p->size[2] + c.line.ahead);
    if (c.line.height <= 0) c.line = (tap_line){0, -(1 << 25), 1, c.line.pitch};
    return c;
}

#define PIXELS 16 /* that a multiplication takes */
#define PAIRS (SUMS_N / 2)
__attribute__((intel_reqd_sub_group_size(MATRIX_TEAM))) __attribute__((reqd_work_group_size(THREADS, 1, 1)))
__kernel void conv_matrix(const conv_matrix_params p) {
    const tile_place t = find_tile(&p);
    const product z = product_of(&p, t.product);
    const uint team = (uint)get_local_id(0) / MATRIX_TEAM, lane = (uint)get_local_id(0) % MATRIX_TEAM;
    const uint m0 = t.m + team % TEAMS_M * (SUMS_M * 8), n0 = t.n + team / TEAMS_M * (SUMS_N * 16);
    const xpu_addr gathered = p.gathered + (long)z.group * p.gathered_group * 16;
    const xpu_addr other = p.other + (long)z.group * p.other_group * 16;
    const int width = (int)p.per_tap.value * 16, pitch = max(p.other_pitch * 16, p.other_width);
    columns c[PAIRS];
    WRITTEN_OUT for (int j = 0; j < PAIRS; j++) c[j] = columns_of(&p, &z, n0 + j * 32);
    float8 sum[SUMS_M][SUMS_N];
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) WRITTEN_OUT for (int j = 0; j < SUMS_N; j++) sum[i][j] = 0;

    /* A slice is counted in steps, the two blocks of pixels that others multiply at a time. */
    const uint all = p.depth / PIXELS, begin = z.slice * p.slice * 2, end = min(all, begin + p.slice * 2);
    NOT_WRITTEN_OUT for (uint block = begin; block < end;) {
        const pixel q = pixel_of(&p, block);
        const long line = ((long)(q.n * p.extent[0].value + q.d) * p.extent[1].value + q.h) * p.size[2];
        const surface y = {XPU_PTR(void, other + line * p.other_pitch * 16), p.other_width, p.size[2], pitch};
        surface x[PAIRS];
        int first[PAIRS];
        WRITTEN_OUT for (int j = 0; j < PAIRS; j++) {
            const int d = (int)q.d * p.step[0] + c[j].d, h = (int)q.h * p.step[1] + c[j].h;
            const bool inside = (uint)d < (uint)p.source[0] && (uint)h < (uint)p.source[1];
            const long pieces = (long)q.n * p.gathered_pitch[0] + (long)d * p.gathered_pitch[1] +
                                (long)h * p.gathered_pitch[2] + (long)c[j].line.shift * p.gathered_pitch[3];
            x[j] = (surface){XPU_PTR(void, gathered + (inside ? pieces : 0) * 16), width, c[j].line.height,
                             c[j].line.pitch};
            first[j] = inside ? c[j].line.ahead : -(1 << 25);
        }
        const uint last = min(end, block + p.extent[2].value - q.w); /* of the line */
        NOT_WRITTEN_OUT for (int w = (int)q.w * PIXELS; block < last; block++, w += PIXELS) {
            short8 left[SUMS_M];
            int8 right[SUMS_N];
            read_a_across(left, &y, (int)m0, w);
            WRITTEN_OUT for (int j = 0; j < PAIRS; j++)
                read_b_half(&right[2 * j], &x[j], c[j].channel, w + first[j]);
            WRITTEN_OUT for (int j = 0; j < SUMS_N; j++) WRITTEN_OUT for (int i = 0; i < SUMS_M; i++)
                sum[i][j] = MULTIPLY(left[i], right[j], sum[i][j]);
        }
    }

    WRITTEN_OUT for (int j = 0; j < SUMS_N; j++) {
        const uint n = n0 + j * 16 + lane;
#if !SLICED
        const long column = place_of_column(&p, &z, n);
        const channel none = channel_of(&p, &z, n);
#endif
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) {
            const float rows[8] = {sum[i][j].s0, sum[i][j].s1, sum[i][j].s2, sum[i][j].s3,
                                   sum[i][j].s4, sum[i][j].s5, sum[i][j].s6, sum[i][j].s7};
            WRITTEN_OUT for (int r = 0; r < 8; r++) {
                const uint m = m0 + i * 8 + r;
#if SLICED
                if (m < p.rows && n < p.columns)
                    XPU_PTR(float, p.partial)[((long)t.product * p.rows + m) * p.pitch + n] = rows[r];
#else
                put(&p, &none, place_of_row(&p, &z, m), column, rows[r]);
#endif
            }
        }
    }
}
#endif
#elif defined(TILE_M)
#define PIECES_K (TILE_K / PIECE)
#define A_PIECES (A_K_FAST ? PIECES_K : TILE_M / PIECE) /* of a row of the slab */
#define B_PIECES (B_K_FAST ? PIECES_K : TILE_N / PIECE)
#define PLACE_IN(base, pieces) ((base) + (long)(pieces) * (PIECE * ELEMENT))

/* Brings in piece number i of a work-item, which lies `from` pieces beyond `base`; zeros where it isn't `on`, without
 * a branch. Units' slabs are copied to while others are multiplied, multiply-adds' pass through registers. */
#ifdef MATRIX_FMA
typedef __private quad *slab;
static inline void bring(slab to, uint i, const uint pieces, xpu_addr base, int from, bool on) {
    read_quad(&to[i], PLACE_IN(base, on ? from : 0), on);
}
static inline void bring_address(slab to, uint i, const uint pieces, xpu_addr from) { read_quad(&to[i], from, true); }
#else
static inline void bring(slab to, uint i, const uint pieces, xpu_addr base, int from, bool on) {
    copy_part_ahead(to + slab_place(COPY_ROW(i, pieces), COPY_PIECE(i, pieces), pieces),
                    PLACE_IN(base, on ? from : 0), 16, on ? 16 : 0);
}
static inline void bring_address(slab to, uint i, const uint pieces, xpu_addr from) {
    copy_ahead(to + slab_place(COPY_ROW(i, pieces), COPY_PIECE(i, pieces), pieces), from);
}
#endif

/* The rows of the gathered operand that a work-item brings in: where their tap 0 lies, in pieces, and where in
 * the image. */
#if SOUGHT != 2
typedef struct gather {
    int from[COPIES(TILE_M)];
#if PADDED
    int h[COPIES(TILE_M)], w[COPIES(TILE_M)];
#if VOLUME
    int d[COPIES(TILE_M)];
#endif
#endif
} gather;

static inline void open_gather(const conv_matrix_params *p, const product *z, __private gather *g, uint m0) {
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_M); i++) {
        const pixel q = pixel_of(p, min(m0 + (uint)COPY_ROW(i, A_PIECES), p->rows - 1));
        const int d = (int)q.d * p->step[0] + z->d.first, h = (int)q.h * p->step[1] + z->h.first;
        const int w = (int)q.w * p->step[2] + z->w.first;
        g->from[i] = (int)q.n * p->gathered_pitch[0] + d * p->gathered_pitch[1] + h * p->gathered_pitch[2] +
                     w * p->gathered_pitch[3] + (ONE_TAP ? (int)COPY_PIECE(i, A_PIECES) : 0);
#if PADDED
        g->h[i] = h, g->w[i] = w;
#if VOLUME
        g->d[i] = d;
#endif
#endif
    }
}

/* Brings in the rows' pieces from the tap's source; zeros, or what stands for them, where that is outside, and beyond
 * the last tap. */
static inline void load_gather(const conv_matrix_params *p, const product *z, slab to, xpu_addr base,
                               __private const gather *g, tap at, bool on) {
    const int d = (int)at.d * p->tap_step[0], h = (int)at.h * p->tap_step[1], w = (int)at.w * p->tap_step[2];
    const int ahead = d * p->gathered_pitch[1] + h * p->gathered_pitch[2] + w * p->gathered_pitch[3] + (int)at.piece;
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_M); i++) {
        bool inside = on;
#if PADDED
        inside = inside & ((uint)(g->h[i] + h) < (uint)p->source[1]) & ((uint)(g->w[i] + w) < (uint)p->source[2]);
#if VOLUME
        inside = inside & ((uint)(g->d[i] + d) < (uint)p->source[0]);
#endif
#endif
#if BLANK
        bring_address(to, i, A_PIECES, inside ? PLACE_IN(base, g->from[i] + ahead) : p->bytes.blank);
#else
        bring(to, i, A_PIECES, base, g->from[i] + ahead, inside);
#endif
    }
}
#endif

#if SOUGHT == 0
/* w, whose rows are channels of y and hold all of k. */
static inline void load_weights(const conv_matrix_params *p, slab to, xpu_addr base, uint n0, uint pieces, bool on) {
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_N); i++) {
        const uint row = (uint)COPY_ROW(i, B_PIECES);
        bring(to, i, B_PIECES, base, (int)min(n0 + row, p->columns - 1) * p->other_pitch + (int)pieces, on);
    }
}
#elif SOUGHT == 1
/* w, whose rows are channels of y at one tap and hold the channels of x. `first` is k at the slab's row 0. */
static inline void load_weights(const conv_matrix_params *p, const product *z, slab to, xpu_addr base, uint n0,
                                uint first, uint end) {
#if ONE_TAP
    const tap all = tap_of(p, z, first / PIECE);
#endif
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_N); i++) {
        const uint row = COPY_ROW(i, B_PIECES), piece = COPY_PIECE(i, B_PIECES);
#if ONE_TAP
        const tap at = all;
        const uint beyond = row; /* the tap's element that its piece begins with */
#else
        const tap at = tap_of(p, z, (first + row) / PIECE);
        const uint beyond = (first + row) % PIECE;
#endif
        const bool on = at.piece * PIECE + beyond < p->depth && (ONE_TAP ? first : first + row) < end;
        const int column = (int)min(n0 / PIECE + piece, (p->columns - 1) / PIECE);
        const int from = (int)(at.piece * PIECE) * p->other_pitch + (int)beyond * p->other_pitch + column +
                         (int)at.d * p->other_tap[0] + (int)at.h * p->other_tap[1] + (int)at.w * p->other_tap[2];
        bring(to, i, B_PIECES, base, from, on);
    }
}
#else
/* y, whose rows are pixels and hold its channels. */
static inline void load_given(const conv_matrix_params *p, slab to, xpu_addr base, uint m0, uint first) {
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_M); i++) {
        const uint row = COPY_ROW(i, A_PIECES), piece = COPY_PIECE(i, A_PIECES), number = first + row;
        const bool on = number < p->depth;
        const int from = (int)number * p->other_pitch + (int)min(m0 / PIECE + piece, (p->rows - 1) / PIECE);
        bring(to, i, A_PIECES, base, from, on);
    }
}
/* x under those pixels, at the tap and channels of each column. */
typedef struct column {
    int from, d, h, w;
} column;
static inline void load_unfolded(const conv_matrix_params *p, slab to, xpu_addr base, column c, uint first) {
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_N); i++) {
        const uint number = first + (uint)COPY_ROW(i, B_PIECES);
        const pixel q = pixel_of(p, number);
        bool inside = number < p->depth;
        const int h = (int)q.h * p->step[1], w = (int)q.w * p->step[2];
        int from = c.from + (int)q.n * p->gathered_pitch[0] + h * p->gathered_pitch[2] + w * p->gathered_pitch[3];
#if VOLUME
        const int d = (int)q.d * p->step[0];
        from += d * p->gathered_pitch[1];
#endif
#if PADDED
        inside = inside & ((uint)(c.h + h) < (uint)p->source[1]) & ((uint)(c.w + w) < (uint)p->source[2]);
#if VOLUME
        inside = inside & ((uint)(c.d + d) < (uint)p->source[0]);
#endif
#endif
        bring(to, i, B_PIECES, base, from, inside);
    }
}
#endif

#ifdef MATRIX_FMA
/* A work-item's sums, by runs of four. */
static inline void put_sums(const conv_matrix_params *p, const product *z, uint number,
                            __private acc_t (*sum)[SUMS_N], uint m0, uint n0) {
    const uint row = m0 + (uint)first_row(), column = n0 + (uint)first_column();
#if !SLICED && OUT_PIECES
    int places[SUMS_M];
    WRITTEN_OUT for (uint i = 0; i < SUMS_M; i++) places[i] = piece_of_row(p, z, row + i / 4 * 16 + i % 4);
#elif !SLICED
    long places[SUMS_M];
    WRITTEN_OUT for (uint i = 0; i < SUMS_M; i++) places[i] = place_of_row(p, z, row + i / 4 * 16 + i % 4);
#endif
    WRITTEN_OUT for (uint j = 0; j < SUMS_N; j += 4) {
        const uint n = column + j / 4 * 32;
        if (n >= p->columns) continue;
#if !SLICED
        channel c[4];
        WRITTEN_OUT for (uint k = 0; k < 4; k++) c[k] = channel_of(p, z, n + k);
#endif
#if !SLICED && !OUT_PIECES
        long columns[4];
        WRITTEN_OUT for (uint k = 0; k < 4; k++) columns[k] = place_of_column(p, z, n + k);
#endif
        WRITTEN_OUT for (uint i = 0; i < SUMS_M; i++) {
            run r;
            WRITTEN_OUT for (uint k = 0; k < 4; k++) r.of[k] = sum[i][j + k];
#if SLICED
            const uint m = row + i / 4 * 16 + i % 4;
            if (m < p->rows)
                write_sums(XPU_PTR(acc_t, p->partial) + ((long)number * p->rows + m) * p->pitch + n, &r);
#else
#if OUT_PIECES
            if (places[i] >= 0) write_quad(p, c, (long)places[i] * RESULT_PIECE + n, &r);
#else
            WRITTEN_OUT for (uint k = 0; k < 4; k++) put(p, &c[k], places[i], columns[k], r.of[k]);
#endif
#endif
        }
    }
}
#else
/* Two sums beside each other. */
static inline void put_pair(const conv_matrix_params *p, __private const channel *c, long row, const long column[2],
                            sum_pair sum) {
#if OUT_PAIRS
    if (row >= 0 && column[1] >= 0) {
        const xpu_addr to = p->result + (row + column[0]) * ELEMENT;
        *XPU_PTR(PAIR, to) = (PAIR)(NARROW(T, sum.x + c[0].bias), NARROW(T, sum.y + c[1].bias));
        return;
    }
#endif
    put(p, &c[0], row, column[0], sum.x);
    put(p, &c[1], row, column[1], sum.y);
}

#if OUT_PIECES
/* Two sums beside each other, rounded, and at which place of the result. */
#if REQUANTISED
#define LINE_PAIR_1 ushort
#define LINE_PAIR_2 uint
#define LINE_PAIR_4 uint2
#define LINE_PAIR XPU_CAT(LINE_PAIR_, XPU_CAT(BYTES_OF_, OUT_T))
#define BYTES_OF_i8 1
#define BYTES_OF_u8 1
#define BYTES_OF_f16 2
#define BYTES_OF_bf16 2
#define BYTES_OF_f32 4
static inline LINE_PAIR line_pair(const conv_matrix_params *p, __private const channel *c, sum_pair sum, long place) {
    union {
        RAW(OUT_T) of[2];
        LINE_PAIR both;
    } two;
    two.of[0] = NARROW(OUT_T, result_of(p, &c[0], sum.x, place));
    two.of[1] = NARROW(OUT_T, result_of(p, &c[1], sum.y, place + 1));
    return two.both;
}
#else
#define LINE_PAIR uint
#define line_pair(p, c, sum, place) round_pair((sum).x + (c)[0].bias, (sum).y + (c)[1].bias)
#endif

/* The tile by way of local memory, so that whole lines of channels are written: a bit of padding behind each line of
 * the tile spreads a block's rows over the banks. In rounds where it is too large for that. */
#define LINE_BYTES (TILE_N * OUT_SIZE + 16)
#define IN_ROUNDS(n) (TILE_M / (n) * (LINE_BYTES + 4) <= STAGES * STAGE_BYTES)
#define ROUNDS (IN_ROUNDS(1) ? 1 : IN_ROUNDS(2) ? 2 : 4)
#define ROUND_ROWS (TILE_M / ROUNDS)
#define TEAM_ROWS (ROUND_ROWS / TEAMS_M) /* of a team in a round */
static inline void put_tile(const conv_matrix_params *p, const product *z, __local uchar *lines,
                            __private fragment_sum (*sum)[FRAGMENTS_N], uint m0, uint n0) {
    __local int *places = (__local int *)(lines + ROUND_ROWS * LINE_BYTES); /* of the rows, in pieces */
    const uint id = (uint)get_local_id(0), lane = id % MATRIX_TEAM, team = id / MATRIX_TEAM;
    const uint column = team / TEAMS_M * (FRAGMENTS_N * 8) + lane % 4 * 2;
    const uint own_row = team % TEAMS_M * TEAM_ROWS + lane / 4;
    __local uchar *own = lines + own_row * LINE_BYTES + column * OUT_SIZE;
    WRITTEN_OUT for (uint r = 0; r < ROUNDS; r++) {
        for (uint row = id; row < ROUND_ROWS; row += THREADS)
            places[row] = piece_of_row(
                p, z, m0 + row / TEAM_ROWS * (TILE_M / TEAMS_M) + r * TEAM_ROWS + row % TEAM_ROWS);
#if COMBINE
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        WRITTEN_OUT for (uint j = 0; j < FRAGMENTS_N; j++) {
            const uint n = n0 + column + j * 8;
            const channel c[2] = {channel_of(p, z, n), channel_of(p, z, n + 1)};
            WRITTEN_OUT for (uint i = 0; i < TEAM_ROWS / 16; i++) {
                const fragment_sum v = sum[r * (TEAM_ROWS / 16) + i][j];
                __local uchar *to = own + i * 16 * LINE_BYTES + j * 8 * OUT_SIZE;
                long upper = 0, lower = 0;
#if COMBINE /* of what isn't written the first is read */
                const bool on = n < p->columns;
                upper = max(places[own_row + i * 16], 0) * (long)RESULT_PIECE + (on ? n : 0);
                lower = max(places[own_row + i * 16 + 8], 0) * (long)RESULT_PIECE + (on ? n : 0);
#endif
                *(__local LINE_PAIR *)to = line_pair(p, c, v.xy, upper);
                *(__local LINE_PAIR *)(to + 8 * LINE_BYTES) = line_pair(p, c, v.zw, lower);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        WRITTEN_OUT for (uint i = 0; i < ROUND_ROWS * TILE_N / RESULT_PIECE / THREADS; i++) {
            const uint row = (id + i * THREADS) / (TILE_N / RESULT_PIECE),
                       piece = (id + i * THREADS) % (TILE_N / RESULT_PIECE);
            const int place = places[row];
            if (place >= 0 && n0 + piece * RESULT_PIECE < p->columns)
                XPU_PTR(uint4, p->result)[place + (int)(n0 / RESULT_PIECE + piece)] =
                    *(__local const uint4 *)(lines + row * LINE_BYTES + piece * 16);
        }
        if (r + 1 < ROUNDS) barrier(CLK_LOCAL_MEM_FENCE);
    }
}
#endif

/* A work-item's sums, by pairs. */
static inline void put_sums(const conv_matrix_params *p, const product *z, uint number,
                            __private fragment_sum (*sum)[FRAGMENTS_N], uint m0, uint n0) {
    const uint lane = get_local_id(0) % MATRIX_TEAM, team = get_local_id(0) / MATRIX_TEAM;
    const uint row = m0 + team % TEAMS_M * (FRAGMENTS_M * 16) + lane / 4;
    const uint first = n0 + team / TEAMS_M * (FRAGMENTS_N * 8) + lane % 4 * 2;
#if SLICED
    const long of = (long)number * p->rows;
    WRITTEN_OUT for (uint i = 0; i < FRAGMENTS_M * 2; i++) {
        const uint m = row + i * 8;
        if (m >= p->rows) continue;
        __global acc_t *to = XPU_PTR(acc_t, p->partial) + (of + m) * p->pitch;
        WRITTEN_OUT for (uint j = 0; j < FRAGMENTS_N; j++)
            if (first + j * 8 < p->columns)
                *(__global sum_pair *)(to + first + j * 8) = i % 2 ? sum[i / 2][j].zw : sum[i / 2][j].xy;
    }
#else
    long places[FRAGMENTS_M * 2];
    WRITTEN_OUT for (uint i = 0; i < FRAGMENTS_M * 2; i++) places[i] = place_of_row(p, z, row + i * 8);
    WRITTEN_OUT for (uint j = 0; j < FRAGMENTS_N; j++) {
        const uint n = first + j * 8;
        const long columns[2] = {place_of_column(p, z, n), place_of_column(p, z, n + 1)};
        const channel c[2] = {channel_of(p, z, n), channel_of(p, z, n + 1)};
        WRITTEN_OUT for (uint i = 0; i < FRAGMENTS_M * 2; i++)
            put_pair(p, c, places[i], columns, i % 2 ? sum[i / 2][j].zw : sum[i / 2][j].xy);
    }
#endif
}
#endif

MATRIX_KERNEL __attribute__((reqd_work_group_size(THREADS, 1, 1))) void conv_matrix(const conv_matrix_params p) {
#ifdef MATRIX_FMA
    __local number_t slabs[2 * STAGE] SLAB_ALIGNED;
    quad next_a[COPIES(TILE_M)], next_b[COPIES(TILE_N)];
    acc_t sum[SUMS_M][SUMS_N];
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) WRITTEN_OUT for (int j = 0; j < SUMS_N; j++) sum[i][j] = (acc_t)0;
#else
    __local uchar slabs[STAGES * STAGE_BYTES] SLAB_ALIGNED;
    fragment_sum sum[FRAGMENTS_M][FRAGMENTS_N];
    WRITTEN_OUT for (int i = 0; i < FRAGMENTS_M; i++)
        WRITTEN_OUT for (int j = 0; j < FRAGMENTS_N; j++) sum[i][j] = (fragment_sum)0;
#endif
    const tile_place t = find_tile(&p);
    const product z = product_of(&p, t.product);
    const uint m0 = t.m, n0 = t.n;

    const xpu_addr gathered = PLACE_IN(p.gathered, (long)z.group * p.gathered_group);
    const uint begin = z.slice * p.slice; /* in steps */

#if SOUGHT == 2
    const xpu_addr other = PLACE_IN(p.other, (long)z.group * p.other_group);
    const tap at = tap_of(&p, &z, min(n0 / PIECE + (uint)COPY_PIECE(0, B_PIECES), p.columns / PIECE - 1));
    column c = {.d = (int)at.d * p.tap_step[0] + z.d.first,
                .h = (int)at.h * p.tap_step[1] + z.h.first,
                .w = (int)at.w * p.tap_step[2] + z.w.first};
    c.from = (int)at.piece + c.d * p.gathered_pitch[1] + c.h * p.gathered_pitch[2] + c.w * p.gathered_pitch[3];
    const uint steps = (p.depth + TILE_K - 1) / TILE_K;
#define LOAD_OPERANDS(a, b, step)                                                                            \
    {                                                                                                        \
        const uint first_ = (begin + (uint)(step)) * TILE_K;                                                 \
        load_given(&p, a, other, m0, first_);                                                                \
        load_unfolded(&p, b, gathered, c, first_);                                                           \
    }
#else
    const uint taps = z.d.taps.value * z.h.taps.value * z.w.taps.value, depth = taps * p.per_tap.value;
    const uint steps = (depth + PIECES_K - 1) / PIECES_K;
    gather g;
    open_gather(&p, &z, &g, m0);
#if ONE_TAP
#define OWN_PIECES 0
#else
#define OWN_PIECES (uint)COPY_PIECE(0, A_PIECES)
#endif
#if SOUGHT == 0
    const xpu_addr other = PLACE_IN(p.other, (long)z.group * p.other_group);
#define LOAD_OTHER(stage, first)                                                                             \
    load_weights(&p, stage, other, n0, (first) + (uint)COPY_PIECE(0, B_PIECES), (first) + (uint)COPY_PIECE(0, B_PIECES) < depth)
#else
    const xpu_addr other = PLACE_IN(p.other, (long)z.group * p.other_group + z.d.tap * p.other_tap_first[0] +
                                                 z.h.tap * p.other_tap_first[1] + z.w.tap * p.other_tap_first[2]);
#define LOAD_OTHER(stage, first) load_weights(&p, &z, stage, other, n0, (first) * PIECE, depth * PIECE)
#endif
#define LOAD_OPERANDS(a, b, step)                                                                            \
    {                                                                                                        \
        const uint first_ = (begin + (uint)(step)) * PIECES_K;                                               \
        load_gather(&p, &z, a, gathered, &g, tap_of(&p, &z, first_ + OWN_PIECES), first_ + OWN_PIECES < depth); \
        LOAD_OTHER(b, first_);                                                                               \
    }
#endif
    const uint left = steps > begin ? min(steps - begin, p.slice) : 0;
#ifdef MATRIX_FMA
#define LOAD_BOTH(step) LOAD_OPERANDS(next_a, next_b, step)
#define KEEP_BOTH(slab)                                                                                      \
    {                                                                                                        \
        FLIP_QUADS(next_a, TILE_M, A_FLIP);                                                                  \
        keep_quads(slab, next_a, TILE_M, A_K_FAST, false, zero);                                             \
        keep_quads((slab) + TILE_K * PITCH_A, next_b, TILE_N, B_K_FAST, false, (number_t)0);                 \
    }
#ifdef BYTES_AS_NUMBERS
    const number_t zero = (number_t)zero_of(&p);
#else
    const number_t zero = (number_t)0;
#endif
    int stage = 0;
    FMA_PRODUCT(sum, slabs, stage, (int)left, LOAD_BOTH, KEEP_BOTH);
#else
#define LOAD_BOTH(stage, step) LOAD_OPERANDS(stage, (stage) + SLAB_A_BYTES, step)
    const int all = (int)((left + SLABS_AT_ONCE - 1) / SLABS_AT_ONCE * SLABS_AT_ONCE);
    if (all > 0) MATRIX_PRODUCT(sum, SLAB_OF(slabs), all, LOAD_BOTH);
#endif

#if OUT_PIECES && !defined(MATRIX_FMA)
    put_tile(&p, &z, slabs, sum, m0, n0);
#else
    put_sums(&p, &z, t.product, sum, m0, n0);
#endif
}
#endif

#ifdef FINISH
#define QUADS (256 / PARTS)
static inline void add_run(__private run *sum, run other) {
    for (int i = 0; i < 4; i++) sum->of[i] += other.of[i];
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void conv_matrix_finish(const conv_matrix_params p) {
    const uint x = (uint)get_local_id(0) % QUADS, part = (uint)get_local_id(0) / QUADS;
    const uint width = (uint)(p.pitch / 4), each = p.rows * width;
    const uint count = p.groups * p.phases[0] * p.phases[1] * p.phases[2] * each, i = (uint)XPU_GROUP(0) * QUADS + x;
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
    if (place >= 0 && first >= 0) write_quad(&p, c, place + first, &sum);
#else
    for (uint j = 0; j < 4; j++) put(&p, &c[j], place, place_of_column(&p, &z, column + j), sum.of[j]);
#endif
}
#endif

#ifdef PACK
/* Where a pixel's channel 0 lies; `number` counts the pixels of one n. */
static inline long pixel_at(const conv_pack_params *p, uint number) {
    const uint lines = quotient(number, p->size[2]), d = quotient(lines, p->size[1]);
    return d * p->stride[2] + (lines - d * p->size[1].value) * p->stride[3] +
           (number - lines * p->size[2].value) * p->stride[4];
}

#if PIECE == 4
#define CHUNK PART
#else
#define CHUNK uint4
#endif
#define PIECE_BYTES (PIECE * (int)sizeof(RAW(T)))
typedef union piece {
    CHUNK chunks[PIECE_BYTES / sizeof(CHUNK)];
    uint words[PIECE_BYTES / 4];
    RAW(T) of[PIECE];
} piece;
static inline void write_piece(xpu_addr to, __private const piece *v) {
    for (int i = 0; i < PIECE_BYTES / (int)sizeof(CHUNK); i++) XPU_PTR(CHUNK, to)[i] = v->chunks[i];
}

#if PIXELS_FAST
/* Of local memory: consecutive pixels in consecutive banks. */
#define LINE (SIDE + (sizeof(RAW(T)) == 2 ? 2 : sizeof(RAW(T)) == 1 ? 4 : 1))
__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void conv_pack(const conv_pack_params p) {
    __local RAW(T) tile[SIDE * LINE] __attribute__((aligned(16)));
    const uint i = (uint)get_local_id(0), per_n = p.size[0].value * p.size[1].value * p.size[2].value;
    const uint width = p.groups * p.padded, across = (width + SIDE - 1) / SIDE, number = (uint)XPU_GROUP(0);
    const uint c0 = number % across * SIDE, first = number / across % p.tiles * SIDE, n = number / across / p.tiles;
    const uint pixel = first + i % SIDE;
    const long from = n * p.stride[0] + pixel_at(&p, min(pixel, per_n - 1));
    for (uint j = i / SIDE; j < SIDE; j += 256 / SIDE) {
        const uint c = c0 + j, group = c / p.padded, inside = c % p.padded;
        RAW(T) v = (RAW(T))0;
        if (c < width && inside < p.channels && pixel < per_n)
            v = XPU_CPTR(RAW(T), p.from)[from + (long)(group * p.channels + inside) * p.stride[1]];
        tile[i % SIDE * LINE + j] = v;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint j = i; j < SIDE * SIDE / PIECE; j += 256) {
        const uint row = j / (SIDE / PIECE), c = j % (SIDE / PIECE) * PIECE;
        if (first + row >= per_n || c0 + c >= width) continue;
        __local const uint *words = (__local const uint *)(tile + row * LINE + c);
        piece v;
        for (int w = 0; w < PIECE_BYTES / 4; w++) v.words[w] = words[w];
        write_piece(p.to + (((long)n * per_n + first + row) * width + c0 + c) * sizeof(RAW(T)), &v);
    }
}
#else
__kernel void conv_pack(const conv_pack_params p) {
    const uint pieces = p.groups * p.padded / PIECE, per_n = p.size[0].value * p.size[1].value * p.size[2].value;
    const long i = get_global_id(0);
    if (i >= p.pixels * pieces) return;
    const uint pixel = (uint)(i / pieces), c = (uint)(i % pieces) * PIECE, group = c / p.padded, inside = c % p.padded;
    const uint n = pixel / per_n;
    const long from = n * p.stride[0] + pixel_at(&p, pixel - n * per_n) +
                      (long)(group * p.channels + inside) * p.stride[1];
    piece v;
    for (uint j = 0; j < PIECE; j++)
        v.of[j] = inside + j < p.channels ? XPU_CPTR(RAW(T), p.from)[from + j * p.stride[1]] : (RAW(T))0;
    write_piece(p.to + i * PIECE_BYTES, &v);
}
#endif
#endif
