/* xpu/ops/histogram.h: how many elements fall into each bin. Real dtypes; tensors are contiguous. */
#ifndef XPU_OPS_HISTOGRAM_H
#define XPU_OPS_HISTOGRAM_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds to counts[b] (XPU_INT32, `bins` of them) the number of the `numel` elements of `in` that lie in bin b.
 * Bins are of equal width from `low` to `high`, both included, and computed in fp32, fp64 for fp64, int64 for
 * integers; what lies outside, and NaN, isn't counted. Without bounds (NULL) an integer is its own bin. Fewer
 * than 2^31 elements. With `weights` (XPU_FLOAT32 or XPU_FLOAT64, as `counts` then are) those are added up,
 * in any order; XPU_ERROR_NOT_SUPPORTED for fp64 on devices without has_atomic64. */
XPU_API xpu_status xpu_histogram(xpu_stream *stream, xpu_dtype dtype, const void *in, int64_t numel,
                                 int64_t bins, const xpu_scalar *low, const xpu_scalar *high,
                                 const void *weights, xpu_dtype weights_dtype, void *counts);

#ifdef __cplusplus
}
#endif
#endif
