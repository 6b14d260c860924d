/* The caching allocator's rules one by one, with expected values computed by hand. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fake_device.h"
#include "runtime/allocator.h"

#define OK(call) assert_int_equal((call), XPU_SUCCESS)
#define STREAM(i) (&fakes[0].streams[i])

static void *get(int stream, size_t size) {
    void *p = NULL;
    OK(xpu_malloc(STREAM(stream), size, &p));
    return p;
}

static xpu_memory_stats stats(void) {
    xpu_memory_stats s;
    OK(xpu_memory_get_stats(0, &s));
    return s;
}

static int setup(void **state) {
    fake_reset();
    return 0;
}

/* Every test frees what it allocated; afterwards nothing is left and counters restart. */
static int teardown(void **state) {
    for (int d = 0; d < FAKE_DEVICES; d++) {
        if (xpu_memory_empty_cache(d) != XPU_SUCCESS || fakes[d].used != 0) return -1;
        xpu_memory_reset_peak_stats(d);
        xpu_memory_reset_accumulated_stats(d);
    }
    const xpu_memory_settings none = {0};
    return xpu_memory_configure(&none) == XPU_SUCCESS ? 0 : -1;
}

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

static void other_failures_are_handed_on(void **state) {
    void *a;
    fake_alloc_failure = XPU_ERROR_DEVICE_LOST;
    assert_int_equal(xpu_malloc(STREAM(0), 1, &a), XPU_ERROR_DEVICE_LOST);
    fake_alloc_failure = XPU_SUCCESS;
    assert_int_equal(stats().num_alloc_retries, 0);
    assert_int_equal(stats().segment[XPU_POOL_ALL].current, 0);
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

static void peaks_and_sums(void **state) {
    void *a = get(0, 1024), *b = get(0, 3 * MIB);
    OK(xpu_free(b));
    xpu_memory_stats s = stats();
    assert_int_equal(s.allocated_bytes[XPU_POOL_ALL].peak, 1024 + 3 * MIB);
    assert_int_equal(s.allocated_bytes[XPU_POOL_LARGE].peak, 3 * MIB);
    assert_int_equal(s.allocated_bytes[XPU_POOL_ALL].allocated, 1024 + 3 * MIB);
    assert_int_equal(s.allocated_bytes[XPU_POOL_ALL].freed, 3 * MIB);
    OK(xpu_memory_reset_peak_stats(0));
    s = stats();
    assert_int_equal(s.allocated_bytes[XPU_POOL_ALL].peak, 1024);
    assert_int_equal(s.allocated_bytes[XPU_POOL_ALL].allocated, 1024 + 3 * MIB);
    OK(xpu_memory_reset_accumulated_stats(0));
    s = stats();
    assert_int_equal(s.allocated_bytes[XPU_POOL_ALL].current, 1024);
    assert_int_equal(s.allocated_bytes[XPU_POOL_ALL].allocated, 0);
    assert_int_equal(s.allocated_bytes[XPU_POOL_ALL].freed, 0);
    OK(xpu_free(a));
}

static void the_driver_is_counted(void **state) {
    xpu_memory_stats before = stats();
    void *a = get(0, 1), *b = get(0, 30 * MIB);
    OK(xpu_free(a));
    OK(xpu_free(b));
    OK(xpu_memory_empty_cache(0));
    xpu_memory_stats s = stats();
    assert_int_equal(s.num_device_alloc - before.num_device_alloc, 2);
    assert_int_equal(s.num_device_free - before.num_device_free, 2);
}

static void free_and_total(void **state) {
    size_t free_bytes, total;
    void *a = get(0, 1);
    OK(xpu_memory_info(0, &free_bytes, &total));
    assert_int_equal(total, 1024 * MIB);
    assert_int_equal(free_bytes, 1022 * MIB);
    OK(xpu_free(a));
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

/* --- snapshot and history --- */

typedef struct seen {
    xpu_block_info blocks[64];
    int count;
} seen;

static void see(const xpu_block_info *b, void *user) {
    seen *s = user;
    s->blocks[s->count++] = *b;
}

static void the_snapshot_shows_every_block(void **state) {
    char *a = get(0, 1000), *b = get(0, 512), *c = get(1, 12 * MIB);
    fake_submit(STREAM(2));
    OK(xpu_memory_record_stream(b, STREAM(2)));
    OK(xpu_free(b));
    seen s = {.count = 0};
    OK(xpu_memory_visit_blocks(0, see, &s));
    assert_int_equal(s.count, 4);
    xpu_block_info *small = (char *)s.blocks[0].segment == a ? &s.blocks[0] : &s.blocks[1];
    xpu_block_info *large = small == s.blocks ? &s.blocks[3] : &s.blocks[0];
    assert_ptr_equal(small[0].address, a);
    assert_int_equal(small[0].size, 1024);
    assert_int_equal(small[0].requested_size, 1000);
    assert_int_equal(small[0].segment_size, 2 * MIB);
    assert_int_equal(small[0].state, XPU_BLOCK_ALLOCATED);
    assert_false(small[0].is_large);
    assert_int_equal(small[1].state, XPU_BLOCK_PENDING_FREE);
    assert_int_equal(small[2].state, XPU_BLOCK_INACTIVE);
    assert_int_equal(small[2].size, 2 * MIB - 1536);
    assert_ptr_equal(large->address, c);
    assert_true(large->is_large);
    assert_int_equal(large->stream_id, 1);
    fake_finish(STREAM(2));
    OK(xpu_free(a));
    OK(xpu_free(c));
}

typedef struct history {
    struct {
        xpu_trace_action action;
        void *address;
        size_t size;
        const void *context;
    } entries[64];
    int count;
} history;

static const void *note(xpu_trace_action action, int device, void *address, size_t size, int64_t stream_id,
                        const void *context, void *user) {
    history *h = user;
    h->entries[h->count].action = action;
    h->entries[h->count].address = address;
    h->entries[h->count].size = size;
    h->entries[h->count++].context = context;
    return action == XPU_TRACE_ALLOC ? "a context" : NULL;
}

static void the_history_hook_sees_each_action(void **state) {
    history h = {.count = 0};
    OK(xpu_memory_set_hook(0, note, &h));
    char *a = get(0, 1000);
    seen s = {.count = 0};
    OK(xpu_memory_visit_blocks(0, see, &s));
    assert_string_equal(s.blocks[0].context, "a context");
    fake_submit(STREAM(1));
    OK(xpu_memory_record_stream(a, STREAM(1)));
    OK(xpu_free(a));
    fake_finish(STREAM(1));
    OK(xpu_memory_empty_cache(0));
    fakes[0].limit = 0;
    void *b;
    assert_int_equal(xpu_malloc(STREAM(0), 100, &b), XPU_ERROR_OUT_OF_MEMORY);
    OK(xpu_memory_set_hook(0, NULL, NULL));
    fakes[0].limit = 1024 * MIB;
    OK(xpu_free(get(0, 1)));
    static const struct {
        xpu_trace_action action;
        size_t size;
    } want[] = {{XPU_TRACE_SEGMENT_ALLOC, 2 * MIB},
                {XPU_TRACE_ALLOC, 1000},
                {XPU_TRACE_SNAPSHOT, 1024},
                {XPU_TRACE_FREE_REQUESTED, 1000},
                {XPU_TRACE_FREE_COMPLETED, 1000},
                {XPU_TRACE_SEGMENT_FREE, 2 * MIB},
                {XPU_TRACE_OOM, 512}};
    assert_int_equal(h.count, 7);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(h.entries[i].action, want[i].action);
        assert_int_equal(h.entries[i].size, want[i].size);
    }
    assert_string_equal(h.entries[3].context, "a context");
    assert_string_equal(h.entries[4].context, "a context");
    assert_ptr_equal(h.entries[6].address, (void *)(1024 * MIB)); /* free bytes */
}

/* --- pools of one's own --- */

static bool on_stream(xpu_stream *stream, void *user) { return stream == user; }

static void private_pools_keep_apart(void **state) {
    static const uint64_t id[2] = {0, 7}, other[2] = {3, 0};
    char *a = get(0, 512);
    OK(xpu_free(a));
    OK(xpu_pool_begin(0, id, on_stream, STREAM(0)));
    assert_int_equal(xpu_pool_begin(0, id, on_stream, STREAM(0)), XPU_ERROR_INVALID_ARGUMENT);
    assert_true(xpu_pool_serves(STREAM(0)));
    assert_false(xpu_pool_serves(STREAM(1)));
    char *b = get(0, 512), *c = get(1, 512);
    assert_ptr_not_equal(a, b); /* not from the default pool, though that has a free block */
    seen s = {.count = 0};
    OK(xpu_memory_visit_blocks(0, see, &s));
    for (int i = 0; i < s.count; i++) {
        if (s.blocks[i].address == b) assert_int_equal(s.blocks[i].pool[1], 7);
        if (s.blocks[i].address == c) assert_int_equal(s.blocks[i].pool[1], 0);
    }
    OK(xpu_pool_end(0, id));
    assert_false(xpu_pool_serves(STREAM(0)));
    assert_int_equal(xpu_pool_end(0, id), XPU_ERROR_INVALID_ARGUMENT);
    char *d = get(0, 512);
    assert_ptr_equal(a, d);
    OK(xpu_free(b));
    OK(xpu_memory_empty_cache(0)); /* the pool has a user: its segment stays */
    assert_int_equal(stats().segment[XPU_POOL_SMALL].current, 3);
    int users;
    OK(xpu_pool_acquire(0, id));
    OK(xpu_pool_users(0, id, &users));
    assert_int_equal(users, 2);
    OK(xpu_pool_release(0, id));
    OK(xpu_pool_release(0, id));
    assert_int_equal(xpu_pool_release(0, other), XPU_ERROR_INVALID_ARGUMENT);
    OK(xpu_pool_empty(0, id));
    assert_int_equal(stats().segment[XPU_POOL_SMALL].current, 2);
    assert_int_equal(xpu_pool_empty(0, id), XPU_ERROR_INVALID_ARGUMENT); /* it is gone */
    OK(xpu_free(c));
    OK(xpu_free(d));
}

static void the_pool_begun_last_is_asked_first(void **state) {
    static const uint64_t outer[2] = {0, 1}, inner[2] = {0, 2};
    OK(xpu_pool_begin(0, outer, on_stream, STREAM(0)));
    OK(xpu_pool_begin(0, inner, on_stream, STREAM(0)));
    char *a = get(0, 512);
    OK(xpu_pool_end(0, inner));
    char *b = get(0, 512);
    OK(xpu_pool_end(0, outer));
    seen s = {.count = 0};
    OK(xpu_memory_visit_blocks(0, see, &s));
    for (int i = 0; i < s.count; i++) {
        if (s.blocks[i].address == a) assert_int_equal(s.blocks[i].pool[1], 2);
        if (s.blocks[i].address == b) assert_int_equal(s.blocks[i].pool[1], 1);
    }
    OK(xpu_free(a));
    OK(xpu_free(b));
    OK(xpu_pool_release(0, outer));
    OK(xpu_pool_release(0, inner));
}

static void a_pool_helps_out(void **state) {
    static const uint64_t id[2] = {0, 9};
    fakes[0].limit = 64 * MIB;
    OK(xpu_pool_begin(0, id, on_stream, STREAM(0)));
    char *a = get(0, 60 * MIB);
    OK(xpu_pool_end(0, id));
    OK(xpu_free(a));
    void *b;
    assert_int_equal(xpu_malloc(STREAM(0), 50 * MIB, &b), XPU_ERROR_OUT_OF_MEMORY);
    OK(xpu_pool_use_on_oom(0, id));
    OK(xpu_malloc(STREAM(0), 50 * MIB, &b));
    assert_ptr_equal(a, b);
    OK(xpu_free(b));
    OK(xpu_pool_release(0, id));
    OK(xpu_pool_empty(0, id));
    assert_int_equal(xpu_pool_use_on_oom(0, id), XPU_ERROR_INVALID_ARGUMENT);
}

static void *other_thread(void *result) {
    *(bool *)result = xpu_pool_thread_filter(NULL, *(void **)result);
    return NULL;
}

static void a_pool_for_one_thread(void **state) {
    void *here = xpu_pool_this_thread();
    assert_true(xpu_pool_thread_filter(STREAM(0), here));
    union {
        void *token;
        bool answer;
    } u = {.token = here};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &u), 0);
    pthread_join(thread, NULL);
    assert_false(u.answer);
}

static void count_one(void *address, void *user) { ++*(int *)user; }

/* A pool is restored to blocks anywhere in its segments, whatever is there, with the same counts. */
static void a_pool_comes_back_to_a_state(void **state) {
    static const uint64_t id[2] = {0, 5}, gone[2] = {0, 6};
    xpu_pool_state *saved, *none;
    assert_int_equal(xpu_pool_save(0, id, &none), XPU_ERROR_INVALID_ARGUMENT); /* no such pool */
    OK(xpu_pool_begin(0, id, on_stream, STREAM(0)));
    char *a = get(0, 700), *b = get(0, 512), *c = get(0, 100), *large = get(0, 3 * MIB);
    char *rest = get(0, 5 * MIB), *other = get(1, 512); /* the last is of the default pool */
    OK(xpu_free(a));
    OK(xpu_free(large));
    OK(xpu_pool_save(0, id, &saved)); /* b, c and rest: the space before and between them is free */
    const xpu_memory_stats before = stats();
    int blocks = 0;
    OK(xpu_pool_state_visit(saved, count_one, &blocks));
    assert_int_equal(blocks, 3);

    OK(xpu_free(b));
    OK(xpu_free(rest));
    char *over = get(0, 2048), *wide = get(0, 9 * MIB), *late = get(0, 512);
    assert_ptr_equal(over, c + 512);
    OK(xpu_memory_record_stream(wide, STREAM(1)));
    OK(xpu_pool_restore(saved));
    assert_int_equal(xpu_free(over), XPU_ERROR_INVALID_ARGUMENT); /* taken back */
    assert_int_equal(xpu_free(wide), XPU_ERROR_INVALID_ARGUMENT);
    assert_true(late == a || late == a + 512 || xpu_free(late) == XPU_ERROR_INVALID_ARGUMENT);
    const xpu_memory_stats after = stats();
    for (int kind = 0; kind < XPU_POOL_KINDS; kind++) {
        assert_int_equal(before.allocation[kind].current, after.allocation[kind].current);
        assert_int_equal(before.allocated_bytes[kind].current, after.allocated_bytes[kind].current);
        assert_int_equal(before.active[kind].current, after.active[kind].current);
        assert_int_equal(before.active_bytes[kind].current, after.active_bytes[kind].current);
        assert_int_equal(before.requested_bytes[kind].current, after.requested_bytes[kind].current);
        assert_int_equal(before.inactive_split[kind].current, after.inactive_split[kind].current);
        assert_int_equal(before.inactive_split_bytes[kind].current, after.inactive_split_bytes[kind].current);
    }
    size_t size;
    void *base;
    OK(xpu_memory_base_of(b + 100, &base, &size));
    assert_ptr_equal(base, b);
    assert_int_equal(size, 512);
    assert_ptr_equal(get(0, 700), a); /* as before b was freed */
    OK(xpu_pool_restore(saved));      /* again, and a is taken back */
    assert_ptr_equal(get(0, 1024), a);
    OK(xpu_free(a));
    OK(xpu_free(b));
    OK(xpu_free(c));
    OK(xpu_free(rest));
    OK(xpu_free(other));
    OK(xpu_pool_end(0, id));
    OK(xpu_pool_release(0, id));
    OK(xpu_pool_empty(0, id));
    assert_int_equal(xpu_pool_restore(saved), XPU_ERROR_INVALID_ARGUMENT); /* the pool is gone */
    OK(xpu_pool_acquire(0, id));
    assert_int_equal(xpu_pool_restore(saved), XPU_ERROR_INVALID_ARGUMENT); /* another one of that name */
    OK(xpu_pool_release(0, id));
    OK(xpu_pool_empty(0, id));
    assert_int_equal(xpu_pool_save(0, gone, &none), XPU_ERROR_INVALID_ARGUMENT);
    xpu_pool_state_destroy(saved);
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

/* A host device gives nothing for which the system would kill somebody; small segments aren't asked about. */
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

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
        TEST(a_recorded_stream_keeps_the_block),
        TEST(all_recorded_streams_must_pass),
        TEST(the_own_stream_needs_no_record),
        TEST(events_are_used_again),
        TEST(without_events_the_stream_is_waited_for),
        TEST(a_lost_device_is_reported),
        TEST(cached_memory_is_given_back_before_out_of_memory),
        TEST(out_of_memory_tells_the_sizes),
        TEST(small_requests_tell_the_segment),
        TEST(pending_blocks_are_waited_for_before_out_of_memory),
        TEST(the_fraction_bounds_what_is_reserved),
        TEST(host_devices_give_no_more_than_they_have),
        TEST(free_is_at_most_what_all_leave),
        TEST(host_devices_ask_the_system),
        TEST(large_blocks_stay_whole),
        TEST(large_blocks_go_first),
        TEST(unused_segments_go_back),
        TEST(the_threshold_is_of_the_fraction),
        TEST(sizes_are_rounded_in_steps),
        TEST(segments_by_setting),
        TEST(bad_settings_change_nothing),
        TEST(other_failures_are_handed_on),
        TEST(synchronous_streams_need_no_event),
        TEST(peaks_and_sums),
        TEST(the_driver_is_counted),
        TEST(free_and_total),
        TEST(interior_pointers),
        TEST(bad_pointers_are_refused),
        TEST(after_a_fork_nothing_works),
        TEST(the_snapshot_shows_every_block),
        TEST(the_history_hook_sees_each_action),
        TEST(private_pools_keep_apart),
        TEST(the_pool_begun_last_is_asked_first),
        TEST(a_pool_helps_out),
        TEST(a_pool_comes_back_to_a_state),
        TEST(a_pool_for_one_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
