/* Emits tt.dot and tt.dot_scaled: accumulator layouts, operands in local memory, matrix instructions. */
#include <math.h>
#include <string.h>

#include "tile/emit.h"

/* The format of an operand of tt.dot_scaled: its name, or Triton's number for it. */
static const char *scaled_format(const op *o, int which) {
    static const char *const formats[] = {"e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "bf16", "fp16"};
    const attr *name = op_attr(o, which ? "rhs" : "lhs");
    int64_t number = op_attr_int(o, which ? "b_elem_type" : "a_elem_type", -1);
    for (int i = 0; i < 7; i++)
        if (name && name->kind == ATTR_OTHER
                ? strlen(formats[i]) == name->length && !memcmp(formats[i], name->string, name->length)
                : number == i)
            return formats[i];
    return "?";
}

/* NVIDIA's units turn what lies across k as they read it, but for bytes, which have to lie along k. */
element_order operand_order(const matrix *u, int which, int fill_dim) {
    switch (u->kind) {
    case UNIT_BYTES: return which ? RIGHT_VNNI : ROW_MAJOR;
    case UNIT_XMX: return which ? RIGHT_BLOCKED : LEFT_BLOCKED;
    default: return (u->element == I8 ? which == 0 : fill_dim == 1) ? LOCAL_TILE : LOCAL_TILE_TRANSPOSED;
    }
}

static bool is_local_tile(element_order o) { return o == LOCAL_TILE || o == LOCAL_TILE_TRANSPOSED; }

/* Does an array that lies like this serve as operand number `which`? */
static bool suits(const matrix *u, int which, const materialized *h) {
    if (!h || h->packed != u->element) return false;
    if (u->kind == UNIT_PTX && u->element != I8) return is_local_tile(h->order);
    return h->order == operand_order(u, which, 0);
}

/* Begins an array of its own for an operand, and the loop that fills it; squares for the matrix unit, if one
 * is given. */
static materialized *open_operand(emitter *e, const op *o, type shape, int which, const matrix *u, plan *p) {
    materialized *h = NEW(e->t, materialized);
    *h = (materialized){.type = type_make(e->t, shape),
                        .lane_dim = shape.rank - 1,
                        .last_use = o->id,
                        .is_cross_lane = true,
                        .order = u ? operand_order(u, which, shape.rank - 1) : ROW_MAJOR,
                        .packed = u ? u->element : NOTHING};
    hold_allocate(e, h);
    *p = (plan){.shape = h->type, .axis = -1, .lane = shape.rank - 1};
    e->group.is_reversed = false;
    open_plan(e, p, NULL);
    return h;
}

static const materialized *close_operand(emitter *e, materialized *h, plan *p, const expr *x) {
    write_materialized(e, &(value){.materialized = h}, p->at, x, e->t->target.is_cpu ? NULL : p->guard);
    while (p->loops--) close_scope(e, "}");
    return h;
}

/* An operand of tt.dot_scaled times its scales, in an array of its own: as floats, or as the unit wants it.
 */
static const materialized *emit_scaled(emitter *e, op *o, int which, const matrix *u) {
    tile *t = e->t;
    value *v = o->args[which];
    const char *format = scaled_format(o, which);
    bool packed = !strcmp(format, "e2m1"), has_left = op_attr_int(o, "has_lhs_scale", o->arg_count > 3);
    bool has = which ? op_attr_int(o, "has_rhs_scale", o->arg_count > 4) : has_left;
    value *scale = has ? o->args[3 + (which && has_left)] : NULL;
    if (packed && !op_attr_int(o, which ? "rhs_k_pack" : "lhs_k_pack", 1))
        tile_unsupported(t, o->at, "tt.dot_scaled of numbers that aren't packed along K");
    int k_dim = which ? 0 : 1;
    type wide = {
        .element = F32, .is_tensor = true, .rank = 2, .shape = {v->type->shape[0], v->type->shape[1]}};
    if (packed) wide.shape[k_dim] *= 2;
    uint64_t weight = e->weight;
    plan p;
    materialized *h = open_operand(e, o, wide, which, u, &p);
    expr k = p.at->dims[k_dim], dims[2] = {p.at->dims[0], p.at->dims[1]};
    if (packed) dims[k_dim] = int_op(e, OP_DIVSI, I32, k, constant_int(e, 2));
    expr x = emit_value(e, v, make_coords(e, 2, dims, NULL)),
         y = {.kind = VARYING, .depth = e->depth, .divisor = 1};
    const char *text = lane_text(e, &x);
    if (packed)
        text = tile_format(t, "%s(((uchar)%s >> (4 * (%s & 1))) & 15)", use(e, "tile_from_e2m1"), text,
                           lane_text(e, &k));
    else if (is_int(v->type) && (!strcmp(format, "e4m3") || !strcmp(format, "e5m2")))
        text = tile_format(t, "%s((uchar)%s)", widening_f8(e, format[1] == '4' ? F8E4M3FN : F8E5M2), text);
    else if (!is_float(v->type))
        tile_unsupported(t, o->at, "tt.dot_scaled of format %s", format);
    if (scale) {
        int size = h->type->shape[k_dim] / scale->type->shape[1];
        expr at[2] = {p.at->dims[1 - k_dim], int_op(e, OP_DIVSI, I32, k, constant_int(e, size))};
        expr s = emit_value(e, scale, make_coords(e, 2, at, NULL));
        use(e, "float8");
        text = tile_format(t, "%s * widen_f8e8m0fnu((uchar)%s)", text, lane_text(e, &s));
    }
    y.text = text;
    y = declare(e, h->type, y, "v", v->id);
    e->weight = weight;
    return close_operand(e, h, &p, &y);
}

/* The array of an operand as the unit wants it: its own, or a copy where another dot wants that otherwise. */
static const materialized *emit_blocked(emitter *e, op *o, int which, const matrix *u) {
    value *v = o->args[which];
    if (o->code == OP_DOT_SCALED) return emit_scaled(e, o, which, u);
    if (suits(u, which, v->materialized)) return v->materialized;
    uint64_t weight = e->weight;
    plan p;
    materialized *h = open_operand(e, o, *v->type, which, u, &p);
    expr x = emit_value(e, v, p.at);
    e->weight = weight;
    return close_operand(e, h, &p, &x);
}

enum { MOST_PARTS = 128 };

static int at_most(int a, int b) { return a < b ? a : b; }

static void dot_shape(const op *o, int *batch, int *M, int *N, int *K) {
    const type *ty = o->results[0].type;
    int r = ty->rank;
    *batch = r == 3 ? ty->shape[0] : 1;
    *M = ty->shape[r - 2];
    *N = ty->shape[r - 1];
    *K = o->args[0]->type->shape[r - 1];
    if (o->code == OP_DOT_SCALED && !strcmp(scaled_format(o, 0), "e2m1") && op_attr_int(o, "lhs_k_pack", 1))
        *K *= 2;
}

/* The type in which products of `el` are exact in a matrix unit; fp8 is half precision there. */
static element matrix_element(const tile *t, const op *o, element el) {
    const attr *precision = op_attr(o, "inputPrecision");
    bool tf32 =
        precision &&
        ((precision->kind == ATTR_INT && precision->integer == 0) ||
         (precision->kind == ATTR_OTHER && precision->length == 4 && !memcmp(precision->string, "tf32", 4)));
    switch (el) {
    case F8E4M3FN:
    case F8E5M2:
    case F8E4M3FNUZ:
    case F8E5M2FNUZ:
    case F8E4M3B11FNUZ:
    case F16: return F16;
    case BF16: return BF16;
    case F32: return tf32 && t->target.has_matrix_tf32 && t->target.matrix_lanes >= 16 ? F32 : NOTHING;
    case I8: return I8;
    default: return NOTHING;
    }
}

static bool dot_packs(const tile *t, const op *o, matrix *x) {
    const type *a = o->args[0]->type;
    *x = (matrix){.kind = UNIT_BYTES, .element = I8, .depth = 4};
    return t->target.has_packed_dot && !t->target.is_cpu && o->code == OP_DOT && a->element == I8 &&
           o->args[1]->type->element == I8 && o->results[0].type->element == I32 &&
           a->shape[a->rank - 1] % x->depth == 0;
}

static bool dot_matrix(const tile *t, const op *o, matrix *x) {
    int batch, M, N, K;
    const type *ty = o->results[0].type;
    dot_shape(o, &batch, &M, &N, &K);
    if (!t->target.matrix_lanes || ty->element == F64) return false;
    element el = BF16; /* of scaled numbers, which are powers of two times what has few bits */
    for (int i = 0; i < 2; i++) {
        if (o->code == OP_DOT_SCALED) {
            if (!strcmp(scaled_format(o, i), "fp16")) return false;
            continue;
        }
        element side = matrix_element(t, o, o->args[i]->type->element);
        if (i && side != el) return false;
        el = side;
    }
    if (el == NOTHING || (el == I8) != (ty->element == I32)) return false;
    static const char *const xmx[ELEMENTS] = {[I8] = "i8_i8_matrix_mad_k32",
                                              [F16] = "f16_f16_matrix_mad_k16",
                                              [BF16] = "bf16_bf16_matrix_mad_k16",
                                              [F32] = "tf32_tf32_matrix_mad_k8"};
    static const char *const ptx[ELEMENTS] = {
        [I8] = "multiply_i8", [F16] = "multiply_f16", [BF16] = "multiply_bf16", [F32] = "multiply_tf32"};
    bool is_ptx = t->target.matrix_lanes == 32;
    *x = (matrix){.kind = is_ptx ? UNIT_PTX : UNIT_XMX,
                  .element = el,
                  .depth = 256 / element_bits(el),
                  .call = (is_ptx ? ptx : xmx)[el]};
    if (K % x->depth) return false;
    return is_ptx ? ty->rank == 2 && M % 16 == 0 && N % 16 == 0
                  : M % 8 == 0 && N % t->target.matrix_lanes == 0;
}

bool dot_unit(const tile *t, const op *o, matrix *x) { return dot_matrix(t, o, x) || dot_packs(t, o, x); }

/* Spreads squares over the subgroups: as square as possible, since a step along K reads rows + columns
 * numbers. */
static tiling matrix_tiling(const tile *t, int lanes, int M, int N) {
    tiling best = {0};
    int wide = t->target.matrix_lanes;
    for (int groups = lanes / wide; !best.rows; groups /= 2)
        for (int across = 1; across <= groups; across *= 2) {
            tiling x = {.across = across * wide, .down = groups / across, .width = 1, .vector = 8};
            if (M % (x.down * 8) || N % x.across) continue;
            x.rows = x.height = M / x.down;
            x.columns = N / x.across;
            if (!best.rows || x.rows + x.columns * wide < best.rows + best.columns * wide) best = x;
        }
    return best;
}

/* Of NVIDIA's units: a warp has a rectangle of blocks of 16 x 8 sums, two of them side by side at least, in
 * which a lane's are 2 x 2 (ptx_mma.h). `is_left`: its sums go on to another product as rows. */
static tiling fragment_tiling(int lanes, int M, int N, bool is_left) {
    tiling best = {0};
    for (int warps = lanes / 32; !best.rows; warps /= 2)
        for (int across = 1; across <= warps; across *= 2) {
            int down = warps / across;
            tiling x = {.across = 4 * across, .down = 8 * down, .height = 1, .width = 2, .vector = 4};
            if (M % (16 * down) || N % (16 * across)) continue;
            x.rows = M / x.down;
            x.columns = N / x.across;
            bool better = 2 * x.rows + x.columns < 2 * best.rows + best.columns;
            if (!best.rows || (better && !is_left)) best = x;
        }
    return best;
}

/* Is `v` computed from the dot's result, element by element? */
static bool comes_from(const value *v, const op *dot, int *budget) {
    const op *o = v->def;
    if (!o || o->owner != dot->owner || --*budget < 0) return false;
    if (o == dot) return true;
    for (int i = 0; i < o->arg_count && is_pure(o); i++)
        if (comes_from(o->args[i], dot, budget)) return true;
    return false;
}

/* Is one of two dots' result the other's left operand, as in attention? Then a warp has whole rows of both,
 * so that reductions along the rows are its own. */
static bool is_chained(const op *o) {
    for (const op *other = o->owner->first; other; other = other->next) {
        int budget = 500, back = 500;
        if (other == o || (other->code != OP_DOT && other->code != OP_DOT_SCALED)) continue;
        if (comes_from(other->args[0], o, &budget) || comes_from(o->args[0], other, &back)) return true;
    }
    return false;
}

const char *sum_text(emitter *e, const char *name, const tiling *x, int place) {
    int i = place / x->columns, j = place % x->columns;
    switch (x->vector) {
    case 8: return tile_format(e->t, "%s[%d].s%d", name, i / 8 * x->columns + j, i % 8);
    case 4: return tile_format(e->t, "%s[%d].s%d", name, i / 2 * (x->columns / 2) + j / 2, i % 2 * 2 + j % 2);
    default: return tile_format(e->t, "%s[%d]", name, place);
    }
}

/* For sums that stay in registers: as square as possible, since a step along K reads rows + columns numbers.
 */
const tiling *dot_parts(tile *t, const op *o) {
    int batch, M, N, K, lanes = tile_lanes(t);
    matrix unit;
    dot_shape(o, &batch, &M, &N, &K);
    tiling best = {0};
    if (o->results[0].type->rank != 2 || M * N % lanes ||
        M * N / lanes > at_most(registers_of(t), MOST_PARTS))
        return NULL;
    bool is_matrix = dot_unit(t, o, &unit) && unit.call;
    if (is_matrix)
        best = unit.kind == UNIT_PTX ? fragment_tiling(lanes, M, N, is_chained(o))
                                     : matrix_tiling(t, lanes, M, N);
    if (is_matrix && best.across * best.down != lanes) return NULL;
    for (int columns = 1; columns <= at_most(16, N) && !is_matrix; columns *= 2) {
        tiling x = {.across = N / columns,
                    .columns = columns,
                    .height = 1,
                    .width = at_most(columns, 4),
                    .vector = 1};
        x.down = lanes / x.across;
        if (x.across > lanes || x.down > M) continue;
        x.rows = M / x.down;
        if (!best.rows || x.rows + x.columns < best.rows + best.columns) best = x;
    }
    if (!best.rows) return NULL;
    for (const tiling *x = t->tilings; x; x = x->next)
        if (x->across == best.across && x->down == best.down && x->rows == best.rows &&
            x->columns == best.columns && x->height == best.height && x->vector == best.vector)
            return x;
    tiling *x = NEW(t, tiling);
    *x = best;
    x->next = t->tilings;
    return t->tilings = x;
}

/* For sums that are read and written at each dot: some at a time. */
static tiling dot_pass(const emitter *e, int M, int N) {
    tiling x = {.across = at_most(N, 16), .height = 1, .width = 1, .vector = 1};
    x.down = at_most(e->lanes / x.across, M);
    x.columns = N >= 4 * x.across ? 4 : N / x.across;
    x.rows = at_most(at_most(16 / x.columns, M / x.down), 8);
    return x;
}

/* The coordinates of part number `part`, of the tile whose first element is (m, n). */
static const coords *part_at(emitter *e, const tiling *x, int rank, const expr *b, expr m, expr n, int part) {
    expr dims[3];
    int i = part / x->columns, j = part % x->columns;
    if (rank == 3) dims[0] = *b;
    if (x->vector == 4) { /* each warp has its own rectangle */
        tile *t = e->t;
        int wide = x->across / 4;
        const char *row = wide > 1
                              ? tile_format(t, "(lane / %d * %d + lane / 4 %% 8)", 32 * wide, 8 * x->rows)
                          : x->rows == 1 ? "(lane / 4)"
                                         : tile_format(t, "(lane / 32 * %d + lane / 4 %% 8)", 8 * x->rows);
        const char *column =
            wide > 1 ? tile_format(t, "(lane / 32 %% %d * %d + lane %% 4 * 2)", wide, 4 * x->columns)
                     : "(lane % 4 * 2)";
        expr r = lane_part(e, row, 0), c = lane_part(e, column, 0);
        dims[0] = int_op(e, OP_ADDI, I32, int_op(e, OP_ADDI, I32, m, constant_int(e, i * 8)), r);
        dims[1] = int_op(e, OP_ADDI, I32, int_op(e, OP_ADDI, I32, n, constant_int(e, j / 2 * 8 + j % 2)), c);
        return make_coords(e, rank, dims, NULL);
    }
    m = int_op(e, OP_ADDI, I32, m, constant_int(e, i / x->height * x->down * x->height + i % x->height));
    n = int_op(e, OP_ADDI, I32, n, constant_int(e, j / x->width * x->across * x->width + j % x->width));
    if (x->down > 1) {
        expr row = lane_part(e, "(lane / %lld)", x->across);
        m = int_op(e, OP_ADDI, I32, m, int_op(e, OP_MULI, I32, row, constant_int(e, x->height)));
    }
    dims[rank - 2] = m;
    if (x->across == e->lanes && x->width == 1) {
        dims[rank - 1] = on_lanes(n);
    } else {
        expr lane = lane_part(e, "(lane & %lld)", x->across - 1);
        if (x->width > 1) lane = int_op(e, OP_MULI, I32, lane, constant_int(e, x->width));
        dims[rank - 1] = int_op(e, OP_ADDI, I32, n, lane);
    }
    return make_coords(e, rank, dims, NULL);
}

const coords *part_coords(emitter *e, const type *ty, const tiling *x, int part) {
    return part_at(e, x, ty->rank, NULL, constant_int(e, 0), constant_int(e, 0), part);
}

/* Writes sum number `place` of those of a lane, at their coordinates, to the dot's result. */
static void write_sum(emitter *e, op *o, const coords *const *at, int place, const char *text) {
    expr sum = {.text = rounded(e, o->results[0].type->element, text),
                .kind = VARYING,
                .depth = e->depth,
                .divisor = 1};
    e->place = place;
    if (e->grid) e->here = at[place];
    write_materialized(e, &o->results[0], at[place], &sum, NULL);
}

static void close_dot(emitter *e, plan *p) {
    e->grid = NULL;
    e->here = NULL;
    while (p->loops--) close_scope(e, "}");
    e->touches_local = true;
}

/* --- matrix units --- */

/* An element's place in a slab, counted in elements. */
static expr local_tile_index(emitter *e, const materialized *h, const coords *at) {
    bool transposed = h->order == LOCAL_TILE_TRANSPOSED;
    int bytes = element_bits(h->packed) / 8, pieces = h->type->shape[!transposed] * bytes / 16;
    expr row = at->dims[transposed], column = at->dims[!transposed], piece = constant_int(e, 16 / bytes);
    column.is_nonnegative = true;
    expr which = int_op(e, OP_DIVSI, I32, column, piece), inside = int_op(e, OP_REMSI, I32, column, piece);
    int depth = row.depth > column.depth ? row.depth : column.depth;
    const char *place = tile_format(e->t, "(int)(%s(%s, %s, %d) / %d)", use(e, "swizzled_offset"),
                                    lane_text(e, &row), lane_text(e, &which), pieces, bytes);
    return (expr){.text = tile_format(e->t, "(%s + %s)", place, lane_text(e, &inside)),
                  .kind = VARYING,
                  .divisor = 1,
                  .is_nonnegative = true,
                  .depth = depth > e->block_depth ? depth : e->block_depth};
}

expr blocked_index(emitter *e, const materialized *h, const coords *at) {
    if (is_local_tile(h->order)) return local_tile_index(e, h, at);
    const type *ty = h->type;
    int r = ty->rank, bytes = element_bits(h->packed) / 8, depth = 32 / bytes, lanes = e->t->subgroup;
    bool left = h->order == LEFT_BLOCKED;
    int high = left ? 8 : depth, wide = left ? depth : lanes, run = left ? 1 : 4 / bytes;
    if (h->order == RIGHT_VNNI) high = 4, wide = ty->shape[r - 1];
    expr i = at->dims[r - 2], j = at->dims[r - 1], n = constant_int(e, high), m = constant_int(e, wide),
         k = constant_int(e, run);
    i.is_nonnegative = j.is_nonnegative = true;
    expr square =
        int_op(e, OP_MULI, I32, int_op(e, OP_DIVSI, I32, i, n), constant_int(e, ty->shape[r - 1] / wide));
    square = int_op(e, OP_ADDI, I32, square, int_op(e, OP_DIVSI, I32, j, m));
    expr row = int_op(e, OP_REMSI, I32, i, n), column = int_op(e, OP_REMSI, I32, j, m);
    expr index = int_op(e, OP_MULI, I32, square, constant_int(e, high * wide));
    index = int_op(e, OP_ADDI, I32, index,
                   int_op(e, OP_MULI, I32, int_op(e, OP_DIVSI, I32, row, k), constant_int(e, wide * run)));
    index = int_op(e, OP_ADDI, I32, index, int_op(e, OP_MULI, I32, column, k));
    index = int_op(e, OP_ADDI, I32, index, int_op(e, OP_REMSI, I32, row, k));
    if (r < 3) return index;
    expr size = constant_int(e, ty->count / ty->shape[0]);
    return int_op(e, OP_ADDI, I32, int_op(e, OP_MULI, I32, at->dims[0], size), index);
}

/* The dimension along which neighbors are in one dword. */
static int vnni_dim(const materialized *h) { return h->order == LEFT_BLOCKED || h->order == LOCAL_TILE; }

/* Along which dimension a root's operand lies in memory, if a lane can take several of its elements at once
 * and write them as dwords; else -1. */
static int fill_dim(const emitter *e, const root *r, int *count, int *rows) {
    const materialized *h = r->kind == ROOT_HOLD ? r->value->materialized : NULL;
    if (!h || !h->order || h->is_scattered || h->type->rank != 2) return -1;
    int d = h->fill_dim, bytes = element_bits(h->packed) / 8, k_dim = vnni_dim(h);
    int all = h->type->shape[d];
    *count = at_most(at_most(16 / bytes, is_local_tile(h->order) && d == k_dim ? 16 : MAX_PARTS), all);
    *rows = d == k_dim ? 1 : 4 / bytes; /* so that a lane has whole dwords, of neighbors along K */
    int across = all / *count, items = across * (h->type->shape[1 - d] / *rows);
    if (is_local_tile(h->order) && items < e->lanes && across <= items) return d;
    return *count * bytes < 4 || across > e->lanes || items % e->lanes ? -1 : d;
}

/* A loaded piece of 16 bytes, or none of it, as it lies in memory: copied without passing through registers.
 * False: it isn't one. */
static bool copy_vector(emitter *e, const value *v, const coords *at, const char *place) {
    const op *o = v->def;
    if (!o || o->code != OP_LOAD || op_attr(o, "isVolatile") || v->type->element != v->materialized->packed)
        return false;
    const attr *other = o->arg_count > 2 ? splat_constant(o->args[2]) : NULL;
    bool zeros = o->arg_count < 3 ||
                 (other && (other->kind == ATTR_INT
                                ? other->integer == 0
                                : other->kind == ATTR_FLOAT && other->real == 0 && !signbit(other->real)));
    expr p = emit_value(e, o->args[0], at), mask = {.kind = UNIFORM, .is_constant = true, .constant = 1};
    if (o->arg_count > 1) mask = emit_value(e, o->args[1], at);
    if (!is_run(&p) || !is_whole(&mask) || !zeros) return false;
    const char *from = tile_format(e->t, "(ulong)(%s + %s)", p.root, lane_text(e, &p)),
               *m = mask.is_constant ? mask.constant ? NULL : "false" : lane_text(e, &mask);
    if (m)
        emit_line(e, e->depth,
                  "copy_part_async(LOCAL_TILE_ADDRESS(%s) + %s, %s ? %s : (ulong)%s, 16, %s ? 16 : 0);",
                  v->materialized->name, place, m, from, p.root, m);
    else
        emit_line(e, e->depth, "copy_async(LOCAL_TILE_ADDRESS(%s) + %s, %s);", v->materialized->name, place,
                  from);
    e->copies = true;
    e->t->layout_changed |= e->is_trial && !v->materialized->is_copied;
    v->materialized->is_copied = true;
    return true;
}

/* `lane` becomes the number within a row of lanes, which lie along the dimension: what is computed of it is
 * then consecutive. */
static void fill_root(emitter *e, value *v, int d, int count, int rows) {
    tile *t = e->t;
    materialized *h = v->materialized;
    int bytes = element_bits(h->packed) / 8, run = 4 / bytes, k_dim = vnni_dim(h), lanes = e->lanes;
    bool slab = is_local_tile(h->order);
    int across = h->type->shape[d] / count, all = h->type->shape[1 - d] / rows, step = lanes / across;
    const char *n = tile_format(t, "%d", ++e->names);
    plan p = {0};
    expr loop = open_loop(e, &p, "q", all, step), dims[2];
    if (p.loops) e->scopes[e->depth].is_unrolled = all <= 4 * step;
    int outer = e->block_depth;
    emit_line(e, e->depth, "const int row%s = (%s + lane / %d) * %d, lane%s = lane %% %d, first%s = 0;", n,
              loop.text, across, rows, n, across, n);
    if (all < step)
        open_scope(e, "if (row%s < %d) {", n, all * rows);
    else
        open_scope(e, "{");
    emit_line(e, e->depth, "const int lane = lane%s;", n);
    e->block_depth = e->depth;
    e->lanes = across;
    e->is_inner = true;
    const char *bits[4 * MAX_PARTS], *places[4 * MAX_PARTS];
    int size = 0;
    bool copied = false;
    for (int i = 0; i < count && !copied; i++)
        for (int r = 0; r < rows; r++) {
            dims[1 - d] = (expr){.text = tile_format(t, r ? "(row%s + %d)" : "row%s", n, r),
                                 .kind = UNIFORM, /* in such a row */
                                 .divisor = r ? 1 : rows,
                                 .is_nonnegative = true,
                                 .depth = e->depth};
            dims[d] = (expr){.text = tile_format(t, "first%s", n),
                             .kind = LINEAR,
                             .stride = 1,
                             .parts = count,
                             .part = i,
                             .divisor = 1 << 20,
                             .is_nonnegative = true,
                             .depth = e->depth};
            const coords *at = make_coords(e, 2, dims, NULL);
            if (slab && d == k_dim && !i) {
                const char *place =
                    tile_format(t, "%s(row%s, lane, %d)", use(e, "swizzled_offset"), n, across);
                if ((copied = copy_vector(e, v, at, place))) break;
            }
            if (slab) e->here = at;
            expr x = emit_recomputed(e, v, at), index = blocked_index(e, h, at);
            e->here = NULL;
            bits[size] = stored_text(e, h->packed, lane_text(e, &x));
            places[size++] = lane_text(e, &index);
        }
    /* In the array all of them lie side by side, or the numbers of a dword. */
    bool together = slab ? d == k_dim : (d == k_dim) == (h->order == LEFT_BLOCKED);
    int piece = together ? at_most(size, 16 / bytes) : run;
    for (int i = 0; i < size; i += piece) {
        buffer all_bits = {0};
        for (int j = 0; j < piece; j++) buffer_addf(t, &all_bits, "%s%s", j ? ", " : "", bits[i + j]);
        const char *words = piece * bytes > 4 ? tile_format(t, "uint%d", piece * bytes / 4) : "uint";
        const char *vector = all_bits.data;
        if (piece > 1) vector = tile_format(t, "(%s%d)(%s)", c_bits(e, h->packed), piece, vector);
        emit_line(e, e->depth, "*(__local %s *)(%s + %s) = as_%s(%s);", words, h->name, places[i], words,
                  vector);
    }
    e->touches_local = true;
    e->is_inner = false;
    e->lanes = lanes;
    e->block_depth = outer;
    close_scope(e, "}");
    while (p.loops--) close_scope(e, "}");
}

void fill_ahead(emitter *e, value *v) {
    int count, rows, d = fill_dim(e, &(root){.kind = ROOT_HOLD, .value = v}, &count, &rows);
    uint64_t weight = e->weight;
    fill_root(e, v, d, count, rows);
    if (!e->copies) tile_error(e->t, NULL, "internal error: an operand isn't copied as it was tried");
    e->copies = e->touches_local = false; /* who reads it waits for it, and for the others */
    e->weight = weight;
}

/* Is what defines `v` computed from another operand that the open group fills? */
static bool reads_filled(const emitter *e, const value *v, int budget) {
    if (!v->def || !is_pure(v->def)) return false;
    if (!budget) return true;
    for (int i = 0; i < v->def->arg_count; i++) {
        const value *x = v->def->args[i];
        if (x->materialized ? x->pending == e->group.serial : reads_filled(e, x, budget - 1)) return true;
    }
    return false;
}

bool fill_squares(emitter *e) {
    enum { FARTHEST = 64 };
    group *g = &e->group;
    int count, rows;
    if (g->axis >= 0) return false;
    for (int i = 0; i < g->count; i++)
        if (fill_dim(e, &g->roots[i], &count, &rows) < 0) return false;
    bool splits = e->splits;
    for (int i = 0; i < g->count; i++) {
        value *v = g->roots[i].value;
        int d = fill_dim(e, &g->roots[i], &count, &rows);
        uint64_t weight = e->weight;
        e->splits = false;
        if (reads_filled(e, v, FARTHEST)) barrier_if_touched(e); /* other lanes wrote what it reads */
        fill_root(e, v, d, count, rows);
        note_wanted(e, &g->roots[i]);
        e->weight = weight;
        if (!e->splits) continue;
        if (!e->is_trial) tile_error(e->t, NULL, "internal error: an operand isn't filled as it was tried");
        v->materialized->is_scattered = e->t->layout_changed = true;
    }
    e->splits = splits;
    return true;
}

/* The sum's eight rows at the coordinates, as a vector. */
static const char *matrix_start(emitter *e, op *o, const tiling *x, const coords *const *at, int first) {
    buffer all = {0};
    const char *texts[8], *c = c_type(o->results[0].type);
    bool same = true;
    for (int r = 0; r < 8; r++) {
        e->place = first + r * x->columns;
        if (e->grid) e->here = at[e->place];
        expr start = emit_value(e, o->args[2], at[e->place]);
        texts[r] = lane_text(e, &start);
        same = same && !strcmp(texts[r], texts[0]);
        buffer_addf(e->t, &all, "%s%s", r ? ", " : "", texts[r]);
    }
    return tile_format(e->t, "(%s8)(%s)", c, same ? texts[0] : all.data);
}

op *dot_direct(const tile *t, const op *o, int which, const matrix *u, bool *is_transposed) {
    const value *v = o->args[which];
    if (!t->target.has_block_2d || t->target.matrix_lanes != 16 || !u->call || o->code != OP_DOT ||
        u->element == F32 || v->type->element != u->element || v->type->rank != 2)
        return NULL;
    *is_transposed = which == 1 && v->def && v->def->code == OP_TRANS;
    op *load = *is_transposed ? v->def->args[0]->def : v->def;
    if (!load || load->code != OP_DESCRIPTOR_LOAD || load->epoch != o->epoch ||
        load->results[0].type->rank != 2)
        return NULL;
    const op *d = load->args[0]->def;
    if (!d || d->code != OP_MAKE_DESCRIPTOR || d->results[0].type->rank != 2 || pads_with_nan(d)) return NULL;
    return load;
}

/* The source of a dot's operand: blocks in local memory or, if `load` is not NULL, 2D block reads from global
 * memory by the subgroup, possibly transposed (cl_intel_subgroup_2d_block_io). */
typedef struct side {
    const char *array;
    op *load;
    bool is_transposed;
    const char *from, *y; /* "base, width, height, pitch", in bytes; first row of the block */
    const char *x;        /* first byte of the block within a row */
} side;

/* Names what the block reads need, and gives the condition under which they may be used: their rules, and no
 * column before the first. */
static const char *open_side(emitter *e, side *s, int bytes) {
    tile *t = e->t;
    op *d = s->load->args[0]->def;
    expr v[7]; /* address, rows, columns, strides; the block's row and column */
    for (int i = 0; i < 7; i++) v[i] = emit_value(e, i < 5 ? d->args[i] : s->load->args[i - 4], NULL);
    const char *n = tile_format(t, "%d", ++e->names);
    emit_line(e, e->depth, "const ulong at%s = (ulong)(%s + %s);", n, v[0].root, v[0].text);
    emit_line(e, e->depth, "const long width%s = (long)%s * %d + (long)(at%s & 63), pitch%s = (long)%s * %d;",
              n, v[2].text, bytes, n, n, v[3].text, bytes);
    emit_line(e, e->depth, "const int x%s = (int)%s * %d + (int)(at%s & 63);", n, v[6].text, bytes, n);
    s->from = tile_format(t, "(__global void *)(at%s & ~63ul), (int)width%s, (int)%s, (int)pitch%s", n, n,
                          v[1].text, n);
    s->x = tile_format(t, "x%s", n);
    s->y = v[5].text;
    return tile_format(
        t,
        "%s == 1 && %s >= 0 && ((x%s | width%s) & 3) == 0 && (pitch%s & 15) == 0 && width%s >= 64 && "
        "pitch%s >= width%s && pitch%s < 1 << 24 && %s >= 1 && %s < 1 << 24",
        v[4].text, v[6].text, n, n, n, n, n, n, n, v[1].text, v[1].text);
}

/* What stays the same for a product. */
typedef struct product {
    const matrix *unit;
    const tiling *tiling;
    const char *const *sums;
    const char *serial;
    const char *row, *column; /* the subgroup's first row and column of blocks, without the loop offsets */
    const char *m, *n;        /* loop offsets */
    const char *start_a, *start_b; /* start of a matrix in a batch, in blocks */
    int N, wide, steps;
} product;

/* The left squares of `count` steps along K from k on, by names in `a`. */
static void read_left(emitter *e, const product *p, const side *s, const char *k, int count, const char **a) {
    tile *t = e->t;
    int high = p->tiling->rows / 8;
    bool shorts = t->subgroup == 16 && p->unit->element != F32;
    if (s->load) {
        int rows = high % 4 == 0 ? 4 : high % 2 == 0 ? 2 : 1; /* squares of one read */
        for (int i = 0; i < high; i += rows) {
            const char *name = tile_format(t, "a%d_%s", i, p->serial);
            emit_line(e, e->depth, "ushort8 %s[%d];", name, rows * count);
            emit_line(e, e->depth,
                      "intel_sub_group_2d_block_read_16b_%dr16x%dc(%s, (int2)(%s / 2 + %s * 16, "
                      "%s + %s + (%s + %d) * 8), (__private ushort *)%s);",
                      8 * rows, count, s->from, s->x, k, s->y, p->m, p->row, i, name);
            for (int j = 0; j < rows * count; j++)
                a[j / rows * high + i + j % rows] = tile_format(t, "as_short8(%s[%d])", name, j);
        }
        return;
    }
    const char *vector = shorts                    ? "short8"
                         : p->unit->element == F32 ? "float4"
                                                   : "int8",
               *read = shorts                    ? "_us8"
                       : p->unit->element == F32 ? "4"
                                                 : "8",
               *word = shorts ? "ushort" : "uint";
    for (int i = 0; i < high * count; i++) {
        a[i] = tile_format(t, "a%d_%s", i, p->serial);
        emit_line(e, e->depth,
                  "const %s %s = as_%s(intel_sub_group_block_read%s((const __local %s *)%s + "
                  "%d * ((%s%s / 8 + %s + %d) * %d + %s + %d)));",
                  vector, a[i], vector, read, word, s->array, shorts ? 128 : 64, p->start_a, p->m, p->row,
                  i % high, p->steps, k, i / high);
    }
}

/* The same for column number j of the right squares. */
static void read_right(emitter *e, const product *p, const side *s, const char *k, int count, int j,
                       const char **b) {
    tile *t = e->t;
    int lanes = t->subgroup, bytes = element_bits(p->unit->element) / 8;
    const char *name = tile_format(t, "b%d_%s", j, p->serial),
               *vector = p->unit->element == F32 ? "float8" : "int8";
    const char *column = tile_format(t, "(%s + %d)", p->column, j * p->wide);
    bool once = s->load && !s->is_transposed && bytes == 2;
    if (s->load) emit_line(e, e->depth, "uint8 %s[%d];", name, count);
    for (int i = 0; i < count; i++) {
        b[i] = s->load ? tile_format(t, "as_int8(%s[%d])", name, i) : tile_format(t, "%s_%d", name, i);
        if (s->load && s->is_transposed)
            emit_line(
                e, e->depth,
                "intel_sub_group_2d_block_read_transpose_32b_16r8x1c(%s, (int2)(%s / 4 + (%s + %d) * 8, "
                "%s + %s + %s * 16), (__private uint *)&%s[%d]);",
                s->from, s->x, k, i, s->y, p->n, column, name, i);
        else if (s->load && (!once || !i))
            emit_line(
                e, e->depth,
                "intel_sub_group_2d_block_read_transform_%db_%dr16x1c(%s, (int2)(%s / %d + %s + %s * 16, "
                "%s + (%s + %d) * %d), (__private uint *)&%s[%d]);",
                8 * bytes, p->unit->depth * (once ? count : 1), s->from, s->x, bytes, p->n, column, s->y, k,
                i, p->unit->depth, name, i);
        else if (!s->load)
            emit_line(e, e->depth,
                      "const %s %s = as_%s(intel_sub_group_block_read8((const __local uint *)%s + "
                      "%d * (%s(%s + %d) * %d + %s / %d + %s)));",
                      vector, b[i], vector, s->array, 8 * lanes, p->start_b, k, i, p->N / lanes, p->n, lanes,
                      column);
    }
}

/* sums[row, column] += the product of the squares a and b */
static void emit_dpas(emitter *e, const product *p, const char *a, const char *b, int row, int column) {
    const char *sum = p->sums[row * p->tiling->columns + column];
    emit_line(e, e->depth, "%s = intel_sub_group_%s(%s, %s, %s);", sum, p->unit->call, a, b, sum);
}

/* sums += a * b along K */
static void multiply(emitter *e, const product *p, const side *left, const side *right) {
    tile *t = e->t;
    int high = p->tiling->rows / 8, columns = p->tiling->columns;
    int count = p->steps % 2 == 0 && (left->load || right->load) ? 2 : 1;
    const char *k = p->steps > count ? tile_format(t, "k%s", p->serial) : "0", *a[2 * MOST_PARTS],
               *b[MOST_PARTS][2];
    /* dg2's compiler puts an idle multiplication before a group of them whose first two share B */
    const bool by_rows = t->subgroup == 8;
    if (p->steps > count) {
        open_scope(e, "for (int %s = 0; %s < %d; %s += %d) {", k, k, p->steps, k, count);
        e->scopes[e->depth].is_unrolled = p->steps <= 4 * count;
    } else {
        open_scope(e, "{");
    }
    read_left(e, p, left, k, count, a);
    for (int j = 0; j < columns; j++) {
        read_right(e, p, right, k, count, j, b[j]);
        if (by_rows) continue;
        for (int i = 0; i < high * count; i++) emit_dpas(e, p, a[i], b[j][i / high], i % high, j);
    }
    for (int i = 0; by_rows && i < high * count; i++)
        for (int j = 0; j < columns; j++) emit_dpas(e, p, a[i], b[j][i / high], i % high, j);
    close_scope(e, "}");
}

/* c += a * b by squares; each subgroup has its rows and columns of them. */
static void emit_matrix(emitter *e, op *o, const matrix *u) {
    tile *t = e->t;
    value *result = &o->results[0];
    const type *ty = result->type;
    int r = ty->rank, batch, M, N, K, lanes = t->subgroup;
    dot_shape(o, &batch, &M, &N, &K);
    side direct[2] = {{0}}, local[2] = {{0}};
    const char *condition = NULL;
    for (int i = 0; i < 2; i++) {
        direct[i].load = dot_direct(t, o, i, u, &direct[i].is_transposed);
        if (!direct[i].load) continue;
        const char *rules = open_side(e, &direct[i], element_bits(u->element) / 8);
        condition = condition ? tile_format(t, "%s && %s", condition, rules) : rules;
    }
    const char *serial = tile_format(t, "%d", ++e->names);
    for (int i = 0; i < 2; i++)
        if (!direct[i].load) direct[i].array = local[i].array = emit_blocked(e, o, i, u)->name;
    barrier_if_touched(e);
    if (condition) {
        emit_line(e, e->depth, "const bool direct%s = %s;", serial, condition);
        open_scope(e, "if (!direct%s) {", serial);
        for (int i = 0; i < 2; i++)
            if (direct[i].load) local[i].array = emit_blocked(e, o, i, u)->name;
        barrier_if_touched(e);
        close_scope(e, "}");
    }
    const tiling *parts = result->materialized->grid;
    tiling x = parts ? *parts : matrix_tiling(t, e->lanes, M, N);
    while (!parts && x.rows * x.columns > 64) { /* some at a time */
        if (x.rows > 8 && x.rows >= x.columns * lanes)
            x.rows /= 2;
        else
            x.columns /= 2;
        x.height = x.rows;
    }
    int wide = x.across / lanes, high = x.rows / 8, steps = K / u->depth;
    const char *c = c_type(ty), *group_id = wide * x.down > 1 ? "(int)get_sub_group_id()" : "0";
    plan p = {0};
    uint64_t weight = e->weight;
    expr ib = open_loop(e, &p, "b", batch, 1), im = open_loop(e, &p, "m", M, x.rows * x.down),
         in = open_loop(e, &p, "n", N, x.columns * x.across);
    in.divisor = x.across;
    bool idle = wide * x.down < e->lanes / lanes;
    if (idle) open_scope(e, "if (%s < %d) {", group_id, wide * x.down);
    const coords *at[MOST_PARTS];
    const char *sums[MOST_PARTS / 8];
    e->grid = parts;
    for (int i = 0; i < x.rows * x.columns; i++) at[i] = part_at(e, &x, r, &ib, im, in, i);
    const materialized *from = o->args[2]->materialized;
    bool in_place = from && from->in_registers && from->name == result->materialized->name &&
                    (ty->element == F32 || ty->element == I32);
    for (int i = 0; i < high * x.columns; i++) {
        int row = i / x.columns, column = i % x.columns;
        if (in_place) {
            sums[i] = tile_format(t, "%s[%d]", from->name, i);
            continue;
        }
        sums[i] = tile_format(t, "c%d_%d_%s", row, column, serial);
        const char *start = matrix_start(e, o, &x, at, 8 * row * x.columns + column);
        emit_line(e, e->depth, "%s8 %s = %s;", c, sums[i], start);
    }
    product q = {.unit = u,
                 .tiling = &x,
                 .sums = sums,
                 .serial = serial,
                 .row = tile_format(t, "row%s", serial),
                 .column = tile_format(t, "column%s", serial),
                 .m = im.text,
                 .n = in.text,
                 .start_a = r == 3 ? tile_format(t, "%s * %d + ", ib.text, M / 8) : "",
                 .start_b = r == 3 ? tile_format(t, "%s * %d + ", ib.text, steps * (N / lanes)) : "",
                 .N = N,
                 .wide = wide,
                 .steps = steps};
    emit_line(e, e->depth, "const int %s = %s / %d * %d, %s = %s %% %d;", q.row, group_id, wide, high,
              q.column, group_id, wide);
    if (condition) {
        open_scope(e, "if (direct%s) {", serial);
        multiply(e, &q, &direct[0], &direct[1]);
        close_scope(e, NULL);
        open_scope(e, "} else {");
    }
    multiply(e, &q, &local[0], &local[1]);
    if (condition) close_scope(e, "}");
    for (int i = 0; i < x.rows * x.columns && !in_place; i++) {
        int row = i / x.columns, column = i % x.columns;
        write_sum(e, o, at, i, tile_format(t, "%s.s%d", sums[row / 8 * x.columns + column], row % 8));
    }
    if (idle) close_scope(e, "}");
    close_dot(e, &p);
    e->work += weight * (uint64_t)batch * (uint64_t)M * (uint64_t)N * (uint64_t)K / 16;
    e->weight = weight;
}

/* sums += a * b along K, for a warp: blocks of 16 rows by 16 columns. */
static void multiply_fragments(emitter *e, const matrix *u, const tiling *x,
                               const materialized *const *operands, const char *sums, const char *row,
                               const char *column, int steps) {
    static const char *const transposed[ELEMENTS] = {[I8] = "transposed_i8",
                                                     [F16] = "transposed_f16",
                                                     [BF16] = "transposed_f16",
                                                     [F32] = "transposed_f32"};
    tile *t = e->t;
    int high = x->rows / 2, wide = x->columns / 4, bytes = element_bits(u->element) / 8, pieces[2];
    const char *n = tile_format(t, "%d", ++e->names), *read[2];
    for (int i = 0; i < 2; i++) {
        const materialized *h = operands[i];
        pieces[i] = h->type->shape[h->order == LOCAL_TILE] * bytes / 16;
        bool along = (h->order == LOCAL_TILE) == (i == 0);
        read[i] =
            tile_format(t, along ? "read_%s" : "read_%s_%s", i ? "right" : "left", transposed[u->element]);
        if (u->element == F32) read[i] = tile_format(t, "rounded_to_tf32(%s", read[i]);
    }
    const char *end = u->element == F32 ? ")" : "", *k = tile_format(t, "k%s", n);
    const char *a = tile_format(t, "a%s", n), *b = tile_format(t, "b%s", n), *unrolled = "UNROLL for";
    open_scope(e, "%s (uint %s = 0; %s < %d; %s++) {", steps <= 4 ? unrolled : "for", k, k, steps, k);
    emit_line(e, e->depth, "fragment_a %s[%d];", a, high);
    emit_line(e, e->depth,
              "%s (uint i = 0; i < %d; i++) %s[i] = %s(LOCAL_TILE_ADDRESS(%s), %s + i * 16, %s, %d)%s;",
              unrolled, high, a, read[0], operands[0]->name, row, k, pieces[0], end);
    open_scope(e, "%s (uint j = 0; j < %d; j++) {", unrolled, wide);
    emit_line(e, e->depth, "const uint4 %s = %s(LOCAL_TILE_ADDRESS(%s), %s + j * 16, %s, %d)%s;", b, read[1],
              operands[1]->name, column, k, pieces[1], end);
    open_scope(e, "%s (uint i = 0; i < %d; i++) {", unrolled, high);
    for (int i = 0; i < 2; i++)
        emit_line(e, e->depth, "%s(&%s[i * %d + j * 2 + %d], %s[i], %s.%s);", u->call, sums, 2 * wide, i, a,
                  b, i ? "zw" : "xy");
    for (int i = 0; i < 3; i++) close_scope(e, "}");
}

/* c += a * b by fragments; each warp has its rows and columns of them. */
static void emit_fragments(emitter *e, op *o, const matrix *u) {
    tile *t = e->t;
    value *result = &o->results[0];
    const type *ty = result->type;
    int batch, M, N, K;
    dot_shape(o, &batch, &M, &N, &K);
    use(e, "ptx_units");
    const materialized *operands[2];
    for (int i = 0; i < 2; i++) operands[i] = emit_blocked(e, o, i, u);
    barrier_if_touched(e);
    const tiling *parts = result->materialized->grid;
    tiling x = parts ? *parts : fragment_tiling(e->lanes, M, N, false);
    while (!parts && x.rows * x.columns > 64) { /* some at a time */
        if (2 * x.rows >= x.columns)
            x.rows /= 2;
        else
            x.columns /= 2;
    }
    int wide = x.across / 4, warps = x.across * x.down / 32, count = x.rows * x.columns;
    const char *serial = tile_format(t, "%d", ++e->names), *c = c_type(ty);
    plan p = {0};
    uint64_t weight = e->weight;
    expr im = open_loop(e, &p, "m", M, x.rows * x.down), in = open_loop(e, &p, "n", N, x.columns * x.across);
    bool idle = warps < e->lanes / 32;
    if (idle) open_scope(e, "if (lane < %d) {", 32 * warps);
    const coords *at[MOST_PARTS];
    const char *name = tile_format(t, "c%s", serial);
    e->grid = parts;
    for (int i = 0; i < count; i++) at[i] = part_at(e, &x, 2, NULL, im, in, i);
    const materialized *from = o->args[2]->materialized;
    bool in_place = from && from->in_registers && from->name == result->materialized->name &&
                    (ty->element == F32 || ty->element == I32);
    if (in_place) {
        name = from->name;
    } else {
        emit_line(e, e->depth, "%s4 %s[%d];", c, name, count / 4);
        for (int i = 0; i < count; i++) {
            e->place = i;
            if (e->grid) e->here = at[i];
            expr start = emit_value(e, o->args[2], at[i]);
            emit_line(e, e->depth, "%s = %s;", sum_text(e, name, &x, i), lane_text(e, &start));
        }
    }
    emit_line(e, e->depth, "const uint row%s = %s + lane / %d * %d, column%s = %s + lane / 32 %% %d * %d;",
              serial, im.text, 32 * wide, 8 * x.rows, serial, in.text, wide, 4 * x.columns);
    multiply_fragments(e, u, &x, operands, name, tile_format(t, "row%s", serial),
                       tile_format(t, "column%s", serial), K / u->depth);
    for (int i = 0; i < count && !in_place; i++) write_sum(e, o, at, i, sum_text(e, name, &x, i));
    if (idle) close_scope(e, "}");
    bool touches = e->touches_local || !in_place || !operands[0]->stages || !operands[1]->stages;
    close_dot(e, &p);
    e->touches_local = touches; /* stages are written to behind a barrier of the loop's */
    e->work += weight * (uint64_t)M * (uint64_t)N * (uint64_t)K / 16;
    e->weight = weight;
}

/* c[m][n] += a[m][k] * b[k][n]; a and b are materialized. */
void emit_dot(emitter *e, op *o) {
    tile *t = e->t;
    matrix unit;
    bool scaled = o->code == OP_DOT_SCALED;
    const type *ty = o->results[0].type;
    int r = ty->rank, batch, M, N, K;
    dot_shape(o, &batch, &M, &N, &K);
    value *result = &o->results[0];
    for (int i = 0; i < 2; i++)
        if (o->args[i]->materialized)
            o->args[i]->materialized->is_cross_lane = true; /* lanes read all elements */
    if (!result->materialized) return;
    hold_allocate(e, result->materialized);
    bool packs = dot_unit(t, o, &unit);
    if (packs && unit.call) {
        if (unit.kind == UNIT_PTX)
            emit_fragments(e, o, &unit);
        else
            emit_matrix(e, o, &unit);
        return;
    }
    const materialized *left = scaled ? emit_scaled(e, o, 0, NULL) : o->args[0]->materialized;
    const materialized *right = scaled  ? emit_scaled(e, o, 1, NULL)
                                : packs ? emit_blocked(e, o, 1, &unit)
                                        : o->args[1]->materialized;
    const char *ha = left->name, *hb = right->name;
    barrier_if_touched(e);
    if (packs) { /* four along K are a number */
        ha = tile_format(t, "(__local const uint *)%s", ha);
        hb = tile_format(t, "(__local const uint *)%s", hb);
        K /= 4;
    }
    const tiling *parts = result->materialized->grid, x = parts ? *parts : dot_pass(e, M, N);
    int across = x.across, down = x.down, rows = x.rows, columns = x.columns, width = x.width;
    int step = t->target.is_cpu || K % 4 ? 1 : 4; /* local memory gives four numbers in one instruction */
    const char *c = c_type(ty), *ca = scaled ? "float" : packs ? "uint" : c_materialized(o->args[0]->type);
    const char *one = packs ? ca : c;             /* number, in the loop */
    const char *sums = is_float(ty) ? c : "uint"; /* those of integers wrap around */
    const char *n_lane = across == e->lanes ? "lane" : tile_format(t, "(lane & %d)", across - 1);
    const char *m_lane = down == 1 ? "0" : tile_format(t, "(lane / %d)", across);
    if (width > 1) n_lane = tile_format(t, "%s * %d", n_lane, width);
    plan p = {0};
    uint64_t weight = e->weight;
    expr ib = open_loop(e, &p, "b", batch, 1), im = open_loop(e, &p, "m", M, rows * down),
         in = open_loop(e, &p, "n", N, columns * across);
    in.divisor = across;
    bool idle = across * down < e->lanes && !t->target.is_cpu;
    if (idle) open_scope(e, "if (lane < %d) {", across * down);
    const char *acc[MOST_PARTS];
    const coords *at[MOST_PARTS];
    e->grid = parts;
    for (int k = 0; k < rows * columns; k++) {
        e->place = k;
        at[k] = part_at(e, &x, r, &ib, im, in, k);
        if (parts) e->here = at[k];
        expr start = emit_value(e, o->args[2], at[k]);
        acc[k] = tile_format(t, "c%d_%d_%d", k / columns, k % columns, ++e->names);
        emit_line(e, e->depth, "%s %s = %s;", sums, acc[k], lane_text(e, &start));
    }
    const char *k = new_name(e, "k"), *base_a = im.text, *base_b = k;
    if (r == 3) {
        base_a = tile_format(t, "(%s * %d + %s)", ib.text, M, im.text);
        base_b = tile_format(t, "(%s * %d + %s)", ib.text, K, k);
    }
    emit_line(e, e->depth, "__local const %s *const a_%s = %s + (%s + %s) * %d;", ca, k, ha, base_a, m_lane,
              K);
    if (step > 1)
        open_scope(e, "for (int %s = 0; %s < %d; %s += %d) {", k, k, K, k, step);
    else
        open_scope(e, "for (int %s = 0; %s < %d; %s++) {", k, k, K, k);
    emit_line(e, e->depth, "__local const %s *const b_%s = %s + %s * %d + %s + %s;", ca, k, hb, base_b, N,
              in.text, n_lane);
    for (int s = 0; s < step; s++)
        for (int j = 0; j < columns; j += width) {
            int from = s * N + j * across;
            if (width > 1)
                emit_line(e, e->depth, "const %s%d b%d_%d = *(__local const %s%d *)(b_%s + %d);", ca, width,
                          j, s, ca, width, k, from);
            else
                emit_line(e, e->depth, "const %s b%d_%d = b_%s[%d];", one, j, s, k, from);
        }
    for (int i = 0; i < rows; i++) {
        if (step > 1)
            emit_line(e, e->depth, "const %s%d a%d = *(__local const %s%d *)(a_%s + %d + %s);", ca, step, i,
                      ca, step, k, i * down * K, k);
        else
            emit_line(e, e->depth, "const %s a%d = a_%s[%d + %s];", one, i, k, i * down * K, k);
        for (int s = 0; s < step; s++) {
            const char *one_a = step > 1 ? tile_format(t, "a%d.s%d", i, s) : tile_format(t, "a%d", i);
            for (int j = 0; j < columns; j++) {
                const char *sum = acc[i * columns + j],
                           *one_b = width > 1 ? tile_format(t, "b%d_%d.s%d", j - j % width, s, j % width)
                                              : tile_format(t, "b%d_%d", j, s);
                emit_line(e, e->depth,
                          packs          ? "%s = (uint)dot_4x8packed_ss_int(%s, %s) + %s;"
                          : is_float(ty) ? "%s = fma(%s, %s, %s);"
                                         : "%s = (uint)(%s * %s) + %s;",
                          sum, one_a, one_b, sum);
            }
        }
    }
    close_scope(e, "}");
    for (int i = 0; i < rows * columns; i++)
        write_sum(e, o, at, i, is_float(ty) ? acc[i] : tile_format(t, "(int)%s", acc[i]));
    if (idle) close_scope(e, "}");
    close_dot(e, &p);
    e->work += weight * (uint64_t)batch * (uint64_t)M * (uint64_t)N * (uint64_t)K / 2;
    e->weight = weight;
}
