/* Negative log likelihood: loss_k = -weight[t] * x[t] with t the target class of position k. The mean is
 * divided by the sum of the weights. Targets equal to ignore_index don't count; targets out of range give NaN
 * and are reported.
 *
 * Options: T, TARGET, dtypes; those of row_group.h; BUILD_<kernel>. */
#include "loss.h"
#include "row_group.h"

/* The loss of position k; its weight is stored in *weight. */
static inline ACC loss_at(loss_params p, ulong k, ACC *weight) {
    const long t = LOAD(TARGET, XPU_CPTR(STORED(TARGET), p.target), k);
    *weight = 0;
    if (t == p.ignore_index) return 0;
    if (t < 0 || t >= p.classes) {
        fault_report(p.watch, 0, t, p.classes);
        return NAN;
    }
    const ulong batch = k / p.inner, inner = k - batch * p.inner;
    *weight = p.weight ? (ACC)LOAD(T, XPU_CPTR(STORED(T), p.weight), t) : (ACC)1;
    return -*weight * (ACC)LOAD(T, XPU_CPTR(STORED(T), p.input), (batch * p.classes + t) * p.inner + inner);
}

static inline void put_total(loss_params p, ACC loss, ACC weight) {
    STORE(T, XPU_PTR(STORED(T), p.output), 0, p.mean ? loss / weight : loss);
    STORE(T, XPU_PTR(STORED(T), p.total_weight), 0, weight);
}

#ifdef BUILD_nll_each
__kernel void nll_each(loss_params p) {
    const ulong k = get_global_id(0);
    ACC weight;
    if (k == 0) STORE(T, XPU_PTR(STORED(T), p.total_weight), 0, (ACC)0);
    if (k < (ulong)(p.batch * p.inner)) STORE(T, XPU_PTR(STORED(T), p.output), k, loss_at(p, k, &weight));
}
#endif

#ifdef BUILD_nll_sum
ROW_GROUP_KERNEL void nll_sum(loss_params p) {
    ROW_GROUP_SCRATCH
    const ulong row_group = ROW_GROUP_INDEX, first = row_group * p.per_row_group;
    const ulong end = min(first + p.per_row_group, (ulong)(p.batch * p.inner));
    ACC loss = 0, weight = 0;
    for (ulong k = first + LANE; k < end; k += LANES) {
        ACC w;
        loss += loss_at(p, k, &w);
        weight += w;
    }
    loss = ROW_GROUP_SUM(loss);
    weight = ROW_GROUP_SUM(weight);
    if (LANE > 0) return;
    if (p.row_groups == 1) {
        put_total(p, loss, weight);
    } else {
        XPU_PTR(ACC, p.partial)[row_group * 2] = loss;
        XPU_PTR(ACC, p.partial)[row_group * 2 + 1] = weight;
    }
}
#endif

#ifdef BUILD_nll_finish
ROW_GROUP_KERNEL void nll_finish(loss_params p) {
    ROW_GROUP_SCRATCH
    ACC loss = 0, weight = 0;
    for (ulong t = LANE; t < (ulong)p.row_groups; t += LANES) {
        loss += XPU_CPTR(ACC, p.partial)[t * 2];
        weight += XPU_CPTR(ACC, p.partial)[t * 2 + 1];
    }
    loss = ROW_GROUP_SUM(loss);
    weight = ROW_GROUP_SUM(weight);
    if (LANE == 0) put_total(p, loss, weight);
}
#endif

#ifdef BUILD_nll_backward
/* One work-item per element of the gradient; dimension 1 of the range is the batch. */
__kernel void nll_backward(loss_params p) {
    const size_t i = get_global_id(0), batch = XPU_GROUP(1), row = p.classes * p.inner;
    if (i >= row) return;
    const size_t class = p.inner == 1 ? i : i / p.inner,
                 k = batch * p.inner + (p.inner == 1 ? 0 : i % p.inner);
    const long t = LOAD(TARGET, XPU_CPTR(STORED(TARGET), p.target), k);
    ACC g = 0;
    if (class == 0 && t != p.ignore_index && (t < 0 || t >= p.classes))
        fault_report(p.watch, 0, t, p.classes);
    if (t == (long)class && t != p.ignore_index) {
        g = -(ACC)LOAD(T, XPU_CPTR(STORED(T), p.grad_output), p.reduced ? 0 : k);
        if (p.weight) g *= (ACC)LOAD(T, XPU_CPTR(STORED(T), p.weight), t);
        if (p.mean) g /= (ACC)LOAD(T, XPU_CPTR(STORED(T), p.total_weight), 0);
    }
    STORE(T, XPU_PTR(STORED(T), p.grad_input) + batch * row, i, g);
}
#endif
