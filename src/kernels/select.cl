/* k-th smallest elements of rows, medians, and modes.
 *
 * Algorithm: radix select. Elements map to unsigned keys with the same order; from the highest 8-bit digit
 * down, a histogram of the elements that match the prefix so far gives the next digit. Of equal elements the
 * first one is taken. NaN is greater than all other values.
 *   select_row                                one work-group per row
 *   select_count, _pick, _find, _store        several work-groups per row: count (per digit), pick (per
 *   row), find, store
 *   mode_row                                  sorted rows: the longest run; of equally long runs, the
 *   smallest value
 * Options: T, dtype, T_FLOAT; BITS of a key: 8, 16, 32 or 64; SIGNED; WHICH: 0 k-th, 1 median (NaN if the row
 * has one), 2 median of the non-NaN elements. LOCAL, work-group size. */
#include "select.h"

#define GROUP_KERNEL __attribute__((reqd_work_group_size(LOCAL, 1, 1))) __kernel
#define ITEM get_local_id(0)

#if BITS == 64
typedef ulong ordered;
#else
typedef uint ordered;
#endif
#define KEY_MAX ((ordered)(~0UL >> (64 - BITS)))
#define KEY_TOP ((ordered)(1UL << (BITS - 1)))

static inline ordered key_at(__global const STORED(T) *in, long i, bool *nan) {
    const COMPUTED(T) v = LOAD(T, in, i);
#ifdef T_FLOAT
    *nan = v != v;
    if (*nan) return KEY_MAX;
    if (v == 0) return KEY_TOP; /* -0 too */
#if BITS == 64
    const ordered u = as_ulong(v);
#elif BITS == 32
    const ordered u = as_uint(v);
#else
    const ordered u = ((__global const ushort *)in)[i];
#endif
    return u & KEY_TOP ? ~u & KEY_MAX : u | KEY_TOP;
#else
    *nan = false;
#ifdef SIGNED
    return ((ordered)v & KEY_MAX) ^ KEY_TOP;
#else
    return (ordered)v;
#endif
#endif
}

/* The rank of the requested element in a row with `nans` NaNs. */
static inline long wanted(const select_params *p, long nans) {
#if WHICH == 0
    return p->k;
#elif WHICH == 1
    return nans > 0 ? p->length - 1 : (p->length - 1) / 2;
#else
    return nans < p->length ? (p->length - nans - 1) / 2 : 0;
#endif
}

/* The digit of the k-th counted element. All work-items take part. */
static inline uint digit_of(__local uint *counts, __local uint *sums, long *k, __local long *chosen) {
    for (uint d = ITEM; d < 256; d += LOCAL) sums[d] = counts[d];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint step = 1; step < 256; step *= 2) {
        uint next[256 / LOCAL];
        for (uint d = ITEM, n = 0; d < 256; d += LOCAL, n++)
            next[n] = sums[d] + (d >= step ? sums[d - step] : 0);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint d = ITEM, n = 0; d < 256; d += LOCAL, n++) sums[d] = next[n];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (uint d = ITEM; d < 256; d += LOCAL) {
        const long before = (long)sums[d] - counts[d];
        if (*k >= before && *k < (long)sums[d]) {
            chosen[0] = d;
            chosen[1] = *k - before;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint digit = (uint)chosen[0];
    *k = chosen[1];
    barrier(CLK_LOCAL_MEM_FENCE);
    return digit;
}

/* The bits above a digit. */
static inline ordered bits_above(int shift) {
    return shift + 8 >= BITS ? 0 : KEY_MAX >> (shift + 8) << (shift + 8);
}

#ifdef BUILD_select
static inline void store_found(const select_params *p, long row, long found) {
    XPU_PTR(STORED(T), p->values)[row] = XPU_CPTR(STORED(T), p->in)[row * p->length + found];
    if (p->indices) XPU_PTR(long, p->indices)[row] = found;
}

GROUP_KERNEL void select_row(select_params p) {
    __local uint counts[SELECT_COUNTS], sums[256];
    __local long chosen[2];
    __local int found;
    const long row = XPU_GROUP(0);
    __global const STORED(T) *in = XPU_CPTR(STORED(T), p.in) + row * p.length;
    ordered prefix = 0;
    long k = 0;
    bool nan;
    if (ITEM == 0) found = INT_MAX;
    for (int shift = BITS - 8; shift >= 0; shift -= 8) {
        for (uint d = ITEM; d < SELECT_COUNTS; d += LOCAL) counts[d] = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (long i = ITEM; i < p.length; i += LOCAL) {
            const ordered key = key_at(in, i, &nan);
            if ((key & bits_above(shift)) == prefix) atomic_inc(&counts[(uint)(key >> shift) & 255]);
            if (nan && shift == BITS - 8) atomic_inc(&counts[256]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (shift == BITS - 8) k = wanted(&p, counts[256]);
        prefix |= (ordered)digit_of(counts, sums, &k, chosen) << shift;
    }
    for (long i = ITEM; i < p.length; i += LOCAL)
        if (key_at(in, i, &nan) == prefix) {
            atomic_min(&found, (int)i);
            break;
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (ITEM == 0) store_found(&p, row, found);
}

#define SPLIT                                                                                                \
    const ulong group = XPU_GROUP(0);                                                                        \
    const long row = (long)(group / p.splits), split = (long)(group - (ulong)row * p.splits);                \
    const long from = p.length * split / p.splits, to = p.length * (split + 1) / p.splits;                   \
    __global const STORED(T) *in = XPU_CPTR(STORED(T), p.in) + row * p.length;                               \
    __global select_state *state = XPU_PTR(select_state, p.states) + row;

GROUP_KERNEL void select_count(select_params p) {
    __local uint counts[SELECT_COUNTS];
    SPLIT
    const ordered above = bits_above(p.shift), prefix = above ? (ordered)state->prefix : 0;
    for (uint d = ITEM; d < SELECT_COUNTS; d += LOCAL) counts[d] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (long i = from + ITEM; i < to; i += LOCAL) {
        bool nan;
        const ordered key = key_at(in, i, &nan);
        if ((key & above) == prefix) atomic_inc(&counts[(uint)(key >> p.shift) & 255]);
        if (nan) atomic_inc(&counts[256]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    volatile __global uint *all = XPU_PTR(uint, p.counts) + row * SELECT_COUNTS;
    for (uint d = ITEM; d < SELECT_COUNTS; d += LOCAL)
        if (counts[d]) atomic_add(&all[d], counts[d]);
}

/* Resets the counts to 0 for the next digit. */
GROUP_KERNEL void select_pick(select_params p) {
    __local uint counts[SELECT_COUNTS], sums[256];
    __local long chosen[2];
    const long row = XPU_GROUP(0);
    __global uint *all = XPU_PTR(uint, p.counts) + row * SELECT_COUNTS;
    __global select_state *state = XPU_PTR(select_state, p.states) + row;
    for (uint d = ITEM; d < SELECT_COUNTS; d += LOCAL) {
        counts[d] = all[d];
        all[d] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const bool first = p.shift == BITS - 8;
    long k = first ? wanted(&p, counts[256]) : state->k;
    const ordered prefix = first ? 0 : (ordered)state->prefix;
    const uint digit = digit_of(counts, sums, &k, chosen);
    if (ITEM == 0) {
        state->prefix = prefix | (ordered)digit << p.shift;
        state->k = k;
        state->found = INT_MAX;
    }
}

GROUP_KERNEL void select_find(select_params p) {
    SPLIT
    const ordered prefix = (ordered)state->prefix;
    for (long i = from + ITEM; i < to; i += LOCAL) {
        bool nan;
        if (key_at(in, i, &nan) == prefix) {
            atomic_min((volatile __global int *)&state->found, (int)i);
            break;
        }
    }
}

__kernel void select_store(select_params p) {
    const long row = get_global_id(0);
    if (row < p.rows) store_found(&p, row, XPU_CPTR(select_state, p.states)[row].found);
}
#endif

#ifdef BUILD_mode
GROUP_KERNEL void mode_row(select_params p) {
    __local long lengths[LOCAL], starts[LOCAL];
    const long row = XPU_GROUP(0), n = p.length;
    __global const STORED(T) *in = XPU_CPTR(STORED(T), p.in) + row * n;
    long most = 0, start = 0;
    for (long i = ITEM; i < n; i += LOCAL) {
        const COMPUTED(T) v = LOAD(T, in, i);
        if (i > 0 && LOAD(T, in, i - 1) == v) continue;
        /* find the run's end by exponential search, then bisection */
        long low = i, step = 1; /* `low` is in the run */
        while (low + step < n && LOAD(T, in, low + step) == v) {
            low += step;
            step *= 2;
        }
        for (; step > 0; step /= 2)
            if (low + step < n && LOAD(T, in, low + step) == v) low += step;
        const long length = low + 1 - i;
        if (length > most) {
            most = length;
            start = i;
        }
    }
    lengths[ITEM] = most;
    starts[ITEM] = start;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_ = LOCAL / 2; half_ > 0; half_ /= 2) {
        if (ITEM < half_) {
            const long other = lengths[ITEM + half_], there = starts[ITEM + half_];
            if (other > lengths[ITEM] || (other == lengths[ITEM] && there < starts[ITEM])) {
                lengths[ITEM] = other;
                starts[ITEM] = there;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (ITEM > 0) return;
    const long last = starts[0] + lengths[0] - 1;
    XPU_PTR(STORED(T), p.values)[row] = in[last];
    XPU_PTR(long, p.indices)[row] = XPU_CPTR(long, p.order)[row * n + last];
}
#endif
