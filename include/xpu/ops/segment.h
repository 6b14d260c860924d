/* xpu/ops/segment.h: what the elements of each segment of a dimension come to, with gradients.
 *
 * Data are contiguous [outer, length, inner], the output [outer, segments, inner], `offsets` int64 [outer,
 * segments + 1]: segment s of an outer entry has the elements offsets[s] … offsets[s + 1] - 1; what lies
 * outside of the data isn't read. Dtypes are fp16, bf16, fp32 and fp64, computed in fp32 (fp64 for fp64), in
 * the same order each time. NaN is both greater and less than all numbers. */
#ifndef XPU_OPS_SEGMENT_H
#define XPU_OPS_SEGMENT_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_segment_reduction {
    XPU_SEGMENT_MAX,
    XPU_SEGMENT_MEAN,
    XPU_SEGMENT_MIN,
    XPU_SEGMENT_SUM,
    XPU_SEGMENT_PROD
} xpu_segment_reduction;

typedef struct xpu_segments {
    int64_t outer, segments, length, inner;
    xpu_dtype dtype;
    xpu_segment_reduction reduction;
    const void *offsets;
    bool has_initial; /* `initial` is what a segment begins with, an element that a mean doesn't count; else
                         what changes nothing (a mean of nothing is NaN) */
    double initial;
} xpu_segments;

XPU_API xpu_status xpu_segment_forward(xpu_stream *stream, const xpu_segments *args, const void *data,
                                       void *output);
/* `output` as forward gave it. Several maxima or minima share a positive gradient, and each have a negative
 * one, as in PyTorch; elements in no segment have 0. Offsets must not decrease. */
XPU_API xpu_status xpu_segment_backward(xpu_stream *stream, const xpu_segments *args, const void *grad_output,
                                        const void *output, const void *data, void *grad_data);

#ifdef __cplusplus
}
#endif
#endif
