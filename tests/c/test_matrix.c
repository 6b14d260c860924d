/* Products on matrix engines, and on GPUs in other dtypes: elements are chosen so that sums are exact, and
 * results must be equal to the last bit. All remainders, strides, alignments, batches and split-K. On devices
 * without a matrix engine its instructions are emulated in OpenCL C.
 *
 *     test_matrix [problems [seed [every]]]    random problems, and one in `every` of those below
 *
 * OPENXPU_MATRIX=xmx, xmx8 selects XMX with SIMD16, SIMD8 instead of NVIDIA tensor cores; fma selects the GPU
 * kernel without a matrix engine, with all dtypes; dot the same with int8 dot products of four. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdlib.h>

#include "numbers.h"
#include "units_test.h"
#include "xpu/ops/gemm.h"
#include "xpu/ops/tiles.h"
#include "xpu/tuning.h"

static bool tf32;        /* may fp32 be multiplied as tf32? */
static int64_t step = 1; /* stride between adjacent elements of operands */
static int by_units;     /* launches of the kernel for matrix engines */
static int by_vectors;   /* … and of GEMV */
static size_t groups;    /* work-groups of the last launch of the former */

static void count_launch(const xpu_work *work, xpu_trace_point point, xpu_status status, void *unused) {
    if (point == XPU_TRACE_BEGIN && strstr(work->name, "gemm_matrix"))
        by_units++, groups = work->range->groups[0];
    if (point == XPU_TRACE_BEGIN && strstr(work->name, "gemv ")) by_vectors++;
}

/* The parameters that choose the kernel. */
typedef struct kind {
    int tile;
    bool a_k_major, b_k_major, out_turned;
    int a_align, b_align; /* in elements */
    xpu_dtype dtype;
    xpu_epilogue epilogue;
    int extras;
    xpu_dtype operand; /* dtype of the result of int8 products; 0: the same */
} kind;
/* Binary post-op: one of the last three. */
enum {
    CONJUGATE_A = 1,
    CONJUGATE_B = 2,
    ADDED = XPU_COMBINE_ADD << 2,
    SUBTRACTED = XPU_COMBINE_SUB << 2,
    MULTIPLIED = XPU_COMBINE_MUL << 2
};

/* Memory of a matrix, or of a batch of them, on the host and the device. */
typedef struct memory {
    char *host;
    void *device;
    size_t count;
    int64_t offset;
    xpu_matrix matrix;
} memory;

static memory make(xpu_dtype dtype, int64_t batch, int64_t rows, int64_t columns, bool turned, int align,
                   int64_t apart) {
    memory x = {0};
    const int64_t lines = turned ? columns : rows, length = (turned ? rows : columns) * apart;
    const int64_t pitch = (length + align - 1) / align * align + align * pick(0, 2);
    const int64_t each = pitch * lines + align * pick(0, 2);
    x.offset = align * pick(0, 3);
    x.count = (size_t)(x.offset + each * batch + 64);
    const size_t size = xpu_dtype_size(dtype);
    x.host = malloc(x.count * size);
    for (size_t i = 0; i < x.count; i++) encode_number(dtype, number(dtype), x.host + i * size);
    SUCCEEDS(xpu_malloc(stream, x.count * size, &x.device));
    SUCCEEDS(xpu_memcpy(stream, x.device, x.host, x.count * size, true));
    char *first = (char *)x.device + (size_t)x.offset * size;
    x.matrix = (xpu_matrix){first, each, turned ? apart : pitch, turned ? pitch : apart};
    return x;
}

/* The offset of an element in memory. */
static size_t place(const memory *x, int64_t b, int64_t r, int64_t c) {
    return (size_t)(x->offset + b * x->matrix.batch_stride + r * x->matrix.row_stride +
                    c * x->matrix.column_stride);
}

static double complex element(xpu_dtype dtype, const memory *x, int64_t b, int64_t r, int64_t c) {
    return decode_number(dtype, x->host + place(x, b, r, c) * xpu_dtype_size(dtype));
}

static void drop(memory *x) {
    SUCCEEDS(xpu_free(x->device));
    free(x->host);
}

/* Powers of two as scales: per row, or one for all. */
typedef struct scales {
    float *host;
    void *device;
    int64_t apart, step;
} scales;

static scales make_scales(int64_t batch, int64_t lines) {
    scales s = {.step = pick(0, 2), .apart = pick(0, 1) * (2 * lines + 1)};
    const size_t count = (size_t)((2 * lines + 1) * batch + 1);
    s.host = malloc(count * sizeof *s.host);
    for (size_t i = 0; i < count; i++) s.host[i] = ldexpf(pick(0, 1) ? 1 : -1, (int)pick(-5, -2));
    SUCCEEDS(xpu_malloc(stream, count * sizeof *s.host, &s.device));
    SUCCEEDS(xpu_memcpy(stream, s.device, s.host, count * sizeof *s.host, true));
    return s;
}

static void drop_scales(scales *s) {
    SUCCEEDS(xpu_free(s->device));
    free(s->host);
}

static void try_problem(const kind *w, int64_t batch, int64_t m, int64_t n, int64_t k, bool with_c,
                        bool is_bias) {
    SUCCEEDS(xpu_tuning_set(0, xpu_tuning_index("matrix_tile"), w->tile));
    const bool is_narrow = w->operand != 0, is_scaled = is_narrow && w->dtype != XPU_INT32;
    const xpu_dtype operand = is_narrow ? w->operand : w->dtype;
    full_range = is_narrow && !is_scaled;
    memory a = make(operand, batch, m, k, !w->a_k_major, w->a_align, step);
    memory b = make(operand, batch, k, n, w->b_k_major, w->b_align, step);
    memory c = make(w->dtype, batch, m, n, false, w->b_align, 1);
    memory out = make(w->dtype, batch, m, n, w->out_turned, w->a_align, 1);
    memory other = make(w->dtype, batch, m, n, w->out_turned, w->b_align, 1);
    if (is_bias) c.matrix.row_stride = c.matrix.batch_stride = 0;
    const bool integers = is_integer(w->dtype);
    const double alpha = integers ? (double)pick(1, 3) : ldexp(1, (int)pick(-1, 1));
    const double beta = with_c ? integers ? -2 : -0.5 : 0;
    const size_t size = xpu_dtype_size(w->dtype);
    const xpu_combine combine = (xpu_combine)(w->extras >> 2);
    xpu_gemm_args args = {.dtype = w->dtype,
                          .epilogue = w->epilogue,
                          .conjugate_a = w->extras & CONJUGATE_A,
                          .conjugate_b = w->extras & CONJUGATE_B,
                          .batch = batch,
                          .m = m,
                          .n = n,
                          .k = k,
                          .a = a.matrix,
                          .b = b.matrix,
                          .c = c.matrix,
                          .out = out.matrix,
                          .alpha = {.dtype = XPU_FLOAT64, .value.f = alpha},
                          .beta = {.dtype = XPU_FLOAT64, .value.f = beta},
                          .combine = combine};
    if (!with_c) args.c.data = NULL;
    if (combine) args.other = other.matrix;
    if (combine && is_bias) args.other.column_stride = other.matrix.column_stride = 0;
    scales row = make_scales(batch, m), column = make_scales(batch, n);
    xpu_quant_params left_of = {.dtype = operand}, right_of = left_of;
    if (is_scaled) {
        left_of = (xpu_quant_params){.dtype = operand,
                                     .scale_dtype = XPU_FLOAT32,
                                     .scale = row.device,
                                     .group_rows = row.step != 0,
                                     .scale_batch_stride = row.apart,
                                     .scale_row_stride = row.step};
        right_of = (xpu_quant_params){.dtype = operand,
                                      .scale_dtype = XPU_FLOAT32,
                                      .scale = column.device,
                                      .group_columns = column.step != 0,
                                      .scale_batch_stride = column.apart,
                                      .scale_column_stride = column.step};
    }
    SUCCEEDS(is_narrow ? xpu_gemm_quantized(stream, &args, &left_of, &right_of)
             : tf32    ? xpu_gemm_tf32(stream, &args)
                       : xpu_gemm(stream, &args));
    char *got = malloc(out.count * size);
    SUCCEEDS(xpu_memcpy(stream, got, out.device, out.count * size, true));
    double complex *left = malloc((size_t)(k + 1) * sizeof *left);
    double complex *right = malloc((size_t)(k + 1) * (size_t)n * sizeof *right);
    for (int64_t i = 0; i < batch; i++) {
        for (int64_t s = 0; s < n; s++)
            for (int64_t l = 0; l < k; l++) {
                const double complex v = element(operand, &b, i, l, s);
                right[s * k + l] = (w->extras & CONJUGATE_B) ? conj(v) : v;
            }
        for (int64_t r = 0; r < m; r++) {
            for (int64_t l = 0; l < k; l++) {
                const double complex v = element(operand, &a, i, r, l);
                left[l] = (w->extras & CONJUGATE_A) ? conj(v) : v;
            }
            for (int64_t s = 0; s < n; s++) {
                double complex sum = 0;
                if (is_complex(w->dtype))
                    for (int64_t l = 0; l < k; l++) sum += left[l] * right[s * k + l];
                else
                    for (int64_t l = 0; l < k; l++) sum += creal(left[l]) * creal(right[s * k + l]);
                if (is_scaled)
                    sum *= row.host[i * row.apart + r * row.step] *
                           column.host[i * column.apart + s * column.step];
                double complex want = alpha * sum;
                if (with_c) want += beta * element(w->dtype, &c, i, r, s);
                const double complex with = element(w->dtype, &other, i, r, s);
                if (combine == XPU_COMBINE_ADD) want += with;
                if (combine == XPU_COMBINE_SUB) want -= with;
                if (combine == XPU_COMBINE_MUL) want *= with;
                if (w->epilogue == XPU_EPILOGUE_RELU && creal(want) < 0) want = 0;
                want = rounded_number(w->dtype, want);
                char *at = got + place(&out, i, r, s) * size;
                const double complex is = decode_number(w->dtype, at);
                if (is != want)
                    fail_msg(
                        "%s, tile %d, %lldx%lldx%lld, batch %lld of %lld: %g%+gi at %lld, %lld, not %g%+gi",
                        xpu_dtype_name(w->dtype), w->tile, (long long)m, (long long)n, (long long)k,
                        (long long)i, (long long)batch, creal(is), cimag(is), (long long)r, (long long)s,
                        creal(want), cimag(want));
                memcpy(at, out.host + (at - got), size); /* bytes that must be unchanged */
            }
        }
    }
    assert_memory_equal(got, out.host, out.count * size);
    free(got), free(left), free(right);
    drop_scales(&row), drop_scales(&column);
    drop(&a), drop(&b), drop(&c), drop(&out), drop(&other);
}

/* Sizes around those of a tile and a step, but not multiples of them. */
static void try_sizes(const kind *w) {
    static const int64_t sizes[][4] = {{1, 2, 2, 1},    {1, 64, 64, 64},  {2, 33, 66, 17},
                                       {1, 130, 70, 0}, {1, 17, 140, 96}, {3, 65, 31, 130}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        try_problem(w, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], i % 2, i % 4 == 1);
}

/* The same for block reads, which need rows of at least 64 bytes. */
static void try_block_sizes(const kind *w) {
    static const int64_t sizes[][4] = {{1, 40, 64, 64},   {2, 33, 66, 34},  {1, 130, 72, 32},
                                       {1, 17, 140, 96},  {3, 65, 32, 130}, {1, 40, 64, 352},
                                       {1, 300, 288, 288}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        try_problem(w, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], i % 2, i % 4 == 1);
}

static void all_tiles_and_layouts(void **unused) {
    static const kind block_kinds[] = {
        {8, true, true, false, 32, 32, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {9, true, false, true, 32, 32, XPU_FLOAT16, XPU_EPILOGUE_RELU, ADDED, 0},
        {10, true, false, false, 32, 32, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {11, false, true, false, 32, 32, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {26, true, false, false, 32, 32, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {8, false, false, false, 32, 32, XPU_FLOAT16, XPU_EPILOGUE_NONE, 0,
         0}, /* neither operand is K-major */
        {11, false, false, true, 32, 32, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0},
    };
    for (size_t i = 0; i < sizeof block_kinds / sizeof *block_kinds && by_blocks; i++) {
        const int before = by_units;
        if (is_left_out(i)) continue;
        try_block_sizes(&block_kinds[i]);
        assert_true(by_units > before); /* some of these sizes violate the rules in some layouts */
    }
    static const kind square_kinds[] = {
        {22, true, true, false, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {23, true, true, true, 16, 8, XPU_FLOAT16, XPU_EPILOGUE_RELU, 0, 0},
        {24, true, true, false, 8, 32, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {25, true, true, true, 8, 8, XPU_FLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {22, true, true, false, 16, 16, XPU_INT32, XPU_EPILOGUE_NONE, 0, XPU_INT8},
        {23, true, true, true, 32, 16, XPU_FLOAT32, XPU_EPILOGUE_RELU, 0, XPU_INT8},
        {24, true, true, false, 16, 16, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, XPU_INT8},
        {25, true, true, false, 16, 16, XPU_INT32, XPU_EPILOGUE_NONE, 0, XPU_INT8},
        {27, true, true, false, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {27, true, true, true, 16, 16, XPU_INT32, XPU_EPILOGUE_NONE, 0, XPU_INT8},
        {28, true, true, false, 8, 8, XPU_FLOAT16, XPU_EPILOGUE_RELU, 0, 0},
        {29, true, true, false, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {29, true, true, true, 16, 16, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, XPU_INT8},
        {30, true, true, false, 8, 8, XPU_FLOAT16, XPU_EPILOGUE_RELU, 0, 0},
        {30, true, true, true, 16, 16, XPU_INT32, XPU_EPILOGUE_NONE, 0, XPU_INT8},
    };
    for (size_t i = 0; i < sizeof square_kinds / sizeof *square_kinds && by_xmx8; i++) {
        const int before = by_units;
        try_sizes(&square_kinds[i]);
        try_problem(&square_kinds[i], 1, 300, 170, 104, true, false); /* all subgroups of the largest tiles */
        assert_int_equal(by_units - before, 7);
    }
    if (by_blocks || by_fma || by_xmx8) return;
    static const kind kinds[] = {
        {0, true, true, false, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {1, true, false, true, 8, 8, XPU_FLOAT16, XPU_EPILOGUE_NONE, MULTIPLIED, 0},
        {2, false, true, false, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_RELU, ADDED, 0},
        {3, false, false, false, 8, 8, XPU_FLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {4, false, true, false, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {5, true, true, false, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {6, true, false, false, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {7, false, false, true, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const int before = by_units;
        try_sizes(&kinds[i]);
        assert_int_equal(by_units - before, 6);
    }
}

/* The kernel without a matrix engine: every tile in fp32, the smaller ones also in wider and narrower
 * dtypes. */
static void all_tiles_without_units(void **unused) {
    static const kind kinds[] = {
        {12, true, true, false, 4, 4, XPU_FLOAT32, XPU_EPILOGUE_NONE, 0, 0},
        {13, true, false, true, 4, 4, XPU_FLOAT32, XPU_EPILOGUE_RELU, SUBTRACTED, 0},
        {14, false, true, false, 4, 1, XPU_FLOAT32, XPU_EPILOGUE_NONE, 0, 0},
        {15, false, false, false, 1, 4, XPU_FLOAT32, XPU_EPILOGUE_NONE, ADDED, 0},
        {16, true, false, false, 4, 4, XPU_FLOAT32, XPU_EPILOGUE_NONE, 0, 0},
        {17, false, true, true, 2, 2, XPU_FLOAT64, XPU_EPILOGUE_NONE, MULTIPLIED, 0},
        {18, false, false, false, 2, 4, XPU_COMPLEX64, XPU_EPILOGUE_NONE, CONJUGATE_A, 0},
        {19, true, true, false, 4, 8, XPU_INT8, XPU_EPILOGUE_NONE, 0, 0},
        {20, false, true, false, 1, 1, XPU_COMPLEX128, XPU_EPILOGUE_NONE, CONJUGATE_B, 0},
        {21, true, true, false, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_RELU, 0, 0},
        {21, false, false, false, 4, 2, XPU_INT64, XPU_EPILOGUE_NONE, 0, 0},
    };
    const xpu_device_properties *device;
    SUCCEEDS(xpu_device_get_properties(0, &device));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && by_fma; i++) {
        const bool is_double = kinds[i].dtype == XPU_FLOAT64 || kinds[i].dtype == XPU_COMPLEX128;
        if (is_double && !device->has_fp64) continue;
        const int before = by_units;
        try_sizes(&kinds[i]);
        assert_int_equal(by_units - before, 6);
    }
}

/* Operands whose rows are not aligned to 16 bytes. */
static void all_alignments(void **unused) {
    const kind other = {8, true, false, false, 8, 4, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0};
    if (by_fma) return;
    if (by_blocks || by_xmx8) { /* those of the portable kernel */
        try_block_sizes(&other);
        return;
    }
    static const kind kinds[] = {
        {7, true, false, false, 1, 4, XPU_FLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {7, false, true, false, 2, 1, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {6, false, false, false, 4, 8, XPU_BFLOAT16, XPU_EPILOGUE_NONE, ADDED, 0},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const int before = by_units;
        try_sizes(&kinds[i]);
        assert_int_equal(by_units - before, 6);
    }
}

/* Operands that are packed first: strides in both dimensions, or misaligned rows. */
static void packed_operands(void **unused) {
    const int tile = by_fma ? 20 : by_blocks ? 10 : by_xmx8 ? 24 : 6;
    const xpu_dtype dtype = by_fma ? XPU_FLOAT32 : XPU_BFLOAT16;
    const kind kinds[] = {
        {tile, true, false, false, 1, 8, dtype, XPU_EPILOGUE_NONE, 0, 0},
        {tile, false, false, false, 32, 32, dtype, XPU_EPILOGUE_NONE, 0, 0},
        {tile, false, true, true, 3, 1, dtype, XPU_EPILOGUE_RELU, 0, 0},
    };
    const int number = xpu_tuning_index("packed_product");
    const int64_t before_it = xpu_tuning_value(0, number);
    SUCCEEDS(xpu_tuning_set(0, number, 0));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (step = 1; step < 3; step++) {
            const int before = by_units;
            try_problem(&kinds[i], 1, 70, 64, 96, false, false);
            try_problem(&kinds[i], 2, 34, 130, 64, true, true);
            assert_int_equal(by_units - before, 2);
        }
    step = 1;
    SUCCEEDS(xpu_tuning_set(0, number, before_it));
}

/* Products of int8 with integer results, or scaled. */
static void bytes(void **unused) {
    const xpu_epilogue none = XPU_EPILOGUE_NONE, relu = XPU_EPILOGUE_RELU;
    const kind by_ptx[] = {
        {0, true, true, false, 16, 16, XPU_INT32, none, 0, XPU_INT8},
        {1, false, true, false, 16, 16, XPU_FLOAT32, none, 0, XPU_INT8},
        {2, true, false, true, 16, 16, XPU_INT32, none, 0, XPU_INT8},
        {3, false, false, false, 16, 16, XPU_INT32, none, 0, XPU_INT8},
        {4, true, true, false, 1, 2, XPU_BFLOAT16, relu, 0, XPU_INT8},
        {5, false, true, false, 8, 1, XPU_INT32, none, 0, XPU_INT8},
        {6, true, false, false, 4, 2, XPU_FLOAT16, none, 0, XPU_INT8},
        {7, false, false, true, 1, 1, XPU_INT32, none, 0, XPU_INT8},
    };
    const kind by_xmx[] = {
        {8, true, true, false, 64, 64, XPU_INT32, none, 0, XPU_INT8},
        {9, true, false, true, 64, 64, XPU_FLOAT32, relu, 0, XPU_INT8},
        {10, false, true, false, 64, 64, XPU_BFLOAT16, none, 0, XPU_INT8},
        {11, true, false, false, 64, 64, XPU_INT32, none, 0, XPU_INT8},
    };
    const kind by_hand[] = {
        {12, true, true, false, 16, 4, XPU_INT32, none, 0, XPU_INT8},
        {16, true, true, true, 4, 16, XPU_FLOAT32, relu, 0, XPU_INT8},
        {21, true, true, false, 4, 4, XPU_BFLOAT16, none, 0, XPU_INT8},
        {20, false, true, false, 1, 4, XPU_INT32, none, 0, XPU_INT8},
        {19, false, false, false, 2, 1, XPU_FLOAT16, none, 0, XPU_INT8},
    };
    const bool by_ptx_too = !by_blocks && !by_fma;
    const kind *kinds = by_blocks ? by_xmx : by_fma ? by_hand : by_ptx;
    const int count = by_blocks ? 4 : by_fma ? 5 : 8;
    for (int i = 0; i < count && !by_xmx8; i++) {
        const int before = by_units;
        if (is_left_out((size_t)i)) continue;
        static const int64_t sizes[][4] = {
            {1, 40, 64, 64}, {2, 33, 72, 132}, {1, 132, 100, 64}, {1, 17, 140, 196}, {3, 65, 33, 131}};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            try_problem(&kinds[i], sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3], s % 2, s == 1);
        if (by_ptx_too || by_fma) assert_int_equal(by_units - before, 5);
        assert_true(by_units > before);
    }
    const kind vector = {99, true, true, false, 16, 16, XPU_INT32, none, 0, XPU_INT8};
    const kind across = {99, true, false, false, 16, 16, XPU_FLOAT32, none, 0, XPU_INT8};
    try_problem(&vector, 1, 1, 70, 300, false, false);
    try_problem(&across, 2, 1, 70, 300, true, false);
    try_problem(&vector, 1, 50, 1, 33, false, false);
    try_problem(&vector, 1, 7, 5, 0, true, false);
    try_problem(&across, 1, 9, 32, 4100, false, false); /* with split-K */
}

/* fp32 as tf32, which represents these elements exactly. */
static void rounded_to_tf32(void **unused) {
    static const kind by_ptx[] = {
        {1, true, true, false, 4, 4, XPU_FLOAT32, XPU_EPILOGUE_NONE, 0, 0},
        {3, false, false, true, 4, 4, XPU_FLOAT32, XPU_EPILOGUE_RELU, 0, 0},
        {5, true, false, false, 4, 2, XPU_FLOAT32, XPU_EPILOGUE_NONE, 0, 0},
        {0, false, true, false, 1, 4, XPU_FLOAT32, XPU_EPILOGUE_NONE, 0, 0},
    };
    static const kind by_xmx[] = {
        {8, true, true, false, 16, 16, XPU_FLOAT32, XPU_EPILOGUE_NONE, 0, 0},
        {9, true, false, true, 16, 16, XPU_FLOAT32, XPU_EPILOGUE_RELU, 0, 0},
        {10, false, true, false, 16, 16, XPU_FLOAT32, XPU_EPILOGUE_NONE, 0, 0},
        {11, true, false, false, 16, 16, XPU_FLOAT32, XPU_EPILOGUE_NONE, 0, 0},
    };
    tf32 = true;
    for (size_t i = 0; i < 4 && !by_fma && !by_xmx8; i++) {
        const int before = by_units;
        if (is_left_out(i)) continue;
        if (by_blocks)
            try_block_sizes(&by_xmx[i]);
        else
            try_sizes(&by_ptx[i]);
        assert_true(by_blocks ? by_units > before : by_units - before == 6);
    }
    tf32 = false;
}

/* size x size products of row-major fp32 matrices. */
static xpu_gemm_args square(int64_t size, void *a, void *b, void *out) {
    return (xpu_gemm_args){.dtype = XPU_FLOAT32,
                           .batch = 1,
                           .m = size,
                           .n = size,
                           .k = size,
                           .a = {a, 0, size, 1},
                           .b = {b, 0, size, 1},
                           .out = {out, 0, size, 1},
                           .alpha = {.dtype = XPU_FLOAT64, .value.f = 1},
                           .beta = {.dtype = XPU_FLOAT64, .value.f = 0}};
}

/* Rounding to tf32: 11 bits remain, rounded to nearest or, on XMX, truncated; NaN is kept. */
static void what_tf32_loses(void **unused) {
    enum { SIZE = 16 };
    float a[SIZE * SIZE] = {0}, b[SIZE * SIZE] = {0}, out[SIZE * SIZE];
    for (int i = 0; i < SIZE; i++) a[i * SIZE + i] = 1 + ldexpf(1, -12) + ldexpf(1, -11), b[i * SIZE + i] = 1;
    a[3 * SIZE + 3] = NAN, a[5 * SIZE + 5] = -(1 + ldexpf(1, -12));
    void *device[3];
    for (int i = 0; i < 3; i++) SUCCEEDS(xpu_malloc(stream, sizeof a, &device[i]));
    SUCCEEDS(xpu_memcpy(stream, device[0], a, sizeof a, true));
    SUCCEEDS(xpu_memcpy(stream, device[1], b, sizeof b, true));
    SUCCEEDS(xpu_tuning_set(0, xpu_tuning_index("matrix_tile"), by_blocks ? 10 : 5));
    const xpu_gemm_args args = square(SIZE, device[0], device[1], device[2]);
    for (int rough = 0; rough < 2; rough++) {
        SUCCEEDS(rough ? xpu_gemm_tf32(stream, &args) : xpu_gemm(stream, &args));
        SUCCEEDS(xpu_memcpy(stream, out, device[2], sizeof out, true));
        const bool loses = rough && !by_fma && !by_xmx8;
        const float align_up = 1 + ldexpf(1, -10);
        assert_true(isnan(out[3 * SIZE + 3]));
        assert_true(out[0] == (!loses ? a[0] : by_blocks ? 1 : align_up));
        assert_true(out[5 * SIZE + 5] == (loses ? -1 : a[5 * SIZE + 5]));
    }
    for (int i = 0; i < 3; i++) SUCCEEDS(xpu_free(device[i]));
}

static double post_ops_of(const xpu_gemm_args *end, double v, double other) {
    switch (end->combine) {
    case XPU_COMBINE_ADD: v += other; break;
    case XPU_COMBINE_SUB: v -= other; break;
    case XPU_COMBINE_MUL: v *= other; break;
    case XPU_COMBINE_DIV: v /= other; break;
    default: break;
    }
    const double *s = end->epilogue_scalar;
    switch (end->epilogue) {
    case XPU_EPILOGUE_RELU: return v < 0 ? 0 : v;
    case XPU_EPILOGUE_GELU: return v / 2 * (1 + erf(v * sqrt(0.5)));
    case XPU_EPILOGUE_GELU_TANH: return v / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v)));
    case XPU_EPILOGUE_SILU: return v / (1 + exp(-v));
    case XPU_EPILOGUE_SIGMOID: return 1 / (1 + exp(-v));
    case XPU_EPILOGUE_TANH: return tanh(v);
    case XPU_EPILOGUE_HARDSWISH: return v * fmin(fmax(v + 3, 0), 6) / 6;
    case XPU_EPILOGUE_LEAKY_RELU: return v > 0 ? v : v * s[0];
    case XPU_EPILOGUE_CLAMP: return fmin(fmax(v, s[0]), s[1]);
    case XPU_EPILOGUE_HARDSIGMOID: return fmin(fmax(v + 3, 0), 6) / 6;
    case XPU_EPILOGUE_ELU: return v > 0 ? v : s[0] * expm1(v);
    case XPU_EPILOGUE_MISH: return v * tanh(log1p(exp(v)));
    case XPU_EPILOGUE_ABS: return fabs(v);
    default: return v;
    }
}

/* Elements from -100 to 100, times 1, with all epilogues and binary post-ops: fused, and as separate
 * passes. */
static void endings(void **unused) {
    enum { SIZE = 20 };
    float a[SIZE * SIZE], b[SIZE * SIZE] = {0}, other[SIZE * SIZE], out[SIZE * SIZE];
    for (int i = 0; i < SIZE * SIZE; i++) {
        a[i] = (float)pick(-1000, 1000) / (i % 2 ? 10 : 300);
        b[i] = i % (SIZE + 1) == 0;
        other[i] = (float)pick(1, 800) / (i % 3 ? 400 : -400);
    }
    const float *const host[] = {a, b, other, out};
    void *device[4];
    for (int i = 0; i < 4; i++) SUCCEEDS(xpu_malloc(stream, sizeof a, &device[i]));
    for (int i = 0; i < 3; i++) SUCCEEDS(xpu_memcpy(stream, device[i], host[i], sizeof a, true));
    xpu_gemm_args args = square(SIZE, device[0], device[1], device[3]);
    args.other = (xpu_matrix){device[2], 0, SIZE, 1};
    args.epilogue_scalar[0] = -0.25, args.epilogue_scalar[1] = 3;
    const int64_t size[] = {SIZE, SIZE}, stride[] = {SIZE, 1};
    const xpu_tensor x = {device[3], XPU_FLOAT32, 2, size, stride},
                     y = {device[2], XPU_FLOAT32, 2, size, stride};
    for (int which = 0; which <= XPU_EPILOGUE_ABS + XPU_COMBINE_DIV; which++)
        for (int alone = 0; alone < 2; alone++) {
            args.epilogue = (xpu_epilogue)(which <= XPU_EPILOGUE_ABS ? which : XPU_EPILOGUE_RELU);
            args.combine = (xpu_combine)(which <= XPU_EPILOGUE_ABS ? 0 : which - XPU_EPILOGUE_ABS);
            const xpu_post_ops ending = {args.combine, args.epilogue, {-0.25, 3}};
            SUCCEEDS(alone ? xpu_memcpy(stream, device[3], a, sizeof a, true) : xpu_gemm(stream, &args));
            if (alone) SUCCEEDS(xpu_post_ops_apply(stream, &ending, &y, &x));
            SUCCEEDS(xpu_memcpy(stream, out, device[3], sizeof out, true));
            for (int i = 0; i < SIZE * SIZE; i++) {
                const double want = post_ops_of(&args, a[i], other[i]);
                /* 1 + tanh may be off by the last bit of a number below 1, times v / 2 */
                const double bit = args.epilogue == XPU_EPILOGUE_GELU_TANH ? 3e-8 * fabs(a[i]) : 0;
                const double most = 2e-6 + 2e-6 * fabs(want) + bit;
                if (!(fabs(out[i] - want) <= most))
                    fail_msg("epilogue %d, combination %d of %g and %g: %g, not %g", args.epilogue,
                             args.combine, (double)a[i], (double)other[i], (double)out[i], want);
            }
        }
    args.combine = XPU_COMBINE_NONE, args.epilogue = (xpu_epilogue)(XPU_EPILOGUE_ABS + 1);
    assert_int_equal(xpu_gemm(stream, &args), XPU_ERROR_INVALID_ARGUMENT);
    args.epilogue = XPU_EPILOGUE_NONE, args.combine = (xpu_combine)(XPU_COMBINE_DIV + 1);
    assert_int_equal(xpu_gemm(stream, &args), XPU_ERROR_INVALID_ARGUMENT);
    args.combine = XPU_COMBINE_ADD, args.other.data = NULL;
    assert_int_equal(xpu_gemm(stream, &args), XPU_ERROR_INVALID_ARGUMENT);
    args.other.data = device[2], args.dtype = XPU_INT32;
    assert_int_equal(xpu_gemm(stream, &args), XPU_ERROR_NOT_SUPPORTED);
    for (int i = 0; i < 4; i++) SUCCEEDS(xpu_free(device[i]));
}

/* A vector times a matrix, and a matrix times a vector. */
static void vectors(void **unused) {
    static const int64_t sizes[][4] = {{1, 1, 70, 130},  {2, 150, 1, 63},  {1, 1, 12, 5000}, {3, 1, 5, 7},
                                       {1, 3, 1, 21000}, {1, 1, 1, 90000}, {2, 1, 129, 0},   {1, 1, 900, 65}};
    static const kind kinds[] = {
        {99, true, true, false, 16, 16, XPU_FLOAT32, XPU_EPILOGUE_NONE, 0, 0},
        {99, false, false, false, 16, 16, XPU_BFLOAT16, XPU_EPILOGUE_RELU, ADDED, 0},
        {99, true, false, false, 1, 16, XPU_FLOAT32, XPU_EPILOGUE_NONE, 0, 0},
        {99, false, true, false, 16, 1, XPU_FLOAT16, XPU_EPILOGUE_NONE, 0, 0},
        {99, true, true, false, 16, 16, XPU_COMPLEX64, XPU_EPILOGUE_NONE, CONJUGATE_B, 0},
        {99, true, false, true, 16, 16, XPU_INT8, XPU_EPILOGUE_NONE, 0, 0},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && by_fma; i++) {
        const int before = by_vectors;
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++)
            try_problem(&kinds[i], sizes[j][0], sizes[j][1], sizes[j][2], sizes[j][3], j % 2, j % 4 == 1);
        const bool aligned = kinds[i].a_align > 1 && kinds[i].b_align > 1;
        if (aligned) assert_int_equal(by_vectors - before, 8);
        if (!aligned) assert_true(by_vectors > before && by_vectors < before + 8);
    }
}

/* One row times one column. GPUs read 16 bytes at a time if these are aligned; NVIDIA GPUs fault on
 * others. */
static void one_column(void **unused) {
    static const struct {
        int64_t row_stride, column_stride, first;
        bool by_vectors;
    } all[] = {{1, 1, 0, true},  {1, 77, 4, true}, {1, 1, 1, false}, {4, 1, 0, true}, {8, 1, 4, true},
               {2, 1, 0, false}, {9, 1, 0, false}, {3, 1, 4, false}, {4, 1, 2, false}};
    float host[1000], got;
    for (int i = 0; i < 1000; i++) host[i] = (float)pick(-8, 8);
    void *data, *out;
    SUCCEEDS(xpu_malloc(stream, sizeof host, &data));
    SUCCEEDS(xpu_malloc(stream, sizeof got, &out));
    SUCCEEDS(xpu_memcpy(stream, data, host, sizeof host, true));
    for (size_t i = 0; i < sizeof all / sizeof *all && by_fma; i++) {
        const int64_t k = 96;
        const xpu_gemm_args args = {
            .dtype = XPU_FLOAT32,
            .batch = 1,
            .m = 1,
            .n = 1,
            .k = k,
            .a = {data, 0, k, 1},
            .b = {(float *)data + all[i].first, 0, all[i].row_stride, all[i].column_stride},
            .out = {out, 0, 1, 1},
            .alpha = {.dtype = XPU_FLOAT64, .value.f = 1}};
        const int before = by_vectors;
        SUCCEEDS(xpu_gemm(stream, &args));
        SUCCEEDS(xpu_memcpy(stream, &got, out, sizeof got, true));
        float want = 0;
        for (int64_t j = 0; j < k; j++) want += host[j] * host[all[i].first + j * all[i].row_stride];
        assert_true(got == want);
        assert_int_equal(by_vectors - before, all[i].by_vectors);
    }
    SUCCEEDS(xpu_free(data));
    SUCCEEDS(xpu_free(out));
}

/* 32 x 32 tiles, so that long sums use split-K. */
static kind of_few_results(int extras) {
    return (kind){by_blocks ? 10
                  : by_fma  ? 16
                  : by_xmx8 ? 25
                            : 6,
                  true,
                  by_xmx8,
                  false,
                  32,
                  32,
                  XPU_BFLOAT16,
                  XPU_EPILOGUE_NONE,
                  extras,
                  0};
}

/* A long sum with few results uses split-K. */
static void long_sums(void **unused) {
    const kind w = of_few_results(ADDED);
    try_problem(&w, 1, 9, 32, 2050, true, true);
    try_problem(&w, 2, 30, 10, 1030, false, false);
    const int number = xpu_tuning_index("matrix_split_k");
    for (int i = 0; i < 2; i++) { /* several work-items add up the slices of a sum */
        const int64_t slices = i == 0 ? 40 : 130;
        SUCCEEDS(xpu_tuning_set(0, number, slices));
        try_problem(&w, 1, 9, 32, 16600, true, true);
        assert_true((int64_t)groups >= slices * 7 / 8);
    }
    SUCCEEDS(xpu_tuning_set(0, number, 1 << 20));
}

/* Slices are whole steps, and none is empty. */
static void no_empty_slices(void **unused) {
    kind w = of_few_results(0);
    xpu_tile tile;
    w.tile = tile_that_fits(w.dtype, w.tile);
    SUCCEEDS(xpu_tile_get(0, w.dtype, false, w.tile, &tile));
    size_t most = 0;
    for (int64_t k = 1050; k < 20000; k *= 2) {
        const int before = by_units;
        try_problem(&w, 1, 9, 32, k, false, false);
        assert_int_equal(by_units, before + 1);
        const int64_t slices = (int64_t)groups / ((9 + tile.m - 1) / tile.m * ((32 + tile.n - 1) / tile.n));
        const int64_t each = ((k + slices - 1) / slices + tile.depth - 1) / tile.depth * tile.depth;
        assert_true((slices - 1) * each < k);
        most = groups > most ? groups : most;
    }
    assert_true(most > 1);
}

/* Measured rates take precedence over matrix.def: each tile in turn is made the fastest by far. */
enum { M = 140, N = 290, NO_TILE = 1 << 20 };
static size_t groups_of_product(xpu_dtype dtype, bool b_k_major) {
    const kind w = {.tile = NO_TILE,
                    .a_k_major = true,
                    .b_k_major = b_k_major,
                    .a_align = 64,
                    .b_align = 64,
                    .dtype = dtype == XPU_INT8 ? XPU_INT32 : dtype,
                    .operand = dtype == XPU_INT8 ? XPU_INT8 : 0};
    const int before = by_units;
    try_problem(&w, 1, M, N, 40, false, false);
    assert_int_equal(by_units, before + 1);
    return groups;
}

static void set_rates(xpu_dtype dtype, int along_k, int fastest) {
    for (int i = 0; i < xpu_tile_count(); i++) {
        xpu_tile tile;
        SUCCEEDS(xpu_tile_get(0, dtype, false, i, &tile));
        if (!tile.is_candidate || tile.rate_index[along_k] < 0) continue;
        SUCCEEDS(xpu_tuning_set(0, tile.rate_index[along_k], i == fastest ? INT64_C(1) << 40 : 1));
        SUCCEEDS(xpu_tile_get(0, dtype, false, i, &tile));
        assert_true(tile.rate[along_k] == (i == fastest ? 0x1p40 : 1));
    }
}
static void reset_rates(void) {
    for (int i = 0; i < xpu_tuning_rates(); i++) SUCCEEDS(xpu_tuning_reset(0, xpu_tuning_count() + i));
}

static void measured_rates(void **unused) {
    const xpu_dtype dtype = by_fma ? XPU_FLOAT32 : XPU_BFLOAT16, other = XPU_INT8;
    const size_t at_first = groups_of_product(dtype, true);
    int candidates = 0;
    for (int i = 0; i < xpu_tile_count(); i++) {
        xpu_tile tile;
        SUCCEEDS(xpu_tile_get(0, dtype, false, i, &tile));
        if (!tile.is_candidate) continue;
        candidates++;
        set_rates(dtype, 2, i);
        assert_int_equal(groups_of_product(dtype, true),
                         ((M + tile.m - 1) / tile.m) * ((N + tile.n - 1) / tile.n));
    }
    assert_true(candidates >= 4);
    reset_rates();
    assert_int_equal(groups_of_product(dtype, true), at_first);

    /* Other operands and layouts have separate rates. */
    for (int i = 0; i < xpu_tile_count(); i++) {
        set_rates(dtype, 1, i);
        if (!by_fma || has_dot()) set_rates(other, 2, i); /* otherwise int8 uses the rates of fp32 */
        assert_int_equal(groups_of_product(dtype, true), at_first);
    }
    reset_rates();
    xpu_tuning tuning;
    for (int i = 0; i < xpu_tuning_rates(); i++) {
        SUCCEEDS(xpu_tuning_get(0, xpu_tuning_count() + i, &tuning));
        assert_string_equal(tuning.source, "table");
        assert_int_equal(tuning.value, 0);
        assert_int_equal(xpu_tuning_index(tuning.name), xpu_tuning_count() + i); /* names differ */
    }
}

/* If the largest tile would leave one small work-group per compute unit that waits for both operands, tiles
 * of half the size are used. Tensor cores, both operands K-major. */
static void two_small_groups(void **unused) {
    if (by_blocks || by_fma || by_xmx8) return;
    const xpu_device_properties *properties;
    SUCCEEDS(xpu_device_get_properties(0, &properties));
    const int64_t units = (int64_t)properties->gpu_subslice_count;
    const kind w = {NO_TILE, true, true, false, 64, 64, XPU_BFLOAT16, XPU_EPILOGUE_NONE, 0, 0};
    const int before = by_units;
    try_problem(&w, 1, 128, 128 * units, 264, false, false);
    assert_int_equal(by_units, before + 1);
    assert_int_equal(groups, 2 * units);
}

/* The rate derived from a time is consistent with the cost model, which derives times from rates. */
static void rates_of_times(void **unused) {
    const xpu_device_properties *p;
    SUCCEEDS(xpu_device_get_properties(0, &p));
    const xpu_dtype dtype = by_fma ? XPU_FLOAT32 : XPU_BFLOAT16;
    double rate, half, none;
    for (int i = 0; i < xpu_tile_count(); i++) {
        xpu_tile tile;
        SUCCEEDS(xpu_tile_get(0, dtype, false, i, &tile));
        if (!tile.is_candidate) {
            assert_int_equal(xpu_tile_rate(0, dtype, false, i, 4096, 4096, 4096, 2, 1, &none),
                             XPU_ERROR_INVALID_ARGUMENT);
            continue;
        }
        /* The number of work-groups is a multiple of what all compute units run at a time, and K is so large
         * that the first step doesn't matter. */
        const int64_t m = tile.m * 1680, n = tile.n * (int64_t)p->gpu_subslice_count, k = 1 << 20;
        const double products = (double)m * (double)n * (double)k / (double)p->gpu_subslice_count;
        SUCCEEDS(xpu_tile_rate(0, dtype, false, i, m, n, k, 2, 1e-6 * products / 500000, &rate));
        assert_true(rate > 499999 && rate < 501000 * 1.5); /* more if few work-items wait for memory */
        SUCCEEDS(xpu_tile_rate(0, dtype, false, i, m, n, k, 2, 1e-6 * products / 250000, &half));
        assert_true(rate / half > 1.99 && rate / half < 2.01);
        assert_int_equal(xpu_tile_rate(0, dtype, false, i, 64, 64, 64, 2, 1e-9, &none),
                         XPU_ERROR_INVALID_ARGUMENT);
        assert_int_equal(xpu_tile_rate(0, dtype, false, i, m, n, k, 2, 0, &none), XPU_ERROR_INVALID_ARGUMENT);
    }
    xpu_tile tile;
    assert_int_equal(xpu_tile_get(0, dtype, false, xpu_tile_count(), &tile), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_tile_get(0, dtype, false, -1, &tile), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_tile_get(0, (xpu_dtype)1000, false, 0, &tile), XPU_ERROR_INVALID_ARGUMENT);
}

static void whatever_comes(void **unused) {
    static const int aligns[] = {1, 2, 4, 8, 8, 8}, block_tiles[] = {8, 9, 10, 11, 26},
                     square_tiles[] = {22, 23, 24, 25, 27, 28};
    static const xpu_dtype dtypes[] = {XPU_FLOAT32, XPU_FLOAT32,  XPU_FLOAT32,   XPU_FLOAT32,
                                       XPU_FLOAT32, XPU_FLOAT64,  XPU_COMPLEX64, XPU_COMPLEX128,
                                       XPU_FLOAT16, XPU_BFLOAT16, XPU_INT32,     XPU_UINT8};
    kind w = {0};
    for (int i = 0; i < extra; i++) {
        if (i % 25 == 0) /* a new kernel takes seconds to build */
            w = (kind){.tile = (int)(by_fma      ? pick(12, 22)
                                     : by_blocks ? block_tiles[pick(0, 4)]
                                     : by_xmx8   ? square_tiles[pick(0, 5)]
                                                 : pick(0, 7)),
                       .a_k_major = pick(0, 1),
                       .b_k_major = pick(0, 1),
                       .out_turned = pick(0, 1),
                       .a_align = by_blocks ? 32 : aligns[pick(0, 5)],
                       .b_align = by_blocks ? 32 : aligns[pick(0, 5)],
                       .dtype = by_fma       ? dtypes[pick(0, 11)]
                                : pick(0, 1) ? XPU_BFLOAT16
                                             : XPU_FLOAT16,
                       .epilogue = pick(0, 3) ? XPU_EPILOGUE_NONE : XPU_EPILOGUE_RELU,
                       .extras = pick(0, 2) ? 0 : (int)pick(1, 3) << 2};
        if (i % 25 == 0 && pick(0, 2) == 0) {
            static const xpu_dtype results[] = {XPU_INT32, XPU_FLOAT32, XPU_BFLOAT16};
            w.operand = XPU_INT8, w.dtype = results[pick(0, 2)];
            if (by_blocks) w.a_align = w.b_align = 64;
            if (!by_blocks) w.a_align = 2 * aligns[pick(0, 5)], w.b_align = 2 * aligns[pick(0, 5)];
        }
        if (i % 25 == 0 && by_xmx8 && pick(0, 3)) {
            w.a_k_major = w.b_k_major = true;
            w.a_align = w.b_align = 16;
        }
        if (i % 25 == 0 && !w.operand && !by_fma && !by_xmx8) {
            tf32 = pick(0, 3) == 0;
            if (tf32) w.dtype = XPU_FLOAT32;
        }
        if (is_complex(w.dtype) || is_integer(w.dtype)) w.epilogue = XPU_EPILOGUE_NONE, w.extras = 0;
        if (is_complex(w.dtype)) w.extras = (int)pick(0, 3);
        step = pick(0, 9) ? 1 : 2;
        SUCCEEDS(xpu_tuning_set(0, xpu_tuning_index("packed_product"), pick(0, 1) ? 0 : 1 << 30));
        try_problem(&w, pick(1, 3), pick(2, 300), pick(2, 300), pick(0, 9) ? pick(0, 300) : pick(300, 3000),
                    pick(0, 1), pick(0, 1));
    }
}

int main(int count, char **words) {
    read_words(count, words);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_tiles_and_layouts),
        cmocka_unit_test(all_tiles_without_units),
        cmocka_unit_test(all_alignments),
        cmocka_unit_test(bytes),
        cmocka_unit_test(rounded_to_tf32),
        cmocka_unit_test(what_tf32_loses),
        cmocka_unit_test(endings),
        cmocka_unit_test(vectors),
        cmocka_unit_test(one_column),
        cmocka_unit_test(long_sums),
        cmocka_unit_test(no_empty_slices),
        cmocka_unit_test(packed_operands),
        cmocka_unit_test(measured_rates),
        cmocka_unit_test(two_small_groups),
        cmocka_unit_test(rates_of_times),
        cmocka_unit_test(whatever_comes),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
