/* xpu/image.h: compiled kernels as files, and their launch.
 *
 * An image is all that is to be known of a kernel that a compiler made: its code, its parameters, its
 * work-group. It is bytes that any process can keep and any other launch from, without the compiler:
 *
 *     xpu_image *image;
 *     xpu_kernel *kernel;
 *     xpu_image_read(bytes, size, &image);
 *     xpu_image_kernel(image, device, &kernel); // built, or from the cache
 *     const void *arguments[] = {&x, &y, &n};   // device addresses and numbers, as image->params says
 *     xpu_image_launch(stream, image, kernel, (uint32_t[3]){programs, 1, 1}, arguments, 3);
 *
 * `openxpu compile --image` writes one from Triton IR, xpu_tile_image (xpu/tile.h) is one in memory, and
 * Triton's cache has them as KERNEL.zebin. */
#ifndef XPU_IMAGE_H
#define XPU_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most bytes of an image, and of a kernel's struct of parameters. */
#define XPU_IMAGE_SIZE_MAX 67108864
#define XPU_IMAGE_PARAMS_MAX 4096

typedef enum xpu_image_kind {
    XPU_IMAGE_SOURCE, /* OpenCL C, for all devices of a target */
    XPU_IMAGE_BINARY  /* what a driver made of it, for its device and version alone (xpu_image_build), or an
                         offline compiler */
} xpu_image_kind;

typedef enum xpu_param_kind {
    XPU_PARAM_POINTER, /* a device address, 8 bytes */
    XPU_PARAM_INTEGER, /* two's complement, 1, 2, 4 or 8 bytes; i1 is one byte, 0 or 1 */
    XPU_PARAM_FLOAT    /* IEEE, 1 (fp8), 2 (fp16, or bf16 where `is_bf16`), 4 or 8 bytes */
} xpu_param_kind;

typedef struct xpu_param {
    xpu_param_kind kind;
    uint32_t size;   /* bytes */
    uint32_t offset; /* bytes from the struct's start, a multiple of `size` */
    bool is_bf16;
    bool is_written; /* a pointer through which the kernel stores */
} xpu_param;

/* The kernel's one argument is a struct: the parameters in order, then three int32, the numbers of programs
 * in x, y and z. A kernel that has assertions then has two addresses, for the report of one that fails
 * (xpu/fault.h). A program whose assertion fails ends there. */
typedef struct xpu_image {
    xpu_image_kind kind;
    const char *code; /* of XPU_IMAGE_SOURCE it ends with NUL, which code_size doesn't count */
    size_t code_size;
    const char *name;          /* of the kernel in the code */
    const char *build_options; /* for the driver's compiler */
    const char *target;        /* what it was compiled for: a line of xpu_tile_target_write, or "" */
    const char *device; /* of a binary that a driver made: the device and driver, in 32 digits; else "" */
    const xpu_param *params;
    int param_count;
    uint32_t params_size;  /* bytes of the struct */
    uint32_t grid_offset;  /* where the three int32 lie in it */
    uint32_t fault_offset; /* and the two addresses; 0: it has no assertions */
    uint32_t local_size;   /* work-items of a work-group, all in dimension 0 */
    uint32_t local_memory; /* bytes of local memory that the kernel declares */
    uint64_t work;         /* about how many simple operations one program does */
    /* The assertions' texts: message and place; NULL after the last, and NULL where there are none. They must
     * stay as long as a report may come. */
    const char *const *asserts;
} xpu_image;

/* Reads an image; any bytes may come. XPU_ERROR_NOT_SUPPORTED: one of another format, whose number is among
 * its first bytes: what keeps images compiles again then.
 * XPU_ERROR_INVALID_ARGUMENT: no image, or a damaged one; xpu_last_error() says what is wrong. `*image` is
 * the caller's, to be given to xpu_image_free; the texts of assertions stay for good. */
XPU_API xpu_status xpu_image_read(const void *bytes, size_t size, xpu_image **image);
XPU_API void xpu_image_free(xpu_image *image);

/* Writes an image of `*size` bytes; `bytes` NULL asks for the size only. It is a line of JSON, an object
 * whose first key is "xpu_image" and its value the format's number, then the code. Equal images are equal
 * bytes, and reading takes no others. XPU_ERROR_INVALID_ARGUMENT for what reading would refuse, and where
 * `room` is too small. */
XPU_API xpu_status xpu_image_write(const xpu_image *image, void *bytes, size_t room, size_t *size);

/* The image's kernel for a device: xpu_kernel_create for source. A binary that was made for another device or
 * driver (of an offline compiler's the driver tells: XPU_ERROR_BUILD_FAILED), and a kernel that wants larger
 * work-groups or more local memory than the device has, are XPU_ERROR_NOT_SUPPORTED. */
XPU_API xpu_status xpu_image_kernel(const xpu_image *image, int device, xpu_kernel **kernel);
/* Those of several images. On a host's processor sources that belong together become one program, which takes
 * less memory than one each and loads sooner; it is built anew where the kernels were in the cache alone. */
XPU_API xpu_status xpu_image_kernels(const xpu_image *const *images, int count, int device,
                                     xpu_kernel **kernels);

/* What the driver makes of an image of source: one with the same fields and the binary as its code.
 * `*built` is to be given to xpu_image_free. */
XPU_API xpu_status xpu_image_build(const xpu_image *image, int device, xpu_image **built);

/* Launches grid[0] × grid[1] × grid[2] programs. arguments[i] points at the value of params[i], of its size;
 * `count` is their number. On a host device XPU_ERROR_ASSERTION comes back at once, elsewhere from the next
 * call that waits. Nothing is allocated. */
XPU_API xpu_status xpu_image_launch(xpu_stream *stream, const xpu_image *image, xpu_kernel *kernel,
                                    const uint32_t grid[3], const void *const *arguments, int count);

/* The same with the struct itself, of image->params_size bytes, aligned to 8: the values lie where
 * image->params says, and the grid and what an assertion's report needs are put in here. */
XPU_API xpu_status xpu_image_submit(xpu_stream *stream, const xpu_image *image, xpu_kernel *kernel,
                                    const uint32_t grid[3], void *params);

#ifdef __cplusplus
}
#endif
#endif
