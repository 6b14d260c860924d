/* arange, linspace, logspace, triangles and their indices; include/xpu/ops/factory.h has the formulas.
 * Portable.
 *
 * Options:
 *   series      T, dtype; C, type computed in (INTEGER: long); S, type of the spacing: C, or a floating type
 *               for integers (WIDE: double). One work-item per element.
 *   triangles   E, an unsigned integer type of the element's size (ulong2 for 16 bytes). Work-items are
 *               (column, row, batch). */
#include "factory.h"

#ifdef T
#ifdef WIDE
#define S_FROM_BITS(w) as_double(w)
#else
#define S_FROM_BITS(w) as_float((uint)(w))
#endif
#ifdef INTEGER
#define FROM_BITS(w) ((long)(w))
#else
#define FROM_BITS(w) S_FROM_BITS(w)
#endif

__kernel void arange(const series_params p) {
    long i = get_global_id(0);
    if (i < p.count)
        STORE(T, XPU_PTR(STORED(T), p.out), i, (COMPUTED(T))(FROM_BITS(p.start) + (C)i * FROM_BITS(p.step)));
}

static inline S spaced(const series_params *p, long i) {
    S step = p->count > 1 ? ((S)FROM_BITS(p->end) - (S)FROM_BITS(p->start)) / (S)(p->count - 1) : (S)0;
    return i < p->count / 2 || p->count == 1 ? (S)FROM_BITS(p->start) + step * (S)i
                                             : (S)FROM_BITS(p->end) - step * (S)(p->count - 1 - i);
}

__kernel void linspace(const series_params p) {
    long i = get_global_id(0);
    if (i < p.count) STORE(T, XPU_PTR(STORED(T), p.out), i, (COMPUTED(T))spaced(&p, i));
}

__kernel void logspace(const series_params p) {
    long i = get_global_id(0);
    if (i < p.count)
        STORE(T, XPU_PTR(STORED(T), p.out), i, (COMPUTED(T))pow(S_FROM_BITS(p.base), spaced(&p, i)));
}
#endif

#ifdef E
__kernel void triangle(const triangle_params p) {
    long column = get_global_id(0), row = get_global_id(1), batch = get_global_id(2);
    if (column >= p.columns) return;
    long in = row * p.in_stride[0] + column * p.in_stride[1];
    long out = row * p.out_stride[0] + column * p.out_stride[1];
    for (int d = 0; d < p.batch_dims; d++) {
        long at = batch % p.batch_size[d];
        batch /= p.batch_size[d];
        in += at * p.in_batch_stride[d];
        out += at * p.out_batch_stride[d];
    }
    bool kept = p.upper ? column - row >= p.diagonal : column - row <= p.diagonal;
    XPU_PTR(E, p.out)[out] = kept ? XPU_CPTR(E, p.in)[in] : (E)0;
}
#endif

#ifdef I
/* Number of elements of a lower triangle in the rows before `row`; row r has clamp(r + diagonal + 1, 0,
 * columns). */
static inline long before(long row, long columns, long diagonal) {
    long first = clamp(-diagonal, 0L, row);                /* rows before it are empty */
    long full = clamp(columns - diagonal - 1, first, row); /* rows from it on are full */
    long partial = full - first;
    return partial * (diagonal + 1) + partial * (first + full - 1) / 2 + (row - full) * columns;
}

__kernel void triangle_indices(const triangle_indices_params p) {
    long i = get_global_id(0);
    if (i >= p.count) return;
    /* The upper triangle is the complement of the lower one below it. */
    long diagonal = p.upper ? p.diagonal - 1 : p.diagonal;
    long low = 0, high = p.rows; /* the row is in [low, high) */
    while (high - low > 1) {
        long middle = low + (high - low) / 2;
        long count = before(middle, p.columns, diagonal);
        if (p.upper) count = middle * p.columns - count;
        if (count <= i)
            low = middle;
        else
            high = middle;
    }
    long count = before(low, p.columns, diagonal);
    long column =
        p.upper ? i - (low * p.columns - count) + clamp(low + p.diagonal, 0L, p.columns) : i - count;
    XPU_PTR(I, p.out)[i] = low;
    XPU_PTR(I, p.out)[p.count + i] = column;
}
#endif
