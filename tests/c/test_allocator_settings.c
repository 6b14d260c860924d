/* Settings of the caching allocator, as in PYTORCH_ALLOC_CONF. */
#include "allocator_test.h"

static xpu_memory_settings settings_of(size_t max_split, double threshold) {
    return (xpu_memory_settings){
        .max_split_size = max_split, .max_rounding = 20 * MIB, .garbage_threshold = threshold};
}

static void configure(xpu_memory_settings settings) { OK(xpu_memory_configure(&settings)); }

static void large_blocks_stay_whole(void **state) {
    configure(settings_of(64 * MIB, 0));
    assert_int_equal(stats().max_split_size, 64 * MIB);
    void *a = get(0, 100 * MIB), *b, *c;
    assert_int_equal(stats().oversize_allocations.current, 1);
    assert_int_equal(stats().oversize_segments.current, 1);
    OK(xpu_free(a));
    assert_int_equal(stats().oversize_allocations.current, 0);
    b = get(0, 10 * MIB); /* below the limit the block is too large to be used */
    assert_ptr_not_equal(a, b);
    assert_int_equal(stats().segment[XPU_POOL_ALL].current, 2);
    c = get(0, 70 * MIB); /* 30 MiB smaller than the block: would waste more than allowed */
    assert_ptr_not_equal(a, c);
    OK(xpu_free(c));
    c = get(0, 90 * MIB);
    assert_ptr_equal(a, c); /* whole */
    assert_int_equal(stats().allocated_bytes[XPU_POOL_ALL].current, 110 * MIB);
    OK(xpu_free(b));
    OK(xpu_free(c));
    b = get(0, 64 * MIB);
    OK(xpu_free(b));
    c = get(0, 30 * MIB); /* a block of the limit's size is cut */
    assert_ptr_equal(b, c);
    assert_int_equal(stats().allocated_bytes[XPU_POOL_ALL].current, 30 * MIB);
    OK(xpu_free(c));
}

/* Where the driver has no more, a large block is given back before all that is cached. */
static void large_blocks_go_first(void **state) {
    configure(settings_of(64 * MIB, 0));
    void *large[2] = {get(0, 400 * MIB), get(0, 200 * MIB)}, *small = get(0, 40 * MIB), *a;
    for (int i = 0; i < 2; i++) OK(xpu_free(large[i]));
    OK(xpu_free(small));
    a = get(0, 500 * MIB); /* 384 MiB are left: the block of 400 MiB is the largest, and not enough alone */
    assert_int_equal(stats().num_alloc_retries, 0);
    assert_int_equal(stats().reserved_bytes[XPU_POOL_ALL].current, 540 * MIB);
    void *again = get(0, 40 * MIB);
    assert_ptr_equal(small, again);
    OK(xpu_free(again));
    OK(xpu_free(a));
}

/* Segments that have been unused for long go back while more is reserved than the threshold. */
static void unused_segments_go_back(void **state) {
    configure(settings_of(0, 0.5));
    void *tiny = get(0, 512), *old = get(0, 200 * MIB), *fresh = get(0, 201 * MIB), *used = get(0, 202 * MIB),
         *a;
    const int64_t before = stats().num_device_free;
    OK(xpu_free(old));
    for (int i = 0; i < 100; i++) {
        a = get(0, 512);
        OK(xpu_free(a));
    }
    OK(xpu_free(fresh));
    a = get(0, 300 * MIB);
    /* 606 MiB of 512 were reserved: the old one was enough */
    assert_int_equal(stats().num_device_free, before + 1);
    assert_int_equal(stats().num_alloc_retries, 0);
    void *again = get(0, 201 * MIB);
    assert_ptr_equal(fresh, again);
    OK(xpu_free(again));
    OK(xpu_free(used));
    OK(xpu_free(a));
    OK(xpu_free(tiny));
    configure(settings_of(0, 0));
    a = get(0, 306 * MIB); /* nothing goes back any more */
    assert_int_equal(stats().num_device_free, before + 1);
    OK(xpu_free(a));
}

static void the_threshold_is_of_the_fraction(void **state) {
    void *a[4];
    OK(xpu_memory_set_fraction(0, 0.5));
    configure(settings_of(0, 0.5));
    for (int i = 0; i < 3; i++) a[i] = get(0, (size_t)(100 + i) * MIB);
    const int64_t before = stats().num_device_free;
    for (int i = 0; i < 3; i++) OK(xpu_free(a[i]));
    a[3] = get(0, 150 * MIB); /* 303 MiB of 256 */
    assert_true(stats().num_device_free > before);
    assert_int_equal(stats().num_alloc_retries, 0);
    OK(xpu_free(a[3]));
    OK(xpu_memory_set_fraction(0, 1));
}

static void sizes_are_rounded_in_steps(void **state) {
    xpu_memory_settings s = settings_of(0, 0);
    static const struct {
        size_t size, rounded;
    } cases[] = {{1200, 1536},
                 {2 * MIB, 2 * MIB},
                 {2 * MIB + 1, 5 * MIB / 2},
                 {3 * MIB, 3 * MIB},
                 {3 * MIB + 1, 7 * MIB / 2},
                 {4 * MIB - 1, 4 * MIB},
                 {5 * MIB + 1, 5 * MIB + 512},
                 {600000, 655360}};
    s.power2_divisions[0] = s.power2_divisions[1] = 4; /* up to 4 MiB */
    s.power2_divisions[2] = 1;
    configure(s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        void *a = get(0, cases[i].size);
        if (stats().allocated_bytes[XPU_POOL_ALL].current != (int64_t)cases[i].rounded)
            fail_msg("%zu: %lld", cases[i].size, (long long)stats().allocated_bytes[XPU_POOL_ALL].current);
        OK(xpu_free(a));
    }
}

static void segments_by_setting(void **state) {
    xpu_memory_settings s = settings_of(0, 0);
    s.large_segment = 48 * MIB;
    configure(s);
    void *a = get(0, 3 * MIB);
    assert_int_equal(stats().reserved_bytes[XPU_POOL_ALL].current, 48 * MIB);
    OK(xpu_free(a));
}

static void bad_settings_change_nothing(void **state) {
    xpu_memory_settings good = settings_of(64 * MIB, 0.5), bad[] = {good, good, good, good, good, good, good};
    configure(good);
    bad[0].garbage_threshold = 1;
    bad[1].garbage_threshold = -0.1;
    bad[2].garbage_threshold = 0.0 / 0.0;
    bad[3].max_split_size = 19 * MIB;
    bad[4].large_segment = 10 * MIB;
    bad[5].large_segment = 21 * MIB + 1;
    bad[6].power2_divisions[3] = 6;
    for (int i = 0; i < 7; i++) {
        assert_int_equal(xpu_memory_configure(&bad[i]), XPU_ERROR_INVALID_ARGUMENT);
        assert_int_equal(stats().max_split_size, 64 * MIB);
    }
    assert_int_equal(xpu_memory_configure(NULL), XPU_ERROR_INVALID_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(large_blocks_stay_whole),     TEST(large_blocks_go_first),
        TEST(unused_segments_go_back),     TEST(the_threshold_is_of_the_fraction),
        TEST(sizes_are_rounded_in_steps),  TEST(segments_by_setting),
        TEST(bad_settings_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
