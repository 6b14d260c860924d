/* Optimiser steps, formulas in xpu/ops/optim.h. Rows as the structs there, see multi.h.
 *   -DT=f16|bf16|f32|f64, -DWIDE=1 for f64, -DSTEP_adam|sgd|adagrad|unscale|update_scale
 *   -DDECOUPLED -DAMSGRAD -DMOMENTUM -DNESTEROV -DFIRST: 0 or 1 */
#include "multi.h"

typedef STORED(T) stored;
typedef COMPUTED(T) real;

#if WIDE
#define NUMBER(k) as_double(p.number[k])
#else
#define NUMBER(k) as_float((uint)p.number[k])
#endif
#define FLOAT_AT(k) (*XPU_CPTR(float, p.number[k]))

/* numbers: 0 lr, 1 weight decay, 2 … 4 addresses of lr, grad_scale, found_inf or 0, 5 maximize, then each
 * optimiser's own */
#define LR (p.number[2] ? (real)FLOAT_AT(2) : NUMBER(0))
#define WEIGHT_DECAY NUMBER(1)
#define SKIPPED (p.number[4] && FLOAT_AT(4) != 0.0f)
#define OWN(k) NUMBER(6 + (k))

#define AT(column) XPU_PTR(stored, MULTI_ADDRESS(column)) /* before the loop: stores might change the table */

/* What every step starts with: the parameter's and the gradient's place, columns 0 and 1. */
#define ROW_POINTERS                                                                             \
    __global stored *param_at = AT(0), *gradient = AT(1);                                        \
    const bool scaled = p.number[3] != 0, maximize = p.number[5] != 0;                           \
    const real scale = scaled ? (real)FLOAT_AT(3) : (real)1;

/* The gradient of element i, divided by the scale. */
#define GRADIENT(g)                                                                              \
    real g = LOAD(T, gradient, i);                                                               \
    if (scaled) {                                                                                \
        g /= scale;                                                                              \
        STORE(T, gradient, i, g);                                                                \
    }                                                                                            \
    if (maximize) g = -g;

#ifdef STEP_adam
/* own: 0 β1, 1 β2, 2 ε, 3 ln β1, 4 ln β2 */
__kernel void adam(const struct multi_params p) {
    if (SKIPPED) return;
    MULTI_ROW
    ROW_POINTERS
    __global stored *mean = AT(2), *square = AT(3);
#if AMSGRAD
    __global stored *greatest = AT(4);
#endif
    const real steps = *XPU_CPTR(float, MULTI_ADDRESS(5));
    const real beta1 = OWN(0), beta2 = OWN(1), eps = OWN(2), lr = LR, weight_decay = WEIGHT_DECAY;
    const real correction1 = -expm1(steps * OWN(3)), correction2 = sqrt(-expm1(steps * OWN(4)));
    const real step_size = lr / correction1;
    MULTI_EACH(i) {
        real param = LOAD(T, param_at, i);
        GRADIENT(g)
#if DECOUPLED
        param -= lr * weight_decay * param;
#else
        g += param * weight_decay;
#endif
        const real m = LOAD(T, mean, i), v = LOAD(T, square, i);
        const real m1 = m + (1 - beta1) * (g - m), v1 = beta2 * v + (1 - beta2) * g * g;
#if AMSGRAD
        const real most = fmax(LOAD(T, greatest, i), v1);
        STORE(T, greatest, i, most);
        const real denominator = sqrt(most) / correction2 + eps;
#else
        const real denominator = sqrt(v1) / correction2 + eps;
#endif
        STORE(T, param_at, i, param - step_size * m1 / denominator);
        STORE(T, mean, i, m1);
        STORE(T, square, i, v1);
    }
    MULTI_END
}
#endif

#ifdef STEP_sgd
/* own: 0 momentum, 1 dampening */
__kernel void sgd(const struct multi_params p) {
    if (SKIPPED) return;
    MULTI_ROW
    ROW_POINTERS
#if MOMENTUM
    __global stored *momentum = AT(2);
#endif
    const real lr = LR, weight_decay = WEIGHT_DECAY;
    MULTI_EACH(i) {
        const real param = LOAD(T, param_at, i);
        GRADIENT(g)
        g += weight_decay * param;
#if MOMENTUM
#if FIRST
        const real b = g;
#else
        const real b = OWN(0) * LOAD(T, momentum, i) + (1 - OWN(1)) * g;
#endif
        STORE(T, momentum, i, b);
        g = NESTEROV ? g + OWN(0) * b : b;
#endif
        STORE(T, param_at, i, param - lr * g);
    }
    MULTI_END
}
#endif

#ifdef STEP_adagrad
/* own: 0 lr decay, 1 ε */
__kernel void adagrad(const struct multi_params p) {
    if (SKIPPED) return;
    MULTI_ROW
    ROW_POINTERS
    __global stored *sums = AT(2);
    const real steps = *XPU_CPTR(float, MULTI_ADDRESS(3));
    const real rate = LR / (1 + (steps - 1) * OWN(0)), eps = OWN(1), weight_decay = WEIGHT_DECAY;
    MULTI_EACH(i) {
        const real param = LOAD(T, param_at, i);
        GRADIENT(g)
        g += weight_decay * param;
        const real sum = LOAD(T, sums, i) + g * g;
        STORE(T, sums, i, sum);
        STORE(T, param_at, i, param - rate * g / (sqrt(sum) + eps));
    }
    MULTI_END
}
#endif

#ifdef STEP_unscale
/* numbers: 0 address of inv_scale, 1 of found_inf. Whoever finds an infinity writes the same 1. */
__kernel void unscale(const struct multi_params p) {
    MULTI_ROW
    __global stored *gradient = AT(0);
    const float inv_scale = FLOAT_AT(0);
    MULTI_EACH(i) {
        const real g = LOAD(T, gradient, i);
        if (!isfinite(g)) *XPU_PTR(float, p.number[1]) = 1.0f;
        STORE(T, gradient, i, inv_scale == 1.0f ? g : g * (real)inv_scale);
    }
    MULTI_END
}
#endif

#ifdef STEP_update_scale
/* numbers: 0 … 2 addresses of scale, growth tracker and found_inf, 3 growth, 4 backoff, 5 interval */
__kernel void update_scale(const struct multi_params p) {
    __global float *scale = XPU_PTR(float, p.number[0]);
    __global int *tracker = XPU_PTR(int, p.number[1]);
    if (FLOAT_AT(2) != 0.0f) {
        *scale *= NUMBER(4);
        *tracker = 0;
    } else if (*tracker + 1 == (int)p.number[5]) {
        const float grown = *scale * NUMBER(3);
        if (isfinite(grown)) *scale = grown;
        *tracker = 0;
    } else {
        *tracker += 1;
    }
}
#endif
