/* xpu/ops/attention.h: fused scaled dot-product attention. The score matrix is never stored.
 *
 *     S = scale * Q K^T + bias;  P = softmax(S);  out = dropout(P) V;  logsumexp = log(sum(exp(S)))
 *
 * Shapes:
 *     query      [B, H, L, D]
 *     key        [B, Hkv, S, D]
 *     value      [B, Hkv, S, Dv]
 *     out        [B, H, L, Dv]
 *     logsumexp  [B, H, L]
 * Dtypes: one of fp16, bf16, fp32; logsumexp is fp32.
 * H is a multiple of Hkv: query head h uses key head h / (H / Hkv). */
#ifndef XPU_OPS_ATTENTION_H
#define XPU_OPS_ATTENTION_H

#include "xpu/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Arguments. All tensors have 4 dimensions, logsumexp 3.
 *
 * bias: B x H x L x S or NULL; strides of 0 broadcast. With dtype bool it is a mask: true takes part. A row
 *     in which nothing takes part gives zeros and a logsumexp of -infinity.
 * causal: query i sees keys 0 to i.
 * dropout: an element is kept if its random number is at least `dropout`, and then divided by 1 - dropout.
 *     Numbers come from Philox with `seed`, `offset` and the element's position. Backward draws them again.
 *
 * Packed sequences (`sequences` > 0): the batch is 1, and rows of all sequences follow each other.
 * query_starts, key_starts: int32 in device memory, sequences + 1 each. Sequence b has the queries from
 *     query_starts[b] to before query_starts[b + 1], and its keys likewise. Starts that don't ascend or are
 *     out of range are a fault (xpu/fault.h).
 * max_queries, max_keys: the length of the longest sequence.
 * bias: NULL.
 *
 * Sliding window (`window`): query i sees keys i - left to i + right; a negative bound is unlimited.
 *     `causal` sets `right` to 0. With packed sequences or a window, the last query is aligned with the last
 *     key. */
typedef struct xpu_attention {
    const xpu_tensor *query, *key, *value, *bias, *out, *logsumexp;
    double scale;
    bool causal;
    double dropout;
    uint64_t seed, offset;
    int64_t sequences; /* 0: each batch item is one sequence */
    const int32_t *query_starts, *key_starts;
    int64_t max_queries, max_keys;
    bool window;
    int64_t left, right;
} xpu_attention;

/* Writes `out` and, unless NULL, `logsumexp`. */
XPU_API xpu_status xpu_attention_forward(xpu_stream *stream, const xpu_attention *args);

/* Gradients.
 *
 * query, key, value: shapes as in xpu_attention. `query` may be NULL; `key` and `value` may both be NULL.
 * bias: may be NULL. Has the dtype of the forward bias, which is not bool, and 4 dimensions. A dimension
 *     over which the bias is broadcast has size 1: its gradient is summed. */
typedef struct xpu_attention_grad {
    const xpu_tensor *out;                        /* input: the gradient of `out` */
    const xpu_tensor *query, *key, *value, *bias; /* outputs */
} xpu_attention_grad;

/* Requires the `out` and `logsumexp` that xpu_attention_forward wrote. */
XPU_API xpu_status xpu_attention_backward(xpu_stream *stream, const xpu_attention *args,
                                          const xpu_attention_grad *grad);

/* Splits a fused QKV projection into heads:
 *
 *     query[b][h][t] = (projected[row][0][h] + bias[0][h]) * scale
 *
 * key and value are taken from index 1 and 2 in the same way, without `scale`.
 *
 * projected: rows x 3 x H x D. bias: 3 x H x D. query, key, value: B x H x T x D. All contiguous, one
 * floating
 *     dtype.
 * offset: int64 in device memory, B + 1, or NULL. Item b has rows offset[b] to offset[b + 1] - 1; the rest
 *     of its T positions are zero. NULL: item b has rows b T to (b + 1) T - 1. */
typedef struct xpu_split_heads_args {
    const void *projected, *bias;
    const int64_t *offset; /* or NULL */
    void *query, *key, *value;
    xpu_dtype dtype;
    int64_t batch, heads, length, depth;
    double scale;
} xpu_split_heads_args;
XPU_API xpu_status xpu_split_heads(xpu_stream *stream, const xpu_split_heads_args *args);

#ifdef __cplusplus
}
#endif
#endif
