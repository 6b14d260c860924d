/* Which streams use a block of memory, and when they have passed: what lets a block be freed while work
 * on other streams than its own may still need it. One tracker serves many blocks; its owner's lock
 * guards it and the blocks' lists. */
#ifndef RUNTIME_STREAM_USE_H
#define RUNTIME_STREAM_USE_H

#include <stdbool.h>
#include <stddef.h>

#include "xpu/stream.h"

/* One stream that uses one block: first in the block's list, then, with an event, in its queue. */
typedef struct stream_use {
    struct stream_use *next;
    struct stream_queue *queue;
    xpu_event *event;
    void *block;
} stream_use;

/* The uses of one stream that wait for their events, oldest first. */
typedef struct stream_queue {
    struct stream_queue *next;
    xpu_stream *stream;
    bool synchronous; /* a host device's: work is done when submitted, no events are needed */
    stream_use *first, **last;
    stream_use *spare; /* uses with an event of this device to use again, or none */
} stream_queue;

typedef struct stream_tracker {
    stream_queue *queues;
    size_t pending; /* uses that wait in all queues */
} stream_tracker;

/* Called when the last use of `block` has passed. `user` is what the caller of poll or wait gave. */
typedef void (*stream_use_done)(void *block, void *user);
/* Whether waiting is for this block too. */
typedef bool (*stream_use_filter)(void *block, void *user);

/* Notes in the block's list that `stream` uses it. The only step that needs host memory. */
xpu_status stream_use_add(stream_tracker *tracker, stream_use **list, xpu_stream *stream);

/* The block is given up: marks what its streams have been given so far. Empties the list; *waiting gets
 * the number of streams that have not passed. A stream that can't be marked is waited for instead. */
void stream_use_submit(stream_tracker *tracker, stream_use **list, void *block, int *waiting);

/* Finds the uses that have passed; each takes one off *waiting(block), and at 0 `done` is called. */
typedef int *(*stream_use_waiting)(void *block);
xpu_status stream_use_poll(stream_tracker *tracker, stream_use_waiting waiting, stream_use_done done,
                           void *user);
/* The same, waiting for all uses that `filter` (NULL: all) says yes to. */
xpu_status stream_use_wait(stream_tracker *tracker, stream_use_filter filter, stream_use_waiting waiting,
                           stream_use_done done, void *user);

#endif
