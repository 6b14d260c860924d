/* Element types: sizes in bits, and the errors of operations for unsupported dtypes. */
#include "device_test.h"
#include "xpu/ops/copy.h"
#include "xpu/ops/gemm.h"
#include "xpu/ops/pointwise.h"
#include "xpu/ops/reduce.h"

static void sizes_are_known_in_bits(void **state) {
    assert_int_equal(xpu_dtype_size(XPU_COMPLEX128), 16);
    assert_int_equal(xpu_dtype_bits(XPU_COMPLEX128), 128);
    assert_int_equal(xpu_dtype_size(XPU_FLOAT8_E8M0FNU), 1);
    assert_int_equal(xpu_dtype_size(XPU_FLOAT4_E2M1FN_X2), 1); /* an element is the pair */
    assert_int_equal(xpu_dtype_size(XPU_INT4), 0);
    assert_int_equal(xpu_dtype_bits(XPU_UINT4), 4);
    assert_int_equal(xpu_dtype_bits(XPU_DTYPE_COUNT), 0);
    assert_string_equal(xpu_dtype_name(XPU_FLOAT8_E5M2), "f8e5m2");
    assert_string_equal(xpu_dtype_name(XPU_UINT4), "u4");
}

static void bytes_of_many_elements(void **state) {
    assert_int_equal(xpu_dtype_bytes(XPU_FLOAT32, 7), 28);
    assert_int_equal(xpu_dtype_bytes(XPU_FLOAT8_E4M3FN, 7), 7);
    for (size_t n = 0; n < 20; n++) assert_int_equal(xpu_dtype_bytes(XPU_INT4, n), (n + 1) / 2);
    const size_t most = (size_t)1 << (8 * sizeof(size_t) - 1); /* their size in bits would overflow size_t */
    assert_true(xpu_dtype_bytes(XPU_UINT4, most + 1) == most / 2 + 1);
    assert_int_equal(xpu_dtype_bytes(XPU_DTYPE_COUNT, 5), 0);
}

static xpu_stream *stream;
static void *memory;

static xpu_iter two(xpu_dtype to, xpu_dtype from) {
    xpu_iter iter = {.outputs = 1, .inputs = 1, .dims = 2, .size = {3, 5}};
    iter.operand[0] = (xpu_operand){.data = memory, .dtype = to, .stride = {7, 40}};
    iter.operand[1] = (xpu_operand){.data = (char *)memory + 1024, .dtype = from, .stride = {9, 50}};
    return iter;
}

#define LACKS(call, dtype)                                                                                   \
    do {                                                                                                     \
        assert_int_equal(call, XPU_ERROR_NOT_SUPPORTED);                                                     \
        if (!strstr(xpu_last_error(), dtype)) fail_msg("%s: %s", #call, xpu_last_error());                   \
    } while (0)

static void packed_numbers_are_not_taken_apart(void **state) {
    const xpu_scalar one = {.dtype = XPU_INT64, .value.i = 1};
    xpu_iter iter = two(XPU_INT4, XPU_INT4);
    LACKS(xpu_copy(stream, &iter), "'Int4'");
    LACKS(xpu_pointwise(stream, XPU_POINTWISE_COPY, XPU_INT4, &iter, NULL, 0), "'Int4'");
    iter = two(XPU_FLOAT32, XPU_UINT4);
    LACKS(xpu_copy(stream, &iter), "'UInt4'");
    LACKS(xpu_reduce(stream, XPU_REDUCE_SUM, &iter, 0), "'UInt4'");
    iter = two(XPU_UINT4, XPU_FLOAT32);
    LACKS(xpu_copy(stream, &iter), "'UInt4'");
    iter = two(XPU_FLOAT32, XPU_FLOAT4_E2M1FN_X2);
    LACKS(xpu_copy(stream, &iter), "'Float4_e2m1fn_x2'");
    iter = two(XPU_BOOL, XPU_FLOAT4_E2M1FN_X2);
    LACKS(xpu_copy(stream, &iter), "'Float4_e2m1fn_x2'");
    iter = two(XPU_INT4, XPU_INT4);
    iter.inputs = 0;
    LACKS(xpu_fill(stream, &iter, &one), "'Int4'");
    iter = two(XPU_FLOAT4_E2M1FN_X2, XPU_FLOAT4_E2M1FN_X2);
    SUCCEEDS(xpu_copy(stream, &iter));
}

static void float8_has_no_sums_of_its_own(void **state) {
    xpu_iter iter = two(XPU_FLOAT8_E4M3FN, XPU_FLOAT8_E4M3FN);
    LACKS(xpu_reduce(stream, XPU_REDUCE_SUM, &iter, 0), "'Float8_e4m3fn'");
    LACKS(xpu_pointwise(stream, XPU_POINTWISE_EXP, XPU_FLOAT8_E4M3FN, &iter, NULL, 0), "'Float8_e4m3fn'");
}

static int setup(void **state) {
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(xpu_malloc(stream, 4096, &memory));
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_known_in_bits),
        cmocka_unit_test(bytes_of_many_elements),
        cmocka_unit_test(packed_numbers_are_not_taken_apart),
        cmocka_unit_test(float8_has_no_sums_of_its_own),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
