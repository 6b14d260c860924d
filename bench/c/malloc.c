/* Compares xpu_malloc and xpu_free, served from the cache, with the C library's malloc. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "xpu/memory.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The fastest of many short bursts counts, since other programs disturb it least. */
enum { ROUNDS = 2000, BURSTS = 300, LIVE = 64 };

static void check(xpu_status status) {
    if (status == XPU_SUCCESS) return;
    fprintf(stderr, "%s: %s\n", xpu_status_name(status), xpu_last_error());
    exit(1);
}

/* Nanoseconds of a malloc and a free of `size` bytes while other blocks of that size are allocated. */
static double pair(xpu_stream *stream, size_t size, int live) {
    static void *blocks[LIVE], *p;
    for (int i = 0; i < live; i++) check(xpu_malloc(stream, size, &blocks[i]));
    for (int i = 0; i < live; i += 2) check(xpu_free(blocks[i])); /* leave holes to choose from */
    double best = 1e30;
    for (int repeat = 0; repeat < BURSTS; repeat++) {
        double start = now();
        for (int i = 0; i < ROUNDS; i++) {
            xpu_malloc(stream, size, &p);
            xpu_free(p);
        }
        double each = (now() - start) / ROUNDS;
        if (each < best) best = each;
    }
    for (int i = 1; i < live; i += 2) check(xpu_free(blocks[i]));
    return best;
}

int main(void) {
    static const size_t sizes[] = {16, 4096, 1 << 20, 4 << 20, 64 << 20};
    xpu_stream *stream;
    check(xpu_stream_default(0, &stream));
    printf("%12s %14s %18s\n", "bytes", "alone, ns", "among holes, ns");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        printf("%12zu %14.1f %18.1f\n", sizes[i], pair(stream, sizes[i], 0),
               sizes[i] > 4 << 20 ? 0.0 : pair(stream, sizes[i], LIVE));
    int device;
    void *p;
    check(xpu_malloc(stream, 4096, &p));
    double best[2] = {1e30, 1e30};
    for (int repeat = 0; repeat < BURSTS; repeat++) {
        double start = now();
        for (int i = 0; i < ROUNDS; i++) free(*(void *volatile *)&(void *){malloc(16)});
        double middle = now();
        for (int i = 0; i < ROUNDS; i++) xpu_memory_device_of((char *)p + 100, &device);
        double end = now();
        if (middle - start < best[0]) best[0] = middle - start;
        if (end - middle < best[1]) best[1] = end - middle;
    }
    printf("malloc and free of the C library, 16 bytes: %.1f ns\n", best[0] / ROUNDS);
    printf("xpu_memory_device_of: %.1f ns\n", best[1] / ROUNDS);
    check(xpu_free(p));
    return 0;
}
