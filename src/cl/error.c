#include <string.h>

#include "cl/cl.h"

const char *cl_error_name(cl_int error) {
    switch (error) {
    case CL_SUCCESS: return "CL_SUCCESS";
#define X(name, value)                                                                                       \
    case name: return #name;
        CL_ERRORS(X)
#undef X
    }
    return "an error unknown to OpenCL 3.0";
}

static xpu_status status_of(cl_int error) {
    switch (error) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE: return XPU_ERROR_OUT_OF_MEMORY;
    case CL_OUT_OF_HOST_MEMORY: return XPU_ERROR_OUT_OF_HOST_MEMORY;
    case CL_BUILD_PROGRAM_FAILURE: return XPU_ERROR_BUILD_FAILED;
    case CL_DEVICE_NOT_AVAILABLE: return XPU_ERROR_DEVICE_LOST;
    case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: return XPU_ERROR_DEVICE_LOST;
    default: return XPU_ERROR_DRIVER;
    }
}

xpu_status cl_failed(cl_int error, const char *call, const cl_device *device) {
    /* `call` is an expression, as device->api->clFinish(queue): its function's name is what helps */
    const char *name = strstr(call, "->cl");
    name = name ? name + 2 : call;
    int length = (int)strcspn(name, "(");
    return xpu_fail(status_of(error), "OpenCL: %.*s failed: %s (%d) on %s", length, name,
                    cl_error_name(error), error, device ? device->properties.name : "no device");
}
