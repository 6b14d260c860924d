/* Attention on matrix engines, forward and backward, against float64: all remainders, any head size, grouped
 * queries, masks, biases and their gradients, layouts and alignments. On devices without a matrix engine its
 * instructions are emulated in OpenCL C.
 *
 *     test_attention [problems [seed [every]]]    random problems, and one in `every` of those below
 *
 * OPENXPU_MATRIX=xmx, xmx8 selects XMX with SIMD16, SIMD8 instead of NVIDIA tensor cores; fma selects none.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdlib.h>

#include "units_test.h"
#include "xpu/ops/attention.h"
#include "xpu/tuning.h"

static int by_units; /* launches of kernels on a matrix engine */
static int joins;    /* … of those that merge KV splits */
static int by_host;  /* … of the CPU kernel */

static size_t most_local; /* local memory per work-group of kernels on a matrix engine */
static size_t host_local; /* … of the last launch of the CPU kernel */

static size_t local_of(xpu_kernel *kernel) {
    xpu_kernel_info info;
    SUCCEEDS(xpu_kernel_get_info(kernel, &info));
    return info.local_mem_size;
}
static void count_launch(const xpu_work *work, xpu_trace_point point, xpu_status status, void *unused) {
    if (point != XPU_TRACE_BEGIN) return;
    const bool is_join = strstr(work->name, "attention_matrix_merge");
    joins += is_join;
    if (strstr(work->name, "attention_matrix") && !is_join) {
        const size_t local = local_of(work->kernel);
        by_units++, most_local = local > most_local ? local : most_local;
    }
    if (strstr(work->name, "attention_host")) by_host++, host_local = local_of(work->kernel);
}

typedef enum bias { BIAS_NONE, BIAS_MASK, BIAS_NUMBERS, BIAS_KINDS } bias;

typedef struct problem {
    xpu_dtype dtype;
    int64_t batch, heads, key_heads, queries, keys, depth, value_depth;
    bool causal, by_sequence; /* B x L x H x D in memory */
    int align;                /* elements, of rows */
    bias bias;
    unsigned alike; /* dimensions, by their bits, in which the bias is the same for all */
    double scale;
    int slices;    /* 0: as it comes */
    int sequences; /* packed sequences of up to `queries` and `keys` rows, instead of a batch */
    bool window;
    int left, right;
    int32_t query_starts[8], key_starts[8];
    double dropout;
} problem;

/* Where item b of the batch, or sequence b, begins in the tensors, and how many rows it has. */
typedef struct item {
    int64_t batch, query, key, queries, keys;
} item;
static item item_of(const problem *p, int64_t b) {
    if (!p->sequences) return (item){b, 0, 0, p->queries, p->keys};
    return (item){0, p->query_starts[b], p->key_starts[b], p->query_starts[b + 1] - p->query_starts[b],
                  p->key_starts[b + 1] - p->key_starts[b]};
}
static int64_t all_queries(const problem *p) {
    return p->sequences ? p->query_starts[p->sequences] : p->queries;
}
static int64_t all_keys(const problem *p) { return p->sequences ? p->key_starts[p->sequences] : p->keys; }
/* Does query i look at key j? */
static bool looks_at(const problem *p, const item *it, int64_t i, int64_t j) {
    if (!p->sequences && !p->window) return !p->causal || j <= i;
    i += it->keys - it->queries;
    if (p->window && p->left >= 0 && j < i - p->left) return false;
    if (p->window && p->right >= 0 && j > i + p->right) return false;
    return !p->causal || j <= i;
}

/* Dropout's factor for score number n: 10 rounds of Philox (Salmon et al., 2011). Each of the four words
 * serves one of four scores that are 256 apart. */
enum { SEED = 77, OFFSET = 12 };
static double kept(const problem *p, uint64_t n) {
    if (p->dropout <= 0) return 1;
    const uint64_t place = n / 1024 * 256 + n % 256;
    uint32_t c[4] = {OFFSET / 4, 0, (uint32_t)place, (uint32_t)(place >> 32)}, k[2] = {SEED, 0};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53 * c[0], b = (uint64_t)0xCD9E8D57 * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k[0], c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k[1], c[3] = (uint32_t)a;
        k[0] += 0x9E3779B9, k[1] += 0xBB67AE85;
    }
    const float number = (float)(c[n % 1024 / 256] >> 8) * 0x1p-24F;
    return number < (float)(1 - p->dropout) ? 1 / (1 - p->dropout) : 0;
}

/* Sizes of the bias, its elements, and the one for a score. */
static int64_t bias_size(const problem *p, int d) {
    const int64_t size[4] = {p->batch, p->heads, p->queries, p->keys};
    return p->alike >> d & 1 ? 1 : size[d];
}
static int64_t bias_count(const problem *p) {
    int64_t count = 1;
    for (int d = 0; d < 4; d++) count *= bias_size(p, d);
    return count;
}
static int64_t bias_place(const problem *p, int64_t b, int64_t h, int64_t i, int64_t j) {
    const int64_t at[4] = {b, h, i, j};
    int64_t n = 0;
    for (int d = 0; d < 4; d++) n = n * bias_size(p, d) + (p->alike >> d & 1 ? 0 : at[d]);
    return n;
}

/* A tensor on the host, in float64 and as it is stored, and on the device. */
typedef struct memory {
    int64_t size[4], stride[4];
    double *value;
    void *stored; /* of all of the device's memory */
    void *device;
    size_t count;
    int64_t offset;
    xpu_tensor tensor;
} memory;

static void make(memory *x, const problem *p, int64_t heads, int64_t length, int64_t depth) {
    const int64_t row = (depth + p->align - 1) / p->align * p->align + p->align * pick(0, 1);
    const int64_t offset = p->align * pick(0, 2);
    const int64_t size[4] = {p->batch, heads, length, depth};
    const int64_t stride[4] = {row * heads * length, p->by_sequence ? row : row * length,
                               p->by_sequence ? row * heads : row, 1};
    memcpy(x->size, size, sizeof size), memcpy(x->stride, stride, sizeof stride);
    const size_t bytes = xpu_dtype_size(p->dtype);
    x->offset = offset, x->count = (size_t)(p->batch * heads * length * row + offset + 1);
    x->value = malloc(x->count * sizeof *x->value);
    x->stored = malloc(x->count * bytes);
    for (size_t i = 0; i < x->count; i++) {
        const double v =
            p->dtype == XPU_FLOAT32 ? (double)pick(-1000000, 1000000) / 1e6 : (double)pick(-16, 16) / 16;
        put_number(p->dtype, x->stored, (int64_t)i, v);
        x->value[i] = get_number(p->dtype, x->stored, (int64_t)i);
    }
    SUCCEEDS(xpu_malloc(stream, x->count * bytes, &x->device));
    SUCCEEDS(xpu_memcpy(stream, x->device, x->stored, x->count * bytes, true));
    x->tensor = (xpu_tensor){(char *)x->device + (size_t)offset * bytes, p->dtype, 4, x->size, x->stride};
}

static double *at(const memory *x, int64_t b, int64_t h, int64_t row, int64_t i) {
    return x->value + x->offset + b * x->stride[0] + h * x->stride[1] + row * x->stride[2] + i;
}

static void drop(memory *x) {
    free(x->value), free(x->stored);
    SUCCEEDS(xpu_free(x->device));
}

/* The device's `got` equals `want` up to `slack`, and bytes between rows are unchanged. */
static void compare(const problem *p, const char *name, const memory *got, const double *want,
                    const double *slack) {
    const size_t bytes = got->count * xpu_dtype_size(p->dtype);
    void *is = malloc(bytes);
    SUCCEEDS(xpu_memcpy(stream, is, got->device, bytes, true));
    for (int64_t b = 0, n = 0; b < got->size[0]; b++)
        for (int64_t h = 0; h < got->size[1]; h++)
            for (int64_t row = 0; row < got->size[2]; row++)
                for (int64_t i = 0; i < got->size[3]; i++, n++) {
                    const int64_t place = at(got, b, h, row, i) - got->value;
                    const double v = get_number(p->dtype, is, place);
                    if (!(fabs(v - want[n]) <= slack[n]))
                        fail_msg(
                            "%s of %s, batch %lld, heads %lld of %lld, %lld queries, %lld keys, depths %lld "
                            "and %lld, causal %d, bias %d, slices %d, dropout %g: %g at %lld %lld %lld %lld, "
                            "not %g +- %g",
                            name, xpu_dtype_name(p->dtype), (long long)p->batch, (long long)p->heads,
                            (long long)p->key_heads, (long long)p->queries, (long long)p->keys,
                            (long long)p->depth, (long long)p->value_depth, p->causal, p->bias, p->slices,
                            p->dropout, v, (long long)b, (long long)h, (long long)row, (long long)i, want[n],
                            slack[n]);
                    put_number(p->dtype, is, place, got->value[place]);
                }
    assert_memory_equal(is, got->stored, bytes);
    free(is);
}

/* Results in float64, and how far roundings may take one from them: scores to half precision, 2^-9 of each
 * (2^-12 for fp16), which sums pass on, and the result's own. */
typedef struct results {
    double *out, *query, *key, *value, *slack_out, *slack_query, *slack_key, *slack_value;
    double *bias, *slack_bias;
} results;

static void by_definition(const problem *p, const memory *q, const memory *k, const memory *v,
                          const memory *grad, const double *bias, results *r) {
    const double unit = ldexp(1, p->dtype == XPU_FLOAT32 ? -16 : p->dtype == XPU_FLOAT16 ? -11 : -8);
    double *s = calloc((size_t)all_keys(p) + 1, sizeof *s), *dp = calloc((size_t)all_keys(p) + 1, sizeof *dp);
    double *more = calloc((size_t)all_keys(p) + 1, sizeof *more);
    double *keep = calloc((size_t)all_keys(p) + 1, sizeof *keep);
    const int64_t wide = all_keys(p);
    for (int64_t n = 0; n < (p->sequences ? p->sequences : p->batch); n++) {
        const item it = item_of(p, n);
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = it.query; i < it.query + it.queries; i++) {
                const int64_t b = it.batch, kh = h / (p->heads / p->key_heads);
                const int64_t row = (b * p->heads + h) * all_queries(p) + i;
                double top = -INFINITY, total = 0, delta = 0, slack = 0;
                for (int64_t j = it.key; j < it.key + it.keys; j++) {
                    s[j] = 0;
                    for (int64_t d = 0; d < p->depth; d++) s[j] += *at(q, b, h, i, d) * *at(k, b, kh, j, d);
                    s[j] = s[j] * p->scale + (bias ? bias[bias_place(p, b, h, i, j)] : 0);
                    if (!looks_at(p, &it, i - it.query, j - it.key)) s[j] = -INFINITY;
                    if (s[j] > top) top = s[j];
                    const int64_t score = (n * p->heads + h) * p->queries + i - it.query;
                    keep[j] = kept(p, (uint64_t)(score * p->keys + j - it.key));
                }
                for (int64_t j = it.key; j < it.key + it.keys; j++) {
                    s[j] = top == -INFINITY ? 0 : exp(s[j] - top);
                    total += s[j];
                }
                for (int64_t j = it.key; j < it.key + it.keys; j++) s[j] = total == 0 ? 0 : s[j] / total;
                for (int64_t d = 0; d < p->value_depth; d++) {
                    double sum = 0, all = 0;
                    for (int64_t j = it.key; j < it.key + it.keys; j++) {
                        sum += s[j] * keep[j] * *at(v, b, kh, j, d);
                        all += s[j] * keep[j] * fabs(*at(v, b, kh, j, d));
                    }
                    r->out[row * p->value_depth + d] = sum;
                    r->slack_out[row * p->value_depth + d] = (all + fabs(sum)) * unit + 1e-5;
                    delta += sum * *at(grad, b, h, i, d);
                    slack += ((all + fabs(sum)) * unit + 1e-5) * fabs(*at(grad, b, h, i, d));
                }
                for (int64_t j = it.key; j < it.key + it.keys; j++) {
                    dp[j] = 0;
                    for (int64_t d = 0; d < p->value_depth; d++)
                        dp[j] += *at(grad, b, h, i, d) * *at(v, b, kh, j, d);
                    dp[j] = s[j] * (dp[j] * keep[j] - delta);
                    more[j] = s[j] * (slack + 1e-5) + fabs(dp[j]) * unit; /* of dS */
                    if (!bias) continue;
                    r->bias[bias_place(p, b, h, i, j)] += dp[j];
                    r->slack_bias[bias_place(p, b, h, i, j)] += more[j];
                }
                for (int64_t d = 0; d < p->depth; d++) {
                    double sum = 0, off = 0;
                    for (int64_t j = it.key; j < it.key + it.keys; j++) {
                        const int64_t n = ((b * p->key_heads + kh) * wide + j) * p->depth + d;
                        sum += dp[j] * *at(k, b, kh, j, d);
                        off += more[j] * fabs(*at(k, b, kh, j, d));
                        r->key[n] += p->scale * dp[j] * *at(q, b, h, i, d);
                        r->slack_key[n] += fabs(p->scale * *at(q, b, h, i, d)) * more[j];
                    }
                    r->query[row * p->depth + d] = p->scale * sum;
                    r->slack_query[row * p->depth + d] = fabs(p->scale) * (off + fabs(sum) * unit) + 1e-5;
                }
                for (int64_t j = it.key; j < it.key + it.keys; j++)
                    for (int64_t d = 0; d < p->value_depth; d++) {
                        const int64_t n = ((b * p->key_heads + kh) * wide + j) * p->value_depth + d;
                        r->value[n] += s[j] * keep[j] * *at(grad, b, h, i, d);
                        r->slack_value[n] += s[j] * keep[j] * fabs(*at(grad, b, h, i, d)) * unit;
                    }
            }
    }
    for (int64_t n = 0; bias && n < bias_count(p); n++) r->slack_bias[n] += 1e-5;
    const int64_t keys = p->batch * p->key_heads * wide;
    for (int64_t n = 0; n < keys * p->depth; n++) r->slack_key[n] += fabs(r->key[n]) * unit + 1e-5;
    for (int64_t n = 0; n < keys * p->value_depth; n++) r->slack_value[n] += fabs(r->value[n]) * unit + 1e-5;
    free(s), free(dp), free(more), free(keep);
}

static void try_problem(const problem *p) {
    SUCCEEDS(xpu_tuning_set(0, xpu_tuning_index("attention_split_kv"), p->slices ? p->slices : 1 << 20));
    memory q, k, v, out, grad, dq, dk, dv;
    const int64_t rows_q = all_queries(p), rows_k = all_keys(p);
    make(&q, p, p->heads, rows_q, p->depth), make(&k, p, p->key_heads, rows_k, p->depth);
    make(&v, p, p->key_heads, rows_k, p->value_depth), make(&out, p, p->heads, rows_q, p->value_depth);
    make(&grad, p, p->heads, rows_q, p->value_depth), make(&dq, p, p->heads, rows_q, p->depth);
    make(&dk, p, p->key_heads, rows_k, p->depth), make(&dv, p, p->key_heads, rows_k, p->value_depth);
    void *starts;
    SUCCEEDS(xpu_malloc(stream, sizeof p->query_starts * 2, &starts));
    SUCCEEDS(xpu_memcpy(stream, starts, p->query_starts, sizeof p->query_starts, true));
    SUCCEEDS(xpu_memcpy(stream, (int32_t *)starts + 8, p->key_starts, sizeof p->key_starts, true));

    /* A bias: fp32 values, or a mask of bytes. */
    const size_t pairs = p->bias ? (size_t)bias_count(p) : 0;
    double *bias = p->bias ? malloc((pairs + 1) * sizeof *bias) : NULL;
    float *numbers = malloc((pairs + 1) * sizeof *numbers);
    for (size_t i = 0; i < pairs && bias; i++) {
        const bool in = pick(0, 3) > 0;
        if (p->bias == BIAS_MASK)
            ((uint8_t *)numbers)[i] = in;
        else
            numbers[i] = pick(0, 9) ? (float)pick(-8, 8) / 4 : -INFINITY;
        bias[i] = p->bias == BIAS_MASK ? (in ? 0 : -INFINITY) : (double)numbers[i];
    }
    void *bias_data, *bias_grad, *sums;
    SUCCEEDS(xpu_malloc(stream, (pairs + 1) * 4, &bias_data));
    SUCCEEDS(xpu_malloc(stream, (pairs + 1) * 4, &bias_grad));
    SUCCEEDS(xpu_memcpy(stream, bias_data, numbers, (pairs + 1) * 4, true));
    const size_t rows = (size_t)(p->batch * p->heads * rows_q);
    SUCCEEDS(xpu_malloc(stream, rows * 4 + 4, &sums));
    const int64_t score_size[4] = {p->batch, p->heads, p->queries, p->keys};
    int64_t grad_size[4], grad_stride[4], bias_stride[4];
    for (int64_t d = 3, next = 1; d >= 0; next *= grad_size[d], d--) {
        grad_size[d] = bias_size(p, (int)d), grad_stride[d] = next;
        bias_stride[d] = p->alike >> d & 1 ? 0 : next;
    }
    const int64_t sum_size[3] = {p->batch, p->heads, rows_q};
    const int64_t sum_stride[3] = {p->heads * rows_q, rows_q, 1};
    const xpu_tensor b = {bias_data, p->bias == BIAS_MASK ? XPU_BOOL : XPU_FLOAT32, 4, score_size,
                          bias_stride};
    const xpu_tensor db = {bias_grad, XPU_FLOAT32, 4, grad_size, grad_stride};
    const xpu_tensor l = {sums, XPU_FLOAT32, 3, sum_size, sum_stride};
    const xpu_attention args = {.query = &q.tensor,
                                .key = &k.tensor,
                                .value = &v.tensor,
                                .bias = p->bias ? &b : NULL,
                                .out = &out.tensor,
                                .logsumexp = &l,
                                .scale = p->scale,
                                .causal = p->causal,
                                .sequences = p->sequences,
                                .query_starts = starts,
                                .key_starts = (int32_t *)starts + 8,
                                .max_queries = p->queries,
                                .max_keys = p->keys,
                                .window = p->window,
                                .left = p->left,
                                .right = p->right,
                                .dropout = p->dropout,
                                .seed = SEED,
                                .offset = OFFSET};
    const xpu_attention_grad grads = {&grad.tensor, &dq.tensor, &dk.tensor, &dv.tensor,
                                      p->bias == BIAS_NUMBERS ? &db : NULL};

    const size_t queries = rows * (size_t)p->depth + 1, outs = rows * (size_t)p->value_depth + 1;
    const size_t key_rows = (size_t)(p->batch * p->key_heads * rows_k);
    const size_t keys = key_rows * (size_t)p->depth + 1, values = key_rows * (size_t)p->value_depth + 1;
    double *all = calloc(2 * (queries + outs + keys + values + pairs), sizeof *all), *next = all;
    results want;
    want.out = next, next += outs, want.slack_out = next, next += outs;
    want.query = next, next += queries, want.slack_query = next, next += queries;
    want.key = next, next += keys, want.slack_key = next, next += keys;
    want.value = next, next += values, want.slack_value = next, next += values;
    want.bias = next, next += pairs, want.slack_bias = next;
    by_definition(p, &q, &k, &v, &grad, bias, &want);

    SUCCEEDS(xpu_attention_forward(stream, &args));
    compare(p, "out", &out, want.out, want.slack_out);
    SUCCEEDS(xpu_attention_backward(stream, &args, &grads));
    compare(p, "grad_query", &dq, want.query, want.slack_query);
    compare(p, "grad_key", &dk, want.key, want.slack_key);
    compare(p, "grad_value", &dv, want.value, want.slack_value);
    SUCCEEDS(xpu_memcpy(stream, numbers, bias_grad, pairs * sizeof *numbers, true));
    for (size_t i = 0; i < pairs && p->bias == BIAS_NUMBERS; i++)
        if (!(fabs(numbers[i] - want.bias[i]) <= want.slack_bias[i]))
            fail_msg(
                "grad_bias, alike %u, of %s, batch %lld, heads %lld, %lld queries, %lld keys: %g at %zu, "
                "not %g +- %g",
                p->alike, xpu_dtype_name(p->dtype), (long long)p->batch, (long long)p->heads,
                (long long)p->queries, (long long)p->keys, (double)numbers[i], i, want.bias[i],
                want.slack_bias[i]);

    free(all), free(bias), free(numbers);
    SUCCEEDS(xpu_free(bias_data));
    SUCCEEDS(xpu_free(bias_grad));
    SUCCEEDS(xpu_free(sums));
    SUCCEEDS(xpu_free(starts));
    drop(&q), drop(&k), drop(&v), drop(&out), drop(&grad), drop(&dq), drop(&dk), drop(&dv);
}

/* Expects this number of launches on a matrix engine, forward and backward. If the engine doesn't support the
 * problem, the CPU kernel must run, if there is one. */
static void try_counted(const problem *p, int forward, int backward) {
    const xpu_device_properties *properties;
    SUCCEEDS(xpu_device_get_properties(0, &properties));
    const bool on_host =
        properties->type == XPU_DEVICE_CPU && p->dropout <= 0 && (without_units ? forward > 0 : forward == 0);
    const int units = by_units, host = by_host;
    try_problem(p);
    assert_int_equal(by_units - units, without_units ? 0 : forward + backward);
    assert_int_equal(by_host - host, on_host);
}

static void kinds_and_sizes(void **unused) {
    static const problem problems[] = {
        {XPU_BFLOAT16, 1, 2, 2, 70, 70, 64, 64, false, false, 8, .bias = BIAS_NONE, .scale = 0.125,
         .slices = 0},
        {XPU_BFLOAT16, 2, 2, 1, 130, 130, 64, 64, true, true, 8, .bias = BIAS_NONE, .scale = 0.125,
         .slices = 0},
        {XPU_FLOAT16, 1, 2, 2, 65, 150, 40, 24, true, false, 8, .bias = BIAS_NONE, .scale = 0.25,
         .slices = 0},
        {XPU_FLOAT16, 1, 2, 1, 33, 47, 100, 128, false, true, 4, .bias = BIAS_NUMBERS, .scale = 0.1,
         .slices = 0},
        {XPU_BFLOAT16, 2, 1, 1, 17, 100, 13, 16, false, false, 1, .bias = BIAS_MASK, .scale = -0.5,
         .slices = 0},
        {XPU_BFLOAT16, 1, 1, 1, 40, 40, 192, 160, true, false, 8, .bias = BIAS_NONE, .scale = 0.07,
         .slices = 0},
        /* scores of which one is far above those before it */
        {XPU_BFLOAT16, 1, 2, 2, 40, 300, 64, 64, false, false, 8, .bias = BIAS_NONE, .scale = 2, .slices = 0},
        {XPU_FLOAT16, 1, 2, 1, 40, 300, 128, 64, true, false, 8, .bias = BIAS_NUMBERS, .scale = 1,
         .slices = 0},
        /* quads of subgroups (XMX with SIMD8), with two groups of rows here */
        {XPU_BFLOAT16, 1, 2, 1, 150, 170, 128, 128, false, true, 8, .bias = BIAS_NONE, .scale = 0.09,
         .slices = 0},
        {XPU_FLOAT16, 1, 2, 2, 135, 230, 80, 112, true, false, 8, .bias = BIAS_NONE, .scale = 2, .slices = 0},
        {XPU_FLOAT16, 2, 1, 1, 67, 310, 128, 48, false, false, 8, .bias = BIAS_NONE, .scale = 3, .slices = 0},
        {XPU_BFLOAT16, 1, 1, 1, 66, 15, 32, 96, true, false, 8, .bias = BIAS_NONE, .scale = 1, .slices = 0},
        {XPU_BFLOAT16, 2, 4, 2, 70, 90, 64, 64, true, false, 8, .bias = BIAS_NONE, .scale = 0.125,
         .dropout = 0.25},
        {XPU_FLOAT16, 1, 2, 1, 75, 60, 112, 80, true, false, 8, .bias = BIAS_NONE, .scale = 0.1,
         .dropout = 0.25},
        {XPU_FLOAT32, 1, 2, 1, 70, 90, 64, 64, true, true, 4, .bias = BIAS_NONE, .scale = 0.125, .slices = 0},
        {XPU_FLOAT32, 1, 1, 1, 65, 40, 36, 20, false, false, 1, .bias = BIAS_NUMBERS, .scale = 0.2,
         .slices = 0},
        {XPU_FLOAT32, 1, 1, 1, 33, 50, 128, 100, false, false, 4, .bias = BIAS_NONE, .scale = 0.1,
         .slices = 0},
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        problem p = problems[i];
        if (is_left_out(i)) continue;
        if (by_blocks && p.depth >= 64) p.align = 32; /* 64 bytes */
        if (by_xmx8) p.align = 8, p.depth = (p.depth + 15) & ~15, p.value_depth = (p.value_depth + 15) & ~15;
        const int most =
            p.dtype == XPU_FLOAT32 ? 64 : 128; /* the head size of gradients on a matrix engine */
        const bool small = p.depth <= 128 && p.dtype != XPU_FLOAT32;
        const bool units = by_blocks ? small && p.align == 32 : !by_xmx8 || small;
        /* XMX computes the gradients of keys and values one after the other. */
        const int backward = p.depth > most ? 0 : by_blocks || by_xmx8 ? 3 : 2;
        try_counted(&p, units, units ? backward : 0);
    }
}

/* Keys cut into slices; heads that share keys are rows of one matrix then. */
static void decoding(void **unused) {
    static const problem problems[] = {
        {XPU_BFLOAT16, 2, 6, 2, 1, 300, 64, 64, false, true, 8, .bias = BIAS_NONE, .scale = 0.125,
         .slices = 3},
        {XPU_BFLOAT16, 1, 6, 2, 1, 300, 64, 64, false, true, 8, .bias = BIAS_NONE, .scale = 0.125,
         .slices = 2, .dropout = 0.5},
        {XPU_FLOAT16, 1, 8, 1, 9, 260, 64, 48, true, false, 8, .bias = BIAS_MASK, .scale = 0.125,
         .slices = 2},
        {XPU_BFLOAT16, 1, 2, 2, 70, 500, 32, 32, true, false, 8, .bias = BIAS_NONE, .scale = 0.2,
         .slices = 4},
        {XPU_FLOAT16, 1, 4, 4, 1, 200, 80, 80, false, true, 8, .bias = BIAS_NONE, .scale = 0.1, .slices = 2},
        {XPU_BFLOAT16, 1, 4, 4, 1, 200, 128, 128, false, true, 8, .bias = BIAS_NONE, .scale = 0.1,
         .slices = 2},
        {XPU_BFLOAT16, 1, 2, 1, 130, 300, 128, 96, true, false, 8, .bias = BIAS_NONE, .scale = 0.5,
         .slices = 3},
        {XPU_BFLOAT16, 1, 4, 2, 1, 2100, 32, 45, false, false, 1, .bias = BIAS_NONE, .scale = 0.2,
         .slices = 40},
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        problem p = problems[i];
        if (is_left_out(i) || ((by_blocks || by_xmx8) && p.align == 1)) continue;
        if (by_blocks) p.align = 32;
        /* On XMX, and with many splits, a separate launch merges them. */
        const bool are_joined = !without_units && (by_blocks || by_xmx8 || p.slices > 32);
        const int before = joins;
        try_counted(&p, 1, by_blocks || by_xmx8 ? 3 : 2);
        assert_int_equal(joins - before, are_joined);
    }
    enum { OF_NVIDIA = 48 << 10 }; /* what its OpenCL gives a work-group */
    if (!by_blocks && !by_xmx8) assert_in_range(most_local, 0, OF_NVIDIA);
}

/* With few queries the CPU kernel packs neither keys nor values if it can read sixteen elements at a time. */
static void few_queries(void **unused) {
    static const struct {
        problem of;
        bool direct;
    } tries[] = {
        {{XPU_FLOAT32, 2, 6, 6, 1, 300, 128, 128, false, false, 4, .scale = 0.1}, true},
        {{XPU_FLOAT32, 1, 6, 2, 1, 150, 64, 16, false, true, 4, .scale = 0.1}, true},
        {{XPU_BFLOAT16, 1, 4, 2, 2, 70, 80, 96, true, false, 8, .bias = BIAS_MASK, .scale = 0.1}, true},
        {{XPU_FLOAT16, 2, 3, 3, 3, 65, 48, 256, false, true, 8, .bias = BIAS_NUMBERS, .scale = 0.1}, true},
        {{XPU_FLOAT32, 1, 2, 2, 5, 17, 240, 112, true, false, 4, .scale = 0.1}, true},
        {{XPU_FLOAT32, 1, 2, 2, 6, 40, 64, 64, false, false, 4, .scale = 0.1}, false},
        {{XPU_FLOAT16, 1, 2, 2, 1, 40, 40, 64, false, false, 8, .scale = 0.1}, false},
        {{XPU_FLOAT32, 1, 2, 2, 1, 40, 64, 45, false, false, 4, .scale = 0.1}, false},
    };
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        const int before = by_host;
        if (is_left_out_of(i, sizeof tries / sizeof *tries)) continue;
        try_problem(&tries[i].of);
        if (by_host > before) assert_int_equal(host_local < 16 << 10, tries[i].direct);
    }
}

/* Heads that the plain kernels take in parts: the queries' and keys' in one, the values' in one, both in
 * several. */
static void large_heads(void **unused) {
    static const int depths[][2] = {{257, 40}, {24, 300}, {512, 576}, {576, 512}};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        const problem p = {i % 2 ? XPU_FLOAT32 : XPU_BFLOAT16,
                           2,
                           2,
                           1,
                           70,
                           66,
                           depths[i][0],
                           depths[i][1],
                           i % 2 == 0,
                           true,
                           1,
                           .bias = BIAS_NONE,
                           .scale = 0.05};
        const int before = by_units;
        if (is_left_out(i)) continue;
        try_problem(&p);
        assert_int_equal(by_units - before, 0);
    }
}

/* Biases that are broadcast in some dimensions; their gradients are sums over these. */
static void gradients_of_biases(void **unused) {
    /* Heads of 132 elements in fp32 use the portable kernels, which are fast when matrix engines are
     * emulated. */
    problem p = {XPU_FLOAT32, 3, 2, 1, 65, 70, 132, 20, true, true, 4, .bias = BIAS_NUMBERS, .scale = 0.1};
    for (p.alike = 0; p.alike < 16; p.alike++)
        if (!is_left_out_of((size_t)p.alike, 16)) try_problem(&p);
    p.batch = 1, p.queries = 300, p.causal = false; /* many tiles a sum */
    for (p.alike = 4; p.alike < 16; p.alike += p.alike % 4 == 0 ? 3 : 1)
        if (!is_left_out_of((size_t)p.alike / 4, 3)) try_problem(&p);
    p = (problem){XPU_BFLOAT16, 2, 2, 1, 33, 40, 32, 32, .align = 8, .bias = BIAS_NUMBERS, .scale = 0.2};
    if (by_blocks) p.align = 32;
    for (p.alike = 0; p.alike < 8; p.alike += 3)
        if (!is_left_out_of((size_t)p.alike / 3, 3)) try_problem(&p);
}

/* Windows, and sequences of different lengths, also of none. */
static void cut_into_sequences(problem *p, int count) {
    p->sequences = count, p->batch = 1, p->bias = BIAS_NONE, p->slices = 0;
    for (int i = 0; i < count; i++) {
        p->query_starts[i + 1] = p->query_starts[i] + (int32_t)(i == 0 ? p->queries : pick(0, p->queries));
        p->key_starts[i + 1] = p->key_starts[i] + (int32_t)(i == 1 ? p->keys : pick(0, p->keys));
    }
}

static void bands(void **unused) {
    const int most = by_xmx8 ? 5 : 6; /* not the plain kernels, which take long to build */
    for (int i = 0; i < most; i++) {
        problem p = {i % 2 ? XPU_FLOAT16 : XPU_BFLOAT16,
                     2,
                     2,
                     1,
                     90,
                     130,
                     64,
                     64,
                     i % 3 == 0,
                     i % 2 == 0,
                     8,
                     .bias = BIAS_NONE,
                     .scale = 0.125,
                     .slices = 0};
        if (by_blocks) p.align = 32;
        if (by_blocks || by_xmx8) p.dropout = i == 4 ? 0.25 : 0;
        if (i == 2) p.depth = p.value_depth = 128;
        if (i == 4) p.queries = 150;
        if (i == 5) p.dtype = XPU_FLOAT32;
        if (i > 0) cut_into_sequences(&p, 2 + i % 3);
        p.window = i % 2 == 0;
        p.left = i % 4 == 0 ? 20 : -1, p.right = i == 2 ? 9 : -1;
        const int before = by_units;
        if (is_left_out((size_t)i)) continue;
        try_problem(&p);
        const bool units = !without_units && !(by_blocks && p.dtype == XPU_FLOAT32);
        assert_int_equal(by_units - before, !units ? 0 : by_blocks || by_xmx8 ? 4 : 3);
    }
}

static void whatever_comes(void **unused) {
    static const int aligns[] = {1, 2, 4, 8, 8, 8, 8, 8};
    problem p = {0};
    for (int i = 0; i < extra; i++) {
        if (i % 20 == 0) /* new kernels take seconds to build */
            p = (problem){.dtype = (xpu_dtype)(int[]){XPU_BFLOAT16, XPU_FLOAT16, XPU_FLOAT32}[pick(0, 2)],
                          .depth = pick(0, 2) ? 32 << pick(0, 2) : pick(1, 260),
                          .bias = pick(0, 1) ? BIAS_NONE : (bias)pick(0, BIAS_KINDS - 1),
                          .align = by_blocks ? 32 : aligns[pick(0, 7)],
                          .dropout = pick(0, 3) ? 0 : 0.3};
        p.alike = (unsigned)pick(0, 15);
        p.batch = pick(1, 2), p.key_heads = pick(1, 2), p.heads = p.key_heads * pick(1, 3);
        p.value_depth = i % 20 < 10 ? p.depth : p.depth / 2 + 1;
        p.queries = pick(0, 3) ? pick(1, 200) : pick(1, 20);
        p.keys = pick(0, 5) ? pick(1, 200) : pick(200, 700);
        p.causal = pick(0, 1), p.by_sequence = pick(0, 1), p.scale = (double)pick(-3, 12) / 24;
        p.slices = pick(0, 3) ? 0 : (int)pick(1, 4);
        p.sequences = 0, p.window = i % 20 > 15;
        p.left = (int)pick(-1, 60), p.right = (int)pick(-1, 60);
        const bias kind = p.bias;
        if (i % 20 > 14) cut_into_sequences(&p, (int)pick(1, 5));
        try_problem(&p);
        p.bias = kind;
    }
}

int main(int count, char **words) {
    build_quickly(words);
    read_words(count, words);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_and_sizes), cmocka_unit_test(decoding), cmocka_unit_test(few_queries),
        cmocka_unit_test(large_heads),     cmocka_unit_test(bands),    cmocka_unit_test(gradients_of_biases),
        cmocka_unit_test(whatever_comes),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
