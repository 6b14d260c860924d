/* Binary search, one work-item per value.
 *   search      out = number of elements of the sorted sequence that are less than the value; with `right`,
 *               less or equal. NaN is greater than all other values.
 *   repeat      out = number of `ends` that are not greater than the work-item's index. Reported: an end less
 *               than the one before it, and a last end other than the count.
 *   is_member   out = is the value in the sequence? (`right`: is it not?)
 * Options: T, dtype; OUT, dtype of the positions. */
#include "search.h"

typedef COMPUTED(T) value_t;

/* The position in memory of the i-th smallest element of the sequence. */
static inline long place(__global const long *sorter, long i) { return sorter ? sorter[i] : i; }

static inline long search_for(const search_params *p, value_t v, ulong row, bool right) {
    const ulong start = p->one ? 0 : row * (ulong)p->length;
    __global const STORED(T) *sequence = XPU_CPTR(STORED(T), p->sequence) + start;
    __global const long *sorter = p->sorter ? XPU_CPTR(long, p->sorter) + start : 0;
    long low = 0, high = p->length;
    while (low < high) {
        const long middle = low + (high - low) / 2;
        const value_t m = LOAD(T, sequence, place(sorter, middle));
        const bool before = right ? !(m > v) : !(m >= v);
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return low;
}

#ifdef OUT
__kernel void search(search_params p) {
    const ulong i = get_global_id(0);
    if (i >= (ulong)p.count) return;
    const value_t v = LOAD(T, XPU_CPTR(STORED(T), p.values), i);
    STORE(OUT, XPU_PTR(STORED(OUT), p.out), i,
          (COMPUTED(OUT))search_for(&p, v, p.one ? 0 : i / (ulong)p.a_row, p.right));
}
#ifdef REPEAT
__kernel void repeat(search_params p) {
    const ulong i = get_global_id(0);
    __global const long *ends = XPU_CPTR(long, p.sequence);
    if (i < (ulong)p.length && ends[i] < (i ? ends[i - 1] : 0L)) fault_report(p.falls, FAULT_TEXT, 0, 0);
    if (i == 0 && ends[p.length - 1] != p.count) fault_report(p.differs, FAULT_TEXT, 0, 0);
    if (i >= (ulong)p.count) return;
    /* decreasing ends: clamp to a valid position */
    STORE(OUT, XPU_PTR(STORED(OUT), p.out), i,
          (COMPUTED(OUT))min(search_for(&p, (value_t)i, 0, true), (long)p.length - 1));
}
#endif
#else
__kernel void is_member(search_params p) {
    const ulong i = get_global_id(0);
    if (i >= (ulong)p.count) return;
    const value_t v = LOAD(T, XPU_CPTR(STORED(T), p.values), i);
    const long at = search_for(&p, v, 0, false);
    const bool found = at < p.length && LOAD(T, XPU_CPTR(STORED(T), p.sequence), at) == v;
    XPU_PTR(uchar, p.out)[i] = found != (p.right != 0);
}
#endif
