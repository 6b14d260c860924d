/* The front end of the Triton IR compiler: hand-written modules, malformed modules, and the corpus of modules
 * printed by Triton 3.6, 3.7 and 3.9 for its own and Inductor's kernels. Needs no device. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "xpu/tile.h"

static char *read_file(const char *folder, const char *name, size_t *size) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("can't open %s", path);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*size + 1);
    assert_int_equal(fread(data, 1, *size, f), *size);
    data[*size] = 0;
    fclose(f);
    return data;
}

typedef void check(const char *folder, const char *name, char *text, size_t size);

/* Calls `each` for every file with that suffix (NULL: any); returns their number. */
static int for_files(const char *folder, const char *end, check *each) {
    struct dirent **list;
    int count = scandir(folder, &list, NULL, alphasort), done = 0;
    if (count < 0) fail_msg("no folder %s", folder);
    for (int i = 0; i < count; i++) {
        const char *dot = strrchr(list[i]->d_name, '.');
        if (end ? dot && !strcmp(dot, end) : list[i]->d_name[0] != '.') {
            size_t size;
            char *text = read_file(folder, list[i]->d_name, &size);
            each(folder, list[i]->d_name, text, size);
            free(text);
            done++;
        }
        free(list[i]);
    }
    free(list);
    return done;
}

static xpu_tile_program *compiled(const char *name, const char *text, size_t size, xpu_tile_stage dump) {
    xpu_tile_program *program;
    xpu_tile_options options = {.file = name, .dump_after = dump};
    if (xpu_tile_compile(text, size, &options, &program) != XPU_SUCCESS) fail_msg("%s", xpu_last_error());
    return program;
}

/* Printing and parsing again gives the same module. */
static void check_round_trip(const char *folder, const char *name, char *text, size_t size) {
    xpu_tile_program *first = compiled(name, text, size, XPU_TILE_PARSE);
    if (strstr(first->dump, "\"tt.func\"")) {
        xpu_tile_program *second = compiled(name, first->dump, strlen(first->dump), XPU_TILE_PARSE);
        assert_string_equal(first->dump, second->dump);
        xpu_tile_program_free(second);
    }
    xpu_tile_program_free(first);
}

static void check_bad(const char *folder, const char *name, char *text, size_t size) {
    char *wanted = strstr(text, "expect: ") + 8, *end = strchr(wanted, '\n');
    xpu_tile_program *program = NULL;
    xpu_tile_options options = {.file = name};
    xpu_status status = xpu_tile_compile(text, size, &options, &program);
    *end = 0;
    if (status == XPU_SUCCESS) fail_msg("%s compiles", name);
    assert_null(program);
    assert_true(status == XPU_ERROR_INVALID_ARGUMENT || status == XPU_ERROR_NOT_SUPPORTED);
    if (!strstr(xpu_last_error(), wanted)) fail_msg("%s: no \"%s\" in: %s", name, wanted, xpu_last_error());
    if (!strstr(xpu_last_error(), "^") && !strstr(wanted, "no public function"))
        fail_msg("%s: no caret in: %s", name, xpu_last_error());
}

/* For each kind of device: a program, or an error with a message. */
static void check_fuzz_input(const char *folder, const char *name, char *text, size_t size) {
    static const char *const names[] = {"cpu", "bmg", "generic", "dg2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        xpu_tile_target target;
        xpu_tile_program *program;
        assert_int_equal(xpu_tile_target_find(names[i], &target), XPU_SUCCESS);
        xpu_tile_options options = {
            .file = name, .target = &target, .comments = i & 1, .debug_asserts = true};
        if (xpu_tile_compile(text, size, &options, &program) == XPU_SUCCESS)
            xpu_tile_program_free(program);
        else
            assert_true(xpu_last_error()[0]);
    }
}

static void test_good_modules(void **state) {
    assert_true(for_files(IR_FOLDER, ".ttir", check_round_trip) >= 6);
}
static void test_bad_modules(void **state) {
    assert_true(for_files(IR_FOLDER "/bad", ".ttir", check_bad) >= 20);
}
static void test_corpus(void **state) {
    assert_int_equal(for_files(CORPUS_FOLDER, ".ttir", check_round_trip), 1007);
}

static void test_fuzz_inputs(void **state) {
    assert_true(for_files(FUZZ_FOLDER, NULL, check_fuzz_input) >= 100);
}

/* Every prefix of a module is an error, not a crash. A module with one character changed is an error or still
 * valid. */
static void test_truncation_and_damage(void **state) {
    size_t size;
    char *text = read_file(IR_FOLDER, "control_flow.ttir", &size);
    xpu_tile_program *program;
    for (size_t n = 0; n < strlen(text) - 3; n++) {
        char *part = malloc(n ? n : 1); /* exact size, for the sanitizer */
        memcpy(part, text, n);
        assert_int_not_equal(xpu_tile_compile(part, n, NULL, &program), XPU_SUCCESS);
        free(part);
    }
    static const char damage[] = "0%^\"<{}(:x";
    for (size_t n = 0; n < size; n++) {
        char was = text[n];
        text[n] = damage[n % (sizeof damage - 1)];
        if (xpu_tile_compile(text, size, NULL, &program) == XPU_SUCCESS) xpu_tile_program_free(program);
        text[n] = was;
    }
    free(text);
}

static void test_deep_nesting(void **state) {
    size_t size = 1 << 16;
    char *text = malloc(size);
    memset(text, '[', size);
    memcpy(text, "#a = ", 5);
    xpu_tile_program *program;
    assert_int_equal(xpu_tile_compile(text, size, NULL, &program), XPU_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(xpu_last_error(), "deep"));
    free(text);
}

static void test_targets(void **state) {
    xpu_tile_target target;
    assert_int_equal(xpu_tile_target_find("cpu", &target), XPU_SUCCESS);
    assert_true(target.is_cpu);
    assert_int_equal(target.lanes, 16);
    assert_int_equal(xpu_tile_target_find("nothing", &target), XPU_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(xpu_last_error(), "bmg"));
}

#define FIELDS                                                                                               \
    " is_cpu=0 has_subgroups=1 has_fp16=0 has_fp64=1 has_atomic64=0 has_float_atomics=1 lanes=32"            \
    " max_lanes=1024 local_memory=5000000000 has_inline_ptx=1 has_ptx_bf16=0 matrix_lanes=8"                 \
    " has_matrix_tf32=1 has_packed_dot=0 has_block_2d=1"

/* A device runs images compiled for it and images that require less, but not those for another kind. */
static void test_targets_fit_devices(void **state) {
    char text[XPU_TILE_TARGET_TEXT];
    xpu_tile_target target;
    assert_int_equal(xpu_tile_target_of_device(0, &target), XPU_SUCCESS);
    assert_int_equal(xpu_tile_target_write(&target, text, sizeof text), XPU_SUCCESS);
    assert_int_equal(xpu_tile_target_check(text, 0), XPU_SUCCESS);
    assert_int_equal(xpu_tile_target_check("", 0), XPU_SUCCESS);
    const xpu_tile_target own = target;
    target.has_fp64 = target.has_packed_dot = false;
    target.max_lanes = 32;
    assert_int_equal(xpu_tile_target_write(&target, text, sizeof text), XPU_SUCCESS);
    assert_int_equal(xpu_tile_target_check(text, 0), XPU_SUCCESS);
    target = own;
    target.has_block_2d = true;
    assert_int_equal(xpu_tile_target_write(&target, text, sizeof text), XPU_SUCCESS);
    assert_int_equal(xpu_tile_target_check(text, 0), XPU_ERROR_NOT_SUPPORTED);
    assert_non_null(strstr(xpu_last_error(), "differs in has_block_2d"));
    target = own;
    target.is_cpu = !target.is_cpu;
    assert_int_equal(xpu_tile_target_write(&target, text, sizeof text), XPU_SUCCESS);
    assert_int_equal(xpu_tile_target_check(text, 0), XPU_ERROR_NOT_SUPPORTED);
    assert_int_equal(xpu_tile_target_check("nothing", 0), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_tile_target_check(text, 1000), XPU_ERROR_INVALID_ARGUMENT);
}

static void test_targets_are_text(void **state) {
    char text[XPU_TILE_TARGET_TEXT];
    assert_int_equal(xpu_tile_target_text_size(), sizeof text);
    xpu_tile_target target, again;
    static const char *const names[] = {"cpu", "bmg", "dg2", "nvidia", "generic"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(xpu_tile_target_read(names[i], &target), XPU_SUCCESS);
        assert_int_equal(xpu_tile_target_write(&target, text, sizeof text), XPU_SUCCESS);
        assert_int_equal(xpu_tile_target_read(text, &again), XPU_SUCCESS);
        assert_string_equal(target.name, again.name);
#define X(type, field) assert_true(target.field == again.field);
        XPU_TILE_TARGET_FIELDS(X)
#undef X
    }
    assert_int_equal(xpu_tile_target_read("gpu" FIELDS, &target), XPU_SUCCESS);
    assert_true(target.has_subgroups && !target.has_fp16 && target.has_block_2d && target.matrix_lanes == 8);
    assert_true(target.local_memory == 5000000000u);
    assert_int_equal(xpu_tile_target_write(&target, text, sizeof text), XPU_SUCCESS);
    assert_string_equal(text, "gpu" FIELDS);
    assert_int_equal(xpu_tile_target_write(&target, text, strlen(text)), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_tile_target_read("gpu" FIELDS " has_fp16=1", &target), XPU_SUCCESS);
    assert_true(target.has_fp16); /* the last value counts */
    static const char *const wrong[] = {
        "gpu",
        "gpu lanes=16",
        " " FIELDS,
        "a_name_that_is_as_long_as_no_device's" FIELDS,
        "gpu" FIELDS " has_fp16=2",
        "gpu" FIELDS " has_fp16",
        "gpu" FIELDS " has_fp16=",
        "gpu" FIELDS " has_fp16=-1",
        "gpu" FIELDS " has_fp16=1x",
        "gpu" FIELDS " has_fp1=1",
        "gpu" FIELDS " has_fp166=1",
        "gpu" FIELDS " =1",
        "gpu" FIELDS " lanes=0",
        "gpu" FIELDS " lanes=4294967312",
        "gpu" FIELDS " max_lanes=31",
        "gpu" FIELDS " matrix_lanes=4",
        "gpu" FIELDS " matrix_lanes=32",
        "gpu" FIELDS " matrix_lanes=32 has_ptx_bf16=1 lanes=16",
        "gpu" FIELDS " local_memory=50000000000000000000",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (xpu_tile_target_read(wrong[i], &target) != XPU_ERROR_INVALID_ARGUMENT)
            fail_msg("\"%s\" is a target", wrong[i]);
}

/* Callers that pass options as text get the same result as callers that pass structs. */
static void test_compiling_by_text(void **state) {
    static const char text[] =
        "module {\n  tt.func public @k(%p: !tt.ptr<f32>, %n: i32, %h: bf16) {\n"
        "    %c = arith.constant 3.0 : f32\n    tt.store %p, %c : !tt.ptr<f32>\n    tt.return\n  }\n}\n";
    xpu_tile_target target;
    xpu_tile_program *one, *two;
    assert_int_equal(xpu_tile_target_find("bmg", &target), XPU_SUCCESS);
    xpu_tile_options options = {.target = &target, .num_warps = 8, .comments = true};
    if (xpu_tile_compile(text, strlen(text), &options, &one)) fail_msg("%s", xpu_last_error());
    if (xpu_tile_compile_text(text, strlen(text), "bmg", NULL, "num_warps=8 comments=1", &two))
        fail_msg("%s", xpu_last_error());
    assert_string_equal(xpu_tile_program_image(one), xpu_tile_program_image(two));
    const char *end = strchr(xpu_tile_program_image(one), '\n');
    assert_string_equal(end + 1, one->source);
    char start[100];
    snprintf(start, sizeof start, "\"local_size\": %u, ", 8 * 16u);
    assert_non_null(strstr(xpu_tile_program_image(two), start));
    assert_non_null(strstr(xpu_tile_program_image(two),
                           "\"params\": [[0, 8, 0, 0, 1], [1, 4, 8, 0, 0], [2, 2, 12, 1, 0]]"));
    xpu_image image, *read;
    assert_int_equal(xpu_tile_image(one, &image), XPU_SUCCESS);
    assert_int_equal(xpu_image_read(xpu_tile_program_image(two), strlen(xpu_tile_program_image(two)), &read),
                     XPU_SUCCESS);
    assert_string_equal(read->code, image.code);
    assert_string_equal(read->target, image.target);
    assert_true(!strncmp(image.target, "bmg is_cpu=0 ", 13));
    xpu_image_free(read);
    xpu_tile_program_free(one);
    xpu_tile_program_free(two);
    assert_int_equal(xpu_tile_compile_text(text, strlen(text), "cpu", NULL, "dump_after=1", &one),
                     XPU_SUCCESS);
    assert_null(xpu_tile_program_image(one));
    assert_int_equal(xpu_tile_image(one, &image), XPU_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(xpu_tile_program_dump(one), "tt.store"));
    assert_true(xpu_tile_program_seconds(one, XPU_TILE_PARSE) > 0);
    xpu_tile_program_free(one);
    assert_int_equal(xpu_tile_compile_text(text, strlen(text), "cpu", NULL, "dump_after=6", &one),
                     XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_tile_compile_text(text, strlen(text), "cpu", NULL, "warps=4", &one),
                     XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_tile_compile_text(text, strlen(text), "nothing", NULL, NULL, &one),
                     XPU_ERROR_INVALID_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_modules),
        cmocka_unit_test(test_bad_modules),
        cmocka_unit_test(test_truncation_and_damage),
        cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_corpus),
        cmocka_unit_test(test_fuzz_inputs),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_targets_are_text),
        cmocka_unit_test(test_targets_fit_devices),
        cmocka_unit_test(test_compiling_by_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
