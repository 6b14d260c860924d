/* xpu/ops/attention.h: scaled dot-product attention that never stores the matrix of scores.
 *
 *     S = scale * Q K^T + bias;  P = softmax(S);  out = dropout(P) V;  logsumexp = log(sum(exp(S)))
 *
 * Shapes: query B x H x L x D, key B x Hkv x S x D, value B x Hkv x S x Dv, out B x H x L x Dv in one
 * floating dtype, fp64 excepted; logsumexp B x H x L in fp32. H is a multiple of Hkv: query head h reads
 * key head h / (H / Hkv). */
#ifndef XPU_OPS_ATTENTION_H
#define XPU_OPS_ATTENTION_H

#include "xpu/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All tensors have 4 dimensions, logsumexp 3. `bias` is B x H x L x S or NULL; its strides may be 0. Of
 * dtype bool it is a mask: true takes part. A row in which nothing takes part gives zeros and a
 * logsumexp of -infinity. `causal` lets query i see keys 0 … i.
 * Dropout keeps an element when its random number, drawn from Philox by seed, offset and place, is at
 * least `dropout`, and divides it by 1 - dropout; backward draws the same numbers again.
 *
 * With `sequences` the tensors have a batch of 1 and the rows of so many sequences one after the other:
 * sequence b has queries query_starts[b] to before query_starts[b + 1], and its keys alike, both int32 in
 * device memory; none has more than max_queries and max_keys. There is no bias then. With `window` query i
 * looks at keys i - left to i + right only, unlimited where one is negative, and `causal` makes right 0; with
 * sequences or a window i counts from where the last query meets the last key. */
typedef struct xpu_attention {
    const xpu_tensor *query, *key, *value, *bias, *out, *logsumexp;
    double scale;
    bool causal;
    double dropout;
    uint64_t seed, offset;
    int64_t sequences; /* 0: one an item of the batch */
    const int32_t *query_starts, *key_starts;
    int64_t max_queries, max_keys;
    bool window;
    int64_t left, right;
} xpu_attention;

/* Writes `out` and, unless NULL, `logsumexp`. */
XPU_API xpu_status xpu_attention_forward(xpu_stream *stream, const xpu_attention *args);

/* Gradients; `query`, `key` and `value` shaped like those of xpu_attention. `query` may be NULL, `key` and
 * `value` both, and `bias`. That has the bias' dtype, which is no bool, and 4 dimensions of the scores'
 * sizes, or of 1 where the bias is the same for all: its elements are sums then. */
typedef struct xpu_attention_grad {
    const xpu_tensor *out;                        /* the gradient that comes in */
    const xpu_tensor *query, *key, *value, *bias; /* those that go out */
} xpu_attention_grad;

/* Needs what forward wrote: `out` and `logsumexp`. */
XPU_API xpu_status xpu_attention_backward(xpu_stream *stream, const xpu_attention *args,
                                          const xpu_attention_grad *grad);

/* The projection of a layer's input, split into heads:
 *
 *     query[b][h][t] = (projected[row][0][h] + bias[0][h]) * scale,  key and value alike from 1 and 2,
 * unscaled
 *
 * projected: rows x 3 x H x D, bias: 3 x H x D; query, key, value: B x H x T x D; all without gaps and of one
 * floating dtype. Item b has the rows offset[b] … offset[b + 1] - 1, int64 in device memory, and zeros in
 * place of the others; without offsets rows b T … (b + 1) T - 1. */
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
