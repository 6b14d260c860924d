/* Work submission (work.h), trace subscriptions, host functions, and workspaces of operations. Any thread may
 * call. Subscriptions live in a fixed table; a callback runs on the submitting thread without a lock held. */
#include "runtime/graph.h"

atomic_int work_observers;

/* --- callbacks --- */

struct xpu_trace {
    _Atomic(xpu_trace_callback) callback; /* NULL: free */
    void *user;
    atomic_ullong serial; /* identifies the subscription; slots are reused */
    atomic_int inside;    /* calls in progress */
};
static xpu_trace traces[XPU_TRACE_MAX];
static os_mutex traces_lock = OS_MUTEX_INIT; /* guards subscribing and unsubscribing */
static unsigned long long last_serial;
static _Thread_local const xpu_trace *inside_of; /* the callback that this thread is running, or NULL */

xpu_status xpu_trace_subscribe(xpu_trace_callback callback, void *user, xpu_trace **subscription) {
    XPU_REJECT_IF(!callback || !subscription, "NULL");
    xpu_trace *found = NULL;
    os_mutex_lock(&traces_lock);
    for (int i = 0; i < XPU_TRACE_MAX && !found; i++)
        if (!atomic_load(&traces[i].callback) && !atomic_load(&traces[i].inside)) found = &traces[i];
    if (found) {
        found->user = user;
        atomic_store(&found->serial, ++last_serial);
        atomic_store(&found->callback, callback);
        atomic_fetch_add(&work_observers, 1);
    }
    os_mutex_unlock(&traces_lock);
    if (!found)
        return xpu_fail(XPU_ERROR_NOT_SUPPORTED, "%d trace callbacks are already registered", XPU_TRACE_MAX);
    *subscription = found;
    return XPU_SUCCESS;
}

xpu_status xpu_trace_unsubscribe(xpu_trace *subscription) {
    XPU_REJECT_IF(subscription < traces || subscription >= traces + XPU_TRACE_MAX, "no subscription");
    os_mutex_lock(&traces_lock);
    const bool was = atomic_exchange(&subscription->callback, NULL) != NULL;
    if (was) atomic_fetch_sub(&work_observers, 1);
    os_mutex_unlock(&traces_lock);
    XPU_REJECT_IF(!was, "no subscription");
    /* A callback may unsubscribe itself; waiting for its own call would deadlock. */
    const int own = inside_of == subscription;
    while (atomic_load(&subscription->inside) > own) {}
    return XPU_SUCCESS;
}

/* Calls every subscriber. `begun` keeps the serial of each subscription that saw XPU_TRACE_BEGIN, because
 * only those may see XPU_TRACE_END. */
static void tell(const xpu_work *seen, xpu_trace_point point, xpu_status status,
                 unsigned long long begun[XPU_TRACE_MAX]) {
    if (inside_of) return; /* work that a callback submits is not traced */
    for (int i = 0; i < XPU_TRACE_MAX; i++) {
        xpu_trace *t = &traces[i];
        if (!atomic_load_explicit(&t->callback, memory_order_relaxed)) continue;
        atomic_fetch_add(&t->inside, 1); /* from here on unsubscribing waits */
        const xpu_trace_callback callback = atomic_load(&t->callback);
        const unsigned long long serial = atomic_load(&t->serial);
        if (callback && (point == XPU_TRACE_BEGIN || begun[i] == serial)) {
            begun[i] = serial;
            inside_of = t;
            callback(seen, point, status, t->user);
            inside_of = NULL;
        }
        atomic_fetch_sub(&t->inside, 1);
    }
}

/* --- memory accesses --- */

static void list_accesses(work *w, xpu_access *accesses) {
    xpu_work *seen = &w->seen;
    int count = 0;
    if (w->list) {
        count = w->list(w->of, accesses);
    } else if (seen->kind == XPU_WORK_COPY || seen->kind == XPU_WORK_FILL) {
        accesses[count++] = (xpu_access){seen->to, (size_t)seen->bytes, true};
        if (seen->from) accesses[count++] = (xpu_access){seen->from, (size_t)seen->bytes, false};
    }
    seen->accesses = accesses;
    seen->access_count = count;
    seen->accesses_known = count > 0;
    for (int i = 0; i < count; i++) seen->accesses_known &= accesses[i].size > 0;
}

/* --- submission --- */

xpu_status work_submit_observed(work *w) {
    const xpu_stream *stream = w->seen.stream;
    xpu_graph *capture = stream_capture(stream);
    if (capture) return graph_record(capture, w);
    const bool profile = atomic_load_explicit(&profile_on, memory_order_relaxed);
    unsigned long long begun[XPU_TRACE_MAX] = {0};
    xpu_access accesses[XPU_ACCESSES_MAX];
    list_accesses(w, accesses);
    tell(&w->seen, XPU_TRACE_BEGIN, XPU_SUCCESS, begun);
    w->begun = w->started = profile ? os_wall_time() : 0;
    w->wants_times = profile && !stream->host;
    const xpu_status status = w->run(w);
    if (profile && (stream->host || w->seen.kind == XPU_WORK_HOST) && status == XPU_SUCCESS)
        profile_add(w->seen.name, stream, w->begun, w->started, os_wall_time(), w->seen.bytes, NULL);
    tell(&w->seen, XPU_TRACE_END, status, begun);
    return status;
}

xpu_status command_begin(const work *w, command *c) {
    *c = (command){0};
    if (w->wants_times) {
        c->wanted = &c->event;
        XPU_TRY(stream_keep_times(w->seen.stream));
    }
    c->queue = stream_enter(w->seen.stream);
    return XPU_SUCCESS;
}

xpu_status command_end(const work *w, command *c, xpu_status status, uint64_t bytes) {
    xpu_stream *stream = w->seen.stream;
    if (status == XPU_SUCCESS) stream_note_work(stream);
    stream_leave(stream);
    if (status == XPU_SUCCESS && c->wanted)
        profile_add(w->seen.name, stream, w->begun, w->begun, w->begun, bytes, c->event);
    return status;
}

/* --- host functions --- */

static xpu_status run_host_call(work *w) {
    XPU_TRY(stream_finish(w->seen.stream));
    if (w->started) w->started = os_wall_time();
    return w->seen.function(w->seen.stream, w->seen.context);
}

xpu_status xpu_host_call(xpu_stream *stream, const char *name,
                         xpu_status (*function)(xpu_stream *stream, const void *context), const void *context,
                         size_t context_size, xpu_access_callback list) {
    XPU_REJECT_IF(!stream || !name || !function, "NULL");
    work w = {.seen = {.kind = XPU_WORK_HOST,
                       .stream = stream,
                       .name = name,
                       .function = function,
                       .context = context,
                       .context_size = context_size},
              .run = run_host_call,
              .list = list,
              .of = context};
    return work_submit(&w);
}

xpu_status xpu_graph_host_call(xpu_stream *stream, const char *name,
                               xpu_status (*function)(xpu_stream *stream, const void *context), void *context,
                               void (*release)(void *context)) {
    XPU_REJECT_IF(!stream || !name || !function || !release, "NULL");
    work w = {.seen = {.kind = XPU_WORK_HOST,
                       .stream = stream,
                       .name = name,
                       .function = function,
                       .context = context},
              .run = run_host_call,
              .release = release};
    const bool is_captured = xpu_stream_is_capturing(stream);
    const xpu_status status = work_submit(&w);
    if (!is_captured || status != XPU_SUCCESS) release(context);
    return status;
}

/* --- workspaces --- */

static _Thread_local const xpu_workspace_source *workspaces; /* NULL: the allocator */

xpu_status xpu_workspace_set_source(const xpu_workspace_source *source) {
    XPU_REJECT_IF(source && (!source->take || !source->give_back), "a function is NULL");
    workspaces = source;
    return XPU_SUCCESS;
}

xpu_status xpu_workspace_take(xpu_stream *stream, size_t size, void **memory) {
    if (__builtin_expect(workspaces != NULL, 0))
        return workspaces->take(stream, size, memory, workspaces->user);
    return xpu_malloc(stream, size, memory);
}

xpu_status xpu_workspace_give_back(void *memory) {
    if (!memory) return XPU_SUCCESS;
    if (__builtin_expect(workspaces != NULL, 0)) return workspaces->give_back(memory, workspaces->user);
    return xpu_free(memory);
}

static os_mutex counters_lock = OS_MUTEX_INIT; /* guards the creation of a stream's counters */

xpu_status counters_make(int device, uint32_t **counters) {
    static const char zero = 0;
    const size_t size = XPU_WORKSPACE_COUNTERS * sizeof **counters;
    xpu_stream *stream;
    void *memory;
    XPU_TRY(xpu_stream_default(device, &stream)); /* the default stream is never captured */
    XPU_TRY(cl_memory_alloc(device, size, &memory));
    xpu_status status = xpu_memset(stream, memory, &zero, 1, size);
    if (status == XPU_SUCCESS) status = stream_finish(stream);
    if (status == XPU_SUCCESS)
        *counters = memory;
    else
        cl_memory_free(device, memory);
    return status;
}

xpu_status xpu_workspace_counters(xpu_stream *stream, uint32_t **counters) {
    static _Thread_local uint32_t of_thread[XPU_WORKSPACE_COUNTERS];
    XPU_REJECT_IF(!stream || !counters, "NULL");
    xpu_graph *capture = stream_capture(stream);
    if (capture) return graph_counters(capture, counters);
    if (stream->host) {
        *counters = of_thread;
        return XPU_SUCCESS;
    }
    xpu_status status = XPU_SUCCESS;
    uint32_t *there = atomic_load_explicit(&stream->counters, memory_order_acquire);
    if (!there) {
        os_mutex_lock(&counters_lock);
        there = atomic_load(&stream->counters);
        if (!there && (status = counters_make(stream->device, &there)) == XPU_SUCCESS)
            atomic_store_explicit(&stream->counters, there, memory_order_release);
        os_mutex_unlock(&counters_lock);
    }
    *counters = there;
    return status;
}
