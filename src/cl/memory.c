/* Raw device and pinned memory, by xpu_memory_kind (cl.h). Any thread may call; memory belongs to the caller
 * until it is freed. XPU_ERROR_OUT_OF_MEMORY if the device is full, XPU_ERROR_OUT_OF_HOST_MEMORY for pinned
 * memory. */
#include "cl/buffer.h"
#include "core/os.h"

static xpu_status no_memory(int device, size_t size) {
    return xpu_fail(XPU_ERROR_OUT_OF_MEMORY, "%s: could not allocate %zu bytes",
                    cl_devices[device].properties.name, size);
}

xpu_status cl_memory_alloc(int index, size_t size, void **pointer) {
    cl_device *device = &cl_devices[index];
    const xpu_device_properties *p = &device->properties;
    cl_int error = CL_SUCCESS;
    void *memory = NULL;
    if (core_fault() || size > p->total_memory) return no_memory(index, size);
    switch (p->memory) {
    case XPU_MEMORY_HOST:
        memory = os_aligned_alloc(size >= OS_HUGE_PAGE ? OS_HUGE_PAGE : p->address_align, size);
        break;
    case XPU_MEMORY_USM: {
        cl_bitfield properties[] = {CL_MEM_FLAGS, CL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL, 0};
        memory = device->api->clDeviceMemAllocINTEL(device->context, device->id,
                                                    size > p->max_allocation ? properties : NULL, size,
                                                    (cl_uint)p->address_align, &error);
        if (error == CL_OUT_OF_RESOURCES) error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
        break;
    }
    case XPU_MEMORY_SVM: memory = device->api->clSVMAlloc(device->context, CL_MEM_READ_WRITE, size, 0); break;
    case XPU_MEMORY_BUFFER: return buffer_alloc(index, size, pointer);
    }
    if (error != CL_SUCCESS && error != CL_MEM_OBJECT_ALLOCATION_FAILURE)
        return cl_check(error, "->clDeviceMemAllocINTEL", device);
    if (!memory) return no_memory(index, size);
    *pointer = memory;
    return XPU_SUCCESS;
}

xpu_status cl_memory_free(int index, void *pointer) {
    cl_device *device = &cl_devices[index];
    if (!pointer) return XPU_SUCCESS;
    switch (device->properties.memory) {
    case XPU_MEMORY_HOST: os_aligned_free(pointer); return XPU_SUCCESS;
    case XPU_MEMORY_USM:
        return cl_check(device->api->clMemBlockingFreeINTEL(device->context, pointer),
                        "->clMemBlockingFreeINTEL", device);
    case XPU_MEMORY_SVM: device->api->clSVMFree(device->context, pointer); return XPU_SUCCESS;
    case XPU_MEMORY_BUFFER: return buffer_free(index, pointer);
    }
    return XPU_SUCCESS;
}

static xpu_status usm_host_alloc(const cl_device *device, size_t size, void **pointer) {
    cl_int error = CL_SUCCESS;
    void *memory = device->api->clHostMemAllocINTEL(device->context, NULL, size, 4096, &error);
    XPU_TRY(cl_check(error, "->clHostMemAllocINTEL", device));
    *pointer = memory;
    return XPU_SUCCESS;
}

xpu_status cl_report_alloc(int index, size_t size, void **pointer, bool *direct) {
    const cl_device *device = &cl_devices[index];
    *direct = device->properties.memory == XPU_MEMORY_USM || device->properties.memory == XPU_MEMORY_HOST;
    if (device->properties.memory == XPU_MEMORY_USM) return usm_host_alloc(device, size, pointer);
    return cl_memory_alloc(index, size, pointer);
}

/* Pinned memory comes from device 0's driver: USM host memory, or a mapped buffer if there is no USM. A list
 * of mapped buffers finds the buffer when a pointer is freed. */
typedef struct mapping {
    struct mapping *next;
    void *pointer;
    cl_mem buffer;
} mapping;
static mapping *mappings;
static os_mutex mappings_lock = OS_MUTEX_INIT;

static xpu_status map_buffer(cl_device *device, size_t size, void **pointer) {
    mapping *m = core_malloc(sizeof *m);
    if (!m)
        return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory while recording a pinned block");
    cl_int error;
    cl_command_queue queue =
        device->api->clCreateCommandQueueWithProperties(device->context, device->id, NULL, &error);
    xpu_status status = cl_check(error, "->clCreateCommandQueueWithProperties", device);
    if (status == XPU_SUCCESS) {
        m->buffer = device->api->clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                                                size, NULL, &error);
        status = cl_check(error, "->clCreateBuffer", device);
        if (status == XPU_SUCCESS) {
            m->pointer = device->api->clEnqueueMapBuffer(
                queue, m->buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, size, 0, NULL, NULL, &error);
            status = cl_check(error, "->clEnqueueMapBuffer", device);
            if (status != XPU_SUCCESS) device->api->clReleaseMemObject(m->buffer);
        }
        device->api->clReleaseCommandQueue(queue);
    }
    if (status != XPU_SUCCESS) {
        core_free(m);
        return status;
    }
    os_mutex_lock(&mappings_lock);
    m->next = mappings;
    mappings = m;
    os_mutex_unlock(&mappings_lock);
    *pointer = m->pointer;
    return XPU_SUCCESS;
}

xpu_status cl_host_alloc(size_t size, void **pointer) {
    cl_device *device;
    XPU_TRY(cl_get(0, &device));
    void *memory;
    switch (device->properties.memory) {
    case XPU_MEMORY_HOST:
        memory = core_fault() ? NULL : os_aligned_alloc(4096, size);
        if (!memory)
            return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory: could not allocate %zu bytes",
                            size);
        *pointer = memory;
        return XPU_SUCCESS;
    case XPU_MEMORY_USM: return usm_host_alloc(device, size, pointer);
    case XPU_MEMORY_SVM:
    case XPU_MEMORY_BUFFER: return map_buffer(device, size, pointer);
    }
    return XPU_ERROR_NOT_SUPPORTED;
}

xpu_status cl_host_free(void *pointer) {
    cl_device *device = &cl_devices[0];
    switch (device->properties.memory) {
    case XPU_MEMORY_HOST: os_aligned_free(pointer); return XPU_SUCCESS;
    case XPU_MEMORY_USM:
        return cl_check(device->api->clMemBlockingFreeINTEL(device->context, pointer),
                        "->clMemBlockingFreeINTEL", device);
    case XPU_MEMORY_SVM:
    case XPU_MEMORY_BUFFER:
        os_mutex_lock(&mappings_lock);
        for (mapping **link = &mappings; *link; link = &(*link)->next) {
            mapping *m = *link;
            if (m->pointer != pointer) continue;
            *link = m->next;
            device->api->clReleaseMemObject(m->buffer);
            core_free(m);
            break;
        }
        os_mutex_unlock(&mappings_lock);
        return XPU_SUCCESS;
    }
    return XPU_SUCCESS;
}
