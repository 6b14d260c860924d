/* Internal interface of the Triton IR compiler. The stages run in this order, one file each:
 *
 *   lex.c      characters → tokens
 *   parse.c    tokens → IR; parse_op.c has one function for each syntactic form of an operation
 *   verify.c   checks types, operand counts, regions and dominance; inlines calls
 *   join.c     merges programs that have few columns (CPU only)
 *   analyze.c  moves reductions into loops
 *   layout.c   decides which values are materialized and which dimension is mapped to the lanes
 *   emit*.c, kernel.c, libdevice.c   IR → OpenCL C. Each emitted expression carries facts about its value:
 *              uniform, affine or varying over the lanes; divisibility; range
 *
 * ir.c has the arena, the types and the printer; target.c the targets; driver.c the public functions. All
 * memory of a compilation comes from its arena. An error ends the compilation by longjmp; nothing needs to be
 * undone. */
#ifndef TILE_TILE_H
#define TILE_TILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/text.h"
#include "xpu/tile.h"

#define MAX_RANK 24
#define MAX_ELEMENTS (1 << 20) /* of one tensor; Triton's limit */
#define MAX_DEPTH 200          /* nesting of regions, types and attributes */

/* --- arena (ir.c) --- */

typedef struct tile tile;
typedef struct arena {
    struct chunk *chunks; /* allocations come from the first one */
    size_t used;          /* bytes used in the first chunk */
} arena;
void *tile_alloc(tile *t, size_t size); /* zeroed; lives as long as the compilation */
/* Memory allocated between tile_scratch(t, true) and tile_scratch(t, false) is freed by the second call,
 * except memory from tile_keep, which lives as long as the compilation. */
void tile_scratch(tile *t, bool on);
void *tile_keep(tile *t, size_t size);
char *tile_strndup(tile *t, const char *text, size_t size);
/* Like vsnprintf: returns the length of the formatted text. If `room` is not larger than that, the text in
 * `to` is incomplete and may lack the final NUL. */
size_t tile_vformat(char *to, size_t room, const char *format, va_list args);
char *tile_format(tile *t, const char *format, ...) TEXT_PRINTF(2, 3);
#define NEW(t, type) ((type *)tile_alloc(t, sizeof(type)))
#define NEW_ARRAY(t, type, count) ((type *)tile_alloc(t, sizeof(type) * (size_t)(count)))

/* --- types --- */

typedef enum element {
    NOTHING,
    I1,
    I8,
    I16,
    I32,
    I64,
    F8E4M3FN,
    F8E5M2,
    F8E4M3FNUZ,
    F8E5M2FNUZ,
    F8E4M3B11FNUZ,
    F16,
    BF16,
    F32,
    F64,
    ELEMENTS
} element;

/* Types are interned: equal types are the same pointer. */
typedef struct type {
    element element;
    bool is_pointer;    /* a pointer to `element`, or a tensor of such pointers */
    bool is_tensor;     /* false: a scalar, of rank 0 */
    bool is_descriptor; /* tt.tensordesc; rank and shape are those of its block */
    int rank;
    int32_t shape[MAX_RANK];
    int64_t count;     /* number of elements; 1 for a scalar */
    struct type *next; /* in the same bucket of the type table */
} type;

const type *type_make(tile *t, type want);
const type *type_scalar(tile *t, element e);
const type *type_with(tile *t, const type *shape, const type *of); /* shape of `shape`, elements of `of` */
const type *type_element(tile *t, const type *ty);                 /* the scalar type of the elements */
void type_print(text_buffer *out, const type *ty);
bool is_int(const type *ty); /* integer (not pointer), scalar or tensor */
bool is_float(const type *ty);
int element_bits(element e);
extern const char *const element_names[ELEMENTS];

/* --- attributes --- */

typedef enum attr_kind {
    ATTR_UNIT,
    ATTR_INT,
    ATTR_FLOAT,
    ATTR_STRING,
    ATTR_DENSE,
    ATTR_ARRAY,
    ATTR_TYPE,
    ATTR_OTHER
} attr_kind;

typedef struct attr {
    const char *name;
    attr_kind kind;
    const type *type;   /* INT, FLOAT, DENSE, TYPE; may be NULL */
    int64_t integer;    /* INT; UNIT: 1 */
    double real;        /* FLOAT */
    const char *string; /* STRING: without escapes; OTHER: the source text */
    size_t length;      /* of string */
    int count;          /* length of `list`: ARRAY, DENSE (1: a splat) */
    struct attr *list;
    struct attr *next;
} attr;

/* --- operations --- */

typedef enum op_code {
#define OP(code, name, form, kind, formula) OP_##code,
#include "tile/ops.def"
    OP_COUNT
} op_code;

typedef struct op op;
typedef struct block block;
typedef struct region region;
typedef struct value value;

struct value {
    const type *type;
    op *def;                           /* the operation that defines it; NULL for a block argument */
    block *owner;                      /* the block of a block argument */
    int index;                         /* among the operation's results or the block's arguments */
    int id;                            /* unique in the module */
    int uses;                          /* layout.c: how many operands refer to it */
    value *same;                       /* verify.c: its copy in the function being inlined */
    int cost;                          /* layout.c: cost of computing one element from materialized values */
    int wanted_at, stamp, seen;        /* layout.c: level of the last use plus 1, and marks of its walks */
    struct materialized *materialized; /* layout.c: storage of the elements; NULL: recomputed at each use */
    struct carried_offset *offset;     /* layout.c: kept as an initial value plus a scalar offset */
    struct memo *memo;                 /* emit.c: elements computed so far */
    int pending;                       /* emit.c: serial number of the open group that produces it */
    int8_t splat;              /* layout.c: 1: all elements are equal; -1: not known to be; 0: not computed */
    bool is_recomputed;        /* does not fit in registers, and is too cheap to keep in local memory */
    bool is_read;              /* layout.c: a pointer through which the kernel reads memory */
    const op *read_by;         /* all those reads use the same addresses as this one; NULL: they do not */
    bool is_whole;             /* a loop-carried value that is not read in its dot's accumulator layout */
    const struct tiling *grid; /* emit_op.c: the accumulator layout of the values it is computed from */
};

struct op {
    op_code code;
    const char *at;  /* position in the text, for messages */
    const char *loc; /* the user's source location, the text of loc(...); NULL if unknown */
    op *prev, *next;
    block *owner;
    int arg_count, result_count, region_count, target_count;
    value **args;
    value *results;
    region *regions;
    block **targets;  /* successors of a branch */
    int *target_args; /* how many of the trailing args each target receives */
    attr *attrs;
    int id, end;       /* layout.c: position in program order; that of the last operation in its regions */
    int epoch;         /* number of memory effects before it */
    int level, raises; /* reductions and the like that its operands depend on; what it adds for its results */
    int loops;         /* number of loops around it */
    int number;        /* kernel.c: number of an assertion */
    bool overwrites;   /* it writes to memory that it reads itself and that other lanes have yet to read */
    bool follows_reads;        /* it writes to memory that the kernel reads elsewhere */
    const struct tiling *grid; /* like that of a value */
};

struct block {
    region *owner;
    int arg_count;
    value **args;
    op *first, *last;
    block *next;
    const char *at; /* position of its definition; NULL: only referenced so far */
    int id;         /* index in its region */
    int order;      /* number in a depth-first walk, for dominance */
    block *dominator;
};

struct region {
    op *owner;
    block *first;
    int block_count;
};

typedef struct op_info {
    const char *name;
    int form, kind;
    const char *formula;
} op_info;
extern const op_info op_table[OP_COUNT];

enum op_form {
    FORM_SAME,
    FORM_SAME0,
    FORM_CLAMP,
    FORM_COMPARE,
    FORM_SELECT,
    FORM_CAST,
    FORM_ARROW,
    FORM_ARROW_IN,
    FORM_FP_TO_FP,
    FORM_FUNCTIONAL,
    FORM_INLINE_ASM,
    FORM_GENERIC,
    FORM_CONSTANT,
    FORM_POISON,
    FORM_RANGE,
    FORM_GATHER,
    FORM_LIST,
    FORM_MEMORY,
    FORM_ATOMIC,
    FORM_DOT,
    FORM_DOT_SCALED,
    FORM_TERMINATOR,
    FORM_AXIS,
    FORM_ASSERT,
    FORM_PRINT,
    FORM_BARRIER,
    FORM_MAKE_DESCRIPTOR,
    FORM_DESCRIPTOR,
    FORM_FUNC,
    FORM_CALL,
    FORM_FOR,
    FORM_IF,
    FORM_WHILE,
    FORM_CONDITION,
    FORM_BRANCH
};
enum op_kind {
    KIND_NONE,
    KIND_INT1, /* from here to KIND_ELEMENTWISE: is_elementwise */
    KIND_INT2,
    KIND_FLOAT1,
    KIND_FLOAT2,
    KIND_FLOAT3,
    KIND_COMPARE,
    KIND_SELECT,
    KIND_CAST,
    KIND_BITCAST,
    KIND_ELEMENTWISE,
    KIND_MAP,
    KIND_CONSTANT,
    KIND_RANGE,
    KIND_SPLAT,
    KIND_UNSPLAT,
    KIND_BROADCAST,
    KIND_EXPAND_DIMS,
    KIND_RESHAPE,
    KIND_TRANS,
    KIND_JOIN,
    KIND_SPLIT,
    KIND_CAT,
    KIND_GATHER,
    KIND_HISTOGRAM,
    KIND_ADDPTR,
    KIND_LOAD,
    KIND_STORE,
    KIND_ATOMIC_RMW,
    KIND_ATOMIC_CAS,
    KIND_DOT,
    KIND_DOT_SCALED,
    KIND_REDUCE,
    KIND_SCAN,
    KIND_END,
    KIND_AXIS,
    KIND_MAKE_DESCRIPTOR,
    KIND_DESCRIPTOR,
    KIND_CALL,
    KIND_FOR,
    KIND_IF,
    KIND_WHILE
};

/* Predicates of arith.cmpi and arith.cmpf, numbered as in MLIR. */
enum {
    CMPI_EQ,
    CMPI_NE,
    CMPI_SLT,
    CMPI_SLE,
    CMPI_SGT,
    CMPI_SGE,
    CMPI_ULT,
    CMPI_ULE,
    CMPI_UGT,
    CMPI_UGE,
    CMPI_COUNT
};
enum {
    CMPF_FALSE,
    CMPF_OEQ,
    CMPF_OGT,
    CMPF_OGE,
    CMPF_OLT,
    CMPF_OLE,
    CMPF_ONE,
    CMPF_ORD,
    CMPF_UEQ,
    CMPF_UGT,
    CMPF_UGE,
    CMPF_ULT,
    CMPF_ULE,
    CMPF_UNE,
    CMPF_UNO,
    CMPF_TRUE,
    CMPF_COUNT
};
extern const char *const cmpi_names[CMPI_COUNT], *const cmpf_names[CMPF_COUNT];
/* Operations of tt.atomic_rmw, numbered as in Triton. */
enum {
    RMW_NONE,
    RMW_AND,
    RMW_OR,
    RMW_XOR,
    RMW_ADD,
    RMW_FADD,
    RMW_MAX,
    RMW_MIN,
    RMW_UMAX,
    RMW_UMIN,
    RMW_XCHG,
    RMW_COUNT
};
extern const char *const rmw_names[RMW_COUNT];

/* --- tokens (lex.c) --- */

typedef enum token_kind {
    TOKEN_END,
    TOKEN_NAME,       /* tt.load, x, true */
    TOKEN_VALUE,      /* %0, %arg1 */
    TOKEN_SYMBOL,     /* @kernel */
    TOKEN_BLOCK,      /* ^bb1 */
    TOKEN_TYPE,       /* !tt.ptr */
    TOKEN_HASH,       /* #loc1, #tt.cache_policy; the # of %0#1 */
    TOKEN_INT,        /* 12, 0x7F; unsigned */
    TOKEN_FLOAT,      /* 1.0e-5 */
    TOKEN_STRING,     /* "…" */
    TOKEN_ARROW,      /* -> */
    TOKEN_PUNCTUATION /* one character */
} token_kind;

typedef struct token {
    token_kind kind;
    const char *start;
    size_t size;
} token;

token lex(tile *t, const char *from); /* the first token at or after `from` */

/* --- a compilation --- */

struct tile {
    const char *text, *end, *file; /* text[end - text] is NUL */
    const xpu_tile_options *options;
    xpu_tile_target target;
    arena kept, scratch;
    struct chunk *spare; /* freed scratch chunks, for reuse */
    bool is_scratch;
    jmp_buf fail;
    xpu_status status;
    type *types[64];
    op *module; /* its only region has one block, which contains the FUNCs */
    op *kernel; /* the public FUNC */
    int next_value, next_op;
    struct preferences *preferences; /* layout.c */
    int joined;                      /* join.c: number of programs merged into one */
    int parts;                       /* consecutive elements that a lane handles as one vector */
    struct tiling *tilings;          /* emit_dot.c: interned accumulator layouts */
    int subgroup;                    /* subgroup size; the matrix engine's if the kernel uses it */
    bool is_large;                   /* accumulators need the large register file (256 GRF) */
    int stages;                      /* pipeline stages of loops that prefetch into local memory; 1: none */
    bool reduces;                    /* layout.c: the kernel has reductions or scans */
    bool layout_changed;             /* the trial emission changed the layout */
    text_buffer *source;             /* output: OpenCL C */
    xpu_tile_program *program;       /* output: how to launch it */
    void (*note)(tile *t, text_buffer *out, const value *v); /* prints an annotation after an operation */
};

void tile_free_all(tile *t);

/* Reports an error at a position in the text (NULL: none) and ends the compilation. */
_Noreturn void tile_error(tile *t, const char *at, const char *format, ...) TEXT_PRINTF(3, 4);
/* The same for valid input that the compiler does not support: XPU_ERROR_NOT_SUPPORTED. */
_Noreturn void tile_unsupported(tile *t, const char *at, const char *format, ...) TEXT_PRINTF(3, 4);
_Noreturn void tile_too_large(tile *t, const char *format, ...) TEXT_PRINTF(2, 3);
_Noreturn void tile_no_memory(tile *t);

/* target.c: parses the numeric options; for the format see xpu_tile_compile_text. */
xpu_status tile_read_options(const char *text, xpu_tile_options *options);

op *op_new(tile *t, op_code code, const char *at, int args, int results, int regions);
block *block_new(tile *t, region *r);
value *block_add_arg(tile *t, block *b, const type *ty);
void block_append(block *b, op *o);
void op_remove(op *o);
void op_insert_before(op *o, op *before);
const attr *op_attr(const op *o, const char *name);
/* The constant that all elements equal; NULL if not known. */
const attr *splat_constant(const value *v);
int64_t op_attr_int(const op *o, const char *name, int64_t otherwise);
attr *op_set_attr(tile *t, op *o, const char *name);
/* Does each element of the result depend only on the same element of each operand? */
bool is_elementwise(const op *o);
void module_print(tile *t, text_buffer *out); /* generic form, with the notes of the stages that ran */

/* --- stages --- */

void tile_parse(tile *t);
void tile_verify(tile *t);
op *clone_op(tile *t, op *from); /* operands are replaced by their `same`, where set */
void replace_uses(region *r, value *old, value *by);
int tile_lanes(const tile *t); /* work-items per program */
/* Adds the uses of `v` in a region: `count` counts all of them, `ops` has the first USES (analyze.c). */
#define USES 8
typedef struct use_list {
    op *ops[USES];
    int count;
} use_list;
void find_uses(const region *r, const value *v, use_list *uses);

void tile_merge(tile *t);
void tile_analyze(tile *t);
void tile_layout(tile *t);
void tile_emit(tile *t);

#endif
