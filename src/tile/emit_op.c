/* Emits the loops of a group: reductions, scans, and stores to materialized arrays; also histograms. */
#include <string.h>

#include "tile/emit.h"

#define TRANSPOSE_LANES 16 /* lanes, and vectors, of a square */

enum { MOST_UNROLLED = 6 /* roots of a group whose loop is unrolled */ };

/* --- combine regions --- */

/* out = region(left, right), both of n values. */
void emit_combine(emitter *e, op *o, const expr *left, const expr *right, expr *out) {
    block *b = o->regions[0].first;
    int n = o->arg_count;
    for (int i = 0; i < 2 * n; i++) {
        b->args[i]->memo = NULL;
        expr x = i < n ? left[i] : right[i - n];
        hide_least_integer(e, b->args[i]->type, &x);
        x.depth = e->depth;
        remember(e, b->args[i], NULL, x);
    }
    for (op *c = b->first; c != b->last; c = c->next) {
        if (!is_pure(c))
            tile_unsupported(e->t, c->at, "%s in the region of %s", op_table[c->code].name,
                             op_table[o->code].name);
        for (int i = 0; i < c->result_count; i++) c->results[i].memo = NULL;
        for (int i = 0; i < c->result_count; i++) emit_value(e, &c->results[i], NULL);
    }
    for (int i = 0; i < n; i++) out[i] = emit_value(e, b->last->args[i], NULL);
}

/* The one operation of a simple region: add, multiply, min, max, and, or, xor. */
static op_code simple_combine(const op *o) {
    const block *b = o->regions[0].first;
    const op *c = b->first;
    if (o->arg_count != 1 || c->next != b->last || c->arg_count != 2 || b->last->args[0] != &c->results[0])
        return OP_COUNT;
    bool both = (c->args[0] == b->args[0] && c->args[1] == b->args[1]) ||
                (c->args[0] == b->args[1] && c->args[1] == b->args[0]);
    return both ? c->code : OP_COUNT;
}

/* What leaves the other operand as it is; NULL if not known. */
static const char *identity(op_code code, element el) {
    switch (code) {
    case OP_ADDF: return "-0.0f";
    case OP_MULF: return "1.0f";
    case OP_MAXNUMF:
    case OP_MINNUMF: return "NAN";
    case OP_ADDI:
    case OP_ORI:
    case OP_XORI:
    case OP_MAXUI: return "0";
    case OP_MULI: return "1";
    case OP_ANDI:
    case OP_MINUI: return el == I1 ? "1" : "-1";
    case OP_MAXSI: return el == I32 ? "INT_MIN" : el == I64 ? "LONG_MIN" : NULL;
    case OP_MINSI: return el == I32 ? "INT_MAX" : el == I64 ? "LONG_MAX" : NULL;
    default: return NULL;
    }
}

/* The subgroup's own reduction, for types that it has. */
static const char *subgroup_reduction(op_code code, element el) {
    if (el != F32 && el != F64 && el != I32 && el != I64) return NULL;
    switch (code) {
    case OP_ADDF:
    case OP_ADDI: return "sub_group_reduce_add";
    case OP_MAXSI:
    case OP_MAXNUMF: return "sub_group_reduce_max";
    case OP_MINSI:
    case OP_MINNUMF: return "sub_group_reduce_min";
    default: return NULL;
    }
}

/* --- reductions and scans in a group --- */

static void begin_combines(emitter *e, plan *p) {
    for (int r = 0; r < e->group.count; r++) {
        root *c = &e->group.roots[r];
        if (c->kind != ROOT_OP || (c->op->code != OP_REDUCE && c->op->code != OP_SCAN)) continue;
        c->accumulators = NEW_ARRAY(e->t, expr, c->op->arg_count);
        for (int i = 0; i < c->op->arg_count; i++) {
            const type *ty = c->op->args[i]->type;
            const char *name = new_name(e, "a"), *start = identity(simple_combine(c->op), ty->element);
            if (ty->element == F64 && start) start = tile_format(e->t, "(double)%s", start);
            /* A value even if the first iteration sets it: tests/intel_cpu/faults/unset.cl */
            emit_line(e, e->depth, "%s %s = %s;", c_type(ty), name, start ? start : "0");
            c->accumulators[i] = (expr){.text = name, .kind = VARYING, .depth = e->depth, .divisor = 1};
        }
    }
}

static void assign(emitter *e, const expr *to, const expr *from, int n) {
    for (int i = 0; i < n; i++)
        if (strcmp(to[i].text, from[i].text))
            emit_line(e, e->depth, "%s = %s;", to[i].text, lane_text(e, &from[i]));
}

/* accumulators = first ? x : combine(accumulators, x) */
static void accumulate(emitter *e, const root *r, const plan *p, const expr *x) {
    op *o = r->op;
    int n = o->arg_count;
    expr *sum = NEW_ARRAY(e->t, expr, n), *left = r->accumulators;
    bool starts = identity(simple_combine(o), o->args[0]->type->element) != NULL;
    const char *first = p->part ? NULL : p->first;
    if (!starts && first) {
        open_scope(e, "if (%s) {", first);
        assign(e, left, x, n);
        close_scope(e, NULL);
        open_scope(e, "} else {");
    }
    if (starts || p->first || p->part) {
        int outer = e->block_depth;
        e->block_depth = e->depth; /* the accumulator changes: nothing computed from it may move out */
        emit_combine(e, o, left, x, sum);
        e->block_depth = outer;
        assign(e, left, sum, n);
    } else {
        assign(e, left, x, n);
    }
    if (!starts && first) close_scope(e, "}");
}

/* --- between lanes --- */

/* A local array with a place for each lane, for operand `slot` of an exchange. */
static const char *scratch(emitter *e, const type *ty, int slot) {
    const char *name = tile_format(e->t, "x_%s_%d", c_materialized(ty), slot);
    if (e->locals.size && strstr(e->locals.data, tile_format(e->t, " %s[", name))) return name;
    buffer_addf(e->t, &e->locals, "    __local %s %s[%d];\n", c_materialized(ty), name, e->lanes);
    e->local_memory += (uint64_t)e->lanes * 8;
    return name;
}

/* Intel's compiler loses 64-bit |, & and ^ of what lanes of a subgroup exchange
 * (docs/internals/compiler-faults.md). */
static bool needs_local_memory(const emitter *e, const op *o) {
    if (e->t->target.is_cpu) return false;
    for (const op *c = o->regions[0].first->first; c; c = c->next)
        if ((c->code == OP_ORI || c->code == OP_ANDI || c->code == OP_XORI) &&
            c->args[0]->type->element == I64)
            return true;
    return false;
}

void exchange(emitter *e, op *o, const expr *x, expr *y, int n, lane_move move, int by) {
    static const char *const subgroup[] = {"sub_group_shuffle_down", "sub_group_shuffle_up",
                                           "sub_group_shuffle_xor", "sub_group_shuffle"};
    static const char *const lanes[] = {"min(lane + %d, %d)", "max(lane - %d, 0)", "lane ^ %d", "%d"};
    const xpu_tile_target *target = &e->t->target;
    bool inside = target->is_cpu || (target->has_subgroups && move == FROM_PARTNER && by < e->t->subgroup &&
                                     !needs_local_memory(e, o));
    bool warp = target->has_inline_ptx && e->lanes % 32 == 0 && move == FROM_PARTNER && by < 32;
    const char *names[MAX_RANK], *mine[MAX_RANK];
    if (n > MAX_RANK) tile_unsupported(e->t, o->at, "more than %d operands", MAX_RANK);
    for (int i = 0; i < n; i++) mine[i] = lane_text(e, &x[i]);
    if (!inside && !warp) {
        for (int i = 0; i < n; i++) {
            names[i] = scratch(e, o->args[i]->type, i);
            emit_line(e, e->depth, "%s[lane] = %s;", names[i], mine[i]);
        }
        emit_line(e, e->depth, "barrier(CLK_LOCAL_MEM_FENCE);");
    }
    for (int i = 0; i < n; i++) {
        const type *ty = o->args[i]->type;
        expr z = {.kind = VARYING, .depth = e->depth, .divisor = 1};
        bool bit = ty->element == I1;
        if (warp)
            z.text = tile_format(e->t, bit ? "%s((int)%s, %d) != 0" : "%s(%s, %d)", use(e, "tile_warp_xor"),
                                 mine[i], by);
        else if (inside)
            z.text =
                tile_format(e->t, bit ? "%s((int)%s, %d) != 0" : "%s(%s, %d)", subgroup[move], mine[i], by);
        else
            z.text = tile_format(e->t, bit ? "%s[%s] != 0" : "%s[%s]", names[i],
                                 move == FROM_ABOVE ? tile_format(e->t, lanes[move], by, e->lanes - 1)
                                                    : tile_format(e->t, lanes[move], by));
        y[i] = declare(e, ty, z, "y", 0);
    }
    if (!inside && !warp) emit_line(e, e->depth, "barrier(CLK_LOCAL_MEM_FENCE);");
}

/* Combines what lanes have whose numbers differ in the bit `step` and those below it. */
static expr *cross_lane_bits(emitter *e, op *o, op_code simple, expr *mine, int step) {
    int n = o->arg_count;
    expr *other = NEW_ARRAY(e->t, expr, n);
    for (; step; step /= 2) {
        exchange(e, o, mine, other, n, FROM_PARTNER, step);
        expr *sum = NEW_ARRAY(e->t, expr, n);
        if (simple == OP_COUNT) { /* the lower lane's stands left, so that all lanes compute the same */
            expr *left = NEW_ARRAY(e->t, expr, n), *right = NEW_ARRAY(e->t, expr, n);
            for (int i = 0; i < n; i++) {
                expr x = {.kind = VARYING, .depth = e->depth, .divisor = 1}, y = x;
                const char *a = lane_text(e, &mine[i]), *b = lane_text(e, &other[i]);
                x.text = tile_format(e->t, "lane & %d ? %s : %s", step, b, a);
                y.text = tile_format(e->t, "lane & %d ? %s : %s", step, a, b);
                left[i] = declare(e, o->args[i]->type, x, "y", 0);
                right[i] = declare(e, o->args[i]->type, y, "y", 0);
            }
            emit_combine(e, o, left, right, sum);
        } else {
            emit_combine(e, o, mine, other, sum);
        }
        mine = sum;
    }
    return mine;
}

/* Combines what subgroups of `together` lanes have, `width` lanes a row: the first lane of each writes it,
 * all read all of their row's. Two places take turns, so that one barrier is enough: who writes to a place
 * again has passed the other's barrier, before which everybody had read. */
static void across_subgroups(emitter *e, op *o, op_code simple, expr *all, int width, int together) {
    expr *mine = all;
    int n = o->arg_count, groups = e->lanes / together, count = width / together;
    int jointly = count <= 8 ? 1 : count < together ? count : together; /* lanes that share the reading */
    const char *names[MAX_RANK];
    if (n > MAX_RANK) tile_unsupported(e->t, o->at, "more than %d operands", MAX_RANK);
    if (!e->locals.size || !strstr(e->locals.data, " turn = "))
        buffer_addf(e->t, &e->locals, "    int turn = 0;\n");
    emit_line(e, e->depth, "turn ^= %d;", groups);
    for (int i = 0; i < n; i++) {
        const char *type_name = c_materialized(o->args[i]->type);
        names[i] = tile_format(e->t, "g_%s_%d", type_name, i);
        if (!strstr(e->locals.data, tile_format(e->t, " %s[", names[i]))) {
            buffer_addf(e->t, &e->locals, "    __local %s %s[%d];\n", type_name, names[i], 2 * groups);
            e->local_memory += (uint64_t)groups * 16;
        }
        emit_line(e, e->depth, "if ((lane & %d) == 0) %s[turn + lane / %d] = %s;", together - 1, names[i],
                  together, lane_text(e, &mine[i]));
    }
    emit_line(e, e->depth, "barrier(CLK_LOCAL_MEM_FENCE);");
    const char *place = width == e->lanes ? "turn" : tile_format(e->t, "turn + lane / %d * %d", width, count);
    if (jointly > 1) place = tile_format(e->t, "%s + (lane & %d)", place, jointly - 1);
    for (int k = 0; k < count; k += jointly) {
        expr *read = NEW_ARRAY(e->t, expr, n), *sum = NEW_ARRAY(e->t, expr, n);
        for (int i = 0; i < n; i++) {
            bool bit = o->args[i]->type->element == I1;
            expr x = {.kind = VARYING, .depth = e->depth, .divisor = 1};
            x.text = tile_format(e->t, bit ? "%s[%s + %d] != 0" : "%s[%s + %d]", names[i], place, k);
            read[i] = declare(e, o->args[i]->type, x, "y", 0);
        }
        if (k) emit_combine(e, o, mine, read, sum);
        mine = k ? sum : read;
    }
    mine = cross_lane_bits(e, o, simple, mine, jointly / 2);
    for (int i = 0; i < n; i++) {
        mine[i].kind = all[i].kind;
        all[i] = mine[i];
    }
}

/* Combines the accumulators of the lanes along the axis; out is the same in all of them. */
static void across_lanes(emitter *e, const root *r, int64_t width, expr *out) {
    op *o = r->op;
    int n = o->arg_count, outer = e->block_depth, together = e->t->subgroup;
    const type *ty = o->args[0]->type;
    const xpu_tile_target *target = &e->t->target;
    op_code simple = simple_combine(o);
    bool shuffles = target->is_cpu || target->has_subgroups || (target->has_inline_ptx && together == 32);
    const char *whole =
        target->has_subgroups && width >= together ? subgroup_reduction(simple, ty->element) : NULL;
    expr *mine = NEW_ARRAY(e->t, expr, n);
    e->block_depth = e->depth;
    memcpy(mine, r->accumulators, sizeof(expr) * (size_t)n);
    if (!whole)
        mine =
            cross_lane_bits(e, o, simple, mine, (shuffles && width > together ? together : (int)width) / 2);
    for (int i = 0; i < n; i++) {
        expr x = {.text = lane_text(e, &mine[i]),
                  .kind = width == e->lanes ? UNIFORM : VARYING,
                  .depth = e->depth,
                  .divisor = 1};
        if (whole) x.text = tile_format(e->t, "%s(%s)", whole, x.text);
        out[i] = declare(e, o->args[i]->type, x, "r", o->results[i].id);
    }
    if (shuffles && width > together) across_subgroups(e, o, simple, out, (int)width, together);
    e->block_depth = outer;
}

void write_materialized(emitter *e, const value *v, const coords *at, const expr *x, const char *guard) {
    if (!v->materialized) return;
    expr i;
    const char *to = materialized_text(e, v->materialized, at, &i);
    const char *text =
        x->root ? tile_format(e->t, "(ulong)(%s + %s)", x->root, lane_text(e, x)) : lane_text(e, x);
    if (v->materialized->order) text = stored_text(e, v->materialized->packed, text);
    if (guard)
        emit_line(e, e->depth, "if (%s) %s = %s;", guard, to, text);
    else
        emit_line(e, e->depth, "%s = %s;", to, text);
}

/* After the axis' loop: results to their places. */
static void finish_reduction(emitter *e, const root *r, const plan *p) {
    op *o = r->op;
    expr *out = NEW_ARRAY(e->t, expr, o->arg_count);
    if (p->lanes_on_axis)
        across_lanes(e, r, p->width, out);
    else
        memcpy(out, r->accumulators, sizeof(expr) * (size_t)o->arg_count);
    for (int i = 0; i < o->result_count; i++) {
        if (is_scalar(&o->results[i])) {
            out[i].kind = UNIFORM;
            remember(e, &o->results[i], NULL, out[i]);
        } else {
            write_materialized(e, &o->results[i], p->outer, &out[i], p->guard);
        }
    }
}

/* One step of a scan: the results for the elements at hand. */
static void scan_step(emitter *e, root *r, plan *p, expr *x) {
    op *o = r->op;
    int n = o->arg_count, outer = e->block_depth;
    if (!p->lanes_on_axis) {
        accumulate(e, r, p, x);
        for (int i = 0; i < n; i++) {
            expr now = {.text = r->accumulators[i].text, .kind = VARYING, .depth = e->depth, .divisor = 1};
            x[i] = declare(e, o->args[i]->type, now, "v", o->results[i].id);
        }
    } else {
        e->block_depth = e->depth;
        for (int i = 0; i < n; i++) { /* a name of its own, in each lane */
            expr mine = {.text = lane_text(e, &x[i]), .kind = VARYING, .depth = e->depth, .divisor = 1};
            x[i] = declare(e, o->args[i]->type, mine, "x", o->results[i].id);
        }
        const char *place =
            p->width == e->lanes ? "lane" : tile_format(e->t, "(lane & %d)", (int)p->width - 1);
        for (int step = 1; step < p->width; step *= 2) { /* lanes below `step` keep what they have */
            expr *other = NEW_ARRAY(e->t, expr, n), *sum = NEW_ARRAY(e->t, expr, n);
            exchange(e, o, x, other, n, FROM_BELOW, step);
            emit_combine(e, o, other, x, sum);
            for (int i = 0; i < n; i++) {
                sum[i].text =
                    tile_format(e->t, "%s >= %d ? %s : %s", place, step, lane_text(e, &sum[i]), x[i].text);
                sum[i].kind = VARYING;
                sum[i].is_constant = false;
                sum[i].depth = e->depth;
                x[i] = declare(e, o->args[i]->type, sum[i], "x", o->results[i].id);
            }
        }
        if (p->first) { /* and what the chunks before gave */
            const char *names[MAX_RANK];
            for (int i = 0; i < n; i++) {
                names[i] = new_name(e, "v");
                emit_line(e, e->depth, "%s %s = %s;", c_type(o->args[i]->type), names[i], x[i].text);
            }
            open_scope(e, "if (!(%s)) {", p->first);
            e->block_depth = e->depth;
            expr *sum = NEW_ARRAY(e->t, expr, n);
            emit_combine(e, o, r->accumulators, x, sum);
            for (int i = 0; i < n; i++) emit_line(e, e->depth, "%s = %s;", names[i], lane_text(e, &sum[i]));
            close_scope(e, "}");
            e->block_depth = e->depth;
            for (int i = 0; i < n; i++) x[i].text = names[i];
            expr *last = NEW_ARRAY(e->t, expr, n);
            exchange(e, o, x, last, n, FROM_ONE, e->lanes - 1);
            assign(e, r->accumulators, last, n);
        }
        e->block_depth = outer;
    }
    for (int i = 0; i < n; i++) {
        x[i].depth = e->depth;
        remember(e, &o->results[i], p->at, x[i]);
        write_materialized(e, &o->results[i], p->at, &x[i], p->guard);
    }
}

/* --- a group --- */

/* Does `v` come from what an atomic or a scan of the open group gives? */
static bool awaits(const emitter *e, const value *v, int budget) {
    if (!v->def) return false;
    if (!is_pure(v->def)) return v->pending == e->group.serial;
    if ((v->materialized && v->pending != e->group.serial) || !budget) return false;
    for (int i = 0; i < v->def->arg_count; i++)
        if (awaits(e, v->def->args[i], budget - 1)) return true;
    return false;
}

static expr read_root(emitter *e, const root *r, const coords *at);

/* On a processor, whose programs have one subgroup, a block of fewer elements than lanes is read by all of
 * them, but stored by the first: the others see that, too. */
static void show_all_lanes(emitter *e, const plan *p) {
    if (p->guard && e->t->target.is_cpu) emit_barrier(e, FENCE_GLOBAL);
}

static void emit_root(emitter *e, root *r, plan *p) {
    op *o = r->op;
    if (r->kind == ROOT_HOLD) {
        expr x;
        if (!recall(e, r->value, p->at, &x)) x = read_root(e, r, p->at);
        bool all = e->t->target.is_cpu && !awaits(e, r->value, 64); /* a processor writes them all at once */
        write_materialized(e, r->value, p->at, &x, all ? NULL : p->guard);
        return;
    }
    switch (o->code) {
    case OP_STORE:
        emit_store(e, o, p->at, p->guard, r->stored);
        show_all_lanes(e, p);
        break;
    case OP_ATOMIC_RMW:
    case OP_ATOMIC_CAS: {
        expr x = emit_atomic(e, o, p->at, p->guard);
        remember(e, &o->results[0], p->at, x);
        write_materialized(e, &o->results[0], p->at, &x, p->guard);
        break;
    }
    case OP_DESCRIPTOR_STORE:
    case OP_DESCRIPTOR_REDUCE:
    case OP_DESCRIPTOR_SCATTER:
        emit_descriptor_effect(e, o, p->at, p->guard);
        show_all_lanes(e, p);
        break;
    case OP_ASSERT:
        if (p->unroll < 2 || awaits(e, o->args[0], 64)) emit_assert(e, o, p->at); /* else it is done */
        break;
    case OP_PRINT: emit_message(e, o, p->at, p->guard); break;
    default: { /* reduce, scan */
        expr *x = NEW_ARRAY(e->t, expr, o->arg_count);
        for (int i = 0; i < o->arg_count; i++) x[i] = emit_value(e, o->args[i], p->at);
        if (o->code == OP_REDUCE)
            accumulate(e, r, p, x);
        else
            scan_step(e, r, p, x);
    }
    }
}

static void comment_group(emitter *e) {
    if (!e->t->options->comments) return;
    buffer line = {0};
    for (int i = 0; i < e->group.count; i++) {
        const root *r = &e->group.roots[i];
        const op *o = r->kind == ROOT_OP ? r->op : r->value->def;
        buffer_addf(e->t, &line, "%s%s%s", i ? "; " : "", r->kind == ROOT_OP ? "" : "keep ",
                    o ? op_table[o->code].name : "a carried value");
        if (o && o->loc && !strstr(o->loc, "*/")) buffer_addf(e->t, &line, " at %s", o->loc);
    }
    emit_line(e, e->depth, "/* %s */", line.data);
}

/* Computes what the root reads, before anything of its group is written. */
static expr read_root(emitter *e, const root *r, const coords *at) {
    expr x = {0};
    if (r->kind == ROOT_COPY) return emit_value(e, r->value, at);
    if (r->kind == ROOT_HOLD) {
        x = emit_recomputed(e, r->value, at);
        remember(e, r->value, at, x);
    } else if (r->op->code == OP_STORE) {
        for (int i = 0; i < r->op->arg_count; i++)
            if (!awaits(e, r->op->args[i], 64)) emit_value(e, r->op->args[i], at);
    } else if (r->op->code == OP_ASSERT && !awaits(e, r->op->args[0], 64)) {
        emit_assert(e, r->op, at); /* before what it guards is read */
    }
    return x;
}

/* --- filling arrays across their rows --- */

/* On a processor, is the group one that reads along another dimension than its arrays lie in? Writing an
 * array across its rows, an element in each, takes as long as lanes would one by one. */
static bool is_transposed(const emitter *e) {
    const group *g = &e->group;
    const type *s = g->shape;
    int last = s->rank - 1;
    if (!e->t->target.is_cpu || e->lanes != TRANSPOSE_LANES || g->axis >= 0 || g->lane == last ||
        s->shape[last] % TRANSPOSE_LANES || s->shape[g->lane] % TRANSPOSE_LANES)
        return false;
    for (int i = 0; i < g->count; i++) {
        const value *v = g->roots[i].value;
        if (g->roots[i].kind != ROOT_HOLD || v->type->is_pointer || strcmp(c_materialized(v->type), "float"))
            return false;
    }
    return true;
}

/* Fills them by squares: as many vectors as lanes, transposed in registers, then written as rows. */
static void emit_transposed(emitter *e) {
    group *g = &e->group;
    const type *s = g->shape;
    int last = s->rank - 1, lane = g->lane;
    plan p = {.shape = s, .axis = -1, .lane = lane};
    expr dims[MAX_RANK];
    for (int i = 0; i < s->rank; i++)
        if (i != lane && i != last) dims[i] = open_loop(e, &p, "i", s->shape[i], 1);
    expr across = open_loop(e, &p, "c", s->shape[lane], TRANSPOSE_LANES),
         along = open_loop(e, &p, "i", s->shape[last], TRANSPOSE_LANES);
    across.divisor = along.divisor = TRANSPOSE_LANES;
    for (int i = 0; i < g->count; i++) {
        value *v = g->roots[i].value;
        const char *name = new_name(e, "t");
        dims[lane] = on_lanes(across);
        for (int k = 0; k < TRANSPOSE_LANES; k++) {
            dims[last] = int_op(e, OP_ADDI, I32, along, constant_int(e, k));
            expr read = emit_recomputed(e, v, make_coords(e, s->rank, dims, NULL));
            emit_line(e, e->depth, "float %s_%d = %s;", name, k, lane_text(e, &read));
        }
        emit_line(e, e->depth, "%s(%s_)", use(e, "TILE_TRANSPOSE"), name);
        dims[last] = on_lanes(along);
        for (int k = 0; k < TRANSPOSE_LANES; k++) {
            dims[lane] = int_op(e, OP_ADDI, I32, across, constant_int(e, k));
            expr column = {.text = tile_format(e->t, "%s_%d", name, k),
                           .kind = VARYING,
                           .depth = e->depth,
                           .divisor = 1};
            write_materialized(e, v, make_coords(e, s->rank, dims, NULL), &column, NULL);
        }
    }
    while (p.loops--) close_scope(e, "}");
}

/* A root read a carried sum that a dot leaves in parts: from the next emission on it's computed part by part.
 */
void note_wanted(emitter *e, const root *r) {
    if (!e->wanted) return;
    const tiling *x = e->wanted;
    value *v = r->kind == ROOT_HOLD ? r->value : NULL;
    *(r->kind == ROOT_OP ? &r->op->grid : &r->value->grid) = x;
    if (v && !v->materialized->order && !v->is_whole && reduces_rows(x, v->type, 1)) {
        v->materialized->grid = x; /* so that it, too, stays where it's computed */
        v->materialized->is_cross_lane = false;
    }
    e->wanted = NULL;
    e->t->layout_changed = true;
}

/* All roots for the element at p->at. */
static void emit_roots(emitter *e, plan *p) {
    group *g = &e->group;
    e->here = p->at;
    for (int i = 0; i < g->count; i++) {
        if (g->roots[i].kind != ROOT_COPY) emit_root(e, &g->roots[i], p);
        note_wanted(e, &g->roots[i]);
    }
    expr *copies = NEW_ARRAY(e->t, expr, g->count); /* all are read before any is written */
    for (int i = 0; i < g->count; i++) {
        if (g->roots[i].kind == ROOT_COPY) copies[i] = read_root(e, &g->roots[i], p->at);
        note_wanted(e, &g->roots[i]);
    }
    /* One lane alone writes an element that several have, on processors, too: lanes need not run in step, and
     * the others, which read the old value, would add to a carried sum again. */
    for (int i = 0; i < g->count; i++)
        if (g->roots[i].kind == ROOT_COPY)
            write_materialized(e, &(value){.materialized = g->roots[i].to}, p->at, &copies[i], p->guard);
    e->here = NULL;
}

/* Element by element, as a dot's sums lie on the lanes. */
static void emit_parts(emitter *e) {
    const tiling *x = e->grid = e->group.grid;
    plan p = {.shape = e->group.shape, .axis = -1, .parts = 1};
    for (e->place = 0; e->place < x->rows * x->columns; e->place++) {
        p.at = part_coords(e, p.shape, x, e->place);
        emit_roots(e, &p);
    }
    e->grid = NULL;
}

/* Between the warps that share rows: each writes what it has of its rows, and all read all of a row's. */
static void across_warps(emitter *e, op *o, const tiling *x, expr *const *rows, const coords *const *at) {
    int n = o->arg_count, wide = x->across / 4, M = x->rows * x->down;
    for (int k = 0; k < n; k++) {
        const char *c = c_materialized(o->args[k]->type), *name = tile_format(e->t, "w_%s_%d", c, k);
        const char *array = tile_format(e->t, " %s[%d]", name, wide * M);
        if (!e->locals.size || !strstr(e->locals.data, array)) {
            buffer_addf(e->t, &e->locals, "    __local %s%s;\n", c, array);
            e->local_memory += (uint64_t)wide * (uint64_t)M * 8;
        }
        for (int i = 0; i < x->rows; i++)
            emit_line(e, e->depth, "if ((lane & 3) == 0) %s[lane / 32 %% %d * %d + %s] = %s;", name, wide, M,
                      lane_text(e, &at[i]->dims[0]), lane_text(e, &rows[i][k]));
    }
    emit_line(e, e->depth, "barrier(CLK_LOCAL_MEM_FENCE);");
    for (int i = 0; i < x->rows; i++) {
        expr *mine = NULL;
        for (int w = 0; w < wide; w++) {
            expr *read = NEW_ARRAY(e->t, expr, n), *sum = NEW_ARRAY(e->t, expr, n);
            for (int k = 0; k < n; k++) {
                const type *ty = o->args[k]->type;
                expr y = {.kind = VARYING, .depth = e->depth, .divisor = 1};
                y.text = tile_format(e->t, ty->element == I1 ? "w_%s_%d[%d + %s] != 0" : "w_%s_%d[%d + %s]",
                                     c_materialized(ty), k, w * M, lane_text(e, &at[i]->dims[0]));
                read[k] = declare(e, ty, y, "y", 0);
            }
            if (mine) emit_combine(e, o, mine, read, sum);
            mine = mine ? sum : read;
        }
        memcpy(rows[i], mine, sizeof(expr) * (size_t)n);
    }
    e->touches_local = true; /* they are still being read */
}

/* Row by row, as a dot's sums lie on the lanes: four of a warp have a row, or a part of it. */
static void emit_part_rows(emitter *e) {
    group *g = &e->group;
    const tiling *x = e->grid = g->grid;
    int wide = x->across / 4, outer = e->block_depth;
    plan p = {.shape = g->shape, .axis = g->axis, .parts = 1};
    expr **all = NEW_ARRAY(e->t, expr *, g->count * x->rows); /* of a root's rows */
    const coords **at = NEW_ARRAY(e->t, const coords *, x->rows);
    for (int i = 0; i < x->rows; i++) {
        begin_combines(e, &p);
        for (p.part = 0; p.part < x->columns; p.part++) {
            e->place = i * x->columns + p.part;
            p.at = part_coords(e, p.shape, x, e->place);
            emit_roots(e, &p);
        }
        at[i] = make_coords(e, 1, p.at->dims, NULL);
        for (int r = 0; r < g->count; r++) all[r * x->rows + i] = g->roots[r].accumulators;
    }
    e->grid = NULL;
    const char *guard =
        wide > 1 ? tile_format(e->t, "(lane & 3) == 0 && lane / 32 %% %d == 0", wide) : "(lane & 3) == 0";
    e->block_depth = e->depth;
    for (int r = 0; r < g->count; r++) {
        op *o = g->roots[r].op;
        expr **rows = all + r * x->rows;
        if (g->roots[r].kind != ROOT_OP || o->code != OP_REDUCE) continue;
        for (int i = 0; i < x->rows; i++) rows[i] = cross_lane_bits(e, o, simple_combine(o), rows[i], 2);
        if (wide > 1) across_warps(e, o, x, rows, at);
        if (wide > 1 && r + 1 < g->count) barrier_if_touched(e);
        for (int i = 0; i < x->rows; i++)
            for (int k = 0; k < o->result_count; k++) {
                remember(e, &o->results[k], at[i], rows[i][k]);
                write_materialized(e, &o->results[k], at[i], &rows[i][k], guard);
            }
    }
    e->block_depth = outer;
}

void emit_group(emitter *e) {
    group *g = &e->group;
    plan p = {.shape = g->shape, .axis = g->axis, .lane = g->lane, .may_unroll = g->count <= MOST_UNROLLED};
    p.most_parts = e->t->parts > 1 ? e->t->parts : 0;
    uint64_t weight = e->weight;
    int outer = e->block_depth, lanes = e->lanes;
    if (g->follows_reads) emit_barrier(e, FENCE_GLOBAL); /* until all lanes have read what they do before */
    comment_group(e);
    if (is_transposed(e)) {
        emit_transposed(e);
        e->weight = weight;
        e->block_depth = outer;
        return;
    }
    if (g->grid) {
        if (g->axis >= 0)
            emit_part_rows(e);
        else
            emit_parts(e);
        return;
    }
    if (fill_squares(e)) {
        e->weight = weight;
        e->block_depth = outer;
        return;
    }
    open_plan(e, &p, begin_combines);
    bool own =
        p.guard && g->has_once; /* other lanes don't have what an atomic gives, nor what is made of it */
    if (own) open_scope(e, "{");
    for (int u = 0; u < p.unroll && p.unroll > 1; u++)
        for (int i = 0; i < g->count; i++) {
            if (g->roots[i].kind == ROOT_HOLD && awaits(e, g->roots[i].value, 64)) continue;
            e->here = p.all[u];
            read_root(e, &g->roots[i], p.all[u]);
            note_wanted(e, &g->roots[i]);
        }
    for (int u = 0; u < p.unroll; u++) {
        if (p.axis < 0 || p.parts > 1) p.at = p.all[u];
        p.part = u % p.parts;
        emit_roots(e, &p);
    }
    if (p.axis >= 0) {
        if (p.is_partly) {
            close_scope(e, "}");
            p.loops--;
            p.guard = tile_format(e->t, "lane < %d", e->lanes);
            e->block_depth = outer;
        }
        if (p.first) { /* the axis' loop was opened */
            close_scope(e, "}");
            p.loops--;
        }
        for (int i = 0; i < g->count; i++) {
            const root *r = &g->roots[i];
            if (r->kind == ROOT_OP && r->op->code == OP_REDUCE) finish_reduction(e, r, &p);
        }
    }
    if (own) close_scope(e, "}");
    while (p.loops--) close_scope(e, "}");
    e->weight = weight;
    e->block_depth = outer;
    e->lanes = lanes;
}

/* --- tt.histogram --- */

void emit_histogram(emitter *e, op *o) {
    value *result = &o->results[0];
    if (!result->materialized && !is_scalar(result)) return;
    materialized *bin = result->materialized;
    if (!bin) { /* of one bin, which is read at once */
        bin = NEW(e->t, materialized);
        bin->type = result->type;
        bin->last_use = e->now;
    }
    hold_allocate(e, bin);
    const char *h = bin->name;
    int64_t bins = result->type->count;
    emit_line(e, e->depth, "for (int i = lane; i < %lld; i += %d) %s[i] = 0;", (long long)bins, e->lanes, h);
    e->touches_local = true;
    barrier_if_touched(e);
    plan p = {.shape = o->args[0]->type, .axis = -1, .lane = 0};
    uint64_t weight = e->weight;
    e->group.is_reversed = false;
    open_plan(e, &p, NULL);
    if (is_scalar(o->args[0])) p.guard = "lane == 0"; /* every lane has it */
    expr x = emit_value(e, o->args[0], p.at);
    const char *text = lane_text(e, &x);
    const char *mask = both(e, p.guard, mask_text(e, o, 1, p.at));
    mask = both(e, mask, tile_format(e->t, "%s >= 0 && %s < %lld", text, text, (long long)bins));
    if (element_bits(result->type->element) != 32)
        tile_unsupported(e->t, o->at, "a histogram of other than i32");
    emit_line(e, e->depth, "if (%s) atomic_inc((volatile __local int *)(%s + %s));", mask, h, text);
    while (p.loops--) close_scope(e, "}");
    e->weight = weight;
    e->touches_local = true;
    if (is_scalar(result)) {
        barrier_if_touched(e);
        expr count = {.text = tile_format(e->t, "%s[0]", h), .depth = e->depth, .divisor = 1};
        remember(e, result, NULL, declare(e, type_scalar(e->t, I32), count, "v", result->id));
        e->touches_local = true;
    }
}
