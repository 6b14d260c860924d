/* OpenCL errors as xpu_status, and detection of lost devices (cl.h). Any thread may call. */
#include <stdio.h>
#include <string.h>

#include "cl/cl.h"

const char *cl_error_name(cl_int error) {
    switch (error) {
    case CL_SUCCESS: return "CL_SUCCESS";
#define X(name, value)                                                                                       \
    case name: return #name;
        CL_ERRORS(X)
#undef X
    default: return "an error unknown to OpenCL 3.0";
    }
}

static xpu_status status_of(cl_int error) {
    switch (error) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE: return XPU_ERROR_OUT_OF_MEMORY;
    case CL_OUT_OF_HOST_MEMORY: return XPU_ERROR_OUT_OF_HOST_MEMORY;
    case CL_BUILD_PROGRAM_FAILURE: return XPU_ERROR_BUILD_FAILED;
    case CL_DEVICE_NOT_AVAILABLE:
    case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: return XPU_ERROR_DEVICE_LOST;
    default: return XPU_ERROR_DRIVER;
    }
}

/* Can `error` mean that the device is lost? After a kernel faults, NVIDIA's driver answers every call with
 * CL_OUT_OF_RESOURCES, CL_INVALID_COMMAND_QUEUE or a private error code; OpenCL has no way to ask what
 * happened. */
static bool may_be_lost(cl_int error) {
    switch (error) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_BUILD_PROGRAM_FAILURE:
    case CL_INVALID_VALUE: return false;
    default: return true;
    }
}

/* Probes the device: it is lost if even a new queue cannot read a few bytes of a new buffer. */
static bool is_lost(const cl_device *device) {
    const cl_api *api = device->api;
    uint32_t word = 0;
    cl_int error;
    if (!device->context) return false; /* creating the context failed, so there is nothing to probe */
    cl_command_queue queue =
        api->clCreateCommandQueueWithProperties(device->context, device->id, NULL, &error);
    if (error != CL_SUCCESS) return error != CL_OUT_OF_RESOURCES && may_be_lost(error);
    cl_mem buffer = api->clCreateBuffer(device->context, CL_MEM_READ_WRITE, sizeof word, NULL, &error);
    if (error == CL_SUCCESS) {
        error = api->clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof word, &word, 0, NULL, NULL);
        api->clReleaseMemObject(buffer);
    }
    api->clReleaseCommandQueue(queue);
    return error != CL_SUCCESS && may_be_lost(error);
}

xpu_status cl_fail_lost(const cl_device *device, const char *cause) {
    return xpu_fail(XPU_ERROR_DEVICE_LOST,
                    "%s is lost to this process because a kernel faulted or the driver reset the device "
                    "(%s). The contents of its memory are gone; restart the process to use the device again",
                    device->properties.name, cause);
}

xpu_status cl_failed(cl_int error, const char *call, const cl_device *device) {
    /* `call` is an expression such as device->api->clFinish(queue); only the function's name is shown. */
    const char *name = strstr(call, "->cl");
    name = name ? name + 2 : call;
    int length = (int)strcspn(name, "(");
    if (device && (status_of(error) == XPU_ERROR_DEVICE_LOST || (may_be_lost(error) && is_lost(device)))) {
        char cause[128];
        snprintf(cause, sizeof cause, "%.*s: %s (%d)", length, name, cl_error_name(error), error);
        return cl_fail_lost(device, cause);
    }
    return xpu_fail(status_of(error), "OpenCL: %.*s failed: %s (%d) on %s", length, name,
                    cl_error_name(error), error, device ? device->properties.name : "no device");
}
