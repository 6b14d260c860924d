/* xpu/ops/optim.h: optimiser steps over many parameters in one launch.
 *
 * Each function takes rows, one a parameter, whose last member the library uses for itself. All tensors of
 * a call have one dtype (f16, bf16, f32, f64), lie without gaps and in the same order of elements within a
 * row. Halves are computed in fp32. The rows are read during the call only. */
#ifndef XPU_OPS_OPTIM_H
#define XPU_OPS_OPTIM_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What all optimisers take. `lr_tensor`, when not NULL, is a float on the device that counts instead of
 * `lr`. `grad_scale` divides the gradients, which are written back divided; a nonzero `found_inf` makes the
 * step do nothing. Both are floats on the device, or NULL. */
typedef struct xpu_step_options {
    double lr, weight_decay;
    const float *lr_tensor, *grad_scale, *found_inf;
    bool maximize;
} xpu_step_options;

typedef struct xpu_adam_row {
    void *param, *grad, *exp_avg, *exp_avg_sq;
    void *max_exp_avg_sq; /* with amsgrad only */
    const float *step;    /* how many steps were taken, this one included; on the device */
    int64_t count;        /* elements */
    uint64_t reserved;
} xpu_adam_row;

typedef struct xpu_adam_options {
    xpu_step_options step;
    double beta1, beta2, eps;
    bool decoupled; /* AdamW: weight decay acts on the parameter, not on the gradient */
    bool amsgrad;
} xpu_adam_options;

/* m ← β1 m + (1-β1) g;  v ← β2 v + (1-β2) g²;  p ← p - lr/(1-β1^t) · m / (√v / √(1-β2^t) + ε) */
XPU_API xpu_status xpu_adam(xpu_stream *stream, xpu_dtype dtype, xpu_adam_row *rows, int64_t count,
                            const xpu_adam_options *options);

typedef struct xpu_sgd_row {
    void *param, *grad;
    void *momentum_buffer; /* with momentum only */
    int64_t count;
    uint64_t reserved;
} xpu_sgd_row;

typedef struct xpu_sgd_options {
    xpu_step_options step;
    double momentum, dampening;
    bool nesterov;
    bool first_step; /* the momentum buffer holds nothing yet: it becomes the gradient */
} xpu_sgd_options;

/* b ← μ b + (1-τ) g;  p ← p - lr · (nesterov ? g + μ b : b) */
XPU_API xpu_status xpu_sgd(xpu_stream *stream, xpu_dtype dtype, xpu_sgd_row *rows, int64_t count,
                           const xpu_sgd_options *options);

typedef struct xpu_adagrad_row {
    void *param, *grad, *state_sum;
    const float *step;
    int64_t count;
    uint64_t reserved;
} xpu_adagrad_row;

/* s ← s + g²;  p ← p - lr / (1 + (t-1) decay) · g / (√s + ε) */
XPU_API xpu_status xpu_adagrad(xpu_stream *stream, xpu_dtype dtype, xpu_adagrad_row *rows, int64_t count,
                               const xpu_step_options *options, double lr_decay, double eps);

typedef struct xpu_unscale_row {
    void *grad;
    int64_t count;
    uint64_t reserved;
} xpu_unscale_row;

/* Multiplies every gradient by `inv_scale` and writes 1 to `found_inf` when one was not finite before. Both
 * are floats on the device. */
XPU_API xpu_status xpu_unscale(xpu_stream *stream, xpu_dtype dtype, xpu_unscale_row *rows, int64_t count,
                               const float *inv_scale, float *found_inf);

/* After a step: the scale shrinks by `backoff` if an infinity was found, else grows by `growth` every
 * `interval` steps, unless it would become infinite. All on the device. */
XPU_API xpu_status xpu_update_scale(xpu_stream *stream, float *scale, int32_t *growth_tracker,
                                    const float *found_inf, double growth, double backoff, int interval);

#ifdef __cplusplus
}
#endif
#endif
