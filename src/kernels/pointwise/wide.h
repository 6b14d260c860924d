/* The type WIDE in which special functions compute their sensitive parts (most of them everything), with
 * constants KW(0.5):
 * double for double results and, if the device has fp64, for float results, so that only the final rounding
 * counts. Half precision, and float on other devices, use float.
 *
 * TERMS(d, w): number of series terms for double precision, or for float precision with bits to spare. */
#ifndef XPU_KERNELS_POINTWISE_WIDE_H
#define XPU_KERNELS_POINTWISE_WIDE_H

#if defined(R_IS_DOUBLE) || (defined(XPU_HAS_FP64) && !defined(COMPUTE_HALF))
#define WIDE_IS_DOUBLE 1
#define WIDE double
#define KW(x) x
#else
#define WIDE float
#define KW(x) x##f
#endif

#ifdef R_IS_DOUBLE
#define TERMS(of_double, of_float) of_double
#define WIDE_EPSILON KW(1.1102230246251565e-16)
#elif defined(WIDE_IS_DOUBLE)
#define TERMS(of_double, of_float) of_float
#define WIDE_EPSILON KW(1e-10)
#else
#define TERMS(of_double, of_float) of_float
#define WIDE_EPSILON KW(5.9604645e-8)
#endif
#define WIDE_PI KW(3.14159265358979323846)

/* exp(x²) with a correction for the rounding error of the square. */
static inline WIDE w_exp_square(WIDE x) {
    WIDE square = x * x;
#if !defined(R_IS_DOUBLE) && defined(WIDE_IS_DOUBLE)
    return exp(square);
#else
    WIDE e = exp(square), error = fma(x, x, -square);
    return isinf(e) ? e : fma(e, error, e);
#endif
}

/* Inverse error function by polynomials in w = -log(1 - t²), with a relative error of 2.5e-8 up to 10. */
static inline float f_erf_inverse(float t, float w) {
    float p, v = w - 2.5f;
    p = -8.931925970244222e-09f;
    p = fma(p, v, 2.3335967195708108e-08f);
    p = fma(p, v, 4.6813134805534123e-07f);
    p = fma(p, v, -3.4639852676333717e-06f);
    p = fma(p, v, -4.9724196894547514e-06f);
    p = fma(p, v, 0.00021834938623976644f);
    p = fma(p, v, -0.001252726391773229f);
    p = fma(p, v, -0.004177392875203149f);
    p = fma(p, v, 0.24664027905463662f);
    p = fma(p, v, 1.501409360450329f);
    const float root = sqrt(w), u = 1.0f / root - 0.25f;
    float far = 74.98247402212478f;
    far = fma(far, u, -9.825682407168378f);
    far = fma(far, u, 1.2650432054653338f);
    far = fma(far, u, -3.2860403514606773f);
    far = fma(far, u, 0.8126366300544726f);
    far = fma(far, u, -0.8747448447391268f);
    far = fma(far, u, 0.5541521242767434f);
    far = fma(far, u, 0.08023414505964933f);
    far = fma(far, u, -0.198197054135367f);
    far = fma(far, u, 0.9599458906741438f);
    return w <= 5.0f ? t * p : root * far;
}

/* y > 0 with erf(y) = t and erfc(y) = q; both are given, one of them exactly. */
#ifdef ERF_DOUBLE
static inline twice w_erf_inverse(double t, double q) {
    if (t < 1e-3) { /* Taylor series: keeps the relative precision of t */
        twice y = double_word_exact_product(t, 0.886226925452758);
        const double square = t * t;
        const double rest = fma(square, fma(square, 0.08076225645, 0.12755617666), 0.23201366653464);
        y.lo += t * fma(square, rest, -3.8332932499128993e-17);
        return y;
    }
    return erf_inverse_double(t, q, f_erf_inverse((float)t, (float)-log(q * (1.0 + t))));
}
#elif !defined(R_IS_DOUBLE)
static inline WIDE w_erf_inverse(WIDE t, WIDE q) {
    if (t < KW(1e-3)) {
        WIDE square = t * t;
        return t * fma(square,
                       fma(square, fma(square, KW(0.08076225645), KW(0.12755617666)), KW(0.23201366653464)),
                       KW(0.88622692545275801365));
    }
    WIDE y = f_erf_inverse((float)t, -log((float)(q * (KW(1.0) + t))));
#ifdef WIDE_IS_DOUBLE /* a Halley step */
    WIDE error = t < KW(0.5) ? erf(y) - t : q - erfc(y);
    error *= KW(0.88622692545275801365) * exp(y * y); /* over the derivative */
    y -= error / (KW(1.0) + y * error);
#endif
    return y;
}
#endif
#endif
