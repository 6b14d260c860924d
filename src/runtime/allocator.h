/* Internal structures of the caching allocator.
 *
 *   device_memory   all memory of one device, behind one lock
 *     memory_pool   the default pool (id 0,0), or a private pool of a graph or of a user's MemPool
 *       arena       the free blocks of one stream, small or large
 *     segment       one allocation from the driver, divided into contiguous blocks without gaps
 *       block       allocated, waiting for other streams, or free (and then in its arena's tree)
 *
 * Locking: functions that take a device_memory expect its lock to be held; the others may be called from any
 * thread. The allocator owns every structure here; none of them moves while it is in use. */
#ifndef RUNTIME_ALLOCATOR_H
#define RUNTIME_ALLOCATOR_H

#include "core/os.h"
#include "runtime/range_tree.h"
#include "runtime/stream_use.h"
#include "xpu/memory.h"

enum {
    BLOCK_MIN = 512,      /* every block size is a multiple of this */
    SMALL_SIZE = 1 << 20, /* the largest request that is served from a small segment */
    SMALL_SEGMENT = 2 << 20,
    LARGE_SEGMENT = 20 << 20, /* for requests below LARGE_MIN; xpu_memory_configure can change it */
    LARGE_MIN = 10 << 20,     /* from here on a segment is the request's size rounded up … */
    LARGE_ROUND = 2 << 20,    /* … to a multiple of this */
    ASK_FROM = 32 << 20, /* on CPU devices, check the system's free memory from this size on; reads files */
    SMALL_CLASSES = SMALL_SEGMENT / BLOCK_MIN
};

typedef struct block {
    range_node node;           /* address and size; first, so that a tree node casts to its block */
    struct block *prev, *next; /* neighbors in the segment */
    struct segment *segment;
    struct arena *arena;
    size_t requested; /* what the caller asked for */
    stream_use *uses; /* other streams that use it */
    int waiting;      /* of these, how many still had work pending when it was freed and have not finished */
    bool allocated;
    uint64_t time;       /* allocator_tick at allocation */
    uint64_t idle_since; /* device_memory.requests when it was freed */
    const void *context; /* returned by the history hook */
} block;

typedef struct segment {
    struct segment *before, *after; /* all segments of the device, by address */
    char *base;
    size_t size;
    int shift; /* index into `starts` is offset >> shift; no two blocks share an index */
    const void *context;
    block *starts[];
} segment;

typedef struct arena {
    struct arena *next;
    struct memory_pool *pool;
    xpu_stream *stream;
    int64_t stream_id;
    bool large;
    /* Large: one tree. Small: one tree per size, and a two-level bitmap of the nonempty ones. */
    uint64_t words, bits[SMALL_CLASSES / 64];
    range_node *trees[];
} arena;

enum { ARENA_BUCKETS = 64 };

typedef enum pool_trait { POOL_USE_ON_OOM = 1, POOL_NO_SPLIT = 2 } pool_trait;

typedef struct memory_pool {
    struct memory_pool *next;
    uint64_t id[2];
    int users; /* private pools only; at 0 the pool is destroyed with its last segment */
    size_t segments;
    xpu_pool_source source;          /* where segments come from; without functions, the driver */
    unsigned traits;                 /* pool_trait */
    arena *arenas[2][ARENA_BUCKETS]; /* small and large; hashed by stream */
} memory_pool;

typedef struct pool_capture {
    struct pool_capture *next;
    memory_pool *pool;
    xpu_pool_filter filter;
    void *user;
} pool_capture;

typedef struct device_memory {
    os_mutex lock; /* guards this structure and everything reachable from it */
    int device;
    memory_pool pool; /* the default pool */
    memory_pool *private_pools;
    pool_capture *captures; /* newest first */
    segment *segments;
    block *spare; /* unused block structures */
    stream_tracker tracker;
    xpu_memory_stats stats;
    double fraction;   /* 0: not set */
    size_t allowed;    /* bytes; valid if `fraction` is set */
    uint64_t requests; /* allocation requests so far */
    xpu_memory_hook hook;
    void *hook_user;
} device_memory;

/* Returns the device's memory with its lock held. Fails if there is no such device. */
xpu_status device_memory_lock(int device, device_memory **m);
static inline void device_memory_unlock(device_memory *m) { os_mutex_unlock(&m->lock); }

/* Returns unused segments to the driver. `only` names a private pool without users. NULL means every private
 * pool without users, and the default pool unless a pool is collecting allocations (xpu_pool_begin). */
xpu_status device_memory_release(device_memory *m, memory_pool *only);

/* Frees an allocated block, as xpu_free does. */
void device_memory_take_back(device_memory *m, block *b);
/* Waits until no block is pending on another stream. */
xpu_status device_memory_settle(device_memory *m);
/* Allocates exactly this range of a free block, with `time` as its allocation time. */
xpu_status device_memory_hand_out(device_memory *m, char *address, size_t size, size_t requested,
                                  uint64_t time);

/* Blocks above this size are never split; 0: no limit. */
size_t allocator_max_split(void);

/* Estimates how many bytes the driver can still allocate; *total gets the device's memory size. */
size_t device_memory_free_bytes(const device_memory *m, size_t *total);

/* Advances the allocator's logical clock and returns the new time, starting at 1. */
uint64_t allocator_tick(void);
/* Allocation time of the block at `pointer`; 0 for any other memory. */
uint64_t allocator_time_of(const void *pointer);

static inline bool block_is_free(const block *b) { return !b->allocated && !b->uses && b->waiting == 0; }

#endif
