/* xpu/memory.h: device memory from a caching allocator, pinned host memory, copies and fills.
 *
 * The caching allocator takes segments from the driver and hands out blocks of them. Freed blocks are
 * kept, per stream, and used again for work of the same stream without waiting. Sizes, splitting rules
 * and statistics follow PyTorch's caching allocators. All functions may be called from any thread. */
#ifndef XPU_MEMORY_H
#define XPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `size` bytes for work on `stream`, at least 64-byte aligned (address_align of the device). Size 0 gives
 * NULL. XPU_ERROR_OUT_OF_MEMORY after everything cached has been given back and the allocation tried
 * again; xpu_last_error() then gives the requested, free, reserved and allocated sizes. */
XPU_API xpu_status xpu_malloc(xpu_stream *stream, size_t size, void **pointer);

/* Gives a block back. Work already submitted to its stream, or to streams recorded for it, may still use
 * it. NULL is no error. */
XPU_API xpu_status xpu_free(void *pointer);

/* `stream` uses the block too: it is not handed out again before what `stream` has been given up to the
 * time of xpu_free has finished. */
XPU_API xpu_status xpu_memory_record_stream(void *pointer, xpu_stream *stream);

/* Gives every unused segment of `device` back to the driver (waits for the device). */
XPU_API xpu_status xpu_memory_empty_cache(int device);

/* At most `fraction` (0 … 1) of the device's memory may be reserved by this process. */
XPU_API xpu_status xpu_memory_set_fraction(int device, double fraction);
XPU_API xpu_status xpu_memory_get_fraction(int device, double *fraction);

/* Free and total bytes of the device; free <= total. Total is what this process may use: of a host device,
 * its share of the machine's memory or of its control group's. Free is the total less what is reserved here,
 * or what all programs together leave, where the system tells (host devices; GPUs through their drivers'
 * usage files): less. */
XPU_API xpu_status xpu_memory_info(int device, size_t *free_bytes, size_t *total_bytes);

typedef struct xpu_memory_stat {
    int64_t current, peak, allocated, freed;
} xpu_memory_stat;

/* Statistics; index 0 is all, 1 the small pool, 2 the large pool, as in torch.xpu.memory_stats(). */
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
    xpu_memory_stat requested_bytes[XPU_POOL_KINDS]; /* what callers asked for, before rounding */
    xpu_memory_stat oversize_allocations, oversize_segments;
    int64_t num_alloc_retries, num_ooms, num_device_alloc, num_device_free, num_sync_all_streams;
    int64_t max_split_size;
} xpu_memory_stats;
XPU_API xpu_status xpu_memory_get_stats(int device, xpu_memory_stats *stats);
XPU_API xpu_status xpu_memory_reset_peak_stats(int device);
XPU_API xpu_status xpu_memory_reset_accumulated_stats(int device);

/* How the caching allocator of all devices keeps memory, by the names and rules of PyTorch's settings; all
 * zero at first. Holds for what is asked for from then on. */
enum { XPU_POWER2_INTERVALS = 16 };
typedef struct xpu_memory_settings {
    size_t max_split_size;    /* larger blocks are given out whole, to requests as large; 0: no limit */
    size_t max_rounding;      /* … that are smaller than the block by less than this */
    size_t large_segment;     /* bytes of a segment for requests of 1 to 10 MiB; 0: 20 MiB */
    double garbage_threshold; /* unused segments go back, those unused for long first, before memory is taken
                                 while more than this part of what may be used is reserved; 0: never */
    uint32_t power2_divisions[XPU_POWER2_INTERVALS]; /* requests from 2^(20 + i) on, the first also smaller
                                 ones, are rounded up to one of so many equal steps to the next power of two;
                                 a power of two, or 0 or 1: not rounded */
} xpu_memory_settings;
/* XPU_ERROR_INVALID_ARGUMENT for numbers out of range, when nothing has changed. */
XPU_API xpu_status xpu_memory_configure(const xpu_memory_settings *settings);

/* --- pools of one's own ---
 * A pool, named by a number that isn't 0,0, is made by its first user and goes away after its last one, when
 * its blocks are free and the cache is emptied. Between begin and end the allocations that `filter` says yes
 * to come from it; where several pools are begun, the one begun last is asked first. begin counts as a user,
 * which `release` takes away again. Errors: XPU_ERROR_INVALID_ARGUMENT for a pool that isn't there, or is
 * begun twice. */

/* Answers, under the allocator's lock, whether memory for `stream`, asked for by the calling thread, comes
 * from the pool. */
typedef bool (*xpu_pool_filter)(xpu_stream *stream, void *user);
XPU_API xpu_status xpu_pool_acquire(int device, const uint64_t id[2]);
XPU_API xpu_status xpu_pool_begin(int device, const uint64_t id[2], xpu_pool_filter filter, void *user);
XPU_API xpu_status xpu_pool_end(int device, const uint64_t id[2]);
XPU_API xpu_status xpu_pool_release(int device, const uint64_t id[2]);
/* 0 for a pool that isn't there. */
XPU_API xpu_status xpu_pool_users(int device, const uint64_t id[2], int *users);
/* Gives the unused segments of a pool without users back. */
XPU_API xpu_status xpu_pool_empty(int device, const uint64_t id[2]);

/* Where a pool's segments come from and go to, instead of the driver; `queue` is the cl_command_queue of the
 * stream that they are for. Called under the allocator's lock: they must neither call the allocator nor wait
 * for who might. Memory that kernels of the device can reach by its address; NULL says that there is no more.
 */
typedef struct xpu_pool_source {
    void *(*take)(size_t size, int device, void *queue);
    void (*give)(void *pointer, size_t size, int device, void *queue);
} xpu_pool_source;
/* XPU_ERROR_INVALID_ARGUMENT for a pool that has segments. */
XPU_API xpu_status xpu_pool_set_source(int device, const uint64_t id[2], xpu_pool_source source);

/* Lets allocations outside of all pools have the pool's unused blocks where there is no memory otherwise. */
XPU_API xpu_status xpu_pool_use_on_oom(int device, const uint64_t id[2]);

/* From now on the pool's free blocks are given out whole, and never cut for less. */
XPU_API xpu_status xpu_pool_no_split(int device, const uint64_t id[2]);

/* Which blocks a pool has handed out, to come back to: for graphs that continue others in their memory.
 * `restore` takes back what is handed out now and hands out again what was then, at its addresses; who has
 * blocks that weren't must not free them any more. The caller lets no work use the pool meanwhile, and keeps
 * the pool. Errors: XPU_ERROR_INVALID_ARGUMENT for a pool that isn't there, or has given segments of these
 * blocks back, when nothing has changed; XPU_ERROR_OUT_OF_HOST_MEMORY. The state is the caller's to destroy.
 */
typedef struct xpu_pool_state xpu_pool_state;
XPU_API xpu_status xpu_pool_save(int device, const uint64_t id[2], xpu_pool_state **state);
XPU_API xpu_status xpu_pool_restore(const xpu_pool_state *state);
/* The addresses of the blocks. */
XPU_API xpu_status xpu_pool_state_visit(const xpu_pool_state *state, void (*visit)(void *address, void *user),
                                        void *user);
XPU_API void xpu_pool_state_destroy(xpu_pool_state *state);

/* Would memory for `stream`, asked for by the calling thread now, come from a pool of one's own? */
XPU_API bool xpu_pool_serves(xpu_stream *stream);

/* A filter for what the thread does that called xpu_pool_this_thread for `user`. */
XPU_API bool xpu_pool_thread_filter(xpu_stream *stream, void *user);
XPU_API void *xpu_pool_this_thread(void);

/* A view of every block, segment by segment and by address within a segment. */
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
    uint64_t pool[2];    /* the pool's id; 0,0 is the default pool */
    const void *context; /* what the history hook gave when the block was handed out; may be NULL */
} xpu_block_info;
typedef void (*xpu_block_visitor)(const xpu_block_info *block, void *user);
XPU_API xpu_status xpu_memory_visit_blocks(int device, xpu_block_visitor visit, void *user);

/* History: while a hook is set, each action calls it, on the thread that caused it, under the allocator's
 * lock of that device: it must neither call the allocator nor wait for another thread. What takes time or
 * other locks (a stack trace, Python's) is best gathered before the call that allocates, for the hook to
 * hand over. The context it returns for XPU_TRACE_ALLOC is kept with the block and handed back in later
 * calls, the last time with XPU_TRACE_FREE_COMPLETED. For XPU_TRACE_OOM `address` is the number of free
 * bytes, for XPU_TRACE_SNAPSHOT `size` is the bytes in use. */
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

/* The device that owns a pointer got from xpu_malloc (interior pointers too): XPU_SUCCESS and the index,
 * or XPU_ERROR_INVALID_ARGUMENT for a pointer that isn't ours. */
XPU_API xpu_status xpu_memory_device_of(const void *pointer, int *device);
/* The block's start and size for any pointer into it. */
XPU_API xpu_status xpu_memory_base_of(const void *pointer, void **base, size_t *size);

/* Pinned host memory, cached: a freed block is used again once the copies that were recorded for it
 * have finished. */
XPU_API xpu_status xpu_host_malloc(size_t size, void **pointer);
XPU_API xpu_status xpu_host_free(void *pointer);
XPU_API xpu_status xpu_host_record_stream(void *pointer, xpu_stream *stream);
XPU_API xpu_status xpu_host_empty_cache(void);
/* True for any pointer into memory from xpu_host_malloc. */
XPU_API bool xpu_host_is_pinned(const void *pointer);

/* Asynchronous on `stream`: any mix of device and host memory; overlapping ranges are the caller's error.
 * `blocking`: host memory may be read, changed or freed on return (uploads needn't be through by then).
 * Without it the caller keeps host memory as it is until the stream has passed. */
XPU_API xpu_status xpu_memcpy(xpu_stream *stream, void *to, const void *from, size_t size, bool blocking);
/* Fills with a pattern of 1, 2, 4, 8 or 16 bytes; `size` is a multiple of it. */
XPU_API xpu_status xpu_memset(xpu_stream *stream, void *to, const void *pattern, size_t pattern_size,
                              size_t size);

#ifdef __cplusplus
}
#endif
#endif
