/* xpu/package.h: runs models exported from PyTorch, without PyTorch or Python.
 *
 *     xpu_package *package;
 *     xpu_package_open("model.xpk", device, &package);
 *     xpu_package_tensor in = {.data = ids, .dtype = XPU_INT64, .dims = 2, .size = {1, 16},
 *                              .stride = {16, 1}};
 *     xpu_package_tensor out = {0};
 *     xpu_package_run(package, stream, &in, 1, &out, 1);
 *     xpu_free(out.data); // owned by the caller
 *     xpu_package_close(package);
 *
 * File: written by `openxpu export`. Contains the compiled kernels (xpu/image.h), the weights, and a list of
 *     steps: kernel launches and operations of the op library. Sizes in it may be expressions of the inputs'
 *     sizes. A file may hold programs for several kinds of devices; opening selects the matching one. It
 *     must not be modified while it is open; replacing it by a new file is safe.
 * Memory: CPU devices read the weights from the mapped file, so processes that open it share them; other
 *     devices get a copy. Intermediate memory is planned once for each set of input sizes.
 * Security: a package is a program. Its kernels may read and write whatever the process may. Opening checks
 *     integrity and consistency, not intent.
 * Threads: an xpu_package is used by one thread at a time. Concurrent threads each open the file. */
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

/* A tensor owned by the caller. Strides count elements and are not negative. `data` points at element 0, in
 * memory that the device can address: from xpu_malloc, or any memory on a CPU device. With `is_host` it is
 * ordinary host memory and is copied. */
typedef struct xpu_package_tensor {
    void *data;
    bool is_host;
    xpu_dtype dtype;
    int dims;
    int64_t size[XPU_MAX_DIMS], stride[XPU_MAX_DIMS];
} xpu_package_tensor;

/* Description of an input or output. Sizes chosen by the caller, and sizes derived from them, are -1. */
typedef struct xpu_package_port {
    const char *name;
    xpu_dtype dtype;
    int dims;
    int64_t size[XPU_MAX_DIMS];
    bool is_written; /* the model modifies this input in place */
} xpu_package_port;

/* Sizes in bytes. `planned` and `peak_step` refer to the last planned shape: memory for intermediates, and
 * the most of it that any step needs. */
typedef struct xpu_package_memory {
    uint64_t file, weights, state, planned, peak_step;
} xpu_package_memory;

/* Maps and checks a file, builds its kernels for `device` or loads them from the cache, and prepares the
 * weights.
 *
 * Errors: XPU_ERROR_IO if the file can't be read.
 * XPU_ERROR_INVALID_ARGUMENT for a file that is no package, damaged or inconsistent.
 * XPU_ERROR_NOT_SUPPORTED for another version, operators that this libxpu lacks, or kernels for another kind
 * of device.
 * Errors of xpu_image_kernel. */
XPU_API xpu_status xpu_package_open(const char *path, int device, xpu_package **package);
/* Waits for the device. NULL is ignored. */
XPU_API void xpu_package_close(xpu_package *package);

/* The ports are owned by the package. */
XPU_API xpu_status xpu_package_inputs(const xpu_package *package, const xpu_package_port **ports, int *count);
XPU_API xpu_status xpu_package_outputs(const xpu_package *package, const xpu_package_port **ports,
                                       int *count);
XPU_API xpu_status xpu_package_memory_of(const xpu_package *package, xpu_package_memory *memory);
/* The exporter's human-readable description, NUL-terminated. */
XPU_API const char *xpu_package_about(const xpu_package *package);

/* Fills in dtype, dims, size and stride of all outputs for inputs of these sizes, and plans the memory.
 * Reads no data. */
XPU_API xpu_status xpu_package_shapes(xpu_package *package, const xpu_package_tensor *inputs, int input_count,
                                      xpu_package_tensor *outputs, int output_count);

/* Submits a run to `stream`, a stream of the package's device.
 *
 * inputs: one whose layout (strides, 16-byte alignment) differs from the compiled one is copied first. An
 *     input that the model modifies must have that layout.
 * outputs: with `data` NULL, memory comes from xpu_malloc, is owned by the caller, and the shape is filled
 *     in. With `data`, the dtype, dims and sizes must be those of xpu_package_shapes; strides are arbitrary.
 *     With `is_host`, the call waits for the device.
 * Errors: XPU_ERROR_INVALID_ARGUMENT for inputs that don't fit the model, naming input and condition; errors
 *     of the device. */
XPU_API xpu_status xpu_package_run(xpu_package *package, xpu_stream *stream, const xpu_package_tensor *inputs,
                                   int input_count, xpu_package_tensor *outputs, int output_count);

/* Name of supported operator number `index`; NULL after the last. */
XPU_API const char *xpu_package_operator(int index);

/* --- writing, for exporters --- */
typedef struct xpu_package_chunk {
    const void *data;
    size_t size;
} xpu_package_chunk;

/* Writes a file of this version.
 *
 * about: human-readable description.
 * program: encoded as described in src/package/format.h.
 * images: stored one after another at multiples of 8 bytes.
 * weights: chunks stored at multiples of XPU_PACKAGE_ALIGN.
 * Errors: XPU_ERROR_IO. */
#define XPU_PACKAGE_ALIGN 64
XPU_API xpu_status xpu_package_write(const char *path, const char *about, const int64_t *program,
                                     size_t words, const xpu_package_chunk *images, size_t image_count,
                                     const xpu_package_chunk *weights, size_t weight_count);

#ifdef __cplusplus
}
#endif
#endif
