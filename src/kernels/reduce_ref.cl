/* Reduction in portable OpenCL C. See reduce.h for the tasks and reduce_acc.h for the options; LOCAL is
 * the size of a work-group.
 *   reduce_rows     `width` neighbouring work-items (a power of two) share a task: for inner dimensions
 *                   that are contiguous, or for few outputs
 *   reduce_partials the same over partial accumulators, one group an output
 *   reduce_columns  one work-item has COLUMNS outputs, LOCAL apart: for outputs that are contiguous where
 *                   the reduced dimensions are not. It serves devices with subgroups too. */
#include "reduce_acc.h"

#ifdef COLUMNS
#define BLOCK 128 /* steps into one accumulator before it goes into the total: keeps fp32 sums exact */
/* Byte offset of each of the task's columns in the input; -1 past the end. */
__kernel void reduce_columns(reduce_params p) {
    real parameter = REAL_OF_BITS(p.parameter);
    ulong groups = ((ulong)p.outputs + LOCAL * COLUMNS - 1) / (LOCAL * COLUMNS);
    ulong group = XPU_GROUP(0), chunk = 0;
    if (p.chunks > 1) {
        chunk = group / groups;
        group -= chunk * groups;
    }
    ulong first = group * (LOCAL * COLUMNS) + get_local_id(0);
    ulong from = chunk * (ulong)p.chunk, to = min(from + (ulong)p.chunk, (ulong)p.total);
    acc total[COLUMNS];
    long column[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        ulong o = first + c * LOCAL;
        total[c] = reduce_identity();
        column[c] = offset_of(o < (ulong)p.outputs ? o : (ulong)p.outputs - 1, p.size, p.in_stride, p.kept);
    }
    while (from < to) {
        ulong run = 0, k = from, n = min(to - from, (ulong)BLOCK);
        if (p.outer > 0) {
            run = from / (ulong)p.length;
            k = from - run * (ulong)p.length;
            n = min(n, (ulong)p.length - k);
        }
        xpu_addr base = p.in + k * (ulong)p.stride +
                        offset_of(run, p.size + p.kept, p.in_stride + p.kept, p.outer);
        acc a[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) a[c] = reduce_identity();
        for (ulong r = 0; r < n; r++) {
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                a[c] = reduce_step(a[c], LOAD(IN, XPU_CPTR(STORED(IN), base + column[c]), 0), (idx)(from + r),
                                   parameter);
            base += p.stride;
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) total[c] = reduce_combine(total[c], a[c]);
        from += n;
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        ulong o = first + c * LOCAL;
        if (o < (ulong)p.outputs) {
            if (p.chunks > 1)
                XPU_PTR(acc, p.partial)[o * (ulong)p.chunks + chunk] = total[c];
            else
                write_outputs(&p, o, total[c]);
        }
    }
}

#else

/* Combines the accumulators of each `width` neighbours; the first of them gets the result. All the
 * group's work-items call it. */
static inline acc across(__local acc *shared, acc a, int width) {
    int item = get_local_id(0);
    shared[item] = a;
    for (int half_width = width / 2; half_width > 0; half_width /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if ((item & (width - 1)) < half_width) {
            a = reduce_combine(a, shared[item + half_width]);
            shared[item] = a;
        }
    }
    return a;
}

__attribute__((reqd_work_group_size(LOCAL, 1, 1))) __kernel void reduce_rows(reduce_params p) {
    __local acc shared[LOCAL];
    real parameter = REAL_OF_BITS(p.parameter);
    int width = p.width, lane = get_local_id(0) & (width - 1);
    ulong task = XPU_GROUP(0) * (ulong)(LOCAL / width) + get_local_id(0) / width;
    long run_stride = p.stride;
    ulong o = task, chunk = 0;
    if (p.chunks > 1) {
        o = task / (ulong)p.chunks;
        chunk = task - o * (ulong)p.chunks;
    }
    acc a0 = reduce_identity(), a1 = a0, a2 = a0, a3 = a0;
    if (task < (ulong)p.tasks) {
        ulong from = chunk * (ulong)p.chunk, to = min(from + (ulong)p.chunk, (ulong)p.total);
        xpu_addr row = p.in + offset_of(o, p.size, p.in_stride, p.kept);
        while (from < to) {
            ulong run = 0, k = from, n = to - from;
            if (p.outer > 0) {
                run = from / (ulong)p.length;
                k = from - run * (ulong)p.length;
                n = min(n, (ulong)p.length - k);
            }
            xpu_addr base = row + k * (ulong)run_stride +
                            offset_of(run, p.size + p.kept, p.in_stride + p.kept, p.outer);
            long j = lane;
            for (; j + 3 * width < (long)n; j += 4 * width) {
                idx i = (idx)(from + j);
                a0 = reduce_step(a0, AT(base, j), i, parameter);
                a1 = reduce_step(a1, AT(base, j + width), i + width, parameter);
                a2 = reduce_step(a2, AT(base, j + 2 * width), i + 2 * width, parameter);
                a3 = reduce_step(a3, AT(base, j + 3 * width), i + 3 * width, parameter);
            }
            for (; j < (long)n; j += width) a0 = reduce_step(a0, AT(base, j), (idx)(from + j), parameter);
            from += n;
        }
    }
    acc a = across(shared, reduce_combine(reduce_combine(a0, a1), reduce_combine(a2, a3)), width);
    if (lane == 0 && task < (ulong)p.tasks) {
        if (p.chunks > 1)
            XPU_PTR(acc, p.partial)[task] = a;
        else
            write_outputs(&p, o, a);
    }
}

__attribute__((reqd_work_group_size(LOCAL, 1, 1))) __kernel void reduce_partials(reduce_params p) {
    __local acc shared[LOCAL];
    ulong o = XPU_GROUP(0);
    __global const acc *partial = XPU_CPTR(acc, p.partial) + o * (ulong)p.chunks;
    acc a = reduce_identity();
    for (long c = get_local_id(0); c < p.chunks; c += LOCAL) a = reduce_combine(a, partial[c]);
    a = across(shared, a, LOCAL);
    if (get_local_id(0) == 0) write_outputs(&p, o, a);
}
#endif
