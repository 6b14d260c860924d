/* A quantized operand of a product from the kernels' point of view. */
#ifndef OPS_QUANTIZED_H
#define OPS_QUANTIZED_H

#include "kernels/gemm/quantized.h"
#include "ops/kernel.h"
#include "xpu/ops/gemm.h"

/* Rows (or columns) of elements along the dimension in which they are, or will be, contiguous. */
typedef struct quantized_operand {
    const xpu_quant_params *q;
    quantized_lines lines;
    int64_t count, length;
    bool by_columns; /* rows are columns of the operand */
    int cut;         /* what belongs to groups: CUT_… of kernels/gemm/quantized.h */
    int64_t groups;
    const int32_t *ends; /* device memory: ends of the groups */
} quantized_operand;

/* Are aligned runs of eight elements contiguous, with one scale and zero point each? */
bool quantized_has_vec8(const quantized_operand *o);
int quantized_bits(const quantized_operand *o); /* of an element */
/* log2 of the number of such runs that share scale and zero point, at most 3; and log2 of the rows' alignment
 * in units of 2 bytes, at most 3. */
int quantized_vec8_per_scale(const quantized_operand *o);
int quantized_row_alignment(const quantized_operand *o);
/* Do its rows satisfy the rules of 2D block reads, and do 32 contiguous elements share scale and zero point?
 */
bool quantized_has_blocks(const quantized_operand *o);
/* Adds its build options (kernels/gemm/quantized_load.h). */
void quantized_spec(kernel_spec *spec, const quantized_operand *o);

#endif
