/* Orthogonal polynomials of degree n in R, for the formulas of pointwise.def (sp_…): 0 for negative degrees.
 *
 * Computed by three-term recurrences; Chebyshev polynomials of higher degree within (-1, 1) by the cosine of
 * n times the angle. Kinds of Chebyshev polynomials: T first, U second, V third, W fourth. */

#include "pointwise/wide.h"

#define FIRST 0
#define SECOND 1
#define THIRD 2
#define FOURTH 3

static inline R sp_chebyshev(WIDE x, R degree, int kind) {
    const long n = (long)degree;
    const bool even = n % 2 == 0;
    if (n < 0) return K(0.0);
    if (fabs(x) == KW(1.0)) {
        const WIDE many = kind == SECOND ? (WIDE)(n + 1) : (WIDE)(n + n + 1),
                   sign = even ? KW(1.0) : KW(-1.0);
        if (kind == FIRST) return x > KW(0.0) ? KW(1.0) : sign;
        if (kind == SECOND) return x > KW(0.0) ? many : sign * many;
        return (x > KW(0.0)) == (kind == THIRD) ? (kind == THIRD ? KW(1.0) : sign)
               : kind == THIRD                  ? sign * many
                                                : many;
    }
    if (n > 8 && fabs(x) < KW(1.0)) {
        const WIDE angle = acos(x), middle = ((WIDE)n + KW(0.5)) * angle;
        if (kind == FIRST) return cos((WIDE)n * angle);
        if (kind == SECOND) return sin((WIDE)(n + 1) * angle) / sin(angle);
        return kind == THIRD ? cos(middle) / cos(KW(0.5) * angle) : sin(middle) / sin(KW(0.5) * angle);
    }
    WIDE before = KW(1.0), now = x + x;
    if (kind == FIRST) now = x;
    if (kind == THIRD) now -= KW(1.0);
    if (kind == FOURTH) now += KW(1.0);
    if (n == 0) return before;
    for (long k = 2; k <= n && now == now; k++) {
        const WIDE next = (x + x) * now - before;
        before = now;
        now = next;
    }
    return now;
}

/* Hermite polynomials: the physicists' (scale 2) and the probabilists' (scale 1); NaN for degrees above 512
 * (128 without fp64). */
static inline R sp_hermite(WIDE x, R degree, WIDE scale) {
    const long n = (long)degree;
    WIDE before = KW(1.0), now = scale * x;
    if (n < 0) return K(0.0);
#ifdef R_IS_DOUBLE
    if (n > 512) return (R)NAN;
#else
    if (n > 128) return (R)NAN;
#endif
    if (n == 0) return before;
    for (long k = 1; k < n && now == now; k++) {
        const WIDE next = scale * (x * now - (WIDE)k * before);
        before = now;
        now = next;
    }
    return now;
}

static inline R sp_laguerre(WIDE x, R degree) {
    const long n = (long)degree;
    WIDE before = KW(1.0), now = KW(1.0) - x;
    if (n < 0) return K(0.0);
    if (n == 0 || x == KW(0.0)) return before;
    for (long k = 1; k < n && now == now; k++) {
        const WIDE next = (((WIDE)(k + k + 1) - x) * now - (WIDE)k * before) / (WIDE)(k + 1);
        before = now;
        now = next;
    }
    return now;
}

static inline R sp_legendre(WIDE x, R degree) {
    const long n = (long)degree;
    WIDE before = KW(1.0), now = x;
    if (n < 0) return K(0.0);
    if (fabs(x) == KW(1.0)) return x > KW(0.0) || n % 2 == 0 ? KW(1.0) : KW(-1.0);
    if (n == 0) return before;
    for (long k = 1; k < n && now == now; k++) {
        const WIDE next = ((WIDE)(k + k + 1) * x * now - (WIDE)k * before) / (WIDE)(k + 1);
        before = now;
        now = next;
    }
    return now;
}
