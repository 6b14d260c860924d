/* An index out of range on the device: the element is skipped, and the next call that waits reports it. */
#include <stdlib.h>

#include "device_test.h"
#include "xpu/fault.h"
#include "xpu/ops/index.h"

static xpu_stream *stream;
static float *table, *chosen;
static int64_t *index_on_device;

static int setup(void **state) {
    float rows[8];
    for (int i = 0; i < 8; i++) rows[i] = 10.0f * (float)i;
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(xpu_malloc(stream, sizeof rows, (void **)&table));
    SUCCEEDS(xpu_malloc(stream, 4 * sizeof *chosen, (void **)&chosen));
    SUCCEEDS(xpu_malloc(stream, 4 * sizeof *index_on_device, (void **)&index_on_device));
    SUCCEEDS(xpu_memcpy(stream, table, rows, sizeof rows, true));
    return 0;
}

static int teardown(void **state) {
    xpu_free(table);
    xpu_free(chosen);
    xpu_free(index_on_device);
    return 0;
}

/* chosen[i] = table[index[i]] */
static void choose(xpu_stream *on, const int64_t index[4]) {
    static const int64_t four = 4, eight = 8, one = 1;
    SUCCEEDS(xpu_memcpy(on, index_on_device, index, 4 * sizeof *index, true));
    xpu_tensor out = {.data = chosen, .dtype = XPU_FLOAT32, .dims = 1, .size = &four, .stride = &one};
    xpu_tensor in = {.data = table, .dtype = XPU_FLOAT32, .dims = 1, .size = &eight, .stride = &one};
    xpu_tensor by = {.data = index_on_device, .dtype = XPU_INT64, .dims = 1, .size = &four, .stride = &one};
    xpu_fault fault = {.state = 1};
    SUCCEEDS(xpu_gather(on, &out, &in, 0, &by, &fault));
    assert_int_equal(fault.state, 0); /* nobody has waited */
}

static void is_reported(xpu_status status) {
    assert_int_equal(status, XPU_ERROR_INDEX);
    assert_non_null(strstr(xpu_last_error(), "gather: index 8 is out of bounds for a dimension of size 8"));
}

static const int64_t good[4] = {7, 0, 3, 1}, bad[4] = {7, 8, 3, 1};

static void the_next_wait_reports_once(void **state) {
    choose(stream, bad);
    is_reported(xpu_stream_synchronize(stream));
    SUCCEEDS(xpu_stream_synchronize(stream));
    choose(stream, bad);
    is_reported(xpu_device_synchronize(0));
    SUCCEEDS(xpu_device_synchronize(0));

    xpu_event *event;
    SUCCEEDS(xpu_event_create(0, false, &event));
    choose(stream, bad);
    SUCCEEDS(xpu_event_record(event, stream));
    is_reported(xpu_event_synchronize(event));
    SUCCEEDS(xpu_event_synchronize(event));
    SUCCEEDS(xpu_event_destroy(event));
}

static void a_blocking_copy_reports_and_copies(void **state) {
    float host[4];
    choose(stream, good);
    SUCCEEDS(xpu_memcpy(stream, host, chosen, sizeof host, true));
    assert_true(host[0] == 70.0f && host[1] == 0.0f && host[2] == 30.0f && host[3] == 10.0f);
    choose(stream, bad);
    is_reported(xpu_memcpy(stream, host, chosen, sizeof host, true));
    assert_true(host[0] == 70.0f && host[2] == 30.0f && host[3] == 10.0f);
    SUCCEEDS(xpu_memcpy(stream, host, chosen, sizeof host, true));
}

static void a_copy_that_fails_leaves_the_report_to_the_next(void **state) {
    choose(stream, bad);
    assert_int_equal(xpu_memcpy(stream, NULL, chosen, sizeof(float[4]), true), XPU_ERROR_INVALID_ARGUMENT);
    is_reported(xpu_stream_synchronize(stream));
}

static void only_the_programs_own_waits_report(void **state) {
    xpu_stream *other;
    SUCCEEDS(xpu_stream_from_pool(0, XPU_PRIORITY_NORMAL, &other));
    choose(other, bad);
    SUCCEEDS(xpu_memory_empty_cache(0)); /* waits for the device */
    is_reported(xpu_stream_synchronize(other));
}

static void assertions_are_reported_with_their_text(void **state) {
    static const char first[] = "all is well", second[] = "nothing is";
    unsigned char flags[] = {1, 0}, *there;
    SUCCEEDS(xpu_malloc(stream, sizeof flags, (void **)&there));
    SUCCEEDS(xpu_memcpy(stream, there, flags, sizeof flags, true));
    SUCCEEDS(xpu_assert(stream, there, first));
    SUCCEEDS(xpu_stream_synchronize(stream));
    SUCCEEDS(xpu_assert(stream, there + 1, second)); /* nobody has waited */
    SUCCEEDS(xpu_assert(stream, there + 1, first));
    assert_int_equal(xpu_stream_synchronize(stream), XPU_ERROR_ASSERTION);
    assert_non_null(strstr(xpu_last_error(), "nothing is"));
    SUCCEEDS(xpu_stream_synchronize(stream));
    assert_int_equal(xpu_assert(stream, NULL, first), XPU_ERROR_INVALID_ARGUMENT);
    SUCCEEDS(xpu_free(there));
}

int main(void) {
    setenv("OPENXPU_DEFERRED_ERRORS", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_wait_reports_once),
        cmocka_unit_test(a_blocking_copy_reports_and_copies),
        cmocka_unit_test(a_copy_that_fails_leaves_the_report_to_the_next),
        cmocka_unit_test(only_the_programs_own_waits_report),
        cmocka_unit_test(assertions_are_reported_with_their_text),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
