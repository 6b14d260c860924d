/* Derivatives of samples with respect to distribution parameters, for the formulas of pointwise.def (sg_…):
 * implicit reparameterization, dx/da = -(dF/da) / (dF/dx) for a sample x of the distribution F(x; a).
 * Included after pointwise_special.cl. */

#ifdef R_IS_DOUBLE
#define LARGE K(4000.0)
#define STIRLING_FROM K(30.0) /* lower bound for the asymptotic (Bernoulli) series of ψ */
#else
#define LARGE K(60.0)
#define STIRLING_FROM K(10.0)
#endif

/* ψ(a + 1) - log(x); for x near a through the relative distance, because the logarithms would cancel. */
static inline R sg_digamma_minus_log(R a, R x) {
    if (a < STIRLING_FROM) return sf_digamma(a + K(1.0)) - log(x);
    const R mu = (x - a) / a, z = K(1.0) / (a * a);
    const R rest =
        K(0.5) / a - z * (K(8.3333333333333333333e-2) -
                          z * (K(8.3333333333333333333e-3) -
                               z * (K(3.9682539682539682540e-3) - z * K(4.1666666666666666667e-3))));
    return rest - (fabs(mu) < K(0.4) ? log1p(mu) : log(x) - log(a));
}

/* Asymptotic expansion for large a with x = a u: dx/da = g0(u) + g1(u) / a + g2(u) / a² solves g ((a - 1) / x
 * - 1) + dg/dx = ψ(a) - log(x) for each power of a. With d = 1 - u:
 * g0 = -u log(u) / d, g1 = u h(d), h = Σ d^k / ((k + 2) (k + 3)), g2 = u ((1 - d) h'(d) - 1/12) / d. */
static inline R sg_gamma_large(R a, R x) {
    const R u = x / a, d = (a - x) / a;
    R g0, h, tail;
    if (fabs(d) < K(0.25)) {
        R power = K(1.0), sum0 = K(0.0), sum1 = K(0.0), sum2 = K(0.0);
        for (int k = 0; k < 28; k++) {
            const R n = (R)k;
            sum0 += power / (n + K(1.0));
            sum1 += power / ((n + K(2.0)) * (n + K(3.0)));
            sum2 += power * ((n + K(2.0)) / ((n + K(4.0)) * (n + K(5.0))) -
                             (n + K(1.0)) / ((n + K(3.0)) * (n + K(4.0))));
            power *= d;
            if (!(fabs(power) > EPSILON)) break;
        }
        g0 = u * sum0;
        h = sum1;
        tail = sum2;
    } else {
        const R l = log(u), cube = d * d * d;
        g0 = -u * l / d;
        h = (u * l + d - K(0.5) * d * d) / cube;
        tail = (u * ((-l - d) / cube - K(3.0) * h / d) - K(8.3333333333333333333e-2)) / d;
    }
    return g0 + (u * h + u * tail / a) / a;
}

/* Gamma distribution of shape a: for x below the mean by the power series of the lower incomplete gamma
 * function, x^a exp(-x) Σ t_n / Γ(a), above it by the continued fraction of the upper one, each
 * differentiated with respect to a. */
static inline R sg_gamma(R a, R x) {
    if (x != x || !(a > K(0.0)) || isinf(a)) return (R)NAN;
    if (!(x > K(0.0))) return K(0.0);
    if (a > LARGE) return sg_gamma_large(a, x);
    const R gap = sg_digamma_minus_log(a, x);
    if (x <= a + K(1.0)) {
        R term = K(1.0) / a, sum = term, harmonic = K(0.0), moved = K(0.0);
        for (int n = 1; n < 4000; n++) {
            term *= x / (a + (R)n);
            harmonic += K(1.0) / (a + (R)n);
            sum += term;
            moved += term * harmonic;
            if (!(term * harmonic > moved * EPSILON)) break;
        }
        return x * (moved + sum * gap);
    }
    R b = x + K(1.0) - a, c = K(1.0) / TINY, c_ = K(0.0), d = K(1.0) / b, d_ = d * d, h = d, h_ = d_;
    for (int k = 1; k < 4000;
         k++) { /* Lentz's algorithm; names ending in _ are derivatives with respect to a */
        const R n = (R)k, an = n * (a - n);
        b += K(2.0);
        R e = an * d + b;
        const R e_ = n * d + an * d_ - K(1.0);
        e = fabs(e) < TINY ? TINY : e;
        d = K(1.0) / e;
        d_ = -d * d * e_;
        c_ = (n - an * (c_ / c)) / c - K(1.0);
        c = b + an / c;
        c = fabs(c) < TINY ? TINY : c;
        const R step = c * d, step_ = c_ * d + c * d_;
        h_ = h_ * step + h * step_;
        h *= step;
        if (!(fabs(step - K(1.0)) > EPSILON) && !(fabs(h * step_) > fabs(h_) * EPSILON)) break;
    }
    return x * (h * (K(1.0) / a - gap) + h_);
}

/* The continued fraction h of the incomplete beta function x^a (1 - x)^b / (a B(a, b)) · h, for x up to about
 * the mean, and its derivative with respect to a or, with `second`, b. */
static inline R sg_beta_fraction(R a, R b, R x, bool second, R *derivative) {
    const R total = a + b, above = a + K(1.0), below = a - K(1.0);
    R c = K(1.0), c_ = K(0.0), e = K(1.0) - total * x / above;
    const R e0_ = second ? -x / above : -x * (K(1.0) - b) / (above * above);
    e = fabs(e) < TINY ? TINY : e;
    R d = K(1.0) / e, d_ = -d * d * e0_, h = d, h_ = d_;
    for (int m = 1; m < 2000; m++) {
        const R n = (R)m, twice = K(2.0) * n;
        R moved = K(0.0), changed = K(0.0);
        for (int half_ = 0; half_ < 2; half_++) {
            const R under = a + twice, beside = half_ ? above + twice : below + twice;
            R an, an_;
            if (half_ == 0) {
                an = n * (b - n) * x / (beside * under);
                an_ = second ? n * x / (beside * under) : -an * (K(1.0) / beside + K(1.0) / under);
            } else {
                an = -(a + n) * (total + n) * x / (under * beside);
                an_ = second
                          ? -(a + n) * x / (under * beside)
                          : an * (K(1.0) / (a + n) + K(1.0) / (total + n) - K(1.0) / under - K(1.0) / beside);
            }
            e = K(1.0) + an * d;
            const R e_ = an_ * d + an * d_;
            e = fabs(e) < TINY ? TINY : e;
            d = K(1.0) / e;
            d_ = -d * d * e_;
            c_ = (an_ - an * (c_ / c)) / c;
            c = K(1.0) + an / c;
            c = fabs(c) < TINY ? TINY : c;
            const R step = c * d, step_ = c_ * d + c * d_;
            h_ = h_ * step + h * step_;
            h *= step;
            moved = fmax(moved, fabs(step - K(1.0)));
            changed = fmax(changed, fabs(h * step_));
        }
        if (!(moved > EPSILON) && !(changed > fabs(h_) * EPSILON)) break;
    }
    *derivative = h_;
    return h;
}

/* Dirichlet distribution: element x with concentration a, the sum of all concentrations is `total`. x has the
 * beta distribution of a and b = total - a; returns dx/da / (1 - x). */
static inline R sg_dirichlet(R x, R a, R total) {
    const R b = total - a, y = K(1.0) - x;
    if (x != x || !(a > K(0.0)) || !(b > K(0.0))) return (R)NAN;
    if (!(x > K(0.0))) return K(0.0);
    R gap; /* log(x) + ψ(total) - ψ(a + 1) */
    if (a < STIRLING_FROM) {
        gap = log(x) + sf_digamma(total) - sf_digamma(a + K(1.0));
    } else {
        const R mu = (x * total - a) / a, z = K(1.0) / (a * a), zt = K(1.0) / (total * total);
        const R tail = z * (K(8.3333333333333333333e-2) -
                            z * (K(8.3333333333333333333e-3) - z * K(3.9682539682539682540e-3)));
        const R tail_total = zt * (K(8.3333333333333333333e-2) -
                                   zt * (K(8.3333333333333333333e-3) - zt * K(3.9682539682539682540e-3)));
        const R ratio = fabs(mu) < K(0.4) ? log1p(mu) : log(x) + (log(total) - log(a));
        gap = ratio - K(0.5) / total - tail_total - K(0.5) / a + tail;
    }
    R moved;
    if (x < (a + K(1.0)) / (total + K(2.0))) {
        const R h = sg_beta_fraction(a, b, x, false, &moved);
        return -x / a * (h * gap + moved);
    }
    const R h = sg_beta_fraction(b, a, y, true, &moved);
    return x / b * (h * (gap + K(1.0) / a) + moved);
}
