/* Special functions of R related to gamma and erf, for the formulas of pointwise.def (sf_…). */
#include "pointwise/wide.h"

#ifdef R_IS_DOUBLE
#define EPSILON 1.1102230246251565e-16
#define TINY 1e-290
#else
#define EPSILON 5.9604645e-8f
#define TINY 1e-30f
#endif

#ifdef R_IS_DOUBLE
static inline R sf_erfc(R x) { return erfc_double(x, 0.0); }
#else
static inline R sf_erfc(R x) { return (R)erfc((WIDE)x); }
#endif
static inline R sf_erfinv(R x) {
    WIDE t = fabs(x);
    if (!(t < KW(1.0))) return t == KW(1.0) ? copysign((R)INFINITY, x) : (R)NAN;
#ifdef R_IS_DOUBLE
    const twice y = w_erf_inverse(t, 1.0 - t);
    return copysign(y.hi + y.lo, x);
#else
    return copysign((R)w_erf_inverse(t, KW(1.0) - t), x);
#endif
}

#ifndef WIDE_IS_DOUBLE
/* digamma on [1, 2] in float: (x - zero) times a polynomial, which is accurate next to the zero, too. */
static inline float f_digamma_near(float x) {
    float t = (x - 1.4616321325302124f) - 1.2438149939e-8f;
    float p = -0.007476843099f;
    p = fma(p, t, 0.01437873113f);
    p = fma(p, t, -0.01615848488f);
    p = fma(p, t, 0.02161209397f);
    p = fma(p, t, -0.03293372034f);
    p = fma(p, t, 0.04891832032f);
    p = fma(p, t, -0.07222433436f);
    p = fma(p, t, 0.1078180833f);
    p = fma(p, t, -0.1639416801f);
    p = fma(p, t, 0.2584998764f);
    p = fma(p, t, -0.4427631804f);
    p = fma(p, t, 0.9676722451f);
    return t * p;
}
#endif

/* digamma: reflection to x > 0, recurrence to x >= 10, then the asymptotic series in Bernoulli numbers. At ±0
 * it is an infinity of the opposite sign, at negative integers NaN. */
static inline R sf_digamma(R argument) {
    WIDE x = argument, result = KW(0.0);
    if (x == KW(0.0)) return copysign((R)INFINITY, -argument);
    if (x < KW(0.0)) {
        WIDE fraction = x - trunc(x);
        if (fraction == KW(0.0) || isinf(x)) return (R)NAN;
        result = -WIDE_PI / tanpi(fraction);
        x = KW(1.0) - x;
    }
#ifndef WIDE_IS_DOUBLE
    if (x <= 1.0f) {
        result -= 1.0f / x;
        return result + f_digamma_near(x + 1.0f);
    }
    if (x <= 2.0f) return result + f_digamma_near(x);
#elif !defined(R_IS_DOUBLE)
    /* A Taylor series next to the zero, where the recurrence and the logarithm cancel. */
    const double t = (x - 1.4616321449683622) - 9.5499954299656977e-17;
    if (fabs(t) < 0x1p-10) {
        double slope = fma(-0.163942705442406528, t, 0.258499760955651011);
        slope = fma(slope, t, -0.442763168983592106);
        return (R)(result + t * fma(slope, t, 0.96767224544762117));
    }
#endif
    while (x < KW(10.0)) {
        result -= KW(1.0) / x;
        x += KW(1.0);
    }
    if (isinf(x)) return (R)x;
    WIDE z = KW(1.0) / (x * x);
    WIDE series = KW(8.33333333333333333333e-2);
    series = fma(series, z, KW(-2.10927960927960927961e-2));
    series = fma(series, z, KW(7.57575757575757575758e-3));
    series = fma(series, z, KW(-4.16666666666666666667e-3));
    series = fma(series, z, KW(3.96825396825396825397e-3));
    series = fma(series, z, KW(-8.33333333333333333333e-3));
    series = fma(series, z, KW(8.33333333333333333333e-2));
    return (R)(result + log(x) - KW(0.5) / x - z * series);
}

/* Hurwitz zeta: terms until the argument exceeds 9, then the Euler-Maclaurin formula. */
static inline WIDE w_zeta(WIDE x, WIDE q) {
    /* B_2k / (2k)! */
    const WIDE bernoulli[] = {
        KW(8.3333333333333333333e-2),   KW(-1.3888888888888888889e-3),  KW(3.3068783068783068783e-5),
        KW(-8.2671957671957671958e-7),  KW(2.0876756987868098979e-8),   KW(-5.2841901386874931848e-10),
        KW(1.3382536530684678833e-11),  KW(-3.3896802963225828668e-13), KW(8.5860620562778445641e-15),
        KW(-2.1748686985580618730e-16), KW(5.5090028283602295153e-18),  KW(-1.3954464685812523341e-19)};
    if (x == KW(1.0)) return (WIDE)INFINITY;
    if (x < KW(1.0)) return (WIDE)NAN;
    if (q <= KW(0.0)) {
        if (q == floor(q)) return (WIDE)INFINITY;
        if (x != floor(x)) return (WIDE)NAN; /* a root of a negative number */
    }
    WIDE sum = KW(0.0), a = q, term = KW(0.0);
    for (int i = 0; i < 10 || a <= KW(9.0); i++) {
        term = pow(a, -x);
        sum += term;
        a += KW(1.0);
        if (a > KW(1.0) && fabs(term) < fabs(sum) * WIDE_EPSILON) return sum;
    }
    term = pow(a, -x);
    sum += term * (a / (x - KW(1.0)) + KW(0.5));
    WIDE rising = x, power = term / a; /* x (x + 1) …, a^(-x - 1 - 2k) */
    for (int k = 0; k < 12; k++) {
        WIDE step = bernoulli[k] * rising * power;
        sum += step;
        if (fabs(step) < fabs(sum) * WIDE_EPSILON) break;
        rising *= (x + (WIDE)(2 * k + 1)) * (x + (WIDE)(2 * k + 2));
        power /= a * a;
    }
    return sum;
}
static inline R sf_zeta(R x, R q) { return (R)w_zeta(x, q); }

/* trigamma, Σ_k 1 / (x + k)²: reflection to x >= 1/2, recurrence to x >= 10, then the asymptotic series. */
static inline R sf_trigamma(R argument) {
    WIDE x = argument, result = KW(0.0), sign = KW(1.0);
    if (x < KW(0.5)) {
        WIDE s = sinpi(x);
        result = -WIDE_PI * WIDE_PI / (s * s);
        x = KW(1.0) - x;
        sign = KW(-1.0);
    }
    WIDE moved = KW(0.0);
    while (x < KW(10.0)) {
        moved += KW(1.0) / (x * x);
        x += KW(1.0);
    }
    WIDE z = KW(1.0) / (x * x);
    WIDE series = KW(1.16666666666666666667);
    series = fma(series, z, KW(-0.25311355311355311355));
    series = fma(series, z, KW(7.57575757575757575758e-2));
    series = fma(series, z, KW(-3.33333333333333333333e-2));
    series = fma(series, z, KW(2.38095238095238095238e-2));
    series = fma(series, z, KW(-3.33333333333333333333e-2));
    series = fma(series, z, KW(0.16666666666666666667));
    moved += KW(1.0) / x + z * (KW(0.5) + series / x);
    return (R)(sign * (result + moved));
}
static inline R sf_polygamma(R x, int n) {
    if (n == 0) return sf_digamma(x);
    if (n == 1) return sf_trigamma(x);
    WIDE factorial = KW(1.0);
    for (int k = 2; k <= n && !isinf(factorial); k++) factorial *= (WIDE)k;
    WIDE value = factorial * w_zeta((WIDE)(n + 1), x);
    return (R)(n % 2 ? value : -value);
}

/* x^a exp(-x) / Gamma(a + 1); for large a and x near a through the relative distance, which is small. */
#if defined(WIDE_IS_DOUBLE) && !defined(R_IS_DOUBLE)
#define MU_FROM 1e4 /* up to here the precision of the logarithms suffices */
#else
#define MU_FROM KW(10.0)
#endif
static inline WIDE w_gamma_factor(WIDE a, WIDE x) {
    WIDE mu = (x - a) / a;
    if (a < MU_FROM || fabs(mu) > KW(0.4)) return exp(a * log(x) - x - lgamma(a + KW(1.0)));
    WIDE z = KW(1.0) / (a * a);
    WIDE stirling = (KW(8.3333333333333333333e-2) -
                     z * (KW(2.7777777777777777778e-3) -
                          z * (KW(7.9365079365079365079e-4) -
                               z * (KW(5.9523809523809523810e-4) - z * KW(8.4175084175084175084e-4))))) /
                    a;
    return exp(a * (log1p(mu) - mu) - stirling) / sqrt(KW(2.0) * WIDE_PI * a);
}
/* The lower incomplete gamma function by its power series, for x up to about a. */
static inline R sf_igamma_series(R a, R x) {
    R sum = K(1.0), term = K(1.0);
    for (int k = 1; k < 4000; k++) {
        term *= x / (a + (R)k);
        sum += term;
        if (!(term > sum * EPSILON)) break;
    }
    return (R)(sum * w_gamma_factor(a, x));
}
/* The upper one by its continued fraction, for x above a (Lentz's algorithm). */
static inline R sf_igammac_fraction(R a, R x) {
    R b = x + K(1.0) - a, c = K(1.0) / TINY, d = K(1.0) / b, h = d;
    for (int k = 1; k < 4000; k++) {
        R an = (R)k * (a - (R)k);
        b += K(2.0);
        d = an * d + b;
        d = K(1.0) / (fabs(d) < TINY ? TINY : d);
        c = b + an / c;
        c = fabs(c) < TINY ? TINY : c;
        R step = c * d;
        h *= step;
        if (!(fabs(step - K(1.0)) > EPSILON)) break;
    }
    return (R)(h * (a * w_gamma_factor(a, x)));
}
/* The upper one for small x, where 1 - the lower one would cancel. */
static inline R sf_igammac_small(WIDE a, WIDE x) {
    WIDE sum = KW(0.0), term = KW(1.0), power = a * log(x) - lgamma(a + KW(1.0));
    for (int k = 1; k < 200; k++) {
        term *= -x / (WIDE)k;
        WIDE step = term * a / (a + (WIDE)k);
        sum += step;
        if (!(fabs(step) > fabs(sum) * WIDE_EPSILON)) break;
    }
    return (R)(-expm1(power) - exp(power) * sum);
}
/* P(a, x) (upper false) or Q(a, x) = 1 - P(a, x). */
static inline R sf_incomplete_gamma(R a, R x, bool upper) {
    R none = upper ? K(1.0) : K(0.0), all_ = K(1.0) - none;
    if (x < K(0.0) || a < K(0.0)) return (R)NAN;
    if (a == K(0.0)) return x > K(0.0) ? all_ : (R)NAN;
    if (x == K(0.0)) return none;
    if (isinf(a)) return isinf(x) ? (R)NAN : none;
    if (isinf(x)) return all_;
    bool lower_is_known = x <= K(1.0) ? !upper || K(-0.4) / log(x) < a : x <= a;
    R v = lower_is_known ? sf_igamma_series(a, x)
          : x <= K(1.0)  ? sf_igammac_small(a, x)
                         : sf_igammac_fraction(a, x);
    return lower_is_known == upper ? K(1.0) - v : v;
}
