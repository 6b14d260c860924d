/* What the tests of the caching allocator share: a fake device, and a check after each test that nothing is
 * left. Expected values are computed by hand. */
#ifndef TESTS_ALLOCATOR_TEST_H
#define TESTS_ALLOCATOR_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fake_device.h"
#include "runtime/allocator.h"

#define OK(call) assert_int_equal((call), XPU_SUCCESS)
#define STREAM(i) (&fakes[0].streams[i])
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static inline void *get(int stream, size_t size) {
    void *p = NULL;
    OK(xpu_malloc(STREAM(stream), size, &p));
    return p;
}

static inline xpu_memory_stats stats(void) {
    xpu_memory_stats s;
    OK(xpu_memory_get_stats(0, &s));
    return s;
}

/* All blocks of a device, for xpu_memory_visit_blocks(device, see, &seen). */
typedef struct seen {
    xpu_block_info blocks[64];
    int count;
} seen;

static inline void see(const xpu_block_info *b, void *user) {
    seen *s = user;
    s->blocks[s->count++] = *b;
}

static inline int setup(void **state) {
    fake_reset();
    return 0;
}

/* Every test frees what it allocated; afterwards nothing is left and counters restart. */
static inline int teardown(void **state) {
    for (int d = 0; d < FAKE_DEVICES; d++) {
        if (xpu_memory_empty_cache(d) != XPU_SUCCESS || fakes[d].used != 0) return -1;
        xpu_memory_reset_peak_stats(d);
        xpu_memory_reset_accumulated_stats(d);
    }
    const xpu_memory_settings none = {0};
    return xpu_memory_configure(&none) == XPU_SUCCESS ? 0 : -1;
}

#endif
