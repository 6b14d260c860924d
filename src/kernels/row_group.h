/* Row groups: the work-items that share a row, a plane or a column block, and their reductions.
 *
 * Options: LANES, work-items of a row group, a power of two; ROW_GROUP_IS_SUBGROUP, a row group is one
 * subgroup, otherwise it reduces through local memory, on NVIDIA GPUs by warps first; SUBGROUPS, row groups
 * per work-group, more than one only if each is one subgroup or warp; ACC, type computed in (default float).
 * Work-groups are (LANES, SUBGROUPS, 1). Reductions return the result in every lane; all lanes of the row
 * group must take part. */
#ifndef ACC
#define ACC float
#endif
#ifndef SUBGROUPS
#define SUBGROUPS 1
#endif
#define LANE get_local_id(0)
#define ROW_GROUP_INDEX (XPU_GROUP(0) * SUBGROUPS + get_local_id(1))

#ifdef ROW_GROUP_IS_SUBGROUP
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#define ROW_GROUP_KERNEL                                                                                     \
    __attribute__((intel_reqd_sub_group_size(LANES)))                                                        \
    __attribute__((reqd_work_group_size(LANES, SUBGROUPS, 1))) __kernel
#define ROW_GROUP_SCRATCH
#define ROW_GROUP_SUM(v) sub_group_reduce_add(v)
#define ROW_GROUP_MAX(v) sub_group_reduce_max(v)
#else
#define ROW_GROUP_KERNEL __attribute__((reqd_work_group_size(LANES, SUBGROUPS, 1))) __kernel
#if defined XPU_WARP && LANES >= 32
#define ROW_GROUP_WARPS (LANES / XPU_WARP)
#define ROW_GROUP_SCRATCH __local ACC row_group_scratch[2 * ROW_GROUP_WARPS];
#else
#define ROW_GROUP_SCRATCH __local ACC row_group_scratch[LANES];
#endif
#define ROW_GROUP_SUM(v) row_group_sum(v, row_group_scratch)
#define ROW_GROUP_MAX(v) row_group_max(v, row_group_scratch)

#ifdef ROW_GROUP_WARPS
static inline ACC warp_exchange(ACC v, uint mask) {
    union {
        ACC value;
        uint word[sizeof(ACC) / 4];
    } u;
    u.value = v;
    _Pragma("unroll") for (uint w = 0; w < sizeof(ACC) / 4; w++)
        u.word[w] = xpu_warp_xor(u.word[w], mask);
    return u.value;
}
#define WARP_BUTTERFLY(v, width, combine)                                                                    \
    _Pragma("unroll") for (uint mask = (width) / 2; mask > 0; mask /= 2) v =                                 \
        combine(v, warp_exchange(v, mask));
#define ROW_GROUP_REDUCTION(name, combine)                                                                   \
    static inline ACC name(ACC v, __local ACC *scratch) {                                                    \
        WARP_BUTTERFLY(v, XPU_WARP, combine)                                                                 \
        if (ROW_GROUP_WARPS > 1) {                                                                           \
            if ((LANE & (XPU_WARP - 1)) == 0) scratch[LANE / XPU_WARP] = v;                                  \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
            v = scratch[LANE & (ROW_GROUP_WARPS - 1)];                                                       \
            WARP_BUTTERFLY(v, ROW_GROUP_WARPS, combine)                                                      \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
        }                                                                                                    \
        return v;                                                                                            \
    }
#else
#define ROW_GROUP_REDUCTION(name, combine)                                                                   \
    static inline ACC name(ACC v, __local ACC *scratch) {                                                    \
        scratch[LANE] = v;                                                                                   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
        for (uint half_ = LANES / 2; half_ > 0; half_ /= 2) {                                                \
            if (LANE < half_) scratch[LANE] = combine(scratch[LANE], scratch[LANE + half_]);                 \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
        }                                                                                                    \
        ACC result = scratch[0];                                                                             \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
        return result;                                                                                       \
    }
#endif
#define REDUCE_ADD(a, b) ((a) + (b))
ROW_GROUP_REDUCTION(row_group_sum, REDUCE_ADD)
ROW_GROUP_REDUCTION(row_group_max, fmax)
#endif

/* Two sums at once, which saves barriers. */
#if defined ROW_GROUP_WARPS && ROW_GROUP_WARPS > 1
#define ROW_GROUP_SUM2(a, b)                                                                                 \
    WARP_BUTTERFLY(a, XPU_WARP, REDUCE_ADD)                                                                  \
    WARP_BUTTERFLY(b, XPU_WARP, REDUCE_ADD)                                                                  \
    if ((LANE & (XPU_WARP - 1)) == 0) {                                                                      \
        row_group_scratch[LANE / XPU_WARP] = a;                                                              \
        row_group_scratch[ROW_GROUP_WARPS + LANE / XPU_WARP] = b;                                            \
    }                                                                                                        \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                            \
    a = row_group_scratch[LANE & (ROW_GROUP_WARPS - 1)];                                                     \
    b = row_group_scratch[ROW_GROUP_WARPS + (LANE & (ROW_GROUP_WARPS - 1))];                                 \
    WARP_BUTTERFLY(a, ROW_GROUP_WARPS, REDUCE_ADD)                                                           \
    WARP_BUTTERFLY(b, ROW_GROUP_WARPS, REDUCE_ADD)                                                           \
    barrier(CLK_LOCAL_MEM_FENCE);
#else
#define ROW_GROUP_SUM2(a, b)                                                                                 \
    a = ROW_GROUP_SUM(a);                                                                                    \
    b = ROW_GROUP_SUM(b);
#endif

/* The length of rows: the constant LENGTH if the kernel is specialized. */
#ifdef LENGTH
#define ROW_LENGTH LENGTH
#else
#define ROW_LENGTH p.length
#endif

/* BODY for each i in 0 … n - 1, strided over the lanes. The main loop has a uniform bound, so it needs no
 * masks. */
#define ROW_GROUP_FOR_EACH(i, n, BODY)                                                                       \
    {                                                                                                        \
        size_t row_base_ = 0;                                                                                \
        for (; row_base_ + LANES <= (n); row_base_ += LANES) {                                               \
            const size_t i = row_base_ + LANE;                                                               \
            BODY                                                                                             \
        }                                                                                                    \
        if (row_base_ + LANE < (n)) {                                                                        \
            const size_t i = row_base_ + LANE;                                                               \
            BODY                                                                                             \
        }                                                                                                    \
    }
/* The same for sums: DO(i, k) adds element i to accumulator k of four, ACCUMULATOR(v, k); four accumulators
 * break the dependency between additions where lanes are few. DECLARE_ACCUMULATORS declares them; FOLD, a
 * FLUSH_ACCUMULATORS of each, adds them to the total after each segment, so that rounding errors don't grow
 * with the row; ACCUMULATORS_TOTAL is the sum of a lane. */
#define DECLARE_ACCUMULATORS(v) ACC v##_four[4] = {0, 0, 0, 0}, v##_parts = 0;
#define ACCUMULATOR(v, k) v##_four[k]
#define ACCUMULATORS_SUM(v)                                                                                  \
    ((ACCUMULATOR(v, 0) + ACCUMULATOR(v, 1)) + (ACCUMULATOR(v, 2) + ACCUMULATOR(v, 3)))
#define FLUSH_ACCUMULATORS(v)                                                                                \
    v##_parts += ACCUMULATORS_SUM(v);                                                                        \
    ACCUMULATOR(v, 0) = ACCUMULATOR(v, 1) = ACCUMULATOR(v, 2) = ACCUMULATOR(v, 3) = 0;
#define ACCUMULATORS_TOTAL(v) (v##_parts + ACCUMULATORS_SUM(v))
#ifdef ROW_GROUP_IS_SUBGROUP
#define ROW_GROUP_UNROLLED_BY_4(n, DO)                                                                       \
    for (; row_base_ + 4 * LANES <= (n); row_base_ += 4 * LANES) {                                           \
        const size_t row_at_ = row_base_ + LANE;                                                             \
        DO(row_at_, 0) DO(row_at_ + LANES, 1) DO(row_at_ + 2 * LANES, 2) DO(row_at_ + 3 * LANES, 3)          \
    }
#else
#define ROW_GROUP_UNROLLED_BY_4(n, DO)
#endif
#define ROW_GROUP_SEGMENT ((size_t)(2048 * LANES))
#define ROW_GROUP_ACCUMULATE(n, DO, FOLD)                                                                    \
    for (size_t row_first_ = 0; row_first_ < (n); row_first_ += ROW_GROUP_SEGMENT) {                         \
        const size_t row_end_ = min((size_t)(n), row_first_ + ROW_GROUP_SEGMENT);                            \
        size_t row_base_ = row_first_;                                                                       \
        ROW_GROUP_UNROLLED_BY_4(row_end_, DO)                                                                \
        for (; row_base_ + LANES <= row_end_; row_base_ += LANES) { DO(row_base_ + LANE, 0) }                \
        if (row_base_ + LANE < row_end_) { DO(row_base_ + LANE, 0) }                                         \
        if (row_end_ - row_first_ >= ROW_GROUP_SEGMENT / 8) { FOLD }                                         \
    }
/* The same for a row in registers: at most REGISTERS elements per lane, counted by r. If VECTOR_SIZE > 1, a
 * lane has vectors of contiguous elements, n is a multiple of VECTOR_SIZE, and rows are aligned to vectors.
 */
#ifndef VECTOR_SIZE
#define VECTOR_SIZE 1
#endif
#define ROW_GROUP_FOR_EACH_REGISTER(i, r, n, BODY)                                                           \
    _Pragma("unroll") for (size_t r = 0; r < REGISTERS; r++) {                                               \
        const size_t i = (r / VECTOR_SIZE * LANES + LANE) * VECTOR_SIZE + r % VECTOR_SIZE;                   \
        if ((r / VECTOR_SIZE + 1) * LANES * VECTOR_SIZE <= (n)) { /* for all lanes: no mask */               \
            BODY                                                                                             \
        } else if (i < (n)) {                                                                                \
            BODY                                                                                             \
        }                                                                                                    \
    }
/* DO(i, k) for each of them, as in ROW_GROUP_ACCUMULATE. */
#define ROW_GROUP_ACCUMULATE_REGISTERS(n, DO) ROW_GROUP_FOR_EACH_REGISTER(i_, r_, n, DO(i_, r_ % 4))
/* Vector loads held[r] = x[i] and stores y[i] = held[r]; t is the dtype, `bits` a type of a vector's size. */
#if VECTOR_SIZE > 1
#define ROW_GROUP_FOR_EACH_VECTOR(i, c, n, BODY)                                                             \
    _Pragma("unroll") for (size_t c = 0; c < REGISTERS; c += VECTOR_SIZE) {                                  \
        const size_t i = c * LANES + LANE * VECTOR_SIZE;                                                     \
        if (i < (n)) { BODY }                                                                                \
    }
#define ROW_GROUP_VECTOR(t, bits)                                                                            \
    union {                                                                                                  \
        bits whole;                                                                                          \
        RAW(t) element[VECTOR_SIZE];                                                                         \
    } pack_;
#define ROW_GROUP_LOAD(t, bits, held, x, n)                                                                  \
    ROW_GROUP_FOR_EACH_VECTOR(i_, c_, n,                                                                     \
                              ROW_GROUP_VECTOR(t, bits) pack_.whole = *(__global const bits *)((x) + i_);    \
                              _Pragma("unroll") for (size_t k = 0; k < VECTOR_SIZE; k++) held[c_ + k] =      \
                                  WIDEN(t, pack_.element[k]);)
#define ROW_GROUP_STORE(t, bits, y, held, n)                                                                 \
    ROW_GROUP_FOR_EACH_VECTOR(i_, c_, n,                                                                     \
                              ROW_GROUP_VECTOR(t, bits)                                                      \
                                  _Pragma("unroll") for (size_t k = 0; k < VECTOR_SIZE; k++)                 \
                                      pack_.element[k] = NARROW(t, held[c_ + k]);                            \
                              *(__global bits *)((y) + i_) = pack_.whole;)
#else
#define ROW_GROUP_LOAD(t, bits, held, x, n) ROW_GROUP_FOR_EACH_REGISTER(i_, r_, n, held[r_] = LOAD(t, x, i_);)
#define ROW_GROUP_STORE(t, bits, y, held, n)                                                                 \
    ROW_GROUP_FOR_EACH_REGISTER(i_, r_, n, STORE(t, y, i_, held[r_]);)
#endif
