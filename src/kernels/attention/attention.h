/* Parameters of the attention kernels. Strides count elements: batch, head, row, element. */
#ifndef XPU_KERNELS_ATTENTION_H
#define XPU_KERNELS_ATTENTION_H
#include "fault.h"

typedef struct attention_matrix {
    xpu_addr data;
    xpu_i64 stride[4];
} attention_matrix;

#define MAX_MERGED_SPLITS 32 /* at most, by the work-group that comes last */
#define PARTIAL_PITCH(value_depth) (((value_depth) + 3) / 4 * 4)

typedef struct attention_params {
    attention_matrix query, key, value, bias, out, logsumexp; /* logsumexp: 3 strides */
    attention_matrix grad_out, grad_query, grad_key, grad_value, grad_bias;
    xpu_i64 bias_size[4]; /* of grad_bias: 1 in the dimensions that it is summed over */
    xpu_addr delta; /* fp32 [batch][head][query]: sum of grad_out * out (delta), with strides delta_stride */
    xpu_i64 delta_stride[2];
    /* With BANDED: int32 [batch + 1], the first row of each packed sequence, or 0 for a sliding window; then
     * `queries` and `keys` are those of the longest sequence. Query i attends to keys i + shift - left to i +
     * shift + right; the kernel computes shift = keys - queries. */
    xpu_addr query_starts, key_starts;
    xpu_i64 all_queries, all_keys; /* rows of all sequences */
    struct fault_watch bad_starts; /* that don't ascend, or are beyond those */
    xpu_i64 left, right, shift;
    xpu_i64 row_queries, row_keys; /* rows and columns of the scores, for dropout's random numbers */
    /* Split-KV (attention_ptx.cl): fp32 partial results [slice][batch][head][query]([element]) of `slices`
     * slices of `slice` keys, elements with pitch PARTIAL_PITCH. `packed`: heads whose queries are rows of
     * one matrix. attention_host.cl: a work-group has `slice` of these rows. attention_grad_bias: fp32
     * [slice] and grad_bias, slices of `slice` tiles. */
    xpu_addr partial, partial_sums;
    xpu_addr counters; /* uint32 [work-groups per slice], initially 0: number of finished slices */
    xpu_i64 slices, slice, packed;
    xpu_i64 batch, heads, key_heads;
    xpu_i64 queries, keys;
    xpu_u64 seed, counter; /* counter: the generator's offset / 4 */
    xpu_i32 depth, value_depth, causal;
    float scale, keep, keep_scale; /* keep = 1 - dropout, keep_scale = 1 / keep */
} attention_params;

/* Parameters of heads.cl. */
struct heads_params {
    xpu_addr projected, bias, offset; /* offset: 0 if all items have `length` rows */
    xpu_addr out[3];                  /* query, key, value */
    xpu_i64 rows, length, heads, depth;
    xpu_u64 scale64; /* bits of a double, for fp64 */
    float scale;
    xpu_i32 unused;
};
#endif
