/* xpu/stream.h: streams (in-order queues of work) and events (points in them).
 *
 * Work of one stream runs in order. Streams of one device run independently unless events order them.
 * CPU devices with `has_local_exec`: work is done when the submitting call returns.
 * Lifetime: streams live as long as the process; the pool hands them out again. */
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

/* A stream of that priority from the pool, round robin over XPU_STREAMS_PER_PRIORITY. The priority is a hint
 * to the driver; on Intel GPUs before Xe-HP it has no effect. */
XPU_API xpu_status xpu_stream_from_pool(int device, int priority, xpu_stream **stream);

/* A stream for the caller's cl_command_queue, which must be in-order and of a context that libxpu created or
 * shares. The queue is retained for the process's lifetime. The same queue gives the same stream. */
XPU_API xpu_status xpu_stream_from_external(int device, void *queue, xpu_stream **stream);

/* The calling thread's current stream on `device`; initially the default stream. */
XPU_API xpu_status xpu_stream_current(int device, xpu_stream **stream);
XPU_API xpu_status xpu_stream_set_current(xpu_stream *stream);

/* The stream's id, unique on its device (default stream: 0), and the stream of an id. */
XPU_API int64_t xpu_stream_id(const xpu_stream *stream);
XPU_API xpu_status xpu_stream_from_id(int device, int64_t id, xpu_stream **stream);
XPU_API int xpu_stream_device(const xpu_stream *stream);
XPU_API int xpu_stream_priority(const xpu_stream *stream);

/* The stream's cl_command_queue. Once requested, it never changes. */
XPU_API xpu_status xpu_stream_native(xpu_stream *stream, void **queue);

/* XPU_SUCCESS if all submitted work has finished, else XPU_NOT_READY. */
XPU_API xpu_status xpu_stream_query(xpu_stream *stream);
XPU_API xpu_status xpu_stream_synchronize(xpu_stream *stream);

/* Work submitted to `stream` later starts after the last recorded point of `event`. An event never recorded
 * has no effect. */
XPU_API xpu_status xpu_stream_wait(xpu_stream *stream, xpu_event *event);

/* An event, owned by the caller. Only events created with `timing` measure time. */
XPU_API xpu_status xpu_event_create(int device, bool timing, xpu_event **event);
XPU_API xpu_status xpu_event_destroy(xpu_event *event);
XPU_API int xpu_event_device(const xpu_event *event);

/* Records the current end of `stream`; replaces an earlier record. */
XPU_API xpu_status xpu_event_record(xpu_event *event, xpu_stream *stream);

/* XPU_SUCCESS if the recorded point was reached, or the event was never recorded; else XPU_NOT_READY. */
XPU_API xpu_status xpu_event_query(xpu_event *event);
XPU_API xpu_status xpu_event_synchronize(xpu_event *event);

/* Device time from `start` to `end` in milliseconds.
 *
 * Errors: XPU_ERROR_INVALID_ARGUMENT for events without timing or never recorded; XPU_NOT_READY if one has
 *     not happened yet. */
XPU_API xpu_status xpu_event_elapsed(xpu_event *start, xpu_event *end, double *milliseconds);

#ifdef __cplusplus
}
#endif
#endif
