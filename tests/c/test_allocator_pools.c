/* Private pools of the caching allocator. */
#include <pthread.h>

#include "allocator_test.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(private_pools_keep_apart), TEST(the_pool_begun_last_is_asked_first),
        TEST(a_pool_helps_out),         TEST(a_pool_comes_back_to_a_state),
        TEST(a_pool_for_one_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
