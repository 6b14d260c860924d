/* xpu/ops/pointwise.h: operations that compute each output element from the input elements at the same place.
 *
 * The operations are the lines of tables/pointwise.def, which says of each what it computes, how many
 * inputs, outputs and scalars it takes and for which dtypes it is defined. */
#ifndef XPU_OPS_POINTWISE_H
#define XPU_OPS_POINTWISE_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* XPU_POINTWISE_ADD, XPU_POINTWISE_EXP, … */
typedef enum xpu_pointwise_op {
#define X(name, aten, signature, ...) XPU_POINTWISE_##name,
#include "tables/pointwise.def"
#undef X
    XPU_POINTWISE_COUNT
} xpu_pointwise_op;

/* Computes `op` for every element of `iter`.
 *
 * `compute` is what PyTorch calls the common dtype: each input is read in its own dtype and converted to
 * `compute` (fp16 and bf16 are then widened to fp32; a CPU scalar is not rounded to a half on the way), the
 * result is rounded to `compute` and converted to the output's own dtype. Inputs that the table marks as
 * masks are read as booleans, outputs that it marks boolean or real are what it says.
 *
 * `scalars` are the operation's parameters in the order of the table, converted to what `compute` is
 * computed in; `scalar_count` must be what the table says.
 *
 * An output may share its memory with an input if both have the same strides and element size. Nothing is
 * allocated. Errors: XPU_ERROR_INVALID_ARGUMENT for wrong numbers of operands or scalars,
 * XPU_ERROR_NOT_SUPPORTED when the operation isn't defined for `compute` or the device lacks a type. */
XPU_API xpu_status xpu_pointwise(xpu_stream *stream, xpu_pointwise_op op, xpu_dtype compute,
                                 const xpu_iter *iter, const xpu_scalar *scalars, int scalar_count);

/* The operation's name ("add"), or NULL for a number that is none. */
XPU_API const char *xpu_pointwise_name(xpu_pointwise_op op);
/* How many operands and scalars it takes. */
XPU_API xpu_status xpu_pointwise_arity(xpu_pointwise_op op, int *outputs, int *inputs, int *scalars);
/* True when the table defines `op` for `compute`. */
XPU_API bool xpu_pointwise_defined(xpu_pointwise_op op, xpu_dtype compute);

#ifdef __cplusplus
}
#endif
#endif
