/* get: out[c] = in[c + Σ_k index_k[c]·step_k]     put: out[c + Σ_k index_k[c]·step_k] = in[c]
 *
 * over all coordinates c of `size`; every operand has strides of its own. Elements are moved as E bytes,
 * whatever their dtype. An index outside 0 … extent-1 (after wrapping) is reported and skipped.
 *   -DE=1|2|4|8|16  -DNI=index tensors  -DDIMS=2…8  -DI=i64|i32 their dtype  -DPUT=0|1
 *   -DROWS: for processors, where rows have no gaps and one index each: a work-item copies a row
 *   -DOS0 -DIS0 -DKS0: strides of dimension 0 known at build time (KS0=0: one index a row). */
#ifdef ROWS
#define INDEX_X 0
#endif
#include "index.h"
#include "element.h"
#ifdef ROWS
#include "copy_row.h"
XPU_BY_ITSELF
#endif
__kernel void index_move(struct index_params p) {
    INDEX_WALK(DIMS)
    long offset = 0;
    INDEX_RESOLVE(offset, 0, return)
#ifdef ROWS
    copy_row(XPU_PTR(T, p.out + out + (PUT ? offset : 0)), XPU_CPTR(T, p.in + in + (PUT ? 0 : offset)),
             (ulong)p.size[0]);
#elif PUT
    *XPU_PTR(element, p.out + out + offset) = *XPU_CPTR(element, p.in + in);
#else
    *XPU_PTR(element, p.out + out) = *XPU_CPTR(element, p.in + in + offset);
#endif
}
