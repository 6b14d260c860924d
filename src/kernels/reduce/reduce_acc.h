/* Accumulators, addresses and the inner loop that the reduction kernels share.
 *
 * Options: IN, OUT0, OUT1, dtypes; A, type computed in; A_FLOAT, A_COMPLEX, A_DOUBLE, A_SIGNED, IN_FLOAT,
 * IN_DOUBLE, IN_COMPLEX as they apply; KIND_one, KIND_pair, KIND_twice, KIND_indexed or KIND_welford; WIDE, A
 * has twice the precision of the elements and of the result; IDX=int or long; SECOND, two outputs;
 * CONTIGUOUS, the inner dimension is contiguous; DENSE, outputs are contiguous in their order; KEPT and
 * OUTER, numbers of dimensions: if they were not constants, the compiler would copy the whole parameter
 * struct to each lane's stack. The formulas of the table follow this file as definitions of the functions
 * declared here. */
#include "reduce/reduce.h"

typedef COMPUTED(IN) in_t;
typedef IDX idx;

#if defined(A_DOUBLE)
typedef double real;
#define REAL_OF_BITS(bits) as_double(bits)
#else
typedef float real;
#define REAL_OF_BITS(bits) as_float((uint)(bits))
#endif

#define ZERO ((A)(0))
#ifdef A_COMPLEX
#define ONE ((A)(1, 0))
#define MUL(a, b) complex_mul(a, b)
static inline A complex_mul(A a, A b) { return (A)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
#else
#define ONE ((A)1)
#define MUL(a, b) ((a) * (b))
#endif

#if defined(KIND_one)
typedef A acc;
#elif defined(KIND_pair)
typedef struct {
    A lo, hi;
} acc;
static inline acc make_acc(A lo, A hi) {
    acc r;
    r.lo = lo;
    r.hi = hi;
    return r;
}
#elif defined(KIND_twice)
#include "double_word.h"
typedef twice acc;
#define make_acc make_double_word
#elif defined(KIND_indexed)
typedef struct {
    A v;
    idx i;
} acc;
static inline acc make_acc(A v, idx i) {
    acc r;
    r.v = v;
    r.i = i;
    return r;
}
#elif defined(KIND_welford)
typedef struct {
    A mean, m2; /* WIDE: the sums of deviations from the shift and of their squares */
    idx n;
} acc;
static inline acc make_acc(A mean, A m2, idx n) {
    acc r;
    r.mean = mean;
    r.m2 = m2;
    r.n = n;
    return r;
}
#endif
#define ACC(...) make_acc(__VA_ARGS__)

static inline acc reduce_identity(void);
static inline acc reduce_step(acc a, in_t x, idx i, real p);
static inline acc reduce_combine(acc a, acc b);
static inline COMPUTED(OUT0) reduce_first(acc a, real n, real p);
static inline COMPUTED(OUT1) reduce_second(acc a, real n, real p);

/* --- helpers for the formulas, besides ZERO, ONE and MUL --- */
#define LAST ((idx)(~(idx)0 ^ ((idx)1 << (sizeof(idx) * 8 - 1)))) /* greater than every index */
#ifdef IN_COMPLEX
#define NONZERO(x) ((x).x != 0 || (x).y != 0)
#define ABS(x) length_of(x)
#define SQUARE(x) ((x).x * (x).x + (x).y * (x).y)
#define NAN_TO_0(x)                                                                                          \
    ((in_t)((x).x != (x).x || (x).y != (x).y ? 0 : (x).x, (x).x != (x).x || (x).y != (x).y ? 0 : (x).y))
#define length_of(x) hypot((x).x, (x).y)
#else
#define NONZERO(x) ((x) != 0)
#define ABS(x) fabs(x)
#define SQUARE(x) ((A)(x) * (A)(x))
#ifdef IN_FLOAT
#define NAN_TO_0(x) ((x) != (x) ? 0 : (x))
#else
#define NAN_TO_0(x) (x)
#endif
#endif
/* The bits of a double that equals a float, without fp64. */
#if !defined(IN_FLOAT)
#define BITS64(x) ((ulong)(x))
#elif defined(IN_DOUBLE)
#define BITS64(x) as_ulong(x)
#else
#define BITS64(x) bits_as_double(as_uint(x))
static inline ulong bits_as_double(uint bits) {
    const ulong sign = (ulong)(bits >> 31) << 63;
    uint exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
    if (exponent == 0xff)
        return sign | 0x7ff0000000000000ul | (ulong)(fraction ? fraction | 0x400000 : 0) << 29;
    if (exponent == 0 && fraction == 0) return sign;
    if (exponent == 0) { /* subnormal as a float, normal as a double */
        const uint shift = clz(fraction) - 8;
        fraction = fraction << shift & 0x7fffff;
        exponent = 1 - shift;
    }
    return sign | (ulong)(exponent + 896u) << 52 | (ulong)fraction << 29;
}
#endif
#ifdef A_COMPLEX
#define CONVERT(x) (x)
#else
#define CONVERT(x) ((A)(x))
#endif

#if defined(A_FLOAT)
#define LOWEST ((A)(-INFINITY))
#define HIGHEST ((A)INFINITY)
#define ISNAN(x) ((x) != (x))
#elif !defined(A_COMPLEX)
#ifdef A_SIGNED
#define LOWEST ((A)((ulong)1 << (sizeof(A) * 8 - 1)))
#define HIGHEST ((A)(~(A)0 ^ LOWEST))
#else
#define LOWEST ((A)0)
#define HIGHEST ((A) ~(A)0)
#endif
#define ISNAN(x) 0
#endif

/* Selections use plain variables, and conditions are combined by | and &: anything else may become a branch,
 * which prevents vectorization. */
#ifndef A_COMPLEX
static inline A MAX(A a, A b) {
    A greater = a > b ? a : b; /* one instruction; b if either is NaN */
    return ISNAN(a) ? a : greater;
}
static inline A MIN(A a, A b) {
    A less = a < b ? a : b;
    return ISNAN(a) ? a : less;
}
#endif

#ifdef KIND_indexed
/* `step` sees increasing indices, so an equal value never replaces the current one. */
#define FIRST(name, before)                                                                                  \
    static inline acc name##_STEP(acc a, A x, idx i) {                                                       \
        A v = a.v;                                                                                           \
        idx at = a.i;                                                                                        \
        bool take = (x before v) | (ISNAN(x) & !ISNAN(v)) | (at == LAST);                                    \
        v = take ? x : v;                                                                                    \
        at = take ? i : at;                                                                                  \
        return ACC(v, at);                                                                                   \
    }                                                                                                        \
    static inline acc name(acc a, acc b) {                                                                   \
        A v = a.v, w = b.v;                                                                                  \
        idx i = a.i, j = b.i;                                                                                \
        bool tie = (v == w) | (ISNAN(v) & ISNAN(w)), better = (w before v) | (ISNAN(w) & !ISNAN(v));         \
        bool take = (i == LAST) | ((j != LAST) & ((tie & (j < i)) | (!tie & better)));                       \
        v = take ? w : v;                                                                                    \
        i = take ? j : i;                                                                                    \
        return ACC(v, i);                                                                                    \
    }
FIRST(FIRST_MAX, >)
FIRST(FIRST_MIN, <)
#endif

#ifdef KIND_welford
#ifdef WIDE
/* Moments about an element, the shift: however far from 0 the numbers are, and however far that one is from
 * the others, their squares add up to at most n times those of the deviations from the mean, and A has the
 * digits. */
static inline acc WELFORD_STEP(acc a, A x, A shift) {
    const A d = x - shift;
    return ACC(a.mean + d, fma(d, d, a.m2), 0);
}
static inline acc WELFORD_COMBINE(acc a, acc b) { return ACC(a.mean + b.mean, a.m2 + b.m2, 0); }
#else
static inline acc WELFORD_STEP(acc a, A x, A shift) {
    idx n = a.n + 1;
    A v = x - shift, delta = v - a.mean, mean = a.mean + delta / (A)n;
    return ACC(mean, a.m2 + delta * (v - mean), n);
}
static inline acc WELFORD_COMBINE(acc a, acc b) {
    idx n = a.n + b.n;
    A share = n == 0 ? (A)0 : (A)b.n / (A)n, delta = b.mean - a.mean;
    if (b.n == 0) return a;
    if (a.n == 0) return b;
    return ACC(a.mean + delta * share, a.m2 + b.m2 + delta * delta * (A)a.n * share, n);
}
#endif
/* With no degree of freedom left, 0/0 is NaN and x/0 infinite, as in PyTorch. */
#define VARIANCE(a) ((a).m2 / (n > p ? n - p : (A)0))
#define MEAN(a) (n == 0 ? (A)NAN : (a).mean)
#endif

/* --- addresses --- */
/* Offset of element `index` of the dimensions first … last-1; the last is not taken modulo. */
static inline long offset_of(ulong index, const long *size, const long *stride, int first, int last) {
    long offset = 0;
#pragma unroll
    for (int d = first; d < last; d++) {
        ulong c = index;
        if (d + 1 < last) {
            index = c / (ulong)size[d];
            c -= index * (ulong)size[d];
        }
        offset += (long)c * stride[d];
    }
    return offset;
}
#define KEPT_OFFSET(o) offset_of(o, p.size, p.in_stride, 0, KEPT)
#define OUTER_OFFSET(run) offset_of(run, p.size, p.in_stride, KEPT, KEPT + OUTER)

/* The next run of elements in the inner dimension, from element `from` to `to`: run index, start in the run,
 * length. */
#define NEXT_RUN(run, k, n)                                                                                  \
    ulong run = 0, k = from, n = to - from;                                                                  \
    if (OUTER > 0) {                                                                                         \
        run = from / (ulong)p.length;                                                                        \
        k = from - run * (ulong)p.length;                                                                    \
        n = min(n, (ulong)p.length - k);                                                                     \
    }

#define AT(base, k) /* element k of a run that starts at byte address `base` */                              \
    (IS_CONTIGUOUS ? LOAD(IN, XPU_CPTR(STORED(IN), base), k)                                                 \
                   : LOAD(IN, XPU_CPTR(STORED(IN), (base) + (k) * run_stride), 0))
#ifdef CONTIGUOUS
#define IS_CONTIGUOUS 1
#else
#define IS_CONTIGUOUS 0
#endif

/* What `reduce_step` is given as p for output `o`: the caller's parameter, or the shift of moments, the
 * output's first element. */
#if defined(KIND_welford) && (defined(WIDE) || !defined(SECOND))
static inline real step_parameter(const reduce_params *p, ulong o) {
    if (p->total == 0) return 0;
    const real x = LOAD(IN, XPU_CPTR(STORED(IN), p->in + offset_of(o, p->size, p->in_stride, 0, KEPT)), 0);
    return isfinite(x) ? x : (real)0;
}
#elif defined(KIND_welford) /* a mean near 0 about a shift far from it would have lost digits */
static inline real step_parameter(const reduce_params *p, ulong o) { return 0; }
#else
static inline real step_parameter(const reduce_params *p, ulong o) { return REAL_OF_BITS(p->parameter); }
#endif
#if defined(KIND_welford) && defined(WIDE)
static inline acc finished(const reduce_params *p, ulong o, acc a) {
    const A n = REAL_OF_BITS(p->count), mean = n == 0 ? (A)0 : a.mean / n;
    const A m2 = fma(-mean * n, mean, a.m2);
    return ACC(step_parameter(p, o) + mean, m2 < 0 ? (A)0 : m2, 0); /* < 0 by rounding; NaN stays */
}
#else
static inline acc finished(const reduce_params *p, ulong o, acc a) { return a; }
#endif

/* Floating-point sums are accumulated in levels: BLOCK steps into an accumulator, WIDTH accumulators into the
 * next level, WIDTH of its sums into the last one. The error grows with the number of additions on an
 * element's path. */
#if defined(KIND_one) && (defined(A_FLOAT) || defined(A_COMPLEX)) && !defined(NAN_APART)
#define BLOCK 16
#define WIDTH 16 /* a power of two */
typedef struct {
    acc low, middle, high;
} levels;
static inline void take_block(levels *l, uint blocks, acc a) {
    l->low = reduce_combine(l->low, a);
    if ((blocks & (WIDTH - 1)) == 0) {
        l->middle = reduce_combine(l->middle, l->low);
        l->low = reduce_identity();
    }
    if ((blocks & (WIDTH * WIDTH - 1)) == 0) {
        l->high = reduce_combine(l->high, l->middle);
        l->middle = reduce_identity();
    }
}
static inline levels no_levels(void) {
    levels l;
    l.low = l.middle = l.high = reduce_identity();
    return l;
}
static inline acc all_levels(levels l) { return reduce_combine(reduce_combine(l.high, l.middle), l.low); }
#else
#define BLOCK 128
typedef acc levels;
static inline void take_block(levels *l, uint blocks, acc a) { *l = reduce_combine(*l, a); }
static inline levels no_levels(void) { return reduce_identity(); }
static inline acc all_levels(levels l) { return l; }
#endif

/* Writes the outputs from the finished accumulator of output `o`. */
#ifdef DENSE
#define OUTPUT(k, t, o, v) STORE(t, XPU_PTR(STORED(t), p->out[k]), o, v)
#else
#define OUTPUT(k, t, o, v)                                                                                   \
    STORE(t, XPU_PTR(STORED(t), p->out[k] + offset_of(o, p->size, p->out_stride[k], 0, KEPT)), 0, v)
#endif
static inline void write_outputs(const reduce_params *p, ulong o, acc a) {
    real n = REAL_OF_BITS(p->count), parameter = REAL_OF_BITS(p->parameter);
    a = finished(p, o, a);
    OUTPUT(0, OUT0, o, reduce_first(a, n, parameter));
#ifdef SECOND
    OUTPUT(1, OUT1, o, reduce_second(a, n, parameter));
#endif
}
