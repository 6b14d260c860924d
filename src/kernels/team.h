/* A team: the work-items that share a row, a plane or a column block, and what they reduce together.
 *
 * Options: LANES, work-items in a team, a power of two; TEAM_SUBGROUP, a team is one subgroup and a
 * work-group holds TEAMS of them; without it a team is a whole work-group and reduces through local memory.
 * ACC is the type computed in. Every lane gets the result; every lane of the team must take part. */
#ifndef ACC
#define ACC float
#endif
#define LANE get_local_id(0)

#ifdef TEAM_SUBGROUP
#ifndef TEAMS
#define TEAMS 1
#endif
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#define TEAM_KERNEL                                                                                          \
    __attribute__((intel_reqd_sub_group_size(LANES)))                                                        \
    __attribute__((reqd_work_group_size(LANES, TEAMS, 1))) __kernel
#define TEAM_INDEX (XPU_GROUP(0) * TEAMS + get_local_id(1))
#define TEAM_SCRATCH
#define TEAM_SUM(v) sub_group_reduce_add(v)
#define TEAM_MAX(v) sub_group_reduce_max(v)
#else
#define TEAM_KERNEL __attribute__((reqd_work_group_size(LANES, 1, 1))) __kernel
#define TEAM_INDEX XPU_GROUP(0)
#define TEAM_SCRATCH __local ACC team_scratch[LANES];
#define TEAM_SUM(v) team_sum(v, team_scratch)
#define TEAM_MAX(v) team_max(v, team_scratch)

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
#define TEAM_ADD(a, b) ((a) + (b))
TEAM_TREE(team_sum, TEAM_ADD)
TEAM_TREE(team_max, fmax)
#endif

/* BODY for each i in 0 … n-1, lane by lane; the loop's bound is the same for all lanes. */
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
/* The same where the row is held in registers: at most REGISTERS elements a lane, r counts them. */
#define TEAM_HELD(i, r, n, BODY)                                                                             \
    _Pragma("unroll") for (size_t r = 0; r < REGISTERS; r++) {                                               \
        const size_t i = r * LANES + LANE;                                                                   \
        if ((r + 1) * LANES <= (n)) { /* for all lanes: no mask */                                           \
            BODY                                                                                             \
        } else if (i < (n)) {                                                                                \
            BODY                                                                                             \
        }                                                                                                    \
    }
