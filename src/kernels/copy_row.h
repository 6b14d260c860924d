/* Copies of rows of E-byte elements (1, 2, 4 or 8) as vectors, for CPUs. T is the element type, V a vector of
 * N of them. */
#ifndef XPU_KERNELS_COPY_ROW_H
#define XPU_KERNELS_COPY_ROW_H

#if E == 8
#define N 8
#define COPIED ulong
#else
#define N 16
#if E == 4
#define COPIED uint
#elif E == 2
#define COPIED ushort
#else
#define COPIED uchar
#endif
#endif
typedef COPIED T;
typedef XPU_CAT(COPIED, N) V;
#define LOAD_V XPU_CAT(vload, N)
#define STORE_V XPU_CAT(vstore, N)

/* `n` elements from index x on. */
#define COPY_VECTOR(n, x) XPU_CAT(vstore, n)(XPU_CAT(vload, n)(0, from + (x)), 0, to + (x))
/* The last n to 2n elements as two overlapping vectors. */
#define COPY_ENDS(n)                                                                                         \
    if (length >= n) {                                                                                       \
        COPY_VECTOR(n, 0);                                                                                   \
        COPY_VECTOR(n, length - n);                                                                          \
        return;                                                                                              \
    }

static inline void copy_row(__global T *to, __global const T *from, ulong length) {
    if (length >= N) {
        ulong x = 0;
        for (; x + N <= length; x += N) COPY_VECTOR(N, x);
        if (x < length) COPY_VECTOR(N, length - N);
        return;
    }
#if N == 16
    COPY_ENDS(8)
#endif
    COPY_ENDS(4)
    COPY_ENDS(2)
    if (length) *to = *from;
}
#endif
