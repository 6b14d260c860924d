/* Max and average pooling, and the gradients. Backward gathers: an input position visits the windows that
 * contain it, so that no two work-items write the same element and the result is deterministic. On CPUs one
 * work-item scatters the gradients of a whole plane, which is deterministic, too, and less work.
 *
 * Windows: o * stride - pad + k * dilation for k < window;
 *   ADAPTIVE     from floor(o * in / out) to ceil((o + 1) * in / out)
 *   FRACTIONAL   from floor((o + u) alpha) - floor(u alpha), u the sample of the plane and dimension, alpha =
 *                (in - window) / (out - 1); the last window is at the end
 * Options: T, dtype; ACC, type computed in; MASK, the integer type of its size; MAXIMUM; ADAPTIVE;
 * FRACTIONAL; LAST (position.h); BUILD_<kernel>. NaN is larger than everything; of equal elements the first
 * one is the maximum. */
#include "pool.h"
#include "position.h"

#ifdef ADAPTIVE
#define STARTS(p, d, o) ((int)((long)(o) * p.in[d] / p.out[d]))
#define ENDS(p, d, o)                                                                                        \
    ((int)(((long)(o) + 1) * p.in[d] / p.out[d] + (((long)(o) + 1) * p.in[d] % p.out[d] != 0)))
#define STEP(p, d) 1
/* The range of windows that may contain position i. */
#define FIRST_WINDOW(p, d, i) ((int)((long)(i) * p.out[d] / p.in[d]))
#define END_WINDOW(p, d, i) ((int)((((long)(i) + 1) * p.out[d] + p.in[d] - 1) / p.in[d]))
#elif defined FRACTIONAL
#ifdef ACC_IS_DOUBLE
#define ALPHA(bits) as_double(bits)
#else
#define ALPHA(bits) as_float((uint)(bits))
#endif
static inline int fractional_start(pool_params p, size_t plane, int d, int o) {
    const int last = p.in[d] - p.window[d];
    if (o == p.out[d] - 1) return last;
    const ACC u = LOAD(T, XPU_CPTR(STORED(T), p.samples), plane * 3 + d), alpha = ALPHA(p.alpha[d]);
    return clamp((int)((o + u) * alpha) - (int)(u * alpha), 0, last);
}
#define STARTS(p, d, o) fractional_start(p, plane, d, o)
#define ENDS(p, d, o) (STARTS(p, d, o) + p.window[d])
#define STEP(p, d) 1
#else
#define STARTS(p, d, o) ((o) * p.stride[d] - p.pad[d])
#define ENDS(p, d, o) (STARTS(p, d, o) + (p.window[d] - 1) * p.dilation[d] + 1)
#define STEP(p, d) p.dilation[d]
#define FIRST_WINDOW(p, d, i) first_window((i) + p.pad[d], (p.window[d] - 1) * p.dilation[d] + 1, p.stride[d])
#define END_WINDOW(p, d, i) min(((i) + p.pad[d]) / p.stride[d] + 1, p.out[d])
static inline int first_window(int i, int extent, int stride) {
    return i < extent ? 0 : (i - extent) / stride + 1;
}
#endif

/* Offset of position k of a row from its first position. */
#ifdef LAST
#define CHANNEL channel
#define ALONG(k) ((size_t)(k) * p.channels)
#else
#define CHANNEL 0
#define ALONG(k) ((size_t)(k))
#endif

/* Loops coordinate v of dimension d over the part of window o that is inside the input. */
#define EACH_INSIDE(v, d, o)                                                                                 \
    for (int v = first_inside(STARTS(p, d, o), STEP(p, d)), end_##v = min(ENDS(p, d, o), p.in[d]);           \
         v < end_##v; v += STEP(p, d))
static inline int first_inside(int start, int step) {
    while (start < 0) start += step;
    return start;
}

#ifndef MAXIMUM
/* The divisor of the average over window (d, h, w); 0 if it is empty. (No loop over the three dimensions:
 * variable indices into the parameters prevent vectorization.) */
static inline int inside(int start, int end, int in) { return max(min(end, in) - max(start, 0), 0); }
static inline int counted(int start, int end, int in, int pad) { return min(end, in + pad) - start; }
static inline int divisor_of(pool_params p, int d, int h, int w) {
#define EXTENT(i, o) STARTS(p, i, o), ENDS(p, i, o), p.in[i]
    if (p.divisor) return p.divisor;
    if (p.count_pad)
        return counted(EXTENT(0, d), p.pad[0]) * counted(EXTENT(1, h), p.pad[1]) *
               counted(EXTENT(2, w), p.pad[2]);
    return inside(EXTENT(0, d)) * inside(EXTENT(1, h)) * inside(EXTENT(2, w));
}
#endif

#if defined BUILD_pool_forward || defined BUILD_pool_forward_planes
static inline void take_window(pool_params p, size_t plane, size_t channel, int d, int h, int w) {
    __global const STORED(T) *x = XPU_CPTR(STORED(T), p.input);
    __global STORED(T) *y = XPU_PTR(STORED(T), p.output);
    const size_t out = OFFSET(p.out, d, h, w);
    const int first_i = first_inside(STARTS(p, 0, d), STEP(p, 0)), end_i = min(ENDS(p, 0, d), p.in[0]);
    const int first_j = first_inside(STARTS(p, 1, h), STEP(p, 1)), end_j = min(ENDS(p, 1, h), p.in[1]);
    const int first_k = first_inside(STARTS(p, 2, w), STEP(p, 2)), end_k = min(ENDS(p, 2, w), p.in[2]);
#ifdef MAXIMUM
    const bool empty = first_i >= end_i || first_j >= end_j || first_k >= end_k;
    ACC best = -INFINITY;
    int best_at = empty ? -1 : (first_i * p.in[1] + first_j) * p.in[2] + first_k;
#else
    ACC sum = 0;
#endif
    for (int i = first_i; i < end_i; i += STEP(p, 0))
        for (int j = first_j; j < end_j; j += STEP(p, 1)) {
            const size_t line = OFFSET(p.in, i, j, 0);
#ifdef MAXIMUM
            const int line_at = (i * p.in[1] + j) * p.in[2];
            for (int k = first_k; k < end_k; k += STEP(p, 2)) {
                const ACC v = LOAD(T, x, line + ALONG(k));
#ifdef ADAPTIVE /* windows are long, so a new maximum is rare: branch instead of select */
                if (!(v <= best) && (best == best || v != v)) {
                    best = v;
                    best_at = line_at + k;
                }
#else
                const bool take = (v > best) | (v != v);
                best = take ? v : best;
                best_at = take ? line_at + k : best_at;
#endif
            }
#else
            ACC part = 0; /* one partial sum per row shortens the dependency chain */
            for (int k = first_k; k < end_k; k += STEP(p, 2)) part += (ACC)LOAD(T, x, line + ALONG(k));
            sum += part;
#endif
        }
#ifdef MAXIMUM
    STORE(T, y, out, best);
    XPU_PTR(long, p.indices)[out] = best_at;
#else
    const int divisor = divisor_of(p, d, h, w);
    STORE(T, y, out, divisor == 0 ? (ACC)0 : sum / divisor);
#endif
}
#endif

#ifdef BUILD_pool_forward
__kernel void pool_forward(pool_params p) {
    POSITION(p.out)
    take_window(p, plane, CHANNEL, at[0], at[1], at[2]);
}
#endif

#ifdef MAXIMUM
/* Reports a position outside the plane; -1 is that of an empty window. */
static inline void check_index(pool_params p, long i) {
    const long inputs = (long)p.in[0] * p.in[1] * p.in[2];
    if (i < -1 || i >= inputs) fault_report(p.watch, 0, i, inputs);
}
#endif

#ifdef BUILD_pool_backward
__kernel void pool_backward(pool_params p) {
    POSITION(p.in)
    __global const STORED(T) *dy = XPU_CPTR(STORED(T), p.output);
    __global const long *indices = XPU_CPTR(long, p.indices);
    const long self = (long)(at[0] * p.in[1] + at[1]) * p.in[2] + at[2];
    ACC sum = 0;
    const int end_d = END_WINDOW(p, 0, at[0]), end_h = END_WINDOW(p, 1, at[1]),
              end_w = END_WINDOW(p, 2, at[2]);
    for (int d = FIRST_WINDOW(p, 0, at[0]); d < end_d; d++)
        for (int h = FIRST_WINDOW(p, 1, at[1]); h < end_h; h++)
            for (int w = FIRST_WINDOW(p, 2, at[2]); w < end_w; w++) {
                const size_t out = OFFSET(p.out, d, h, w);
#ifdef MAXIMUM
                if (indices[out] == self)
                    sum += (ACC)LOAD(T, dy, out);
                else
                    check_index(p, indices[out]);
#else
                sum += (ACC)LOAD(T, dy, out) / divisor_of(p, d, h, w);
#endif
            }
    STORE(T, XPU_PTR(STORED(T), p.input), OFFSET(p.in, at[0], at[1], at[2]), sum);
}
#endif

/* CPU: a work-item handles a whole plane or, with LAST, BLOCK channels of a batch entry. */
#define PLANE_KERNEL __attribute__((reqd_work_group_size(1, 1, 1))) __kernel
#define EACH_OUTPUT                                                                                          \
    for (int d = 0; d < p.out[0]; d++)                                                                       \
        for (int h = 0; h < p.out[1]; h++)                                                                   \
            for (int w = 0; w < p.out[2]; w++)

#ifdef BUILD_pool_forward_planes
PLANE_KERNEL void pool_forward_planes(pool_params p) {
    const size_t plane = get_global_id(0);
    EACH_OUTPUT take_window(p, plane, CHANNEL, d, h, w);
}
#endif

/* A work-item handles a row of the output and, for each window, BLOCK channels at a time: memory access is
 * sequential, and the loops over channels are vectorized. */
#ifdef BUILD_pool_forward_lines
#define LINES_KERNEL XPU_NO_VECTORIZE PLANE_KERNEL

#include "vector16.h"
typedef XPU_CAT(ACC, 16) acc16;
typedef XPU_CAT(MASK, 16) mask16; /* result of a comparison, or positions of the same width */

typedef struct window {
    int first[3], end[3], divisor;
} window;

/* 32 channels, whose results stay in registers for the whole window. */
static inline void take_vectors(const pool_params *p, const window *o, size_t plane, size_t out,
                                size_t channel) {
    __global const STORED(T) *x =
        XPU_CPTR(STORED(T), p->input) + plane * p->in[0] * p->in[1] * p->in[2] * p->channels + channel;
    __global STORED(T) *y = XPU_PTR(STORED(T), p->output) + out + channel;
#ifdef MAXIMUM
    const bool empty = o->first[0] >= o->end[0] || o->first[1] >= o->end[1] || o->first[2] >= o->end[2];
    acc16 result0 = -INFINITY, result1 = -INFINITY;
    mask16 at0 = empty ? -1 : (o->first[0] * p->in[1] + o->first[1]) * p->in[2] + o->first[2], at1 = at0;
#else
    acc16 result0 = 0, result1 = 0;
#endif
    for (int i = o->first[0]; i < o->end[0]; i += STEP((*p), 0))
        for (int j = o->first[1]; j < o->end[1]; j += STEP((*p), 1))
            for (int k = o->first[2]; k < o->end[2]; k += STEP((*p), 2)) {
                const int place = (i * p->in[1] + j) * p->in[2] + k;
                const acc16 v0 = LOAD16(x + place * p->channels), v1 = LOAD16(x + place * p->channels + 16);
#ifdef MAXIMUM
                const mask16 take0 = v0 > result0 | v0 != v0, take1 = v1 > result1 | v1 != v1;
                result0 = select(result0, v0, take0), result1 = select(result1, v1, take1);
                at0 = select(at0, (mask16)place, take0), at1 = select(at1, (mask16)place, take1);
#else
                result0 += v0, result1 += v1;
#endif
            }
#ifdef MAXIMUM
    __global long *indices = XPU_PTR(long, p->indices) + out + channel;
    vstore16(convert_long16(at0), 0, indices);
    vstore16(convert_long16(at1), 0, indices + 16);
#else
    if (o->divisor == 0)
        result0 = result1 = 0;
    else
        result0 /= o->divisor, result1 /= o->divisor;
#endif
    STORE16(result0, y);
    STORE16(result1, y + 16);
}

static inline void take_channels(const pool_params *p, const window *o, size_t plane, size_t out,
                                 size_t channel, size_t n) {
    __global const STORED(T) *x = XPU_CPTR(STORED(T), p->input);
    __global STORED(T) *y = XPU_PTR(STORED(T), p->output) + out + channel;
    ACC result[BLOCK];
#ifdef MAXIMUM
    int at[BLOCK];
    const bool empty = o->first[0] >= o->end[0] || o->first[1] >= o->end[1] || o->first[2] >= o->end[2];
    const int start = empty ? -1 : (o->first[0] * p->in[1] + o->first[1]) * p->in[2] + o->first[2];
    for (size_t c = 0; c < n; c++) at[c] = start;
    for (size_t c = 0; c < n; c++) result[c] = -INFINITY;
#else
    for (size_t c = 0; c < n; c++) result[c] = 0;
#endif
    for (int i = o->first[0]; i < o->end[0]; i += STEP((*p), 0))
        for (int j = o->first[1]; j < o->end[1]; j += STEP((*p), 1))
            for (int k = o->first[2]; k < o->end[2]; k += STEP((*p), 2)) {
                const int place = (i * p->in[1] + j) * p->in[2] + k;
                const size_t from = (plane * p->in[0] * p->in[1] * p->in[2] + place) * p->channels + channel;
                for (size_t c = 0; c < n; c++) {
                    const ACC v = LOAD(T, x, from + c);
#ifdef MAXIMUM
                    const bool take = (v > result[c]) | (v != v);
                    result[c] = take ? v : result[c];
                    at[c] = take ? place : at[c];
#else
                    result[c] += v;
#endif
                }
            }
#ifdef MAXIMUM
    __global long *indices = XPU_PTR(long, p->indices) + out + channel;
    for (size_t c = 0; c < n; c++) indices[c] = at[c];
#else
    if (o->divisor == 0)
        for (size_t c = 0; c < n; c++) result[c] = 0;
    else
        for (size_t c = 0; c < n; c++) result[c] /= o->divisor;
#endif
    for (size_t c = 0; c < n; c++) STORE(T, y, c, result[c]);
}

/* Prefetches the elements that a later window adds: the rows of windows are too many and too short for the
 * hardware prefetcher. */
#define AHEAD 512 /* bytes */
static inline void ask_ahead(const pool_params *p, const window *o, size_t plane, int h) {
#ifndef ADAPTIVE
    const size_t pixel = p->channels * sizeof(STORED(T));
    const int next = o->end[2] + (int)(AHEAD / pixel), end = min(next + p->stride[2], p->in[2]);
    if (next >= end) return;
    const int read = h > 0 ? ENDS((*p), 1, h - 1) : 0;
    for (int i = o->first[0]; i < o->end[0]; i += STEP((*p), 0))
        for (int j = o->first[1]; j < o->end[1]; j += STEP((*p), 1)) {
            if (j < read) continue;
            const size_t at = ((plane * p->in[0] + i) * p->in[1] + j) * p->in[2];
            __global const uchar *x = XPU_CPTR(uchar, p->input) + (at + next) * pixel;
            for (size_t c = 0; c < (end - next) * pixel; c += 64) prefetch(x + c, 1);
        }
#endif
}

LINES_KERNEL void pool_forward_lines(pool_params p) {
    const size_t line = get_global_id(0), rest = line / p.out[1], plane = rest / p.out[0];
    const int h = line - rest * p.out[1], d = rest - plane * p.out[0];
    const size_t channels = p.channels;
    window o;
#define EXTENT_INSIDE(i, at)                                                                                 \
    o.first[i] = first_inside(STARTS(p, i, at), STEP(p, i)), o.end[i] = min(ENDS(p, i, at), p.in[i])
    EXTENT_INSIDE(0, d);
    EXTENT_INSIDE(1, h);
    for (int w = 0; w < p.out[2]; w++) {
        EXTENT_INSIDE(2, w);
#ifndef MAXIMUM
        o.divisor = divisor_of(p, d, h, w);
#endif
        const size_t out = (line * p.out[2] + w) * channels;
        size_t channel = 0;
        ask_ahead(&p, &o, plane, h);
#ifndef ADAPTIVE /* large windows are read once, for many channels */
        for (; channel + 32 <= channels; channel += 32) take_vectors(&p, &o, plane, out, channel);
#endif
        for (; channel < channels; channel += BLOCK)
            take_channels(&p, &o, plane, out, channel, min(channels - channel, (size_t)BLOCK));
    }
}
#endif

/* APART: sums are kept in local memory of at least a plane's elements, because T would round after every
 * addition. */
#if defined BUILD_pool_backward_planes && !defined LAST
#ifdef APART
#define SUM(d, h, w) sums[((d) * p.in[1] + (h)) * p.in[2] + (w)]
#else
#define SUM(d, h, w) dx[OFFSET(p.in, d, h, w)]
#endif
PLANE_KERNEL void pool_backward_planes(pool_params p) {
    const size_t plane = get_global_id(0);
    __global STORED(T) *dx = XPU_PTR(STORED(T), p.input);
    __global const STORED(T) *dy = XPU_CPTR(STORED(T), p.output);
    const size_t inputs = (size_t)p.in[0] * p.in[1] * p.in[2];
#ifdef APART
    __local ACC sums[APART];
#endif
    for (size_t i = 0; i < inputs; i++) SUM(0, 0, i) = 0;
    EACH_OUTPUT {
        const size_t out = OFFSET(p.out, d, h, w);
#ifdef MAXIMUM
        const long i = XPU_CPTR(long, p.indices)[out];
        if ((ulong)i < inputs)
            SUM(0, 0, i) += LOAD(T, dy, out);
        else
            check_index(p, i);
#else
        const ACC share = (ACC)LOAD(T, dy, out) / divisor_of(p, d, h, w);
        const int start = first_inside(STARTS(p, 2, w), 1), end = min(ENDS(p, 2, w), p.in[2]);
        EACH_INSIDE(i, 0, d)
            EACH_INSIDE(j, 1, h) {
                int k = start; /* averages have no dilation */
                for (; k + 4 <= end; k += 4) vstore4(vload4(0, &SUM(i, j, k)) + share, 0, &SUM(i, j, k));
                for (; k < end; k++) SUM(i, j, k) += share;
            }
#endif
    }
#ifdef APART
    for (size_t i = 0; i < inputs; i++) STORE(T, dx, OFFSET(p.in, 0, 0, i), sums[i]);
#endif
}
#endif

/* T is ACC. */
#if defined BUILD_pool_backward_planes && defined LAST
typedef XPU_CAT(ACC, 16) acc16;
PLANE_KERNEL void pool_backward_planes(pool_params p) {
    const size_t blocks = (p.channels + BLOCK - 1) / BLOCK, task = get_global_id(0), plane = task / blocks;
    const size_t first = (task - plane * blocks) * BLOCK, end = min(first + BLOCK, (size_t)p.channels);
    const size_t whole = first + (end - first) / 16 * 16;
    const size_t inputs = (size_t)p.in[0] * p.in[1] * p.in[2];
    __global ACC *dx = XPU_PTR(ACC, p.input);
    __global const ACC *dy = XPU_CPTR(ACC, p.output);
    for (size_t i = 0; i < inputs; i++) {
        size_t channel = first;
        for (; channel < whole; channel += 16) vstore16((acc16)0, 0, dx + OFFSET(p.in, 0, 0, i));
        for (; channel < end; channel++) dx[OFFSET(p.in, 0, 0, i)] = 0;
    }
    EACH_OUTPUT {
        size_t channel = first;
#ifdef MAXIMUM
        for (; channel < end; channel++) {
            const size_t out = OFFSET(p.out, d, h, w);
            const long i = XPU_CPTR(long, p.indices)[out];
            if ((ulong)i < inputs)
                dx[OFFSET(p.in, 0, 0, i)] += dy[out];
            else
                check_index(p, i);
        }
#else
        const ACC divisor = divisor_of(p, d, h, w);
        for (; channel < whole; channel += 16) {
            const acc16 share = vload16(0, dy + OFFSET(p.out, d, h, w)) / divisor;
            EACH_INSIDE(i, 0, d)
                EACH_INSIDE(j, 1, h)
                    EACH_INSIDE(k, 2, w) {
                        __global ACC *at = dx + OFFSET(p.in, i, j, k);
                        vstore16(vload16(0, at) + share, 0, at);
                    }
        }
        for (; channel < end; channel++) {
            const ACC share = dy[OFFSET(p.out, d, h, w)] / divisor;
            EACH_INSIDE(i, 0, d)
                EACH_INSIDE(j, 1, h)
                    EACH_INSIDE(k, 2, w) dx[OFFSET(p.in, i, j, k)] += share;
        }
#endif
    }
}
#endif
