/* One launch over many tensors: a table says where each lies and which groups are its own.
 *
 * A row of the table is WIDTH words: what the kernel wants of each tensor (addresses, numbers), the number
 * of its elements, and the number of its first group. The table lies in memory, or with -DINLINE=1 in the
 * parameters. A group of LOCAL work-items takes LOCAL·STEPS elements. */
#ifndef XPU_KERNELS_MULTI_H
#define XPU_KERNELS_MULTI_H
#include "shared.h"

#define MULTI_NUMBERS 12
#define MULTI_WORDS 96

/* 880 bytes */
struct multi_params {
    xpu_addr table;
    xpu_i64 tensors;
    xpu_u64 number[MULTI_NUMBERS]; /* the same for all tensors: addresses, bits of numbers */
    xpu_u64 word[MULTI_WORDS];
};

#ifdef WIDTH
#if INLINE
#define MULTI_WORD(row, column) p.word[(row) * WIDTH + (column)]
#else
#define MULTI_WORD(row, column) XPU_CPTR(ulong, p.table)[(row) * WIDTH + (column)]
#endif
#define MULTI_ADDRESS(column) MULTI_WORD(row, column)

/* Finds the group's tensor `row` and walks over its elements i. Needs p in scope; ends with MULTI_END. */
#define MULTI_ROW                                                                                            \
    const long group = XPU_GROUP(0);                                                                         \
    int row = 0, last = (int)p.tensors - 1;                                                                  \
    while (row < last) {                                                                                     \
        const int middle = (row + last + 1) / 2;                                                             \
        if ((long)MULTI_WORD(middle, WIDTH - 1) <= group)                                                    \
            row = middle;                                                                                    \
        else                                                                                                 \
            last = middle - 1;                                                                               \
    }                                                                                                        \
    const long first = (group - (long)MULTI_WORD(row, WIDTH - 1)) * (LOCAL * STEPS);                         \
    const long count = (long)MULTI_WORD(row, WIDTH - 2);
#define MULTI_EACH(i)                                                                                        \
    const long left_ = (count - first + LOCAL - 1) / LOCAL, steps_ = left_ < STEPS ? left_ : STEPS;          \
    for (long step_ = 0; step_ < steps_; step_++) {                                                          \
        const long i = first + step_ * LOCAL + (long)get_local_id(0);                                        \
        if (i < count)
#define MULTI_END }
#endif
#endif
