/* Norms of many tensors in two launches: norm_parts reduces each group's chunk of a tensor, norm_whole (group
 * t) merges the partial results of tensor t. Accumulates in fp32 (fp64 for f64).
 *
 * Table rows (multi_tensor.h): tensor, result, index of its first partial, element count, first group.
 * Options: T, dtype; WIDE=1 for f64; ORDER: 1 Σ|x|, 2 sqrt(Σ x²), 0 max |x| (NaN propagates). */
#include "multi_tensor.h"

typedef STORED(T) stored;
typedef COMPUTED(T) real;

static inline real join(real a, real b) {
#if ORDER == 0
    return a != a || a > b ? a : b;
#else
    return a + b;
#endif
}

static inline real take(real sum, real v) { return join(sum, ORDER == 2 ? v * v : fabs(v)); }

static inline real group_join(__local real *shared, real value) {
    const int lane = get_local_id(0);
    shared[lane] = value;
    for (int width = LOCAL / 2; width > 0; width /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < width) shared[lane] = join(shared[lane], shared[lane + width]);
    }
    return shared[lane];
}

__kernel void norm_parts(const struct multi_tensor_params p) {
    __local real shared[LOCAL];
    MULTI_TENSOR_ROW
    __global const stored *in = XPU_CPTR(stored, MULTI_TENSOR_ADDRESS(0));
    real sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
#define TAKE(i, k) sum##k = take(sum##k, LOAD(T, in, i));
    MULTI_TENSOR_UNROLLED_BY_4(TAKE)
    const real sum = group_join(shared, join(join(sum0, sum1), join(sum2, sum3)));
    // clang-format off
    if (get_local_id(0) == 0)
        XPU_PTR(real, p.number[0])
            [MULTI_TENSOR_WORD(row, 2) + group - MULTI_TENSOR_WORD(row, WIDTH - 1)] = sum;
    // clang-format on
}

__kernel void norm_whole(const struct multi_tensor_params p) {
    __local real shared[LOCAL];
    const long row = XPU_GROUP(0);
    const long parts = ((long)MULTI_TENSOR_WORD(row, WIDTH - 2) + LOCAL * STEPS - 1) / (LOCAL * STEPS);
    __global const real *part = XPU_CPTR(real, p.number[0]) + MULTI_TENSOR_WORD(row, 2);
    real sum = 0;
    for (long i = get_local_id(0); i < parts; i += LOCAL) sum = join(sum, part[i]);
    sum = group_join(shared, sum);
    if (get_local_id(0) == 0)
        STORE(T, XPU_PTR(stored, MULTI_TENSOR_ADDRESS(1)), 0, ORDER == 2 ? sqrt(sum) : sum);
}
