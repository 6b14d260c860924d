/* Pooling: for each output position the maximum (and where it is) or the average over a window of the input,
 * and the gradients, gathered: each input position asks the windows it may be in, so that no two work-items
 * write one place and the result is the same each time.
 *
 * On processors the gradients of a plane are scattered by one work-item, which is as orderly and less work.
 *
 * Windows: o·stride - pad + k·dilation, k < window; or ADAPTIVE, from floor(o·in/out) to ceil((o+1)·in/out).
 * Options: T; ACC; MAXIMUM; ADAPTIVE; LAST, as in position.h; BUILD_<kernel>. NaN is greater than all; of
 * equal elements the first counts. */
#include "pool.h"
#include "position.h"

#ifdef ADAPTIVE
#define STARTS(p, d, o) ((int)((long)(o) * p.in[d] / p.out[d]))
#define ENDS(p, d, o) ((int)(((long)(o) + 1) * p.in[d] / p.out[d] + (((long)(o) + 1) * p.in[d] % p.out[d] != 0)))
#define STEP(p, d) 1
/* The windows that position i may be in. */
#define FIRST_WINDOW(p, d, i) ((int)((long)(i) * p.out[d] / p.in[d]))
#define END_WINDOW(p, d, i) ((int)((((long)(i) + 1) * p.out[d] + p.in[d] - 1) / p.in[d]))
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

#ifdef LAST
#define CHANNEL channel
#else
#define CHANNEL 0
#endif

/* Coordinate v along dimension d goes over what window o has inside the input. */
#define EACH_INSIDE(v, d, o)                                                                                 \
    for (int v = first_inside(STARTS(p, d, o), STEP(p, d)), end_##v = min(ENDS(p, d, o), p.in[d]); v < end_##v; \
         v += STEP(p, d))
static inline int first_inside(int start, int step) {
    while (start < 0) start += step;
    return start;
}

#ifndef MAXIMUM
/* What the average over window (d, h, w) divides by; 0 if it is empty. (No loop over the three dimensions:
 * indices into the parameters that aren't constants keep compilers from using vectors.) */
static inline int inside(int start, int end, int in) { return max(min(end, in) - max(start, 0), 0); }
static inline int counted(int start, int end, int in, int pad) { return min(end, in + pad) - start; }
static inline int divisor_of(pool_params p, int d, int h, int w) {
#define EXTENT(i, o) STARTS(p, i, o), ENDS(p, i, o), p.in[i]
    if (p.divisor) return p.divisor;
    if (p.count_pad)
        return counted(EXTENT(0, d), p.pad[0]) * counted(EXTENT(1, h), p.pad[1]) * counted(EXTENT(2, w), p.pad[2]);
    return inside(EXTENT(0, d)) * inside(EXTENT(1, h)) * inside(EXTENT(2, w));
}
#endif

#if defined BUILD_pool_forward || defined BUILD_pool_forward_planes
static inline void take_window(pool_params p, size_t plane, size_t channel, int d, int h, int w) {
    __global const STORED(T) *x = XPU_CPTR(STORED(T), p.input);
    __global STORED(T) *y = XPU_PTR(STORED(T), p.output);
    const size_t out = OFFSET(p.out, d, h, w);
#ifdef MAXIMUM
    ACC best = -INFINITY;
    int best_at = -1;
#else
    ACC sum = 0;
#endif
    EACH_INSIDE(i, 0, d)
        EACH_INSIDE(j, 1, h) {
#ifdef MAXIMUM
            EACH_INSIDE(k, 2, w) {
                const ACC v = LOAD(T, x, OFFSET(p.in, i, j, k));
#ifdef ADAPTIVE /* windows are long, and a new maximum is rare in them */
                if ((best_at < 0 || !(v <= best)) && (best == best || v != v)) {
                    best = v;
                    best_at = (i * p.in[1] + j) * p.in[2] + k;
                }
#else
                const bool take = (v > best) | (v != v) | (best_at < 0);
                best = take ? v : best;
                best_at = take ? (i * p.in[1] + j) * p.in[2] + k : best_at;
#endif
            }
#else
            ACC line = 0; /* lines don't wait for each other */
            EACH_INSIDE(k, 2, w) line += (ACC)LOAD(T, x, OFFSET(p.in, i, j, k));
            sum += line;
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

#ifdef BUILD_pool_backward
__kernel void pool_backward(pool_params p) {
    POSITION(p.in)
    __global const STORED(T) *dy = XPU_CPTR(STORED(T), p.output);
    __global const long *indices = XPU_CPTR(long, p.indices);
    const long self = (long)(at[0] * p.in[1] + at[1]) * p.in[2] + at[2];
    ACC sum = 0;
    const int end_d = END_WINDOW(p, 0, at[0]), end_h = END_WINDOW(p, 1, at[1]), end_w = END_WINDOW(p, 2, at[2]);
    for (int d = FIRST_WINDOW(p, 0, at[0]); d < end_d; d++)
        for (int h = FIRST_WINDOW(p, 1, at[1]); h < end_h; h++)
            for (int w = FIRST_WINDOW(p, 2, at[2]); w < end_w; w++) {
                const size_t out = OFFSET(p.out, d, h, w);
#ifdef MAXIMUM
                if (indices[out] == self) sum += (ACC)LOAD(T, dy, out);
#else
                sum += (ACC)LOAD(T, dy, out) / divisor_of(p, d, h, w);
#endif
            }
    STORE(T, XPU_PTR(STORED(T), p.input), OFFSET(p.in, at[0], at[1], at[2]), sum);
}
#endif

/* For processors: a work-item goes over a whole plane, or with LAST over BLOCK channels of a batch entry. */
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

/* APART: the sums are kept in local memory, of at least a plane's elements, as T would round each of them. */
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
        if ((ulong)i < inputs) SUM(0, 0, i) += LOAD(T, dy, out);
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
            if ((ulong)i < inputs) dx[OFFSET(p.in, 0, 0, i)] += dy[out];
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
