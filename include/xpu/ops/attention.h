/* xpu/ops/attention.h: scaled dot-product attention that never stores the matrix of scores.
 *
 *     S = scale * Q K^T + bias;  P = softmax(S);  out = dropout(P) V;  logsumexp = log(sum(exp(S)))
 *
 * Shapes: query B x H x L x D, key B x Hkv x S x D, value B x Hkv x S x Dv, out B x H x L x Dv in one
 * floating dtype, fp64 excepted; logsumexp B x H x L in fp32. H is a multiple of Hkv: query head h reads
 * key head h / (H / Hkv). D and Dv are at most XPU_ATTENTION_MAX_HEAD. */
#ifndef XPU_OPS_ATTENTION_H
#define XPU_OPS_ATTENTION_H

#include "xpu/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define XPU_ATTENTION_MAX_HEAD 256

/* All tensors have 4 dimensions, logsumexp 3. `bias` is B x H x L x S or NULL; its strides may be 0. Of
 * dtype bool it is a mask: true takes part. A row in which nothing takes part gives zeros and a
 * logsumexp of -infinity. `causal` lets query i see keys 0 … i.
 * Dropout keeps an element when its random number, drawn from Philox by seed, offset and place, is at
 * least `dropout`, and divides it by 1 - dropout; backward draws the same numbers again. */
typedef struct xpu_attention {
    const xpu_tensor *query, *key, *value, *bias, *out, *logsumexp;
    double scale;
    bool causal;
    double dropout;
    uint64_t seed, offset;
} xpu_attention;

/* Writes `out` and, unless NULL, `logsumexp`. */
XPU_API xpu_status xpu_attention_forward(xpu_stream *stream, const xpu_attention *args);

/* Gradients; `query`, `key` and `value` shaped like those of xpu_attention. */
typedef struct xpu_attention_grad {
    const xpu_tensor *out;                 /* the gradient that comes in */
    const xpu_tensor *query, *key, *value; /* those that go out */
} xpu_attention_grad;

/* Needs what forward wrote: `out` and `logsumexp`. */
XPU_API xpu_status xpu_attention_backward(xpu_stream *stream, const xpu_attention *args,
                                          const xpu_attention_grad *grad);

#ifdef __cplusplus
}
#endif
#endif
