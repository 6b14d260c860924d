/* Private memory pools of the caching allocator, for graphs and for a program's MemPool. A pool is created by
 * its first user and destroyed with its last segment after the last user has released it. Any thread may
 * call; each function takes the device's lock. XPU_ERROR_INVALID_ARGUMENT: there is no such pool. */
#include <inttypes.h>

#include "cl/cl.h"
#include "core/memory.h"
#include "runtime/allocator.h"
#include "runtime/segment_map.h"

static memory_pool *find_pool(device_memory *m, const uint64_t id[2]) {
    memory_pool *p = m->private_pools;
    while (p && (p->id[0] != id[0] || p->id[1] != id[1])) p = p->next;
    return p;
}

static pool_capture **find_capture(device_memory *m, const uint64_t id[2]) {
    pool_capture **at = &m->captures;
    while (*at && ((*at)->pool->id[0] != id[0] || (*at)->pool->id[1] != id[1])) at = &(*at)->next;
    return at;
}

static xpu_status no_pool(const uint64_t id[2]) {
    return xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "there is no memory pool (%" PRIu64 ", %" PRIu64 ")", id[0],
                    id[1]);
}

static xpu_status acquire(device_memory *m, const uint64_t id[2], memory_pool **pool) {
    *pool = find_pool(m, id);
    if (*pool) {
        (*pool)->users++;
        return XPU_SUCCESS;
    }
    *pool = core_calloc(1, sizeof **pool);
    if (!*pool) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a memory pool");
    (*pool)->id[0] = id[0];
    (*pool)->id[1] = id[1];
    (*pool)->users = 1;
    (*pool)->next = m->private_pools;
    m->private_pools = *pool;
    return XPU_SUCCESS;
}

xpu_status xpu_pool_acquire(int device, const uint64_t id[2]) {
    XPU_REJECT_IF(!id[0] && !id[1], "(0, 0) is the default pool");
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    memory_pool *pool;
    xpu_status status = acquire(m, id, &pool);
    device_memory_unlock(m);
    return status;
}

xpu_status xpu_pool_begin(int device, const uint64_t id[2], xpu_pool_filter filter, void *user) {
    XPU_REJECT_IF(!id[0] && !id[1], "(0, 0) is the default pool");
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    xpu_status status;
    pool_capture *c = NULL;
    if (*find_capture(m, id))
        status =
            xpu_fail(XPU_ERROR_INVALID_ARGUMENT,
                     "memory pool (%" PRIu64 ", %" PRIu64 ") is already in use (begun twice)", id[0], id[1]);
    else if (!(c = core_calloc(1, sizeof *c)))
        status = xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory while beginning a memory pool");
    else
        status = acquire(m, id, &c->pool);
    if (status == XPU_SUCCESS) {
        c->filter = filter;
        c->user = user;
        c->next = m->captures;
        m->captures = c;
    } else {
        core_free(c);
    }
    device_memory_unlock(m);
    return status;
}

xpu_status xpu_pool_end(int device, const uint64_t id[2]) {
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    pool_capture **at = find_capture(m, id), *c = *at;
    if (c) *at = c->next;
    core_free(c);
    xpu_status status = c ? XPU_SUCCESS : no_pool(id);
    device_memory_unlock(m);
    return status;
}

xpu_status xpu_pool_release(int device, const uint64_t id[2]) {
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    memory_pool *pool = find_pool(m, id);
    if (pool && pool->users > 0) pool->users--;
    xpu_status status = pool ? XPU_SUCCESS : no_pool(id);
    device_memory_unlock(m);
    return status;
}

xpu_status xpu_pool_users(int device, const uint64_t id[2], int *users) {
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    memory_pool *pool = find_pool(m, id);
    *users = pool ? pool->users : 0;
    device_memory_unlock(m);
    return XPU_SUCCESS;
}

xpu_status xpu_pool_empty(int device, const uint64_t id[2]) {
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    memory_pool *pool = find_pool(m, id);
    xpu_status status = pool ? device_memory_release(m, pool) : no_pool(id);
    device_memory_unlock(m);
    return status;
}

xpu_status xpu_pool_set_source(int device, const uint64_t id[2], xpu_pool_source source) {
    XPU_REJECT_IF(!source.take || !source.give, "a source needs both functions");
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    memory_pool *pool = find_pool(m, id);
    xpu_status status = pool ? XPU_SUCCESS : no_pool(id);
    if (pool && pool->segments)
        status = xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "the memory pool already has segments");
    else if (pool)
        pool->source = source;
    device_memory_unlock(m);
    return status;
}

static xpu_status add_trait(int device, const uint64_t id[2], pool_trait trait) {
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    memory_pool *pool = find_pool(m, id);
    if (pool) pool->traits |= trait;
    xpu_status status = pool ? XPU_SUCCESS : no_pool(id);
    device_memory_unlock(m);
    return status;
}

xpu_status xpu_pool_use_on_oom(int device, const uint64_t id[2]) {
    return add_trait(device, id, POOL_USE_ON_OOM);
}

xpu_status xpu_pool_no_split(int device, const uint64_t id[2]) {
    return add_trait(device, id, POOL_NO_SPLIT);
}

void *xpu_pool_this_thread(void) {
    static _Thread_local char here; /* its address identifies the thread */
    return &here;
}

bool xpu_pool_thread_filter(xpu_stream *stream, void *user) {
    (void)stream;
    return xpu_pool_this_thread() == user;
}

/* --- saving and restoring a pool's allocations --- */

typedef struct saved_block {
    char *address;
    size_t size, requested;
    uint64_t time;
} saved_block;

struct xpu_pool_state {
    int device;
    uint64_t id[2];
    size_t count;
    saved_block blocks[];
};

static block *first_of(const segment *s, const memory_pool *pool) {
    block *b = s->starts[0];
    return b->arena->pool == pool ? b : NULL;
}

/* Counts the allocated blocks of `pool`, and fills `list` if it is not NULL. */
static size_t handed_out(const device_memory *m, const memory_pool *pool, saved_block *list) {
    size_t count = 0;
    for (const segment *s = m->segments; s; s = s->after) {
        for (const block *b = first_of(s, pool); b; b = b->next) {
            if (!b->allocated) continue;
            if (list) list[count] = (saved_block){b->node.address, b->node.size, b->requested, b->time};
            count++;
        }
    }
    return count;
}

static xpu_status save(device_memory *m, const uint64_t id[2], xpu_pool_state **result) {
    memory_pool *pool = find_pool(m, id);
    if (!pool) return no_pool(id);
    const size_t count = handed_out(m, pool, NULL);
    xpu_pool_state *state = core_calloc(1, sizeof *state + count * sizeof state->blocks[0]);
    if (!state) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a pool's state");
    state->device = m->device;
    state->id[0] = id[0];
    state->id[1] = id[1];
    state->count = handed_out(m, pool, state->blocks);
    *result = state;
    return XPU_SUCCESS;
}

xpu_status xpu_pool_save(int device, const uint64_t id[2], xpu_pool_state **state) {
    XPU_REJECT_IF(!state, "state is NULL");
    device_memory *m;
    XPU_TRY(device_memory_lock(device, &m));
    const xpu_status status = save(m, id, state);
    device_memory_unlock(m);
    return status;
}

/* Runs before anything changes: fails if the pool has lost a segment since the save. */
static xpu_status check_segments(const memory_pool *pool, const xpu_pool_state *state) {
    for (size_t i = 0; i < state->count; i++) {
        const segment *s = segment_map_find(state->blocks[i].address);
        XPU_REJECT_IF(!s || !first_of(s, pool), "the memory at %p no longer belongs to the pool",
                      (void *)state->blocks[i].address);
    }
    return XPU_SUCCESS;
}

static xpu_status restore(device_memory *m, const xpu_pool_state *state) {
    const memory_pool *pool = find_pool(m, state->id);
    if (!pool) return no_pool(state->id);
    XPU_TRY(check_segments(pool, state));
    for (segment *s = m->segments; s; s = s->after)
        for (block *b = first_of(s, pool); b; b = b->next)
            if (b->allocated) device_memory_take_back(m, b);
    XPU_TRY(device_memory_settle(m));
    for (size_t i = 0; i < state->count; i++) {
        const saved_block *b = &state->blocks[i];
        XPU_TRY(device_memory_hand_out(m, b->address, b->size, b->requested, b->time));
    }
    return XPU_SUCCESS;
}

xpu_status xpu_pool_restore(const xpu_pool_state *state) {
    XPU_REJECT_IF(!state, "state is NULL");
    device_memory *m;
    XPU_TRY(device_memory_lock(state->device, &m));
    const xpu_status status = restore(m, state);
    device_memory_unlock(m);
    return status;
}

xpu_status xpu_pool_state_visit(const xpu_pool_state *state, void (*visit)(void *address, void *user),
                                void *user) {
    XPU_REJECT_IF(!state || !visit, "NULL");
    for (size_t i = 0; i < state->count; i++) visit(state->blocks[i].address, user);
    return XPU_SUCCESS;
}

void xpu_pool_state_destroy(xpu_pool_state *state) { core_free(state); }
