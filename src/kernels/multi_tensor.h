/* One launch over many tensors: a table tells a work-group which tensor and which chunk of it is its own.
 *
 * A row of the table is WIDTH words: the columns that the kernel needs per tensor (addresses, scalars), the
 * tensor's element count, and the index of its first work-group. The table is in memory or, with INLINE=1, in
 * the parameters. A work-group of LOCAL work-items handles LOCAL * STEPS elements or, with STEPS=0, p.chunk,
 * which the launch chooses. */
#ifndef XPU_KERNELS_MULTI_TENSOR_H
#define XPU_KERNELS_MULTI_TENSOR_H
#include "shared.h"

#define MULTI_SCALARS 12
#define MULTI_TENSOR_WORDS 96

/* 888 bytes */
struct multi_tensor_params {
    xpu_addr table;
    xpu_i64 tensors;
    xpu_i64 chunk;                 /* elements per work-group, a multiple of LOCAL; unused if STEPS is set */
    xpu_u64 number[MULTI_SCALARS]; /* the same for all tensors: addresses, bits of scalars */
    xpu_u64 word[MULTI_TENSOR_WORDS];
};

#ifdef WIDTH
#if INLINE
#define MULTI_TENSOR_WORD(row, column) p.word[(row) * WIDTH + (column)]
#else
#define MULTI_TENSOR_WORD(row, column) XPU_CPTR(ulong, p.table)[(row) * WIDTH + (column)]
#endif
#define MULTI_TENSOR_ADDRESS(column) MULTI_TENSOR_WORD(row, column)
#if STEPS
#define MULTI_TENSOR_CHUNK (LOCAL * STEPS)
#else
#define MULTI_TENSOR_CHUNK p.chunk
#endif

/* Declares the work-group's tensor `row`, its `first` element, and its number of `elements`. Needs p in
 * scope. */
#define MULTI_TENSOR_ROW                                                                                     \
    const long group = XPU_GROUP(0);                                                                         \
    int row = 0, last = (int)p.tensors - 1;                                                                  \
    while (row < last) {                                                                                     \
        const int middle = (row + last + 1) / 2;                                                             \
        if ((long)MULTI_TENSOR_WORD(middle, WIDTH - 1) <= group)                                             \
            row = middle;                                                                                    \
        else                                                                                                 \
            last = middle - 1;                                                                               \
    }                                                                                                        \
    const size_t first = (size_t)(group - (long)MULTI_TENSOR_WORD(row, WIDTH - 1)) * MULTI_TENSOR_CHUNK;     \
    const size_t elements =                                                                                  \
        min((size_t)MULTI_TENSOR_WORD(row, WIDTH - 2) - first, (size_t)MULTI_TENSOR_CHUNK);
/* DO(i) for each element i of the work-group. Only the last iteration is masked: unmasked vector stores are
 * several times as fast on CPUs. */
#define MULTI_TENSOR_FOR_EACH(DO)                                                                            \
    {                                                                                                        \
        size_t at_ = 0;                                                                                      \
        for (; at_ + LOCAL <= elements; at_ += LOCAL) { DO(first + at_ + get_local_id(0)) }                  \
        if (at_ + get_local_id(0) < elements) { DO(first + at_ + get_local_id(0)) }                          \
    }
/* The same for sums: DO(i, k) adds to accumulator k of four, which breaks the dependency between additions.
 */
#define MULTI_TENSOR_UNROLLED_BY_4(DO)                                                                       \
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
