/* xpu/ops/histogram.h: number of elements in each bin. Real dtypes; contiguous tensors. */
#ifndef XPU_OPS_HISTOGRAM_H
#define XPU_OPS_HISTOGRAM_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the histogram of `in` to `counts` (`bins` XPU_INT32).
 *
 * numel: fewer than 2^31.
 * low, high: bins have equal width from `low` to `high`, both included. They are computed in fp32, fp64 for
 *     fp64, int64 for integers. Elements outside, and NaN, are not counted. NULL: each integer is its own
 *     bin.
 * weights: added up instead of ones, in no fixed order; may be NULL. XPU_FLOAT32 or XPU_FLOAT64; `counts`
 *     then has that dtype.
 * Errors: XPU_ERROR_NOT_SUPPORTED for fp64 weights on devices without has_atomic64. */
XPU_API xpu_status xpu_histogram(xpu_stream *stream, xpu_dtype dtype, const void *in, int64_t numel,
                                 int64_t bins, const xpu_scalar *low, const xpu_scalar *high,
                                 const void *weights, xpu_dtype weights_dtype, void *counts);

#ifdef __cplusplus
}
#endif
#endif
