/* xpu/ops/copy.h: copies between layouts and dtypes, and fills. */
#ifndef XPU_OPS_COPY_H
#define XPU_OPS_COPY_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copies the iteration's only input to its only output, converting between their dtypes.
 *
 * Conversions: floating to integer truncates; any to bool is "not zero"; real to complex has imaginary part
 *     0; complex to real drops the imaginary part. Equal dtypes copy bits.
 * A broadcast input (stride 0) or a scalar fills the output.
 * Aliasing: input and output don't overlap, or are the same memory with equal strides and element size. */
XPU_API xpu_status xpu_copy(xpu_stream *stream, const xpu_iter *iter);

/* Sets every element of the iteration's only output (no inputs) to `value`. */
XPU_API xpu_status xpu_fill(xpu_stream *stream, const xpu_iter *iter, const xpu_scalar *value);

#ifdef __cplusplus
}
#endif
#endif
