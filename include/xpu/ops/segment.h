/* xpu/ops/segment.h: segment reductions, with gradients.
 *
 * Shapes: data [outer, length, inner], output [outer, segments, inner], contiguous.
 * offsets: int64 [outer, segments + 1]. Segment s of an outer entry has the elements offsets[s] … offsets[s
 *     + 1] - 1. Offsets that don't ascend, or are out of range, are a fault (xpu/fault.h).
 * Dtypes: fp16, bf16, fp32, fp64, computed in fp32 (fp64 for fp64). Deterministic.
 * NaN is greater and less than every number. */
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
    bool has_initial; /* a segment starts with `initial`, which a mean doesn't count; else with the identity
                         (a mean of nothing is NaN) */
    double initial;
} xpu_segments;

XPU_API xpu_status xpu_segment_forward(xpu_stream *stream, const xpu_segments *args, const void *data,
                                       void *output);
/* output: from forward.
 * Several maxima or minima share a positive gradient, and each get a negative one, as in PyTorch. Elements
 * in no segment have gradient 0. */
XPU_API xpu_status xpu_segment_backward(xpu_stream *stream, const xpu_segments *args, const void *grad_output,
                                        const void *output, const void *data, void *grad_data);

#ifdef __cplusplus
}
#endif
#endif
