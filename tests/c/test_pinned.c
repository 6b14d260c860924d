/* Pinned host memory: size classes, reuse, recorded streams, interior pointers, failures. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake_device.h"

#define OK(call) assert_int_equal((call), XPU_SUCCESS)

static char *get(size_t size) {
    void *p = NULL;
    OK(xpu_host_malloc(size, &p));
    return p;
}

static int setup(void **state) {
    fake_reset();
    return 0;
}

static int teardown(void **state) { return xpu_host_empty_cache() != XPU_SUCCESS || fake_host_blocks != 0; }

static void freed_blocks_are_used_again(void **state) {
    char *a = get(1000);
    OK(xpu_host_free(a));
    assert_ptr_equal(get(600), a); /* both take 1024 bytes */
    char *b = get(1024), *c = get(512);
    assert_ptr_not_equal(a, b);
    assert_int_equal(fake_host_blocks, 3);
    OK(xpu_host_free(a));
    OK(xpu_host_free(b));
    OK(xpu_host_free(c));
    assert_int_equal(fake_host_blocks, 3);
    OK(xpu_host_empty_cache());
    assert_int_equal(fake_host_blocks, 0);
}

static void classes_hold_what_they_promise(void **state) {
    for (size_t size = 1; size < 5 * MIB; size = size * 5 / 3 + 1) {
        char *p = get(size);
        memset(p, 1, size);
        OK(xpu_host_free(p));
    }
    for (int bits = 0; bits < 22; bits++) {
        for (int off = -1; off <= 1; off++) {
            size_t size = ((size_t)1 << bits) + (size_t)off;
            if (size == 0) continue;
            char *p = get(size);
            memset(p, 1, size);
            assert_true(xpu_host_is_pinned(p + size - 1));
            OK(xpu_host_free(p));
        }
    }
}

static void is_pinned_tells_the_truth(void **state) {
    char *a = get(5000), on_stack; /* takes 8192 bytes */
    assert_true(xpu_host_is_pinned(a));
    assert_true(xpu_host_is_pinned(a + 8191));
    assert_false(xpu_host_is_pinned(a + 8192));
    assert_false(xpu_host_is_pinned(a - 1));
    assert_false(xpu_host_is_pinned(NULL));
    assert_false(xpu_host_is_pinned(&on_stack));
    char *b = get(300000), *c = get(30);
    assert_true(xpu_host_is_pinned(a + 4000) && xpu_host_is_pinned(b + 299999) && xpu_host_is_pinned(c + 29));
    OK(xpu_host_free(a));
    assert_false(xpu_host_is_pinned(a));
    OK(xpu_host_free(b));
    OK(xpu_host_free(c));
}

static void recorded_streams_keep_the_block(void **state) {
    xpu_stream *s = &fakes[0].streams[1], *t = &fakes[1].streams[2];
    char *a = get(4096);
    fake_submit(s);
    fake_submit(t);
    OK(xpu_host_record_stream(a + 17, s));
    OK(xpu_host_record_stream(a, t));
    OK(xpu_host_free(a));
    char *b = get(4096);
    assert_ptr_not_equal(a, b);
    fake_finish(s);
    char *c = get(4096);
    assert_ptr_not_equal(a, c);
    fake_finish(t);
    char *d = get(4096);
    assert_ptr_equal(a, d);
    OK(xpu_host_free(b));
    OK(xpu_host_free(c));
    OK(xpu_host_free(d));
}

static void emptying_waits(void **state) {
    xpu_stream *s = &fakes[0].streams[1];
    char *a = get(4096);
    fake_submit(s);
    OK(xpu_host_record_stream(a, s));
    OK(xpu_host_free(a));
    OK(xpu_host_empty_cache());
    assert_int_equal(fake_host_blocks, 0);
    assert_int_equal(s->finished, s->submitted);
}

static void failures(void **state) {
    void *p = &p;
    char on_stack;
    OK(xpu_host_malloc(0, &p));
    assert_null(p);
    OK(xpu_host_free(NULL));
    assert_int_equal(xpu_host_free(&on_stack), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_host_record_stream(&on_stack, &fakes[0].streams[0]), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_host_malloc(SIZE_MAX, &p), XPU_ERROR_OUT_OF_HOST_MEMORY);
    char *a = get(100);
    assert_int_equal(xpu_host_free(a + 1), XPU_ERROR_INVALID_ARGUMENT);
    OK(xpu_host_free(a));
    assert_int_equal(xpu_host_free(a), XPU_ERROR_INVALID_ARGUMENT);
    /* Out of memory releases cached blocks first. */
    fake_alloc_failure = XPU_ERROR_OUT_OF_HOST_MEMORY;
    assert_int_equal(xpu_host_malloc(1 << 20, &p), XPU_ERROR_OUT_OF_HOST_MEMORY);
    assert_int_equal(fake_host_blocks, 0);
    fake_bad_fork = true;
    assert_int_equal(xpu_host_malloc(10, &p), XPU_ERROR_BAD_FORK);
    assert_int_equal(xpu_host_free(a), XPU_ERROR_BAD_FORK);
    assert_false(xpu_host_is_pinned(a));
    fake_bad_fork = false;
}

static void *work(void *argument) {
    uint64_t r = 3 + (uint64_t)(uintptr_t)argument;
    for (int i = 0; i < 5000; i++) {
        size_t size = 1 + random_below(&r, 20000);
        void *p = NULL;
        if (xpu_host_malloc(size, &p) != XPU_SUCCESS) return "malloc failed";
        memset(p, (int)(i & 255), size);
        xpu_stream *s = &fakes[i % FAKE_DEVICES].streams[random_below(&r, FAKE_STREAMS)];
        fake_submit(s);
        if (i % 3 == 0 && xpu_host_record_stream(p, s) != XPU_SUCCESS) return "record failed";
        if (((unsigned char *)p)[size - 1] != (i & 255)) return "another owner wrote into it";
        if (!xpu_host_is_pinned((char *)p + size / 2)) return "not pinned";
        if (xpu_host_free(p) != XPU_SUCCESS) return "free failed";
        if (i % 7 == 0) fake_finish(s);
    }
    return NULL;
}

static void four_threads(void **state) {
    pthread_t threads[4];
    for (intptr_t i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        if (wrong) fail_msg("%s", (char *)wrong);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {TEST(freed_blocks_are_used_again),
                                       TEST(classes_hold_what_they_promise),
                                       TEST(is_pinned_tells_the_truth),
                                       TEST(recorded_streams_keep_the_block),
                                       TEST(emptying_waits),
                                       TEST(failures),
                                       TEST(four_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
