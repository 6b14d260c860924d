/* Events: an OpenCL marker in a queue. On CPU devices, where work completes during the submitting call, an
 * event only stores a time. In a capture an event stores its position (graph_mark) instead.
 *
 * The creator owns an event and destroys it. Threads must not use one event at the same time, except in
 * xpu_event_query, xpu_event_synchronize and xpu_stream_wait. */
#include "runtime/graph.h"

struct xpu_event {
    int device;
    bool timing, recorded;
    cl_event marker; /* NULL on CPU devices */
    uint64_t time;   /* CPU devices: time of recording, in nanoseconds */
    /* The stream whose queue may not have been flushed since the marker. A flush is needed only before
     * another queue or the host waits; recording is far more frequent, so it does not flush. */
    _Atomic(xpu_stream *) unflushed;
    graph_mark mark; /* set if it was last recorded in a capture; `marker` is NULL then */
};

xpu_status xpu_event_create(int device, bool timing, xpu_event **event) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    xpu_event *e = core_calloc(1, sizeof *e);
    if (!e) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for an event");
    e->device = device;
    e->timing = timing;
    *event = e;
    return XPU_SUCCESS;
}

xpu_status xpu_event_destroy(xpu_event *event) {
    if (!event) return XPU_SUCCESS;
    const cl_device *device = &cl_devices[event->device];
    xpu_status status = XPU_SUCCESS;
    if (event->marker && !xpu_in_bad_fork())
        status = cl_check(device->api->clReleaseEvent(event->marker), "->clReleaseEvent", device);
    core_free(event);
    return status;
}

int xpu_event_device(const xpu_event *event) { return event->device; }

xpu_status xpu_event_record(xpu_event *event, xpu_stream *stream) {
    if (xpu_in_bad_fork()) return cl_init();
    XPU_REJECT_IF(event->device != stream->device, "an event of device %d can't be recorded on device %d",
                  event->device, stream->device);
    xpu_graph *capture = stream_capture(stream);
    if (capture) {
        XPU_TRY(graph_mark_stream(capture, stream, &event->mark));
        if (event->marker) cl_devices[event->device].api->clReleaseEvent(event->marker);
        event->marker = NULL;
        event->recorded = true;
        return XPU_SUCCESS;
    }
    event->mark.capture = 0;
    if (stream->host) {
        event->time = os_wall_time();
        event->recorded = true;
        return XPU_SUCCESS;
    }
    const cl_device *device = &cl_devices[event->device];
    cl_event marker;
    if (event->timing) XPU_TRY(stream_keep_times(stream));
    XPU_TRY(stream_put_marker(stream, false, &marker));
    if (event->marker) device->api->clReleaseEvent(event->marker);
    event->marker = marker;
    event->recorded = true;
    stream_note_work(stream);
    atomic_store_explicit(&event->unflushed, stream, memory_order_release);
    return XPU_SUCCESS;
}

static xpu_status flush(xpu_event *event) {
    xpu_stream *stream = atomic_exchange_explicit(&event->unflushed, NULL, memory_order_acq_rel);
    if (!stream) return XPU_SUCCESS;
    const cl_device *device = &cl_devices[stream->device];
    cl_command_queue queue = stream_enter(stream);
    cl_int error = device->api->clFlush(queue);
    stream_leave(stream);
    return cl_check(error, "->clFlush", device);
}

xpu_status xpu_event_query(xpu_event *event) {
    if (xpu_in_bad_fork()) return cl_init();
    if (event->mark.capture && graph_mark_is_open(&event->mark)) return XPU_NOT_READY;
    if (!event->marker) return XPU_SUCCESS;
    const cl_device *device = &cl_devices[event->device];
    cl_int state = CL_COMPLETE;
    XPU_TRY(flush(event));
    CL_TRY(device, device->api->clGetEventInfo(event->marker, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state,
                                               &state, NULL));
    if (state < 0) return cl_fail_lost(device, cl_error_name(state));
    return state == CL_COMPLETE ? XPU_SUCCESS : XPU_NOT_READY;
}

xpu_status event_finish(xpu_event *event) {
    if (xpu_in_bad_fork()) return cl_init();
    if (!event->marker) return XPU_SUCCESS;
    const cl_device *device = &cl_devices[event->device];
    CL_TRY(device, device->api->clWaitForEvents(1, &event->marker));
    return XPU_SUCCESS;
}

xpu_status xpu_event_synchronize(xpu_event *event) {
    XPU_REJECT_IF(event->mark.capture && graph_mark_is_open(&event->mark),
                  "an event recorded during a capture completes only in replays");
    XPU_TRY(event_finish(event));
    return fault_check(event->device, event->recorded);
}

xpu_status xpu_stream_wait(xpu_stream *stream, xpu_event *event) {
    if (xpu_in_bad_fork()) return cl_init();
    if (event->mark.capture) return graph_join(stream, &event->mark);
    if (event->recorded)
        XPU_TRY(xpu_stream_refuse_capture(stream, "waiting for work that is not part of the capture"));
    if (!event->marker || stream->host) /* never recorded, or on a CPU device: already complete */
        return XPU_SUCCESS;
    if (event->device != stream->device) return event_finish(event); /* contexts don't share events */
    const cl_device *device = &cl_devices[stream->device];
    XPU_TRY(flush(event));
    cl_command_queue queue = stream_enter(stream);
    xpu_status status = cl_check(device->api->clEnqueueBarrierWithWaitList(queue, 1, &event->marker, NULL),
                                 "->clEnqueueBarrierWithWaitList", device);
    if (status == XPU_SUCCESS) stream_note_work(stream);
    stream_leave(stream);
    return status;
}

static xpu_status time_of(const xpu_event *event, uint64_t *time) {
    if (!event->marker) {
        *time = event->time;
        return XPU_SUCCESS;
    }
    const cl_device *device = &cl_devices[event->device];
    cl_ulong end = 0;
    CL_TRY(device, device->api->clGetEventProfilingInfo(event->marker, CL_PROFILING_COMMAND_END, sizeof end,
                                                        &end, NULL));
    *time = end;
    return XPU_SUCCESS;
}

xpu_status xpu_event_elapsed(xpu_event *start, xpu_event *end, double *milliseconds) {
    XPU_REJECT_IF(start->device != end->device, "the events belong to different devices, %d and %d",
                  start->device, end->device);
    XPU_REJECT_IF(!start->timing || !end->timing,
                  "both events must be created with argument 'enable_timing=True'");
    XPU_REJECT_IF(!start->recorded || !end->recorded,
                  "both events must be recorded before calculating elapsed time");
    XPU_REJECT_IF(start->mark.capture || end->mark.capture, "events recorded during a capture have no times");
    XPU_TRY(xpu_event_query(start));
    XPU_TRY(xpu_event_query(end));
    uint64_t from, to;
    XPU_TRY(time_of(start, &from));
    XPU_TRY(time_of(end, &to));
    *milliseconds = ((double)to - (double)from) * 1e-6;
    return XPU_SUCCESS;
}
