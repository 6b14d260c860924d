/* Stable sort of rows. Portable.
 *   sort_tiles   one work-group per tile of TILE elements: bitonic sort by (key, position), hence stable
 *   sort_merge   one work-item per element: runs of `run` become runs of 2 * run; an element finds its rank
 *                in the other run by binary search
 *   sort_store   one work-item per element of the outputs
 * Options: T, dtype; T_FLOAT; DESCENDING; ROW_DIMS; LOCAL (of sort_tiles; TILE is twice that). */
#include "sort.h"

#define TILE (2 * LOCAL)
typedef COMPUTED(T) key;

#ifdef T_FLOAT
#define ISNAN(x) ((x) != (x))
#else
#define ISNAN(x) 0
#endif
/* NaN is the greatest. */
static inline bool less(key a, key b) { return (a < b) | ((!ISNAN(a)) & ISNAN(b)); }
#ifdef DESCENDING
#define BEFORE(a, b) less(b, a)
#else
#define BEFORE(a, b) less(a, b)
#endif

/* Is element (a, i) ordered before (b, j)? Positions past the row's end are last. */
static inline bool in_order(key a, int i, key b, int j, int length) {
    if (i >= length || j >= length) return i < j;
    return BEFORE(a, b) || (!BEFORE(b, a) && i < j);
}

__attribute__((reqd_work_group_size(LOCAL, 1, 1))) __kernel void sort_tiles(sort_params p) {
    __local key keys[TILE];
    __local int positions[TILE];
    ulong tiles = ((ulong)p.length + TILE - 1) / TILE, group = XPU_GROUP(0), row = group / tiles;
    long start = (long)(group - row * tiles) * TILE;
    int item = get_local_id(0), length = (int)p.length;
    __global const STORED(T) *in = XPU_CPTR(STORED(T), p.in) + row_offset(&p.walk, row, 0);
    for (int k = item; k < TILE; k += LOCAL) {
        long at = start + k;
        positions[k] = at < p.length ? (int)at : INT_MAX - TILE + k;
        keys[k] = at < p.length ? LOAD(T, in, at * p.walk.along[0]) : (key)0;
    }
    for (int size = 2; size <= TILE; size *= 2) {
        for (int step = size / 2; step > 0; step /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            int a = 2 * item - (item & (step - 1)), b = a + step;
            bool up = (a & size) == 0 || size == TILE;
            key x = keys[a], y = keys[b];
            int i = positions[a], j = positions[b];
            if (in_order(x, i, y, j, length) != up) {
                keys[a] = y;
                keys[b] = x;
                positions[a] = j;
                positions[b] = i;
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __global STORED(T) *keys_out = XPU_PTR(STORED(T), p.keys[1]) + row * (ulong)p.length;
    __global int *places_out = XPU_PTR(int, p.positions[1]) + row * (ulong)p.length;
    for (int k = item; k < TILE && start + k < p.length; k += LOCAL) {
        STORE(T, keys_out, start + k, keys[k]);
        places_out[start + k] = positions[k];
    }
}

/* Number of the `n` sorted keys that are less than `k`, or less than or equal if `and_equal`. */
static inline long rank_of(__global const STORED(T) *keys, long n, key k, bool and_equal) {
    long low = 0, high = n;
    while (low < high) {
        long middle = (low + high) / 2;
        key m = LOAD(T, keys, middle);
        bool comes_first = and_equal ? !BEFORE(k, m) : BEFORE(m, k);
        low = comes_first ? middle + 1 : low;
        high = comes_first ? high : middle;
    }
    return low;
}

__kernel void sort_merge(sort_params p) {
    ulong element = XPU_GROUP(0) * get_local_size(0) + get_local_id(0);
    if (element >= (ulong)p.walk.rows * (ulong)p.length) return;
    ulong row = element / (ulong)p.length;
    long at = (long)(element - row * (ulong)p.length);
    __global const STORED(T) *keys = XPU_CPTR(STORED(T), p.keys[0]) + row * (ulong)p.length;
    long left = at / (2 * p.run) * (2 * p.run), right = left + p.run, end = min(right + p.run, p.length);
    key k = LOAD(T, keys, at);
    long to = at;
    if (right < p.length)
        to = at < right ? at + rank_of(keys + right, end - right, k, false)
                        : left + (at - right) + rank_of(keys + left, p.run, k, true);
    STORE(T, XPU_PTR(STORED(T), p.keys[1]) + row * (ulong)p.length, to, k);
    XPU_PTR(int, p.positions[1])[row * (ulong)p.length + to] = XPU_CPTR(int, p.positions[0])[element];
}

__kernel void sort_store(sort_params p) {
    ulong element = XPU_GROUP(0) * get_local_size(0) + get_local_id(0);
    if (element >= (ulong)p.walk.rows * (ulong)p.count) return;
    ulong row = element / (ulong)p.count;
    long k = (long)(element - row * (ulong)p.count);
    ulong from = row * (ulong)p.length + (ulong)(p.first + k);
    STORE(T, XPU_PTR(STORED(T), p.values) + row_offset(&p.walk, row, 1), k * p.walk.along[1],
          LOAD(T, XPU_CPTR(STORED(T), p.keys[0]), from));
    // clang-format off
    XPU_PTR(long, p.indices)
        [row_offset(&p.walk, row, 2) + k * p.walk.along[2]] = XPU_CPTR(int, p.positions[0])[from];
    // clang-format on
}
