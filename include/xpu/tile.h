/* xpu/tile.h: compiles Triton IR to OpenCL C.
 *
 * Input: the text of a module of Triton's dialect ("TTIR"), as printed by Triton 3.6, 3.7 and 3.9.
 * Output: the source of one OpenCL C kernel, and everything that a launch needs.
 * The compiler needs no device, no driver and no Python.
 * Threads: it keeps no state; any thread may compile at any time.
 *
 *     xpu_tile_target target;
 *     xpu_tile_program *p;
 *     xpu_tile_target_of_device(0, &target);
 *     xpu_tile_compile(text, strlen(text), &(xpu_tile_options){.target = &target}, &p);
 *     xpu_tile_image(p, &image);
 *     xpu_image_kernel(&image, 0, &kernel);
 *     xpu_image_launch(stream, &image, kernel, grid, arguments, count); // see xpu/image.h
 *     xpu_tile_program_free(p);
 *
 * Mapping: a Triton program is one work-group: `num_warps` subgroups on a GPU, one subgroup of 16 lanes on a
 *     CPU. */
#ifndef XPU_TILE_H
#define XPU_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the compiler needs to know about a device, besides a name. */
#define XPU_TILE_TARGET_FIELDS(X)                                                                            \
    X(bool, is_cpu)        /* one subgroup per program, no barriers */                                       \
    X(bool, has_subgroups) /* with shuffles; otherwise lanes exchange data through local memory */           \
    X(bool, has_fp16)      /* cl_khr_fp16; otherwise conversions only, arithmetic in float */                \
    X(bool, has_fp64)                                                                                        \
    X(bool, has_atomic64)                                                                                    \
    X(bool, has_float_atomics)                                                                               \
    X(int, lanes)             /* subgroup size; 16 on a CPU */                                               \
    X(int, max_lanes)         /* maximum work-items per work-group */                                        \
    X(uint64_t, local_memory) /* maximum bytes per work-group */                                             \
    X(bool, has_inline_ptx)   /* NVIDIA: warps of 32 exchange registers */                                   \
    X(bool, has_ptx_bf16)     /* NVIDIA: rounds to bfloat16 */                                               \
    X(int, matrix_lanes)      /* of a subgroup that multiplies matrices; 0: none does. 8 or 16:              \
                                 cl_intel_subgroup_matrix_multiply_accumulate; 32: mma.sync in PTX */        \
    X(bool, has_matrix_tf32)  /* also of tf32: …_accumulate_tensor_float32; PTX has it */                    \
    X(bool, has_packed_dot)   /* 4-way int8 dot products: cl_khr_integer_dot_product */                      \
    X(bool, has_block_2d)     /* 2D block loads: cl_intel_subgroup_2d_block_io */

typedef struct xpu_tile_target {
    char name[32]; /* "cpu", "bmg", …; in messages and in the source's first line */
#define X(type, field) type field;
    XPU_TILE_TARGET_FIELDS(X)
#undef X
} xpu_tile_target;

/* A target by name: "cpu"; Intel GPUs by the names of Intel's offline compiler ("bmg", "lnl", "pvc", "ptl",
 * "dg2", "mtl", "arl-h", "tgllp", "adl-p"); "nvidia"; "generic" (OpenCL 3 without optional features).
 *
 * Errors: XPU_ERROR_INVALID_ARGUMENT for other names; xpu_last_error() lists the valid ones. */
XPU_API xpu_status xpu_tile_target_find(const char *name, xpu_tile_target *target);

/* The target for device `device`; its name is "cpu" or "gpu". */
XPU_API xpu_status xpu_tile_target_of_device(int device, xpu_tile_target *target);

/* Checks that code for a target, given as text, can run on a device; "" is accepted.
 *
 * Errors: XPU_ERROR_NOT_SUPPORTED if the target is another kind of device, or uses features that this device
 *     lacks. OpenCL C may build nevertheless, and give wrong results. */
XPU_API xpu_status xpu_tile_target_check(const char *text, int device);

/* A target as a line of text: "gpu is_cpu=0 has_subgroups=1 …", the name and all fields.
 *
 * Equal targets have equal lines, shorter than XPU_TILE_TARGET_TEXT bytes. Reading accepts such a line, or
 * just a name that xpu_tile_target_find knows.
 * Errors: XPU_ERROR_INVALID_ARGUMENT for a field that is missing, unknown or out of range, and if `size` is
 *     too small. */
#define XPU_TILE_TARGET_TEXT 512
XPU_API xpu_status xpu_tile_target_read(const char *text, xpu_tile_target *target);
XPU_API xpu_status xpu_tile_target_write(const xpu_tile_target *target, char *text, size_t size);

/* XPU_TILE_TARGET_TEXT, for languages that can't read C macros. */
XPU_API size_t xpu_tile_target_text_size(void);

/* The target line of device `device`. */
XPU_API xpu_status xpu_tile_describe_device(int device, char *text, size_t size);

/* Compiler stages. The module can be printed after each. */
typedef enum xpu_tile_stage {
    XPU_TILE_NONE,
    XPU_TILE_PARSE,   /* the module, printed in generic form */
    XPU_TILE_VERIFY,  /* the same, verified and with all calls inlined */
    XPU_TILE_ANALYZE, /* narrow programs merged, reductions moved into loops */
    XPU_TILE_LAYOUT,  /* with a note beside each materialized value */
    XPU_TILE_EMIT,    /* the OpenCL C source */
    XPU_TILE_STAGES
} xpu_tile_stage;

/* "parse", "verify", …; NULL out of range. */
XPU_API const char *xpu_tile_stage_name(xpu_tile_stage stage);

typedef struct xpu_tile_options {
    const xpu_tile_target *target; /* NULL: "cpu" */
    const char *file;              /* name of the text in messages; NULL: "<ttir>" */
    int num_warps;                 /* 0: 4. Ignored on a CPU: one subgroup */
    bool comments;                 /* emit the Triton operation and the user's line beside each part */
    bool debug_asserts;        /* check tt.assert (see xpu_tile_program.asserts); otherwise it is omitted */
    xpu_tile_stage dump_after; /* stop after this stage and print the module; 0: all stages */
} xpu_tile_options;

/* Parameters of images (xpu/image.h), under other names. */
typedef xpu_param_kind xpu_tile_param_kind;
typedef xpu_param xpu_tile_param;
enum {
    XPU_TILE_POINTER = XPU_PARAM_POINTER,
    XPU_TILE_INTEGER = XPU_PARAM_INTEGER,
    XPU_TILE_FLOAT = XPU_PARAM_FLOAT
};

/* A compiled kernel. To launch it, convert it to an image (xpu_tile_image); its parameters are the
 * function's. */
typedef struct xpu_tile_program {
    const char *source; /* complete OpenCL C; NULL after a dump of an earlier stage */
    size_t source_size;
    const char *build_options; /* for xpu_kernel_create */
    const char *name;          /* name of the kernel, in the source and in the IR */
    const xpu_tile_param *params;
    int param_count;
    uint32_t params_size;            /* size of the struct in bytes, grid included */
    uint32_t grid_offset;            /* offset of the three int32 */
    uint32_t fault_offset;           /* offset of the two addresses; 0: no assertions */
    uint32_t local_size;             /* work-items per work-group, all in dimension 0 */
    uint32_t local_memory;           /* local memory that the kernel declares, in bytes */
    const char *const *asserts;      /* assertion texts: message and source location; ended by NULL */
    uint64_t work;                   /* estimated simple operations per program; loops count a few times */
    const char *dump;                /* the module after options.dump_after; NULL if not requested */
    double seconds[XPU_TILE_STAGES]; /* duration of each stage */
} xpu_tile_program;

/* Compiles the module in text[0 … size-1], which need not end with NUL.
 *
 * program: owned by the caller, freed with xpu_tile_program_free.
 * Errors: xpu_last_error() holds file, line, column, the reason, and the source line with a caret.
 * - XPU_ERROR_INVALID_ARGUMENT: the text is not a well-formed module.
 * - XPU_ERROR_NOT_SUPPORTED: well-formed, but not supported by this compiler or by the target.
 * - XPU_ERROR_OUT_OF_MEMORY: its blocks need more local memory than the target has.
 * - XPU_ERROR_OUT_OF_HOST_MEMORY. */
XPU_API xpu_status xpu_tile_compile(const char *text, size_t size, const xpu_tile_options *options,
                                    xpu_tile_program **program);
XPU_API void xpu_tile_program_free(xpu_tile_program *program);

/* xpu_tile_compile for languages that can't read C structs. `target` is a line for xpu_tile_target_read;
 * `options` are the integers of xpu_tile_options as "num_warps=4 comments=1". `file` and `options` may be
 * NULL. */
XPU_API xpu_status xpu_tile_compile_text(const char *text, size_t size, const char *target, const char *file,
                                         const char *options, xpu_tile_program **program);

/* The program as an image. Its texts are owned by the program and live as long.
 *
 * Errors: XPU_ERROR_INVALID_ARGUMENT after a dump of an earlier stage. */
XPU_API xpu_status xpu_tile_image(const xpu_tile_program *program, xpu_image *image);

/* Accessors for languages that can't read C structs: the image as bytes (xpu_image_write), the dump, the
 * seconds. NULL if there is none.
 * Ownership: the texts belong to the program.
 * Threads: the image is made on first request, by one thread at a time. */
XPU_API const char *xpu_tile_program_image(const xpu_tile_program *program);
XPU_API const char *xpu_tile_program_dump(const xpu_tile_program *program);
XPU_API double xpu_tile_program_seconds(const xpu_tile_program *program, xpu_tile_stage stage);

#ifdef __cplusplus
}
#endif
#endif
