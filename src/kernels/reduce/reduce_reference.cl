/* Portable reductions. reduce.h defines tasks, reduce_acc.h the options; LOCAL is the work-group size.
 *   reduce_rows       `width` consecutive work-items (a power of two) share a task: for contiguous inner
 *                     dimensions, or few outputs
 *   reduce_partials   the same over partial accumulators, one work-group per output
 *   reduce_columns    a work-item has COLUMNS outputs, LOCAL apart: for outputs whose inputs are contiguous
 *                     (dimension 0 of the kept ones)
 *   reduce_single     a work-item has one output, for any layout
 * The last two are also used on devices with subgroups. */
#include "reduce/reduce_acc.h"

#ifdef COLUMNS
static inline void finish_column(const reduce_params *p, ulong o, ulong chunk, acc a) {
    if (p->chunks > 1)
        XPU_PTR(acc, p->partial)[o * (ulong)p->chunks + chunk] = a;
    else
        write_outputs(p, o, a);
}

/* Column c of the work-item is `column + c * LOCAL`; the first `mine` columns exist. */
#define COLUMN_LOOP(exists)                                                                                  \
    for (uint blocks = 1; from < to; blocks++) {                                                             \
        NEXT_RUN(run, k, n)                                                                                  \
        if (n > BLOCK) n = BLOCK;                                                                            \
        xpu_addr base = top + k * (ulong)p.stride + OUTER_OFFSET(run);                                       \
        for (ulong r = 0; r < n; r++) {                                                                      \
            __global const STORED(IN) *line = XPU_CPTR(STORED(IN), base);                                    \
            _Pragma("unroll") for (int c = 0; c < COLUMNS; c++) if (exists) a[c] =                           \
                reduce_step(a[c], LOAD(IN, line, column + c * LOCAL), (idx)(from + r), parameter[c]);        \
            base += p.stride;                                                                                \
        }                                                                                                    \
        from += n;                                                                                           \
        if (from < to || blocks > 1) _Pragma("unroll") for (int c = 0; c < COLUMNS; c++) {                   \
                take_block(&total[c], blocks, a[c]);                                                         \
                a[c] = reduce_identity();                                                                    \
            }                                                                                                \
        several = blocks > 1;                                                                                \
    }

__attribute__((reqd_work_group_size(LOCAL, 1, 1))) __kernel void reduce_columns(reduce_params p) {
    ulong size = (ulong)p.size[0], blocks = (size + LOCAL * COLUMNS - 1) / (LOCAL * COLUMNS);
    ulong group = XPU_GROUP(0), above = group / blocks, chunk = 0;
    ulong left = (group - above * blocks) * (LOCAL * COLUMNS), column = left + get_local_id(0);
    if (p.chunks > 1) {
        ulong across = (ulong)p.outputs / size;
        chunk = above / across;
        above -= chunk * across;
    }
    ulong from = chunk * (ulong)p.chunk, to = min(from + (ulong)p.chunk, (ulong)p.total);
    xpu_addr top = p.in + offset_of(above, p.size, p.in_stride, 1, KEPT);
    levels total[COLUMNS];
    acc a[COLUMNS];
    bool several = false;
    real parameter[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        total[c] = no_levels();
        a[c] = reduce_identity();
        parameter[c] = step_parameter(&p, above * size + min(column + c * LOCAL, size - 1));
    }
    if (left + LOCAL * COLUMNS <= size) { /* the same for the whole group */
        COLUMN_LOOP(1)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            finish_column(&p, above * size + column + c * LOCAL, chunk,
                          several ? all_levels(total[c]) : a[c]);
    } else {
        COLUMN_LOOP(column + c * LOCAL < size)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            if (column + c * LOCAL < size)
                finish_column(&p, above * size + column + c * LOCAL, chunk,
                              several ? all_levels(total[c]) : a[c]);
    }
}

#elif defined(POINTS)

__kernel void reduce_single(reduce_params p) {
    ulong o = XPU_GROUP(0) * LOCAL + get_local_id(0);
    if (o >= (ulong)p.outputs) return;
    const real parameter = step_parameter(&p, o);
    xpu_addr top = p.in + KEPT_OFFSET(o);
    ulong from = 0, to = (ulong)p.total;
    levels total = no_levels();
    for (uint blocks = 1; from < to; blocks++) {
        NEXT_RUN(run, k, n)
        if (n > BLOCK) n = BLOCK;
        xpu_addr base = top + k * (ulong)p.stride + OUTER_OFFSET(run);
        acc a = reduce_identity();
        for (ulong r = 0; r < n; r++, base += p.stride)
            a = reduce_step(a, LOAD(IN, XPU_CPTR(STORED(IN), base), 0), (idx)(from + r), parameter);
        take_block(&total, blocks, a);
        from += n;
    }
    write_outputs(&p, o, all_levels(total));
}

#else

/* Combines the accumulators of each `width` consecutive work-items; the first one gets the result. Called by
 * all work-items of the group. */
#ifdef XPU_WARP
static inline acc exchange(acc a, uint mask) {
    union {
        acc value;
        uint word[(sizeof(acc) + 3) / 4];
    } u;
    u.value = a;
#pragma unroll
    for (uint w = 0; w < (sizeof(acc) + 3) / 4; w++) u.word[w] = xpu_warp_xor(u.word[w], mask);
    return u.value;
}

static inline acc across(__local acc *shared, acc a, int width) {
    const int item = get_local_id(0), warps = width / XPU_WARP;
#pragma unroll
    for (int mask = XPU_WARP / 2; mask > 0; mask /= 2) {
        acc other = exchange(a, mask);
        if (mask < width) a = reduce_combine(a, other);
    }
    if (warps > 1) {
        if ((item & (XPU_WARP - 1)) == 0) shared[item / XPU_WARP] = a;
        barrier(CLK_LOCAL_MEM_FENCE);
        if ((item & (width - 1)) == 0)
            for (int w = 1; w < warps; w++) a = reduce_combine(a, shared[item / XPU_WARP + w]);
    }
    return a;
}
#else
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
#endif

#define BEGIN_BLOCK                                                                                          \
    {                                                                                                        \
        acc a0 = reduce_identity(), a1 = a0, a2 = a0, a3 = a0;
#define END_BLOCK                                                                                            \
    take_block(&total, ++blocks, reduce_combine(reduce_combine(a0, a1), reduce_combine(a2, a3)));            \
    }

#ifdef VECTOR_SIZE
/* vectors per block: each accumulator gets a quarter of the elements */
#define STEPS_OF_PACKS (BLOCK * 4 / VECTOR_SIZE < 2 ? 2 : BLOCK * 4 / VECTOR_SIZE)
/* VECTOR_SIZE neighboring elements, read at once. */
typedef union {
    VECTOR_BITS bits;
    RAW(IN) element[VECTOR_SIZE];
} pack;
#define STEP_VECTOR_SIZE(p, j)                                                                               \
    {                                                                                                        \
        const idx first_ = (idx)(from + (j) * VECTOR_SIZE);                                                  \
        _Pragma("unroll") for (int k = 0; k < VECTOR_SIZE; k += 4) {                                         \
            a0 = reduce_step(a0, WIDEN(IN, p.element[k]), first_ + k, parameter);                            \
            if (k + 1 < VECTOR_SIZE)                                                                         \
                a1 =                                                                                         \
                    reduce_step(a1, WIDEN(IN, p.element[(k + 1) % VECTOR_SIZE]), first_ + k + 1, parameter); \
            if (k + 2 < VECTOR_SIZE)                                                                         \
                a2 =                                                                                         \
                    reduce_step(a2, WIDEN(IN, p.element[(k + 2) % VECTOR_SIZE]), first_ + k + 2, parameter); \
            if (k + 3 < VECTOR_SIZE)                                                                         \
                a3 =                                                                                         \
                    reduce_step(a3, WIDEN(IN, p.element[(k + 3) % VECTOR_SIZE]), first_ + k + 3, parameter); \
        }                                                                                                    \
    }
#endif

__attribute__((reqd_work_group_size(LOCAL, 1, 1))) __kernel void reduce_rows(reduce_params p) {
    __local acc shared[LOCAL];
    int width = p.width, lane = get_local_id(0) & (width - 1);
    ulong task = XPU_GROUP(0) * (ulong)(LOCAL / width) + get_local_id(0) / width;
    long run_stride = p.stride;
    ulong o = task, chunk = 0;
    if (p.chunks > 1) {
        o = task / (ulong)p.chunks;
        chunk = task - o * (ulong)p.chunks;
    }
    levels total = no_levels();
    if (task < (ulong)p.tasks) {
        const real parameter = step_parameter(&p, o);
        uint blocks = 0;
        ulong from = chunk * (ulong)p.chunk, to = min(from + (ulong)p.chunk, (ulong)p.total);
        xpu_addr row = p.in + KEPT_OFFSET(o);
        while (from < to) {
            NEXT_RUN(run, k, n)
            xpu_addr base = row + k * (ulong)run_stride + OUTER_OFFSET(run);
            long j = lane;
#ifdef VECTOR_SIZE
            __global const VECTOR_BITS *packs = XPU_CPTR(VECTOR_BITS, base);
            const long whole = (long)n / VECTOR_SIZE;
            while (j + width < whole) {
                const long stop = min(whole - width, j + STEPS_OF_PACKS * width);
                BEGIN_BLOCK
                for (; j < stop; j += 2 * width) {
                    pack first, second;
                    first.bits = packs[j];
                    second.bits = packs[j + width];
                    STEP_VECTOR_SIZE(first, j)
                    STEP_VECTOR_SIZE(second, j + width)
                }
                END_BLOCK
            }
            if (j < whole) {
                pack first;
                first.bits = packs[j];
                BEGIN_BLOCK
                STEP_VECTOR_SIZE(first, j)
                END_BLOCK
            }
            j = whole * VECTOR_SIZE + lane;
#endif
            while (j + 3 * width < (long)n) {
                const long stop = min((long)n - 3 * width, j + BLOCK * 4 * width);
                BEGIN_BLOCK
                for (; j < stop; j += 4 * width) {
                    idx i = (idx)(from + j);
                    a0 = reduce_step(a0, AT(base, j), i, parameter);
                    a1 = reduce_step(a1, AT(base, j + width), i + width, parameter);
                    a2 = reduce_step(a2, AT(base, j + 2 * width), i + 2 * width, parameter);
                    a3 = reduce_step(a3, AT(base, j + 3 * width), i + 3 * width, parameter);
                }
                END_BLOCK
            }
            if (j < (long)n) {
                BEGIN_BLOCK
                for (; j < (long)n; j += width) a0 = reduce_step(a0, AT(base, j), (idx)(from + j), parameter);
                END_BLOCK
            }
            from += n;
        }
    }
    acc a = across(shared, all_levels(total), width);
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
