/* Emits blocks of operations: loop-carried values, pipelined loops, control flow, function bodies. */
#include <string.h>

#include "tile/emit.h"

/* --- blocks --- */

static void comment(emitter *e, const op *o) {
    if (!e->t->options->comments) return;
    buffer_addf(e->t, &e->scopes[e->depth].text, "%*s/* %s%s%s */\n", 4 * e->scopes[e->depth].indent, "",
                op_table[o->code].name, o->loc ? " at " : "", o->loc && !strstr(o->loc, "*/") ? o->loc : "");
}

static void emit_scalar(emitter *e, op *o) {
    for (int i = 0; i < o->arg_count; i++) /* tt.split has an operand of two elements */
        if (e->group.shape && !available(e, o->args[i], true, 64)) flush(e);
    bool loads = op_table[o->code].kind == KIND_LOAD || o->code == OP_GATHER;
    if (loads && e->group.shape && (e->group.has_effect || e->group.has_assert || o->code == OP_GATHER))
        flush(e);
    for (int i = 0; i < o->result_count; i++) emit_value(e, &o->results[i], NULL);
}

static void copy_to(emitter *e, value *from, materialized *to) {
    add_root(e, (root){.kind = ROOT_COPY, .value = from, .to = to}, from->type, -1);
}

static const char *scalar_text(emitter *e, value *v) {
    if (v->pending && v->pending == e->group.serial && e->group.shape) flush(e);
    expr x = emit_value(e, v, NULL);
    if (!x.root) return x.text;
    return tile_format(e->t, "(ulong)(%s + %s)", x.root, x.text);
}

/* A C variable that stands for a scalar which changes: a loop-carried one, or a branch's result. */
static const char *variable(emitter *e, value *v, const char *init) {
    const char *name = tile_format(e->t, "s%d", v->id);
    const char *ty = v->type->is_pointer ? "ulong" : c_type(v->type);
    if (init)
        emit_line(e, e->depth, "%s %s = %s;", ty, name, init);
    else
        emit_line(e, e->depth, "%s %s;", ty, name);
    return name;
}

static void bind(emitter *e, value *v, const char *name, int depth) {
    expr x = {.text = name, .kind = UNIFORM, .depth = depth, .divisor = 1};
    if (v->type->is_pointer) {
        x.root = tile_format(e->t, "((__global %s *)%s)", c_stored(v->type->element), name);
        x.text = "0";
        x.is_constant = true;
    }
    remember(e, v, NULL, x);
}

static void enter_block(emitter *e, int *outer) {
    *outer = e->block_depth;
    e->block_depth = e->depth;
}

/* Would computing `v` read one of the arrays that the others' new values go to, elsewhere than it is written?
 */
static bool reads_carried(const value *v, value *const *to, int count, const type *shape, bool moved,
                          int budget) {
    if (is_scalar(v)) return false;
    if (v->materialized) {
        for (int i = 0; i < count; i++)
            if (to[i]->materialized && to[i]->materialized->name == v->materialized->name)
                return moved || v->type->count != shape->count;
        return false;
    }
    if (v->offset) return reads_carried(v->offset->start, to, count, shape, moved, budget);
    if (!v->def || budget <= 0) return true;
    for (int i = 0; i < v->def->arg_count; i++)
        if (reads_carried(v->def->args[i], to, count, shape, moved || moves_elements(v->def->code),
                          budget - 1))
            return true;
    return false;
}

/* What a scalar that a loop carries becomes. */
static const char *next_text(emitter *e, value *now, const value *carried) {
    const op *o = now->def;
    const char *x = scalar_text(e, now);
    if (!o || (o->code != OP_ADDI && o->code != OP_ADDPTR) || o->args[0] != carried) return x;
    expr step = emit_value(e, o->args[1], NULL);
    return increment_text(e, now->type, x, &step);
}

/* The number that all elements of `v` are, computed from what it is made of: others, as a gather's operand,
 * may be materialized in an array, of which a lane has no place here. */
static expr number_of_splat(emitter *e, value *v) {
    enum { MOST = 32 };
    value *seen[MOST] = {v};
    materialized *arrays[MOST];
    int count = 1;
    for (int i = 0; i < count; i++) {
        arrays[i] = seen[i]->materialized, seen[i]->materialized = NULL;
        for (int k = 0; seen[i]->def && k < seen[i]->def->arg_count && count < MOST; k++)
            seen[count++] = seen[i]->def->args[k];
    }
    const expr x = emit_value(e, v, make_coords(e, 0, NULL, NULL));
    for (int i = count - 1; i >= 0; i--) seen[i]->materialized = arrays[i];
    return x;
}

/* Assigns new values to carried ones: tensors through one group, scalars through temporaries, all together.
 */
static void assign_carried(emitter *e, value *const *from, value *const *to, int count,
                           const char *const *names) {
    value **now = NEW_ARRAY(e->t, value *, count); /* NULL: nothing to copy */
    for (int i = 0; i < count; i++) {
        if (is_scalar(to[i]) || to[i]->offset || !to[i]->materialized || from[i] == to[i]) continue;
        if (from[i]->materialized && from[i]->materialized->name == to[i]->materialized->name) continue;
        now[i] = from[i];
        if (!reads_carried(from[i], to, count, from[i]->type, false, 64)) continue;
        value *copy = NEW(e->t, value); /* first to an array of its own */
        *copy = (value){.type = from[i]->type, .id = from[i]->id};
        copy->materialized = NEW(e->t, materialized);
        *copy->materialized = (materialized){
            .type = from[i]->type, .lane_dim = lane_dim(e->t, from[i]->type), .last_use = e->now};
        hold_allocate(e, copy->materialized);
        copy_to(e, from[i], copy->materialized);
        now[i] = copy;
    }
    for (int i = 0; i < count; i++)
        if (now[i] && now[i] != from[i]) flush(e);
    for (int i = 0; i < count; i++)
        if (now[i]) copy_to(e, now[i], to[i]->materialized);
    flush(e);
    const char *texts[MAX_ROOTS];
    for (int i = 0; i < count; i++) {
        if (!names[i]) continue;
        if (to[i]->offset) {
            expr x = number_of_splat(e, to[i]->offset->step);
            const char *sum = tile_format(e->t, "%s + %s", names[i], x.text);
            emit_line(e, e->depth, "%s = %s;", names[i], increment_text(e, to[i]->type, sum, &x));
            continue;
        }
        texts[i] = next_text(e, from[i], to[i]);
        if (count > 1) {
            const char *temporary = new_name(e, "t");
            emit_line(e, e->depth, "const %s %s = %s;",
                      to[i]->type->is_pointer ? "ulong" : c_type(to[i]->type), temporary, texts[i]);
            texts[i] = temporary;
        }
    }
    for (int i = 0; i < count; i++)
        if (names[i] && !to[i]->offset && strcmp(texts[i], names[i]))
            emit_line(e, e->depth, "%s = %s;", names[i], texts[i]);
}

/* Does the dot's accumulator come from `arg` alone, at the same coordinates, and is that all that reads it?
 */
bool accumulates(const value *arg, const op *dot) {
    const value *v = dot->args[2];
    while (v != arg) {
        const op *o = v->def;
        if (v->uses != 1 || !o || v->materialized) return false;
        const value *next = NULL;
        for (int i = 0; i < o->arg_count; i++) {
            value *from = o->args[i];
            bool spreads = from->def && (from->def->code == OP_BROADCAST || is_splat(from));
            if (from == arg)
                next = arg;
            else if (from->type == arg->type && !from->materialized && !spreads)
                next = next ? NULL : from;
        }
        if (!next || o->result_count != 1) return false;
        int kind = op_table[o->code].kind;
        if (kind < KIND_INT1 || kind > KIND_FLOAT3) return false;
        v = next;
    }
    return arg->uses == 1;
}

/* A dot that only updates a carried value works in that value's array. */
static void share_accumulators(op *loop, block *body, value *const *yields) {
    for (int i = 1; i < body->arg_count; i++) {
        op *o = yields[i - 1]->def;
        if (!o || o->owner != body || (o->code != OP_DOT && o->code != OP_DOT_SCALED) ||
            !body->args[i]->materialized)
            continue;
        if (accumulates(body->args[i], o)) o->results[0].materialized = body->args[i]->materialized;
    }
}

static void finish_results(op *o, value *const *carried) {
    for (int i = 0; i < o->result_count; i++) {
        materialized *h = o->results[i].materialized;
        if (!h || !carried[i]->materialized) continue;
        if (carried[i]->materialized->last_use < h->last_use)
            carried[i]->materialized->last_use = h->last_use;
        o->results[i].materialized = carried[i]->materialized;
    }
}

/* Lets carried value `number` of a loop, which starts as a copy of another, have its array, where nothing
 * else reads that. */
static bool take_over(emitter *e, op *loop, int number, materialized *to) {
    materialized *from = loop->args[number + 3]->materialized;
    if (!from || !from->name || to->name || from->last_use > e->now || from->is_shared || from == to ||
        from->type != to->type || from->lane_dim != to->lane_dim || from->order != to->order ||
        from->packed != to->packed || from->grid != to->grid || from->in_registers != to->in_registers)
        return false;
    for (int i = 3; i < loop->arg_count; i++)
        if (i != number + 3 && loop->args[i]->materialized == from) return false;
    to->name = from->name;
    to->joined = from;
    for (materialized **h = &e->in_use; *h; h = &(*h)->next)
        if (*h == from) {
            to->next = from->next;
            *h = to;
            break;
        }
    return true;
}

/* --- operands of dots that a loop copies in some iterations ahead --- */

static bool is_inside(const op *o, const block *body) {
    for (const block *b = o->owner; b; b = b->owner->owner ? b->owner->owner->owner : NULL)
        if (b == body) return true;
    return false;
}

/* Can `v` be had of another iteration, by the loop's index and what moves by the same number each time? */
static bool is_foreseen(const value *v, const block *body, int *budget) {
    if (--*budget < 0) return false;
    if (!v->def && v->owner == body) {
        const value *step = v->offset ? v->offset->step : NULL;
        return v == body->args[0] || (step && !(step->def && is_inside(step->def, body)) &&
                                      is_foreseen(v->offset->start, body, budget));
    }
    if (!v->def || !is_inside(v->def, body)) return true;
    if (v->def->owner != body || !is_pure(v->def) || v->materialized) return false;
    for (int i = 0; i < v->def->arg_count; i++)
        if (!is_foreseen(v->def->args[i], body, budget)) return false;
    return true;
}

static bool is_ahead(const value *v, const op *loop, const block *body) {
    const op *o = v->def;
    int budget = 1000;
    if (!v->materialized || !v->materialized->is_copied || v->materialized->name ||
        v->materialized->last_use > loop->end)
        return false;
    for (int i = 0; i < o->arg_count; i++)
        if (!is_foreseen(o->args[i], body, &budget)) return false;
    return true;
}

/* The operands that a pipelined loop prefetches. While an iteration computes, the copies for the next
 * `stages` - 1 iterations are in flight, each to its own stage of the operand's array. */
typedef struct ahead {
    value *values[MAX_ROOTS];
    const char *arrays[MAX_ROOTS];
    int count, stages;
    const char *now; /* the current iteration's stage */
    const char *index, *low, *high, *step;
    expr number; /* the loop index as an expression */
} ahead;

static bool is_hurried(const tile *t, const region *r) {
    for (const block *b = r->first; b; b = b->next)
        for (const op *o = b->first; o; o = o->next) {
            bool asserts = o->code == OP_ASSERT && t->options->debug_asserts;
            if (op_writes(o) || asserts || o->code == OP_BARRIER || o->code == OP_GPU_BARRIER) return false;
            for (int i = 0; i < o->region_count; i++)
                if (!is_hurried(t, &o->regions[i])) return false;
        }
    return true;
}

static void find_ahead(emitter *e, op *o, ahead *a) {
    block *body = o->regions[0].first;
    *a = (ahead){.stages = e->t->stages};
    if (a->stages < 2 || !is_hurried(e->t, &o->regions[0])) return;
    for (op *load = body->first; load; load = load->next) {
        if (load->code != OP_LOAD || a->count == MAX_ROOTS || !is_ahead(&load->results[0], o, body)) continue;
        a->values[a->count++] = &load->results[0];
    }
    if (a->count) e->ahead = true;
}

/* The stage of each array that is written or read from here on. */
static void name_stage(emitter *e, const ahead *a, const char *stage) {
    for (int i = 0; i < a->count; i++)
        a->values[i]->materialized->name =
            tile_format(e->t, "(%s + %s * %lld)", a->arrays[i], stage, (long long)a->values[i]->type->count);
}

/* In a scope: copies in the operands of the iteration `by` ahead of the one at `from`, where the loop's
 * offsets are `moved` (a format of an offset's name and step). */
static void copy_iteration(emitter *e, op *o, const ahead *a, const char *by, const char *from,
                           bool is_first) {
    block *body = o->regions[0].first;
    const char *ty = c_type(body->args[0]->type), *next[MAX_ROOTS + 1] = {NULL};
    open_scope(e, "if ((long)%s + %s * (long)%s < (long)%s) {", from, by, a->step, a->high);
    for (int i = 0; i < body->arg_count; i++) {
        const value *arg = body->args[i];
        if (i && !arg->offset) continue;
        const char *step = a->step, *old = from;
        if (i) {
            step = emit_value(e, arg->offset->step, make_coords(e, 0, NULL, NULL)).text;
            old = is_first ? "0" : arg->offset->name;
        }
        next[i] = new_name(e, "ahead");
        emit_line(e, e->depth, "const %s %s = %s + %s * %s;",
                  i == 0                  ? ty
                  : arg->type->is_pointer ? "long"
                                          : c_type(arg->type),
                  next[i], old, by, step);
    }
    open_scope(e, "{");
    int outer;
    enter_block(e, &outer);
    for (int i = 0; i < body->arg_count; i++) { /* under the loop's names */
        const value *arg = body->args[i];
        if (!next[i]) continue;
        emit_line(e, e->depth, "const %s %s = %s;",
                  i == 0                  ? ty
                  : arg->type->is_pointer ? "long"
                                          : c_type(arg->type),
                  i ? arg->offset->name : a->index, next[i]);
    }
    expr number = a->number;
    number.depth = e->depth;
    if (is_first) remember(e, body->args[0], NULL, number);
    for (int i = 0; i < a->count; i++) fill_ahead(e, a->values[i]);
    e->block_depth = outer;
    close_scope(e, "}");
    close_scope(e, "}");
}

static void begin_prefetch(emitter *e, op *o, ahead *a) {
    const char *n = new_name(e, "n");
    barrier_if_touched(e);
    for (int i = 0; i < a->count; i++) {
        materialized *h = a->values[i]->materialized;
        h->stages = a->stages;
        hold_allocate(e, h);
        h->is_shared = true;
        a->arrays[i] = h->name;
    }
    a->now = new_name(e, "now");
    emit_line(e, e->depth, "int %s = 0;", a->now);
    open_scope(e, "for (int %s = 0; %s < %d; %s++) {", n, n, a->stages - 1, n);
    name_stage(e, a, n);
    copy_iteration(e, o, a, n, a->low, true);
    emit_line(e, e->depth, "commit_copies();");
    close_scope(e, "}");
}

/* The current iteration's operands are here, everybody has read those of the one before, and in their place
 * come the last of those under way. */
static void next_ahead(emitter *e, op *o, const ahead *a) {
    emit_line(e, e->depth, "WAIT_FOR_COPIES(%d);", a->stages - 2);
    emit_line(e, e->depth, "barrier(CLK_LOCAL_MEM_FENCE);");
    name_stage(e, a, tile_format(e->t, "(%s ? %s - 1 : %d)", a->now, a->now, a->stages - 1));
    copy_iteration(e, o, a, tile_format(e->t, "%d", a->stages - 1), a->index, false);
    emit_line(e, e->depth, "commit_copies();");
    name_stage(e, a, a->now);
}

static void emit_for(emitter *e, op *o) {
    block *body = o->regions[0].first;
    int n = o->result_count, outer;
    const char *names[MAX_ROOTS] = {NULL};
    if (n > MAX_ROOTS) tile_unsupported(e->t, o->at, "more than %d loop-carried values", MAX_ROOTS);
    const char *bounds[3];
    for (int i = 0; i < 3; i++) bounds[i] = scalar_text(e, o->args[i]);
    expr low = emit_value(e, o->args[0], NULL), step = emit_value(e, o->args[2], NULL);
    finish_results(o, body->args + 1);
    share_accumulators(o, body, body->last->args);
    for (int i = 0; i < n; i++) {
        value *arg = body->args[i + 1];
        if (arg->offset) {
            const char *ty = arg->type->is_pointer ? "long" : c_type(arg->type);
            names[i] = arg->offset->name = new_name(e, "o");
            emit_line(e, e->depth, "%s %s = 0;", ty, names[i]);
        } else if (is_scalar(arg)) {
            const char *init = scalar_text(e, o->args[i + 3]);
            names[i] = variable(e, arg, init);
        } else if (!take_over(e, o, i, arg->materialized)) {
            hold_allocate(e, arg->materialized);
            copy_to(e, o->args[i + 3], arg->materialized);
        }
    }
    flush(e);
    const char *ty = c_type(body->args[0]->type), *index = new_name(e, "i");
    expr i = {.text = index,
              .kind = UNIFORM,
              .divisor = low.divisor < step.divisor ? low.divisor : step.divisor,
              .is_nonnegative = low.is_nonnegative && step.is_nonnegative};
    ahead a;
    find_ahead(e, o, &a);
    a.index = index, a.low = bounds[0], a.high = bounds[1], a.step = bounds[2], a.number = i;
    if (a.count) begin_prefetch(e, o, &a);
    open_for(e, ty, index, bounds, &step);
    enter_block(e, &outer);
    uint64_t weight = e->weight;
    if (e->weight < (uint64_t)1 << 40) e->weight *= 8;
    i.depth = e->depth;
    remember(e, body->args[0], NULL, i);
    for (int k = 0; k < n; k++)
        if (names[k] && !body->args[k + 1]->offset) bind(e, body->args[k + 1], names[k], e->depth);
    if (a.count) next_ahead(e, o, &a);
    emit_block(e, body);
    assign_carried(e, body->last->args, body->args + 1, n, names);
    barrier_if_touched(e);
    if (a.count) emit_line(e, e->depth, "%s = %s == %d ? 0 : %s + 1;", a.now, a.now, a.stages - 1, a.now);
    e->weight = weight;
    e->block_depth = outer;
    close_scope(e, "}");
    if (a.count) e->touches_local = true; /* the last ones are still being read */
    for (int k = 0; k < n; k++)
        if (names[k] && !body->args[k + 1]->offset) bind(e, &o->results[k], names[k], e->depth);
}

static void emit_if(emitter *e, op *o) {
    const char *names[MAX_ROOTS] = {NULL};
    int n = o->result_count, outer;
    if (n > MAX_ROOTS) tile_unsupported(e->t, o->at, "more than %d results", MAX_ROOTS);
    const char *condition = scalar_text(e, o->args[0]);
    flush(e);
    for (int i = 0; i < n; i++)
        if (is_scalar(&o->results[i]))
            names[i] = variable(e, &o->results[i], NULL);
        else if (o->results[i].materialized)
            hold_allocate(e, o->results[i].materialized);
    for (int k = 0; k < o->region_count; k++) {
        if (k && !o->regions[k].first->first->next && !n) break; /* nothing but the yield */
        open_scope(e, k ? "} else {" : "if (%s) {", condition);
        enter_block(e, &outer);
        emit_block(e, o->regions[k].first);
        value **results = NEW_ARRAY(e->t, value *, n);
        for (int i = 0; i < n; i++) results[i] = &o->results[i];
        assign_carried(e, o->regions[k].first->last->args, results, n, names);
        barrier_if_touched(e);
        e->block_depth = outer;
        close_scope(e, NULL);
    }
    emit_line(e, e->depth, "}");
    for (int i = 0; i < n; i++)
        if (names[i]) bind(e, &o->results[i], names[i], e->depth);
}

static void emit_while(emitter *e, op *o) {
    block *before = o->regions[0].first, *after = o->regions[1].first;
    const char *names[MAX_ROOTS] = {NULL}, *results[MAX_ROOTS] = {NULL};
    int n = before->arg_count, m = o->result_count, outer;
    if (n > MAX_ROOTS || m > MAX_ROOTS)
        tile_unsupported(e->t, o->at, "more than %d loop-carried values", MAX_ROOTS);
    finish_results(o, after->args);
    for (int i = 0; i < n; i++)
        if (is_scalar(before->args[i])) {
            names[i] = variable(e, before->args[i], scalar_text(e, o->args[i]));
        } else {
            hold_allocate(e, before->args[i]->materialized);
            copy_to(e, o->args[i], before->args[i]->materialized);
        }
    flush(e);
    for (int i = 0; i < m; i++)
        if (is_scalar(&o->results[i]))
            results[i] = variable(e, &o->results[i], NULL);
        else
            hold_allocate(e, after->args[i]->materialized);
    open_scope(e, "for (;;) {");
    e->scopes[e->depth].is_loop = true;
    enter_block(e, &outer);
    uint64_t weight = e->weight;
    if (e->weight < (uint64_t)1 << 40) e->weight *= 8;
    for (int i = 0; i < n; i++)
        if (names[i]) bind(e, before->args[i], names[i], e->depth);
    emit_block(e, before);
    op *condition = before->last;
    const char *holds = scalar_text(e, condition->args[0]);
    assign_carried(e, condition->args + 1, after->args, m, results);
    barrier_if_touched(e);
    emit_line(e, e->depth, "if (!(%s)) break;", holds);
    for (int i = 0; i < m; i++)
        if (results[i]) bind(e, after->args[i], results[i], e->depth);
    emit_block(e, after);
    assign_carried(e, after->last->args, before->args, n, names);
    barrier_if_touched(e);
    e->weight = weight;
    e->block_depth = outer;
    close_scope(e, "}");
    for (int i = 0; i < m; i++)
        if (results[i]) bind(e, &o->results[i], results[i], e->depth);
}

/* What is pure is computed where it is wanted; here only scalars, and what is materialized. */
static void emit_pure(emitter *e, op *o) {
    if (o->code == OP_INLINE_ASM)
        tile_unsupported(e->t, o->at, "inline assembly is for one vendor's hardware: it can't run here");
    if (!o->result_count || o->results[0].type->is_descriptor) return;
    if (is_scalar(&o->results[0])) {
        emit_scalar(e, o);
        return;
    }
    for (int i = 0; i < o->result_count; i++) {
        value *v = &o->results[i];
        if (!v->materialized || v->materialized->name) continue;
        hold_allocate(e, v->materialized);
        add_root(e, (root){.kind = ROOT_HOLD, .value = v}, v->type, -1);
    }
}

/* Its lanes read and write any elements. */
static void share_arrays(op *o) {
    for (int i = 0; i < o->arg_count; i++)
        if (o->args[i]->materialized) o->args[i]->materialized->is_cross_lane = true;
    for (int i = 0; i < o->result_count; i++)
        if (o->results[i].materialized) o->results[i].materialized->is_cross_lane = true;
}

static void emit_op(emitter *e, op *o) {
    const type *shape = o->arg_count ? o->args[0]->type : NULL;
    e->now = o->id;
    if (is_pure(o)) {
        emit_pure(e, o);
        return;
    }
    switch (o->code) {
    case OP_STORE:
    case OP_ATOMIC_RMW:
    case OP_ATOMIC_CAS:
        if (is_scalar(o->args[0])) {
            comment(e, o);
            flush(e);
            emit_scalar_atomic(e, o);
        } else {
            for (int i = 0; i < o->result_count; i++)
                if (o->results[i].materialized) hold_allocate(e, o->results[i].materialized);
            add_root(e, (root){.op = o}, shape, -1);
        }
        break;
    case OP_DESCRIPTOR_STORE:
    case OP_DESCRIPTOR_REDUCE:
    case OP_DESCRIPTOR_SCATTER:
        flush(e);
        add_root(e, (root){.op = o}, o->args[o->arg_count - 1]->type, -1);
        flush(e);
        break;
    case OP_REDUCE:
    case OP_SCAN:
        for (int i = 0; i < o->result_count; i++)
            if (o->results[i].materialized) hold_allocate(e, o->results[i].materialized);
        if (is_scalar(o->args[0])) { /* of one element */
            flush(e);
            for (int i = 0; i < o->arg_count; i++)
                remember(e, &o->results[i], NULL, emit_value(e, o->args[i], NULL));
        } else {
            add_root(e, (root){.op = o}, shape, (int)op_attr_int(o, "axis", 0));
        }
        break;
    case OP_DOT:
    case OP_DOT_SCALED:
        flush(e);
        comment(e, o);
        emit_dot(e, o);
        barrier_if_touched(e);
        break;
    case OP_HISTOGRAM:
        flush(e);
        share_arrays(o);
        emit_histogram(e, o);
        barrier_if_touched(e);
        break;
    case OP_ASSERT:
        if (!e->t->options->debug_asserts) break;
        if (is_scalar(o->args[0])) {
            flush(e);
            emit_assert(e, o, NULL);
        } else {
            add_root(e, (root){.op = o}, shape, -1);
        }
        break;
    case OP_PRINT:
        if (!o->arg_count || is_scalar(o->args[0])) {
            flush(e);
            emit_message(e, o, NULL, "lane == 0");
        } else {
            add_root(e, (root){.op = o}, shape, -1);
        }
        break;
    case OP_ASSUME: break;
    case OP_BARRIER:
    case OP_GPU_BARRIER:
        flush(e);
        emit_barrier(e, FENCE_GLOBAL | FENCE_LOCAL);
        break;
    case OP_FOR:
        flush(e);
        comment(e, o);
        emit_for(e, o);
        break;
    case OP_IF:
        comment(e, o);
        emit_if(e, o);
        break;
    case OP_WHILE:
        flush(e);
        comment(e, o);
        emit_while(e, o);
        break;
    default: break;
    }
}

void emit_block(emitter *e, block *b) {
    for (op *o = b->first; o; o = o->next) {
        if (op_table[o->code].kind == KIND_END) break;
        emit_op(e, o);
    }
    e->now = b->last ? b->last->id : e->now;
}

/* --- a function's body of several blocks: labels and gotos --- */

static void emit_jump(emitter *e, op *o, int index, const char *label_prefix) {
    int first = o->code == OP_COND_BR;
    for (int i = 0; i < index; i++) first += o->target_args[i];
    block *to = o->targets[index];
    const char *names[MAX_ROOTS] = {NULL};
    if (to->arg_count > MAX_ROOTS) tile_unsupported(e->t, o->at, "more than %d block arguments", MAX_ROOTS);
    for (int i = 0; i < to->arg_count; i++)
        if (is_scalar(to->args[i])) names[i] = tile_format(e->t, "s%d", to->args[i]->id);
    assign_carried(e, o->args + first, to->args, to->arg_count, names);
    barrier_if_touched(e);
    emit_line(e, e->depth, "goto %s%d;", label_prefix, to->id);
}

void emit_body(emitter *e, region *r) {
    for (block *b = r->first->next; b; b = b->next)
        for (int i = 0; i < b->arg_count; i++)
            if (is_scalar(b->args[i])) {
                variable(e, b->args[i], NULL);
                bind(e, b->args[i], tile_format(e->t, "s%d", b->args[i]->id), e->depth);
            } else {
                if (!b->args[i]->materialized) continue;
                hold_allocate(e, b->args[i]->materialized);
                b->args[i]->materialized->is_shared = true;
            }
    bool single = r->block_count == 1;
    for (block *b = r->first; b; b = b->next) {
        int outer;
        if (b != r->first) {
            for (materialized *h = e->in_use; h; h = h->next)
                h->is_shared = true; /* a value may be read in any later block */
            buffer_addf(e->t, &e->scopes[e->depth].text, "bb%d:;\n", b->id);
            for (int i = 0; i < b->arg_count; i++)
                if (is_scalar(b->args[i]))
                    bind(e, b->args[i], tile_format(e->t, "s%d", b->args[i]->id), e->depth);
            if (e->t->target.is_cpu) emit_line(e, e->depth, "TILE_RECONVERGE;"); /* the block may be a loop */
        }
        enter_block(e, &outer);
        emit_block(e, b);
        flush(e);
        if (!single) {
            op *last = b->last;
            if (last->code == OP_COND_BR) {
                open_scope(e, "if (%s) {", scalar_text(e, last->args[0]));
                emit_jump(e, last, 0, "bb");
                close_scope(e, "}");
                emit_jump(e, last, 1, "bb");
            } else if (last->code == OP_BR) {
                emit_jump(e, last, 0, "bb");
            } else {
                emit_line(e, e->depth, "return;");
            }
            e->scopes[e->depth].serial =
                ++e->serials; /* what was computed here isn't known in the next block */
            for (block *c = r->first; c != b->next; c = c->next) { /* but scalars, where they dominate, are */
                for (op *o = c->first; o; o = o->next)
                    for (int i = 0; i < o->result_count; i++)
                        for (memo *m = o->results[i].memo; m; m = m->next)
                            if (!m->at && m->result.depth == e->depth) m->serial = e->serials;
                for (int i = 0; i < c->arg_count; i++)
                    if (c->args[i]->memo) c->args[i]->memo->serial = e->serials;
            }
        }
        e->block_depth = outer;
    }
}
