/* xpu/ops/scan.h: cumulative sums, products and extrema along one dimension.
 *
 *   out[…, k, …] = in[…, 0, …] ∘ … ∘ in[…, k, …]
 *
 * fp16 and bf16 accumulate in fp32. Deterministic. */
#ifndef XPU_OPS_SCAN_H
#define XPU_OPS_SCAN_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_scan_op {
    XPU_SCAN_SUM,
    XPU_SCAN_PROD,
    XPU_SCAN_MAX, /* NaN wins; of equal values, the index of the last */
    XPU_SCAN_MIN,
    XPU_SCAN_LOGSUMEXP, /* log of the running sum of exponentials; floating dtypes */
    XPU_SCAN_COUNT
} xpu_scan_op;

/* in, out: equal shapes, any strides; `out` may be `in`. `in` is converted to the type in which out's dtype
 *     is computed; maxima and minima need equal dtypes.
 * index: for maxima and minima, XPU_INT64 of the same shape; else NULL.
 * Errors: XPU_ERROR_INVALID_ARGUMENT for operands that don't fit the operation or each other.
 * XPU_ERROR_NOT_SUPPORTED for a dtype that the operation is not defined for. */
XPU_API xpu_status xpu_scan(xpu_stream *stream, xpu_scan_op op, const xpu_tensor *out,
                            const xpu_tensor *index, const xpu_tensor *in, int dim);

#ifdef __cplusplus
}
#endif
#endif
