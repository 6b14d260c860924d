/* The operating system's layer: files that are written whole or not at all, appends that don't mix, folders,
 * libraries, locks, a thread's values, clocks. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/memory.h"
#include "core/os.h"

static char folder[256];

static int setup(void **state) {
    snprintf(folder, sizeof folder, "/tmp/openxpu-os-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static const char *in_folder(const char *name) {
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

#if defined(__linux__)
static unsigned long resident(const void *at) {
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[1024];
    unsigned long long start, end;
    unsigned long number = 0;
    bool inside = false;
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%llx-%llx", &start, &end) == 2)
            inside = start <= (uintptr_t)at && (uintptr_t)at < end;
        else if (inside && sscanf(line, "Rss: %lu", &number) == 1)
            break;
    fclose(file);
    return number;
}

enum { TEXT = 1 << 20, TABLE = 1 << 16 }; /* of trimmed.c */

static void copy_library(const char *from, const char *name) {
    unsigned char *data;
    size_t size;
    assert_true(os_file_read(from, &data, &size));
    const os_bytes piece = {data, size};
    assert_true(os_file_write(in_folder(name), &piece, 1));
    core_free(data);
}

/* Loads a library and reads all of it. */
static void *load(const char *path, const char **text) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    *text = dlsym(library, "trimmed_text");
    const char *const *table = dlsym(library, "trimmed_table");
    assert_true(*text && table);
    for (int at = 0; at < TEXT; at += 4096) assert_int_equal((*text)[at], 'a');
    for (int at = 0; at < TABLE; at++) assert_ptr_equal(table[at], *text);
    return library;
}

/* What was read leaves memory and comes back; what was changed stays, as does what lies elsewhere, below too.
 */
static void test_trim(void **state) {
    enum { LIBRARIES = 5 };
    static const char *const names[LIBRARIES] = {"driver/part.so.1", "driver/beside.so", "driver/changed.so",
                                                 "other.so", "driver/below/part.so"};
    void *libraries[LIBRARIES];
    const char *texts[LIBRARIES];
    assert_int_equal(mkdir(in_folder("driver"), 0700), 0);
    assert_int_equal(mkdir(in_folder("driver/below"), 0700), 0);
    for (int i = 0; i < LIBRARIES; i++) {
        copy_library(TRIMMED, names[i]);
        libraries[i] = load(in_folder(names[i]), &texts[i]);
        assert_true(resident(texts[i]) >= TEXT / 1024);
    }
    char *page = (char *)((uintptr_t)texts[2] / 4096 * 4096 + 4096);
    assert_int_equal(mprotect(page, 4096, PROT_READ | PROT_WRITE), 0);
    *page = 'b'; /* as a debugger does */
    assert_int_equal(mprotect(page, 4096, PROT_READ), 0);
    os_library_trim(in_folder(names[0]));
    for (int i = 0; i < LIBRARIES; i++)
        if (i != 2) assert_true((resident(texts[i]) >= TEXT / 1024) == (i > 2));
    assert_int_equal(*page, 'b');
    assert_int_equal(*(volatile char *)(page + 4096), 'a');
    for (int i = 0; i < LIBRARIES; i++) {
        const char *again, *const *table = dlsym(libraries[i], "trimmed_table");
        for (int at = 0; at < TABLE; at++) assert_ptr_equal(table[at], texts[i]);
        if (i != 2) dlclose(load(in_folder(names[i]), &again));
        dlclose(libraries[i]);
    }
}

typedef struct often {
    char path[2][512];
    atomic_bool stop;
} often;

static void *load_often(void *of) {
    often *o = of;
    for (int i = 0; !atomic_load(&o->stop); i++) {
        const char *text;
        dlclose(load(o->path[i % 2], &text));
    }
    return NULL;
}

static atomic_bool is_slow;

/* Instead of the C library's, so that a trim takes longer than another thread does to load a library. */
int madvise(void *start, size_t size, int advice) {
    if (atomic_load(&is_slow)) usleep(1000);
    return (int)syscall(SYS_madvise, start, size, advice);
}

/* Libraries that another thread loads and unloads, one where the other was, lose none of what is written to
 * them. */
static void test_trim_beside_loading(void **state) {
    often o = {.stop = false};
    pthread_t thread;
    copy_library(LONG, "driver/long.so");
    strcpy(o.path[0], in_folder("driver/part.so.1"));
    strcpy(o.path[1], in_folder("driver/long.so"));
    assert_int_equal(pthread_create(&thread, NULL, load_often, &o), 0);
    atomic_store(&is_slow, true);
    for (int i = 0; i < 300; i++) os_library_trim(in_folder("driver/beside.so"));
    atomic_store(&is_slow, false);
    atomic_store(&o.stop, true);
    pthread_join(thread, NULL);
}
#endif

static void count_names(const char *name, void *user) { ++*(int *)user; }

static int names(const char *path) { /* . and .. among them */
    int count = 0;
    os_folder_list(path, count_names, &count);
    return count;
}

static void test_write_and_read(void **state) {
    const char *path = in_folder("whole");
    unsigned char *data;
    size_t size;
    assert_false(os_file_read(path, &data, &size));
    assert_false(os_file_exists(path));
    assert_true(os_file_write(path, (os_bytes[]){{"first ", 6}, {"", 0}, {"sec\0nd", 6}}, 3));
    assert_true(os_file_read(path, &data, &size));
    assert_int_equal(size, 12);
    assert_memory_equal(data, "first sec\0nd", 12);
    core_free(data);
    assert_true(os_file_write(path, NULL, 0)); /* over what is there; empty */
    assert_true(os_file_read(path, &data, &size));
    assert_int_equal(size, 0);
    core_free(data);
    assert_true(os_file_exists(path));
    assert_int_equal(names(folder), 3); /* no temporary file is left */
    int64_t modified;
    assert_true(os_file_modified(path, &modified));
    assert_true(llabs((long long)(modified - (int64_t)(os_wall_time() / 1000000000u))) < 60);
    remove(path);
    assert_false(os_file_modified(path, &modified));
}

static void test_what_cannot_be_written(void **state) {
    unsigned char *data;
    size_t size;
    assert_false(os_file_write(in_folder("none/file"), (os_bytes[]){{"x", 1}}, 1));
    assert_false(os_file_append(in_folder("none/file"), "x", 1));
    assert_true(os_folder_make(in_folder("taken")));
    assert_false(os_file_write(in_folder("taken"), (os_bytes[]){{"x", 1}}, 1)); /* a folder lies there … */
    assert_int_equal(names(folder), 3);                                         /* … and alone */
    assert_false(os_file_read(in_folder("taken"), &data, &size));
    assert_int_equal(names(in_folder("none")), 0);
    assert_int_equal(rmdir(in_folder("taken")), 0);
}

/* Readers see one writer's file or another's, never a mixture or a part. */
enum { WRITERS = 4, ROUNDS = 50, LENGTH = 20000 };
static atomic_bool stop;
static char shared[512];

static void *write_often(void *argument) {
    char *bytes = malloc(LENGTH);
    memset(bytes, *(const char *)argument, LENGTH);
    for (int i = 0; i < ROUNDS; i++)
        if (!os_file_write(shared, (os_bytes[]){{bytes, LENGTH / 2}, {bytes, LENGTH / 2}}, 2))
            atomic_store(&stop, true);
    free(bytes);
    return NULL;
}

static void test_writers_at_once(void **state) {
    static const char letters[] = "abcd";
    pthread_t threads[WRITERS];
    snprintf(shared, sizeof shared, "%s/shared", folder);
    assert_true(os_file_write(shared, (os_bytes[]){{letters, 1}}, 1));
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_often, (void *)&letters[i]), 0);
    for (int i = 0; i < ROUNDS; i++) {
        unsigned char *data;
        size_t size;
        assert_true(os_file_read(shared, &data, &size));
        assert_true(size == 1 || size == LENGTH);
        for (size_t b = 1; b < size; b++)
            if (data[b] != data[0]) fail_msg("byte %zu is another writer's", b);
        core_free(data);
    }
    for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
    assert_false(stop);
    assert_int_equal(names(folder), 3);
    remove(shared);
}

static void test_append_from_processes(void **state) {
    enum { PROCESSES = 4, LINES = 300, LINE = 200 };
    const char *path = in_folder("lines");
    pid_t children[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        if ((children[p] = fork())) continue;
        char line[LINE];
        memset(line, 'a' + p, LINE - 1);
        line[LINE - 1] = '\n';
        for (int i = 0; i < LINES; i++)
            if (!os_file_append(path, line, LINE)) _exit(1);
        _exit(0);
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        while (waitpid(children[p], &status, 0) < 0 && errno == EINTR) {}
        assert_int_equal(status, 0);
    }
    unsigned char *data;
    size_t size;
    assert_true(os_file_read(path, &data, &size));
    assert_int_equal(size, PROCESSES * LINES * LINE);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(data[i], i % LINE == LINE - 1 ? '\n' : data[i / LINE * LINE]);
    core_free(data);
    remove(path);
}

static void test_folders(void **state) {
    struct stat status;
    os_folders_make(in_folder("a/b//c"));
    assert_int_equal(stat(in_folder("a/b/c"), &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
    os_folders_make(in_folder("a/b/c/")); /* what is there stays */
    assert_int_equal(names(in_folder("a/b")), 3);
    assert_int_equal(names(in_folder("a/b/c")), 2);
    char path[OS_PATH_SIZE];
    setenv("XDG_CACHE_HOME", "/x/y", 1);
    assert_true(os_cache_folder(path));
    assert_string_equal(path, "/x/y");
    setenv("XDG_CACHE_HOME", "", 1);
    setenv("HOME", "/h", 1);
    assert_true(os_cache_folder(path));
    assert_string_equal(path, "/h/.cache");
    unsetenv("HOME");
    assert_false(os_cache_folder(path));
}

static void test_environment(void **state) {
    unsetenv("OPENXPU_TEST_OS");
    os_environment_default("OPENXPU_TEST_OS", "1");
    assert_string_equal(getenv("OPENXPU_TEST_OS"), "1");
    os_environment_default("OPENXPU_TEST_OS", "2"); /* what is set stays */
    assert_string_equal(getenv("OPENXPU_TEST_OS"), "1");
}

static void test_libraries(void **state) {
    char path[OS_PATH_SIZE];
    assert_null(os_library_open("/no/such/library"));
    void *library = os_library_open("libm.so.6");
    assert_non_null(library);
    assert_null(os_library_symbol(library, "no_such_function"));
    double (*root)(double);
    *(void **)&root = os_library_symbol(library, "sqrt");
    assert_non_null(root);
    assert_true(root(9) == 3);
    assert_true(os_library_of(*(void **)&root, path));
    assert_non_null(strstr(path, "libm"));
    assert_false(os_library_of(&path, path)); /* a thread's stack lies in none */
}

static os_once once = OS_ONCE_INIT;
static os_key key;
static atomic_int made, destroyed;
static os_mutex mutex = OS_MUTEX_INIT;
static os_rwlock rwlock = OS_RWLOCK_INIT;
static long counted, counted_too;

static void destroy(void *value) { atomic_fetch_add(&destroyed, (int)(intptr_t)value); }
static void make_key(void) {
    atomic_fetch_add(&made, 1);
    if (!os_key_create(&key, destroy)) abort();
}

static void *work(void *argument) {
    os_once_call(&once, make_key);
    if (!os_key_set(key, argument)) abort();
    for (int i = 0; i < 10000; i++) {
        os_mutex_lock(&mutex);
        counted++;
        os_mutex_unlock(&mutex);
        os_rwlock_write_lock(&rwlock);
        counted_too++;
        os_rwlock_write_unlock(&rwlock);
        os_rwlock_read_lock(&rwlock);
        if (counted_too <= i) abort();
        os_rwlock_read_unlock(&rwlock);
    }
    return NULL;
}

static void test_threads(void **state) {
    pthread_t threads[4];
    for (intptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(made, 1);
    assert_int_equal(destroyed, 1 + 2 + 3 + 4);
    assert_int_equal(counted, 40000);
    assert_int_equal(counted_too, 40000);
}

static int forks;
static void in_child(void) { forks++; }

static void test_fork(void **state) {
    os_at_fork_in_child(in_child);
    pid_t child = fork();
    if (!child) _exit(forks == 1 && os_process_id() == (long)getpid() ? 0 : 1);
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    assert_int_equal(status, 0);
    assert_int_equal(forks, 0);
}

static void test_clocks_and_memory(void **state) {
    uint64_t before = os_clock();
    double seconds = os_seconds();
    usleep(2000);
    assert_in_range(os_clock() - before, 2000000, 10000000000);
    assert_true(os_seconds() - seconds >= 0.002 && os_seconds() - seconds < 10);
    static const size_t aligns[] = {64, 4096, OS_HUGE_PAGE};
    for (size_t i = 0; i < 3; i++) {
        char *memory = os_aligned_alloc(aligns[i], aligns[i] + 1);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % aligns[i], 0);
        memset(memory, 1, aligns[i] + 1);
        os_aligned_free(memory);
        assert_null(os_aligned_alloc(aligns[i], SIZE_MAX - 1)); /* rounded up it would be nothing */
    }
    os_aligned_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_and_read),
        cmocka_unit_test(test_what_cannot_be_written),
        cmocka_unit_test(test_writers_at_once),
        cmocka_unit_test(test_append_from_processes),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_libraries),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_clocks_and_memory),
#if defined(__linux__)
        cmocka_unit_test(test_trim),
        cmocka_unit_test(test_trim_beside_loading),
#endif
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
