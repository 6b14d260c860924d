/* Shared by tests on a real device: failing with the library's error text, a kernel, a child process. */
#ifndef TESTS_DEVICE_TEST_H
#define TESTS_DEVICE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "xpu/xpu.h"

#define SUCCEEDS(call)                                                                                       \
    do {                                                                                                     \
        if ((call) != XPU_SUCCESS) fail_msg("%s: %s", #call, xpu_last_error());                              \
    } while (0)

/* Kernels that differ only in `number` are different programs to the cache. out[i] = number i + add. */
static const char line_source[] =
    "typedef struct { ulong out, count; uint add, unused; } line_params;\n"
    "__kernel void line(line_params p) {\n"
    "    size_t i = get_global_id(0);\n"
    "    if (i < p.count) ((__global uint *)p.out)[i] = NUMBER * (uint)i + p.add;\n"
    "}\n";

typedef struct line_params {
    uint64_t out, count;
    uint32_t add, unused;
} line_params;

static inline xpu_status line_create(int device, unsigned number, xpu_kernel **kernel) {
    char options[32];
    snprintf(options, sizeof options, "-DNUMBER=%uu", number);
    return xpu_kernel_create(device, line_source, options, "line", NULL, kernel);
}

static inline xpu_status line_launch(xpu_stream *stream, xpu_kernel *kernel, void *out, size_t count,
                                     uint32_t add) {
    line_params params = {(uint64_t)(uintptr_t)out, count, add, 0};
    xpu_range range = {.dims = 1, .groups = {(count + 63) / 64}, .local = {64}, .work = count};
    return xpu_launch(stream, kernel, &range, &params, sizeof params);
}

static inline bool line_is_right(const uint32_t *out, size_t count, unsigned number, uint32_t add) {
    for (size_t i = 0; i < count; i++)
        if (out[i] != number * (uint32_t)i + add) return false;
    return true;
}

#endif
