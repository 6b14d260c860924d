/* Convolution y = x * w and its two gradients as implicit matrix products; the im2col operand is formed on
 * the fly. Any strides, groups, dilation, 1 to 3 dimensions. Portable.
 *
 * DIRECTION=0   y: sum over (c, taps) of x at the pixel's taps times w
 * DIRECTION=1   gradient of x: sum over (k, taps) of y where the tap meets a stride, times w
 * DIRECTION=2   gradient of w: sum over pixels of x times y
 *
 * Kernels:
 *   conv_tiles           a work-group computes one tile (gemm_tile.h); TILE, TILE_K, SIDE
 *   conv_point           few channels per group: one work-item per result (y, x), 64 per result (w)
 *   conv_reduce_slices   split-K of w: adds up the slices
 * Options: INDEX=int or long, type that holds pixel counts and channels times taps; CHANNELS_CONTIGUOUS,
 * consecutive channels are closer in memory than consecutive pixels; POINT_KERNEL, 1x1; COMBINE, EPILOGUE
 * (epilogue_math.h) for y and x. */
#include "conv/conv.h"

/* If channels are contiguous, the sum runs over channels first, and columns of the result are channels. */
#if DIRECTION == 2
#define A_K_MAJOR (!CHANNELS_CONTIGUOUS)
#define B_K_MAJOR (!CHANNELS_CONTIGUOUS)
#elif CHANNELS_CONTIGUOUS
#define A_K_MAJOR 1
#define B_K_MAJOR 0
#else
#define A_K_MAJOR 1
#define B_K_MAJOR 0
#endif
#include "gemm/gemm_tile.h"
#define post_ops_t acc_t
#include "matrix/epilogue_math.h"

typedef INDEX index_t;

typedef struct place {
    index_t n, d, h, w;
} place;

/* The offset of the pixel in y (of_x false) or x. */
static inline place place_of(const conv_params *p, index_t pixel, bool of_x) {
    const index_t sw = of_x ? p->in[2] : p->out[2], sh = of_x ? p->in[1] : p->out[1];
    const index_t sd = of_x ? p->in[0] : p->out[0];
    place at;
    at.w = pixel % sw;
    pixel /= sw;
    at.h = pixel % sh;
    pixel /= sh;
    at.d = pixel % sd;
    at.n = pixel / sd;
    return at;
}

typedef struct tap {
    index_t channel, d, h, w;
} tap;

/* Element `i` of (channel, taps); channels or taps are innermost. */
static inline tap tap_of(const conv_params *p, index_t i, index_t channels) {
    tap at;
#if POINT_KERNEL
    at.channel = i, at.d = 0, at.h = 0, at.w = 0;
#else
#if CHANNELS_CONTIGUOUS
    at.channel = i % channels;
    i /= channels;
#else
    at.channel = 0;
#endif
    at.w = i % p->taps[2];
    i /= p->taps[2];
    at.h = i % p->taps[1];
    i /= p->taps[1];
#if CHANNELS_CONTIGUOUS
    at.d = i;
#else
    at.d = i % p->taps[0];
    at.channel = i / p->taps[0];
#endif
#endif
    return at;
}

static inline acc_t w_at(const conv_params *p, long g, index_t k, tap at, index_t c) {
    return FETCH(p->w, (g * p->k + k) * p->w_stride[0] + c * p->w_stride[1] + at.d * p->w_stride[2] +
                           at.h * p->w_stride[3] + at.w * p->w_stride[4]);
}

static inline acc_t y_at(const conv_params *p, long g, place at, index_t k) {
    return FETCH(p->y, at.n * p->y_stride[0] + (g * p->k + k) * p->y_stride[1] + at.d * p->y_stride[2] +
                           at.h * p->y_stride[3] + at.w * p->y_stride[4]);
}

/* x under tap `at` of the pixel of y; 0 in the padding. */
static inline acc_t x_under(const conv_params *p, long g, place pixel, tap at, index_t c) {
    const index_t d = pixel.d * p->stride[0] - p->padding[0] + at.d * p->dilation[0];
    const index_t h = pixel.h * p->stride[1] - p->padding[1] + at.h * p->dilation[1];
    const index_t w = pixel.w * p->stride[2] - p->padding[2] + at.w * p->dilation[2];
    if (d < 0 || d >= p->in[0] || h < 0 || h >= p->in[1] || w < 0 || w >= p->in[2]) return (acc_t)0;
    return FETCH(p->x, pixel.n * p->x_stride[0] + (g * p->c + c) * p->x_stride[1] + d * p->x_stride[2] +
                           h * p->x_stride[3] + w * p->x_stride[4]);
}

/* y at the pixel whose tap `at` reads this pixel of x; 0 if there is none. */
static inline acc_t y_over(const conv_params *p, long g, place pixel, tap at, index_t k) {
    const index_t d = pixel.d + p->padding[0] - at.d * p->dilation[0];
    const index_t h = pixel.h + p->padding[1] - at.h * p->dilation[1];
    const index_t w = pixel.w + p->padding[2] - at.w * p->dilation[2];
    if (d < 0 || h < 0 || w < 0 || d % p->stride[0] || h % p->stride[1] || w % p->stride[2]) return (acc_t)0;
    place to = {pixel.n, d / p->stride[0], h / p->stride[1], w / p->stride[2]};
    if (to.d >= p->out[0] || to.h >= p->out[1] || to.w >= p->out[2]) return (acc_t)0;
    return y_at(p, g, to, k);
}

/* The operands of the product: the im2col operand by (pixel, depth), the other by (depth, channel). */
#if DIRECTION == 0
static inline acc_t im2col(const conv_params *p, long g, index_t pixel, index_t i) {
    const tap at = tap_of(p, i, (index_t)p->c);
    return x_under(p, g, place_of(p, pixel, false), at, at.channel);
}
static inline acc_t weights(const conv_params *p, long g, index_t i, index_t channel) {
    const tap at = tap_of(p, i, (index_t)p->c);
    return w_at(p, g, channel, at, at.channel);
}
#elif DIRECTION == 1
static inline acc_t im2col(const conv_params *p, long g, index_t pixel, index_t i) {
    const tap at = tap_of(p, i, (index_t)p->k);
    return y_over(p, g, place_of(p, pixel, true), at, at.channel);
}
static inline acc_t weights(const conv_params *p, long g, index_t i, index_t channel) {
    const tap at = tap_of(p, i, (index_t)p->k);
    return w_at(p, g, at.channel, at, channel);
}
#else
static inline acc_t incoming(const conv_params *p, long g, index_t k, index_t pixel) {
    return y_at(p, g, place_of(p, pixel, false), k);
}
static inline acc_t unfolded(const conv_params *p, long g, index_t pixel, index_t column) {
    const tap at = tap_of(p, column, (index_t)p->c);
    return x_under(p, g, place_of(p, pixel, false), at, at.channel);
}
#endif

#if DIRECTION == 2
static inline void put(const conv_params *p, long g, index_t row, index_t column, acc_t v) {
    const tap at = tap_of(p, column, (index_t)p->c);
    KEEP(p->w,
         (g * p->k + row) * p->w_stride[0] + at.channel * p->w_stride[1] + at.d * p->w_stride[2] +
             at.h * p->w_stride[3] + at.w * p->w_stride[4],
         v);
}
#else
/* `at`: the offset in the result. */
static inline acc_t end_at(const conv_params *p, acc_t v, long at) {
#if COMBINE
    return apply_post_ops(&p->end, v, FETCH(p->end.other, at));
#else
    return apply_post_ops(&p->end, v, (acc_t)0);
#endif
}

static inline void put(const conv_params *p, long g, index_t pixel, index_t channel, acc_t v) {
    const place at = place_of(p, pixel, DIRECTION == 1);
    const long all = g * (DIRECTION == 1 ? p->c : p->k) + channel;
    if (p->bias) v += FETCH(p->bias, all * p->bias_stride);
#if DIRECTION == 1
    const long to = at.n * p->x_stride[0] + all * p->x_stride[1] + at.d * p->x_stride[2] +
                    at.h * p->x_stride[3] + at.w * p->x_stride[4];
    KEEP(p->x, to, end_at(p, v, to));
#else
    const long to = at.n * p->y_stride[0] + all * p->y_stride[1] + at.d * p->y_stride[2] +
                    at.h * p->y_stride[3] + at.w * p->y_stride[4];
    KEEP(p->y, to, end_at(p, v, to));
#endif
}
#endif

#ifdef TILE
__kernel __attribute__((reqd_work_group_size(LX, LY, 1))) void conv_tiles(const conv_params p) {
    __local acc_t local_tile_a[TILE_K][PITCH], local_tile_b[TILE_K][PITCH];
    const long tiles_n = (p.columns + TILE - 1) / TILE, tiles_m = (p.rows + TILE - 1) / TILE;
    long number = XPU_GROUP(0);
    const long n0 = number % tiles_n * TILE;
    number /= tiles_n;
    const long m0 = number % tiles_m * TILE;
    number /= tiles_m;
    const long g = number % p.groups, slice = number / p.groups;
    const long k_begin = slice * p.slice, k_end = min(p.depth, k_begin + p.slice);

#define INSIDE(m, m_end, kk) ((m) < (m_end) && (kk) < k_end)
#if DIRECTION == 2
#define A_AT(m, kk) (INSIDE(m, p.rows, kk) ? incoming(&p, g, (index_t)(m), (index_t)(kk)) : (acc_t)0)
#define B_AT(kk, n) (INSIDE(n, p.columns, kk) ? unfolded(&p, g, (index_t)(kk), (index_t)(n)) : (acc_t)0)
#elif CHANNELS_CONTIGUOUS /* rows are pixels, columns channels */
#define A_AT(m, kk) (INSIDE(m, p.rows, kk) ? im2col(&p, g, (index_t)(m), (index_t)(kk)) : (acc_t)0)
#define B_AT(kk, n) (INSIDE(n, p.columns, kk) ? weights(&p, g, (index_t)(kk), (index_t)(n)) : (acc_t)0)
#else /* rows are channels, columns pixels */
#define A_AT(m, kk) (INSIDE(m, p.rows, kk) ? weights(&p, g, (index_t)(kk), (index_t)(m)) : (acc_t)0)
#define B_AT(kk, n) (INSIDE(n, p.columns, kk) ? im2col(&p, g, (index_t)(n), (index_t)(kk)) : (acc_t)0)
#endif

    acc_t sum[SIDE][SIDE];
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) sum[i][j] = (acc_t)0;
    TILE_PRODUCT(sum, A_AT, B_AT, m0, n0, k_begin, k_end);
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            const long m = m0 + PLACE(get_local_id(1), i), n = n0 + PLACE(get_local_id(0), j);
            if (m >= p.rows || n >= p.columns) continue;
#if IS_SPLIT
            XPU_PTR(acc_t, p.partial)[((slice * p.groups + g) * p.rows + m) * p.columns + n] = sum[i][j];
#elif DIRECTION == 2 || CHANNELS_CONTIGUOUS
            put(&p, g, (index_t)m, (index_t)n, sum[i][j]);
#else
            put(&p, g, (index_t)n, (index_t)m, sum[i][j]);
#endif
        }
}
#endif

/* Adds up the sums of 64 work-items; work-item 0 has the total. */
static inline acc_t total(acc_t sum, __local acc_t *sums) {
    const int i = (int)get_local_id(0);
    sums[i] = sum;
    for (int other = 32; other > 0; other /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (i < other) sums[i] += sums[i + other];
    }
    return sums[0];
}

#if defined(POINT) && DIRECTION == 2
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void conv_point(const conv_params p) {
    __local acc_t sums[64];
    long number = XPU_GROUP(0);
    const index_t column = (index_t)(number % p.columns);
    number /= p.columns;
    const index_t row = (index_t)(number % p.rows);
    const long g = number / p.rows;
    acc_t sum = (acc_t)0;
    for (long i = get_local_id(0); i < p.depth; i += 64)
        sum = multiply_add(sum, incoming(&p, g, row, (index_t)i), unfolded(&p, g, (index_t)i, column));
    sum = total(sum, sums);
    if (get_local_id(0) == 0) put(&p, g, row, column, sum);
}
#elif defined(POINT)
__kernel void conv_point(const conv_params p) {
    long number = get_global_id(0);
    if (number >= p.rows * p.columns * p.groups) return;
    index_t pixel, channel;
    long g;
#if CHANNELS_CONTIGUOUS
    channel = (index_t)(number % p.columns);
    number /= p.columns;
    g = number % p.groups;
    pixel = (index_t)(number / p.groups);
#else
    pixel = (index_t)(number % p.columns);
    number /= p.columns;
    channel = (index_t)(number % p.rows);
    g = number / p.rows;
#endif
    acc_t sum = (acc_t)0;
    for (index_t i = 0; i < p.depth; i++)
        sum = multiply_add(sum, im2col(&p, g, pixel, i), weights(&p, g, i, channel));
    put(&p, g, pixel, channel, sum);
}
#endif

#if defined(FINISH) && DIRECTION == 2
__kernel void conv_reduce_slices(const conv_params p) {
    long i = get_global_id(0);
    const long count = p.groups * p.rows * p.columns;
    if (i >= count) return;
    acc_t sum = (acc_t)0;
    for (long s = 0; s < p.slices; s++) sum += XPU_CPTR(acc_t, p.partial)[s * count + i];
    const index_t column = (index_t)(i % p.columns);
    i /= p.columns;
    put(&p, i / p.rows, (index_t)(i % p.rows), column, sum);
}
#endif
