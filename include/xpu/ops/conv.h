/* xpu/ops/conv.h: convolution of one, two or three dimensions, and its transpose.
 *
 * Shapes, with D the spatial dimensions (1 … 3):
 *     input  N x C_in x in[D]
 *     weight C_out x C_in/groups x kernel[D]; transposed: C_in x C_out/groups x kernel[D]
 *     bias   C_out, or none
 *     output N x C_out x out[D]
 * in any layout (channels first or last is a matter of strides). Sizes must fit each other:
 *     out = (in + 2 padding - dilation (kernel - 1) - 1) / stride + 1,
 * and for a transposed convolution the same with in and out changed over, rounding as output_padding
 * asks. Floating dtypes only; halves are summed in fp32. XPU_ERROR_INVALID_ARGUMENT: dimensions, dtypes or
 * groups that don't fit each other; XPU_ERROR_NOT_SUPPORTED: 2^31 pixels or more in a dimension. */
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

/* The same with what comes after it (xpu/ops/epilogue.h). `other`, which may be `output`, lies as `output`
 * does: with its sizes, strides and dtype; NULL where nothing is combined. */
XPU_API xpu_status xpu_conv_forward_ended(xpu_stream *stream, const xpu_conv *conv, const xpu_tensor *input,
                                          const xpu_tensor *weight, const xpu_tensor *bias,
                                          const xpu_ending *ending, const xpu_tensor *other,
                                          const xpu_tensor *output);

/* A convolution of 8-bit activations and weights with what comes after it, in one pass, as
 * xpu_gemm_requantised (xpu/ops/gemm.h) is for products; not transposed.
 *
 * `input`: int8 or uint8; `of_input`: one float32 scale and one int32 zero point (or `middle`) for all of it,
 *     which is what the input is in its padding. A zero point on the device must be one of the dtype's
 *     numbers.
 * `weight`: int8; `of_weight`: a float32 scale for all, or, with group_rows 1 and scale_row_stride, for each
 *     channel of the output; no zero points.
 * `weight_sums`: of each channel of the output the sum of its weights; NULL where they aren't known, which
 *     will do for int8 whose zero point is 0.
 * `factor`: of all sums, as a scale of the input that the host knows, beside of_input->scale.
 * `bias`: float32, or NULL. `ending`: combines nothing, or adds `other`, which lies as `output` does, of
 *     way->other_dtype. `output`: of way->dtype.
 *
 * Scales, zero points and sums lie in device memory, and stay the caller's. Sums are int32 where the device
 * has instructions for int8, float32 on other GPUs. XPU_ERROR_INVALID_ARGUMENT for tensors that don't fit
 * each other; XPU_ERROR_NOT_SUPPORTED, with nothing done, where no kernel serves the convolution: on
 * processors, for groups of fewer than 16 channels, sums of more than 2^16 products, 2^31 pixels or more in a
 * dimension, and zero points that the sums have no way for. */
XPU_API xpu_status xpu_conv_requantised(xpu_stream *stream, const xpu_conv *conv, const xpu_tensor *input,
                                        const xpu_quantised *of_input, const xpu_tensor *weight,
                                        const xpu_quantised *of_weight, const int32_t *weight_sums,
                                        double factor, const xpu_tensor *bias, const xpu_ending *ending,
                                        const xpu_tensor *other, const xpu_way_out *way,
                                        const xpu_tensor *output);

/* The gradients that are wanted; each of the last three may be NULL. */
XPU_API xpu_status xpu_conv_backward(xpu_stream *stream, const xpu_conv *conv, const xpu_tensor *grad_output,
                                     const xpu_tensor *input, const xpu_tensor *weight,
                                     const xpu_tensor *grad_input, const xpu_tensor *grad_weight,
                                     const xpu_tensor *grad_bias);

#ifdef __cplusplus
}
#endif
#endif
