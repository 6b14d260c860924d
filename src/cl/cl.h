/* Internal declarations of src/cl: drivers, devices and their capabilities, OpenCL errors, raw memory. The
 * device table is filled once and constant afterwards, so any thread may call without locking. Contexts,
 * drivers and devices live until the process ends. */
#ifndef CL_CL_H
#define CL_CL_H

#include <stdbool.h>

#include "cl/api.h"
#include "core/memory.h"
#include "core/status.h"
#include "xpu/device.h"

#define CL_MAX_DEVICES 32

/* A device; filled when the drivers are loaded and constant afterwards. */
typedef struct cl_device {
    const cl_api *api;
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    char *options;  /* build options of every program */
    bool profiling; /* queues can record event times */
    bool host;      /* the device is the CPU that runs this program */
    xpu_device_properties properties;
} cl_device;

/* Loads the drivers on first use. XPU_ERROR_BAD_FORK in a child that was forked afterwards. Finding no
 * drivers is success, with 0 devices. */
xpu_status cl_init(void);
int cl_count(void);
/* XPU_ERROR_INVALID_ARGUMENT for an index out of range, XPU_ERROR_NO_DEVICE if there are no devices. */
xpu_status cl_get(int index, cl_device **device);
/* Unchecked access: use it only with an index that cl_get has accepted. */
extern cl_device cl_devices[CL_MAX_DEVICES];
const xpu_device_properties *cl_device_properties(int device);

/* Reads the capabilities of `id` into `device`. */
xpu_status cl_read_capabilities(cl_device *device);

/* Converts an OpenCL error to a status, with call and device in the error text. If the device no longer
 * responds, the status is XPU_ERROR_DEVICE_LOST whatever the error. cl_check also accepts CL_SUCCESS, and in
 * the fault-testing build any call through it can be made to fail. */
xpu_status cl_failed(cl_int error, const char *call, const cl_device *device);
/* Fails with XPU_ERROR_DEVICE_LOST; `cause` goes into the error text. */
xpu_status cl_fail_lost(const cl_device *device, const char *cause);
const char *cl_error_name(cl_int error);
static inline xpu_status cl_check(cl_int error, const char *call, const cl_device *device) {
    if (core_fault()) error = CL_OUT_OF_RESOURCES;
    return error == CL_SUCCESS ? XPU_SUCCESS : cl_failed(error, call, device);
}
#define CL_TRY(device, call) XPU_TRY(cl_check((call), #call, (device)))

/* Sets properties.total_memory of the CPU devices to their shares of the host's memory. */
xpu_status cl_divide_host_memory(void);
/* Bytes of the device's memory that are free for any program, according to the operating system; UINT64_MAX
 * if it does not say. `swapping` adds free swap space, beyond which the system kills processes. */
uint64_t cl_memory_left(int device, bool swapping);

/* Memory directly from the driver, aligned to at least 64 bytes. XPU_ERROR_OUT_OF_MEMORY if there is not
 * enough. */
xpu_status cl_memory_alloc(int device, size_t size, void **pointer);
xpu_status cl_memory_free(int device, void *pointer);
/* A small buffer that kernels write for the host. *direct: the host can access it in place while the device
 * does not use it; otherwise it must be copied. Free it with cl_memory_free. */
xpu_status cl_report_alloc(int device, size_t size, void **pointer, bool *direct);
/* XPU_MEMORY_BUFFER only: the buffer that contains a device address, and the address's offset in it; NULL if
 * there is none. The reference is borrowed and valid until the memory is freed. */
cl_mem cl_memory_buffer(int device, const void *pointer, size_t *offset);
/* Pinned host memory, which devices copy from and to without staging. */
xpu_status cl_host_alloc(size_t size, void **pointer);
xpu_status cl_host_free(void *pointer);

#endif
