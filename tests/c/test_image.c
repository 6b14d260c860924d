/* Kernel images: a written image is read back and runs; damaged or foreign ones are rejected with a
 * reason. */
#include <stdlib.h>

#include "device_test.h"

/* y[i] += a * x[i] for the 64 elements of a program; with assertions, i must be below n. */
static const char source[] =
    "typedef struct { ulong x, y; float a; int n; int grid[3]; int padding; ulong faults, asserts; } "
    "params;\n"
    "__attribute__((reqd_work_group_size(64, 1, 1)))\n"
    "__kernel void axpy_kernel(const params p) {\n"
    "    size_t group = get_group_id(0) + get_global_offset(0) / 64;\n"
    "    size_t i = group * 64 + get_local_id(0);\n"
    "    if (i < p.n) ((__global float *)p.y)[i] += p.a * ((__global const float *)p.x)[i] * p.grid[0];\n"
    "#ifdef REPORTS\n"
    "    if (i < p.n) return;\n"
    "    __global long *report = (__global long *)p.faults;\n"
    "    report[0] = group; report[1] = 0; report[2] = p.asserts;\n"
    "    ((__global int *)p.faults)[6] = ~1; ((__global int *)p.faults)[7] = 2;\n"
    "#endif\n"
    "}\n";
static const xpu_param params[] = {
    {XPU_PARAM_POINTER, 8, 0, false, false},
    {XPU_PARAM_POINTER, 8, 8, false, true},
    {XPU_PARAM_FLOAT, 4, 16, false, false},
    {XPU_PARAM_INTEGER, 4, 20, false, false},
};
static const char *const asserts[] = {"first", "axpy_kernel: \"i < n\"\n\\ at a.py:3", NULL};

static const xpu_image axpy = {
    .kind = XPU_IMAGE_SOURCE,
    .code = source,
    .code_size = sizeof source - 1,
    .name = "axpy_kernel",
    .build_options = "-cl-std=CL3.0 -DREPORTS",
    .target = "cpu lanes=16",
    .device = "",
    .params = params,
    .param_count = 4,
    .params_size = 56,
    .grid_offset = 24,
    .fault_offset = 40,
    .local_size = 64,
    .local_memory = 0,
    .work = 128,
    .asserts = asserts,
};

static char *written(const xpu_image *image, size_t *size) {
    SUCCEEDS(xpu_image_write(image, NULL, 0, size));
    char *bytes = malloc(*size + 1);
    assert_int_equal(xpu_image_write(image, bytes, *size - 1, size), XPU_ERROR_INVALID_ARGUMENT);
    SUCCEEDS(xpu_image_write(image, bytes, *size, size));
    bytes[*size] = 0;
    return bytes;
}

static void what_is_written_is_read(void **state) {
    size_t size, again_size;
    char *bytes = written(&axpy, &size);
    xpu_image *image;
    SUCCEEDS(xpu_image_read(bytes, size, &image));
    assert_int_equal(image->kind, axpy.kind);
    assert_int_equal(image->code_size, axpy.code_size);
    assert_string_equal(image->code, axpy.code);
    assert_string_equal(image->name, axpy.name);
    assert_string_equal(image->build_options, axpy.build_options);
    assert_string_equal(image->target, axpy.target);
    assert_string_equal(image->device, axpy.device);
    assert_int_equal(image->param_count, axpy.param_count);
    for (int i = 0; i < axpy.param_count; i++) {
        assert_int_equal(image->params[i].kind, params[i].kind);
        assert_int_equal(image->params[i].size, params[i].size);
        assert_int_equal(image->params[i].offset, params[i].offset);
        assert_int_equal(image->params[i].is_bf16, params[i].is_bf16);
        assert_int_equal(image->params[i].is_written, params[i].is_written);
    }
    assert_int_equal(image->params_size, axpy.params_size);
    assert_int_equal(image->grid_offset, axpy.grid_offset);
    assert_int_equal(image->fault_offset, axpy.fault_offset);
    assert_int_equal(image->local_size, axpy.local_size);
    assert_int_equal(image->local_memory, axpy.local_memory);
    assert_int_equal(image->work, axpy.work);
    assert_string_equal(image->asserts[0], asserts[0]);
    assert_string_equal(image->asserts[1], asserts[1]);
    assert_null(image->asserts[2]);
    char *again = written(image, &again_size);
    assert_int_equal(size, again_size);
    assert_memory_equal(bytes, again, size);
    /* the texts of assertions are kept once, for good */
    const char *const *kept = image->asserts;
    xpu_image_free(image);
    SUCCEEDS(xpu_image_read(again, size, &image));
    assert_ptr_equal(kept, image->asserts);
    xpu_image_free(image);
    assert_string_equal(kept[1], asserts[1]);
    free(bytes);
    free(again);

    const xpu_image plain = {.kind = XPU_IMAGE_SOURCE,
                             .code = "x",
                             .code_size = 1,
                             .name = "k",
                             .build_options = "",
                             .target = "",
                             .device = "",
                             .params_size = 16,
                             .local_size = 1,
                             .work = UINT64_MAX};
    bytes = written(&plain, &size);
    SUCCEEDS(xpu_image_read(bytes, size, &image));
    assert_null(image->asserts);
    assert_int_equal(image->param_count, 0);
    assert_true(image->work == UINT64_MAX);
    xpu_image_free(image);
    free(bytes);
}

/* Bytes that end where the image does, so that a sanitizer sees a step beyond. */
static xpu_status read_exactly(const char *bytes, size_t size, xpu_image **image) {
    char *copy = malloc(size ? size : 1);
    if (size) memcpy(copy, bytes, size);
    xpu_status status = xpu_image_read(copy, size, image);
    free(copy);
    return status;
}

static void is_refused(const char *bytes, size_t size, xpu_status wanted, const char *reason) {
    xpu_image *image = NULL;
    xpu_status status = read_exactly(bytes, size, &image);
    if (status != wanted || !strstr(xpu_last_error(), reason))
        fail_msg("%s, %s, where \"%s\" was to be", xpu_status_name(status), xpu_last_error(), reason);
    assert_null(image);
}

static void what_is_cut_off_or_changed_is_refused(void **state) {
    size_t size;
    char *bytes = written(&axpy, &size);
    for (size_t cut = 0; cut < size; cut++) is_refused(bytes, cut, XPU_ERROR_INVALID_ARGUMENT, "image: ");
    is_refused("", 0, XPU_ERROR_INVALID_ARGUMENT, "these 0 bytes are not a kernel image");
    is_refused(NULL, 0, XPU_ERROR_INVALID_ARGUMENT, "these 0 bytes are not a kernel image");
    is_refused(bytes, size + 1, XPU_ERROR_INVALID_ARGUMENT, "cut off or damaged");
    for (size_t i = 0; i < size; i++) {
        static const char others[] = {0, '"', '9', '\\', '\n', 'a', ' ', (char)0xff};
        const char was = bytes[i];
        for (size_t k = 0; k < sizeof others; k++) {
            xpu_image *image;
            if (others[k] == was) continue;
            bytes[i] = others[k];
            if (read_exactly(bytes, size, &image) == XPU_SUCCESS)
                fail_msg("byte %zu may be \"%c\"", i, others[k]);
            assert_true(xpu_last_error()[0]);
        }
        bytes[i] = was;
    }
    free(bytes);
}

static void other_formats_are_refused_by_name(void **state) {
    static const char next[] = "{\"xpu_image\": 2, \"kind\": \"source\"}\n";
    is_refused(next, sizeof next - 1, XPU_ERROR_NOT_SUPPORTED,
               "it has format 2, but this libxpu reads format 1");
    /* written by openxpu before formats were numbered */
    static const char old[] = "{\"name\": \"k\", \"build_options\": \"\", \"params_size\": 16}\n";
    is_refused(old, sizeof old - 1, XPU_ERROR_INVALID_ARGUMENT, "bytes are not a kernel image");
    xpu_image *image;
    char *large = calloc(1, XPU_IMAGE_SIZE_MAX + 1);
    assert_int_equal(xpu_image_read(large, XPU_IMAGE_SIZE_MAX + 1, &image), XPU_ERROR_INVALID_ARGUMENT);
    memset(large, ' ', XPU_IMAGE_SIZE_MAX);
    memcpy(large, next, 14);
    large[14] = '1';
    assert_int_equal(xpu_image_read(large, XPU_IMAGE_SIZE_MAX, &image), XPU_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(xpu_last_error(), "a line of"));
    free(large);
}

/* Well written and right in its hash, but no kernel could be so. */
static void what_makes_no_sense_is_refused(void **state) {
    static const xpu_param overlap[] = {{XPU_PARAM_POINTER, 8, 0, false, false},
                                        {XPU_PARAM_INTEGER, 4, 4, false, false}};
    static const xpu_param beyond[] = {{XPU_PARAM_POINTER, 8, 56, false, false}};
    static const xpu_param large[] = {{XPU_PARAM_POINTER, 8, 0xfffffff8u, false, false}};
    static const xpu_param crooked[] = {{XPU_PARAM_INTEGER, 8, 4, false, false}};
    static const xpu_param short_pointer[] = {{XPU_PARAM_POINTER, 4, 0, false, false}};
    static const xpu_param wide_bf16[] = {{XPU_PARAM_FLOAT, 4, 0, true, false}};
    static const xpu_param written_number[] = {{XPU_PARAM_INTEGER, 4, 0, false, true}};
    static const xpu_param three_bytes[] = {{XPU_PARAM_INTEGER, 3, 0, false, false}};
    static const xpu_param no_kind[] = {{(xpu_param_kind)3, 4, 0, false, false}};
    static const char *const no_asserts[] = {NULL};
#define WITH(...)                                                                                            \
    {                                                                                                        \
        xpu_image image = axpy;                                                                              \
        size_t size;                                                                                         \
        __VA_ARGS__;                                                                                         \
        if (xpu_image_write(&image, NULL, 0, &size) != XPU_ERROR_INVALID_ARGUMENT)                           \
            fail_msg("taken: %s", #__VA_ARGS__);                                                             \
    }
#define WITH_PARAMS(list) WITH(image.params = list; image.param_count = sizeof list / sizeof *list)
    WITH_PARAMS(overlap)
    WITH_PARAMS(beyond)
    WITH_PARAMS(large)
    WITH_PARAMS(crooked)
    WITH_PARAMS(short_pointer)
    WITH_PARAMS(wide_bf16)
    WITH_PARAMS(written_number)
    WITH_PARAMS(three_bytes)
    WITH_PARAMS(no_kind)
    WITH(image.param_count = -1)
    WITH(image.params = NULL)
    WITH(image.params_size = XPU_IMAGE_PARAMS_MAX + 8)
    WITH(image.grid_offset = 22)
    WITH(image.grid_offset = 20)
    WITH(image.grid_offset = 0xfffffffcu)
    WITH(image.fault_offset = 44)
    WITH(image.fault_offset = 32)
    WITH(image.fault_offset = 48)
    WITH(image.fault_offset = 0)
    WITH(image.fault_offset = 0xfffffff8u)
    WITH(image.asserts = NULL)
    WITH(image.asserts = no_asserts)
    WITH(image.name = "")
    WITH(image.name = "a b")
    WITH(image.device = "0123")
    WITH((image.kind = XPU_IMAGE_BINARY, image.device = "0123"))
    WITH(image.kind = (xpu_image_kind)2)
    WITH(image.target = NULL)
    WITH(image.code_size = 0)
    WITH(image.code_size = sizeof source)
    WITH(image.local_size = 0)
    WITH(image.local_size = 1 << 20)
}

/* --- on a device --- */

enum { N = 1000 };

static void adds_right(xpu_stream *stream, const xpu_image *image, xpu_kernel *kernel) {
    float x[N], y[N], *x_device, *y_device;
    float a = 0.5f;
    int32_t n = N;
    const uint32_t groups = (N + 63) / 64;
    for (int i = 0; i < N; i++) {
        x[i] = (float)i;
        y[i] = (float)(3 * i);
    }
    SUCCEEDS(xpu_malloc(stream, sizeof x, (void **)&x_device));
    SUCCEEDS(xpu_malloc(stream, sizeof y, (void **)&y_device));
    SUCCEEDS(xpu_memcpy(stream, x_device, x, sizeof x, true));
    SUCCEEDS(xpu_memcpy(stream, y_device, y, sizeof y, true));
    const void *arguments[] = {&x_device, &y_device, &a, &n};
    SUCCEEDS(xpu_image_launch(stream, image, kernel, (uint32_t[]){groups, 1, 0}, arguments, 4));
    xpu_status status = xpu_image_launch(stream, image, kernel, (uint32_t[]){groups, 1, 1}, arguments, 4);
    if (status == XPU_SUCCESS) status = xpu_stream_synchronize(stream);
    if (image->asserts) { /* the last program's last elements are none */
        assert_int_equal(status, XPU_ERROR_ASSERTION);
        assert_non_null(strstr(xpu_last_error(), asserts[1]));
        assert_non_null(strstr(xpu_last_error(), "in program (15, 0, 0)"));
    } else {
        SUCCEEDS(status);
    }
    SUCCEEDS(xpu_memcpy(stream, y, y_device, sizeof y, true));
    for (int i = 0; i < N; i++)
        if (y[i] != (float)(3 * i) + 0.5f * (float)i * (float)groups)
            fail_msg("y[%d] is %g", i, (double)y[i]);
    SUCCEEDS(xpu_free(x_device));
    SUCCEEDS(xpu_free(y_device));
    assert_int_equal(xpu_image_launch(stream, image, kernel, (uint32_t[]){1, 1, 1}, arguments, 3),
                     XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_image_launch(stream, image, kernel, (uint32_t[]){1, 1u << 31, 1}, arguments, 4),
                     XPU_ERROR_INVALID_ARGUMENT);
}

static xpu_image *through_bytes(const xpu_image *image) {
    size_t size;
    xpu_image *read;
    char *bytes = written(image, &size);
    SUCCEEDS(xpu_image_read(bytes, size, &read));
    free(bytes);
    return read;
}

static void what_is_read_runs(void **state) {
    xpu_stream *stream;
    xpu_kernel *kernel;
    SUCCEEDS(xpu_stream_default(0, &stream));
    for (int with_asserts = 0; with_asserts < 2; with_asserts++) {
        xpu_image wanted = axpy;
        if (!with_asserts) {
            wanted.asserts = NULL;
            wanted.fault_offset = 0;
            wanted.build_options = "-cl-std=CL3.0";
        }
        xpu_image *image = through_bytes(&wanted);
        SUCCEEDS(xpu_image_kernel(image, 0, &kernel));
        adds_right(stream, image, kernel);
        /* and the driver's binary of it */
        xpu_image *built, *again;
        SUCCEEDS(xpu_image_build(image, 0, &built));
        assert_int_equal(built->kind, XPU_IMAGE_BINARY);
        again = through_bytes(built);
        xpu_image_free(built);
        xpu_image_free(image);
        SUCCEEDS(xpu_image_kernel(again, 0, &kernel));
        adds_right(stream, again, kernel);
        assert_int_equal(xpu_image_build(again, 0, &built), XPU_ERROR_INVALID_ARGUMENT);
        xpu_image_free(again);
    }
}

/* On a CPU as one program if possible: their names distinguish them. */
static void several_become_one_program(void **state) {
    static const char other[] = "#define axpy_kernel axpy_other\n";
    char text[sizeof other + sizeof source];
    xpu_image first = axpy, second, same, wrong;
    first.build_options = "-cl-std=CL3.0 -DREPORTS -DSEVERAL"; /* built nowhere else */
    second = same = wrong = first;
    snprintf(text, sizeof text, "%s%s", other, source);
    second.name = "axpy_other", second.code = text, second.code_size = strlen(text);
    same.code = "/* another */ __kernel void axpy_kernel(const int i) {}";
    wrong.name = "none", wrong.code = "no OpenCL C";
    const xpu_device_properties *properties;
    xpu_program_stats before, after;
    xpu_kernel *kernels[2];
    xpu_stream *stream;
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(xpu_device_get_properties(0, &properties));
    SUCCEEDS(xpu_program_get_stats(&before));
    SUCCEEDS(xpu_image_kernels((const xpu_image *[]){&first, &second}, 2, 0, kernels));
    SUCCEEDS(xpu_program_get_stats(&after));
    if (properties->type == XPU_DEVICE_CPU && properties->host_unified_memory)
        assert_int_equal(after.built + after.loaded, before.built + before.loaded + 1);
    assert_ptr_not_equal(kernels[0], kernels[1]);
    adds_right(stream, &first, kernels[0]);
    adds_right(stream, &second, kernels[1]);
    SUCCEEDS(xpu_image_kernels((const xpu_image *[]){&first, &same}, 2, 0, kernels));
    assert_ptr_not_equal(kernels[0], kernels[1]);
    adds_right(stream, &first, kernels[0]);
    SUCCEEDS(xpu_image_kernels(NULL, 0, 0, NULL));
    assert_int_equal(xpu_image_kernels((const xpu_image *[]){&first, &wrong}, 2, 0, kernels),
                     XPU_ERROR_BUILD_FAILED);
    assert_non_null(strstr(xpu_last_error(), "kernel none failed to build"));
}

static void what_a_device_cannot_run_is_refused(void **state) {
    xpu_kernel *kernel;
    xpu_image image = axpy;
    image.local_memory = UINT32_MAX;
    assert_int_equal(xpu_image_kernel(&image, 0, &kernel), XPU_ERROR_NOT_SUPPORTED);
    image = axpy;
    image.local_size = 1 << 16;
    assert_int_equal(xpu_image_kernel(&image, 0, &kernel), XPU_ERROR_NOT_SUPPORTED);
    image = axpy;
    image.kind = XPU_IMAGE_BINARY;
    image.device = "00112233445566778899aabbccddeeff";
    assert_int_equal(xpu_image_kernel(&image, 0, &kernel), XPU_ERROR_NOT_SUPPORTED);
    assert_non_null(strstr(xpu_last_error(), "built for another device or driver"));
    image = axpy;
    image.code = "no OpenCL C";
    image.code_size = strlen(image.code);
    assert_int_equal(xpu_image_kernel(&image, 0, &kernel), XPU_ERROR_BUILD_FAILED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(what_is_cut_off_or_changed_is_refused),
        cmocka_unit_test(other_formats_are_refused_by_name),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(what_is_read_runs),
        cmocka_unit_test(several_become_one_program),
        cmocka_unit_test(what_a_device_cannot_run_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
