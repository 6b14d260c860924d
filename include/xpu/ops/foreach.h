/* xpu/ops/foreach.h: one pointwise operation over lists of tensors, in one launch. */
#ifndef XPU_OPS_FOREACH_H
#define XPU_OPS_FOREACH_H

#include "pointwise.h"

#ifdef __cplusplus
extern "C" {
#endif

#define XPU_FOREACH_OPERANDS 5

/* Source of an operand. */
typedef enum xpu_foreach_source {
    XPU_FOREACH_TENSORS, /* a tensor per row */
    XPU_FOREACH_SCALARS, /* a scalar per row: 8 bytes from xpu_foreach_scalar_word */
    XPU_FOREACH_SCALAR,  /* one scalar for all rows, `value` */
    XPU_FOREACH_ELEMENT  /* one device element of the call's dtype for all rows, `element` */
} xpu_foreach_source;

typedef struct xpu_foreach_operand {
    xpu_foreach_source source;
    xpu_scalar value;
    const void *element;
} xpu_foreach_operand;

/* Computes `op` for each row.
 *
 * op: has one output, of the compute dtype (or the real one, for real dtypes).
 * operands: the operation's inputs, then its scalars.
 * rows: `count` rows of 64-bit words: the output's address; for each operand with a per-row source, the
 *     tensor's address or the scalar; the number of elements; a word reserved for the library. Read during
 *     the call only.
 * Tensors: all have `dtype`. Those of a row are dense, with equal element counts in the same order. The
 *     output may be an input.
 * Errors: XPU_ERROR_NOT_SUPPORTED if `op` is not defined for the dtype, and for per-row scalars with
 *     complex128. */
XPU_API xpu_status xpu_foreach(xpu_stream *stream, xpu_pointwise_op op, xpu_dtype dtype,
                               const xpu_foreach_operand *operands, int operand_count, uint64_t *rows,
                               int64_t count);

/* The word that represents a scalar in a row. */
XPU_API uint64_t xpu_foreach_scalar_word(xpu_dtype dtype, const xpu_scalar *value);

typedef struct xpu_norm_row {
    const void *tensor;
    void *result; /* one element of the tensors' dtype */
    uint64_t reserved0;
    int64_t count; /* number of elements; 0 gives 0 */
    uint64_t reserved1;
} xpu_norm_row;

/* Vector norm of each tensor, of order 1, 2 or infinity (passed as 0). Floating dtypes; fp16 and bf16
 * accumulate in fp32. `scratch`: xpu_foreach_norm_scratch(…) bytes of device memory. */
XPU_API size_t xpu_foreach_norm_scratch(int device, const xpu_norm_row *rows, int64_t count);
XPU_API xpu_status xpu_foreach_norm(xpu_stream *stream, xpu_dtype dtype, int order, xpu_norm_row *rows,
                                    int64_t count, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
