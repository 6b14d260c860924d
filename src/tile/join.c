/* Merges programs on CPUs. For sums over the rows of a few hundred columns, Inductor launches programs of
 * about 4 columns each, so that all compute units of a GPU have work:
 *
 *     x = pid * 4 + range(4); for (r) sum += a[x + 512 * r]
 *
 * On a CPU that leaves most vector lanes idle and reads each cache line several times. Therefore as many
 * programs as fill a vector are merged into one: blocks of 4 columns become blocks of 16; the first of four
 * programs does the work, and the others return immediately. Columns beyond the launch's last program are
 * masked out.
 *
 * A kernel is merged only if that index alone distinguishes the columns, no data moves between columns, and
 * it reads columns that are contiguous in memory and rows that are not. */
#include <string.h>

#include "tile/tile.h"

#define MOST_STEPS 4000 /* limit of the search through index expressions */
#define UNKNOWN INT64_MIN

typedef struct join {
    tile *t;
    region *body;
    op *program, *offset, *index; /* pid, pid * columns, pid * columns + range */
    int columns;
    int steps, across; /* of the search; reads with contiguous columns */
    bool reduces;
} join;

static bool has_columns(const join *j, const type *ty) {
    for (int d = 0; ty->is_tensor && d < ty->rank; d++)
        if (ty->shape[d] == j->columns) return true;
    return false;
}

/* The difference between elements adjacent along `dim`: of addresses in elements, or of integers. */
static int64_t stride(join *j, const value *v, int dim) {
    if (!v->type->is_tensor || v->type->shape[dim] == 1) return 0;
    const op *o = v->def;
    if (!o || ++j->steps > MOST_STEPS) return UNKNOWN;
    int64_t a, b;
    switch (o->code) {
    case OP_CONSTANT:
    case OP_SPLAT: return 0;
    case OP_MAKE_RANGE: return 1;
    case OP_BROADCAST: return stride(j, o->args[0], dim);
    case OP_EXPAND_DIMS: return stride(j, o->args[0], dim - (dim > op_attr_int(o, "axis", 0)));
    case OP_EXTSI:
    case OP_EXTUI: return stride(j, o->args[0], dim);
    case OP_DIVSI: /* a quotient or remainder breaks the stride rarely enough */
    case OP_REMSI:
        a = stride(j, o->args[0], dim), b = stride(j, o->args[1], dim);
        return b != 0 || a == UNKNOWN ? UNKNOWN : o->code == OP_REMSI ? a : 0;
    case OP_ADDI:
    case OP_ADDPTR:
        a = stride(j, o->args[0], dim), b = stride(j, o->args[1], dim);
        return a == UNKNOWN || b == UNKNOWN ? UNKNOWN : a + b;
    case OP_MULI:
        a = stride(j, o->args[0], dim), b = stride(j, o->args[1], dim);
        for (int i = 0; i < 2; i++) {
            const attr *by = splat_constant(o->args[1 - i]);
            if (by && (i ? b : a) != UNKNOWN && by->integer < INT32_MAX && by->integer > INT32_MIN)
                return (i ? b : a) * by->integer;
        }
        return a == 0 && b == 0 ? 0 : UNKNOWN;
    default:
        for (int i = 0; i < o->arg_count; i++)
            if (stride(j, o->args[i], dim) != 0) return UNKNOWN;
        return o->region_count ? UNKNOWN : 0;
    }
}

static bool is_range(const join *j, const value *v) {
    const op *o = v->def;
    while (o && (o->code == OP_EXPAND_DIMS || o->code == OP_BROADCAST)) o = o->args[0]->def;
    return o && o->code == OP_MAKE_RANGE && o->results[0].type->shape[0] == j->columns;
}

/* Is `o` the sum of the program's first column and the range? */
static bool is_index(const join *j, const op *o) {
    for (int i = 0; o->code == OP_ADDI && i < 2; i++) {
        const op *first = o->args[i]->def;
        if (first && first->code == OP_SPLAT && first->args[0] == &j->offset->results[0])
            return is_range(j, o->args[1 - i]);
    }
    return false;
}

/* Is the value, a range or the splat of the program's first column, used only in their sum? */
static bool only_for_index(join *j, const value *v) {
    use_list uses = {.count = 0};
    find_uses(j->body, v, &uses);
    if (uses.count > USES) return false;
    for (int i = 0; i < uses.count; i++) {
        const op *o = uses.ops[i];
        if (o->code == OP_EXPAND_DIMS || o->code == OP_BROADCAST || o->code == OP_SPLAT) {
            if (!only_for_index(j, &o->results[0])) return false;
        } else if (!is_index(j, o)) {
            return false;
        }
    }
    return true;
}

/* Is `o` pid * columns, the only use of the program ID? */
static bool find_offset(join *j) {
    use_list uses = {.count = 0};
    find_uses(j->body, &j->program->results[0], &uses);
    op *o = uses.ops[0];
    if (uses.count != 1 || o->code != OP_MULI || o->owner != j->body->first) return false;
    const attr *by = splat_constant(o->args[o->args[0] == &j->program->results[0]]);
    if (!by || by->kind != ATTR_INT || by->integer < 2 || by->integer >= j->t->target.lanes ||
        (by->integer & (by->integer - 1)) || o->results[0].type->element != I32)
        return false;
    j->offset = o;
    j->columns = (int)by->integer;
    return only_for_index(j, &o->results[0]);
}

static bool check_access(join *j, const op *o) {
    const type *ty = o->args[0]->type;
    if (!has_columns(j, ty)) return true;
    if (!j->index || ty->rank != 2) return false;
    int dim = ty->shape[0] == j->columns ? 0 : 1;
    int64_t along = stride(j, o->args[0], dim), down = stride(j, o->args[0], 1 - dim);
    if (along == UNKNOWN || down == UNKNOWN || (ty->shape[1 - dim] > 1 && down == 1)) return false;
    j->across += along == 1 && down != 0;
    return true;
}

static bool check_op(join *j, op *o) {
    for (int i = 0; i < o->result_count; i++) {
        const type *ty = o->results[i].type;
        if (ty->is_tensor &&
            (ty->rank > 2 || (ty->rank == 2 && ty->shape[0] == j->columns && ty->shape[1] == j->columns)))
            return false;
    }
    switch (op_table[o->code].kind) {
    case KIND_SPLAT:
    case KIND_BROADCAST:
    case KIND_EXPAND_DIMS:
    case KIND_ADDPTR:
    case KIND_END:
    case KIND_FOR:
    case KIND_IF: break;
    case KIND_CONSTANT:
        if (has_columns(j, o->results[0].type) && !splat_constant(&o->results[0])) return false;
        break;
    case KIND_RANGE:
        if (has_columns(j, o->results[0].type) &&
            (op_attr_int(o, "start", 0) || !only_for_index(j, &o->results[0])))
            return false;
        break;
    case KIND_AXIS:
        if (o != j->program && op_attr_int(o, "axis", 0) == 0) return false;
        break;
    case KIND_REDUCE:
        for (int i = 0; i < o->arg_count; i++)
            if (o->args[i]->type->shape[op_attr_int(o, "axis", 0)] == j->columns) return false;
        j->reduces = true;
        break;
    case KIND_LOAD:
    case KIND_STORE:
        if (!check_access(j, o)) return false;
        break;
    default:
        if (!is_elementwise(o)) return false;
    }
    if (!j->index && is_index(j, o) && o->owner == j->body->first && o->results[0].type->rank == 2 &&
        o->results[0].type->count == j->columns)
        j->index = o;
    return true;
}

/* Calls `visit` for each operation, outer ones first, except those in the combine regions of reductions. */
static bool each_op(join *j, region *r, bool (*visit)(join *, op *)) {
    if (r->block_count != 1) return false;
    for (op *o = r->first->first, *next; o; o = next) {
        next = o->next;
        if (!visit(j, o)) return false;
        for (int i = 0; i < o->region_count && o->code != OP_REDUCE; i++)
            if (!each_op(j, &o->regions[i], visit)) return false;
    }
    return true;
}

static bool find_program(join *j, op *o) {
    if (o->code == OP_PROGRAM_ID && op_attr_int(o, "axis", 0) == 0) {
        if (j->program) return false;
        j->program = o;
    }
    return true;
}

static const type *widened(join *j, const type *ty) {
    type wide = *ty;
    for (int d = 0; ty->is_tensor && d < ty->rank; d++)
        if (ty->shape[d] == j->columns) wide.shape[d] = j->t->target.lanes;
    return type_make(j->t, wide);
}

static bool widen_op(join *j, op *o) {
    for (int i = 0; i < o->result_count; i++) o->results[i].type = widened(j, o->results[i].type);
    for (int i = 0; i < o->region_count && o->code != OP_REDUCE; i++)
        for (int a = 0; a < o->regions[i].first->arg_count; a++)
            o->regions[i].first->args[a]->type = widened(j, o->regions[i].first->args[a]->type);
    for (attr *a = o->attrs; a; a = a->next) {
        if (o->code == OP_CONSTANT && a->type) a->type = widened(j, a->type);
        if (o->code == OP_MAKE_RANGE && !strcmp(a->name, "end")) a->integer = o->results[0].type->shape[0];
    }
    return true;
}

static value *insert(join *j, op_code code, op *before, const type *ty, value *left, value *right) {
    op *o = op_new(j->t, code, before->at, (left != NULL) + (right != NULL), 1, 0);
    if (left) o->args[0] = left;
    if (right) o->args[1] = right;
    o->results[0].type = ty;
    op_insert_before(o, before);
    return &o->results[0];
}

static void set_int(join *j, value *v, const char *name, int64_t number) {
    attr *a = op_set_attr(j->t, v->def, name);
    a->kind = ATTR_INT;
    a->integer = number;
    a->type = type_scalar(j->t, I32);
}

static value *constant(join *j, op *before, int64_t number) {
    value *v = insert(j, OP_CONSTANT, before, type_scalar(j->t, I32), NULL, NULL);
    set_int(j, v, "value", number);
    return v;
}

/* Masks accesses beyond the launch's last program; j->index holds the comparison with its end. */
static bool mask_access(join *j, op *o) {
    int at = o->code == OP_LOAD ? 1 : 2;
    if (o->code != OP_LOAD && o->code != OP_STORE) return true;
    const type *ty = o->args[0]->type;
    if (!has_columns(j, ty)) return true;
    value *inside = &j->index->results[0];
    const type *bits = type_with(j->t, ty, type_scalar(j->t, I1));
    if (inside->type != bits) inside = insert(j, OP_BROADCAST, o, bits, inside, NULL);
    if (o->arg_count > at) {
        o->args[at] = insert(j, OP_ANDI, o, bits, o->args[at], inside);
        return true;
    }
    value **args = NEW_ARRAY(j->t, value *, at + 1);
    memcpy(args, o->args, sizeof *args * (size_t)at);
    args[at] = inside;
    o->args = args;
    o->arg_count = at + 1;
    return true;
}

void tile_merge(tile *t) {
    join j = {.t = t, .body = &t->kernel->regions[0]};
    t->joined = 1;
    if (!t->target.is_cpu || !each_op(&j, j.body, find_program) || !j.program || !find_offset(&j) ||
        !each_op(&j, j.body, check_op) || !j.reduces || !j.across)
        return;
    const int lanes = t->target.lanes, before = j.columns;
    t->joined = lanes / before;
    op *offset = j.offset, *after = j.index->next;
    const type *number = type_scalar(t, I32);
    value *programs = insert(&j, OP_NUM_PROGRAMS, after, number, NULL, NULL);
    set_int(&j, programs, "axis", 0);
    value *end = insert(&j, OP_MULI, after, number, programs, constant(&j, after, before));
    const type *shape = j.index->results[0].type;
    end = insert(&j, OP_SPLAT, after, shape, end, NULL);
    value *inside =
        insert(&j, OP_CMPI, after, type_with(t, shape, type_scalar(t, I1)), &j.index->results[0], end);
    set_int(&j, inside, "predicate", CMPI_SLT);
    offset->args[0] =
        insert(&j, OP_DIVSI, offset, number, &j.program->results[0], constant(&j, offset, t->joined));
    offset->args[1] = constant(&j, offset, lanes);
    j.index = inside->def;
    each_op(&j, j.body, mask_access);
    each_op(&j, j.body, widen_op);
}
