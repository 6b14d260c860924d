/* Memory of kind XPU_MEMORY_BUFFER. A kernel that receives the buffer as an argument reports its address;
 * every later kernel uses only that address. This relies on the driver keeping all buffers of a context at
 * fixed addresses. NVIDIA's does; USM and SVM guarantee it. Copies between device and host need the buffer
 * itself, which a sorted table finds by address. Any thread may call. */
#include "cl/buffer.h"

#include "core/os.h"

/* All buffers, sorted by device and address. Rarely modified; searched at every copy to or from the host. */
typedef struct entry {
    int device;
    char *base;
    size_t size;
    cl_mem buffer;
} entry;
static entry *entries;
static size_t entry_count, entry_room;
static os_rwlock entries_lock = OS_RWLOCK_INIT; /* guards entries, entry_count and entry_room */

/* The objects that determine a buffer's address; one set per device, created on first use. */
typedef struct teller {
    cl_command_queue queue;
    cl_kernel kernel;
    cl_mem answer;
} teller;
static teller tellers[CL_MAX_DEVICES];
static os_mutex teller_lock = OS_MUTEX_INIT; /* guards the tellers */

static const char teller_source[] =
    "__kernel void tell(__global char *buffer, __global ulong *answer) { *answer = (ulong)buffer; }\n";

static void teller_free(const cl_device *device, teller *t) {
    if (t->answer) device->api->clReleaseMemObject(t->answer);
    if (t->kernel) device->api->clReleaseKernel(t->kernel);
    if (t->queue) device->api->clReleaseCommandQueue(t->queue);
    *t = (teller){0};
}

static xpu_status teller_make(const cl_device *device, teller *t) {
    const cl_api *api = device->api;
    const char *source = teller_source;
    size_t length = sizeof teller_source - 1;
    cl_int error;
    t->queue = api->clCreateCommandQueueWithProperties(device->context, device->id, NULL, &error);
    XPU_TRY(cl_check(error, "->clCreateCommandQueueWithProperties", device));
    t->answer = api->clCreateBuffer(device->context, CL_MEM_READ_WRITE, sizeof(cl_ulong), NULL, &error);
    XPU_TRY(cl_check(error, "->clCreateBuffer", device));
    cl_program program = api->clCreateProgramWithSource(device->context, 1, &source, &length, &error);
    XPU_TRY(cl_check(error, "->clCreateProgramWithSource", device));
    error = api->clBuildProgram(program, 1, &device->id, device->options, NULL, NULL);
    xpu_status status = cl_check(error, "->clBuildProgram", device);
    if (status == XPU_SUCCESS) {
        t->kernel = api->clCreateKernel(program, "tell", &error);
        status = cl_check(error, "->clCreateKernel", device);
    }
    api->clReleaseProgram(program); /* the kernel retains it */
    return status;
}

/* Determines the buffer's address. This is its first use, at which drivers allocate the memory. */
static xpu_status ask(const cl_device *device, const teller *t, cl_mem buffer, char **base) {
    static const size_t one = 1;
    const cl_api *api = device->api;
    cl_ulong address = 0;
    CL_TRY(device, api->clSetKernelArg(t->kernel, 0, sizeof buffer, &buffer));
    CL_TRY(device, api->clSetKernelArg(t->kernel, 1, sizeof t->answer, &t->answer));
    CL_TRY(device, api->clEnqueueNDRangeKernel(t->queue, t->kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    CL_TRY(device, api->clEnqueueReadBuffer(t->queue, t->answer, CL_TRUE, 0, sizeof address, &address, 0,
                                            NULL, NULL));
    *base = (char *)(uintptr_t)address;
    return XPU_SUCCESS;
}

static xpu_status tell(int index, cl_mem buffer, char **base) {
    const cl_device *device = &cl_devices[index];
    teller *t = &tellers[index];
    os_mutex_lock(&teller_lock);
    xpu_status status = XPU_SUCCESS;
    if (!t->kernel) {
        status = teller_make(device, t);
        if (status != XPU_SUCCESS) teller_free(device, t);
    }
    if (status == XPU_SUCCESS) status = ask(device, t, buffer, base);
    os_mutex_unlock(&teller_lock);
    return status;
}

/* The number of entries at or before this address: the index at which to insert it. */
static size_t position(int device, const char *pointer) {
    size_t low = 0, high = entry_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const entry *e = &entries[middle];
        if (e->device < device || (e->device == device && e->base <= pointer))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static xpu_status enter(entry new_entry) {
    xpu_status status = XPU_SUCCESS;
    os_rwlock_write_lock(&entries_lock);
    if (entry_count == entry_room) {
        size_t room = entry_room ? 2 * entry_room : 64;
        entry *more = core_realloc(entries, room * sizeof *more);
        if (more) {
            entries = more;
            entry_room = room;
        } else {
            status =
                xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory while recording an allocation");
        }
    }
    if (status == XPU_SUCCESS) {
        size_t at = position(new_entry.device, new_entry.base);
        memmove(&entries[at + 1], &entries[at], (entry_count - at) * sizeof *entries);
        entries[at] = new_entry;
        entry_count++;
    }
    os_rwlock_write_unlock(&entries_lock);
    return status;
}

/* The entry that contains the address, or NULL; the lock is held. */
static entry *find(int device, const void *pointer) {
    size_t after = position(device, pointer);
    entry *e = after ? &entries[after - 1] : NULL;
    return e && e->device == device && (size_t)((const char *)pointer - e->base) < e->size ? e : NULL;
}

cl_mem cl_memory_buffer(int device, const void *pointer, size_t *offset) {
    cl_mem buffer = NULL;
    os_rwlock_read_lock(&entries_lock);
    const entry *e = find(device, pointer);
    if (e) {
        buffer = e->buffer;
        *offset = (size_t)((const char *)pointer - e->base);
    }
    os_rwlock_read_unlock(&entries_lock);
    return buffer;
}

static bool is_lack_of_memory(xpu_status status) {
    return status == XPU_ERROR_OUT_OF_MEMORY || status == XPU_ERROR_OUT_OF_HOST_MEMORY;
}

xpu_status buffer_alloc(int index, size_t size, void **pointer) {
    const cl_device *device = &cl_devices[index];
    cl_int error;
    entry e = {.device = index, .size = size};
    e.buffer = device->api->clCreateBuffer(device->context, CL_MEM_READ_WRITE, size, NULL, &error);
    if (error == CL_INVALID_BUFFER_SIZE) error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    xpu_status status = cl_check(error, "->clCreateBuffer", device);
    if (status == XPU_SUCCESS) {
        status = tell(index, e.buffer, &e.base);
        if (status == XPU_SUCCESS) status = enter(e);
        if (status != XPU_SUCCESS) device->api->clReleaseMemObject(e.buffer);
    }
    if (is_lack_of_memory(status))
        return xpu_fail(XPU_ERROR_OUT_OF_MEMORY, "%s: could not allocate %zu bytes", device->properties.name,
                        size);
    XPU_TRY(status);
    *pointer = e.base;
    return XPU_SUCCESS;
}

xpu_status buffer_free(int index, void *pointer) {
    const cl_device *device = &cl_devices[index];
    cl_mem buffer = NULL;
    os_rwlock_write_lock(&entries_lock);
    entry *e = find(index, pointer);
    if (e && e->base == pointer) {
        buffer = e->buffer;
        memmove(e, e + 1, (size_t)(entries + --entry_count - e) * sizeof *e);
    }
    os_rwlock_write_unlock(&entries_lock);
    XPU_REJECT_IF(!buffer, "%p is not the start of a buffer on %s", pointer, device->properties.name);
    return cl_check(device->api->clReleaseMemObject(buffer), "->clReleaseMemObject", device);
}
