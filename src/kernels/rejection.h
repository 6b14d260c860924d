/* Distributions that draw a variable number of random words: gamma (Marsaglia and Tsang, 2000), Poisson and
 * binomial (Hörmann's transformed rejection, PTRS and BTRS, 1993; small parameters directly). Each element
 * has its own Philox subsequence. random.cl, which includes this, defines `real`, REAL, open0, open1 and
 * normal. */

typedef struct words {
    ulong seed, sequence, counter;
    uint bits[4];
    int used;
} words;

static inline uint next_word(words *w) {
    if (w->used == 4) {
        vstore4(xpu_philox(w->seed, w->sequence, w->counter++), 0, w->bits);
        w->used = 0;
    }
    return w->bits[w->used++];
}

static inline real next_open0(words *w) {
    const uint high = next_word(w);
    return open0(high, sizeof(real) == 8 ? next_word(w) : 0);
}
static inline real next_open1(words *w) {
    const uint high = next_word(w);
    return open1(high, sizeof(real) == 8 ? next_word(w) : 0);
}

#if DIST == GAMMA
static inline real rejection_sample(words *w, real alpha, real unused) {
    if (!(alpha > REAL(0.0)) || isinf(alpha))
        return alpha == REAL(0.0) ? REAL(0.0) : alpha > REAL(0.0) ? alpha : (real)NAN;
    real scale = REAL(1.0);
    if (alpha < REAL(1.0)) { /* gamma(alpha) = gamma(alpha + 1) * u^(1 / alpha) */
        scale = pow(next_open0(w), REAL(1.0) / alpha);
        alpha += REAL(1.0);
    }
    const real d = alpha - REAL(1.0) / REAL(3.0), c = REAL(1.0) / sqrt(REAL(9.0) * d);
    for (;;) {
        const real u = next_open0(w), x = normal(u, next_open1(w), 0), y = REAL(1.0) + c * x;
        if (y <= REAL(0.0)) continue;
        const real v = y * y * y, chance = next_open0(w);
        if (chance < REAL(1.0) - REAL(0.0331) * x * x * x * x ||
            log(chance) < REAL(0.5) * x * x + d * (REAL(1.0) - v + log(v)))
            return scale * d * v;
    }
}
#endif

#if DIST == POISSON
/* log(e^-m m^k / k!), without the cancellation of its large terms. */
static inline real log_poisson(real m, real k) {
    if (k < REAL(10.0)) return k * log(m) - m - lgamma(k + REAL(1.0));
    const real t = k - m, inverse = REAL(1.0) / k;
    return t - k * log1p(t / m) - REAL(0.5) * log(REAL(6.283185307179586) * k) -
           inverse * (REAL(1.0) / REAL(12.0) - inverse * inverse / REAL(360.0));
}

static inline real rejection_sample(words *w, real mean, real unused) {
    if (!(mean > REAL(0.0))) return mean == REAL(0.0) ? mean : (real)NAN;
    if (isinf(mean)) return mean;
    if (mean < REAL(10.0)) { /* Knuth: multiply uniform values until the product is below e^-mean */
        const real end = exp(-mean);
        real product = next_open0(w), k = REAL(0.0);
        for (; product > end; k += REAL(1.0)) product *= next_open0(w);
        return k;
    }
    const real b = REAL(0.931) + REAL(2.53) * sqrt(mean), a = REAL(-0.059) + REAL(0.02483) * b;
    const real inverse_alpha = REAL(1.1239) + REAL(1.1328) / (b - REAL(3.4));
    const real high = REAL(0.9277) - REAL(3.6224) / (b - REAL(2.0));
    for (;;) {
        const real u = next_open1(w) - REAL(0.5), v = next_open0(w), from_edge = REAL(0.5) - fabs(u);
        const real k = floor((REAL(2.0) * a / from_edge + b) * u + mean + REAL(0.43));
        if (from_edge >= REAL(0.07) && v <= high) return k;
        if (k < REAL(0.0) || (from_edge < REAL(0.013) && v > from_edge)) continue;
        if (log(v * inverse_alpha / (a / (from_edge * from_edge) + b)) <= log_poisson(mean, k)) return k;
    }
}
#endif

#if DIST == BINOMIAL
/* The remainder of Stirling's approximation of log(k!). */
static inline real stirling_rest(real k) {
    if (k < REAL(10.0))
        return lgamma(k + REAL(1.0)) - (k + REAL(0.5)) * log(k + REAL(1.0)) + k + REAL(1.0) -
               REAL(0.9189385332046727);
    const real inverse = REAL(1.0) / (k + REAL(1.0)), square = inverse * inverse;
    return inverse * (REAL(1.0) / REAL(12.0) - square * (REAL(1.0) / REAL(360.0) - square / REAL(1260.0)));
}

/* Requires p <= 1/2. */
static inline real binomial(words *w, real n, real p) {
    if (n * p < REAL(10.0)) { /* sums geometric waiting times until they exceed n */
        const real failing = log1p(-p);
        real trials = REAL(0.0), k = REAL(0.0);
        for (;; k += REAL(1.0)) {
            trials += ceil(log(next_open0(w)) / failing);
            if (!(trials <= n)) return k;
        }
    }
    const real q = REAL(1.0) - p, spread = sqrt(n * p * q), b = REAL(1.15) + REAL(2.53) * spread;
    const real a = REAL(-0.0873) + REAL(0.0248) * b + REAL(0.01) * p, c = n * p + REAL(0.5);
    const real high = REAL(0.92) - REAL(4.2) / b, alpha = (REAL(2.83) + REAL(5.1) / b) * spread;
    const real m = floor((n + REAL(1.0)) * p), r = p / q;
    for (;;) {
        const real u = next_open1(w) - REAL(0.5), v = next_open0(w), from_edge = REAL(0.5) - fabs(u);
        const real k = floor((REAL(2.0) * a / from_edge + b) * u + c);
        if (k < REAL(0.0) || k > n) continue;
        if (from_edge >= REAL(0.07) && v <= high) return k;
        const real most = n - m + REAL(1.0), here = n - k + REAL(1.0);
        const real bound = (m + REAL(0.5)) * log((m + REAL(1.0)) / (r * most)) +
                           (n + REAL(1.0)) * log1p((k - m) / here) +
                           (k + REAL(0.5)) * log(r * here / (k + REAL(1.0))) + stirling_rest(m) +
                           stirling_rest(n - m) - stirling_rest(k) - stirling_rest(n - k);
        if (log(v * alpha / (a / (from_edge * from_edge) + b)) <= bound) return k;
    }
}

static inline real rejection_sample(words *w, real n, real p) {
    if (isnan(n) || isnan(p)) return (real)NAN;
    if (n <= REAL(0.0) || p <= REAL(0.0)) return REAL(0.0);
    if (p >= REAL(1.0)) return n;
    return p <= REAL(0.5) ? binomial(w, n, p) : n - binomial(w, n, REAL(1.0) - p);
}
#endif
