/* Orthogonal polynomials of degree n in R, for formulas of pointwise.def (sp_…): 0 for negative degrees.
 *
 * All come from recurrences of three terms; Chebyshev's within (-1, 1) and of higher degree from the cosine of
 * n times the angle. Kinds of Chebyshev: T first, U second, V third, W fourth. */

#define FIRST 0
#define SECOND 1
#define THIRD 2
#define FOURTH 3

static inline R sp_chebyshev(R x, R degree, int kind) {
    const long n = (long)degree;
    const bool even = n % 2 == 0;
    if (n < 0) return K(0.0);
    if (fabs(x) == K(1.0)) {
        const R many = kind == SECOND ? (R)(n + 1) : (R)(n + n + 1), sign = even ? K(1.0) : K(-1.0);
        if (kind == FIRST) return x > K(0.0) ? K(1.0) : sign;
        if (kind == SECOND) return x > K(0.0) ? many : sign * many;
        return (x > K(0.0)) == (kind == THIRD) ? (kind == THIRD ? K(1.0) : sign) : kind == THIRD ? sign * many : many;
    }
    if (n > 8 && fabs(x) < K(1.0)) {
        const R angle = acos(x), middle = ((R)n + K(0.5)) * angle;
        if (kind == FIRST) return cos((R)n * angle);
        if (kind == SECOND) return sin((R)(n + 1) * angle) / sin(angle);
        return kind == THIRD ? cos(middle) / cos(K(0.5) * angle) : sin(middle) / sin(K(0.5) * angle);
    }
    R before = K(1.0), now = x + x;
    if (kind == FIRST) now = x;
    if (kind == THIRD) now -= K(1.0);
    if (kind == FOURTH) now += K(1.0);
    if (n == 0) return before;
    for (long k = 2; k <= n && now == now; k++) {
        const R next = (x + x) * now - before;
        before = now;
        now = next;
    }
    return now;
}

/* Hermite's, the physicists' (scale 2) and the probabilists' (1); too large to be a number from some degree on. */
static inline R sp_hermite(R x, R degree, R scale) {
    const long n = (long)degree;
    R before = K(1.0), now = scale * x;
    if (n < 0) return K(0.0);
#ifdef R_IS_DOUBLE
    if (n > 512) return (R)NAN;
#else
    if (n > 128) return (R)NAN;
#endif
    if (n == 0) return before;
    for (long k = 1; k < n && now == now; k++) {
        const R next = scale * (x * now - (R)k * before);
        before = now;
        now = next;
    }
    return now;
}

static inline R sp_laguerre(R x, R degree) {
    const long n = (long)degree;
    R before = K(1.0), now = K(1.0) - x;
    if (n < 0) return K(0.0);
    if (n == 0 || x == K(0.0)) return before;
    for (long k = 1; k < n && now == now; k++) {
        const R next = (((R)(k + k + 1) - x) * now - (R)k * before) / (R)(k + 1);
        before = now;
        now = next;
    }
    return now;
}

static inline R sp_legendre(R x, R degree) {
    const long n = (long)degree;
    R before = K(1.0), now = x;
    if (n < 0) return K(0.0);
    if (fabs(x) == K(1.0)) return x > K(0.0) || n % 2 == 0 ? K(1.0) : K(-1.0);
    if (n == 0) return before;
    for (long k = 1; k < n && now == now; k++) {
        const R next = ((R)(k + k + 1) * x * now - (R)k * before) / (R)(k + 1);
        before = now;
        now = next;
    }
    return now;
}
