/* Tracks which streams use a memory block and when their work has completed. A block can be freed while other
 * streams still use it; it is reused only after they have finished. One tracker serves many blocks. The
 * owner's lock guards the tracker and the blocks' lists: hold it in every call. */
#ifndef RUNTIME_STREAM_USE_H
#define RUNTIME_STREAM_USE_H

#include <stdbool.h>
#include <stddef.h>

#include "xpu/stream.h"

/* One stream's use of one block: in the block's list while it is allocated, then, with an event, in the
 * stream's queue. */
typedef struct stream_use {
    struct stream_use *next;
    struct stream_queue *queue;
    xpu_event *event;
    void *block;
} stream_use;

/* Pending uses of one stream, oldest first. */
typedef struct stream_queue {
    struct stream_queue *next;
    xpu_stream *stream;
    bool synchronous; /* on a CPU device: work is done when submitted, so no events are needed */
    stream_use *first, **last;
    stream_use *spare; /* free structures, each with an event of this device to reuse, or none */
} stream_queue;

typedef struct stream_tracker {
    stream_queue *queues;
    size_t pending; /* pending uses in all queues */
} stream_tracker;

/* Called when the last use of `block` has completed. `user` is the pointer passed to poll or wait. */
typedef void (*stream_use_done)(void *block, void *user);
/* Selects the blocks to wait for. */
typedef bool (*stream_use_filter)(void *block, void *user);

/* Adds `stream` to the block's list. The only call that allocates: XPU_ERROR_OUT_OF_HOST_MEMORY. */
xpu_status stream_use_add(stream_tracker *tracker, stream_use **list, xpu_stream *stream);

/* Called when the block is freed: records an event in each stream of the list and empties the list. *waiting
 * grows by the number of pending streams. If recording fails, it waits for that stream instead. */
void stream_use_submit(stream_tracker *tracker, stream_use **list, void *block, int *waiting);

/* Finds completed uses without waiting. Each decrements *waiting(block); at 0 `done` is called. */
typedef int *(*stream_use_waiting)(void *block);
xpu_status stream_use_poll(stream_tracker *tracker, stream_use_waiting waiting, stream_use_done done,
                           void *user);
/* The same, but waits for every use that `filter` selects (NULL: all). */
xpu_status stream_use_wait(stream_tracker *tracker, stream_use_filter filter, stream_use_waiting waiting,
                           stream_use_done done, void *user);

#endif
