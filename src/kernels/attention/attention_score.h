/* Shared by the attention kernels: elements of tensors, scores, and the dropout mask. Include after
 * gemm_tile.h.
 * Options: T, BIAS_T, BIAS_IS_MASK, DROPOUT, BANDED as in attention.cl. */
#include "random.h"

#define AT(m, b, h, row, i)                                                                                  \
    FETCH((m).data, (b) * (m).stride[0] + (h) * (m).stride[1] + (row) * (m).stride[2] + (i) * (m).stride[3])
#define PUT(m, b, h, row, i, v)                                                                              \
    KEEP((m).data, (b) * (m).stride[0] + (h) * (m).stride[1] + (row) * (m).stride[2] + (i) * (m).stride[3], v)

/* Where a query's logarithm of the sum of exponentials lies, and its sum of grad_out * out. */
static inline __global float *logsumexp_at(const attention_params *p, long b, long h, long query) {
    const attention_matrix *m = &p->logsumexp;
    return XPU_PTR(float, m->data) + b * m->stride[0] + h * m->stride[1] + query * m->stride[2];
}
static inline __global float *delta_at(const attention_params *p, long b, long h, long query) {
    return XPU_PTR(float, p->delta) + b * p->delta_stride[0] + h * p->delta_stride[1] + query;
}

/* Keys that a query looks at, from first_key_of to before end_key_of, and queries that look at a key. */
#if BANDED
#define LIMITED(p) true
static inline long first_key_of(const attention_params *p, long query) {
    return max(0L, query + p->shift - p->left);
}
static inline long end_key_of(const attention_params *p, long query) {
    return clamp(query + p->shift + p->right + 1, 0L, p->keys);
}
static inline long first_query_of(const attention_params *p, long key) {
    return max(0L, key - p->shift - p->right);
}
static inline long end_query_of(const attention_params *p, long key) {
    return clamp(key - p->shift + p->left + 1, 0L, p->queries);
}

/* The rows of sequence b, from x to before y, within the `rows` that there are; reported if they had to be
 * moved. */
static inline long2 rows_of_sequence(const attention_params *p, xpu_addr starts, long b, long rows) {
    const long begin = XPU_CPTR(int, starts)[b], end = XPU_CPTR(int, starts)[b + 1];
    const long from = clamp(begin, 0L, rows), to = clamp(end, from, rows);
    if (from != begin || to != end) fault_report(p->bad_starts, FAULT_TEXT, 0, 0);
    return (long2)(from, to);
}

/* What a kernel is told, for its sequence: the kernel's own parameter is GIVEN, and SEQUENCE(b) declares p.
 */
static inline attention_params of_sequence(const attention_params *given, long b) {
    attention_params p = *given;
    long query = 0, key = 0;
    if (p.query_starts) {
        const long2 queries = rows_of_sequence(&p, p.query_starts, b, p.all_queries);
        const long2 keys = rows_of_sequence(&p, p.key_starts, b, p.all_keys);
        query = queries.x, p.queries = queries.y - query;
        key = keys.x, p.keys = keys.y - key;
    }
    attention_matrix *const by_query[] = {&p.query, &p.out, &p.grad_out, &p.grad_query};
    attention_matrix *const by_key[] = {&p.key, &p.value, &p.grad_key, &p.grad_value};
    for (int i = 0; i < 4; i++) {
        by_query[i]->data += query * by_query[i]->stride[2] * sizeof(STORED(T));
        by_key[i]->data += key * by_key[i]->stride[2] * sizeof(STORED(T));
    }
    if (p.logsumexp.data) p.logsumexp.data += query * p.logsumexp.stride[2] * sizeof(float);
    p.delta += query * sizeof(float);
    p.shift = p.keys - p.queries; /* the band ends at the bottom right */
    return p;
}
#define GIVEN given
#define SEQUENCE(b) const attention_params p = of_sequence(&given, b);
#define ROW_QUERIES(p) (p)->row_queries
#define ROW_KEYS(p) (p)->row_keys
#else
#define LIMITED(p) ((p).causal)
static inline long first_key_of(const attention_params *p, long query) { return 0; }
static inline long end_key_of(const attention_params *p, long query) {
    return p->causal ? min(p->keys, query + 1) : p->keys;
}
static inline long first_query_of(const attention_params *p, long key) { return p->causal ? key : 0; }
static inline long end_query_of(const attention_params *p, long key) { return p->queries; }
#define GIVEN p
#define SEQUENCE(b)
#define ROW_QUERIES(p) (p)->queries
#define ROW_KEYS(p) (p)->keys
#endif

/* A band of the scores: row row0 + r of queries looks at keys from `lower` + r to before `upper` + r. */
typedef struct band {
    int lower, upper;
} band;
static inline int in_bounds(long v) { return (int)clamp(v, -(1L << 30), 1L << 30); }
static inline band band_of(const attention_params *p, int row0) {
#if BANDED
    const band found = {in_bounds(row0 + p->shift - p->left), in_bounds(row0 + p->shift + p->right + 1)};
#else
    const band found = {0, row0 + 1};
#endif
    return found;
}

/* What number i of a row of the bias, or mask, adds. */
#if BIAS_IS_MASK
#define BIAS_NUMBER(row, i) (LOAD(BIAS_T, XPU_CPTR(STORED(BIAS_T), row), i) ? 0.0f : -INFINITY)
#else
#define BIAS_NUMBER(row, i) ((float)LOAD(BIAS_T, XPU_CPTR(STORED(BIAS_T), row), i))
#endif

/* What is added to the score of (query, key): -INFINITY outside and where a mask says so. */
static inline float bias_at(const attention_params *p, long b, long h, long query, long key) {
    if (query >= p->queries || key < first_key_of(p, query) || key >= end_key_of(p, query)) return -INFINITY;
#ifdef BIAS_T
    const long at =
        b * p->bias.stride[0] + h * p->bias.stride[1] + query * p->bias.stride[2] + key * p->bias.stride[3];
    return BIAS_NUMBER(p->bias.data, at);
#else
    return 0;
#endif
}
/* Score after scaling, bias and masks. */
static inline float biased(const attention_params *p, float product, float bias) {
    return bias == -INFINITY ? -INFINITY : product * p->scale + bias;
}
static inline float score(const attention_params *p, long b, long h, long query, long key, float product) {
    return biased(p, product, bias_at(p, b, h, query, key));
}

/* 0, or 1 / (1 - dropout): what dropout (random.cl) makes of the probabilities as a tensor. */
#if DROPOUT
static inline ulong kept_row(const attention_params *p, long b, long h, long query) {
    return (ulong)((b * p->heads + h) * ROW_QUERIES(p) + query) * (ulong)ROW_KEYS(p);
}
static inline float kept_at(const attention_params *p, ulong row, long key) {
    const uint bits = random_word(p->seed, row + (ulong)key, p->counter);
    return xpu_uniform_open1(bits) < p->keep ? p->keep_scale : 0.0f;
}
/* The same of `rows` rows, 32 at most, and `width` columns: bit r of bits[j] tells whether number first + r *
 * down + j * across is kept. The rows are a loop: written out, these instructions would be more than all
 * others together, and want registers beside those of the scores. */
static inline void load_dropout_mask(const attention_params *p, ulong first, ulong down, ulong across,
                                     const int rows, const int width, __private uint *bits) {
    for (int j = 0; j < width; j++) bits[j] = 0;
    __attribute__((opencl_unroll_hint(1))) for (int r = 0; r < rows; r++, first += down)
        for (int j = 0; j < width; j++) {
            const uint word = random_word(p->seed, first + (ulong)j * across, p->counter);
            bits[j] |= (uint)(xpu_uniform_open1(word) < p->keep) << r;
        }
}
#endif
static inline float kept(const attention_params *p, long b, long h, long query, long key) {
#if DROPOUT
    return kept_at(p, kept_row(p, b, h, query), key);
#else
    return 1.0f;
#endif
}
