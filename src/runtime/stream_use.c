/* Tracking of stream uses (stream_use.h). The owner's lock guards everything; events are recycled, so after
 * warm-up neither submit nor poll allocates. */
#include "runtime/stream_use.h"

#include "core/memory.h"
#include "core/status.h"
#include "runtime/fault.h"
#include "xpu/device.h"

/* The queue of `stream`, created on first use; NULL if host memory is exhausted. */
static stream_queue *find_queue(stream_tracker *tracker, xpu_stream *stream) {
    for (stream_queue *q = tracker->queues; q; q = q->next)
        if (q->stream == stream) return q;
    const xpu_device_properties *properties;
    if (xpu_device_get_properties(xpu_stream_device(stream), &properties) != XPU_SUCCESS) return NULL;
    stream_queue *q = core_calloc(1, sizeof *q);
    if (!q) return NULL;
    q->stream = stream;
    q->synchronous = properties->type == XPU_DEVICE_CPU;
    q->last = &q->first;
    q->next = tracker->queues;
    return tracker->queues = q;
}

xpu_status stream_use_add(stream_tracker *tracker, stream_use **list, xpu_stream *stream) {
    for (stream_use *u = *list; u; u = u->next)
        if (u->queue->stream == stream) return XPU_SUCCESS;
    stream_queue *q = find_queue(tracker, stream);
    stream_use *u = q ? q->spare : NULL;
    if (u)
        q->spare = u->next;
    else if (!q || !(u = core_calloc(1, sizeof *u)))
        return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY,
                        "out of host memory while recording a stream for a block");
    u->queue = q;
    u->next = *list;
    *list = u;
    return XPU_SUCCESS;
}

static void put_back(stream_use *u) {
    u->block = NULL;
    u->next = u->queue->spare;
    u->queue->spare = u;
}

/* Records u->event behind everything submitted to the stream. */
static xpu_status mark(stream_use *u) {
    xpu_stream *stream = u->queue->stream;
    if (!u->event) XPU_TRY(xpu_event_create(xpu_stream_device(stream), false, &u->event));
    return xpu_event_record(u->event, stream);
}

void stream_use_submit(stream_tracker *tracker, stream_use **list, void *block, int *waiting) {
    stream_use *u = *list;
    *list = NULL;
    while (u) {
        stream_use *next = u->next;
        stream_queue *q = u->queue;
        if (q->synchronous && xpu_stream_query(q->stream) == XPU_SUCCESS) {
            put_back(u);
        } else if (mark(u) == XPU_SUCCESS) {
            u->block = block;
            u->next = NULL;
            *q->last = u;
            q->last = &u->next;
            tracker->pending++;
            ++*waiting;
        } else {
            /* Without an event, wait for the whole stream. If even that fails, the device is lost and no work
             * remains that could use the block. */
            stream_finish(q->stream);
            put_back(u);
        }
        u = next;
    }
}

static void pass(stream_tracker *tracker, stream_use *u, stream_use_waiting waiting, stream_use_done done,
                 void *user) {
    void *block = u->block;
    tracker->pending--;
    put_back(u);
    if (--*waiting(block) == 0) done(block, user);
}

xpu_status stream_use_poll(stream_tracker *tracker, stream_use_waiting waiting, stream_use_done done,
                           void *user) {
    for (stream_queue *q = tracker->queues; q && tracker->pending; q = q->next) {
        while (q->first) {
            stream_use *u = q->first;
            xpu_status status = xpu_event_query(u->event);
            if (status == XPU_NOT_READY) break; /* later uses of the stream are not ready either */
            XPU_TRY(status);
            q->first = u->next;
            if (!q->first) q->last = &q->first;
            pass(tracker, u, waiting, done, user);
        }
    }
    return XPU_SUCCESS;
}

xpu_status stream_use_wait(stream_tracker *tracker, stream_use_filter filter, stream_use_waiting waiting,
                           stream_use_done done, void *user) {
    for (stream_queue *q = tracker->queues; q && tracker->pending; q = q->next) {
        stream_use **at = &q->first;
        while (*at) {
            stream_use *u = *at;
            if (filter && !filter(u->block, user)) {
                at = &u->next;
                continue;
            }
            XPU_TRY(event_finish(u->event));
            *at = u->next;
            if (!u->next) q->last = at;
            pass(tracker, u, waiting, done, user);
        }
    }
    return XPU_SUCCESS;
}
