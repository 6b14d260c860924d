/* erf(x) in fp32, to 1.08 ulp: for |x| < 0.92 as x + x p(x²), otherwise as 1 - exp(q(|x|)), which reaches 1
 * at 3.95. The polynomials were fitted for this file by weighted least squares in double precision; the error
 * is the largest over all floats. */
#ifndef XPU_KERNELS_ERF_H
#define XPU_KERNELS_ERF_H
#include "exp.h"

static inline float erf_float(float x) {
    float t = fabs(x), s = x * x;
    float p = -0.000599944032728672f;
    p = fma(p, s, 0.004994838498532772f);
    p = fma(p, s, -0.026767726987600327f);
    p = fma(p, s, 0.11281846463680267f);
    p = fma(p, s, -0.3761249780654907f);
    p = fma(p, s, 0.12837915122509003f);
    float near = fma(p, x, x);
    float u = t > 3.95f ? 3.95f : t;
    float q = 0.00019494582375045866f;
    q = fma(q, u, -0.003033683868125081f);
    q = fma(q, u, 0.02218974381685257f);
    q = fma(q, u, -0.10385631024837494f);
    q = fma(q, u, -0.6372658014297485f);
    q = fma(q, u, -1.1276273727416992f);
    q = fma(q, u, -0.00020701710309367627f);
    float far = copysign(1.0f - exp_below0(q), x);
    return t > 0.92f ? far : near;
}
#endif
