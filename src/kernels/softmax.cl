/* softmax      y = exp(x - max x) / Σ exp(x - max x)
 * log softmax  y = x - max x - log Σ exp(x - max x)
 * backward     dx = (dy - Σ dy y) y;  log: dx = dy - exp(y) Σ dy;  along one dimension.
 *
 * Options: IN and OUT, dtypes read (x; dy, y) and written (y; dx); ACC; LOG; MASKED; those of row_group.h;
 * OWN_BF16, IN and OUT are bf16; REGISTERS, elements that a lane keeps in registers (0: each pass reads the
 * row again); if VECTOR_SIZE > 1, IN_BITS and OUT_BITS, types of a vector's size. A row that is all -inf, or
 * contains NaN or +inf, gives NaN as the formula does. */
#include "softmax.h"
#include "row_group.h"

#ifdef ACC_IS_DOUBLE
#define EXP(x) exp(x)
#define LOWEST (-(double)INFINITY)
#else
#define LOWEST (-INFINITY)
#include "exp.h"
/* For x ≤ 0, -inf and NaN; 0 where the result would be subnormal. */
static inline float exp_not_positive(float x) {
    float y = exp_below0(x);
    return x < -87.33654f ? 0.0f : y;
}
#define EXP(x) exp_not_positive(x)
#endif

/* On CPUs no NaN check is needed: the CPU's default NaN and NaNs widened from bf16 have zero low bits, so
 * rounding can't overflow into the upper ones. */
#if defined OWN_BF16 && defined XPU_IS_CPU && !defined LOG
static inline void store_own_bf16(__global s_bf16 *p, size_t i, float v) {
    const uint u = as_uint(v);
    p[i] = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}
#define store_bf16 store_own_bf16
#endif

#ifdef MASKED
#define INPUT(i) (mask[i] ? LOWEST : (ACC)LOAD(IN, x, i))
#else
#define INPUT(i) ((ACC)LOAD(IN, x, i))
#endif

/* Where exponentials are kept until their sum is known: in the result if it has the precision, in local
 * memory of KEEP_LENGTH elements, or nowhere (they are computed again). */
#if defined KEEP_IN_RESULT
#define KEEP(i, e) (y[i] = (e))
#define KEPT(i) y[i]
#define KEEP_SCRATCH
#elif defined KEEP_LENGTH
#define KEEP(i, e) (kept[i] = (e))
#define KEPT(i) kept[i]
#define KEEP_SCRATCH __local ACC kept[KEEP_LENGTH];
#else
#define KEEP(i, e)
#define KEPT(i) EXP(INPUT(i) - largest)
#define KEEP_SCRATCH
#endif

/* Rows: inner is 1. */
#ifdef BUILD_softmax_rows
ROW_GROUP_KERNEL void softmax_rows(softmax_params p) {
    ROW_GROUP_SCRATCH
    KEEP_SCRATCH
    const ulong first = ROW_GROUP_INDEX * p.rows_per_row_group,
                end = min(first + p.rows_per_row_group, (ulong)p.columns);
    const size_t n = ROW_LENGTH;
    for (ulong row = first; row < end; row++) {
        __global const STORED(IN) *x = XPU_CPTR(STORED(IN), p.input) + row * n;
        __global STORED(OUT) *y = XPU_PTR(STORED(OUT), p.result) + row * n;
#ifdef MASKED
        __global const uchar *mask = XPU_CPTR(uchar, p.mask) + row * n;
#endif
        ACC largest = LOWEST;
        DECLARE_ACCUMULATORS(s)
#if REGISTERS
        ACC v[REGISTERS];
#ifdef MASKED
        ROW_GROUP_FOR_EACH_REGISTER(i, r, n, v[r] = INPUT(i);)
#else
        ROW_GROUP_LOAD(IN, IN_BITS, v, x, n)
#endif
        ROW_GROUP_FOR_EACH_REGISTER(i, r, n, largest = fmax(largest, v[r]);)
        largest = ROW_GROUP_MAX(largest);
#ifdef LOG
        ROW_GROUP_FOR_EACH_REGISTER(i, r, n, v[r] -= largest; ACCUMULATOR(s, r % 4) += EXP(v[r]);)
        const ACC shift = log(ROW_GROUP_SUM(ACCUMULATORS_TOTAL(s)));
        ROW_GROUP_FOR_EACH_REGISTER(i, r, n, v[r] -= shift;)
#else
        ROW_GROUP_FOR_EACH_REGISTER(i, r, n, v[r] = EXP(v[r] - largest); ACCUMULATOR(s, r % 4) += v[r];)
        const ACC scale = 1 / ROW_GROUP_SUM(ACCUMULATORS_TOTAL(s));
        ROW_GROUP_FOR_EACH_REGISTER(i, r, n, v[r] *= scale;)
#endif
        ROW_GROUP_STORE(OUT, OUT_BITS, y, v, n)
#else
        ROW_GROUP_FOR_EACH(i, n, largest = fmax(largest, INPUT(i));)
        largest = ROW_GROUP_MAX(largest);
#ifdef LOG
        ROW_GROUP_FOR_EACH(i, n, ACCUMULATOR(s, 0) += EXP(INPUT(i) - largest);)
        const ACC shift = log(ROW_GROUP_SUM(ACCUMULATORS_TOTAL(s)));
        ROW_GROUP_FOR_EACH(i, n, STORE(OUT, y, i, INPUT(i) - largest - shift);)
#else
        ROW_GROUP_FOR_EACH(i, n, const ACC e = EXP(INPUT(i) - largest); ACCUMULATOR(s, 0) += e; KEEP(i, e);)
        const ACC scale = 1 / ROW_GROUP_SUM(ACCUMULATORS_TOTAL(s));
        ROW_GROUP_FOR_EACH(i, n, STORE(OUT, y, i, KEPT(i) * scale);)
#endif
#endif
    }
}
#endif

#define GRADIENT(i) ((ACC)LOAD(IN, dy, i))
#define OUTPUT(i) ((ACC)LOAD(IN, y, i))
#ifdef LOG
#define TERM(i) GRADIENT(i)
#define RESULT(i) (GRADIENT(i) - EXP(OUTPUT(i)) * sum)
#else
#define TERM(i) (GRADIENT(i) * OUTPUT(i))
#define RESULT(i) ((GRADIENT(i) - sum) * OUTPUT(i))
#endif
#ifdef MASKED
#define MASK(i, v) (mask[i] ? (ACC)0 : (v))
#else
#define MASK(i, v) (v)
#endif

#ifdef BUILD_softmax_backward_rows
#define ADD_TERM(i, k) ACCUMULATOR(s, k) += MASK(i, TERM(i));
ROW_GROUP_KERNEL void softmax_backward_rows(softmax_params p) {
    ROW_GROUP_SCRATCH
    const ulong first = ROW_GROUP_INDEX * p.rows_per_row_group,
                end = min(first + p.rows_per_row_group, (ulong)p.columns);
    const size_t n = ROW_LENGTH;
    for (ulong row = first; row < end; row++) {
        __global const STORED(IN) *dy = XPU_CPTR(STORED(IN), p.input) + row * n;
        __global const STORED(IN) *y = XPU_CPTR(STORED(IN), p.output) + row * n;
        __global STORED(OUT) *dx = XPU_PTR(STORED(OUT), p.result) + row * n;
#ifdef MASKED
        __global const uchar *mask = XPU_CPTR(uchar, p.mask) + row * n;
#endif
        DECLARE_ACCUMULATORS(s)
#if REGISTERS
        ROW_GROUP_ACCUMULATE_REGISTERS(n, ADD_TERM)
        const ACC sum = ROW_GROUP_SUM(ACCUMULATORS_TOTAL(s));
        ROW_GROUP_FOR_EACH_REGISTER(i, r, n, STORE(OUT, dx, i, MASK(i, RESULT(i)));)
#else
        ROW_GROUP_ACCUMULATE(n, ADD_TERM, FLUSH_ACCUMULATORS(s))
        const ACC sum = ROW_GROUP_SUM(ACCUMULATORS_TOTAL(s));
        ROW_GROUP_FOR_EACH(i, n, STORE(OUT, dx, i, MASK(i, RESULT(i)));)
#endif
    }
}
#endif

/* Columns: one work-item per column; adjacent columns are contiguous in memory. Dimension 1 of the range is
 * outer; with FLAT (short inner), dimension 0 is both. */
#ifdef FLAT
#define COLUMN                                                                                               \
    const ulong column = get_global_id(0);                                                                   \
    if (column >= (ulong)p.columns) return;                                                                  \
    const ulong outer = column / p.inner, inner = column - outer * p.inner;
#else
#define COLUMN                                                                                               \
    const ulong outer = XPU_GROUP(1), inner = get_global_id(0);                                              \
    if (inner >= (ulong)p.inner) return;
#endif
#define COLUMN_EACH(i, BODY)                                                                                 \
    for (ulong k_ = 0, i = 0; k_ < p.length; k_++, i += p.inner) { BODY }
/* sum += TERM for each element, in partial sums that bound the rounding error of long columns. */
#define COLUMN_SUM(i, TERM_)                                                                                 \
    {                                                                                                        \
        ACC part_ = 0;                                                                                       \
        COLUMN_EACH(                                                                                         \
            i, part_ += TERM_; if ((k_ & 63) == 63) {                                                        \
                sum += part_;                                                                                \
                part_ = 0;                                                                                   \
            })                                                                                               \
        sum += part_;                                                                                        \
    }

#ifdef BUILD_softmax_columns
__kernel void softmax_columns(softmax_params p) {
    COLUMN
    const ulong start = outer * p.inner * p.length + inner;
    __global const STORED(IN) *x = XPU_CPTR(STORED(IN), p.input) + start;
    __global STORED(OUT) *y = XPU_PTR(STORED(OUT), p.result) + start;
#ifdef MASKED
    __global const uchar *mask = XPU_CPTR(uchar, p.mask) + start;
#endif
    ACC largest = LOWEST, sum = 0;
    COLUMN_EACH(i, largest = fmax(largest, INPUT(i));)
    COLUMN_SUM(i, EXP(INPUT(i) - largest))
#ifdef LOG
    const ACC shift = log(sum);
    COLUMN_EACH(i, STORE(OUT, y, i, INPUT(i) - largest - shift);)
#else
    const ACC scale = 1 / sum;
    COLUMN_EACH(i, STORE(OUT, y, i, EXP(INPUT(i) - largest) * scale);)
#endif
}
#endif

#ifdef BUILD_softmax_backward_columns
__kernel void softmax_backward_columns(softmax_params p) {
    COLUMN
    const ulong start = outer * p.inner * p.length + inner;
    __global const STORED(IN) *dy = XPU_CPTR(STORED(IN), p.input) + start;
    __global const STORED(IN) *y = XPU_CPTR(STORED(IN), p.output) + start;
    __global STORED(OUT) *dx = XPU_PTR(STORED(OUT), p.result) + start;
#ifdef MASKED
    __global const uchar *mask = XPU_CPTR(uchar, p.mask) + start;
#endif
    ACC sum = 0;
    COLUMN_SUM(i, (MASK(i, TERM(i))))
    COLUMN_EACH(i, STORE(OUT, dx, i, MASK(i, RESULT(i)));)
}
#endif

/* Tiles: a work-group has `width` adjacent columns of one outer; its lanes are spread over the columns and
 * along the reduced dimension, so that few columns occupy a whole GPU. A lane has column c and every depth-th
 * row from `from` on. Either the tile is kept in registers, or columns are split into chunks, one per
 * work-group: `parts` computes each chunk's maximum and sum, `finish` merges them and writes the result. */
#ifdef TILES
#define TILE_KERNEL __attribute__((reqd_work_group_size(LANES, 1, 1))) __kernel
#define AHEAD 8 /* loads in flight per lane */

/* Reductions over the lanes of each column. */
#ifdef ROW_GROUP_WARPS
#define TILE_BY_WARPS(combine)                                                                               \
    if (XPU_WARP % width == 0) {                                                                             \
        for (uint mask = XPU_WARP / 2; mask >= width; mask /= 2) v = combine(v, warp_exchange(v, mask));     \
        if ((LANE & (XPU_WARP - 1)) < width) scratch[LANE / XPU_WARP * width + c] = v;                       \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
        v = scratch[c];                                                                                      \
        for (uint w = 1; w < ROW_GROUP_WARPS; w++) v = combine(v, scratch[w * width + c]);                   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
        return v;                                                                                            \
    }
#else
#define TILE_BY_WARPS(combine)
#endif
#define TILE_TREE(name, combine)                                                                             \
    static inline ACC name(ACC v, uint width, uint c, __local ACC *scratch) {                                \
        TILE_BY_WARPS(combine)                                                                               \
        const uint row = LANE / width;                                                                       \
        scratch[LANE] = v;                                                                                   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
        for (uint rows = LANES / width, half_; rows > 1; rows = half_) {                                     \
            half_ = (rows + 1) / 2;                                                                          \
            if (row + half_ < rows) scratch[LANE] = combine(scratch[LANE], scratch[LANE + half_ * width]);   \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
        }                                                                                                    \
        v = scratch[c];                                                                                      \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
        return v;                                                                                            \
    }
TILE_TREE(tile_sum, REDUCE_ADD)
TILE_TREE(tile_max, fmax)
#define TILE_SUM(v) tile_sum(v, width, c, scratch)
#define TILE_MAX(v) tile_max(v, width, c, scratch)

#define TILE                                                                                                 \
    __local ACC scratch[LANES];                                                                              \
    const uint width = p.width, depth = LANES / width, row = LANE / width, c = LANE - row * width;           \
    const ulong group = XPU_GROUP(0), tile = group / p.chunks, outer = tile / (ulong)p.tiles;                \
    const uint first = (uint)(group - tile * p.chunks) * p.chunk;                                            \
    const ulong column = (tile - outer * (ulong)p.tiles) * width + c;                                        \
    const bool here = row < depth && column < (ulong)p.inner;                                                \
    const ulong from = first + row, to = here ? min((ulong)first + p.chunk, (ulong)p.length) : 0;            \
    const ulong start = outer * p.inner * p.length + column, inner = p.inner;
#define TILE_POINTERS(from_, to_)                                                                            \
    __global const STORED(IN) *from_ = XPU_CPTR(STORED(IN), p.input) + start;                                \
    __global STORED(OUT) *to_ = XPU_PTR(STORED(OUT), p.result) + start;
#ifdef MASKED
#define TILE_MASK __global const uchar *mask = XPU_CPTR(uchar, p.mask) + start;
#else
#define TILE_MASK
#endif
/* Runs the statements for each element i of a block: the lane's n-th of `count`; k is its row. */
#define TILE_BLOCK(first_, count, ...)                                                                       \
    _Pragma("unroll") for (uint n = 0; n < count; n++) {                                                     \
        const ulong k = (first_) + n * depth, i = k * inner;                                                 \
        __VA_ARGS__                                                                                          \
    }
#define TILE_EACH(...)                                                                                       \
    for (ulong k_ = from; k_ < to; k_ += AHEAD * depth) { __VA_ARGS__ }

/* The partial result of chunk q of this column: maximum, then sum. */
#define PART(q) (XPU_PTR(ACC, p.parts) + 2 * ((tile * p.chunks + (q)) * width + c))

#ifdef BUILD_softmax_tiles
TILE_KERNEL void softmax_tiles(softmax_params p) {
    TILE TILE_MASK TILE_POINTERS(x, y) ACC v[REGISTERS], largest = LOWEST, sum = 0;
    TILE_BLOCK(from, REGISTERS, v[n] = k < to ? INPUT(i) : LOWEST; largest = fmax(largest, v[n]);)
    largest = TILE_MAX(largest);
#ifdef LOG
    TILE_BLOCK(from, REGISTERS, v[n] -= largest; if (k < to) sum += EXP(v[n]);)
    const ACC shift = log(TILE_SUM(sum));
    TILE_BLOCK(from, REGISTERS, if (k < to) STORE(OUT, y, i, v[n] - shift);)
#else
    TILE_BLOCK(from, REGISTERS, v[n] = EXP(v[n] - largest); if (k < to) sum += v[n];)
    const ACC scale = 1 / TILE_SUM(sum);
    TILE_BLOCK(from, REGISTERS, if (k < to) STORE(OUT, y, i, v[n] * scale);)
#endif
}
#endif

/* Rescales a sum from the lane's own maximum to a larger one; if both are equal (e.g. -inf) it is unchanged.
 */
#define FOR_MAXIMUM(sum, own, m) ((own) == (m) ? (sum) : (sum) * EXP((own) - (m)))

#ifdef BUILD_softmax_parts
TILE_KERNEL void softmax_parts(softmax_params p) {
    TILE TILE_MASK __global const STORED(IN) *x = XPU_CPTR(STORED(IN), p.input) + start;
    ACC largest = LOWEST, sum = 0;
    TILE_EACH(ACC v[AHEAD], most = largest;
              TILE_BLOCK(k_, AHEAD, v[n] = k < to ? INPUT(i) : LOWEST; most = fmax(most, v[n]);) sum =
                  FOR_MAXIMUM(sum, largest, most);
              largest = most; TILE_BLOCK(k_, AHEAD, sum += v[n] == LOWEST ? 0 : EXP(v[n] - largest);))
    const ACC most = TILE_MAX(largest);
    sum = TILE_SUM(FOR_MAXIMUM(sum, largest, most));
    if (row == 0) {
        __global ACC *part = PART(group - tile * p.chunks);
        part[0] = most;
        part[1] = sum;
    }
}
#endif

#ifdef BUILD_softmax_finish
TILE_KERNEL void softmax_finish(softmax_params p) {
    TILE TILE_MASK TILE_POINTERS(x, y) ACC largest = LOWEST, sum = 0;
    if (row < depth)
        for (uint q = row; q < p.chunks; q += depth) {
            __global const ACC *part = PART(q);
            const ACC most = fmax(largest, part[0]);
            sum = FOR_MAXIMUM(sum, largest, most) + FOR_MAXIMUM(part[1], part[0], most);
            largest = most;
        }
    const ACC own = largest;
    largest = TILE_MAX(largest);
    sum = TILE_SUM(FOR_MAXIMUM(sum, own, largest));
#ifdef LOG
    const ACC shift = log(sum);
    TILE_EACH(TILE_BLOCK(k_, AHEAD, if (k < to) STORE(OUT, y, i, INPUT(i) - largest - shift);))
#else
    const ACC scale = 1 / sum;
    TILE_EACH(TILE_BLOCK(k_, AHEAD, if (k < to) STORE(OUT, y, i, EXP(INPUT(i) - largest) * scale);))
#endif
}
#endif

#define TILE_OUTPUT __global const STORED(IN) *y = XPU_CPTR(STORED(IN), p.output) + start;

#ifdef BUILD_softmax_backward_tiles
TILE_KERNEL void softmax_backward_tiles(softmax_params p) {
    TILE TILE_MASK TILE_POINTERS(dy, dx) TILE_OUTPUT ACC g[REGISTERS], sum = 0;
#ifdef LOG
    TILE_BLOCK(from, REGISTERS, g[n] = k < to ? MASK(i, GRADIENT(i)) : 0; sum += g[n];)
    sum = TILE_SUM(sum);
    TILE_BLOCK(from, REGISTERS, if (k < to) STORE(OUT, dx, i, MASK(i, g[n] - EXP(OUTPUT(i)) * sum));)
#else
    ACC o[REGISTERS];
    TILE_BLOCK(from, REGISTERS, g[n] = k < to ? GRADIENT(i) : 0; o[n] = k < to ? MASK(i, OUTPUT(i)) : 0;)
    TILE_BLOCK(from, REGISTERS, if (k < to) sum += MASK(i, g[n] * o[n]);)
    sum = TILE_SUM(sum);
    TILE_BLOCK(from, REGISTERS, if (k < to) STORE(OUT, dx, i, MASK(i, (g[n] - sum) * o[n]));)
#endif
}
#endif

#ifdef BUILD_softmax_backward_parts
TILE_KERNEL void softmax_backward_parts(softmax_params p) {
    TILE TILE_MASK __global const STORED(IN) *dy = XPU_CPTR(STORED(IN), p.input) + start;
    TILE_OUTPUT
    ACC sum = 0;
    TILE_EACH(TILE_BLOCK(k_, AHEAD, sum += k < to ? MASK(i, TERM(i)) : 0;))
    sum = TILE_SUM(sum);
    if (row == 0) PART(group - tile * p.chunks)[1] = sum;
}
#endif

#ifdef BUILD_softmax_backward_finish
TILE_KERNEL void softmax_backward_finish(softmax_params p) {
    TILE TILE_MASK TILE_POINTERS(dy, dx) TILE_OUTPUT ACC sum = 0;
    if (row < depth)
        for (uint q = row; q < p.chunks; q += depth) sum += PART(q)[1];
    sum = TILE_SUM(sum);
    TILE_EACH(TILE_BLOCK(k_, AHEAD, if (k < to) STORE(OUT, dx, i, MASK(i, RESULT(i)));))
}
#endif
#endif
