/* erf, erfc and their inverse in fp64, to 0.51 ulp, by sums hi + lo (double_word.h) with some 59 valid bits.
 *
 * Below 6, about the node c = j/32 next to x, with h = x - c and D = 2/sqrt(pi) exp(-c²):
 *     erf(x) = erf(c) + D h ∫ exp(-2chs - h²s²) ds over 0 … 1
 *            = erf(c) + D h Σ_k (-h²)^k/k! Σ_m (-2ch)^m/m! / (2k + 1 + m).
 * erf(c) and D are tables. D h is computed exactly; the other terms are below 3 % of erf(x), and of erfc(x)
 * up to x = 5, so a double suffices for them. Those left out are below 2^-60.
 * From 5 on, erfc(x) = exp(-x²) (1 + v(1/x²)/x²) / (x sqrt(pi)) with a Chebyshev series v. */
#ifndef ERF_DOUBLE
#define ERF_DOUBLE 1

#define A double
#define A_FLOAT 1
#define MUL(a, b) ((a) * (b))
#include "double_word.h"
#undef A
#undef A_FLOAT
#undef MUL
#include "pointwise/erf_tables.h"

#define ERFC_FAR 5.0

/* v 2^exponent for |exponent| < 2000. */
static inline double times_power_of_2(double v, int exponent) {
    const int half_of_it = exponent / 2;
    return v * as_double((long)(half_of_it + 1023) << 52) *
           as_double((long)(exponent - half_of_it + 1023) << 52);
}

/* Row k of the series in p, with the constants from `from` to before `to`. */
static inline double erf_series_row(double p, int from, int to) {
    double sum = erf_series[to - 1];
#pragma unroll
    for (int m = to - 2; m >= from; m--) sum = fma(sum, p, erf_series[m]);
    return sum;
}
/* erf(x + x_lo), or with *complement erfc(x + x_lo), which it chooses from x = 31/64 on; 0 <= x < 5.95. */
static inline twice erf_about_node(double x, double x_lo, bool *complement) {
    const int j = (int)fma(x, 32.0, 0.5);
    const double c = (double)j * 0.03125, h = x - c, p = -2.0 * c * h, q = -h * h;
    __constant const double *node = erf_nodes + 4 * j;
    double sum = fma(q, erf_series[32], erf_series_row(p, 27, 32));
    sum = fma(q, sum, erf_series_row(p, 20, 27));
    sum = fma(q, sum, erf_series_row(p, 11, 20));
    sum = fma(q, sum, p * erf_series_row(p, 1, 11));
    *complement = j >= 16;
    const double sign = j >= 16 ? -1.0 : 1.0;
    twice change = double_word_exact_product(node[2], sign * h);
    const double low = fma(x_lo * p, fma(p, 0.5, 1.0), x_lo); /* times exp(-2ch) */
    change.lo = fma(sign, fma(node[2], fma(h, sum, low), node[3] * h), change.lo);
    return double_word_add(make_double_word(node[0], node[1]), change);
}

/* exp(-x²) 2^-*exponent for x = x + x_lo < 28: x² = -(n log(2)/32 + r), by a table of 2^(j/32). */
static inline twice exp_of_minus_square(double x, double x_lo, int *exponent) {
    twice square = double_word_exact_product(x, x);
    square.lo = fma(2.0 * x, x_lo, square.lo);
    const int n = (int)fma(square.hi, -46.16624130844683, -0.5);
    const double head = fma((double)n, -0.021660849392446835, -square.hi); /* exact: log(2)/32 to 36 bits */
    const double more = fma((double)n, -5.145609244655338e-14, -square.lo), r = head + more;
    double rest = fma(r, 1.0 / 720.0, 1.0 / 120.0);
    rest = fma(r, rest, 1.0 / 24.0);
    rest = fma(r, rest, 1.0 / 6.0);
    rest = fma(r, rest, 0.5);
    rest = fma(r * r, rest, more);
    const int step = n & 31;
    *exponent = (n - step) / 32;
    return double_word_mul(make_double_word(exp_steps[2 * step], exp_steps[2 * step + 1]),
                           double_word_add(make_double_word(1.0, 0.0), make_double_word(head, rest)));
}

/* erfc(x + x_lo) 2^-*exponent for 5 <= x < 28; *power receives exp(-x²) 2^-*exponent. */
static inline twice erfc_far_out(double x, double x_lo, int *exponent, double *power) {
    const double inverse = 1.0 / x, z = inverse * inverse, t = fma(z, 50.0, -1.0);
    double next = 0.0, after = 0.0;
#pragma unroll
    for (int k = 13; k > 0; k--) {
        const double now = fma(t + t, next, erfc_far[k] - after);
        after = next;
        next = now;
    }
    const double series = fma(t, next, erfc_far[0] - after);
    twice value = exp_of_minus_square(x, x_lo, exponent);
    *power = value.hi + value.lo;
    value = double_word_mul(value,
                            double_word_add(make_double_word(1.0, 0.0), make_double_word(z * series, 0.0)));
    value = double_word_mul(value, make_double_word(0.5641895835477563, 7.66772980658294e-18));
    const double ratio = value.hi * inverse;
    return make_double_word(ratio, (fma(-ratio, x, value.hi) + fma(-ratio, x_lo, value.lo)) * inverse);
}

static inline double erf_double(double x) {
    const double u = fmin(fabs(x), 5.9375); /* beyond, the result rounds to 1 */
    bool complement;
    const twice v = erf_about_node(u, 0.0, &complement);
    const double from = complement ? 1.0 : 0.0, sign = complement ? -1.0 : 1.0;
    const twice sum =
        double_word_add(make_double_word(from, 0.0), make_double_word(sign * v.hi, sign * v.lo));
    return x != x ? x : copysign(sum.hi + sum.lo, x);
}

/* erfc(x + x_lo). */
static inline double erfc_double(double x, double x_lo) {
    const bool negative = x < 0.0;
    const double u = fabs(x), u_lo = negative ? -x_lo : x_lo;
    if (u < ERFC_FAR) {
        bool complement;
        twice v = erf_about_node(u, u_lo, &complement);
        const double from = !complement ? 1.0
                            : negative  ? 2.0
                                        : 0.0,
                     sign = negative != complement ? 1.0 : -1.0;
        v = double_word_add(make_double_word(from, 0.0), make_double_word(sign * v.hi, sign * v.lo));
        return v.hi + v.lo;
    }
    if (!(u < 28.0)) return u != u ? x : negative ? 2.0 : 0.0;
    int exponent;
    double power;
    const twice v = erfc_far_out(u, u_lo, &exponent, &power);
    const double value = times_power_of_2(v.hi + v.lo, exponent);
    return negative ? 2.0 - value : value;
}

/* Taylor series of the inverse: the change of y for v = (t - erf(y)) / erf'(y). */
static inline double erf_inverse_change(double v, double y) {
    const double square = y * y;
    double change = fma(v * y, fma(square, 2.0, 7.0 / 6.0), fma(square, 4.0 / 3.0, 1.0 / 3.0));
    change = fma(v, change, y);
    return fma(v * v, change, v);
}

/* Refines y > 0 such that erf(y) = t and erfc(y) = q; the given y has 22 correct bits up to 10 and 15 beyond.
 * Uses t if it is below 1/2, else q. */
static inline twice erf_inverse_double(double t, double q, double y) {
    double v;
    if (y < ERFC_FAR) {
        bool complement;
        twice f = erf_about_node(y, 0.0, &complement);
        const bool by_t = t < 0.5;
        if (by_t == complement)
            f = double_word_add(make_double_word(1.0, 0.0), make_double_word(-f.hi, -f.lo));
        v = ((f.hi - (by_t ? t : q)) + f.lo) * (0.886226925452758 * exp(y * y));
        v = by_t ? -v : v;
    } else {
        for (int more = y > 10.0; more >= 0; more--) {
            int exponent;
            double power;
            const twice f = erfc_far_out(y, 0.0, &exponent, &power);
            v = ((f.hi - times_power_of_2(q, -exponent)) + f.lo) * 0.886226925452758 / power;
            if (more) y += erf_inverse_change(v, y);
        }
    }
    return double_word_add(make_double_word(y, 0.0), make_double_word(erf_inverse_change(v, y), 0.0));
}
#endif
