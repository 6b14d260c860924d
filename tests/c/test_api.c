/* The runtime's API on any device, without checking what kernels compute: devices, memory, streams,
 * events, builds, launches and errors for invalid arguments. Runs on Intel's GPU driver without a GPU
 * (tests/intel). */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "xpu/device.h"
#include "xpu/memory.h"
#include "xpu/program.h"
#include "xpu/stream.h"

#define SUCCEEDS(call)                                                                                       \
    do {                                                                                                     \
        if ((call) != XPU_SUCCESS) fail_msg("%s: %s", #call, xpu_last_error());                              \
    } while (0)

static void devices_have_sound_properties(void **state) {
    int count;
    SUCCEEDS(xpu_device_count(&count));
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        const xpu_device_properties *p;
        SUCCEEDS(xpu_device_get_properties(i, &p));
        assert_true(strlen(p->name) > 0);
        assert_true(p->total_memory > 0);
        assert_true(p->max_work_group_size >= 64);
        assert_true(p->max_parameter_size >= 1024);
        assert_int_equal(strlen(p->uuid), 32);
        if (p->has_subgroup_size) assert_true(p->sub_group_sizes[0] > 0);
    }
    const xpu_device_properties *none;
    assert_int_equal(xpu_device_get_properties(count, &none), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_device_get_properties(-1, &none), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_device_set_current(count), XPU_ERROR_INVALID_ARGUMENT);
}

static void streams_are_ordered_by_events(void **state) {
    xpu_stream *a, *b, *same;
    xpu_event *event, *later;
    SUCCEEDS(xpu_stream_from_pool(0, XPU_PRIORITY_HIGH, &a));
    SUCCEEDS(xpu_stream_from_pool(0, XPU_PRIORITY_LOW, &b));
    assert_ptr_not_equal(a, b);
    assert_int_equal(xpu_stream_priority(a), XPU_PRIORITY_HIGH);
    SUCCEEDS(xpu_stream_from_id(0, xpu_stream_id(a), &same));
    assert_ptr_equal(a, same);
    SUCCEEDS(xpu_event_create(0, true, &event));
    SUCCEEDS(xpu_event_create(0, true, &later));
    SUCCEEDS(xpu_event_query(event)); /* never recorded */
    double ms;
    assert_int_equal(xpu_event_elapsed(event, later, &ms), XPU_ERROR_INVALID_ARGUMENT);
    SUCCEEDS(xpu_event_record(event, a));
    SUCCEEDS(xpu_stream_wait(b, event));
    SUCCEEDS(xpu_event_record(later, b));
    SUCCEEDS(xpu_event_synchronize(later));
    SUCCEEDS(xpu_event_query(event));
    SUCCEEDS(xpu_stream_synchronize(b));
    SUCCEEDS(xpu_event_destroy(event));
    SUCCEEDS(xpu_event_destroy(later));
    SUCCEEDS(xpu_device_synchronize(0));
}

static void an_external_queue_becomes_a_stream(void **state) {
    xpu_stream *own, *outside, *again;
    void *queue, *same;
    SUCCEEDS(xpu_stream_from_pool(0, XPU_PRIORITY_NORMAL, &own));
    SUCCEEDS(xpu_stream_native(own, &queue));
    SUCCEEDS(xpu_stream_from_external(0, queue, &outside));
    SUCCEEDS(xpu_stream_from_external(0, queue, &again));
    assert_ptr_equal(outside, again);
    SUCCEEDS(xpu_stream_native(outside, &same));
    assert_ptr_equal(same, queue);
    SUCCEEDS(xpu_stream_native(own, &same));
    assert_ptr_equal(same, queue);
    SUCCEEDS(xpu_stream_from_id(0, xpu_stream_id(outside), &again));
    assert_ptr_equal(outside, again);
    assert_int_equal(xpu_stream_from_external(0, NULL, &again), XPU_ERROR_INVALID_ARGUMENT);
}

static const char source[] = "typedef struct { ulong to; long count; } params;\n"
                             "__kernel void three(params p) {\n"
                             "    long i = get_global_id(0);\n"
                             "    if (i < p.count) ((__global int *)p.to)[i] = 3;\n"
                             "}\n";

static void kernels_build_once_and_launch(void **state) {
    xpu_stream *stream;
    xpu_kernel *kernel, *again;
    int *memory, *host;
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(xpu_kernel_create(0, source, NULL, "three", "fills with 3", &kernel));
    SUCCEEDS(xpu_kernel_create(0, source, NULL, "three", NULL, &again));
    assert_ptr_equal(kernel, again);
    assert_string_equal(xpu_kernel_label(kernel), "fills with 3");
    xpu_kernel_info info;
    SUCCEEDS(xpu_kernel_get_info(kernel, &info));
    assert_true(info.max_work_group_size >= 64);
    SUCCEEDS(xpu_malloc(stream, 1000 * sizeof *memory, (void **)&memory));
    SUCCEEDS(xpu_host_malloc(1000 * sizeof *host, (void **)&host));
    struct {
        void *to;
        long count;
    } params = {memory, 1000};
    xpu_range range = {.dims = 1, .groups = {16}, .local = {64}};
    SUCCEEDS(xpu_launch(stream, kernel, &range, &params, sizeof params));
    range.groups[0] = 0;
    SUCCEEDS(xpu_launch(stream, kernel, &range, &params, sizeof params));
    range.dims = 4;
    assert_int_equal(xpu_launch(stream, kernel, &range, &params, sizeof params), XPU_ERROR_INVALID_ARGUMENT);
    range = (xpu_range){.dims = 1, .groups = {1}, .local = {1 << 20}};
    assert_int_equal(xpu_launch(stream, kernel, &range, &params, sizeof params), XPU_ERROR_DRIVER);
    assert_non_null(strstr(xpu_last_error(), "fills with 3"));
    SUCCEEDS(xpu_memcpy(stream, host, memory, 1000 * sizeof *host, true));
    SUCCEEDS(xpu_stream_synchronize(stream));
    SUCCEEDS(xpu_host_free(host));
    SUCCEEDS(xpu_free(memory));
}

static void a_trimmed_driver_goes_on(void **state) {
    SUCCEEDS(xpu_device_trim(0));
    kernels_build_once_and_launch(state);
    SUCCEEDS(xpu_device_trim(0));
    streams_are_ordered_by_events(state);
    assert_int_equal(xpu_device_trim(99), XPU_ERROR_INVALID_ARGUMENT);
}

static void a_kernel_that_does_not_build_says_why(void **state) {
    xpu_kernel *kernel;
    assert_int_equal(
        xpu_kernel_create(0, "__kernel void k() { missing = 1; }", "", "k", "my kernel", &kernel),
        XPU_ERROR_BUILD_FAILED);
    const xpu_device_properties *p;
    SUCCEEDS(xpu_device_get_properties(0, &p));
    assert_non_null(strstr(xpu_last_error(), "my kernel"));
    assert_non_null(strstr(xpu_last_error(), "missing"));
    assert_non_null(strstr(xpu_last_error(), p->name));
    assert_int_equal(xpu_kernel_create(0, source, NULL, "four", NULL, &kernel), XPU_ERROR_DRIVER);
}

/* A compiler may print how many warnings it has, for which nobody can do anything while a program runs. */
static void a_kernel_with_warnings_builds_silently(void **state) {
    static const char source[] = "__kernel void k(__global int *a) { a[0] + 1; if (a[0] = 3) a[2] = 1; }";
    char options[64];
    snprintf(options, sizeof options, "-DBUILT_ANEW=%lld", (long long)time(NULL)); /* not from the cache */
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    const int before = dup(STDERR_FILENO);
    assert_true(before >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    xpu_kernel *kernel = NULL;
    const xpu_status status = xpu_kernel_create(0, source, options, "k", NULL, &kernel);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    char printed[256] = "";
    rewind(file);
    printed[fread(printed, 1, sizeof printed - 1, file)] = 0;
    fclose(file);
    SUCCEEDS(status);
    assert_string_equal(printed, "");
}

static void copies_and_fills_check_their_arguments(void **state) {
    xpu_stream *stream;
    char *memory, pattern[16] = {1};
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(xpu_malloc(stream, 4096, (void **)&memory));
    SUCCEEDS(xpu_memset(stream, memory, pattern, 4, 4096));
    assert_int_equal(xpu_memset(stream, memory, pattern, 3, 4095), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_memset(stream, memory, pattern, 4, 4095), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_memset(stream, NULL, pattern, 4, 4096), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_memcpy(stream, memory, NULL, 1, true), XPU_ERROR_INVALID_ARGUMENT);
    SUCCEEDS(xpu_memcpy(stream, NULL, NULL, 0, true));
    SUCCEEDS(xpu_memcpy(stream, memory + 2048, memory, 2048, false));
    SUCCEEDS(xpu_stream_synchronize(stream));
    SUCCEEDS(xpu_free(memory));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_have_sound_properties),
        cmocka_unit_test(streams_are_ordered_by_events),
        cmocka_unit_test(an_external_queue_becomes_a_stream),
        cmocka_unit_test(kernels_build_once_and_launch),
        cmocka_unit_test(a_trimmed_driver_goes_on),
        cmocka_unit_test(a_kernel_that_does_not_build_says_why),
        cmocka_unit_test(a_kernel_with_warnings_builds_silently),
        cmocka_unit_test(copies_and_fills_check_their_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
