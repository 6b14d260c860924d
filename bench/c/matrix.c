/* Times libxpu's matrix products without PyTorch, and checks a sample of the results.
 *
 *     cc -O2 bench/c/matrix.c -Iinclude -Lpython/openxpu -lxpu -lm -Wl,-rpath,$PWD/python/openxpu \
 *        -o build/bench_matrix
 *     build/bench_matrix bf16 1024 4096 6144x1024x4096
 *     build/bench_matrix bf16 i4 1x4096x4096 512x4096x4096
 *
 * The first argument is a dtype (bf16, f16, f32); the others are sizes m x n x k, or one number for all
 * three. With i4, i8 or f8e4m3fn before the sizes, the weights are quantized and K-major. int4 has a bf16
 * scale and a zero point per group of 128 along k; 8-bit types have a scale per column. The unquantized
 * product is timed for comparison. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "xpu/memory.h"
#include "xpu/ops/gemm.h"

/* Multiples of 1/8 in [-1, 1), which all dtypes represent exactly. */
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
                          : (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) |
                                       (bits >> 13 & 1023));
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

/* The largest error of 300 results, relative to the largest that a single rounding explains. */
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

/* Seconds per call, the best of three rounds. */
static double seconds_of(xpu_stream *stream, const xpu_gemm_args *args, const xpu_quant_params *b) {
    const double work = 2.0 * (double)args->m * (double)args->n * (double)args->k;
    const int calls = work < 1e11 ? 50 : 10;
    double best = 1e30;
    for (int round = -1; round < 3; round++) { /* the first round builds kernels */
        const double start = now();
        for (int r = 0; r < (round < 0 ? 3 : calls); r++) check(xpu_gemm_quantized(stream, args, NULL, b));
        check(xpu_stream_synchronize(stream));
        const double each = (now() - start) / calls;
        if (round >= 0 && each < best) best = each;
    }
    return best;
}

/* Times a product with quantized weights and one with `dtype` weights, and compares the result with sums over
 * the dequantized weights. */
static void weights(xpu_stream *stream, xpu_dtype dtype, xpu_dtype stored, int64_t m, int64_t n, int64_t k) {
    const int bits = xpu_dtype_bits(stored);
    const int64_t groups = bits == 4 ? (k + 127) / 128 : 1, bytes = n * k * bits / 8;
    uint8_t *elements = malloc((size_t)bytes);
    for (int64_t i = 0; i < bytes; i++) {
        elements[i] = (uint8_t)(number((uint64_t)i) * 8 + 8 + 16 * (number((uint64_t)i + 7) * 8 + 8));
        if (stored == XPU_FLOAT8_E4M3FN) elements[i] &= 0xbf; /* magnitudes below 2, no NaN */
    }
    void *a = filled(stream, dtype, m * k, 0), *plain = filled(stream, dtype, n * k, 1), *b, *out;
    void *scale = filled(stream, dtype, n * groups, 2), *zero;
    int8_t *zeros = malloc((size_t)(n * groups));
    for (int64_t i = 0; i < n * groups; i++) zeros[i] = (int8_t)(i % 5);
    check(xpu_malloc(stream, (size_t)bytes, &b));
    check(xpu_malloc(stream, (size_t)(n * groups), &zero));
    check(xpu_malloc(stream, (size_t)(m * n) * xpu_dtype_size(dtype), &out));
    check(xpu_memcpy(stream, b, elements, (size_t)bytes, true));
    check(xpu_memcpy(stream, zero, zeros, (size_t)(n * groups), true));
    xpu_gemm_args args = {
        .dtype = dtype, .batch = 1, .m = m, .n = n, .k = k, .alpha = {.dtype = XPU_FLOAT64}};
    args.alpha.value.f = 1;
    args.a = (xpu_matrix){a, 0, k, 1}, args.b = (xpu_matrix){plain, 0, 1, k},
    args.out = (xpu_matrix){out, 0, n, 1};
    const double by_plain = seconds_of(stream, &args, NULL);
    args.b.data = b;
    const xpu_quant_params q = {.dtype = stored,
                                .group_rows = bits == 4 ? 128 : 0,
                                .group_columns = 1,
                                .scale = scale,
                                .scale_dtype = dtype,
                                .scale_row_stride = n,
                                .scale_column_stride = 1,
                                .zero = bits == 4 ? zero : NULL,
                                .zero_dtype = XPU_INT8,
                                .zero_row_stride = n,
                                .zero_column_stride = 1};
    const double by_bits = seconds_of(stream, &args, &q);
    char *results = malloc((size_t)(m * n) * xpu_dtype_size(dtype));
    check(xpu_memcpy(stream, results, out, (size_t)(m * n) * xpu_dtype_size(dtype), true));
    double noise = 0, signal = 0;
    for (int i = 0; i < 300; i++) {
        const int64_t row = rand() % m, column = rand() % n;
        double sum = 0;
        for (int64_t j = 0; j < k; j++) {
            const int64_t at = column * k + j, group = bits == 4 ? j / 128 * n + column : column;
            const int raw = bits == 4 ? elements[at / 2] >> at % 2 * 4 & 15 : elements[at];
            const int magnitude = raw & 127;
            const double e4m3 =
                magnitude < 8 ? ldexp(magnitude, -9) : ldexp(8 + (magnitude & 7), (magnitude >> 3) - 10);
            const double element = bits == 4                     ? (raw ^ 8) - 8 - zeros[group]
                                   : stored == XPU_FLOAT8_E4M3FN ? (raw & 128 ? -e4m3 : e4m3)
                                                                 : (int8_t)raw;
            sum += number((uint64_t)(row * k + j)) * element * number((uint64_t)group + 2);
        }
        const double got = decode(dtype, results + (size_t)(row * n + column) * xpu_dtype_size(dtype));
        noise += (got - sum) * (got - sum), signal += sum * sum;
    }
    printf("%7.1f µs  %5.0f GB/s  %6.1f TFLOP/s  %5.2f of plain (%.1f µs)  %.0f dB\n", by_bits * 1e6,
           (double)bytes / by_bits * 1e-9, 2.0 * (double)m * (double)n * (double)k / by_bits * 1e-12,
           by_plain / by_bits, by_plain * 1e6, 10 * log10(signal / noise));
    free(elements), free(zeros), free(results);
    check(xpu_free(a)), check(xpu_free(plain)), check(xpu_free(b)), check(xpu_free(out));
    check(xpu_free(scale)), check(xpu_free(zero));
}

int main(int count, char **words) {
    const char *name = count > 1 ? words[1] : "bf16";
    const xpu_dtype dtype = !strcmp(name, "f32")   ? XPU_FLOAT32
                            : !strcmp(name, "f16") ? XPU_FLOAT16
                                                   : XPU_BFLOAT16;
    xpu_stream *stream;
    check(xpu_stream_default(0, &stream));
    static const xpu_dtype small[] = {XPU_INT4, XPU_INT8, XPU_FLOAT8_E4M3FN};
    const xpu_dtype *stored = NULL;
    for (int i = 0; i < 3 && count > 2; i++)
        if (!strcmp(words[2], xpu_dtype_name(small[i]))) stored = &small[i];
    if (!stored) printf("%-18s %10s %10s %10s %10s  TFLOP/s; error\n", name, "a b", "a b'", "a' b", "a' b'");
    for (int i = stored ? 3 : 2; i < count; i++) {
        long long m, n, k;
        if (sscanf(words[i], "%lldx%lldx%lld", &m, &n, &k) < 3) m = n = k = atoll(words[i]);
        if (stored) {
            printf("%s %-18s", words[2], words[i]);
            weights(stream, dtype, *stored, m, n, k);
            continue;
        }
        const uint64_t seed = 12345;
        void *a = filled(stream, dtype, m * k, 0), *b = filled(stream, dtype, k * n, seed), *out;
        check(xpu_malloc(stream, (size_t)(m * n) * xpu_dtype_size(dtype), &out));
        char text[64];
        snprintf(text, sizeof text, "%lldx%lldx%lld", m, n, k);
        printf("%-18s", text);
        double worst = 0;
        for (int turned = 0; turned < 4; turned++) {
            xpu_gemm_args args = {
                .dtype = dtype, .batch = 1, .m = m, .n = n, .k = k, .alpha = {.dtype = XPU_FLOAT64}};
            args.alpha.value.f = 1;
            args.a = turned & 2 ? (xpu_matrix){a, 0, 1, m} : (xpu_matrix){a, 0, k, 1};
            args.b = turned & 1 ? (xpu_matrix){b, 0, 1, k} : (xpu_matrix){b, 0, n, 1};
            args.out = (xpu_matrix){out, 0, n, 1};
            const double best = seconds_of(stream, &args, NULL);
            printf(" %10.1f", 2.0 * (double)m * (double)n * (double)k / best * 1e-12);
            const double e = error(stream, dtype, &args, seed);
            if (e > worst || e != e) worst = e;
        }
        printf("  %.2f\n", worst);
        check(xpu_free(a)), check(xpu_free(b)), check(xpu_free(out));
    }
    return 0;
}
