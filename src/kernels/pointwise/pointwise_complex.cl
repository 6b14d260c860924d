/* Complex arithmetic and functions on T (float2 or double2), for formulas of pointwise.def. Branch cuts
 * and signs of zero as in C99's complex functions; infinities as far as PyTorch's CUDA kernels. */
#define C(x, y) ((T)((x), (y)))

static inline T c_mul(T a, T b) { return C(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
/* A parameter, mostly real, times b: 1 leaves infinities as they are. */
static inline T c_times(T s, T b) { return s.y == 0 ? b * s.x : c_mul(s, b); }
static inline R c_abs(T a) { return hypot(a.x, a.y); }
static inline R c_arg(T a) { return atan2(a.y, a.x); }
static inline bool c_zero(T a) { return a.x == 0 && a.y == 0; }
static inline bool c_isnan(T a) { return isnan(a.x) || isnan(a.y); }
/* Smith's way, which scales so that nothing overflows in between. */
static inline T c_div(T a, T b) {
    R x = fabs(b.x), y = fabs(b.y);
    if (x >= y) {
        if (x == 0 && y == 0) return C(a.x / x, a.y / y);
        R ratio = b.y / b.x, scale = K(1.0) / (b.x + b.y * ratio);
        return C((a.x + a.y * ratio) * scale, (a.y - a.x * ratio) * scale);
    }
    R ratio = b.x / b.y, scale = K(1.0) / (b.x * ratio + b.y);
    return C((a.x * ratio + a.y) * scale, (a.y * ratio - a.x) * scale);
}
static inline T c_exp(T a) {
    R e = exp(a.x);
    if (a.y == 0) return C(e, a.y);
    if (a.x == -(R)INFINITY && !isfinite(a.y)) return C(K(0.0), K(0.0));
    if (a.x == (R)INFINITY && !isfinite(a.y)) return C((R)INFINITY, (R)NAN);
    return C(e * cos(a.y), e * sin(a.y));
}
/* log |a| without cancellation near the unit circle. */
static inline R c_log_abs(T a) {
    R x = fabs(a.x), y = fabs(a.y), high = fmax(x, y), low = fmin(x, y);
    if (high > K(0.5) && high < K(2.0) && low < K(2.0)) return K(0.5) * log1p((high - 1) * (high + 1) + low * low);
    return log(hypot(x, y));
}
static inline T c_log(T a) { return C(c_log_abs(a), c_arg(a)); }
static inline T c_sqrt(T a) {
    if (c_zero(a)) return C(K(0.0), a.y);
    if (isinf(a.y)) return C((R)INFINITY, a.y);
    if (isinf(a.x)) {
        if (a.x > 0) return C(a.x, isnan(a.y) ? a.y : copysign(K(0.0), a.y));
        return isnan(a.y) ? C(a.y, a.x) : C(K(0.0), copysign((R)INFINITY, a.y));
    }
    R t = sqrt(K(0.5) * fabs(a.x) + K(0.5) * hypot(a.x, a.y));
    return a.x >= 0 ? C(t, a.y / (2 * t)) : C(fabs(a.y) / (2 * t), copysign(t, a.y));
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
    return C(sinh(a.x) * cos(a.y), cosh(a.x) * sin(a.y));
}
static inline T c_cosh(T a) {
    if (a.y == 0) return C(cosh(a.x), copysign(K(0.0), a.x) * a.y);
    return C(cosh(a.x) * cos(a.y), sinh(a.x) * sin(a.y));
}
/* Kahan's: with t = tan y, (cosh x sinh x (1 + t²) + i t) / (1 + sinh² x (1 + t²)). */
static inline T c_tanh(T a) {
    if (fabs(a.x) > K(20.0)) {
        R e = exp(K(-2.0) * fabs(a.x));
        return C(copysign(K(1.0), a.x), isfinite(a.y) ? 4 * sin(a.y) * cos(a.y) * e : copysign(K(0.0), a.y));
    }
    R t = tan(a.y), s = sinh(a.x), beta = 1 + t * t, rho = sqrt(1 + s * s), d = 1 + beta * s * s;
    return C(beta * rho * s / d, t / d);
}
static inline T c_turn(T a) { return C(-a.y, a.x); }      /* i a */
static inline T c_unturn(T a) { return C(a.y, -a.x); }    /* -i a */
static inline T c_sin(T a) { return c_unturn(c_sinh(c_turn(a))); }
static inline T c_cos(T a) { return c_cosh(c_turn(a)); }
static inline T c_tan(T a) { return c_unturn(c_tanh(c_turn(a))); }
/* Inverse functions as in Kahan, "Branch cuts for complex elementary functions" (1987). */
static inline T c_acos(T a) {
    T p = c_sqrt(C(1 - a.x, -a.y)), q = c_sqrt(C(1 + a.x, a.y));
    return C(2 * atan2(p.x, q.x), asinh(q.x * p.y - q.y * p.x));
}
static inline T c_asin(T a) {
    T p = c_sqrt(C(1 - a.x, -a.y)), q = c_sqrt(C(1 + a.x, a.y));
    return C(atan2(a.x, p.x * q.x - p.y * q.y), asinh(p.x * q.y - p.y * q.x));
}
static inline T c_acosh(T a) {
    T p = c_sqrt(C(a.x - 1, a.y)), q = c_sqrt(C(a.x + 1, a.y));
    return C(asinh(p.x * q.x + p.y * q.y), 2 * atan2(p.y, q.x));
}
static inline T c_asinh(T a) { return c_unturn(c_asin(c_turn(a))); }
static inline T c_atanh(T a) {
    R x = fabs(a.x), y = fabs(a.y);
    R real, imag;
    if (x > K(1e15) || y > K(1e15)) {
        R r = fmax(x, y), h = (x / r) * (x / r) + (y / r) * (y / r);
        real = isinf(x) || isinf(y) ? K(0.0) : (x / r) / (r * h);
        imag = PI / 2;
    } else {
        real = K(0.25) * log1p(4 * x / ((1 - x) * (1 - x) + y * y));
        imag = K(0.5) * atan2(2 * y, (1 - x) * (1 + x) - y * y);
    }
    return C(copysign(real, a.x), copysign(imag, a.y));
}
static inline T c_atan(T a) { return c_unturn(c_atanh(c_turn(a))); }
static inline T c_reciprocal(T a) { return c_div(C(K(1.0), K(0.0)), a); }
static inline T c_sigmoid(T a) { return c_reciprocal(C(K(1.0), K(0.0)) + c_exp(-a)); }
static inline T c_expm1(T a) {
    R e = expm1(a.x), h = sin(K(0.5) * a.y);
    return C(e * cos(a.y) - 2 * h * h, (e + 1) * sin(a.y));
}
static inline T c_log1p(T a) {
    R x = a.x + 1, y = fabs(a.y);
    R real = y < K(0.5) && fabs(a.x) < K(0.5) ? K(0.5) * log1p(a.x * (2 + a.x) + y * y) : c_log_abs(C(x, a.y));
    return C(real, atan2(a.y, x));
}
/* The operand with the smaller real part is taken relative to the other. */
static inline T c_logaddexp(T a, T b) {
    if (c_isnan(a) || c_isnan(b)) return C((R)NAN, (R)NAN);
    T low = a.x < b.x ? a : b, high = a.x < b.x ? b : a;
    if (low.x == high.x && isinf(low.x)) return low.x < 0 ? low : c_log(c_exp(low) + c_exp(high));
    return high + c_log1p(c_exp(low - high));
}
static inline T c_scale(T a, R s) { return C(a.x * s, a.y * s); }
static inline T c_sgn(T a) { return c_zero(a) ? C(K(0.0), K(0.0)) : c_scale(a, 1 / c_abs(a)); }
static inline T c_conj(T a) { return C(a.x, -a.y); }
static inline T c_sinc(T a) { return c_zero(a) ? C(K(1.0), K(0.0)) : c_div(c_sin(c_scale(a, PI)), c_scale(a, PI)); }
static inline T c_lerp(T a, T b, T w) {
    return c_abs(w) < K(0.5) ? a + c_mul(w, b - a) : b - c_mul(b - a, C(1 - w.x, -w.y));
}
static inline T c_silu_grad(T g, T x) {
    T one = C(K(1.0), K(0.0)), s = c_sigmoid(x);
    return c_mul(g, c_mul(s, one + c_mul(x, one - s)));
}
