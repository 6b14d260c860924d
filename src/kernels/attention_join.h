/* What attention by matrix units shares, whichever they are: softmax by powers of 2, what forward kept of it
 * for backward, and (FINISH) attention_matrix_finish, which joins slices of the keys: 64 work-items a query.
 */
#include "attention_score.h"

#define LOG2E 1.44269504088896340736f
#define LN2 0.69314718055994530942f
/* GPUs have an instruction that is right to 2^-22; processors' native functions aren't so exact. */
#ifdef XPU_BUILT_FOR_CPU
#define POWER_OF_2 exp2
#else
#define POWER_OF_2 native_exp2
#endif

/* log2 of a row's sum of exponentials; such that probabilities are 0 where nothing took part, and beyond the
 * last query. */
static inline float log_sum(const attention_params *p, long b, long h, long query) {
    if (query >= p->queries) return INFINITY;
    const float v = *logsumexp_at(p, b, h, query);
    return v == -INFINITY ? INFINITY : v * LOG2E;
}
static inline float delta_of(const attention_params *p, long b, long h, long query) {
    return query < p->queries ? *delta_at(p, b, h, query) : 0;
}

#ifdef FINISH
#define LOGSUMS __global
#else
#define LOGSUMS __local
#endif
/* A slice's logarithm of the sum of exponentials. */
static inline __global float *partial_sum(const attention_params *p, int slice, long b, long h, long query) {
    const long row = (b * p->heads + h) * p->queries + query, rows = p->batch * p->heads * p->queries;
    return XPU_PTR(float, p->partial_sums) + slice * rows + row;
}

/* Four elements of a query from all slices of the keys; `logsums`: of the slices, `apart` numbers apart, in
 * LOGSUMS. */
static inline void join_quad(const attention_params *p, LOGSUMS const float *logsums, long apart, long b,
                             long h, long query, int first) {
    const long row = (b * p->heads + h) * p->queries + query, rows = p->batch * p->heads * p->queries;
    const long pitch = PARTIAL_PITCH(p->value_depth);
    const int slices = (int)p->slices;
    float top = -INFINITY, total = 0;
    __attribute__((opencl_unroll_hint(4))) for (int s = 0; s < slices; s++)
        top = fmax(top, logsums[s * apart]);
    const float shift = top == -INFINITY ? 0 : top;
    float4 sum = 0;
    xpu_addr from = p->partial + (row * pitch + first) * sizeof(float);
    __attribute__((opencl_unroll_hint(8))) for (int s = 0; s < slices; s++) {
        const float weight = POWER_OF_2((logsums[s * apart] - shift) * LOG2E);
        const float4 v = *XPU_CPTR(float4, from + s * (rows * pitch) * sizeof(float));
        total += weight;
        /* what lies behind the last element is nobody's number */
        sum = fma(weight, v, sum);
    }
    const float4 v = total == 0 ? (float4)(0) : sum / total;
    PUT(p->out, b, h, query, first, v.x);
    if (first + 1 < p->value_depth) PUT(p->out, b, h, query, first + 1, v.y);
    if (first + 2 < p->value_depth) PUT(p->out, b, h, query, first + 2, v.z);
    if (first + 3 < p->value_depth) PUT(p->out, b, h, query, first + 3, v.w);
    if (first == 0 && p->logsumexp.data) *logsumexp_at(p, b, h, query) = top + log(total);
}

#ifdef FINISH
__kernel
    __attribute__((reqd_work_group_size(64, 1, 1))) void attention_matrix_finish(const attention_params p) {
    const long row = XPU_GROUP(0), query = row % p.queries, h = row / p.queries % p.heads,
               b = row / p.queries / p.heads;
    for (int i = (int)get_local_id(0) * 4; i < p.value_depth; i += 256)
        join_quad(&p, partial_sum(&p, 0, b, h, query), p.batch * p.heads * p.queries, b, h, query, i);
}
#endif
