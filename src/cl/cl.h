/* The inside of src/cl: drivers, devices and their capabilities, errors, raw memory. */
#ifndef CL_CL_H
#define CL_CL_H

#include <stdbool.h>

#include "cl/api.h"
#include "core/memory.h"
#include "core/status.h"
#include "xpu/device.h"

#define CL_MAX_DEVICES 32

/* A device, filled when the drivers are loaded and not changed after. */
typedef struct cl_device {
    const cl_api *api;
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    char *options;  /* build options for every program; kept as long as the process */
    bool profiling; /* queues are made with event times */
    bool host;      /* the device is the processor that runs this program */
    xpu_device_properties properties;
} cl_device;

/* Loads the drivers on first use; XPU_ERROR_BAD_FORK in a child forked after that. Without drivers
 * there are 0 devices, which is success. */
xpu_status cl_init(void);
int cl_count(void);
/* XPU_ERROR_INVALID_ARGUMENT for an index that doesn't exist, XPU_ERROR_NO_DEVICE where there is none. */
xpu_status cl_get(int index, cl_device **device);
/* The device without any check: only after another call has vouched for the index. */
extern cl_device cl_devices[CL_MAX_DEVICES];
const xpu_device_properties *cl_device_properties(int device);

/* Reads the capabilities of `id` into `device`. */
xpu_status cl_read_capabilities(cl_device *device);

/* CL_SUCCESS becomes XPU_SUCCESS; anything else the right status, with the call and the device in the
 * error text. XPU_ERROR_DEVICE_LOST, whatever the error, where the device answers nothing any more. In the
 * fault-testing build any call can be made to fail. */
xpu_status cl_failed(cl_int error, const char *call, const cl_device *device);
/* Fails with XPU_ERROR_DEVICE_LOST; `cause`, what told so. */
xpu_status cl_fail_lost(const cl_device *device, const char *cause);
const char *cl_error_name(cl_int error);
static inline xpu_status cl_check(cl_int error, const char *call, const cl_device *device) {
    if (core_fault()) error = CL_OUT_OF_RESOURCES;
    return error == CL_SUCCESS ? XPU_SUCCESS : cl_failed(error, call, device);
}
#define CL_TRY(device, call) XPU_TRY(cl_check((call), #call, (device)))

/* Gives the host devices that were listed their parts of the host's memory: properties.total_memory. */
xpu_status cl_divide_host_memory(void);
/* Bytes that a device has left for whoever asks first, other programs among them, as far as the operating
 * system tells; UINT64_MAX where it doesn't. `swapping` counts the host's space to swap to as well: beyond
 * that, systems kill. */
uint64_t cl_memory_left(int device, bool swapping);

/* Memory straight from the driver: at least 64-byte aligned, any size that the device can hold. */
xpu_status cl_memory_alloc(int device, size_t size, void **pointer);
xpu_status cl_memory_free(int device, void *pointer);
/* A few bytes that kernels of the device write for the host. `direct`: the host reads and writes them where
 * they lie, when the device is not at work on them; else by copies. Freed by cl_memory_free. */
xpu_status cl_report_alloc(int device, size_t size, void **pointer, bool *direct);
/* XPU_MEMORY_BUFFER: the buffer around a device address, and how far into it the address lies. NULL where the
 * address is in none of the device's. The buffer lives as long as the memory. */
cl_mem cl_memory_buffer(int device, const void *pointer, size_t *offset);
/* Host memory that devices copy from and to without staging. */
xpu_status cl_host_alloc(size_t size, void **pointer);
xpu_status cl_host_free(void *pointer);

#endif
