/* Random numbers: out[e] is the distribution's value for the Philox 4x32-10 bits of element e.
 *
 * Options:
 *   OUT=f32, OUT_f32   dtype of the output; IN=f16, dtype of the input if there is one
 *   DIST               UNIFORM NORMAL LOG_NORMAL EXPONENTIAL CAUCHY GEOMETRIC BERNOULLI PROBABILITIES
 *                      (Bernoulli, by the input) INTEGERS INTEGERS64 DROPOUT GAMMA POISSON BINOMIAL (by the
 *                      inputs; rejection.h)
 *   STRIDED            operands have strides; otherwise all are contiguous
 *   WIDE               computes in fp64, from 64 random bits
 * Integers are floor(range * x) with a random fraction x of 64 bits (96 bits for ranges above 2^32), so that
 * for ranges below 2^32 probabilities differ by at most 2^-32. The lowest 32 bits of x are only drawn if they
 * can change the result.
 * Launch: a work-group of RANDOM_GROUP work-items makes 4 * RANDOM_GROUP elements; the four of a work-item
 * are RANDOM_GROUP apart, so that adjacent work-items store to adjacent addresses. */
#include "random.h"

#define UNIFORM 1
#define NORMAL 2
#define LOG_NORMAL 3
#define EXPONENTIAL 4
#define CAUCHY 5
#define GEOMETRIC 6
#define BERNOULLI 7
#define PROBABILITIES 8
#define INTEGERS 9
#define INTEGERS64 10
#define DROPOUT 11
#define GAMMA 12
#define POISSON 13
#define BINOMIAL 14

#ifdef WIDE
typedef double real;
#define REAL(x) x
#define BITS_TO_REAL(bits) as_double(bits)
#else
typedef float real;
#define REAL(x) x##f
#define BITS_TO_REAL(bits) as_float((uint)(bits))
#endif

#ifdef STRIDED
static inline int place(const random_params *p, uint n, int operand) {
    int at = 0;
    for (uint d = 0; d + 1 < p->dims; d++) {
        uint q = (mul_hi(n, p->multiplier[d]) + n) >> p->shift[d];
        at += (int)(n - q * p->size[d]) * p->stride[d][operand];
        n = q;
    }
    return at + (int)n * p->stride[p->dims - 1][operand];
}
#define PUT(t, operand, v)                                                                                   \
    XPU_CAT(store_, t)(XPU_PTR(STORED(t), p.pointer[operand] + (long)place(&p, (uint)n, operand)), 0, v)
#define GET(t, operand)                                                                                      \
    XPU_CAT(load_, t)(XPU_CPTR(STORED(t), p.pointer[operand] + (long)place(&p, (uint)n, operand)), 0)
#else
#define PUT(t, operand, v) XPU_CAT(store_, t)(XPU_PTR(STORED(t), p.pointer[operand]), n, v)
#define GET(t, operand) XPU_CAT(load_, t)(XPU_CPTR(STORED(t), p.pointer[operand]), n)
#endif

/* Uniform in (0, 1] and in [0, 1), from 32 bits (WIDE: 64): multiples of 2^-24 (2^-53). */
static inline real open0(uint high, uint low) {
#ifdef WIDE
    return ((((ulong)high << 32 | low) >> 11) + 1) * 1.1102230246251565e-16;
#else
    return (high >> 8) * 5.9604644775390625e-8f + 5.9604644775390625e-8f;
#endif
}
static inline real open1(uint high, uint low) {
#ifdef WIDE
    return (((ulong)high << 32 | low) >> 11) * 1.1102230246251565e-16;
#else
    return xpu_uniform_open1(high);
#endif
}

#if DIST == BERNOULLI || DIST == PROBABILITIES
/* True with probability `chance`; open1 would round the probability to a multiple of 2^-24. */
static inline bool happens(uint high, uint low, real chance) {
#ifdef WIDE
    return open1(high, low) < chance;
#else
    return xpu_uniform_open0(high) <= chance;
#endif
}
#endif

#if DIST == UNIFORM
/* Rounded to the output's precision. */
static inline real rounded(real v) {
#if defined(OUT_bf16)
    return bf16_to_float(float_to_bf16(v));
#elif defined(OUT_f16)
    return round_f16(v);
#else
    return v;
#endif
}
#endif

#if DIST == NORMAL || DIST == LOG_NORMAL || DIST == GAMMA
/* Box-Muller transform: two uniform values give two normal ones. */
static inline real normal(real u, real v, int second) {
    real r = sqrt(REAL(-2.0) * log(u));
    return r * (second ? sinpi(REAL(2.0) * v) : cospi(REAL(2.0) * v));
}
#endif

#if DIST >= GAMMA
#include "rejection.h"
#endif

__kernel __attribute__((reqd_work_group_size(RANDOM_GROUP, 1, 1))) void random(const random_params p) {
    const ulong block = XPU_GROUP(0), lane = get_local_id(0);
    const ulong sequence = block * RANDOM_GROUP + lane;
    uint bits[4], more[4] = {0, 0, 0, 0};
#if DIST < GAMMA
    vstore4(xpu_philox(p.seed, sequence, p.counter), 0, bits);
#endif
#if defined(WIDE) || DIST == INTEGERS64
    vstore4(xpu_philox(p.seed, sequence, p.counter + 1), 0, more);
#endif
#if DIST == INTEGERS
    const uint range = (uint)p.b;
    bool near = false; /* can the low bits change the result? */
    for (int k = 0; k < 4; k++) near |= bits[k] * range > 0 - range;
    if (near) vstore4(xpu_philox(p.seed, sequence, p.counter + 1), 0, more);
#elif DIST == INTEGERS64
    uint last[4] = {0, 0, 0, 0};
    if (p.b) vstore4(xpu_philox(p.seed, sequence, p.counter + 2), 0, last);
#else
    const real a = BITS_TO_REAL(p.a), b = BITS_TO_REAL(p.b);
#endif
    for (int k = 0; k < 4; k++) {
        const ulong n = block * (4 * RANDOM_GROUP) + k * RANDOM_GROUP + lane;
        if (n >= p.count) return;
        const uint high = bits[k], low = more[k];
#if DIST == UNIFORM
        const real v = rounded(open1(high, low) * (b - a) + a); /* rounding may reach b, which is excluded */
        PUT(OUT, 0, (COMPUTED(OUT))(v >= b && b > a ? a : v));
#elif DIST == NORMAL || DIST == LOG_NORMAL
        const int pair = k & 2;
        real v = normal(open0(bits[pair], more[pair]), open1(bits[pair + 1], more[pair + 1]), k & 1) * b + a;
#if DIST == LOG_NORMAL
        v = exp(v);
#endif
        PUT(OUT, 0, (COMPUTED(OUT))v);
#elif DIST == EXPONENTIAL
        const real u = open0(high, low),
                   small = sizeof(real) == 8 ? (real)1.1102230246251565e-16f : (real)5.9604645e-8f;
        PUT(OUT, 0, (COMPUTED(OUT))((u >= REAL(1.0) ? small : -log(u)) / a));
#elif DIST == CAUCHY
        /* shift by half a step: the interval becomes symmetric and excludes the pole; exact after subtracting
         * 0.5 */
        const real half_step = sizeof(real) == 8 ? (real)5.551115123125783e-17f : (real)2.9802322e-8f;
        PUT(OUT, 0, (COMPUTED(OUT))(a + b * tanpi(open0(high, low) - REAL(0.5) - half_step)));
#elif DIST == GEOMETRIC
        const real v = ceil(log(open0(high, low)) / log1p(-a));
        PUT(OUT, 0, (COMPUTED(OUT))(v >= REAL(1.0) ? v : REAL(1.0)));
#elif DIST == BERNOULLI
        PUT(OUT, 0, (COMPUTED(OUT))happens(high, low, a));
#elif DIST == PROBABILITIES
        const real chance = (real)GET(IN, 1);
        if (!(chance >= 0 && chance <= 1)) fault_report(p.watch, FAULT_TEXT, 0, 0);
        PUT(OUT, 0, (COMPUTED(OUT))happens(high, low, chance));
#elif DIST == INTEGERS
        const uint rest = high * range, raised = rest + mul_hi(low, range);
        PUT(OUT, 0, (COMPUTED(OUT))(long)(mul_hi(high, range) + (ulong)(raised < rest) + p.a));
#elif DIST == INTEGERS64
        const ulong v = (ulong)high << 32 | low, rest = v * p.b;
        const ulong raised = rest + mul_hi((ulong)last[k] << 32, p.b);
        PUT(OUT, 0, (COMPUTED(OUT))(long)((p.b ? mul_hi(v, p.b) + (raised < rest) : v) + p.a));
#elif DIST == DROPOUT
        const bool keep = open1(high, low) < a;
        PUT(b8, 1, keep);
        const COMPUTED(IN) x = GET(IN, 2);
        /* dropped NaN and infinity give NaN, unless everything is dropped */
        PUT(OUT, 0, b > 0 ? (COMPUTED(OUT))(x * (keep ? (COMPUTED(OUT))b : 0)) : (COMPUTED(OUT))0);
#elif DIST >= GAMMA
        words w = {.seed = p.seed, .sequence = n, .counter = p.counter, .used = 4};
        const real first = (real)GET(IN, 1), second = DIST == BINOMIAL ? (real)GET(IN, 2) : REAL(0.0);
        if (DIST == POISSON && !(first >= 0)) fault_report(p.watch, FAULT_TEXT, 0, 0);
        const real v = rejection_sample(&w, first, second);
        /* a gamma sample is never 0, so that its logarithm is finite */
        PUT(OUT, 0, (COMPUTED(OUT))(DIST == GAMMA && v < a ? a : v));
#endif
    }
}
