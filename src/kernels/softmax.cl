/* softmax      y = exp(x - max x) / sum exp(x - max x)
 * log softmax  y = x - max x - log sum exp(x - max x)
 * and their backwards  dx = (dy - sum dy y) y,  dx = dy - exp(y) sum dy,  along one dimension.
 *
 * Options: IN and OUT, tokens of the dtypes read (x; dy, y) and written (y; dx); ACC; LOG; MASKED; those of
 * team.h; OWN_BF16, IN and OUT are bf16; REGISTERS, elements a lane keeps, 0 reads the row again in each
 * pass; with PACK above 1 IN_BITS and OUT_BITS, types of a pack's size.
 * A row of -inf alone, or with NaN or +inf in it, gives NaN as the formula does. */
#include "softmax.h"
#include "team.h"

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

/* A processor's own NaN, and those that come from bf16, have no low bits that rounding could carry over the
 * high ones: no need to ask. */
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

/* Where the exponentials wait for their sum: in the result if it has that precision, in local memory that
 * holds KEEP_LENGTH of them, or nowhere, to be computed again. */
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
TEAM_KERNEL void softmax_rows(softmax_params p) {
    TEAM_SCRATCH
    KEEP_SCRATCH
    const ulong first = TEAM_INDEX * p.rows_per_team, end = min(first + p.rows_per_team, (ulong)p.columns);
    const size_t n = ROW_LENGTH;
    for (ulong row = first; row < end; row++) {
        __global const STORED(IN) *x = XPU_CPTR(STORED(IN), p.input) + row * n;
        __global STORED(OUT) *y = XPU_PTR(STORED(OUT), p.result) + row * n;
#ifdef MASKED
        __global const uchar *mask = XPU_CPTR(uchar, p.mask) + row * n;
#endif
        ACC largest = LOWEST, sum = 0;
#if REGISTERS
        ACC v[REGISTERS];
#ifdef MASKED
        TEAM_HELD(i, r, n, v[r] = INPUT(i);)
#else
        TEAM_LOAD(IN, IN_BITS, v, x, n)
#endif
        TEAM_HELD(i, r, n, largest = fmax(largest, v[r]);)
        largest = TEAM_MAX(largest);
#ifdef LOG
        TEAM_HELD(i, r, n, v[r] -= largest; sum += EXP(v[r]);)
        const ACC shift = log(TEAM_SUM(sum));
        TEAM_HELD(i, r, n, v[r] -= shift;)
#else
        TEAM_HELD(i, r, n, v[r] = EXP(v[r] - largest); sum += v[r];)
        const ACC scale = 1 / TEAM_SUM(sum);
        TEAM_HELD(i, r, n, v[r] *= scale;)
#endif
        TEAM_STORE(OUT, OUT_BITS, y, v, n)
#else
        TEAM_EACH(i, n, largest = fmax(largest, INPUT(i));)
        largest = TEAM_MAX(largest);
#ifdef LOG
        TEAM_EACH(i, n, sum += EXP(INPUT(i) - largest);)
        const ACC shift = log(TEAM_SUM(sum));
        TEAM_EACH(i, n, STORE(OUT, y, i, INPUT(i) - largest - shift);)
#else
        TEAM_EACH(i, n, const ACC e = EXP(INPUT(i) - largest); sum += e; KEEP(i, e);)
        const ACC scale = 1 / TEAM_SUM(sum);
        TEAM_EACH(i, n, STORE(OUT, y, i, KEPT(i) * scale);)
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
TEAM_KERNEL void softmax_backward_rows(softmax_params p) {
    TEAM_SCRATCH
    const ulong first = TEAM_INDEX * p.rows_per_team, end = min(first + p.rows_per_team, (ulong)p.columns);
    const size_t n = ROW_LENGTH;
    for (ulong row = first; row < end; row++) {
        __global const STORED(IN) *dy = XPU_CPTR(STORED(IN), p.input) + row * n;
        __global const STORED(IN) *y = XPU_CPTR(STORED(IN), p.output) + row * n;
        __global STORED(OUT) *dx = XPU_PTR(STORED(OUT), p.result) + row * n;
#ifdef MASKED
        __global const uchar *mask = XPU_CPTR(uchar, p.mask) + row * n;
#endif
        ACC sum = 0;
#if REGISTERS
        TEAM_HELD(i, r, n, sum += MASK(i, TERM(i));)
        sum = TEAM_SUM(sum);
        TEAM_HELD(i, r, n, STORE(OUT, dx, i, MASK(i, RESULT(i)));)
#else
        TEAM_EACH(i, n, sum += MASK(i, TERM(i));)
        sum = TEAM_SUM(sum);
        TEAM_EACH(i, n, STORE(OUT, dx, i, MASK(i, RESULT(i)));)
#endif
    }
}
#endif

/* Columns: a work-item each, neighbours lying side by side in memory. Dimension 1 of the range is outer,
 * or with FLAT, for a short inner, dimension 0 is both. */
#ifdef FLAT
#define COLUMN                                                                                       \
    const ulong column = get_global_id(0);                                                           \
    if (column >= (ulong)p.columns) return;                                                          \
    const ulong outer = column / p.inner, inner = column - outer * p.inner;
#else
#define COLUMN                                                                                       \
    const ulong outer = XPU_GROUP(1), inner = get_global_id(0);                                      \
    if (inner >= (ulong)p.inner) return;
#endif
#define COLUMN_EACH(i, BODY)                                                                         \
    for (ulong k_ = 0, i = 0; k_ < p.length; k_++, i += p.inner) { BODY }

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
    COLUMN_EACH(i, sum += EXP(INPUT(i) - largest);)
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
    COLUMN_EACH(i, sum += MASK(i, TERM(i));)
    COLUMN_EACH(i, STORE(OUT, dx, i, MASK(i, RESULT(i)));)
}
#endif
