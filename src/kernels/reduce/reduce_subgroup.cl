/* Reductions by subgroups: the lanes of a subgroup share a task, each with several accumulators. No local
 * memory, no barriers. reduce.h defines tasks, reduce_acc.h the options; LANES is the subgroup size. Options
 * of this file:
 *   NAN_APART   reduce_step may lose a NaN, and the result is NaN if there was one: lanes record NaNs
 *               separately, which is less work and a shorter dependency chain than a select in every step
 *   BUILD_…     the kernel to build
 *   LENGTH      p.total, if it is so short that the loop over it should be unrolled */
#include "reduce/reduce_acc.h"

#define SHUFFLE(v) sub_group_shuffle_xor(v, mask)
#ifdef A_COMPLEX
#define SHUFFLE_A(v) ((A)(SHUFFLE((v).x), SHUFFLE((v).y)))
#else
#define SHUFFLE_A(v) SHUFFLE(v)
#endif
static inline acc shuffled(acc a, uint mask) {
#if defined(KIND_one)
    return SHUFFLE_A(a);
#elif defined(KIND_pair)
    return ACC(SHUFFLE_A(a.lo), SHUFFLE_A(a.hi));
#elif defined(KIND_twice) && defined(WIDE)
    return SHUFFLE(a);
#elif defined(KIND_twice)
    return ACC(SHUFFLE_A(a.hi), SHUFFLE_A(a.lo));
#elif defined(KIND_indexed)
    return ACC(SHUFFLE_A(a.v), SHUFFLE(a.i));
#else
    return ACC(SHUFFLE_A(a.mean), SHUFFLE_A(a.m2), SHUFFLE(a.n));
#endif
}

static inline acc across_lanes(acc a) {
    for (uint mask = LANES / 2; mask > 0; mask /= 2) a = reduce_combine(a, shuffled(a, mask));
    return a;
}

#define WORKER_ATTRIBUTES                                                                                    \
    __attribute__((intel_reqd_sub_group_size(LANES))) __attribute__((reqd_work_group_size(LOCAL, 1, 1)))
#define LANE ((uint)get_sub_group_local_id())
/* The compiler takes the subgroup's index for non-uniform, which prevents vector loads. */
#if LOCAL == LANES
#define WORKER XPU_GROUP(0)
#else
#define WORKER (XPU_GROUP(0) * (LOCAL / LANES) + get_sub_group_id())
#endif

#ifdef NAN_APART
#define STEP(a, saw_nan, x, i)                                                                               \
    {                                                                                                        \
        in_t value = x;                                                                                      \
        a = reduce_step(a, value, i, parameter);                                                             \
        saw_nan |= value != value;                                                                           \
    }
#define TOTAL(a, saw_nan) (saw_nan ? (A)NAN : (a))
#else
#define STEP(a, saw_nan, x, i) a = reduce_step(a, x, i, parameter);
#define TOTAL(a, saw_nan) (a)
#endif

/* As many accumulators as fit into a processor's registers: four, of doubles two, of two doubles each one. */
#if defined(WIDE) && defined(KIND_welford)
#define SECOND_ACC a0
#define THIRD_ACC a0
#define FOURTH_ACC a0
#define ALL_ACC a0
#elif defined(WIDE)
#define SECOND_ACC a1
#define THIRD_ACC a0
#define FOURTH_ACC a1
#define ALL_ACC reduce_combine(a0, a1)
#else
#define SECOND_ACC a1
#define THIRD_ACC a2
#define FOURTH_ACC a3
#define ALL_ACC reduce_combine(reduce_combine(a0, a1), reduce_combine(a2, a3))
#endif

/* A step for each of four elements that are `apart` from each other. */
#define FOUR_AT(e, apart)                                                                                    \
    {                                                                                                        \
        long j = e + lane;                                                                                   \
        idx i = (idx)(from + j);                                                                             \
        STEP(a0, saw_nan, AT(base, j), i)                                                                    \
        STEP(SECOND_ACC, saw_nan, AT(base, j + (apart)), i + (idx)(apart))                                   \
        STEP(THIRD_ACC, saw_nan, AT(base, j + 2 * (apart)), i + 2 * (idx)(apart))                            \
        STEP(FOURTH_ACC, saw_nan, AT(base, j + 3 * (apart)), i + 3 * (idx)(apart))                           \
    }
/* FOUR_AT for every e up to `end`, one block of steps after the other. */
#define FOUR_STEPS(end, next, apart)                                                                         \
    while (e < (end)) {                                                                                      \
        const long stop = min((long)(end), e + BLOCK * (next));                                              \
        for (; e < stop; e += next) FOUR_AT(e, apart)                                                        \
        if (e < (end)) {                                                                                     \
            take_block(&total, ++blocks, ALL_ACC);                                                           \
            a0 = a1 = a2 = a3 = reduce_identity();                                                           \
        }                                                                                                    \
    }
#define BEGIN_LEVELS                                                                                         \
    levels total = no_levels();                                                                              \
    acc a0 = reduce_identity(), a1 = a0, a2 = a0, a3 = a0;                                                   \
    uint blocks = 0;                                                                                         \
    bool saw_nan = false;
#define END_LEVELS                                                                                           \
    acc all = ALL_ACC;                                                                                       \
    if (blocks > 0) all = reduce_combine(all_levels(total), all);

#ifdef BUILD_reduce_rows
/* elements; streams that are near get into each other's way */
#define STREAMED (262144 / sizeof(STORED(IN)))
WORKER_ATTRIBUTES __kernel void reduce_rows(reduce_params p) {
    uint lane = LANE;
    ulong first = WORKER * (ulong)p.batch, end = min(first + (ulong)p.batch, (ulong)p.tasks);
    long run_stride = p.stride;
    for (ulong task = first; task < end; task++) {
        ulong o = task, chunk = 0;
        if (p.chunks > 1) {
            o = task / (ulong)p.chunks;
            chunk = task - o * (ulong)p.chunks;
        }
        ulong from = chunk * (ulong)p.chunk, to = min(from + (ulong)p.chunk, (ulong)p.total);
        xpu_addr row = p.in + KEPT_OFFSET(o);
        const real parameter = step_parameter(&p, o);
        BEGIN_LEVELS
        while (from < to) {
            NEXT_RUN(run, k, n)
            xpu_addr base = row + k * (ulong)run_stride + OUTER_OFFSET(run);
            long e = 0;
#ifdef XPU_IS_CPU /* four streams: the CPU prefetches each of them */
            if (n >= STREAMED) {
                long quarter = (long)n / (4 * LANES) * LANES;
                FOUR_STEPS(quarter, LANES, quarter)
                e = 4 * quarter;
            }
#endif
            FOUR_STEPS((long)n - (4 * LANES - 1), 4 * LANES, LANES)
            for (; e < (long)n; e += LANES) {
                long j = e + lane;
                if (j < (long)n) STEP(a0, saw_nan, AT(base, j), (idx)(from + j))
            }
            from += n;
        }
        END_LEVELS
        acc a = across_lanes(TOTAL(all, saw_nan));
        if (lane == 0) {
            if (p.chunks > 1)
                XPU_PTR(acc, p.partial)[task] = a;
            else
                write_outputs(&p, o, a);
        }
    }
}
#endif

#ifdef BUILD_reduce_short_rows
/* Rows so short that the reduction across lanes would take longer than the row: 16 rows at a time, `batch`
 * times, at least 16 rows in all. One contiguous reduced dimension, no chunks. Rows are read one after the
 * other: sequential access is fastest.
 *
 * Of 16 vectors, one a row, lane l is to get row l's total. Each step halves the vectors: a lane keeps half
 * of them and hands the other half to the lane that keeps that. All steps together combine 15 vectors, where
 * `across_lanes` would take 64. (Written out: the compiler unrolls loops over private arrays too late.) */
static inline acc lane_total(const reduce_params *p, ulong o, long n, uint lane) {
    const xpu_addr row = p->in + offset_of(o, p->size, p->in_stride, 0, KEPT);
    const real parameter = step_parameter(p, o);
    const long run_stride = 0, from = 0;
    const xpu_addr base = row;
    BEGIN_LEVELS
    long e = 0;
#ifdef LENGTH /* one block holds it: with levels that stay empty Intel's CPU compiler crashes */
    for (; e + 4 * LANES <= n; e += 4 * LANES) FOUR_AT(e, LANES)
#else
    FOUR_STEPS(n - (4 * LANES - 1), 4 * LANES, LANES)
#endif
    for (; e + LANES <= n; e += LANES) STEP(a0, saw_nan, AT(row, e + lane), 0)
    if (e + lane < n) STEP(a0, saw_nan, AT(row, e + lane), 0)
    END_LEVELS
    return TOTAL(all, saw_nan);
}

#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define LANE_TOTAL(r) lane_total(&p, block + r, n, lane)
#ifdef XPU_BUILT_FOR_CPU /* a loop instead of 16 copies: as fast, and built in a third of the time */
#define SCRATCH __local acc rows[LANES][LANES];
#define EACH_TOTAL                                                                                           \
    for (uint r = 0; r < LANES; r++) rows[r][lane] = LANE_TOTAL(r);
#define ROW(r) acc a##r = rows[r][lane];
#else
#define SCRATCH
#define EACH_TOTAL
#define ROW(r) acc a##r = LANE_TOTAL(r);
#endif
#define HALVE(r, s, mask)                                                                                    \
    {                                                                                                        \
        acc keep = lane & mask ? a##s : a##r, give = lane & mask ? a##r : a##s;                              \
        a##r = reduce_combine(keep, shuffled(give, mask));                                                   \
    }

WORKER_ATTRIBUTES __kernel void reduce_short_rows(reduce_params p) {
    SCRATCH
    uint lane = LANE;
    ulong first = WORKER * (ulong)p.batch * LANES,
          end = min(first + (ulong)p.batch * LANES, (ulong)p.outputs);
#ifdef LENGTH
    const long n = LENGTH;
#else
    long n = p.total;
#endif
    for (; first < end; first += LANES) {
        /* The last block overlaps the one before it, but writes only its own outputs: combined in another
         * order, the others may differ by a rounding. */
        ulong block = min(first, (ulong)p.outputs - LANES);
        EACH_TOTAL
        EACH_ROW(ROW)
        // clang-format off
        HALVE(0, 8, 8) HALVE(1, 9, 8) HALVE(2, 10, 8) HALVE(3, 11, 8)
        HALVE(4, 12, 8) HALVE(5, 13, 8) HALVE(6, 14, 8) HALVE(7, 15, 8)
        HALVE(0, 4, 4) HALVE(1, 5, 4) HALVE(2, 6, 4) HALVE(3, 7, 4)
        HALVE(0, 2, 2) HALVE(1, 3, 2)
        HALVE(0, 1, 1)
            // clang-format on
            if (block == first || block + lane >= first) write_outputs(&p, block + lane, a0);
    }
}
#endif

#ifdef BUILD_reduce_partials
/* Second stage: combines the partial accumulators of each output. */
WORKER_ATTRIBUTES __kernel void reduce_partials(reduce_params p) {
    uint lane = LANE;
    ulong o = WORKER;
    if (o >= (ulong)p.outputs) return;
    __global const acc *partial = XPU_CPTR(acc, p.partial) + o * (ulong)p.chunks;
    levels total = no_levels(); /* a GPU may have a hundred partial sums a lane */
    uint blocks = 0;
    for (long c = 0; c < p.chunks; c += LANES)
        if (c + lane < p.chunks) take_block(&total, ++blocks, partial[c + lane]);
    acc a = across_lanes(all_levels(total));
    if (lane == 0) write_outputs(&p, o, a);
}
#endif
