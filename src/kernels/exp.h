/* exp(x) in fp32 for -87.3 < x <= 0, to 1 ulp: x = n ln 2 + r, 2^n exp(r) with a polynomial; a few inlined
 * instructions instead of a library call. Below that range the result is undefined; NaN gives NaN. */
#ifndef XPU_KERNELS_EXP_H
#define XPU_KERNELS_EXP_H

static inline float exp_below0(float x) {
    float n = rint(x * 1.44269504f);
    float r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x));
    float e = 1.9875691500e-4f;
    e = fma(e, r, 1.3981999507e-3f);
    e = fma(e, r, 8.3334519073e-3f);
    e = fma(e, r, 4.1665795894e-2f);
    e = fma(e, r, 1.6666665459e-1f);
    e = fma(e, r, 5.0000001201e-1f);
    return (fma(e, r * r, r) + 1.0f) * as_float((uint)((int)n + 127) << 23);
}
#endif
