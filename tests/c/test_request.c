/* Build requests: what an operation builds is recorded as a line, from which another process builds the same
 * program, so that the operation then builds nothing. The test starts itself as the processes that use the
 * cache. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_test.h"
#include "xpu/ops/pointwise.h"
#include "xpu/ops/reduce.h"

static char folder[256], recording[300];

/* --- a process that uses operations with generated kernel source --- */

static int use_operations(void) {
    enum { ROWS = 40, COLUMNS = 50, COUNT = ROWS * COLUMNS };
    xpu_stream *stream;
    float *a, *b;
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(xpu_malloc(stream, COUNT * sizeof *a, (void **)&a));
    SUCCEEDS(xpu_malloc(stream, COUNT * sizeof *b, (void **)&b));
    float zero = 0;
    SUCCEEDS(xpu_memset(stream, a, &zero, sizeof zero, COUNT));
    /* every third column: rows with a constant step */
    xpu_iter iter = {.outputs = 1, .inputs = 1, .dims = 2, .size = {16, ROWS}};
    iter.operand[0] = (xpu_operand){.data = b, .dtype = XPU_FLOAT32, .stride = {4, 4 * 16}};
    iter.operand[1] = (xpu_operand){.data = a, .dtype = XPU_FLOAT32, .stride = {12, 4 * COLUMNS}};
    SUCCEEDS(xpu_pointwise(stream, XPU_POINTWISE_EXP, XPU_FLOAT32, &iter, NULL, 0));
    /* all of it, contiguous */
    iter = (xpu_iter){.outputs = 1, .inputs = 1, .dims = 1, .size = {COUNT}};
    iter.operand[0] = (xpu_operand){.data = b, .dtype = XPU_FLOAT32, .stride = {4}};
    iter.operand[1] = (xpu_operand){.data = a, .dtype = XPU_FLOAT32, .stride = {4}};
    SUCCEEDS(xpu_pointwise(stream, XPU_POINTWISE_EXP, XPU_FLOAT32, &iter, NULL, 0));
    /* the sum of each row */
    iter = (xpu_iter){.outputs = 1, .inputs = 1, .dims = 2, .size = {COLUMNS, ROWS}};
    iter.operand[0] = (xpu_operand){.data = b, .dtype = XPU_FLOAT32, .stride = {0, 4}};
    iter.operand[1] = (xpu_operand){.data = a, .dtype = XPU_FLOAT32, .stride = {4, 4 * COLUMNS}};
    SUCCEEDS(xpu_reduce(stream, XPU_REDUCE_SUM, &iter, 0));
    float first;
    SUCCEEDS(xpu_memcpy(stream, &first, b, sizeof first, true));
    return first == 0 ? 0 : 1;
}

/* Builds the recorded requests. */
static int replay(void) {
    char line[4096];
    FILE *file = fopen(recording, "r");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        SUCCEEDS(xpu_request_build(0, strrchr(line, '\t') + 1));
    }
    if (file) fclose(file);
    return file ? 0 : 1;
}

/* --- processes --- */

/* Exit status: 100 + programs built; 0 to 99 is a failure. */
static int run(const char *what) {
    pid_t child = fork();
    if (!child) {
        execl("/proc/self/exe", "test_request", what, (char *)NULL);
        _exit(1);
    }
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) - 100 : -1000;
}

static int setup(void **state) {
    snprintf(folder, sizeof folder, "/tmp/openxpu-request-test-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(recording, sizeof recording, "%s/recording", folder);
    unsetenv("OPENXPU_CACHE");
    return setenv("OPENXPU_CACHE_DIR", folder, 1);
}

static int teardown(void **state) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static int lines_of_recording(void) {
    FILE *file = fopen(recording, "r");
    int lines = 0;
    for (int c; file && (c = fgetc(file)) != EOF;) lines += c == '\n';
    if (file) fclose(file);
    return lines;
}

/* --- tests --- */

static void what_was_recorded_is_built(void **state) {
    setenv("OPENXPU_CACHE", "0", 1);
    setenv("OPENXPU_RECORD_KERNELS", recording, 1);
    int built = run("use");
    unsetenv("OPENXPU_RECORD_KERNELS");
    unsetenv("OPENXPU_CACHE");
    assert_in_range(built, 3, 20);
    assert_int_equal(lines_of_recording(), built); /* each is recorded */
    assert_int_equal(run("replay"), built);
    assert_int_equal(run("replay"), 0);
    assert_int_equal(run("use"), 0); /* everything is cached */
}

static void a_list_comes_with_the_library(void **state) {
    assert_non_null(xpu_request_common());
    assert_non_null(strstr(xpu_request_common(), "\tcopy.cl|copy|"));
}

static void wrong_requests(void **state) {
    static const char *const wrong[] = {
        "",
        "copy.cl",
        "copy.cl|copy||copy 4 bytes",
        "|copy||copy 4 bytes|",           /* neither file nor text */
        "nowhere.cl|copy||copy 4 bytes|", /* no such file */
        "|pointwise||exp|pointwise",      /* no plan */
        "|pointwise||exp|pointwise exp f32 0 0 1 f32.2.0",
        "|pointwise||exp|pointwise exp f32 0 0 1 f32.2.0 f33.2.0",
        "|pointwise||exp|pointwise exp f32 0 99 1 f32.2.0 f32.2.0",
        "|pointwise||exp|pointwise exp f32 7 0 1 f32.2.0 f32.2.0",
        "|pointwise||exp|pointwise exp f32 0 0 1 f32.9.0 f32.2.0",
        "|pointwise||exp|pointwise nothing f32 0 0 1 f32.2.0 f32.2.0",
        "|pointwise||exp|pointwise exp i64 0 0 1 f32.2.0 f32.2.0", /* not defined for integers */
        "|foreach||foreach|foreach add f32 tt",
        "|foreach||foreach|foreach add f32 ttx",
        "reduce_reference.cl|reduce_rows||sum|reduce nothing",
        "reduce_reference.cl|reduce_rows||sum|nothing sum",
        "scan.cl|scan_rows||sum|scan nothing",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        xpu_status status = xpu_request_build(0, wrong[i]);
        if (status != XPU_ERROR_INVALID_ARGUMENT) fail_msg("\"%s\": %s", wrong[i], xpu_status_name(status));
    }
    assert_int_equal(xpu_request_build(0, NULL), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_request_build(99, "copy.cl|copy|-DE=4|copy|"), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_request_build(0, "sort.cl|sort_tiles|-DT=nothing|sort|"), XPU_ERROR_BUILD_FAILED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int count, char **arguments) {
    if (count > 1) {
        xpu_program_stats stats;
        const char *place = getenv("OPENXPU_CACHE_DIR");
        snprintf(recording, sizeof recording, "%s/recording", place ? place : "");
        int status = !strcmp(arguments[1], "use") ? use_operations() : replay();
        return status || xpu_program_get_stats(&stats) ? 1 : 100 + (int)stats.built;
    }
    const struct CMUnitTest tests[] = {TEST(what_was_recorded_is_built),
                                       cmocka_unit_test(a_list_comes_with_the_library),
                                       cmocka_unit_test(wrong_requests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
