/* Layer norm  y = (x - mean) rstd w + b,  rstd = 1 / sqrt(mean of (x - mean)² + eps), along rows;
 * RMS norm    y = x rstd w,               rstd = 1 / sqrt(mean of x² + eps);
 * backward    dx = rstd (dy w - mean of (dy w) - xhat · mean of (dy w xhat)),  xhat = (x - mean) rstd,
 *             RMS norm: without the first mean;
 *             dw = sum over rows of dy xhat;  db = sum over rows of dy.
 *
 * Algorithm: the first pass computes the mean; the second computes its correction and the variance. Far from
 * zero, mean plus correction needs more precision than ACC has, so the two are kept separately.
 * Options: T, dtype of the tensors; W, dtype of weight and bias; HAS_WEIGHT, HAS_BIAS, RMS; PARTIAL, backward
 * also accumulates dw and db; those of row_group.h; REGISTERS, elements of a row that a lane keeps in
 * registers (0: the row is read again in each pass); if VECTOR_SIZE > 1, T_BITS and W_BITS, types of a
 * vector's size.
 * Launch: one row group per row, or per p.rows_per_row_group consecutive rows. */
#include "norm_row.h"
#include "row_group.h"

#ifdef HAS_WEIGHT
#define WEIGHT(i) ((ACC)LOAD(W, weight, i))
#else
#define WEIGHT(i) ((ACC)1)
#endif
#ifdef HAS_BIAS
#define BIAS(i) ((ACC)LOAD(W, bias, i))
#else
#define BIAS(i) ((ACC)0)
#endif

#if REGISTERS
#define ROW_EACH(i, r, n, BODY) ROW_GROUP_FOR_EACH_REGISTER(i, r, n, BODY)
#define HELD(i, r) held[r]
#else
#define ROW_EACH(i, r, n, BODY) ROW_GROUP_FOR_EACH(i, n, BODY)
#define HELD(i, r) ((ACC)LOAD(T, x, i))
#endif

#ifdef BUILD_norm_row
#define ADD_ELEMENT(i, k) ACCUMULATOR(x, k) += (ACC)LOAD(T, x, i);
#define ADD_SQUARE(i, k)                                                                                     \
    {                                                                                                        \
        const ACC v = LOAD(T, x, i);                                                                         \
        ACCUMULATOR(q, k) += v * v;                                                                          \
    }
#define ADD_DEVIATION(i, k)                                                                                  \
    {                                                                                                        \
        const ACC v = (ACC)LOAD(T, x, i) - mean;                                                             \
        ACCUMULATOR(d, k) += v;                                                                              \
        ACCUMULATOR(q, k) += v * v;                                                                          \
    }
ROW_GROUP_KERNEL void norm_row(norm_row_params p) {
    ROW_GROUP_SCRATCH
    const ulong first = ROW_GROUP_INDEX * p.rows_per_row_group,
                end = min(first + p.rows_per_row_group, (ulong)p.rows);
    const size_t n = ROW_LENGTH;
    const ACC count = (ACC)n, eps = (ACC)p.eps + (ACC)p.eps_rest;
    __global const STORED(W) *weight = XPU_CPTR(STORED(W), p.weight);
    __global const STORED(W) *bias = XPU_CPTR(STORED(W), p.bias);
    for (ulong row = first; row < end; row++) {
        __global const STORED(T) *x = XPU_CPTR(STORED(T), p.input) + row * n;
        __global STORED(T) *y = XPU_PTR(STORED(T), p.result) + row * n;
#if REGISTERS
        ACC held[REGISTERS];
        ROW_GROUP_LOAD(T, T_BITS, held, x, n)
#endif
#ifdef RMS
        const ACC mean = 0, correction = 0;
        DECLARE_ACCUMULATORS(q)
#if REGISTERS
        ROW_GROUP_FOR_EACH_REGISTER(i, r, n, ACCUMULATOR(q, r % 4) += held[r] * held[r];)
#else
        ROW_GROUP_ACCUMULATE(n, ADD_SQUARE, FLUSH_ACCUMULATORS(q))
#endif
        const ACC rstd = 1 / sqrt(ROW_GROUP_SUM(ACCUMULATORS_TOTAL(q)) / count + eps);
#else
        DECLARE_ACCUMULATORS(x)
        DECLARE_ACCUMULATORS(d)
        DECLARE_ACCUMULATORS(q)
#if REGISTERS
        ROW_GROUP_FOR_EACH_REGISTER(i, r, n, ACCUMULATOR(x, r % 4) += held[r];)
        const ACC mean = ROW_GROUP_SUM(ACCUMULATORS_TOTAL(x)) / count;
        ROW_GROUP_FOR_EACH_REGISTER(i, r, n, const ACC v = held[r] - mean; ACCUMULATOR(d, r % 4) += v;
                                    ACCUMULATOR(q, r % 4) += v * v;)
#else
        ROW_GROUP_ACCUMULATE(n, ADD_ELEMENT, FLUSH_ACCUMULATORS(x))
        const ACC mean = ROW_GROUP_SUM(ACCUMULATORS_TOTAL(x)) / count;
        ROW_GROUP_ACCUMULATE(n, ADD_DEVIATION, FLUSH_ACCUMULATORS(d) FLUSH_ACCUMULATORS(q))
#endif
        ACC sum = ACCUMULATORS_TOTAL(d), squares = ACCUMULATORS_TOTAL(q);
        ROW_GROUP_SUM2(sum, squares)
        const ACC correction = sum / count;
        ACC variance = squares / count - correction * correction;
        if (variance < 0) variance = 0; /* by rounding; keeps NaN */
        const ACC rstd = 1 / sqrt(variance + eps);
        if (LANE == 0) XPU_PTR(ACC, p.mean)[row] = mean + correction;
#endif
        if (LANE == 0) XPU_PTR(ACC, p.rstd)[row] = rstd;
#if REGISTERS
        ROW_GROUP_FOR_EACH_REGISTER(i, r, n, held[r] = (held[r] - mean - correction) * rstd;)
#ifdef HAS_WEIGHT
        {
            ACC w[REGISTERS];
            ROW_GROUP_LOAD(W, W_BITS, w, weight, n)
            ROW_GROUP_FOR_EACH_REGISTER(i, r, n, held[r] *= w[r];)
        }
#endif
#ifdef HAS_BIAS
        {
            ACC b[REGISTERS];
            ROW_GROUP_LOAD(W, W_BITS, b, bias, n)
            ROW_GROUP_FOR_EACH_REGISTER(i, r, n, held[r] += b[r];)
        }
#endif
        ROW_GROUP_STORE(T, T_BITS, y, held, n)
#else
        ROW_GROUP_FOR_EACH(i, n,
                           STORE(T, y, i, (HELD(i, r) - mean - correction) * rstd * WEIGHT(i) + BIAS(i));)
#endif
    }
}
#endif

#ifdef BUILD_norm_row_backward
#define ADD_GRADIENT(i, k)                                                                                   \
    {                                                                                                        \
        const ACC v = (ACC)LOAD(T, dy, i) * WEIGHT(i);                                                       \
        ACCUMULATOR(g, k) += v;                                                                              \
        ACCUMULATOR(h, k) += v * ((ACC)LOAD(T, x, i) - mean);                                                \
    }
ROW_GROUP_KERNEL void norm_row_backward(norm_row_params p) {
    ROW_GROUP_SCRATCH
    const ulong row_group = ROW_GROUP_INDEX;
    const ulong first = row_group * p.rows_per_row_group,
                end = min(first + p.rows_per_row_group, (ulong)p.rows);
    const size_t n = ROW_LENGTH;
    const ACC count = (ACC)n; /* a rounded inverse would give mean(1, …, 1) != 1 */
    __global const STORED(W) *weight = XPU_CPTR(STORED(W), p.weight);
#ifdef PARTIAL
    __global ACC *dw = XPU_PTR(ACC, p.partial) + row_group * 2 * n, *db = dw + n;
#if REGISTERS
    ACC own_dw[REGISTERS], own_db[REGISTERS];
    ROW_GROUP_FOR_EACH_REGISTER(i, r, n, own_dw[r] = 0; own_db[r] = 0;)
#define ADD_PARTIAL(i, r, g, xhat)                                                                           \
    own_dw[r] += (g) * (xhat);                                                                               \
    own_db[r] += (g);
#else
    ROW_GROUP_FOR_EACH(i, n, dw[i] = 0; db[i] = 0;)
#define ADD_PARTIAL(i, r, g, xhat)                                                                           \
    dw[i] += (g) * (xhat);                                                                                   \
    db[i] += (g);
#endif
#else
#define ADD_PARTIAL(i, r, g, xhat)
#endif
    for (ulong row = first; row < end; row++) {
        __global const STORED(T) *x = XPU_CPTR(STORED(T), p.input) + row * n;
        __global const STORED(T) *dy = XPU_CPTR(STORED(T), p.grad) + row * n;
        __global STORED(T) *dx = XPU_PTR(STORED(T), p.result) + row * n;
        const ACC rstd = XPU_CPTR(ACC, p.rstd)[row];
#ifdef RMS
        const ACC mean = 0;
#else
        const ACC mean = XPU_CPTR(ACC, p.mean)[row];
#endif
        DECLARE_ACCUMULATORS(g)
        DECLARE_ACCUMULATORS(h)
#if REGISTERS
        ROW_GROUP_ACCUMULATE_REGISTERS(n, ADD_GRADIENT)
#else
        ROW_GROUP_ACCUMULATE(n, ADD_GRADIENT, FLUSH_ACCUMULATORS(g) FLUSH_ACCUMULATORS(h))
#endif
        const ACC mean_xhat = ROW_GROUP_SUM(ACCUMULATORS_TOTAL(h)) * rstd / count;
#ifdef RMS
        const ACC mean_g = 0;
#else
        const ACC mean_g = ROW_GROUP_SUM(ACCUMULATORS_TOTAL(g)) / count;
#endif
        ROW_EACH(i, r, n, const ACC g = LOAD(T, dy, i); const ACC xhat = ((ACC)LOAD(T, x, i) - mean) * rstd;
                 ADD_PARTIAL(i, r, g, xhat)
                     STORE(T, dx, i, rstd * (g * WEIGHT(i) - mean_g - xhat * mean_xhat));)
    }
#if defined PARTIAL && REGISTERS
    ROW_GROUP_FOR_EACH_REGISTER(i, r, n, dw[i] = own_dw[r]; db[i] = own_db[r];)
#endif
}
#endif

/* Adds up the row groups' parts in a fixed order: COLUMN_LANES columns per work-group, SLICES work-items per
 * column. */
#ifdef BUILD_norm_row_columns
__kernel
    __attribute__((reqd_work_group_size(COLUMN_LANES, SLICES, 1))) void norm_row_columns(norm_row_params p) {
    const size_t n = p.length, i = get_global_id(0);
    ACC dw = 0, db = 0;
    if (i < n)
        for (ulong t = get_local_id(1); t < (ulong)p.row_groups; t += SLICES) {
            __global const ACC *share = XPU_CPTR(ACC, p.partial) + t * 2 * n;
            dw += share[i];
            db += share[n + i];
        }
#if SLICES > 1
    __local ACC shares[2][SLICES][COLUMN_LANES];
    shares[0][get_local_id(1)][get_local_id(0)] = dw;
    shares[1][get_local_id(1)][get_local_id(0)] = db;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(1) > 0) return;
    for (uint s = 1; s < SLICES; s++) {
        dw += shares[0][s][get_local_id(0)];
        db += shares[1][s][get_local_id(0)];
    }
#endif
    if (i >= n) return;
    if (p.grad_weight) STORE(W, XPU_PTR(STORED(W), p.grad_weight), i, dw);
    if (p.grad_bias) STORE(W, XPU_PTR(STORED(W), p.grad_bias), i, db);
}
#endif
