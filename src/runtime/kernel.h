/* Internals of xpu_kernel, shared by program.c (creates kernels), launch.c and image_launch.c. Programs and
 * kernels are cached per device and live until the process ends. Any thread may call these functions. */
#ifndef RUNTIME_KERNEL_H
#define RUNTIME_KERNEL_H

#include "core/hash.h"
#include "runtime/runtime.h"

enum { KEY_SIZE = HASH128_DIGITS + 1 };

typedef struct cached_program {
    struct cached_program *next;
    int device;
    char key[KEY_SIZE];
    cl_program program;
} cached_program;

struct xpu_kernel {
    struct xpu_kernel *next;
    const cached_program *program;
    int device;
    char *name, *label;
    /* The driver's kernel object keeps its arguments, so each launching thread has its own. */
    _Atomic(cl_kernel) instance[MAX_SLOTS];
    os_mutex spare_lock; /* guards `spare`, for threads without a slot */
    cl_kernel spare;
};

/* Creates an OpenCL kernel object that is ready to launch; the caller owns it. */
xpu_status kernel_instance(xpu_kernel *kernel, cl_kernel *instance);

/* Builds several sources as one linked program, or loads it from the cache; kernels[i] gets names[i].
 * Returns false, without an error text, if the driver cannot link: the caller then builds kernels one by
 * one, which is equivalent. */
bool kernels_together(int device, const char *const *sources, const char *options, const char *const *names,
                      int count, xpu_kernel **kernels);

/* Identifies device and driver: binaries are interchangeable only between devices with equal keys. */
void device_key(int device, char key[KEY_SIZE]);
/* kernel_from_binary loads a kernel from a binary that this device's driver produced; it fails with
 * XPU_ERROR_BUILD_FAILED if the driver rejects the binary. kernel_binary returns the binary of a kernel's
 * program; the caller frees *data. It fails with XPU_ERROR_NOT_SUPPORTED if the driver provides none. */
xpu_status kernel_from_binary(int device, const void *binary, size_t size, const char *name,
                              xpu_kernel **kernel);
xpu_status kernel_binary(const xpu_kernel *kernel, unsigned char **data, size_t *size);

#endif
