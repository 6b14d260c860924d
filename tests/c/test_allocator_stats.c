/* What the caching allocator reports: statistics, the snapshot and the history. */
#include "allocator_test.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(peaks_and_sums),
        TEST(the_driver_is_counted),
        TEST(free_and_total),
        TEST(the_snapshot_shows_every_block),
        TEST(the_history_hook_sees_each_action),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
