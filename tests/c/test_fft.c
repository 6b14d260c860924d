/* Fourier transforms of all kinds, in any dimension and with strides, against sums in fp64. */
#include <complex.h>
#include <math.h>
#include <stdlib.h>

#include "device_test.h"
#include "xpu/ops/fft.h"

enum { ROWS = 3, COLUMNS = 2 };

static int device;
static xpu_stream *stream;

static int set_up(void **state) {
    SUCCEEDS(xpu_device_current(&device));
    SUCCEEDS(xpu_stream_current(device, &stream));
    return 0;
}

static double next_number(void) {
    static uint32_t seed = 1;
    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 8) / (1 << 23) - 1;
}

static void turn_one(double complex *out, const double complex *in, int n, int step, int sign) {
    double complex root[n];
    for (int k = 0; k < n; k++) root[k] = cexp(sign * 2 * 3.14159265358979323846 * I * k / n);
    for (int k = 0; k < n; k++) {
        double complex sum = 0;
        for (int j = 0; j < n; j++) sum += in[j * step] * root[(int64_t)j * k % n];
        out[k * step] = sum;
    }
}

static void put(void *memory, xpu_dtype dtype, int64_t at, double v) {
    if (dtype == XPU_FLOAT64)
        ((double *)memory)[at] = v;
    else
        ((float *)memory)[at] = (float)v;
}

static double get(const void *memory, xpu_dtype dtype, int64_t at) {
    return dtype == XPU_FLOAT64 ? ((const double *)memory)[at] : ((const float *)memory)[at];
}

/* [ROWS, n, COLUMNS] along dimension 1; stride 2 in `in`, and reversed dimensions in `out`. */
static void try_length(int n, xpu_dtype dtype, xpu_fft_kind kind, bool inverse) {
    const int half = n / 2 + 1, given = kind == XPU_FFT_C2R ? half : n;
    const int made = kind == XPU_FFT_R2C ? half : n;
    const int read = kind == XPU_FFT_R2C ? 1 : 2, written = kind == XPU_FFT_C2R ? 1 : 2;
    const int64_t in_size[] = {ROWS, given, COLUMNS}, in_stride[] = {2 * given * COLUMNS, 2 * COLUMNS, 2};
    const int64_t out_size[] = {ROWS, made, COLUMNS}, out_stride[] = {1, ROWS, ROWS * made};
    const size_t size = xpu_dtype_size(dtype), in_bytes = (size_t)(2 * ROWS * given * COLUMNS * read) * size;
    const size_t out_bytes = (size_t)(ROWS * made * COLUMNS * written) * size;
    void *in = calloc(1, in_bytes), *out = malloc(out_bytes), *there, *back;
    double complex *x = malloc(sizeof *x * (size_t)(ROWS * n * COLUMNS)),
                   *y = malloc(sizeof *y * (size_t)(ROWS * n * COLUMNS));
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) {
            for (int j = 0; j < given; j++) {
                const double a = next_number(), b = next_number();
                const int64_t at = r * in_stride[0] + j * in_stride[1] + c * in_stride[2];
                put(in, dtype, at * read, a);
                if (read == 2) put(in, dtype, at * 2 + 1, b);
                double complex *row = x + (size_t)(r * n * COLUMNS + c);
                row[j * COLUMNS] = read == 2 ? a + b * I : a;
                if (kind != XPU_FFT_C2R) continue;
                if (j == 0 || 2 * j == n)
                    row[j * COLUMNS] = a;
                else
                    row[(n - j) * COLUMNS] = a - b * I;
            }
            turn_one(y + r * n * COLUMNS + c, x + r * n * COLUMNS + c, n, COLUMNS, inverse ? 1 : -1);
        }
    SUCCEEDS(xpu_malloc(stream, in_bytes, &there));
    SUCCEEDS(xpu_malloc(stream, out_bytes, &back));
    SUCCEEDS(xpu_memcpy(stream, there, in, in_bytes, true));
    const int dim = 1;
    const xpu_fft_args args = {.in = {there, dtype, 3, in_size, in_stride},
                               .out = {back, dtype, 3, out_size, out_stride},
                               .dim = &dim,
                               .count = 1,
                               .kind = kind,
                               .inverse = inverse,
                               .scale = 0.5};
    SUCCEEDS(xpu_fft(stream, &args));
    SUCCEEDS(xpu_memcpy(stream, out, back, out_bytes, true));
    double wrong = 0, all = 0;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            for (int k = 0; k < made; k++) {
                const int64_t at = r * out_stride[0] + k * out_stride[1] + c * out_stride[2];
                const double complex want = y[(r * n + k) * COLUMNS + c] / 2;
                const double a = get(out, dtype, at * written);
                const double b = written == 2 ? get(out, dtype, at * 2 + 1) : cimag(want);
                wrong += pow(a - creal(want), 2) + pow(b - cimag(want), 2);
                all += pow(creal(want), 2) + pow(cimag(want), 2);
            }
    const double error = sqrt(wrong / all), most = dtype == XPU_FLOAT64 ? 1e-13 : 1e-6;
    if (!(error <= most)) fail_msg("length %d, kind %d, inverse %d: %g", n, kind, inverse, error);
    SUCCEEDS(xpu_free(there));
    SUCCEEDS(xpu_free(back));
    free(in), free(out), free(x), free(y);
}

static void lengths(void **state) {
    static const int some[] = {1, 2, 3, 5, 7, 8, 11, 13, 16, 17, 30, 64, 77, 211, 360, 1000, 1024};
    const xpu_device_properties *properties;
    SUCCEEDS(xpu_device_get_properties(device, &properties));
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        for (int kind = 0; kind < 3; kind++)
            for (int inverse = 0; inverse < 2; inverse++) {
                try_length(some[i], XPU_FLOAT32, (xpu_fft_kind)kind, inverse);
                if (properties->has_fp64) try_length(some[i], XPU_FLOAT64, (xpu_fft_kind)kind, inverse);
            }
}

/* Forward and inverse in place, along several dimensions and with more than one pass over memory. */
static void there_and_back(void **state) {
    enum { A = 4, B = 8192, C = 3, COUNT = 2 * A * B * C };
    const int64_t size[] = {A, B, C}, stride[] = {B * C, C, 1};
    float *x = malloc(COUNT * sizeof *x), *y = malloc(COUNT * sizeof *y);
    for (int i = 0; i < COUNT; i++) x[i] = (float)next_number();
    void *memory;
    SUCCEEDS(xpu_malloc(stream, COUNT * sizeof *x, &memory));
    SUCCEEDS(xpu_memcpy(stream, memory, x, COUNT * sizeof *x, true));
    const xpu_tensor tensor = {memory, XPU_FLOAT32, 3, size, stride};
    const int dims[] = {1, 0, 2};
    xpu_fft_args args = {.in = tensor, .out = tensor, .dim = dims, .count = 3, .scale = 1};
    SUCCEEDS(xpu_fft(stream, &args));
    args.inverse = true;
    args.scale = 2. / COUNT;
    SUCCEEDS(xpu_fft(stream, &args));
    SUCCEEDS(xpu_memcpy(stream, y, memory, COUNT * sizeof *x, true));
    for (int i = 0; i < COUNT; i++) assert_true(fabsf(x[i] - y[i]) < 2e-6f);
    SUCCEEDS(xpu_free(memory));
    free(x), free(y);
}

static void what_is_refused(void **state) {
    const int64_t size[] = {4, 6}, half[] = {4, 4}, less[] = {4, 3}, stride[] = {6, 1};
    const int dims[] = {0, 1}, twice[] = {1, 1}, beyond[] = {2};
    const xpu_tensor in = {NULL, XPU_FLOAT32, 2, size, stride};
    const xpu_fft_args right = {.in = in, .out = in, .dim = dims, .count = 2, .scale = 1};
    xpu_fft_args args = right;
    args.dim = twice;
    assert_int_equal(xpu_fft(stream, &args), XPU_ERROR_INVALID_ARGUMENT);
    args.dim = beyond;
    args.count = 1;
    assert_int_equal(xpu_fft(stream, &args), XPU_ERROR_INVALID_ARGUMENT);
    args = right;
    args.count = 0;
    assert_int_equal(xpu_fft(stream, &args), XPU_ERROR_INVALID_ARGUMENT);
    args = right;
    args.out.size = half;
    assert_int_equal(xpu_fft(stream, &args), XPU_ERROR_INVALID_ARGUMENT);
    args = right;
    args.kind = XPU_FFT_R2C;
    args.out.size = less;
    assert_int_equal(xpu_fft(stream, &args), XPU_ERROR_INVALID_ARGUMENT);
    args = right;
    args.kind = XPU_FFT_C2R;
    args.in.size = less;
    assert_int_equal(xpu_fft(stream, &args), XPU_ERROR_INVALID_ARGUMENT);
    args = right;
    args.out.dtype = XPU_FLOAT16;
    assert_int_equal(xpu_fft(stream, &args), XPU_ERROR_INVALID_ARGUMENT);
    args = right;
    args.in.dtype = args.out.dtype = XPU_COMPLEX64;
    assert_int_equal(xpu_fft(stream, &args), XPU_ERROR_NOT_SUPPORTED);
    assert_non_null(strstr(xpu_last_error(), "ComplexFloat"));
    const int64_t vast[] = {1, ((int64_t)1 << 29) + 11}, steps[] = {0, 0};
    args = right;
    args.in.size = args.out.size = vast;
    args.in.stride = args.out.stride = steps;
    assert_int_equal(xpu_fft(stream, &args), XPU_ERROR_NOT_SUPPORTED);
    assert_non_null(strstr(xpu_last_error(), "536870923"));
    const int64_t none[] = {0, 6};
    args = right;
    args.dim = dims + 1;
    args.count = 1;
    args.in.size = args.out.size = none;
    SUCCEEDS(xpu_fft(stream, &args));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
