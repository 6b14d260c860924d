/* Rows of E-byte elements (1, 2, 4 or 8) copied as vectors, for processors. T is the element, V the vector of
 * N of them. */
#ifndef XPU_KERNELS_COPY_ROW_H
#define XPU_KERNELS_COPY_ROW_H

#if E == 8
#define N 8
typedef ulong T;
typedef ulong8 V;
#define LOAD_V vload8
#define STORE_V vstore8
#else
#define N 16
#if E == 4
typedef uint T;
typedef uint16 V;
#elif E == 2
typedef ushort T;
typedef ushort16 V;
#else
typedef uchar T;
typedef uchar16 V;
#endif
#define LOAD_V vload16
#define STORE_V vstore16
#endif

static inline void copy_row(__global T *to, __global const T *from, ulong length) {
    ulong x = 0;
    for (; x + N <= length; x += N) STORE_V(LOAD_V(0, from + x), 0, to + x);
    for (; x < length; x++) to[x] = from[x];
}
#endif
