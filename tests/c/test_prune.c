/* Removal of unused functions from OpenCL C (core/prune.h): whatever is referenced, in any way, stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/prune.h"

#include <string.h>

static char result[4096];

static const char *pruned(const char *source, const char *options) {
    text_buffer out = {0};
    prune_source(&out, source, options);
    assert_false(out.failed);
    assert_true(out.size < sizeof result);
    strcpy(result, out.data ? out.data : "");
    text_free(&out);
    return result;
}

static bool holds(const char *part) { return strstr(result, part) != NULL; }

static void what_is_called_stays(void **state) {
    pruned("static inline int one(int a) { return a; }\n"
           "static inline int two(int a) {\n    return one(a);\n}\n"
           "static inline int three(int a) {\n    return a;\n}\n"
           "__kernel void k(int a) { two(a); }\n",
           NULL);
    assert_true(holds("int one("));
    assert_true(holds("int two("));
    assert_false(holds("three"));
    assert_true(holds("__kernel void k(int a) { two(a); }\n"));
}

static void functions_that_only_call_each_other_go(void **state) {
    pruned("static inline int even(int a);\n" /* a declaration, not a function */
           "static inline int odd(int a) { return a ? other(a - 1) : 0; }\n"
           "static inline int other(int a) { return a ? odd(a - 1) : 1; }\n"
           "__kernel void k(int a) {}\n",
           "");
    assert_false(holds("odd"));
    assert_false(holds("other"));
    assert_true(holds("__kernel"));
}

static void names_in_comments_do_not_count(void **state) {
    pruned("static inline int one(int a) { return a; }\n"
           "static inline int two(int a) { return a; }\n"
           "/* one is not\n * called */ // nor one\n__kernel void k(int a) { a /* one */ = two(a) / a; }\n",
           NULL);
    assert_false(holds("int one("));
    assert_true(holds("int two("));
}

static void options_name_functions(void **state) {
    const char *source = "static inline int one(int a) { return a; }\n"
                         "static inline int two(int a) { return a; }\n"
                         "__kernel void k(int a) { STEP(a); }\n";
    pruned(source, "-cl-std=CL3.0 -DSTEP=two -DMORE");
    assert_true(holds("int two("));
    assert_false(holds("int one("));
    pruned(source, "-DSTEP=one");
    assert_true(holds("int one("));
}

static void names_are_put_together(void **state) {
    const char *source = "#define CAT(a, b) a##b\n"
                         "static inline int load_f32(int a) { return a; }\n"
                         "static inline int load_bf16(int a) { return a; }\n"
                         "static inline int save_f32(int a) { return a; }\n"
                         "__kernel void k(int a) { CAT(load_, T)(a); }\n";
    pruned(source, "-DT=f32");
    assert_true(holds("load_f32"));
    assert_false(holds("load_bf16"));
    assert_false(holds("save_f32"));
    pruned(source, "-DT=bf16");
    assert_true(holds("load_bf16"));
}

static void lines_that_define_functions(void **state) {
    const char *source = "#define XPU_PLAIN(t, type) static inline type load_##t(type a) { return a; }\n"
                         "XPU_PLAIN(f32, float)\nXPU_PLAIN(i8, char)\nXPU_PLAIN(u8, uchar)\n"
                         "__kernel void k(int a) { load_f32(a); }\n";
    pruned(source, "-DT=u8");
    assert_true(holds("XPU_PLAIN(f32"));
    assert_true(holds("XPU_PLAIN(u8"));
    assert_false(holds("XPU_PLAIN(i8"));
}

static void directives_keep_their_order(void **state) {
    pruned("#ifdef A\nstatic inline int one(int a) { return 1; }\n#else\n"
           "static inline int one(int a) {\n#ifdef B\n    return 2;\n#endif\n    return 3;\n}\n#endif\n"
           "#ifdef C\nstatic inline int two(int a) { return 1; }\n#endif\n"
           "__kernel void k(int a) { one(a); }\n",
           NULL);
    assert_string_equal(result,
                        "#ifdef A\nstatic inline int one(int a) { return 1; }\n#else\n"
                        "static inline int one(int a) {\n#ifdef B\n    return 2;\n#endif\n    return 3;\n}\n"
                        "#endif\n#ifdef C\n#endif\n__kernel void k(int a) { one(a); }\n");
}

static void functions_without_a_clear_end_stay(void **state) {
    const char *sources[] = {"static inline int one(int a) {\n    return a;\n",
                             "static inline int one(int a) {",
                             "static inline int one(int a) {\nreturn a;\n}\n",
                             "static inline int one\n",
                             "static inline",
                             ""};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        assert_string_equal(pruned(sources[i], NULL), sources[i]);
}

static void many_functions_in_a_row(void **state) {
    text_buffer source = {0};
    for (int i = 0; i < 500; i++)
        text_addf(&source, "static inline int f%d(int a) { return f%d(a); }\n", i, i + 1);
    text_add(&source, "__kernel void k(int a) { f490(a); }\n");
    pruned(source.data, NULL);
    assert_false(holds("int f489("));
    assert_true(holds("int f490("));
    assert_true(holds("int f499("));
    text_free(&source);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_called_stays),
                                       cmocka_unit_test(functions_that_only_call_each_other_go),
                                       cmocka_unit_test(names_in_comments_do_not_count),
                                       cmocka_unit_test(options_name_functions),
                                       cmocka_unit_test(names_are_put_together),
                                       cmocka_unit_test(lines_that_define_functions),
                                       cmocka_unit_test(directives_keep_their_order),
                                       cmocka_unit_test(functions_without_a_clear_end_stay),
                                       cmocka_unit_test(many_functions_in_a_row)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
