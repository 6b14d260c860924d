/* xpu/memory.h: device memory from a caching allocator, pinned host memory, copies and fills.
 *
 * The caching allocator takes segments from the driver and hands out blocks of them. Freed blocks are cached
 * per stream and reused by later work of the same stream without waiting. Sizes, splitting rules and
 * statistics follow PyTorch's caching allocators.
 * Threads: all functions may be called from any thread. */
#ifndef XPU_MEMORY_H
#define XPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates `size` bytes for work on `stream`.
 *
 * Alignment: the device's address_align, at least 64 bytes. Size 0 gives NULL.
 * Errors: XPU_ERROR_OUT_OF_MEMORY, after the cache was released and the allocation retried. xpu_last_error()
 *     gives the requested, free, reserved and allocated sizes. */
XPU_API xpu_status xpu_malloc(xpu_stream *stream, size_t size, void **pointer);

/* Frees a block. Work already submitted to its stream, or to streams recorded for it, may still use it. NULL
 * is ignored. */
XPU_API xpu_status xpu_free(void *pointer);

/* Marks a block as used by `stream` too. After xpu_free it is not reused before all work that `stream` had
 * then has finished. */
XPU_API xpu_status xpu_memory_record_stream(void *pointer, xpu_stream *stream);

/* Returns all unused segments of `device` to the driver. Waits for the device. */
XPU_API xpu_status xpu_memory_empty_cache(int device);

/* Limits the memory that this process may reserve to `fraction` (0 to 1) of the device's. */
XPU_API xpu_status xpu_memory_set_fraction(int device, double fraction);
XPU_API xpu_status xpu_memory_get_fraction(int device, double *fraction);

/* Free and total bytes of the device; free <= total.
 *
 * total: what this process may use. On a CPU device, its share of the machine's or the control group's
 *     memory.
 * free: total minus what is reserved here, or what all programs together leave, if that is less. The system
 *     reports the latter on CPU devices, and on GPUs through the driver's usage files. */
XPU_API xpu_status xpu_memory_info(int device, size_t *free_bytes, size_t *total_bytes);

typedef struct xpu_memory_stat {
    int64_t current, peak, allocated, freed;
} xpu_memory_stat;

/* Statistics. Index 0 is all, 1 the small pool, 2 the large pool, as in torch.xpu.memory_stats(). */
enum { XPU_POOL_ALL, XPU_POOL_SMALL, XPU_POOL_LARGE, XPU_POOL_KINDS };
typedef struct xpu_memory_stats {
    xpu_memory_stat allocation[XPU_POOL_KINDS];     /* blocks handed out */
    xpu_memory_stat segment[XPU_POOL_KINDS];        /* segments taken from the driver */
    xpu_memory_stat active[XPU_POOL_KINDS];         /* blocks handed out or not yet reusable */
    xpu_memory_stat inactive_split[XPU_POOL_KINDS]; /* unused parts of split segments */
    xpu_memory_stat allocated_bytes[XPU_POOL_KINDS];
    xpu_memory_stat reserved_bytes[XPU_POOL_KINDS];
    xpu_memory_stat active_bytes[XPU_POOL_KINDS];
    xpu_memory_stat inactive_split_bytes[XPU_POOL_KINDS];
    xpu_memory_stat requested_bytes[XPU_POOL_KINDS]; /* requested by callers, before rounding */
    xpu_memory_stat oversize_allocations, oversize_segments;
    int64_t num_alloc_retries, num_ooms, num_device_alloc, num_device_free, num_sync_all_streams;
    int64_t max_split_size;
} xpu_memory_stats;
XPU_API xpu_status xpu_memory_get_stats(int device, xpu_memory_stats *stats);
XPU_API xpu_status xpu_memory_reset_peak_stats(int device);
XPU_API xpu_status xpu_memory_reset_accumulated_stats(int device);

/* Settings of the caching allocator, for all devices, with the names and rules of PyTorch's; all zero
 * initially.
 * They apply to later allocations.
 *
 * power2_divisions: [i] applies to requests from 2^(20 + i) bytes, [0] to smaller ones too. A request is
 *     rounded up to one of so many equal steps between powers of two. Powers of two only; 0 and 1 disable
 *     rounding. */
enum { XPU_POWER2_INTERVALS = 16 };
typedef struct xpu_memory_settings {
    size_t max_split_size;    /* larger blocks are not split and serve requests as large only; 0: no limit */
    size_t max_rounding;      /* … that are smaller than the block by less than this */
    size_t large_segment;     /* segment size for requests of 1 to 10 MiB; 0: 20 MiB */
    double garbage_threshold; /* if more than this fraction of the limit is reserved, unused segments are
                                 returned, oldest first, before more memory is taken; 0: never */
    uint32_t power2_divisions[XPU_POWER2_INTERVALS]; /* see above */
} xpu_memory_settings;
/* Errors: XPU_ERROR_INVALID_ARGUMENT for values out of range; nothing is changed then. */
XPU_API xpu_status xpu_memory_configure(const xpu_memory_settings *settings);

/* --- private pools ---
 * A pool is named by an id other than 0,0. Its first user creates it. It is destroyed when it has no users,
 * its blocks are free, and the cache is emptied.
 *
 * Between begin and end, allocations for which `filter` returns true come from the pool. If several pools
 * are active, the one begun last is asked first. begin counts as a user, which `release` removes.
 *
 * Errors: XPU_ERROR_INVALID_ARGUMENT for an unknown pool, or one begun twice. */

/* Returns true if memory for `stream`, requested by the calling thread, comes from the pool. Called under
 * the allocator's lock. */
typedef bool (*xpu_pool_filter)(xpu_stream *stream, void *user);
XPU_API xpu_status xpu_pool_acquire(int device, const uint64_t id[2]);
XPU_API xpu_status xpu_pool_begin(int device, const uint64_t id[2], xpu_pool_filter filter, void *user);
XPU_API xpu_status xpu_pool_end(int device, const uint64_t id[2]);
XPU_API xpu_status xpu_pool_release(int device, const uint64_t id[2]);
/* 0 for an unknown pool. */
XPU_API xpu_status xpu_pool_users(int device, const uint64_t id[2], int *users);
/* Returns the unused segments of a pool without users to the driver. */
XPU_API xpu_status xpu_pool_empty(int device, const uint64_t id[2]);

/* Allocates and frees a pool's segments instead of the driver.
 *
 * take: returns memory that kernels of the device can address, or NULL if there is no more.
 * queue: the cl_command_queue of the stream that requested the segment.
 * Both are called under the allocator's lock. They must not call the allocator, nor wait for a thread that
 * might. */
typedef struct xpu_pool_source {
    void *(*take)(size_t size, int device, void *queue);
    void (*give)(void *pointer, size_t size, int device, void *queue);
} xpu_pool_source;
/* Errors: XPU_ERROR_INVALID_ARGUMENT for a pool that already has segments. */
XPU_API xpu_status xpu_pool_set_source(int device, const uint64_t id[2], xpu_pool_source source);

/* Lets allocations outside all pools use the pool's free blocks when memory is exhausted. */
XPU_API xpu_status xpu_pool_use_on_oom(int device, const uint64_t id[2]);

/* From now on the pool's free blocks are never split. */
XPU_API xpu_status xpu_pool_no_split(int device, const uint64_t id[2]);

/* A snapshot of the blocks that a pool has handed out, for graphs that continue in other graphs' memory.
 *
 * restore: frees what is allocated now, and allocates again what was allocated then, at the same addresses.
 *     Owners of blocks that are not in the snapshot must no longer free them.
 * Requirements: no work uses the pool meanwhile, and the caller keeps the pool.
 * Ownership: the state is the caller's to destroy.
 * Errors: XPU_ERROR_INVALID_ARGUMENT for an unknown pool, or one that has returned segments of these blocks
 *     to the driver; nothing is changed then. XPU_ERROR_OUT_OF_HOST_MEMORY. */
typedef struct xpu_pool_state xpu_pool_state;
XPU_API xpu_status xpu_pool_save(int device, const uint64_t id[2], xpu_pool_state **state);
XPU_API xpu_status xpu_pool_restore(const xpu_pool_state *state);
/* Visits the addresses of the blocks. */
XPU_API xpu_status xpu_pool_state_visit(const xpu_pool_state *state, void (*visit)(void *address, void *user),
                                        void *user);
XPU_API void xpu_pool_state_destroy(xpu_pool_state *state);

/* True if memory for `stream`, requested now by the calling thread, would come from a private pool. */
XPU_API bool xpu_pool_serves(xpu_stream *stream);

/* A filter that accepts one thread: the one that called xpu_pool_this_thread for `user`. */
XPU_API bool xpu_pool_thread_filter(xpu_stream *stream, void *user);
XPU_API void *xpu_pool_this_thread(void);

/* Visits every block, segment by segment and in address order within a segment. */
typedef enum xpu_block_state {
    XPU_BLOCK_ALLOCATED,
    XPU_BLOCK_PENDING_FREE,
    XPU_BLOCK_INACTIVE
} xpu_block_state;
typedef struct xpu_block_info {
    void *segment, *address;
    size_t segment_size, size, requested_size;
    int device;
    int64_t stream_id;
    bool is_large;
    xpu_block_state state;
    uint64_t pool[2];    /* pool id; 0,0 is the default pool */
    const void *context; /* what the history hook returned for the allocation; may be NULL */
} xpu_block_info;
typedef void (*xpu_block_visitor)(const xpu_block_info *block, void *user);
XPU_API xpu_status xpu_memory_visit_blocks(int device, xpu_block_visitor visit, void *user);

/* History: a hook that is called for each allocator action, on the thread that caused it.
 *
 * Locking: it is called under the allocator's lock of that device. It must neither call the allocator nor
 *     wait for another thread. Collect what takes time or other locks (a stack trace, Python's state) before
 *     the allocating call.
 * Context: the value returned for XPU_TRACE_ALLOC is stored with the block and passed to later calls, the
 *     last time with XPU_TRACE_FREE_COMPLETED.
 * XPU_TRACE_OOM: `address` is the number of free bytes.
 * XPU_TRACE_SNAPSHOT: `size` is the number of bytes in use. */
typedef enum xpu_trace_action {
    XPU_TRACE_ALLOC,
    XPU_TRACE_FREE_REQUESTED,
    XPU_TRACE_FREE_COMPLETED,
    XPU_TRACE_SEGMENT_ALLOC,
    XPU_TRACE_SEGMENT_FREE,
    XPU_TRACE_SNAPSHOT,
    XPU_TRACE_OOM
} xpu_trace_action;
typedef const void *(*xpu_memory_hook)(xpu_trace_action action, int device, void *address, size_t size,
                                       int64_t stream_id, const void *context, void *user);
XPU_API xpu_status xpu_memory_set_hook(int device, xpu_memory_hook hook, void *user);

/* The device of a pointer into memory from xpu_malloc (interior pointers too).
 *
 * Errors: XPU_ERROR_INVALID_ARGUMENT for any other pointer. */
XPU_API xpu_status xpu_memory_device_of(const void *pointer, int *device);
/* Start and size of the block that contains `pointer`. */
XPU_API xpu_status xpu_memory_base_of(const void *pointer, void **base, size_t *size);

/* Pinned host memory, cached. A freed block is reused once the copies recorded for it have finished. */
XPU_API xpu_status xpu_host_malloc(size_t size, void **pointer);
XPU_API xpu_status xpu_host_free(void *pointer);
XPU_API xpu_status xpu_host_record_stream(void *pointer, xpu_stream *stream);
XPU_API xpu_status xpu_host_empty_cache(void);
/* True for any pointer into memory from xpu_host_malloc. */
XPU_API bool xpu_host_is_pinned(const void *pointer);

/* Copies asynchronously on `stream`, between any mix of device and host memory. The ranges must not overlap.
 *
 * blocking: host memory may be read, changed or freed on return; an upload may still be in progress.
 *     Otherwise the caller must leave host memory unchanged until the stream has passed the copy. */
XPU_API xpu_status xpu_memcpy(xpu_stream *stream, void *to, const void *from, size_t size, bool blocking);
/* Fills with a pattern of 1, 2, 4, 8 or 16 bytes. `size` is a multiple of it. */
XPU_API xpu_status xpu_memset(xpu_stream *stream, void *to, const void *pattern, size_t pattern_size,
                              size_t size);

#ifdef __cplusplus
}
#endif
#endif
