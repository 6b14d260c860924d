/* xpu/ops/nms.h: non-maximum suppression; torchvision's nms.
 *
 * boxes [count, 4], contiguous, in the order in which they are preferred (by descending score): x, y of one
 * corner, x, y of the other, the first ones not greater. fp16, bf16, fp32, fp64; computed in fp32 (fp64 for
 * fp64). keep [count], bytes: 1 for a box unless one before it that is kept has more in common with it than
 * `threshold`, the common area by that of both together. Boxes without area have nothing in common with any
 * (0 by 0 isn't more). */
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
