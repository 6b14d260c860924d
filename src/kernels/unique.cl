/* Unique elements, or unique rows of a matrix, of sorted input.
 *   unique_tiles, unique_merge   sort rows lexicographically (positions only). Stable; NaN is greater than
 *                                all others
 *   unique_heads                 ids[i] = does sorted row i differ from row i - 1? 0 for the first: the
 *                                inclusive scan gives the ids. NaN differs from NaN
 *   unique_store                 stores each row's id at the row's original position, and the first row of
 *                                each id
 *   unique_counts                number of rows of each id
 * Options: T, dtype; T_FLOAT; LOCAL, work-group size of unique_tiles; a tile has 2 * LOCAL rows. */
#include "unique.h"

#define TILE (2 * LOCAL)
typedef COMPUTED(T) value_t;
#ifdef T_FLOAT
#define ISNAN(x) ((x) != (x))
#else
#define ISNAN(x) 0
#endif

/* -1, 0 or 1: row a is less than, equal to or greater than row b. */
static inline int compared(const unique_params *p, long a, long b) {
    __global const STORED(T) *in = XPU_CPTR(STORED(T), p->in);
    for (long k = 0; k < p->width; k++) {
        const value_t x = LOAD(T, in, a * p->width + k), y = LOAD(T, in, b * p->width + k);
        if (x < y || (!ISNAN(x) && ISNAN(y))) return -1;
        if (y < x || (ISNAN(x) && !ISNAN(y))) return 1;
    }
    return 0;
}

/* Is row a ordered before row b? Positions past the end are last. */
static inline bool in_order(const unique_params *p, int a, int b) {
    if (a >= p->rows || b >= p->rows) return a < b;
    const int c = compared(p, a, b);
    return c < 0 || (c == 0 && a < b);
}

__attribute__((reqd_work_group_size(LOCAL, 1, 1))) __kernel void unique_tiles(unique_params p) {
    __local int positions[TILE];
    const long start = (long)XPU_GROUP(0) * TILE;
    const int item = get_local_id(0);
    for (int k = item; k < TILE; k += LOCAL)
        positions[k] = (int)(start + k < p.rows ? start + k : INT_MAX - TILE + k);
    for (int size = 2; size <= TILE; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            const int a = 2 * item - (item & (step - 1)), b = a + step;
            const bool up = (a & size) == 0 || size == TILE;
            const int i = positions[a], j = positions[b];
            if (in_order(&p, i, j) != up) {
                positions[a] = j;
                positions[b] = i;
            }
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = item; k < TILE && start + k < p.rows; k += LOCAL)
        XPU_PTR(int, p.positions[1])[start + k] = positions[k];
}

/* Number of the `n` sorted rows that are less than row `r`, or less than or equal if `and_equal`. */
static inline long rank_of(const unique_params *p, __global const int *positions, long n, int r,
                           bool and_equal) {
    long low = 0, high = n;
    while (low < high) {
        const long middle = (low + high) / 2;
        const int c = compared(p, positions[middle], r);
        const bool first = c < 0 || (and_equal && c == 0);
        low = first ? middle + 1 : low;
        high = first ? high : middle;
    }
    return low;
}

__kernel void unique_merge(unique_params p) {
    const long at = get_global_id(0);
    if (at >= p.rows) return;
    __global const int *positions = XPU_CPTR(int, p.positions[0]);
    const long left = at / (2 * p.run) * (2 * p.run), right = left + p.run,
               end = min(right + (long)p.run, (long)p.rows);
    const int r = positions[at];
    long to = at;
    if (right < p.rows)
        to = at < right ? at + rank_of(&p, positions + right, end - right, r, false)
                        : left + (at - right) + rank_of(&p, positions + left, p.run, r, true);
    XPU_PTR(int, p.positions[1])[to] = r;
}

__kernel void unique_widen(unique_params p) {
    const long i = get_global_id(0);
    if (i < p.rows) XPU_PTR(long, p.order)[i] = XPU_CPTR(int, p.positions[0])[i];
}

/* The i-th row in sorted order. */
static inline long row_at(const unique_params *p, long i) {
    return p->order && !p->in_order ? XPU_CPTR(long, p->order)[i] : i;
}

__kernel void unique_heads(unique_params p) {
    const long i = get_global_id(0);
    if (i >= p.rows) return;
    bool differs = false;
    if (i > 0) {
        __global const STORED(T) *in = XPU_CPTR(STORED(T), p.in);
        const long a = row_at(&p, i - 1), b = row_at(&p, i);
        for (long k = 0; k < p.width && !differs; k++)
            differs = LOAD(T, in, a * p.width + k) != LOAD(T, in, b * p.width + k);
    }
    XPU_PTR(long, p.ids)[i] = differs;
}

__kernel void unique_store(unique_params p) {
    const long i = get_global_id(0);
    if (i >= p.rows) return;
    __global const long *ids = XPU_CPTR(long, p.ids);
    const long number = ids[i];
    if (p.inverse) XPU_PTR(long, p.inverse)[p.order ? XPU_CPTR(long, p.order)[i] : i] = number;
    if (i > 0 && ids[i - 1] == number) return;
    if (p.first) XPU_PTR(long, p.first)[number] = i;
    const long row = row_at(&p, i);
    for (long k = 0; k < p.width && p.out; k++)
        XPU_PTR(STORED(T), p.out)[number * p.width + k] = XPU_CPTR(STORED(T), p.in)[row * p.width + k];
}

__kernel void unique_counts(unique_params p) {
    const long k = get_global_id(0);
    if (k >= p.unique_count) return;
    __global const long *first = XPU_CPTR(long, p.first);
    XPU_PTR(long, p.counts)[k] = (k + 1 < p.unique_count ? first[k + 1] : p.rows) - first[k];
}
