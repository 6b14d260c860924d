/* Optimizer steps for many tensors; formulas in xpu/ops/optim.h, table rows as the structs there
 * (multi_tensor.h).
 *
 * Options: T=f16|bf16|f32|f64, WIDE=1 for f64; STEP_adam|sgd|adagrad|unscale|update_scale; DECOUPLED,
 * AMSGRAD, MOMENTUM, NESTEROV, FIRST: 0 or 1. */
#include "multi_tensor.h"

typedef STORED(T) stored;
typedef COMPUTED(T) real;

#if WIDE
#define SCALAR(k) as_double(p.number[k])
#else
#define SCALAR(k) as_float((uint)p.number[k])
#endif
#define FLOAT_AT(k) (*XPU_CPTR(float, p.number[k]))

/* Scalars: 0 lr, 1 weight decay, 2 … 4 addresses of lr, grad_scale, found_inf or 0, 5 maximize, then each
 * optimizer's own. */
#define LR (p.number[2] ? (real)FLOAT_AT(2) : SCALAR(0))
#define WEIGHT_DECAY SCALAR(1)
#define SKIPPED (p.number[4] && FLOAT_AT(4) != 0.0f)
#define OWN(k) SCALAR(6 + (k))

#define AT(column) XPU_PTR(stored, MULTI_TENSOR_ADDRESS(column)) /* hoisted: stores might alias the table */

/* Addresses of the parameter (column 0), the gradient (column 1) and the optimizer's states. */
typedef struct optim_row {
    __global stored *param, *gradient, *state[3];
    real scale, lr, weight_decay;
    bool scaled, maximize;
} optim_row;
#define STEP_ROW                                                                                             \
    const bool scaled = p.number[3] != 0;                                                                    \
    optim_row s = {.param = AT(0),                                                                           \
                   .gradient = AT(1),                                                                        \
                   .scale = scaled ? (real)FLOAT_AT(3) : (real)1,                                            \
                   .lr = LR,                                                                                 \
                   .weight_decay = WEIGHT_DECAY,                                                             \
                   .scaled = scaled,                                                                         \
                   .maximize = p.number[5] != 0};

/* The unscaled gradient of element i. */
static inline real gradient_of(const optim_row *s, size_t i) {
    real g = LOAD(T, s->gradient, i);
    if (s->scaled) {
        g /= s->scale;
        STORE(T, s->gradient, i, g);
    }
    return s->maximize ? -g : g;
}

#ifdef STEP_adam
/* own: 0 β1, 1 β2, 2 ε, 3 ln β1, 4 ln β2 */
typedef struct adam_scalars {
    real beta1, beta2, eps, step_size, scale2;
} adam_scalars;

static inline void adam_element(const optim_row *s, const adam_scalars *a, size_t i) {
    real param = LOAD(T, s->param, i), g = gradient_of(s, i);
#if DECOUPLED
    param -= s->lr * s->weight_decay * param;
#else
    g += param * s->weight_decay;
#endif
    const real m = LOAD(T, s->state[0], i), v = LOAD(T, s->state[1], i);
    const real m1 = m + (1 - a->beta1) * (g - m), v1 = a->beta2 * v + (1 - a->beta2) * g * g;
#if AMSGRAD
    const real most = fmax(LOAD(T, s->state[2], i), v1);
    STORE(T, s->state[2], i, most);
#else
    const real most = v1;
#endif
    STORE(T, s->param, i, param - a->step_size * m1 / (sqrt(most) * a->scale2 + a->eps));
    STORE(T, s->state[0], i, m1);
    STORE(T, s->state[1], i, v1);
}

__kernel void adam(const struct multi_tensor_params p) {
    if (SKIPPED) return;
    MULTI_TENSOR_ROW
    STEP_ROW
    s.state[0] = AT(2), s.state[1] = AT(3), s.state[2] = AMSGRAD ? AT(4) : 0;
    const real steps = *XPU_CPTR(float, MULTI_TENSOR_ADDRESS(5));
    const adam_scalars a = {.beta1 = OWN(0),
                            .beta2 = OWN(1),
                            .eps = OWN(2),
                            .step_size = s.lr / -expm1(steps * OWN(3)),
                            .scale2 = 1 / sqrt(-expm1(steps * OWN(4)))};
#define ELEMENT(i) adam_element(&s, &a, i);
    MULTI_TENSOR_FOR_EACH(ELEMENT)
}
#endif

#ifdef STEP_sgd
/* own: 0 momentum, 1 dampening */
static inline void sgd_element(const optim_row *s, real momentum, real dampening, size_t i) {
    const real param = LOAD(T, s->param, i);
    real g = gradient_of(s, i) + s->weight_decay * param;
#if MOMENTUM
#if FIRST
    const real b = g;
#else
    const real b = momentum * LOAD(T, s->state[0], i) + (1 - dampening) * g;
#endif
    STORE(T, s->state[0], i, b);
    g = NESTEROV ? g + momentum * b : b;
#endif
    STORE(T, s->param, i, param - s->lr * g);
}

__kernel void sgd(const struct multi_tensor_params p) {
    if (SKIPPED) return;
    MULTI_TENSOR_ROW
    STEP_ROW
    if (MOMENTUM) s.state[0] = AT(2);
    const real momentum = OWN(0), dampening = OWN(1);
#define ELEMENT(i) sgd_element(&s, momentum, dampening, i);
    MULTI_TENSOR_FOR_EACH(ELEMENT)
}
#endif

#ifdef STEP_adagrad
/* own: 0 lr decay, 1 ε */
static inline void adagrad_element(const optim_row *s, real rate, real eps, size_t i) {
    const real param = LOAD(T, s->param, i), g = gradient_of(s, i) + s->weight_decay * param;
    const real sum = LOAD(T, s->state[0], i) + g * g;
    STORE(T, s->state[0], i, sum);
    STORE(T, s->param, i, param - rate * g / (sqrt(sum) + eps));
}

__kernel void adagrad(const struct multi_tensor_params p) {
    if (SKIPPED) return;
    MULTI_TENSOR_ROW
    STEP_ROW
    s.state[0] = AT(2);
    const real steps = *XPU_CPTR(float, MULTI_TENSOR_ADDRESS(3));
    const real rate = s.lr / (1 + (steps - 1) * OWN(0)), eps = OWN(1);
#define ELEMENT(i) adagrad_element(&s, rate, eps, i);
    MULTI_TENSOR_FOR_EACH(ELEMENT)
}
#endif

#ifdef STEP_unscale
/* Scalars: 0 address of inv_scale, 1 address of found_inf. The race on found_inf is benign: all writers store
 * 1. */
__kernel void unscale(const struct multi_tensor_params p) {
    MULTI_TENSOR_ROW
    __global stored *gradient = AT(0);
    const float inv_scale = FLOAT_AT(0);
    bool found = false;
#define ELEMENT(i)                                                                                           \
    const real g = LOAD(T, gradient, i);                                                                     \
    found |= !isfinite(g);                                                                                   \
    STORE(T, gradient, i, inv_scale == 1.0f ? g : g * (real)inv_scale);
    MULTI_TENSOR_FOR_EACH(ELEMENT)
    if (found) *XPU_PTR(float, p.number[1]) = 1.0f;
}
#endif

#ifdef STEP_update_scale
/* Scalars: 0 … 2 addresses of scale, growth tracker and found_inf, 3 growth, 4 backoff, 5 interval */
__kernel void update_scale(const struct multi_tensor_params p) {
    __global float *scale = XPU_PTR(float, p.number[0]);
    __global int *tracker = XPU_PTR(int, p.number[1]);
    if (FLOAT_AT(2) != 0.0f) {
        *scale *= SCALAR(4);
        *tracker = 0;
    } else if (*tracker + 1 == (int)p.number[5]) {
        const float grown = *scale * SCALAR(3);
        if (isfinite(grown)) *scale = grown;
        *tracker = 0;
    } else {
        *tracker += 1;
    }
}
#endif
