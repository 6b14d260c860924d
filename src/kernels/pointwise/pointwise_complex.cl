/* Complex arithmetic and functions on T (float2 or double2), for the formulas of pointwise.def. Branch cuts,
 * signs of zero, infinities and NaN of functions follow Annex G of C99. Like PyTorch and NumPy, products and
 * quotients don't recover infinities. */
#define C(x, y) ((T)((x), (y)))
#ifdef R_IS_DOUBLE
#define EXP_LIMIT 709.0 /* exp, sinh and cosh overflow beyond it */
#define TOO_LARGE 1e150 /* for a square */
#define FAR 1e8         /* 1 + 1 / FAR² rounds to 1 */
#define NEARLY_LARGEST 0x1p1021
#define NEARLY_SMALLEST 0x1p-900
#define UP 0x1p108 /* even power of 2 that scales subnormals into the normal range */
#define SQRT_UP 0x1p54
#define LN2_LOW 2.3190468138462996e-17
#else
#define EXP_LIMIT 88.0f
#define TOO_LARGE 1e15f
#define FAR 1e4f
#define NEARLY_LARGEST 0x1p125f
#define NEARLY_SMALLEST 0x1p-90f
#define UP 0x1p48f
#define SQRT_UP 0x1p24f
#define LN2_LOW -1.9046542e-9f
#endif
#define LN2 K(0.69314718055994530942)

static inline T c_mul(T a, T b) { return C(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
/* s * b, where s is usually real: a real s keeps infinities of b. */
static inline T c_times(T s, T b) { return s.y == 0 ? b * s.x : c_mul(s, b); }
static inline R c_abs(T a) { return hypot(a.x, a.y); }
static inline R c_arg(T a) { return atan2(a.y, a.x); }
static inline bool c_zero(T a) { return a.x == 0 && a.y == 0; }
static inline bool c_isnan(T a) { return isnan(a.x) || isnan(a.y); }
/* A power of 2 that scales a number whose larger part is `high` so that its square neither overflows nor
 * underflows. */
static inline R c_even(R high) {
    return high > NEARLY_LARGEST ? K(0.25) : high < NEARLY_SMALLEST ? UP : K(1.0);
}
static inline R c_high(T a) { return fmax(fabs(a.x), fabs(a.y)); }
/* Smith's algorithm: scales so that no intermediate result overflows. */
static inline T c_div(T a, T b) {
    const R high = c_high(b), by = c_even(high), down = c_high(a) > NEARLY_LARGEST ? K(0.25) : K(1.0);
    if (b.x == 0 && b.y == 0) return C(a.x / fabs(b.x), a.y / fabs(b.x));
    b *= by;
    a *= down;
    const bool wide = fabs(b.x) >= fabs(b.y);
    const R ratio = wide ? b.y / b.x : b.x / b.y, d = wide ? b.x + b.y * ratio : b.x * ratio + b.y;
    const R x = wide ? a.x + a.y * ratio : a.x * ratio + a.y,
            y = wide ? a.y - a.x * ratio : a.y * ratio - a.x;
    return C(x / d * by / down, y / d * by / down);
}
/* e^x * c * factor, where e^x may overflow; quarter = e^(x/4), c may be tiny. */
static inline R c_grown(R quarter, R c, R factor) {
    return c * quarter * quarter * quarter * (quarter * factor);
}
static inline T c_exp(T a) {
    if (a.y == 0) return C(exp(a.x), a.y);
    if (!isfinite(a.y) && isinf(a.x)) return a.x < 0 ? C(K(0.0), copysign(K(0.0), a.y)) : C(a.x, (R)NAN);
    const R c = cos(a.y), s = sin(a.y), quarter = exp(K(0.25) * a.x);
    if (a.x > EXP_LIMIT) return C(c_grown(quarter, c, K(1.0)), c_grown(quarter, s, K(1.0)));
    const R e = exp(a.x);
    return C(e * c, e * s);
}
/* The angle y ln 2 is computed in double-word precision. */
static inline T c_exp2(T a) {
    const R turn = a.y * LN2, rest = fma(a.y, LN2, -turn) + a.y * LN2_LOW;
    if (a.y == 0) return C(exp2(a.x), a.y);
    if (!isfinite(turn) || isinf(a.x)) return c_exp(C(a.x, turn));
    const R c = cos(turn) * cos(rest) - sin(turn) * sin(rest),
            s = sin(turn) * cos(rest) + cos(turn) * sin(rest);
    const R quarter = exp2(K(0.25) * a.x);
    if (a.x > EXP_LIMIT) return C(c_grown(quarter, c, K(1.0)), c_grown(quarter, s, K(1.0)));
    const R e = exp2(a.x);
    return C(e * c, e * s);
}
/* first + x² + y² with compensated rounding, for parts below 2; first = -1 gives |a|² - 1. */
static inline R c_with_squares(R first, R x, R y) {
#pragma OPENCL FP_CONTRACT OFF
    const R xx = x * x, one = first + xx, of_xx = one - first,
            one_rest = (first - (one - of_xx)) + (xx - of_xx);
    const R yy = y * y, two = one + yy, of_yy = two - one, two_rest = (one - (two - of_yy)) + (yy - of_yy);
    return two + (one_rest + two_rest + (fma(x, x, -xx) + fma(y, y, -yy)));
}
/* log |a| */
static inline R c_log_abs(T a) {
    const R x = fabs(a.x), y = fabs(a.y), high = fmax(x, y), low = fmin(x, y);
    if (isinf(high)) return (R)INFINITY;
    if (x != x || y != y) return (R)NAN;
    if (high > K(0.5) && high < K(2.0)) return K(0.5) * log1p(c_with_squares(K(-1.0), high, low));
    const R ratio = high == 0 ? K(0.0) : low / high;
    return log(high) + K(0.5) * log1p(ratio * ratio);
}
static inline T c_log(T a) { return C(c_log_abs(a), c_arg(a)); }
static inline T c_sqrt(T a) {
    if (c_zero(a)) return C(K(0.0), a.y);
    if (isinf(a.y)) return C((R)INFINITY, a.y);
    if (isinf(a.x)) {
        if (a.x > 0) return C(a.x, isnan(a.y) ? a.y : copysign(K(0.0), a.y));
        return isnan(a.y) ? C(a.y, (R)INFINITY) : C(K(0.0), copysign((R)INFINITY, a.y));
    }
    const R before = c_even(c_high(a)), after = before < 1 ? K(2.0) : before > 1 ? 1 / SQRT_UP : K(1.0);
    a *= before;
    const R t = sqrt(K(0.5) * fabs(a.x) + K(0.5) * hypot(a.x, a.y)), u = a.y / (2 * t) * after;
    return a.x >= 0 ? C(t * after, u) : C(fabs(u), copysign(t * after, a.y));
}
static inline T c_pow(T a, T b) {
    if (c_zero(b)) return C(K(1.0), K(0.0));
    if (c_zero(a)) return b.x > 0 ? C(K(0.0), K(0.0)) : b.y == 0 ? C((R)INFINITY, (R)NAN) : C((R)NAN, (R)NAN);
    if (b.y == 0 && b.x == 1) return a;
    if (b.y == 0 && b.x == 2) return c_mul(a, a);
    if (b.y == 0 && b.x == 3) return c_mul(a, c_mul(a, a));
    if (b.y == 0 && b.x == K(0.5)) return c_sqrt(a);
    return c_exp(c_mul(b, c_log(a)));
}
static inline T c_sinh(T a) {
    if (a.y == 0) return C(sinh(a.x), a.y);
    if (!isfinite(a.y)) return C(a.x == 0 ? a.x : isinf(a.x) ? (R)INFINITY : (R)NAN, (R)NAN);
    const R c = cos(a.y), s = sin(a.y), quarter = exp(K(0.25) * fabs(a.x));
    if (fabs(a.x) > EXP_LIMIT)
        return C(c_grown(quarter, c, copysign(K(0.5), a.x)), c_grown(quarter, s, K(0.5)));
    return C(sinh(a.x) * c, cosh(a.x) * s);
}
static inline T c_cosh(T a) {
    if (a.y == 0) return C(cosh(a.x), a.x != a.x ? a.y : copysign(K(0.0), a.x) * a.y);
    if (!isfinite(a.y)) return C(isinf(a.x) ? (R)INFINITY : (R)NAN, a.x == 0 ? K(0.0) : (R)NAN);
    const R c = cos(a.y), s = sin(a.y), quarter = exp(K(0.25) * fabs(a.x));
    if (fabs(a.x) > EXP_LIMIT)
        return C(c_grown(quarter, c, K(0.5)), c_grown(quarter, s, copysign(K(0.5), a.x)));
    return C(cosh(a.x) * c, sinh(a.x) * s);
}
/* Kahan's formula: with t = tan y, (cosh x sinh x (1 + t²) + i t) / (1 + sinh² x (1 + t²)). */
static inline T c_tanh(T a) {
    if (a.y == 0) return C(tanh(a.x), a.y);
    if (!isfinite(a.y) && !isinf(a.x)) return C(a.x == 0 ? a.x : (R)NAN, (R)NAN);
    if (fabs(a.x) > K(20.0)) {
        R e = exp(K(-2.0) * fabs(a.x));
        return C(copysign(K(1.0), a.x), isfinite(a.y) ? 4 * sin(a.y) * cos(a.y) * e : copysign(K(0.0), a.y));
    }
    R t = tan(a.y), s = sinh(a.x), beta = 1 + t * t, rho = sqrt(1 + s * s), d = 1 + beta * s * s;
    return C(beta * rho * s / d, t / d);
}
static inline T c_times_i(T a) { return C(-a.y, a.x); }       /* i a */
static inline T c_times_minus_i(T a) { return C(a.y, -a.x); } /* -i a */
static inline T c_sin(T a) {
    if (isinf(a.y) && !isfinite(a.x)) return C((R)NAN, (R)INFINITY);
    return c_times_minus_i(c_sinh(c_times_i(a)));
}
static inline T c_cos(T a) { return c_cosh(c_times_i(a)); }
static inline T c_tan(T a) { return c_times_minus_i(c_tanh(c_times_i(a))); }
/* Inverse functions after Kahan, "Branch cuts for complex elementary functions" (1987). Far from 0 they equal
 * -i log 2iz or i log 2z up to 1 / (2z)². Numbers with an infinite part are far, even if the other part is
 * NaN. */
static inline bool c_far(T a) { return fabs(a.x) > FAR || fabs(a.y) > FAR; }
static inline T c_acos(T a) {
    if (c_far(a)) return C(atan2(fabs(a.y), a.x), -copysign(c_log_abs(a) + LN2, a.y));
    if (a.x == 0 && a.y != a.y) return C(PI / 2, a.y);
    T p = c_sqrt(C(1 - a.x, -a.y)), q = c_sqrt(C(1 + a.x, a.y));
    return C(2 * atan2(p.x, q.x), asinh(q.x * p.y - q.y * p.x));
}
static inline T c_asin(T a) {
    if (c_far(a)) return C(copysign(atan2(fabs(a.x), fabs(a.y)), a.x), copysign(c_log_abs(a) + LN2, a.y));
    if (a.x == 0 && a.y != a.y) return a;
    T p = c_sqrt(C(1 - a.x, -a.y)), q = c_sqrt(C(1 + a.x, a.y));
    return C(atan2(a.x, p.x * q.x - p.y * q.y), asinh(p.x * q.y - p.y * q.x));
}
static inline T c_acosh(T a) {
    const T angle = c_acos(a);
    return C(fabs(angle.y), copysign(angle.x, a.y));
}
static inline T c_asinh(T a) { return c_times_minus_i(c_asin(c_times_i(a))); }
static inline T c_atanh(T a) {
    const R x = fabs(a.x), y = fabs(a.y), apart = 1 - x;
    R real, imag;
    if (x > TOO_LARGE || y > TOO_LARGE) { /* atanh(a) ≈ 1 / a ± iπ/2 */
        R r = fmax(x, y), h = (x / r) * (x / r) + (y / r) * (y / r);
        real = isinf(r) ? K(0.0) : x / r / h / r;
        imag = isinf(y) || (x == x && y == y) ? PI / 2 : (R)NAN;
    } else {
        const R distance = apart * apart + y * y;
        /* For a small distance, its square may underflow to 0. */
        real = x == 0 && y != y     ? x
               : distance < K(1e-6) ? K(0.5) * (c_log_abs(C(1 + x, y)) - c_log_abs(C(apart, y)))
                                    : K(0.25) * log1p(4 * x / distance);
        imag = K(0.5) * atan2(2 * y, apart * (1 + x) - y * y);
    }
    return C(copysign(real, a.x), copysign(imag, a.y));
}
static inline T c_atan(T a) { return c_times_minus_i(c_atanh(c_times_i(a))); }
static inline T c_reciprocal(T a) { return c_div(C(K(1.0), K(0.0)), a); }
static inline T c_rsqrt(T a) { return c_reciprocal(c_sqrt(a)); }
/* Uses the exponential that doesn't overflow. */
static inline T c_sigmoid(T a) {
    const T one = C(K(1.0), K(0.0)), e = c_exp(a.x < 0 ? a : -a);
    return c_div(a.x < 0 ? e : one, one + e);
}
static inline T c_expm1(T a) {
    if (a.y == 0) return C(expm1(a.x), a.y);
    if (!(fabs(a.x) < EXP_LIMIT) || !isfinite(a.y)) return c_exp(a) - C(K(1.0), K(0.0));
    R e = expm1(a.x), h = sin(K(0.5) * a.y);
    return C(e * cos(a.y) - 2 * h * h, exp(a.x) * sin(a.y));
}
static inline T c_log1p(T a) {
    const R x = a.x + 1, high = fmax(fabs(x), fabs(a.y));
    const bool near = high > K(0.5) && high < K(2.0) && x == x && a.y == a.y;
    return C(near ? K(0.5) * log1p(c_with_squares(2 * a.x, a.x, a.y)) : c_log_abs(C(x, a.y)), atan2(a.y, x));
}
/* The operand with the smaller real part is taken relative to the other. */
static inline T c_logaddexp(T a, T b) {
    if (c_isnan(a) || c_isnan(b)) return C((R)NAN, (R)NAN);
    T low = a.x < b.x ? a : b, high = a.x < b.x ? b : a;
    if (low.x == high.x && isinf(low.x)) return low.x < 0 ? low : c_log(c_exp(low) + c_exp(high));
    return high + c_log1p(c_exp(low - high));
}
static inline T c_scale(T a, R s) { return C(a.x * s, a.y * s); }
static inline T c_sgn(T a) {
    if (c_zero(a)) return C(K(0.0), K(0.0));
    a *= c_even(c_high(a));
    const R length = c_abs(a);
    return C(a.x / length, a.y / length);
}
static inline T c_conj(T a) { return C(a.x, -a.y); }
static inline T c_sinc(T a) {
    return c_zero(a) ? C(K(1.0), K(0.0)) : c_div(c_sin(c_scale(a, PI)), c_scale(a, PI));
}
static inline T c_lerp(T a, T b, T w) {
    return c_abs(w) < K(0.5) ? a + c_mul(w, b - a) : b - c_mul(b - a, C(1 - w.x, -w.y));
}
static inline T c_silu_grad(T g, T x) {
    T one = C(K(1.0), K(0.0)), s = c_sigmoid(x);
    return c_mul(g, c_mul(s, one + c_mul(x, one - s)));
}
