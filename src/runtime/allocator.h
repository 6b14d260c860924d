/* The inside of the caching allocator: its structures, and pools that belong to one user.
 *
 *   device_memory   all memory of one device, behind one lock
 *     memory_pool   the default pool (id 0,0), or one that a graph or a user's MemPool owns
 *       arena       the free blocks of one stream, small or large
 *     segment       a piece from the driver; cut into blocks that lie side by side without gaps
 *       block       handed out, waiting for other streams, or free (and then in its arena's tree) */
#ifndef RUNTIME_ALLOCATOR_H
#define RUNTIME_ALLOCATOR_H

#include "core/os.h"
#include "runtime/range_tree.h"
#include "runtime/stream_use.h"
#include "xpu/memory.h"

enum {
    BLOCK_MIN = 512,      /* every size is a multiple of it */
    SMALL_SIZE = 1 << 20, /* the largest request that is served from a small segment */
    SMALL_SEGMENT = 2 << 20,
    LARGE_SEGMENT = 20 << 20, /* for requests below LARGE_MIN, unless it is set */
    LARGE_MIN = 10 << 20,     /* from here on segments are the request's size, rounded up … */
    LARGE_ROUND = 2 << 20,    /* … to a multiple of this */
    ASK_FROM = 32 << 20,      /* of host memory: the system is asked, at the cost of reading a few files */
    SMALL_CLASSES = SMALL_SEGMENT / BLOCK_MIN
};

typedef struct block {
    range_node node;           /* its address and size; first, so that trees give blocks */
    struct block *prev, *next; /* neighbors in the segment */
    struct segment *segment;
    struct arena *arena;
    size_t requested; /* what the caller asked for */
    stream_use *uses; /* other streams that use it */
    int waiting;      /* of these, how many have not passed since it was freed */
    bool allocated;
    uint64_t time;       /* when it was handed out, by allocator_tick */
    uint64_t idle_since; /* when it was freed, in requests to its device */
    const void *context; /* from the history hook */
} block;

typedef struct segment {
    struct segment *before, *after; /* all segments of the device, by address */
    char *base;
    size_t size;
    int shift; /* blocks starts are found by offset >> shift: no two share one */
    const void *context;
    block *starts[];
} segment;

typedef struct arena {
    struct arena *next;
    struct memory_pool *pool;
    xpu_stream *stream;
    int64_t stream_id;
    bool large;
    /* Large: one tree. Small: a tree for each size, and bits that tell which of them hold anything. */
    uint64_t words, bits[SMALL_CLASSES / 64];
    range_node *trees[];
} arena;

enum { ARENA_BUCKETS = 64 };

typedef enum pool_trait { POOL_USE_ON_OOM = 1, POOL_NO_SPLIT = 2 } pool_trait;

typedef struct memory_pool {
    struct memory_pool *next;
    uint64_t id[2];
    int users; /* of a private pool; at 0 it goes away with its last segment */
    size_t segments;
    xpu_pool_source source;          /* of its segments; the driver where it has no functions */
    unsigned traits;                 /* pool_trait */
    arena *arenas[2][ARENA_BUCKETS]; /* small, large; by stream */
} memory_pool;

typedef struct pool_capture {
    struct pool_capture *next;
    memory_pool *pool;
    xpu_pool_filter filter;
    void *user;
} pool_capture;

typedef struct device_memory {
    os_mutex lock; /* guards everything here and all that hangs on it */
    int device;
    memory_pool pool; /* the default pool */
    memory_pool *private_pools;
    pool_capture *captures; /* newest first */
    segment *segments;
    block *spare; /* structures for blocks to come */
    stream_tracker tracker;
    xpu_memory_stats stats;
    double fraction; /* 0: not set */
    size_t allowed;
    uint64_t requests; /* so far */
    xpu_memory_hook hook;
    void *hook_user;
} device_memory;

/* The memory of `device`, locked. */
xpu_status device_memory_lock(int device, device_memory **m);
static inline void device_memory_unlock(device_memory *m) { os_mutex_unlock(&m->lock); }

/* Gives unused segments back to the driver: those of `only`, a private pool without users, or (NULL) of
 * the default pool, unless allocations are being captured, and of every private pool without users. */
xpu_status device_memory_release(device_memory *m, memory_pool *only);

/* A block that is handed out is given up, as by xpu_free. */
void device_memory_take_back(device_memory *m, block *b);
/* Waits until no block waits for other streams. */
xpu_status device_memory_settle(device_memory *m);
/* Hands out just those bytes of a free block, as what was handed out at `time`. */
xpu_status device_memory_hand_out(device_memory *m, char *address, size_t size, size_t requested,
                                  uint64_t time);

/* The size from which on blocks are never cut; 0 where all may be. */
size_t allocator_max_split(void);

/* Bytes that the driver should be able to give; an estimate. */
size_t device_memory_free_bytes(const device_memory *m, size_t *total);

/* A clock that goes on when somebody ticks, and gives the new time, 1 and later. */
uint64_t allocator_tick(void);
/* When the block at `pointer` was handed out; 0 for other memory. */
uint64_t allocator_time_of(const void *pointer);

static inline bool block_is_free(const block *b) { return !b->allocated && !b->uses && b->waiting == 0; }

#endif
