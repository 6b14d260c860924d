/* Moves reductions into loops. A block that a loop only accumulates, and that is reduced after the loop, is
 * reduced in each iteration instead:
 *
 *     acc = for (a = identity) { yield where(mask, combine(a, x), a) }; r = reduce(acc, combine)
 *  →  r   = for (a = identity) { yield combine(a, reduce(where(mask, x, identity), combine)) }
 *
 * The carried block, as large as the loop's step, shrinks to one value per row, which stays in a register. On
 * a GPU, where a reduction across lanes costs more, the loop keeps one value per lane, and a reduction after
 * the loop combines those. */
#include <math.h>
#include <string.h>

#include "tile/tile.h"

void find_uses(const region *r, const value *v, use_list *uses) {
    for (const block *b = r->first; b; b = b->next)
        for (op *o = b->first; o; o = o->next) {
            for (int i = 0; i < o->arg_count; i++)
                if (o->args[i] == v) {
                    if (uses->count < USES) uses->ops[uses->count] = o;
                    uses->count++;
                }
            for (int i = 0; i < o->region_count; i++) find_uses(&o->regions[i], v, uses);
        }
}

static int use_count(const region *r, const value *v) {
    use_list uses = {.count = 0};
    find_uses(r, v, &uses);
    return uses.count;
}

/* Does the block compute `v` as the region computes `w`, with `a` as the region's first argument and *x as
 * its second? Sets *x. */
static bool matches(value *v, const value *w, const block *body, value *a, value **x) {
    if (w == body->args[0]) return v == a;
    if (w == body->args[1]) {
        if (!*x) *x = v;
        return v == *x && v != a;
    }
    const op *o = v->def, *c = w->def;
    if (!o || !c || o->code != c->code || o->arg_count != c->arg_count || o->region_count) return false;
    if (op_attr_int(o, "predicate", 0) != op_attr_int(c, "predicate", 0)) return false;
    if (c->owner != body) return false; /* a constant of the region */
    for (int i = 0; i < o->arg_count; i++)
        if (!matches(o->args[i], c->args[i], body, a, x)) return false;
    return true;
}

/* Is `number` the identity of the combine region? Handles one operation, and a select by comparison. */
static bool is_identity(const block *body, const attr *number) {
    bool lowest = number->kind == ATTR_FLOAT ? isinf(number->real) && number->real < 0
                                             : number->integer == INT32_MIN || number->integer == INT64_MIN;
    bool highest = number->kind == ATTR_FLOAT ? isinf(number->real) && number->real > 0
                                              : number->integer == INT32_MAX || number->integer == INT64_MAX;
    bool zero = number->kind == ATTR_FLOAT ? number->real == 0 : number->integer == 0;
    for (const op *o = body->first; o != body->last; o = o->next) switch (o->code) {
        case OP_ADDF:
        case OP_ADDI:
        case OP_ORI:
        case OP_XORI:
            if (o->next == body->last) return body->first == o ? zero : true;
            if (o->code != OP_ORI) return false; /* an "or" of conditions belongs to a select */
            break;
        case OP_MAXNUMF:
        case OP_MAXIMUMF:
        case OP_MAXSI: return lowest && body->first == o && o->next == body->last;
        case OP_MINNUMF:
        case OP_MINIMUMF:
        case OP_MINSI: return highest && body->first == o && o->next == body->last;
        case OP_CMPF: {
            int64_t order = op_attr_int(o, "predicate", 0);
            bool of_arguments = o->args[0] == body->args[0] && o->args[1] == body->args[1];
            if (order == CMPF_UNE && o->args[0] == body->args[0] && o->args[1] == body->args[0])
                break; /* NaN propagates */
            if (!of_arguments || !((order == CMPF_OGT && lowest) || (order == CMPF_OLT && highest)))
                return false;
            break;
        }
        case OP_CMPI: {
            int64_t order = op_attr_int(o, "predicate", 0);
            bool of_arguments = o->args[0] == body->args[0] && o->args[1] == body->args[1];
            if (!of_arguments || !((order == CMPI_SGT && lowest) || (order == CMPI_SLT && highest)))
                return false;
            break;
        }
        case OP_SELECT:
            return o->next == body->last && o->args[1] == body->args[0] && o->args[2] == body->args[1];
        default: return false;
        }
    return false;
}

static op *new_constant(tile *t, const op *like, const type *ty, const attr *number) {
    op *o = op_new(t, OP_CONSTANT, like->at, 0, 1, 0);
    attr *a = op_set_attr(t, o, "value"), *one = NEW(t, attr);
    *one = *number;
    one->next = NULL;
    if (ty->is_tensor) {
        *a = (attr){.name = "value", .kind = ATTR_DENSE, .count = 1, .list = one};
    } else {
        *a = *one;
        a->name = "value";
    }
    a->type = o->results[0].type = ty;
    return o;
}

/* Inserts the region's operations, applied to (left, right), before `place`. */
static value *combined(tile *t, const op *reduce, value *left, value *right, op *place) {
    const block *body = reduce->regions[0].first;
    const type *ty = left->type;
    body->args[0]->same = left;
    body->args[1]->same = right;
    for (op *c = body->first; c != body->last; c = c->next) {
        op *o = clone_op(t, c);
        o->results[0].type = type_with(t, ty, c->results[0].type);
        op_insert_before(o, place);
    }
    value *out = body->last->args[0];
    return out->same ? out->same : out;
}

static bool sink(tile *t, op *loop, int index) {
    region *kernel = &t->kernel->regions[0], *inside = &loop->regions[0];
    block *body = inside->first;
    value *result = &loop->results[index], *a = body->args[index + 1], *y = body->last->args[index];
    use_list uses = {.count = 0};
    if (!result->type->is_tensor || result->type->count == 1) return false;
    find_uses(kernel, result, &uses);
    op *reduce = uses.ops[0];
    if (uses.count != 1 || reduce->code != OP_REDUCE || reduce->arg_count != 1) return false;
    const block *combine = reduce->regions[0].first;
    const attr *number = splat_constant(loop->args[index + 3]);
    if (!number || !is_identity(combine, number)) return false;

    op *choice = y->def && y->def->code == OP_SELECT && y->def->args[2] == a ? y->def : NULL;
    value *sum = choice ? choice->args[1] : y, *x = NULL;
    if (choice && choice->args[0]->type->is_tensor == false) return false;
    if (!sum->def || sum->def->owner != body || !matches(sum, combine->last->args[0], combine, a, &x) || !x)
        return false;
    if (use_count(inside, y) != 1 || (choice && use_count(inside, sum) != 1)) return false;
    /* `a` must have no uses outside the pattern: those in the region, and the select's */
    int wanted = use_count(&reduce->regions[0], combine->args[0]) + (choice != NULL);
    if (use_count(inside, a) != wanted || use_count(kernel, a) != wanted) return false;

    const type *small = reduce->results[0].type;
    bool by_lane = !t->target.is_cpu;
    int axis = (int)op_attr_int(reduce, "axis", 0), lanes = tile_lanes(t), last = x->type->rank - 1;
    type parts = *x->type; /* […, lanes]; with one more dimension […, length / lanes, lanes] */
    if (by_lane) {
        if (axis != last || x->type->shape[last] < 4 * lanes || last + 2 > MAX_RANK) return false;
        parts.shape[last] = lanes;
        small = type_make(t, parts);
        parts.rank++;
        parts.shape[last] = x->type->shape[last] / lanes;
        parts.shape[last + 1] = lanes;
    }
    op *end = body->last;
    if (choice) {
        op *identity = new_constant(t, loop, x->type, number),
           *where = op_new(t, OP_SELECT, choice->at, 3, 1, 0);
        where->args[0] = choice->args[0];
        where->args[1] = x;
        where->args[2] = &identity->results[0];
        where->results[0].type = x->type;
        op_insert_before(identity, loop);
        op_insert_before(where, end);
        x = &where->results[0];
    }
    if (by_lane) {
        op *split = op_new(t, OP_RESHAPE, reduce->at, 1, 1, 0);
        split->args[0] = x;
        split->results[0].type = type_make(t, parts);
        op_insert_before(split, end);
        x = &split->results[0];
    }
    op *step = clone_op(t, reduce), *start = new_constant(t, loop, small, number);
    step->args[0] = x;
    step->results[0].type = small;
    op_insert_before(step, end);
    op_insert_before(start, loop);
    /* remove the operations that computed the old value, last one first */
    for (op *o = end->prev, *before; o; o = before) {
        before = o->prev;
        if (o != step && o->result_count == 1 && o->region_count == 0 && &o->results[0] != x &&
            (&o->results[0] == y ? use_count(inside, y) == 1 : use_count(inside, &o->results[0]) == 0) &&
            o->code != OP_ATOMIC_RMW && o->code != OP_ATOMIC_CAS && o->code != OP_LOAD)
            op_remove(o);
    }
    a->type = result->type = small;
    loop->args[index + 3] = &start->results[0];
    end->args[index] = combined(t, reduce, a, &step->results[0], end);
    if (by_lane) return true;
    replace_uses(kernel, &reduce->results[0], result);
    op_remove(reduce);
    return true;
}

static void analyze_region(tile *t, region *r) {
    for (block *b = r->first; b; b = b->next)
        for (op *o = b->first; o; o = o->next) {
            for (int i = 0; i < o->region_count && o->code != OP_REDUCE && o->code != OP_SCAN; i++)
                analyze_region(t, &o->regions[i]);
            if (o->code != OP_FOR) continue;
            for (int i = 0; i < o->result_count; i++) sink(t, o, i);
        }
}

void tile_analyze(tile *t) {
    tile_merge(t);
    analyze_region(t, &t->kernel->regions[0]);
}
