/* The inside of src/runtime, shared by its files. */
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

/* Threads that launch get a slot number each, and with it kernel objects and a queue of their own, so that
 * no lock is needed. Slots come back when their thread ends. Threads beyond the last slot take a lock. */
#define MAX_SLOTS 64
/* The calling thread's slot, or -1 when all are taken. */
int slot_get(void);

struct xpu_stream {
    int device;
    int priority;
    int64_t id;
    cl_command_queue queue;       /* to be used between stream_enter and stream_leave */
    os_rwlock gate;               /* guards `queue` on other than host devices: writing is changing it */
    atomic_bool keeps_times;      /* the queue keeps the times of its commands, or nobody can make it */
    bool host;                    /* on a host device: work is done when the submitting call returns */
    bool external;                /* a caller's queue, into which the caller may put work of its own */
    _Atomic(uint32_t *) counters; /* xpu_workspace_counters; NULL before the first use */
    atomic_ullong submitted;      /* commands put into the queue so far; counted on other than host devices */
    _Atomic(struct xpu_graph *) capture; /* that it is part of; mostly NULL */
    atomic_bool watched;    /* kernels that may report a fault (fault.h) since the last synchronization */
    atomic_ullong finished; /* so many of them are known to be done */
    os_mutex query_lock;    /* guards the two below */
    cl_event query_marker;  /* of an xpu_stream_query that has not seen its end yet; or NULL */
    unsigned long long query_submitted; /* `submitted` when it was put in */
};

/* The queue, which stays the stream's until stream_leave. Every command goes in between. */
static inline cl_command_queue stream_enter(xpu_stream *stream) {
    if (!stream->host) os_rwlock_read_lock(&stream->gate);
    return stream->queue;
}
static inline void stream_leave(xpu_stream *stream) {
    if (!stream->host) os_rwlock_read_unlock(&stream->gate);
}

/* From now on the stream's commands keep their times (events of timing, profiling). A queue that keeps times
 * takes longer for each event and copy, and what a queue does is settled when it is made: so the stream
 * begins with one that doesn't and changes to another, in order, when times are first wanted. */
xpu_status stream_keep_times(xpu_stream *stream);

/* A marker of what the stream has been given so far; `flush`: on its way to the device. */
xpu_status stream_put_marker(xpu_stream *stream, bool flush, cl_event *marker);

/* Notes that a command was put into the stream's queue; call it after putting it in. */
static inline void stream_note_work(xpu_stream *stream) {
    atomic_fetch_add_explicit(&stream->submitted, 1, memory_order_release);
}

/* xpu_memcpy, less the report of faults. *waited (may be NULL): the stream's work has been waited for. */
xpu_status stream_copy(xpu_stream *stream, void *to, const void *from, size_t size, bool blocking,
                       bool *waited);

/* The queue that runs kernels on the calling thread of a host device with has_local_exec. */
xpu_status slot_queue(int slot, int device, cl_command_queue *queue);

/* Streams that have been made so far on a device, in no order: calls `visit` for each until it fails. */
xpu_status stream_visit(int device, xpu_status (*visit)(xpu_stream *stream, void *user), void *user);

/* --- program cache (cache.c) --- */
/* The binary stored for `key`; the caller frees *data. XPU_ERROR_IO when there is none or it is damaged;
 * the error text is not written for that. */
xpu_status cache_load(const char *key, unsigned char **data, size_t *size);
void cache_store(const char *key, const unsigned char *data, size_t size);

/* --- profiling (profile.c) --- */
extern atomic_bool profile_on;
/* Files a record; `event`, if any, gives start and end later and is released then. */
void profile_add(const char *name, const xpu_stream *stream, uint64_t submitted, uint64_t started,
                 uint64_t ended, uint64_t bytes, cl_event event);

/* Bits that say what the host's processor can do. */
uint64_t processor_features(void);

/* Takes what was measured on the device, if it was, once (tuning.c). */
void tuning_load(int device);

#endif
