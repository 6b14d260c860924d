/* What a kernel is inside: shared by program.c, which makes it, and launch.c. */
#ifndef RUNTIME_KERNEL_H
#define RUNTIME_KERNEL_H

#include "runtime/runtime.h"

typedef struct program {
    struct program *next;
    int device;
    char key[33];
    cl_program program;
} program;

struct xpu_kernel {
    struct xpu_kernel *next;
    const program *program;
    int device;
    char *name, *label;
    /* The driver's kernel object keeps its arguments, so each launching thread has its own. */
    _Atomic(cl_kernel) instance[MAX_SLOTS];
    os_mutex spare_lock; /* guards `spare`, for threads without a slot */
    cl_kernel spare;
};

/* A new object of the driver for `kernel`, ready for launches. */
xpu_status kernel_instance(xpu_kernel *kernel, cl_kernel *instance);

/* xpu_launch, on record as a copy or fill of so many bytes. */
xpu_status launch_for_bytes(xpu_stream *stream, xpu_kernel *kernel, const xpu_range *range,
                            const void *params, size_t params_size, uint64_t bytes);

#endif
