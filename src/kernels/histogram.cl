/* Histogram: counts[bin(in[i])] += 1, or += weights[i].
 *
 * Algorithm: if all LOCAL_BINS bins fit, a work-group counts in local memory and adds its counts to global
 * memory at the end; otherwise global atomics. Integer counts are deterministic; weighted sums are added in
 * any order.
 * Options: T, dtype; BY_VALUE, an element is its own bin index, otherwise bins are uniform between `low` and
 * `high`, in integers or, with REAL, in ACC; W, dtype of the weights, W_DOUBLE if double; LOCAL_BINS; LOCAL,
 * work-group size. */
#include "atomic_add.h"
#include "histogram.h"

#ifndef W
typedef uint count_t;
#define ADD_TO(space, name)                                                                                  \
    static inline void name(volatile space count_t *place, count_t v) { atomic_add(place, v); }
#ifdef LOCAL_BINS
ADD_TO(__local, add_local)
#endif
ADD_TO(__global, add_global)
#else
#ifdef W_DOUBLE
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#define WEIGHT double
#else
#define WEIGHT float
#endif
typedef WEIGHT count_t;
#ifdef LOCAL_BINS
XPU_ATOMIC_ADD(WEIGHT, __local, add_local)
#endif
XPU_ATOMIC_ADD_GLOBAL(WEIGHT, add_global)
#endif

/* The bin of v, or -1 if it is out of range. */
static inline long bin_of(const histogram_params *p, COMPUTED(T) v) {
#if defined BY_VALUE
    const long bin = (long)v;
    return (ulong)bin < (ulong)p->bins ? bin : -1;
#elif defined REAL
#ifdef ACC_IS_DOUBLE
    const double low = as_double(p->low), high = as_double(p->high), x = v;
#else
    const float low = as_float((uint)p->low), high = as_float((uint)p->high), x = v;
#endif
    if (!(x >= low && x <= high)) return -1;
    const long bin = (long)((x - low) * p->bins / (high - low));
    return min(bin, (long)p->bins - 1);
#else
    const long low = (long)p->low, high = (long)p->high, x = (long)v;
    if (x < low || x > high) return -1;
    const long bin = (x - low) * p->bins / (high - low);
    return clamp(bin, 0L, (long)p->bins - 1); /* the product may overflow */
#endif
}

__attribute__((reqd_work_group_size(LOCAL, 1, 1))) __kernel void histogram(histogram_params p) {
    __global const STORED(T) *in = XPU_CPTR(STORED(T), p.in);
    volatile __global count_t *counts = XPU_PTR(count_t, p.counts);
#ifdef LOCAL_BINS
    __local count_t here[LOCAL_BINS];
    for (long b = get_local_id(0); b < p.bins; b += LOCAL) here[b] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    for (long i = get_global_id(0); i < p.numel; i += p.step) {
        const long bin = bin_of(&p, LOAD(T, in, i));
        if (bin < 0) continue;
#ifdef W
        const count_t v = XPU_CPTR(count_t, p.weights)[i];
#else
        const count_t v = 1;
#endif
#ifdef LOCAL_BINS
        add_local(&here[bin], v);
#else
        add_global(&counts[bin], v);
#endif
    }
#ifdef LOCAL_BINS
    barrier(CLK_LOCAL_MEM_FENCE);
    for (long b = get_local_id(0); b < p.bins; b += LOCAL)
        if (here[b] != 0) add_global(&counts[b], here[b]);
#endif
}
