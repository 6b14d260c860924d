/* The pointwise operations: from a line of the table, the dtypes and the layout to a kernel. */
#include "xpu/ops/pointwise.h"

#include "ops/kernel.h"

xpu_status xpu_pointwise(xpu_stream *stream, xpu_pointwise_op op, xpu_dtype compute, const xpu_iter *iter,
                         const xpu_scalar *scalars, int scalar_count) {
    return op_fail(XPU_ERROR_NOT_SUPPORTED, "pointwise");
}
