/* Streams: one in-order queue each. */
#include "runtime/runtime.h"

#include <string.h>

#define PRIORITIES 3
#define POOL_SIZE (PRIORITIES * XPU_STREAMS_PER_PRIORITY)

/* A device's streams: [0] is the default one, then the pool, priority by priority. Made on first use. */
static _Atomic(xpu_stream *) pool[CL_MAX_DEVICES][1 + POOL_SIZE];
static atomic_uint next_in_pool[CL_MAX_DEVICES][PRIORITIES];
static _Thread_local xpu_stream *current[CL_MAX_DEVICES];

/* Streams around callers' queues, in a list that only grows. */
typedef struct external {
    struct external *next;
    xpu_stream stream;
} external;
static _Atomic(external *) externals;
static pthread_mutex_t create_lock = PTHREAD_MUTEX_INITIALIZER; /* guards making streams */

static xpu_status no_device(int device) {
    XPU_TRY(cl_init());
    (void)cl_get(device);
    return cl_count() ? XPU_ERROR_INVALID_ARGUMENT : XPU_ERROR_NO_DEVICE;
}

static xpu_status make_queue(const cl_device *device, int priority, cl_command_queue *queue) {
    static const cl_bitfield hints[PRIORITIES] = {CL_QUEUE_PRIORITY_HIGH_KHR, CL_QUEUE_PRIORITY_MED_KHR,
                                                  CL_QUEUE_PRIORITY_LOW_KHR};
    cl_bitfield flags = device->profiling ? CL_QUEUE_PROFILING_ENABLE : 0;
    cl_bitfield properties[] = {CL_QUEUE_PROPERTIES, flags, CL_QUEUE_PRIORITY_KHR,
                                hints[priority - XPU_PRIORITY_HIGH], 0};
    cl_int error;
    *queue = device->api->clCreateCommandQueueWithProperties(device->context, device->id, properties, &error);
    if (error == CL_INVALID_VALUE || error == CL_INVALID_QUEUE_PROPERTIES) { /* no cl_khr_priority_hints */
        properties[2] = 0;
        *queue = device->api->clCreateCommandQueueWithProperties(device->context, device->id, properties, &error);
    }
    return cl_check(error, "->clCreateCommandQueueWithProperties", device);
}

static xpu_status get(int index, int position, xpu_stream **stream) {
    xpu_stream *there = atomic_load_explicit(&pool[index][position], memory_order_acquire);
    if (there) {
        *stream = there;
        return XPU_SUCCESS;
    }
    xpu_status status = XPU_SUCCESS;
    pthread_mutex_lock(&create_lock);
    there = atomic_load(&pool[index][position]);
    if (!there) {
        const cl_device *device = &cl_devices[index];
        int priority = position ? (position - 1) / XPU_STREAMS_PER_PRIORITY + XPU_PRIORITY_HIGH : XPU_PRIORITY_NORMAL;
        there = core_calloc(1, sizeof *there);
        if (!there) status = xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "no memory for a stream");
        if (there && (status = make_queue(device, priority, &there->queue)) == XPU_SUCCESS) {
            there->device = index;
            there->priority = priority;
            there->id = position;
            there->host = device->host;
            atomic_store_explicit(&pool[index][position], there, memory_order_release);
        } else {
            core_free(there);
        }
    }
    pthread_mutex_unlock(&create_lock);
    if (status == XPU_SUCCESS) *stream = there;
    return status;
}

xpu_status xpu_stream_default(int device, xpu_stream **stream) {
    if (!cl_get(device)) return no_device(device);
    return get(device, 0, stream);
}

xpu_status xpu_stream_from_pool(int device, int priority, xpu_stream **stream) {
    if (!cl_get(device)) return no_device(device);
    if (priority < XPU_PRIORITY_HIGH) priority = XPU_PRIORITY_HIGH;
    if (priority > XPU_PRIORITY_LOW) priority = XPU_PRIORITY_LOW;
    int row = priority - XPU_PRIORITY_HIGH;
    unsigned turn = atomic_fetch_add(&next_in_pool[device][row], 1) % XPU_STREAMS_PER_PRIORITY;
    return get(device, 1 + row * XPU_STREAMS_PER_PRIORITY + (int)turn, stream);
}

xpu_status xpu_stream_from_external(int index, void *queue, xpu_stream **stream) {
    cl_device *device = cl_get(index);
    if (!device) return no_device(index);
    XPU_REJECT_IF(!queue, "the queue is NULL");
    xpu_status status = XPU_SUCCESS;
    pthread_mutex_lock(&create_lock);
    external *e = atomic_load(&externals);
    while (e && !(e->stream.queue == queue && e->stream.device == index)) e = e->next;
    if (!e) {
        cl_device_id id = NULL;
        status = cl_check(device->api->clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof id, &id, NULL),
                          "->clGetCommandQueueInfo", device);
        if (status == XPU_SUCCESS && id != device->id)
            status = xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "the queue belongs to another device than %s",
                              device->properties.name);
        if (status == XPU_SUCCESS && !(e = core_calloc(1, sizeof *e)))
            status = xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "no memory for a stream");
        if (status == XPU_SUCCESS) {
            device->api->clRetainCommandQueue(queue);
            /* addresses never meet the pool's small numbers */
            e->stream = (xpu_stream){index, XPU_PRIORITY_NORMAL, (int64_t)(intptr_t)queue, queue, device->host};
            e->next = atomic_load(&externals);
            atomic_store_explicit(&externals, e, memory_order_release);
        }
    }
    pthread_mutex_unlock(&create_lock);
    if (status == XPU_SUCCESS) *stream = &e->stream;
    return status;
}

xpu_status xpu_stream_current(int device, xpu_stream **stream) {
    if (device >= 0 && device < CL_MAX_DEVICES && current[device] && !xpu_in_bad_fork()) {
        *stream = current[device];
        return XPU_SUCCESS;
    }
    XPU_TRY(xpu_stream_default(device, stream));
    current[device] = *stream;
    return XPU_SUCCESS;
}

xpu_status xpu_stream_set_current(xpu_stream *stream) {
    XPU_REJECT_IF(!stream, "the stream is NULL");
    current[stream->device] = stream;
    return XPU_SUCCESS;
}

int64_t xpu_stream_id(const xpu_stream *stream) { return stream->id; }
int xpu_stream_device(const xpu_stream *stream) { return stream->device; }
int xpu_stream_priority(const xpu_stream *stream) { return stream->priority; }
void *xpu_stream_native(const xpu_stream *stream) { return stream->queue; }

xpu_status xpu_stream_from_id(int device, int64_t id, xpu_stream **stream) {
    if (!cl_get(device)) return no_device(device);
    if (id >= 0 && id <= POOL_SIZE) return get(device, (int)id, stream);
    for (external *e = atomic_load_explicit(&externals, memory_order_acquire); e; e = e->next) {
        if (e->stream.id != id || e->stream.device != device) continue;
        *stream = &e->stream;
        return XPU_SUCCESS;
    }
    return xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "device %d has no stream %lld", device, (long long)id);
}

xpu_status stream_visit(int device, xpu_status (*visit)(xpu_stream *, void *), void *user) {
    for (int i = 0; i <= POOL_SIZE; i++) {
        xpu_stream *stream = atomic_load_explicit(&pool[device][i], memory_order_acquire);
        if (stream) XPU_TRY(visit(stream, user));
    }
    for (external *e = atomic_load_explicit(&externals, memory_order_acquire); e; e = e->next)
        if (e->stream.device == device) XPU_TRY(visit(&e->stream, user));
    return XPU_SUCCESS;
}

xpu_status xpu_stream_synchronize(xpu_stream *stream) {
    if (xpu_in_bad_fork()) return cl_init();
    if (stream->host) return XPU_SUCCESS;
    const cl_device *device = &cl_devices[stream->device];
    CL_TRY(device, device->api->clFinish(stream->queue));
    return XPU_SUCCESS;
}

xpu_status xpu_stream_query(xpu_stream *stream) {
    if (xpu_in_bad_fork()) return cl_init();
    if (stream->host) return XPU_SUCCESS;
    xpu_event *event;
    XPU_TRY(xpu_event_create(stream->device, false, &event));
    xpu_status status = xpu_event_record(event, stream);
    if (status == XPU_SUCCESS) status = xpu_event_query(event);
    xpu_event_destroy(event);
    return status;
}
