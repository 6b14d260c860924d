/* Packages with grouped products and the other operators of a mixture of experts. Argument: number of damaged
 * programs to try. */
#include "package_test.h"

/* y = grouped product of x and w, 0 after the last group; sums: rows of y added at the indices `here`; rate:
 * histogram of `here`. x: [s, 2], w: [2, 2, 3], here: [s] of 0 to 3 */
#define TEXT8(a, b, c, d, e, f, g, h)                                                                        \
    ((int64_t)(a) | (int64_t)(b) << 8 | (int64_t)(c) << 16 | (int64_t)(d) << 24 | (int64_t)(e) << 32 |       \
     (int64_t)(f) << 40 | (int64_t)(g) << 48 | (int64_t)(h) << 56)
#define THREE INT64_C(0x4008000000000000) /* as a double */
static const int64_t experts[] = {
    /* registers: 0, 1, 2, 3, s, 4, 6 */ 7,
    CONST,
    0,
    0,
    CONST,
    1,
    0,
    CONST,
    2,
    0,
    CONST,
    3,
    0,
    SIZE,
    0,
    0,
    CONST,
    4,
    0,
    CONST,
    6,
    0,              //
    /* checks */ 0, //
    /* constants: w */ 1,
    0,
    48,
    0,              //
    /* inputs */ 3, //
    TEXT4('x', 'x', 'x', 'x'),
    XPU_FLOAT32,
    2,
    4,
    2,
    2,
    1, //
    TEXT4('e', 'n', 'd', 's'),
    XPU_INT32,
    1,
    2,
    1, //
    TEXT4('h', 'e', 'r', 'e'),
    XPU_INT64,
    1,
    4,
    1,                                                        //
    /* tensors: x, ends, here, w, y, sums, counts, rate */ 8, //
    0,
    XPU_FLOAT32,
    2,
    4,
    2,
    2,
    1,
    0,
    0, //
    0,
    XPU_INT32,
    1,
    2,
    1,
    1,
    0, //
    0,
    XPU_INT64,
    1,
    4,
    1,
    2,
    0, //
    1,
    XPU_FLOAT32,
    3,
    2,
    2,
    3,
    6,
    3,
    1,
    0,
    0, //
    2,
    XPU_FLOAT32,
    2,
    4,
    3,
    3,
    1,
    0,
    0, //
    2,
    XPU_FLOAT32,
    2,
    5,
    3,
    3,
    1,
    0,
    0, //
    2,
    XPU_INT32,
    1,
    5,
    1,
    0,
    0, //
    2,
    XPU_FLOAT32,
    1,
    5,
    1,
    0,
    0, //
    /* outputs */ 3,
    TEXT4('o', 'u', 't', '0'),
    4,
    TEXT4('s', 'u', 'm', 's'),
    5,
    TEXT4('r', 'a', 't', 'e'),
    7,              //
    /* images */ 0, //
    /* steps */ 6,  //
    -1,
    TEXT4('f', 'i', 'l', 'l'),
    2,
    1,
    4,
    3,
    0, //
    -1,
    10,
    TEXT8('g', 'r', 'o', 'u', 'p', 'e', 'd', '_'),
    TEXT8('m', 'm', 0, 0, 0, 0, 0, 0),
    4,
    1,
    4,
    1,
    0,
    1,
    3,
    1,
    1, //
    -1,
    TEXT4('f', 'i', 'l', 'l'),
    2,
    1,
    5,
    3,
    0, //
    -1,
    13,
    TEXT8('i', 'n', 'd', 'e', 'x', '_', 's', 'c'),
    TEXT8('a', 't', 't', 'e', 'r', 0, 0, 0),
    5,
    1,
    5,
    1,
    2,
    1,
    4,
    2,
    0,
    2,
    1, //
    -1,
    9,
    TEXT8('h', 'i', 's', 't', 'o', 'g', 'r', 'a'),
    'm',
    4,
    1,
    6,
    1,
    2,
    3,
    0,
    3,
    THREE, //
    -1,
    TEXT4('c', 'o', 'p', 'y'),
    2,
    1,
    7,
    1,
    6, //
};
enum { EXPERTS = sizeof experts / sizeof *experts, ROWS_MOST = 40 };
_Static_assert((int)EXPERTS <= (int)WORDS_MOST, "write_words has room for it");

/* Runs with this number of rows; outputs go to memory of the run or, with `y`, to `y`. */
static xpu_status run_experts(xpu_package *package, int rows, const int32_t ends[2], const int64_t *here,
                              float *y, float *sums, float *rate) {
    static float x[ROWS_MOST * 2];
    xpu_stream *stream;
    XPU_TRY(xpu_stream_default(0, &stream));
    for (int i = 0; i < 2 * ROWS_MOST; i++) x[i] = (float)(i % 7) - 2;
    const xpu_package_tensor in[] = {{x, true, XPU_FLOAT32, 2, {rows, 2}, {2, 1}},
                                     {(void *)(uintptr_t)ends, true, XPU_INT32, 1, {2}, {1}},
                                     {(void *)(uintptr_t)here, true, XPU_INT64, 1, {rows}, {1}}};
    xpu_package_tensor out[] = {{y, true, XPU_FLOAT32, 2, {rows, 3}, {3, 1}},
                                {sums, true, XPU_FLOAT32, 2, {4, 3}, {3, 1}},
                                {rate, true, XPU_FLOAT32, 1, {4}, {1}}};
    const xpu_status status = xpu_package_run(package, stream, in, 3, out, 3);
    for (int i = 0; !y && status == XPU_SUCCESS && i < 3; i++) SUCCEEDS(xpu_free(out[i].data));
    return status;
}

/* Groups may have no rows; ends that decrease or exceed the rows are an error where there are
 * rows. */
static void experts_run(void **state) {
    static const int32_t ends[][2] = {{2, 5}, {0, 5}, {5, 5},   {2, 2},
                                      {0, 0}, {4, 1}, {99, -3}, {-1, INT32_MAX}};
    static const int sizes[] = {5, 1, 0, ROWS_MOST};
    xpu_package *package;
    SUCCEEDS(write_words(experts, EXPERTS));
    SUCCEEDS(xpu_package_open(path, 0, &package));
    int64_t here[ROWS_MOST];
    for (int i = 0; i < ROWS_MOST; i++) here[i] = i % 5 == 4 ? 0 : i % 4;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t e = 0; e < sizeof ends / sizeof *ends; e++) {
            const int rows = sizes[s];
            float y[ROWS_MOST * 3], sums[12], rate[4], wanted_sums[12] = {0}, wanted_rate[4] = {0};
            const int first = ends[e][0], last = ends[e][1];
            const xpu_status status = run_experts(package, rows, ends[e], here, y, sums, rate);
            if (rows && (first < 0 || last < first || last > rows)) {
                assert_int_equal(status, XPU_ERROR_ASSERTION);
                assert_non_null(strstr(xpu_last_error(), "offsets don't ascend, or are out of range"));
                continue;
            }
            SUCCEEDS(status);
            for (int i = 0; i < rows; i++) {
                wanted_rate[here[i]]++;
                for (int j = 0; j < 3; j++) {
                    const float *const matrix = w + (i < first ? 0 : 6);
                    float sum = 0;
                    for (int k = 0; k < 2 && i < last; k++)
                        sum += ((float)((i * 2 + k) % 7) - 2) * matrix[k * 3 + j];
                    assert_float_equal(y[i * 3 + j], sum, 0);
                    wanted_sums[here[i] * 3 + j] += sum;
                }
            }
            for (int i = 0; i < 12; i++) assert_float_equal(sums[i], wanted_sums[i], 0);
            for (int i = 0; i < 4; i++) assert_float_equal(rate[i], wanted_rate[i], 0);
        }
    xpu_package_close(package);
}

/* An index out of range is an error, on GPUs when the results are waited for; the next run works. */
static void scattering_beyond_is_an_error(void **state) {
    static const int32_t ends[2] = {1, 3};
    xpu_package *package;
    int64_t here[3] = {0, 4, 1};
    float y[9], sums[12], rate[4];
    SUCCEEDS(write_words(experts, EXPERTS));
    SUCCEEDS(xpu_package_open(path, 0, &package));
    assert_int_equal(run_experts(package, 3, ends, here, y, sums, rate), XPU_ERROR_INDEX);
    assert_non_null(strstr(xpu_last_error(), "index 4 is out of bounds"));
    here[1] = 2;
    SUCCEEDS(run_experts(package, 3, ends, here, y, sums, rate));
    xpu_package_close(package);
}

/* Unsupported sizes and dtypes in otherwise valid packages. */
static void lies_of_experts_are_refused(void **state) {
    static const int32_t ends[2] = {1, 3};
    static const int64_t here[3] = {0, 3, 1};
    static const char product[] = "grouped_mm: the operands' sizes or dtypes don't match",
                      place[] = "index_scatter: the operands' sizes or dtypes don't match",
                      counts[] = "histogram: the operands' sizes or dtypes don't match";
    static const struct {
        int64_t was[9], is[9];
        int count;
        const char *text;
        bool at_open;
    } lies[] = {
        {{1, 0, 1, 3, 1, 1}, {1, 0, 1, 3, 1, 2}, 6, product, false}, /* ends of int64 */
        {{1, 0, 1, 3, 1, 1}, {1, 0, 1, 3, 1, 3}, 6, product, false}, /* of three dimensions */
        {{1, 0, 1, 3, 1, 1}, {1, 0, 1, 0, 1, 1}, 6, product, false}, /* y isn't a batch */
        {{1, 0, 1, 3, 1, 1}, {1, 3, 1, 3, 1, 1}, 6, product, false}, /* two batches */
        {{1, 0, 1, 3, 1, 1}, {1, 3, 1, 0, 1, 1}, 6, product, false}, /* other sizes */
        {{1, 0, 1, 3, 1, 1}, {1, 2, 1, 3, 1, 1}, 6, product, false}, /* one dimension */
        {{1, 0, 1, 3, 1, 1}, {1, 0, 1, 3, 2, 1}, 6, "the arguments of grouped_mm have the wrong types", true},
        {{1, 0, 1, 3, 1, 1}, {1, 0, 1, 3, 1, 8}, 6, "argument 3 of step 1 is invalid", true},
        {{3, 2, 2, 3, 6, 3, 1}, {3, 1, 2, 3, 6, 3, 1}, 7, product, false}, /* a group fewer than ends */
        {{3, 2, 2, 3, 6, 3, 1}, {3, 2, 1, 3, 6, 3, 1}, 7, product, false}, /* another k */
        {{3, 2, 2, 3, 6, 3, 1}, {3, 2, 2, 1, 6, 3, 1}, 7, product, false}, /* another n */
        {{3, 2, 2, 3, 6, 3, 1},
         {3, 3, 2, 3, 6, 3, 1},
         7,
         "tensor 3 needs 72 bytes of memory that has 48",
         false},
        {{2, 4, 3, 3, 1}, {2, 1, 3, 3, 1}, 5, product, false}, /* y has another size */
        {{1, 2, 1, 4, 2, 0}, {1, 2, 1, 4, 2, 6}, 6, place, false},
        {{1, 2, 1, 4, 2, 0}, {1, 1, 1, 4, 2, 0}, 6, place, false},
        {{1, 2, 1, 4, 2, 0}, {1, 4, 1, 4, 2, 0}, 6, place, false},
        {{1, 2, 1, 4, 2, 0, 2, 1}, {1, 2, 1, 4, 2, 0, 2, 6}, 8, "index_scatter: unknown operation 6", false},
        {{3, 0, 3, THREE}, {3, 0, 3, 0}, 4, "a histogram from 0 to 0", false},
        {{3, 0, 3, THREE}, {3, 0, 3, INT64_C(0x3fe0000000000000)}, 4, "a histogram from 0 to 0.5", false},
        {{3, 0, 3, THREE}, {3, 0, 3, INT64_C(0x7ff0000000000000)}, 4, "a histogram from 0 to inf", false},
        {{3, 0, 3, THREE}, {3, 0, 3, INT64_C(0x7ff8000000000000)}, 4, "a histogram from 0 to", false},
        {{1, 6, 1, 2, 3}, {1, 7, 1, 2, 3}, 5, counts, false},
        {{1, 6, 1, 2, 3}, {1, 5, 1, 2, 3}, 5, counts, false},
        {{1, 7, 1, 6}, {1, 7, 1, 5}, 4, "a copy between tensors of different sizes", false},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        int64_t words[EXPERTS];
        xpu_package *package;
        memcpy(words, experts, sizeof words);
        replace_words(words, EXPERTS, lies[i].was, lies[i].is, lies[i].count);
        SUCCEEDS(write_words(words, EXPERTS));
        if (lies[i].at_open) {
            open_refused(XPU_ERROR_INVALID_ARGUMENT, lies[i].text);
            continue;
        }
        SUCCEEDS(xpu_package_open(path, 0, &package));
        const xpu_status status = run_experts(package, 3, ends, here, NULL, NULL, NULL);
        if (status != XPU_ERROR_INVALID_ARGUMENT || !strstr(xpu_last_error(), lies[i].text))
            fail_msg("lie %zu: %s, not \"%s\": %s", i, xpu_status_name(status), lies[i].text,
                     xpu_last_error());
        xpu_package_close(package);
    }
}
static void random_programs_are_harmless(void **state) { try_random(experts, EXPERTS); }

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_run),
        cmocka_unit_test(scattering_beyond_is_an_error),
        cmocka_unit_test(lies_of_experts_are_refused),
        cmocka_unit_test(random_programs_are_harmless),
    };
    return run_package_tests(argc, argv, tests, sizeof tests / sizeof *tests);
}
