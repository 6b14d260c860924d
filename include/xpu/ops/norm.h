/* xpu/ops/norm.h: layer norm, RMS norm, batch norm and group norm, forward and backward.
 *
 * Dtypes: fp16, bf16, fp32, fp64; statistics and sums in fp32 (fp64 for fp64). Parameters (weight, bias)
 *     have the tensors' dtype or fp32.
 * Deterministic: the same shape on the same device gives the same bits, parameter gradients included.
 * Results must not overlap inputs. The mean of no elements is 0, their rstd NaN. */
#ifndef XPU_OPS_NORM_H
#define XPU_OPS_NORM_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Layer norm and RMS norm over the rows of contiguous [rows, length] tensors. Parameters are [length]. */
typedef struct xpu_row_norm {
    int64_t rows, length;
    xpu_dtype dtype, parameter_dtype;
    bool rms; /* RMS norm: no mean is subtracted; mean pointers are ignored */
    double eps;
    const void *weight, *bias; /* or NULL */
} xpu_row_norm;

/* mean, rstd: [rows], fp32 (fp64 for fp64). */
XPU_API xpu_status xpu_row_norm_forward(xpu_stream *stream, const xpu_row_norm *args, const void *input,
                                        void *output, void *mean, void *rstd);
/* NULL gradients are not computed. grad_weight, grad_bias: [length]. */
XPU_API xpu_status xpu_row_norm_backward(xpu_stream *stream, const xpu_row_norm *args,
                                         const void *grad_output, const void *input, const void *mean,
                                         const void *rstd, void *grad_input, void *grad_weight,
                                         void *grad_bias);

/* Batch norm of [batch, channels, length], or [batch, length, channels] with channels_last.
 * Group norm of [batch, channels, length]; `groups` divides the channels.
 * Tensors are contiguous. Parameters and running statistics are [channels]. */
typedef struct xpu_plane_norm {
    int64_t batch, channels, length, groups; /* groups: 0 for batch norm */
    bool channels_last;
    bool evaluate; /* batch norm with the running statistics */
    xpu_dtype dtype, parameter_dtype, running_dtype;
    xpu_dtype saved_dtype; /* of mean and rstd */
    double eps, momentum;
    const void *weight, *bias;        /* or NULL */
    void *running_mean, *running_var; /* or NULL; new = momentum * batch's + (1 - momentum) * old */
} xpu_plane_norm;

/* mean, rstd: [channels], group norm [batch, groups]; not written with `evaluate`. output: NULL computes the
 *     statistics only. */
XPU_API xpu_status xpu_plane_norm_forward(xpu_stream *stream, const xpu_plane_norm *args, const void *input,
                                          void *output, void *mean, void *rstd);
/* NULL gradients are not computed. With `evaluate`, mean and rstd are ignored. */
XPU_API xpu_status xpu_plane_norm_backward(xpu_stream *stream, const xpu_plane_norm *args,
                                           const void *grad_output, const void *input, const void *mean,
                                           const void *rstd, void *grad_input, void *grad_weight,
                                           void *grad_bias);

#ifdef __cplusplus
}
#endif
#endif
