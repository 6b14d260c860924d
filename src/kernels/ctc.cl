/* Connectionist temporal classification (Graves et al., 2006). The states of a sequence are its targets with
 * a blank before each and after the last: 0 … 2 * length. A path stays in a state, advances by one, or skips
 * the blank between two different targets.
 *
 * Options: T, fp32 or fp64 (also the type computed in); TARGET, dtype of the targets; those of row_group.h
 * with one row group per work-group; BUILD_<kernel>. */
#include "ctc.h"
#include "row_group.h"

typedef struct entry {
    size_t b;
    int steps, length; /* time steps; number of targets */
    __global const STORED(TARGET) *targets;
} entry;

static inline entry entry_of(const ctc_params *p, size_t b) {
    entry e;
    e.b = b;
    e.steps = XPU_CPTR(long, p->input_lengths)[b];
    e.length = XPU_CPTR(long, p->target_lengths)[b];
    e.targets = XPU_CPTR(STORED(TARGET), p->targets) + XPU_CPTR(long, p->target_starts)[b];
    return e;
}
static inline long label_of(const ctc_params *p, const entry *e, int state) {
    return state % 2 ? (long)LOAD(TARGET, e->targets, state / 2) : p->blank;
}
static inline ACC log_prob(const ctc_params *p, const entry *e, int t, long label) {
    if (label < 0 || label >= p->labels) return -INFINITY;
    return XPU_CPTR(ACC, p->log_probs)[((size_t)t * p->batch + e->b) * p->labels + label];
}
/* log(exp(a) + exp(b) + exp(c)) */
static inline ACC log_sum(ACC a, ACC b, ACC c) {
    const ACC most = fmax(fmax(a, b), c);
    if (most == -INFINITY) return a + b + c; /* NaN, which fmax leaves out, or all are -INFINITY */
    return log(exp(a - most) + exp(b - most) + exp(c - most)) + most;
}

/* Log probability of reaching `state`, without the current step's own factor: the sum over the predecessors
 * (the state itself, the neighboring state, and the previous target if it differs). way = 1: forward in time,
 * predecessors are lower states; way = -1: backward, predecessors are higher states. */
static inline ACC paths_to(const ctc_params *p, const entry *e, __global const ACC *paths, int state,
                           long label, int way) {
    const int states = 2 * e->length + 1, next = state - way, other = state - 2 * way;
    const bool skips = other >= 0 && other < states && label != p->blank && label != label_of(p, e, other);
    return log_sum(paths[state], next >= 0 && next < states ? paths[next] : (ACC)-INFINITY,
                   skips ? paths[other] : (ACC)-INFINITY);
}

#ifdef BUILD_ctc_alpha
/* Forward variables. One work-group per batch entry, one time step after the other. */
ROW_GROUP_KERNEL void ctc_alpha(ctc_params p) {
    const entry e = entry_of(&p, ROW_GROUP_INDEX);
    const int states = 2 * e.length + 1;
    __global ACC *alpha = XPU_PTR(ACC, p.alpha) + e.b * p.time * p.states;
    for (int t = 0; t < e.steps; t++) {
        __global ACC *now = alpha + (size_t)t * p.states;
        __global const ACC *before = now - p.states;
        for (int s = LANE; s < states; s += LANES) {
            const long label = label_of(&p, &e, s);
            ACC sum;
            if (t == 0) {
                sum = s < 2 ? (ACC)0 : (ACC)-INFINITY;
                if (label < 0 || label >= p.labels) fault_report(p.watch, 0, label, p.labels);
            } else {
                sum = paths_to(&p, &e, before, s, label, 1);
            }
            now[s] = sum + log_prob(&p, &e, t, label);
        }
        barrier(CLK_GLOBAL_MEM_FENCE);
    }
    if (LANE > 0) return;
    ACC log_likelihood = e.length == 0 ? (ACC)0 : (ACC)-INFINITY;
    if (e.steps > 0) {
        __global const ACC *last = alpha + (size_t)(e.steps - 1) * p.states;
        log_likelihood =
            log_sum(last[states - 1], e.length > 0 ? last[states - 2] : (ACC)-INFINITY, (ACC)-INFINITY);
    }
    XPU_PTR(ACC, p.loss)[e.b] = -log_likelihood;
}
#endif

#ifdef BUILD_ctc_beta
/* Backward variables, from the last step to the first. */
ROW_GROUP_KERNEL void ctc_beta(ctc_params p) {
    const entry e = entry_of(&p, ROW_GROUP_INDEX);
    const int states = 2 * e.length + 1;
    __global ACC *beta = XPU_PTR(ACC, p.beta) + e.b * p.time * p.states;
    for (int step = 0; step < e.steps; step++) {
        const int t = e.steps - 1 - step;
        __global ACC *now = beta + (size_t)t * p.states;
        __global const ACC *after = now + p.states;
        for (int s = LANE; s < states; s += LANES) {
            const long label = label_of(&p, &e, s);
            ACC sum;
            if (step == 0) {
                sum = s >= states - 2 ? (ACC)0 : (ACC)-INFINITY;
                if (label < 0 || label >= p.labels) fault_report(p.watch, 0, label, p.labels);
            } else {
                sum = paths_to(&p, &e, after, s, label, -1);
            }
            now[s] = sum + log_prob(&p, &e, t, label);
        }
        barrier(CLK_GLOBAL_MEM_FENCE);
    }
}
#endif

#ifdef BUILD_ctc_links
/* Chains the targets with equal labels: links[i] is the next target with the label of target i, or the
 * length. For targets that are not the first with their label, the complement of that is stored. */
__kernel void ctc_links(ctc_params p) {
    const entry e = entry_of(&p, XPU_GROUP(1));
    const int i = get_global_id(0);
    if (i >= e.length) return;
    const long label = LOAD(TARGET, e.targets, i);
    int first = 0, next = i + 1;
    while (LOAD(TARGET, e.targets, first) != label) first++;
    while (next < e.length && LOAD(TARGET, e.targets, next) != label) next++;
    XPU_PTR(int, p.links)[e.b * p.longest + i] = first == i ? next : ~next;
}
#endif

#ifdef BUILD_ctc_grad
/* Gradient of a label at a step: its probability minus the normalized probability exp(paths) of the paths
 * through it. */
static inline ACC grad_of(const ctc_params *p, ACC log_prob, ACC paths, ACC loss, ACC grad) {
    const ACC share = paths == -INFINITY && loss < INFINITY ? (ACC)0 : exp(paths + loss - log_prob);
    return (exp(log_prob) - share) * grad;
}

/* One work-group per time step of a batch entry. */
ROW_GROUP_KERNEL void ctc_grad(ctc_params p) {
    ROW_GROUP_SCRATCH
    const size_t b = ROW_GROUP_INDEX % p.batch, t = ROW_GROUP_INDEX / p.batch;
    const entry e = entry_of(&p, b);
    const ACC loss = XPU_CPTR(ACC, p.loss)[b], grad_loss = XPU_CPTR(ACC, p.grad_loss)[b];
    __global ACC *grad = XPU_PTR(ACC, p.grad) + (t * p.batch + b) * p.labels;
    const bool none = (long)t >= e.steps || (p.zero_infinity && loss == INFINITY);
    for (size_t c = LANE; c < (size_t)p.labels; c += LANES)
        grad[c] = none ? (ACC)0 : grad_of(&p, log_prob(&p, &e, t, c), -INFINITY, loss, grad_loss);
    if (none) return;
    barrier(CLK_GLOBAL_MEM_FENCE);

    const size_t row = (b * p.time + t) * p.states;
    __global const ACC *alpha = XPU_CPTR(ACC, p.alpha) + row, *beta = XPU_CPTR(ACC, p.beta) + row;
    __global const int *links = XPU_CPTR(int, p.links) + b * p.longest;
    for (int i = LANE; i < e.length; i += LANES) {
        const long label = LOAD(TARGET, e.targets, i);
        if (links[i] < 0 || label == p.blank || label < 0 || label >= p.labels) continue;
        ACC paths = -INFINITY;
        for (int k = i; k < e.length; k = links[k] < 0 ? ~links[k] : links[k])
            paths = log_sum(paths, alpha[2 * k + 1] + beta[2 * k + 1], -INFINITY);
        grad[label] = grad_of(&p, log_prob(&p, &e, t, label), paths, loss, grad_loss);
    }
    /* The blank is every second state. */
    ACC most = -INFINITY, sum = 0;
    const int states = 2 * e.length + 1;
    for (int s = LANE; s < states; s += LANES)
        if (label_of(&p, &e, s) == p.blank) most = fmax(most, alpha[s] + beta[s]);
    most = ROW_GROUP_MAX(most);
    for (int s = LANE; s < states; s += LANES)
        if (most > -INFINITY && label_of(&p, &e, s) == p.blank) sum += exp(alpha[s] + beta[s] - most);
    sum = ROW_GROUP_SUM(sum);
    if (LANE == 0)
        grad[p.blank] = grad_of(&p, log_prob(&p, &e, t, p.blank), most > -INFINITY ? log(sum) + most : most,
                                loss, grad_loss);
}
#endif
