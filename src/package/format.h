/* Packages: the file's form, and what is read from it.
 *
 * A file is a head, a table of sections, and the sections, each at a multiple of PAGE bytes from its start,
 * with a hash each; the head's hash is of head and table. The program section is 64-bit words: the count of
 * kinds of devices that the file serves, then for each how many words its program has, and the program; the
 * first whose kernels suit the device is taken. A program:
 *
 *     ints      count, then each: operation, a, b     registers, from earlier registers or the inputs' sizes
 *     checks    count, then each: register that must not be 0, text
 *     constants count, then each: offset among the weights, bytes, whether the model changes it
 *     inputs    count, then each: name, dtype, dims, registers of sizes, registers of strides
 *     tensors   count, then each: kind, dtype, dims, registers of sizes, of strides, base, register of offset
 *     outputs   count, then each: name, tensor
 *     images    count, then each: offset among the images, bytes; the same of a binary, 0 bytes where none is
 *     steps     count, then each: image or -1, then a grid of three registers or an operator's name,
 *               the count of arguments, then each: tag, value
 *
 * A text is its length and its bytes in whole words. Images begin at multiples of 8 bytes. Numbers are
 * little-endian. */
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
    hash128 hash;  /* of the head with this 0 */
    file_section section[SECTIONS];
} file_head;
hash128 head_hash(const file_head *head);

/* What a register holds. Of those with one operand b is 0. */
typedef enum int_op {
    INT_CONST, /* the number a */
    INT_SIZE,  /* input a's size in dimension b */
    INT_ADD,
    INT_SUB,
    INT_MUL,
    INT_FLOORDIV,
    INT_MOD, /* of the divisor's sign */
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
    bool is_state; /* changed by the model: it has memory of its own */
    void *data;
} pack_constant;

typedef enum tensor_kind { TENSOR_INPUT, TENSOR_CONSTANT, TENSOR_NEW, TENSOR_VIEW, TENSOR_KINDS } tensor_kind;
typedef struct pack_tensor {
    tensor_kind kind;
    xpu_dtype dtype;
    int dims;
    const int *size, *stride; /* registers */
    int base;        /* the input or constant; of a view the tensor that it is of, which is none itself */
    int offset;      /* register: elements of its own dtype from the base's start; -1: none */
    int first, last; /* the steps between which a new tensor is in use; first > last: never */
} pack_tensor;

typedef enum arg_tag { ARG_NONE, ARG_TENSOR, ARG_INT, ARG_FLOAT, ARG_LIST, ARG_TAGS } arg_tag;
typedef struct pack_arg {
    arg_tag tag; /* ARG_LIST: so many ARG_INT follow as `value` says */
    int64_t value;
} pack_arg;

struct pack_call;
typedef struct pack_operator {
    const char *name;
    /* An argument each: o a tensor that is written, t one that is read, ? one or none, i, f, l a list */
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
    bool is_mapped_there; /* the device reads the mapped weights */
    bool has_run;
    os_map map;
    char *about, *texts;
    const unsigned char *weights;
    uint64_t weights_size, state_size;
    void *device_weights, *state;
    /* counts and tables, all in `tables` */
    int int_count, check_count, constant_count, input_count, tensor_count, output_count, image_count,
        step_count;
    pack_int *ints;
    pack_check *checks;
    pack_constant *constants;
    pack_tensor *tensors, *expected; /* `expected`: how inputs must lie */
    int *outputs;
    xpu_package_port *input_ports, *output_ports;
    pack_image *images;
    pack_step *steps;
    pack_arg *args;
    int *registers;
    int64_t *sizes; /* the inputs' sizes, one after the other, of the call */
    int size_count;
    void **bases; /* of tensors, during a run */
    xpu_package_memory memory;
    pack_plan *plans[PLANS]; /* the last used first */
    void *arena;             /* of the stream of the last run */
    uint64_t arena_size;
    xpu_stream *arena_stream;
};

/* A shape's plan. */
typedef struct plan_tensor {
    int64_t *size, *stride;
    uint64_t start, bytes; /* in the arena; bytes from the base's start that it may touch */
    int64_t offset;        /* bytes from the base */
} plan_tensor;
struct pack_plan {
    int64_t *key; /* the inputs' sizes */
    int64_t *values;
    plan_tensor *tensors;
    plan_tensor *expected;
    uint64_t arena, peak;
};

/* Bytes from a base's start to the end of the last element of a tensor that begins `offset` elements behind
 * it. Sizes and strides are not negative; dimensions without elements count as of one. False if nothing is so
 * large. */
#define MOST_BYTES ((uint64_t)INT64_MAX / 4)
bool reach_of(int dims, const int64_t *size, const int64_t *stride, uint64_t offset, uint64_t element,
              uint64_t *bytes);

/* Reads a program into tables; xpu_package_open's middle part. `words` are checked, any may come. */
xpu_status package_parse(xpu_package *package, const unsigned char *program, size_t size,
                         const unsigned char *images, uint64_t images_size);

/* The plan for the sizes in package->sizes, which belongs to the package. */
xpu_status plan_find(xpu_package *package, pack_plan **plan);
void plan_free(pack_plan *plan);

/* What an operator is handed. */
typedef struct pack_call {
    xpu_stream *stream;
    const xpu_package *package;
    const pack_plan *plan;
    const pack_step *step;
} pack_call;
void call_tensor(const pack_call *call, int64_t slot, xpu_tensor *tensor);

/* Over all elements of `to`, and of `from`, which has the same sizes, or is NULL. */
xpu_iter tensor_iter(const xpu_tensor *to, const xpu_tensor *from);
/* Elements between two tensors of the same sizes, whatever their dtypes and strides. */
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
