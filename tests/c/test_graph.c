/* Graphs: recorded work doesn't run until replayed: kernels, copies, fills, host functions, random numbers,
 * work of joined streams. Work that can't be recorded is rejected, and the capture continues. */
#include <pthread.h>
#include <stdlib.h>

#include "device_test.h"
#include "xpu/ops/cat.h"
#include "xpu/ops/index.h"
#include "xpu/ops/random.h"

enum { COUNT = 3000 };

static xpu_stream *stream, *other;
static xpu_graph *graph;
static uint32_t *memory, *second;
static xpu_kernel *line, *more;

/* p[i] += add, so that each replay can be counted. */
static const char more_source[] = "typedef struct { ulong out, count; uint add, unused; } line_params;\n"
                                  "__kernel void more(line_params p) {\n"
                                  "    size_t i = get_global_id(0);\n"
                                  "    if (i < p.count) ((__global uint *)p.out)[i] += p.add;\n"
                                  "}\n";
static const char plain_source[] = "__kernel void plain(__global uint *out, uint add, __local uint *room) {\n"
                                   "    room[get_local_id(0)] = add;\n"
                                   "    out[get_global_id(0)] += room[get_local_id(0)];\n"
                                   "}\n";

static int setup(void **state) {
    SUCCEEDS(xpu_stream_from_pool(0, XPU_PRIORITY_NORMAL, &stream));
    SUCCEEDS(xpu_stream_from_pool(0, XPU_PRIORITY_NORMAL, &other));
    SUCCEEDS(xpu_malloc(stream, COUNT * sizeof *memory, (void **)&memory));
    SUCCEEDS(xpu_malloc(stream, COUNT * sizeof *memory, (void **)&second));
    SUCCEEDS(line_create(0, 5, &line));
    SUCCEEDS(xpu_kernel_create(0, more_source, NULL, "more", NULL, &more));
    return 0;
}
static int teardown(void **state) {
    xpu_free(memory);
    xpu_free(second);
    return 0;
}
static int begin(void **state) {
    SUCCEEDS(xpu_graph_create(0, &graph));
    return 0;
}
static int end(void **state) {
    SUCCEEDS(xpu_graph_destroy(graph));
    return 0;
}

static void fill(void *to, uint32_t value) {
    SUCCEEDS(xpu_memset(stream, to, &value, sizeof value, COUNT * sizeof value));
    SUCCEEDS(xpu_stream_synchronize(stream));
}
static const uint32_t *read_back(const void *from) {
    static uint32_t host[COUNT];
    SUCCEEDS(xpu_memcpy(stream, host, from, sizeof host, true));
    return host;
}
static bool holds(const void *from, unsigned number, uint32_t add) {
    return line_is_right(read_back(from), COUNT, number, add);
}
static void add_to(xpu_stream *on, void *out, uint32_t add) {
    SUCCEEDS(line_launch(on, more, out, COUNT, add));
}

#define REFUSED(call, words)                                                                                 \
    do {                                                                                                     \
        assert_int_equal((call), XPU_ERROR_INVALID_ARGUMENT);                                                \
        if (!strstr(xpu_last_error(), words)) fail_msg("%s: %s", #call, xpu_last_error());                   \
    } while (0)

static void everything_is_recorded_and_replayed(void **state) {
    fill(memory, 1);
    fill(second, 2);
    assert_false(xpu_stream_is_capturing(stream));
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    assert_true(xpu_stream_is_capturing(stream));
    assert_false(xpu_stream_is_capturing(other));
    const uint64_t pattern = 0x0000000300000003u;
    SUCCEEDS(xpu_memset(stream, memory, &pattern, sizeof pattern, COUNT * sizeof *memory));
    add_to(stream, memory, 10);
    SUCCEEDS(xpu_memcpy(stream, second, memory, COUNT * sizeof *memory, false));
    add_to(stream, second, 100);
    SUCCEEDS(line_launch(stream, line, memory, COUNT, 7));
    SUCCEEDS(xpu_graph_end(graph));
    assert_false(xpu_stream_is_capturing(stream));
    assert_true(holds(memory, 0, 1)); /* nothing was done */
    assert_true(holds(second, 0, 2));
    for (int i = 0; i < 3; i++) {
        fill(memory, 1);
        fill(second, 2);
        SUCCEEDS(xpu_graph_replay(graph, i == 1 ? other : stream));
        SUCCEEDS(xpu_stream_synchronize(i == 1 ? other : stream));
        assert_true(holds(memory, 5, 7));
        assert_true(holds(second, 0, 113));
    }
}

static void large_and_plain_launches_are_replayed(void **state) {
    enum { LARGE = 1 << 20 };
    xpu_kernel *plain;
    uint32_t *large, *host = malloc(LARGE * sizeof *host);
    SUCCEEDS(xpu_kernel_create(0, plain_source, NULL, "plain", NULL, &plain));
    SUCCEEDS(xpu_malloc(stream, LARGE * sizeof *large, (void **)&large));
    fill(memory, 1);
    const uint32_t zero = 0;
    SUCCEEDS(xpu_memset(stream, large, &zero, sizeof zero, LARGE * sizeof zero));
    SUCCEEDS(xpu_stream_synchronize(stream));
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    uint32_t add = 4;
    void *out = memory;
    const xpu_arg args[] = {{XPU_ARG_POINTER, 8, &out},
                            {XPU_ARG_VALUE, sizeof add, &add},
                            {XPU_ARG_LOCAL, 64 * sizeof add, NULL}};
    const xpu_range range = {.dims = 1, .groups = {COUNT / 64}, .local = {64}, .work = COUNT};
    const xpu_status status = xpu_launch_args(stream, plain, &range, args, 3);
    SUCCEEDS(line_launch(stream, more, large, LARGE, 3));
    SUCCEEDS(xpu_graph_end(graph));
    add = 1000; /* the node has its own */
    out = NULL;
    if (status != XPU_SUCCESS) fail_msg("%s", xpu_last_error());
    xpu_status done = XPU_SUCCESS;
    for (int i = 0; i < 4 && done == XPU_SUCCESS; i++) done = xpu_graph_replay(graph, stream);
    if (done != XPU_SUCCESS) fail_msg("%s", xpu_last_error());
    const uint32_t *small = read_back(memory);
    for (int i = 0; i < COUNT; i++) assert_int_equal(small[i], i < COUNT / 64 * 64 ? 17 : 1);
    SUCCEEDS(xpu_memcpy(stream, host, large, LARGE * sizeof *host, true));
    for (int i = 0; i < LARGE; i++) assert_int_equal(host[i], 12);
    free(host);
    SUCCEEDS(xpu_free(large));
}

static void tables_of_joined_tensors_are_kept(void **state) {
    enum { PARTS = 5, ROW = 40 };
    xpu_cat_input *inputs = malloc(PARTS * sizeof *inputs);
    const uint32_t *joined;
    for (int i = 0; i < PARTS; i++)
        inputs[i] = (xpu_cat_input){.data = memory + 10 * i, .offset = ROW * i, .row_size = ROW};
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    SUCCEEDS(xpu_cat(stream, second, 2, PARTS * ROW, inputs, PARTS));
    SUCCEEDS(xpu_graph_end(graph));
    memset(inputs, 0, PARTS * sizeof *inputs);
    free(inputs);
    SUCCEEDS(line_launch(stream, line, memory, COUNT, 1));
    SUCCEEDS(xpu_graph_replay(graph, stream));
    joined = read_back(second);
    for (int row = 0; row < 2; row++)
        for (int i = 0; i < PARTS * 10; i++)
            assert_int_equal(joined[row * PARTS * 10 + i], 5 * (10 * row + i % 10 + 10 * (i / 10)) + 1);
}

typedef struct called {
    xpu_stream *on;
    int calls, releases;
} called;
typedef struct call_context {
    called *of;
    int add;
} call_context;
static xpu_status call(xpu_stream *on, const void *context) {
    const call_context *c = context;
    c->of->on = on;
    c->of->calls += c->add;
    return XPU_SUCCESS;
}
static void release(void *context) {
    ((call_context *)context)->of->releases++;
    free(context);
}
static call_context *make_context(called *of, int add) {
    call_context *c = malloc(sizeof *c);
    *c = (call_context){of, add};
    return c;
}

static void host_functions_are_recorded(void **state) {
    called copied = {0}, owned = {0};
    SUCCEEDS(xpu_graph_host_call(stream, "now", call, make_context(&owned, 7), release));
    assert_int_equal(owned.calls, 7);
    assert_int_equal(owned.releases, 1);
    owned = (called){0};
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    call_context on_stack = {&copied, 2};
    SUCCEEDS(xpu_host_call(stream, "copied", call, &on_stack, sizeof on_stack, NULL));
    on_stack.add = 1000;
    SUCCEEDS(xpu_graph_host_call(stream, "owned", call, make_context(&owned, 3), release));
    SUCCEEDS(xpu_graph_end(graph));
    assert_int_equal(copied.calls, 0);
    assert_int_equal(owned.calls, 0);
    for (int i = 0; i < 5; i++) SUCCEEDS(xpu_graph_replay(graph, other));
    assert_int_equal(copied.calls, 10);
    assert_int_equal(owned.calls, 15);
    assert_ptr_equal(owned.on, other);
    assert_int_equal(owned.releases, 0);
    SUCCEEDS(xpu_graph_reset(graph));
    assert_int_equal(owned.releases, 1);
}

static void count_work(const xpu_work *work, xpu_trace_point point, xpu_status status, void *user) {
    if (point == XPU_TRACE_END) (*(int *)user)++;
}
static void visit_work(const xpu_work *work, void *user) { *(const char **)user = work->name; }

static void observers_hear_of_replays(void **state) {
    int seen = 0;
    xpu_trace *subscription;
    fill(memory, 0);
    SUCCEEDS(xpu_trace_subscribe(count_work, &seen, &subscription));
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    add_to(stream, memory, 1);
    add_to(stream, memory, 1);
    SUCCEEDS(xpu_graph_end(graph));
    assert_int_equal(seen, 0);
    SUCCEEDS(xpu_graph_replay(graph, stream));
    assert_int_equal(seen, 2);
    SUCCEEDS(xpu_trace_unsubscribe(subscription));
    SUCCEEDS(xpu_graph_replay(graph, stream));
    assert_int_equal(seen, 2);
    assert_true(holds(memory, 0, 4));
    const char *name = NULL;
    SUCCEEDS(xpu_graph_visit(graph, visit_work, &name));
    assert_string_equal(name, "more");
}

static void streams_fork_and_join(void **state) {
    xpu_event *forked, *joined;
    SUCCEEDS(xpu_event_create(0, false, &forked));
    SUCCEEDS(xpu_event_create(0, false, &joined));
    fill(memory, 0);
    fill(second, 0);
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    SUCCEEDS(line_launch(stream, line, memory, COUNT, 1));
    SUCCEEDS(xpu_event_record(forked, stream));
    SUCCEEDS(xpu_stream_wait(other, forked));
    assert_true(xpu_stream_is_capturing(other));
    assert_int_equal(xpu_event_query(forked), XPU_NOT_READY);
    SUCCEEDS(xpu_memcpy(other, second, memory, COUNT * sizeof *memory, false));
    add_to(other, second, 10);
    SUCCEEDS(xpu_event_record(joined, other));
    SUCCEEDS(xpu_stream_wait(stream, joined));
    add_to(stream, second, 100);
    SUCCEEDS(xpu_graph_end(graph));
    assert_false(xpu_stream_is_capturing(other));
    assert_int_equal(xpu_event_query(joined), XPU_SUCCESS); /* nothing to wait for any more */
    SUCCEEDS(xpu_stream_wait(stream, joined));
    SUCCEEDS(xpu_event_synchronize(joined));
    for (int i = 0; i < 2; i++) {
        fill(second, 9);
        SUCCEEDS(xpu_graph_replay(graph, stream));
        assert_true(holds(second, 5, 111));
    }
    /* an event of a capture is an ordinary one again after it */
    SUCCEEDS(xpu_event_record(joined, other));
    SUCCEEDS(xpu_stream_wait(stream, joined));
    SUCCEEDS(xpu_event_synchronize(joined));
    SUCCEEDS(xpu_event_destroy(forked));
    SUCCEEDS(xpu_event_destroy(joined));
}

static void unjoined_streams_end_the_capture_with_an_error(void **state) {
    xpu_event *forked;
    SUCCEEDS(xpu_event_create(0, false, &forked));
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    SUCCEEDS(xpu_event_record(forked, stream));
    SUCCEEDS(xpu_stream_wait(other, forked));
    add_to(other, second, 10);
    REFUSED(xpu_graph_end(graph), "unjoined");
    assert_false(xpu_stream_is_capturing(stream));
    assert_false(xpu_stream_is_capturing(other));
    REFUSED(xpu_graph_replay(graph, stream), "no capture");
    /* a stream that joined and did nothing needn't be joined again */
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    SUCCEEDS(xpu_event_record(forked, stream));
    SUCCEEDS(xpu_stream_wait(other, forked));
    SUCCEEDS(xpu_graph_end(graph));
    SUCCEEDS(xpu_event_destroy(forked));
}

static void what_cannot_be_recorded_is_refused(void **state) {
    uint32_t host[4] = {0};
    xpu_event *before, *within;
    xpu_stream *first;
    xpu_graph *rival;
    SUCCEEDS(xpu_event_create(0, true, &before));
    SUCCEEDS(xpu_event_create(0, true, &within));
    SUCCEEDS(xpu_event_record(before, other));
    SUCCEEDS(xpu_stream_default(0, &first));
    SUCCEEDS(xpu_graph_create(0, &rival));
    fill(memory, 0);
    REFUSED(xpu_graph_begin(graph, first, NULL), "non-default stream");
    REFUSED(xpu_graph_end(graph), "is not capturing");
    REFUSED(xpu_graph_replay(graph, stream), "no capture");
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    add_to(stream, memory, 1);
    REFUSED(xpu_graph_begin(rival, stream, NULL), "already capturing");
    REFUSED(xpu_graph_begin(graph, other, NULL), "has a capture");
    REFUSED(xpu_stream_synchronize(stream), "not permitted when stream is capturing: waiting for a stream");
    REFUSED(xpu_stream_query(stream), "not permitted when stream is capturing");
    REFUSED(xpu_device_synchronize(0), "not permitted when stream is capturing: waiting for a device");
    REFUSED(xpu_memcpy(stream, host, memory, sizeof host, true),
            "not permitted when stream is capturing: a copy");
    REFUSED(xpu_memcpy(stream, memory, host, sizeof host, true),
            "not permitted when stream is capturing: a copy");
    REFUSED(xpu_stream_wait(stream, before), "not part of the capture");
    SUCCEEDS(xpu_event_record(within, stream));
    REFUSED(xpu_event_synchronize(within), "recorded during a capture");
    REFUSED(xpu_graph_replay(graph, other), "is capturing");
    REFUSED(xpu_graph_reset(graph), "is capturing");
    /* calls outside of the capture work */
    add_to(other, memory, 1000);
    SUCCEEDS(xpu_stream_synchronize(other));
    add_to(stream, memory, 1);
    SUCCEEDS(xpu_graph_end(graph));
    REFUSED(xpu_event_elapsed(before, within, &(double){0}), "no times");
    assert_true(holds(memory, 0, 1000));
    SUCCEEDS(xpu_graph_begin(rival, other, NULL));
    REFUSED(xpu_graph_replay(graph, other), "replaying a graph");
    SUCCEEDS(xpu_graph_end(rival));
    SUCCEEDS(xpu_graph_replay(graph, stream)); /* with all that was accepted */
    assert_true(holds(memory, 0, 1002));
    SUCCEEDS(xpu_graph_reset(graph));
    REFUSED(xpu_graph_replay(graph, stream), "no capture");
    SUCCEEDS(xpu_graph_destroy(rival));
    SUCCEEDS(xpu_event_destroy(before));
    SUCCEEDS(xpu_event_destroy(within));
}

static int64_t reserved(void) {
    xpu_memory_stats stats;
    SUCCEEDS(xpu_memory_empty_cache(0));
    SUCCEEDS(xpu_memory_get_stats(0, &stats));
    return stats.reserved_bytes[XPU_POOL_ALL].current;
}

static void memory_stays_in_the_graphs_pool(void **state) {
    enum { SIZE = 30 << 20 };
    void *a, *b, *c, *outside;
    uint64_t pool[2], same[2];
    const int64_t before = reserved();
    REFUSED(xpu_graph_pool(graph, pool), "no capture");
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    SUCCEEDS(xpu_malloc(stream, SIZE, &a));
    SUCCEEDS(xpu_free(a));
    SUCCEEDS(xpu_malloc(stream, SIZE, &b));
    assert_ptr_equal(a, b); /* what the capture frees it uses again */
    SUCCEEDS(xpu_malloc(other, SIZE, &outside));
    SUCCEEDS(xpu_free(outside));
    SUCCEEDS(xpu_free(b));
    SUCCEEDS(xpu_graph_end(graph));
    SUCCEEDS(xpu_graph_pool(graph, pool));
    assert_int_equal(reserved(), before + SIZE);
    SUCCEEDS(xpu_malloc(stream, SIZE, &c)); /* and nobody else does */
    assert_ptr_not_equal(c, a);
    SUCCEEDS(xpu_free(c));
    /* but a graph that shares the pool */
    xpu_graph *sharing;
    SUCCEEDS(xpu_graph_create(0, &sharing));
    SUCCEEDS(xpu_graph_begin(sharing, stream, pool));
    SUCCEEDS(xpu_malloc(stream, SIZE, &c));
    assert_ptr_equal(c, a);
    SUCCEEDS(xpu_free(c));
    SUCCEEDS(xpu_graph_end(sharing));
    SUCCEEDS(xpu_graph_pool(sharing, same));
    assert_memory_equal(pool, same, sizeof pool);
    SUCCEEDS(xpu_graph_reset(graph));
    assert_int_equal(reserved(), before + SIZE);
    SUCCEEDS(xpu_graph_destroy(sharing));
    assert_int_equal(reserved(), before);
}

static void counters_are_the_streams_or_the_graphs_own(void **state) {
    enum { SIZE = XPU_WORKSPACE_COUNTERS * sizeof(uint32_t) };
    static const uint32_t none[XPU_WORKSPACE_COUNTERS];
    uint32_t *outside, *inside, *again, *host = malloc(SIZE);
    SUCCEEDS(xpu_workspace_counters(stream, &outside));
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    SUCCEEDS(xpu_workspace_counters(stream, &inside));
    SUCCEEDS(xpu_workspace_counters(stream, &again));
    assert_ptr_equal(inside, again);
    assert_ptr_not_equal(inside, outside); /* a replay may be at work beside the stream */
    SUCCEEDS(line_launch(stream, more, inside, XPU_WORKSPACE_COUNTERS, 7));
    SUCCEEDS(xpu_graph_end(graph));
    SUCCEEDS(xpu_workspace_counters(stream, &again));
    assert_ptr_equal(again, outside);
    SUCCEEDS(xpu_memcpy(stream, host, inside, SIZE, true));
    assert_memory_equal(host, none, SIZE);
    SUCCEEDS(xpu_graph_replay(graph, other));
    SUCCEEDS(xpu_stream_synchronize(other));
    SUCCEEDS(xpu_memcpy(other, host, inside, SIZE, true));
    assert_int_equal(host[0], 7);
    assert_int_equal(host[XPU_WORKSPACE_COUNTERS - 1], 7);
    SUCCEEDS(xpu_memcpy(stream, host, outside, SIZE, true));
    assert_memory_equal(host, none, SIZE);
    free(host);
}

static void draw(xpu_generator *generator, float *to, int64_t count) {
    const xpu_iter iter = {.outputs = 1,
                           .dims = 1,
                           .size = {count},
                           .operand = {{.data = to, .dtype = XPU_FLOAT32, .stride = {4}}}};
    SUCCEEDS(xpu_random(stream, generator, &iter, XPU_UNIFORM, 0, 1));
}

static void random_numbers_go_on_from_replay_to_replay(void **state) {
    static uint32_t eager[3][2][COUNT];
    xpu_generator *generator;
    uint64_t seed, offset;
    SUCCEEDS(xpu_generator_create(&generator));
    SUCCEEDS(xpu_generator_set_seed(generator, 42));
    for (int i = 0; i < 3; i++) {
        draw(generator, (float *)memory, COUNT);
        draw(generator, (float *)second, COUNT - 8);
        memcpy(eager[i][0], read_back(memory), sizeof eager[i][0]);
        memcpy(eager[i][1], read_back(second), sizeof eager[i][1]);
    }
    SUCCEEDS(xpu_generator_set_seed(generator, 7));
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    draw(generator, (float *)memory, COUNT);
    draw(generator, (float *)second, COUNT - 8);
    REFUSED(xpu_generator_set_seed(generator, 1), "seed");
    REFUSED(xpu_generator_set_offset(generator, 4), "offset");
    SUCCEEDS(xpu_graph_end(graph));
    SUCCEEDS(xpu_generator_get_offset(generator, &offset));
    assert_int_equal(offset, 0); /* nothing was drawn */
    for (int again = 0; again < 2; again++) {
        SUCCEEDS(xpu_generator_set_seed(generator, 42));
        for (int i = 0; i < 3; i++) {
            SUCCEEDS(xpu_graph_replay(graph, stream));
            assert_memory_equal(eager[i][0], read_back(memory), sizeof eager[i][0]);
            assert_memory_equal(eager[i][1], read_back(second), (COUNT - 8) * sizeof(float));
        }
    }
    SUCCEEDS(xpu_generator_reserve(generator, 4, &seed, &offset));
    assert_int_equal(offset, 6 * 4);
    SUCCEEDS(xpu_generator_destroy(generator)); /* the graph holds it */
    SUCCEEDS(xpu_graph_replay(graph, stream));
}

static void one_graph_draws_again_what_another_drew(void **state) {
    xpu_generator *generator;
    xpu_graph *backward;
    uint64_t seed, offset;
    static uint32_t forward_bits[COUNT];
    SUCCEEDS(xpu_generator_create(&generator));
    SUCCEEDS(xpu_graph_create(0, &backward));
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    draw(generator, (float *)second, COUNT);
    SUCCEEDS(xpu_graph_reserve(stream, generator, 4, &seed, &offset));
    SUCCEEDS(xpu_graph_end(graph));
    /* a kernel that writes its parameters: seed and counter, as the attention's gradient has them */
    static const char source[] =
        "typedef struct { ulong out, seed, counter; } shown;\n"
        "__kernel void show(shown p) {\n"
        "    if (get_global_id(0) < 2)\n"
        "        ((__global ulong *)p.out)[get_global_id(0)] = get_global_id(0) ? p.counter "
        ": p.seed;\n"
        "}\n";
    xpu_kernel *show;
    SUCCEEDS(xpu_kernel_create(0, source, NULL, "show", NULL, &show));
    const struct {
        uint64_t out, seed, counter;
    } params = {(uint64_t)(uintptr_t)memory, seed, offset / 4};
    const xpu_range range = {.dims = 1, .groups = {1}, .local = {16}, .work = 16};
    SUCCEEDS(xpu_graph_begin(backward, stream, NULL));
    SUCCEEDS(xpu_launch(stream, show, &range, &params, sizeof params));
    SUCCEEDS(xpu_graph_end(backward));
    SUCCEEDS(xpu_generator_set_seed(generator, 99));
    SUCCEEDS(xpu_generator_set_offset(generator, 40));
    for (int i = 0; i < 3; i++) {
        SUCCEEDS(xpu_graph_replay(graph, stream));
        SUCCEEDS(xpu_graph_replay(backward, stream));
        memcpy(forward_bits, read_back(memory), sizeof forward_bits);
        const uint64_t *shown = (const uint64_t *)forward_bits;
        assert_int_equal(shown[0], 99);
        assert_int_equal(shown[1], (40 + 8 * i + 4) / 4);
    }
    SUCCEEDS(xpu_graph_reset(graph)); /* the other generator has its own sequence */
    SUCCEEDS(xpu_graph_replay(backward, stream));
    SUCCEEDS(xpu_graph_destroy(backward));
    SUCCEEDS(xpu_generator_destroy(generator));
}

static void *replay_often(void *unused) {
    for (int i = 0; i < 200; i++)
        if (xpu_graph_replay(graph, stream) != XPU_SUCCESS) return (void *)1;
    return NULL;
}

static void threads_may_replay_and_record_at_once(void **state) {
    pthread_t threads[3];
    fill(memory, 0);
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    add_to(stream, memory, 1);
    add_to(stream, memory, 1);
    SUCCEEDS(xpu_graph_end(graph));
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, replay_often, NULL);
    for (int i = 0; i < 20; i++) {
        xpu_graph *g;
        SUCCEEDS(xpu_graph_create(0, &g));
        SUCCEEDS(xpu_graph_begin(g, other, NULL));
        for (int k = 0; k < 100; k++) add_to(other, second, 1);
        SUCCEEDS(xpu_graph_end(g));
        SUCCEEDS(xpu_graph_destroy(g));
    }
    for (int i = 0; i < 3; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_true(holds(memory, 0, 1200));
}

static void an_index_out_of_range_is_reported_by_the_replay(void **state) {
    static const int64_t four = 4, eight = 8, one = 1, good[4] = {7, 0, 3, 1}, bad[4] = {7, 8, 3, 1};
    const xpu_tensor out = {.data = second, .dtype = XPU_FLOAT32, .dims = 1, .size = &four, .stride = &one};
    const xpu_tensor in = {.data = memory, .dtype = XPU_FLOAT32, .dims = 1, .size = &eight, .stride = &one};
    int64_t *index;
    SUCCEEDS(xpu_malloc(stream, sizeof good, (void **)&index));
    const xpu_tensor by = {.data = index, .dtype = XPU_INT64, .dims = 1, .size = &four, .stride = &one};
    xpu_fault fault = {.state = 1};
    SUCCEEDS(xpu_memcpy(stream, index, bad, sizeof bad, true));
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    SUCCEEDS(xpu_gather(stream, &out, &in, 0, &by, &fault));
    SUCCEEDS(xpu_graph_end(graph));
    assert_int_equal(fault.state, 0);
    SUCCEEDS(xpu_stream_synchronize(stream));
    for (int i = 0; i < 4; i++) {
        SUCCEEDS(xpu_memcpy(stream, index, i % 2 ? bad : good, sizeof good, true));
        xpu_status status = xpu_graph_replay(graph, stream);
        if (status == XPU_SUCCESS) status = xpu_stream_synchronize(stream); /* a GPU knows by then only */
        assert_int_equal(status, i % 2 ? XPU_ERROR_INDEX : XPU_SUCCESS);
        if (i % 2) assert_non_null(strstr(xpu_last_error(), "gather: index 8 is out of bounds"));
    }
    SUCCEEDS(xpu_stream_synchronize(stream));
    SUCCEEDS(xpu_free(index));
}

static void memory_that_a_graph_may_use_is_known(void **state) {
    void *during, *later;
    uint64_t pool[2];
    assert_false(xpu_graph_may_use(0, memory));
    SUCCEEDS(xpu_graph_begin(graph, stream, NULL));
    assert_true(xpu_graph_may_use(0, memory));
    SUCCEEDS(xpu_malloc(stream, 512, &during));
    SUCCEEDS(xpu_graph_end(graph));
    SUCCEEDS(xpu_malloc(stream, 512, &later));
    for (int i = 0; i < 2; i++) { /* the second time after another graph has come and gone */
        assert_true(xpu_graph_may_use(0, second));
        assert_true(xpu_graph_may_use(0, (char *)during + 100));
        assert_true(xpu_graph_may_use(0, pool)); /* which the allocator didn't give */
        assert_false(xpu_graph_may_use(0, later));
        assert_false(xpu_graph_may_use(1, second));
        xpu_graph *empty;
        SUCCEEDS(xpu_graph_create(0, &empty));
        SUCCEEDS(xpu_graph_begin(empty, stream, NULL));
        assert_true(xpu_graph_may_use(0, later));
        SUCCEEDS(xpu_graph_end(empty));
        assert_true(xpu_graph_may_use(0, later));
        SUCCEEDS(xpu_graph_destroy(empty));
    }
    SUCCEEDS(xpu_graph_reset(graph));
    assert_false(xpu_graph_may_use(0, memory));
    assert_false(xpu_graph_may_use(0, pool));
    SUCCEEDS(xpu_free(during));
    SUCCEEDS(xpu_free(later));
}

int main(void) {
#define GRAPH_TEST(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        GRAPH_TEST(everything_is_recorded_and_replayed),
        GRAPH_TEST(large_and_plain_launches_are_replayed),
        GRAPH_TEST(tables_of_joined_tensors_are_kept),
        GRAPH_TEST(host_functions_are_recorded),
        GRAPH_TEST(observers_hear_of_replays),
        GRAPH_TEST(streams_fork_and_join),
        GRAPH_TEST(unjoined_streams_end_the_capture_with_an_error),
        GRAPH_TEST(what_cannot_be_recorded_is_refused),
        GRAPH_TEST(memory_stays_in_the_graphs_pool),
        GRAPH_TEST(memory_that_a_graph_may_use_is_known),
        GRAPH_TEST(counters_are_the_streams_or_the_graphs_own),
        GRAPH_TEST(random_numbers_go_on_from_replay_to_replay),
        GRAPH_TEST(one_graph_draws_again_what_another_drew),
        GRAPH_TEST(threads_may_replay_and_record_at_once),
        GRAPH_TEST(an_index_out_of_range_is_reported_by_the_replay),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
