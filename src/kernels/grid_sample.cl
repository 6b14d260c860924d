/* Samples an image at the positions of a grid, and the gradients. One work-item per grid position, for all
 * channels.
 *
 * In each dimension a position has TAPS neighbors with interpolation weights; the sample is the sum over the
 * products.
 * Options: T, dtype; ACC, type computed in; DIMS=2 or 3; one of LINEAR, NEAREST, CUBIC; one of ZEROS, BORDER,
 * REFLECTION (padding mode); BUILD_<kernel>. */
#include "atomic_add.h"
#include "grid_sample.h"

#if defined(BUILD_grid_sample_backward) && defined(ACC_IS_DOUBLE)
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif

#if defined LINEAR
#define TAPS 2
#elif defined CUBIC
#define TAPS 4
#else
#define TAPS 1
#endif
#if DIMS == 3
#define CORNERS (TAPS * TAPS * TAPS)
#else
#define CORNERS (TAPS * TAPS)
#endif

/* Applies the padding mode to coordinate x of an image of `size` elements; multiplies *slope by the
 * derivative. */
static inline ACC bring_in(grid_sample_params p, ACC x, int size, ACC *slope) {
#if defined REFLECTION
    const ACC low = p.align_corners ? (ACC)0 : (ACC)-0.5f,
              span = p.align_corners ? (ACC)(size - 1) : (ACC)size;
    if (span == 0) {
        *slope = 0;
        return 0;
    }
    ACC from_low = x - low, sign = 1;
    if (from_low < 0) {
        from_low = -from_low;
        sign = -1;
    }
    const ACC turns = floor(from_low / span), rest = from_low - turns * span;
    const bool back = turns - 2 * floor(turns / 2) != 0;
    x = (back ? span - rest : rest) + low;
    *slope *= back ? -sign : sign;
#endif
#if defined REFLECTION || defined BORDER
    const ACC last = (ACC)(size - 1);
    if (!(x > 0)) { /* NaN too */
        *slope = 0;
        return 0;
    }
    if (x >= last) {
        *slope = 0;
        return last;
    }
#endif
    return x;
}

/* The taps of coordinate g in dimension d: positions (-1: outside), weights, and the weights' derivatives
 * with respect to g. Returns false for a NaN or infinite g with CUBIC: then the sample is NaN, and so is the
 * gradient of the element that padding maps g to, as on CUDA. */
static inline bool taps(grid_sample_params p, int d, ACC g, int *at, ACC *weight, ACC *derivative) {
    const int size = p.in[d];
    ACC slope = p.align_corners ? (ACC)0.5f * (size - 1) : (ACC)0.5f * size;
    ACC x = p.align_corners ? (g + 1) * slope : (g + 1) * slope - (ACC)0.5f;
#ifdef CUBIC
    if (!isfinite(x)) {
#if defined REFLECTION || defined BORDER
        const int place = (int)bring_in(p, x, size, &slope);
#else
        const int place = -1;
#endif
        for (int k = 0; k < TAPS; k++) {
            at[k] = place;
            weight[k] = derivative[k] = NAN;
        }
        return false;
    }
    x = clamp(x, (ACC)-1e9f, (ACC)1e9f);
#else
    x = bring_in(p, x, size, &slope);
    if (!(fabs(x) < (ACC)1e9f)) x = -100; /* far outside, or NaN */
#endif
#if defined NEAREST
    at[0] = (int)rint(x);
    weight[0] = 1;
    derivative[0] = 0;
#elif defined LINEAR
    const ACC below = floor(x), t = x - below;
    at[0] = (int)below;
    at[1] = at[0] + 1;
    weight[0] = 1 - t;
    weight[1] = t;
    derivative[0] = -slope;
    derivative[1] = slope;
#else
    const ACC below = floor(x), t = x - below, a = (ACC)-0.75f;
    for (int k = 0; k < TAPS; k++) { /* Keys' cubic convolution kernel: distances up to 1, and from 1 to 2 */
        const ACC away = fabs(t + 1 - k), sign = t + 1 - k < 0 ? -slope : slope;
        const bool near = k == 1 || k == 2;
        weight[k] = near ? ((a + 2) * away - (a + 3)) * away * away + 1
                         : ((a * away - 5 * a) * away + 8 * a) * away - 4 * a;
        derivative[k] = sign * (near ? (3 * (a + 2) * away - 2 * (a + 3)) * away
                                     : (3 * a * away - 10 * a) * away + 8 * a);
        ACC ignored = 1;
        at[k] = (int)rint(bring_in(p, below + (k - 1), size, &ignored));
    }
#endif
    for (int k = 0; k < TAPS; k++)
        if (at[k] < 0 || at[k] >= size) at[k] = -1;
    return true;
}

/* The taps of this work-item's position in each coordinate (x, y, z). It reads CORNERS elements; element k
 * has tap k % TAPS in x, k / TAPS % TAPS in y, and so on. */
typedef struct corners {
    long batch, position; /* in the batch */
    int at[DIMS][TAPS];
    ACC weight[DIMS][TAPS], derivative[DIMS][TAPS];
    ACC begin; /* of a sum over them: 0, or NaN */
} corners;

static inline corners corners_of(grid_sample_params p, long i) {
    corners c;
    const long plane = (long)p.out[0] * p.out[1] * p.out[2];
    c.batch = i / plane;
    c.position = i - c.batch * plane;
    c.begin = 0;
    for (int d = 0; d < DIMS; d++)
        if (!taps(p, 2 - d, (ACC)LOAD(T, XPU_CPTR(STORED(T), p.grid), i * DIMS + d), c.at[d], c.weight[d],
                  c.derivative[d]))
            c.begin = NAN;
    return c;
}

/* Corner k's offset in the plane, or -1 outside. */
static inline long offset_of(grid_sample_params p, const corners *c, int k) {
    const int x = c->at[0][k % TAPS], y = c->at[1][k / TAPS % TAPS];
#if DIMS == 3
    const int z = c->at[2][k / TAPS / TAPS];
#else
    const int z = 0;
#endif
    return x < 0 || y < 0 || z < 0 ? -1 : ((long)z * p.in[1] + y) * p.in[2] + x;
}

/* Its weight, or the weight's derivative by coordinate `along`. */
static inline ACC weight_of(const corners *c, int k, int along) {
    const int tap[3] = {k % TAPS, k / TAPS % TAPS, k / TAPS / TAPS};
    ACC v = 1;
    for (int d = 0; d < DIMS; d++) v *= d == along ? c->derivative[d][tap[d]] : c->weight[d][tap[d]];
    return v;
}

#ifdef BUILD_grid_sample_forward
__kernel void grid_sample_forward(const grid_sample_params p) {
    const long i = get_global_id(0);
    if (i >= p.positions) return;
    const corners c = corners_of(p, i);
    const long in_plane = (long)p.in[0] * p.in[1] * p.in[2], out_plane = (long)p.out[0] * p.out[1] * p.out[2];
    long at[CORNERS];
    ACC weight[CORNERS];
    for (int k = 0; k < CORNERS; k++) {
        at[k] = offset_of(p, &c, k);
        weight[k] = weight_of(&c, k, -1);
    }
    for (long channel = 0; channel < p.channels; channel++) {
        const long from = (c.batch * p.channels + channel) * in_plane;
        ACC sum = c.begin;
        for (int k = 0; k < CORNERS; k++)
            if (at[k] >= 0) sum += weight[k] * (ACC)LOAD(T, XPU_CPTR(STORED(T), p.input), from + at[k]);
        STORE(T, XPU_PTR(STORED(T), p.output), (c.batch * p.channels + channel) * out_plane + c.position,
              sum);
    }
}
#endif

#ifdef BUILD_grid_sample_backward
XPU_ATOMIC_ADD_GLOBAL(ACC, add)

__kernel void grid_sample_backward(const grid_sample_params p) {
    const long i = get_global_id(0);
    if (i >= p.positions) return;
    const corners c = corners_of(p, i);
    const long in_plane = (long)p.in[0] * p.in[1] * p.in[2], out_plane = (long)p.out[0] * p.out[1] * p.out[2];
    ACC grad_grid[3] = {c.begin, c.begin, c.begin};
    for (int k = 0; k < CORNERS; k++) {
        const long at = offset_of(p, &c, k);
        if (at < 0) continue;
        const ACC weight = weight_of(&c, k, -1);
        ACC sum = 0; /* over channels, of gradient times element */
        for (long channel = 0; channel < p.channels; channel++) {
            const long plane = c.batch * p.channels + channel;
            const ACC g = (ACC)LOAD(T, XPU_CPTR(STORED(T), p.output), plane * out_plane + c.position);
            sum += g * (ACC)LOAD(T, XPU_CPTR(STORED(T), p.input), plane * in_plane + at);
            if (p.grad_input) add(XPU_PTR(ACC, p.grad_input) + plane * in_plane + at, g * weight);
        }
        for (int d = 0; d < DIMS; d++) grad_grid[d] += sum * weight_of(&c, k, d);
    }
    for (int d = 0; d < DIMS; d++) STORE(T, XPU_PTR(STORED(T), p.grad_grid), i * DIMS + d, grad_grid[d]);
}
#endif
