/* Triangular factors by panels, and triangular systems by blocks; products in between are gemm.cl's.
 *
 * Options: T; R, the type of its parts; COMPLEX; GROUP, work-items in a group; BUILD_<kernel>. */
#include "linalg.h"

typedef COMPUTED(T) number;

#ifdef COMPLEX
#include "complex.h"
/* Without the square of a part, which may be out of range where the quotient isn't. */
static inline number over(number a, number b) {
    if (fabs(b.x) >= fabs(b.y)) {
        const R t = b.y / b.x, d = b.x + b.y * t;
        return (number)((a.x + a.y * t) / d, (a.y - a.x * t) / d);
    }
    const R t = b.x / b.y, d = b.x * t + b.y;
    return (number)((a.x * t + a.y) / d, (a.y * t - a.x) / d);
}
static inline R size_of(number a) { return fabs(a.x) + fabs(a.y); }
#define REAL(a) ((a).x)
#define FROM_REAL(r) ((number)(r, 0))
#else
static inline number times(number a, number b) { return a * b; }
static inline number over(number a, number b) { return a / b; }
static inline number conjugate(number a) { return a; }
static inline R size_of(number a) { return fabs(a); }
#define REAL(a) (a)
#define FROM_REAL(r) (r)
#endif

#define LINALG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel

#ifdef BUILD_lu_panel
/* Option HELD: the panel has so many elements at the most, and lies in local memory; 0: in the matrix.
 * WIDTH: the most columns that it has. */
#if HELD
#define AT(row, column) held[(column) * rows + (row)]
#define EVERYWHERE CLK_LOCAL_MEM_FENCE
#else
#define AT(row, column) a[(row) * p.row_stride + (column) * p.column_stride]
#define EVERYWHERE (CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#endif

/* The larger of two candidates, the first of equals. */
#define PREFER(size, row)                                                                                    \
    if ((size) > best || ((size) == best && (row) < place)) {                                                \
        best = (size);                                                                                       \
        place = (row);                                                                                       \
    }

LINALG_KERNEL void lu_panel(factor_params p) {
    __local R sizes[GROUP];
    __local long places[GROUP];
    __local number top[WIDTH];
#if HELD
    __local number held[HELD];
#endif
    const size_t lane = get_local_id(0), matrix = XPU_GROUP(0);
    const long rows = p.rows, width = p.width, steps = min(rows, width);
    __global number *a = XPU_PTR(number, p.a) + matrix * p.batch_stride;
    __global int *pivots = XPU_PTR(int, p.pivots) + matrix * p.pivot_stride + p.first;
#if HELD
    for (long column = 0; column < width; column++)
        for (long row = lane; row < rows; row += GROUP)
            AT(row, column) = a[row * p.row_stride + column * p.column_stride];
#endif
    int singular = 0;
    R best = -1;
    long place = LONG_MAX;
    for (long row = lane; row < rows; row += GROUP) {
        const R size = size_of(AT(row, 0));
        PREFER(size, row)
    }
    for (long step = 0; step < steps; step++) {
        long chosen = step;
        sizes[lane] = best;
        places[lane] = place;
        barrier(EVERYWHERE);
        if (p.pivot) {
            for (size_t reach = GROUP / 2; reach > 0; reach /= 2) {
                if (lane < reach) {
                    best = sizes[lane];
                    place = places[lane];
                    PREFER(sizes[lane + reach], places[lane + reach])
                    sizes[lane] = best;
                    places[lane] = place;
                }
                barrier(CLK_LOCAL_MEM_FENCE);
            }
            if (places[0] < rows) chosen = places[0]; /* else all are NaN */
        }
        for (long column = lane; column < width; column += GROUP) {
            const number old = AT(step, column), new = AT(chosen, column);
            top[column] = new;
            if (chosen != step) {
                AT(chosen, column) = old;
                AT(step, column) = new;
            }
        }
        if (lane == 0) pivots[step] = (int)(p.first + chosen + 1);
        barrier(EVERYWHERE);
        const number divisor = top[step];
        const bool is_zero = size_of(divisor) == 0;
        if (is_zero && !singular) singular = (int)(p.first + step + 1);
        best = -1;
        place = LONG_MAX;
        for (long row = lane; row < rows; row += GROUP) {
            if (row <= step) continue;
            if (!is_zero) {
                const number factor = over(AT(row, step), divisor);
                AT(row, step) = factor;
                for (long column = step + 1; column < width; column++)
                    AT(row, column) -= times(factor, top[column]);
            }
            if (step + 1 < steps) {
                const R size = size_of(AT(row, step + 1));
                PREFER(size, row)
            }
        }
        if (!p.pivot) barrier(EVERYWHERE); /* all have read `top` */
    }
#if HELD
    barrier(CLK_LOCAL_MEM_FENCE);
    for (long column = 0; column < width; column++)
        for (long row = lane; row < rows; row += GROUP)
            a[row * p.row_stride + column * p.column_stride] = AT(row, column);
#endif
    __global int *info = XPU_PTR(int, p.info) + matrix;
    if (lane == 0 && (p.first == 0 || (singular && *info == 0))) *info = singular;
}
#endif

#ifdef BUILD_lu_swap
/* The panel's exchanges in all columns but its own, a work-item each. */
LINALG_KERNEL void lu_swap(factor_params p) {
    const long columns = p.columns - p.width, tiles = (columns + GROUP - 1) / GROUP;
    const long matrix = XPU_GROUP(0) / tiles;
    long column = (XPU_GROUP(0) - matrix * tiles) * GROUP + get_local_id(0);
    if (column >= columns) return;
    if (column >= p.first) column += p.width;
    __global number *a = XPU_PTR(number, p.a) + matrix * p.batch_stride + column * p.column_stride;
    __global const int *pivots = XPU_CPTR(int, p.pivots) + matrix * p.pivot_stride + p.first;
    for (long step = 0; step < p.width; step++) {
        const long one = p.first + step, other = pivots[step] - 1;
        if (one == other) continue;
        const number kept = a[one * p.row_stride];
        a[one * p.row_stride] = a[other * p.row_stride];
        a[other * p.row_stride] = kept;
    }
}
#endif

#ifdef BUILD_lu_permutation
/* HELD: so many rows lie in local memory. */
#define EXCHANGES(places)                                                                                    \
    for (long i = 0; i < p.count; i++) {                                                                     \
        const long step = p.inverse ? p.count - 1 - i : i, other = (long)pivots[step] - 1;                   \
        if ((ulong)other >= (ulong)p.rows) {                                                                 \
            fault_report(p.watch, 0, other, p.rows);                                                         \
            continue;                                                                                        \
        }                                                                                                    \
        const long kept = places[step];                                                                      \
        places[step] = places[other];                                                                        \
        places[other] = kept;                                                                                \
    }

LINALG_KERNEL void lu_permutation(permutation_params p) {
    __local int held[HELD];
    const size_t lane = get_local_id(0), matrix = XPU_GROUP(0);
    __global const int *pivots = XPU_CPTR(int, p.pivots) + matrix * p.count;
    __global long *permutation = XPU_PTR(long, p.permutation) + matrix * p.rows;
    for (long row = lane; row < p.rows; row += GROUP) {
        if (p.held)
            held[row] = (int)row;
        else
            permutation[row] = row;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (lane == 0) {
        if (p.held) {
            EXCHANGES(held)
        } else {
            EXCHANGES(permutation)
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (p.held)
        for (long row = lane; row < p.rows; row += GROUP) permutation[row] = held[row];
}
#endif

#ifdef BUILD_triangular_block
/* Forward substitution by one block, COLUMNS columns a group, a work-item an element. ROWS_FIRST: neighbours
 * in a column are neighbours in memory. */
LINALG_KERNEL void triangular_block(triangular_params p) {
    __local number triangle[LINALG_BLOCK * LINALG_BLOCK];
    __local number solved[LINALG_BLOCK * COLUMNS];
    const size_t item = get_local_id(0);
#ifdef ROWS_FIRST
    const size_t row = item % LINALG_BLOCK, mine = item / LINALG_BLOCK;
#else
    const size_t row = item / COLUMNS, mine = item % COLUMNS;
#endif
    const long matrix = XPU_GROUP(0) / p.tiles;
    const long column = (XPU_GROUP(0) - matrix * p.tiles) * COLUMNS + mine;
    __global const number *a = XPU_CPTR(number, p.a) + matrix * p.a_batch_stride;
    __global number *x = XPU_PTR(number, p.x) + matrix * p.x_batch_stride + column * p.x_column_stride;
    const size_t rows = p.rows;
    for (size_t i = item; i < rows * LINALG_BLOCK; i += GROUP) {
        const size_t r = i % LINALG_BLOCK, c = i / LINALG_BLOCK;
        if (r < rows && (p.unit ? r > c : r >= c)) {
            const number v = a[(long)r * p.a_row_stride + (long)c * p.a_column_stride];
            triangle[c * LINALG_BLOCK + r] = p.conjugate ? conjugate(v) : v;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const bool is_there = row < rows && column < p.columns;
    number value = FROM_REAL(0);
    if (is_there) value = x[(long)row * p.x_row_stride];
    for (size_t step = 0; step < rows; step++) {
        if (row == step) {
            if (!p.unit) value = over(value, triangle[step * LINALG_BLOCK + step]);
            solved[step * COLUMNS + mine] = value;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (row > step && row < rows)
            value -= times(triangle[step * LINALG_BLOCK + row], solved[step * COLUMNS + mine]);
    }
    if (is_there) x[(long)row * p.x_row_stride] = value;
}
#endif

#ifdef BUILD_cholesky_block
/* L of one block of the diagonal, of `rows` rows. */
LINALG_KERNEL void cholesky_block(factor_params p) {
    __local number block[LINALG_BLOCK * LINALG_BLOCK];
    const size_t item = get_local_id(0), row = item % LINALG_BLOCK, matrix = XPU_GROUP(0);
    const size_t rows = p.width;
    __global number *a = XPU_PTR(number, p.a) + matrix * p.batch_stride;
    for (size_t column = item / LINALG_BLOCK; column <= row && row < rows; column += GROUP / LINALG_BLOCK)
        block[column * LINALG_BLOCK + row] =
            a[(long)row * p.row_stride + (long)column * p.column_stride];
    barrier(CLK_LOCAL_MEM_FENCE);
    int failed = 0;
    for (size_t step = 0; step < rows; step++) {
        const R square = REAL(block[step * LINALG_BLOCK + step]), root = sqrt(square);
        if (!(square > 0) && !failed) failed = (int)(p.first + step + 1);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < rows && item == step) block[step * LINALG_BLOCK + step] = FROM_REAL(root);
        if (item < rows && item > step) block[step * LINALG_BLOCK + item] /= root;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (size_t column = item / LINALG_BLOCK; column <= row && row < rows; column += GROUP / LINALG_BLOCK)
            if (column > step)
                block[column * LINALG_BLOCK + row] -= times(block[step * LINALG_BLOCK + row],
                                                           conjugate(block[step * LINALG_BLOCK + column]));
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (size_t column = item / LINALG_BLOCK; column <= row && row < rows; column += GROUP / LINALG_BLOCK)
        a[(long)row * p.row_stride + (long)column * p.column_stride] = block[column * LINALG_BLOCK + row];
    __global int *info = XPU_PTR(int, p.info) + matrix;
    if (item == 0 && (p.first == 0 || (failed && *info == 0))) *info = failed;
}
#endif
