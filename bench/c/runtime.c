/* Times the runtime on each device without PyTorch: launches, also with a trace callback, copies, bandwidth.
 *
 *     cc -O2 bench/c/runtime.c -Iinclude -Lpython/openxpu -lxpu -Wl,-rpath,$PWD/python/openxpu \
 *        -o build/bench_runtime */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "xpu/device.h"
#include "xpu/memory.h"
#include "xpu/program.h"
#include "xpu/trace.h"

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        xpu_status status_ = (call);                                                                         \
        if (status_ != XPU_SUCCESS) {                                                                        \
            fprintf(stderr, "%s: %s\n", xpu_status_name(status_), xpu_last_error());                         \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char source[] =
    "typedef struct { ulong a, b, c; long count; } params;\n"
    "__kernel void add(params p) {\n"
    "    long i = get_global_id(0);\n"
    "    if (4 * i < p.count) {\n"
    "        float4 sum = ((__global const float4 *)p.a)[i] + ((__global const float4 *)p.b)[i];\n"
    "        ((__global float4 *)p.c)[i] = sum;\n"
    "    }\n"
    "}\n"
    "__kernel void nothing(params p) { if (p.count < 0) ((__global int *)p.a)[0] = 1; }\n";

static void ignore_work(const xpu_work *work, xpu_trace_point point, xpu_status status, void *user) {}

/* The least time of a launch in seconds, without and with a trace callback. Rounds of both alternate. */
static void time_traced_launches(xpu_stream *stream, xpu_kernel *kernel, const void *params, size_t size,
                                 double best[2]) {
    enum { ROUNDS = 200, LAUNCHES = 100 };
    const xpu_range range = {.dims = 1, .groups = {1}, .local = {64}, .work = 64};
    best[0] = best[1] = 1;
    for (int i = 0; i < 2 * ROUNDS; i++) {
        const bool traced = i % 2;
        xpu_trace *trace;
        if (traced) TRY(xpu_trace_subscribe(ignore_work, NULL, &trace));
        const double start = now();
        for (int j = 0; j < LAUNCHES; j++) TRY(xpu_launch(stream, kernel, &range, params, size));
        TRY(xpu_stream_synchronize(stream));
        const double time = (now() - start) / LAUNCHES;
        if (traced) TRY(xpu_trace_unsubscribe(trace));
        if (time < best[traced]) best[traced] = time;
    }
}

static void measure(int device) {
    const xpu_device_properties *properties;
    xpu_stream *stream;
    xpu_kernel *add, *nothing;
    TRY(xpu_device_get_properties(device, &properties));
    printf("%s (%s, driver %s)\n", properties->name, properties->platform_name, properties->driver_version);
    TRY(xpu_stream_default(device, &stream));
    TRY(xpu_kernel_create(device, source, NULL, "add", NULL, &add));
    TRY(xpu_kernel_create(device, source, NULL, "nothing", NULL, &nothing));

    long count = properties->type == XPU_DEVICE_CPU ? 1L << 24 : 1L << 28;
    size_t bytes = (size_t)count * sizeof(float);
    float *a, *b, *c, *host, *back, one = 1, two = 2;
    TRY(xpu_malloc(stream, bytes, (void **)&a));
    TRY(xpu_malloc(stream, bytes, (void **)&b));
    TRY(xpu_malloc(stream, bytes, (void **)&c));
    TRY(xpu_memset(stream, a, &one, sizeof one, bytes));
    TRY(xpu_memset(stream, b, &two, sizeof two, bytes));
    struct {
        float *a, *b, *c;
        long count;
    } params = {a, b, c, count};

    xpu_range none = {.dims = 1, .groups = {1}, .local = {64}, .work = 64};
    for (int i = 0; i < 100; i++) TRY(xpu_launch(stream, nothing, &none, &params, sizeof params));
    TRY(xpu_stream_synchronize(stream));
    int launches = 20000;
    double start = now();
    for (int i = 0; i < launches; i++) TRY(xpu_launch(stream, nothing, &none, &params, sizeof params));
    double submitted = now() - start;
    TRY(xpu_stream_synchronize(stream));
    double finished = now() - start;
    printf("  launch: %.2f µs submitted, %.2f µs done\n", submitted / launches * 1e6,
           finished / launches * 1e6);
    double best_launch[2];
    time_traced_launches(stream, nothing, &params, sizeof params, best_launch);
    printf("  launch: %.2f µs, with a trace callback %.2f µs (least)\n", best_launch[0] * 1e6,
           best_launch[1] * 1e6);
    start = now();
    for (int i = 0; i < 2000; i++) {
        TRY(xpu_launch(stream, nothing, &none, &params, sizeof params));
        TRY(xpu_stream_synchronize(stream));
    }
    printf("  launch and wait: %.2f µs\n", (now() - start) / 2000 * 1e6);

    xpu_range all = {.dims = 1, .groups = {(size_t)count / 4 / 256}, .local = {256}};
    xpu_event *from, *to;
    TRY(xpu_event_create(device, true, &from));
    TRY(xpu_event_create(device, true, &to));
    double best = 1e9, milliseconds;
    for (int i = 0; i < 10; i++) {
        TRY(xpu_event_record(from, stream));
        TRY(xpu_launch(stream, add, &all, &params, sizeof params));
        TRY(xpu_event_record(to, stream));
        TRY(xpu_event_synchronize(to));
        TRY(xpu_event_elapsed(from, to, &milliseconds));
        if (milliseconds < best) best = milliseconds;
    }
    printf("  add of %ld floats: %.1f GB/s\n", count, 3e-6 * (double)bytes / best);

    size_t part = bytes < (size_t)256 << 20 ? bytes : (size_t)256 << 20;
    TRY(xpu_host_malloc(part, (void **)&host));
    TRY(xpu_host_malloc(part, (void **)&back));
    for (size_t i = 0; i < part / sizeof *host; i++) host[i] = (float)(i % 1000);
    memset(back, 0, part);
    const char *names[] = {"pinned host to device", "device to pinned host"};
    for (int way = 0; way < 2; way++) {
        best = 1e9;
        for (int i = 0; i < 5; i++) {
            start = now();
            TRY(way ? xpu_memcpy(stream, back, a, part, false) : xpu_memcpy(stream, a, host, part, false));
            TRY(xpu_stream_synchronize(stream));
            if (now() - start < best) best = now() - start;
        }
        printf("  %s: %.1f GB/s\n", names[way], 1e-9 * (double)part / best);
    }
    TRY(xpu_launch(stream, add, &all, &params, sizeof params));
    TRY(xpu_memcpy(stream, host, c, part, true));
    long wrong = memcmp(back, host, 0);
    for (size_t i = 0; i < part / sizeof *host; i++)
        wrong += back[i] != (float)(i % 1000) || host[i] != back[i] + 2;
    printf("  %ld wrong numbers\n", wrong);
    TRY(xpu_event_destroy(from));
    TRY(xpu_event_destroy(to));
    TRY(xpu_host_free(host));
    TRY(xpu_host_free(back));
    TRY(xpu_free(a));
    TRY(xpu_free(b));
    TRY(xpu_free(c));
}

int main(void) {
    int count;
    TRY(xpu_device_count(&count));
    if (!count) printf("%s\n", xpu_no_device_hint());
    for (int device = 0; device < count; device++) measure(device);
    return 0;
}
