/* Batch norm and group norm: statistics of sets of planes, reductions for the gradients, and their
 * application
 *   y = c0 dy + c1 (x - c2) + c3   with four coefficients per channel (batch norm) or per plane (group norm).
 *
 * Algorithm: one pass accumulates deviations from a shift close to the mean; the slices of a set are merged
 * with Chan's formula in a fixed order, so that results are deterministic.
 * Options: T, dtype of the tensors; GROUPED for group norm; WIDE, channels of a work-item; those of
 * row_group.h. */
#include "norm_plane.h"
#include "row_group.h"

#define SHIFT_ELEMENTS 1024 /* the shift is the mean of this many elements of a set's first plane */

/* The mean that backward subtracts from x. */
static inline ACC set_mean(norm_plane_params p, ulong set) {
    return p.evaluate ? (ACC)LOAD(RUNNING, XPU_CPTR(STORED(RUNNING), p.mean), set)
                      : (ACC)LOAD(SAVE, XPU_CPTR(STORED(SAVE), p.mean), set);
}

/* A parameter of channel i. */
#define PARAMETER(address, i, otherwise)                                                                     \
    ((address) ? (ACC)LOAD(W, XPU_CPTR(STORED(W), address), i) : (ACC)(otherwise))

/* From the sums of a channel's dy and dy (x - mean): the gradients of its parameters, and c0 … c3 of dx. */
#ifndef GROUPED
static inline void put_parameter_gradients(norm_plane_params p, ulong c, ACC sum, ACC sum_x, ACC rstd) {
    if (p.grad_weight) STORE(W, XPU_PTR(STORED(W), p.grad_weight), c, sum_x * rstd);
    if (p.grad_bias) STORE(W, XPU_PTR(STORED(W), p.grad_bias), c, sum);
}
static inline ACC set_rstd(norm_plane_params p, ulong set) {
    return p.evaluate ? 1 / sqrt((ACC)LOAD(RUNNING, XPU_CPTR(STORED(RUNNING), p.rstd), set) +
                                 ((ACC)p.eps + (ACC)p.eps_rest))
                      : (ACC)LOAD(SAVE, XPU_CPTR(STORED(SAVE), p.rstd), set);
}
static inline void gradient_coefficients(norm_plane_params p, ulong set, ACC sum, ACC sum_x, ACC rstd,
                                         ACC c[4]) {
    const ACC count = p.channel_elements; /* a rounded inverse would give mean(1, …, 1) != 1 */
    c[0] = rstd * PARAMETER(p.weight, set, 1);
    c[1] = p.evaluate ? (ACC)0 : -c[0] * rstd * rstd * (sum_x / count);
    c[2] = set_mean(p, set);
    c[3] = p.evaluate ? (ACC)0 : -c[0] * (sum / count);
}
#endif

/* One row group per set and slice. Batch norm: a set is a channel, whose planes are `channels` apart; group
 * norm: a set is one group of one batch entry, treated as one plane. */
#ifdef PLANES
#ifdef BUILD_norm_plane_statistics
#define ADD_DEVIATION(i, k)                                                                                  \
    {                                                                                                        \
        const ACC v = (ACC)LOAD(T, x, i) - shift;                                                            \
        ACCUMULATOR(d, k) += v;                                                                              \
        ACCUMULATOR(q, k) += v * v;                                                                          \
    }
ROW_GROUP_KERNEL void norm_plane_statistics(norm_plane_params p) {
    ROW_GROUP_SCRATCH
    const ulong index = ROW_GROUP_INDEX, slice = index / p.sets, set = index - slice * p.sets;
    const size_t n = p.length;
#ifdef GROUPED
    __global const STORED(T) *x = XPU_CPTR(STORED(T), p.input) + set * n;
    const ulong step = 0, planes = 1;
#else
    const ulong start = slice * p.planes_per_slice;
    const ulong planes = min((ulong)p.planes_per_slice, (ulong)p.batch - start), step = p.channels * n;
    __global const STORED(T) *x = XPU_CPTR(STORED(T), p.input) + set * n + start * step;
#endif
    ACC sum = 0;
    const size_t few = min(n, (size_t)SHIFT_ELEMENTS);
    ROW_GROUP_FOR_EACH(i, few, sum += LOAD(T, x, i);)
    const ACC shift = ROW_GROUP_SUM(sum) / few;
    DECLARE_ACCUMULATORS(d)
    DECLARE_ACCUMULATORS(q)
    for (ulong plane = 0; plane < planes; plane++, x += step)
        ROW_GROUP_ACCUMULATE(n, ADD_DEVIATION, FLUSH_ACCUMULATORS(d) FLUSH_ACCUMULATORS(q))
    sum = ROW_GROUP_SUM(ACCUMULATORS_TOTAL(d));
    const ACC squares = ROW_GROUP_SUM(ACCUMULATORS_TOTAL(q));
    if (LANE == 0) {
        const ACC count = (ACC)(planes * n), mean = sum / count;
        __global ACC *out = XPU_PTR(ACC, p.partial) + index * 3;
        out[0] = count;
        out[1] = shift + mean;
        const ACC deviation = squares - sum * mean;
        out[2] = deviation < 0 ? (ACC)0 : deviation; /* keeps NaN */
    }
}
#endif

/* Sums of dy and dy (x - mean): over the planes of a channel (batch norm) or of each plane (group norm). */
#if defined BUILD_norm_plane_sums || defined BUILD_norm_batch_backward
#define ADD_GRADIENT(i, k)                                                                                   \
    {                                                                                                        \
        const ACC v = LOAD(T, dy, i);                                                                        \
        ACCUMULATOR(g, k) += v;                                                                              \
        ACCUMULATOR(h, k) += v * ((ACC)LOAD(T, x, i) - mean);                                                \
    }
#endif
#ifdef BUILD_norm_plane_sums
ROW_GROUP_KERNEL void norm_plane_sums(norm_plane_params p) {
    ROW_GROUP_SCRATCH
    const size_t n = p.length;
#ifdef GROUPED
    const ulong first = ROW_GROUP_INDEX * p.planes_per_row_group,
                end = min(first + p.planes_per_row_group, (ulong)p.planes);
#else
    const ulong first = ROW_GROUP_INDEX, end = first + 1;
#endif
    for (ulong index = first; index < end; index++) {
#ifdef GROUPED
        const ulong offset = index * n, step = 0, planes = 1;
        const ACC mean = set_mean(p, index / (p.channels / p.groups));
#else
        const ulong slice = index / p.sets, set = index - slice * p.sets;
        const ulong start = slice * p.planes_per_slice, step = p.channels * n,
                    offset = set * n + start * step;
        const ulong planes = min((ulong)p.planes_per_slice, (ulong)p.batch - start);
        const ACC mean = set_mean(p, set);
#endif
        __global const STORED(T) *x = XPU_CPTR(STORED(T), p.input) + offset;
        __global const STORED(T) *dy = XPU_CPTR(STORED(T), p.grad) + offset;
        DECLARE_ACCUMULATORS(g)
        DECLARE_ACCUMULATORS(h)
        for (ulong plane = 0; plane < planes; plane++, x += step, dy += step)
            ROW_GROUP_ACCUMULATE(n, ADD_GRADIENT, FLUSH_ACCUMULATORS(g) FLUSH_ACCUMULATORS(h))
        const ACC sum = ROW_GROUP_SUM(ACCUMULATORS_TOTAL(g)), sum_x = ROW_GROUP_SUM(ACCUMULATORS_TOTAL(h));
        if (LANE == 0) {
            __global ACC *out = XPU_PTR(ACC, p.partial) + index * 2;
            out[0] = sum;
            out[1] = sum_x;
        }
    }
}
#endif

/* The whole backward of batch norm on CPUs: one row group per channel, whose data is still in the cache when
 * it is read again for dx. */
#ifdef BUILD_norm_batch_backward
ROW_GROUP_KERNEL void norm_batch_backward(norm_plane_params p) {
    ROW_GROUP_SCRATCH
    const ulong set = ROW_GROUP_INDEX, step = p.channels * p.length;
    const size_t n = p.length;
    const ACC mean = set_mean(p, set), rstd = set_rstd(p, set);
    __global const STORED(T) *x = XPU_CPTR(STORED(T), p.input) + set * n;
    __global const STORED(T) *dy = XPU_CPTR(STORED(T), p.grad) + set * n;
    __global STORED(T) *dx = XPU_PTR(STORED(T), p.result) + set * n;
    DECLARE_ACCUMULATORS(g)
    DECLARE_ACCUMULATORS(h)
    for (ulong plane = 0; plane < (ulong)p.batch; plane++, x += step, dy += step)
        ROW_GROUP_ACCUMULATE(n, ADD_GRADIENT, FLUSH_ACCUMULATORS(g) FLUSH_ACCUMULATORS(h))
    const ACC sum = ROW_GROUP_SUM(ACCUMULATORS_TOTAL(g)), sum_x = ROW_GROUP_SUM(ACCUMULATORS_TOTAL(h));
    if (LANE == 0) put_parameter_gradients(p, set, sum, sum_x, rstd);
    ACC c[4];
    gradient_coefficients(p, set, sum, sum_x, rstd, c);
    x -= p.batch * step;
    dy -= p.batch * step;
    for (ulong plane = 0; plane < (ulong)p.batch; plane++, x += step, dy += step, dx += step)
        ROW_GROUP_FOR_EACH(
            i, n, STORE(T, dx, i, c[0] * (ACC)LOAD(T, dy, i) + (c[1] * ((ACC)LOAD(T, x, i) - c[2]) + c[3]));)
}
#endif

#ifdef GROUPED
#define COEFFICIENT(plane) (plane)
#define COEFFICIENTS (p.planes)
#else
#define COEFFICIENT(plane) ((plane) % p.channels)
#define COEFFICIENTS (p.channels)
#endif
#ifdef BUILD_norm_plane_apply
ROW_GROUP_KERNEL void norm_plane_apply(norm_plane_params p) {
    const size_t n = p.length;
    const ulong first = ROW_GROUP_INDEX * p.planes_per_row_group,
                end = min(first + p.planes_per_row_group, (ulong)p.planes);
    for (ulong plane = first; plane < end; plane++) {
        __global const ACC *c = XPU_CPTR(ACC, p.coefficients) + COEFFICIENT(plane);
        const ACC c0 = c[0], c1 = c[COEFFICIENTS], c2 = c[2 * COEFFICIENTS], c3 = c[3 * COEFFICIENTS];
        __global const STORED(T) *x = XPU_CPTR(STORED(T), p.input) + plane * n;
        __global STORED(T) *y = XPU_PTR(STORED(T), p.result) + plane * n;
        if (p.grad) {
            __global const STORED(T) *dy = XPU_CPTR(STORED(T), p.grad) + plane * n;
            ROW_GROUP_FOR_EACH(
                i, n, STORE(T, y, i, c0 * (ACC)LOAD(T, dy, i) + (c1 * ((ACC)LOAD(T, x, i) - c2) + c3));)
        } else {
            ROW_GROUP_FOR_EACH(i, n, STORE(T, y, i, c1 * ((ACC)LOAD(T, x, i) - c2) + c3);)
        }
    }
}
#endif
#endif

/* Channels last: a work-item has WIDE channels, LANES apart, over the positions of one slice. */
#ifdef COLUMNS
#define COLUMN_POSITIONS                                                                                     \
    const size_t channels = p.channels, left = XPU_GROUP(0) * (LANES * WIDE), first = left + LANE;           \
    const ulong slice = XPU_GROUP(1), start = slice * p.positions_per_slice;                                 \
    const ulong count = min((ulong)p.positions_per_slice, (ulong)p.length - start);                          \
    const bool full = left + LANES * WIDE <= channels;
#define EACH_WIDE(BODY)                                                                                      \
    _Pragma("unroll") for (int w = 0; w < WIDE; w++) { BODY }
#define CHANNEL(w) (first + (w) * LANES)
/* BODY for each channel w at the first n positions; `at` is the element's index. */
#define EACH_COLUMN(n, BODY)                                                                                 \
    if (full)                                                                                                \
        for (ulong i = 0; i < (n); i++) EACH_WIDE(const size_t at = i * channels + CHANNEL(w); BODY)         \
    else                                                                                                     \
        for (ulong i = 0; i < (n); i++)                                                                      \
        EACH_WIDE(if (CHANNEL(w) < channels) {                                                               \
            const size_t at = i * channels + CHANNEL(w);                                                     \
            BODY                                                                                             \
        })

#ifdef BUILD_norm_column_statistics
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void norm_column_statistics(norm_plane_params p) {
    COLUMN_POSITIONS
    __global const STORED(T) *x = XPU_CPTR(STORED(T), p.input) + start * channels;
    const ulong few = min(count, (ulong)8);
    ACC shift[WIDE], sum[WIDE], squares[WIDE];
    EACH_WIDE(shift[w] = sum[w] = squares[w] = 0;)
    EACH_COLUMN(few, shift[w] += (ACC)LOAD(T, x, at);)
    EACH_WIDE(shift[w] /= few;)
    EACH_COLUMN(count, const ACC d = (ACC)LOAD(T, x, at) - shift[w]; sum[w] += d; squares[w] += d * d;)
    __global ACC *out = XPU_PTR(ACC, p.partial) + slice * channels * 3;
    EACH_WIDE(const ACC mean = sum[w] / count; const ACC deviation = squares[w] - sum[w] * mean;
              if (CHANNEL(w) < channels) {
                  out[CHANNEL(w) * 3] = count;
                  out[CHANNEL(w) * 3 + 1] = shift[w] + mean;
                  out[CHANNEL(w) * 3 + 2] = deviation < 0 ? (ACC)0 : deviation;
              })
}
#endif

#ifdef BUILD_norm_column_sums
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void norm_column_sums(norm_plane_params p) {
    COLUMN_POSITIONS
    __global const STORED(T) *x = XPU_CPTR(STORED(T), p.input) + start * channels;
    __global const STORED(T) *dy = XPU_CPTR(STORED(T), p.grad) + start * channels;
    ACC mean[WIDE], sum[WIDE], sum_x[WIDE];
    EACH_WIDE(mean[w] = sum[w] = sum_x[w] = 0; if (CHANNEL(w) < channels) mean[w] = set_mean(p, CHANNEL(w));)
    EACH_COLUMN(count, const ACC g = LOAD(T, dy, at); sum[w] += g;
                sum_x[w] += g * ((ACC)LOAD(T, x, at) - mean[w]);)
    __global ACC *out = XPU_PTR(ACC, p.partial) + slice * channels * 2;
    EACH_WIDE(if (CHANNEL(w) < channels) {
        out[CHANNEL(w) * 2] = sum[w];
        out[CHANNEL(w) * 2 + 1] = sum_x[w];
    })
}
#endif

/* On CPUs, all channels of a position come before the next position: sequential access is fastest. */
#ifdef BUILD_norm_column_apply
#ifdef XPU_IS_CPU
#define EACH_ELEMENT(BODY)                                                                                   \
    for (ulong i = 0; i < count; i++)                                                                        \
    ROW_GROUP_FOR_EACH(c, channels, const size_t at = i * channels + c; BODY)
#else
#define EACH_ELEMENT(BODY)                                                                                   \
    const size_t c = first;                                                                                  \
    if (c < channels)                                                                                        \
        for (ulong i = 0; i < count; i++) {                                                                  \
            const size_t at = i * channels + c;                                                              \
            BODY                                                                                             \
        }
#endif
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void norm_column_apply(norm_plane_params p) {
    COLUMN_POSITIONS
    __global const ACC *c0 = XPU_CPTR(ACC, p.coefficients), *c1 = c0 + channels, *c2 = c1 + channels,
                       *c3 = c2 + channels;
    __global const STORED(T) *x = XPU_CPTR(STORED(T), p.input) + start * channels;
    __global STORED(T) *y = XPU_PTR(STORED(T), p.result) + start * channels;
    if (p.grad) {
        __global const STORED(T) *dy = XPU_CPTR(STORED(T), p.grad) + start * channels;
        EACH_ELEMENT(
            STORE(T, y, at, c0[c] * (ACC)LOAD(T, dy, at) + (c1[c] * ((ACC)LOAD(T, x, at) - c2[c]) + c3[c]));)
    } else {
        EACH_ELEMENT(STORE(T, y, at, c1[c] * ((ACC)LOAD(T, x, at) - c2[c]) + c3[c]);)
    }
}
#endif
#endif

/* Finishing kernels: once per channel or group, from the partial results. */
#ifdef FINISH
static inline void put_coefficients(norm_plane_params p, ulong count, ulong at, ACC c0, ACC c1, ACC c2,
                                    ACC c3) {
    __global ACC *c = XPU_PTR(ACC, p.coefficients) + at;
    c[0] = c0;
    c[count] = c1;
    c[2 * count] = c2;
    c[3 * count] = c3;
}

/* Merges count, mean and sum of squared deviations of a set's slices (Chan et al.). */
static inline ACC combine_slices(norm_plane_params p, ulong set, ACC *mean, ACC *deviation) {
    ACC count = 0, m = 0, squares = 0;
    for (ulong s = 0; s < (ulong)p.slices; s++) {
        __global const ACC *part = XPU_CPTR(ACC, p.partial) + (s * p.sets + set) * 3;
        const ACC other = part[0], total = count + other, delta = part[1] - m;
        m += delta * (other / total);
        squares += part[2] + delta * delta * (count * other / total);
        count = total;
    }
    *mean = m;
    *deviation = squares;
    return count;
}

#ifndef GROUPED
/* One work-item per channel. */
#ifdef BUILD_norm_batch_finish
__kernel void norm_batch_finish(norm_plane_params p) {
    const ulong c = get_global_id(0);
    if (c >= (ulong)p.channels) return;
    const ACC eps = (ACC)p.eps + (ACC)p.eps_rest, momentum = (ACC)p.momentum + (ACC)p.momentum_rest;
    ACC mean, rstd;
    if (p.evaluate) {
        mean = LOAD(RUNNING, XPU_CPTR(STORED(RUNNING), p.running_mean), c);
        rstd = 1 / sqrt((ACC)LOAD(RUNNING, XPU_CPTR(STORED(RUNNING), p.running_var), c) + eps);
    } else {
        ACC deviation;
        const ACC count = combine_slices(p, c, &mean, &deviation);
        rstd = 1 / sqrt(deviation / count + eps);
        STORE(SAVE, XPU_PTR(STORED(SAVE), p.mean), c, mean);
        STORE(SAVE, XPU_PTR(STORED(SAVE), p.rstd), c, rstd);
        if (p.running_mean) {
            __global STORED(RUNNING) *r = XPU_PTR(STORED(RUNNING), p.running_mean);
            STORE(RUNNING, r, c, momentum * mean + (1 - momentum) * (ACC)LOAD(RUNNING, r, c));
        }
        if (p.running_var) {
            __global STORED(RUNNING) *r = XPU_PTR(STORED(RUNNING), p.running_var);
            STORE(RUNNING, r, c,
                  momentum * (deviation / (count - 1)) + (1 - momentum) * (ACC)LOAD(RUNNING, r, c));
        }
    }
    if (p.coefficients)
        put_coefficients(p, p.channels, c, 0, rstd * PARAMETER(p.weight, c, 1), mean,
                         PARAMETER(p.bias, c, 0));
}
#endif

#ifdef BUILD_norm_batch_finish_backward
__kernel void norm_batch_finish_backward(norm_plane_params p) {
    const ulong c = get_global_id(0);
    if (c >= (ulong)p.channels) return;
    ACC sum = 0, sum_x = 0, k[4];
    for (ulong s = 0; s < (ulong)p.slices; s++) {
        __global const ACC *part = XPU_CPTR(ACC, p.partial) + (s * p.sets + c) * 2;
        sum += part[0];
        sum_x += part[1];
    }
    const ACC rstd = set_rstd(p, c);
    put_parameter_gradients(p, c, sum, sum_x, rstd);
    if (!p.coefficients) return;
    gradient_coefficients(p, c, sum, sum_x, rstd, k);
    put_coefficients(p, p.channels, c, k[0], k[1], k[2], k[3]);
}
#endif
#else
/* One work-item per plane (channel of a batch entry). */
#ifdef BUILD_norm_group_finish
__kernel void norm_group_finish(norm_plane_params p) {
    const ulong plane = get_global_id(0);
    if (plane >= (ulong)p.planes) return;
    const ulong in_group = p.channels / p.groups, set = plane / in_group, c = plane % p.channels;
    ACC mean, deviation;
    const ACC count = combine_slices(p, set, &mean, &deviation);
    const ACC rstd = 1 / sqrt(deviation / count + ((ACC)p.eps + (ACC)p.eps_rest));
    if (plane % in_group == 0) {
        STORE(SAVE, XPU_PTR(STORED(SAVE), p.mean), set, mean);
        STORE(SAVE, XPU_PTR(STORED(SAVE), p.rstd), set, rstd);
    }
    put_coefficients(p, p.planes, plane, 0, rstd * PARAMETER(p.weight, c, 1), mean, PARAMETER(p.bias, c, 0));
}
#endif

/* One work-item per group of a batch entry: the coefficients of its planes. */
#ifdef BUILD_norm_group_finish_backward
__kernel void norm_group_finish_backward(norm_plane_params p) {
    const ulong set = get_global_id(0);
    if (set >= (ulong)p.sets) return;
    const ulong in_group = p.channels / p.groups, first = set * in_group;
    const ACC mean = LOAD(SAVE, XPU_CPTR(STORED(SAVE), p.mean), set);
    const ACC rstd = LOAD(SAVE, XPU_CPTR(STORED(SAVE), p.rstd), set);
    ACC sum = 0, sum_x = 0;
    for (ulong plane = first; plane < first + in_group; plane++) {
        __global const ACC *part = XPU_CPTR(ACC, p.partial) + plane * 2;
        const ACC w = PARAMETER(p.weight, plane % p.channels, 1);
        sum += part[0] * w;
        sum_x += part[1] * w;
    }
    const ACC count = in_group * p.length;
    for (ulong plane = first; plane < first + in_group; plane++)
        put_coefficients(p, p.planes, plane, rstd * PARAMETER(p.weight, plane % p.channels, 1),
                         -rstd * rstd * rstd * (sum_x / count), mean, -rstd * (sum / count));
}
#endif

/* One work-item per channel. */
#ifdef BUILD_norm_group_parameters
__kernel void norm_group_parameters(norm_plane_params p) {
    const ulong c = get_global_id(0);
    if (c >= (ulong)p.channels) return;
    const ulong in_group = p.channels / p.groups;
    ACC dw = 0, db = 0;
    for (ulong plane = c; plane < (ulong)p.planes; plane += p.channels) {
        __global const ACC *part = XPU_CPTR(ACC, p.partial) + plane * 2;
        db += part[0];
        dw += part[1] * (ACC)LOAD(SAVE, XPU_CPTR(STORED(SAVE), p.rstd), plane / in_group);
    }
    if (p.grad_weight) STORE(W, XPU_PTR(STORED(W), p.grad_weight), c, dw);
    if (p.grad_bias) STORE(W, XPU_PTR(STORED(W), p.grad_bias), c, db);
}
#endif
#endif
#endif
