/* Special functions of R, for formulas of pointwise.def. */

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
