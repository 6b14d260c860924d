/* xpu/ops/deform.h: im2col for deformable convolution and its gradients (Dai et al., arXiv:1703.06211; with
 * a mask Zhu et al., arXiv:1811.11168); torchvision's deform_conv2d.
 *
 * Shapes, contiguous, with `in` and `out` height and width, and `taps` those of the kernel:
 *     image   [batch, channels, in]
 *     offset  [batch, groups, taps, 2, out]
 *     mask    [batch, groups, taps, out]
 *     columns [batch, channels, taps, out]
 * channels is a multiple of groups.
 * Dtypes: one of fp16, bf16, fp32, fp64; computed in fp32 (fp64 for fp64).
 *
 *     columns[b, c, k, o] = mask[b, g, k, o] * image[b, c] at position
 *                           o * stride - padding + k * dilation + offset[b, g, k, :, o]
 *
 * by bilinear interpolation of four elements, which are 0 outside the image. The product of `columns` with
 * weights [filters, channels * taps] is the convolution. */
#ifndef XPU_OPS_DEFORM_H
#define XPU_OPS_DEFORM_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_deform {
    int64_t batch;
    int channels, groups;         /* groups of adjacent channels that share offsets */
    int in[2], out[2], kernel[2]; /* height, width */
    int stride[2], padding[2], dilation[2];
    xpu_dtype dtype;
} xpu_deform;

/* mask: NULL for all ones. */
XPU_API xpu_status xpu_deform_columns(xpu_stream *stream, const xpu_deform *args, const void *image,
                                      const void *offset, const void *mask, void *columns);
/* grad_image: fp32 (fp64 for fp64), or NULL. Accumulated into with atomics, in no fixed order: initialize it
 * to 0.
 * grad_mask: NULL if `mask` is.
 * Errors: XPU_ERROR_NOT_SUPPORTED for grad_image in fp64 on a device without has_atomic64. */
XPU_API xpu_status xpu_deform_backward(xpu_stream *stream, const xpu_deform *args, const void *grad_columns,
                                       const void *image, const void *offset, const void *mask,
                                       void *grad_image, void *grad_offset, void *grad_mask);

#ifdef __cplusplus
}
#endif
#endif
