/* Internal declarations shared by the files of src/runtime: streams, launch slots, program cache, profiling.
 * Streams and devices live until the process ends. Any thread may call any function here. Functions that
 * return xpu_status write the error text of xpu_last_error(); exceptions are named at the function. */
#ifndef RUNTIME_RUNTIME_H
#define RUNTIME_RUNTIME_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cl/cl.h"
#include "core/os.h"
#include "runtime/fault.h"
#include "xpu/memory.h"
#include "xpu/program.h"
#include "xpu/stream.h"

/* Each launching thread owns a slot: its own kernel objects and its own queue, so a launch takes no lock.
 * A slot is returned when its thread exits. Threads that find no free slot share objects behind a lock. */
#define MAX_SLOTS 64
/* The calling thread's slot, or -1 if all slots are taken. */
int slot_get(void);

struct xpu_stream {
    int device;
    int priority;
    int64_t id;
    cl_command_queue queue;       /* use it only between stream_enter and stream_leave */
    os_rwlock gate;               /* guards `queue` on devices that are not the host's; replacing it writes */
    atomic_bool keeps_times;      /* profiling is enabled on the queue, or cannot be */
    bool host;                    /* on a CPU device: work is done when the submitting call returns */
    bool external;                /* the caller's queue; the caller may enqueue commands of its own */
    _Atomic(uint32_t *) counters; /* xpu_workspace_counters; NULL before the first use */
    atomic_ullong submitted;      /* commands enqueued so far; not counted on CPU devices */
    _Atomic(struct xpu_graph *) capture; /* the capture that the stream is part of, or NULL */
    atomic_bool watched; /* a kernel that may report a fault (fault.h) ran since the last synchronization */
    atomic_ullong finished; /* of `submitted`, how many are known to be complete */
    os_mutex query_lock;    /* guards query_marker and query_submitted */
    cl_event query_marker;  /* marker of an earlier xpu_stream_query that is still pending, or NULL */
    unsigned long long query_submitted; /* `submitted` when query_marker was enqueued */
};

/* Returns the queue, which cannot be replaced until stream_leave. Enqueue every command between the two. */
static inline cl_command_queue stream_enter(xpu_stream *stream) {
    if (!stream->host) os_rwlock_read_lock(&stream->gate);
    return stream->queue;
}
static inline void stream_leave(xpu_stream *stream) {
    if (!stream->host) os_rwlock_read_unlock(&stream->gate);
}

/* Enables command profiling, for timing events and the profiler. A profiling queue is slower for every event
 * and copy, and OpenCL fixes the property when it creates the queue. A stream therefore starts without
 * profiling and moves to a second queue, in order, when times are first needed. */
xpu_status stream_keep_times(xpu_stream *stream);

/* Enqueues a marker behind everything submitted so far. `flush` also flushes the queue. The caller releases
 * *marker. */
xpu_status stream_put_marker(xpu_stream *stream, bool flush, cl_event *marker);

/* Counts a command; call it after enqueueing. */
static inline void stream_note_work(xpu_stream *stream) {
    atomic_fetch_add_explicit(&stream->submitted, 1, memory_order_release);
}

/* xpu_memcpy without the fault check. *waited (may be NULL) is set if the call waited for the stream. */
xpu_status stream_copy(xpu_stream *stream, void *to, const void *from, size_t size, bool blocking,
                       bool *waited);

/* The queue on which a CPU device with has_local_exec runs kernels on the calling thread. The slot owns it.
 */
xpu_status slot_queue(int slot, int device, cl_command_queue *queue);

/* Calls `visit` for each existing stream of the device, in no particular order, until a call fails. */
xpu_status stream_visit(int device, xpu_status (*visit)(xpu_stream *stream, void *user), void *user);

/* --- program cache (cache.c) --- */
/* Reads the binary stored for `key`; the caller frees *data. Returns XPU_ERROR_IO, without an error text, if
 * the entry is missing or damaged. */
xpu_status cache_load(const char *key, unsigned char **data, size_t *size);
void cache_store(const char *key, const unsigned char *data, size_t size);

/* --- profiling (profile.c) --- */
extern atomic_bool profile_on;
/* Adds a record. Takes ownership of `event` (may be NULL), which supplies start and end when records are
 * drained. */
void profile_add(const char *name, const xpu_stream *stream, uint64_t submitted, uint64_t started,
                 uint64_t ended, uint64_t bytes, cl_event event);

/* CPU features of the host, one bit each; part of cache keys. */
uint64_t processor_features(void);

/* Loads the device's measured tuning values on the first call, if there are any (tuning.c). */
void tuning_load(int device);

#endif
