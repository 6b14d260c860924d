/* The kernel cache on disk: a second process builds nothing; a damaged file is rebuilt and never used;
 * concurrent writers and killed writers leave a working cache. The test starts itself as the processes that
 * use the cache. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "device_test.h"

/* --- a process that uses the cache: builds or loads a kernel and checks its results --- */

enum { WRONG = 1, GOOD = 100 }; /* exit status: GOOD + 10 * built + loaded */

static int use_cache(unsigned number) {
    xpu_stream *stream;
    xpu_kernel *kernel;
    uint32_t *out, host[1000];
    xpu_program_stats stats;
    if (xpu_stream_default(0, &stream) || line_create(0, number, &kernel) ||
        xpu_malloc(stream, sizeof host, (void **)&out) || line_launch(stream, kernel, out, 1000, 9) ||
        xpu_memcpy(stream, host, out, sizeof host, true) || xpu_program_get_stats(&stats)) {
        fprintf(stderr, "%s\n", xpu_last_error());
        return WRONG;
    }
    return line_is_right(host, 1000, number, 9) ? GOOD + 10 * (int)stats.built + (int)stats.loaded : WRONG;
}

static const char *self;
static char folder[256];

static pid_t start(unsigned number) {
    pid_t child = fork();
    if (child) return child;
    char text[16];
    snprintf(text, sizeof text, "%u", number);
    execl(self, self, text, (char *)NULL);
    _exit(WRONG);
}

static int result_of(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int run(unsigned number) { return result_of(start(number)); }

#define BUILT (GOOD + 10)
#define LOADED (GOOD + 1)

/* --- the folder --- */

static char paths[64][512];

/* The files whose names have this suffix. */
static int list(const char *end) {
    DIR *d = opendir(folder);
    if (!d) return 0;
    int count = 0;
    struct dirent *e;
    while ((e = readdir(d))) {
        size_t length = strlen(e->d_name), tail = strlen(end);
        if (length < tail || strcmp(e->d_name + length - tail, end) || e->d_name[0] == '.') continue;
        snprintf(paths[count++], sizeof paths[0], "%s/%s", folder, e->d_name);
    }
    closedir(d);
    return count;
}

static int setup(void **state) {
    snprintf(folder, sizeof folder, "/tmp/openxpu-cache-test-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    unsetenv("OPENXPU_CACHE");
    return setenv("OPENXPU_CACHE_DIR", folder, 1);
}

static int teardown(void **state) {
    chmod(folder, 0700);
    for (int i = list(""); i-- > 0;) unlink(paths[i]);
    return rmdir(folder);
}

static unsigned char bytes[1 << 20];

static size_t read_file(const char *path) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    return size;
}

static void write_file(const char *path, size_t size) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

/* --- tests --- */

static void a_second_process_builds_nothing(void **state) {
    assert_int_equal(run(1), BUILT);
    assert_int_equal(run(1), LOADED);
    assert_int_equal(run(2), BUILT);
    assert_int_equal(list(".bin"), 2);
    assert_int_equal(list(""), 2); /* and there are no other files */
}

static void switched_off(void **state) {
    setenv("OPENXPU_CACHE", "0", 1);
    assert_int_equal(run(1), BUILT);
    assert_int_equal(run(1), BUILT);
    assert_int_equal(list(""), 0);
    unsetenv("OPENXPU_CACHE");
}

static void options_are_part_of_the_key(void **state) {
    assert_int_equal(run(1), BUILT);
    setenv("OPENXPU_BUILD_OPTIONS", "-cl-opt-disable", 1);
    assert_int_equal(run(1), BUILT);
    assert_int_equal(run(1), LOADED);
    setenv("OPENXPU_BUILD_OPTIONS", "--no-such-option", 1);
    assert_int_equal(run(1), WRONG);
    unsetenv("OPENXPU_BUILD_OPTIONS");
    assert_int_equal(run(1), LOADED);
    assert_int_equal(list(".bin"), 2);
}

static void cut_short(void **state) {
    assert_int_equal(run(1), BUILT);
    assert_int_equal(list(".bin"), 1);
    size_t size = read_file(paths[0]);
    size_t cuts[] = {0, 8, 32, size / 2, size - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        write_file(paths[0], cuts[i]);
        assert_int_equal(run(1), BUILT);
        size = read_file(paths[0]);
    }
    bytes[size] = 0;
    write_file(paths[0], size + 1);
    assert_int_equal(run(1), BUILT);
    assert_int_equal(run(1), LOADED); /* it was replaced */
}

static void scribbled_on(void **state) {
    assert_int_equal(run(1), BUILT);
    assert_int_equal(list(".bin"), 1);
    size_t size = read_file(paths[0]);
    /* In the header's parts, and here and there in the binary. */
    size_t at[] = {0, 9, 17, 25, size / 2, size - 1};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        size = read_file(paths[0]);
        bytes[at[i]] ^= 0x10;
        write_file(paths[0], size);
        assert_int_equal(run(1), BUILT);
    }
    assert_int_equal(run(1), LOADED);
}

static void another_kernels_file(void **state) {
    assert_int_equal(run(1), BUILT);
    list(".bin");
    char first[512];
    memcpy(first, paths[0], sizeof first);
    assert_int_equal(run(2), BUILT);
    assert_int_equal(list(".bin"), 2);
    const char *second = strcmp(paths[0], first) ? paths[0] : paths[1];
    write_file(second, read_file(first));
    assert_int_equal(run(2), BUILT);
    assert_int_equal(run(1), LOADED);
}

static void folders_that_do_not_work(void **state) {
    char inner[512];
    snprintf(inner, sizeof inner, "%s/a/file", folder);
    setenv("OPENXPU_CACHE_DIR", inner, 1);
    assert_int_equal(run(1), BUILT); /* folders are made */
    assert_int_equal(run(1), LOADED);
    snprintf(inner, sizeof inner, "%s/plain", folder);
    fclose(fopen(inner, "w"));
    setenv("OPENXPU_CACHE_DIR", inner, 1); /* a file is there */
    assert_int_equal(run(1), BUILT);
    setenv("OPENXPU_CACHE_DIR", "/proc/nowhere", 1);
    assert_int_equal(run(1), BUILT);
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s/a'", folder);
    assert_int_equal(system(command), 0);
}

static void four_writers_at_once(void **state) {
    pid_t children[4];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 4; i++) children[i] = start(10 + (unsigned)round);
        for (int i = 0; i < 4; i++) {
            int result = result_of(children[i]);
            assert_true(result == BUILT || result == LOADED);
        }
        assert_int_equal(run(10 + (unsigned)round), LOADED);
    }
    assert_int_equal(list(".bin"), 2);
    assert_int_equal(list(""), 2);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Killed at any moment, most of all near the end, where the file is written. */
static void killed_writers(void **state) {
    double begin = now();
    assert_int_equal(run(20), BUILT);
    double whole = now() - begin;
    enum { KILLS = 12 };
    for (int i = 0; i < KILLS; i++) {
        pid_t child = start(30 + (unsigned)i);
        usleep((useconds_t)(1e6 * whole * (0.5 + 0.6 * i / KILLS)));
        kill(child, SIGKILL);
        result_of(child);
    }
    for (int i = 0; i < KILLS; i += 3) {
        int result = run(30 + (unsigned)i);
        assert_true(result == BUILT || result == LOADED);
    }
    assert_int_equal(run(30), LOADED);
}

/* What a killed writer left is taken away by a later process, once nobody can be writing it any more. */
static void leftovers_go_away(void **state) {
    char old[512], young[512];
    snprintf(old, sizeof old, "%s/0123.999999.0.tmp", folder);
    snprintf(young, sizeof young, "%s/4567.999999.1.tmp", folder);
    bytes[0] = 1;
    write_file(old, 1);
    write_file(young, 1);
    struct timespec times[2] = {{.tv_sec = time(NULL) - 2 * 86400}, {.tv_sec = time(NULL) - 2 * 86400}};
    assert_int_equal(utimensat(AT_FDCWD, old, times, 0), 0);
    assert_int_equal(run(1), BUILT);
    assert_int_not_equal(access(old, F_OK), 0);
    assert_int_equal(access(young, F_OK), 0);
}

/* Sources are dumped into a folder that did not exist; one that can't be written is an error. */
static void dumped_sources(void **state) {
    char dump[512], nested[600], no_folder[600];
    snprintf(dump, sizeof dump, "%s/dump", folder);
    snprintf(nested, sizeof nested, "%s/nested", dump);
    setenv("OPENXPU_DUMP_KERNELS", nested, 1);
    assert_int_equal(run(1), BUILT);
    char cache_folder[sizeof folder];
    memcpy(cache_folder, folder, sizeof folder);
    snprintf(folder, sizeof folder, "%.200s", nested);
    assert_int_equal(list(".cl"), 1);
    assert_true(read_file(paths[0]) > 100 && !memcmp(bytes, "// ", 3));
    memcpy(folder, cache_folder, sizeof folder);
    unlink(paths[0]);
    assert_int_equal(rmdir(nested), 0);
    assert_int_equal(rmdir(dump), 0);

    assert_int_equal(list(".bin"), 1);
    snprintf(no_folder, sizeof no_folder, "%s/folder", paths[0]); /* below a file */
    setenv("OPENXPU_DUMP_KERNELS", no_folder, 1);
    assert_int_equal(run(2), WRONG);
    unsetenv("OPENXPU_DUMP_KERNELS");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int count, char **arguments) {
    if (count > 1) return use_cache((unsigned)atoi(arguments[1]));
    self = "/proc/self/exe";
    const struct CMUnitTest tests[] = {TEST(a_second_process_builds_nothing),
                                       TEST(switched_off),
                                       TEST(options_are_part_of_the_key),
                                       TEST(cut_short),
                                       TEST(scribbled_on),
                                       TEST(another_kernels_file),
                                       TEST(folders_that_do_not_work),
                                       TEST(four_writers_at_once),
                                       TEST(killed_writers),
                                       TEST(leftovers_go_away),
                                       TEST(dumped_sources)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
