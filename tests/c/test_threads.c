/* Four threads on four streams of a real device: memory, fills, copies both ways, launches, events, builds
 * and recorded streams at once. Every result is checked. OPENXPU_TEST_SECONDS sets how long (default 2);
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

/* Hands blocks over to the next thread, which reads them on its own stream and frees them. */
static pthread_mutex_t parcel_lock = PTHREAD_MUTEX_INITIALIZER;
static struct parcel { uint32_t *memory; xpu_event *ready; uint32_t add; } parcels[THREADS];

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != XPU_SUCCESS) {                                                               \
            snprintf(w->wrong, sizeof w->wrong, "%s: %s", #call, xpu_last_error());                \
            return;                                                                                \
        }                                                                                          \
    } while (0)
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            snprintf(w->wrong, sizeof w->wrong, "round %d: %s", round, #condition);                \
            return;                                                                                \
        }                                                                                          \
    } while (0)

static void one_round(worker *w, xpu_stream *stream, int round) {
    unsigned number = 3 + (unsigned)(round / 16 % 4);  /* all threads come to the same new kernels */
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

    /* `copy` goes to another thread; what lies there is taken in exchange. */
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
    struct timespec length = {.tv_sec = text ? atoi(text) : 2};
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.number = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    nanosleep(&length, NULL);
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(four_threads_on_four_streams)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
