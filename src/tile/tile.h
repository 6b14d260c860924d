/* Inside the Triton IR compiler. One file a stage, in this order:
 *
 *   lex.c      characters → tokens
 *   parse.c    tokens → IR: a function for each way in which an operation is written
 *   verify.c   types, operand counts, regions, dominance; calls are inlined
 *   join.c     programs of few columns become one
 *   analyze.c  reductions move into loops
 *   layout.c   which values are materialized, which dimension lies on the lanes
 *   emit*.c, kernel.c, libdevice.c  OpenCL C; what is known of each expression (uniform, consecutive,
 * divisible) goes along with it
 *
 * ir.c has the arena, types and the printer; driver.c the public functions. Everything lives in one arena,
 * and an error leaves the compilation by longjmp: nothing has to be undone. */
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
#define MAX_ELEMENTS (1 << 20) /* of one tensor, as in Triton */
#define MAX_DEPTH 200          /* of nested regions, types and attributes */

/* --- arena (ir.c) --- */

typedef struct tile tile;
typedef struct arena {
    struct chunk *chunks; /* the first one has room */
    size_t used;          /* of it */
} arena;
void *tile_alloc(tile *t, size_t size); /* zeroed; lives as long as the compilation */
/* Between tile_scratch(t, true) and tile_scratch(t, false) everything lives until the latter, but for what
 * tile_keep gives. */
void tile_scratch(tile *t, bool on);
void *tile_keep(tile *t, size_t size);
char *tile_strndup(tile *t, const char *text, size_t size);
/* As vsnprintf: the text's size; it is whole, and ends with NUL, where `room` is larger. */
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

/* Types are interned: the same type is the same pointer. */
typedef struct type {
    element element;
    bool is_pointer;    /* to elements */
    bool is_tensor;     /* else a scalar, and rank is 0 */
    bool is_descriptor; /* tt.tensordesc: rank and shape are the block's */
    int rank;
    int32_t shape[MAX_RANK];
    int64_t count;     /* elements; 1 for a scalar */
    struct type *next; /* in the table of types */
} type;

const type *type_make(tile *t, type want);
const type *type_scalar(tile *t, element e);
const type *type_with(tile *t, const type *shape, const type *of); /* shape's shape, of's element */
const type *type_element(tile *t, const type *ty);                 /* the scalar type of its elements */
void type_print(text *out, const type *ty);
bool is_int(const type *ty); /* integers (not pointers), scalar or tensor */
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
    const type *type;   /* of INT, FLOAT, DENSE, TYPE; may be NULL */
    int64_t integer;    /* INT; UNIT: 1 */
    double real;        /* FLOAT */
    const char *string; /* STRING, unescaped; OTHER: the text itself */
    size_t length;      /* of string */
    int count;          /* of list: ARRAY, DENSE (1: a splat) */
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
    op *def;      /* NULL for a block's argument */
    block *owner; /* of which it is an argument */
    int index;    /* among the op's results or the block's arguments */
    int id;       /* unique in the module */
    int uses;     /* counted by layout.c */
    value *same;  /* verify.c: its copy in the function being inlined */
    int cost;     /* layout.c: of computing an element, from what is materialized */
    int wanted_at, stamp, seen;
    struct materialized
        *materialized;     /* layout.c: where its elements are kept; NULL: computed where they are wanted */
    struct offset *offset; /* layout.c: or a first value and a scalar */
    struct memo *memo;     /* emit.c: the elements computed so far */
    int pending;           /* emit.c: the group that gives it, if that isn't emitted yet */
    int8_t splat;       /* layout.c: 1 if all its elements are known to be equal, -1 if not, 0: not asked */
    bool is_recomputed; /* it can't stay in registers, and is too cheap for local memory */
    bool is_read;       /* layout.c: the kernel reads memory from it on */
    const op *read_by;  /* and all do so in the same places as this one; NULL: they don't */
    bool is_whole;      /* a carried one that isn't read as its dot leaves it */
    const struct tiling *grid; /* emit_op.c: what it is computed from lies on the lanes like this */
};

struct op {
    op_code code;
    const char *at;  /* the place in the text, for messages */
    const char *loc; /* the user's place, as in loc(...); NULL if unknown */
    op *prev, *next;
    block *owner;
    int arg_count, result_count, region_count, target_count;
    value **args;
    value *results;
    region *regions;
    block **targets;  /* of a branch */
    int *target_args; /* how many of the last args go to each target */
    attr *attrs;
    int id, end;               /* layout.c: its number in program order, and the last of its regions' */
    int epoch;                 /* how many memory effects come before it */
    int level, raises;         /* how many reductions and the like its operands have behind them */
    int loops;                 /* around it */
    int number;                /* kernel.c: of an assertion */
    bool overwrites;           /* it writes to what it reads itself, and other lanes have yet to read */
    bool follows_reads;        /* it writes to what the kernel reads elsewhere */
    const struct tiling *grid; /* as of values */
};

struct block {
    region *owner;
    int arg_count;
    value **args;
    op *first, *last;
    block *next;
    const char *at; /* where it is defined; NULL: only mentioned so far */
    int id;         /* number in its region */
    int order;      /* in a depth-first walk; for dominance */
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

/* Orders of arith.cmpi and arith.cmpf, by MLIR's numbers. */
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
/* Of tt.atomic_rmw, by Triton's numbers. */
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
    TOKEN_HASH,       /* #loc1, #tt.cache_policy; and # before a result's number */
    TOKEN_INT,        /* 12, 0x7F, without sign */
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

token lex(tile *t, const char *from); /* the token at or after `from` */

/* --- a compilation --- */

struct tile {
    const char *text, *end, *file; /* text[end - text] is NUL */
    const xpu_tile_options *options;
    xpu_tile_target target;
    arena kept, scratch;
    struct chunk *spare; /* of what was scratch */
    bool is_scratch;
    jmp_buf fail;
    xpu_status status;
    type *types[64];
    op *module; /* FUNCs in its one region's one block */
    op *kernel; /* the public FUNC */
    int next_value, next_op;
    struct preferences *preferences;                  /* layout.c */
    int joined;                                       /* join.c: programs that became one */
    int parts;                                        /* consecutive elements that a lane takes at once */
    struct tiling *tilings;                           /* emit_dot.c */
    int subgroup;                                     /* lanes of one: those of matrix units, if used */
    bool is_large;                                    /* dots' sums want twice the registers */
    int stages;                                       /* of what loops copy in ahead; 1: nothing */
    bool reduces;                                     /* layout.c: there are reductions or scans */
    bool layout_changed;                              /* a trial emission learnt something */
    text *source;                                     /* the result */
    xpu_tile_program *program;                        /* and what is said of it */
    void (*note)(tile *t, text *out, const value *v); /* what the printer writes behind a value's operation */
};

void tile_free_all(tile *t);

/* Reports an error at a place in the text (NULL: no place) and ends the compilation. */
_Noreturn void tile_error(tile *t, const char *at, const char *format, ...) TEXT_PRINTF(3, 4);
/* The same for what is well-formed and can't be done: XPU_ERROR_NOT_SUPPORTED. */
_Noreturn void tile_unsupported(tile *t, const char *at, const char *format, ...) TEXT_PRINTF(3, 4);
_Noreturn void tile_too_large(tile *t, const char *format, ...) TEXT_PRINTF(2, 3);
_Noreturn void tile_no_memory(tile *t);

/* target.c: the options that are numbers, from text, as xpu_tile_compile_text says. */
xpu_status tile_read_options(const char *text, xpu_tile_options *options);

op *op_new(tile *t, op_code code, const char *at, int args, int results, int regions);
block *block_new(tile *t, region *r);
value *block_add_arg(tile *t, block *b, const type *ty);
void block_append(block *b, op *o);
void op_remove(op *o);
void op_insert_before(op *o, op *before);
const attr *op_attr(const op *o, const char *name);
int64_t op_attr_int(const op *o, const char *name, int64_t otherwise);
attr *op_set_attr(tile *t, op *o, const char *name);
/* Is its result a formula over its operands' elements, each by itself? */
bool is_elementwise(const op *o);
void module_print(tile *t, text *out); /* with what the stages so far found */

/* --- stages --- */

void tile_parse(tile *t);
void tile_verify(tile *t);
op *clone_op(tile *t, op *from); /* its operands: what `same` says stands for them */
void replace_uses(region *r, value *old, value *by);
int tile_lanes(const tile *t); /* work-items of a program */
/* The operations that use a value, the first USES of them (analyze.c). */
#define USES 8
typedef struct use_list {
    op *ops[USES];
    int count;
} use_list;
void find_uses(const region *r, const value *v, use_list *uses);
/* The number of which all elements are equal; NULL if not known. */
const attr *splat_constant(const value *v);

void tile_merge(tile *t);
void tile_analyze(tile *t);
void tile_layout(tile *t);
void tile_emit(tile *t);

#endif
