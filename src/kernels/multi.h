/* One launch over many tensors: a table says where each lies and which groups are its own.
 *
 * A row of the table is WIDTH words: what the kernel wants of each tensor (addresses, numbers), the number
 * of its elements, and the number of its first group. The table lies in memory, or with -DINLINE=1 in the
 * parameters. A group of LOCAL work-items takes LOCAL·STEPS elements, or with -DSTEPS=0 `chunk`, which the
 * launch chooses. */
#ifndef XPU_KERNELS_MULTI_H
#define XPU_KERNELS_MULTI_H
#include "shared.h"

#define MULTI_NUMBERS 12
#define MULTI_WORDS 96

/* 888 bytes */
struct multi_params {
    xpu_addr table;
    xpu_i64 tensors;
    xpu_i64 chunk; /* elements of a group, a multiple of LOCAL; with STEPS the build knows it */
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
#if STEPS
#define MULTI_CHUNK (LOCAL * STEPS)
#else
#define MULTI_CHUNK p.chunk
#endif

/* Finds the group's tensor `row`, and how many elements of it from `first` on are the group's. Needs p in
 * scope. */
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
    const size_t first = (size_t)(group - (long)MULTI_WORD(row, WIDTH - 1)) * MULTI_CHUNK;                   \
    const size_t elements = min((size_t)MULTI_WORD(row, WIDTH - 2) - first, (size_t)MULTI_CHUNK);
/* DO(i) for each of the group's elements i. The last step alone is masked: a processor stores whole vectors
 * several times as fast. */
#define MULTI_EACH(DO)                                                                                       \
    {                                                                                                        \
        size_t at_ = 0;                                                                                      \
        for (; at_ + LOCAL <= elements; at_ += LOCAL) { DO(first + at_ + get_local_id(0)) }                  \
        if (at_ + get_local_id(0) < elements) { DO(first + at_ + get_local_id(0)) }                          \
    }
/* The same for sums: DO(i, k) adds to accumulator k of four, so that an addition needn't wait for the last.
 */
#define MULTI_EACH_OF_FOUR(DO)                                                                               \
    {                                                                                                        \
        size_t at_ = 0;                                                                                      \
        for (; at_ + 4 * LOCAL <= elements; at_ += 4 * LOCAL) {                                              \
            const size_t i_ = first + at_ + get_local_id(0);                                                 \
            DO(i_, 0) DO(i_ + LOCAL, 1) DO(i_ + 2 * LOCAL, 2) DO(i_ + 3 * LOCAL, 3)                          \
        }                                                                                                    \
        for (; at_ + LOCAL <= elements; at_ += LOCAL) { DO(first + at_ + get_local_id(0), 0) }               \
        if (at_ + get_local_id(0) < elements) { DO(first + at_ + get_local_id(0), 0) }                       \
    }
#endif
#endif
