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

#ifdef KIND_one
/* Of LANES vectors, one a row, lane l gets row l's total. Each step halves the vectors: a lane keeps half of
 * them and hands the other half to the lane that keeps that, all steps together cost as much as one
 * vector more a row, where `across_lanes` costs log2(LANES). */
static inline acc transposed_total(acc *a) {
    uint lane = LANE;
#pragma unroll
    for (uint mask = LANES / 2; mask > 0; mask /= 2) {
        bool upper = (lane & mask) != 0;
#pragma unroll
        for (uint r = 0; r < mask; r++) {
            acc keep = upper ? a[r + mask] : a[r], give = upper ? a[r] : a[r + mask];
            a[r] = reduce_combine(keep, shuffled(give, mask));
        }
    }
    return a[0];
}

/* Rows so short that adding up the lanes would take longer than the row: LANES rows at a time, `batch`
 * times. One dimension reduced, without gaps; no chunks. */
WORKER_ATTRIBUTES __kernel void reduce_short_rows(reduce_params p) {
    real parameter = REAL_OF_BITS(p.parameter);
    uint lane = LANE;
    ulong first = WORKER * (ulong)p.batch * LANES, end = min(first + (ulong)p.batch * LANES, (ulong)p.outputs);
    long n = p.total;
    for (; first < end; first += LANES) {
        acc a[LANES];
        xpu_addr row[LANES];
#pragma unroll
        for (uint r = 0; r < LANES; r++) {
            a[r] = reduce_identity();
            row[r] = p.in + KEPT_OFFSET(min(first + r, (ulong)p.outputs - 1));
        }
        long e = 0, run_stride = 0;
        for (; e + LANES <= n; e += LANES) {
#pragma unroll
            for (uint r = 0; r < LANES; r++) a[r] = reduce_step(a[r], AT(row[r], e + lane), 0, parameter);
        }
        if (e + lane < n) {
#pragma unroll
            for (uint r = 0; r < LANES; r++) a[r] = reduce_step(a[r], AT(row[r], e + lane), 0, parameter);
        }
        acc total = transposed_total(a);
        if (first + lane < (ulong)p.outputs) write_outputs(&p, first + lane, total);
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
