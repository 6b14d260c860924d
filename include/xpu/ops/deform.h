/* xpu/ops/deform.h: the columns that a deformable convolution multiplies with its weights, and their
 * gradients (Dai et al., arXiv:1703.06211; with a mask Zhu et al., arXiv:1811.11168); torchvision's
 * deform_conv2d.
 *
 * image [batch, channels, in], offset [batch, groups, taps, 2, out], mask [batch, groups, taps, out], columns
 * [batch, channels, taps, out], all contiguous and of one dtype: fp16, bf16, fp32, fp64; computed in fp32
 * (fp64 for fp64). `in` and `out` are height and width, `taps` those of the kernel, channels a multiple of
 * groups:
 *
 *   columns[b, c, k, o] = mask[b, g, k, o] * image[b, c] at (o * stride - padding + k * dilation + offset[b,
 * g, k, :, o])
 *
 * interpolated from four elements; outside of the image those are 0. Its product with weights [filters,
 * channels * taps] is the convolution. */
#ifndef XPU_OPS_DEFORM_H
#define XPU_OPS_DEFORM_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_deform {
    int64_t batch;
    int channels, groups;         /* groups of neighbouring channels with the same offsets */
    int in[2], out[2], kernel[2]; /* height, width */
    int stride[2], padding[2], dilation[2];
    xpu_dtype dtype;
} xpu_deform;

/* `mask` may be NULL, for ones. */
XPU_API xpu_status xpu_deform_columns(xpu_stream *stream, const xpu_deform *args, const void *image,
                                      const void *offset, const void *mask, void *columns);
/* grad_image is fp32 (fp64 for fp64) and is added to, in no fixed order: hand in zeros; NULL leaves it out.
 * On a device without has_atomic64 it is XPU_ERROR_NOT_SUPPORTED for fp64. grad_mask is NULL where mask is.
 */
XPU_API xpu_status xpu_deform_backward(xpu_stream *stream, const xpu_deform *args, const void *grad_columns,
                                       const void *image, const void *offset, const void *mask,
                                       void *grad_image, void *grad_offset, void *grad_mask);

#ifdef __cplusplus
}
#endif
#endif
