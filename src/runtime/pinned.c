/* The pinned host memory allocator. Block sizes are powers of two. A freed block is cached and reused for the
 * same size class after the streams recorded for it have finished. Any thread may call. Errors:
 * XPU_ERROR_OUT_OF_HOST_MEMORY, XPU_ERROR_INVALID_ARGUMENT (not a pinned block). */
#include "cl/cl.h"
#include "core/memory.h"
#include "core/os.h"
#include "runtime/poison.h"
#include "runtime/range_tree.h"
#include "runtime/stream_use.h"
#include "xpu/memory.h"

enum { SIZE_CLASSES = 64, SMALLEST_CLASS = 9 };

typedef struct host_block {
    range_node node;         /* in the tree of all blocks; node.size is 0, so the order is by address */
    struct host_block *next; /* in the free list of its class */
    int class;               /* the size is 2^class bytes */
    bool allocated;
    stream_use *uses;
    int waiting; /* streams whose work at the time of the free has not finished */
} host_block;

static os_mutex pinned_lock = OS_MUTEX_INIT; /* guards all state below */
static range_node *all_blocks;
static host_block *free_blocks[SIZE_CLASSES];
static stream_tracker tracker;

static int *block_waiting(void *b) { return &((host_block *)b)->waiting; }

static void block_done(void *block, void *user) {
    host_block *b = block;
    (void)user;
    b->next = free_blocks[b->class];
    free_blocks[b->class] = b;
}

static host_block *take_free(int class) {
    host_block *b = free_blocks[class];
    if (b) free_blocks[class] = b->next;
    return b;
}

/* Returns every free block to the driver. */
static xpu_status release_free(void) {
    xpu_status result = XPU_SUCCESS;
    for (int class = 0; class < SIZE_CLASSES; class++) {
        host_block *b;
        while ((b = take_free(class))) {
            range_remove(&all_blocks, &b->node);
            xpu_status status = cl_host_free(b->node.address);
            if (result == XPU_SUCCESS) result = status;
            core_free(b);
        }
    }
    return result;
}

static xpu_status new_block(int class, host_block **result) {
    host_block *b = core_calloc(1, sizeof *b);
    if (!b)
        return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory while recording a pinned block");
    void *address;
    xpu_status status = cl_host_alloc((size_t)1 << class, &address);
    if (status != XPU_SUCCESS) {
        core_free(b);
        return status;
    }
    b->node.address = address;
    b->class = class;
    range_insert(&all_blocks, &b->node);
    *result = b;
    return XPU_SUCCESS;
}

static xpu_status allocate(int class, host_block **result) {
    if (tracker.pending) XPU_TRY(stream_use_poll(&tracker, block_waiting, block_done, NULL));
    *result = take_free(class);
    if (*result) return XPU_SUCCESS;
    xpu_status status = new_block(class, result);
    if (status != XPU_ERROR_OUT_OF_MEMORY && status != XPU_ERROR_OUT_OF_HOST_MEMORY) return status;
    XPU_TRY(stream_use_wait(&tracker, NULL, block_waiting, block_done, NULL));
    if ((*result = take_free(class))) return XPU_SUCCESS;
    XPU_TRY(release_free());
    return new_block(class, result);
}

xpu_status xpu_host_malloc(size_t size, void **pointer) {
    XPU_REJECT_IF(!pointer, "pointer is NULL");
    if (size == 0) {
        *pointer = NULL;
        return XPU_SUCCESS;
    }
    if (xpu_in_bad_fork()) return cl_init();
    if (size > SIZE_MAX / 4)
        return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY,
                        "could not allocate %zu bytes of pinned memory: larger than the host's memory", size);
    int class = SMALLEST_CLASS;
    while ((size_t)1 << class < size) class++;
    host_block *b;
    os_mutex_lock(&pinned_lock);
    xpu_status status = allocate(class, &b);
    if (status == XPU_SUCCESS) {
        b->allocated = true;
        *pointer = b->node.address;
    }
    os_mutex_unlock(&pinned_lock);
    const int byte = poison_byte();
    if (__builtin_expect(byte >= 0, 0) && status == XPU_SUCCESS) memset(*pointer, byte, size);
    return status;
}

/* The block that contains `pointer`, or NULL. */
static host_block *find_block(const void *pointer) {
    host_block *b = (host_block *)range_floor(all_blocks, 0, pointer);
    return b && (size_t)((char *)pointer - b->node.address) >> b->class == 0 ? b : NULL;
}

xpu_status xpu_host_free(void *pointer) {
    if (!pointer) return XPU_SUCCESS;
    if (xpu_in_bad_fork()) return cl_init();
    os_mutex_lock(&pinned_lock);
    host_block *b = find_block(pointer);
    bool ours = b && b->allocated && b->node.address == pointer;
    if (ours) {
        b->allocated = false;
        stream_use_submit(&tracker, &b->uses, b, &b->waiting);
        if (b->waiting == 0) block_done(b, NULL);
    }
    os_mutex_unlock(&pinned_lock);
    XPU_REJECT_IF(!ours, "invalid pinned pointer: %p", pointer);
    return XPU_SUCCESS;
}

xpu_status xpu_host_record_stream(void *pointer, xpu_stream *stream) {
    XPU_REJECT_IF(!stream, "stream is NULL");
    if (!pointer) return XPU_SUCCESS;
    if (xpu_in_bad_fork()) return cl_init();
    os_mutex_lock(&pinned_lock);
    host_block *b = find_block(pointer);
    bool ours = b && b->allocated;
    xpu_status status = ours ? stream_use_add(&tracker, &b->uses, stream) : XPU_SUCCESS;
    os_mutex_unlock(&pinned_lock);
    XPU_REJECT_IF(!ours, "invalid pinned pointer: %p", pointer);
    return status;
}

xpu_status xpu_host_empty_cache(void) {
    if (xpu_in_bad_fork()) return cl_init();
    os_mutex_lock(&pinned_lock);
    xpu_status status = stream_use_wait(&tracker, NULL, block_waiting, block_done, NULL);
    if (status == XPU_SUCCESS) status = release_free();
    os_mutex_unlock(&pinned_lock);
    return status;
}

bool xpu_host_is_pinned(const void *pointer) {
    /* A forked child's copy of the lock may be locked forever. */
    if (!pointer || xpu_in_bad_fork()) return false;
    os_mutex_lock(&pinned_lock);
    host_block *b = find_block(pointer);
    bool pinned = b && b->allocated;
    os_mutex_unlock(&pinned_lock);
    return pinned;
}
