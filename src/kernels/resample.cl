/* Resampling by nearest, (bi-, tri-)linear and (bi)cubic interpolation, and padding by reflection or
 * replication; and the gradients. Backward gathers: an input position visits the output positions that may
 * have read it.
 *
 * An output position reads, in each dimension, TAPS input positions with weights.
 * Options: T, dtype; ACC, type of the weights; LAST (position.h); one of NEAREST, NEAREST_EXACT, LINEAR,
 * CUBIC, REFLECT, REPLICATE; BUILD_<kernel>. */
#include "resample.h"
#include "position.h"

#if defined LINEAR
#define TAPS 2
#define RADIUS 1
#elif defined CUBIC
#define TAPS 4
#define RADIUS 2
#else
#define TAPS 1
#define RADIUS 1
#endif

#define SCALE(p, d) ((ACC)p.scale[d] + (ACC)p.scale_rest[d])

/* The input coordinate of output position o in dimension d. */
static inline ACC source(resample_params p, int d, int o) {
    if (p.align_corners) return SCALE(p, d) * o;
    const ACC x = SCALE(p, d) * (o + (ACC)0.5f) - (ACC)0.5f;
#ifdef CUBIC
    return x;
#else
    return x < 0 ? (ACC)0 : x;
#endif
}

#ifdef CUBIC
/* Keys' cubic convolution kernel with a = -3/4: distances up to 1, and from 1 to 2. */
#define NEAR(x) (((ACC)1.25f * (x) - (ACC)2.25f) * (x) * (x) + 1)
#define FAR(x) ((((ACC) - 0.75f * (x) + (ACC)3.75f) * (x) - 6) * (x) + 3)
#endif

/* The input positions and weights of output position o. */
static inline void taps(resample_params p, int d, int o, int *at, ACC *weight) {
    const int last = p.in[d] - 1;
    weight[0] = 1;
#if defined NEAREST
    at[0] = min((int)floor(o * p.scale[d]), last);
#elif defined NEAREST_EXACT
    at[0] = min((int)floor((o + 0.5f) * p.scale[d]), last);
#elif defined REFLECT
    int i = abs(o - p.before[d]);
    at[0] = i > last ? 2 * last - i : i;
#elif defined REPLICATE
    at[0] = clamp(o - p.before[d], 0, last);
#elif defined LINEAR
    const ACC x = source(p, d, o);
    at[0] = min((int)x, last);
    at[1] = min(at[0] + 1, last);
    weight[1] = x - at[0];
    weight[0] = 1 - weight[1];
#else
    const ACC x = source(p, d, o), below = floor(x), t = x - below;
    for (int k = 0; k < TAPS; k++) at[k] = clamp((int)below - 1 + k, 0, last);
    weight[0] = FAR(t + 1);
    weight[1] = NEAR(t);
    weight[2] = NEAR(1 - t);
    weight[3] = FAR(2 - t);
#endif
}
/* A dimension of size 1 in input and output has one tap in every mode. */
#define TAP_COUNT(p, d) (p.in[d] == 1 && p.out[d] == 1 ? 1 : TAPS)
#define DIMENSION_TAPS(d, at, weight)                                                                        \
    int at[TAPS];                                                                                            \
    ACC weight[TAPS];                                                                                        \
    if (TAP_COUNT(p, d) == 1 && TAPS > 1) {                                                                  \
        at[0] = 0;                                                                                           \
        weight[0] = 1;                                                                                       \
    } else {                                                                                                 \
        taps(p, d, position[d], at, weight);                                                                 \
    }

#ifdef BUILD_resample_forward
__kernel void resample_forward(resample_params p) {
    POSITION(p.out)
    const int *position = at;
    __global const STORED(T) *x = XPU_CPTR(STORED(T), p.input);
    DIMENSION_TAPS(0, at_d, weight_d)
    DIMENSION_TAPS(1, at_h, weight_h)
    DIMENSION_TAPS(2, at_w, weight_w)
#if TAPS == 1
    const COMPUTED(T) sum = LOAD(T, x, OFFSET(p.in, at_d[0], at_h[0], at_w[0])); /* infinities and NaN too */
#else
    ACC sum = 0;
    for (int i = 0; i < TAP_COUNT(p, 0); i++)
        for (int j = 0; j < TAP_COUNT(p, 1); j++) {
            ACC line = 0;
            for (int k = 0; k < TAP_COUNT(p, 2); k++)
                line += weight_w[k] * (ACC)LOAD(T, x, OFFSET(p.in, at_d[i], at_h[j], at_w[k]));
            sum += weight_d[i] * weight_h[j] * line;
        }
#endif
    STORE(T, XPU_PTR(STORED(T), p.output), OFFSET(p.out, at[0], at[1], at[2]), sum);
}
#endif

#ifdef BUILD_resample_backward
/* The weight of input position i in output position o. */
static inline ACC weight_of(resample_params p, int d, int o, int i) {
    if (p.in[d] == 1 && p.out[d] == 1) return 1;
    int at[TAPS];
    ACC weight[TAPS], sum = 0;
    taps(p, d, o, at, weight);
    for (int k = 0; k < TAPS; k++) sum += at[k] == i ? weight[k] : (ACC)0;
    return sum;
}

/* A range of output positions that includes all that read input position i. */
static inline int2 takers(resample_params p, int d, int i) {
    const int last = p.in[d] - 1;
#if defined REFLECT || defined REPLICATE
    return (int2)(0, p.out[d]);
#else
    if (p.scale[d] <= 0) return (int2)(0, p.out[d]);
    const float first = (i - RADIUS) / p.scale[d] - 2, end = (i + RADIUS + 1) / p.scale[d] + 3;
    /* Positions beyond the ends are clamped to them. */
    return (int2)(i <= RADIUS || first < 0 ? 0 : (int)first,
                  i >= last - RADIUS + 1 || end > p.out[d] ? p.out[d] : (int)end);
#endif
}

/* The output positions that padding may have filled from position i: the position itself and its mirror
 * images or copies. */
#if defined REFLECT
#define EACH_TAKER(d, o, i, BODY)                                                                            \
    for (int image_ = 0; image_ < 3; image_++) {                                                             \
        const int o =                                                                                        \
            image_ == 0 ? (i) + p.before[d] : p.before[d] + (image_ == 1 ? -(i) : 2 * (p.in[d] - 1) - (i));  \
        if (o < 0 || o >= p.out[d] || (image_ == 1 && (i) == 0) || (image_ == 2 && (i) == p.in[d] - 1))      \
            continue;                                                                                        \
        BODY                                                                                                 \
    }
#elif defined REPLICATE
#define EACH_TAKER(d, o, i, BODY)                                                                            \
    for (int o = (i) == 0 ? 0 : max((i) + p.before[d], 0),                                                   \
             end_ = (i) == p.in[d] - 1 ? p.out[d] : min((i) + p.before[d] + 1, p.out[d]);                    \
         o < end_; o++) {                                                                                    \
        BODY                                                                                                 \
    }
#else
#define EACH_TAKER(d, o, i, BODY)                                                                            \
    for (int2 range_ = takers(p, d, i); range_.x < range_.y; range_.x++) {                                   \
        const int o = range_.x;                                                                              \
        BODY                                                                                                 \
    }
#endif

__kernel void resample_backward(resample_params p) {
    POSITION(p.in)
    __global const STORED(T) *dy = XPU_CPTR(STORED(T), p.output);
    COMPUTED(T) sum = 0;
    EACH_TAKER(0, od, at[0], {
        const ACC weight_d = weight_of(p, 0, od, at[0]);
        if (weight_d != 0)
            EACH_TAKER(1, oh, at[1], {
                const ACC weight_h = weight_of(p, 1, oh, at[1]) * weight_d;
                if (weight_h != 0)
                    EACH_TAKER(2, ow, at[2], {
                        const ACC weight = weight_of(p, 2, ow, at[2]) * weight_h;
                        if (weight != 0) sum += weight * LOAD(T, dy, OFFSET(p.out, od, oh, ow));
                    })
            })
    })
    STORE(T, XPU_PTR(STORED(T), p.input), OFFSET(p.in, at[0], at[1], at[2]), sum);
}
#endif
