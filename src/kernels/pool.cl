/* Pooling: for each output position the maximum (and where it is) or the average over a window of the input,
 * and the gradients, gathered: each input position asks the windows it may be in, so that no two work-items
 * write one place and the result is the same each time.
 *
 * Windows: o·stride - pad + k·dilation, k < window; or ADAPTIVE, from floor(o·in/out) to ceil((o+1)·in/out).
 * Options: T; ACC; MAXIMUM; ADAPTIVE; LAST; BUILD_<kernel>. NaN is greater than all; of equal elements the first
 * counts. */
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

#ifdef BUILD_pool_forward
__kernel void pool_forward(pool_params p) {
    POSITION(p.out)
    __global const STORED(T) *x = XPU_CPTR(STORED(T), p.input);
    int start[3], end[3];
    for (int d = 0; d < 3; d++) {
        start[d] = STARTS(p, d, at[d]);
        end[d] = ENDS(p, d, at[d]);
    }
#ifdef MAXIMUM
    ACC best = -INFINITY;
    int best_at = -1;
#else
    ACC sum = 0;
#ifdef ADAPTIVE
    const int padded = 0;
#else
    int padded = 1; /* elements of the window, padding counted, that beyond the padding not */
    for (int d = 0; d < 3; d++) padded *= min(end[d], p.in[d] + p.pad[d]) - start[d];
#endif
#endif
    for (int i = 0, z = start[0]; i < p.window[0]; i++, z += STEP(p, 0)) {
        if (z < 0 || z >= min(end[0], p.in[0])) continue;
        for (int j = 0, y = start[1]; j < p.window[1]; j++, y += STEP(p, 1)) {
            if (y < 0 || y >= min(end[1], p.in[1])) continue;
            for (int k = 0, w = start[2]; k < p.window[2]; k++, w += STEP(p, 2)) {
                if (w < 0 || w >= min(end[2], p.in[2])) continue;
                const ACC v = LOAD(T, x, OFFSET(p.in, z, y, w));
#ifdef MAXIMUM
                if (best_at < 0 || v > best || v != v) {
                    best = v;
                    best_at = (z * p.in[1] + y) * p.in[2] + w;
                }
#else
                sum += v;
#endif
            }
        }
    }
    const size_t out = OFFSET(p.out, at[0], at[1], at[2]);
#ifdef MAXIMUM
    STORE(T, XPU_PTR(STORED(T), p.output), out, best);
    XPU_PTR(long, p.indices)[out] = best_at;
#else
    int inside = 1;
    for (int d = 0; d < 3; d++) inside *= max(min(end[d], p.in[d]) - max(start[d], 0), 0);
    const int divisor = p.divisor ? p.divisor : p.count_pad ? padded : inside;
    STORE(T, XPU_PTR(STORED(T), p.output), out, inside == 0 ? (ACC)0 : sum / divisor);
#endif
}
#endif

#ifdef BUILD_pool_backward
#ifndef MAXIMUM
/* What the average over window (d, h, w) divides by. */
static inline int divisor_of(pool_params p, int d, int h, int w) {
    if (p.divisor) return p.divisor;
    const int o[3] = {d, h, w};
    int n = 1;
    for (int i = 0; i < 3; i++) {
        const int start = STARTS(p, i, o[i]), end = ENDS(p, i, o[i]);
#ifdef ADAPTIVE
        n *= end - start;
#else
        n *= p.count_pad ? min(end, p.in[i] + p.pad[i]) - start : min(end, p.in[i]) - max(start, 0);
#endif
    }
    return n;
}
#endif

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
