/* A lost device: every failing call reports it, whatever error the driver returns, and other calls don't. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cl/cl.h"

static cl_int queue_error, buffer_error, read_error; /* what the driver answers */
static int objects;                                  /* that exist */

static cl_command_queue make_queue(cl_context context, cl_device_id id, const cl_bitfield *properties,
                                   cl_int *error) {
    *error = queue_error;
    objects += queue_error == CL_SUCCESS;
    return queue_error == CL_SUCCESS ? (cl_command_queue)&objects : NULL;
}
static cl_int free_queue(cl_command_queue queue) { return objects--, CL_SUCCESS; }
static cl_mem make_buffer(cl_context context, cl_bitfield flags, size_t size, void *host, cl_int *error) {
    *error = buffer_error;
    objects += buffer_error == CL_SUCCESS;
    return buffer_error == CL_SUCCESS ? (cl_mem)&objects : NULL;
}
static cl_int free_buffer(cl_mem buffer) { return objects--, CL_SUCCESS; }
static cl_int read_buffer(cl_command_queue queue, cl_mem buffer, cl_bool wait, size_t offset, size_t size,
                          void *to, cl_uint count, const cl_event *events, cl_event *event) {
    assert_int_equal(wait, CL_TRUE); /* else nothing is known of it */
    return read_error;
}

static const cl_api api = {.clCreateCommandQueueWithProperties = make_queue,
                           .clReleaseCommandQueue = free_queue,
                           .clCreateBuffer = make_buffer,
                           .clReleaseMemObject = free_buffer,
                           .clEnqueueReadBuffer = read_buffer};
static const cl_device device = {.api = &api, .context = (cl_context)&objects, .properties.name = "A GPU"};

static xpu_status failed(cl_int error) {
    const xpu_status status = cl_check(error, "->clFinish", &device);
    assert_int_equal(objects, 0);
    assert_non_null(strstr(xpu_last_error(), "A GPU"));
    assert_non_null(strstr(xpu_last_error(), "clFinish"));
    assert_int_equal(status == XPU_ERROR_DEVICE_LOST,
                     strstr(xpu_last_error(), "is lost to this process") != NULL);
    return status;
}

/* All errors that OpenCL has, and one that it hasn't. */
static const cl_int errors[] = {
#define X(name, value) name,
    CL_ERRORS(X)
#undef X
    - 9999};
#define COUNT (sizeof errors / sizeof *errors)

static int answer(void **state) {
    queue_error = buffer_error = read_error = CL_SUCCESS;
    return 0;
}

static void a_device_that_answers_is_not_lost(void **state) {
    for (size_t i = 0; i < COUNT; i++) {
        const bool says_so =
            errors[i] == CL_DEVICE_NOT_AVAILABLE || errors[i] == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        assert_int_equal(failed(errors[i]) == XPU_ERROR_DEVICE_LOST, says_so);
    }
}

static void errors_of_nvidia_after_a_fault(void **state) {
    static const cl_int seen[] = {CL_OUT_OF_RESOURCES, CL_INVALID_COMMAND_QUEUE, CL_INVALID_CONTEXT, -9999};
    read_error = CL_OUT_OF_RESOURCES;
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
        assert_int_equal(failed(seen[i]), XPU_ERROR_DEVICE_LOST);
    read_error = CL_SUCCESS, queue_error = CL_INVALID_CONTEXT;
    assert_int_equal(failed(CL_OUT_OF_RESOURCES), XPU_ERROR_DEVICE_LOST);
    queue_error = -9999;
    assert_int_equal(failed(CL_OUT_OF_RESOURCES), XPU_ERROR_DEVICE_LOST);
    queue_error = CL_OUT_OF_RESOURCES; /* of a device that has no room for a queue */
    assert_int_equal(failed(CL_OUT_OF_RESOURCES), XPU_ERROR_DRIVER);
}

/* A device without memory fails, too, and works when some is freed. */
static void out_of_memory_is_not_lost(void **state) {
    read_error = CL_OUT_OF_RESOURCES;
    assert_int_equal(failed(CL_MEM_OBJECT_ALLOCATION_FAILURE), XPU_ERROR_OUT_OF_MEMORY);
    assert_int_equal(failed(CL_OUT_OF_HOST_MEMORY), XPU_ERROR_OUT_OF_HOST_MEMORY);
    cl_int *const answers[] = {&queue_error, &buffer_error, &read_error};
    for (int i = 0; i < 3; i++) {
        answer(NULL);
        cl_int *of = answers[i];
        *of = CL_MEM_OBJECT_ALLOCATION_FAILURE;
        assert_int_equal(failed(CL_OUT_OF_RESOURCES), XPU_ERROR_DRIVER);
        *of = CL_OUT_OF_HOST_MEMORY;
        assert_int_equal(failed(CL_OUT_OF_RESOURCES), XPU_ERROR_DRIVER);
    }
}

static void a_device_without_a_context(void **state) {
    const cl_device none = {.api = &api, .properties.name = "A GPU"};
    read_error = CL_OUT_OF_RESOURCES;
    assert_int_equal(cl_check(CL_OUT_OF_RESOURCES, "->clCreateContext", &none), XPU_ERROR_DRIVER);
    assert_int_equal(cl_check(CL_OUT_OF_RESOURCES, "->clGetPlatformIDs", NULL), XPU_ERROR_DRIVER);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_device_that_answers_is_not_lost, answer),
        cmocka_unit_test_setup(errors_of_nvidia_after_a_fault, answer),
        cmocka_unit_test_setup(out_of_memory_is_not_lost, answer),
        cmocka_unit_test_setup(a_device_without_a_context, answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
