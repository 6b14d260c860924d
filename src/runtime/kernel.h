/* What a kernel is inside: shared by program.c, which makes it, launch.c and image_launch.c. */
#ifndef RUNTIME_KERNEL_H
#define RUNTIME_KERNEL_H

#include "core/hash.h"
#include "runtime/runtime.h"

enum { KEY_SIZE = HASH128_DIGITS + 1 };

typedef struct program {
    struct program *next;
    int device;
    char key[KEY_SIZE];
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

/* The kernels `names` of sources of these options as one program of the driver's, built or from the cache.
 * Not all drivers link, and why one doesn't is not told: kernels one by one are as good. */
bool kernels_together(int device, const char *const *sources, const char *options, const char *const *names,
                      int count, xpu_kernel **kernels);

/* Digits that tell apart devices and drivers for which the same source gives different binaries. */
void device_key(int device, char key[KEY_SIZE]);
/* A kernel of a binary that this device's driver made; and that of a kernel, which the caller frees. */
xpu_status kernel_from_binary(int device, const void *binary, size_t size, const char *name,
                              xpu_kernel **kernel);
xpu_status kernel_binary(const xpu_kernel *kernel, unsigned char **data, size_t *size);

#endif
