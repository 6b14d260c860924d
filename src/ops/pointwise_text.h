/* Formulas of the pointwise table, for other generated kernels. */
#ifndef OPS_POINTWISE_TEXT_H
#define OPS_POINTWISE_TEXT_H

#include "core/text.h"
#include "xpu/ops/pointwise.h"

/* The most special formula for the dtype, or NULL; those of several outputs are separated by ';'. */
const char *pointwise_formula(xpu_pointwise_op op, xpu_dtype compute);
/* The operation with this name, in lower case; XPU_POINTWISE_COUNT if there is none. */
xpu_pointwise_op pointwise_named(const char *name);
/* Writes a number, in the type that `dtype` is computed in; its 64-bit words, as in scalar_bits, are the
 * expressions `low` and `high`. */
void pointwise_add_number(text_buffer *t, xpu_dtype dtype, const char *low, const char *high);
/* Types and functions that `formula` needs: T, R, T2, K, and the files it calls into. */
void pointwise_add_types(text_buffer *t, xpu_dtype compute, const char *formula);

#endif
