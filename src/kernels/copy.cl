/* Strided copies of E-byte elements (1, 2, 4 or 8) on CPUs.
 *
 * Launch: every kernel walks planes of two dimensions; dimension 0 of the range runs along rows of `to`,
 * dimension 2 counts the remaining (batch) dimensions. One of these options selects the algorithm:
 *   TRANSPOSED    to[y][x] = from[x][y]. Both are contiguous in their last index and have at least
 *                 TRANSPOSE_SIZE elements in both dimensions. Tiles of TRANSPOSE_SIZE² elements are
 *                 transposed in registers, so that every row of a tile is one vector load and one vector
 *                 store; power-of-two strides, which map to few cache sets, cost nothing extra. The last tile
 *                 of a row or column overlaps the one before it and writes the same values.
 *   INTERLEAVE    to[y * K + k] = from[k][y] with a constant K, so that the compiler shuffles vectors
 *   DEINTERLEAVE  to[k][y] = from[y * K + k], likewise
 *   ROWS          rows that are contiguous on both sides, copied as vectors
 *   STRIDED       any strides, element by element, which many CPUs run faster than gather instructions. With
 *                 STEP (2, 3, 4) `to` is contiguous and `from` takes every STEP-th element; STEP=-1 reads
 *                 backwards. */
#include "copy.h"
#include "copy_row.h"

/* The start of this work-item's plane. DIMS is a constant so that the indices into the parameters are
 * constants, too: otherwise the compiler doesn't vectorize across work-items. */
#ifndef DIMS
#define DIMS p.dims
#endif
#define PLANE                                                                                                \
    __global uchar *to = XPU_PTR(uchar, p.to);                                                               \
    __global const uchar *from = XPU_CPTR(uchar, p.from);                                                    \
    ulong n = get_global_id(2);                                                                              \
    if (n >= p.batch) return;                                                                                \
    _Pragma("unroll") for (ulong d = 0; d < DIMS; d++) {                                                     \
        const ulong rest = n / p.size[d];                                                                    \
        const long k = n - rest * p.size[d];                                                                 \
        to += k * p.to_stride[d];                                                                            \
        from += k * p.from_stride[d];                                                                        \
        n = rest;                                                                                            \
    }

/* The work-item's rectangle in the plane. */
#define BLOCK                                                                                                \
    const ulong x_first = get_global_id(0) * p.block[0], y_first = get_global_id(1) * p.block[1];            \
    if (x_first >= p.plane[0] || y_first >= p.plane[1]) return;                                              \
    const ulong x_end = min(x_first + p.block[0], p.plane[0]);                                               \
    const ulong y_end = min(y_first + p.block[1], p.plane[1]);

#ifdef TRANSPOSED
#define TRANSPOSE_SIZE N
#include "transpose_tile.h"

static inline void transpose_tile(__global uchar *to, long to_stride, __global const uchar *from,
                                  long from_stride) {
    V row[TRANSPOSE_SIZE];
    _Pragma("unroll") for (int i = 0; i < TRANSPOSE_SIZE; i++) {
        row[i] = LOAD_V(0, (__global const T *)(from + i * from_stride));
    }
    TRANSPOSE_REGISTERS(row, V)
    _Pragma("unroll") for (int i = 0; i < TRANSPOSE_SIZE; i++) {
        STORE_V(row[i], 0, (__global T *)(to + i * to_stride));
    }
}

XPU_NO_VECTORIZE __kernel void copy(const struct copy_params p) {
    PLANE BLOCK;
    for (ulong x = x_first; x < x_end; x += TRANSPOSE_SIZE) {
        const long x0 = min(x, p.plane[0] - TRANSPOSE_SIZE);
        for (ulong y = y_first; y < y_end; y += TRANSPOSE_SIZE) {
            const long y0 = min(y, p.plane[1] - TRANSPOSE_SIZE);
            transpose_tile(to + y0 * p.to_plane[1] + x0 * E, p.to_plane[1],
                           from + x0 * p.from_plane[0] + y0 * E, p.from_plane[0]);
        }
    }
}
#endif

#ifdef INTERLEAVE
__kernel void copy(const struct copy_params p) {
    const size_t y = get_global_id(0);
    if (y >= p.plane[1]) return;
    PLANE;
    __global T *row = (__global T *)to + y * K;
    for (int k = 0; k < K; k++) row[k] = ((__global const T *)(from + k * p.from_plane[0]))[y];
}
#endif

#ifdef DEINTERLEAVE
__kernel void copy(const struct copy_params p) {
    const size_t x = get_global_id(0);
    if (x >= p.plane[0]) return;
    PLANE;
    __global const T *row = (__global const T *)from + x * K;
    for (int k = 0; k < K; k++) ((__global T *)(to + k * p.to_plane[1]))[x] = row[k];
}
#endif

#ifdef ROWS
/* Short rows are copied four at a time so that their cache misses overlap; rows that are far apart are also
 * interleaved if they are longer. Longer rows would evict each other from the cache at power-of-two distances
 * and defeat the hardware prefetcher. */
#define FOUR_BELOW(distance) ((distance) >= 2048 ? 1024 : 192) /* bytes */
XPU_NO_VECTORIZE __kernel void copy(const struct copy_params p) {
    PLANE BLOCK;
    const ulong length = x_end - x_first;
    ulong y = y_first;
    if (length % N == 0 && length * E < FOUR_BELOW(abs(p.from_plane[1])))
        for (; y + 4 <= y_end; y += 4) {
            __global uchar *t = to + (long)y * p.to_plane[1] + (long)x_first * E;
            __global const uchar *f = from + (long)y * p.from_plane[1] + (long)x_first * E;
            for (ulong x = 0; x < length; x += N, t += sizeof(V), f += sizeof(V)) {
                V v[4];
                _Pragma("unroll") for (int r = 0; r < 4; r++)
                    v[r] = LOAD_V(0, (__global const T *)(f + r * p.from_plane[1]));
                _Pragma("unroll") for (int r = 0; r < 4; r++)
                    STORE_V(v[r], 0, (__global T *)(t + r * p.to_plane[1]));
            }
        }
    for (; y < y_end; y++)
        copy_row((__global T *)(to + (long)y * p.to_plane[1]) + x_first,
                 (__global const T *)(from + (long)y * p.from_plane[1]) + x_first, length);
}
#endif

#ifdef STRIDED
#ifdef STEP
#if STEP == -1 && N == 16
#define SPACED(a, b, c, d)                                                                                   \
    a.sf, a.se, a.sd, a.sc, a.sb, a.sa, a.s9, a.s8, a.s7, a.s6, a.s5, a.s4, a.s3, a.s2, a.s1, a.s0
#elif STEP == -1
#define SPACED(a, b, c, d) a.s7, a.s6, a.s5, a.s4, a.s3, a.s2, a.s1, a.s0
#elif STEP == 2
#define SPACED(a, b, c, d)                                                                                   \
    a.s0, a.s2, a.s4, a.s6, a.s8, a.sa, a.sc, a.se, b.s0, b.s2, b.s4, b.s6, b.s8, b.sa, b.sc, b.se
#elif STEP == 3
#define SPACED(a, b, c, d)                                                                                   \
    a.s0, a.s3, a.s6, a.s9, a.sc, a.sf, b.s2, b.s5, b.s8, b.sb, b.se, c.s1, c.s4, c.s7, c.sa, c.sd
#else
#define SPACED(a, b, c, d)                                                                                   \
    a.s0, a.s4, a.s8, a.sc, b.s0, b.s4, b.s8, b.sc, c.s0, c.s4, c.s8, c.sc, d.s0, d.s4, d.s8, d.sc
#endif
#endif

XPU_NO_VECTORIZE __kernel void copy(const struct copy_params p) {
    PLANE BLOCK;
    for (ulong y = y_first; y < y_end; y++) {
        __global uchar *t = to + (long)y * p.to_plane[1] + (long)x_first * p.to_plane[0];
        __global const uchar *f = from + (long)y * p.from_plane[1] + (long)x_first * p.from_plane[0];
        ulong left = x_end - x_first;
#ifdef STEP
        /* strictly more than N: the last vector load extends past its last element */
        for (; left > N; left -= N, t += N * E, f += N * STEP * E) {
            __global const T *v = (__global const T *)f + (STEP < 0 ? 1 - N : 0);
            const V a = LOAD_V(0, v), b = STEP > 1 ? LOAD_V(1, v) : a;
            const V c = STEP > 2 ? LOAD_V(2, v) : a, d = STEP > 3 ? LOAD_V(3, v) : a;
            STORE_V((V)(SPACED(a, b, c, d)), 0, (__global T *)t);
        }
#endif
        const long ts = p.to_plane[0], fs = p.from_plane[0];
        for (; left >= 4; left -= 4, t += 4 * ts, f += 4 * fs) {
            const T a = *(__global const T *)f, b = *(__global const T *)(f + fs);
            const T c = *(__global const T *)(f + 2 * fs), d = *(__global const T *)(f + 3 * fs);
            *(__global T *)t = a;
            *(__global T *)(t + ts) = b;
            *(__global T *)(t + 2 * ts) = c;
            *(__global T *)(t + 3 * ts) = d;
        }
        for (; left > 0; left--, t += ts, f += fs) *(__global T *)t = *(__global const T *)f;
    }
}
#endif
