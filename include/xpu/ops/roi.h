/* xpu/ops/roi.h: regions of images, each brought to rows x columns bins, with gradients; torchvision's
 * roi_align, roi_pool, ps_roi_align and ps_roi_pool.
 *
 * image [images, channels, height, width], regions [regions, 5] (the image's number; x, y of one corner, x, y
 * of the other, times `scale` in elements of the image), output [regions, planes, rows, columns], all
 * contiguous and of one dtype: fp16, bf16, fp32, fp64; computed in fp32 (fp64 for fp64).
 *
 *   XPU_ROI_ALIGN     mean of samples x samples places of a bin, each interpolated from four elements (He et
 * al., Mask R-CNN, arXiv:1703.06870); outside of the image they are 0. planes = channels XPU_ROI_POOL the
 * largest of the whole elements that a bin touches (Girshick, Fast R-CNN, arXiv:1504.08083), 0 where there
 * are none; NaN is passed over. planes = channels XPU_ROI_PS_ALIGN, XPU_ROI_PS_POOL the same samples, and the
 * mean of whole elements, where each bin reads a channel of its own: plane * rows * columns + row * columns +
 * column (Dai et al., R-FCN, arXiv:1605.06409)
 *
 * A region of an image that isn't there gives 0 and is reported (xpu/fault.h). Of a region with coordinates
 * that aren't finite the numbers are unspecified, and nothing else is read or written. */
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
    int samples;                 /* of a bin in each dimension; 0: as many as it has elements, rounded up */
    double scale;
    bool aligned; /* XPU_ROI_ALIGN: half an element is taken from each corner, and regions may have no extent
                   */
    xpu_dtype dtype;
    xpu_roi_kind kind;
} xpu_roi;

/* `places`, int32 as the output, may be NULL: of XPU_ROI_POOL where in its plane each element was (-1:
 * nowhere), of the others which channel was read. `fault` may be NULL. */
XPU_API xpu_status xpu_roi_forward(xpu_stream *stream, const xpu_roi *args, const void *image,
                                   const void *regions, void *output, int32_t *places, xpu_fault *fault);
/* grad_image is fp32 (fp64 for fp64) and is added to, in no fixed order: hand in zeros. `places` of
 * XPU_ROI_POOL only. On a device without has_atomic64 fp64 is XPU_ERROR_NOT_SUPPORTED. */
XPU_API xpu_status xpu_roi_backward(xpu_stream *stream, const xpu_roi *args, const void *grad_output,
                                    const void *regions, const int32_t *places, void *grad_image,
                                    xpu_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
