/* Out of memory: what is freed or waited for before, what bounds an allocation, and what the error says. */
#include "allocator_test.h"

static void cached_memory_is_given_back_before_out_of_memory(void **state) {
    fakes[0].limit = 100 * MIB;
    void *a = get(0, 60 * MIB);
    OK(xpu_free(a));
    void *b = get(0, 80 * MIB);
    xpu_memory_stats s = stats();
    assert_int_equal(s.num_alloc_retries, 1);
    assert_int_equal(s.num_ooms, 0);
    assert_int_equal(s.reserved_bytes[XPU_POOL_ALL].current, 80 * MIB);
    assert_int_equal(s.segment[XPU_POOL_LARGE].freed, 1);
    OK(xpu_free(b));
}

static void out_of_memory_tells_the_sizes(void **state) {
    fakes[0].limit = 100 * MIB;
    void *a = get(0, 60 * MIB), *c = get(0, 15 * MIB), *b = &b;
    OK(xpu_free(c));
    assert_int_equal(xpu_malloc(STREAM(0), 50 * MIB, &b), XPU_ERROR_OUT_OF_MEMORY);
    assert_ptr_equal(b, &b); /* results are written on success only */
    assert_string_equal(
        xpu_last_error(),
        "XPU out of memory. Tried to allocate 50.00 MiB. GPU 0 has a total capacity of 1024.00 MiB "
        "of which 964.00 MiB is free. Of the allocated memory 60.00 MiB is allocated by PyTorch, "
        "and 0 bytes is reserved by PyTorch but unallocated. Please use `empty_cache` to release "
        "all unoccupied cached memory.");
    xpu_memory_stats s = stats();
    assert_int_equal(s.num_alloc_retries, 1);
    assert_int_equal(s.num_ooms, 1);
    c = get(0, 4000); /* later allocations work */
    OK(xpu_free(a));
    OK(xpu_free(c));
    OK(xpu_memory_reset_accumulated_stats(0));
    assert_int_equal(stats().num_ooms, 0);
    assert_int_equal(stats().num_alloc_retries, 0);
}

static void small_requests_tell_the_segment(void **state) {
    fakes[0].limit = 1 * MIB;
    fakes[0].properties.total_memory = (size_t)3 << 30;
    void *a;
    assert_int_equal(xpu_malloc(STREAM(0), 5, &a), XPU_ERROR_OUT_OF_MEMORY);
    assert_non_null(
        strstr(xpu_last_error(), "Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 3.00 GiB"));
    assert_int_equal(xpu_malloc(STREAM(0), SIZE_MAX, &a), XPU_ERROR_OUT_OF_MEMORY);
    assert_int_equal(xpu_malloc(STREAM(0), (size_t)1 << 50, &a), XPU_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(xpu_last_error(), "Tried to allocate 1048576.00 GiB."));
}

static void pending_blocks_are_waited_for_before_out_of_memory(void **state) {
    fakes[0].limit = 20 * MIB;
    char *a = get(0, 4 * MIB), *b = get(0, 12 * MIB);
    fake_submit(STREAM(1));
    OK(xpu_memory_record_stream(b, STREAM(1)));
    OK(xpu_free(b));
    /* The segment can't be released because of a, but the space of b is reused. */
    char *c = get(0, 12 * MIB);
    assert_ptr_equal(b, c);
    assert_int_equal(stats().num_ooms, 0);
    OK(xpu_free(a));
    OK(xpu_free(c));
}

static void the_fraction_bounds_what_is_reserved(void **state) {
    double fraction;
    void *a, *b;
    xpu_stream *stream = &fakes[1].streams[0];
    OK(xpu_memory_get_fraction(1, &fraction));
    assert_true(fraction == 1);
    OK(xpu_memory_set_fraction(1, 0.5));
    OK(xpu_memory_get_fraction(1, &fraction));
    assert_true(fraction == 0.5);
    OK(xpu_malloc(stream, 512 * MIB, &a));
    assert_int_equal(xpu_malloc(stream, 1, &b), XPU_ERROR_OUT_OF_MEMORY);
    assert_non_null(
        strstr(xpu_last_error(), "is free. 512.00 MiB allowed; Of the allocated memory 512.00 MiB"));
    OK(xpu_free(a));
    OK(xpu_memory_set_fraction(1, 1));
    static const double bad[] = {0, -0.5, 1.001, 0.0 / 0.0};
    for (int i = 0; i < 4; i++)
        assert_int_equal(xpu_memory_set_fraction(1, bad[i]), XPU_ERROR_INVALID_ARGUMENT);
    OK(xpu_memory_get_fraction(1, &fraction));
    assert_true(fraction == 1);
}

static void host_devices_give_no_more_than_they_have(void **state) {
    fakes[0].properties.type = XPU_DEVICE_CPU;
    fakes[0].properties.built_for_cpu = true;
    fakes[0].properties.total_memory = 64 * MIB;
    void *a = get(0, 40 * MIB), *b;
    assert_int_equal(xpu_malloc(STREAM(0), 40 * MIB, &b), XPU_ERROR_OUT_OF_MEMORY);
    OK(xpu_free(a));
}

/* Free memory is the total minus what is used, or what the system reports as free, if that is less. */
static void free_is_at_most_what_all_leave(void **state) {
    size_t free_bytes, total;
    void *a = get(0, 100 * MIB);
    static const struct {
        uint64_t left;
        size_t free;
    } cases[] = {{UINT64_MAX, 924 * MIB},
                 {2000 * MIB, 924 * MIB},
                 {924 * MIB, 924 * MIB},
                 {923 * MIB, 923 * MIB},
                 {1, 1},
                 {0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fakes[0].left = cases[i].left;
        OK(xpu_memory_info(0, &free_bytes, &total));
        assert_true(total == 1024 * MIB && free_bytes == cases[i].free);
    }
    OK(xpu_free(a));
}

/* A CPU device gives nothing for which the system would kill somebody; small segments aren't asked about. */
static void host_devices_ask_the_system(void **state) {
    void *a, *b;
    fakes[0].properties.type = XPU_DEVICE_CPU;
    fakes[0].properties.built_for_cpu = true;
    fakes[0].left = 50 * MIB;
    OK(xpu_malloc(STREAM(0), 40 * MIB, &a));
    OK(xpu_free(a));
    assert_int_equal(xpu_malloc(STREAM(0), 60 * MIB, &b), XPU_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(xpu_last_error(), "of which 50.00 MiB is free"));
    fakes[0].left = 10 * MIB;
    OK(xpu_malloc(STREAM(0), 12 * MIB, &a));
    OK(xpu_free(a));
    fakes[0].properties.built_for_cpu = false; /* drivers of GPUs know themselves */
    OK(xpu_malloc(STREAM(0), 60 * MIB, &b));
    OK(xpu_free(b));
}

static void other_failures_are_handed_on(void **state) {
    void *a;
    fake_alloc_failure = XPU_ERROR_DEVICE_LOST;
    assert_int_equal(xpu_malloc(STREAM(0), 1, &a), XPU_ERROR_DEVICE_LOST);
    fake_alloc_failure = XPU_SUCCESS;
    assert_int_equal(stats().num_alloc_retries, 0);
    assert_int_equal(stats().segment[XPU_POOL_ALL].current, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(cached_memory_is_given_back_before_out_of_memory),
        TEST(out_of_memory_tells_the_sizes),
        TEST(small_requests_tell_the_segment),
        TEST(pending_blocks_are_waited_for_before_out_of_memory),
        TEST(the_fraction_bounds_what_is_reserved),
        TEST(host_devices_give_no_more_than_they_have),
        TEST(free_is_at_most_what_all_leave),
        TEST(host_devices_ask_the_system),
        TEST(other_failures_are_handed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
