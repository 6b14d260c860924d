/* Kernel build specs: every entry is in the key and in the options, and none is truncated. */
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/spec.h"

static bool same(const kernel_spec *a, const kernel_spec *b) {
    return !memcmp(&a->key, &b->key, sizeof a->key);
}

static void options_are(const kernel_spec *spec, const char *expected) {
    text_buffer options = {0};
    assert_int_equal(spec_options(spec, "test", &options), XPU_SUCCESS);
    assert_string_equal(options.data ? options.data : "", expected);
    text_free(&options);
}

static void is_refused(const kernel_spec *spec, const char *name) {
    text_buffer options = {0};
    assert_int_equal(spec->key.family, FAMILY_NONE);
    assert_int_equal(spec_options(spec, "test", &options), XPU_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(xpu_last_error(), "internal error: kernel test"));
    assert_non_null(strstr(xpu_last_error(), name));
    text_free(&options);
}

static void describe(kernel_spec *spec, xpu_dtype dtype, int64_t tile, bool masked, int which, int pack) {
    static const char *const words[] = {NULL, "ROW", "FINISH"};
    spec_begin(spec, FAMILY_GEMM);
    spec_dtype(spec, "T", dtype);
    spec_int(spec, "TILE", tile, 16);
    spec_flag(spec, "MASKED", masked);
    spec_bool(spec, "IS_SPLIT", masked);
    spec_enum(spec, "", words, which, 2);
    spec_int_if(spec, pack > 1, "VECTOR_SIZE", pack, 4);
    spec_option(spec, "ACC=", "float");
}

static void facts_are_in_both(void **state) {
    kernel_spec first, other;
    describe(&first, XPU_FLOAT32, 64, true, 2, 4);
    options_are(&first, "-DT=f32 -DTILE=64 -DMASKED -DIS_SPLIT=1 -DFINISH -DVECTOR_SIZE=4 -DACC=float");
    describe(&other, XPU_FLOAT32, 64, true, 2, 4);
    assert_true(same(&first, &other));
    describe(&other, XPU_BFLOAT16, 64, true, 2, 4);
    assert_false(same(&first, &other));
    describe(&other, XPU_FLOAT32, 65535, true, 2, 4);
    assert_false(same(&first, &other));
    describe(&other, XPU_FLOAT32, 64, false, 2, 4);
    assert_false(same(&first, &other));
    describe(&other, XPU_FLOAT32, 64, true, 0, 4);
    assert_false(same(&first, &other));
    describe(&other, XPU_FLOAT32, 64, true, 2, 1);
    options_are(&other, "-DT=f32 -DTILE=64 -DMASKED -DIS_SPLIT=1 -DFINISH -DACC=float");
    assert_false(same(&first, &other));
}

static void numbers_of_all_widths_are_told_apart(void **state) {
    for (int bits = 1; bits <= 64; bits++) { /* three entries: in one word, over two, over three */
        kernel_spec zero, one;
        for (int at = 0; at < 3; at++) {
            spec_begin(&zero, FAMILY_SORT);
            spec_begin(&one, FAMILY_SORT);
            for (int i = 0; i < 3; i++) {
                spec_key_only(&zero, "A", 0, bits);
                spec_key_only(&one, "A", i == at ? (int64_t)(UINT64_C(1) << (bits - 1)) : 0, bits);
            }
            assert_int_equal(one.key.family, FAMILY_SORT);
            assert_false(same(&zero, &one));
        }
    }
}

static void what_does_not_fit_is_refused(void **state) {
    kernel_spec spec;
    for (int bits = 1; bits < 63; bits++) {
        const int64_t most = (INT64_C(1) << bits) - 1;
        spec_begin(&spec, FAMILY_SORT);
        spec_int(&spec, "LOCAL", most, bits);
        assert_int_equal(spec.key.family, FAMILY_SORT);
        spec_begin(&spec, FAMILY_SORT);
        spec_int(&spec, "LOCAL", most + 1, bits);
        is_refused(&spec, "LOCAL");
    }
    spec_begin(&spec, FAMILY_SORT);
    spec_int(&spec, "LOCAL", -1, 32);
    is_refused(&spec, "LOCAL is -1");
}

static void full_keys_are_refused(void **state) {
    kernel_spec spec;
    spec_begin(&spec, FAMILY_SORT);
    for (int i = 0; i < 24; i++) spec_int(&spec, "BYTE", 255, 8);
    assert_int_equal(spec.key.family, FAMILY_SORT);
    spec_bool(&spec, "ONE_MORE", false);
    is_refused(&spec, "ONE_MORE");

    spec_begin(&spec, FAMILY_SORT);
    for (int i = 0; i < SPEC_MAX_ENTRIES; i++) spec_option(&spec, "MANY", "");
    assert_int_equal(spec.key.family, FAMILY_SORT);
    spec_option(&spec, "TOO_MANY", "");
    is_refused(&spec, "TOO_MANY");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_are_in_both),
        cmocka_unit_test(numbers_of_all_widths_are_told_apart),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(full_keys_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
