/* nonzero_count: counts[w] = number of nonzero elements in chunk w. nonzero_write: with counts[w] scanned to
 * the number before chunk w, writes the coordinates of every nonzero element to out[index][dimension] (any
 * strides, in elements), the last dimension fastest. Rows from `limit` on are not written.
 *
 * One work-item per chunk. Options: T, dtype; KIND_c for complex; DIMS=0…16. */
#include "index.h"

typedef STORED(T) stored;

#if defined(KIND_c)
#define NONZERO(i) (LOAD(T, in, i).x != 0 || LOAD(T, in, i).y != 0)
#else
#define NONZERO(i) (LOAD(T, in, i) != 0)
#endif

__kernel void nonzero_count(struct nonzero_params p) {
    const long w = get_global_id(0), first = w * p.chunk;
    if (first >= p.numel) return;
    const long last = min(first + p.chunk, p.numel);
    __global const stored *in = XPU_CPTR(stored, p.in);
    int count = 0;
    for (long i = first; i < last; i++) count += NONZERO(i);
    XPU_PTR(long, p.counts)[w] = count;
}

__kernel void nonzero_write(struct nonzero_params p) {
    const long w = get_global_id(0), first = w * p.chunk;
    if (first >= p.numel) return;
    const long last = min(first + p.chunk, p.numel);
    __global const stored *in = XPU_CPTR(stored, p.in);
    long row = XPU_CPTR(long, p.counts)[w];
    for (long i = first; i < last && row < p.limit; i++) {
        if (!NONZERO(i)) continue;
        __global long *out = XPU_PTR(long, p.out) + row++ * p.row_stride;
#if DIMS == 1
        out[0] = i;
#else
        long rest = i;
        for (int d = DIMS - 1; d > 0; d--) {
            const long q = (long)((ulong)rest / (ulong)p.size[d]);
            out[d * p.column_stride] = rest - q * p.size[d];
            rest = q;
        }
        if (DIMS > 0) out[0] = rest;
#endif
    }
}
