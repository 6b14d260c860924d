/* xpu/ops/nms.h: non-maximum suppression; torchvision's nms.
 *
 * boxes [count, 4]: contiguous, sorted by descending score; x1, y1, x2, y2 with x1 <= x2 and y1 <= y2.
 * keep [count]: bytes; 1 for a box unless a kept box before it overlaps it with an IoU above `threshold`.
 * Boxes of area 0 have an IoU of 0 with every box.
 * Dtypes: fp16, bf16, fp32, fp64; computed in fp32 (fp64 for fp64). */
#ifndef XPU_OPS_NMS_H
#define XPU_OPS_NMS_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

XPU_API xpu_status xpu_nms(xpu_stream *stream, int64_t count, xpu_dtype dtype, const void *boxes,
                           double threshold, uint8_t *keep);

#ifdef __cplusplus
}
#endif
#endif
