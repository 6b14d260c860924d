/* Parameters of the kernels that follow index tensors (index.cl, scatter.cl, nonzero.cl), and their walk over
 * the elements. */
#ifndef XPU_KERNELS_INDEX_H
#define XPU_KERNELS_INDEX_H
#include "fault.h"

#define INDEX_DIMS 8
#define INDEX_MAX 6

/* All strides are in bytes. 824 bytes. */
struct index_params {
    xpu_addr out, in;
    struct fault_watch watch;
    xpu_addr index[INDEX_MAX];
    xpu_i64 extent[INDEX_MAX], step[INDEX_MAX]; /* of the indexed dimensions */
    xpu_i64 size[INDEX_DIMS];
    xpu_i64 out_stride[INDEX_DIMS], in_stride[INDEX_DIMS];
    xpu_i64 index_stride[INDEX_MAX][INDEX_DIMS];
    xpu_i64 serial; /* number of elements of the serial dimensions */
    xpu_i32 wrap;
    xpu_i32 block; /* scatter_blocks, scatter_ordered: elements of dimension 0 per work-group */
    /* scatter_keys, scatter_runs: `rows` rows of `serial` int64 each, offsets and positions.
     * scatter_find_destinations, scatter_ordered: int32, the ends of the destinations' segments (one more
     * than destinations), and row numbers, which `rows` work-groups divide.
     * scatter_partition: offsets (int64) and values of the `serial` elements, part by part. */
    xpu_addr keys, order;
    xpu_i64 rows; /* scatter_partition: blocks */
    /* scatter_runs: [chunks][work-items of a chunk], partial results of runs that cross work-items.
     * scatter_partition, int32: heads[blocks][parts], numbers of elements; tails[1 + blocks][parts], the ends
     * of the parts, then each block's next positions. */
    xpu_addr heads, tails;
    xpu_i64 items;    /* work-items of a chunk; scatter_partition: the number of parts, at most */
    xpu_addr crowded; /* int32, not 0 if a destination has many elements; 0 if not needed */
};

/* nonzero: `chunk` elements a work-item. */
struct nonzero_params {
    xpu_addr in, counts, out;
    xpu_i64 numel, chunk, limit, row_stride, column_stride;
    xpu_i64 size[16];
    xpu_i64 dims;
};

#ifdef __OPENCL_VERSION__

#ifdef NI

typedef STORED(I) index_t;

/* Advances the offsets out, in and at[NI] by `n` along dimension d. Needs them and p in scope. */
#define INDEX_MOVE(d, n)                                                                                     \
    do {                                                                                                     \
        out += (n) * p.out_stride[d];                                                                        \
        in += (n) * p.in_stride[d];                                                                          \
        for (int k = 0; k < NI; k++) at[k] += (n) * p.index_stride[k][d];                                    \
    } while (0)

/* Declares `offset`, the sum of index times step `n` elements further along dimension 0, and `found`, which
 * is false after a report. (It takes no statement argument: a `continue` in one would apply to the loop in
 * here.) */
#define INDEX_RESOLVE(offset, found, n)                                                                      \
    long offset = 0;                                                                                         \
    bool found = true;                                                                                       \
    for (int k = 0; k < NI && found; k++) {                                                                  \
        const long given = *XPU_CPTR(index_t, p.index[k] + at[k] + (n) * INDEX_STRIDE0(k));                  \
        const long i = given < 0 && p.wrap ? given + p.extent[k] : given;                                    \
        found = (ulong)i < (ulong)p.extent[k];                                                               \
        if (found)                                                                                           \
            offset += i * p.step[k];                                                                         \
        else                                                                                                 \
            fault_report(p.watch, k, given, p.extent[k]);                                                    \
    }

/* Strides along dimension 0 are build-time constants if they have their contiguous values. */
#ifndef OS0
#define OS0 p.out_stride[0]
#endif
#ifndef IS0
#define IS0 p.in_stride[0]
#endif
#ifdef KS0
#define INDEX_STRIDE0(k) KS0
#else
#define INDEX_STRIDE0(k) p.index_stride[k][0]
#endif

/* Kernel prologue: the offsets of the work-item's element in dimensions 0 … LAST - 1. Dimensions 0 and 1 of
 * the range are those of the walk, dimension 2 is all others, so that the divisions are uniform. */
#ifndef INDEX_X
#define INDEX_X get_global_id(0)
#endif
#define INDEX_WALK(LAST)                                                                                     \
    const long x = INDEX_X, y = get_global_id(1);                                                            \
    if (x >= p.size[0] || y >= p.size[1]) return;                                                            \
    long out = x * OS0 + y * p.out_stride[1];                                                                \
    long in = x * IS0 + y * p.in_stride[1];                                                                  \
    long at[NI];                                                                                             \
    for (int k = 0; k < NI; k++) at[k] = x * INDEX_STRIDE0(k) + y * p.index_stride[k][1];                    \
    long z = get_global_id(2);                                                                               \
    _Pragma("unroll") for (int d = 2; d < LAST; d++) {                                                       \
        const long q = d + 1 < LAST ? (long)((ulong)z / (ulong)p.size[d]) : 0;                               \
        const long r = z - q * p.size[d];                                                                    \
        INDEX_MOVE(d, r);                                                                                    \
        z = q;                                                                                               \
    }

#endif
#endif
#endif
