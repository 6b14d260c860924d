/* xpu/package.h: models in a file, exported from PyTorch beforehand, and their runs without it.
 *
 *     xpu_package *package;
 *     xpu_package_open("model.xpk", device, &package);
 *     xpu_package_tensor in = {.data = ids, .dtype = XPU_INT64, .dims = 2, .size = {1, 16},
 *                              .stride = {16, 1}};
 *     xpu_package_tensor out = {0};
 *     xpu_package_run(package, stream, &in, 1, &out, 1);
 *     xpu_free(out.data); // which is the caller's
 *     xpu_package_close(package);
 *
 * `openxpu export` writes such files. One has the compiled kernels (xpu/image.h), the weights, and the list
 * of steps, launches and operations of the op library, whose sizes may be expressions of the inputs' sizes. A
 * host's processor reads the weights where the file is mapped: processes that open it share them. Other
 * devices get a copy. Memory between the steps is planned once for each set of the inputs' sizes. A file may
 * serve several kinds of devices: opening takes the program for the one at hand.
 *
 * A package is a program: its kernels may read and write what the process may. What is checked is that it is
 * whole and makes sense, not that it means well.
 *
 * The file must stay as it is while it is open; a new one under its name is no harm.
 *
 * An xpu_package is used by one thread at a time; threads that run at once open the file once each. */
#ifndef XPU_PACKAGE_H
#define XPU_PACKAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dtype.h"
#include "ops.h"
#include "stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_package xpu_package;

/* A tensor of the caller's. Strides count elements and aren't negative; `data` points at element 0, in memory
 * that the device can address (xpu_malloc's; for a host's processor any), or with `is_host` in plain memory
 * of the process, which is then copied. */
typedef struct xpu_package_tensor {
    void *data;
    bool is_host;
    xpu_dtype dtype;
    int dims;
    int64_t size[XPU_MAX_DIMS], stride[XPU_MAX_DIMS];
} xpu_package_tensor;

/* What an input or output is. Sizes that the caller chooses, and those that follow from them, are -1. */
typedef struct xpu_package_port {
    const char *name;
    xpu_dtype dtype;
    int dims;
    int64_t size[XPU_MAX_DIMS];
    bool is_written; /* an input that the model changes in place */
} xpu_package_port;

/* Bytes. `planned` and `peak_step` are those of the last shape that was planned: the memory that lies between
 * the steps, and the most that any step needs of it. */
typedef struct xpu_package_memory {
    uint64_t file, weights, state, planned, peak_step;
} xpu_package_memory;

/* Maps and checks a file, builds its kernels for `device` or takes them from the cache, and readies the
 * weights. Errors: XPU_ERROR_IO when it can't be read; XPU_ERROR_INVALID_ARGUMENT for what is no package, is
 * damaged or contradicts itself; XPU_ERROR_NOT_SUPPORTED for one of another version, with operators that this
 * libxpu lacks, or with kernels made for another kind of device; those of xpu_image_kernel. */
XPU_API xpu_status xpu_package_open(const char *path, int device, xpu_package **package);
/* Waits for the device. NULL is no error. */
XPU_API void xpu_package_close(xpu_package *package);

/* The ports belong to the package. */
XPU_API xpu_status xpu_package_inputs(const xpu_package *package, const xpu_package_port **ports, int *count);
XPU_API xpu_status xpu_package_outputs(const xpu_package *package, const xpu_package_port **ports,
                                       int *count);
XPU_API xpu_status xpu_package_memory_of(const xpu_package *package, xpu_package_memory *memory);
/* What the exporter wrote about the file, for people; ends with NUL. */
XPU_API const char *xpu_package_about(const xpu_package *package);

/* Fills in dtype, dims, size and stride of all outputs for inputs of these sizes, and plans the memory; no
 * data is looked at. */
XPU_API xpu_status xpu_package_shapes(xpu_package *package, const xpu_package_tensor *inputs, int input_count,
                                      xpu_package_tensor *outputs, int output_count);

/* Submits a run to `stream`, a stream of the package's device. An input that doesn't lie as the model was
 * compiled for (strides, an address that is a multiple of 16) is copied first, but one that is written must
 * lie so. An output whose `data` is NULL gets memory from xpu_malloc, the caller's to free, and its shape;
 * one with `data` must have the dtype, dims and sizes that xpu_package_shapes gives, and any strides. The
 * call waits for the device where an output `is_host`. Errors: XPU_ERROR_INVALID_ARGUMENT for inputs that
 * don't fit the model, naming input and condition; those of the device. */
XPU_API xpu_status xpu_package_run(xpu_package *package, xpu_stream *stream, const xpu_package_tensor *inputs,
                                   int input_count, xpu_package_tensor *outputs, int output_count);

/* The names of the operators that packages may have: number `index`, NULL after the last. */
XPU_API const char *xpu_package_operator(int index);

/* --- writing, which exporters do --- */
typedef struct xpu_package_piece {
    const void *data;
    size_t size;
} xpu_package_piece;

/* Writes a file of this version: `about` for people, the program as src/package/format.h tells, images one
 * after the other at multiples of 8 bytes, and the weights' pieces at multiples of XPU_PACKAGE_ALIGN.
 * XPU_ERROR_IO. */
#define XPU_PACKAGE_ALIGN 64
XPU_API xpu_status xpu_package_write(const char *path, const char *about, const int64_t *program,
                                     size_t words, const xpu_package_piece *images, size_t image_count,
                                     const xpu_package_piece *weights, size_t weight_count);

#ifdef __cplusplus
}
#endif
#endif
