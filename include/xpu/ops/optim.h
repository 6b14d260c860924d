/* xpu/ops/optim.h: optimizer steps over many parameters in one launch.
 *
 * rows: one per parameter, read during the call only. The last member of a row is reserved for the library.
 * Dtypes: one of f16, bf16, f32, f64 for all tensors of a call; f16 and bf16 are computed in fp32.
 * Layout: tensors are dense, with the same order of elements within a row. */
#ifndef XPU_OPS_OPTIM_H
#define XPU_OPS_OPTIM_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Options of all optimizers.
 *
 * lr_tensor: a float on the device that replaces `lr`, or NULL.
 * grad_scale: a float on the device, or NULL. Gradients are divided by it, and written back divided.
 * found_inf: a float on the device, or NULL. If nonzero, the step does nothing. */
typedef struct xpu_step_options {
    double lr, weight_decay;
    const float *lr_tensor, *grad_scale, *found_inf;
    bool maximize;
} xpu_step_options;

typedef struct xpu_adam_row {
    void *param, *grad, *exp_avg, *exp_avg_sq;
    void *max_exp_avg_sq; /* with amsgrad only */
    const float *step;    /* number of steps including this one; on the device */
    int64_t count;        /* elements */
    uint64_t reserved;
} xpu_adam_row;

typedef struct xpu_adam_options {
    xpu_step_options step;
    double beta1, beta2, eps;
    bool decoupled; /* AdamW: weight decay applies to the parameter, not the gradient */
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
    bool first_step; /* the momentum buffer is uninitialized: it becomes the gradient */
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

/* Multiplies all gradients by `inv_scale`, and writes 1 to `found_inf` if any was not finite. Both are
 * floats on the device. */
XPU_API xpu_status xpu_unscale(xpu_stream *stream, xpu_dtype dtype, xpu_unscale_row *rows, int64_t count,
                               const float *inv_scale, float *found_inf);

/* Updates the loss scale after a step. All on the device.
 *
 * If an infinity was found, the scale is multiplied by `backoff`; else, every `interval` steps, by `growth`,
 * unless it would become infinite. */
XPU_API xpu_status xpu_update_scale(xpu_stream *stream, float *scale, int32_t *growth_tracker,
                                    const float *found_inf, double growth, double backoff, int interval);

#ifdef __cplusplus
}
#endif
#endif
