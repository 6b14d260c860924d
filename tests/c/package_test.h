/* Shared by the package tests: a kernel image, package files written from words for each test, and programs
 * with random changes. */
#ifndef TESTS_PACKAGE_TEST_H
#define TESTS_PACKAGE_TEST_H

#include <stdlib.h>

#include "device_test.h"

static const char source[] =
    "typedef struct { ulong x; int n; int grid[3]; } params;\n"
    "__attribute__((reqd_work_group_size(16, 1, 1)))\n"
    "__kernel void twice_kernel(const params p) {\n"
    "    size_t i = (get_group_id(0) + get_global_offset(0) / 16) * 16 + get_local_id(0);\n"
    "    if (i < p.n) ((__global float *)p.x)[i] *= 2;\n"
    "}\n";
static const xpu_param params[] = {{XPU_PARAM_POINTER, 8, 0, false, true},
                                   {XPU_PARAM_INTEGER, 4, 8, false, false}};
static const xpu_image twice = {.kind = XPU_IMAGE_SOURCE,
                                .code = source,
                                .code_size = sizeof source - 1,
                                .name = "twice_kernel",
                                .build_options = "-cl-std=CL3.0",
                                .target = "",
                                .device = "",
                                .params = params,
                                .param_count = 2,
                                .params_size = 24,
                                .grid_offset = 12,
                                .local_size = 16,
                                .work = 16};

/* The words have the format of format.h. */
enum { CONST, SIZE, ADD, SUB, MUL, FLOORDIV, MOD, MIN, MAX, EQ, NE, LT, LE };
#define TEXT4(a, b, c, d) 4, (a) | (b) << 8 | (c) << 16 | (int64_t)(d) << 24
enum { WORDS_MOST = 512 };
static const float w[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static char path[] = "/tmp/test_package_XXXXXX";
static char *image;
static size_t image_size;

static xpu_status write_words(const int64_t *words, size_t count) {
    int64_t copy[2 + WORDS_MOST] = {1, (int64_t)count}; /* one program */
    memcpy(copy + 2, words, count * sizeof *words);
    for (size_t i = 2; i + 2 < count + 2; i++) /* the image's size, where it is still asked for */
        if (copy[i] == 1 && copy[i + 1] == 0 && copy[i + 2] == -1) copy[i + 2] = (int64_t)image_size;
    const xpu_package_chunk images = {image, image_size}, weights = {w, sizeof w};
    return xpu_package_write(path, "of a test", copy, count + 2, &images, 1, &weights, 1);
}

static void open_refused(xpu_status status, const char *text) {
    xpu_package *package = NULL;
    const xpu_status got = xpu_package_open(path, 0, &package);
    if (got != status)
        fail_msg("%s, not %s with \"%s\": %s", xpu_status_name(got), xpu_status_name(status), text,
                 xpu_last_error());
    assert_null(package);
    if (!strstr(xpu_last_error(), text)) fail_msg("\"%s\" is not in \"%s\"", text, xpu_last_error());
}

/* The last position of these words. */
static void replace_words(int64_t *words, int total, const int64_t *was, const int64_t *is, int count) {
    int at = total - count;
    while (memcmp(words + at, was, (size_t)count * 8)) assert_true(--at >= 0);
    memcpy(words + at, is, (size_t)count * 8);
}

static int tries = 2000;

/* Changes words at random: opening must give an error or a package whose shapes can be computed. A sanitizer
 * finds out-of-bounds accesses. */
static void try_random(const int64_t *of, int count) {
    unsigned long long seed = 1;
    int opened = 0;
    for (int i = 0; i < tries; i++) {
        int64_t words[WORDS_MOST];
        memcpy(words, of, (size_t)count * sizeof *of);
        for (int changes = 0; changes < 1 + i % 3; changes++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const int at = (int)((seed >> 33) % (unsigned)count);
            static const int64_t odd[] = {-1, 0,  1,       2,         3,         5,
                                          16, 77, 1 << 20, INT32_MAX, INT64_MAX, INT64_MIN};
            words[at] = seed >> 20 & 1 ? odd[(seed >> 50) % 12]
                                       : words[at] ^ (int64_t)(UINT64_C(1) << (seed >> 55 & 63));
        }
        SUCCEEDS(write_words(words, (size_t)count));
        xpu_package *package = NULL;
        if (xpu_package_open(path, 0, &package) != XPU_SUCCESS) {
            assert_null(package);
            continue;
        }
        opened++;
        for (int rows = 1; rows < 70; rows += 34) {
            xpu_package_tensor in[3], out[4] = {0};
            const xpu_package_port *ports;
            int ins, outs;
            SUCCEEDS(xpu_package_inputs(package, &ports, &ins));
            for (int p = 0; p < ins && p < 3; p++) {
                in[p] = (xpu_package_tensor){NULL, true, ports[p].dtype, ports[p].dims, {rows, 4}, {4, 1}};
                for (int d = 0; d < ports[p].dims; d++)
                    if (ports[p].size[d] >= 0) in[p].size[d] = ports[p].size[d];
            }
            SUCCEEDS(xpu_package_outputs(package, &ports, &outs));
            if (ins <= 3 && outs <= 4) xpu_package_shapes(package, in, ins, out, outs);
        }
        xpu_package_close(package);
    }
    assert_true(opened > tries / 20 && opened < tries);
}

/* Runs the tests with the image and the file; the argument is how many damaged programs to try. */
static int run_package_tests(int argc, char **argv, const struct CMUnitTest *tests, size_t count) {
    if (argc > 1) tries = atoi(argv[1]);
    int devices;
    if (xpu_device_count(&devices) != XPU_SUCCESS || !devices) {
        printf("%s\n", xpu_no_device_hint());
        return 1;
    }
    const int file = mkstemp(path);
    if (file < 0 || xpu_image_write(&twice, NULL, 0, &image_size) != XPU_SUCCESS ||
        !(image = malloc(image_size)) ||
        xpu_image_write(&twice, image, image_size, &image_size) != XPU_SUCCESS)
        return 1;
    const int failed = _cmocka_run_group_tests("package", tests, count, NULL, NULL);
    remove(path);
    free(image);
    return failed;
}

#endif
