/* xpu/ops/copy.h: copies between layouts and dtypes, and fills. */
#ifndef XPU_OPS_COPY_H
#define XPU_OPS_COPY_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copies the iteration's one input to its one output, converting between their dtypes: floating to integer
 * truncates, anything to bool is "not zero", real to complex has imaginary part 0, complex to real drops
 * it. Between equal dtypes the bits are copied. A broadcast input (stride 0) or a value fills. Input and
 * output don't overlap, or are the same memory with the same strides and element size. */
XPU_API xpu_status xpu_copy(xpu_stream *stream, const xpu_iter *iter);

/* Sets every element of the iteration's one output (no inputs) to `value`. */
XPU_API xpu_status xpu_fill(xpu_stream *stream, const xpu_iter *iter, const xpu_scalar *value);

#ifdef __cplusplus
}
#endif
#endif
