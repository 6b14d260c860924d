/* xpu/ops/foreach.h: one pointwise operation over lists of tensors, in one launch. */
#ifndef XPU_OPS_FOREACH_H
#define XPU_OPS_FOREACH_H

#include "pointwise.h"

#ifdef __cplusplus
extern "C" {
#endif

#define XPU_FOREACH_OPERANDS 5

/* Where an operand comes from. */
typedef enum xpu_foreach_source {
    XPU_FOREACH_TENSORS, /* a tensor in each row */
    XPU_FOREACH_NUMBERS, /* a number in each row: 8 bytes as xpu_foreach_number gives them */
    XPU_FOREACH_NUMBER,  /* one number for all, `value` */
    XPU_FOREACH_ELEMENT  /* one element on the device for all, `element`, of the call's dtype */
} xpu_foreach_source;

typedef struct xpu_foreach_operand {
    xpu_foreach_source source;
    xpu_scalar value;
    const void *element;
} xpu_foreach_operand;

/* Computes `op`, which must have one output of the compute dtype (or the real one, for dtypes that are
 * real), for each row. `operands` are the operation's inputs and then its scalars.
 *
 * `rows` holds `count` rows of words: the output's address; for each operand in turn that has something in
 * the rows, the tensor's address or the number; the number of elements; a word that the library uses for
 * itself. All tensors have `dtype`; those of a row have the same number of elements in the same order,
 * without gaps. The output may be one of the inputs. Rows are read during the call only.
 *
 * XPU_ERROR_NOT_SUPPORTED: `op` isn't defined for the dtype; numbers in rows for complex128. */
XPU_API xpu_status xpu_foreach(xpu_stream *stream, xpu_pointwise_op op, xpu_dtype dtype,
                               const xpu_foreach_operand *operands, int operand_count, uint64_t *rows,
                               int64_t count);

/* The word for a number in a row. */
XPU_API uint64_t xpu_foreach_number(xpu_dtype dtype, const xpu_scalar *value);

typedef struct xpu_norm_row {
    const void *tensor;
    void *result; /* one element of the tensors' dtype */
    uint64_t reserved0;
    int64_t count; /* elements of the tensor; 0 gives 0 */
    uint64_t reserved1;
} xpu_norm_row;

/* The vector norm of each tensor: order 1, 2 or infinity (0 here), for floating dtypes. Halves are summed
 * in fp32. `scratch` is xpu_foreach_norm_scratch(…) bytes of device memory. */
XPU_API size_t xpu_foreach_norm_scratch(int device, const xpu_norm_row *rows, int64_t count);
XPU_API xpu_status xpu_foreach_norm(xpu_stream *stream, xpu_dtype dtype, int order, xpu_norm_row *rows,
                                    int64_t count, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
