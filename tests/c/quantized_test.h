/* Shared by tests of quantized products and convolutions: the selected engine, counting launches, memory,
 * `PROGRAM [problems [seed]]`. */
#ifndef TESTS_QUANTIZED_TEST_H
#define TESTS_QUANTIZED_TEST_H

#include <stdlib.h>

#include "halves.h"
#include "units.h"

static xpu_stream *stream;
static int problems = 60;
static bool by_ptx;                           /* NVIDIA tensor cores, mostly */
static bool by_xmx;                           /* by Intel's, of 16 lanes */
static bool by_xmx8 __attribute__((unused));  /* … of 8 lanes */
static bool by_fma;                           /* GPU kernels without a matrix engine */
static bool has_unit __attribute__((unused)); /* any */
static bool is_host __attribute__((unused));  /* none of these: CPU kernels */

/* Defined by each test. */
static void count_launch(const xpu_work *work, xpu_trace_point point, xpu_status status, void *unused);

static int set_up(void **unused) {
    const unit_kind kind = units_of_device();
    by_ptx = kind == UNITS_PTX, by_xmx = kind == UNITS_XMX, by_xmx8 = kind == UNITS_XMX8;
    by_fma = kind == UNITS_FMA && !has_dot();
    has_unit = kind != UNITS_NONE && !by_fma;
    const xpu_device_properties *properties;
    SUCCEEDS(xpu_device_get_properties(0, &properties));
    is_host = properties->type == XPU_DEVICE_CPU && !by_fma && !has_unit;
    SUCCEEDS(xpu_stream_default(0, &stream));
    static xpu_trace *trace;
    SUCCEEDS(xpu_trace_subscribe(count_launch, NULL, &trace));
    return 0;
}

static void read_words(int count, char **words) {
    if (count > 1) problems = atoi(words[1]);
    if (count > 2) random_state = strtoull(words[2], NULL, 10);
}

/* Bytes on both sides. */
typedef struct memory {
    uint8_t *host;
    void *device;
} memory;
static memory memory_of(size_t size) {
    memory m = {calloc(size + 64, 1), NULL};
    SUCCEEDS(xpu_malloc(stream, size + 64, &m.device));
    return m;
}
static void send(const memory *m, size_t size) {
    SUCCEEDS(xpu_memcpy(stream, m->device, m->host, size, true));
}
static void drop(memory *m) {
    SUCCEEDS(xpu_free(m->device));
    free(m->host);
}

/* The value of an element of `m`; int8 has a scale and a zero point. */
static double byte_or_number(xpu_dtype dtype, const memory *m, int64_t i, double scale, int zero) {
    if (dtype == XPU_INT8) return ((int8_t)m->host[i] - zero) * scale;
    if (dtype == XPU_UINT8) return (m->host[i] - zero) * scale;
    return get_number(dtype, m->host, i);
}

#endif
