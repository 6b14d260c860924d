/* Tensors on a device without Python: y = a*x + y, then the matrix product c = p*q, both with kernels of
 * this program's own, checked against the host.
 *
 *     cc axpy_gemm.c $(pkg-config --cflags --libs xpu) -o axpy_gemm && ./axpy_gemm
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <xpu/xpu.h>

/* Stops the program when a call fails, with the library's account of it. */
#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        if ((call) != XPU_SUCCESS) {                                                                         \
            fprintf(stderr, "%s: %s\n", #call, xpu_last_error());                                            \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* A kernel takes one struct; pointers travel in it as 64-bit addresses. */
typedef struct axpy_params {
    uint64_t x, y, n;
    float a, unused;
} axpy_params;

static const char axpy_source[] =
    "typedef struct { ulong x, y, n; float a, unused; } axpy_params;\n"
    "__kernel void axpy(axpy_params p) {\n"
    "    size_t i = get_global_id(0);\n"
    "    if (i < p.n) ((__global float *)p.y)[i] += p.a * ((__global const float *)p.x)[i];\n"
    "}\n";

/* c, p and q are row-major: c[rows][columns] = p[rows][inner] * q[inner][columns]. */
typedef struct gemm_params {
    uint64_t p, q, c, rows, columns, inner;
} gemm_params;

static const char gemm_source[] =
    "typedef struct { ulong p, q, c, rows, columns, inner; } gemm_params;\n"
    "__kernel void gemm(gemm_params g) {\n"
    "    size_t column = get_global_id(0), row = get_global_id(1);\n"
    "    if (row >= g.rows || column >= g.columns) return;\n"
    "    __global const float *p = (__global const float *)g.p + row * g.inner;\n"
    "    __global const float *q = (__global const float *)g.q + column;\n"
    "    float sum = 0.0f;\n"
    "    for (ulong k = 0; k < g.inner; k++) sum = fma(p[k], q[k * g.columns], sum);\n"
    "    ((__global float *)g.c)[row * g.columns + column] = sum;\n"
    "}\n";

/* The numbers of a tensor, made up, on the host and on the device. */
static float *make(xpu_stream *stream, size_t count, void **on_device) {
    float *numbers = malloc(count * sizeof *numbers);
    if (!numbers) exit(1);
    for (size_t i = 0; i < count; i++) numbers[i] = (float)((i * 7919 + 13) % 101) / 50 - 1;
    CHECK(xpu_malloc(stream, count * sizeof *numbers, on_device));
    CHECK(xpu_memcpy(stream, *on_device, numbers, count * sizeof *numbers, true));
    return numbers;
}

static double axpy(int device, xpu_stream *stream, size_t n, float a) {
    void *x_device, *y_device;
    float *x = make(stream, n, &x_device), *y = make(stream, n, &y_device),
          *result = malloc(n * sizeof *result);
    xpu_kernel *kernel;
    CHECK(xpu_kernel_create(device, axpy_source, NULL, "axpy", NULL, &kernel));
    axpy_params params = {(uint64_t)(uintptr_t)x_device, (uint64_t)(uintptr_t)y_device, n, a, 0};
    xpu_range range = {.dims = 1, .groups = {(n + 255) / 256}, .local = {256}, .work = n};
    CHECK(xpu_launch(stream, kernel, &range, &params, sizeof params));
    CHECK(xpu_memcpy(stream, result, y_device, n * sizeof *result, true));
    double worst = 0;
    for (size_t i = 0; i < n; i++) worst = fmax(worst, fabs(result[i] - ((double)a * x[i] + y[i])));
    CHECK(xpu_free(x_device));
    CHECK(xpu_free(y_device));
    free(x);
    free(y);
    free(result);
    return worst;
}

static double gemm(int device, xpu_stream *stream, size_t rows, size_t columns, size_t inner) {
    void *p_device, *q_device, *c_device;
    float *p = make(stream, rows * inner, &p_device), *q = make(stream, inner * columns, &q_device);
    float *c = malloc(rows * columns * sizeof *c);
    CHECK(xpu_malloc(stream, rows * columns * sizeof *c, &c_device));
    xpu_kernel *kernel;
    CHECK(xpu_kernel_create(device, gemm_source, NULL, "gemm", NULL, &kernel));
    gemm_params params = {(uint64_t)(uintptr_t)p_device,
                          (uint64_t)(uintptr_t)q_device,
                          (uint64_t)(uintptr_t)c_device,
                          rows,
                          columns,
                          inner};
    xpu_range range = {.dims = 2,
                       .groups = {(columns + 63) / 64, rows},
                       .local = {64, 1},
                       .work = 2 * rows * columns * inner};
    CHECK(xpu_launch(stream, kernel, &range, &params, sizeof params));
    CHECK(xpu_memcpy(stream, c, c_device, rows * columns * sizeof *c, true));
    double worst = 0;
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            double sum = 0;
            for (size_t k = 0; k < inner; k++) sum += (double)p[i * inner + k] * q[k * columns + j];
            worst = fmax(worst, fabs(c[i * columns + j] - sum));
        }
    }
    CHECK(xpu_free(p_device));
    CHECK(xpu_free(q_device));
    CHECK(xpu_free(c_device));
    free(p);
    free(q);
    free(c);
    return worst;
}

int main(void) {
    int count, device = 0;
    CHECK(xpu_device_count(&count));
    if (count == 0) {
        fprintf(stderr, "%s\n", xpu_no_device_hint());
        return 1;
    }
    const xpu_device_properties *properties;
    xpu_stream *stream;
    CHECK(xpu_device_get_properties(device, &properties));
    CHECK(xpu_stream_default(device, &stream));
    printf("device: %s\n", properties->name);

    double difference = axpy(device, stream, 1000003, 0.75f);
    printf("y = a*x + y on 1000003 numbers: largest difference from the host %.2g\n", difference);
    if (!(difference < 1e-6)) return 1;
    difference = gemm(device, stream, 257, 129, 200);
    printf("c = p*q, 257 x 200 times 200 x 129: largest difference from the host %.2g\n", difference);
    return difference < 1e-4 ? 0 : 1;
}
