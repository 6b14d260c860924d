/* Multi-label margin loss: Σ over targets t and non-targets j of max(0, 1 - (x[t] - x[j])) / classes, and its
 * gradient.
 *
 * Options: T, dtype; those of row_group.h; BUILD_<kernel>. */
#include "margin.h"
#include "row_group.h"

/* A row: its scores, its targets, and a flag for each class that is a target. */
typedef struct row {
    __global const STORED(T) *scores;
    __global STORED(T) *is_target;
    __global const long *targets;
    long classes;
} row;

static inline row row_of(margin_params p, ulong number) {
    const ulong first = number * p.classes;
    return (row){XPU_CPTR(STORED(T), p.scores) + first, XPU_PTR(STORED(T), p.is_target) + first,
                 XPU_CPTR(long, p.targets) + first, p.classes};
}

#define EACH_TARGET(r, t) for (long n_ = 0, t; n_ < r.classes && (t = r.targets[n_]) >= 0; n_++)

/* The hinge term of target t and class c before max(0, ·). */
static inline ACC within(row r, long t, long c) {
    return 1 - (ACC)LOAD(T, r.scores, t) + (ACC)LOAD(T, r.scores, c);
}

#if defined BUILD_margin_targets || defined BUILD_margin_backward
/* One work-item per class; dimension 1 of the range counts rows. */
#define CLASS                                                                                                \
    const long c = get_global_id(0);                                                                         \
    const ulong number = XPU_GROUP(1);                                                                       \
    if (c >= p.classes) return;                                                                              \
    const row r = row_of(p, number);                                                                         \
    if (r.targets[c] < -1 || r.targets[c] >= r.classes) fault_report(p.watch, 0, r.targets[c], r.classes);
#endif

#ifdef BUILD_margin_targets
__kernel void margin_targets(margin_params p) {
    CLASS
    bool found = false;
    EACH_TARGET(r, t) found |= t == c;
    STORE(T, r.is_target, c, (ACC)found);
}
#endif

#ifdef BUILD_margin_loss
ROW_GROUP_KERNEL void margin_loss(margin_params p) {
    ROW_GROUP_SCRATCH
    const ulong number = ROW_GROUP_INDEX;
    if (number >= (ulong)p.rows) return;
    const row r = row_of(p, number);
    ACC sum = 0;
    for (long c = LANE; c < r.classes; c += LANES) {
        if (LOAD(T, r.is_target, c) != 0) continue;
        EACH_TARGET(r, t)
            if (t < r.classes) {
                const ACC z = within(r, t, c);
                if (z > 0) sum += z;
            }
    }
    sum = ROW_GROUP_SUM(sum);
    if (LANE == 0) XPU_PTR(ACC, p.losses)[number] = sum / r.classes;
}
#endif

#ifdef BUILD_margin_backward
__kernel void margin_backward(margin_params p) {
    CLASS
    long count = 0; /* pairs with a positive loss: as non-target minus as target */
    if (LOAD(T, r.is_target, c) != 0) {
        long times = 0;
        EACH_TARGET(r, t) times += t == c;
        for (long other = 0; other < r.classes; other++)
            count -= LOAD(T, r.is_target, other) == 0 && within(r, c, other) > 0;
        count *= times;
    } else {
        EACH_TARGET(r, t) count += t < r.classes && within(r, t, c) > 0;
    }
    const ACC grad = XPU_CPTR(ACC, p.losses)[number] / r.classes;
    STORE(T, XPU_PTR(STORED(T), p.grad_scores) + number * p.classes, c, count * grad);
}
#endif
