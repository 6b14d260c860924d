/* xpu/ops/pointwise.h: elementwise operations.
 *
 * The operations are the entries of tables/pointwise.def: formula, numbers of inputs, outputs and scalars,
 * and dtypes. */
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
 * compute: PyTorch's common dtype. Inputs are converted to it; fp16 and bf16 are then widened to fp32, and a
 *     CPU scalar is not rounded to them first. The result is rounded to `compute`, then converted to the
 *     output's dtype. Inputs marked as masks in the table are read as booleans; outputs marked boolean or
 *     real have that dtype.
 * scalars: the operation's parameters in table order, converted to the type of computation. scalar_count
 *     must match the table.
 * Aliasing: an output may be an input if both have the same strides and element size.
 * Allocates nothing.
 * Errors: XPU_ERROR_INVALID_ARGUMENT for a wrong number of operands or scalars.
 * XPU_ERROR_NOT_SUPPORTED if the operation is not defined for `compute`, or the device lacks a type. */
XPU_API xpu_status xpu_pointwise(xpu_stream *stream, xpu_pointwise_op op, xpu_dtype compute,
                                 const xpu_iter *iter, const xpu_scalar *scalars, int scalar_count);

/* The operation's name ("add"), or NULL for an invalid number. */
XPU_API const char *xpu_pointwise_name(xpu_pointwise_op op);
/* Numbers of operands and scalars. */
XPU_API xpu_status xpu_pointwise_arity(xpu_pointwise_op op, int *outputs, int *inputs, int *scalars);
/* True if the table defines `op` for `compute`. */
XPU_API bool xpu_pointwise_defined(xpu_pointwise_op op, xpu_dtype compute);

#ifdef __cplusplus
}
#endif
#endif
