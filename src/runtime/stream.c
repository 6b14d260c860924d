/* Streams: one in-order OpenCL queue each. A device has a default stream and a pool for each priority;
 * external streams wrap a caller's queue, which they retain. Streams are created on first use and live until
 * the process ends. Any thread may call, and several may submit to one stream at the same time. */
#include "runtime/graph.h"

#include <string.h>

#define PRIORITIES 3
#define POOL_SIZE (PRIORITIES * XPU_STREAMS_PER_PRIORITY)

/* A device's streams: [0] is the default stream, then the pool, priority by priority. */
static _Atomic(xpu_stream *) pool[CL_MAX_DEVICES][1 + POOL_SIZE];
static atomic_uint next_in_pool[CL_MAX_DEVICES][PRIORITIES];
static _Thread_local xpu_stream *current[CL_MAX_DEVICES];

/* External streams, in a list that only grows, so readers need no lock. */
typedef struct external {
    struct external *next;
    xpu_stream stream;
} external;
static _Atomic(external *) externals;
static os_mutex create_lock = OS_MUTEX_INIT; /* guards the creation of streams */

/* Whether events order queues of different priorities, which run in different contexts. Before Xe-HP
 * (architecture 12.50) Intel's driver (26.27) does not order them. It even hangs when a queue is released
 * that has waited for another context, because it takes that context's task count for its own. */
static bool orders_priorities(const cl_device *device) {
    enum { XE_HP = 12 << 22 | 50 << 14 };
    const xpu_device_properties *p = &device->properties;
    return !p->architecture || p->has_inline_ptx || p->architecture >= XE_HP;
}

static xpu_status make_queue(const cl_device *device, int priority, bool times, cl_command_queue *queue) {
    static const cl_bitfield hints[PRIORITIES] = {CL_QUEUE_PRIORITY_HIGH_KHR, CL_QUEUE_PRIORITY_MED_KHR,
                                                  CL_QUEUE_PRIORITY_LOW_KHR};
    cl_bitfield flags = times ? CL_QUEUE_PROFILING_ENABLE : 0;
    cl_bitfield properties[] = {CL_QUEUE_PROPERTIES, flags, CL_QUEUE_PRIORITY_KHR,
                                hints[priority - XPU_PRIORITY_HIGH], 0};
    cl_int error;
    if (!orders_priorities(device)) properties[2] = 0;
    *queue = device->api->clCreateCommandQueueWithProperties(device->context, device->id, properties, &error);
    if (error == CL_INVALID_VALUE || error == CL_INVALID_QUEUE_PROPERTIES) { /* no cl_khr_priority_hints */
        properties[2] = 0;
        *queue =
            device->api->clCreateCommandQueueWithProperties(device->context, device->id, properties, &error);
    }
    return cl_check(error, "->clCreateCommandQueueWithProperties", device);
}

/* Makes the new queue wait for the commands of the old one. The caller holds the gate for writing. */
static xpu_status follow(const cl_device *device, cl_command_queue old, cl_command_queue new) {
    cl_event end;
    CL_TRY(device, device->api->clEnqueueMarkerWithWaitList(old, 0, NULL, &end));
    xpu_status status = cl_check(device->api->clFlush(old), "->clFlush", device);
    if (status == XPU_SUCCESS)
        status = cl_check(device->api->clEnqueueBarrierWithWaitList(new, 1, &end, NULL),
                          "->clEnqueueBarrierWithWaitList", device);
    device->api->clReleaseEvent(end);
    return status;
}

xpu_status stream_keep_times(xpu_stream *stream) {
    if (atomic_load_explicit(&stream->keeps_times, memory_order_acquire)) return XPU_SUCCESS;
    const cl_device *device = &cl_devices[stream->device];
    cl_command_queue queue;
    XPU_TRY(make_queue(device, stream->priority, true, &queue));
    xpu_status status = XPU_SUCCESS;
    os_rwlock_write_lock(&stream->gate);
    const bool late = atomic_load(&stream->keeps_times); /* another thread was faster */
    if (!late) status = follow(device, stream->queue, queue);
    if (!late && status == XPU_SUCCESS) {
        cl_command_queue old = stream->queue;
        stream->queue = queue;
        queue = old; /* released below; OpenCL keeps it until its commands are done */
        atomic_store_explicit(&stream->keeps_times, true, memory_order_release);
    }
    os_rwlock_write_unlock(&stream->gate);
    device->api->clReleaseCommandQueue(queue);
    return status;
}

static xpu_status get(int index, int position, xpu_stream **stream) {
    xpu_stream *there = atomic_load_explicit(&pool[index][position], memory_order_acquire);
    if (there) {
        *stream = there;
        return XPU_SUCCESS;
    }
    xpu_status status = XPU_SUCCESS;
    os_mutex_lock(&create_lock);
    there = atomic_load(&pool[index][position]);
    if (!there) {
        tuning_load(index);
        const cl_device *device = &cl_devices[index];
        int priority =
            position ? (position - 1) / XPU_STREAMS_PER_PRIORITY + XPU_PRIORITY_HIGH : XPU_PRIORITY_NORMAL;
        there = core_calloc(1, sizeof *there);
        if (!there) status = xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a stream");
        if (there && (status = make_queue(device, priority, false, &there->queue)) == XPU_SUCCESS) {
            there->device = index;
            there->priority = priority;
            there->id = position;
            there->host = device->host;
            atomic_init(&there->keeps_times, device->host); /* CPU devices never need profiling */
            os_rwlock_init(&there->gate);
            os_mutex_init(&there->query_lock);
            atomic_store_explicit(&pool[index][position], there, memory_order_release);
        } else {
            core_free(there);
        }
    }
    os_mutex_unlock(&create_lock);
    if (status == XPU_SUCCESS) *stream = there;
    return status;
}

xpu_status xpu_stream_default(int device, xpu_stream **stream) {
    cl_device *found;
    XPU_TRY(cl_get(device, &found));
    return get(device, 0, stream);
}

xpu_status xpu_stream_from_pool(int device, int priority, xpu_stream **stream) {
    cl_device *found;
    XPU_TRY(cl_get(device, &found));
    if (priority < XPU_PRIORITY_HIGH) priority = XPU_PRIORITY_HIGH;
    if (priority > XPU_PRIORITY_LOW) priority = XPU_PRIORITY_LOW;
    int row = priority - XPU_PRIORITY_HIGH;
    unsigned turn = atomic_fetch_add(&next_in_pool[device][row], 1) % XPU_STREAMS_PER_PRIORITY;
    return get(device, 1 + row * XPU_STREAMS_PER_PRIORITY + (int)turn, stream);
}

xpu_status xpu_stream_from_external(int index, void *queue, xpu_stream **stream) {
    cl_device *device;
    XPU_TRY(cl_get(index, &device));
    XPU_REJECT_IF(!queue, "the queue is NULL");
    xpu_status status = XPU_SUCCESS;
    os_mutex_lock(&create_lock);
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
            status = xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a stream");
        if (status == XPU_SUCCESS) {
            device->api->clRetainCommandQueue(queue);
            /* The queue's address serves as the id; it never equals a pool index. */
            e->stream.device = index;
            e->stream.priority = XPU_PRIORITY_NORMAL;
            e->stream.id = (int64_t)(intptr_t)queue;
            e->stream.queue = queue;
            e->stream.host = device->host;
            e->stream.external = true;
            atomic_init(&e->stream.keeps_times, true);
            os_rwlock_init(&e->stream.gate);
            os_mutex_init(&e->stream.query_lock);
            e->next = atomic_load(&externals);
            atomic_store_explicit(&externals, e, memory_order_release);
        }
    }
    os_mutex_unlock(&create_lock);
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

xpu_status xpu_stream_native(xpu_stream *stream, void **queue) {
    XPU_TRY(stream_keep_times(stream)); /* so that the queue is never replaced afterwards */
    *queue = stream->queue;
    return XPU_SUCCESS;
}

xpu_status xpu_stream_from_id(int device, int64_t id, xpu_stream **stream) {
    cl_device *found;
    XPU_TRY(cl_get(device, &found));
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

/* Raises stream->finished to `count`. */
static void note_finished(xpu_stream *stream, unsigned long long count) {
    unsigned long long known = atomic_load(&stream->finished);
    while (known < count && !atomic_compare_exchange_weak(&stream->finished, &known, count)) {}
}

xpu_status stream_finish(xpu_stream *stream) {
    if (xpu_in_bad_fork()) return cl_init();
    if (stream->host) return XPU_SUCCESS;
    const cl_device *device = &cl_devices[stream->device];
    unsigned long long count = atomic_load_explicit(&stream->submitted, memory_order_acquire);
    cl_command_queue queue = stream_enter(stream);
    xpu_status status = cl_check(device->api->clFinish(queue), "->clFinish", device);
    stream_leave(stream);
    if (status == XPU_SUCCESS) note_finished(stream, count);
    return status;
}

xpu_status xpu_stream_synchronize(xpu_stream *stream) {
    XPU_TRY(xpu_stream_refuse_capture(stream, "waiting for a stream (synchronize)"));
    bool watched = atomic_exchange(&stream->watched, false);
    XPU_TRY(stream_finish(stream));
    return fault_check(stream->device, watched);
}

/* XPU_NOT_READY while the marker is pending; otherwise releases it and sets it to NULL. */
static xpu_status ask_marker(const cl_device *device, cl_event *marker) {
    cl_int state = CL_COMPLETE;
    CL_TRY(device, device->api->clGetEventInfo(*marker, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state,
                                               &state, NULL));
    if (state > CL_COMPLETE) return XPU_NOT_READY;
    device->api->clReleaseEvent(*marker);
    *marker = NULL;
    if (state < 0) return cl_fail_lost(device, cl_error_name(state));
    return XPU_SUCCESS;
}

xpu_status stream_put_marker(xpu_stream *stream, bool flush, cl_event *marker) {
    const cl_device *device = &cl_devices[stream->device];
    cl_command_queue queue = stream_enter(stream);
    xpu_status status = cl_check(device->api->clEnqueueMarkerWithWaitList(queue, 0, NULL, marker),
                                 "->clEnqueueMarkerWithWaitList", device);
    if (status == XPU_SUCCESS && flush) {
        status = cl_check(device->api->clFlush(queue), "->clFlush", device);
        if (status != XPU_SUCCESS) device->api->clReleaseEvent(*marker);
    }
    stream_leave(stream);
    return status;
}

/* OpenCL can query a marker but not a queue, and even in an idle queue a new marker is not complete
 * immediately. A pending marker is therefore kept for the next call, and a stream without new work since the
 * last answer needs none. */
static xpu_status query(const cl_device *device, xpu_stream *stream) {
    if (stream->query_marker) {
        XPU_TRY(ask_marker(device, &stream->query_marker));
        note_finished(stream, stream->query_submitted);
    }
    unsigned long long count = atomic_load_explicit(&stream->submitted, memory_order_acquire);
    if (count <= atomic_load(&stream->finished)) return XPU_SUCCESS;
    XPU_TRY(stream_put_marker(stream, true, &stream->query_marker));
    stream->query_submitted = count;
    XPU_TRY(ask_marker(device, &stream->query_marker));
    note_finished(stream, count);
    return XPU_SUCCESS;
}

/* The caller may have enqueued anything to its queue, so each query needs a new marker. It gets 1 ms, because
 * even an idle queue does not complete a marker immediately. */
static xpu_status query_external(const cl_device *device, xpu_stream *stream) {
    cl_event marker;
    XPU_TRY(stream_put_marker(stream, true, &marker));
    const uint64_t end = os_wall_time() + 1000000;
    xpu_status status;
    while ((status = ask_marker(device, &marker)) == XPU_NOT_READY && os_wall_time() < end) {}
    if (marker) device->api->clReleaseEvent(marker);
    return status;
}

xpu_status xpu_stream_query(xpu_stream *stream) {
    if (xpu_in_bad_fork()) return cl_init();
    XPU_TRY(xpu_stream_refuse_capture(stream, "asking whether a stream has finished (query)"));
    if (stream->host) return XPU_SUCCESS;
    const cl_device *device = &cl_devices[stream->device];
    if (stream->external) return query_external(device, stream);
    os_mutex_lock(&stream->query_lock);
    xpu_status status = query(device, stream);
    os_mutex_unlock(&stream->query_lock);
    return status;
}
