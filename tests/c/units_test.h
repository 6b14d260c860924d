/* Shared by the tests of matrix-engine kernels: the selected engine, counting launches, `PROGRAM [problems
 * [seed [every [pattern of tests]]]]`. */
#ifndef TESTS_UNITS_TEST_H
#define TESTS_UNITS_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "halves.h"
#include "units.h"

static xpu_stream *stream;
static int extra;            /* number of random problems */
static int every = 1, first; /* of the listed problems, one in `every` runs, starting there */
static bool by_blocks __attribute__((unused));     /* XMX with SIMD16 */
static bool by_xmx8 __attribute__((unused));       /* XMX with SIMD8 */
static bool by_fma __attribute__((unused));        /* none, or int8 dot products of four */
static bool by_none __attribute__((unused));       /* none, with the kernels that the device uses then */
static bool without_units __attribute__((unused)); /* either of these two */

/* Defined by each test. */
static void count_launch(const xpu_work *work, xpu_trace_point point, xpu_status status, void *unused);

/* Emulated tensor cores on a CPU, unless OPENXPU_MATRIX selects others. */
static int set_up(void **unused) {
    const xpu_device_properties *p;
    SUCCEEDS(xpu_device_get_properties(0, &p));
    if (p->type == XPU_DEVICE_CPU) setenv("OPENXPU_MATRIX", "ptx", 0);
    const unit_kind kind = units_of_device();
    const char *wanted = getenv("OPENXPU_MATRIX");
    if (p->type == XPU_DEVICE_CPU && kind == UNITS_NONE && strcmp(wanted, "none")) {
        printf("skipped: %s can't emulate a matrix engine, without subgroups of a fixed size\n", p->name);
        exit(77); /* the engine "fma" tests the portable kernels */
    }
    by_blocks = kind == UNITS_XMX;
    by_xmx8 = kind == UNITS_XMX8;
    by_fma = kind == UNITS_FMA;
    by_none = kind == UNITS_NONE;
    without_units = by_fma || by_none;
    SUCCEEDS(xpu_stream_default(0, &stream));
    static xpu_trace *trace;
    SUCCEEDS(xpu_trace_subscribe(count_launch, NULL, &trace));
    return 0;
}

/* On a CPU without OPENXPU_MATRIX, restarts the program with NVIDIA's engine and without the driver's
 * optimizer, which takes most of the time and is not a GPU's. libxpu reads options only once. */
static inline void build_quickly(char **words) {
    const xpu_device_properties *p;
    if (getenv("OPENXPU_MATRIX") || xpu_device_get_properties(0, &p) != XPU_SUCCESS) return;
    if (p->type != XPU_DEVICE_CPU) return;
    setenv("OPENXPU_MATRIX", "ptx", 0), setenv("OPENXPU_BUILD_OPTIONS", "-cl-opt-disable", 0);
    execv(words[0], words); /* if it can't, the run takes longer */
}

static void read_words(int count, char **words) {
    extra = count > 1 ? atoi(words[1]) : 0;
    if (count > 2) random_state = strtoull(words[2], NULL, 10);
    if (count > 3) every = atoi(words[3]), first = (int)(random_state % (uint64_t)every);
    if (count > 4) cmocka_set_test_filter(words[4]);
}
static inline bool is_left_out(size_t i) { return (int)(i % (size_t)every) != first; }

/* The same for a list of `count` problems of which at least one runs. */
static inline bool is_left_out_of(size_t i, size_t count) {
    const size_t step = (size_t)every < count ? (size_t)every : count;
    return i % step != (size_t)first % step;
}

#endif
