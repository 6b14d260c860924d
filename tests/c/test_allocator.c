/* Blocks of the caching allocator: sizes, splits, fits, and the pointers that are taken. */
#include "allocator_test.h"

static void sizes_are_rounded_to_512(void **state) {
    char *a = get(0, 1), *b = get(0, 512), *c = get(0, 513), *d = get(0, 100);
    assert_ptr_equal(b, a + 512);
    assert_ptr_equal(c, b + 512);
    assert_ptr_equal(d, c + 1024);
    xpu_memory_stats s = stats();
    assert_int_equal(s.allocated_bytes[XPU_POOL_ALL].current, 512 + 512 + 1024 + 512);
    assert_int_equal(s.allocated_bytes[XPU_POOL_SMALL].current, 512 + 512 + 1024 + 512);
    assert_int_equal(s.allocated_bytes[XPU_POOL_LARGE].current, 0);
    assert_int_equal(s.requested_bytes[XPU_POOL_ALL].current, 1 + 512 + 513 + 100);
    assert_int_equal(s.reserved_bytes[XPU_POOL_ALL].current, 2 * MIB);
    assert_int_equal(s.inactive_split_bytes[XPU_POOL_SMALL].current, 2 * MIB - 2560);
    OK(xpu_free(a));
    OK(xpu_free(b));
    OK(xpu_free(c));
    OK(xpu_free(d));
    s = stats();
    assert_int_equal(s.allocated_bytes[XPU_POOL_ALL].current, 0);
    assert_int_equal(s.inactive_split[XPU_POOL_ALL].current, 0);
    assert_int_equal(s.inactive_split_bytes[XPU_POOL_ALL].current, 0);
    assert_int_equal(s.reserved_bytes[XPU_POOL_ALL].current, 2 * MIB);
}

static void no_bytes_are_null(void **state) {
    void *p = &p;
    OK(xpu_malloc(STREAM(0), 0, &p));
    assert_null(p);
    OK(xpu_free(NULL));
    assert_int_equal(stats().allocation[XPU_POOL_ALL].allocated, 0);
}

static void segments_by_request(void **state) {
    static const struct {
        size_t request, segment;
        int kind;
    } cases[] = {
        {1, 2 * MIB, XPU_POOL_SMALL},
        {1 * MIB, 2 * MIB, XPU_POOL_SMALL},
        {1 * MIB + 1, 20 * MIB, XPU_POOL_LARGE},
        {10 * MIB - 512, 20 * MIB, XPU_POOL_LARGE},
        {10 * MIB - 511, 10 * MIB, XPU_POOL_LARGE}, /* rounds up to 10 MiB */
        {10 * MIB, 10 * MIB, XPU_POOL_LARGE},
        {10 * MIB + 1, 12 * MIB, XPU_POOL_LARGE},
        {33 * MIB, 34 * MIB, XPU_POOL_LARGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        void *p = get(0, cases[i].request);
        xpu_memory_stats s = stats();
        assert_int_equal(s.reserved_bytes[cases[i].kind].current, cases[i].segment);
        assert_int_equal(s.reserved_bytes[XPU_POOL_ALL].current, cases[i].segment);
        assert_int_equal(s.segment[cases[i].kind].current, 1);
        assert_int_equal(fakes[0].used, cases[i].segment);
        OK(xpu_free(p));
        OK(xpu_memory_empty_cache(0));
        assert_int_equal(fakes[0].used, 0);
    }
}

static void large_blocks_split_above_one_mib(void **state) {
    /* 10.5 MiB in 12: 1.5 MiB is left over, which is split off; 11 in 12 leaves 1 MiB, which isn't. */
    void *p = get(0, 10 * MIB + MIB / 2);
    assert_int_equal(stats().allocated_bytes[XPU_POOL_ALL].current, 10 * MIB + MIB / 2);
    assert_int_equal(stats().inactive_split_bytes[XPU_POOL_LARGE].current, MIB + MIB / 2);
    OK(xpu_free(p));
    OK(xpu_memory_empty_cache(0));
    p = get(0, 11 * MIB);
    assert_int_equal(stats().allocated_bytes[XPU_POOL_ALL].current, 12 * MIB);
    assert_int_equal(stats().requested_bytes[XPU_POOL_ALL].current, 11 * MIB);
    assert_int_equal(stats().inactive_split[XPU_POOL_LARGE].current, 0);
    OK(xpu_free(p));
}

static void small_blocks_split_to_the_last_512(void **state) {
    char *a = get(0, MIB - 512), *b = get(0, MIB);
    assert_ptr_equal(b, a + MIB - 512);
    char *c = get(0, 512);
    assert_ptr_equal(c, b + MIB);
    assert_int_equal(stats().inactive_split[XPU_POOL_SMALL].current, 0);
    OK(xpu_free(a));
    OK(xpu_free(b));
    OK(xpu_free(c));
}

static void the_best_fit_is_taken(void **state) {
    /* Holes of 3, 2 and 2 units of 512 bytes, not adjacent. */
    char *p[8];
    static const int units[8] = {3, 1, 2, 1, 2, 1, 1, 1};
    for (int i = 0; i < 8; i++) p[i] = get(0, 512 * (size_t)units[i]);
    OK(xpu_free(p[0]));
    OK(xpu_free(p[4]));
    OK(xpu_free(p[2]));
    char *a = get(0, 1024), *b = get(0, 513), *c = get(0, 1024);
    assert_ptr_equal(a, p[2]); /* the smallest that fits, of two equals the lower */
    assert_ptr_equal(b, p[4]);
    assert_ptr_equal(c, p[0]);
    char *d = get(0, 512);
    assert_ptr_equal(d, p[0] + 1024);
    OK(xpu_free(a));
    OK(xpu_free(b));
    OK(xpu_free(c));
    OK(xpu_free(d));
    for (int i = 1; i < 8; i += i < 5 ? 2 : 1) OK(xpu_free(p[i]));
    assert_int_equal(stats().active[XPU_POOL_ALL].current, 0);
}

static void neighbors_merge(void **state) {
    char *a = get(0, 512), *b = get(0, 512), *c = get(0, 512);
    OK(xpu_free(a));
    OK(xpu_free(c)); /* merges with the rest of the segment */
    assert_int_equal(stats().inactive_split[XPU_POOL_ALL].current, 2);
    OK(xpu_free(b)); /* merges with both */
    assert_int_equal(stats().inactive_split[XPU_POOL_ALL].current, 0);
    void *big = get(0, MIB);
    assert_ptr_equal(big, a);
    OK(xpu_free(big));
}

static void streams_do_not_share_blocks(void **state) {
    void *a = get(0, 4096);
    OK(xpu_free(a));
    void *b = get(1, 4096), *c = get(0, 4096);
    assert_ptr_not_equal(a, b);
    assert_ptr_equal(a, c);
    assert_int_equal(stats().segment[XPU_POOL_SMALL].current, 2);
    OK(xpu_free(b));
    OK(xpu_free(c));
}

static void devices_are_apart(void **state) {
    void *a = get(0, 100), *b;
    OK(xpu_malloc(&fakes[1].streams[0], 100, &b));
    int d;
    OK(xpu_memory_device_of(a, &d));
    assert_int_equal(d, 0);
    OK(xpu_memory_device_of(b, &d));
    assert_int_equal(d, 1);
    xpu_memory_stats s;
    OK(xpu_memory_get_stats(1, &s));
    assert_int_equal(s.allocated_bytes[XPU_POOL_ALL].current, 512);
    OK(xpu_free(a));
    OK(xpu_free(b));
}

static void interior_pointers(void **state) {
    char *a = get(0, 1000), *b = get(0, 2000), *c = get(0, 30 * MIB), *d = get(0, 3 * MIB),
         *e = get(0, 5 * MIB);
    struct {
        char *base;
        size_t size;
    } blocks[] = {{a, 1024}, {b, 2048}, {c, 30 * MIB}, {d, 3 * MIB}, {e, 5 * MIB}};
    for (int i = 0; i < 5; i++) {
        size_t at[] = {0, 1, blocks[i].size / 2, blocks[i].size - 1};
        for (int k = 0; k < 4; k++) {
            void *base;
            size_t size;
            int device;
            OK(xpu_memory_base_of(blocks[i].base + at[k], &base, &size));
            assert_ptr_equal(base, blocks[i].base);
            assert_int_equal(size, blocks[i].size);
            OK(xpu_memory_device_of(blocks[i].base + at[k], &device));
            assert_int_equal(device, 0);
        }
    }
    void *base;
    size_t size;
    int device, on_stack;
    assert_int_equal(xpu_memory_base_of(b + 2048, &base, &size), XPU_ERROR_INVALID_ARGUMENT); /* free */
    OK(xpu_memory_device_of(b + 2048, &device)); /* still the device's */
    assert_int_equal(xpu_memory_device_of(&on_stack, &device), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_memory_device_of(NULL, &device), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_memory_device_of((void *)(UINTPTR_MAX - 5), &device), XPU_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < 5; i++) OK(xpu_free(blocks[i].base));
    OK(xpu_memory_empty_cache(0));
    assert_int_equal(xpu_memory_device_of(a, &device), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_memory_base_of(a, &base, &size), XPU_ERROR_INVALID_ARGUMENT);
}

static void bad_pointers_are_refused(void **state) {
    char *a = get(0, 1024);
    int other;
    assert_int_equal(xpu_free(a + 512), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_free(&other), XPU_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(xpu_last_error(), "invalid device pointer"));
    OK(xpu_free(a));
    assert_int_equal(xpu_free(a), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_memory_record_stream(a, STREAM(1)), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_malloc(NULL, 1, (void **)&a), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_memory_empty_cache(FAKE_DEVICES), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_memory_empty_cache(-1), XPU_ERROR_INVALID_ARGUMENT);
}

static void after_a_fork_nothing_works(void **state) {
    void *a = get(0, 1), *b;
    fake_bad_fork = true;
    xpu_memory_stats s;
    assert_int_equal(xpu_malloc(STREAM(0), 1, &b), XPU_ERROR_BAD_FORK);
    assert_int_equal(xpu_free(a), XPU_ERROR_BAD_FORK);
    assert_int_equal(xpu_memory_get_stats(0, &s), XPU_ERROR_BAD_FORK);
    assert_int_equal(xpu_memory_empty_cache(0), XPU_ERROR_BAD_FORK);
    fake_bad_fork = false;
    OK(xpu_free(a));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(sizes_are_rounded_to_512),
        TEST(no_bytes_are_null),
        TEST(segments_by_request),
        TEST(large_blocks_split_above_one_mib),
        TEST(small_blocks_split_to_the_last_512),
        TEST(the_best_fit_is_taken),
        TEST(neighbors_merge),
        TEST(streams_do_not_share_blocks),
        TEST(devices_are_apart),
        TEST(interior_pointers),
        TEST(bad_pointers_are_refused),
        TEST(after_a_fork_nothing_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
