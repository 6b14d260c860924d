/* Matrix products of libxpu, without PyTorch: multiply-adds a second, and a sample of the results checked.
 *
 *     cc -O2 bench/c/matrix.c -Iinclude -Lbuild -lxpu -lm -Wl,-rpath,$PWD/build -o build/bench_matrix
 *     build/bench_matrix bf16 1024 4096 6144x1024x4096
 *
 * The first word is a dtype (bf16, f16, f32), the others are sizes m x n x k, or one for all three. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "xpu/memory.h"
#include "xpu/ops/gemm.h"

static void check(xpu_status status) {
    if (status == XPU_SUCCESS) return;
    fprintf(stderr, "%s: %s\n", xpu_status_name(status), xpu_last_error());
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Multiples of 1/8 in [-1, 1), which all dtypes hold. */
static double number(uint64_t i) {
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)(i >> 32);
    h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
    return (double)((int)(h & 15) - 8) / 8;
}

static void encode(xpu_dtype dtype, double value, void *to) {
    const float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (dtype == XPU_FLOAT32) memcpy(to, &bits, 4);
    uint16_t half = (uint16_t)(bits >> 16);
    if (dtype == XPU_FLOAT16)
        half = value == 0 ? 0
                          : (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 1023));
    if (dtype != XPU_FLOAT32) memcpy(to, &half, 2);
}

static double decode(xpu_dtype dtype, const void *from) {
    uint16_t half;
    uint32_t bits = 0;
    float f;
    if (dtype == XPU_FLOAT32) memcpy(&bits, from, 4);
    if (dtype != XPU_FLOAT32) memcpy(&half, from, 2);
    if (dtype == XPU_BFLOAT16) bits = (uint32_t)half << 16;
    if (dtype == XPU_FLOAT16) {
        const double m = half & 1023, e = half >> 10 & 31;
        return (half & 0x8000 ? -1 : 1) * (e == 0 ? ldexp(m, -24) : ldexp(m + 1024, (int)e - 25));
    }
    memcpy(&f, &bits, 4);
    return f;
}

static void *filled(xpu_stream *stream, xpu_dtype dtype, int64_t count, uint64_t seed) {
    const size_t size = xpu_dtype_size(dtype);
    char *host = malloc((size_t)count * size);
    void *device;
    for (int64_t i = 0; i < count; i++) encode(dtype, number((uint64_t)i + seed), host + (size_t)i * size);
    check(xpu_malloc(stream, (size_t)count * size, &device));
    check(xpu_memcpy(stream, device, host, (size_t)count * size, true));
    check(xpu_stream_synchronize(stream));
    free(host);
    return device;
}

/* The largest error of 300 results, against the largest that rounding once explains. */
static double error(xpu_stream *stream, xpu_dtype dtype, const xpu_gemm_args *args, uint64_t seed) {
    const size_t size = xpu_dtype_size(dtype);
    char *host = malloc((size_t)(args->m * args->n) * size);
    check(xpu_memcpy(stream, host, args->out.data, (size_t)(args->m * args->n) * size, true));
    check(xpu_stream_synchronize(stream));
    double worst = 0;
    for (int i = 0; i < 300; i++) {
        const int64_t m = rand() % args->m, n = rand() % args->n;
        double sum = 0, all = 0;
        for (int64_t k = 0; k < args->k; k++) {
            const double p = number((uint64_t)(m * args->a.row_stride + k * args->a.column_stride)) *
                             number((uint64_t)(k * args->b.row_stride + n * args->b.column_stride) + seed);
            sum += p, all += fabs(p);
        }
        const double unit = dtype == XPU_BFLOAT16 ? 0x1p-8 : dtype == XPU_FLOAT16 ? 0x1p-11 : 0x1p-24;
        const double allowed = fabs(sum) * unit + all * 0x1p-22;
        const double e = fabs(sum - decode(dtype, host + (size_t)(m * args->n + n) * size)) / allowed;
        if (e > worst || e != e) worst = e;
    }
    free(host);
    return worst;
}

int main(int count, char **words) {
    const char *name = count > 1 ? words[1] : "bf16";
    const xpu_dtype dtype = !strcmp(name, "f32") ? XPU_FLOAT32 : !strcmp(name, "f16") ? XPU_FLOAT16 : XPU_BFLOAT16;
    xpu_stream *stream;
    check(xpu_stream_default(0, &stream));
    printf("%-18s %10s %10s %10s %10s  TFLOP/s; error\n", name, "a b", "a b'", "a' b", "a' b'");
    for (int i = 2; i < count; i++) {
        long long m, n, k;
        if (sscanf(words[i], "%lldx%lldx%lld", &m, &n, &k) < 3) m = n = k = atoll(words[i]);
        const uint64_t seed = 12345;
        void *a = filled(stream, dtype, m * k, 0), *b = filled(stream, dtype, k * n, seed), *out;
        check(xpu_malloc(stream, (size_t)(m * n) * xpu_dtype_size(dtype), &out));
        char text[64];
        snprintf(text, sizeof text, "%lldx%lldx%lld", m, n, k);
        printf("%-18s", text);
        double worst = 0;
        for (int turned = 0; turned < 4; turned++) {
            xpu_gemm_args args = {.dtype = dtype, .batch = 1, .m = m, .n = n, .k = k, .alpha = {.dtype = XPU_FLOAT64}};
            args.alpha.value.f = 1;
            args.a = turned & 2 ? (xpu_matrix){a, 0, 1, m} : (xpu_matrix){a, 0, k, 1};
            args.b = turned & 1 ? (xpu_matrix){b, 0, 1, k} : (xpu_matrix){b, 0, n, 1};
            args.out = (xpu_matrix){out, 0, n, 1};
            for (int r = 0; r < 3; r++) check(xpu_gemm(stream, &args));
            check(xpu_stream_synchronize(stream));
            const double work = 2.0 * (double)m * (double)n * (double)k;
            const int calls = work < 1e11 ? 50 : 10;
            double best = 1e30;
            for (int round = 0; round < 3; round++) {
                const double start = now();
                for (int r = 0; r < calls; r++) check(xpu_gemm(stream, &args));
                check(xpu_stream_synchronize(stream));
                const double each = (now() - start) / calls;
                if (each < best) best = each;
            }
            printf(" %10.1f", work / best * 1e-12);
            const double e = error(stream, dtype, &args, seed);
            if (e > worst || e != e) worst = e;
        }
        printf("  %.2f\n", worst);
        check(xpu_free(a)), check(xpu_free(b)), check(xpu_free(out));
    }
    return 0;
}
