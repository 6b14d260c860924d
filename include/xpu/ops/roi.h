/* xpu/ops/roi.h: region of interest pooling, with gradients; torchvision's roi_align, roi_pool, ps_roi_align
 * and ps_roi_pool.
 *
 * Shapes, contiguous:
 *     image   [images, channels, height, width]
 *     regions [regions, 5]
 *     output  [regions, planes, rows, columns]
 * A region is an image number, x and y of one corner, and x and y of the other. Coordinates times `scale`
 * are in elements of the image.
 * Dtypes: one of fp16, bf16, fp32, fp64; computed in fp32 (fp64 for fp64).
 *
 * XPU_ROI_ALIGN: mean of samples x samples bilinear samples per bin; 0 outside the image. planes = channels.
 *     (He et al., Mask R-CNN, arXiv:1703.06870)
 * XPU_ROI_POOL: maximum of all elements that a bin touches; 0 if none; NaN is ignored. planes = channels.
 *     (Girshick, Fast R-CNN, arXiv:1504.08083)
 * XPU_ROI_PS_ALIGN, XPU_ROI_PS_POOL: position-sensitive: the same samples, or the mean of whole elements.
 *     Each bin reads its own channel, plane * rows * columns + row * columns + column. (Dai et al., R-FCN,
 *     arXiv:1605.06409)
 *
 * A region with an invalid image number gives 0 and is reported (xpu/fault.h). A region with coordinates
 * that are not finite gives unspecified values, without out-of-range accesses. */
#ifndef XPU_OPS_ROI_H
#define XPU_OPS_ROI_H

#include "../fault.h"
#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_roi_kind { XPU_ROI_ALIGN, XPU_ROI_POOL, XPU_ROI_PS_ALIGN, XPU_ROI_PS_POOL } xpu_roi_kind;

typedef struct xpu_roi {
    int64_t images, regions;
    int channels, height, width; /* of the image */
    int rows, columns;           /* of bins */
    int samples;                 /* per bin and dimension; 0: the bin's size in elements, rounded up */
    double scale;
    bool aligned; /* XPU_ROI_ALIGN: shift corners by half an element; regions may have size 0 */
    xpu_dtype dtype;
    xpu_roi_kind kind;
} xpu_roi;

/* argmax: int32, the output's shape, or NULL. XPU_ROI_POOL: flat index of the maximum in its plane, -1 if
 * none;
 *     position-sensitive kinds: the channel that was read.
 * fault: may be NULL. */
XPU_API xpu_status xpu_roi_forward(xpu_stream *stream, const xpu_roi *args, const void *image,
                                   const void *regions, void *output, int32_t *argmax, xpu_fault *fault);
/* grad_image: fp32 (fp64 for fp64). Accumulated into with atomics, in no fixed order: initialize it to 0.
 * argmax: XPU_ROI_POOL only.
 * Errors: XPU_ERROR_NOT_SUPPORTED for fp64 on a device without has_atomic64. */
XPU_API xpu_status xpu_roi_backward(xpu_stream *stream, const xpu_roi *args, const void *grad_output,
                                    const void *regions, const int32_t *argmax, void *grad_image,
                                    xpu_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
