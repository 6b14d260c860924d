/* xpu/image.h: compiled kernels as files, and their launch.
 *
 * An image is a compiled kernel: code, parameters and work-group size. It is a byte string that any process
 * can store or launch, without the compiler:
 *
 *     xpu_image *image;
 *     xpu_kernel *kernel;
 *     xpu_image_read(bytes, size, &image);
 *     xpu_image_kernel(image, device, &kernel); // built, or from the cache
 *     const void *arguments[] = {&x, &y, &n};   // device addresses and scalars, as image->params says
 *     xpu_image_launch(stream, image, kernel, (uint32_t[3]){programs, 1, 1}, arguments, 3);
 *
 * Sources: `openxpu compile --image` compiles Triton IR to an image file; xpu_tile_image (xpu/tile.h) gives
 *     one in memory; Triton's cache stores them as KERNEL.zebin. */
#ifndef XPU_IMAGE_H
#define XPU_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Largest size of an image, and of a kernel's parameter struct, in bytes. */
#define XPU_IMAGE_SIZE_MAX 67108864
#define XPU_IMAGE_PARAMS_MAX 4096

typedef enum xpu_image_kind {
    XPU_IMAGE_SOURCE, /* OpenCL C, for all devices of a target */
    XPU_IMAGE_BINARY  /* a driver's binary, for its device and version only (xpu_image_build), or an offline
                         compiler's */
} xpu_image_kind;

typedef enum xpu_param_kind {
    XPU_PARAM_POINTER, /* a device address, 8 bytes */
    XPU_PARAM_INTEGER, /* two's complement, 1, 2, 4 or 8 bytes; i1 is one byte, 0 or 1 */
    XPU_PARAM_FLOAT    /* IEEE, 1 (fp8), 2 (fp16, or bf16 if `is_bf16`), 4 or 8 bytes */
} xpu_param_kind;

typedef struct xpu_param {
    xpu_param_kind kind;
    uint32_t size;   /* bytes */
    uint32_t offset; /* bytes from the struct's start, a multiple of `size` */
    bool is_bf16;
    bool is_written; /* a pointer through which the kernel stores */
} xpu_param;

/* A compiled kernel. Its only argument is a struct: the parameters in order, then three int32, the grid size
 * in x, y and z. A kernel with assertions has two more addresses, for the report of a failed one
 * (xpu/fault.h). A program whose assertion fails ends there. */
typedef struct xpu_image {
    xpu_image_kind kind;
    const char *code; /* XPU_IMAGE_SOURCE: NUL-terminated; code_size excludes the NUL */
    size_t code_size;
    const char *name;          /* name of the kernel in the code */
    const char *build_options; /* options for the driver's compiler */
    const char *target;        /* compilation target: a line from xpu_tile_target_write, or "" */
    const char *device;        /* driver's binary: device and driver version, in 32 digits; else "" */
    const xpu_param *params;
    int param_count;
    uint32_t params_size;  /* size of the struct */
    uint32_t grid_offset;  /* offset of the three int32 */
    uint32_t fault_offset; /* offset of the two addresses; 0: no assertions */
    uint32_t local_size;   /* work-items per work-group, all in dimension 0 */
    uint32_t local_memory; /* local memory that the kernel declares, in bytes */
    uint64_t work;         /* estimated simple operations per program */
    /* Texts of the assertions (message and source location), ended by NULL; NULL if there are none. They
     * must remain valid as long as a report may arrive. */
    const char *const *asserts;
} xpu_image;

/* Reads an image from untrusted bytes.
 *
 * image: owned by the caller, freed with xpu_image_free. Assertion texts are never freed.
 * Errors: XPU_ERROR_NOT_SUPPORTED for another format version, which is in the first bytes: a cache of images
 *     should recompile.
 * XPU_ERROR_INVALID_ARGUMENT for bytes that are no image, or a damaged one; xpu_last_error() says why. */
XPU_API xpu_status xpu_image_read(const void *bytes, size_t size, xpu_image **image);
XPU_API void xpu_image_free(xpu_image *image);

/* Writes an image, of `*size` bytes. With `bytes` NULL it gives the size only.
 *
 * Format: a line of JSON, an object whose first key is "xpu_image" with the format version as value; then
 *     the code. Equal images have equal bytes, and reading accepts no other bytes for them.
 * Errors: XPU_ERROR_INVALID_ARGUMENT for an image that reading would reject, and if `capacity` is too small.
 */
XPU_API xpu_status xpu_image_write(const xpu_image *image, void *bytes, size_t capacity, size_t *size);

/* The image's kernel for a device. Source images are built by xpu_kernel_create.
 *
 * Errors: XPU_ERROR_NOT_SUPPORTED for a binary of another device or driver, and for a kernel that exceeds
 *     the device's work-group size or local memory.
 * XPU_ERROR_BUILD_FAILED for an offline compiler's binary that the driver rejects. */
XPU_API xpu_status xpu_image_kernel(const xpu_image *image, int device, xpu_kernel **kernel);
/* Kernels of several images. On a CPU, compatible sources are built as one program: it takes less memory and
 * loads faster. It is built again if the kernels were cached separately. */
XPU_API xpu_status xpu_image_kernels(const xpu_image *const *images, int count, int device,
                                     xpu_kernel **kernels);

/* Compiles a source image with the driver: gives an image with the same fields and the binary as its code.
 * `*built` is owned by the caller, freed with xpu_image_free. */
XPU_API xpu_status xpu_image_build(const xpu_image *image, int device, xpu_image **built);

/* Launches grid[0] x grid[1] x grid[2] programs.
 *
 * arguments: arguments[i] points at the value of params[i], of its size; `count` of them.
 * Errors: XPU_ERROR_ASSERTION, on CPU devices at once, on others deferred (xpu/fault.h).
 * Allocates nothing. */
XPU_API xpu_status xpu_image_launch(xpu_stream *stream, const xpu_image *image, xpu_kernel *kernel,
                                    const uint32_t grid[3], const void *const *arguments, int count);

/* xpu_image_launch with the parameter struct itself, image->params_size bytes, aligned to 8. The caller
 * fills in the values at the offsets in image->params. The grid and the assertion addresses are filled in
 * here. */
XPU_API xpu_status xpu_image_submit(xpu_stream *stream, const xpu_image *image, xpu_kernel *kernel,
                                    const uint32_t grid[3], void *params);

#ifdef __cplusplus
}
#endif
#endif
