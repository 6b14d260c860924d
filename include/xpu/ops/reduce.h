/* xpu/ops/reduce.h: reductions of any dimensions of a tensor.
 *
 * The iteration has one or two outputs and one input over the input's shape; an output's stride is 0 in
 * the dimensions that are reduced, and nowhere else (dimensions of size 1 don't count). An empty
 * reduction gives the identity (sum 0, product 1, mean NaN).
 *
 * Halves are summed in fp32, in many lanes and in blocks, so that the error grows with the logarithm
 * rather than with the number of elements. The same shape on the same device gives the same bits.
 *
 *   name                    outputs             dtypes of the outputs
 *   sum nansum mean prod    the result          any that the input's values convert to
 *   amax amin               the extreme         the input's
 *   aminmax                 least, greatest     the input's
 *   max min                 the extreme, its index (XPU_INT64): the first of equals, NaN before all
 *   argmax argmin           the index           XPU_INT64
 *   any all                 0 or 1              XPU_BOOL, or XPU_UINT8
 *   count_nonzero           the count           XPU_INT64
 *   norm0 norm1 norm2 norm_max norm_min norm_p  the norm of the moduli; real; `parameter` is p of norm_p
 *   var std                 the variance or its root; `parameter` is the correction
 *   var_mean std_mean       that and the mean
 *
 * Index reductions count along the reduced dimensions, the iteration's lower dimensions fastest. */
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

/* The name in lower case, as "count_nonzero". */
XPU_API const char *xpu_reduction_name(xpu_reduction reduction);

/* Reduces. XPU_ERROR_INVALID_ARGUMENT for the wrong number of operands or outputs that are not reduced
 * alike; XPU_ERROR_NOT_SUPPORTED for dtypes the reduction isn't defined for. */
XPU_API xpu_status xpu_reduce(xpu_stream *stream, xpu_reduction reduction, const xpu_iter *iter,
                              double parameter);

#ifdef __cplusplus
}
#endif
#endif
