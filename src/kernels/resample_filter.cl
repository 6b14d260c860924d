/* Antialiased resampling along one dimension: the filter is stretched to the width of an output position in
 * the input. Output position o is centered at scale * (o + 1/2); input position i has the weight filter((i +
 * 1/2 - center) / s) with s = max(scale, 1). Weights are divided by their sum, which is smaller at the
 * borders.
 *
 * Options: SRC, DST, dtypes; DST_BYTE, DST is uint8; ACC, type computed in (ACC_IS_DOUBLE); INNER, dimension
 * 0 of the range runs along `inner` instead of along the resampled dimension; FILTER_LINEAR, FILTER_CUBIC or
 * FILTER_LANCZOS; BUILD_<kernel>. */
#include "resample_filter.h"

#define SCALE ((ACC)p.scale + (ACC)p.scale_rest)
#ifdef DST_BYTE
#define ROUNDED(v) convert_uchar_sat_rte(v)
#else
#define ROUNDED(v) (v)
#endif

#if defined FILTER_LINEAR
#define SUPPORT 1
static inline ACC filter(ACC x) { return fmax(1 - fabs(x), (ACC)0); }
#elif defined FILTER_CUBIC
#define SUPPORT 2
/* Keys' cubic convolution kernel with a = -1/2. */
static inline ACC filter(ACC x) {
    x = fabs(x);
    return x < 1   ? ((ACC)1.5f * x - (ACC)2.5f) * x * x + 1
           : x < 2 ? (((ACC)-0.5f * x + (ACC)2.5f) * x - 4) * x + 2
                   : (ACC)0;
}
#else
#define SUPPORT 3
#ifdef ACC_IS_DOUBLE
#define PI M_PI
#else
#define PI M_PI_F
#endif
/* Lanczos-3: sinc(x) sinc(x / 3). */
static inline ACC filter(ACC x) {
    x = fabs(x);
    if (x >= 3) return 0;
    const ACC pi_x = x * PI;
    return x == 0 ? (ACC)1 : sinpi(x) * sinpi(x / 3) * 3 / (pi_x * pi_x);
}
#endif

typedef struct span {
    int first, end;     /* input positions with a nonzero weight */
    ACC middle, shrink; /* position i's weight is filter((i - middle) · shrink) */
} span;

static inline span span_of(resample_filter_params p, int o) {
    const ACC scale = SCALE, center = scale * (o + (ACC)0.5f);
    const ACC reach = scale >= 1 ? SUPPORT * scale : (ACC)SUPPORT;
    span s;
    s.first = max((int)(center - reach + (ACC)0.5f), 0);
    s.end = min((int)(center + reach + (ACC)0.5f), p.in);
    s.middle = center - (ACC)0.5f;
    s.shrink = scale >= 1 ? 1 / scale : (ACC)1;
    return s;
}
#define WEIGHT(s, i) filter(((i) - s.middle) * s.shrink)

/* Declares the work-item's position `along` in the dimension of `size`, and its rows of SRC and DST. */
#ifdef INNER
#define PLACE(size, other)                                                                                   \
    const size_t lane = get_global_id(0), row = get_global_id(1);                                            \
    if (lane >= (size_t)p.inner || row >= (size_t)(p.outer * size)) return;                                  \
    const int along = row % size;                                                                            \
    const size_t outer = row / size, inner = p.inner;                                                        \
    __global const STORED(SRC) *from = XPU_CPTR(STORED(SRC), p.from) + outer * other * inner + lane;         \
    __global STORED(DST) *to = XPU_PTR(STORED(DST), p.to) + row * inner + lane;
#else
#define PLACE(size, other)                                                                                   \
    const size_t outer = get_global_id(1), inner = 1;                                                        \
    const int along = get_global_id(0);                                                                      \
    if (along >= size || outer >= (size_t)p.outer) return;                                                   \
    __global const STORED(SRC) *from = XPU_CPTR(STORED(SRC), p.from) + outer * other;                        \
    __global STORED(DST) *to = XPU_PTR(STORED(DST), p.to) + outer * size + along;
#endif

#ifdef BUILD_filter_forward
__kernel void filter_forward(resample_filter_params p) {
    PLACE(p.out, p.in)
    const span s = span_of(p, along);
    ACC sum = 0, total = 0;
    for (int i = s.first; i < s.end; i++) {
        const ACC weight = WEIGHT(s, i);
        total += weight;
        sum += weight * (ACC)LOAD(SRC, from, i * inner);
    }
    STORE(DST, to, 0, ROUNDED(total != 0 ? sum / total : sum));
}
#endif

#ifdef BUILD_filter_totals
__kernel void filter_totals(resample_filter_params p) {
    const int o = get_global_id(0);
    if (o >= p.out) return;
    const span s = span_of(p, o);
    ACC total = 0;
    for (int i = s.first; i < s.end; i++) total += WEIGHT(s, i);
    XPU_PTR(ACC, p.totals)[o] = total != 0 ? total : (ACC)1;
}
#endif

#ifdef BUILD_filter_backward
/* Gathers: an input position visits the output positions that may have read it. */
__kernel void filter_backward(resample_filter_params p) {
    PLACE(p.in, p.out)
    __global const ACC *totals = XPU_CPTR(ACC, p.totals);
    int o = 0, end = p.out;
    if (SCALE > 0) {
        const float scale = p.scale, reach = (scale >= 1 ? SUPPORT * scale : SUPPORT) + 2;
        o = clamp((int)((along - reach) / scale) - 2, 0, end);
        end = min((int)fmin((along + reach) / scale + 3, (float)end), end);
    }
    ACC sum = 0;
    for (; o < end; o++) {
        const span s = span_of(p, o);
        if (along < s.first || along >= s.end) continue;
        sum += WEIGHT(s, along) / totals[o] * (ACC)LOAD(SRC, from, o * inner);
    }
    STORE(DST, to, 0, sum);
}
#endif
