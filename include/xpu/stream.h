/* xpu/stream.h: streams (in-order queues of work) and events (marks in them).
 *
 * Work given to one stream runs in the order given; streams of one device run independently unless
 * events order them. On a host device with `has_local_exec` work is done when the call that submits it
 * returns. Streams live as long as the process and are never destroyed: the pool hands them out again. */
#ifndef XPU_STREAM_H
#define XPU_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_stream xpu_stream;
typedef struct xpu_event xpu_event;

/* Priorities: lower is more urgent. */
#define XPU_PRIORITY_HIGH (-1)
#define XPU_PRIORITY_NORMAL 0
#define XPU_PRIORITY_LOW 1
#define XPU_STREAMS_PER_PRIORITY 32

/* The default stream of `device`. */
XPU_API xpu_status xpu_stream_default(int device, xpu_stream **stream);

/* One of the pool's streams of that priority, round robin (XPU_STREAMS_PER_PRIORITY each). */
XPU_API xpu_status xpu_stream_from_pool(int device, int priority, xpu_stream **stream);

/* A stream around a caller's cl_command_queue (in order, of a context that libxpu made or shares). The
 * queue is retained for good; the same queue gives the same stream. */
XPU_API xpu_status xpu_stream_from_external(int device, void *queue, xpu_stream **stream);

/* The calling thread's current stream on `device`: the default stream until one is set. */
XPU_API xpu_status xpu_stream_current(int device, xpu_stream **stream);
XPU_API xpu_status xpu_stream_set_current(xpu_stream *stream);

/* A number for the stream that is unique on its device (default stream: 0), and the way back. */
XPU_API int64_t xpu_stream_id(const xpu_stream *stream);
XPU_API xpu_status xpu_stream_from_id(int device, int64_t id, xpu_stream **stream);
XPU_API int xpu_stream_device(const xpu_stream *stream);
XPU_API int xpu_stream_priority(const xpu_stream *stream);

/* The cl_command_queue, which is the stream's for good once it has been asked for. */
XPU_API xpu_status xpu_stream_native(xpu_stream *stream, void **queue);

/* XPU_SUCCESS when all submitted work has finished, else XPU_NOT_READY. */
XPU_API xpu_status xpu_stream_query(xpu_stream *stream);
XPU_API xpu_status xpu_stream_synchronize(xpu_stream *stream);

/* Work submitted to `stream` from now on starts after `event`, as last recorded, has happened. An event
 * never recorded is no wait. */
XPU_API xpu_status xpu_stream_wait(xpu_stream *stream, xpu_event *event);

/* An event, destroyed by its owner. Only one made with `timing` can measure time. */
XPU_API xpu_status xpu_event_create(int device, bool timing, xpu_event **event);
XPU_API xpu_status xpu_event_destroy(xpu_event *event);
XPU_API int xpu_event_device(const xpu_event *event);

/* Marks the end of what `stream` has been given so far; recording again moves the mark. */
XPU_API xpu_status xpu_event_record(xpu_event *event, xpu_stream *stream);

/* XPU_SUCCESS when the mark has been reached (or the event was never recorded), else XPU_NOT_READY. */
XPU_API xpu_status xpu_event_query(xpu_event *event);
XPU_API xpu_status xpu_event_synchronize(xpu_event *event);

/* Milliseconds from `start` to `end`, by the device's clock. Both must have been made with timing, been
 * recorded, and have happened: else XPU_ERROR_INVALID_ARGUMENT, or XPU_NOT_READY. */
XPU_API xpu_status xpu_event_elapsed(xpu_event *start, xpu_event *end, double *milliseconds);

#ifdef __cplusplus
}
#endif
#endif
