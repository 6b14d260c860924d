/* Special functions of R around gamma and erf, for formulas of pointwise.def (sf_…). */

#ifdef R_IS_DOUBLE
#define EPSILON 1.1102230246251565e-16
#define TINY 1e-290
#else
#define EPSILON 5.9604645e-8f
#define TINY 1e-30f
#endif

/* Inverse of the error function: Winitzki's approximation as a start, then Newton steps by Halley's formula,
 * on the side of erf or erfc where nothing cancels. */
static inline R sf_erfinv(R x) {
    R t = fabs(x);
    if (!(t < K(1.0))) return t == K(1.0) ? copysign((R)INFINITY, x) : (R)NAN;
    R w = log1p(-t * t), h = K(4.330746750799873) + K(0.5) * w; /* 2 / (pi 0.147) */
    R y = sqrt(sqrt(h * h - w * K(6.802721088435374)) - h);
#ifdef R_IS_DOUBLE
    for (int step = 0; step < 3; step++) {
#else
    for (int step = 0; step < 2; step++) {
#endif
        R error = t < K(0.5) ? erf(y) - t : (K(1.0) - t) - erfc(y);
        R u = error * K(0.88622692545275801365) * exp(y * y); /* over the derivative */
        y -= u / (K(1.0) + y * u);
    }
    return copysign(y, x);
}

/* The logarithmic derivative of the gamma function: reflected to x > 0, moved up to x >= 10, then the
 * asymptotic series in Bernoulli's numbers. At 0 it is an infinity of the other sign, at negative whole
 * numbers NaN. */
static inline R sf_digamma(R x) {
    R result = K(0.0);
    if (x == K(0.0)) return copysign((R)INFINITY, -x);
    if (x < K(0.0)) {
        R fraction = x - trunc(x);
        if (fraction == K(0.0) || isinf(x)) return (R)NAN;
        result = -PI / tanpi(fraction);
        x = K(1.0) - x;
    }
    while (x < K(10.0)) {
        result -= K(1.0) / x;
        x += K(1.0);
    }
    if (x == (R)INFINITY) return x;
    R z = K(1.0) / (x * x);
    R series = K(8.33333333333333333333e-2);
    series = fma(series, z, K(-2.10927960927960927961e-2));
    series = fma(series, z, K(7.57575757575757575758e-3));
    series = fma(series, z, K(-4.16666666666666666667e-3));
    series = fma(series, z, K(3.96825396825396825397e-3));
    series = fma(series, z, K(-8.33333333333333333333e-3));
    series = fma(series, z, K(8.33333333333333333333e-2));
    return result + log(x) - K(0.5) / x - z * series;
}

/* Hurwitz's zeta: terms until the argument is past 9, then Euler and Maclaurin's formula. */
static inline R sf_zeta(R x, R q) {
    /* B_2k / (2k)! */
    const R bernoulli[] = {K(8.3333333333333333333e-2), K(-1.3888888888888888889e-3), K(3.3068783068783068783e-5),
                           K(-8.2671957671957671958e-7), K(2.0876756987868098979e-8), K(-5.2841901386874931848e-10),
                           K(1.3382536530684678833e-11), K(-3.3896802963225828668e-13), K(8.5860620562778445641e-15),
                           K(-2.1748686985580618730e-16), K(5.5090028283602295153e-18), K(-1.3954464685812523341e-19)};
    if (x == K(1.0)) return (R)INFINITY;
    if (x < K(1.0)) return (R)NAN;
    if (q <= K(0.0)) {
        if (q == floor(q)) return (R)INFINITY;
        if (x != floor(x)) return (R)NAN; /* a root of a negative number */
    }
    R sum = K(0.0), a = q, term = K(0.0);
    for (int i = 0; i < 10 || a <= K(9.0); i++) {
        term = pow(a, -x);
        sum += term;
        a += K(1.0);
        if (fabs(term) < fabs(sum) * EPSILON) return sum;
    }
    term = pow(a, -x);
    sum += term * (a / (x - K(1.0)) + K(0.5));
    R rising = x, power = term / a; /* x (x + 1) …, a^(-x - 1 - 2k) */
    for (int k = 0; k < 12; k++) {
        R step = bernoulli[k] * rising * power;
        sum += step;
        if (fabs(step) < fabs(sum) * EPSILON) break;
        rising *= (x + (R)(2 * k + 1)) * (x + (R)(2 * k + 2));
        power /= a * a;
    }
    return sum;
}
static inline R sf_trigamma(R x) {
    if (x >= K(0.5) || x != x) return sf_zeta(K(2.0), x);
    R s = sinpi(x);
    return PI * PI / (s * s) - sf_zeta(K(2.0), K(1.0) - x);
}
static inline R sf_polygamma(R x, int n) {
    if (n == 0) return sf_digamma(x);
    if (n == 1) return sf_trigamma(x);
    R value = exp(lgamma((R)(n + 1))) * sf_zeta((R)(n + 1), x);
    return n % 2 ? value : -value;
}

/* x^a exp(-x) / Gamma(a + 1); where a is large and x near it through the relative distance, which is small. */
static inline R sf_gamma_factor(R a, R x) {
    R mu = (x - a) / a;
    if (a < K(10.0) || fabs(mu) > K(0.4)) return exp(a * log(x) - x - lgamma(a + K(1.0)));
    R z = K(1.0) / (a * a);
    R stirling = (K(8.3333333333333333333e-2) - z * (K(2.7777777777777777778e-3) - z * (K(7.9365079365079365079e-4) -
                  z * (K(5.9523809523809523810e-4) - z * K(8.4175084175084175084e-4))))) / a;
    return exp(a * (log1p(mu) - mu) - stirling) / sqrt(K(2.0) * PI * a);
}
/* The lower incomplete gamma function by its power series, for x up to about a. */
static inline R sf_igamma_series(R a, R x) {
    R sum = K(1.0), term = K(1.0);
    for (int k = 1; k < 4000; k++) {
        term *= x / (a + (R)k);
        sum += term;
        if (!(term > sum * EPSILON)) break;
    }
    return sum * sf_gamma_factor(a, x);
}
/* The upper one by its continued fraction, for x above a (Lentz's way of evaluating it). */
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
    return h * a * sf_gamma_factor(a, x);
}
/* The upper one for small x, where 1 - the lower one would cancel. */
static inline R sf_igammac_small(R a, R x) {
    R sum = K(0.0), term = K(1.0), power = a * log(x) - lgamma(a + K(1.0));
    for (int k = 1; k < 200; k++) {
        term *= -x / (R)k;
        R step = term * a / (a + (R)k);
        sum += step;
        if (!(fabs(step) > fabs(sum) * EPSILON)) break;
    }
    return -expm1(power) - exp(power) * sum;
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
    R v = lower_is_known ? sf_igamma_series(a, x) : x <= K(1.0) ? sf_igammac_small(a, x) : sf_igammac_fraction(a, x);
    return lower_is_known == upper ? K(1.0) - v : v;
}
