/* What the layout stage and the emitter's files share.
 *
 * A tensor's element is a function of its coordinates. Index arithmetic, and whatever else is cheap, is
 * computed anew wherever it is wanted (emit_value); the rest is HELD: an array in local memory, filled by one
 * loop and read by others. On a CPU a program is one subgroup of lanes that run in step, so a loop takes the
 * elements in chunks of that many, lane l the l-th of a chunk, and local memory is the cheapest place that
 * all lanes see.
 *
 * Operations with an effect (and values to be materialized) are the roots. Roots over blocks of one shape
 * share a loop (a GROUP) as long as none needs what another only has at the loop's end. */
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

/* The order of an array's elements. Matrix units take squares of the left and the right side of a product:
 * 8 rows by 32 bytes along K, and 32 bytes along K by as many columns as a subgroup has lanes, in dwords of
 * neighbors along K. Each lies together as a lane's block read wants it; squares are row-major. Without the
 * units, the bytes of a right side may lie in dwords of four along K, row by row. */
typedef enum order {
    ROW_MAJOR,
    LEFT_BLOCKED,
    RIGHT_BLOCKED,
    RIGHT_VNNI,
    LOCAL_TILE, /* NVIDIA's units: rows in pieces of 16 bytes that change places (swizzled_offset) */
    LOCAL_TILE_TRANSPOSED /* the same with columns for rows */
} order;

/* A value kept in local memory; on a GPU in registers, if each lane only reads and writes its own elements.
 */
typedef struct materialized {
    const char *name;        /* the C array; NULL until its loop is emitted */
    const type *type;        /* of the value */
    int lane_dim;            /* this dimension's elements lie side by side, the others row-major around it */
    int fill_dim;            /* that dimension's elements are computed side by side when it is filled */
    int last_use;            /* number of the last operation that reads it */
    int pass;                /* of layout.c that saw it last */
    bool is_shared;          /* the array belongs to a loop-carried value: not to be given back */
    bool is_remat_candidate; /* to be kept in registers or not at all */
    bool is_cross_lane;      /* some lane reads or writes another's elements */
    bool in_registers;       /* the array is the lane's own: an element a chunk */
    int parts;               /* of a lane, as first read or written; 0: not yet */
    bool is_plain;           /* a dot reads it row-major */
    bool is_scattered;       /* what fills it doesn't lie side by side in memory */
    bool is_copied;          /* it is filled by copies that nobody waits for */
    int stages;              /* as often it is there, for a loop's next iterations; 0: once */
    order order;
    element packed;              /* of squares: as an element lies there */
    const struct tiling *grid;   /* not those of chunks, but as a dot leaves them */
    struct materialized *joined; /* it took over that one's array: both are in registers, or none */
    struct materialized *next;   /* of those in use, or free */
} materialized;

/* How a dot's sums lie on the lanes: a grid of `down` rows of `across` lanes, each with `rows` × `columns`
 * elements: rows in runs of `height`, the runs `down` × `height` apart; columns in runs of `width`, the runs
 * `across` × `width` apart. */
typedef struct tiling {
    int across, down, rows, columns, height, width;
    int vector;          /* sums in one C variable: 1, 8 rows of Intel's units, 2 x 2 of NVIDIA's */
    struct tiling *next; /* of those of this compilation: equal ones are the same pointer */
} tiling;

/* A loop-carried tensor that grows by the same number in all elements: its first value and a scalar. */
typedef struct offset {
    value *start;     /* the value before the loop */
    value *step;      /* added in each iteration: all its elements are equal */
    const char *name; /* the C variable */
} offset;

int lane_dim(tile *t, const type *ty); /* which dimension's elements lie on neighboring lanes */
/* The one other dimension of a reduction along `axis` on a processor, where memory goes along it and it has
 * at least a quarter as many elements as there are lanes, but fewer; else -1. A vector that is filled in part
 * is loaded at once; along the axis each lane's element would be. */
int short_lane_dim(tile *t, const type *ty, int axis);
bool is_pure(const op *o);         /* may be computed anew, anywhere */
bool is_small_reduce(const op *o); /* a reduction over 2 elements: computed where it is wanted */
/* Does it store to memory, or read it, through its first operand? */
bool op_writes(const op *o);
bool op_reads(const op *o);
/* Must `read` be done for all elements before `write` is for any? `moved`: they have other places between. */
bool is_overwritten(const tile *t, const op *read, const op *write, bool moved);
bool is_scalar(const value *v);       /* one element: computed where it is defined */
bool is_splat(value *v);              /* all elements are equal, whatever the coordinates */
int64_t stride_of(value *v, int dim); /* difference of neighbors; UNKNOWN_STRIDE if not constant */
#define UNKNOWN_STRIDE INT64_MIN
void tile_layout(tile *t);
/* After a trial emission: what is kept in registers. True: there is a new layout to try. */
bool tile_iterate_layout(tile *t, bool splits);
int tile_parts(tile *t); /* consecutive elements that a lane might take at once */

/* --- expressions --- */

typedef enum lane_kind {
    UNIFORM, /* the same in all lanes */
    LINEAR,  /* in lane l: the text's value + stride * (parts * l + part) */
    VARYING  /* the text differs from lane to lane */
} lane_kind;

typedef struct expr {
    const char *text; /* C: a name, a number or something in parentheses */
    const char *root; /* of a pointer: the C pointer to which `text` is an offset in elements */
    lane_kind kind;
    int depth; /* the scope in which it can be computed */
    int64_t stride;
    int parts, part; /* of LINEAR: a lane has `parts` consecutive elements; parts is 0 for 1 */
    bool is_whole;   /* VARYING, but the same for all parts of a lane */
    int64_t divisor; /* a power of two that divides the integer (LINEAR: lane 0's) */
    bool is_nonnegative;
    int bits;         /* of its magnitude, about; 0: an index's, which doesn't wrap around */
    bool is_constant; /* the integer (LINEAR: lane 0's) is `constant` */
    int64_t constant;
    const struct expr
        *row;         /* of a VARYING one: the UNIFORM or LINEAR one that it equals where `when` holds */
    const char *when; /* the same in all lanes */
} expr;

typedef struct coords {
    int rank;
    expr *dims;
    const expr *linear; /* row-major index, where known */
    unsigned hash;      /* the same for equal ones, whatever their parts */
} coords;

/* A computed element: valid as long as the scope it was put in is open. */
typedef struct memo {
    struct memo *next;
    const coords *at; /* NULL: at any */
    expr result;
    int serial; /* of the scope */
} memo;

#define MAX_SCOPES 128
typedef struct scope {
    buffer text;
    int serial;
    int indent;
    bool is_loop;
    bool chooses;     /* something in it depends on what differs from lane to lane */
    int64_t trips;    /* of a loop in which there is no other; 0: not known */
    bool is_chunks;   /* a loop over a block's chunks */
    bool is_unrolled; /* in which registers are numbered by the loop's variable */
    size_t barrier;   /* where in the text the latest one begins */
    size_t behind;    /* and ends */
    unsigned fences;  /* of that one */
} scope;

#define MAX_PARTS 8
typedef enum root_kind { ROOT_OP, ROOT_HOLD, ROOT_COPY } root_kind;
typedef struct root {
    root_kind kind;
    op *op;                        /* ROOT_OP: a store, atomic, reduction, scan, print, assert */
    value *value;                  /* ROOT_HOLD, ROOT_COPY */
    materialized *to;              /* ROOT_COPY: where to */
    expr *accumulators;            /* of a reduction or scan */
    const char *stored[MAX_PARTS]; /* by a store: what it has of a lane's parts so far */
} root;

#define MAX_ROOTS 64
typedef struct group {
    const type *shape; /* NULL: no group is open */
    int lane;          /* the dimension on the lanes */
    int axis;          /* of its reductions and scans; -1 if none */
    bool is_reversed;  /* a scan from the end */
    int serial;
    int epoch;
    bool has_effect;
    bool has_assert;
    bool has_once; /* what each element must do once: no lane may repeat another's, as reductions let them */
    bool follows_reads; /* it stores where other lanes may have yet to read what groups before it need */
    const tiling *grid; /* NULL: in chunks */
    int count;
    root roots[MAX_ROOTS];
} group;

typedef struct emitter {
    tile *t;
    scope scopes[MAX_SCOPES];
    int depth, block_depth, serials, names;
    group group;
    materialized *in_use, *free;
    buffer locals; /* declarations of local arrays */
    uint64_t local_memory;
    uint64_t work, weight; /* operations of a program; how often the current scope runs */
    bool touches_local;    /* since the last barrier */
    unsigned special;      /* SPECIAL_…: files of the operator library that are used */
    bool special_wide;     /* they are of double, else of float */
    buffer library;        /* names of the library's functions that were used, a line each */
    int now;               /* number of the operation being emitted */
    int lanes;
    bool is_trial; /* only to learn who reads what: tile_iterate_layout */
    bool splits;   /* a lane's parts lie side by side in memory, and couldn't be moved at once */
    struct loaded *loaded;
    const coords *here;   /* of the element being computed; NULL: at none in particular */
    const tiling *grid;   /* whose place number `place` it is; NULL: it is one of a chunk */
    const tiling *wanted; /* it should be a part of this one */
    int place;
    bool is_inner; /* `lane` is the number within a row */
    bool copies;   /* copies into local memory are under way */
    bool ahead;    /* and some for iterations to come */
} emitter;

/* kernel.c */
void tile_emit(tile *t);

/* emit_block.c */
void emit_body(emitter *e, region *r); /* a function's: several blocks become labels and gotos */
void emit_block(emitter *e, block *b);
bool accumulates(const value *arg, const op *dot);

/* emit.c */
expr emit_value(emitter *e, value *v, const coords *at);
expr emit_recomputed(emitter *e, value *v, const coords *at); /* though it may be materialized */
expr descriptor_element(emitter *e, op *o, const coords *at, const char **inside, int *depth);
void emit_line(emitter *e, int depth, const char *format, ...) TEXT_PRINTF(3, 4);
void open_scope(emitter *e, const char *format, ...) TEXT_PRINTF(2, 3);
void close_scope(emitter *e, const char *format, ...) TEXT_PRINTF(2, 3); /* NULL: no line */
expr declare(emitter *e, const type *ty, expr x, const char *prefix, int id);
const char *new_name(emitter *e, const char *prefix);
const char *lane_text(emitter *e, const expr *x);  /* as seen by one lane */
const char *lane_index(emitter *e, const expr *x); /* the lane's number on x's line */
#define SPECIAL_GAMMA 1u
#define SPECIAL_BESSEL 2u
const char *use(emitter *e, const char *function); /* notes that the library's function is needed; gives it */
bool recall(emitter *e, value *v, const coords *at, expr *x);
bool same_coords(const coords *a, const coords *b, bool any_part);
void remember(emitter *e, value *v, const coords *at, expr x);
void flush(emitter *e);
void add_root(emitter *e, root r, const type *shape, int axis);
bool reduces_rows(const tiling *x, const type *shape, int axis);
materialized *hold_new(emitter *e, value *v);
void hold_allocate(emitter *e, materialized *h);
const char *sum_text(emitter *e, const char *name, const tiling *x, int place); /* in such variables */
int registers_of(const tile *t);
bool moves_elements(op_code code);
/* Is there all that the value needs before the open group has ended? */
bool available(emitter *e, const value *v, bool moved, int budget);
/* Lanes wait for each other, and see what any wrote before to memory of these kinds: one barrier, where
 * another stands directly before. */
#define FENCE_GLOBAL 1u
#define FENCE_LOCAL 2u
void emit_barrier(emitter *e, unsigned fences);
void barrier_if_touched(emitter *e);

/* emit_expr.c */
const char *c_type(const type *ty);                     /* what an element is computed in */
const char *c_stored(element el);                       /* how it lies in memory */
const char *c_materialized(const type *ty);             /* how it lies in an array of materialized values */
const char *c_array(emitter *e, const materialized *h); /* in this one */
expr constant_int(emitter *e, int64_t v);
expr int_op(emitter *e, op_code code, element el, expr a, expr b);
expr linear_index(emitter *e, const type *shape, const coords *at);
const coords *delinear(emitter *e, const type *shape, expr index);
const coords *make_coords(emitter *e, int rank, const expr *dims, const expr *linear);
expr emit_elementwise(emitter *e, op *o, const expr *args, int index);
const char *materialized_text(emitter *e, materialized *h, const coords *at, expr *index);
const char *load_text(emitter *e, element el, const char *root, const expr *p);
const char *store_text(emitter *e, element el, const expr *p, const char *v);
/* float8.h's function from the byte of an 8-bit float to a float, and back. */
const char *widening_f8(emitter *e, element el);
const char *narrowing_f8(emitter *e, element el);
const char *loaded_text(emitter *e, element el, const char *bits);
const char *stored_text(emitter *e, element el, const char *v);
const char *c_bits(emitter *e, element el);
const char *run_words(emitter *e, element el, int parts); /* moved as such at once */
bool is_whole(const expr *x);                             /* the same for all parts of a lane */
bool is_run(const expr *p); /* an address whose parts lie side by side, and aligned as one */
const char *number_text(emitter *e, const type *ty, const attr *number);
const char *extern_text(emitter *e, op *o, const char *const *args);
const char *fill(emitter *e, const char *formula, const type *ty, const char *const *args);
const char *rounded(emitter *e, element el, const char *x);

/* emit_loop.c: the loops around a group's, or a dot's, elements */
typedef struct plan {
    const type *shape;
    int axis, lane;
    bool lanes_on_axis;
    bool is_partly;      /* only the first lanes work, in the axis' loop */
    int64_t width;       /* how many lanes lie along the axis */
    const coords *at;    /* of an element, inside */
    const coords *outer; /* the same without the axis, outside of its loop */
    const char *guard;   /* NULL, or the condition under which a lane has an element of its own */
    const char *first;   /* in the axis' loop: whether this is its first iteration; NULL: there is only one */
    int loops;           /* opened */
    bool may_unroll;
    const expr *base;     /* of whole rows side by side on the lanes: the first row's number */
    int most_parts;       /* consecutive elements that a lane may take at once; 0: 1 */
    int parts, part;      /* those that it takes, and the current one */
    int unroll;           /* elements of a lane in one iteration */
    const coords *all[8]; /* them; at is the current one */
} plan;
expr open_loop(emitter *e, plan *p, const char *prefix, int64_t size, int64_t step);
const char *unroll_hint(emitter *e, const scope *s); /* what stands before it; NULL: nothing */
void note_choice(emitter *e);              /* something here depends on what differs from lane to lane */
void reconverge_after_selects(emitter *e); /* before the end of the current scope */
/* "for (ty i = …": the loop of scf.for */
void open_for(emitter *e, const char *ty, const char *i, const char *const *bounds, const expr *step);
/* What a number that a loop carries has grown to; for processors so that the compiler doesn't see by how
 * much. */
const char *increment_text(emitter *e, const type *ty, const char *sum, const expr *step);
void open_plan(emitter *e, plan *p, void (*begin)(emitter *, plan *));
expr on_lanes(expr base);                                  /* base + lane */
expr lane_part(emitter *e, const char *format, int64_t n); /* a number of each lane */

/* emit_op.c */
void write_materialized(emitter *e, const value *v, const coords *at, const expr *x, const char *guard);
void emit_group(emitter *e);
void note_wanted(emitter *e, const root *r);
void emit_combine(emitter *e, op *o, const expr *left, const expr *right, expr *out);
void emit_histogram(emitter *e, op *o);
/* y[i] = x[i] of another lane: `by` lanes above or below, the partner whose number differs in the bit `by`,
 * or lane number `by`. Where there is none, any value. */
typedef enum lane_move { FROM_ABOVE, FROM_BELOW, FROM_PARTNER, FROM_ONE } lane_move;
void exchange(emitter *e, op *o, const expr *x, expr *y, int n, lane_move move, int by);

/* emit_memory.c */
const char *both(emitter *e, const char *a, const char *b); /* conditions; NULL: none */
const char *mask_text(emitter *e, op *o, int index, const coords *at);
void emit_store(emitter *e, op *o, const coords *at, const char *guard, const char **parts);
expr emit_atomic(emitter *e, op *o, const coords *at, const char *guard);
void emit_scalar_atomic(emitter *e, op *o);
void emit_descriptor_effect(emitter *e, op *o, const coords *at, const char *guard);
void emit_assert(emitter *e, op *o, const coords *at);
void emit_message(emitter *e, op *o, const coords *at, const char *guard);

/* emit_dot.c */
/* What the target does in one instruction for a dot: sums of `depth` products. */
typedef enum unit_kind { UNIT_BYTES, UNIT_XMX, UNIT_PTX } unit_kind;
typedef struct matrix {
    unit_kind kind;  /* a work-item's products of four bytes, Intel's matrix units, NVIDIA's */
    element element; /* as the operands lie */
    int depth;
    const char *call; /* of a matrix unit: its function */
} matrix;

/* Has the target an instruction for it? */
bool dot_unit(const tile *t, const op *o, matrix *x);
order operand_order(const matrix *u, int which, int fill_dim);
/* The load of a descriptor's block that is operand number `which` of the dot, transposed or not, where a
 * matrix unit can read it from memory by itself; else NULL. */
op *dot_direct(const tile *t, const op *o, int which, const matrix *u, bool *is_transposed);
bool pads_with_nan(const op *descriptor);
/* Fills the open group's arrays of squares, where what they are filled with lies side by side. False: it
 * doesn't. */
bool fill_squares(emitter *e);
/* Copies an operand in, which is known to be copied (is_copied). */
void fill_ahead(emitter *e, value *v);
expr blocked_index(emitter *e, const materialized *h, const coords *at);
void emit_dot(emitter *e, op *o);
const tiling *dot_parts(tile *t, const op *o); /* NULL: its sums can't stay in registers */
const coords *part_coords(emitter *e, const type *ty, const tiling *x, int part);

#endif
