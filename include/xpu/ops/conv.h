/* xpu/ops/conv.h: convolution over one, two or three dimensions, and transposed convolution.
 *
 * Shapes, with D the spatial dimensions (1 to 3):
 *     input  N x C_in x in[D]
 *     weight C_out x C_in/groups x kernel[D]; transposed: C_in x C_out/groups x kernel[D]
 *     bias   C_out, optional
 *     output N x C_out x out[D]
 * Layout: any. Channels first and channels last differ by strides only.
 * Sizes must satisfy
 *
 *     out = (in + 2 padding - dilation (kernel - 1) - 1) / stride + 1
 *
 * or, transposed, the same with `in` and `out` swapped; output_padding selects among the sizes that round to
 * `in`.
 *
 * Dtypes: floating. fp16 and bf16 accumulate in fp32.
 * Errors: XPU_ERROR_INVALID_ARGUMENT for inconsistent dimensions, dtypes or groups.
 * XPU_ERROR_NOT_SUPPORTED for 2^31 pixels or more in a dimension. */
#ifndef XPU_OPS_CONV_H
#define XPU_OPS_CONV_H

#include "xpu/ops/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define XPU_CONV_MAX_DIMS 3

typedef struct xpu_conv {
    int dims;
    bool transposed;
    int64_t groups;
    int64_t stride[XPU_CONV_MAX_DIMS], padding[XPU_CONV_MAX_DIMS], dilation[XPU_CONV_MAX_DIMS];
    int64_t output_padding[XPU_CONV_MAX_DIMS]; /* transposed only; else 0 */
} xpu_conv;

/* `bias` may be NULL. */
XPU_API xpu_status xpu_conv_forward(xpu_stream *stream, const xpu_conv *conv, const xpu_tensor *input,
                                    const xpu_tensor *weight, const xpu_tensor *bias,
                                    const xpu_tensor *output);

/* xpu_conv_forward with post-ops (xpu/ops/epilogue.h).
 *
 * other: operand of the binary post-op, with the sizes, strides and dtype of `output`; may be `output`. NULL
 *     if post_ops->combine is XPU_COMBINE_NONE. */
XPU_API xpu_status xpu_conv_forward_post_ops(xpu_stream *stream, const xpu_conv *conv,
                                             const xpu_tensor *input, const xpu_tensor *weight,
                                             const xpu_tensor *bias, const xpu_post_ops *post_ops,
                                             const xpu_tensor *other, const xpu_tensor *output);

/* int8 convolution with post-ops and a requantized result, in one pass (xpu_gemm_requantized is its
 * counterpart for products). Not transposed.
 *
 * input: int8 or uint8. Padding has the value of the zero point.
 * input_quant: one float32 scale, and one int32 zero point or zero_offset, for the whole input. A zero point
 *     in device memory must be in the dtype's range.
 * weight: int8.
 * weight_quant: one float32 scale or, with group_rows 1 and scale_row_stride, one per output channel. No
 *     zero points.
 * weight_sums: the sum of the weights of each output channel, int32. NULL if unknown: then the input must be
 *     int8 with zero point 0.
 * factor: a scale of the input that is known on the host, applied in addition to input_quant->scale.
 * bias: float32, or NULL.
 * post_ops: `combine` is none, or adds `other`, which has the sizes and strides of `output` and dtype
 *     output_quant->other_dtype.
 * output: has dtype output_quant->dtype.
 *
 * Scales, zero points and sums are in device memory and owned by the caller.
 * Accumulation: int32 on devices with int8 instructions, float32 on other GPUs.
 *
 * Errors: XPU_ERROR_INVALID_ARGUMENT for tensors that don't match.
 * XPU_ERROR_NOT_SUPPORTED, with nothing done, if no kernel fits:
 * - on CPUs;
 * - for groups of fewer than 16 channels;
 * - for sums of more than 2^16 products;
 * - for 2^31 pixels or more in a dimension;
 * - for zero points that the accumulation can't represent. */
XPU_API xpu_status xpu_conv_requantized(xpu_stream *stream, const xpu_conv *conv, const xpu_tensor *input,
                                        const xpu_quant_params *input_quant, const xpu_tensor *weight,
                                        const xpu_quant_params *weight_quant, const int32_t *weight_sums,
                                        double factor, const xpu_tensor *bias, const xpu_post_ops *post_ops,
                                        const xpu_tensor *other, const xpu_output_quant *output_quant,
                                        const xpu_tensor *output);

/* Gradients. grad_input, grad_weight and grad_bias may each be NULL: that one is not computed. */
XPU_API xpu_status xpu_conv_backward(xpu_stream *stream, const xpu_conv *conv, const xpu_tensor *grad_output,
                                     const xpu_tensor *input, const xpu_tensor *weight,
                                     const xpu_tensor *grad_input, const xpu_tensor *grad_weight,
                                     const xpu_tensor *grad_bias);

#ifdef __cplusplus
}
#endif
#endif
