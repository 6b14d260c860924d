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
#ifndef TEAMS
#define TEAMS 1
#endif
#define LANE get_local_id(0)
#define TEAM_INDEX (XPU_GROUP(0) * TEAMS + get_local_id(1))

#ifdef TEAM_SUBGROUP
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#define TEAM_KERNEL                                                                                          \
    __attribute__((intel_reqd_sub_group_size(LANES)))                                                        \
    __attribute__((reqd_work_group_size(LANES, TEAMS, 1))) __kernel
#define TEAM_SCRATCH
#define TEAM_SUM(v) sub_group_reduce_add(v)
#define TEAM_MAX(v) sub_group_reduce_max(v)
#else
#define TEAM_KERNEL __attribute__((reqd_work_group_size(LANES, TEAMS, 1))) __kernel
#if defined XPU_WARP && LANES >= 32
#define TEAM_WARPS (LANES / XPU_WARP)
#define TEAM_SCRATCH __local ACC team_scratch[2 * TEAM_WARPS];
#else
#define TEAM_SCRATCH __local ACC team_scratch[LANES];
#endif
#define TEAM_SUM(v) team_sum(v, team_scratch)
#define TEAM_MAX(v) team_max(v, team_scratch)

#ifdef TEAM_WARPS
static inline ACC team_exchange(ACC v, uint mask) {
    union {
        ACC value;
        uint word[sizeof(ACC) / 4];
    } u;
    u.value = v;
    _Pragma("unroll") for (uint w = 0; w < sizeof(ACC) / 4; w++) u.word[w] = xpu_warp_xor(u.word[w], mask);
    return u.value;
}
#define TEAM_BUTTERFLY(v, width, combine)                                                                    \
    _Pragma("unroll") for (uint mask = (width) / 2; mask > 0; mask /= 2) v =                                 \
        combine(v, team_exchange(v, mask));
#define TEAM_TREE(name, combine)                                                                             \
    static inline ACC name(ACC v, __local ACC *scratch) {                                                    \
        TEAM_BUTTERFLY(v, XPU_WARP, combine)                                                                 \
        if (TEAM_WARPS > 1) {                                                                                \
            if ((LANE & (XPU_WARP - 1)) == 0) scratch[LANE / XPU_WARP] = v;                                  \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
            v = scratch[LANE & (TEAM_WARPS - 1)];                                                            \
            TEAM_BUTTERFLY(v, TEAM_WARPS, combine)                                                           \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
        }                                                                                                    \
        return v;                                                                                            \
    }
#else
#define TEAM_TREE(name, combine)                                                                             \
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
#define TEAM_ADD(a, b) ((a) + (b))
TEAM_TREE(team_sum, TEAM_ADD)
TEAM_TREE(team_max, fmax)
#endif

/* Two sums at once, which saves barriers. */
#if defined TEAM_WARPS && TEAM_WARPS > 1
#define TEAM_SUM_BOTH(a, b)                                                                                  \
    TEAM_BUTTERFLY(a, XPU_WARP, TEAM_ADD)                                                                    \
    TEAM_BUTTERFLY(b, XPU_WARP, TEAM_ADD)                                                                    \
    if ((LANE & (XPU_WARP - 1)) == 0) {                                                                      \
        team_scratch[LANE / XPU_WARP] = a;                                                                   \
        team_scratch[TEAM_WARPS + LANE / XPU_WARP] = b;                                                      \
    }                                                                                                        \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                            \
    a = team_scratch[LANE & (TEAM_WARPS - 1)];                                                               \
    b = team_scratch[TEAM_WARPS + (LANE & (TEAM_WARPS - 1))];                                                \
    TEAM_BUTTERFLY(a, TEAM_WARPS, TEAM_ADD)                                                                  \
    TEAM_BUTTERFLY(b, TEAM_WARPS, TEAM_ADD)                                                                  \
    barrier(CLK_LOCAL_MEM_FENCE);
#else
#define TEAM_SUM_BOTH(a, b)                                                                                  \
    a = TEAM_SUM(a);                                                                                         \
    b = TEAM_SUM(b);
#endif

/* The length of rows: the constant LENGTH if the kernel is specialized. */
#ifdef LENGTH
#define ROW_LENGTH LENGTH
#else
#define ROW_LENGTH p.length
#endif

/* BODY for each i in 0 … n - 1, strided over the lanes. The main loop has a uniform bound, so it needs no
 * masks. */
#define TEAM_EACH(i, n, BODY)                                                                                \
    {                                                                                                        \
        size_t team_base_ = 0;                                                                               \
        for (; team_base_ + LANES <= (n); team_base_ += LANES) {                                             \
            const size_t i = team_base_ + LANE;                                                              \
            BODY                                                                                             \
        }                                                                                                    \
        if (team_base_ + LANE < (n)) {                                                                       \
            const size_t i = team_base_ + LANE;                                                              \
            BODY                                                                                             \
        }                                                                                                    \
    }
/* The same for sums: DO(i, k) adds element i to accumulator k of four, ACCUMULATOR(v, k); four accumulators
 * break the dependency between additions where lanes are few. DECLARE_ACCUMULATORS declares them; FOLD, a
 * FLUSH_ACCUMULATORS of each, adds them to the total after each segment, so that rounding errors don't grow
 * with the row; ACCUMULATORS_TOTAL is the sum of a lane. */
#define TEAM_FOUR(v) ACC v##_four[4] = {0, 0, 0, 0}, v##_parts = 0;
#define TEAM_OF(v, k) v##_four[k]
#define TEAM_FOUR_SUM(v) ((TEAM_OF(v, 0) + TEAM_OF(v, 1)) + (TEAM_OF(v, 2) + TEAM_OF(v, 3)))
#define TEAM_FOLD(v)                                                                                         \
    v##_parts += TEAM_FOUR_SUM(v);                                                                           \
    TEAM_OF(v, 0) = TEAM_OF(v, 1) = TEAM_OF(v, 2) = TEAM_OF(v, 3) = 0;
#define TEAM_TOTAL(v) (v##_parts + TEAM_FOUR_SUM(v))
#ifdef TEAM_SUBGROUP
#define TEAM_FOURS(n, DO)                                                                                    \
    for (; team_base_ + 4 * LANES <= (n); team_base_ += 4 * LANES) {                                         \
        const size_t team_at_ = team_base_ + LANE;                                                           \
        DO(team_at_, 0) DO(team_at_ + LANES, 1) DO(team_at_ + 2 * LANES, 2) DO(team_at_ + 3 * LANES, 3)      \
    }
#else
#define TEAM_FOURS(n, DO)
#endif
#define TEAM_PART ((size_t)(2048 * LANES))
#define TEAM_ADD_UP(n, DO, FOLD)                                                                             \
    for (size_t team_first_ = 0; team_first_ < (n); team_first_ += TEAM_PART) {                              \
        const size_t team_end_ = min((size_t)(n), team_first_ + TEAM_PART);                                  \
        size_t team_base_ = team_first_;                                                                     \
        TEAM_FOURS(team_end_, DO)                                                                            \
        for (; team_base_ + LANES <= team_end_; team_base_ += LANES) { DO(team_base_ + LANE, 0) }            \
        if (team_base_ + LANE < team_end_) { DO(team_base_ + LANE, 0) }                                      \
        if (team_end_ - team_first_ >= TEAM_PART / 8) { FOLD }                                               \
    }
/* The same for a row in registers: at most REGISTERS elements per lane, counted by r. If VECTOR_SIZE > 1, a
 * lane has vectors of contiguous elements, n is a multiple of VECTOR_SIZE, and rows are aligned to vectors.
 */
#ifndef PACK
#define PACK 1
#endif
#define TEAM_HELD(i, r, n, BODY)                                                                             \
    _Pragma("unroll") for (size_t r = 0; r < REGISTERS; r++) {                                               \
        const size_t i = (r / PACK * LANES + LANE) * PACK + r % PACK;                                        \
        if ((r / PACK + 1) * LANES * PACK <= (n)) { /* for all lanes: no mask */                             \
            BODY                                                                                             \
        } else if (i < (n)) {                                                                                \
            BODY                                                                                             \
        }                                                                                                    \
    }
/* DO(i, k) for each of them, as in ROW_GROUP_ACCUMULATE. */
#define TEAM_HELD_ADD_UP(n, DO) TEAM_HELD(i_, r_, n, DO(i_, r_ % 4))
/* Vector loads held[r] = x[i] and stores y[i] = held[r]; t is the dtype, `bits` a type of a vector's size. */
#if PACK > 1
#define TEAM_PACKS(i, c, n, BODY)                                                                            \
    _Pragma("unroll") for (size_t c = 0; c < REGISTERS; c += PACK) {                                         \
        const size_t i = c * LANES + LANE * PACK;                                                            \
        if (i < (n)) { BODY }                                                                                \
    }
#define TEAM_PACK_OF(t, bits)                                                                                \
    union {                                                                                                  \
        bits whole;                                                                                          \
        RAW(t) element[PACK];                                                                                \
    } pack_;
#define TEAM_LOAD(t, bits, held, x, n)                                                                       \
    TEAM_PACKS(i_, c_, n, TEAM_PACK_OF(t, bits) pack_.whole = *(__global const bits *)((x) + i_);            \
               _Pragma("unroll") for (size_t k = 0; k < PACK; k++) held[c_ + k] =                            \
                   WIDEN(t, pack_.element[k]);)
#define TEAM_STORE(t, bits, y, held, n)                                                                      \
    TEAM_PACKS(i_, c_, n,                                                                                    \
               TEAM_PACK_OF(t, bits) _Pragma("unroll") for (size_t k = 0; k < PACK; k++) pack_.element[k] =  \
                   NARROW(t, held[c_ + k]);                                                                  \
               *(__global bits *)((y) + i_) = pack_.whole;)
#else
#define TEAM_LOAD(t, bits, held, x, n) TEAM_HELD(i_, r_, n, held[r_] = LOAD(t, x, i_);)
#define TEAM_STORE(t, bits, y, held, n) TEAM_HELD(i_, r_, n, STORE(t, y, i_, held[r_]);)
#endif
