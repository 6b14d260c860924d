/* Blocks that several streams use: when they are reused. */
#include "allocator_test.h"

static void a_recorded_stream_keeps_the_block(void **state) {
    char *a = get(0, 512);
    fake_submit(STREAM(1));
    OK(xpu_memory_record_stream(a, STREAM(1)));
    OK(xpu_free(a));
    xpu_memory_stats s = stats();
    assert_int_equal(s.allocated_bytes[XPU_POOL_ALL].current, 0);
    assert_int_equal(s.active_bytes[XPU_POOL_ALL].current, 512);
    assert_int_equal(s.requested_bytes[XPU_POOL_ALL].current, 512);
    char *b = get(0, 512);
    assert_ptr_not_equal(a, b);
    fake_finish(STREAM(1));
    char *c = get(0, 512); /* finds it passed */
    assert_ptr_equal(a, c);
    assert_int_equal(stats().active_bytes[XPU_POOL_ALL].current, 1024);
    OK(xpu_free(b));
    OK(xpu_free(c));
}

static void all_recorded_streams_must_pass(void **state) {
    char *a = get(0, 512);
    for (int i = 1; i <= 3; i++) {
        fake_submit(STREAM(i));
        OK(xpu_memory_record_stream(a, STREAM(i)));
        OK(xpu_memory_record_stream(a, STREAM(i))); /* once is enough */
    }
    OK(xpu_free(a));
    fake_finish(STREAM(2));
    fake_finish(STREAM(3));
    OK(xpu_free(get(0, 512)));
    assert_int_equal(stats().active[XPU_POOL_ALL].current, 1);
    fake_finish(STREAM(1));
    OK(xpu_free(get(0, 512)));
    assert_int_equal(stats().active[XPU_POOL_ALL].current, 0);
}

static void the_own_stream_needs_no_record(void **state) {
    void *a = get(0, 512);
    fake_submit(STREAM(0));
    OK(xpu_memory_record_stream(a, STREAM(0)));
    OK(xpu_free(a));
    assert_int_equal(stats().active[XPU_POOL_ALL].current, 0);
}

static void events_are_used_again(void **state) {
    int before = fake_events_made;
    for (int i = 0; i < 10; i++) {
        void *a = get(0, 512);
        fake_submit(STREAM(2));
        OK(xpu_memory_record_stream(a, STREAM(2)));
        OK(xpu_free(a));
        fake_finish(STREAM(2));
    }
    OK(xpu_free(get(0, 512)));
    assert_true(fake_events_made - before <= 1);
    assert_int_equal(stats().active[XPU_POOL_ALL].current, 0);
}

static void without_events_the_stream_is_waited_for(void **state) {
    void *a = get(0, 512);
    fake_submit(STREAM(3));
    OK(xpu_memory_record_stream(a, STREAM(3)));
    fake_event_failure = XPU_ERROR_OUT_OF_HOST_MEMORY;
    OK(xpu_free(a));
    assert_int_equal(STREAM(3)->finished, STREAM(3)->submitted);
    assert_int_equal(stats().active[XPU_POOL_ALL].current, 0);
    fake_event_failure = XPU_SUCCESS;
}

static void a_lost_device_is_reported(void **state) {
    void *a = get(0, 512), *b = NULL;
    fake_submit(STREAM(1));
    OK(xpu_memory_record_stream(a, STREAM(1)));
    OK(xpu_free(a));
    fake_event_failure = XPU_ERROR_DEVICE_LOST;
    assert_int_equal(xpu_malloc(STREAM(0), 512, &b), XPU_ERROR_DEVICE_LOST);
    assert_null(b);
    assert_int_equal(xpu_memory_empty_cache(0), XPU_ERROR_DEVICE_LOST);
    fake_event_failure = XPU_SUCCESS;
}

static void synchronous_streams_need_no_event(void **state) {
    fakes[1].properties.type = XPU_DEVICE_CPU;
    int before = fake_events_made;
    void *a;
    OK(xpu_malloc(&fakes[1].streams[0], 512, &a));
    OK(xpu_memory_record_stream(a, &fakes[1].streams[1]));
    OK(xpu_free(a));
    xpu_memory_stats s;
    OK(xpu_memory_get_stats(1, &s));
    assert_int_equal(s.active[XPU_POOL_ALL].current, 0);
    assert_int_equal(fake_events_made, before);
    /* Work may be under way from another thread. */
    OK(xpu_malloc(&fakes[1].streams[0], 512, &a));
    OK(xpu_memory_record_stream(a, &fakes[1].streams[1]));
    fake_submit(&fakes[1].streams[1]);
    OK(xpu_free(a));
    OK(xpu_memory_get_stats(1, &s));
    assert_int_equal(s.active[XPU_POOL_ALL].current, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_recorded_stream_keeps_the_block),       TEST(all_recorded_streams_must_pass),
        TEST(the_own_stream_needs_no_record),          TEST(events_are_used_again),
        TEST(without_events_the_stream_is_waited_for), TEST(a_lost_device_is_reported),
        TEST(synchronous_streams_need_no_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
