/* A quantised operand of a product as kernels go through it. */
#ifndef OPS_QUANTISED_H
#define OPS_QUANTISED_H

#include "kernels/gemm/quantised.h"
#include "ops/kernel.h"
#include "xpu/ops/gemm.h"

/* Lines of elements along the direction in which they are neighbours, or shall be. */
typedef struct quantised_operand {
    const xpu_quantised *q;
    quantised_lines lines;
    int64_t count, length;
    bool by_columns; /* lines are columns */
    int cut;         /* kernels/gemm/quantised.h: what is groups', … */
    int64_t groups;
    const int32_t *ends; /* … which end where the device says */
} quantised_operand;

/* Do octets of neighbours lie at multiples of eight elements, and have a scale and a zero in common? */
bool quantised_has_octets(const quantised_operand *o);
int quantised_bits(const quantised_operand *o); /* of an element */
/* How many octets of a line have the same scale and zero, as a power of two, 3 at most; and at what multiple
 * of bytes lines begin, as a power of two times 2, likewise. */
int quantised_octets_alike(const quantised_operand *o);
int quantised_line_bytes(const quantised_operand *o);
/* Do its lines keep to the rules of block reads, and have 32 neighbours a scale and a zero in common? */
bool quantised_has_blocks(const quantised_operand *o);
/* What kernels are told of it (kernels/gemm/quantised_read.h). */
void quantised_spec(kernel_spec *spec, const quantised_operand *o);

#endif
