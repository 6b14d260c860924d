/* The logarithm of a sum of exponentials, log Σ exp(x_k) = m + log(s): m is the largest x_k, s = Σ exp(x_k -
 * m)
 * >= 1 a double-word number (double_word.h). A result near 0 is the difference of m and log(s), so fp64 takes
 * exponentials and the logarithm to some 56 bits; smaller types compute in double with WIDE. Without fp64,
 * the error is about an ulp of m. Infinities and NaN stand in m. */
typedef struct {
    A m;
    twice s;
} log_sum;

static inline log_sum make_log_sum(A m, twice s) {
    log_sum r;
    r.m = m;
    r.s = s;
    return r;
}

#ifdef A_DOUBLE
/* exp(x) for x <= 0 to 56 bits; below -700, some number below 1e-300. */
static inline twice exp_double_word(twice x) {
    const bool small = x.hi < -700.0;
    const double x_hi = small ? -700.0 : x.hi, x_lo = small ? 0.0 : x.lo, n = rint(x_hi * 1.4426950408889634);
    const double head = fma(n, -0.6931471805598903, x_hi); /* exact: log(2) to 43 bits */
    const double more = fma(n, -5.497923018708371e-14, x_lo), r = head + more;
    double p = 1.0 / 6227020800.0;
    p = fma(p, r, 1.0 / 479001600.0);
    p = fma(p, r, 1.0 / 39916800.0);
    p = fma(p, r, 1.0 / 3628800.0);
    p = fma(p, r, 1.0 / 362880.0);
    p = fma(p, r, 1.0 / 40320.0);
    p = fma(p, r, 1.0 / 5040.0);
    p = fma(p, r, 1.0 / 720.0);
    p = fma(p, r, 1.0 / 120.0);
    p = fma(p, r, 1.0 / 24.0);
    p = fma(p, r, 1.0 / 6.0);
    p = fma(p, r, 0.5);
    const twice sum =
        double_word_add(make_double_word(1.0, 0.0), make_double_word(head, fma(r * r, p, more)));
    const double hi = sum.hi + sum.lo, power = as_double((long)((int)n + 1023) << 52);
    return make_double_word(hi * power, (sum.lo - (hi - sum.hi)) * power);
}
#endif

/* exp(low - high) for low < high. */
static inline twice exp_of_difference(A low, A high) {
#ifdef A_DOUBLE
    return exp_double_word(double_word_add(make_double_word(low, 0.0), make_double_word(-high, 0.0)));
#else
    return make_double_word(exp(low - high), (A)0);
#endif
}

static inline log_sum log_add_exp(log_sum a, log_sum b) {
    const bool up = a.m < b.m;
    const log_sum low = up ? a : b, high = up ? b : a;
    const twice share = low.m == high.m ? low.s : double_word_mul(low.s, exp_of_difference(low.m, high.m));
    return make_log_sum(isnan(low.m) ? low.m : high.m, double_word_add(high.s, share));
}

static inline A log_sum_value(log_sum a) {
    if (!isfinite(a.m)) return a.m;
#ifdef WIDE
    return a.m + log(a.s);
#elif defined(A_DOUBLE)
    const double estimate = log(a.s.hi + a.s.lo);
    /* 1 + the error of the estimate */
    const twice one = double_word_mul(a.s, exp_double_word(make_double_word(-estimate, 0.0)));
    const twice sum = double_word_add(make_double_word(a.m, 0.0), make_double_word(estimate, 0.0));
    return sum.hi + (sum.lo + ((one.hi - 1.0) + one.lo));
#else
    return a.m + (log(a.s.hi) + a.s.lo / a.s.hi);
#endif
}
