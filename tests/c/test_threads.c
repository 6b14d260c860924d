/* Four threads on four streams of a real device: memory, fills, copies both ways, launches, events, builds
 * and recorded streams at once. Every result is checked. OPENXPU_TEST_SECONDS sets how long (default 4);
 * run it under ThreadSanitizer for a minute. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "device_test.h"

enum { THREADS = 4, COUNT = 3000 };

static atomic_bool stop;
static atomic_int rounds;

typedef struct worker {
    pthread_t thread;
    int number;
    char wrong[600];
} worker;

/* Passes blocks to the next thread, which reads them on its own stream and frees them. */
static pthread_mutex_t parcel_lock = PTHREAD_MUTEX_INITIALIZER;
static struct parcel {
    uint32_t *memory;
    xpu_event *ready;
    uint32_t add;
} parcels[THREADS];

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        if ((call) != XPU_SUCCESS) {                                                                         \
            snprintf(w->wrong, sizeof w->wrong, "%s: %s", #call, xpu_last_error());                          \
            return;                                                                                          \
        }                                                                                                    \
    } while (0)
#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            snprintf(w->wrong, sizeof w->wrong, "round %d: %s", round, #condition);                          \
            return;                                                                                          \
        }                                                                                                    \
    } while (0)

static void one_round(worker *w, xpu_stream *stream, int round) {
    unsigned number = 3 + (unsigned)(round / 16 % 4); /* all threads request the same new kernels */
    uint32_t add = (uint32_t)(round * THREADS + w->number), *memory, *host, *pinned, *copy;
    size_t bytes = COUNT * sizeof *memory;
    xpu_kernel *kernel;
    xpu_event *event;
    TRY(line_create(0, number, &kernel));
    TRY(xpu_malloc(stream, bytes + 4 * (size_t)(round % 2000), (void **)&memory));
    TRY(xpu_malloc(stream, bytes, (void **)&copy));
    TRY(xpu_host_malloc(bytes, (void **)&pinned));
    host = malloc(bytes);
    EXPECT(host);

    uint32_t pattern = add ^ 0x5a5a5a5a;
    TRY(xpu_memset(stream, memory, &pattern, sizeof pattern, bytes));
    TRY(xpu_memcpy(stream, host, memory, bytes, true));
    for (int i = 0; i < COUNT; i += 97) EXPECT(host[i] == pattern);

    TRY(line_launch(stream, kernel, memory, COUNT, add));
    TRY(xpu_memcpy(stream, copy, memory, bytes, false));
    TRY(xpu_memcpy(stream, pinned, copy, bytes, false));
    TRY(xpu_host_record_stream(pinned, stream));
    TRY(xpu_event_create(0, false, &event));
    TRY(xpu_event_record(event, stream));
    TRY(xpu_event_synchronize(event));
    EXPECT(line_is_right(pinned, COUNT, number, add));

    /* Back from the host, through pinned memory, into the same block. */
    for (int i = 0; i < COUNT; i++) pinned[i] = ~pinned[i];
    TRY(xpu_memcpy(stream, memory, pinned, bytes, false));
    TRY(xpu_memcpy(stream, host, memory, bytes, true));
    for (int i = 0; i < COUNT; i++) EXPECT(host[i] == ~(number * (uint32_t)i + add));
    TRY(xpu_host_free(pinned));
    TRY(xpu_event_destroy(event));
    TRY(xpu_free(memory));

    /* Passes `copy` to another thread, and takes what is there in exchange. */
    struct parcel give = {copy, NULL, number * 7 + add}, take;
    TRY(xpu_event_create(0, false, &give.ready));
    TRY(xpu_event_record(give.ready, stream));
    pthread_mutex_lock(&parcel_lock);
    int slot = (w->number + 1 + round % (THREADS - 1)) % THREADS;
    take = parcels[slot];
    parcels[slot] = give;
    pthread_mutex_unlock(&parcel_lock);
    if (take.memory) {
        TRY(xpu_stream_wait(stream, take.ready));
        TRY(xpu_memory_record_stream(take.memory, stream));
        TRY(xpu_memcpy(stream, host, take.memory, bytes, true));
        EXPECT(host[7] == take.add);
        TRY(xpu_free(take.memory));
        TRY(xpu_event_destroy(take.ready));
    }
    free(host);
    if (round % 64 == 0) {
        xpu_memory_stats stats;
        TRY(xpu_memory_get_stats(0, &stats));
        EXPECT(stats.allocated_bytes[0].current <= stats.reserved_bytes[0].current);
    }
    if (round % 256 == 255) TRY(xpu_memory_empty_cache(0));
}

static void *work(void *argument) {
    worker *w = argument;
    xpu_stream *stream;
    if (xpu_stream_from_pool(0, XPU_PRIORITY_NORMAL, &stream) || xpu_stream_set_current(stream)) {
        snprintf(w->wrong, sizeof w->wrong, "no stream: %s", xpu_last_error());
        return NULL;
    }
    for (int round = 0; !stop && !w->wrong[0]; round++, rounds++) one_round(w, stream, round);
    return NULL;
}

static void four_threads_on_four_streams(void **state) {
    const char *text = getenv("OPENXPU_TEST_SECONDS");
    struct timespec length = {.tv_sec = text ? atoi(text) : 4};
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.number = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    nanosleep(&length, NULL);
    const struct timespec more = {.tv_nsec = 50000000};
    bool is_wrong = false;
    while (rounds <= THREADS && !is_wrong) { /* on a busy machine the first ones take long */
        nanosleep(&more, NULL);
        for (int i = 0; i < THREADS; i++) is_wrong |= workers[i].wrong[0] != 0;
    }
    stop = true;
    for (int i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        if (workers[i].wrong[0]) fail_msg("thread %d: %s", i, workers[i].wrong);
    for (int i = 0; i < THREADS; i++) {
        if (!parcels[i].memory) continue;
        SUCCEEDS(xpu_free(parcels[i].memory));
        SUCCEEDS(xpu_event_destroy(parcels[i].ready));
    }
    assert_true(rounds > THREADS);
    print_message("%d rounds\n", rounds);
    SUCCEEDS(xpu_memory_empty_cache(0));
    SUCCEEDS(xpu_host_empty_cache());
    xpu_memory_stats stats;
    SUCCEEDS(xpu_memory_get_stats(0, &stats));
    assert_int_equal(stats.active[0].current, 0);
    assert_int_equal(stats.reserved_bytes[0].current, 0);
}

/* --- more threads than the runtime keeps kernel objects and queues for --- */

enum { MANY = 80, TEAM = 4, LARGE = 1 << 20 };

static pthread_barrier_t all_launched, all_done;

static void *launch_and_stay(void *argument) {
    worker *w = argument;
    xpu_stream *stream;
    xpu_kernel *kernel;
    uint32_t *memory, host[100];
    const char *failed = NULL;
    if (xpu_stream_default(0, &stream) || line_create(0, 3, &kernel) ||
        xpu_malloc(stream, sizeof host, (void **)&memory) ||
        line_launch(stream, kernel, memory, 100, (uint32_t)w->number) ||
        xpu_memcpy(stream, host, memory, sizeof host, true) || xpu_free(memory))
        failed = xpu_last_error();
    else if (!line_is_right(host, 100, 3, (uint32_t)w->number))
        failed = "wrong numbers";
    if (failed) snprintf(w->wrong, sizeof w->wrong, "%s", failed);
    pthread_barrier_wait(&all_launched);
    pthread_barrier_wait(&all_done);
    return NULL;
}

typedef struct task_run {
    int index;
    void (*task)(int index, void *context);
    void *context;
} task_run;

static void *run_task(void *argument) {
    task_run *t = argument;
    t->task(t->index, t->context);
    return NULL;
}

static int team_threads(void) { return TEAM; }
static void team_run(int tasks, void (*task)(int index, void *context), void *context) {
    pthread_t threads[TEAM];
    task_run runs[TEAM];
    for (int i = 0; i < tasks; i++) {
        runs[i] = (task_run){i, task, context};
        if (pthread_create(&threads[i], NULL, run_task, &runs[i])) abort();
    }
    for (int i = 0; i < tasks; i++) pthread_join(threads[i], NULL);
}

static void eighty_threads_and_a_team(void **state) {
    static worker workers[MANY];
    static const xpu_host_thread_pool team = {team_threads, team_run};
    xpu_stream *stream;
    xpu_kernel *kernel;
    uint32_t *memory, *host = malloc(LARGE * sizeof *host);
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(line_create(0, 3, &kernel));
    SUCCEEDS(xpu_malloc(stream, LARGE * sizeof *host, (void **)&memory));
    SUCCEEDS(line_launch(stream, kernel, memory, 1, 0)); /* this thread is among the first */
    SUCCEEDS(xpu_set_host_thread_pool(&team));
    pthread_barrier_init(&all_launched, NULL, MANY + 1);
    pthread_barrier_init(&all_done, NULL, MANY + 1);
    for (int i = 0; i < MANY; i++) {
        workers[i].number = i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, launch_and_stay, &workers[i]), 0);
    }
    pthread_barrier_wait(&all_launched);
    /* All slots are in use by living threads; the threads of the pool are new. */
    for (uint32_t i = 0; i < 5; i++) {
        SUCCEEDS(line_launch(stream, kernel, memory, LARGE, i));
        SUCCEEDS(xpu_memcpy(stream, host, memory, LARGE * sizeof *host, true));
        assert_true(line_is_right(host, LARGE, 3, i));
    }
    SUCCEEDS(xpu_free(memory));
    free(host);
    pthread_barrier_wait(&all_done);
    for (int i = 0; i < MANY; i++) pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < MANY; i++)
        if (workers[i].wrong[0]) fail_msg("thread %d: %s", i, workers[i].wrong);
    SUCCEEDS(xpu_set_host_thread_pool(NULL));
}

/* A pool of this thread only, whose second part is late if `is_busy` says so. */
static bool is_busy;
static int team_runs;
static int two_threads(void) { return 2; }
static void team_run_here(int tasks, void (*task)(int index, void *context), void *context) {
    const struct timespec late = {.tv_nsec = 2000000};
    team_runs++;
    for (int i = 0; i < tasks; i++) {
        if (i > 0 && is_busy) nanosleep(&late, NULL);
        task(i, context);
    }
}

/* If the threads of the pool are late, launches of some length run without it; longer ones, and those of
 * unknown length, use it. It is used for all again when its threads are on time. */
static void a_late_team_is_left_alone(void **state) {
    enum { FEW = 64, SHORT = 200000, TRIES = 2000 };
    static const xpu_host_thread_pool team = {two_threads, team_run_here};
    const uint64_t lengths[] = {SHORT, UINT64_C(1) << 40, 0};
    const xpu_device_properties *properties;
    xpu_stream *stream;
    xpu_kernel *kernel;
    uint32_t *memory, host[FEW * 64];
    SUCCEEDS(xpu_device_get_properties(0, &properties));
    if (!properties->has_local_exec || properties->memory == XPU_MEMORY_BUFFER) return;
    SUCCEEDS(xpu_stream_default(0, &stream));
    SUCCEEDS(line_create(0, 3, &kernel));
    SUCCEEDS(xpu_malloc(stream, sizeof host, (void **)&memory));
    SUCCEEDS(xpu_set_host_thread_pool(&team));
    line_params params = {(uint64_t)(uintptr_t)memory, FEW * 64, 1, 0};
    xpu_range range = {.dims = 1, .groups = {FEW}, .local = {64}};
    for (int busy = 1; busy >= 0; busy--) {
        is_busy = busy;
        int tries = 0, shared = -1;
        /* a pause starts with the first late launch; every millisecond its end is checked */
        for (range.work = SHORT; tries < TRIES && shared != !busy; tries++) {
            const struct timespec moment = {.tv_nsec = 1000000};
            const int before = team_runs;
            params.add = (uint32_t)tries;
            SUCCEEDS(xpu_launch(stream, kernel, &range, &params, sizeof params));
            shared = team_runs - before;
            SUCCEEDS(xpu_memcpy(stream, host, memory, sizeof host, true));
            assert_true(line_is_right(host, FEW * 64, 3, params.add));
            if (!busy) nanosleep(&moment, NULL);
        }
        assert_int_equal(shared, !busy);
    }
    is_busy = true;
    for (size_t i = 0; i < 3; i++)
        for (int again = 0; again < 4; again++) {
            const int before = team_runs;
            range.work = lengths[i];
            SUCCEEDS(xpu_launch(stream, kernel, &range, &params, sizeof params));
            if (lengths[i] != SHORT) assert_int_equal(team_runs, before + 1);
        }
    SUCCEEDS(xpu_stream_synchronize(stream));
    SUCCEEDS(xpu_free(memory));
    SUCCEEDS(xpu_set_host_thread_pool(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(four_threads_on_four_streams),
                                       cmocka_unit_test(eighty_threads_and_a_team),
                                       cmocka_unit_test(a_late_team_is_left_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
