/* Segmented reductions along a dimension: by one work-item per output, or by a row group if few outputs are
 * contiguous.
 *
 * Options: T, dtype; those of row_group.h; ACC_IS_DOUBLE; REDUCE_MAX, _MEAN, _MIN, _SUM or _PROD;
 * BUILD_<kernel>. */
#include "segment.h"
#include "row_group.h"

#ifdef ACC_IS_DOUBLE
#define INITIAL as_double(p.initial)
#else
#define INITIAL as_float((uint)p.initial)
#endif

#if defined REDUCE_MAX
#define NEUTRAL (-INFINITY)
#define COMBINE(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#elif defined REDUCE_MIN
#define NEUTRAL INFINITY
#define COMBINE(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
#elif defined REDUCE_PROD
#define NEUTRAL 1
#define COMBINE(a, b) ((a) * (b))
#else
#define NEUTRAL 0
#define COMBINE(a, b) ((a) + (b))
#endif
#if defined REDUCE_MAX || defined REDUCE_MIN
#define IS_EXTREME
#endif

typedef struct segment {
    long first, end; /* inside the data */
} segment;

static inline segment segment_of(segment_params p, ulong outer, ulong s) {
    __global const long *offsets = XPU_CPTR(long, p.offsets) + outer * (p.segments + 1) + s;
    const long first = clamp(offsets[0], 0L, (long)p.length), end = clamp(offsets[1], first, (long)p.length);
    if (first != offsets[0] || end != offsets[1]) fault_report(p.watch, FAULT_TEXT, 0, 0);
    return (segment){first, end};
}

static inline ACC element(segment_params p, ulong outer, long k, ulong inner) {
    return LOAD(T, XPU_CPTR(STORED(T), p.data), (outer * p.length + k) * p.inner + inner);
}

static inline void put(segment_params p, ulong place, segment s, ACC value) {
    value = COMBINE(p.has_initial ? INITIAL : (ACC)NEUTRAL, value);
#ifdef REDUCE_MEAN
    if (s.end > s.first)
        value /= s.end - s.first;
    else if (!p.has_initial)
        value = NAN;
#endif
    STORE(T, XPU_PTR(STORED(T), p.output), place, value);
}

/* Output k (of a work-item or a row group): its inner index, its outer index and its segment. */
#define PLACE(k)                                                                                             \
    if ((k) >= (ulong)(p.outer * p.segments * p.inner)) return;                                              \
    const ulong inner = (k) % p.inner, line = (k) / p.inner, outer = line / p.segments;                      \
    const segment s = segment_of(p, outer, line - outer * p.segments);

#ifdef BUILD_segment_each
__kernel void segment_each(segment_params p) {
    const ulong k = get_global_id(0);
    PLACE(k)
    ACC value = NEUTRAL;
    for (long i = s.first; i < s.end; i++) {
        const ACC x = element(p, outer, i, inner);
        value = COMBINE(value, x);
    }
    put(p, k, s, value);
}
#endif

#ifdef BUILD_segment_row_groups
ROW_GROUP_KERNEL void segment_row_groups(segment_params p) {
    ROW_GROUP_SCRATCH
    const ulong k = ROW_GROUP_INDEX;
    PLACE(k)
    ACC value = NEUTRAL;
    for (long i = s.first + LANE; i < s.end; i += LANES) {
        const ACC x = element(p, outer, i, inner);
        value = COMBINE(value, x);
    }
#ifdef IS_EXTREME
    const bool any_nan = ROW_GROUP_MAX((ACC)(value != value)) > 0;
#ifdef REDUCE_MAX
    value = ROW_GROUP_MAX(value);
#else
    value = -ROW_GROUP_MAX(-value);
#endif
    if (any_nan) value = NAN;
#else
    value = ROW_GROUP_SUM(value);
#endif
    if (LANE == 0) put(p, k, s, value);
}
#endif

#ifdef IS_EXTREME
/* Does the element equal its segment's maximum (minimum)? */
static inline bool is_taken(segment_params p, ACC x, ulong place) {
    return x != x || x == (ACC)LOAD(T, XPU_CPTR(STORED(T), p.output), place);
}
#endif

#ifdef BUILD_segment_ties
__kernel void segment_ties(segment_params p) {
    const ulong k = get_global_id(0);
    PLACE(k)
    int count = 0;
    for (long i = s.first; i < s.end; i++) count += is_taken(p, element(p, outer, i, inner), k);
    XPU_PTR(int, p.ties)[k] = count;
}
#endif

#ifdef BUILD_segment_backward
/* The segment that contains k; -1: none. */
static inline long segment_with(segment_params p, ulong outer, long k) {
    __global const long *offsets = XPU_CPTR(long, p.offsets) + outer * (p.segments + 1);
    long low = 0, high = p.segments + 1; /* the first offset greater than k is in low … high */
    while (low < high) {
        const long middle = low + (high - low) / 2;
        if (offsets[middle] > k)
            high = middle;
        else
            low = middle + 1;
    }
    return low <= p.segments ? low - 1 : -1;
}

__kernel void segment_backward(segment_params p) {
    const ulong i = get_global_id(0);
    if (i < (ulong)(p.outer * p.segments)) segment_of(p, i / p.segments, i % p.segments); /* reports */
    if (i >= (ulong)(p.outer * p.length * p.inner)) return;
    const ulong inner = i % p.inner, line = i / p.inner, outer = line / p.length;
    const long k = line - outer * p.length, number = segment_with(p, outer, k);
    ACC grad = 0;
    if (number >= 0) {
        const segment s = segment_of(p, outer, number);
        const ulong place = (outer * p.segments + number) * p.inner + inner;
        grad = LOAD(T, XPU_CPTR(STORED(T), p.grad_output), place);
#ifndef REDUCE_SUM
#ifdef REDUCE_MEAN
        grad /= s.end - s.first;
#else
        const ACC x = element(p, outer, k, inner);
#ifdef REDUCE_PROD
        if (x == 0 || x != x) { /* the product of all others */
            grad *= p.has_initial ? INITIAL : (ACC)1;
            for (long other = s.first; other < s.end; other++)
                if (other != k) grad *= element(p, outer, other, inner);
        } else {
            grad = grad * (ACC)LOAD(T, XPU_CPTR(STORED(T), p.output), place) / x;
        }
#else
        if (!is_taken(p, x, place))
            grad = 0;
        else if (grad > 0)
            grad /= XPU_CPTR(int, p.ties)[place];
#endif
#endif
#endif
    }
    STORE(T, XPU_PTR(STORED(T), p.grad_data), i, grad);
}
#endif
