/* Times each kind of launch of a decoding step without PyTorch, in microseconds. A graph replays the launches
 * over weights that are not in the cache. Build it after `make build`. Then run it:
 *
 *     cc -O2 bench/c/decode.c -Iinclude -Lpython/openxpu -lxpu -lm -Wl,-rpath,$PWD/python/openxpu \
 *        -o build/bench_decode
 *     build/bench_decode [i4 bf16 attention] [width hidden words keys]
 *
 * The default sizes are those of a Llama-shaped model with a billion parameters (bench/decode.py). The
 * launches are the QKV projection with RMS norm, RoPE and KV-cache write; masked attention over `keys` keys;
 * the output projection with residual; the gated product with its norm; the down projection; the vocabulary
 * projection. Without sizes it also times 4096 x 4096 and 4096 x 14336, and attention over longer caches. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "xpu/graph.h"
#include "xpu/memory.h"
#include "xpu/ops/attention.h"
#include "xpu/ops/gemm.h"

enum { GROUP = 128, DEPTH = 64, MOST = 256 };

static xpu_stream *stream;

/* Random bytes; with `numbers`, bfloat16 values of magnitude less than 1. */
static void *filled(size_t bytes, bool numbers) {
    static uint32_t state = 1;
    void *device;
    uint16_t *host = malloc(bytes + 1);
    for (size_t i = 0; i < (bytes + 1) / 2; i++) {
        state = state * 1664525u + 1013904223u;
        host[i] = (uint16_t)(numbers ? 0x3c00 | (state >> 16 & 0x80ff) : state >> 16);
    }
    check(xpu_malloc(stream, bytes, &device));
    check(xpu_memcpy(stream, device, host, bytes, true));
    check(xpu_stream_synchronize(stream));
    free(host);
    return device;
}

typedef struct weight {
    void *data, *scale, *zero;
} weight;

/* Weights of shape (n, k). */
static weight weight_of(bool is_int4, int64_t n, int64_t k) {
    weight w = {.data = filled((size_t)(n * k) * 2 / (is_int4 ? 4 : 1), !is_int4)};
    if (!is_int4) return w;
    w.scale = filled((size_t)(n * (k / GROUP)) * 2, true), w.zero = filled((size_t)(n * (k / GROUP)), false);
    return w;
}
static void forget(weight w) {
    check(xpu_free(w.data));
    if (w.scale) check(xpu_free(w.scale)), check(xpu_free(w.zero));
}
static xpu_quant_params form_of(weight w, int64_t n) {
    return (xpu_quant_params){.dtype = XPU_INT4,
                              .group_rows = GROUP,
                              .group_columns = 1,
                              .scale = w.scale,
                              .scale_dtype = XPU_BFLOAT16,
                              .scale_row_stride = n,
                              .scale_column_stride = 1,
                              .zero = w.zero,
                              .zero_dtype = XPU_INT8,
                              .zero_row_stride = n,
                              .zero_column_stride = 1};
}

typedef enum kind { CACHED, ADDED, GATED, PLAIN } kind;

/* Launches the product of one row with weights; `parts` has the output columns of each. */
static void product(kind what, bool is_int4, const int64_t *parts, int64_t k, const weight *w, void *x,
                    void *out, void *norm, void *const caches[2], void *angles, int64_t *position,
                    int64_t keys) {
    xpu_gemm_args args = {.dtype = XPU_BFLOAT16, .batch = 1, .m = 1, .n = parts[0], .k = k};
    args.alpha = (xpu_scalar){XPU_FLOAT64, {.f = 1}};
    args.a = (xpu_matrix){x, 0, k, 1}, args.out = (xpu_matrix){out, 0, parts[0], 1};
    if (what == ADDED) args.combine = XPU_COMBINE_ADD, args.other = args.out;
    if (what == GATED) args.epilogue = XPU_EPILOGUE_SILU;
    xpu_quant_params form[3];
    xpu_gemm_part part[3];
    const int count = what == CACHED ? 3 : what == GATED ? 2 : 1;
    for (int i = 0; i < count; i++) {
        form[i] = form_of(w[i], parts[i]);
        part[i] =
            (xpu_gemm_part){.b = {w[i].data, 0, 1, k}, .quantized = is_int4 ? &form[i] : NULL, .n = parts[i]};
    }
    xpu_gemm_fusion joined = {.count = count, .part = part, .gated = what == GATED, .eps = 1e-6};
    if (what == CACHED || what == GATED) joined.norm = norm;
    if (what == CACHED) {
        const xpu_kv_cache cache = {NULL, 0, keys * DEPTH, DEPTH};
        xpu_qkv_rope cached = {
            .depth = DEPTH, .cos = angles, .sin = angles, .first_sign = -1, .position = position};
        cached.length = keys, cached.keys = cached.values = cache;
        cached.keys.data = caches[0], cached.values.data = caches[1];
        check(xpu_gemm_qkv_rope(stream, &args, &joined, &cached, NULL));
    } else if (what == PLAIN && !is_int4) {
        args.b = part[0].b;
        check(xpu_gemm(stream, &args));
    } else if (what == PLAIN) {
        args.b = part[0].b;
        check(xpu_gemm_quantized(stream, &args, NULL, &form[0]));
    } else
        check(xpu_gemm_fused(stream, &args, &joined));
}

/* Attention of one query per batch item; `mask` may be NULL. */
static void attention(void *query, void *const caches[2], void *mask, void *out, int64_t batch, int64_t heads,
                      int64_t key_heads, int64_t keys, int64_t depth) {
    const int64_t one[] = {batch, heads, 1, depth}, of_one[] = {heads * depth, depth, depth, 1};
    const int64_t many[] = {batch, key_heads, keys, depth},
                  of_many[] = {key_heads * keys * depth, keys * depth, depth, 1};
    const int64_t all[] = {batch, heads, 1, keys}, of_all[] = {0, 0, 0, 1};
    const xpu_tensor q = {query, XPU_BFLOAT16, 4, one, of_one}, o = {out, XPU_BFLOAT16, 4, one, of_one},
                     k = {caches[0], XPU_BFLOAT16, 4, many, of_many},
                     v = {caches[1], XPU_BFLOAT16, 4, many, of_many}, bias = {mask, XPU_BOOL, 4, all, of_all};
    const xpu_attention args = {
        .query = &q, .key = &k, .value = &v, .bias = mask ? &bias : NULL, .out = &o, .scale = 0.125};
    check(xpu_attention_forward(stream, &args));
}

/* Microseconds per launch of a captured graph of `count` launches. */
static double replayed(xpu_graph *graph, int count) {
    double best = 1e30;
    for (int round = 0; round < 8; round++) {
        const double start = now();
        for (int i = 0; i < 5; i++) check(xpu_graph_replay(graph, stream));
        check(xpu_stream_synchronize(stream));
        const double each = (now() - start) / 5 / count;
        if (each < best) best = each;
    }
    return best * 1e6;
}

int main(int count, char **words) {
    int64_t sizes[4] = {2048, 5632, 32000, 1024};
    bool is_wanted[3] = {false, false, false}; /* bf16, int4, attention */
    int given = 0;
    for (int i = 1; i < count; i++)
        if (!strcmp(words[i], "i4"))
            is_wanted[1] = true;
        else if (!strcmp(words[i], "bf16"))
            is_wanted[0] = true;
        else if (!strcmp(words[i], "attention"))
            is_wanted[2] = true;
        else if (given < 4)
            sizes[given++] = atoll(words[i]);
    if (!is_wanted[0] && !is_wanted[1] && !is_wanted[2]) is_wanted[0] = is_wanted[1] = is_wanted[2] = true;
    const int64_t width = sizes[0], hidden = sizes[1], vocabulary = sizes[2], keys = sizes[3];
    const int64_t heads = width / DEPTH, key_heads = heads / 4 ? heads / 4 : 1, of_keys = key_heads * DEPTH;
    check(xpu_stream_from_pool(0, 0, &stream));
    void *x = filled((size_t)16384 * 2, true), *out = filled((size_t)vocabulary * 2, true),
         *norm = filled((size_t)width * 2, true), *angles = filled(DEPTH * 2, true);
    const uint8_t yes = 1;
    int64_t *position, third = 3;
    check(xpu_malloc(stream, sizeof third, (void **)&position));
    check(xpu_memcpy(stream, position, &third, sizeof third, true));
    void *caches[MOST][2], *mask = filled((size_t)keys, false);
    check(xpu_memset(stream, mask, &yes, 1, (size_t)keys));
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 2; j++) caches[i][j] = filled((size_t)(of_keys * keys) * 2, true);
    const struct {
        const char *name;
        kind what;
        int64_t parts[3], k;
    } launches[] = {
        {"queries, keys, values", CACHED, {width, of_keys, of_keys}, width},
        {"layer of attention", ADDED, {width}, width},
        {"gate and up", GATED, {hidden, hidden}, width},
        {"down", ADDED, {width}, hidden},
        {"words", PLAIN, {vocabulary}, width},
        {"4096 x 4096", PLAIN, {4096}, 4096},
        {"14336 x 4096", PLAIN, {14336}, 4096},
        {"4096 x 14336", PLAIN, {4096}, 14336},
    };
    xpu_graph *graph;
    for (int is_int4 = 1; is_int4 >= 0; is_int4--) {
        if (!is_wanted[is_int4]) continue;
        for (size_t l = 0; l < sizeof launches / sizeof *launches - (given ? 3 : 0); l++) {
            const int64_t *parts = launches[l].parts, k = launches[l].k, n = parts[0] + parts[1] + parts[2];
            const double bytes = (double)(n * k) * (is_int4 ? 0.5 + 3.0 / GROUP : 2);
            int many = (int)(3e8 / bytes) + 1;
            if (many < 4) many = 4;
            if (many > 64) many = 64;
            weight w[MOST][3] = {{{0}}};
            for (int i = 0; i < many; i++)
                for (int j = 0; j < 3 && parts[j]; j++) w[i][j] = weight_of(is_int4, parts[j], k);
            check(xpu_graph_create(0, &graph));
            for (int run = 0; run < 2; run++) { /* the first run builds kernels */
                if (run) check(xpu_graph_begin(graph, stream, NULL));
                for (int i = 0; i < (run ? many : 1); i++)
                    product(launches[l].what, is_int4, parts, k, w[i], x, out, norm, caches[i % 64], angles,
                            position, keys);
                if (run) check(xpu_graph_end(graph));
                check(xpu_stream_synchronize(stream));
            }
            const double each = replayed(graph, many);
            printf("%-5s %-22s %6lld of %5lld  %6.2f µs  %5.0f GB/s\n", is_int4 ? "int4" : "bf16",
                   launches[l].name, (long long)n, (long long)k, each, bytes / each * 1e-3);
            fflush(stdout);
            check(xpu_graph_destroy(graph));
            for (int i = 0; i < many; i++)
                for (int j = 0; j < 3 && parts[j]; j++) forget(w[i][j]);
        }
    }
    const struct {
        int64_t batch, heads, key_heads, keys, depth;
    } attentions[] = {{1, heads, key_heads, keys, DEPTH},
                      {8, 32, 8, 8192, 128},
                      {1, 32, 32, 16384, 128},
                      {32, 16, 16, 2048, 64}};
    for (size_t l = 0; is_wanted[2] && l < (given ? 1 : sizeof attentions / sizeof *attentions); l++) {
        const int64_t b = attentions[l].batch, h = attentions[l].heads, kh = attentions[l].key_heads,
                      far = attentions[l].keys, depth = attentions[l].depth;
        const int many = l ? 8 : 64;
        void *large[2] = {NULL}, *q = filled((size_t)(b * h * depth) * 2, true),
             *found = filled((size_t)(b * h * depth) * 2, true);
        for (int j = 0; j < 2 && l; j++) large[j] = filled((size_t)(b * kh * far * depth) * 2, true);
        check(xpu_graph_create(0, &graph));
        for (int run = 0; run < 2; run++) {
            if (run) check(xpu_graph_begin(graph, stream, NULL));
            for (int i = 0; i < (run ? many : 1); i++)
                attention(q, l ? large : caches[i], l ? NULL : mask, found, b, h, kh, far, depth);
            if (run) check(xpu_graph_end(graph));
            check(xpu_stream_synchronize(stream));
        }
        const double each = replayed(graph, many);
        printf("attention %3lld, %lld of %lld heads of %lld, %5lld keys  %6.2f µs  %5.0f GB/s\n",
               (long long)b, (long long)kh, (long long)h, (long long)depth, (long long)far, each,
               (double)(b * kh * far * depth * 4) / each * 1e-3);
        fflush(stdout);
        check(xpu_graph_destroy(graph));
        check(xpu_free(q)), check(xpu_free(found));
        for (int j = 0; j < 2 && l; j++) check(xpu_free(large[j]));
    }
    return 0;
}
