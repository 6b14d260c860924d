/* What attention.cl and attention_matrix.cl share: elements of tensors, scores, and what dropout keeps. After
 * gemm_tile.h; -DT, -DBIAS_T and -DBIAS_IS_MASK, -DDROPOUT as in attention.cl. */
#include "random.h"

#define AT(m, b, h, row, i)                                                                                  \
    FETCH((m).data, (b) * (m).stride[0] + (h) * (m).stride[1] + (row) * (m).stride[2] + (i) * (m).stride[3])
#define PUT(m, b, h, row, i, v)                                                                              \
    KEEP((m).data, (b) * (m).stride[0] + (h) * (m).stride[1] + (row) * (m).stride[2] + (i) * (m).stride[3], v)

/* The score of (query, key) after scaling, bias and masks; -INFINITY outside. */
static inline float score(const attention_params *p, long b, long h, long query, long key, float product) {
    if (query >= p->queries || key >= p->keys || (p->causal && key > query)) return -INFINITY;
    float s = product * p->scale;
#ifdef BIAS_T
    const long at =
        b * p->bias.stride[0] + h * p->bias.stride[1] + query * p->bias.stride[2] + key * p->bias.stride[3];
#if BIAS_IS_MASK
    if (!LOAD(BIAS_T, XPU_CPTR(STORED(BIAS_T), p->bias.data), at)) return -INFINITY;
#else
    s += LOAD(BIAS_T, XPU_CPTR(STORED(BIAS_T), p->bias.data), at);
#endif
#endif
    return s;
}

/* 0, or 1 / (1 - dropout): what dropout (random.cl) makes of the probabilities as a tensor. */
static inline float kept(const attention_params *p, long b, long h, long query, long key) {
#if DROPOUT
    const ulong row = (ulong)((b * p->heads + h) * p->queries + query);
    const uint bits = random_word(p->seed, row * (ulong)p->keys + (ulong)key, p->offset / 4);
    return xpu_uniform_open1(bits) < p->keep ? p->keep_scale : 0.0f;
#else
    return 1.0f;
#endif
}
