/* Blocked Cholesky and LU factorizations by panels, and triangular solves by blocks; the products between
 * panels are gemm.cl's.
 *
 * Options: T, dtype; R, real type of its parts; COMPLEX; GROUP, work-group size; BUILD_<kernel>. */
#include "linalg.h"

typedef COMPUTED(T) value_t;

#ifdef COMPLEX
#include "complex.h"
/* a / b by Smith's algorithm: squaring a part of b could overflow although the quotient doesn't. */
static inline value_t over(value_t a, value_t b) {
    if (fabs(b.x) >= fabs(b.y)) {
        const R t = b.y / b.x, d = b.x + b.y * t;
        return (value_t)((a.x + a.y * t) / d, (a.y - a.x * t) / d);
    }
    const R t = b.x / b.y, d = b.x * t + b.y;
    return (value_t)((a.x * t + a.y) / d, (a.y * t - a.x) / d);
}
static inline R size_of(value_t a) { return fabs(a.x) + fabs(a.y); }
#define REAL(a) ((a).x)
#define FROM_REAL(r) ((value_t)(r, 0))
#else
static inline value_t times(value_t a, value_t b) { return a * b; }
static inline value_t over(value_t a, value_t b) { return a / b; }
static inline value_t conjugate(value_t a) { return a; }
static inline R size_of(value_t a) { return fabs(a); }
#define REAL(a) (a)
#define FROM_REAL(r) (r)
#endif

#define LINALG_KERNEL __attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel

/* Keeps the candidate with the larger size, the first one of equals. */
#define PREFER(size, row)                                                                                    \
    {                                                                                                        \
        const bool better = (size) > best || ((size) == best && (row) < place);                              \
        best = better ? (size) : best;                                                                       \
        place = better ? (row) : place;                                                                      \
    }

#ifdef BUILD_lu_panel
/* Options: HELD, the most elements of a panel that is kept in local memory, 0: it stays in the matrix; WIDTH,
 * its most columns. */
#if HELD
#define AT(row, column) held[(column) * rows + (row)]
#define EVERYWHERE CLK_LOCAL_MEM_FENCE
#else
#define AT(row, column) a[(row) * p.row_stride + (column) * p.column_stride]
#define EVERYWHERE (CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#endif

LINALG_KERNEL void lu_panel(factor_params p) {
    __local R sizes[GROUP];
    __local long places[GROUP];
    __local value_t top[WIDTH];
#if HELD
    __local value_t held[HELD];
#endif
    const size_t lane = get_local_id(0), matrix = XPU_GROUP(0);
    const long rows = p.rows, width = p.width, steps = min(rows, width);
    __global value_t *a = XPU_PTR(value_t, p.a) + matrix * p.batch_stride;
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
            const value_t old = AT(step, column), new = AT(chosen, column);
            top[column] = new;
            if (chosen != step) {
                AT(chosen, column) = old;
                AT(step, column) = new;
            }
        }
        if (lane == 0) pivots[step] = (int)(p.first + chosen + 1);
        barrier(EVERYWHERE);
        const value_t divisor = top[step];
        const bool is_zero = size_of(divisor) == 0;
        if (is_zero && !singular) singular = (int)(p.first + step + 1);
        best = -1;
        place = LONG_MAX;
        for (long row = lane; row < rows; row += GROUP) {
            if (row <= step) continue;
            if (!is_zero) {
                const value_t factor = over(AT(row, step), divisor);
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

#ifdef BUILD_lu_panel_below
/* A panel with more rows than local memory holds: STRIP columns at a time are in registers, EACH rows per
 * work-item; the rest of the panel is updated afterwards. A work-item's row i is lane + i * GROUP, counted
 * from the first column's diagonal element. */
#define EVERY_ROW _Pragma("unroll") for (int i = 0; i < EACH; i++)
#define EVERY_COLUMN(from) _Pragma("unroll") for (int c = from; c < STRIP; c++)
#define IN_FLIGHT 2 /* columns whose loads are in flight at once */
/* Too many barriers in a row: see docs/internals/compiler-faults.md. */
#ifdef XPU_BUILT_FOR_CPU
#define EVERY_STEP _Pragma("nounroll")
#else
#define EVERY_STEP _Pragma("unroll")
#endif

/* A reduction round leaves an eighth of the candidates; two or fewer are left as they are. */
#define LEFT_OF(count) ((count) <= 2 ? (count) : ((count) + 7) / 8)
#define COMPARE(count)                                                                                       \
    if ((count) > 2) {                                                                                       \
        if (lane < LEFT_OF(count)) {                                                                         \
            _Pragma("unroll") for (int way = 1; way < 8; way++) {                                            \
                const int at = min(lane + way * LEFT_OF(count), (count) - 1);                                \
                const R size = sizes[at];                                                                    \
                const int row = places[at];                                                                  \
                PREFER(size, row)                                                                            \
            }                                                                                                \
            sizes[lane] = best;                                                                              \
            places[lane] = place;                                                                            \
        }                                                                                                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
    }

/* Applies the row exchanges of the narrow panel to another column: `rows` with `others`, from row `first` on.
 */
static inline void exchange_few(__global value_t *column, long row_stride, __local const int *others,
                                int count) {
    value_t top[STRIP], left[STRIP];
    EVERY_COLUMN(0)
        if (c < count) {
            top[c] = column[c * row_stride];
            left[c] = column[others[c] * row_stride];
        }
    EVERY_COLUMN(0)
        if (c < count) {
            const int other = others[c];
            value_t there = left[c];
            _Pragma("unroll") for (int e = 0; e < c; e++)
                if (others[e] == other) there = left[e];
            _Pragma("unroll") for (int e = c; e < STRIP; e++)
                if (other == e) there = top[e];
            left[c] = top[c];
            _Pragma("unroll") for (int e = c + 1; e < STRIP; e++)
                if (other == e) top[e] = left[c];
            top[c] = there;
        }
    EVERY_COLUMN(0)
        if (c < count) {
            if (others[c] >= count) column[others[c] * row_stride] = left[c];
            column[c * row_stride] = top[c];
        }
}

XPU_SUBGROUP_OF_16 LINALG_KERNEL void lu_panel_below(factor_params p) {
    __local R sizes[GROUP];
    __local int places[GROUP];
    __local value_t new_row_max[STRIP], old_row_max[STRIP], lower[STRIP * STRIP], upper[STRIP * LINALG_BLOCK];
    __local int others[STRIP];
    const int lane = get_local_id(0), width = (int)p.width;
    const size_t matrix = XPU_GROUP(0);
    __global value_t *matrix_ = XPU_PTR(value_t, p.a) + matrix * p.batch_stride;
    __global int *pivots = XPU_PTR(int, p.pivots) + matrix * p.pivot_stride + p.first;
    const int steps = (int)min(p.rows, (long)width);
    int singular = 0;
    for (int begin = 0; begin < steps; begin += STRIP) {
        __global value_t *a = matrix_ + begin * p.row_stride; /* its first row */
        __global value_t *own = a + begin * p.column_stride;
        const int rows = (int)p.rows - begin, narrow = min(STRIP, width - begin), count = min(narrow, rows);
        value_t v[EACH][STRIP];
        EVERY_ROW {
            const int row = lane + i * GROUP;
            EVERY_COLUMN(0)
                v[i][c] =
                    row < rows && c < narrow ? own[row * p.row_stride + c * p.column_stride] : FROM_REAL(0);
        }
        EVERY_STEP for (int step = 0; step < STRIP; step++) {
            if (step >= count) break;
            int chosen = step;
            if (p.pivot) {
                R best = -1;
                int place = INT_MAX;
                EVERY_ROW {
                    const int row = lane + i * GROUP;
                    const R size = size_of(v[i][step]);
                    if (row >= step && row < rows) { PREFER(size, row) }
                }
                sizes[lane] = best;
                places[lane] = place;
                barrier(CLK_LOCAL_MEM_FENCE);
                COMPARE(GROUP)
                COMPARE(LEFT_OF(GROUP))
                COMPARE(LEFT_OF(LEFT_OF(GROUP)))
                best = sizes[0];
                place = places[0];
                if (LEFT_OF(LEFT_OF(LEFT_OF(GROUP))) > 1) PREFER(sizes[1], places[1])
                if (place < rows) chosen = place; /* else all are NaN */
            }
            const int owner = chosen % GROUP, its = chosen / GROUP;
            if (lane == owner) EVERY_ROW
                if (i == its)
                    EVERY_COLUMN(0) new_row_max[c] = v[i][c];
            if (lane == step) {
                EVERY_COLUMN(0) old_row_max[c] = v[0][c];
                others[step] = chosen;
                pivots[begin + step] = (int)(p.first + begin + chosen + 1);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            if (chosen != step) {
                if (lane == owner) EVERY_ROW
                    if (i == its)
                        EVERY_COLUMN(0) v[i][c] = old_row_max[c];
                if (lane == step)
                    EVERY_COLUMN(0) v[0][c] = new_row_max[c];
            }
            const value_t divisor = new_row_max[step];
            const bool is_zero = size_of(divisor) == 0;
            if (is_zero && !singular) singular = (int)(p.first + begin + step + 1);
            if (!is_zero) EVERY_ROW {
                if (lane + i * GROUP <= step) continue;
                const value_t factor = over(v[i][step], divisor);
                v[i][step] = factor;
                EVERY_COLUMN(step + 1) v[i][c] -= times(factor, new_row_max[c]);
            }
            if (!p.pivot) barrier(CLK_LOCAL_MEM_FENCE); /* all have read `new_row_max` */
        }
        EVERY_ROW {
            const int row = lane + i * GROUP;
            EVERY_COLUMN(0)
                if (row < rows && c < narrow) own[row * p.row_stride + c * p.column_stride] = v[i][c];
        }
        if (lane < count)
            EVERY_COLUMN(0) lower[lane * STRIP + c] = v[0][c];
        barrier(CLK_LOCAL_MEM_FENCE);
        /* the panel's other columns */
        const int last = begin + narrow;
        if (lane < width && (lane < begin || lane >= last)) {
            __global value_t *column = a + lane * p.column_stride;
            if (p.pivot) exchange_few(column, p.row_stride, others, count);
            if (lane >= last) {
                value_t u[STRIP];
                EVERY_COLUMN(0)
                    if (c < count) {
                        u[c] = column[c * p.row_stride];
                        _Pragma("unroll") for (int k = 0; k < c; k++)
                            u[c] -= times(lower[c * STRIP + k], u[k]);
                        column[c * p.row_stride] = u[c];
                        upper[c * LINALG_BLOCK + lane] = u[c];
                    }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        for (int column = last; column < width; column += IN_FLIGHT) {
            __global value_t *there = a + column * p.column_stride;
            value_t sum[EACH][IN_FLIGHT];
#define EVERY_SUM                                                                                            \
    EVERY_ROW _Pragma("unroll") for (int j = 0; j < IN_FLIGHT; j++) if (lane + i * GROUP >= count &&         \
                                                                        lane + i * GROUP < rows &&           \
                                                                        column + j < width)
            EVERY_SUM sum[i][j] = there[(lane + i * GROUP) * p.row_stride + j * p.column_stride];
            EVERY_SUM EVERY_COLUMN(0)
                if (c < count) sum[i][j] -= times(v[i][c], upper[c * LINALG_BLOCK + column + j]);
            EVERY_SUM there[(lane + i * GROUP) * p.row_stride + j * p.column_stride] = sum[i][j];
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    }
    __global int *info = XPU_PTR(int, p.info) + matrix;
    if (lane == 0 && (p.first == 0 || (singular && *info == 0))) *info = singular;
}
#endif

#ifdef BUILD_lu_swap
/* Applies the panel's row exchanges to `columns` columns from `column` on, one work-item per column,
 * LINALG_BLOCK exchanges at a time. */
LINALG_KERNEL void lu_swap(factor_params p) {
    __local value_t top[LINALG_BLOCK * GROUP], left[LINALG_BLOCK * GROUP];
    __local int others[LINALG_BLOCK], earlier[LINALG_BLOCK];
    const long tiles = (p.columns + GROUP - 1) / GROUP;
    const long matrix = XPU_GROUP(0) / tiles;
    const int lane = get_local_id(0);
    long column = (XPU_GROUP(0) - matrix * tiles) * GROUP + lane;
    const bool is_there = column < p.columns;
    column += p.column;
    if (column >= p.hole) column += p.hole_width;
    __global value_t *a = XPU_PTR(value_t, p.a) + matrix * p.batch_stride + column * p.column_stride;
    __global const int *pivots = XPU_CPTR(int, p.pivots) + matrix * p.pivot_stride + p.first;
    for (long begin = 0; begin < p.width; begin += LINALG_BLOCK) {
        const int count = (int)min((long)LINALG_BLOCK, p.width - begin);
        const long first = p.first + begin;
        for (int step = lane; step < count; step += GROUP)
            others[step] = (int)(pivots[begin + step] - 1 - first);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int step = lane; step < count; step += GROUP) {
            earlier[step] = step;
            for (int before = 0; before < step; before++)
                if (others[before] == others[step]) earlier[step] = before;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (is_there) {
            __global value_t *rows = a + first * p.row_stride;
#define TOP(step) top[(step) * GROUP + lane]
#define LEFT(step) left[(step) * GROUP + lane]
            _Pragma("unroll 8") for (int step = 0; step < count; step++) {
                TOP(step) = rows[step * p.row_stride];
                LEFT(step) = rows[others[step] * p.row_stride];
            }
            for (int step = 0; step < count; step++) {
                const int other = others[step];
                const value_t mine = TOP(step);
                if (other < count) {
                    TOP(step) = TOP(other);
                    TOP(other) = mine;
                } else {
                    TOP(step) = LEFT(earlier[step]);
                    LEFT(step) = mine;
                }
            }
            _Pragma("unroll 8") for (int step = 0; step < count; step++) {
                rows[step * p.row_stride] = TOP(step);
                if (others[step] >= count) rows[others[step] * p.row_stride] = LEFT(step);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
#endif

#ifdef BUILD_lu_permutation
/* HELD: value_t of rows that are in local memory. */
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
/* Forward substitution with one diagonal block: COLUMNS columns per work-group, one work-item per element.
 * ROWS_FIRST: columns are contiguous in memory. */
LINALG_KERNEL void triangular_block(triangular_params p) {
    __local value_t triangle[LINALG_BLOCK * LINALG_BLOCK];
    __local value_t solved[LINALG_BLOCK * COLUMNS];
    const size_t item = get_local_id(0);
#ifdef ROWS_FIRST
    const size_t row = item % LINALG_BLOCK, mine = item / LINALG_BLOCK;
#else
    const size_t row = item / COLUMNS, mine = item % COLUMNS;
#endif
    const long matrix = XPU_GROUP(0) / p.tiles;
    const long column = (XPU_GROUP(0) - matrix * p.tiles) * COLUMNS + mine;
    __global const value_t *a = XPU_CPTR(value_t, p.a) + matrix * p.a_batch_stride;
    __global value_t *x = XPU_PTR(value_t, p.x) + matrix * p.x_batch_stride + column * p.x_column_stride;
    const size_t rows = p.rows;
    for (size_t i = item; i < rows * LINALG_BLOCK; i += GROUP) {
        const size_t r = i % LINALG_BLOCK, c = i / LINALG_BLOCK;
        if (r < rows && (p.unit ? r > c : r >= c)) {
            const value_t v = a[(long)r * p.a_row_stride + (long)c * p.a_column_stride];
            triangle[c * LINALG_BLOCK + r] = p.conjugate ? conjugate(v) : v;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const bool is_there = row < rows && column < p.columns;
    value_t value = FROM_REAL(0);
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
/* Cholesky factor L of one diagonal block with `rows` rows. */
LINALG_KERNEL void cholesky_block(factor_params p) {
    __local value_t block[LINALG_BLOCK * LINALG_BLOCK];
    const size_t item = get_local_id(0), row = item % LINALG_BLOCK, matrix = XPU_GROUP(0);
    const size_t rows = p.width;
    __global value_t *a = XPU_PTR(value_t, p.a) + matrix * p.batch_stride;
    for (size_t column = item / LINALG_BLOCK; column <= row && row < rows; column += GROUP / LINALG_BLOCK)
        block[column * LINALG_BLOCK + row] = a[(long)row * p.row_stride + (long)column * p.column_stride];
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
                block[column * LINALG_BLOCK + row] -=
                    times(block[step * LINALG_BLOCK + row], conjugate(block[step * LINALG_BLOCK + column]));
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (size_t column = item / LINALG_BLOCK; column <= row && row < rows; column += GROUP / LINALG_BLOCK)
        a[(long)row * p.row_stride + (long)column * p.column_stride] = block[column * LINALG_BLOCK + row];
    __global int *info = XPU_PTR(int, p.info) + matrix;
    if (item == 0 && (p.first == 0 || (failed && *info == 0))) *info = failed;
}
#endif
