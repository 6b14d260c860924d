/* Four threads on four streams of two devices: live blocks don't overlap, frees from other threads work, and
 * in the end all memory is released. Also run under ThreadSanitizer. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake_device.h"

enum { THREADS = 4, LIVE = 40, MAILBOX = 16 };

/* Blocks handed to other threads, which check and free them. */
static pthread_mutex_t mail_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    unsigned char *p;
    size_t size;
    unsigned char mark;
} mail[MAILBOX];
static int mails;
static atomic_int failures;

#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition) && failures++ < 10) print_error("%s:%d: %s\n", __FILE__, __LINE__, #condition);     \
    } while (0)

/* A mark of the owner at a few offsets; a second owner of the same bytes would overwrite it. */
static void mark(unsigned char *p, size_t size, unsigned char value) {
    p[0] = p[size / 2] = p[size - 1] = value;
}
static bool is_marked(const unsigned char *p, size_t size, unsigned char value) {
    return p[0] == value && p[size / 2] == value && p[size - 1] == value;
}

static void give_up(unsigned char *p, size_t size, unsigned char value, uint64_t *r) {
    void *base;
    size_t whole;
    int device;
    EXPECT(is_marked(p, size, value));
    EXPECT(xpu_memory_device_of(p + random_below(r, size), &device) == XPU_SUCCESS);
    EXPECT(xpu_memory_base_of(p + size - 1, &base, &whole) == XPU_SUCCESS && base == p && whole >= size);
    EXPECT(xpu_free(p) == XPU_SUCCESS);
}

static void *work(void *argument) {
    int me = (int)(intptr_t)argument;
    int rounds = getenv("OPENXPU_TEST_ROUNDS") ? atoi(getenv("OPENXPU_TEST_ROUNDS")) * 250 : 10000;
    uint64_t r = 77 + (uint64_t)me;
    struct {
        unsigned char *p;
        size_t size;
        unsigned char value;
    } live[LIVE];
    int count = 0;
    for (int i = 0; i < rounds; i++) {
        int device = (int)random_below(&r, FAKE_DEVICES), what = (int)random_below(&r, 100);
        xpu_stream *stream = &fakes[device].streams[me];
        if (what < 45 && count < LIVE) {
            size_t size = random_below(&r, 6) ? 1 + random_below(&r, 100000) : 1 + random_below(&r, 12 * MIB);
            void *p = NULL;
            xpu_status status = xpu_malloc(stream, size, &p);
            EXPECT(status == XPU_SUCCESS || status == XPU_ERROR_OUT_OF_MEMORY);
            if (status != XPU_SUCCESS) continue;
            live[count].p = p;
            live[count].size = size;
            live[count].value = (unsigned char)random_next(&r);
            mark(p, size, live[count].value);
            count++;
        } else if (what < 75 && count > 0) {
            int k = (int)random_below(&r, (uint64_t)count);
            give_up(live[k].p, live[k].size, live[k].value, &r);
            live[k] = live[--count];
        } else if (what < 85 && count > 0) {
            pthread_mutex_lock(&mail_lock);
            if (mails < MAILBOX) {
                --count;
                mail[mails].p = live[count].p;
                mail[mails].size = live[count].size;
                mail[mails++].mark = live[count].value;
            }
            pthread_mutex_unlock(&mail_lock);
        } else if (what < 90) {
            pthread_mutex_lock(&mail_lock);
            int k = mails > 0 ? --mails : -1;
            unsigned char *p = k < 0 ? NULL : mail[k].p, value = k < 0 ? 0 : mail[k].mark;
            size_t size = k < 0 ? 0 : mail[k].size;
            pthread_mutex_unlock(&mail_lock);
            if (p) give_up(p, size, value, &r);
        } else if (what < 95 && count > 0) {
            /* A stream belongs to a device: use the block's. */
            int k = (int)random_below(&r, (uint64_t)count);
            EXPECT(xpu_memory_device_of(live[k].p, &device) == XPU_SUCCESS);
            stream = &fakes[device].streams[random_below(&r, FAKE_STREAMS)];
            fake_submit(stream);
            EXPECT(xpu_memory_record_stream(live[k].p, stream) == XPU_SUCCESS);
        } else if (what < 98) {
            fake_finish(&fakes[device].streams[random_below(&r, FAKE_STREAMS)]);
        } else if (what < 99) {
            xpu_memory_stats s;
            EXPECT(xpu_memory_get_stats(device, &s) == XPU_SUCCESS);
            EXPECT(s.allocated_bytes[0].current <= s.reserved_bytes[0].current);
        } else if (random_below(&r, 10) == 0) {
            EXPECT(xpu_memory_empty_cache(device) == XPU_SUCCESS);
        }
    }
    while (count > 0) {
        count--;
        give_up(live[count].p, live[count].size, live[count].value, &r);
    }
    return NULL;
}

static void four_threads_on_four_streams(void **state) {
    fake_reset();
    for (int d = 0; d < FAKE_DEVICES; d++) fakes[d].limit = 300 * MIB;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    while (mails > 0) assert_int_equal(xpu_free(mail[--mails].p), XPU_SUCCESS);
    assert_int_equal(failures, 0);
    for (int d = 0; d < FAKE_DEVICES; d++) {
        assert_int_equal(xpu_memory_empty_cache(d), XPU_SUCCESS);
        assert_int_equal(fakes[d].used, 0);
        xpu_memory_stats s;
        assert_int_equal(xpu_memory_get_stats(d, &s), XPU_SUCCESS);
        for (int kind = 0; kind < XPU_POOL_KINDS; kind++) {
            assert_int_equal(s.active[kind].current, 0);
            assert_int_equal(s.inactive_split[kind].current, 0);
            assert_int_equal(s.requested_bytes[kind].current, 0);
            assert_int_equal(s.segment[kind].current, 0);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(four_threads_on_four_streams)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
