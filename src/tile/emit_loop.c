/* Emits the loops over the elements of a group or a dot, and those of scf.for. */
#include <string.h>

#include "tile/emit.h"

/* --- a group's loops ---
 *
 * All dimensions but the lanes' are plain loops. With an axis (of reductions, scans), its loop is the
 * innermost:
 *
 *   lanes along the axis:  for (others) { begin; for (chunks of the axis) { body } finish across lanes }
 *   else:                  for (others, chunks) { begin; for (axis) { body } finish in each lane }
 *
 * Where a GPU's work-group is wider than the axis, several rows lie side by side on its lanes. */
static const type *without(tile *t, const type *shape, int axis) {
    type r = {.is_tensor = true};
    for (int i = 0; i < shape->rank; i++)
        if (i != axis) r.shape[r.rank++] = shape->shape[i];
    return type_make(t, r);
}

static expr loop_variable(emitter *e, const char *name, int64_t divisor) {
    return (expr){
        .text = name, .kind = UNIFORM, .depth = e->depth, .divisor = divisor, .is_nonnegative = true};
}

/* Two rules for loops on a processor that choose by the lane, of which Intel's compiler makes wrong code
 * otherwise
 * ("loop unswitching": it takes the choice out of the loop, so that different lanes run different copies of
 * it).
 *
 * Never all iterations are unrolled: it mixes up what all lanes take alike and what they don't
 * (tests/intel_cpu/faults/paths.cl). And the lanes meet at the end of each iteration, which keeps the loop in
 * one piece: a sum of numbers that all lanes share would become the same in all of them (choices.cl there).
 */
const char *unroll_hint(emitter *e, const scope *s) {
    enum { SHORT = 1000 /* characters */ };
    if (s->is_unrolled) return "#pragma unroll";
    if (!s->is_loop || !e->t->target.is_cpu) return NULL;
    for (scope *outer = e->scopes; outer < s; outer++) outer->trips = 0;
    if (!s->chooses) return NULL;
    int most = s->text.size > SHORT ? 1 : s->trips >= 8 ? 4 : s->trips >= 4 ? 2 : 1;
    return tile_format(e->t, "__attribute__((opencl_unroll_hint(%d)))", most);
}

void note_choice(emitter *e) {
    for (int d = e->depth; d && !e->scopes[d].chooses; d--) e->scopes[d].chooses = true;
}

void reconverge_after_selects(emitter *e) {
    scope *s = &e->scopes[e->depth];
    if (s->chooses && s->is_loop && e->t->target.is_cpu) emit_line(e, e->depth, "TILE_RECONVERGE;");
}

/* Opens "for (int i = 0; i < size; i += step)" and gives its variable; a loop of one iteration is none. On
 * processors it counts iterations: in a loop over `c += 16`, Intel's compiler takes what it stores of c and
 * the lane for what it was in the first iteration (tests/intel_cpu/faults/strided.cl). */
expr open_loop(emitter *e, plan *p, const char *prefix, int64_t size, int64_t step) {
    if (size <= step) return constant_int(e, 0);
    bool counts = e->t->target.is_cpu && step > 1;
    const char *name = new_name(e, prefix), *i = counts ? new_name(e, "n") : name;
    if (step > 1 && !counts)
        open_scope(e, "for (int %s = 0; %s < %lld; %s += %lld) {", i, i, (long long)size, i, (long long)step);
    else
        open_scope(e, "for (int %s = 0; %s < %lld; %s++) {", i, i, (long long)((size + step - 1) / step), i);
    if (counts) emit_line(e, e->depth, "const int %s = %s * %lld;", name, i, (long long)step);
    e->scopes[e->depth].is_loop = e->scopes[e->depth].is_chunks = true;
    e->scopes[e->depth].trips = size / step;
    if (p->guard || p->is_partly) note_choice(e);
    p->loops++;
    e->weight *= (uint64_t)(size / step);
    return loop_variable(e, name, step);
}

/* Is it the number of lanes? Numbers that grow by just so much mislead Intel's CPU compiler:
 * tests/intel_cpu/faults/carried.cl */
static bool is_lanes_step(const emitter *e, const expr *x) {
    return e->t->target.is_cpu && x->kind == UNIFORM && x->is_constant && x->constant == e->lanes;
}

const char *increment_text(emitter *e, const type *ty, const char *sum, const expr *step) {
    bool is_narrow = !ty->is_pointer && element_bits(ty->element) < 32;
    if (is_narrow || !is_lanes_step(e, step)) return sum;
    return tile_format(e->t, "sub_group_broadcast(%s, 0)", sum);
}

void open_for(emitter *e, const char *ty, const char *i, const char *const *bounds, const expr *step) {
    const char *low = bounds[0], *high = bounds[1];
    if (is_lanes_step(e, step)) { /* counts iterations */
        const char *n = new_name(e, "n"), *all = new_name(e, "n");
        const char *wide = !strcmp(ty, "long") ? "ulong" : "uint";
        emit_line(e, e->depth, "const %s %s = %s < %s ? ((%s)%s - (%s)%s - 1) / %d + 1 : 0;", wide, all, low,
                  high, wide, high, wide, low, e->lanes);
        open_scope(e, "for (%s %s = 0; %s < %s; %s++) {", wide, n, n, all, n);
        emit_line(e, e->depth, "const %s %s = %s + (%s)%s * %d;", ty, i, low, ty, n, e->lanes);
    } else {
        open_scope(e, "for (%s %s = %s; %s < %s; %s += %s) {", ty, i, low, i, high, i, bounds[2]);
    }
    e->scopes[e->depth].is_loop = true;
}

expr on_lanes(expr base) {
    base.kind = LINEAR;
    base.stride = 1;
    return base;
}

static expr on_parts(expr base, int parts, int part) {
    base = on_lanes(base);
    base.parts = parts > 1 ? parts : 0;
    base.part = part;
    return base;
}

/* size - 1 - x */
static expr mirrored(emitter *e, expr x, int64_t size) {
    expr y = int_op(e, OP_SUBI, I32, constant_int(e, size - 1), x);
    y.is_nonnegative = true;
    return y;
}

expr lane_part(emitter *e, const char *format, int64_t n) {
    return (expr){.text = tile_format(e->t, format, (long long)n),
                  .kind = VARYING,
                  .divisor = 1,
                  .is_nonnegative = true,
                  .depth = e->block_depth};
}

/* On a GPU a loop that only moves elements takes several chunks at once, all loads before the stores: memory
 * is far away. How many, of n. */
static int chunks_at_once(emitter *e, const plan *p, int64_t n) {
    int most = p->parts > 1 ? MAX_PARTS / p->parts : 4;
    if (!p->may_unroll || e->t->target.is_cpu || p->axis >= 0) return 1;
    return n >= most ? most : (int)n;
}

/* A number 0 … count-1 for each lane: `width` neighbors share one. */
static expr spread(emitter *e, plan *p, int64_t count, int64_t width) {
    int64_t at_once = e->lanes / width;
    if (count == 1) return constant_int(e, 0);
    if (count >= at_once) {
        if (width == 1) p->unroll = chunks_at_once(e, p, count / at_once);
        expr first = open_loop(e, p, "c", count, at_once * p->unroll);
        first.divisor = at_once;
        if (width == 1) return on_lanes(first);
        p->base = &make_coords(e, 1, &first, NULL)->dims[0];
        return int_op(e, OP_ADDI, I32, first, lane_part(e, "(lane / %lld)", width));
    }
    p->guard = tile_format(e->t, "lane < %lld", (long long)(count * width));
    note_choice(e);
    if (width == 1) return lane_part(e, "(lane & %lld)", count - 1);
    expr x = lane_part(e, "(lane / %lld)", width);
    x.text = tile_format(e->t, "(%s & %lld)", x.text, (long long)(count - 1));
    return x;
}

/* Coordinates from the index over all dimensions but the axis: row-major, but with the lanes' dimension
 * fastest. */
static void dims_of_index(emitter *e, plan *p, const type *others, expr index, expr *dims,
                          const coords **at) {
    const type *s = p->shape;
    bool is_last = true;
    for (int i = p->lane + 1; i < s->rank; i++) is_last = is_last && (i == p->axis || s->shape[i] == 1);
    int skip = p->lanes_on_axis || p->lane == p->axis || is_last ? -1 : p->lane;
    const coords *c;
    if (skip >= 0) {
        const type *rest = without(e->t, others, p->axis >= 0 && p->axis < skip ? skip - 1 : skip);
        expr n = constant_int(e, s->shape[skip]);
        dims[skip] = int_op(e, OP_REMSI, I32, index, n);
        c = delinear(e, rest, int_op(e, OP_DIVSI, I32, index, n));
    } else {
        c = delinear(e, others, index);
    }
    for (int i = 0, k = 0; i < s->rank; i++)
        if (i != p->axis && i != skip) dims[i] = c->dims[k++];
    if (p->axis < 0) *at = skip < 0 ? c : make_coords(e, s->rank, dims, NULL); /* c has its row-major index */
}

void open_plan(emitter *e, plan *p, void (*begin)(emitter *, plan *)) {
    const type *s = p->shape;
    int64_t lanes = e->lanes, size = p->axis >= 0 ? s->shape[p->axis] : 0;
    int lane = p->lane, axis = p->axis;
    bool reversed = e->group.is_reversed;
    expr dims[MAX_RANK];
    const type *others = axis >= 0 ? without(e->t, s, axis) : s;
    p->unroll = p->parts = 1;
    p->width = size < lanes ? size : lanes;
    const bool partly = axis >= 0 && size >= lanes && short_lane_dim(e->t, s, axis) >= 0;
    p->lanes_on_axis = axis >= 0 && !partly && (size >= lanes || (!e->t->target.is_cpu && size > 1)) &&
                       (axis == lane || others->count < lanes);
    p->is_partly = partly;
    if (partly) {
        e->lanes = (int)others->count;
        for (int i = 0; i < s->rank; i++)
            dims[i] = s->shape[i] > 1 ? on_lanes(constant_int(e, 0)) : constant_int(e, 0);
    } else if (p->lanes_on_axis && p->width == lanes) {
        for (int i = 0; i < s->rank; i++)
            if (i != axis) dims[i] = open_loop(e, p, "i", s->shape[i], 1);
    } else if (!p->lanes_on_axis && lane != axis && s->shape[lane] >= lanes) {
        for (int i = 0; i < s->rank; i++)
            if (i != axis && i != lane) dims[i] = open_loop(e, p, "i", s->shape[i], 1);
        if (axis < 0 && p->most_parts && s->shape[lane] >= lanes * p->most_parts) p->parts = p->most_parts;
        int64_t span = lanes * p->parts;
        p->unroll = p->parts * chunks_at_once(e, p, s->shape[lane] / span);
        expr c = open_loop(e, p, "c", s->shape[lane], lanes * p->unroll);
        c.divisor = span;
        for (int u = p->unroll - 1; u >= 0; u--) {
            expr first = int_op(e, OP_ADDI, I32, c, constant_int(e, u / p->parts * span));
            dims[lane] = on_parts(first, p->parts, u % p->parts);
            if (axis < 0) p->all[u] = make_coords(e, s->rank, dims, NULL);
        }
    } else {
        expr index = spread(e, p, others->count, p->lanes_on_axis ? p->width : 1);
        for (int u = p->unroll - 1; u >= 0; u--) {
            expr part = u ? int_op(e, OP_ADDI, I32, index, constant_int(e, u * lanes)) : index;
            dims_of_index(e, p, others, part, dims, &p->all[u]);
        }
    }
    if (axis < 0) p->at = p->all[0];
    if (axis >= 0) {
        expr rest[MAX_RANK];
        for (int i = 0, k = 0; i < s->rank; i++)
            if (i != axis) rest[k++] = dims[i];
        p->outer = make_coords(e, s->rank - 1, rest, NULL);
        if (begin) begin(e, p);
        bool fills = p->lanes_on_axis && p->width == lanes;
        if (fills && p->most_parts && size >= lanes * p->most_parts) p->parts = p->unroll = p->most_parts;
        expr x =
            open_loop(e, p, p->lanes_on_axis ? "c" : "k", size, p->lanes_on_axis ? p->width * p->parts : 1);
        p->first = x.is_constant ? NULL : tile_format(e->t, "%s == 0", x.text);
        if (partly) { /* inside of the loop, where all lanes meet */
            open_scope(e, "if (lane < %lld) {", (long long)others->count);
            p->loops++;
            e->block_depth = e->depth; /* nothing is read for the other lanes */
        }
        if (fills) {
            x.divisor = lanes * p->parts;
            for (int u = p->parts - 1; u >= 0; u--) {
                dims[axis] = on_parts(x, p->parts, u);
                p->all[u] = make_coords(e, s->rank, dims, NULL);
            }
            x = on_lanes(x);
        } else if (p->lanes_on_axis) {
            x = lane_part(e, "(lane & %lld)", p->width - 1);
        }
        dims[axis] = reversed ? mirrored(e, x, size) : x;
        bool is_last = !reversed;
        for (int i = axis + 1; i < s->rank; i++) is_last = is_last && s->shape[i] == 1;
        if (p->parts > 1) {
            p->at = p->all[0];
        } else if (p->base && is_last &&
                   size == p->width) { /* rows shorter than the lanes: one after the other */
            expr linear = on_lanes(int_op(e, OP_MULI, I32, *p->base, constant_int(e, size)));
            p->at = make_coords(e, s->rank, dims, &linear);
        } else {
            p->at = make_coords(e, s->rank, dims, NULL);
        }
    }
}
