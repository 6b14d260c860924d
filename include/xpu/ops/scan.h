/* xpu/ops/scan.h: running sums, products and extremes along one dimension of a tensor.
 *
 *   out[…, k, …] = in[…, 0, …] ∘ … ∘ in[…, k, …]
 *
 * Halves are accumulated in fp32. The same shape on the same device gives the same bits. */
#ifndef XPU_OPS_SCAN_H
#define XPU_OPS_SCAN_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_scan_op {
    XPU_SCAN_SUM,
    XPU_SCAN_PROD,
    XPU_SCAN_MAX, /* NaN stays; of equal values, the index of the last */
    XPU_SCAN_MIN,
    XPU_SCAN_LOGSUMEXP, /* log of the running sum of exponentials; floating dtypes */
    XPU_SCAN_COUNT
} xpu_scan_op;

/* `in` and `out` have the same shape and any strides; `out` may be `in`. `index` (XPU_INT64, the same shape)
 * is given for maxima and minima, else NULL. `in` is converted to what `out`'s dtype is computed in; maxima
 * and minima need equal dtypes. Errors: XPU_ERROR_INVALID_ARGUMENT for operands that don't fit the
 * operation or each other, XPU_ERROR_NOT_SUPPORTED for a dtype that it isn't defined for. */
XPU_API xpu_status xpu_scan(xpu_stream *stream, xpu_scan_op op, const xpu_tensor *out,
                            const xpu_tensor *index, const xpu_tensor *in, int dim);

#ifdef __cplusplus
}
#endif
#endif
