/* Pairwise distances: y[i][j] = ||a[i] - b[j]||_p, and the gradient of a.
 *
 * Options: T, fp32 or fp64 (also the type computed in); one of NORM_ZERO, NORM_ONE, NORM_TWO, NORM_INF,
 * NORM_P; PAIRS, the rows of one matrix with themselves, only i < j, packed; ROWS, rows of a tile;
 * BUILD_<kernel>. */
#include "distance.h"

#define ACC COMPUTED(T)
#define P ((ACC)p.p + (ACC)p.p_rest)

/* Index of the pair i < j among the packed pairs of n rows. */
static inline size_t pair_of(size_t i, size_t j, size_t n) { return i * n - i * (i + 1) / 2 + (j - i - 1); }

#ifdef BUILD_distance_forward
/* ADD accumulates a coordinate's difference; FINISH turns the sum into the distance. */
#if defined NORM_ZERO
#define ADD(sum, d) sum += d == 0 ? (ACC)0 : d != d ? d : (ACC)1 /* keeps NaN */
#define FINISH(sum) sum
#elif defined NORM_ONE
#define ADD(sum, d) sum += fabs(d)
#define FINISH(sum) sum
#elif defined NORM_TWO
#define ADD(sum, d) sum += d * d
#define FINISH(sum) sqrt(sum)
#elif defined NORM_INF
#define ADD(sum, d) sum = fabs(d) > sum || d != d ? fabs(d) : sum /* keeps NaN */
#define FINISH(sum) sum
#else
#define ADD(sum, d) sum += pow(fabs(d), P)
#define FINISH(sum) pow(sum, 1 / P)
#endif

#define SIDE 16         /* work-items along each side of a group */
#define TILE (2 * SIDE) /* rows of each matrix per work-group */
#define STRIDE (SIDE + 1)

/* A work-group computes TILE × TILE distances, a work-item four of them; SIDE columns at a time are in local
 * memory. */
__attribute__((reqd_work_group_size(SIDE, SIDE, 1))) __kernel void distance_forward(distance_params p) {
    __local ACC a[TILE * STRIDE], b[TILE * STRIDE];
    const size_t batch = XPU_GROUP(1) / p.tiles;
    const size_t first1 = (XPU_GROUP(1) - batch * p.tiles) * TILE, first2 = XPU_GROUP(0) * TILE;
    const size_t x = get_local_id(0), y = get_local_id(1);
    const size_t rows1 = p.rows1, rows2 = p.rows2, columns = p.columns;
#ifdef PAIRS
    /* tiles below the diagonal have no pairs; PoCL 3.1 miscompiles a return before barriers */
    const size_t end = first2 + TILE <= first1 ? 0 : columns;
#else
    const size_t end = columns;
#endif
    __global const STORED(T) *x1 = XPU_CPTR(STORED(T), p.x1) + batch * rows1 * columns;
    __global const STORED(T) *x2 = XPU_CPTR(STORED(T), p.x2) + batch * rows2 * columns;
    ACC sum00 = 0, sum01 = 0, sum10 = 0, sum11 = 0;
    for (size_t k0 = 0; k0 < end; k0 += SIDE) {
        const size_t k = k0 + x;
        for (size_t r = y; r < TILE; r += SIDE) {
            a[r * STRIDE + x] = k < columns && first1 + r < rows1 ? x1[(first1 + r) * columns + k] : (ACC)0;
            b[r * STRIDE + x] = k < columns && first2 + r < rows2 ? x2[(first2 + r) * columns + k] : (ACC)0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        const size_t length = min(columns - k0, (size_t)SIDE);
        for (size_t i = 0; i < length; i++) {
            const ACC a0 = a[y * STRIDE + i], a1 = a[(y + SIDE) * STRIDE + i];
            const ACC b0 = b[x * STRIDE + i], b1 = b[(x + SIDE) * STRIDE + i];
            const ACC d00 = a0 - b0, d01 = a0 - b1, d10 = a1 - b0, d11 = a1 - b1;
            ADD(sum00, d00);
            ADD(sum01, d01);
            ADD(sum10, d10);
            ADD(sum11, d11);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#ifdef PAIRS
    __global STORED(T) *to = XPU_PTR(STORED(T), p.distances) + batch * p.pairs;
#define PUT(i, j, sum)                                                                                       \
    if ((i) < (j) && (j) < rows2) to[pair_of(i, j, rows2)] = FINISH(sum);
#else
    __global STORED(T) *to = XPU_PTR(STORED(T), p.distances) + batch * rows1 * rows2;
#define PUT(i, j, sum)                                                                                       \
    if ((i) < rows1 && (j) < rows2) to[(i) * rows2 + (j)] = FINISH(sum);
#endif
    const size_t i = first1 + y, j = first2 + x;
    PUT(i, j, sum00)
    PUT(i, j + SIDE, sum01)
    PUT(i + SIDE, j, sum10)
    PUT(i + SIDE, j + SIDE, sum11)
}
#endif

#ifdef BUILD_distance_backward
/* The derivative of a distance with respect to the difference d, times the distance's gradient. */
static inline ACC derivative(distance_params p, ACC d, ACC distance, ACC grad) {
#if defined NORM_ONE
    return d > 0 ? grad : d < 0 ? -grad : d; /* 0 or NaN */
#elif defined NORM_TWO
    return distance == 0 ? (ACC)0 : grad * (d / distance);
#elif defined NORM_INF
    if (isnan(d)) return d;
    return fabs(d) == distance && d != 0 ? (d > 0 ? grad : -grad) : (ACC)0;
#else
    const ACC exponent = P - 1;
    if (distance == 0 || (d == 0 && exponent <= 0)) return 0;
    /* (|d| / distance)^(p - 1): the two powers could overflow separately. */
    const ACC share = pow(fabs(d) / distance, exponent) * grad;
    return d == 0 ? (ACC)0 : d > 0 ? share : -share;
#endif
}

/* One work-item per element of the gradient. With ROWS a work-group covers part of one row (dimension 1
 * counts the rows of the batch), otherwise several short rows (dimension 1 is the batch). */
__kernel void distance_backward(distance_params p) {
    const size_t rows1 = p.rows1, rows2 = p.rows2, columns = p.columns;
#ifdef ROWS
    const size_t k = get_global_id(0), batch = XPU_GROUP(1) / rows1, i = XPU_GROUP(1) - batch * rows1;
    const size_t at = i * columns + k;
    if (k >= columns) return;
#else
    const size_t at = get_global_id(0), batch = XPU_GROUP(1);
    if (at >= rows1 * columns) return;
    const size_t i = at / columns, k = at - i * columns;
#endif
    __global const STORED(T) *x2 = XPU_CPTR(STORED(T), p.x2) + batch * rows2 * columns + k;
#ifdef PAIRS
    const size_t first = batch * p.pairs;
#define PLACE(j) (first + ((j) > i ? pair_of(i, j, rows2) : pair_of(j, i, rows2)))
#define SKIPPED(j) ((j) == i)
#else
    const size_t first = (batch * rows1 + i) * rows2;
#define PLACE(j) (first + (j))
#define SKIPPED(j) false
#endif
    __global const STORED(T) *distances = XPU_CPTR(STORED(T), p.distances),
                             *grad = XPU_CPTR(STORED(T), p.grad);
    const ACC x = XPU_CPTR(STORED(T), p.x1)[batch * rows1 * columns + at];
    ACC sum = 0;
    for (size_t j = 0; j < rows2; j++) {
        if (SKIPPED(j)) continue;
        const size_t place = PLACE(j);
        sum += derivative(p, x - x2[j * columns], distances[place], grad[place]);
    }
    XPU_PTR(STORED(T), p.grad_x1)[batch * rows1 * columns + at] = sum;
}
#endif
