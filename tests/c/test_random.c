/* The generator's bookkeeping. What kernels draw with it is tested with the random operations. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "xpu/random.h"

#define OK(call) assert_int_equal((call), XPU_SUCCESS)

static void seed_and_offset(void **state) {
    xpu_generator *g;
    uint64_t seed, offset;
    OK(xpu_generator_create(&g));
    OK(xpu_generator_get_seed(g, &seed));
    OK(xpu_generator_get_offset(g, &offset));
    assert_int_equal(seed, 67280421310721);
    assert_int_equal(offset, 0);
    OK(xpu_generator_set_offset(g, 12));
    assert_int_equal(xpu_generator_set_offset(g, 13), XPU_ERROR_INVALID_ARGUMENT);
    OK(xpu_generator_get_offset(g, &offset));
    assert_int_equal(offset, 12);
    OK(xpu_generator_set_seed(g, 5));
    OK(xpu_generator_get_offset(g, &offset));
    assert_int_equal(offset, 0);
    OK(xpu_generator_destroy(g));
    OK(xpu_generator_destroy(NULL));
}

static void reserved_ranges_follow_each_other(void **state) {
    xpu_generator *g;
    uint64_t seed, offset;
    OK(xpu_generator_create(&g));
    OK(xpu_generator_set_seed(g, 42));
    static const uint64_t counts[] = {1, 4, 5, 0, 1000, 3}, starts[] = {0, 4, 8, 16, 16, 1016};
    for (int i = 0; i < 6; i++) {
        OK(xpu_generator_reserve(g, counts[i], &seed, &offset));
        assert_int_equal(seed, 42);
        assert_int_equal(offset, starts[i]);
    }
    OK(xpu_generator_get_offset(g, &offset));
    assert_int_equal(offset, 1020);
    assert_int_equal(xpu_generator_reserve(g, UINT64_MAX, &seed, &offset), XPU_ERROR_INVALID_ARGUMENT);
    OK(xpu_generator_destroy(g));
}

static void *reserve(void *g) {
    uint64_t seed, offset;
    for (int i = 0; i < 10000; i++)
        if (xpu_generator_reserve(g, 4, &seed, &offset) != XPU_SUCCESS) return g;
    return NULL;
}

static void threads_get_ranges_of_their_own(void **state) {
    xpu_generator *g;
    uint64_t offset;
    pthread_t threads[4];
    OK(xpu_generator_create(&g));
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, reserve, g), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    OK(xpu_generator_get_offset(g, &offset));
    assert_int_equal(offset, 4 * 10000 * 4);
    OK(xpu_generator_destroy(g));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(seed_and_offset),
                                       cmocka_unit_test(reserved_ranges_follow_each_other),
                                       cmocka_unit_test(threads_get_ranges_of_their_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
