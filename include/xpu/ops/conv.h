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
 * asks. Floating dtypes only; halves are summed in fp32. */
#ifndef XPU_OPS_CONV_H
#define XPU_OPS_CONV_H

#include "xpu/ops/epilogue.h"

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

/* The gradients that are wanted; each of the last three may be NULL. */
XPU_API xpu_status xpu_conv_backward(xpu_stream *stream, const xpu_conv *conv, const xpu_tensor *grad_output,
                                     const xpu_tensor *input, const xpu_tensor *weight,
                                     const xpu_tensor *grad_input, const xpu_tensor *grad_weight,
                                     const xpu_tensor *grad_bias);

#ifdef __cplusplus
}
#endif
#endif
