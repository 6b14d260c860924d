/* Indexing, for all coordinates c of `size`:
 *   get (PUT=0)   out[c] = in[c + Σ_k index_k[c] * step_k]
 *   put (PUT=1)   out[c + Σ_k index_k[c] * step_k] = in[c]
 * Every operand has its own strides. An index outside 0 … extent - 1 (after wrapping) is reported and
 * skipped.
 *
 * Options:
 *   E=1|2|4|8|16     bytes of an element; dtypes are not distinguished
 *   NI               number of index tensors; I=i64|i32, their dtype
 *   DIMS=2…8, PUT=0|1
 *   ROWS             CPU: rows are contiguous and have one index each; a work-item copies a row
 *   BLOCKS           CPU, one index tensor: a work-item moves `block` elements of dimension 0
 *   IS_CONTIGUOUS_DIM   with BLOCKS: the indexed dimension is contiguous
 *   OTHER_DIMS_FIXED    with BLOCKS: only the index changes along dimension 0
 *   FILLS            with BLOCKS: all elements of a block get the same value
 *   WRAPS            negative indices count from the end
 *   OS0, IS0, KS0    strides of dimension 0 known at build time (KS0=0: one index per row) */
#if defined(ROWS)
#define INDEX_X 0
#elif defined(BLOCKS)
#define INDEX_X (long)(XPU_GROUP(0) * p.block)
#endif
#include "index.h"
#include "element.h"
#ifdef ROWS
#include "copy_row.h"
#endif

#ifdef BLOCKS

#define IN_FLIGHT 4 /* elements whose indices are loaded before any is moved */

#ifdef OTHER_DIMS_FIXED
#define CHOSEN_STRIDE 0
#else
#define CHOSEN_STRIDE (PUT ? OS0 : IS0)
#endif

/* `chosen`: address of the element that the index selects; `other`: address of the element that it is moved
 * to or from. */
static inline void move_one(xpu_addr chosen, xpu_addr other) {
#if PUT && defined(FILLS) && E <= 8
    /* Threads that store to one cache line wait for each other, even if they store what is already there. */
    const element value = *XPU_CPTR(element, other);
    if (*XPU_PTR(element, chosen) != value) *XPU_PTR(element, chosen) = value;
#elif PUT
    *XPU_PTR(element, chosen) = *XPU_CPTR(element, other);
#else
    *XPU_PTR(element, other) = *XPU_CPTR(element, chosen);
#endif
}

XPU_NO_VECTORIZE
__kernel void index_move(struct index_params p) {
    INDEX_WALK(DIMS)
    const long length = min((long)p.block, p.size[0] - x), extent = p.extent[0];
#ifdef IS_CONTIGUOUS_DIM
    const long step = E;
#else
    const long step = p.step[0];
#endif
    const long by_chosen = CHOSEN_STRIDE, by_other = PUT ? IS0 : OS0, by_index = INDEX_STRIDE0(0);
    xpu_addr chosen = PUT ? p.out + out : p.in + in, other = PUT ? p.in + in : p.out + out;
    xpu_addr indices = p.index[0] + at[0];
    for (long i = 0; i < length;) {
        for (; i + IN_FLIGHT <= length; i += IN_FLIGHT) {
            long index[IN_FLIGHT];
            bool is_there = true;
#pragma unroll
            for (int e = 0; e < IN_FLIGHT; e++) {
                index[e] = *XPU_CPTR(index_t, indices + e * by_index);
#ifdef WRAPS
                index[e] += index[e] >> 63 & extent;
#endif
                is_there &= (ulong)index[e] < (ulong)extent;
            }
            if (!is_there) break;
#pragma unroll
            for (int e = 0; e < IN_FLIGHT; e++)
                move_one(chosen + e * by_chosen + index[e] * step, other + e * by_other);
            chosen += IN_FLIGHT * by_chosen, other += IN_FLIGHT * by_other, indices += IN_FLIGHT * by_index;
        }
        /* the remainder, and elements with an index out of range */
        for (const long end = min(i + IN_FLIGHT, length); i < end; i++) {
            const long given = *XPU_CPTR(index_t, indices);
            const long index = given < 0 && p.wrap ? given + extent : given;
            if ((ulong)index < (ulong)extent)
                move_one(chosen + index * step, other);
            else
                fault_report(p.watch, 0, given, extent);
            chosen += by_chosen, other += by_other, indices += by_index;
        }
    }
}

#else

#ifdef ROWS
XPU_NO_VECTORIZE
#endif
__kernel void index_move(struct index_params p) {
    INDEX_WALK(DIMS)
    INDEX_RESOLVE(offset, found, 0)
    if (!found) return;
#ifdef ROWS
    copy_row(XPU_PTR(T, p.out + out + (PUT ? offset : 0)), XPU_CPTR(T, p.in + in + (PUT ? 0 : offset)),
             (ulong)p.size[0]);
#elif PUT
    *XPU_PTR(element, p.out + out + offset) = *XPU_CPTR(element, p.in + in);
#else
    *XPU_PTR(element, p.out + out) = *XPU_CPTR(element, p.in + in + offset);
#endif
}
#endif
