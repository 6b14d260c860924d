/* Post-ops: apply_post_ops(p, v, other) = epilogue(combine(v, other)).
 *
 * Options: COMBINE, EPILOGUE, the values of xpu_combine and xpu_epilogue (xpu/ops/epilogue.h); undefined if
 * there is none. The includer defines post_ops_t, the type computed in, and DOUBLE_T, 1 if that is double;
 * types other than float and double have no epilogue. */
#if EPILOGUE == 2 && !DOUBLE_T
#include "erf.h"
#endif
#if DOUBLE_T
#define EK(x) x
#define EPILOGUE_SCALAR(i) as_double(p->scalar[i])
#define EPILOGUE_ERF(x) erf(x)
#else
#define EK(x) x##f
#define EPILOGUE_SCALAR(i) as_float((uint)p->scalar[i])
#define EPILOGUE_ERF(x) erf_float(x)
#endif

static inline post_ops_t apply_post_ops(const post_ops_params *p, post_ops_t v, post_ops_t other) {
#if COMBINE == 1
    v += other;
#elif COMBINE == 2
    v -= other;
#elif COMBINE == 3
    v *= other;
#elif COMBINE == 4
    v /= other;
#endif
#if EPILOGUE == 1
    return v < 0 ? (post_ops_t)0 : v;
#elif EPILOGUE == 2
    return EK(0.5) * v * (1 + EPILOGUE_ERF(v * EK(0.70710678118654752440)));
#elif EPILOGUE == 3
    return EK(0.5) * v * (1 + tanh(EK(0.79788456080286535588) * (v + EK(0.044715) * v * v * v)));
#elif EPILOGUE == 4
    return v / (1 + exp(-v));
#elif EPILOGUE == 5
    return 1 / (1 + exp(-v));
#elif EPILOGUE == 6
    return tanh(v);
#elif EPILOGUE == 7
    return v * clamp(v + 3, (post_ops_t)0, (post_ops_t)6) / 6;
#elif EPILOGUE == 8
    return v > 0 ? v : v * EPILOGUE_SCALAR(0);
#elif EPILOGUE == 9
    v = v < EPILOGUE_SCALAR(0) ? EPILOGUE_SCALAR(0) : v;
    return v > EPILOGUE_SCALAR(1) ? EPILOGUE_SCALAR(1) : v;
#elif EPILOGUE == 10
    v += 3;
    return (v < 0 ? (post_ops_t)0 : v > 6 ? (post_ops_t)6 : v) / 6;
#elif EPILOGUE == 11
    return v > 0 ? v : expm1(v) * EPILOGUE_SCALAR(0);
#elif EPILOGUE == 12
    return v * tanh(log1p(exp(v)));
#elif EPILOGUE == 13
    return fabs(v);
#else
    return v;
#endif
}
