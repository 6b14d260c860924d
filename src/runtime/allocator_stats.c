/* Inspection of the caching allocator: statistics, memory limits, block listing and history hook. Any thread
 * may call; each function takes the device's lock. The hook runs with that lock held, so it must not call the
 * allocator; block visitors run without it. */
#include "cl/cl.h"
#include "core/memory.h"
#include "runtime/allocator.h"

xpu_status xpu_memory_get_stats(int device, xpu_memory_stats *stats) {
    XPU_REJECT_IF(!stats, "stats is NULL");
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    *stats = m->stats;
    stats->max_split_size = (int64_t)allocator_max_split();
    device_memory_unlock(m);
    return XPU_SUCCESS;
}

static void reset(device_memory *m, void (*one)(xpu_memory_stat *)) {
    xpu_memory_stats *s = &m->stats;
    for (int kind = 0; kind < XPU_POOL_KINDS; kind++) {
        one(&s->allocation[kind]);
        one(&s->segment[kind]);
        one(&s->active[kind]);
        one(&s->inactive_split[kind]);
        one(&s->allocated_bytes[kind]);
        one(&s->reserved_bytes[kind]);
        one(&s->active_bytes[kind]);
        one(&s->inactive_split_bytes[kind]);
        one(&s->requested_bytes[kind]);
    }
    one(&s->oversize_allocations);
    one(&s->oversize_segments);
}

static void reset_peak(xpu_memory_stat *stat) { stat->peak = stat->current; }
static void reset_accumulated(xpu_memory_stat *stat) { stat->allocated = stat->freed = 0; }

xpu_status xpu_memory_reset_peak_stats(int device) {
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    reset(m, reset_peak);
    device_memory_unlock(m);
    return XPU_SUCCESS;
}

xpu_status xpu_memory_reset_accumulated_stats(int device) {
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    reset(m, reset_accumulated);
    m->stats.num_alloc_retries = m->stats.num_ooms = 0;
    device_memory_unlock(m);
    return XPU_SUCCESS;
}

xpu_status xpu_memory_set_fraction(int device, double fraction) {
    XPU_REJECT_IF(!(fraction > 0 && fraction <= 1), "invalid fraction: %g. Please set within (0, 1].",
                  fraction);
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    m->fraction = fraction;
    m->allowed = (size_t)(fraction * (double)cl_device_properties(device)->total_memory);
    device_memory_unlock(m);
    return XPU_SUCCESS;
}

xpu_status xpu_memory_get_fraction(int device, double *fraction) {
    XPU_REJECT_IF(!fraction, "fraction is NULL");
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    *fraction = m->fraction != 0 ? m->fraction : 1;
    device_memory_unlock(m);
    return XPU_SUCCESS;
}

xpu_status xpu_memory_info(int device, size_t *free_bytes, size_t *total_bytes) {
    XPU_REJECT_IF(!free_bytes || !total_bytes, "free_bytes or total_bytes is NULL");
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    *free_bytes = device_memory_free_bytes(m, total_bytes);
    device_memory_unlock(m);
    return XPU_SUCCESS;
}

static xpu_block_info describe(const device_memory *m, const segment *s, const block *b) {
    bool is_free = block_is_free(b);
    return (xpu_block_info){
        .segment = s->base,
        .address = b->node.address,
        .segment_size = s->size,
        .size = b->node.size,
        .requested_size = is_free ? 0 : b->requested,
        .device = m->device,
        .stream_id = b->arena->stream_id,
        .is_large = b->arena->large,
        .state = b->allocated ? XPU_BLOCK_ALLOCATED
                 : is_free    ? XPU_BLOCK_INACTIVE
                              : XPU_BLOCK_PENDING_FREE,
        .pool = {b->arena->pool->id[0], b->arena->pool->id[1]},
        .context = b->context,
    };
}

/* Lists all blocks; the caller frees *list. */
static xpu_status list_blocks(const device_memory *m, xpu_block_info **list, size_t *count,
                              size_t *active_bytes) {
    *count = *active_bytes = 0;
    for (const segment *s = m->segments; s; s = s->after)
        for (const block *b = s->starts[0]; b; b = b->next) ++*count;
    *list = core_malloc((*count + 1) * sizeof **list);
    if (!*list)
        return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory while listing %zu blocks", *count);
    xpu_block_info *out = *list;
    for (const segment *s = m->segments; s; s = s->after) {
        for (const block *b = s->starts[0]; b; b = b->next) {
            *out++ = describe(m, s, b);
            if (!block_is_free(b)) *active_bytes += b->node.size;
        }
    }
    return XPU_SUCCESS;
}

xpu_status xpu_memory_visit_blocks(int device, xpu_block_visitor visit, void *user) {
    XPU_REJECT_IF(!visit, "visit is NULL");
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    xpu_block_info *list;
    size_t count, active_bytes;
    xpu_status status = list_blocks(m, &list, &count, &active_bytes);
    if (status == XPU_SUCCESS && m->hook)
        m->hook(XPU_TRACE_SNAPSHOT, device, NULL, active_bytes, 0, NULL, m->hook_user);
    device_memory_unlock(m);
    if (status != XPU_SUCCESS) return status;
    /* The lock is released, because the visitor may allocate. */
    for (size_t i = 0; i < count; i++) visit(&list[i], user);
    core_free(list);
    return XPU_SUCCESS;
}

xpu_status xpu_memory_set_hook(int device, xpu_memory_hook hook, void *user) {
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    m->hook = hook;
    m->hook_user = user;
    device_memory_unlock(m);
    return XPU_SUCCESS;
}
