/* Floats of 32 and 64 bits. Smaller floats are computed in 32 bits, except their fused multiply-add, which is
 * computed in 64 bits so that it is rounded once. */
#include "eu/alu.h"

#include <math.h>

#define FUNCTION(T, name, EXPRESSION)                                                                        \
    VECTORIZED static void name##_##T(const struct alu *x) {                                                 \
        T *restrict r = x->result;                                                                           \
        const T *a = x->a, *b = x->b, *c = x->c;                                                             \
        (void)b, (void)c;                                                                                    \
        EACH_LANE(i, x->lanes) r[i] = EXPRESSION;                                                            \
    }
#define FUNCTIONS(T, F)                                                                                      \
    FUNCTION(T, mov, a[i])                                                                                   \
    FUNCTION(T, add, a[i] + b[i])                                                                            \
    FUNCTION(T, add3, a[i] + b[i] + c[i])                                                                    \
    FUNCTION(T, mul, a[i] * b[i])                                                                            \
    FUNCTION(T, mad, __builtin_fma##F(b[i], c[i], a[i]))                                                     \
    FUNCTION(T, frc, a[i] - __builtin_floor##F(a[i]))                                                        \
    FUNCTION(T, rndd, __builtin_floor##F(a[i]))                                                              \
    FUNCTION(T, rndu, __builtin_ceil##F(a[i]))                                                               \
    FUNCTION(T, rnde, __builtin_roundeven##F(a[i]))                                                          \
    FUNCTION(T, rndz, __builtin_trunc##F(a[i]))
FUNCTIONS(float, f)
FUNCTIONS(double, )

static void mac_float(const struct alu *x) {
    const float *a = x->a, *b = x->b;
    float *r = x->result, sum;
    for (int i = 0; i < x->lanes; i++) {
        memcpy(&sum, x->thread->registers + REG_ACCUMULATOR + 4 * i, 4);
        r[i] = fmaf(a[i], b[i], sum);
    }
}

/* ---- the math unit ---- */

VECTORIZED static void inv(const struct alu *x) {
    const float *a = x->a;
    float *restrict r = x->result;
    EACH_LANE(i, x->lanes) r[i] = 1 / a[i];
}
VECTORIZED static void divide(const struct alu *x) {
    const float *a = x->a, *b = x->b;
    float *restrict r = x->result;
    EACH_LANE(i, x->lanes) r[i] = a[i] / b[i];
}
VECTORIZED static void sqt(const struct alu *x) {
    const float *a = x->a;
    float *restrict r = x->result;
    EACH_LANE(i, x->lanes) r[i] = __builtin_sqrtf(a[i]);
}
VECTORIZED static void rsqt(const struct alu *x) {
    const float *a = x->a;
    float *restrict r = x->result;
    EACH_LANE(i, x->lanes) r[i] = 1 / __builtin_sqrtf(a[i]);
}

/* Only lanes of the mask: these functions are slow on arbitrary values. */
#define LANEWISE(name, EXPRESSION)                                                                           \
    static void name(const struct alu *x) {                                                                  \
        const float *a = x->a, *b = x->b;                                                                    \
        float *r = x->result;                                                                                \
        (void)b;                                                                                             \
        memset(r, 0, sizeof(float) * MAX_LANES);                                                             \
        for (uint32_t m = x->mask; m; m &= m - 1) {                                                          \
            const int i = __builtin_ctz(m);                                                                  \
            r[i] = EXPRESSION;                                                                               \
        }                                                                                                    \
    }
LANEWISE(log_2, log2f(a[i]))
LANEWISE(exp_2, exp2f(a[i]))
LANEWISE(sine, sinf(a[i]))
LANEWISE(cosine, cosf(a[i]))
LANEWISE(power, powf(a[i], b[i]))
LANEWISE(hyperbolic_tangent, tanhf(a[i]))
LANEWISE(sigmoid, 1 / (1 + expf(-a[i])))

/* math.invm and math.rsqtm start sequences of madm that refine the result. They may report that nothing is
 * left to be refined, for each lane, with the flag "early out"; here always, with the exact result (alu.c
 * sets the flag). */
static void divide_double(const struct alu *x) {
    const double *a = x->a, *b = x->b;
    double *r = x->result;
    for (int i = 0; i < x->lanes; i++) r[i] = a[i] / b[i];
}
static void sqrt_double(const struct alu *x) {
    const double *a = x->a;
    double *r = x->result;
    for (int i = 0; i < x->lanes; i++) r[i] = sqrt(a[i]);
}
static void inv_double(const struct alu *x) {
    const double *a = x->a;
    double *r = x->result;
    for (int i = 0; i < x->lanes; i++) r[i] = 1 / a[i];
}

compute_function *floating_function(const struct instruction *in) {
    static compute_function *const single_math[MATH_COUNT] = {
        [MATH_INV] = inv,     [MATH_LOG] = log_2, [MATH_EXP] = exp_2,   [MATH_SQT] = sqt,
        [MATH_RSQT] = rsqt,   [MATH_SIN] = sine,  [MATH_COS] = cosine,  [MATH_POW] = power,
        [MATH_INVM] = divide, [MATH_RSQTM] = sqt, [MATH_FDIV] = divide, [MATH_TANH] = hyperbolic_tangent,
        [MATH_SIGM] = sigmoid};
    static compute_function *const double_math[MATH_COUNT] = {[MATH_INV] = inv_double,
                                                              [MATH_INVM] = divide_double,
                                                              [MATH_RSQTM] = sqrt_double,
                                                              [MATH_SQT] = sqrt_double};
#define TABLE(T)                                                                                             \
    [OP_MOV] = mov_##T, [OP_ADD] = add_##T, [OP_ADD3] = add3_##T, [OP_MUL] = mul_##T, [OP_MAD] = mad_##T,    \
    [OP_MADM] = mad_##T, [OP_FRC] = frc_##T, [OP_RNDD] = rndd_##T, [OP_RNDU] = rndu_##T,                     \
    [OP_RNDE] = rnde_##T, [OP_RNDZ] = rndz_##T
    static compute_function *const single[OP_COUNT] = {TABLE(float), [OP_MAC] = mac_float};
    static compute_function *const twice[OP_COUNT] = {TABLE(double)};
#undef TABLE
    const bool wide = in->domain == DOMAIN_F64;
    if (in->opcode == OP_MATH) return (wide ? double_math : single_math)[in->function];
    return (wide ? twice : single)[in->opcode];
}
