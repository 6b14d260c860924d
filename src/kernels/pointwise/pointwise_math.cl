/* Functions used by the formulas of pointwise.def, for the kernel's compute type T.
 *
 * T is the type that the formula computes in, R the corresponding real type (T unless T is complex), K(0.5) a
 * constant of type R. Exactly one of T_IS_BOOL, T_IS_SIGNED, T_IS_UNSIGNED, T_IS_FLOAT, T_IS_COMPLEX is
 * defined, and R_IS_DOUBLE if R is double. Polynomials were fitted for this file by weighted least squares in
 * double precision; stated errors are the largest over all floats of the range. */

/* A float rounded to a half-precision type. */
static inline float xpu_round_bf16(float v) { return bf16_to_float(float_to_bf16(v)); }
static inline float xpu_round_f16(float v) { return round_f16(v); }

#if defined(T_IS_FLOAT) || defined(T_IS_COMPLEX)
#define PI K(3.14159265358979323846)

/* PyTorch's maximum and minimum: NaN wins. */
static inline R m_max(R a, R b) { return a > b || a != a ? a : b; }
static inline R m_min(R a, R b) { return a < b || a != a ? a : b; }
static inline R m_clamp(R a, R low, R high) { return m_min(m_max(a, low), high); }

#if defined(ERF_DOUBLE)
static inline R m_erf(R x) { return erf_double(x); }
static inline R m_normal_cdf(R x) { /* -x/sqrt(2) as a double-word number, without cancellation */
    const twice z = double_word_mul_scalar(make_double_word(-0.7071067811865476, 4.833646656726457e-17), x);
    return 0.5 * erfc_double(z.hi, z.lo);
}
#elif defined(R_IS_DOUBLE) /* not called */
static inline R m_erf(R x) { return erf(x); }
#elif defined(COMPUTE_HALF)
/* Absolute error 7e-7: a rational function without exp, for results that are rounded to half precision. */
static inline R m_erf(R x) {
    float u = x > 3.9f ? 3.9f : x < -3.9f ? -3.9f : x, s = u * u;
    float p = -1.5741509287181543e-06f;
    p = fma(p, s, 0.0002779873611871153f);
    p = fma(p, s, 0.011005782522261143f);
    p = fma(p, s, 0.0748983845114708f);
    p = fma(p, s, 0.3823261857032776f);
    p = fma(p, s, 1.128379464149475f);
    float q = 0.002592857228592038f;
    q = fma(q, s, 0.029743213206529617f);
    q = fma(q, s, 0.19046977162361145f);
    q = fma(q, s, 0.6721561551094055f);
    q = fma(q, s, 1.0f);
    return x > 3.9f ? 1.0f : x < -3.9f ? -1.0f : u * p / q;
}
#else
#include "erf.h"
static inline R m_erf(R x) { return erf_float(x); }
#endif

static inline R m_sigmoid(R x) { return K(1.0) / (K(1.0) + exp(-x)); }
#ifndef ERF_DOUBLE
static inline R m_normal_cdf(R x) { return K(0.5) * (K(1.0) + m_erf(x * K(0.70710678118654752440))); }
#endif
static inline R m_gelu(R x) { return x * m_normal_cdf(x); }
static inline R m_gelu_grad(R g, R x) {
    R cdf = m_normal_cdf(x);
    R pdf = exp(K(-0.5) * x * x) * K(0.39894228040143267794);
    return g * (cdf + x * pdf);
}
static inline R m_gelu_tanh(R x) {
    R inner = K(0.79788456080286535588) * (x + K(0.044715) * x * x * x);
    return K(0.5) * x * (K(1.0) + tanh(inner));
}
static inline R m_gelu_tanh_grad(R g, R x) {
    R t = tanh(K(0.79788456080286535588) * (x + K(0.044715) * x * x * x));
    R left = K(0.5) * (K(1.0) + t);
    R right =
        K(0.5) * x * (K(1.0) - t * t) * K(0.79788456080286535588) * (K(1.0) + K(3.0) * K(0.044715) * x * x);
    return g * (left + right);
}
static inline R m_silu_grad(R g, R x) {
    R s = m_sigmoid(x);
    return g * s * (K(1.0) + x * (K(1.0) - s));
}
static inline R m_mish(R x) { return x * tanh(log1p(exp(x))); }
static inline R m_mish_grad(R g, R x) {
    R s = m_sigmoid(x), t = tanh(log1p(exp(x)));
    return g * (t + x * s * (K(1.0) - t * t));
}
static inline R m_hardsigmoid(R x) { return m_clamp(x + K(3.0), K(0.0), K(6.0)) / K(6.0); }
static inline R m_log_sigmoid(R x) { return fmin(K(0.0), x) - log1p(exp(-fabs(x))) + (x != x ? x : K(0.0)); }
static inline R m_log_sigmoid_grad(R g, R x) {
    R z = exp(-fabs(x)), low = x < K(0.0) ? K(1.0) : K(0.0), sign = x < K(0.0) ? K(1.0) : K(-1.0);
    return g * (low - sign * (z / (K(1.0) + z)));
}
static inline R m_softplus(R x, R beta, R threshold) {
    return x * beta > threshold ? x : log1p(exp(x * beta)) / beta;
}
static inline R m_softplus_grad(R g, R x, R beta, R threshold) {
    R z = exp(x * beta);
    return x * beta > threshold ? g : g * z / (z + K(1.0));
}

static inline R m_sign(R x) { return (R)((x > K(0.0)) - (x < K(0.0))); }
static inline R m_sinc(R x) { return x == K(0.0) ? K(1.0) : sinpi(x) / (PI * x); }
static inline R m_logit(R x, R eps) {
    R low = eps, high = K(1.0) - eps;
    R z = eps < K(0.0) ? x : x < low ? low : x > high ? high : x;
    return log(z / (K(1.0) - z));
}
static inline R m_logit_grad(R g, R x, R eps) {
    R low = eps < K(0.0) ? K(0.0) : eps, high = K(1.0) - low;
    R outside = eps < K(0.0) ? (R)NAN : K(0.0);
    return x < low || x > high ? outside : g / (x * (K(1.0) - x));
}
static inline R m_round_decimals(R x, int decimals) {
    R scale = pown(K(10.0), abs(decimals));
    return decimals < 0 ? rint(x / scale) * scale : rint(x * scale) / scale;
}
static inline R m_nan_to_num(R x, R nan, R high, R low) {
    return x != x ? nan : x == (R)INFINITY ? high : x == -(R)INFINITY ? low : x;
}

static inline R m_pow(R x, R y) {
    if (y == K(2.0)) return x * x;
    if (y == K(3.0)) return x * x * x;
    if (y == K(1.0)) return x;
    if (y == K(0.5)) return sqrt(x);
    if (y == K(-0.5)) return K(1.0) / sqrt(x);
    if (y == K(-1.0)) return K(1.0) / x;
    if (y == K(-2.0)) return K(1.0) / (x * x);
    return pow(x, y);
}
/* Python's remainder: the sign of the divisor. */
static inline R m_remainder(R a, R b) {
    R r = fmod(a, b);
    return r != K(0.0) && (b < K(0.0)) != (r < K(0.0)) ? r + b : r;
}
/* Python's floor division: (a - remainder) / b, rounded to an integer. */
static inline R m_div_floor(R a, R b) {
    R r = fmod(a, b);
    R q = (a - r) / b;
    q = r != K(0.0) && (b < K(0.0)) != (r < K(0.0)) ? q - K(1.0) : q;
    R whole = floor(q);
    whole = q - whole > K(0.5) ? whole + K(1.0) : whole;
    whole = q == K(0.0) ? copysign(K(0.0), a / b) : whole;
    return b == K(0.0) ? a / b : whole;
}
/* The quotient is rounded to the compute dtype first, as PyTorch does. */
static inline R m_div_trunc(R a, R b) {
#if defined(COMPUTE_BF16)
    return trunc(xpu_round_bf16(a / b));
#elif defined(COMPUTE_HALF)
    return trunc(xpu_round_f16(a / b));
#else
    return trunc(a / b);
#endif
}
static inline R m_logaddexp(R a, R b) {
    R high = m_max(a, b);
    return isinf(a) && a == b ? a : high + log1p(exp(-fabs(a - b)));
}
static inline R m_logaddexp2(R a, R b) {
    R high = m_max(a, b);
    return isinf(a) && a == b ? a : high + log1p(exp2(-fabs(a - b))) * K(1.44269504088896340736);
}
static inline R m_xlogy(R a, R b) { return b != b ? b : a == K(0.0) ? K(0.0) : a * log(b); }
static inline R m_xlog1py(R a, R b) { return b != b ? b : a == K(0.0) ? K(0.0) : a * log1p(b); }
static inline R m_entr(R x) {
    return x > K(0.0) ? -x * log(x) : x == K(0.0) ? K(0.0) : x != x ? x : -(R)INFINITY;
}
static inline R m_smooth_l1(R a, R b, R beta) {
    R z = fabs(a - b);
    return z < beta ? K(0.5) * z * z / beta : z - K(0.5) * beta;
}
static inline R m_smooth_l1_grad(R g, R a, R b, R beta, R norm) {
    R x = a - b;
    return x <= -beta ? -norm * g : x >= beta ? norm * g : norm * x * g / beta;
}
static inline R m_huber(R a, R b, R delta) {
    R z = fabs(a - b);
    return z <= delta ? K(0.5) * z * z : delta * (z - K(0.5) * delta);
}
static inline R m_huber_grad(R g, R a, R b, R delta, R norm) {
    R x = a - b;
    return x <= -delta ? -norm * g * delta : x >= delta ? norm * g * delta : norm * x * g;
}
/* Logarithms are clamped at -100, as in PyTorch. */
static inline R m_bce(R x, R target) {
    return (target - K(1.0)) * m_max(log1p(-x), K(-100.0)) - target * m_max(log(x), K(-100.0));
}
static inline R m_bce_grad(R g, R x, R target) {
    return g * (x - target) / m_max((K(1.0) - x) * x, K(1e-12));
}
/* The fraction in [0.5, 1) and the exponent of x. */
static inline R m_fraction(R x) {
    int e;
    return frexp(x, &e);
}
static inline int m_exponent(R x) {
    int e;
    frexp(x, &e);
    return isinf(x) || x != x ? 0 : e;
}
/* nextafter on the grid of the compute dtype. */
#ifdef COMPUTE_HALF
#ifdef COMPUTE_BF16
#define HALF_BITS narrow_bf16
#define HALF_VALUE widen_bf16
#else
#define HALF_BITS narrow_f16
#define HALF_VALUE widen_f16
#endif
static inline R m_nextafter(R x, R y) {
    if (x != x || y != y) return (R)NAN;
    if (x == y) return y;
    if (x == 0.0f) return copysign(HALF_VALUE((ushort)1), y);
    ushort bits = HALF_BITS(x);
    bits += (x < y) == (x > 0.0f) ? 1 : -1;
    return HALF_VALUE(bits);
}
#else
static inline R m_nextafter(R x, R y) { return nextafter(x, y); }
#endif
#endif

#if defined(T_IS_SIGNED) || defined(T_IS_UNSIGNED)
#define T_BITS ((int)sizeof(T) * 8)
/* Integer division never traps: x / 0 has all bits set, x / -1 wraps around. */
#ifdef T_IS_SIGNED
static inline T m_div_trunc(T a, T b) {
    T safe = b == 0 || b == -1 ? (T)1 : b;
    T q = a / safe;
    return b == 0 ? (T)-1 : b == -1 ? (T)(0 - (ulong)(long)a) : q;
}
static inline T m_fmod(T a, T b) {
    T safe = b == 0 || b == -1 ? (T)1 : b;
    T r = a % safe;
    return b == 0 ? a : b == -1 ? (T)0 : r;
}
static inline T m_div_floor(T a, T b) {
    T q = m_div_trunc(a, b), r = (T)((ulong)(long)a - (ulong)(long)q * (ulong)(long)b);
    return b != 0 && r != 0 && (r < 0) != (b < 0) ? (T)(q - 1) : q;
}
static inline T m_remainder(T a, T b) {
    T r = m_fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r;
}
static inline T m_lshift(T a, T b) { return b < 0 || b >= T_BITS ? (T)0 : (T)((ulong)(long)a << (int)b); }
static inline T m_rshift(T a, T b) {
    return b < 0 || b >= T_BITS - 1 ? (T)(a >> (T_BITS - 1)) : (T)(a >> (int)b);
}
static inline T m_abs(T a) { return a < 0 ? (T)(0 - (ulong)(long)a) : a; }
#else
static inline T m_div_trunc(T a, T b) {
    T safe = b == 0 ? (T)1 : b;
    T q = a / safe;
    return b == 0 ? (T) ~(T)0 : q;
}
static inline T m_fmod(T a, T b) {
    T safe = b == 0 ? (T)1 : b;
    T r = a % safe;
    return b == 0 ? a : r;
}
static inline T m_div_floor(T a, T b) { return m_div_trunc(a, b); }
static inline T m_remainder(T a, T b) { return m_fmod(a, b); }
static inline T m_lshift(T a, T b) { return b >= T_BITS ? (T)0 : (T)((ulong)a << (int)b); }
static inline T m_rshift(T a, T b) { return b >= T_BITS ? (T)0 : (T)(a >> (int)b); }
static inline T m_abs(T a) { return a; }
#endif
/* The first (or, with `last`, the last) two of the four Philox words as one 64-bit integer, low word first.
 */
static inline T m_philox(T seed, T counter, T last) {
    const uint4 r = xpu_philox((ulong)seed, 0, (ulong)counter);
    return (T)(last ? (ulong)r.w << 32 | r.z : (ulong)r.y << 32 | r.x);
}

static inline T m_power(T a, T b) {
    if (b < 0) return a == 1 ? (T)1 : a == (T)-1 ? ((ulong)b & 1 ? (T)-1 : (T)1) : (T)0;
    ulong base = (ulong)a, result = 1;
    for (ulong n = (ulong)b; n; n >>= 1) {
        if (n & 1) result *= base;
        base *= base;
    }
    return (T)result;
}
static inline T m_gcd(T a, T b) {
    a = m_abs(a);
    b = m_abs(b);
    while (a != 0) {
        T c = a;
        a = m_fmod(b, a);
        b = c;
    }
    return b;
}
static inline T m_lcm(T a, T b) {
    T g = m_gcd(a, b);
    T q = g == 0 ? (T)0 : m_div_trunc(a, g);
    if (sizeof(T) < 4) return (T)abs((int)q * (int)b); /* C's promotion: the product wraps last */
    return m_abs((T)((ulong)q * (ulong)b));
}
static inline T m_sign(T a) { return (T)((a > 0) - (a < 0)); }
#endif
