/* Shared by attention on matrix engines: base-2 softmax, what forward keeps for backward, and (FINISH)
 * attention_matrix_merge, which merges the partial results of split-KV slices: 64 work-items per query. */
#include "attention/attention_score.h"

#define LOG2E 1.44269504088896340736f
#define LN2 0.69314718055994530942f
/* GPUs have an instruction with an error of 2^-22; native functions of CPUs are less accurate. */
#ifdef XPU_BUILT_FOR_CPU
#define POWER_OF_2 exp2
#else
#define POWER_OF_2 native_exp2
#endif

/* log2 of a row's sum of exponentials. INFINITY if all keys are masked and past the last query, so that
 * probabilities become 0. */
static inline float log_sum(const attention_params *p, long b, long h, long query) {
    if (query >= p->queries) return INFINITY;
    const float v = *logsumexp_at(p, b, h, query);
    return v == -INFINITY ? INFINITY : v * LOG2E;
}
static inline float delta_of(const attention_params *p, long b, long h, long query) {
    return query < p->queries ? *delta_at(p, b, h, query) : 0;
}

/* Merged splits: the largest logsumexp (row_max), the sum of the splits' weights relative to it, and the
 * weighted sum of four elements. */
typedef struct split_softmax {
    float4 sum;
    float total, row_max;
} split_softmax;

static inline float weight_of(float logsum, float row_max) {
    return POWER_OF_2((logsum - (row_max == -INFINITY ? 0 : row_max)) * LOG2E);
}
static inline split_softmax merge_two(const split_softmax *a, const split_softmax *b) {
    const float row_max = fmax(a->row_max, b->row_max), of_a = weight_of(a->row_max, row_max),
                of_b = weight_of(b->row_max, row_max);
    return (split_softmax){a->sum * of_a + b->sum * of_b, a->total * of_a + b->total * of_b, row_max};
}

/* Merges every `step`-th split from `slice` on: the four elements from `first` on of a query. Eight splits
 * are read at a time. */
static inline split_softmax merge_splits(const attention_params *p, long b, long h, long query, int first,
                                         int slice, int step) {
    const long row = (b * p->heads + h) * p->queries + query, rows = p->batch * p->heads * p->queries;
    const int pitch = PARTIAL_PITCH(p->value_depth), slices = (int)p->slices;
    split_softmax merged = {0, 0, -INFINITY};
    for (; slice < slices; slice += 8 * step) {
        float logsum[8];
        float4 part[8];
        __attribute__((opencl_unroll_hint)) for (int i = 0; i < 8; i++) {
            const int s = slice + i * step;
            const long place = s * rows + row;
            logsum[i] = s < slices ? XPU_CPTR(float, p->partial_sums)[place] : -INFINITY;
            /* elements past the end are not initialized and not used */
            part[i] =
                s < slices ? *XPU_CPTR(float4, p->partial + (place * pitch + first) * sizeof(float)) : 0;
        }
        split_softmax these = {0, 0, -INFINITY};
        __attribute__((opencl_unroll_hint)) for (int i = 0; i < 8; i++)
            these.row_max = fmax(these.row_max, logsum[i]);
        __attribute__((opencl_unroll_hint)) for (int i = 0; i < 8; i++) {
            const float weight = weight_of(logsum[i], these.row_max);
            these.total += weight, these.sum = fma(weight, part[i], these.sum);
        }
        merged = merge_two(&merged, &these);
    }
    return merged;
}

static inline void store_merged(const attention_params *p, const split_softmax *merged, long b, long h,
                                long query, int first) {
    const float4 v = merged->total == 0 ? (float4)(0) : merged->sum / merged->total;
    PUT(p->out, b, h, query, first, v.x);
    if (first + 1 < p->value_depth) PUT(p->out, b, h, query, first + 1, v.y);
    if (first + 2 < p->value_depth) PUT(p->out, b, h, query, first + 2, v.z);
    if (first + 3 < p->value_depth) PUT(p->out, b, h, query, first + 3, v.w);
    if (first == 0 && p->logsumexp.data) *logsumexp_at(p, b, h, query) = merged->row_max + log(merged->total);
}

#ifdef FINISH
__kernel
    __attribute__((reqd_work_group_size(64, 1, 1))) void attention_matrix_merge(const attention_params p) {
    const long row = XPU_GROUP(0), query = row % p.queries, h = row / p.queries % p.heads,
               b = row / p.queries / p.heads;
    for (int i = (int)get_local_id(0) * 4; i < p.value_depth; i += 256) {
        const split_softmax merged = merge_splits(&p, b, h, query, i, 0, 1);
        store_merged(&p, &merged, b, h, query, i);
    }
}
#endif
