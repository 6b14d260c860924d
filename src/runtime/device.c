/* Devices: properties, the calling thread's current device, synchronization, launch slots, and the host
 * thread pool. Any thread may call. Functions fail with the error of cl_get for a device that does not exist.
 */
#include "runtime/graph.h"

static _Thread_local int current_device;

xpu_status xpu_device_count(int *count) {
    XPU_TRY(cl_init());
    *count = cl_count();
    return XPU_SUCCESS;
}

xpu_status xpu_device_get_properties(int index, const xpu_device_properties **properties) {
    cl_device *device;
    XPU_TRY(cl_get(index, &device));
    *properties = &device->properties;
    return XPU_SUCCESS;
}

xpu_status xpu_device_current(int *device) {
    *device = current_device;
    return XPU_SUCCESS;
}

xpu_status xpu_device_set_current(int index) {
    cl_device *device;
    if (index != current_device) XPU_TRY(cl_get(index, &device));
    current_device = index;
    return XPU_SUCCESS;
}

static xpu_status finish(xpu_stream *stream, void *watched) {
    if (watched && atomic_exchange(&stream->watched, false)) *(bool *)watched = true;
    return stream_finish(stream);
}

xpu_status device_finish(int index) { return stream_visit(index, finish, NULL); }

xpu_status xpu_device_synchronize(int index) {
    cl_device *device;
    XPU_TRY(cl_get(index, &device));
    bool watched = false;
    XPU_TRY(graph_refuse_device(index, "waiting for a device (synchronize)"));
    XPU_TRY(stream_visit(index, finish, &watched));
    return fault_check(index, watched);
}

xpu_status xpu_device_trim(int index) {
    cl_device *device;
    char driver[OS_PATH_SIZE], own[OS_PATH_SIZE];
    XPU_TRY(cl_get(index, &device));
    /* OpenCL objects begin with a pointer to the driver's dispatch table; its functions lie in its library.
     */
    const void *const *const *object = (const void *const *const *)device->id;
    if (os_library_of((*object)[0], driver)) os_library_trim(driver);
    if (os_library_of(&cl_devices, own)) os_library_trim(own); /* includes the embedded kernel sources */
    os_heap_trim();
    return XPU_SUCCESS;
}

/* --- launch slots --- */

static _Atomic uint64_t taken; /* bit s: slot s is in use */
static _Thread_local int slot = -2;
static os_key slot_key;
static os_once slot_once = OS_ONCE_INIT;
static _Atomic(cl_command_queue) slot_queues[MAX_SLOTS][CL_MAX_DEVICES];
_Static_assert(MAX_SLOTS == 64, "one bit a slot");

static void give_back(void *value) {
    atomic_fetch_and(&taken, ~((uint64_t)1 << ((intptr_t)value - 1)));
    slot = -1; /* destructors that run later in this thread launch through the locked path */
}

static void make_key(void) { os_key_create(&slot_key, give_back); }

int slot_get(void) {
    if (slot != -2) return slot;
    os_once_call(&slot_once, make_key);
    uint64_t bits = atomic_load(&taken);
    int s;
    do {
        if (bits == UINT64_MAX) return -1; /* try again next time: a slot may become free */
        s = __builtin_ctzll(~bits);
    } while (!atomic_compare_exchange_weak(&taken, &bits, bits | (uint64_t)1 << s));
    os_key_set(slot_key, (void *)(intptr_t)(s + 1));
    return slot = s;
}

xpu_status slot_queue(int s, int index, cl_command_queue *queue) {
    cl_command_queue there = atomic_load_explicit(&slot_queues[s][index], memory_order_acquire);
    if (!there) {
        cl_device *device = &cl_devices[index];
        cl_bitfield properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_THREAD_LOCAL_EXEC_ENABLE_INTEL, 0};
        cl_int error;
        there =
            device->api->clCreateCommandQueueWithProperties(device->context, device->id, properties, &error);
        XPU_TRY(cl_check(error, "->clCreateCommandQueueWithProperties", device));
        atomic_store_explicit(&slot_queues[s][index], there, memory_order_release);
    }
    *queue = there;
    return XPU_SUCCESS;
}

/* --- host thread pool --- */

static xpu_host_thread_pool team;
static _Atomic(const xpu_host_thread_pool *) team_set;

xpu_status xpu_set_host_thread_pool(const xpu_host_thread_pool *new_team) {
    XPU_REJECT_IF(new_team && (!new_team->threads || !new_team->run),
                  "a thread pool needs both of its functions");
    atomic_store(&team_set, NULL);
    if (new_team) {
        team = *new_team;
        atomic_store(&team_set, &team);
    }
    return XPU_SUCCESS;
}

const xpu_host_thread_pool *xpu_get_host_thread_pool(void) {
    return atomic_load_explicit(&team_set, memory_order_acquire);
}
