/* Trace callbacks see every kind of work once, whichever way it is submitted, with all that is needed to
 * repeat it; the profiler sees the same; operations get their workspace from one place. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "device_test.h"
#include "xpu/ops/gemm.h"
#include "xpu/ops/pointwise.h"
#include "xpu/ops/reduce.h"
#include "xpu/ops/sort.h"

enum { COUNT = 3000, MOST = 64 };

static xpu_stream *stream;
static uint32_t *memory, *copy_of_it;
static xpu_kernel *line;

/* One reported work item, with copies of what does not outlive it. */
typedef struct told {
    xpu_work work;
    xpu_range range;
    xpu_access accesses[8];
    char params[128], context[512];
    int begins, ends;
    xpu_status status;
} told;
typedef struct record {
    told all[MOST];
    int count, nested;
    pthread_t thread;
} record;

static void note(const xpu_work *work, xpu_trace_point point, xpu_status status, void *user) {
    record *r = user;
    assert_true(pthread_equal(pthread_self(), r->thread));
    if (point == XPU_TRACE_BEGIN) {
        told *t = &r->all[r->count++];
        *t = (told){.work = *work, .begins = 1};
        if (work->range) t->range = *work->range;
        if (work->params) memcpy(t->params, work->params, work->params_size);
        if (work->context) memcpy(t->context, work->context, work->context_size);
        memcpy(t->accesses, work->accesses, sizeof *t->accesses * (size_t)work->access_count);
        r->nested++;
    } else {
        told *t = &r->all[r->count - 1];
        assert_ptr_equal(t->work.name, work->name);
        t->ends++;
        t->status = status;
        r->nested--;
    }
}

static record *listen(xpu_trace **subscription) {
    static record r;
    memset(&r, 0, sizeof r);
    r.thread = pthread_self();
    SUCCEEDS(xpu_trace_subscribe(note, &r, subscription));
    return &r;
}

/* The only work item reported since then. */
static const told *only(record *r, xpu_work_kind kind, const char *name) {
    if (r->count != 1) fail_msg("%s: %d pieces of work, the second %s", name, r->count, r->all[1].work.name);
    const told *t = &r->all[0];
    assert_int_equal(t->begins, 1);
    assert_int_equal(t->ends, 1);
    assert_int_equal(r->nested, 0);
    assert_int_equal(t->status, XPU_SUCCESS);
    assert_int_equal(t->work.kind, kind);
    assert_string_equal(t->work.name, name);
    assert_ptr_equal(t->work.stream, stream);
    r->count = 0;
    return t;
}

static int setup(void **state) {
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(xpu_malloc(stream, COUNT * sizeof *memory, (void **)&memory));
    SUCCEEDS(xpu_malloc(stream, COUNT * sizeof *memory, (void **)&copy_of_it));
    SUCCEEDS(line_create(0, 5, &line));
    return 0;
}
static int teardown(void **state) {
    xpu_free(memory);
    xpu_free(copy_of_it);
    return 0;
}

static bool holds(const void *device_memory, unsigned number, uint32_t add) {
    static uint32_t host[COUNT];
    SUCCEEDS(xpu_memcpy(stream, host, device_memory, sizeof host, true));
    return line_is_right(host, COUNT, number, add);
}

static void launches_are_seen_and_can_be_done_again(void **state) {
    xpu_trace *t;
    record *r = listen(&t);
    SUCCEEDS(line_launch(stream, line, memory, COUNT, 7));
    const told *seen = only(r, XPU_WORK_KERNEL, "line");
    SUCCEEDS(xpu_trace_unsubscribe(t));
    assert_ptr_equal(seen->work.kernel, line);
    assert_int_equal(seen->work.bytes, 0);
    assert_int_equal(seen->work.params_size, sizeof(line_params));
    assert_false(seen->work.accesses_known); /* not given */
    assert_true(holds(memory, 5, 7));
    const uint32_t zero = 0;
    SUCCEEDS(xpu_memset(stream, memory, &zero, sizeof zero, COUNT * sizeof zero));
    SUCCEEDS(xpu_launch(stream, seen->work.kernel, &seen->range, seen->params, seen->work.params_size));
    assert_true(holds(memory, 5, 7));
}

static int team_threads(void) { return 3; }
typedef struct member {
    pthread_t thread;
    int index;
    void (*task)(int, void *);
    void *context;
} member;
static void *run_member(void *m) {
    ((member *)m)->task(((member *)m)->index, ((member *)m)->context);
    return NULL;
}
static atomic_int team_runs;
static void team_run(int tasks, void (*task)(int index, void *context), void *context) {
    member members[8];
    atomic_fetch_add(&team_runs, 1);
    for (int i = 0; i < tasks; i++) {
        members[i] = (member){.index = i, .task = task, .context = context};
        pthread_create(&members[i].thread, NULL, run_member, &members[i]);
    }
    for (int i = 0; i < tasks; i++) pthread_join(members[i].thread, NULL);
}

static void a_launch_that_a_team_shares_is_one(void **state) {
    const xpu_device_properties *p;
    const xpu_host_thread_pool team = {team_threads, team_run};
    xpu_trace *t;
    SUCCEEDS(xpu_device_get_properties(0, &p));
    SUCCEEDS(xpu_set_host_thread_pool(&team));
    record *r = listen(&t);
    const line_params params = {(uint64_t)(uintptr_t)memory, COUNT, 11, 0};
    const xpu_range range = {.dims = 1, .groups = {(COUNT + 63) / 64}, .local = {64}}; /* counts as large */
    const int before = atomic_load(&team_runs);
    SUCCEEDS(xpu_launch(stream, line, &range, &params, sizeof params));
    only(r, XPU_WORK_KERNEL, "line");
    if (p->has_local_exec) assert_int_equal(atomic_load(&team_runs), before + 1);
    SUCCEEDS(xpu_trace_unsubscribe(t));
    SUCCEEDS(xpu_set_host_thread_pool(NULL));
    assert_true(holds(memory, 5, 11));
}

static void copies_and_fills_are_seen_with_what_they_touch(void **state) {
    static uint32_t host[COUNT];
    const uint32_t pattern = 9;
    const size_t size = sizeof host;
    void *pinned;
    xpu_trace *t;
    SUCCEEDS(xpu_host_malloc(size, &pinned));
    record *r = listen(&t);
    struct {
        void *to;
        const void *from;
        bool blocking;
    } const copies[] = {{memory, host, true},        {host, memory, true},    {copy_of_it, memory, false},
                        {copy_of_it, memory, true},  {memory, pinned, false}, {pinned, memory, false},
                        {memory, (char *)host, true}};
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        SUCCEEDS(xpu_memcpy(stream, copies[i].to, copies[i].from, size, copies[i].blocking));
        const told *seen = only(r, XPU_WORK_COPY, "copy");
        assert_int_equal(seen->work.bytes, size);
        assert_ptr_equal(seen->work.to, copies[i].to);
        assert_ptr_equal(seen->work.from, copies[i].from);
        assert_true(seen->work.accesses_known);
        assert_int_equal(seen->work.access_count, 2);
        assert_ptr_equal(seen->accesses[0].address, copies[i].to);
        assert_true(seen->accesses[0].is_written && !seen->accesses[1].is_written);
        assert_ptr_equal(seen->accesses[1].address, copies[i].from);
        assert_int_equal(seen->accesses[1].size, size);
    }
    SUCCEEDS(xpu_memcpy(stream, memory, host, 40, true)); /* as a kernel's argument, on some devices */
    only(r, XPU_WORK_COPY, "copy");
    SUCCEEDS(xpu_memset(stream, memory, &pattern, sizeof pattern, size));
    const told *seen = only(r, XPU_WORK_FILL, "fill");
    assert_int_equal(seen->work.bytes, size);
    assert_int_equal(seen->work.pattern_size, sizeof pattern);
    assert_int_equal(seen->work.access_count, 1);
    assert_true(seen->accesses[0].is_written);
    SUCCEEDS(xpu_memcpy(stream, memory, host, 0, true)); /* nothing */
    assert_int_equal(r->count, 0);
    SUCCEEDS(xpu_trace_unsubscribe(t));
    SUCCEEDS(xpu_stream_synchronize(stream));
    SUCCEEDS(xpu_host_free(pinned));
}

static xpu_status add_up(xpu_stream *on, const void *context) {
    const int *numbers = context;
    return numbers[0] + numbers[1] == 5 ? XPU_SUCCESS : XPU_ERROR_INDEX;
}
static int one_access(const void *of, xpu_access *accesses) {
    accesses[0] = (xpu_access){of, 2 * sizeof(int), false};
    return 1;
}
static xpu_status times_by_host(xpu_stream *on, const xpu_gemm_args *args) {
    ((float *)args->out.data)[0] = 42;
    return XPU_SUCCESS;
}

static void host_functions_are_seen(void **state) {
    static const int numbers[2] = {2, 3}, others[2] = {2, 4};
    xpu_trace *t;
    record *r = listen(&t);
    SUCCEEDS(xpu_host_call(stream, "sum", add_up, numbers, sizeof numbers, one_access));
    const told *seen = only(r, XPU_WORK_HOST, "sum");
    assert_ptr_equal(seen->work.function, add_up);
    assert_true(seen->work.accesses_known);
    assert_ptr_equal(seen->accesses[0].address, numbers);
    SUCCEEDS(seen->work.function(stream, seen->context)); /* done again */
    assert_int_equal(xpu_host_call(stream, "sum", add_up, others, sizeof others, NULL), XPU_ERROR_INDEX);
    assert_int_equal(r->all[0].status, XPU_ERROR_INDEX);
    r->count = 0;
    /* products of PyTorch's libraries */
    const xpu_host_provider provider = {.gemm = times_by_host};
    SUCCEEDS(xpu_set_host_provider(&provider));
    if (xpu_host_provider_active(0)) {
        float *data = (float *)memory;
        const xpu_gemm_args args = {.dtype = XPU_FLOAT32,
                                    .batch = 1,
                                    .m = 20,
                                    .n = 20,
                                    .k = 20,
                                    .a = {data + 1000, 0, 20, 1},
                                    .b = {data + 2000, 0, 20, 1},
                                    .out = {data, 0, 20, 1},
                                    .alpha = {XPU_FLOAT64, {.f = 1}},
                                    .beta = {XPU_FLOAT64, {.f = 0}}};
        SUCCEEDS(xpu_gemm(stream, &args));
        seen = only(r, XPU_WORK_HOST, "host gemm");
        assert_true(data[0] == 42);
        assert_int_equal(seen->work.access_count, 3);
        assert_ptr_equal(seen->accesses[1].address, data + 1000);
        assert_int_equal(seen->accesses[1].size, 400 * sizeof(float));
    }
    SUCCEEDS(xpu_set_host_provider(NULL));
    SUCCEEDS(xpu_trace_unsubscribe(t));
}

static void operators_say_what_they_touch(void **state) {
    float *a = (float *)memory;
    xpu_iter iter = {.outputs = 1, .inputs = 2, .dims = 2, .size = {10, 20}};
    iter.operand[0] = (xpu_operand){.data = copy_of_it, .dtype = XPU_FLOAT32, .stride = {4, 40}};
    iter.operand[1] = (xpu_operand){.data = a, .dtype = XPU_FLOAT32, .stride = {4, 80}};
    iter.operand[2] = (xpu_operand){.data = a + 999, .dtype = XPU_FLOAT32, .stride = {-4, 0}};
    const xpu_scalar one = {XPU_FLOAT64, {.f = 1}};
    xpu_trace *t;
    record *r = listen(&t);
    SUCCEEDS(xpu_pointwise(stream, XPU_POINTWISE_ADD, XPU_FLOAT32, &iter, &one, 1));
    assert_int_equal(r->count, 1);
    const told *seen = &r->all[0];
    assert_true(seen->work.accesses_known);
    assert_int_equal(seen->work.access_count, 3);
    assert_ptr_equal(seen->accesses[0].address, copy_of_it);
    assert_int_equal(seen->accesses[0].size, 200 * sizeof(float));
    assert_true(seen->accesses[0].is_written && !seen->accesses[1].is_written);
    assert_ptr_equal(seen->accesses[1].address, a);
    assert_int_equal(seen->accesses[1].size, (19 * 20 + 10) * sizeof(float));
    assert_ptr_equal(seen->accesses[2].address, a + 990);
    assert_int_equal(seen->accesses[2].size, 10 * sizeof(float));
    SUCCEEDS(xpu_trace_unsubscribe(t));
}

/* --- who subscribes and when --- */

typedef struct self {
    xpu_trace *trace;
    int calls, launches;
} self;
static void leave(const xpu_work *work, xpu_trace_point point, xpu_status status, void *user) {
    self *s = user;
    s->calls++;
    SUCCEEDS(line_launch(stream, line, copy_of_it, COUNT, 1)); /* is not called */
    SUCCEEDS(xpu_trace_unsubscribe(s->trace));
}

static void callbacks_come_and_go(void **state) {
    xpu_trace *all[XPU_TRACE_MAX], *more;
    record *r = listen(&all[0]);
    for (int i = 1; i < XPU_TRACE_MAX; i++) SUCCEEDS(xpu_trace_subscribe(note, r, &all[i]));
    assert_int_equal(xpu_trace_subscribe(note, r, &more), XPU_ERROR_NOT_SUPPORTED);
    assert_int_equal(xpu_trace_subscribe(NULL, r, &more), XPU_ERROR_INVALID_ARGUMENT);
    SUCCEEDS(line_launch(stream, line, memory, COUNT, 1));
    assert_int_equal(r->count, XPU_TRACE_MAX);
    for (int i = 0; i < XPU_TRACE_MAX; i++) SUCCEEDS(xpu_trace_unsubscribe(all[i]));
    SUCCEEDS(line_launch(stream, line, memory, COUNT, 1));
    assert_int_equal(r->count, XPU_TRACE_MAX);
    assert_int_equal(xpu_trace_unsubscribe(all[0]), XPU_ERROR_INVALID_ARGUMENT);
    assert_int_equal(xpu_trace_unsubscribe(NULL), XPU_ERROR_INVALID_ARGUMENT);

    self s = {0};
    SUCCEEDS(xpu_trace_subscribe(leave, &s, &s.trace));
    SUCCEEDS(line_launch(stream, line, memory, COUNT, 2));
    SUCCEEDS(line_launch(stream, line, memory, COUNT, 3));
    assert_int_equal(s.calls, 1);
    assert_true(holds(memory, 5, 3) && holds(copy_of_it, 5, 1));
}

/* Threads submit work while callbacks are added and removed; after unsubscribing, a callback is not
 * called. */
typedef struct guarded {
    atomic_bool alive;
    atomic_int calls;
} guarded;
static void while_alive(const xpu_work *work, xpu_trace_point point, xpu_status status, void *user) {
    guarded *g = user;
    if (!atomic_load(&g->alive)) abort();
    atomic_fetch_add(&g->calls, 1);
}
static atomic_bool stop;
static void *keep_working(void *unused) {
    const uint32_t zero = 0;
    void *own;
    xpu_stream *s;
    if (xpu_stream_from_pool(0, XPU_PRIORITY_NORMAL, &s) || xpu_malloc(s, 4096, &own)) abort();
    for (int i = 0; !atomic_load(&stop); i++) {
        if (line_launch(s, line, own, 1000, 1) || xpu_memset(s, own, &zero, 4, 4096)) abort();
        if (i % 20 == 0 && xpu_stream_synchronize(s)) abort(); /* so that queues don't grow without limit */
    }
    if (xpu_stream_synchronize(s) || xpu_free(own)) abort();
    return NULL;
}
static void callbacks_come_and_go_beside_work(void **state) {
    pthread_t threads[3];
    int heard = 0;
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, keep_working, NULL);
    const time_t end = time(NULL) + 1;
    while (time(NULL) <= end || !heard) {
        guarded g = {0};
        xpu_trace *t;
        atomic_store(&g.alive, true);
        SUCCEEDS(xpu_trace_subscribe(while_alive, &g, &t));
        for (int i = 0; i < 3; i++) SUCCEEDS(line_launch(stream, line, memory, COUNT, 1));
        SUCCEEDS(xpu_trace_unsubscribe(t));
        atomic_store(&g.alive, false);
        SUCCEEDS(xpu_stream_synchronize(stream));
        heard += atomic_load(&g.calls) > 6;
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

/* --- the profiler observes the same place --- */

typedef struct profiled {
    int kernels, copies, fills, host;
} profiled;
static void count_record(const xpu_profile_record *record, void *user) {
    profiled *p = user;
    assert_true(record->started >= record->submitted && record->ended >= record->started);
    p->kernels += !strcmp(record->name, "line") && !record->bytes;
    p->copies += !strcmp(record->name, "copy") && record->bytes == COUNT * sizeof *memory;
    p->fills += !strcmp(record->name, "fill") && record->bytes == COUNT * sizeof *memory;
    p->host += !strcmp(record->name, "sum");
}
static void the_profiler_sees_the_same(void **state) {
    static const int numbers[2] = {2, 3};
    static uint32_t host[COUNT];
    profiled p = {0};
    SUCCEEDS(xpu_profile_start());
    SUCCEEDS(xpu_profile_start()); /* as once */
    SUCCEEDS(line_launch(stream, line, memory, COUNT, 1));
    SUCCEEDS(xpu_memcpy(stream, host, memory, sizeof host, true));
    SUCCEEDS(xpu_memcpy(stream, copy_of_it, memory, sizeof host, false));
    SUCCEEDS(xpu_memset(stream, memory, numbers, sizeof *numbers, sizeof host));
    SUCCEEDS(xpu_host_call(stream, "sum", add_up, numbers, sizeof numbers, NULL));
    SUCCEEDS(xpu_profile_stop());
    SUCCEEDS(line_launch(stream, line, memory, COUNT, 1));
    SUCCEEDS(xpu_profile_drain(count_record, &p));
    assert_int_equal(p.kernels, 1);
    assert_int_equal(p.copies, 2);
    assert_int_equal(p.fills, 1);
    assert_int_equal(p.host, 1); /* work of the host itself, on any device */
}

/* --- workspace --- */

typedef struct counted {
    int taken, back;
    size_t bytes;
} counted;
static xpu_status take(xpu_stream *on, size_t size, void **result, void *user) {
    counted *c = user;
    c->taken++;
    c->bytes += size;
    return xpu_malloc(on, size, result);
}
static xpu_status give_back(void *one, void *user) {
    counted *c = user;
    c->back++;
    return xpu_free(one);
}
static void operations_take_workspace_from_one_place(void **state) {
    counted c = {0};
    const xpu_workspace_source source = {take, give_back, &c}, half = {take, NULL, NULL};
    xpu_memory_stats before, after;
    const int64_t size = COUNT, stride = 1;
    int64_t *places;
    SUCCEEDS(xpu_malloc(stream, COUNT * sizeof *places, (void **)&places));
    const xpu_tensor values = {copy_of_it, XPU_FLOAT32, 1, &size, &stride},
                     in = {memory, XPU_FLOAT32, 1, &size, &stride},
                     indices = {places, XPU_INT64, 1, &size, &stride};
    assert_int_equal(xpu_workspace_set_source(&half), XPU_ERROR_INVALID_ARGUMENT);
    SUCCEEDS(xpu_workspace_set_source(&source));
    SUCCEEDS(xpu_memory_get_stats(0, &before));
    SUCCEEDS(xpu_sort(stream, &values, &indices, &in, 0, false, 0));
    SUCCEEDS(xpu_memory_get_stats(0, &after));
    SUCCEEDS(xpu_workspace_set_source(NULL));
    assert_true(c.taken > 0 && c.bytes >= COUNT * sizeof(float));
    assert_int_equal(c.back, c.taken);
    /* and from nowhere else */
    assert_int_equal(after.allocation[XPU_POOL_ALL].allocated - before.allocation[XPU_POOL_ALL].allocated,
                     c.taken);
    SUCCEEDS(xpu_sort(stream, &values, &indices, &in, 0, false, 0));
    assert_int_equal(c.back, c.taken);
    SUCCEEDS(xpu_stream_synchronize(stream));
    SUCCEEDS(xpu_free(places));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_are_seen_and_can_be_done_again),
        cmocka_unit_test(a_launch_that_a_team_shares_is_one),
        cmocka_unit_test(copies_and_fills_are_seen_with_what_they_touch),
        cmocka_unit_test(host_functions_are_seen),
        cmocka_unit_test(operators_say_what_they_touch),
        cmocka_unit_test(callbacks_come_and_go),
        cmocka_unit_test(callbacks_come_and_go_beside_work),
        cmocka_unit_test(the_profiler_sees_the_same),
        cmocka_unit_test(operations_take_workspace_from_one_place),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
