/* Shared by the C benchmarks: exit on error, and the clock. Requires _POSIX_C_SOURCE. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "xpu/status.h"

static void check(xpu_status status) {
    if (status == XPU_SUCCESS) return;
    fprintf(stderr, "%s: %s\n", xpu_status_name(status), xpu_last_error());
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif
