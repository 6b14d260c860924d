/* The tuning table: scope and source of a value, and what it reverts to. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/tuning.h"

enum { RATE = TUNE_COUNT + TUNING_RATES - 1, PINNED_RATE = TUNE_COUNT + 4 };
static const tuning_place host = {TUNING_HOST, 0}, gpu = {TUNING_GPU, 1}, other_gpu = {TUNING_GPU, 2};

static int set_up(void **unused) {
    setenv("OPENXPU_TUNING", "skinny_rows=3,rate_ptx_128x128x32_2x2_int8_1=77", 1);
    return tuning_init() == XPU_SUCCESS ? 0 : -1;
}

static void expect(tuning_place place, int number, int64_t value, enum tuning_source source) {
    assert_int_equal(tuning_value(place, number), value);
    assert_int_equal(tuning_source_of(place, number), source);
}

static void choices_are_of_a_class(void **unused) {
    const int64_t before = TUNED(false, SPLIT_ROWS);
    assert_int_equal(tuning_set(gpu, TUNE_SPLIT_ROWS, 5, TUNING_SET), XPU_SUCCESS);
    expect(gpu, TUNE_SPLIT_ROWS, 5, TUNING_SET);
    expect(other_gpu, TUNE_SPLIT_ROWS, 5, TUNING_SET);
    assert_int_equal(TUNED(false, SPLIT_ROWS), 5);
    expect(host, TUNE_SPLIT_ROWS, before, TUNING_TABLE);
    tuning_reset(gpu, TUNE_SPLIT_ROWS);
    expect(other_gpu, TUNE_SPLIT_ROWS, before, TUNING_TABLE);
}

static void rates_are_of_a_device(void **unused) {
    expect(gpu, RATE, 0, TUNING_TABLE);
    assert_int_equal(tuning_set(gpu, RATE, 1234, TUNING_MEASURED), XPU_SUCCESS);
    expect(gpu, RATE, 1234, TUNING_MEASURED);
    expect(other_gpu, RATE, 0, TUNING_TABLE);
    expect(host, RATE, 0, TUNING_TABLE);
    assert_int_equal(tuning_rate(1, TUNING_TILES - 1, RATE_FLOAT32, 2), 1234);
    assert_int_equal(tuning_rate(2, TUNING_TILES - 1, RATE_FLOAT32, 2), 0);
    assert_int_equal(tuning_set(gpu, RATE, 0, TUNING_MEASURED), XPU_ERROR_INVALID_ARGUMENT);
    expect(gpu, RATE, 1234, TUNING_MEASURED);
}

static void what_was_set_is_taken_back(void **unused) {
    const uint32_t changes = tuning_changes;
    assert_int_equal(tuning_set(gpu, RATE, 1000, TUNING_MEASURED), XPU_SUCCESS);
    assert_int_equal(tuning_set(gpu, RATE, 2000, TUNING_SET), XPU_SUCCESS);
    assert_int_equal(tuning_set(gpu, RATE, 3000, TUNING_SET), XPU_SUCCESS);
    expect(gpu, RATE, 3000, TUNING_SET);
    tuning_reset(gpu, RATE);
    expect(gpu, RATE, 1000, TUNING_MEASURED);
    assert_int_equal(tuning_changes, changes + 4);
    tuning_reset(gpu, RATE); /* nothing was set */
    expect(gpu, RATE, 1000, TUNING_MEASURED);
}

static void pins_stay(void **unused) {
    for (int i = 0; i < 3; i++) {
        const tuning_place place = i == 0 ? host : i == 1 ? gpu : other_gpu;
        const int numbers[] = {TUNE_SKINNY_ROWS, PINNED_RATE};
        for (int k = 0; k < 2; k++) {
            const int64_t pinned = k ? 77 : 3;
            expect(place, numbers[k], pinned, TUNING_PINNED);
            assert_int_equal(tuning_set(place, numbers[k], 5, TUNING_MEASURED), XPU_SUCCESS);
            expect(place, numbers[k], pinned, TUNING_PINNED);
            assert_int_equal(tuning_set(place, numbers[k], 5, TUNING_SET), XPU_SUCCESS);
            expect(place, numbers[k], 5, TUNING_SET);
            tuning_reset(place, numbers[k]);
            expect(place, numbers[k], pinned, TUNING_PINNED);
        }
    }
}

static void names(void **unused) {
    for (int i = 0; i < TUNING_ALL; i++) {
        const tuning_line line = tuning_line_of(i);
        assert_int_equal(tuning_named(line.name, strlen(line.name)), i); /* no other device has it */
        assert_non_null(line.text);
        assert_true(line.least <= line.most);
    }
    assert_int_equal(tuning_named("rate_", 5), -1);
    assert_int_equal(tuning_named("", 0), -1);
    assert_int_equal(tuning_rate_number(0, RATE_INT8, 1), PINNED_RATE);
    assert_string_equal(tuning_line_of(PINNED_RATE).name, "rate_ptx_128x128x32_2x2_int8_1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_of_a_class),
        cmocka_unit_test(rates_are_of_a_device),
        cmocka_unit_test(what_was_set_is_taken_back),
        cmocka_unit_test(pins_stay),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
