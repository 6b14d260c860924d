/* Reduction by subgroups: the lanes of one subgroup share a task and each keeps four accumulators. No
 * local memory, no barriers. See reduce.h for the tasks and reduce_acc.h for the options; LANES is the
 * subgroup's size. */
#include "reduce_acc.h"

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

#define WORKER_ATTRIBUTES                                                                          \
    __attribute__((intel_reqd_sub_group_size(LANES))) __attribute__((reqd_work_group_size(LOCAL, 1, 1)))
#define LANE ((uint)get_sub_group_local_id())
#if LOCAL == LANES /* the number of the subgroup counts as different from lane to lane: no vector loads */
#define WORKER XPU_GROUP(0)
#else
#define WORKER (XPU_GROUP(0) * (LOCAL / LANES) + get_sub_group_id())
#endif

WORKER_ATTRIBUTES __kernel void reduce_rows(reduce_params p) {
    real parameter = REAL_OF_BITS(p.parameter);
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
        acc a0 = reduce_identity(), a1 = a0, a2 = a0, a3 = a0;
        while (from < to) {
            NEXT_RUN(run, k, n)
            xpu_addr base = row + k * (ulong)run_stride + OUTER_OFFSET(run);
            long e = 0;
            for (; e + 4 * LANES <= (long)n; e += 4 * LANES) {
                long j = e + lane;
                idx i = (idx)(from + j);
                a0 = reduce_step(a0, AT(base, j), i, parameter);
                a1 = reduce_step(a1, AT(base, j + LANES), i + LANES, parameter);
                a2 = reduce_step(a2, AT(base, j + 2 * LANES), i + 2 * LANES, parameter);
                a3 = reduce_step(a3, AT(base, j + 3 * LANES), i + 3 * LANES, parameter);
            }
            for (; e < (long)n; e += LANES) {
                long j = e + lane;
                if (j < (long)n) a0 = reduce_step(a0, AT(base, j), (idx)(from + j), parameter);
            }
            from += n;
        }
        acc a = across_lanes(reduce_combine(reduce_combine(a0, a1), reduce_combine(a2, a3)));
        if (lane == 0) {
            if (p.chunks > 1)
                XPU_PTR(acc, p.partial)[task] = a;
            else
                write_outputs(&p, o, a);
        }
    }
}

#if defined(KIND_one) && LANES == 16
/* Rows so short that adding up the lanes would take longer than the row: 16 rows at a time, `batch` times,
 * at least 16 rows in all. One dimension reduced, without gaps; no chunks.
 *
 * Of 16 vectors, one a row, lane l is to get row l's total. Each step halves the vectors: a lane keeps half
 * of them and hands the other half to the lane that keeps that. All steps together combine 15 vectors, where
 * `across_lanes` would take 64. (Written out: the compiler unrolls loops over private arrays too late.) */
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define START(r)                                                                                   \
    acc a##r = reduce_identity();                                                                  \
    xpu_addr row##r = p.in + KEPT_OFFSET(block + r);
#define STEP(r) a##r = reduce_step(a##r, AT(row##r, e + lane), 0, parameter);
#define HALVE(r, s, mask)                                                                          \
    {                                                                                              \
        acc keep = lane & mask ? a##s : a##r, give = lane & mask ? a##r : a##s;                    \
        a##r = reduce_combine(keep, shuffled(give, mask));                                         \
    }

WORKER_ATTRIBUTES __kernel void reduce_short_rows(reduce_params p) {
    real parameter = REAL_OF_BITS(p.parameter);
    uint lane = LANE;
    ulong first = WORKER * (ulong)p.batch * LANES, end = min(first + (ulong)p.batch * LANES, (ulong)p.outputs);
    long n = p.total, run_stride = 0;
    for (; first < end; first += LANES) {
        ulong block = min(first, (ulong)p.outputs - LANES); /* the last block does some rows again */
        EACH_ROW(START)
        long e = 0;
        for (; e + LANES <= n; e += LANES) {
            EACH_ROW(STEP)
        }
        if (e < n) {
            if (e + lane < n) {
                EACH_ROW(STEP)
            }
        }
        HALVE(0, 8, 8) HALVE(1, 9, 8) HALVE(2, 10, 8) HALVE(3, 11, 8)
        HALVE(4, 12, 8) HALVE(5, 13, 8) HALVE(6, 14, 8) HALVE(7, 15, 8)
        HALVE(0, 4, 4) HALVE(1, 5, 4) HALVE(2, 6, 4) HALVE(3, 7, 4)
        HALVE(0, 2, 2) HALVE(1, 3, 2)
        HALVE(0, 1, 1)
        write_outputs(&p, block + lane, a0);
    }
}
#endif

/* The second stage: the partial accumulators of each output. */
WORKER_ATTRIBUTES __kernel void reduce_partials(reduce_params p) {
    uint lane = LANE;
    ulong o = WORKER;
    if (o >= (ulong)p.outputs) return;
    __global const acc *partial = XPU_CPTR(acc, p.partial) + o * (ulong)p.chunks;
    acc a = reduce_identity();
    for (long c = 0; c < p.chunks; c += LANES)
        if (c + lane < p.chunks) a = reduce_combine(a, partial[c + lane]);
    a = across_lanes(a);
    if (lane == 0) write_outputs(&p, o, a);
}
