/* Layouts of iterations, for operators that generate kernels. */
#ifndef OPS_ITER_H
#define OPS_ITER_H

#include "ops/dtype.h"
#include "xpu/ops.h"
#include "xpu/trace.h"

/* How a kernel accesses one operand along dimension 0 (in LAYOUT_STRIDED: over all elements). */
typedef enum access_kind {
    ACCESS_VALUE,  /* scalar in the parameters */
    ACCESS_ONE,    /* stride 0 */
    ACCESS_NEXT,   /* contiguous */
    ACCESS_STRIDED /* any stride */
} access_kind;

typedef enum layout_kind {
    LAYOUT_FLAT,   /* one dimension, no operand strided */
    LAYOUT_ROWS,   /* rows of dimension 0, long enough to vectorize; any strides */
    LAYOUT_STRIDED /* short rows */
} layout_kind;

typedef struct iter_layout {
    layout_kind kind;
    int64_t count;  /* elements */
    int transposed; /* in LAYOUT_ROWS: the first dimension in which an operand that is
                   strided in dimension 0 is contiguous; 0 when there is none */
    access_kind access[XPU_MAX_OPERANDS];
} iter_layout;

/* Rows shorter than this are walked as LAYOUT_STRIDED. */
#define ITER_MIN_ROW 16

/* Are there dimensions that can be merged or dropped? */
bool iter_has_mergeable_dims(const xpu_iter *iter);
/* The layout of a coalesced iteration. */
void iter_get_layout(const xpu_iter *iter, iter_layout *layout);
/* Fewer than 2^31 elements, and all byte offsets within ±2^31? */
bool iter_fits_32bit(const xpu_iter *iter);
/* Exchanges two dimensions. */
void iter_swap(xpu_iter *iter, int d, int e);
/* Sorts the dimensions by the operand's strides, smallest first. */
void iter_sort(xpu_iter *iter, int operand);
/* Splits the outermost dimension with more than one element into two halves. */
void iter_split(const xpu_iter *iter, xpu_iter *low, xpu_iter *high);

/* The memory ranges of the operands: an xpu_access_callback for an xpu_iter. */
int iter_accesses(const void *iter, xpu_access *accesses);

/* n / divisor = (mul_hi(n, multiplier) + n) >> shift for all n < 2^31 (Granlund and Montgomery, "Division by
 * invariant integers using multiplication", 1994). divisor < 2^31. */
typedef struct fast_divisor {
    uint32_t multiplier, shift;
} fast_divisor;
static inline fast_divisor fast_divisor_of(uint32_t divisor) {
    fast_divisor f = {.shift = divisor > 1 ? 32 - (uint32_t)__builtin_clz(divisor - 1) : 0};
    f.multiplier = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << f.shift) - divisor)) / divisor + 1);
    return f;
}

/* The bytes of a scalar in the compute type of `dtype` (8, complex: 16). Half precision is fp32; float8 is
 * fp32 rounded to the format. */
void scalar_bits(const xpu_scalar *scalar, xpu_dtype dtype, uint64_t bits[2]);

#endif
