/* A pass of fft.cl that is specialized for one length and keeps its values in registers. A work-item loads
 * the inputs of its first butterflies and stores the outputs of its last; local memory exchanges values
 * between two stages. Loop bounds, most addresses and most twiddle factors are compile-time constants.
 *
 * Options besides those of fft_parts.h: LENGTH = RADIX_0 * RADIX_1 * …, STAGES of them (the others are 1);
 * ITEMS, work-items per column, each with up to EACH values; COLUMNS per work-group; DONE_1, set in the first
 * pass; ROW_DIMS. */
#include "fft_parts.h"

#define GROUP (ITEMS * COLUMNS)
#define READS_BY_COLUMN ((FLAGS & FFT_READ_BY_COLUMN) != 0)
#define WRITES_BY_COLUMN ((FLAGS & FFT_WRITE_BY_COLUMN) != 0)
#define STEP_1 RADIX_0
#define STEP_2 (STEP_1 * RADIX_1)
#define STEP_3 (STEP_2 * RADIX_2)
#define STEP_4 (STEP_3 * RADIX_3)
#define STEP_5 (STEP_4 * RADIX_4)

/* Element k of column c in local memory. */
#if READS_BY_COLUMN || WRITES_BY_COLUMN
#define HELD(k) held[AT((k) * COLUMNS + c)]
#else
#define HELD(k) held[AT(c * LENGTH + (k))]
#endif
#define TAKE(by_column)                                                                                      \
    c = (by_column) ? lane % COLUMNS : lane / ITEMS;                                                         \
    t = (by_column) ? lane / COLUMNS : lane % ITEMS;

/* The radix-N butterflies of a work-item: butterfly b has the elements b + k * LENGTH / N. */
#define BUTTERFLIES(N) _Pragma("unroll") for (uint i = 0; i < (LENGTH / (N) + ITEMS - 1) / ITEMS; i++)
#define IS_PAST_END(N) (LENGTH / (N) % ITEMS && b >= LENGTH / (N))
#define DFT(N) XPU_CAT(dft_, N)

#define TRANSFORM(N, step)                                                                                   \
    BUTTERFLIES(N) {                                                                                         \
        if (step > 1) TRANSPOSE_SIZE(N, v + i * N, (t + i * ITEMS) % (step), (step) * N)                     \
        DFT(N)(v + i * N);                                                                                   \
    }
#define HAND_OVER(N, step, is_last, NEXT)                                                                    \
    BUTTERFLIES(N) {                                                                                         \
        const uint b = t + i * ITEMS, rest = b % (step);                                                     \
        if (IS_PAST_END(N)) continue;                                                                        \
        _Pragma("unroll") for (uint k = 0; k < N; k++) HELD((b - rest) * N + rest + k * (step)) =            \
            v[i * N + k];                                                                                    \
    }                                                                                                        \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                            \
    if ((is_last) && READS_BY_COLUMN != WRITES_BY_COLUMN) { TAKE(WRITES_BY_COLUMN) }                         \
    BUTTERFLIES(NEXT) {                                                                                      \
        const uint b = t + i * ITEMS;                                                                        \
        if (IS_PAST_END(NEXT)) continue;                                                                     \
        _Pragma("unroll") for (uint k = 0; k < NEXT; k++) v[i * NEXT + k] = HELD(b + k * (LENGTH / NEXT));   \
    }                                                                                                        \
    if (!(is_last)) barrier(CLK_LOCAL_MEM_FENCE);

/* Continues with stage `stages`, which may be the last one. */
#define GO_ON(N, step, stages, NEXT, next_step)                                                              \
    HAND_OVER(N, step, STAGES == stages, NEXT)                                                               \
    TRANSFORM(NEXT, next_step)

/* Not vectorized on CPUs, as in fft.cl. */
XPU_NO_VECTORIZE XPU_SUBGROUP_OF_16 __attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
fft_length(fft_params p) {
#if STAGES > 1
    __local value_t held[AT(LENGTH * COLUMNS)];
#endif
    __local column columns[COLUMNS];
    const uint lane = get_local_id(0), apart = p.n / LENGTH;
    const long before = (long)XPU_GROUP(0) * COLUMNS;
    const uint present = (uint)min((long)COLUMNS, p.columns - before);
    for (uint i = lane; i < present; i += GROUP) columns[i] = find_column(&p, before + i, apart);
    barrier(CLK_LOCAL_MEM_FENCE);
    uint c, t;
    value_t v[EACH];
    TAKE(READS_BY_COLUMN) {
        const column from = columns[min(c, present - 1)];
        BUTTERFLIES(RADIX_0) {
            const uint b = t + i * ITEMS;
            if (IS_PAST_END(RADIX_0) || c >= present) continue;
            _Pragma("unroll") for (uint k = 0; k < RADIX_0; k++)
                v[i * RADIX_0 + k] = source(&p, from.from, from.place + (b + k * (LENGTH / RADIX_0)) * apart);
#ifndef DONE_1
            /* twiddle factors exp(-2πi (b + k * LENGTH / RADIX_0) * rest / whole) */
            const uint rest = from.place % p.done, whole = p.done * LENGTH;
            const value_t first = turn(rest * b, whole);
            TRANSPOSE_SIZE(RADIX_0, v + i * RADIX_0, rest * (LENGTH / RADIX_0), whole)
            _Pragma("unroll") for (uint k = 0; k < RADIX_0; k++) v[i * RADIX_0 + k] =
                times(v[i * RADIX_0 + k], first);
#endif
        }
    }
    TRANSFORM(RADIX_0, 1)
#if STAGES > 1
    GO_ON(RADIX_0, 1, 2, RADIX_1, STEP_1)
#endif
#if STAGES > 2
    GO_ON(RADIX_1, STEP_1, 3, RADIX_2, STEP_2)
#endif
#if STAGES > 3
    GO_ON(RADIX_2, STEP_2, 4, RADIX_3, STEP_3)
#endif
#if STAGES > 4
    GO_ON(RADIX_3, STEP_3, 5, RADIX_4, STEP_4)
#endif
#if STAGES > 5
    GO_ON(RADIX_4, STEP_4, 6, RADIX_5, STEP_5)
#endif
    if (c >= present) return;
    const column to = columns[c];
#ifdef DONE_1
    const uint first = to.place * LENGTH, done = 1;
#else
    const uint done = p.done, rest = to.place % done, first = (to.place - rest) * LENGTH + rest;
#endif
    BUTTERFLIES(LAST) {
        const uint b = t + i * ITEMS;
        if (IS_PAST_END(LAST)) continue;
        _Pragma("unroll") for (uint k = 0; k < LAST; k++) {
            const uint q = first + (b + k * (LENGTH / LAST)) * done;
            if (q < p.stored) put(&p, to.to, q, v[i * LAST + k]);
        }
    }
}
