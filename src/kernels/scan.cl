/* Scans y[k] = x[0] ∘ … ∘ x[k]. Portable.
 *   scan_columns   one work-item per row, for many rows
 *   scan_rows      one work-group per chunk, tile by tile: a work-item scans ITEMS elements in registers, the
 *                  group scans the work-items' totals in local memory. LOCAL=1 (CPUs): one work-item, element
 *                  by element
 *   scan_totals    only the total of a chunk; scan_carries then turns totals into exclusive prefixes
 * Options: IN, OUT, dtypes; A, type computed in; A_FLOAT, A_COMPLEX as they apply; INDEXED, with an index
 * output; DOUBLE_WORD, sums and products carry twice the precision (double_word.h); LOG_SUM, real logarithms
 * of sums (log_sum.h), with WIDE if A has twice the precision of the elements; ROW_DIMS; LOCAL. The functions
 * scan_identity and scan_combine follow this file. */
#include "scan.h"

#ifdef A_FLOAT
#define ISNAN(x) ((x) != (x))
#else
#define ISNAN(x) 0
#endif
#ifdef A_COMPLEX
#define ONE ((A)(1, 0))
#define MUL(a, b) ((A)((a).x * (b).x - (a).y * (b).y, (a).x * (b).y + (a).y * (b).x))
#define CONVERT(x) (x)
#else
#define ONE ((A)1)
#define MUL(a, b) ((a) * (b))
#define CONVERT(x) ((A)(x))
#endif
#ifdef INDEXED
typedef struct {
    A v;
    long i;
} acc; /* i < 0: nothing yet */
#elif defined(LOG_SUM) || defined(DOUBLE_WORD)
#include "double_word.h"
#ifdef LOG_SUM
#include "log_sum.h"
typedef log_sum acc;
#else
typedef twice acc;
#endif
#else
typedef A acc;
#endif
static inline acc scan_identity(void);
static inline acc scan_combine(acc a, acc b); /* b comes after a */

#ifdef LOG_SUM
#define ACC(v) make_log_sum(v, make_double_word((A)1, (A)0))
#elif defined(DOUBLE_WORD)
#define ACC(v) make_double_word(v, (A)(0))
#define PLUS(a, b) double_word_add(a, b)
#define TIMES(a, b) double_word_mul(a, b)
#else
#define ACC(v) (v)
#define PLUS(a, b) ((a) + (b))
#define TIMES(a, b) MUL(a, b)
#endif
#ifdef INDEXED
#define LAST(before_or_equal)                                                                                \
    bool take = (a.i < 0) | ((b.i >= 0) & (ISNAN(b.v) | (!ISNAN(a.v) & (b.v before_or_equal a.v))));         \
    return take ? b : a;
#endif
#if defined(A_COMPLEX)
#define LOWEST ((A)(-INFINITY, 0))
/* exp(z) for a real part of +infinity, and log(1 + z) for |z| <= 1. */
static inline A exp_of_infinity(A z) {
    const A turn = (A)(cos(z.y), sin(z.y));
    return (A)(turn.x == 0 ? 0 : turn.x * INFINITY, turn.y == 0 ? 0 : turn.y * INFINITY);
}
static inline A log1p_of(A z) {
    const A less = (A)(z.x * (2 + z.x) + z.y * z.y, 0); /* |1 + z|² - 1 */
    return (A)(fabs(less.x) < 0.5f ? log1p(less.x) / 2 : log(hypot(1 + z.x, z.y)), atan2(z.y, 1 + z.x));
}
/* The imaginary part of the operand with the larger real part is not reduced modulo 2π. */
static inline A log_add_exp(A a, A b) {
    if (isnan(a.x) || isnan(a.y) || isnan(b.x) || isnan(b.y)) return (A)(NAN, NAN);
    const bool down = b.x < a.x;
    const A low = down ? b : a, high = down ? a : b;
    if (low.x == high.x && isinf(low.x)) {
        if (low.x < 0) return low;
        const A sum = exp_of_infinity(low) + exp_of_infinity(high);
        return (A)(log(hypot(sum.x, sum.y)), atan2(sum.y, sum.x));
    }
    const A apart = low - high;
    return high + log1p_of(exp(apart.x) * (A)(cos(apart.y), sin(apart.y)));
}
#elif defined(LOG_SUM)
#define LOWEST make_log_sum(-INFINITY, make_double_word((A)0, (A)0))
#endif

static inline acc element(const scan_params *p, __global const STORED(IN) *in, long k) {
    A x = CONVERT(LOAD(IN, in, k * p->walk.along[0]));
#ifdef INDEXED
    acc a = {x, k};
    return a;
#else
    return ACC(x);
#endif
}

static inline void put(const scan_params *p, __global STORED(OUT) *out, __global long *index, long k, acc a) {
#ifdef INDEXED
    STORE(OUT, out, k * p->walk.along[1], a.v);
    index[k * p->walk.along[2]] = a.i;
#else
#ifdef LOG_SUM
    STORE(OUT, out, k * p->walk.along[1], log_sum_value(a));
#elif defined(DOUBLE_WORD)
    STORE(OUT, out, k * p->walk.along[1], double_word_value(a));
#else
    STORE(OUT, out, k * p->walk.along[1], a);
#endif
#endif
}

#define POINTERS(row)                                                                                        \
    __global const STORED(IN) *in = XPU_CPTR(STORED(IN), p.in) + row_offset(&p.walk, row, 0);                \
    __global STORED(OUT) *out = XPU_PTR(STORED(OUT), p.out) + row_offset(&p.walk, row, 1);                   \
    __global long *index = XPU_PTR(long, p.index) + row_offset(&p.walk, row, 2);

__kernel void scan_columns(scan_params p) {
    ulong row = XPU_GROUP(0) * LOCAL + get_local_id(0);
    if (row >= (ulong)p.walk.rows) return;
    POINTERS(row)
    acc a = scan_identity();
    for (long k = 0; k < p.length; k++) {
        a = scan_combine(a, element(&p, in, k));
        put(&p, out, index, k, a);
    }
}

#if LOCAL == 1
XPU_NO_VECTORIZE __attribute__((reqd_work_group_size(1, 1, 1))) __kernel void scan_rows(scan_params p) {
    ulong task = XPU_GROUP(0), row = task / (ulong)p.chunks, chunk = task - row * (ulong)p.chunks;
    POINTERS(row)
    const long from = chunk * p.chunk, to = min(from + p.chunk, p.length);
    acc a = p.chunks > 1 ? XPU_CPTR(acc, p.totals)[task] : scan_identity();
    for (long k = from; k < to; k++) {
        a = scan_combine(a, element(&p, in, k));
        put(&p, out, index, k, a);
    }
}

XPU_NO_VECTORIZE __attribute__((reqd_work_group_size(1, 1, 1))) __kernel void scan_totals(scan_params p) {
    ulong task = XPU_GROUP(0), row = task / (ulong)p.chunks, chunk = task - row * (ulong)p.chunks;
    __global const STORED(IN) *in = XPU_CPTR(STORED(IN), p.in) + row_offset(&p.walk, row, 0);
    const long from = chunk * p.chunk, to = min(from + p.chunk, p.length);
    acc a = scan_identity();
    for (long k = from; k < to; k++) a = scan_combine(a, element(&p, in, k));
    XPU_PTR(acc, p.totals)[task] = a;
}
#else
#define ITEMS 8

/* Exclusive scan over the work-group; *all receives the total. */
static inline acc before(__local acc *shared, acc mine, acc *all) {
    int item = get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE); /* the previous round's values have been read */
    shared[item] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = 1; step < LOCAL; step *= 2) {
        acc a = shared[item];
        if (item >= step) a = scan_combine(shared[item - step], a);
        barrier(CLK_LOCAL_MEM_FENCE);
        shared[item] = a;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    *all = shared[LOCAL - 1];
    return item > 0 ? shared[item - 1] : scan_identity();
}

__attribute__((reqd_work_group_size(LOCAL, 1, 1))) __kernel void scan_rows(scan_params p) {
    __local acc shared[LOCAL];
    ulong task = XPU_GROUP(0), row = task / (ulong)p.chunks, chunk = task - row * (ulong)p.chunks;
    POINTERS(row)
    long from = chunk * p.chunk, to = min(from + p.chunk, p.length);
    acc carry = p.chunks > 1 ? XPU_CPTR(acc, p.totals)[task] : scan_identity();
    for (long tile = from; tile < to; tile += LOCAL * ITEMS) {
        long mine = tile + get_local_id(0) * ITEMS;
        acc a[ITEMS], sum = scan_identity(), all;
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            if (mine + k < to) sum = scan_combine(sum, element(&p, in, mine + k));
            a[k] = sum;
        }
        acc first = scan_combine(carry, before(shared, sum, &all));
#pragma unroll
        for (int k = 0; k < ITEMS; k++)
            if (mine + k < to) put(&p, out, index, mine + k, scan_combine(first, a[k]));
        carry = scan_combine(carry, all);
    }
}

__attribute__((reqd_work_group_size(LOCAL, 1, 1))) __kernel void scan_totals(scan_params p) {
    __local acc shared[LOCAL];
    ulong task = XPU_GROUP(0), row = task / (ulong)p.chunks, chunk = task - row * (ulong)p.chunks;
    __global const STORED(IN) *in = XPU_CPTR(STORED(IN), p.in) + row_offset(&p.walk, row, 0);
    long from = chunk * p.chunk, to = min(from + p.chunk, p.length);
    acc carry = scan_identity();
    for (long tile = from; tile < to; tile += LOCAL * ITEMS) {
        long mine = tile + get_local_id(0) * ITEMS;
        acc sum = scan_identity(), all;
#pragma unroll
        for (int k = 0; k < ITEMS; k++)
            if (mine + k < to) sum = scan_combine(sum, element(&p, in, mine + k));
        before(shared, sum, &all);
        carry = scan_combine(carry, all);
    }
    if (get_local_id(0) == 0) XPU_PTR(acc, p.totals)[task] = carry;
}
#endif

__kernel void scan_carries(scan_params p) {
    ulong row = XPU_GROUP(0) * LOCAL + get_local_id(0);
    if (row >= (ulong)p.walk.rows) return;
    __global acc *totals = XPU_PTR(acc, p.totals) + row * (ulong)p.chunks;
    acc a = scan_identity();
    for (long c = 0; c < p.chunks; c++) {
        acc next = scan_combine(a, totals[c]);
        totals[c] = a;
        a = next;
    }
}
