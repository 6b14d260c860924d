/* xpu/tile.h: Triton IR to OpenCL C.
 *
 * The compiler takes the text of a module of Triton's dialect ("TTIR", as Triton 3.6, 3.7 and 3.9 print it)
 * and gives the source of one OpenCL C kernel, with all that a launch must know. It needs no device, no
 * driver and no Python, and keeps no state: any thread may compile at any time.
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
 * A Triton program is one work-group: `num_warps` subgroups on a GPU, one subgroup of 16 lanes on a CPU. */
#ifndef XPU_TILE_H
#define XPU_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the compiler must know of a device, beside a name. */
#define XPU_TILE_TARGET_FIELDS(X)                                                                            \
    X(bool, is_cpu)        /* one subgroup a program, no barriers */                                         \
    X(bool, has_subgroups) /* with shuffles; without them lanes talk through local memory */                 \
    X(bool, has_fp16)      /* cl_khr_fp16; else conversions only, arithmetic in float */                     \
    X(bool, has_fp64)                                                                                        \
    X(bool, has_atomic64)                                                                                    \
    X(bool, has_float_atomics)                                                                               \
    X(int, lanes)             /* of a subgroup: 16 on a CPU */                                               \
    X(int, max_lanes)         /* work-items in a work-group */                                               \
    X(uint64_t, local_memory) /* bytes a work-group can have */                                              \
    X(bool, has_inline_ptx)   /* NVIDIA: lanes of a warp of 32 exchange registers */                         \
    X(bool, has_ptx_bf16)     /* and round to bfloat16 */                                                    \
    X(int, matrix_lanes)      /* of a subgroup that multiplies matrices; 0: none does. 8 or 16:              \
                                 cl_intel_subgroup_matrix_multiply_accumulate; 32: mma.sync in PTX */        \
    X(bool, has_matrix_tf32)  /* also of tf32: …_accumulate_tensor_float32; PTX has it */                    \
    X(bool, has_packed_dot)   /* products of four bytes by four: cl_khr_integer_dot_product */               \
    X(bool, has_block_2d)     /* reads blocks of matrices: cl_intel_subgroup_2d_block_io */

typedef struct xpu_tile_target {
    char name[32]; /* "cpu", "bmg", …; in messages and in the source's first line */
#define X(type, field) type field;
    XPU_TILE_TARGET_FIELDS(X)
#undef X
} xpu_tile_target;

/* A target by name: "cpu", Intel GPUs by the names that Intel's offline compiler has ("bmg", "lnl", "pvc",
 * "ptl", "dg2", "mtl", "arl-h", "tgllp", "adl-p"), "nvidia", "generic" (OpenCL 3 with nothing optional).
 * XPU_ERROR_INVALID_ARGUMENT for other names; xpu_last_error() then lists them. */
XPU_API xpu_status xpu_tile_target_find(const char *name, xpu_tile_target *target);

/* The target that describes device number `device`; its name is "cpu" or "gpu". */
XPU_API xpu_status xpu_tile_target_of_device(int device, xpu_tile_target *target);

/* Can code for the target with that text ("" says nothing) run on a device? XPU_ERROR_NOT_SUPPORTED: it is
 * for another kind of device, or uses what this one lacks; OpenCL C may even build then, and be wrong. */
XPU_API xpu_status xpu_tile_target_check(const char *text, int device);

/* A target as a line of text: "gpu is_cpu=0 has_subgroups=1 …", the name and all fields; equal targets have
 * equal lines, of fewer than XPU_TILE_TARGET_TEXT bytes. Reading takes such a line, or the name alone of a
 * target that xpu_tile_target_find knows. XPU_ERROR_INVALID_ARGUMENT for lines with a field that is missing,
 * unknown or out of range, and for less than the `size` bytes that writing needs. */
#define XPU_TILE_TARGET_TEXT 512
XPU_API xpu_status xpu_tile_target_read(const char *text, xpu_tile_target *target);
XPU_API xpu_status xpu_tile_target_write(const xpu_tile_target *target, char *text, size_t size);

/* XPU_TILE_TARGET_TEXT, for languages that don't read C's macros. */
XPU_API size_t xpu_tile_target_text_size(void);

/* The line of device number `device`. */
XPU_API xpu_status xpu_tile_describe_device(int device, char *text, size_t size);

/* The stages; after one of them the module can be printed. */
typedef enum xpu_tile_stage {
    XPU_TILE_NONE,
    XPU_TILE_PARSE,   /* the module, printed back in generic form */
    XPU_TILE_VERIFY,  /* the same, checked: with all calls inlined */
    XPU_TILE_ANALYSE, /* narrow programs joined, reductions moved into loops */
    XPU_TILE_LAYOUT,  /* with a note beside each value that is held */
    XPU_TILE_EMIT,    /* the OpenCL C source */
    XPU_TILE_STAGES
} xpu_tile_stage;

/* "parse", "verify", …; NULL out of range. */
XPU_API const char *xpu_tile_stage_name(xpu_tile_stage stage);

typedef struct xpu_tile_options {
    const xpu_tile_target *target; /* NULL: "cpu" */
    const char *file;              /* the text's name in messages; NULL: "<ttir>" */
    int num_warps;                 /* 0: 4. A CPU program has one subgroup whatever this says */
    bool comments;      /* the source names the Triton operation, and the user's line, beside each part */
    bool debug_asserts; /* tt.assert is checked: see xpu_tile_program.asserts; else it is left out */
    xpu_tile_stage dump_after; /* compiles up to this stage only and prints the module; 0: all stages */
} xpu_tile_options;

/* Parameters are those of images (xpu/image.h), by other names. */
typedef xpu_param_kind xpu_tile_param_kind;
typedef xpu_param xpu_tile_param;
enum {
    XPU_TILE_POINTER = XPU_PARAM_POINTER,
    XPU_TILE_INTEGER = XPU_PARAM_INTEGER,
    XPU_TILE_FLOAT = XPU_PARAM_FLOAT
};

/* What is launched is an image (xpu_tile_image), whose parameters are the function's. */
typedef struct xpu_tile_program {
    const char *source; /* OpenCL C, complete; NULL after an earlier stage's dump */
    size_t source_size;
    const char *build_options; /* for xpu_kernel_create */
    const char *name;          /* of the kernel, in the source and in the IR */
    const xpu_tile_param *params;
    int param_count;
    uint32_t params_size;       /* bytes of the struct, the grid included */
    uint32_t grid_offset;       /* where the three int32 lie in it */
    uint32_t fault_offset;      /* and the two addresses; 0: it has no assertions */
    uint32_t local_size;        /* work-items of a work-group, all in dimension 0 */
    uint32_t local_memory;      /* bytes of local memory that the kernel declares */
    const char *const *asserts; /* their texts: message and place; NULL after the last */
    uint64_t work;    /* about how many simple operations one program does; loops count a few times */
    const char *dump; /* the module after options.dump_after; NULL if none was asked for */
    double seconds[XPU_TILE_STAGES]; /* how long each stage took */
} xpu_tile_program;

/* Compiles the module in text[0 … size-1], which need not end with NUL. On failure xpu_last_error() holds
 * the file, line and column, the reason, the line itself and a caret below the place:
 *   XPU_ERROR_INVALID_ARGUMENT    the text is no well-formed module
 *   XPU_ERROR_NOT_SUPPORTED       well-formed, but this compiler or the target can't do it
 *   XPU_ERROR_OUT_OF_MEMORY       its blocks need more local memory than the target has
 *   XPU_ERROR_OUT_OF_HOST_MEMORY
 * `*program` is the caller's, to be given to xpu_tile_program_free. */
XPU_API xpu_status xpu_tile_compile(const char *text, size_t size, const xpu_tile_options *options,
                                    xpu_tile_program **program);
XPU_API void xpu_tile_program_free(xpu_tile_program *program);

/* The same for languages that don't read C's structs: the target as xpu_tile_target_read takes it, and the
 * numbers of xpu_tile_options as "num_warps=4 comments=1"; `file` and `options` may be NULL. */
XPU_API xpu_status xpu_tile_compile_text(const char *text, size_t size, const char *target, const char *file,
                                         const char *options, xpu_tile_program **program);

/* The program as an image, whose texts are the program's own and live as long. XPU_ERROR_INVALID_ARGUMENT
 * after an earlier stage's dump. */
XPU_API xpu_status xpu_tile_image(const xpu_tile_program *program, xpu_image *image);

/* For languages that don't read C's structs: the image as text (xpu_image_write), the dump, the seconds. The
 * texts are the program's own; the image's is made when it is first asked for, by one thread at a time. NULL
 * where there is none. */
XPU_API const char *xpu_tile_program_image(const xpu_tile_program *program);
XPU_API const char *xpu_tile_program_dump(const xpu_tile_program *program);
XPU_API double xpu_tile_program_seconds(const xpu_tile_program *program, xpu_tile_stage stage);

#ifdef __cplusplus
}
#endif
#endif
