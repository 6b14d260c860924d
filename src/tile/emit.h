/* Interface between the layout stage and the emitter's files.
 *
 * An element of a tensor is a function of its coordinates. Cheap values, such as index arithmetic, are
 * rematerialized at each use (emit_value). Other values are materialized: one loop fills an array in local
 * memory, and other loops read it. On a CPU a program is one subgroup, whose lanes do not run in lockstep. A
 * loop handles the elements in chunks of one subgroup size, lane l the l-th element of each chunk. Local
 * memory is the cheapest memory that all lanes share.
 *
 * The roots are the operations with side effects and the values to be materialized. Roots over blocks of one
 * shape share a loop (a group) as long as none needs a value that another completes only at the loop's end.
 */
#ifndef TILE_EMIT_H
#define TILE_EMIT_H

#include "tile/tile.h"

/* --- text under construction, in the arena --- */

typedef struct buffer {
    char *data;
    size_t size, room;
} buffer;

void buffer_add(tile *t, buffer *b, const char *data, size_t size);
void buffer_addf(tile *t, buffer *b, const char *format, ...) TEXT_PRINTF(3, 4);

/* --- layout.c --- */

/* Memory layout of a materialized array.
 *
 * LEFT_BLOCKED, RIGHT_BLOCKED: DPAS blocks, for XMX. A block of the left operand has 8 rows × 32 bytes along
 * K. A block of the right operand has 32 bytes along K × one column per lane of the subgroup, in dwords of
 * elements adjacent along K. Each block is contiguous, in the order of a subgroup block read; the blocks are
 * in row-major order.
 * RIGHT_VNNI: without a matrix engine, 8-bit elements of the right operand in dwords of four along K. */
typedef enum element_order {
    ROW_MAJOR,
    LEFT_BLOCKED,
    RIGHT_BLOCKED,
    RIGHT_VNNI,
    LOCAL_TILE,           /* tensor cores: rows of swizzled 16-byte vectors (swizzled_offset) */
    LOCAL_TILE_TRANSPOSED /* the same for columns */
} element_order;

/* Storage of a value's elements: local memory, or on a GPU registers if each lane accesses only its own. */
typedef struct materialized {
    const char *name;        /* the C array; NULL until its loop is emitted */
    const type *type;        /* the value's type */
    int lane_dim;            /* the contiguous dimension; the others are in row-major order around it */
    int fill_dim;            /* the dimension that is mapped to the lanes while it is filled */
    int last_use;            /* position of the last operation that reads it */
    int pass;                /* last pass of layout.c that found it */
    bool is_shared;          /* the array belongs to a loop-carried value and is not released */
    bool is_remat_candidate; /* rematerialized unless it fits in registers */
    bool is_cross_lane;      /* some lane reads or writes another lane's elements */
    bool in_registers;       /* each lane has an array of its own, with one element per chunk */
    int parts;               /* consecutive elements per lane at the first access; 0: not accessed yet */
    bool is_plain;           /* a dot reads it row-major */
    bool is_scattered;       /* the elements that fill it are not contiguous in memory */
    bool is_copied;          /* filled by asynchronous copies */
    int stages;              /* copies of the array, one per pipeline stage; 0: no pipeline */
    element_order order;
    element packed;              /* blocked layouts: the stored element type */
    const struct tiling *grid;   /* elements are in this accumulator layout; NULL: in chunks */
    struct materialized *joined; /* it reuses that one's array: both are in registers, or neither */
    struct materialized *next;   /* in the list of arrays in use, or of free ones */
} materialized;

/* Layout of a dot's accumulators: a grid of `down` × `across` lanes, each with `rows` × `columns` elements.
 * A lane's rows come in runs of `height`, `down` × `height` apart; its columns in runs of `width`,
 * `across` × `width` apart. */
typedef struct tiling {
    int across, down, rows, columns, height, width;
    int vector;          /* accumulators per C variable: 1; XMX: 8 rows; tensor cores: 2 × 2 */
    struct tiling *next; /* tilings are interned: equal ones are the same pointer */
} tiling;

/* A loop-carried tensor whose elements all grow by the same amount: an initial value plus a scalar. */
typedef struct carried_offset {
    value *start;     /* the value before the loop */
    value *step;      /* added in each iteration; all its elements are equal */
    const char *name; /* C variable of the scalar */
} carried_offset;

int lane_dim(tile *t, const type *ty); /* the dimension that is mapped to the lanes */
/* For a reduction along `axis` on a CPU: the only other dimension, if it is contiguous in memory and has
 * fewer elements than there are lanes, but at least a quarter as many; else -1. A partly filled vector takes
 * one load; mapping the axis to the lanes would take one load per lane. */
int short_lane_dim(tile *t, const type *ty, int axis);
bool is_pure(const op *o);         /* can be recomputed anywhere */
bool is_small_reduce(const op *o); /* a reduction over 2 elements, computed at each use */
/* Does it write, or read, memory through its first operand? */
bool op_writes(const op *o);
bool op_reads(const op *o);
/* Must `read` finish for all elements before `write` starts? `moved`: elements change coordinates between. */
bool is_overwritten(const tile *t, const op *read, const op *write, bool moved);
bool is_scalar(const value *v);       /* one element; computed where it is defined */
bool is_splat(value *v);              /* all elements are equal, whatever the coordinates */
int64_t stride_of(value *v, int dim); /* adjacent elements' difference; UNKNOWN_STRIDE if not constant */
#define UNKNOWN_STRIDE INT64_MIN
void tile_layout(tile *t);
/* After a trial emission: decides which values are kept in registers. True: there is a new layout to try. */
bool tile_iterate_layout(tile *t, bool splits);
int tile_parts(tile *t); /* the most consecutive elements that a lane can handle as one vector */

/* --- expressions --- */

typedef enum lane_kind {
    UNIFORM, /* the same in all lanes */
    LINEAR,  /* affine: in lane l, the text's value + stride * (parts * l + part) */
    VARYING  /* the text differs from lane to lane */
} lane_kind;

typedef struct expr {
    const char *text; /* C: a name, a literal or a parenthesized expression */
    const char *root; /* pointers: the C pointer; `text` is an offset from it, in elements */
    lane_kind kind;
    int depth; /* outermost scope in which it can be computed */
    int64_t stride;
    int parts, part; /* LINEAR: a lane has `parts` consecutive elements (0 means 1); this is number `part` */
    bool is_whole;   /* VARYING, but the same for all parts of a lane */
    int64_t divisor; /* a power of two that divides the integer (LINEAR: in lane 0) */
    bool is_nonnegative;
    int bits;         /* approximate width of its magnitude; 0: an index, which does not overflow */
    bool is_constant; /* the integer (LINEAR: in lane 0) equals `constant` */
    int64_t constant;
    const struct expr *row; /* VARYING: the UNIFORM or LINEAR expression that it equals if `when` holds */
    const char *when;       /* a uniform condition */
} expr;

typedef struct coords {
    int rank;
    expr *dims;
    const expr *linear; /* row-major index; NULL: not known */
    unsigned hash;      /* equal for equal coordinates, regardless of parts */
} coords;

/* A computed element; valid while the scope that defines it is open. */
typedef struct memo {
    struct memo *next;
    const coords *at; /* NULL: any coordinates */
    expr result;
    int serial; /* the scope's serial number */
} memo;

#define MAX_SCOPES 128
typedef struct scope {
    buffer text;
    int serial;
    int indent;
    bool is_loop;
    bool chooses;     /* it contains divergent control flow or selects */
    int64_t trips;    /* trip count of an innermost loop; 0: not known */
    bool is_chunks;   /* a loop over a block's chunks */
    bool is_unrolled; /* must be unrolled: its variable indexes registers */
    size_t barrier;   /* start of the last barrier in the text */
    size_t behind;    /* end of that barrier */
    unsigned fences;  /* memory that it fences */
} scope;

#define MAX_PARTS 8
typedef enum root_kind { ROOT_OP, ROOT_HOLD, ROOT_COPY } root_kind;
typedef struct root {
    root_kind kind;
    op *op;                        /* ROOT_OP: a store, atomic, reduction, scan, print, assert */
    value *value;                  /* ROOT_HOLD, ROOT_COPY */
    materialized *to;              /* ROOT_COPY: destination */
    expr *accumulators;            /* reductions and scans */
    const char *stored[MAX_PARTS]; /* stores: the parts of a lane emitted so far */
} root;

#define MAX_ROOTS 64
typedef struct group {
    const type *shape; /* NULL: no group is open */
    int lane;          /* the dimension that is mapped to the lanes */
    int axis;          /* axis of its reductions and scans; -1: none */
    bool is_reversed;  /* a scan that starts at the end */
    int serial;
    int epoch;
    bool has_effect;
    bool has_assert;
    bool has_once;      /* a root must run exactly once per element: lanes must not duplicate elements */
    bool follows_reads; /* it stores to memory that other lanes may have yet to read for earlier groups */
    const tiling *grid; /* accumulator layout; NULL: in chunks */
    int count;
    root roots[MAX_ROOTS];
} group;

typedef struct emitter {
    tile *t;
    scope scopes[MAX_SCOPES];
    int depth, block_depth, serials, names;
    group group;
    materialized *in_use, *free;
    buffer locals;         /* declarations of local arrays */
    uint64_t local_memory; /* bytes */
    uint64_t work, weight; /* operations per program; executions of the current scope */
    bool touches_local;    /* local memory was accessed since the last barrier */
    unsigned special;      /* SPECIAL_…: files of the operator library that are used */
    bool special_wide;     /* those are built for double, else for float */
    buffer library;        /* names of the library functions used, one per line */
    int now;               /* position of the operation being emitted */
    int lanes;
    bool is_trial; /* a trial emission, which only finds out who reads what: tile_iterate_layout */
    bool splits;   /* contiguous parts of a lane could not be accessed as one vector */
    struct loaded *loaded;
    const coords *here;   /* coordinates of the element being computed; NULL: none in particular */
    const tiling *grid;   /* it is accumulator `place` of this layout; NULL: an element of a chunk */
    const tiling *wanted; /* the layout that it should belong to */
    int place;            /* accumulator index within the lane */
    bool is_inner;        /* `lane` counts within a row */
    bool copies;          /* asynchronous copies into local memory are in flight */
    bool ahead;           /* some of those are for later iterations */
} emitter;

/* kernel.c */
void tile_emit(tile *t);

/* emit_block.c */
void emit_body(emitter *e, region *r); /* a function body; several blocks become labels and gotos */
void emit_block(emitter *e, block *b);
bool accumulates(const value *arg, const op *dot);

/* emit.c */
expr emit_value(emitter *e, value *v, const coords *at);
expr emit_recomputed(emitter *e, value *v, const coords *at); /* even if it is materialized */
expr descriptor_element(emitter *e, op *o, const coords *at, const char **inside, int *depth);
void emit_line(emitter *e, int depth, const char *format, ...) TEXT_PRINTF(3, 4);
void open_scope(emitter *e, const char *format, ...) TEXT_PRINTF(2, 3);
void close_scope(emitter *e, const char *format, ...) TEXT_PRINTF(2, 3); /* NULL: no line */
expr declare(emitter *e, const type *ty, expr x, const char *prefix, int id);
const char *new_name(emitter *e, const char *prefix);
const char *lane_text(emitter *e, const expr *x);  /* the value in the current lane */
const char *lane_index(emitter *e, const expr *x); /* the index that x's stride multiplies */
#define SPECIAL_GAMMA 1u
#define SPECIAL_BESSEL 2u
const char *use(emitter *e, const char *function); /* records that a library function is needed; returns it */
bool recall(emitter *e, value *v, const coords *at, expr *x);
bool same_coords(const coords *a, const coords *b, bool any_part);
void remember(emitter *e, value *v, const coords *at, expr x);
void flush(emitter *e);
void add_root(emitter *e, root r, const type *shape, int axis);
bool reduces_rows(const tiling *x, const type *shape, int axis);
materialized *hold_new(emitter *e, value *v);
void hold_allocate(emitter *e, materialized *h);
const char *sum_text(emitter *e, const char *name, const tiling *x, int place); /* accumulator `place` */
int registers_of(const tile *t);
bool moves_elements(op_code code);
/* Is everything that the value needs available before the open group ends? */
bool available(emitter *e, const value *v, bool moved, int budget);
/* Emits a work-group barrier that makes earlier writes to these kinds of memory visible. A barrier directly
 * before it is merged with it. */
#define FENCE_GLOBAL 1u
#define FENCE_LOCAL 2u
void emit_barrier(emitter *e, unsigned fences);
void barrier_if_touched(emitter *e);

/* emit_expr.c */
const char *c_type(const type *ty);                     /* the C type an element is computed in */
const char *c_stored(element el);                       /* its C type in global memory */
const char *c_materialized(const type *ty);             /* its C type in a materialized array */
const char *c_array(emitter *e, const materialized *h); /* its C type in this array */
expr constant_int(emitter *e, int64_t v);
expr int_op(emitter *e, op_code code, element el, expr a, expr b);
expr linear_index(emitter *e, const type *shape, const coords *at);
const coords *delinear(emitter *e, const type *shape, expr index);
const coords *make_coords(emitter *e, int rank, const expr *dims, const expr *linear);
expr emit_elementwise(emitter *e, op *o, const expr *args, int index);
const char *materialized_text(emitter *e, materialized *h, const coords *at, expr *index);
const char *load_text(emitter *e, element el, const char *base, const expr *p);
const char *store_text(emitter *e, element el, const expr *p, const char *v);
/* The functions of float8.h that convert an 8-bit float to float, and back. */
const char *widening_f8(emitter *e, element el);
const char *narrowing_f8(emitter *e, element el);
const char *loaded_text(emitter *e, element el, const char *bits);
const char *stored_text(emitter *e, element el, const char *v);
const char *c_bits(emitter *e, element el);
const char *run_words(emitter *e, element el, int parts); /* the C type of one access to all parts */
bool is_whole(const expr *x);                             /* the same for all parts of a lane */
bool is_run(const expr *p); /* an address whose parts are contiguous and aligned as one vector */
const char *number_text(emitter *e, const type *ty, const attr *number);
const char *extern_text(emitter *e, op *o, const char *const *args);
const char *fill(emitter *e, const char *formula, const type *ty, const char *const *args);
const char *rounded(emitter *e, element el, const char *x);

/* emit_loop.c: loops over the elements of a group or a dot */
typedef struct plan {
    const type *shape;
    int axis, lane;
    bool lanes_on_axis;
    bool is_partly;      /* only the first lanes are active in the loop over the axis */
    int64_t width;       /* number of lanes along the axis */
    const coords *at;    /* the current element's coordinates in the innermost loop */
    const coords *outer; /* the same without the axis, outside the loop over it */
    const char *guard;   /* condition under which a lane has an element of its own; NULL: always */
    const char *first;   /* in the loop over the axis: is this the first iteration? NULL: the only one */
    int loops;           /* number of loops opened */
    bool may_unroll;
    const expr *base;     /* several whole rows share the lanes: index of the first row */
    int most_parts;       /* the most consecutive elements that a lane may handle at once; 0 means 1 */
    int parts, part;      /* how many it handles, and the current one */
    int unroll;           /* elements per lane and iteration */
    const coords *all[8]; /* their coordinates; `at` is the current one */
} plan;
expr open_loop(emitter *e, plan *p, const char *prefix, int64_t size, int64_t step);
const char *unroll_hint(emitter *e, const scope *s); /* the pragma before the loop; NULL: none */
void note_choice(emitter *e);              /* records a divergent branch or select in the current scope */
void reconverge_after_selects(emitter *e); /* before the end of the current scope */
/* Opens the loop of an scf.for, "for (ty i = …". */
void open_for(emitter *e, const char *ty, const char *i, const char *const *bounds, const expr *step);
/* The new value of a loop-carried scalar. On CPUs the increment is hidden from the OpenCL compiler. */
const char *increment_text(emitter *e, const type *ty, const char *sum, const expr *step);
void open_plan(emitter *e, plan *p, void (*begin)(emitter *, plan *));
expr on_lanes(expr base);                                  /* base + lane */
expr lane_part(emitter *e, const char *format, int64_t n); /* an integer that differs by lane */

/* emit_op.c */
void write_materialized(emitter *e, const value *v, const coords *at, const expr *x, const char *guard);
void emit_group(emitter *e);
void note_wanted(emitter *e, const root *r);
void emit_combine(emitter *e, op *o, const expr *left, const expr *right, expr *out);
void emit_histogram(emitter *e, op *o);
/* y[i] = x[i] of another lane: lane + by, lane - by, lane ^ by, or lane `by`. The result is undefined if
 * there is no such lane. */
typedef enum lane_move { FROM_ABOVE, FROM_BELOW, FROM_PARTNER, FROM_ONE } lane_move;
void exchange(emitter *e, op *o, const expr *x, expr *y, int n, lane_move move, int by);

/* emit_intel.c: forms that avoid faults of Intel's GPU compiler */
/* The formula of a float's negation or of an absolute value; NULL if `o` is neither, or on other devices. */
const char *safe_formula(emitter *e, const op *o, const char *const *texts);
/* Does an offset from a pointer need safe_address? */
bool is_unsafe_index(emitter *e, const value *index);
/* The result of the tt.addptr `o` as an integer, from the C texts of its operands. */
const char *safe_address(emitter *e, const op *o, const char *pointer, const char *step);
/* Before an integer operation that negates: hides from the compiler that the operand fits a byte. */
void hide_negated_byte(emitter *e, const op *o, expr *args);
/* Before lanes combine `x`: hides from the compiler that it is the least integer of its type. */
void hide_least_integer(emitter *e, const type *ty, expr *x);

/* emit_memory.c */
const char *both(emitter *e, const char *a, const char *b); /* a && b; NULL: no condition */
const char *mask_text(emitter *e, op *o, int index, const coords *at);
void emit_store(emitter *e, op *o, const coords *at, const char *guard, const char **parts);
expr emit_atomic(emitter *e, op *o, const coords *at, const char *guard);
void emit_scalar_atomic(emitter *e, op *o);
void emit_descriptor_effect(emitter *e, op *o, const coords *at, const char *guard);
void emit_assert(emitter *e, op *o, const coords *at);
void emit_message(emitter *e, op *o, const coords *at, const char *guard);

/* emit_dot.c */
/* The target's instruction for a dot, which accumulates `depth` products. */
typedef enum unit_kind { UNIT_BYTES, UNIT_XMX, UNIT_PTX } unit_kind;
typedef struct matrix {
    unit_kind kind;  /* 4-way 8-bit dot product of a work-item; XMX; NVIDIA tensor core */
    element element; /* the operands' stored type */
    int depth;
    const char *call; /* matrix engines: the OpenCL function */
} matrix;

/* Does the target have an instruction for this dot? If so, describes it. */
bool dot_unit(const tile *t, const op *o, matrix *x);
element_order operand_order(const matrix *u, int which, int fill_dim);
/* The descriptor load that produces operand `which` of the dot, possibly transposed, if the operand can be
 * read directly from global memory in the matrix engine's layout; else NULL. */
op *dot_direct(const tile *t, const op *o, int which, const matrix *u, bool *is_transposed);
bool pads_with_nan(const op *descriptor);
/* Fills the open group's arrays in blocked layout. False: their source is not contiguous; nothing is done. */
bool fill_squares(emitter *e);
/* Starts the asynchronous copy of an operand; `is_copied` must be set. */
void fill_ahead(emitter *e, value *v);
expr blocked_index(emitter *e, const materialized *h, const coords *at);
void emit_dot(emitter *e, op *o);
const tiling *dot_parts(tile *t, const op *o); /* NULL: its accumulators do not fit in registers */
const coords *part_coords(emitter *e, const type *ty, const tiling *x, int part);

#endif
