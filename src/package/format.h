/* Packages: the file format and the structures that it is read into. An xpu_package owns everything here and
 * is used by one thread at a time.
 *
 * A file is a header with a table of sections, followed by the sections. Each section starts at a multiple of
 * PAGE bytes and has a hash in the table; the header's hash covers header and table. The program section
 * consists of 64-bit words: the number of device kinds that the file supports, then for each the word count
 * of its program, and the program. Opening takes the first program whose kernels suit the device. A program:
 *
 *     ints      count, then each: operation, a, b     registers, from earlier registers or the inputs' sizes
 *     checks    count, then each: register that must not be 0, text
 *     constants count, then each: offset in the weights, bytes, whether the model modifies it
 *     inputs    count, then each: name, dtype, dims, registers of sizes, registers of strides
 *     tensors   count, then each: kind, dtype, dims, registers of sizes, of strides, base, register of offset
 *     outputs   count, then each: name, tensor
 *     images    count, then each: offset in the images, bytes; the same for its binary, 0 bytes if there is
 * none steps     count, then each: image or -1, then a grid of three registers or an operator's name,
 *               argument count, then each: tag, value
 *
 * A text is its length, then its bytes padded to whole words. Images start at multiples of 8 bytes. Integers
 * are little-endian. */
#ifndef PACKAGE_FORMAT_H
#define PACKAGE_FORMAT_H

#include "core/hash.h"
#include "core/memory.h"
#include "core/os.h"
#include "core/status.h"
#include "xpu/image.h"
#include "xpu/package.h"

#define MAGIC "XPUPACK\n"
enum { VERSION = 2, PAGE = 4096 };
typedef enum section_kind {
    SECTION_ABOUT,
    SECTION_PROGRAM,
    SECTION_IMAGES,
    SECTION_WEIGHTS,
    SECTIONS
} section_kind;

typedef struct file_section {
    uint64_t offset, size;
    hash128 hash;
} file_section;
typedef struct file_head {
    char magic[8];
    uint32_t version, sections;
    uint64_t size; /* of the file */
    hash128 hash;  /* of the header with this field set to 0 */
    file_section section[SECTIONS];
} file_head;
hash128 head_hash(const file_head *head);

/* The operation that computes a register. Operations with one operand have b = 0. */
typedef enum int_op {
    INT_CONST, /* the constant a */
    INT_SIZE,  /* input a's size in dimension b */
    INT_ADD,
    INT_SUB,
    INT_MUL,
    INT_FLOORDIV,
    INT_MOD, /* the result has the divisor's sign */
    INT_LESSER,
    INT_GREATER,
    INT_EQ,
    INT_NE,
    INT_LT,
    INT_LE,
    INT_AND,
    INT_OR,
    INT_NOT,
    INT_OPS
} int_op;
typedef struct pack_int {
    int64_t op, a, b;
} pack_int;

typedef struct pack_check {
    int reg;
    const char *text;
} pack_check;

typedef struct pack_constant {
    uint64_t offset, size;
    bool is_state; /* modified by the model, so it is copied to separate memory */
    void *data;
} pack_constant;

typedef enum tensor_kind { TENSOR_INPUT, TENSOR_CONSTANT, TENSOR_NEW, TENSOR_VIEW, TENSOR_KINDS } tensor_kind;
typedef struct pack_tensor {
    tensor_kind kind;
    xpu_dtype dtype;
    int dims;
    const int *size, *stride; /* registers */
    int base;        /* index of the input or constant; of a view, its base tensor, which is not a view */
    int offset;      /* register: elements of its own dtype from the base's start; -1: no offset */
    int first, last; /* first and last step that use a new tensor; first > last: unused */
} pack_tensor;

typedef enum arg_tag { ARG_NONE, ARG_TENSOR, ARG_INT, ARG_FLOAT, ARG_LIST, ARG_TAGS } arg_tag;
typedef struct pack_arg {
    arg_tag tag; /* ARG_LIST: `value` ARG_INT arguments follow */
    int64_t value;
} pack_arg;

struct pack_call;
typedef struct pack_operator {
    const char *name;
    /* One letter per argument: o output tensor, t input tensor, ? optional tensor, i int, f float, l list of
     * ints */
    const char *signature;
    xpu_status (*run)(const struct pack_call *call);
} pack_operator;
const pack_operator *operator_find(const char *name);

typedef struct pack_step {
    int image; /* or -1 */
    const pack_operator *op;
    int grid[3]; /* registers */
    const pack_arg *args;
    int arg_count;
} pack_step;

typedef struct pack_image {
    uint64_t offset, size, binary_offset, binary_size;
    xpu_image *image;
    xpu_kernel *kernel;
} pack_image;

typedef struct pack_plan pack_plan;
enum { PLANS = 8 };

struct xpu_package {
    int device;
    bool is_mapped_there; /* the device reads the weights from the file mapping */
    bool has_run;
    os_map map;
    char *about, *texts;
    const unsigned char *weights;
    uint64_t weights_size, state_size;
    void *device_weights, *state;
    /* the program's tables and their lengths */
    int int_count, check_count, constant_count, input_count, tensor_count, output_count, image_count,
        step_count;
    pack_int *ints;
    pack_check *checks;
    pack_constant *constants;
    pack_tensor *tensors, *expected; /* `expected`: the layouts that inputs must have */
    int *outputs;
    xpu_package_port *input_ports, *output_ports;
    pack_image *images;
    pack_step *steps;
    pack_arg *args;
    int *registers;
    int64_t *sizes; /* all input sizes of the current call, concatenated */
    int size_count;
    void **bases; /* addresses of the tensors during a run */
    xpu_package_memory memory;
    pack_plan *plans[PLANS]; /* most recently used first */
    void *arena;             /* memory of new tensors; allocated on arena_stream */
    uint64_t arena_size;
    xpu_stream *arena_stream;
};

/* The plan for one set of input sizes. */
typedef struct plan_tensor {
    int64_t *size, *stride;
    uint64_t start, bytes; /* offset in the arena; bytes from the base's start that it may access */
    int64_t offset;        /* bytes from the base's start */
} plan_tensor;
struct pack_plan {
    int64_t *key; /* the inputs' sizes */
    int64_t *values;
    plan_tensor *tensors;
    plan_tensor *expected;
    uint64_t arena, peak;
};

/* Bytes from a base's start to the end of the last element of a tensor that starts `offset` elements behind
 * it. Sizes and strides must not be negative; empty dimensions count as size 1. Returns false if the result
 * exceeds MOST_BYTES.
 */
#define MOST_BYTES ((uint64_t)INT64_MAX / 4)
bool reach_of(int dims, const int64_t *size, const int64_t *stride, uint64_t offset, uint64_t element,
              uint64_t *bytes);

/* Reads a program into the package's tables. The input is untrusted: XPU_ERROR_INVALID_ARGUMENT for malformed
 * words. */
xpu_status package_parse(xpu_package *package, const unsigned char *program, size_t size,
                         const unsigned char *images, uint64_t images_size);

/* Finds or creates the plan for the sizes in package->sizes. The package owns the plan. */
xpu_status plan_find(xpu_package *package, pack_plan **plan);
void plan_free(pack_plan *plan);

/* The arguments of an operator's function. */
typedef struct pack_call {
    xpu_stream *stream;
    const xpu_package *package;
    const pack_plan *plan;
    const pack_step *step;
} pack_call;
void call_tensor(const pack_call *call, int64_t slot, xpu_tensor *tensor);

/* An iterator over all elements of `to` and of `from`, which has the same sizes or is NULL. */
xpu_iter tensor_iter(const xpu_tensor *to, const xpu_tensor *from);
/* Copies elements between two tensors of the same sizes, with any dtypes and strides. */
xpu_status copy_tensor(xpu_stream *stream, const xpu_tensor *to, const xpu_tensor *from);

#define BAD_IF(condition, ...)                                                                               \
    do {                                                                                                     \
        if (condition) {                                                                                     \
            xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "package: ");                                               \
            xpu_fail_add(__VA_ARGS__);                                                                       \
            return XPU_ERROR_INVALID_ARGUMENT;                                                               \
        }                                                                                                    \
    } while (0)

#endif
