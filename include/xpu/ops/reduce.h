/* xpu/ops/reduce.h: reductions over any dimensions.
 *
 * The iteration has the input's shape, one input, and one or two outputs. An output's stride is 0 in reduced
 * dimensions, and nowhere else (dimensions of size 1 don't count). An empty reduction gives the identity:
 * sum 0, product 1, mean NaN.
 *
 * Dtypes: fp16 and bf16 accumulate in fp32.
 * Accuracy: sums are blocked over many lanes, so the error grows with the logarithm of the number of
 *     elements.
 * Deterministic: the same shape on the same device gives the same bits.
 *
 *   name                    outputs             dtypes of the outputs
 *   sum nansum mean prod    the result          any that the input's values convert to.
 *   amax amin               the extremum        the input's.
 *   aminmax                 minimum, maximum    the input's.
 *   max min                 extremum, its index (XPU_INT64): the first of equals; NaN wins.
 *   argmax argmin           the index           XPU_INT64.
 *   any all                 0 or 1              XPU_BOOL, or XPU_UINT8.
 *   count_nonzero           the count           XPU_INT64.
 *   norm0 norm1 norm2 norm_max norm_min norm_p  norm of the moduli, real; `parameter` is p of norm_p.
 *   var std                 variance, its root; `parameter` is the correction.
 *   var_mean std_mean       the same, and the mean.
 *
 * Index reductions count along the reduced dimensions, with the iteration's lower dimensions fastest. */
#ifndef XPU_OPS_REDUCE_H
#define XPU_OPS_REDUCE_H

#include "../ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum xpu_reduction {
#define X(name, overloads, inputs, type, accumulator, identity, step, combine, finish, second)               \
    XPU_REDUCE_##name,
#include "tables/reduce.def"
#undef X
    XPU_REDUCE_COUNT
} xpu_reduction;

/* The name in lower case, such as "count_nonzero". */
XPU_API const char *xpu_reduction_name(xpu_reduction reduction);

/* Errors: XPU_ERROR_INVALID_ARGUMENT for a wrong number of operands, or outputs with different reduced
 *     dimensions.
 * XPU_ERROR_NOT_SUPPORTED for dtypes that the reduction is not defined for. */
XPU_API xpu_status xpu_reduce(xpu_stream *stream, xpu_reduction reduction, const xpu_iter *iter,
                              double parameter);

#ifdef __cplusplus
}
#endif
#endif
