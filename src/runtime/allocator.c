/* The caching allocator: xpu_malloc, xpu_free, and their implementation. Size rounding, splitting, merging,
 * reuse, and the meaning of each statistic follow PyTorch's caching allocators.
 *
 * Any thread may call the public functions; each takes the device's lock. Memory belongs to its segment, and
 * segments return to the driver in device_memory_release, release_oversize and collect_garbage only. Errors:
 * XPU_ERROR_OUT_OF_MEMORY (device), XPU_ERROR_OUT_OF_HOST_MEMORY (tables), XPU_ERROR_INVALID_ARGUMENT (a
 * pointer that is not an allocated block). */
#include "runtime/allocator.h"

#include <stdatomic.h>
#include <stdio.h>

#include "cl/cl.h"
#include "core/memory.h"
#include "runtime/fault.h"
#include "runtime/poison.h"
#include "runtime/segment_map.h"

static device_memory memories[CL_MAX_DEVICES] = {[0 ... CL_MAX_DEVICES - 1] = {.lock = OS_MUTEX_INIT}};

static atomic_uint_fast64_t clock_time;

uint64_t allocator_tick(void) { return atomic_fetch_add(&clock_time, 1) + 1; }

/* The caller has checked that `device` exists. */
static inline device_memory *lock_memory(int device) {
    device_memory *m = &memories[device];
    os_mutex_lock(&m->lock);
    m->device = device;
    return m;
}

xpu_status device_memory_lock(int device, device_memory **m) {
    const xpu_device_properties *properties;
    XPU_TRY(xpu_device_get_properties(device, &properties));
    *m = lock_memory(device);
    return XPU_SUCCESS;
}

size_t device_memory_free_bytes(const device_memory *m, size_t *total) {
    *total = cl_device_properties(m->device)->total_memory;
    const size_t reserved = (size_t)m->stats.reserved_bytes[XPU_POOL_ALL].current;
    const size_t own = reserved < *total ? *total - reserved : 0;
    const uint64_t left = cl_memory_left(m->device, false);
    return left < own ? (size_t)left : own;
}

/* --- settings: each is atomic, so allocations may run during xpu_memory_configure --- */

static struct {
    _Atomic size_t max_split, max_rounding, large_segment;
    _Atomic double garbage_threshold;
    atomic_bool has_divisions;
    _Atomic uint32_t divisions[XPU_POWER2_INTERVALS];
} settings;

#define SET(name) atomic_load_explicit(&settings.name, memory_order_relaxed)

xpu_status xpu_memory_configure(const xpu_memory_settings *s) {
    XPU_REJECT_IF(!s, "settings is NULL");
    XPU_REJECT_IF(!(s->garbage_threshold >= 0 && s->garbage_threshold < 1),
                  "garbage_threshold %g: must be at least 0 and less than 1", s->garbage_threshold);
    const size_t large = s->large_segment ? s->large_segment : LARGE_SEGMENT;
    XPU_REJECT_IF(large < LARGE_SEGMENT || large % LARGE_ROUND,
                  "large_segment %zu: must be a multiple of %d, and at least %d", large, LARGE_ROUND,
                  LARGE_SEGMENT);
    XPU_REJECT_IF(s->max_split_size && s->max_split_size < large,
                  "max_split_size %zu: must be at least a large segment's %zu bytes", s->max_split_size,
                  large);
    bool any = false;
    for (int i = 0; i < XPU_POWER2_INTERVALS; i++) {
        const uint32_t n = s->power2_divisions[i];
        XPU_REJECT_IF(n & (n - 1), "power2_divisions[%d] is %u: must be a power of two, or 0", i, n);
        any |= n > 1;
    }
    for (int i = 0; i < XPU_POWER2_INTERVALS; i++) settings.divisions[i] = s->power2_divisions[i];
    settings.has_divisions = any;
    settings.max_split = s->max_split_size;
    settings.max_rounding = s->max_rounding;
    settings.large_segment = large;
    settings.garbage_threshold = s->garbage_threshold;
    return XPU_SUCCESS;
}

size_t allocator_max_split(void) { return SET(max_split); }

/* Is a block of this size never split? */
static inline bool is_oversize(size_t size) {
    const size_t limit = SET(max_split);
    return limit && size > limit;
}

/* --- statistics --- */

static inline void increase(xpu_memory_stat *stat, size_t amount) {
    stat->current += (int64_t)amount;
    stat->allocated += (int64_t)amount;
    if (stat->current > stat->peak) stat->peak = stat->current;
}

static inline void decrease(xpu_memory_stat *stat, size_t amount) {
    stat->current -= (int64_t)amount;
    stat->freed += (int64_t)amount;
}

static inline void change(xpu_memory_stat *stat, int64_t amount) {
    if (amount > 0) increase(stat, (size_t)amount);
    if (amount < 0) decrease(stat, (size_t)-amount);
}

/* Iterates over the two statistics that each event updates: all memory, and small or large pool. */
#define FOR_KINDS(kind, large)                                                                               \
    for (int kind = XPU_POOL_ALL, kind##_end_ = (large) ? XPU_POOL_LARGE : XPU_POOL_SMALL;                   \
         kind <= kind##_end_; kind += kind##_end_)

static inline const void *trace(device_memory *m, xpu_trace_action action, void *address, size_t size,
                                int64_t stream_id, const void *context) {
    if (!m->hook) return NULL;
    return m->hook(action, m->device, address, size, stream_id, context, m->hook_user);
}

/* --- free blocks of a stream --- */

static inline size_t small_class(size_t size) { return size / BLOCK_MIN - 1; }

static inline void arena_insert(arena *a, block *b) {
    if (a->large) {
        range_insert(&a->trees[0], &b->node);
        return;
    }
    size_t c = small_class(b->node.size);
    range_insert(&a->trees[c], &b->node);
    a->bits[c / 64] |= UINT64_C(1) << c % 64;
    a->words |= UINT64_C(1) << c / 64;
}

static inline void arena_remove(arena *a, block *b) {
    if (a->large) {
        range_remove(&a->trees[0], &b->node);
        return;
    }
    size_t c = small_class(b->node.size);
    range_remove(&a->trees[c], &b->node);
    if (a->trees[c]) return; /* are there more of that size? */
    a->bits[c / 64] &= ~(UINT64_C(1) << c % 64);
    if (!a->bits[c / 64]) a->words &= ~(UINT64_C(1) << c / 64);
}

/* Best fit: the smallest free block of at least `size` bytes, the lowest address first; or NULL. */
static inline block *arena_best(const arena *a, size_t size) {
    if (a->large) return (block *)range_ceiling(a->trees[0], size, NULL);
    size_t c = small_class(size), word = c / 64;
    uint64_t bits = a->bits[word] & ~UINT64_C(0) << c % 64;
    if (!bits) {
        uint64_t words = word == 63 ? 0 : a->words & ~UINT64_C(0) << (word + 1);
        if (!words) return NULL;
        word = (size_t)__builtin_ctzll(words);
        bits = a->bits[word];
    }
    range_node *n = a->trees[word * 64 + (size_t)__builtin_ctzll(bits)];
    while (n->left) n = n->left; /* all of one size: the leftmost has the lowest address */
    return (block *)n;
}

/* The best fit that max_split_size and max_rounding allow; or NULL. */
static inline block *find_free(const arena *a, size_t size) {
    block *b = arena_best(a, size);
    if (!b || !a->large || !is_oversize(b->node.size)) return b;
    if (!is_oversize(size)) return NULL;
    return b->node.size - size < SET(max_rounding) ? b : NULL;
}

/* The arena of `stream` in `pool`, created on first use; NULL if host memory is exhausted. */
static arena *find_arena(memory_pool *pool, xpu_stream *stream, bool large) {
    uint64_t hash = (uint64_t)(uintptr_t)stream * UINT64_C(0x9E3779B97F4A7C15);
    arena **bucket = &pool->arenas[large][hash >> 58];
    for (arena *a = *bucket; a; a = a->next)
        if (a->stream == stream) return a;
    arena *a = core_calloc(1, sizeof *a + (large ? 1 : SMALL_CLASSES) * sizeof a->trees[0]);
    if (!a) return NULL;
    a->pool = pool;
    a->stream = stream;
    a->stream_id = xpu_stream_id(stream);
    a->large = large;
    a->next = *bucket;
    return *bucket = a;
}

/* --- blocks and segments --- */

enum { BLOCKS_PER_SLAB = 64 };

/* Ensures two spare block structures: a request needs up to one for a new segment and one for a split.
 * Structures are recycled and never returned to the host allocator. */
static bool reserve_blocks(device_memory *m) {
    if (m->spare && m->spare->next) return true;
    block *slab = core_calloc(BLOCKS_PER_SLAB, sizeof *slab);
    if (!slab) return false;
    for (int i = 0; i < BLOCKS_PER_SLAB; i++) {
        slab[i].next = m->spare;
        m->spare = &slab[i];
    }
    return true;
}

static inline block *take_spare(device_memory *m) {
    block *b = m->spare;
    m->spare = b->next;
    return b;
}

static inline void put_spare(device_memory *m, block *b) {
    b->next = m->spare;
    m->spare = b;
}

static inline block **start_of(segment *s, const char *address) {
    return &s->starts[(size_t)(address - s->base) >> s->shift];
}

/* The block that starts at `pointer`, or NULL. */
static inline block *find_block(const void *pointer) {
    segment *s = segment_map_find(pointer);
    block *b = s ? *start_of(s, pointer) : NULL;
    return b && b->node.address == pointer ? b : NULL;
}

/* Merges a free neighbor into `b`, which is in no tree. Returns the bytes gained. */
static inline size_t merge(device_memory *m, block *b, block *neighbor) {
    if (!neighbor || !block_is_free(neighbor)) return 0;
    segment *s = b->segment;
    arena_remove(b->arena, neighbor);
    if (neighbor == b->prev) {
        *start_of(s, b->node.address) = NULL;
        b->node.address = neighbor->node.address;
        *start_of(s, b->node.address) = b;
        b->prev = neighbor->prev;
        if (b->prev) b->prev->next = b;
    } else {
        *start_of(s, neighbor->node.address) = NULL;
        b->next = neighbor->next;
        if (b->next) b->next->prev = b;
    }
    b->node.size += neighbor->node.size;
    size_t won = neighbor->node.size;
    put_spare(m, neighbor);
    return won;
}

/* Merges `b` with free neighbors and inserts it into its arena. No stream uses it any more. */
static void free_block(device_memory *m, block *b) {
    arena *a = b->arena;
    size_t size = b->node.size;
    trace(m, XPU_TRACE_FREE_COMPLETED, b->node.address, b->requested, a->stream_id, b->context);
    b->context = NULL;

    int64_t splits = 0, split_bytes = 0;
    size_t won = merge(m, b, b->prev);
    splits -= won > 0;
    split_bytes -= (int64_t)won;
    won = merge(m, b, b->next);
    splits -= won > 0;
    split_bytes -= (int64_t)won;
    b->idle_since = m->requests;
    arena_insert(a, b);
    if (b->prev || b->next) {
        splits++;
        split_bytes += (int64_t)b->node.size;
    }
    FOR_KINDS(kind, a->large) {
        change(&m->stats.inactive_split[kind], splits);
        change(&m->stats.inactive_split_bytes[kind], split_bytes);
        decrease(&m->stats.active[kind], 1);
        decrease(&m->stats.active_bytes[kind], size);
        decrease(&m->stats.requested_bytes[kind], b->requested);
    }
}

static int *block_waiting(void *b) { return &((block *)b)->waiting; }
static void block_done(void *b, void *memory) { free_block(memory, b); }

/* Rounds up to the next of `divisions` equal steps between two powers of two. */
static size_t round_to_step(size_t size, uint32_t divisions) {
    const size_t floor = (size_t)1 << (63 - __builtin_clzll(size)), step = floor / divisions;
    return (size + step - 1) / step * step;
}

static inline size_t round_size(size_t size) {
    if (SET(has_divisions)) {
        const int interval = 63 - __builtin_clzll(size) - 20;
        const int last = XPU_POWER2_INTERVALS - 1;
        const uint32_t n = SET(divisions[interval < 0 ? 0 : interval < last ? interval : last]);
        if (n > 1 && size > (size_t)BLOCK_MIN * n) size = round_to_step(size, n);
    }
    return (size + BLOCK_MIN - 1) / BLOCK_MIN * BLOCK_MIN;
}

static size_t segment_size(size_t rounded) {
    if (rounded <= SMALL_SIZE) return SMALL_SEGMENT;
    const size_t large = SET(large_segment);
    if (rounded < LARGE_MIN) return large ? large : LARGE_SEGMENT;
    return (rounded + LARGE_ROUND - 1) / LARGE_ROUND * LARGE_ROUND;
}

/* Inserts `s` into the list of segments, which is sorted by address. */
static void link_segment(device_memory *m, segment *s) {
    segment *before = NULL, *after = m->segments;
    while (after && after->base < s->base) {
        before = after;
        after = after->after;
    }
    s->before = before;
    s->after = after;
    if (after) after->before = s;
    *(before ? &before->after : &m->segments) = s;
}

/* Segment memory comes from the pool's source if it has one, otherwise from the driver; give_memory returns
 * it there. */
static xpu_status take_memory(const device_memory *m, const arena *a, size_t size, void **base) {
    if (!a->pool->source.take) return cl_memory_alloc(m->device, size, base);
    void *queue;
    XPU_TRY(xpu_stream_native(a->stream, &queue));
    *base = a->pool->source.take(size, m->device, queue);
    return *base ? XPU_SUCCESS : XPU_ERROR_OUT_OF_MEMORY;
}

static xpu_status give_memory(const device_memory *m, const arena *a, void *base, size_t size) {
    if (!a->pool->source.take) return cl_memory_free(m->device, base);
    void *queue;
    XPU_TRY(xpu_stream_native(a->stream, &queue));
    a->pool->source.give(base, size, m->device, queue);
    return XPU_SUCCESS;
}

/* Allocates a segment and returns it as one block. XPU_ERROR_OUT_OF_MEMORY, without an error text, if the
 * device's memory or the configured fraction of it is exhausted. */
static xpu_status new_segment(device_memory *m, arena *a, size_t size, bool retry, block **result) {
    if (retry) m->stats.num_alloc_retries++;
    const xpu_device_properties *properties = cl_device_properties(m->device);
    size_t reserved = (size_t)m->stats.reserved_bytes[XPU_POOL_ALL].current;
    if (m->fraction != 0 && (size > m->allowed || reserved > m->allowed - size))
        return XPU_ERROR_OUT_OF_MEMORY;
    /* Operating systems overcommit host memory and kill the process that touches it, so check here. */
    const size_t total = properties->total_memory;
    if (properties->built_for_cpu && (size > total || reserved > total - size ||
                                      (size >= ASK_FROM && size > cl_memory_left(m->device, true))))
        return XPU_ERROR_OUT_OF_MEMORY;

    void *base;
    xpu_status status = take_memory(m, a, size, &base);
    if (status == XPU_ERROR_OUT_OF_HOST_MEMORY) /* drivers report this for memory shared with the host */
        return XPU_ERROR_OUT_OF_MEMORY;
    if (status != XPU_SUCCESS) return status;
    /* Large blocks are larger than SMALL_SIZE (1 MiB), so no two start in the same 1 MiB interval. */
    int shift = a->large ? 20 : 9;
    segment *s = core_calloc(1, sizeof *s + (((size - 1) >> shift) + 1) * sizeof s->starts[0]);
    status = s ? segment_map_add(m->device, s, base, size)
               : xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a segment's table");
    if (status != XPU_SUCCESS) {
        core_free(s);
        give_memory(m, a, base, size);
        return status;
    }

    s->base = base;
    s->size = size;
    s->shift = shift;
    link_segment(m, s);
    a->pool->segments++;
    block *b = take_spare(m);
    *b = (block){.node = {.size = size, .address = base}, .segment = s, .arena = a};
    s->starts[0] = b;
    m->stats.num_device_alloc++;
    if (is_oversize(size)) increase(&m->stats.oversize_segments, 1);
    FOR_KINDS(kind, a->large) {
        increase(&m->stats.segment[kind], 1);
        increase(&m->stats.reserved_bytes[kind], size);
    }
    s->context = trace(m, XPU_TRACE_SEGMENT_ALLOC, base, size, a->stream_id, NULL);
    *result = b;
    return XPU_SUCCESS;
}

/* Returns a segment that is one free block to the driver. The device no longer uses it. */
static xpu_status release_segment(device_memory *m, segment *s) {
    block *b = s->starts[0];
    arena *a = b->arena;
    trace(m, XPU_TRACE_SEGMENT_FREE, s->base, s->size, a->stream_id, s->context);
    arena_remove(a, b);
    put_spare(m, b);
    a->pool->segments--;
    m->stats.num_device_free++;
    if (is_oversize(s->size)) decrease(&m->stats.oversize_segments, 1);
    FOR_KINDS(kind, a->large) {
        decrease(&m->stats.segment[kind], 1);
        decrease(&m->stats.reserved_bytes[kind], s->size);
    }
    *(s->before ? &s->before->after : &m->segments) = s->after;
    if (s->after) s->after->before = s->before;
    /* Remove it from the map first: the driver may immediately reuse the addresses for another device. */
    segment_map_remove(s->base, s->size);
    xpu_status status = give_memory(m, a, s->base, s->size);
    core_free(s);
    return status;
}

static xpu_status release_segments(device_memory *m, const memory_pool *pool) {
    xpu_status result = XPU_SUCCESS;
    for (segment *s = m->segments, *after; s; s = after) {
        after = s->after;
        block *b = s->starts[0];
        if (b->arena->pool != pool || b->node.size != s->size || !block_is_free(b)) continue;
        xpu_status status = release_segment(m, s);
        if (result == XPU_SUCCESS) result = status;
    }
    return result;
}

/* Is the pool private, without users, and not collecting allocations? Then its segments can be released. */
static bool is_abandoned(const device_memory *m, const memory_pool *pool) {
    if (pool == &m->pool || pool->users > 0) return false;
    const pool_capture *c = m->captures;
    while (c && c->pool != pool) c = c->next;
    return !c;
}

static bool in_abandoned_pool(void *b, void *memory) {
    return is_abandoned(memory, ((block *)b)->arena->pool);
}

static void destroy_pool(device_memory *m, memory_pool *pool) {
    memory_pool **at = &m->private_pools;
    while (*at != pool) at = &(*at)->next;
    *at = pool->next;
    for (int large = 0; large < 2; large++) {
        for (int i = 0; i < ARENA_BUCKETS; i++) {
            for (arena *a = pool->arenas[large][i], *next; a; a = next) {
                next = a->next;
                core_free(a);
            }
        }
    }
    core_free(pool);
}

xpu_status device_memory_release(device_memory *m, memory_pool *only) {
    bool all = !only && !m->captures;
    if (all || only) {
        m->stats.num_sync_all_streams++;
        XPU_TRY(stream_use_wait(&m->tracker, all ? NULL : in_abandoned_pool, block_waiting, block_done, m));
    }
    XPU_TRY(device_finish(m->device));
    xpu_status result = all ? release_segments(m, &m->pool) : XPU_SUCCESS;
    for (memory_pool *p = m->private_pools, *next; p; p = next) {
        next = p->next;
        if (!is_abandoned(m, p) || (only && p != only)) continue;
        xpu_status status = release_segments(m, p);
        if (result == XPU_SUCCESS) result = status;
        if (p->segments == 0) destroy_pool(m, p);
    }
    return result;
}

static bool is_idle(const segment *s) {
    return block_is_free(s->starts[0]) && s->starts[0]->node.size == s->size;
}

/* Returns unsplittable free blocks to the driver to make room for `size` bytes: one that is large enough,
 * otherwise the largest ones. Returns true if that released enough. */
static bool release_oversize(device_memory *m, const arena *a, size_t size) {
    if (!SET(max_split) || !a->large || m->captures || device_finish(m->device) != XPU_SUCCESS) return false;
    const size_t wanted = is_oversize(size) ? size : SET(max_split) + 1;
    size_t released = 0;
    while (released < wanted) {
        range_node *n = range_ceiling(a->trees[0], wanted, NULL);
        for (range_node *next = n ? NULL : a->trees[0]; next; next = next->right) n = next;
        segment *s = n ? ((block *)n)->segment : NULL;
        if (!s || !is_oversize(n->size) || n->size != s->size) return false;
        released += s->size;
        if (release_segment(m, s) != XPU_SUCCESS) return false;
    }
    return true;
}

/* Returns unused large segments of the default pool until reserved memory is below the threshold. Each round
 * releases the segments that have been idle for at least the mean idle time. */
static xpu_status collect_garbage(device_memory *m) {
    const size_t all = m->fraction != 0 ? m->allowed : cl_device_properties(m->device)->total_memory;
    const size_t limit = (size_t)(SET(garbage_threshold) * (double)all);
    const xpu_memory_stat *reserved = &m->stats.reserved_bytes[XPU_POOL_ALL];
    if (!limit || m->captures || (size_t)reserved->current <= limit) return XPU_SUCCESS;
    XPU_TRY(device_finish(m->device));
    for (bool any = true; any && (size_t)reserved->current > limit;) {
        uint64_t ages = 0, count = 0;
        for (const segment *s = m->segments; s; s = s->after) {
            if (s->starts[0]->arena->pool != &m->pool || !s->starts[0]->arena->large || !is_idle(s)) continue;
            ages += m->requests - s->starts[0]->idle_since;
            count++;
        }
        any = false;
        for (segment *s = m->segments, *after; s && (size_t)reserved->current > limit; s = after) {
            after = s->after;
            const arena *a = s->starts[0]->arena;
            if (a->pool != &m->pool || !a->large || !is_idle(s)) continue;
            if ((m->requests - s->starts[0]->idle_since) * count < ages) continue;
            XPU_TRY(release_segment(m, s));
            any = true;
        }
    }
    return XPU_SUCCESS;
}

static const char *format_size(char text[32], size_t size) {
    static const char *const units[] = {"KiB", "MiB", "GiB"};
    if (size <= 1024) {
        snprintf(text, 32, "%zu bytes", size);
        return text;
    }
    int unit = size <= (size_t)1 << 20 ? 0 : size <= (size_t)1 << 30 ? 1 : 2;
    snprintf(text, 32, "%.2f %s", (double)size / (double)((size_t)1 << 10 * (unit + 1)), units[unit]);
    return text;
}

/* The text is PyTorch's, because users search for it. */
static xpu_status out_of_memory(device_memory *m, arena *a, size_t rounded, size_t size) {
    size_t total, free_bytes = device_memory_free_bytes(m, &total);
    size_t allocated = (size_t)m->stats.allocated_bytes[XPU_POOL_ALL].current;
    size_t reserved = (size_t)m->stats.reserved_bytes[XPU_POOL_ALL].current;
    char tried[32], of[32], is_free[32], allowed[32] = "", used[32], unused[32];
    m->stats.num_ooms++;
    trace(m, XPU_TRACE_OOM, (void *)(uintptr_t)free_bytes, rounded, a->stream_id, NULL);
    if (m->fraction != 0) format_size(allowed, m->allowed);
    const bool is_cpu = cl_device_properties(m->device)->type == XPU_DEVICE_CPU;
    return xpu_fail(XPU_ERROR_OUT_OF_MEMORY,
                    "XPU out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s "
                    "is free. %s%sOf the allocated memory %s is allocated by PyTorch, and %s is reserved by "
                    "PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached "
                    "memory.%s",
                    format_size(tried, size), m->device, format_size(of, total),
                    format_size(is_free, free_bytes), allowed, m->fraction != 0 ? " allowed; " : "",
                    format_size(used, allocated), format_size(unused, reserved - allocated),
                    is_cpu ? " OPENXPU_HOST_MEMORY sets how much host memory this CPU device may use." : "");
}

/* Allocates a block when no free one fits. If the driver is out of memory, cached memory is returned to it,
 * except during a capture, and the allocation is retried. The result is in no tree. */
static xpu_status grow(device_memory *m, arena *a, size_t rounded, block **result) {
    size_t size = segment_size(rounded);
    if (SET(garbage_threshold) > 0) XPU_TRY(collect_garbage(m));
    xpu_status status = new_segment(m, a, size, false, result);
    if (status == XPU_ERROR_OUT_OF_MEMORY && release_oversize(m, a, rounded))
        status = new_segment(m, a, size, false, result);
    if (status != XPU_ERROR_OUT_OF_MEMORY) return status;
    XPU_TRY(device_memory_release(m, NULL));
    status = new_segment(m, a, size, true, result);
    if (status != XPU_ERROR_OUT_OF_MEMORY) return status;
    /* device_memory_release waited for other streams, so their pending blocks are free and may fit. */
    *result = find_free(a, rounded);
    for (memory_pool *p = m->private_pools; !*result && p && a->pool == &m->pool; p = p->next) {
        const arena *spare = p->traits & POOL_USE_ON_OOM ? find_arena(p, a->stream, a->large) : NULL;
        if (spare) *result = find_free(spare, rounded);
    }
    if (!*result) return out_of_memory(m, a, rounded, size);
    arena_remove((*result)->arena, *result);
    return XPU_SUCCESS;
}

/* Splits `b`, which is in no tree: returns the first `size` bytes and inserts the rest as free. */
static inline block *cut(device_memory *m, block *b, size_t size) {
    arena *a = b->arena;
    size_t rest = b->node.size - size;
    bool was_split = b->prev || b->next;
    block *front = take_spare(m);
    *front = (block){.node = {.size = size, .address = b->node.address},
                     .prev = b->prev,
                     .next = b,
                     .segment = b->segment,
                     .arena = a};
    if (front->prev) front->prev->next = front;
    b->prev = front;
    b->node.address += size;
    b->node.size = rest;
    *start_of(b->segment, front->node.address) = front;
    *start_of(b->segment, b->node.address) = b;
    arena_insert(a, b);
    FOR_KINDS(kind, a->large) {
        if (was_split) {
            decrease(&m->stats.inactive_split_bytes[kind], size);
        } else {
            increase(&m->stats.inactive_split[kind], 1);
            increase(&m->stats.inactive_split_bytes[kind], rest);
        }
    }
    return front;
}

/* Uses all of `b`, which is in no tree, and updates the statistics of split blocks. */
static inline block *take_whole(device_memory *m, block *b) {
    if (!b->prev && !b->next) return b;
    FOR_KINDS(kind, b->arena->large) {
        decrease(&m->stats.inactive_split[kind], 1);
        decrease(&m->stats.inactive_split_bytes[kind], b->node.size);
    }
    return b;
}

/* Splits `b` to `size` bytes if pool, sizes and settings allow it; otherwise uses all of it. */
static inline block *split(device_memory *m, block *b, size_t size) {
    size_t rest = b->node.size - size;
    if ((b->arena->pool->traits & POOL_NO_SPLIT) ||
        (b->arena->large ? rest <= SMALL_SIZE : rest < BLOCK_MIN) || is_oversize(size))
        return take_whole(m, b);
    return cut(m, b, size);
}

static inline void hand_out(device_memory *m, block *b, size_t requested) {
    arena *a = b->arena;
    b->allocated = true;
    b->requested = requested;
    if (is_oversize(b->node.size)) increase(&m->stats.oversize_allocations, 1);
    FOR_KINDS(kind, a->large) {
        increase(&m->stats.allocation[kind], 1);
        increase(&m->stats.active[kind], 1);
        increase(&m->stats.allocated_bytes[kind], b->node.size);
        increase(&m->stats.active_bytes[kind], b->node.size);
        increase(&m->stats.requested_bytes[kind], requested);
    }
    b->context = trace(m, XPU_TRACE_ALLOC, b->node.address, requested, a->stream_id, NULL);
}

static inline void take_back(device_memory *m, block *b) {
    b->allocated = false;
    if (is_oversize(b->node.size)) decrease(&m->stats.oversize_allocations, 1);
    FOR_KINDS(kind, b->arena->large) {
        decrease(&m->stats.allocation[kind], 1);
        decrease(&m->stats.allocated_bytes[kind], b->node.size);
    }
    trace(m, XPU_TRACE_FREE_REQUESTED, b->node.address, b->requested, b->arena->stream_id, b->context);
    if (b->uses) stream_use_submit(&m->tracker, &b->uses, b, &b->waiting);
    if (b->waiting == 0) free_block(m, b);
}

xpu_status device_memory_settle(device_memory *m) {
    return stream_use_wait(&m->tracker, NULL, block_waiting, block_done, m);
}

void device_memory_take_back(device_memory *m, block *b) { take_back(m, b); }

/* The block that contains `pointer`, allocated or not. */
static block *block_around(segment *s, const char *pointer) {
    block **at = start_of(s, pointer);
    while (!*at || (*at)->node.address > pointer) at--; /* ends at the latest at the segment's first block */
    return *at;
}

xpu_status device_memory_hand_out(device_memory *m, char *address, size_t size, size_t requested,
                                  uint64_t time) {
    segment *s = segment_map_find(address);
    block *b = s ? block_around(s, address) : NULL;
    const bool fits = b && block_is_free(b) && address + size <= b->node.address + b->node.size;
    XPU_REJECT_IF(!fits, "the %zu bytes at %p are no longer free", size, (void *)address);
    if (!reserve_blocks(m))
        return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for the allocator's tables");
    arena *a = b->arena;
    arena_remove(a, b);
    if (address > b->node.address) { /* the part before `address` stays free */
        block *before = cut(m, b, (size_t)(address - b->node.address));
        arena_remove(a, b);
        arena_insert(a, before);
        FOR_KINDS(kind, a->large) {
            increase(&m->stats.inactive_split[kind], 1);
            increase(&m->stats.inactive_split_bytes[kind], before->node.size);
        }
    }
    b = b->node.size > size ? cut(m, b, size) : take_whole(m, b);
    b->time = time;
    hand_out(m, b, requested);
    return XPU_SUCCESS;
}

static memory_pool *choose_pool(device_memory *m, xpu_stream *stream) {
    for (pool_capture *c = m->captures; c; c = c->next)
        if (c->filter(stream, c->user)) return c->pool;
    return &m->pool;
}

bool xpu_pool_serves(xpu_stream *stream) {
    if (!stream || xpu_in_bad_fork()) return false;
    device_memory *m = lock_memory(xpu_stream_device(stream));
    const bool serves = choose_pool(m, stream) != &m->pool;
    device_memory_unlock(m);
    return serves;
}

static xpu_status allocate(device_memory *m, xpu_stream *stream, size_t requested, block **result) {
    if (m->tracker.pending && !m->captures)
        XPU_TRY(stream_use_poll(&m->tracker, block_waiting, block_done, m));
    size_t size = round_size(requested);
    arena *a = find_arena(choose_pool(m, stream), stream, size > SMALL_SIZE);
    if (!a || !reserve_blocks(m))
        return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for the allocator's tables");

    m->requests++;
    block *b = find_free(a, size);
    if (b)
        arena_remove(a, b);
    else
        XPU_TRY(grow(m, a, size, &b));
    b = split(m, b, size);
    b->time = atomic_load_explicit(&clock_time, memory_order_relaxed);
    hand_out(m, b, requested);
    *result = b;
    return XPU_SUCCESS;
}

/* --- public --- */

xpu_status xpu_malloc(xpu_stream *stream, size_t size, void **pointer) {
    XPU_REJECT_IF(!stream || !pointer, "stream or pointer is NULL");
    if (size == 0) {
        *pointer = NULL;
        return XPU_SUCCESS;
    }
    if (xpu_in_bad_fork()) return cl_init(); /* returns the fork error */
    /* Half of the address space exceeds any device's memory and can be rounded up without overflow. */
    if (size > SIZE_MAX / 2) size = SIZE_MAX / 2;
    block *b = NULL;
    device_memory *m = lock_memory(xpu_stream_device(stream));
    xpu_status status = allocate(m, stream, size, &b);
    size_t whole = 0;
    if (status == XPU_SUCCESS) {
        *pointer = b->node.address;
        whole = b->node.size;
    }
    device_memory_unlock(m);
    if (__builtin_expect(poison_byte() >= 0, 0) && status == XPU_SUCCESS) {
        status = poison_fill(stream, *pointer, whole);
        if (status != XPU_SUCCESS) xpu_free(*pointer);
    }
    return status;
}

/* Finds the allocated block that starts at `pointer` and locks its device's memory. Returns NULL with an
 * error text, and no lock, if there is none. */
static block *lock_block(const void *pointer, const char *what, device_memory **m) {
    int device = segment_map_device(pointer);
    if (device >= 0) {
        *m = lock_memory(device);
        block *b = find_block(pointer);
        if (b && b->allocated) return b;
        device_memory_unlock(*m);
    }
    xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "%s: invalid device pointer: %p", what, pointer);
    return NULL;
}

xpu_status xpu_free(void *pointer) {
    if (!pointer) return XPU_SUCCESS;
    if (xpu_in_bad_fork()) return cl_init();
    device_memory *m;
    block *b = lock_block(pointer, "xpu_free", &m);
    if (!b) return XPU_ERROR_INVALID_ARGUMENT;
    take_back(m, b);
    device_memory_unlock(m);
    return XPU_SUCCESS;
}

xpu_status xpu_memory_record_stream(void *pointer, xpu_stream *stream) {
    XPU_REJECT_IF(!stream, "stream is NULL");
    if (!pointer) return XPU_SUCCESS; /* an empty tensor */
    if (xpu_in_bad_fork()) return cl_init();
    device_memory *m;
    block *b = lock_block(pointer, "xpu_memory_record_stream", &m);
    if (!b) return XPU_ERROR_INVALID_ARGUMENT;
    xpu_status status = XPU_SUCCESS;
    if (b->arena->stream != stream) status = stream_use_add(&m->tracker, &b->uses, stream);
    device_memory_unlock(m);
    return status;
}

xpu_status xpu_memory_device_of(const void *pointer, int *device) {
    int found = segment_map_device(pointer);
    XPU_REJECT_IF(found < 0, "%p is not in device memory", pointer);
    *device = found;
    return XPU_SUCCESS;
}

/* The allocated block that contains `pointer`, or NULL. The device's lock is held. */
static const block *handed_out_around(const void *pointer) {
    segment *s = segment_map_find(pointer);
    const block *b = s ? block_around(s, pointer) : NULL; /* the segment may be gone since the lookup */
    return b && b->allocated ? b : NULL;
}

uint64_t allocator_time_of(const void *pointer) {
    const int device = segment_map_device(pointer);
    if (device < 0) return 0;
    device_memory *m = lock_memory(device);
    const block *b = handed_out_around(pointer);
    const uint64_t time = b ? b->time : 0;
    device_memory_unlock(m);
    return time;
}

xpu_status xpu_memory_base_of(const void *pointer, void **base, size_t *size) {
    XPU_REJECT_IF(!base || !size, "base or size is NULL");
    if (xpu_in_bad_fork()) return cl_init();
    int device = segment_map_device(pointer);
    XPU_REJECT_IF(device < 0, "%p is not in device memory", pointer);
    device_memory *m = lock_memory(device);
    const block *b = handed_out_around(pointer);
    bool found = b != NULL;
    if (found) {
        *base = b->node.address;
        *size = b->node.size;
    }
    device_memory_unlock(m);
    XPU_REJECT_IF(!found, "%p is not in an allocated block", pointer);
    return XPU_SUCCESS;
}

xpu_status xpu_memory_empty_cache(int device) {
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    xpu_status status = device_memory_release(m, NULL);
    device_memory_unlock(m);
    return status;
}
