/* Products by matrix units, to the last bit: of numbers whose sums are exact, with all remainders, strides,
 * alignments, batches and slices. On devices without such units they are written out in plain OpenCL C.
 *
 *     test_matrix [problems [seed]]    so many with whatever kernel comes up, beside those below
 *
 * OPENXPU_MATRIX=xmx takes Intel's units for NVIDIA's. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdlib.h>

#include "device_test.h"
#include "halves.h"
#include "xpu/ops/gemm.h"
#include "xpu/tuning.h"

static xpu_stream *stream;
static int extra;
static bool by_blocks; /* Intel's */
static int by_units;   /* launches of the kernel that uses matrix units */

static void count_launch(const xpu_work *work, xpu_trace_point point, xpu_status status, void *unused) {
    if (point == XPU_TRACE_BEGIN && strstr(work->name, "gemm_matrix")) by_units++;
}

/* What decides the kernel. */
typedef struct kind {
    int tile;
    bool a_k_fast, b_k_fast, out_turned;
    int a_align, b_align; /* elements */
    xpu_dtype dtype;
    xpu_epilogue epilogue;
} kind;

/* Memory of a matrix, or of a batch of them, on the host and the device. */
typedef struct memory {
    uint16_t *host;
    void *device;
    size_t count;
    int64_t offset;
    xpu_matrix matrix;
} memory;

static memory make(xpu_dtype dtype, int64_t batch, int64_t rows, int64_t columns, bool turned, int align) {
    memory x = {0};
    const int64_t lines = turned ? columns : rows, length = turned ? rows : columns;
    const int64_t pitch = (length + align - 1) / align * align + align * pick(0, 2);
    const int64_t each = pitch * lines + align * pick(0, 2);
    x.offset = align * pick(0, 3);
    x.count = (size_t)(x.offset + each * batch + 64);
    x.host = malloc(x.count * 2);
    for (size_t i = 0; i < x.count; i++) x.host[i] = encode(dtype, (double)pick(-8, 8) / 8);
    SUCCEEDS(xpu_malloc(stream, x.count * 2, &x.device));
    SUCCEEDS(xpu_memcpy(stream, x.device, x.host, x.count * 2, true));
    x.matrix = (xpu_matrix){(uint16_t *)x.device + x.offset, each, turned ? 1 : pitch, turned ? pitch : 1};
    return x;
}

static size_t place(const memory *x, int64_t b, int64_t r, int64_t c) {
    return (size_t)(x->offset + b * x->matrix.batch_stride + r * x->matrix.row_stride +
                    c * x->matrix.column_stride);
}

static void drop(memory *x) {
    SUCCEEDS(xpu_free(x->device));
    free(x->host);
}

static void try_problem(const kind *w, int64_t batch, int64_t m, int64_t n, int64_t k, bool with_c,
                        bool is_bias) {
    SUCCEEDS(xpu_tuning_set(0, xpu_tuning_number("matrix_tile"), w->tile));
    memory a = make(w->dtype, batch, m, k, !w->a_k_fast, w->a_align);
    memory b = make(w->dtype, batch, k, n, w->b_k_fast, w->b_align);
    memory c = make(w->dtype, batch, m, n, false, 1), out = make(w->dtype, batch, m, n, w->out_turned, 1);
    if (is_bias) c.matrix.row_stride = c.matrix.batch_stride = 0;
    const double alpha = ldexp(1, (int)pick(-1, 1)), beta = with_c ? -0.5 : 0;
    xpu_gemm_args args = {.dtype = w->dtype,
                          .epilogue = w->epilogue,
                          .batch = batch,
                          .m = m,
                          .n = n,
                          .k = k,
                          .a = a.matrix,
                          .b = b.matrix,
                          .c = c.matrix,
                          .out = out.matrix,
                          .alpha = {.dtype = XPU_FLOAT64, .value.f = alpha},
                          .beta = {.dtype = XPU_FLOAT64, .value.f = beta}};
    if (!with_c) args.c.data = NULL;
    SUCCEEDS(xpu_gemm(stream, &args));
    uint16_t *got = malloc(out.count * 2);
    SUCCEEDS(xpu_memcpy(stream, got, out.device, out.count * 2, true));
    for (int64_t i = 0; i < batch; i++)
        for (int64_t r = 0; r < m; r++)
            for (int64_t s = 0; s < n; s++) {
                double sum = 0;
                for (int64_t l = 0; l < k; l++)
                    sum += decode(w->dtype, a.host[place(&a, i, r, l)]) *
                           decode(w->dtype, b.host[place(&b, i, l, s)]);
                double want = alpha * sum;
                if (with_c) want += beta * decode(w->dtype, c.host[place(&c, i, r, s)]);
                if (w->epilogue == XPU_EPILOGUE_RELU && want < 0) want = 0;
                const size_t at = place(&out, i, r, s);
                const double is = decode(w->dtype, got[at]);
                if (is != rounded(w->dtype, want))
                    fail_msg("tile %d, %lldx%lldx%lld, batch %lld of %lld: %g at %lld, %lld, not %g", w->tile,
                             (long long)m, (long long)n, (long long)k, (long long)i, (long long)batch, is,
                             (long long)r, (long long)s, want);
                got[at] = out.host[at]; /* what is left then must be as it was */
            }
    assert_memory_equal(got, out.host, out.count * 2);
    free(got);
    drop(&a), drop(&b), drop(&c), drop(&out);
}

/* Sizes around a tile's and a step's, and none of their multiples. */
static void try_sizes(const kind *w) {
    static const int64_t sizes[][4] = {{1, 2, 2, 1},    {1, 64, 64, 64},  {2, 33, 66, 17},
                                       {1, 130, 70, 0}, {1, 17, 140, 96}, {3, 65, 31, 130}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        try_problem(w, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], i % 2, i % 4 == 1);
}

/* The same for reads of blocks, whose rules want rows of 64 bytes or more. */
static void try_block_sizes(const kind *w) {
    static const int64_t sizes[][4] = {
        {1, 40, 64, 64}, {2, 33, 66, 34}, {1, 130, 72, 32}, {1, 17, 140, 96}, {3, 65, 32, 130}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        try_problem(w, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], i % 2, i % 4 == 1);
}

static void all_tiles_and_layouts(void **unused) {
    static const kind block_kinds[] = {
        {8, true, true, false, 32, 32, XPU_BFLOAT16, XPU_EPILOGUE_NONE},
        {9, true, false, true, 32, 32, XPU_FLOAT16, XPU_EPILOGUE_RELU},
        {10, true, false, false, 32, 32, XPU_BFLOAT16, XPU_EPILOGUE_NONE},
        {11, false, true, false, 32, 32, XPU_BFLOAT16, XPU_EPILOGUE_NONE},
    };
    for (size_t i = 0; i < sizeof block_kinds / sizeof *block_kinds && by_blocks; i++) {
        const int before = by_units;
        try_block_sizes(&block_kinds[i]);
        assert_true(by_units > before); /* not all of these sizes keep to the rules in all layouts */
    }
    if (by_blocks) return;
    static const kind kinds[] = {
        {0, true, true, false, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_NONE},
        {1, true, false, true, 8, 8, XPU_FLOAT16, XPU_EPILOGUE_NONE},
        {2, false, true, false, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_RELU},
        {3, false, false, false, 8, 8, XPU_FLOAT16, XPU_EPILOGUE_NONE},
        {4, false, true, false, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_NONE},
        {5, true, true, false, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_NONE},
        {6, true, false, false, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_NONE},
        {7, false, false, true, 8, 8, XPU_BFLOAT16, XPU_EPILOGUE_NONE},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const int before = by_units;
        try_sizes(&kinds[i]);
        assert_int_equal(by_units - before, 6);
    }
}

/* Operands whose rows don't begin at 16 bytes. */
static void all_alignments(void **unused) {
    const kind other = {8, true, false, false, 8, 4, XPU_BFLOAT16, XPU_EPILOGUE_NONE};
    if (by_blocks) { /* the plain kernel's */
        try_block_sizes(&other);
        return;
    }
    static const kind kinds[] = {
        {7, true, false, false, 1, 4, XPU_FLOAT16, XPU_EPILOGUE_NONE},
        {7, false, true, false, 2, 1, XPU_BFLOAT16, XPU_EPILOGUE_NONE},
        {6, false, false, false, 4, 8, XPU_BFLOAT16, XPU_EPILOGUE_NONE},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const int before = by_units;
        try_sizes(&kinds[i]);
        assert_int_equal(by_units - before, 6);
    }
}

/* A long sum of few results is cut into slices. */
static void long_sums(void **unused) {
    const kind w = {by_blocks ? 10 : 6, true, false, false, 32, 32, XPU_BFLOAT16, XPU_EPILOGUE_NONE};
    try_problem(&w, 1, 9, 32, 2050, true, true);
    try_problem(&w, 2, 30, 10, 1030, false, false);
}

static void whatever_comes(void **unused) {
    static const int aligns[] = {1, 2, 4, 8, 8, 8};
    kind w = {0};
    for (int i = 0; i < extra; i++) {
        if (i % 25 == 0) /* a new kernel takes seconds to build */
            w = (kind){.tile = (int)(by_blocks ? pick(8, 11) : pick(0, 7)),
                       .a_k_fast = pick(0, 1),
                       .b_k_fast = pick(0, 1),
                       .out_turned = pick(0, 1),
                       .a_align = by_blocks ? 32 : aligns[pick(0, 5)],
                       .b_align = by_blocks ? 32 : aligns[pick(0, 5)],
                       .dtype = pick(0, 1) ? XPU_BFLOAT16 : XPU_FLOAT16,
                       .epilogue = pick(0, 3) ? XPU_EPILOGUE_NONE : XPU_EPILOGUE_RELU};
        try_problem(&w, pick(1, 3), pick(2, 300), pick(2, 300), pick(0, 9) ? pick(0, 300) : pick(300, 3000),
                    pick(0, 1), pick(0, 1));
    }
}

static int set_up(void **unused) {
    const xpu_device_properties *p;
    SUCCEEDS(xpu_device_get_properties(0, &p));
    if (p->type == XPU_DEVICE_CPU) setenv("OPENXPU_MATRIX", "ptx", 0);
    const char *unit = getenv("OPENXPU_MATRIX");
    by_blocks = unit && !strcmp(unit, "xmx");
    SUCCEEDS(xpu_stream_default(0, &stream));
    static xpu_trace *trace;
    SUCCEEDS(xpu_trace_subscribe(count_launch, NULL, &trace));
    return 0;
}

int main(int count, char **words) {
    extra = count > 1 ? atoi(words[1]) : 0;
    if (count > 2) random_state = strtoull(words[2], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_tiles_and_layouts),
        cmocka_unit_test(all_alignments),
        cmocka_unit_test(long_sums),
        cmocka_unit_test(whatever_comes),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
