/* The operating-system layer: atomic writes of files, appends that don't mix, folders, libraries, locks,
 * thread-local values, clocks. */
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

/* Pages that were only read are released and come back; modified pages stay, as do those of libraries around
 * them. */
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

/* Replaces the C library's function, so that a trim takes longer than another thread needs to load a
 * library. */
int madvise(void *start, size_t size, int advice) {
    if (atomic_load(&is_slow)) usleep(1000);
    return (int)syscall(SYS_madvise, start, size, advice);
}

/* Libraries that another thread loads and unloads, at the same addresses, lose nothing that is written to
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
    assert_true(os_file_write(path, NULL, 0)); /* replaces the file; an empty one */
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
    assert_false(os_file_write(in_folder("taken"), (os_bytes[]){{"x", 1}}, 1)); /* the path is a folder … */
    assert_int_equal(names(folder), 3); /* … with no temporary files */
    assert_false(os_file_read(in_folder("taken"), &data, &size));
    assert_int_equal(names(in_folder("none")), 0);
    assert_int_equal(rmdir(in_folder("taken")), 0);
}

/* Readers see the file of one writer or another, never a mixture or a part. */
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
    os_folders_make(in_folder("a/b/c/")); /* existing files stay */
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
    os_environment_default("OPENXPU_TEST_OS", "2"); /* existing values stay */
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
    assert_false(os_library_of(&path, path)); /* a thread's stack is in no library */
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

#if defined(__linux__)
/* --- memory, from trees of files that look like /proc and /sys --- */

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

/* Writes a file below the test's folder, and the folders above it. */
static void lay(const char *tree, const char *name, const char *content) {
    char path[1024], folders[1024];
    snprintf(path, sizeof path, "%s/%s%s", folder, tree, name);
    snprintf(folders, sizeof folders, "%s", path);
    *strrchr(folders, '/') = 0;
    os_folders_make(folders);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(content, file);
    assert_false(fclose(file));
}

#define MEMINFO                                                                                              \
    "MemTotal:       1024000 kB\nMemFree:         100000 kB\nMemAvailable:    800000 kB\n"                   \
    "Cached:          50000 kB\nSwapTotal:       20000 kB\nSwapFree:        10000 kB\n"
#define MOUNT_2(root)                                                                                        \
    "31 23 0:28 " root " /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_1(root)                                                                                        \
    "30 23 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs rw\n34 30 0:32 / /sys/fs/cgroup/cpuset rw - cgroup "       \
    "cgroup "                                                                                                \
    "rw,cpuset\n35 30 0:32 " root " /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"

typedef struct group_file {
    const char *name, *content;
} group_file;

typedef struct group_case {
    const char *cgroup, *mountinfo;
    uint64_t limit, left; /* in MiB; 0: none */
    group_file files[10];
} group_case;

static const group_case groups[] = {
    {"", "", 0, 0, {{NULL, NULL}}}, /* no control groups */
    {"0::/\n", MOUNT_2("/"), 0, 0, {{NULL, NULL}}},
    {"0::/a/b\n",
     MOUNT_2("/"),
     300,
     200,
     {{"/a/b/memory.max", "314572800\n"}, {"/a/b/memory.current", "104857600\n"}}},
    /* reclaimable page cache is not counted as used */
    {"0::/a\n",
     MOUNT_2("/"),
     300,
     220,
     {{"/a/memory.max", "314572800\n"},
      {"/a/memory.current", "104857600\n"},
      {"/a/memory.stat", "anon 1\nactive_file 3\ninactive_file 20971520\n"}}},
    {"0::/a\n", MOUNT_2("/"), 0, 0, {{"/a/memory.max", "max\n"}, {"/a/memory.current", "104857600\n"}}},
    /* the parent group has a lower limit, or is fuller */
    {"0::/a/b/c\n",
     MOUNT_2("/"),
     100,
     60,
     {{"/a/b/c/memory.max", "314572800\n"},
      {"/a/b/c/memory.current", "20971520\n"},
      {"/a/memory.max", "104857600\n"},
      {"/a/memory.current", "41943040\n"}}},
    {"0::/a/b\n",
     MOUNT_2("/"),
     100,
     10,
     {{"/a/b/memory.max", "104857600\n"},
      {"/a/b/memory.current", "20971520\n"},
      {"/a/memory.max", "209715200\n"},
      {"/a/memory.current", "199229440\n"}}},
    /* above memory.high, the kernel throttles processes */
    {"0::/a\n",
     MOUNT_2("/"),
     200,
     190,
     {{"/a/memory.max", "314572800\n"},
      {"/a/memory.high", "209715200\n"},
      {"/a/memory.current", "10485760\n"}}},
    /* a container that sees its own group as the mount, with and without a cgroup namespace */
    {"0::/\n", MOUNT_2("/"), 50, 40, {{"/memory.max", "52428800\n"}, {"/memory.current", "10485760\n"}}},
    {"0::/docker/x\n",
     MOUNT_2("/docker/x"),
     50,
     40,
     {{"/memory.max", "52428800\n"}, {"/memory.current", "10485760\n"}}},
    {"0::/docker/x/y\n",
     MOUNT_2("/docker/x"),
     30,
     20,
     {{"/memory.max", "52428800\n"},
      {"/memory.current", "10485760\n"},
      {"/y/memory.max", "31457280\n"},
      {"/y/memory.current", "10485760\n"}}},
    {"0::/../other\n",
     MOUNT_2("/"),
     50,
     40,
     {{"/memory.max", "52428800\n"}, {"/memory.current", "10485760\n"}}},
    /* over its limit */
    {"0::/a\n", MOUNT_2("/"), 50, 0, {{"/a/memory.max", "52428800\n"}, {"/a/memory.current", "62914560\n"}}},
    {"0::/a\n", MOUNT_2("/"), 50, 50, {{"/a/memory.max", "52428800\n"}}},     /* does not report its usage */
    {"0::/a\n", MOUNT_2("/"), 0, 0, {{"/a/memory.max", "10995116277760\n"}}}, /* more than there is */
    /* version 1 */
    {"9:name=systemd:/\n4:memory:/a\n0::/\n",
     MOUNT_1("/"),
     300,
     220,
     {{"/memory/a/memory.limit_in_bytes", "314572800\n"},
      {"/memory/a/memory.usage_in_bytes", "104857600\n"},
      {"/memory/a/memory.stat", "cache 9\ninactive_file 7\ntotal_inactive_file 20971520\n"}}},
    {"4:memory:/a\n",
     MOUNT_1("/"),
     0,
     0,
     {{"/memory/a/memory.limit_in_bytes", "9223372036854771712\n"},
      {"/memory/a/memory.usage_in_bytes", "1\n"}}},
    {"4:cpu,memory:/a/b\n",
     MOUNT_1("/"),
     100,
     90,
     {{"/memory/a/memory.limit_in_bytes", "104857600\n"}, {"/memory/a/memory.usage_in_bytes", "10485760\n"}}},
    {"5:hugetlb:/h\n4:memory:/docker/x\n",
     MOUNT_1("/docker/x"),
     100,
     90,
     {{"/memory/memory.limit_in_bytes", "104857600\n"}, {"/memory/memory.usage_in_bytes", "10485760\n"}}},
    {"3:cpuset:/a\n", MOUNT_1("/"), 0, 0, {{"/memory/a/memory.limit_in_bytes", "104857600\n"}}},
    /* both versions: the smaller one counts */
    {"4:memory:/a\n0::/b\n",
     MOUNT_1("/") "41 30 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
     70,
     60,
     {{"/memory/a/memory.limit_in_bytes", "104857600\n"},
      {"/memory/a/memory.usage_in_bytes", "10485760\n"},
      {"/unified/b/memory.max", "73400320\n"},
      {"/unified/b/memory.current", "10485760\n"}}},
};

static void test_memory_of_groups(void **state) {
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        const group_case *g = &groups[i];
        char tree[32], root[512], name[256];
        snprintf(tree, sizeof tree, "group%zu", i);
        snprintf(root, sizeof root, "%s/%s", folder, tree);
        lay(tree, "/proc/meminfo", MEMINFO);
        lay(tree, "/proc/self/cgroup", g->cgroup);
        lay(tree, "/proc/self/mountinfo", g->mountinfo);
        for (const group_file *f = g->files; f->name; f++) {
            snprintf(name, sizeof name, "/sys/fs/cgroup%s", f->name);
            lay(tree, name, f->content);
        }
        os_memory memory;
        assert_true(os_memory_read(root, &memory));
        assert_true(memory.total == 1024000 * KIB);
        assert_true(memory.available == 800000 * KIB);
        assert_true(memory.swap == 10000 * KIB);
        const uint64_t limit = g->limit ? g->limit * MIB : OS_UNLIMITED,
                       left = g->limit ? g->left * MIB : OS_UNLIMITED;
        if (memory.limit != limit || memory.limit_left != left)
            fail_msg("case %zu: %llu MiB and %llu left", i, (unsigned long long)(memory.limit / MIB),
                     (unsigned long long)(memory.limit_left / MIB));
    }
}

static void test_memory_of_the_machine(void **state) {
    os_memory memory;
    lay("old", "/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 300 kB\nCached: 200 kB\n");
    assert_true(os_memory_read(in_folder("old"), &memory));
    assert_true(memory.total == 1000 * KIB && memory.available == 500 * KIB && memory.swap == 0);
    lay("broken", "/proc/meminfo", "MemFree: 300 kB\n");
    assert_false(os_memory_read(in_folder("broken"), &memory));
    assert_false(os_memory_read(in_folder("nothing"), &memory));
    assert_true(os_memory_read("", &memory));
    assert_true(memory.total > 64 * MIB && memory.available <= memory.total);
}

/* Waits until available memory is below `than`, or above it with `more`; Linux updates it with a delay of up
 * to seconds. */
static bool becomes(uint64_t than, bool more) {
    os_memory now;
    for (int i = 0; i < 500; i++) {
        FILE *counts = fopen("/proc/sys/vm/stat_refresh", "r");
        if (counts) {
            (void)!fgetc(counts);
            fclose(counts);
        }
        assert_true(os_memory_read("", &now));
        if (more ? now.available > than : now.available < than) return true;
        usleep(10000);
    }
    return false;
}

/* Memory that another process takes is missing here until it ends. Other processes allocate and free
 * meanwhile, so one success in several attempts suffices. */
static bool falls_and_rises(void) {
    os_memory before, during;
    const size_t size = 256 * MIB;
    int ready[2], over[2];
    char byte;
    assert_int_equal(pipe(ready) | pipe(over), 0);
    assert_true(os_memory_read("", &before));
    const pid_t child = fork();
    if (!child) {
        char *taken = malloc(size);
        for (size_t i = 0; taken && i < size; i += 4096) ((volatile char *)taken)[i] = 1;
        close(over[1]);
        _exit(write(ready[1], "", 1) != 1 || read(over[0], &byte, 1) < 0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    const bool fell = becomes(before.available - size / 2, false);
    assert_true(os_memory_read("", &during));
    close(over[1]);
    waitpid(child, NULL, 0);
    const bool rose = becomes(during.available + size / 2, true);
    close(over[0]);
    close(ready[0]);
    close(ready[1]);
    return fell && rose;
}

static void test_memory_falls(void **state) {
    int attempts = 0;
    while (!falls_and_rises()) assert_true(++attempts < 10);
}

/* A process's open file of a driver (fdinfo). */
static void lay_client(const char *tree, int process, int file, const char *target, const char *info) {
    char path[1024], name[64];
    snprintf(name, sizeof name, "/proc/%d/fdinfo/%d", process, file);
    lay(tree, name, info);
    snprintf(path, sizeof path, "%s/%s/proc/%d/fd", folder, tree, process);
    os_folders_make(path);
    snprintf(path, sizeof path, "%s/%s/proc/%d/fd/%d", folder, tree, process, file);
    assert_int_equal(symlink(target, path), 0);
}

static void test_memory_of_gpus(void **state) {
    static const char at[] = "0000:03:00.0";
    uint64_t used;
    lay("gpu", "/sys/bus/pci/devices/0000:03:00.0/vendor", "0x8086\n");
    lay("gpu", "/proc/meminfo", MEMINFO);
    assert_false(os_gpu_memory_used(in_folder("gpu"), at, &used)); /* no process uses it */
    assert_false(os_gpu_memory_used(in_folder("gpu"), "", &used));
    assert_false(os_gpu_memory_used(in_folder("gpu"), "0000:04:00.0", &used));
    /* xe: resident memory in one of two regions; the other region is host memory */
    lay_client(
        "gpu", 100, 5, "/dev/dri/renderD128",
        "pos:\t0\ndrm-driver:\txe\ndrm-client-id:\t7\ndrm-pdev:\t0000:03:00.0\ndrm-total-vram0:\t900 MiB\n"
        "drm-resident-vram0:\t300 MiB\ndrm-total-gtt:\t50 MiB\ndrm-resident-gtt:\t50 MiB\n");
    assert_true(os_gpu_memory_used(in_folder("gpu"), at, &used));
    assert_true(used == 300 * MIB);
    /* the same client again; not a client; another GPU's client; another process's, of i915, in KiB */
    lay_client("gpu", 100, 6, "/dev/dri/renderD128",
               "drm-client-id:\t7\ndrm-pdev:\t0000:03:00.0\ndrm-resident-vram0:\t300 MiB\n");
    lay_client("gpu", 100, 7, "/dev/null",
               "drm-client-id:\t9\ndrm-pdev:\t0000:03:00.0\ndrm-resident-vram0:\t1 GiB\n");
    lay_client("gpu", 200, 3, "/dev/dri/renderD129",
               "drm-client-id:\t1\ndrm-pdev:\t0000:04:00.0\ndrm-resident-vram0:\t2 GiB\n");
    lay_client("gpu", 300, 3, "/dev/dri/card0",
               "drm-client-id:\t8\ndrm-pdev:\t0000:03:00.0\ndrm-resident-local0:\t102400 KiB\n"
               "drm-resident-system0:\t7 GiB\n");
    assert_true(os_gpu_memory_used(in_folder("gpu"), at, &used));
    assert_true(used == 400 * MIB);
    /* drivers with other keys: amdgpu's "memory", others' total, in bytes */
    lay_client(
        "gpu", 400, 3, "/dev/dri/renderD128",
        "drm-client-id:\t10\ndrm-pdev:\t0000:03:00.0\ndrm-memory-vram:\t1024 KiB\ndrm-total-vram:\t9 MiB\n");
    lay_client("gpu", 400, 4, "/dev/dri/renderD128",
               "drm-client-id:\t11\ndrm-pdev:\t0000:03:00.0\ndrm-total-vram0:\t1048576\n");
    assert_true(os_gpu_memory_used(in_folder("gpu"), at, &used));
    assert_true(used == 402 * MIB);
    /* drivers that report free or used memory of the whole device */
    lay("gpu", "/sys/bus/pci/devices/0000:03:00.0/drm/card0/lmem_total_bytes", "1073741824\n");
    lay("gpu", "/sys/bus/pci/devices/0000:03:00.0/drm/card0/lmem_avail_bytes", "536870912\n");
    assert_true(os_gpu_memory_used(in_folder("gpu"), at, &used));
    assert_true(used == 512 * MIB);
    lay("gpu", "/sys/bus/pci/devices/0000:03:00.0/mem_info_vram_used", "734003200\n");
    assert_true(os_gpu_memory_used(in_folder("gpu"), at, &used));
    assert_true(used == 700 * MIB);
}
#endif

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
        cmocka_unit_test(test_memory_of_groups),
        cmocka_unit_test(test_memory_of_the_machine),
        cmocka_unit_test(test_memory_falls),
        cmocka_unit_test(test_memory_of_gpus),
#endif
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
