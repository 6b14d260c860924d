/* Graphs: capture and replay. A capture counts as an observer, so work_submit takes its slow path, which
 * records the work here instead of running it. A node is a copy of the work with everything it points at.
 * Device memory comes from the graph's private pool and stays reserved until the graph is reset.
 *
 * The caller owns a graph and destroys it. Any thread may submit work to a captured stream; replays of one
 * graph are serialized. Errors: XPU_ERROR_INVALID_ARGUMENT for operations that a capture does not permit,
 * XPU_ERROR_NOT_SUPPORTED for more streams or generators than a graph can hold. */
#include "runtime/graph.h"

#include <stdlib.h>

#include "core/hash.h"
#include "core/memory.h"
#include "runtime/allocator.h"
#include "runtime/kernel.h"

enum { STREAMS_MAX = 32 }; /* per capture */

/* A graph's use of one generator. During capture, random operations receive a placeholder seed, `mark`. At
 * replay, every kernel parameter that holds the placeholder gets the real seed and offset. Kernels of other
 * graphs may hold it too: the backward graph of a dropout must draw the numbers of the last forward replay.
 */
typedef struct draws {
    struct draws *next; /* list of all */
    int holders;        /* references: the graph, and each patch */
    xpu_generator *generator;
    uint64_t mark;          /* the placeholder seed */
    uint64_t used;          /* random numbers that one replay consumes */
    uint64_t seed, counter; /* real values of the last replay */
} draws;
static draws *all_draws;
static atomic_int draws_count;
static os_mutex draws_lock = OS_MUTEX_INIT; /* guards the list, and `holders` */

/* The position in a kernel's parameters of a placeholder seed and the counter behind it. A replay writes the
 * real seed, and adds the replay's counter to the recorded one. */
typedef struct patch {
    struct patch *next;
    draws *of;
    size_t at;
    uint64_t counter;
} patch;

typedef struct node {
    work w; /* points into the bytes behind the node */
    xpu_range range;
    size_t global[3];
    cl_kernel instance; /* with its arguments set; NULL: replayed through work_submit */
    patch *patches;
} node;

/* Copies of host memory that nodes read (xpu_graph_keep). */
typedef struct table {
    struct table *next;
    _Alignas(16) char bytes[];
} table;

typedef struct member {
    xpu_stream *stream;
    uint32_t has[STREAMS_MAX]; /* vector clock: how many nodes of each member precede its next node */
} member;

struct xpu_graph {
    struct xpu_graph *next; /* list of all */
    int device;
    uint64_t capture; /* number of the active capture; 0: none */
    uint64_t ended;   /* when its capture ended, by allocator_tick; 0: it has no capture */
    bool is_ready, is_watched;
    bool has_pool;
    uint64_t pool[2];
    node **nodes;
    int node_count, node_room;
    table *tables;
    draws *own[8];                 /* by generator */
    uint32_t *counters;            /* NULL: no node uses them */
    const xpu_stream *replayed_on; /* stream of the last replay; only compared, never dereferenced */
    int own_count;
    /* During a capture only: its streams, the one that began it first, and their clocks at each mark. */
    member members[STREAMS_MAX];
    int member_count;
    uint32_t (*marks)[STREAMS_MAX];
    int mark_count, mark_room;
    os_mutex lock;        /* guards the graph while it captures */
    os_mutex replay_lock; /* held during a replay */
};

static xpu_graph *graphs;                    /* list of all */
static os_mutex graphs_lock = OS_MUTEX_INIT; /* guards the list, and `capture` and `ended` of each graph */
static uint64_t last_capture;

/* --- queries --- */

bool xpu_stream_is_capturing(const xpu_stream *stream) { return stream && stream_capture(stream); }

xpu_status xpu_stream_refuse_capture(const xpu_stream *stream, const char *what) {
    if (!xpu_stream_is_capturing(stream)) return XPU_SUCCESS;
    return xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "operation not permitted when stream is capturing: %s", what);
}

xpu_status graph_refuse_device(int device, const char *what) {
    bool found = false;
    os_mutex_lock(&graphs_lock);
    for (const xpu_graph *g = graphs; g; g = g->next) found |= g->capture && g->device == device;
    os_mutex_unlock(&graphs_lock);
    if (!found) return XPU_SUCCESS;
    return xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "operation not permitted when stream is capturing: %s", what);
}

/* The graph whose active capture has this number, with its lock held; NULL if that capture has ended. */
static xpu_graph *lock_capture(uint64_t number) {
    os_mutex_lock(&graphs_lock);
    xpu_graph *g = number ? graphs : NULL;
    while (g && g->capture != number) g = g->next;
    if (g) os_mutex_lock(&g->lock);
    os_mutex_unlock(&graphs_lock);
    return g;
}

bool xpu_graph_may_use(int device, const void *pointer) {
    if (xpu_in_bad_fork()) return false; /* the child replays nothing, and its lock may be stuck */
    const uint64_t since = allocator_time_of(pointer);
    bool found = false;
    os_mutex_lock(&graphs_lock);
    for (const xpu_graph *g = graphs; g; g = g->next)
        found |= g->device == device && (g->capture || g->ended > since);
    os_mutex_unlock(&graphs_lock);
    return found;
}

xpu_status xpu_pool_new_id(bool of_user, uint64_t pool[2]) {
    static atomic_ullong last;
    const uint64_t number = atomic_fetch_add(&last, 1) + 1;
    pool[0] = of_user ? 0 : number;
    pool[1] = of_user ? number : 0;
    return XPU_SUCCESS;
}

/* --- random numbers --- */

static void release_draws(draws *d) {
    os_mutex_lock(&draws_lock);
    const bool is_last = --d->holders == 0;
    if (is_last) {
        draws **at = &all_draws;
        while (*at != d) at = &(*at)->next;
        *at = d->next;
        atomic_fetch_sub(&draws_count, 1);
    }
    os_mutex_unlock(&draws_lock);
    if (!is_last) return;
    xpu_generator_destroy(d->generator);
    core_free(d);
}

static draws *new_draws(xpu_generator *generator) {
    draws *d = core_calloc(1, sizeof *d);
    if (!d) return NULL;
    static uint64_t serial;
    os_mutex_lock(&draws_lock);
    const uint64_t words[3] = {++serial, os_clock(), (uint64_t)(uintptr_t)d};
    const hash128 h = hash128_end(hash128_add(HASH128_START, words, sizeof words));
    memcpy(&d->mark, &h, sizeof d->mark);
    d->holders = 1;
    d->generator = generator;
    d->next = all_draws;
    all_draws = d;
    atomic_fetch_add(&draws_count, 1);
    os_mutex_unlock(&draws_lock);
    generator_hold(generator);
    generator_capture(generator, true);
    return d;
}

xpu_status xpu_graph_reserve(xpu_stream *stream, xpu_generator *generator, uint64_t count, uint64_t *seed,
                             uint64_t *offset) {
    XPU_REJECT_IF(!stream || !generator || !seed || !offset, "NULL");
    xpu_graph *g = stream_capture(stream);
    if (!g) return xpu_generator_reserve(generator, count, seed, offset);
    XPU_REJECT_IF(count > UINT64_MAX - 3, "count is too large");
    os_mutex_lock(&g->lock);
    int i = 0;
    while (i < g->own_count && g->own[i]->generator != generator) i++;
    xpu_status status = XPU_SUCCESS;
    if (i == (int)(sizeof g->own / sizeof *g->own))
        status = xpu_fail(XPU_ERROR_NOT_SUPPORTED, "a graph can use up to %d generators", i);
    else if (i == g->own_count && !(g->own[i] = new_draws(generator)))
        status = xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a graph's generator");
    if (status == XPU_SUCCESS) {
        draws *d = g->own[i];
        if (i == g->own_count) g->own_count++;
        *seed = d->mark;
        *offset = d->used;
        d->used += (count + 3) / 4 * 4;
    }
    os_mutex_unlock(&g->lock);
    return status;
}

/* The draws with this placeholder, with a new reference; NULL if `mark` is not a placeholder. */
static draws *find_draws(uint64_t mark) {
    os_mutex_lock(&draws_lock);
    draws *d = all_draws;
    while (d && d->mark != mark) d = d->next;
    if (d) d->holders++;
    os_mutex_unlock(&draws_lock);
    return d;
}

/* Finds placeholder seeds in the kernel's parameters. */
static xpu_status add_patches(node *n) {
    const char *params = n->w.seen.params;
    const size_t words = params ? n->w.seen.params_size / sizeof(uint64_t) : 0;
    for (size_t i = 0; i + 1 < words; i++) {
        uint64_t pair[2];
        memcpy(pair, params + i * sizeof *pair, sizeof pair);
        draws *d = find_draws(pair[0]);
        if (!d) continue;
        patch *p = core_malloc(sizeof *p);
        if (!p) {
            release_draws(d);
            return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a graph");
        }
        *p = (patch){n->patches, d, i * sizeof *pair, pair[1]};
        n->patches = p;
    }
    return XPU_SUCCESS;
}

/* --- nodes --- */

static void free_node(const xpu_graph *g, node *n) {
    if (n->instance && !xpu_in_bad_fork()) cl_devices[g->device].api->clReleaseKernel(n->instance);
    for (patch *p = n->patches, *next; p; p = next) {
        next = p->next;
        release_draws(p->of);
        core_free(p);
    }
    if (n->w.release) n->w.release((void *)n->w.seen.context);
    core_free(n);
}

static size_t padded(size_t size) { return (size + 15) / 16 * 16; }

/* Copies to *at and advances it. */
static void *put(char **at, const void *from, size_t size) {
    void *to = memcpy(*at, from, size);
    *at += padded(size);
    return to;
}

/* Copies the work and everything it points at whose lifetime ends with the submitting call. */
static node *copy_of(const work *w) {
    const xpu_work *seen = &w->seen;
    const bool has_context = seen->context && !w->release;
    size_t size = padded(sizeof(node)) + padded(seen->params ? seen->params_size : 0) +
                  padded(seen->pattern_size) + padded(has_context ? seen->context_size : 0) +
                  padded((size_t)seen->arg_count * sizeof *seen->args);
    for (int i = 0; i < seen->arg_count; i++)
        if (seen->args[i].value) size += padded(seen->args[i].size);
    node *n = core_malloc(size);
    if (!n) return NULL;
    *n = (node){.w = *w};
    char *at = (char *)n + padded(sizeof *n);
    n->w.list = NULL;
    n->w.of = NULL;
    if (seen->range) {
        n->range = *seen->range;
        n->w.seen.range = &n->range;
    }
    if (seen->params) n->w.seen.params = put(&at, seen->params, seen->params_size);
    if (seen->pattern) n->w.seen.pattern = put(&at, seen->pattern, seen->pattern_size);
    if (has_context) n->w.seen.context = put(&at, seen->context, seen->context_size);
    if (seen->arg_count) {
        xpu_arg *args = put(&at, seen->args, (size_t)seen->arg_count * sizeof *args);
        for (int i = 0; i < seen->arg_count; i++)
            if (args[i].value) args[i].value = put(&at, args[i].value, args[i].size);
        n->w.seen.args = args;
    }
    return n;
}

static xpu_status add_node(xpu_graph *g, node *n) {
    if (g->node_count == g->node_room) {
        const int room = g->node_room ? 2 * g->node_room : 64;
        node **more = core_realloc(g->nodes, (size_t)room * sizeof *more);
        if (!more) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a graph");
        g->nodes = more;
        g->node_room = room;
    }
    g->nodes[g->node_count++] = n;
    return XPU_SUCCESS;
}

xpu_status xpu_graph_keep(xpu_stream *stream, const void *data, size_t size, const void **kept) {
    XPU_REJECT_IF(!stream || !data || !kept, "NULL");
    *kept = data;
    xpu_graph *g = stream_capture(stream);
    if (!g) return XPU_SUCCESS;
    table *t = core_malloc(sizeof *t + size);
    if (!t) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a graph");
    memcpy(t->bytes, data, size);
    os_mutex_lock(&g->lock);
    t->next = g->tables;
    g->tables = t;
    os_mutex_unlock(&g->lock);
    *kept = t->bytes;
    return XPU_SUCCESS;
}

/* --- streams of a capture --- */

static int member_of(const xpu_graph *g, const xpu_stream *stream) {
    int i = 0;
    while (i < g->member_count && g->members[i].stream != stream) i++;
    return i;
}

xpu_status graph_record(xpu_graph *g, const work *w) {
    if (w->blocking)
        return xpu_stream_refuse_capture(
            w->seen.stream,
            "a copy that the host waits for, or whose host memory may change (.item(), .cpu(), tensors "
            "created from Python values; a copy from pinned memory with non_blocking=True can be captured)");
    node *n = copy_of(w);
    xpu_status status =
        n ? XPU_SUCCESS : xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a graph");
    if (status == XPU_SUCCESS && atomic_load(&draws_count)) status = add_patches(n);
    if (status == XPU_SUCCESS) {
        os_mutex_lock(&g->lock);
        status = add_node(g, n);
        const int i = member_of(g, w->seen.stream);
        if (status == XPU_SUCCESS && i < g->member_count) g->members[i].has[i]++;
        os_mutex_unlock(&g->lock);
    }
    if (status == XPU_SUCCESS || !n) return status;
    n->w.release = NULL; /* on failure the caller still owns the context */
    free_node(g, n);
    return status;
}

void graph_note_watched(xpu_graph *g) {
    os_mutex_lock(&g->lock);
    g->is_watched = true;
    os_mutex_unlock(&g->lock);
}

xpu_status graph_mark_stream(xpu_graph *g, const xpu_stream *stream, graph_mark *mark) {
    xpu_status status = XPU_SUCCESS;
    os_mutex_lock(&g->lock);
    if (g->mark_count == g->mark_room) {
        const int room = g->mark_room ? 2 * g->mark_room : 16;
        uint32_t (*more)[STREAMS_MAX] = core_realloc(g->marks, (size_t)room * sizeof *more);
        if (more) {
            g->marks = more;
            g->mark_room = room;
        } else {
            status = xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a graph's events");
        }
    }
    if (status == XPU_SUCCESS) {
        memcpy(g->marks[g->mark_count], g->members[member_of(g, stream)].has, sizeof *g->marks);
        *mark = (graph_mark){g->capture, g->mark_count++};
    }
    os_mutex_unlock(&g->lock);
    return status;
}

bool graph_mark_is_open(const graph_mark *mark) {
    xpu_graph *g = lock_capture(mark->capture);
    if (g) os_mutex_unlock(&g->lock);
    return g != NULL;
}

xpu_status graph_join(xpu_stream *stream, const graph_mark *mark) {
    xpu_graph *g = lock_capture(mark->capture);
    if (!g) return XPU_SUCCESS;
    xpu_status status = XPU_SUCCESS;
    const xpu_graph *there = stream_capture(stream);
    const int i = member_of(g, stream);
    if (there && there != g)
        status = xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "a stream can't be part of two captures");
    else if (stream->device != g->device)
        status = xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "a capture of device %d can't continue on device %d",
                          g->device, stream->device);
    else if (i == STREAMS_MAX)
        status = xpu_fail(XPU_ERROR_NOT_SUPPORTED, "a capture can use up to %d streams", i);
    if (status == XPU_SUCCESS) {
        if (i == g->member_count) {
            g->members[g->member_count++] = (member){.stream = stream};
            atomic_store(&stream->capture, g);
        }
        uint32_t *has = g->members[i].has;
        for (int k = 0; k < STREAMS_MAX; k++)
            if (g->marks[mark->place][k] > has[k]) has[k] = g->marks[mark->place][k];
    }
    os_mutex_unlock(&g->lock);
    return status;
}

/* --- captures --- */

xpu_status xpu_graph_create(int device, xpu_graph **graph) {
    const xpu_device_properties *properties;
    XPU_REJECT_IF(!graph, "NULL");
    XPU_TRY(xpu_device_get_properties(device, &properties));
    xpu_graph *g = core_calloc(1, sizeof *g);
    if (!g) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a graph");
    g->device = device;
    os_mutex_init(&g->lock);
    os_mutex_init(&g->replay_lock);
    os_mutex_lock(&graphs_lock);
    g->next = graphs;
    graphs = g;
    os_mutex_unlock(&graphs_lock);
    *graph = g;
    return XPU_SUCCESS;
}

xpu_status graph_counters(xpu_graph *g, uint32_t **counters) {
    xpu_status status = XPU_SUCCESS;
    os_mutex_lock(&g->lock);
    if (!g->counters) status = counters_make(g->device, &g->counters);
    *counters = g->counters;
    os_mutex_unlock(&g->lock);
    return status;
}

/* Pool filter: streams of this capture allocate from the graph's pool. */
static bool is_of_capture(xpu_stream *stream, void *graph) { return stream_capture(stream) == graph; }

xpu_status xpu_graph_begin(xpu_graph *g, xpu_stream *stream, const uint64_t pool[2]) {
    XPU_REJECT_IF(!g || !stream, "NULL");
    if (xpu_in_bad_fork()) return cl_init();
    xpu_stream *everybodys;
    XPU_TRY(xpu_stream_default(g->device, &everybodys));
    XPU_REJECT_IF(stream->device != g->device, "the graph belongs to device %d, but the stream to device %d",
                  g->device, stream->device);
    XPU_REJECT_IF(stream == everybodys, "graphs must be captured on a non-default stream");
    XPU_REJECT_IF(stream_capture(stream), "the stream is already capturing");
    XPU_REJECT_IF(g->has_pool, "the graph already has a capture; create a new graph, or reset this one");
    uint64_t id[2] = {pool ? pool[0] : 0, pool ? pool[1] : 0};
    if (!id[0] && !id[1]) XPU_TRY(xpu_pool_new_id(false, id));
    XPU_TRY(xpu_pool_begin(g->device, id, is_of_capture, g));
    memcpy(g->pool, id, sizeof id);
    g->has_pool = true;
    g->members[0] = (member){.stream = stream};
    g->member_count = 1;
    os_mutex_lock(&graphs_lock);
    g->capture = ++last_capture;
    os_mutex_unlock(&graphs_lock);
    atomic_fetch_add(&work_observers, 1);
    atomic_store(&stream->capture, g);
    return XPU_SUCCESS;
}

static void empty(xpu_graph *g) {
    os_mutex_lock(&graphs_lock);
    g->ended = 0;
    os_mutex_unlock(&graphs_lock);
    for (int i = 0; i < g->node_count; i++) free_node(g, g->nodes[i]);
    core_free(g->nodes);
    for (table *t = g->tables, *next; t; t = next) {
        next = t->next;
        core_free(t);
    }
    g->tables = NULL;
    g->nodes = NULL;
    g->node_count = g->node_room = 0;
    for (int i = 0; i < g->own_count; i++) release_draws(g->own[i]);
    g->own_count = 0;
    /* A replay that is still running may use the counters. */
    if (g->counters && !xpu_in_bad_fork() && device_finish(g->device) == XPU_SUCCESS)
        cl_memory_free(g->device, g->counters);
    g->counters = NULL;
    g->is_ready = g->is_watched = false;
}

xpu_status xpu_graph_end(xpu_graph *g) {
    XPU_REJECT_IF(!g, "NULL");
    os_mutex_lock(&graphs_lock);
    const bool captured = g->capture != 0;
    if (captured) {
        os_mutex_lock(&g->lock); /* waits for threads that are recording */
        os_mutex_unlock(&g->lock);
        g->capture = 0;
        g->ended = allocator_tick();
    }
    os_mutex_unlock(&graphs_lock);
    XPU_REJECT_IF(!captured, "the graph is not capturing");
    atomic_fetch_sub(&work_observers, 1);
    int64_t unjoined = -1;
    for (int i = 0; i < g->member_count; i++) {
        atomic_store(&g->members[i].stream->capture, NULL);
        if (g->members[0].has[i] < g->members[i].has[i]) unjoined = g->members[i].stream->id;
    }
    core_free(g->marks);
    g->marks = NULL;
    g->mark_count = g->mark_room = g->member_count = 0;
    for (int i = 0; i < g->own_count; i++) generator_capture(g->own[i]->generator, false);
    XPU_TRY(xpu_pool_end(g->device, g->pool));
    if (unjoined < 0) return XPU_SUCCESS;
    empty(g);
    g->has_pool = false;
    XPU_TRY(xpu_pool_release(g->device, g->pool));
    return xpu_fail(XPU_ERROR_INVALID_ARGUMENT,
                    "the capture has unjoined work: its stream never waited for the work of stream %lld",
                    (long long)unjoined);
}

xpu_status xpu_graph_reset(xpu_graph *g) {
    XPU_REJECT_IF(!g, "NULL");
    XPU_REJECT_IF(g->capture, "the graph is capturing");
    os_mutex_lock(&g->replay_lock);
    empty(g);
    const bool had_pool = g->has_pool;
    g->has_pool = false;
    os_mutex_unlock(&g->replay_lock);
    return had_pool && !xpu_in_bad_fork() ? xpu_pool_release(g->device, g->pool) : XPU_SUCCESS;
}

xpu_status xpu_graph_destroy(xpu_graph *g) {
    if (!g) return XPU_SUCCESS;
    if (g->capture) xpu_graph_end(g);
    const xpu_status status = xpu_graph_reset(g);
    os_mutex_lock(&graphs_lock);
    xpu_graph **at = &graphs;
    while (*at != g) at = &(*at)->next;
    *at = g->next;
    os_mutex_unlock(&graphs_lock);
    os_mutex_destroy(&g->lock);
    os_mutex_destroy(&g->replay_lock);
    core_free(g);
    return status;
}

xpu_status xpu_graph_pool(const xpu_graph *g, uint64_t pool[2]) {
    XPU_REJECT_IF(!g || !pool, "NULL");
    XPU_REJECT_IF(!g->has_pool, "the graph has no capture");
    memcpy(pool, g->pool, sizeof g->pool);
    return XPU_SUCCESS;
}

xpu_status xpu_graph_visit(const xpu_graph *g, xpu_graph_visitor visit, void *user) {
    XPU_REJECT_IF(!g || !visit, "NULL");
    XPU_REJECT_IF(g->capture, "the graph is capturing");
    for (int i = 0; i < g->node_count; i++) visit(&g->nodes[i]->w.seen, user);
    return XPU_SUCCESS;
}

/* --- replays --- */

/* Preset kernel objects, with arguments set once, save time only when kernels go to a queue. With
 * has_local_exec the driver's cost is the same, and a thousand such objects do not fit the CPU's cache. */
static bool has_presets(const xpu_graph *g) { return !cl_devices[g->device].properties.has_local_exec; }

xpu_status xpu_graph_instantiate(xpu_graph *g) {
    XPU_REJECT_IF(!g, "NULL");
    XPU_REJECT_IF(g->capture, "the graph is capturing");
    XPU_REJECT_IF(!g->has_pool, "the graph has no capture");
    for (int i = 0; i < g->node_count && !g->is_ready && has_presets(g); i++) {
        node *n = g->nodes[i];
        if (n->instance || n->w.seen.kind != XPU_WORK_KERNEL) continue;
        for (int d = 0; d < n->range.dims; d++) n->global[d] = n->range.groups[d] * n->range.local[d];
        cl_kernel instance;
        XPU_TRY(kernel_instance(n->w.seen.kernel, &instance));
        const xpu_status status = launch_set_arguments(&n->w, instance);
        if (status != XPU_SUCCESS) {
            cl_devices[g->device].api->clReleaseKernel(instance);
            return status;
        }
        n->instance = instance;
    }
    g->is_ready = true;
    return XPU_SUCCESS;
}

/* Reserves the random numbers of this replay from each generator. */
static xpu_status draw(const xpu_graph *g) {
    for (int i = 0; i < g->own_count; i++) {
        draws *d = g->own[i];
        uint64_t offset;
        XPU_TRY(xpu_generator_reserve(d->generator, d->used, &d->seed, &offset));
        d->counter = offset / 4;
    }
    return XPU_SUCCESS;
}

static xpu_status write_patches(node *n) {
    for (const patch *p = n->patches; p; p = p->next) {
        const uint64_t pair[2] = {p->of->seed, p->of->counter + p->counter};
        memcpy((char *)n->w.seen.params + p->at, pair, sizeof pair); /* the node owns its parameters */
    }
    return n->instance ? launch_set_arguments(&n->w, n->instance) : XPU_SUCCESS;
}

static xpu_status fail_at(const cl_device *device, const node *n, cl_int error) {
    const xpu_status status = cl_check(error, "->clEnqueueNDRangeKernel", device);
    xpu_fail_add(", kernel %s of a graph", n->w.seen.name);
    return status;
}

/* Enqueues nodes from `i` up to the first that is not a preset kernel or fails; returns its index. */
static int enqueue_presets(const xpu_graph *g, const cl_device *device, cl_command_queue queue, int i,
                           xpu_status *status) {
    for (; i < g->node_count; i++) {
        node *n = g->nodes[i];
        if (!n->instance) break;
        if (n->patches && (*status = write_patches(n)) != XPU_SUCCESS) break;
        const cl_int error = device->api->clEnqueueNDRangeKernel(
            queue, n->instance, (cl_uint)n->range.dims, NULL, n->global, n->range.local, 0, NULL, NULL);
        if (error) {
            *status = fail_at(device, n, error);
            break;
        }
    }
    return i;
}

static xpu_status replay(xpu_graph *g, xpu_stream *stream) {
    const cl_device *device = &cl_devices[g->device];
    const bool is_observed = atomic_load_explicit(&work_observers, memory_order_relaxed) != 0;
    xpu_status status = XPU_SUCCESS;
    for (int i = 0; i < g->node_count && status == XPU_SUCCESS;) {
        node *n = g->nodes[i];
        if (!n->instance || is_observed) {
            if (n->patches) XPU_TRY(write_patches(n));
            n->w.seen.stream = stream;
            status = work_submit(&n->w);
            i++;
        } else {
            cl_command_queue queue = stream_enter(stream);
            i = enqueue_presets(g, device, queue, i, &status);
            stream_note_work(stream);
            stream_leave(stream);
            if (stream->host) CL_TRY(device, device->api->clFinish(queue));
        }
    }
    return status;
}

xpu_status xpu_graph_replay(xpu_graph *g, xpu_stream *stream) {
    XPU_REJECT_IF(!g || !stream, "NULL");
    if (xpu_in_bad_fork()) return cl_init();
    XPU_REJECT_IF(stream->device != g->device, "the graph belongs to device %d, but the stream to device %d",
                  g->device, stream->device);
    XPU_REJECT_IF(!g->has_pool, "the graph has no capture to replay");
    XPU_TRY(xpu_stream_refuse_capture(stream, "replaying a graph"));
    os_mutex_lock(&g->replay_lock);
    xpu_status status = xpu_graph_instantiate(g);
    /* Replays write the same memory, so a replay on another stream waits for the device. */
    const xpu_stream *last = g->replayed_on;
    if (status == XPU_SUCCESS && last && last != stream && !stream->host) status = device_finish(g->device);
    if (status == XPU_SUCCESS) status = draw(g);
    if (status == XPU_SUCCESS) status = replay(g, stream);
    g->replayed_on = stream;
    const bool is_watched = g->is_watched;
    os_mutex_unlock(&g->replay_lock);
    if (!is_watched) return status;
    atomic_store_explicit(&stream->watched, true, memory_order_release);
    if (status == XPU_SUCCESS && stream->host && atomic_exchange(&stream->watched, false))
        return fault_check(g->device, true);
    return status;
}
