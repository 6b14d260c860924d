/* Memory of a real device: contents, reuse across streams, exhaustion, statistics. */
#include <stdlib.h>

#include "device_test.h"

#define MIB ((size_t)1 << 20)

static xpu_memory_stats stats(void) {
    xpu_memory_stats s;
    SUCCEEDS(xpu_memory_get_stats(0, &s));
    return s;
}

/* Frees whatever earlier tests left cached. */
static int setup(void **state) {
    if (xpu_memory_empty_cache(0) || xpu_memory_reset_peak_stats(0) || xpu_memory_reset_accumulated_stats(0))
        return -1;
    return stats().reserved_bytes[0].current != 0;
}

static void contents_survive_the_way_there_and_back(void **state) {
    xpu_stream *stream;
    SUCCEEDS(xpu_stream_default(0, &stream));
    static const size_t sizes[] = {1, 511, 513, 100000, 3 * MIB + 5, 40 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *device, *there = malloc(sizes[i]), *back = calloc(1, sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++) there[k] = (unsigned char)(k * 31 + i);
        SUCCEEDS(xpu_malloc(stream, sizes[i], (void **)&device));
        assert_int_equal((uintptr_t)device % 64, 0);
        SUCCEEDS(xpu_memcpy(stream, device, there, sizes[i], true));
        SUCCEEDS(xpu_memcpy(stream, back, device, sizes[i], true));
        assert_memory_equal(there, back, sizes[i]);
        /* an unaligned part, within the device */
        if (sizes[i] > 1000) {
            SUCCEEDS(xpu_memcpy(stream, device + 7, device + 500, 333, false));
            SUCCEEDS(xpu_memcpy(stream, back, device + 7, 333, true));
            assert_memory_equal(there + 500, back, 333);
        }
        SUCCEEDS(xpu_free(device));
        free(there);
        free(back);
    }
}

static void fills_of_every_pattern(void **state) {
    xpu_stream *stream;
    unsigned char *device, host[4096], pattern[16];
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(xpu_malloc(stream, sizeof host, (void **)&device));
    for (int i = 0; i < 16; i++) pattern[i] = (unsigned char)(17 * i + 3);
    for (size_t size = 1; size <= 16; size *= 2) {
        size_t bytes = sizeof host / size * size - 2 * size;
        memset(host, 0xee, sizeof host);
        SUCCEEDS(xpu_memcpy(stream, device, host, sizeof host, true));
        SUCCEEDS(xpu_memset(stream, device + size, pattern, size, bytes));
        SUCCEEDS(xpu_memcpy(stream, host, device, sizeof host, true));
        for (size_t k = 0; k < sizeof host; k++) {
            bool inside = k >= size && k < size + bytes;
            if (host[k] != (inside ? pattern[k % size] : 0xee)) fail_msg("pattern of %zu: byte %zu", size, k);
        }
    }
    SUCCEEDS(xpu_free(device));
}

/* Every byte of a block is checked before and after, with sizes and offsets that no copy unit divides. */
static void copies_and_fills_of_odd_bytes(void **state) {
    enum { ROOM = 3000 };
    xpu_stream *stream;
    unsigned char *a, *b, there[ROOM], expected[ROOM], back[ROOM], pattern[16];
    SUCCEEDS(xpu_stream_from_pool(0, XPU_PRIORITY_NORMAL, &stream));
    SUCCEEDS(xpu_malloc(stream, ROOM, (void **)&a));
    SUCCEEDS(xpu_malloc(stream, ROOM, (void **)&b));
    for (int i = 0; i < 16; i++) pattern[i] = (unsigned char)(200 - 9 * i);
    uint64_t seed = 1;
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < ROOM; i++) there[i] = (unsigned char)(seed >> 13) + (unsigned char)(31 * i);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t size = round < 100 ? (size_t)round : (seed >> 33) % 2900;
        size_t from = (seed >> 20) % (ROOM - size), to = (seed >> 40) % (ROOM - size);
        if (round % 3 == 0) from = from / 16 * 16, to = to / 16 * 16;
        memset(expected, 0xdd, ROOM);
        SUCCEEDS(xpu_memcpy(stream, b, expected, ROOM, true));
        if (round % 2) { /* uploaded at once, then copied within the device */
            SUCCEEDS(xpu_memcpy(stream, a, there, ROOM, true));
            SUCCEEDS(xpu_memcpy(stream, b + to, a + from, size, false));
            memcpy(expected + to, there + from, size);
        } else {
            SUCCEEDS(xpu_memcpy(stream, b + to, there + from, size, true));
            memcpy(expected + to, there + from, size);
            memset(there, 0, ROOM); /* it was read */
        }
        size_t unit = (size_t)1 << round % 5, filled = size / unit * unit, at = (to + unit - 1) / unit * unit;
        if (round % 7 == 0 && at + filled <= ROOM) {
            SUCCEEDS(xpu_memset(stream, b + at, pattern, unit, filled));
            for (size_t i = 0; i < filled; i++) expected[at + i] = pattern[i % unit];
        }
        SUCCEEDS(xpu_memcpy(stream, back, b, ROOM, true));
        for (int i = 0; i < ROOM; i++)
            if (back[i] != expected[i])
                fail_msg("round %d: byte %d, size %zu from %zu to %zu", round, i, size, from, to);
    }
    SUCCEEDS(xpu_free(a));
    SUCCEEDS(xpu_free(b));
}

/* Reads `in` after a delay and writes it to `out`; on an asynchronous device it runs long after the host has
 * continued. */
static const char slow_source[] = "typedef struct { ulong in, out, count, wait; } slow_params;\n"
                                  "__kernel void slow(slow_params p) {\n"
                                  "    size_t i = get_global_id(0);\n"
                                  "    uint x = (uint)i;\n"
                                  "    for (ulong k = 0; k < p.wait; k++) x = x * 1664525u + 1013904223u;\n"
                                  "    if (i < p.count) ((__global uint *)p.out)[i] = ((__global const "
                                  "volatile uint *)p.in)[i] + (x == 12345u && p.wait == 7);\n"
                                  "}\n";

static void a_recorded_stream_reads_what_was_there(void **state) {
    enum { COUNT = 4096 };
    xpu_stream *a, *b;
    xpu_kernel *kernel;
    xpu_event *ready;
    uint32_t *in, *again, *out, host[COUNT], pattern, overwrite = 0xffffffff;
    const xpu_device_properties *p;
    SUCCEEDS(xpu_device_get_properties(0, &p));
    bool host_device = p->type == XPU_DEVICE_CPU; /* work completes immediately there */
    SUCCEEDS(xpu_stream_from_pool(0, XPU_PRIORITY_NORMAL, &a));
    SUCCEEDS(xpu_stream_from_pool(0, XPU_PRIORITY_NORMAL, &b));
    SUCCEEDS(xpu_kernel_create(0, slow_source, NULL, "slow", NULL, &kernel));
    SUCCEEDS(xpu_event_create(0, false, &ready));
    SUCCEEDS(xpu_malloc(b, sizeof host, (void **)&out));
    int kept = 0;
    for (uint32_t round = 0; round < 30; round++) {
        pattern = 1000 + round;
        SUCCEEDS(xpu_malloc(a, sizeof host, (void **)&in));
        SUCCEEDS(xpu_memset(a, in, &pattern, 4, sizeof host));
        SUCCEEDS(xpu_event_record(ready, a));
        SUCCEEDS(xpu_stream_wait(b, ready));
        struct {
            uint64_t in, out, count, wait;
        } params = {(uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)out, COUNT, host_device ? 100 : 20000};
        xpu_range range = {.dims = 1, .groups = {COUNT / 64}, .local = {64}};
        SUCCEEDS(xpu_launch(b, kernel, &range, &params, sizeof params));
        SUCCEEDS(xpu_memory_record_stream(in, b));
        SUCCEEDS(xpu_free(in));
        SUCCEEDS(xpu_malloc(a, sizeof host, (void **)&again));
        kept += again != in;
        SUCCEEDS(xpu_memset(a, again, &overwrite, 4, sizeof host));
        SUCCEEDS(xpu_free(again));
        SUCCEEDS(xpu_memcpy(b, host, out, sizeof host, true));
        for (int i = 0; i < COUNT; i++)
            if (host[i] != pattern) fail_msg("round %u: %u at %d", round, host[i], i);
    }
    print_message("the block was kept back %d times of 30\n", kept);
    if (host_device) assert_int_equal(kept, 0);
    SUCCEEDS(xpu_free(out));
    SUCCEEDS(xpu_event_destroy(ready));
}

static void pinned_memory_waits_for_its_copies(void **state) {
    xpu_stream *stream;
    unsigned char *device, *pinned, *again, *host = malloc(16 * MIB);
    SUCCEEDS(xpu_stream_from_pool(0, XPU_PRIORITY_NORMAL, &stream));
    SUCCEEDS(xpu_malloc(stream, 16 * MIB, (void **)&device));
    for (int round = 1; round < 6; round++) {
        SUCCEEDS(xpu_host_malloc(16 * MIB, (void **)&pinned));
        assert_true(xpu_host_is_pinned(pinned + 5 * MIB));
        memset(pinned, round, 16 * MIB);
        SUCCEEDS(xpu_memcpy(stream, device, pinned, 16 * MIB, false));
        SUCCEEDS(xpu_host_record_stream(pinned, stream));
        SUCCEEDS(xpu_host_free(pinned));
        SUCCEEDS(xpu_host_malloc(16 * MIB, (void **)&again));
        memset(again, 0xff, 16 * MIB);
        SUCCEEDS(xpu_host_free(again));
        SUCCEEDS(xpu_memcpy(stream, host, device, 16 * MIB, true));
        for (size_t i = 0; i < 16 * MIB; i += 4099) assert_int_equal(host[i], round);
    }
    SUCCEEDS(xpu_free(device));
    SUCCEEDS(xpu_host_empty_cache());
    free(host);
}

/* Uploads queued behind slow work: pageable memory may be changed immediately, pinned memory is read when the
 * stream gets there. */
static void uploads_keep_the_order_of_the_stream(void **state) {
    enum { COUNT = 100000 };
    static const size_t sizes[] = {4, 200, 800, 5000, 4 * COUNT};
    const xpu_device_properties *p;
    xpu_stream *stream;
    xpu_kernel *kernel;
    uint32_t *a, *b, *pinned, *host = malloc(4 * COUNT), *back = malloc(4 * COUNT);
    SUCCEEDS(xpu_device_get_properties(0, &p));
    SUCCEEDS(xpu_stream_from_pool(0, XPU_PRIORITY_NORMAL, &stream));
    SUCCEEDS(xpu_kernel_create(0, slow_source, NULL, "slow", NULL, &kernel));
    SUCCEEDS(xpu_malloc(stream, 4 * COUNT, (void **)&a));
    SUCCEEDS(xpu_malloc(stream, 4 * COUNT, (void **)&b));
    SUCCEEDS(xpu_host_malloc(4 * COUNT, (void **)&pinned));
    for (uint32_t round = 0; round < 10; round++) {
        const size_t bytes = sizes[round / 2], count = bytes / 4;
        const uint32_t before = 7 + round;
        SUCCEEDS(xpu_memset(stream, a, &before, 4, 4 * COUNT));
        struct {
            uint64_t in, out, count, wait;
        } params = {(uint64_t)(uintptr_t)a, (uint64_t)(uintptr_t)b, COUNT,
                    p->host_unified_memory ? 10 : 3000};
        xpu_range range = {.dims = 1, .groups = {(COUNT + 63) / 64}, .local = {64}};
        SUCCEEDS(xpu_launch(stream, kernel, &range, &params, sizeof params));
        for (size_t i = 0; i < count; i++) host[i] = round * 1000 + (uint32_t)i;
        if (round % 2) { /* b is downloaded and uploaded again as a, both through one pinned block */
            SUCCEEDS(xpu_memcpy(stream, pinned, b, bytes, false));
            SUCCEEDS(xpu_memcpy(stream, a, pinned, bytes, round % 4 == 1));
        } else {
            SUCCEEDS(xpu_memcpy(stream, a, host, bytes, true));
            memset(host, 0xff, bytes);
        }
        SUCCEEDS(xpu_memcpy(stream, back, a, bytes, true));
        for (size_t i = 0; i < count; i++)
            if (back[i] != (round % 2 ? before : round * 1000 + (uint32_t)i))
                fail_msg("round %u: %u at %zu", round, back[i], i);
        SUCCEEDS(xpu_memcpy(stream, back, b, 4 * COUNT, true));
        for (int i = 0; i < COUNT; i++)
            if (back[i] != before) fail_msg("round %u: the kernel read %u at %d", round, back[i], i);
    }
    SUCCEEDS(xpu_host_free(pinned));
    SUCCEEDS(xpu_free(a));
    SUCCEEDS(xpu_free(b));
    free(host);
    free(back);
}

/* Times are first requested while work is in progress: earlier work comes before later work. */
static void times_are_kept_when_they_are_wanted(void **state) {
    enum { COUNT = 4096 };
    const xpu_device_properties *p;
    xpu_kernel *kernel;
    SUCCEEDS(xpu_device_get_properties(0, &p));
    SUCCEEDS(xpu_kernel_create(0, slow_source, NULL, "slow", NULL, &kernel));
    for (int round = 0; round < 8; round++) {
        xpu_stream *stream;
        uint32_t *a, *b, *c, back[COUNT];
        xpu_event *start, *end;
        const uint32_t value = 5 + (uint32_t)round;
        SUCCEEDS(xpu_stream_from_pool(0, XPU_PRIORITY_LOW, &stream)); /* one that no test has used */
        SUCCEEDS(xpu_event_create(0, true, &start));
        SUCCEEDS(xpu_event_create(0, true, &end));
        SUCCEEDS(xpu_malloc(stream, sizeof back, (void **)&a));
        SUCCEEDS(xpu_malloc(stream, sizeof back, (void **)&b));
        SUCCEEDS(xpu_malloc(stream, sizeof back, (void **)&c));
        struct {
            uint64_t in, out, count, wait;
        } ab = {(uint64_t)(uintptr_t)a, (uint64_t)(uintptr_t)b, COUNT, p->host_unified_memory ? 100 : 30000},
          bc = {(uint64_t)(uintptr_t)b, (uint64_t)(uintptr_t)c, COUNT, 0};
        xpu_range range = {.dims = 1, .groups = {COUNT / 64}, .local = {64}};
        SUCCEEDS(xpu_memset(stream, a, &value, 4, sizeof back));
        SUCCEEDS(xpu_launch(stream, kernel, &range, &ab, sizeof ab));
        SUCCEEDS(xpu_event_record(start, stream));
        SUCCEEDS(xpu_launch(stream, kernel, &range, &bc, sizeof bc));
        SUCCEEDS(xpu_event_record(end, stream));
        SUCCEEDS(xpu_event_synchronize(end));
        double milliseconds = -1;
        SUCCEEDS(xpu_event_elapsed(start, end, &milliseconds));
        assert_true(milliseconds >= 0 && milliseconds < 60000);
        SUCCEEDS(xpu_memcpy(stream, back, c, sizeof back, true));
        for (int i = 0; i < COUNT; i++)
            if (back[i] != value) fail_msg("round %d: %u at %d", round, back[i], i);
        SUCCEEDS(xpu_event_destroy(start));
        SUCCEEDS(xpu_event_destroy(end));
        SUCCEEDS(xpu_free(a));
        SUCCEEDS(xpu_free(b));
        SUCCEEDS(xpu_free(c));
    }
}

static void out_of_memory_is_survived(void **state) {
    xpu_stream *stream;
    const xpu_device_properties *p;
    void *block, *other;
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(xpu_device_get_properties(0, &p));
    SUCCEEDS(xpu_malloc(stream, 100, &block));
    assert_int_equal(xpu_malloc(stream, p->total_memory + MIB, &other), XPU_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(xpu_last_error(), "XPU out of memory. Tried to allocate "));
    assert_int_equal(xpu_malloc(stream, (size_t)1 << 50, &other), XPU_ERROR_OUT_OF_MEMORY);
    assert_non_null(
        strstr(xpu_last_error(), "Tried to allocate 1048576.00 GiB. GPU 0 has a total capacity of "));
    assert_int_equal(stats().num_ooms, 2);
    SUCCEEDS(xpu_malloc(stream, 30 * MIB, &other));
    SUCCEEDS(xpu_free(block));
    SUCCEEDS(xpu_free(other));
}

/* Fills a GPU's memory with blocks of 1 GiB; each keeps its contents. */
static void a_full_device_recovers(void **state) {
    const size_t block = (size_t)1 << 30;
    const xpu_device_properties *p;
    xpu_stream *stream;
    SUCCEEDS(xpu_device_get_properties(0, &p));
    if (p->type != XPU_DEVICE_GPU) skip();
    SUCCEEDS(xpu_stream_default(0, &stream));
    const size_t most = p->total_memory / block + 1;
    char **blocks = calloc(most, sizeof *blocks);
    for (int round = 0; round < 2; round++) {
        size_t count = 0;
        xpu_status status = XPU_SUCCESS;
        while (count < most && (status = xpu_malloc(stream, block, (void **)&blocks[count])) == XPU_SUCCESS) {
            uint64_t number = 1000 * (uint64_t)round + count;
            SUCCEEDS(xpu_memset(stream, blocks[count++] + block - 8, &number, 8, 8));
        }
        assert_int_equal(status, XPU_ERROR_OUT_OF_MEMORY);
        assert_non_null(strstr(xpu_last_error(), "XPU out of memory. Tried to allocate 1024.00 MiB."));
        print_message("%zu GiB of %zu\n", count, (size_t)p->total_memory / block);
        assert_true(count > 0);
        for (size_t i = 0; i < count; i++) {
            uint64_t number;
            SUCCEEDS(xpu_memcpy(stream, &number, blocks[i] + block - 8, 8, true));
            assert_int_equal(number, 1000 * (uint64_t)round + i);
            SUCCEEDS(xpu_free(blocks[i]));
        }
        SUCCEEDS(xpu_memory_empty_cache(0));
    }
    free(blocks);
}

/* Can other processes take and free the device's memory? That of a CPU device is the machine's, also if it is
 * taken for a GPU with memory of its own (OPENXPU_MEMORY). */
static bool shares_memory(void) {
    const xpu_device_properties *p;
    SUCCEEDS(xpu_device_get_properties(0, &p));
    return p->type == XPU_DEVICE_CPU || getenv("OPENXPU_MEMORY");
}

static void everything_counts_to_the_byte(void **state) {
    xpu_stream *stream;
    void *p[3];
    size_t free_before, free_after, total;
    SUCCEEDS(xpu_stream_default(0, &stream));
    const bool shared = shares_memory();
    SUCCEEDS(xpu_memory_info(0, &free_before, &total));
    SUCCEEDS(xpu_malloc(stream, 1, &p[0]));
    SUCCEEDS(xpu_malloc(stream, 11 * MIB, &p[1]));
    SUCCEEDS(xpu_malloc(stream, 2 * MIB, &p[2]));
    SUCCEEDS(xpu_memory_info(0, &free_after, &total));
    if (!shared) assert_true(free_before - free_after >= 34 * MIB);
    xpu_memory_stats s = stats();
    assert_int_equal(s.allocated_bytes[XPU_POOL_ALL].current, 512 + 2 * MIB + 12 * MIB);
    assert_int_equal(s.requested_bytes[XPU_POOL_ALL].current, 1 + 13 * MIB);
    assert_int_equal(s.reserved_bytes[XPU_POOL_ALL].current, 34 * MIB);
    assert_int_equal(s.segment[XPU_POOL_LARGE].current, 2);
    for (int i = 0; i < 3; i++) SUCCEEDS(xpu_free(p[i]));
    s = stats();
    assert_int_equal(s.allocated_bytes[XPU_POOL_ALL].current, 0);
    assert_int_equal(s.allocated_bytes[XPU_POOL_ALL].peak, 512 + 14 * MIB);
    assert_int_equal(s.reserved_bytes[XPU_POOL_ALL].current, 34 * MIB);
    SUCCEEDS(xpu_memory_empty_cache(0));
    assert_int_equal(stats().reserved_bytes[XPU_POOL_ALL].current, 0);
}

static void more_than_four_gib_in_one_block(void **state) {
    xpu_stream *stream;
    const xpu_device_properties *p;
    SUCCEEDS(xpu_device_get_properties(0, &p));
    size_t size = ((size_t)4 << 30) + 4 * MIB;
    if (p->type == XPU_DEVICE_CPU || p->total_memory < 3 * size || p->max_allocation < size) skip();
    if (shares_memory() && !getenv("OPENXPU_TEST_ALL")) skip(); /* takes most of a minute */
    unsigned char *block, byte = 77, back[2];
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(xpu_malloc(stream, size, (void **)&block));
    SUCCEEDS(xpu_memset(stream, block, &byte, 1, size));
    SUCCEEDS(xpu_memcpy(stream, &back[0], block, 1, true));
    SUCCEEDS(xpu_memcpy(stream, &back[1], block + size - 1, 1, true));
    assert_int_equal(back[0], 77);
    assert_int_equal(back[1], 77);
    unsigned char *copy;
    byte = 88;
    SUCCEEDS(xpu_malloc(stream, size, (void **)&copy));
    SUCCEEDS(xpu_memset(stream, copy, &byte, 1, size));
    SUCCEEDS(xpu_memcpy(stream, copy, block, size, false));
    SUCCEEDS(xpu_memcpy(stream, &back[0], copy, 1, true));
    SUCCEEDS(xpu_memcpy(stream, &back[1], copy + size - 1, 1, true));
    assert_int_equal(back[0], 77);
    assert_int_equal(back[1], 77);
    SUCCEEDS(xpu_free(copy));
    SUCCEEDS(xpu_free(block));
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void) {
    const struct CMUnitTest tests[] = {TEST(contents_survive_the_way_there_and_back),
                                       TEST(fills_of_every_pattern),
                                       TEST(copies_and_fills_of_odd_bytes),
                                       TEST(uploads_keep_the_order_of_the_stream),
                                       TEST(times_are_kept_when_they_are_wanted),
                                       TEST(a_recorded_stream_reads_what_was_there),
                                       TEST(pinned_memory_waits_for_its_copies),
                                       TEST(out_of_memory_is_survived),
                                       TEST(a_full_device_recovers),
                                       TEST(everything_counts_to_the_byte),
                                       TEST(more_than_four_gib_in_one_block)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
