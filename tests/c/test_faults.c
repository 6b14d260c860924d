/* Every allocation and every OpenCL call fails in turn: each time the caller gets an error with a text or the
 * library recovers; nothing crashes or leaks, and everything works afterwards. Needs a build with
 * OPENXPU_FAULTS; run under AddressSanitizer, which finds leaks. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/memory.h"
#include "device_test.h"

/* --- operations that are repeated; each part frees everything that it allocated, whatever fails --- */

static unsigned new_number = 100000; /* a kernel that no cache knows */

static xpu_status memory_part(void) {
    xpu_stream *a, *b;
    void *block = NULL, *large = NULL, *pinned = NULL;
    char pattern = 3;
    xpu_status status = xpu_stream_from_pool(0, XPU_PRIORITY_LOW, &a);
    if (status == XPU_SUCCESS) status = xpu_stream_from_pool(0, XPU_PRIORITY_HIGH, &b);
    if (status == XPU_SUCCESS) status = xpu_malloc(a, 5000, &block);
    if (status == XPU_SUCCESS) status = xpu_malloc(a, 30 << 20, &large);
    if (status == XPU_SUCCESS) status = xpu_host_malloc(5000, &pinned);
    if (status == XPU_SUCCESS) status = xpu_memset(a, block, &pattern, 1, 5000);
    if (status == XPU_SUCCESS) status = xpu_memcpy(a, pinned, block, 5000, false);
    if (status == XPU_SUCCESS) status = xpu_memory_record_stream(block, b);
    if (status == XPU_SUCCESS) status = xpu_host_record_stream(pinned, a);
    if (status == XPU_SUCCESS) status = xpu_stream_synchronize(a);
    /* Giving back never fails. */
    assert_int_equal(xpu_free(block), XPU_SUCCESS);
    assert_int_equal(xpu_free(large), XPU_SUCCESS);
    assert_int_equal(xpu_host_free(pinned), XPU_SUCCESS);
    if (status == XPU_SUCCESS) status = xpu_memory_empty_cache(0);
    if (status == XPU_SUCCESS) status = xpu_host_empty_cache();
    return status;
}

static xpu_status event_part(void) {
    xpu_stream *a;
    xpu_event *start = NULL, *end = NULL;
    double ms;
    xpu_status status = xpu_stream_default(0, &a);
    if (status == XPU_SUCCESS) status = xpu_event_create(0, true, &start);
    if (status == XPU_SUCCESS) status = xpu_event_create(0, true, &end);
    if (status == XPU_SUCCESS) status = xpu_event_record(start, a);
    if (status == XPU_SUCCESS) status = xpu_event_record(end, a);
    if (status == XPU_SUCCESS) status = xpu_stream_wait(a, start);
    if (status == XPU_SUCCESS) status = xpu_event_synchronize(end);
    if (status == XPU_SUCCESS) status = xpu_event_elapsed(start, end, &ms);
    if (status == XPU_SUCCESS) status = xpu_device_synchronize(0);
    xpu_event_destroy(start);
    xpu_event_destroy(end);
    return status;
}

static void visit(const xpu_block_info *block, void *user) {}

static xpu_status small_parts(void) {
    xpu_generator *g;
    uint64_t seed, offset;
    XPU_TRY(xpu_generator_create(&g));
    xpu_status status = xpu_generator_reserve(g, 4, &seed, &offset);
    xpu_generator_destroy(g);
    XPU_TRY(status);
    return xpu_memory_visit_blocks(0, visit, NULL);
}

static xpu_status run_kernel(unsigned number, bool *right) {
    xpu_stream *a;
    xpu_kernel *kernel;
    void *block;
    uint32_t host[500];
    XPU_TRY(xpu_stream_default(0, &a));
    XPU_TRY(line_create(0, number, &kernel));
    XPU_TRY(xpu_malloc(a, sizeof host, &block));
    xpu_status status = line_launch(a, kernel, block, 500, 1);
    if (status == XPU_SUCCESS) status = xpu_memcpy(a, host, block, sizeof host, true);
    if (status == XPU_SUCCESS) *right = line_is_right(host, 500, number, 1);
    assert_int_equal(xpu_free(block), XPU_SUCCESS);
    return status;
}

static xpu_status known_kernel_part(void) {
    bool right = false;
    XPU_TRY(run_kernel(4, &right));
    assert_true(right); /* success is only said of work that was done */
    return XPU_SUCCESS;
}

/* Builds each time: also from the cache on disk, where the last attempt stored it. */
static xpu_status new_kernel_part(void) {
    bool right = false;
    XPU_TRY(run_kernel(++new_number, &right));
    assert_true(right);
    return XPU_SUCCESS;
}

/* --- each step of a part made to fail --- */

static void sweep(const char *name, xpu_status (*part)(void), unsigned long stride) {
    unsigned long n = 1, failed = 0;
    for (;; n += stride) {
        xpu_fault_arm(n);
        xpu_status status = part();
        unsigned long steps = xpu_fault_arm(0);
        if (status != XPU_SUCCESS) {
            failed++;
            assert_true(status >= XPU_ERROR_INVALID_ARGUMENT && status <= XPU_ERROR_IO);
            assert_true(strlen(xpu_last_error()) > 0);
        }
        if (steps < n) {
            assert_int_equal(status, XPU_SUCCESS); /* there is no such step: nothing was made to fail */
            break;
        }
        xpu_memory_stats stats;
        assert_int_equal(xpu_memory_get_stats(0, &stats), XPU_SUCCESS);
        assert_int_equal(stats.active[XPU_POOL_ALL].current, 0);
        status = part();
        if (status != XPU_SUCCESS) fail_msg("%s, after step %lu failed: %s", name, n, xpu_last_error());
        xpu_fault_arm(0);
    }
    print_message("%s: %lu steps, %lu of them an error\n", name, n - 1, failed);
    assert_true(failed > 0);
}

/* What first use makes for good is there before the sweeps: its failures have a test of their own. */
static int warm_up(void **state) { return known_kernel_part() != XPU_SUCCESS; }

static void memory(void **state) { sweep("memory", memory_part, 1); }
static void events(void **state) { sweep("events", event_part, 1); }
static void the_rest(void **state) { sweep("generator and snapshot", small_parts, 1); }
static void a_known_kernel(void **state) { sweep("a known kernel", known_kernel_part, 1); }
static void a_new_kernel(void **state) { sweep("a new kernel", new_kernel_part, 1); }

/* --- the first use of a process --- */

static xpu_status first_use(void) {
    int count;
    bool right = false;
    XPU_TRY(xpu_device_count(&count));
    if (count == 0) return xpu_fault_arm(0), XPU_ERROR_NO_DEVICE; /* the device couldn't be read */
    XPU_TRY(run_kernel(4, &right));
    return right ? XPU_SUCCESS : XPU_ERROR_DRIVER;
}

enum { PASSED, FAILED_CLEANLY, NO_SUCH_STEP, WRONG, LEAKED, RESULTS };

/* There under AddressSanitizer only. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static int in_child(unsigned long n) {
    pid_t child = fork();
    if (child == 0) {
        alarm(120);
        xpu_fault_arm(n);
        xpu_status status = first_use();
        unsigned long steps = xpu_fault_arm(0);
        if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check()) _exit(LEAKED);
        if (status != XPU_SUCCESS) {
            const char *text = xpu_last_error();
            if (status != XPU_ERROR_NO_DEVICE && !*text) _exit(WRONG);
            _exit(FAILED_CLEANLY);
        }
        _exit(steps < n ? NO_SUCH_STEP : PASSED);
    }
    int status;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) fail_msg("step %lu: signal %d", n, WTERMSIG(status));
    return WEXITSTATUS(status);
}

/* Every step of the first 20, then some of the many that read the devices' capabilities. */
static void first_uses(void **state) {
    int counts[RESULTS] = {0};
    for (unsigned long n = 1;; n += n < 20 ? 1 : 9) {
        int result = in_child(n);
        if (result >= WRONG) fail_msg("step %lu: exit status %d", n, result);
        counts[result]++;
        if (result == NO_SUCH_STEP) break;
    }
    print_message("first use: %d steps failed cleanly, %d were coped with\n", counts[FAILED_CLEANLY],
                  counts[PASSED]);
}

static char folder[] = "/tmp/openxpu-fault-test-XXXXXX";

int main(void) {
    if (!mkdtemp(folder)) return 1;
    setenv("OPENXPU_CACHE_DIR", folder, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(first_uses),
                                       cmocka_unit_test_setup(memory, warm_up),
                                       cmocka_unit_test_setup(events, warm_up),
                                       cmocka_unit_test_setup(the_rest, warm_up),
                                       cmocka_unit_test_setup(a_known_kernel, warm_up),
                                       cmocka_unit_test_setup(a_new_kernel, warm_up)};
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) ? 1 : result;
}
