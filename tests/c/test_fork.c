/* Forked children: after the device's first use every call returns XPU_ERROR_BAD_FORK immediately, whatever
 * locks other threads held at the fork; before it, a child works normally. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_test.h"

static xpu_stream *stream;
static xpu_event *event;
static xpu_kernel *kernel;
static void *block, *pinned;
static xpu_generator *generator;

static void visit_block(const xpu_block_info *b, void *user) {}
static void visit_record(const xpu_profile_record *r, void *user) {}

/* In a child: the number of the first call that didn't answer as it should, or 0. */
static int check_child(void) {
    alarm(20); /* a call that hangs ends the child */
    int n = 0, count;
    void *p;
    size_t size, total;
    double d;
    char pattern = 0;
    const xpu_device_properties *properties;
    xpu_stream *other;
    xpu_event *e;
    xpu_kernel *k;
    xpu_memory_stats stats;
    xpu_program_stats programs;
#define BAD(call)                                                                                            \
    do {                                                                                                     \
        n++;                                                                                                 \
        if ((call) != XPU_ERROR_BAD_FORK) return n;                                                          \
        if (!strstr(xpu_last_error(), "Cannot re-initialize XPU in forked subprocess")) return n;            \
    } while (0)
    if (!xpu_in_bad_fork() || xpu_initialized()) return 100;
    BAD(xpu_device_count(&count));
    BAD(xpu_device_get_properties(0, &properties));
    BAD(xpu_device_synchronize(0));
    BAD(xpu_stream_default(0, &other));
    BAD(xpu_stream_current(0, &other));
    BAD(xpu_stream_from_pool(0, 0, &other));
    BAD(xpu_stream_query(stream));
    BAD(xpu_stream_synchronize(stream));
    BAD(xpu_stream_wait(stream, event));
    BAD(xpu_event_create(0, false, &e));
    BAD(xpu_event_record(event, stream));
    BAD(xpu_event_query(event));
    BAD(xpu_event_synchronize(event));
    BAD(xpu_malloc(stream, 100, &p));
    BAD(xpu_free(block));
    BAD(xpu_memory_record_stream(block, stream));
    BAD(xpu_memory_empty_cache(0));
    BAD(xpu_memory_get_stats(0, &stats));
    BAD(xpu_memory_reset_peak_stats(0));
    BAD(xpu_memory_set_fraction(0, 0.5));
    BAD(xpu_memory_get_fraction(0, &d));
    BAD(xpu_memory_info(0, &size, &total));
    BAD(xpu_memory_visit_blocks(0, visit_block, NULL));
    BAD(xpu_memory_base_of(block, &p, &size));
    BAD(xpu_host_malloc(10, &p));
    BAD(xpu_host_free(pinned));
    BAD(xpu_host_record_stream(pinned, stream));
    BAD(xpu_host_empty_cache());
    BAD(xpu_memcpy(stream, block, pinned, 10, true));
    BAD(xpu_memset(stream, block, &pattern, 1, 10));
    BAD(xpu_kernel_create(0, line_source, "-DNUMBER=77u", "line", NULL, &k));
    BAD(line_launch(stream, kernel, block, 10, 0));
    BAD(xpu_program_get_stats(&programs));
    BAD(xpu_profile_drain(visit_record, NULL));
    /* These need no device and may go on. */
    if (xpu_host_is_pinned(pinned)) return 101;
    if (xpu_memory_device_of(block, &count) != XPU_SUCCESS) return 102;
    xpu_event_destroy(event);
    return 0;
}

static void use_the_device(void) {
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(xpu_event_create(0, false, &event));
    SUCCEEDS(xpu_malloc(stream, 100000, &block));
    SUCCEEDS(xpu_host_malloc(1000, &pinned));
    SUCCEEDS(line_create(0, 3, &kernel));
    SUCCEEDS(line_launch(stream, kernel, block, 1000, 5));
    SUCCEEDS(xpu_stream_synchronize(stream));
    SUCCEEDS(xpu_generator_create(&generator));
}

static int wait_for(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child) return 1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* First of all: nothing has been used yet. */
static void before_first_use(void **state) {
    pid_t child = fork();
    if (child == 0) {
        int count;
        _exit(xpu_in_bad_fork() || xpu_device_count(&count) != XPU_SUCCESS || count < 1);
    }
    assert_int_equal(wait_for(child), 0);
    assert_false(xpu_initialized());
}

static void after_first_use(void **state) {
    use_the_device();
    pid_t child = fork();
    if (child == 0) _exit(check_child());
    assert_int_equal(wait_for(child), 0);
    /* The parent continues. */
    SUCCEEDS(line_launch(stream, kernel, block, 1000, 5));
    SUCCEEDS(xpu_stream_synchronize(stream));
}

static atomic_bool stop;

static void *keep_busy(void *argument) {
    unsigned number = 1000 * (unsigned)(uintptr_t)argument;
    while (!stop) {
        void *p, *h;
        xpu_event *e;
        xpu_memory_stats stats;
        xpu_kernel *k;
        uint64_t seed, offset;
        for (int i = 0; i < 200; i++) {
            if (xpu_malloc(stream, 5000, &p) == XPU_SUCCESS) xpu_free(p);
            if (xpu_host_malloc(5000, &h) == XPU_SUCCESS) xpu_host_free(h);
            xpu_memory_get_stats(0, &stats);
            if (xpu_event_create(0, false, &e) == XPU_SUCCESS) xpu_event_destroy(e);
            xpu_generator_reserve(generator, 4, &seed, &offset);
        }
        if (number % 1000 < 8) line_create(0, number++, &k);
    }
    return NULL;
}

static void while_other_threads_hold_locks(void **state) {
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_busy, (void *)(i + 1)), 0);
    int worst = 0;
    for (int i = 0; i < 40 && worst == 0; i++) {
        usleep(1000);
        pid_t child = fork();
        if (child == 0) _exit(check_child());
        worst = wait_for(child);
    }
    stop = true;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal(worst, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(before_first_use), cmocka_unit_test(after_first_use),
                                       cmocka_unit_test(while_other_threads_hold_locks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
