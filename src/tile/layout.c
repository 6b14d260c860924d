/* Decides which values are materialized and which dimension is mapped to the lanes.
 *
 * A value is materialized in three cases:
 * - It cannot be rematerialized: loop-carried values, results of reductions, dots and control flow.
 * - A memory effect lies between its definition and a use (loads).
 * - Rematerialization would cost more than local memory. That can happen if the value is used at two levels
 *   (for instance before and after a reduction), in a loop inside the scope of its definition, or at other
 *   coordinates than its own. */
#include <stdio.h>
#include <string.h>

#include "tile/emit.h"

/* Costs in quarters of a simple operation. A value that costs more than WORTH_HOLDING is not computed twice.
 */
enum {
    COST_INDEX = 1,
    COST_SIMPLE = 4,
    COST_LOAD = 6,
    COST_DIVIDE = 16,
    COST_FUNCTION = 40,
    WORTH_HOLDING = 36,
    COST_MOST = 10000
};

typedef struct use_site {
    int level; /* memory_epoch and level of the root */
    int epoch;
    int loops; /* depth of loops around it */
    int stamp; /* the root's, even; plus 1 after elements change coordinates */
    int id;    /* position of the operation */
    const block *block;
    op *write; /* the root, if it writes to memory that the kernel reads */
} use_site;

typedef struct layout {
    tile *t;
    int next_id, epoch, memory_epoch, stamp, pass;
    bool again, joins; /* state of tile_iterate_layout */
    bool reads_any;    /* the kernel reads through a pointer that does not derive from an argument */
} layout;

bool is_small_reduce(const op *o) {
    return o->code == OP_REDUCE && o->args[0]->type->shape[op_attr_int(o, "axis", 0)] <= 2 &&
           o->results[0].type->count > 1;
}

bool op_writes(const op *o) {
    switch (o->code) {
    case OP_STORE:
    case OP_ATOMIC_RMW:
    case OP_ATOMIC_CAS:
    case OP_DESCRIPTOR_STORE:
    case OP_DESCRIPTOR_REDUCE:
    case OP_DESCRIPTOR_SCATTER: return true;
    default: return false;
    }
}

static bool has_effect(const op *o) {
    return op_writes(o) || o->code == OP_BARRIER || o->code == OP_GPU_BARRIER;
}

static bool region_has_effect(const region *r) {
    for (const block *b = r->first; b; b = b->next)
        for (const op *o = b->first; o; o = o->next) {
            if (has_effect(o)) return true;
            for (int i = 0; i < o->region_count; i++)
                if (region_has_effect(&o->regions[i])) return true;
        }
    return false;
}

/* Pure: its result at some coordinates is a formula over its operands there, loads included (their epoch is
 * looked at apart). */
bool is_pure(const op *o) {
    switch (op_table[o->code].kind) {
    case KIND_MAP:
    case KIND_CONSTANT:
    case KIND_RANGE:
    case KIND_SPLAT:
    case KIND_UNSPLAT:
    case KIND_BROADCAST:
    case KIND_EXPAND_DIMS:
    case KIND_RESHAPE:
    case KIND_TRANS:
    case KIND_JOIN:
    case KIND_SPLIT:
    case KIND_CAT:
    case KIND_GATHER:
    case KIND_ADDPTR:
    case KIND_LOAD:
    case KIND_AXIS:
    case KIND_MAKE_DESCRIPTOR: return true;
    case KIND_REDUCE: return is_small_reduce(o);
    case KIND_DESCRIPTOR: return o->code == OP_DESCRIPTOR_LOAD || o->code == OP_DESCRIPTOR_GATHER;
    default: return is_elementwise(o) || o->code == OP_POISON;
    }
}

static bool find_splat(const value *v) {
    const op *o = v->def;
    if (!o || !is_pure(o)) return false;
    switch (op_table[o->code].kind) {
    case KIND_CONSTANT: return op_attr(o, "value")->count == 1;
    case KIND_SPLAT: return true;
    case KIND_RANGE:
    case KIND_LOAD:
    case KIND_DESCRIPTOR: return false;
    default:
        for (int i = 0; i < o->arg_count; i++)
            if (!is_splat(o->args[i])) return false;
        return true;
    }
}

bool is_splat(value *v) {
    if (!v->type->is_tensor || v->type->count == 1) return true;
    if (!v->splat) v->splat = find_splat(v) ? 1 : -1; /* asked for often, and the IR stays as it is */
    return v->splat > 0;
}

static bool constant_of(const value *v, int64_t *c) {
    const op *o = v->def;
    if (!o) return false;
    if (o->code == OP_CONSTANT) {
        const attr *a = op_attr(o, "value");
        if (a->kind == ATTR_DENSE) a = a->count == 1 ? &a->list[0] : NULL;
        if (!a || a->kind != ATTR_INT) return false;
        *c = a->integer;
        return true;
    }
    switch (o->code) {
    case OP_SPLAT:
    case OP_BROADCAST:
    case OP_EXPAND_DIMS:
    case OP_EXTSI: return constant_of(o->args[0], c);
    default: return false;
    }
}

/* Is `v` known to be a multiple of as many elements as a vector has? */
static bool divides_runs(const value *v) {
    int64_t c;
    const op *o = v->def;
    if (constant_of(v, &c)) return c % 16 == 0;
    if (o && (o->code == OP_SPLAT || o->code == OP_BROADCAST || o->code == OP_EXPAND_DIMS))
        return divides_runs(o->args[0]);
    if (o || !v->owner->owner->owner || v->owner->owner->owner->code != OP_FUNC) return false;
    char name[48];
    snprintf(name, sizeof name, "arg%d.divisibility", v->index);
    return op_attr_int(v->owner->owner->owner, name, 1) % 16 == 0;
}

int64_t stride_of(value *v, int dim) {
    const op *o = v->def;
    if (!v->type->is_tensor || v->type->shape[dim] == 1 || is_splat(v)) return 0;
    if (v->offset) return stride_of(v->offset->start, dim);
    if (!o || v->materialized) return UNKNOWN_STRIDE;
    int64_t a, b, c;
    switch (o->code) {
    case OP_MAKE_RANGE: return 1;
    case OP_EXPAND_DIMS: {
        int64_t axis = op_attr_int(o, "axis", 0);
        return stride_of(o->args[0], dim < axis ? dim : dim - 1);
    }
    case OP_BROADCAST: return stride_of(o->args[0], dim);
    case OP_TRANS: return stride_of(o->args[0], (int)op_attr(o, "order")->list[dim].integer);
    case OP_EXTSI:
    case OP_EXTUI:
    case OP_TRUNCI:
    case OP_BITCAST: return stride_of(o->args[0], dim);
    case OP_ADDI:
    case OP_ADDPTR:
    case OP_SUBI:
        a = stride_of(o->args[0], dim);
        b = stride_of(o->args[1], dim);
        if (a == UNKNOWN_STRIDE || b == UNKNOWN_STRIDE) return UNKNOWN_STRIDE;
        return o->code == OP_SUBI ? a - b : a + b;
    case OP_MULI:
        a = stride_of(o->args[0], dim);
        b = stride_of(o->args[1], dim);
        if (a == 0 && b == 0) return 0;
        if (b == 0 && a != UNKNOWN_STRIDE && constant_of(o->args[1], &c)) return a * c;
        if (a == 0 && b != UNKNOWN_STRIDE && constant_of(o->args[0], &c)) return b * c;
        return UNKNOWN_STRIDE;
    case OP_REMSI:
    case OP_REMUI: /* within a run that the divisor doesn't cut */
        a = stride_of(o->args[0], dim);
        return divides_runs(o->args[1]) ? a : a == 0 ? 0 : UNKNOWN_STRIDE;
    case OP_DIVSI:
    case OP_DIVUI:
        a = stride_of(o->args[0], dim);
        return a == 0 || (a == 1 && divides_runs(o->args[1])) ? 0 : UNKNOWN_STRIDE;
    default: return UNKNOWN_STRIDE;
    }
}

/* --- the dimension that is mapped to the lanes --- */

/* For each shape: how many loads and stores prefer each dimension. */
typedef struct preferences {
    const type *shape; /* with element type i1, for all element types */
    int64_t count[MAX_RANK];
    bool is_fixed; /* a dot requires the last dimension */
    struct preferences *next;
} preferences;

static preferences *preferences_for(tile *t, const type *ty) {
    const type *shape = type_with(t, ty, type_scalar(t, I1));
    for (preferences *v = t->preferences; v; v = v->next)
        if (v->shape == shape) return v;
    preferences *v = tile_keep(t, sizeof *v);
    v->shape = shape;
    v->next = t->preferences;
    return t->preferences = v;
}

static int last_dim(const type *ty) {
    for (int d = ty->rank - 1; d > 0; d--)
        if (ty->shape[d] > 1) return d;
    return 0;
}

int short_lane_dim(tile *t, const type *ty, int axis) {
    const preferences *v = preferences_for(t, ty);
    int found = -1;
    for (int d = 0; d < ty->rank; d++) {
        if (d == axis || ty->shape[d] == 1) continue;
        if (found >= 0 || ty->shape[d] >= t->target.lanes || ty->shape[d] * 4 < t->target.lanes) return -1;
        found = d;
    }
    return found >= 0 && t->target.is_cpu && !v->is_fixed && v->count[found] > v->count[axis] ? found : -1;
}

int lane_dim(tile *t, const type *ty) {
    int best = last_dim(ty);
    if (ty->rank < 2) return best;
    const preferences *v = preferences_for(t, ty);
    for (int d = 0; d < ty->rank && !v->is_fixed; d++)
        if (ty->shape[d] >= t->target.lanes && v->count[d] > v->count[best]) best = d;
    return best;
}

static void prefer(tile *t, const region *r, int weight) {
    for (const block *b = r->first; b; b = b->next)
        for (const op *o = b->first; o; o = o->next) {
            for (int i = 0; i < o->region_count; i++)
                prefer(t, &o->regions[i],
                       weight < 1 << 20 && (o->code == OP_FOR || o->code == OP_WHILE) ? weight * 4 : weight);
            if (o->code == OP_DOT || o->code == OP_DOT_SCALED) {
                for (int i = 0; i < 3; i++) preferences_for(t, o->args[i]->type)->is_fixed = true;
            } else if (o->code == OP_LOAD || o->code == OP_STORE || o->code == OP_ATOMIC_RMW) {
                const type *ty = o->args[0]->type;
                for (int d = 0; d < ty->rank; d++)
                    if (ty->shape[d] > 1 && stride_of(o->args[0], d) == 1)
                        preferences_for(t, ty)->count[d] += weight;
            }
        }
}

/* --- which values are materialized --- */

bool is_scalar(const value *v) { return v->type->count == 1 || v->type->is_descriptor; }

static int own_cost(const op *o) {
    bool floats = o->result_count && is_float(o->results[0].type);
    switch (op_table[o->code].kind) {
    case KIND_CONSTANT:
    case KIND_RANGE:
    case KIND_SPLAT:
    case KIND_BROADCAST:
    case KIND_EXPAND_DIMS:
    case KIND_RESHAPE:
    case KIND_TRANS:
    case KIND_BITCAST: return 0;
    case KIND_ADDPTR:
    case KIND_INT1: return COST_INDEX;
    case KIND_LOAD: return COST_LOAD;
    case KIND_MAP:
    case KIND_GATHER:
    case KIND_DESCRIPTOR: return WORTH_HOLDING;
    case KIND_ELEMENTWISE: return COST_FUNCTION;
    case KIND_INT2:
        if (o->code == OP_DIVSI || o->code == OP_REMSI || o->code == OP_DIVUI || o->code == OP_REMUI)
            return 2 * COST_INDEX;
        return o->code == OP_MULHIUI ? COST_SIMPLE : COST_INDEX;
    case KIND_FLOAT1:
    case KIND_FLOAT2:
    case KIND_FLOAT3:
        if (o->code == OP_DIVF || o->code == OP_PRECISE_DIVF || o->code == OP_SQRT || o->code == OP_RSQRT)
            return COST_DIVIDE;
        return strchr(op_table[o->code].formula ? op_table[o->code].formula : "", '(') &&
                       o->code != OP_ABSF && o->code != OP_FMA && o->code != OP_MAXNUMF &&
                       o->code != OP_MINNUMF
                   ? COST_FUNCTION
                   : COST_SIMPLE;
    default: return floats ? COST_SIMPLE : COST_INDEX;
    }
}

static void record_use(layout *l, value *v, use_site at);
static void mark_materialized(layout *l, value *v, int reader, bool exact);
static int reader_of(const value *v, use_site at);

/* An operand of a pure operation; one that is read at other elements must have been materialized, unless it's
 * cheap.
 */
static void record_operand_use(layout *l, op *o, int i, use_site at) {
    value *v = o->args[i];
    bool crosses = (o->code == OP_GATHER && i == 0) || o->code == OP_REDUCE;
    if (crosses && !is_scalar(v) && (v->cost > COST_LOAD || o->code == OP_GATHER))
        mark_materialized(l, v, reader_of(v, at), false);
    else
        record_use(l, v, at);
}

/* Only moves or renames its one operand's elements. */
static bool is_transparent(const op *o) {
    switch (o->code) {
    case OP_SPLAT:
    case OP_BROADCAST:
    case OP_EXPAND_DIMS:
    case OP_RESHAPE:
    case OP_TRANS:
    case OP_BITCAST: return !o->results[0].type->is_pointer;
    default: return false;
    }
}

/* Of a load whose neighbors on the lanes lie apart in memory: the dimension along which they lie together.
 */
static int contiguous_dim(value *v) {
    const op *o = v->def;
    if (!o || o->code != OP_LOAD || v->type->rank < 2) return -1;
    for (int d = 0; d < v->type->rank; d++)
        if (v->type->shape[d] >= 16 && stride_of(o->args[0], d) == 1) return d;
    return -1;
}

/* Is it worth loading it along that dimension and passing it through local memory? */
static bool is_transposed(tile *t, value *v) {
    int d = contiguous_dim(v), lane = lane_dim(t, v->type);
    if (d < 0 || d == lane || v->type->shape[lane] < 16) return false;
    int64_t stride = stride_of(v->def->args[0], lane);
    return stride != 0 && stride != 1;
}

/* --- memory that is read and written --- */

/* The pointer from which `v` goes on; an argument of the kernel, the table from which a pointer was loaded,
 * or what can't be followed any further. */
static value *base_of(value *v) {
    for (;;) {
        if (v->offset)
            v = v->offset->start;
        else if (v->def && v->def->arg_count && v->def->args[0]->type->is_pointer)
            v = v->def->args[0];
        else
            return v;
    }
}

static bool is_argument(const tile *t, const value *v) {
    return !v->def && v->owner == t->kernel->regions[0].first;
}

/* Are there fewer elements than lanes, so that several have the same one, and what they make of it is read?
 * On GPUs those that don't store leave no other traces but in reductions. */
static bool repeats(const tile *t, const type *ty) {
    const int64_t lanes = tile_lanes(t);
    if (ty->count < lanes) return t->reduces || t->target.is_cpu;
    if (!t->target.is_cpu || !t->reduces) return false;
    for (int d = 0; d < ty->rank; d++) /* a lane a row, when one is reduced */
        if (ty->shape[d] > 1 && ty->shape[d] < lanes && ty->count / ty->shape[d] < lanes) return true;
    return false;
}

bool op_reads(const op *o) {
    return o->code == OP_LOAD || o->code == OP_DESCRIPTOR_LOAD || o->code == OP_DESCRIPTOR_GATHER;
}

/* Has `o` its elements where `read` has them, each in a place of its own? An atomic's may share one. */
static bool same_addresses(const op *read, const op *o) {
    bool same = o->code != OP_ATOMIC_RMW && o->code != OP_ATOMIC_CAS && o->code != OP_DESCRIPTOR_SCATTER;
    int count = read->args[0]->type->is_descriptor ? read->arg_count : 1;
    for (int i = 0; i < count && same; i++) same = read->args[i] == o->args[i];
    return same;
}

/* What `write` writes at once. */
static const type *written_type(const op *write) {
    return write->args[write->args[0]->type->is_descriptor ? write->arg_count - 1 : 0]->type;
}

bool is_overwritten(const tile *t, const op *read, const op *write, bool moved) {
    const value *from = base_of(read->args[0]), *to = base_of(write->args[0]);
    if (from != to && is_argument(t, from) && is_argument(t, to)) return false;
    return moved || !same_addresses(read, write) || repeats(t, written_type(write));
}

/* Does `v`, which `write` needs, come from what it overwrites? `seen` is even. */
static bool reads_overwritten(const tile *t, value *v, const op *write, bool moved, int seen) {
    if (v->offset) v = v->offset->start;
    const op *o = v->def;
    const bool scans = o && o->code == OP_SCAN; /* whose loop may be the store's */
    if (!o || (!is_pure(o) && !scans) || v->seen == seen + 1 || v->seen == seen + moved) return false;
    v->seen = seen + moved;
    if (op_reads(o) && !is_scalar(v) && is_overwritten(t, o, write, moved)) return true;
    moved = moved || scans || moves_elements(o->code);
    for (int i = 0; i < o->arg_count; i++)
        if (reads_overwritten(t, o->args[i], write, moved, seen)) return true;
    return false;
}

/* Notes what `write` has to wait for. Does it go to memory that the kernel reads? */
static bool note_write(const layout *l, op *write, int seen) {
    const value *to = base_of(write->args[0]);
    const bool single = written_type(write)->count == 1;
    const bool is_read = to->is_read || l->reads_any || !is_argument(l->t, to);
    const bool elsewhere = l->reads_any || !to->read_by || !same_addresses(to->read_by, write);
    write->follows_reads = is_read && (single || l->t->reduces || elsewhere);
    write->overwrites = false;
    for (int i = 0; i < write->arg_count && is_read && !single; i++)
        if (reads_overwritten(l->t, write->args[i], write, false, seen)) write->overwrites = true;
    return is_read;
}

/* Which memory the kernel reads, and whether it does more than element by element. */
static void note_reads(layout *l, const region *r) {
    for (const block *b = r->first; b; b = b->next)
        for (const op *o = b->first; o; o = o->next) {
            if (op_reads(o)) {
                value *from = base_of(o->args[0]);
                from->read_by =
                    !from->is_read || (from->read_by && same_addresses(from->read_by, o)) ? o : NULL;
                from->is_read = true;
                l->reads_any = l->reads_any || !is_argument(l->t, from);
            }
            l->t->reduces = l->t->reduces || o->code == OP_REDUCE || o->code == OP_SCAN;
            for (int i = 0; i < o->region_count; i++) note_reads(l, &o->regions[i]);
        }
}

/* Holds `v` or, unless it must be that very array, what it is only another view of. */
static void mark_materialized(layout *l, value *v, int reader, bool exact) {
    while (!exact && !v->materialized && v->def && is_transparent(v->def)) {
        v = v->def->args[0];
        if (is_scalar(v)) return;
    }
    if (v->offset) {
        mark_materialized(l, v->offset->start, reader, false);
        return;
    }
    if (!v->materialized) {
        v->materialized = NEW(l->t, materialized);
        v->materialized->type = v->type;
        v->materialized->lane_dim = v->materialized->fill_dim = lane_dim(l->t, v->type);
        if (v->def && contiguous_dim(v) >= 0) v->materialized->fill_dim = contiguous_dim(v);
    }
    if (v->materialized->pass != l->pass) { /* the first to want it in this pass? */
        v->materialized->pass = l->pass;
        v->materialized->last_use = 0;
        op *o = v->def;
        if (o && is_pure(o)) { /* it will be computed where it is defined */
            use_site home = {o->level, o->epoch, o->loops, l->stamp += 2, o->id, o->owner, NULL};
            for (int i = 0; i < o->arg_count; i++) record_operand_use(l, o, i, home);
        }
    }
    if (v->materialized->last_use < reader) v->materialized->last_use = reader;
}

/* The number of the operation after which `v`, read at `at`, is not needed any more: when the reader is in a
 * loop that v is outside of, the loop's. */
static int reader_of(const value *v, use_site at) {
    const block *home = v->def ? v->def->owner : v->owner;
    int id = at.id;
    for (const block *b = at.block; b && b != home; b = b->owner->owner ? b->owner->owner->owner : NULL)
        if (b->owner->owner) id = b->owner->owner->end > id ? b->owner->owner->end : id;
    return id;
}

static void record_use(layout *l, value *v, use_site at) {
    if (is_scalar(v)) return;
    if (v->offset) {
        record_use(l, v->offset->start, at);
        return;
    }
    op *o = v->def;
    if (v->materialized || !o || !is_pure(o)) {
        mark_materialized(l, v, reader_of(v, at), true);
        return;
    }
    bool outside = o->loops < at.loops;
    if (is_splat(v) && !v->cost) return;
    bool stale = (op_table[o->code].kind == KIND_LOAD || op_table[o->code].kind == KIND_DESCRIPTOR) &&
                 (o->epoch != at.epoch || outside || op_attr(o, "isVolatile"));
    if (at.write && op_reads(o) && is_overwritten(l->t, o, at.write, at.stamp & 1)) stale = true;
    if (is_transposed(l->t, v)) stale = true;
    bool remat_candidate =
        l->t->target.is_cpu || v->is_recomputed || v->type->is_pointer ? false : v->cost >= COST_LOAD;
    bool dear = (v->cost >= WORTH_HOLDING || remat_candidate) &&
                (outside || (v->wanted_at && v->wanted_at != at.level + 1));
    if (stale || (dear && !is_transparent(o))) {
        mark_materialized(l, v, reader_of(v, at), true);
        v->materialized->is_remat_candidate = !stale && v->cost < WORTH_HOLDING;
        return;
    }
    if (v->stamp == at.stamp || v->stamp == (at.stamp | 1)) return;
    v->stamp = at.stamp;
    v->wanted_at = at.level + 1;
    if (!is_transparent(o))
        at.level = o->level; /* where the operands are wanted if `o` should be materialized in the end */
    if (at.write && moves_elements(o->code)) at.stamp |= 1;
    for (int i = 0; i < o->arg_count; i++) record_operand_use(l, o, i, at);
}

/* arg = start; each iteration yields arg + step, where step is the same number in all elements */
static void find_offset(tile *t, value *arg, value *start, value *yielded, value *result) {
    op *o = yielded->def;
    if (is_scalar(arg) || !o || (o->code != OP_ADDPTR && o->code != OP_ADDI) || o->args[0] != arg ||
        !is_splat(o->args[1]))
        return;
    const op *step = o->args[1]->def; /* of one element it may be materialized, as what is loaded */
    if (o->args[1]->type->count == 1 && !(step && (step->code == OP_CONSTANT || step->code == OP_SPLAT)))
        return;
    if (!start->def && !start->offset)
        return; /* the start must be computable later: no carried value of an outer loop */
    arg->offset = NEW(t, carried_offset);
    arg->offset->start = start;
    arg->offset->step = o->args[1];
    result->offset = arg->offset;
}

static void index_ops(layout *l, region *r, int loops) {
    for (block *b = r->first; b; b = b->next)
        for (op *o = b->first; o; o = o->next) {
            o->id = ++l->next_id;
            o->loops = loops;
            bool loop = o->code == OP_FOR || o->code == OP_WHILE;
            bool effect = has_effect(o);
            if (loop || o->code == OP_IF)
                for (int i = 0; i < o->region_count; i++)
                    effect = effect || region_has_effect(&o->regions[i]);
            o->epoch = l->epoch;
            if (effect) l->epoch++;
            for (int i = 0; i < o->arg_count; i++) o->args[i]->uses++;
            int cost = own_cost(o);
            for (int i = 0; i < o->arg_count; i++)
                if (!is_scalar(o->args[i])) cost += o->args[i]->cost;
            int level = l->memory_epoch << 8;
            for (int i = 0; i < o->arg_count; i++) {
                int below = o->args[i]->def ? o->args[i]->def->level + o->args[i]->def->raises : 0;
                if (below >> 8 == l->memory_epoch && below > level) level = below;
            }
            o->level = level;
            o->raises = !is_pure(o) || is_small_reduce(o) ||
                        o->code == OP_GATHER; /* its operand is complete by then */
            bool stops = !is_pure(o);         /* what it gives is materialized, and costs a read */
            for (int i = 0; i < o->result_count; i++)
                o->results[i].cost = stops ? COST_LOAD : cost < COST_MOST ? cost : COST_MOST;
            if (o->code == OP_FOR) {
                block *body = o->regions[0].first;
                for (int i = 1; i < body->arg_count; i++)
                    find_offset(l->t, body->args[i], o->args[i + 2], body->last->args[i - 1],
                                &o->results[i - 1]);
            }
            if (loop || o->code == OP_IF || o->code == OP_MAP_ELEMENTWISE) {
                for (int i = 0; i < o->region_count; i++) {
                    for (block *c = o->regions[i].first; c; c = c->next)
                        for (int k = 0; k < c->arg_count; k++) c->args[k]->cost = COST_LOAD;
                    l->memory_epoch++;
                    index_ops(l, &o->regions[i], loops + loop);
                }
                l->memory_epoch++;
                if (effect) l->epoch++;
            }
            o->end = l->next_id;
        }
}

static void record_uses(layout *l, region *r) {
    for (block *b = r->first; b; b = b->next)
        for (op *o = b->first; o; o = o->next) {
            use_site at = {o->level, o->epoch, o->loops, l->stamp += 2, o->id, b, NULL};
            if (op_writes(o) && note_write(l, o, at.stamp)) at.write = o;
            if (o->code == OP_FOR) { /* initial values are copied before the loop, at the loop's number */
                block *body = o->regions[0].first;
                for (int i = 3; i < o->arg_count; i++) {
                    value *arg = body->args[i - 2];
                    record_use(l, o->args[i], at);
                    if (is_scalar(arg)) continue;
                    if (arg->offset) {
                        at.loops++; /* read in the body */
                        at.id = o->end;
                        record_use(l, o->args[i], at);
                        at.loops--;
                        at.id = o->id;
                    } else {
                        mark_materialized(l, arg, o->end, true);
                    }
                }
            } else if (o->code == OP_YIELD && o->owner->owner->owner->code == OP_FOR) {
                for (int i = 0; i < o->arg_count; i++)
                    if (!o->owner->owner->owner->regions[0].first->args[i + 1]->offset)
                        record_use(l, o->args[i], at);
            } else if (o->code == OP_WHILE) {
                for (int k = 0; k < 2; k++)
                    for (int i = 0; i < o->regions[k].first->arg_count; i++)
                        if (!is_scalar(o->regions[k].first->args[i]))
                            mark_materialized(l, o->regions[k].first->args[i], o->end, true);
                for (int i = 0; i < o->arg_count; i++) record_use(l, o->args[i], at);
            } else if (o->code == OP_DOT || o->code == OP_DOT_SCALED) {
                record_use(l, o->args[2], at);
                matrix unit;
                bool transposed, fits = dot_unit(l->t, o, &unit);
                for (int i = 0; i < o->arg_count; i++)
                    if (i != 2 && fits && dot_direct(l->t, o, i, &unit, &transposed))
                        continue;
                    else if (i != 2 && o->code == OP_DOT)
                        mark_materialized(l, o->args[i], reader_of(o->args[i], at), true);
                    else if (i != 2)
                        record_use(l, o->args[i], at);
            } else if (!is_pure(o) ||
                       (o->result_count && is_scalar(&o->results[0]))) { /* emitted where it stands */
                for (int i = 0; i < o->arg_count; i++)
                    if (o->code == OP_GATHER && i == 0 && !is_scalar(o->args[i]))
                        mark_materialized(l, o->args[i], reader_of(o->args[i], at), false);
                    else
                        record_use(l, o->args[i], at);
            }
            if ((o->code == OP_FOR || o->code == OP_IF || o->code == OP_WHILE))
                for (int i = 0; i < o->region_count; i++) record_uses(l, &o->regions[i]);
        }
}

static void for_values(layout *l, region *r, void (*each)(layout *, value *)) {
    for (block *b = r->first; b; b = b->next) {
        for (int i = 0; i < b->arg_count; i++) each(l, b->args[i]);
        for (op *o = b->first; o; o = o->next) {
            for (int i = 0; i < o->result_count; i++) each(l, &o->results[i]);
            for (int i = 0; i < o->region_count; i++) for_values(l, &o->regions[i], each);
        }
    }
}

static void forget_use(layout *l, value *v) { v->wanted_at = v->stamp = 0; }

static void drop_unread(layout *l, value *v) {
    if (v->materialized && v->materialized->pass != l->pass) v->materialized = NULL;
}

static void forget_emission(layout *l, value *v) {
    v->memo = NULL;
    v->pending = 0;
}

static void forget_layout(layout *l, value *v) {
    v->uses = v->wanted_at = v->stamp = v->seen = 0;
    v->is_read = false;
    v->materialized = NULL;
    v->offset = NULL;
}

/* Local memory is read faster one element a lane. */
static void keep_lines(layout *l, value *v) {
    if (v->materialized && v->materialized->is_cross_lane &&
        v->materialized->type->count >= (int64_t)l->t->parts * tile_lanes(l->t))
        l->again = true;
}

static void drop_remat_candidate(layout *l, value *v) {
    if (!v->materialized || !v->materialized->is_remat_candidate || !v->materialized->is_cross_lane) return;
    v->is_recomputed = true;
    l->again = true;
}

/* A dot's sums stay in registers as they lie after it, over a loop too that only the dot changes them in: as
 * far as is known; a trial emission finds out. */
static void mark_parts(layout *l, region *r) {
    for (block *b = r->first; b; b = b->next)
        for (op *o = b->first; o; o = o->next) {
            for (int i = 0; i < o->region_count; i++) mark_parts(l, &o->regions[i]);
            o->grid = NULL;
            for (int i = 0; i < o->result_count; i++) o->results[i].grid = NULL;
            if ((o->code == OP_DOT || o->code == OP_DOT_SCALED) && o->results[0].materialized &&
                !o->results[0].is_whole)
                o->results[0].materialized->grid = dot_parts(l->t, o);
            block *body = o->code == OP_FOR ? o->regions[0].first : NULL;
            for (int i = 1; body && i < body->arg_count; i++) {
                value *arg = body->args[i];
                const op *dot = body->last->args[i - 1]->def;
                if (!dot || dot->owner != body || (dot->code != OP_DOT && dot->code != OP_DOT_SCALED) ||
                    !arg->materialized || arg->is_whole || !accumulates(arg, dot))
                    continue;
                arg->materialized->grid = dot_parts(l->t, dot);
            }
        }
}

/* The dimension along which a dot's operand lies together in memory, before what is computed from it; else
 * the last. */
static int memory_dim(value *v, int budget) {
    int last = v->type->rank - 1, d = contiguous_dim(v);
    const op *o = v->def;
    if (d >= 0 || !o || !budget) return d >= 0 ? d : last;
    if (o->code == OP_TRANS && o->args[0]->type->rank == 2) return 1 - memory_dim(o->args[0], budget - 1);
    for (int i = 0; i < o->arg_count && is_elementwise(o); i++)
        if (!is_splat(o->args[i]) && memory_dim(o->args[i], budget - 1) != last) return last - 1;
    return last;
}

/* How the operands of dots lie: for the units that multiply matrices, where the target has them and no other
 * dot reads the array. Two passes: `plain` marks those of the others first. */
static void mark_blocked(layout *l, region *r, bool plain, int64_t *sums) {
    for (block *b = r->first; b; b = b->next)
        for (op *o = b->first; o; o = o->next) {
            matrix unit;
            for (int i = 0; i < o->region_count; i++) mark_blocked(l, &o->regions[i], plain, sums);
            if (o->code != OP_DOT && o->code != OP_DOT_SCALED) continue;
            bool fits = dot_unit(l->t, o, &unit);
            if (fits && unit.kind == UNIT_XMX && !plain) l->t->subgroup = l->t->target.matrix_lanes;
            if (!plain) *sums += o->results[0].type->count / tile_lanes(l->t);
            for (int i = 0; i < 2 && o->code == OP_DOT; i++) {
                materialized *h = o->args[i]->materialized;
                if (!h) continue;
                if (plain && !fits) h->is_cross_lane = h->is_plain = true;
                if (plain && fits && unit.kind == UNIT_BYTES && i == 0) h->is_cross_lane = h->is_plain = true;
                if (plain || !fits || h->is_plain || h->order) continue;
                if (unit.kind == UNIT_PTX) h->fill_dim = memory_dim(o->args[i], 8);
                element_order wanted = operand_order(&unit, i, h->fill_dim);
                if (!wanted) continue;
                h->order = wanted;
                h->packed = unit.element;
                h->is_cross_lane = true;
            }
        }
}

static void join(layout *l, value *v) {
    materialized *h = v->materialized;
    if (!h || !h->joined || h->is_cross_lane == h->joined->is_cross_lane) return;
    h->is_cross_lane = h->joined->is_cross_lane = true;
    l->joins = true;
}

static void give_up_parts(layout *l, value *v) {
    if (!v->materialized || !v->materialized->grid || !v->materialized->is_cross_lane) return;
    v->is_whole = true;
    l->again = true;
}

static void forget_locations(layout *l, value *v) {
    if (!v->materialized) return;
    v->materialized->is_shared = false;
    v->materialized->stages = 0;
    v->materialized->name = NULL;
}

static void fix_layout(layout *l, value *v) {
    if (!v->materialized) return;
    v->materialized->in_registers = !v->materialized->is_cross_lane;
    v->materialized->is_shared = false;
    v->materialized->stages = 0;
    v->materialized->parts = 0;
    v->materialized->name = NULL;
}

/* For --dump-after layout: where the value is. */
static void note_location(tile *t, text_buffer *out, const value *v) {
    if (v->materialized)
        text_addf(out, "  // materialized, lanes along dimension %d, read until operation %d",
                  v->materialized->lane_dim, v->materialized->last_use);
    if (v->offset) text_addf(out, "  // %%%d moved by a scalar", v->offset->start->id);
}

void tile_layout(tile *t) {
    layout l = {.t = t, .memory_epoch = 1};
    region *body = &t->kernel->regions[0];
    t->kernel->loops = -1;
    index_ops(&l, body, 0);
    t->reduces = false;
    note_reads(&l, body);
    prefer(t, body, 1);
    l.pass = 1; /* finds what is materialized */
    record_uses(&l, body);
    l.pass = 2; /* knowing that, finds who reads it; what nobody reads isn't materialized after all */
    for_values(&l, body, forget_use);
    record_uses(&l, body);
    for_values(&l, body, drop_unread);
    t->subgroup = t->target.lanes;
    int64_t sums = 0;
    mark_blocked(&l, body, true, &sums);
    mark_blocked(&l, body, false, &sums);
    t->is_large = false;
    if (t->target.matrix_lanes && t->target.matrix_lanes < 32)
        t->is_large = sums > registers_of(t) && 2 * tile_lanes(t) <= t->target.max_lanes;
    if (!t->target.is_cpu) mark_parts(&l, body);
    t->note = note_location;
}

/* Where a lane takes several elements at once, it moves them as vectors of up to 16 bytes. */
static void find_parts(const tile *t, const region *r, int64_t *parts, bool *moves) {
    for (const block *b = r->first; b; b = b->next)
        for (const op *o = b->first; o; o = o->next) {
            const type *ty = o->arg_count ? o->args[0]->type : NULL;
            int kind = op_table[o->code].kind;
            if (kind == KIND_LOAD || kind == KIND_STORE) {
                if (is_scalar(o->args[0])) continue;
                int bytes = (element_bits(ty->element) + 7) / 8;
                int64_t most = ty->shape[lane_dim((tile *)(uintptr_t)t, ty)] / tile_lanes(t);
                if (16 / bytes < most) most = 16 / bytes;
                if (most >= 2 && (most < *parts || !*moves)) *parts = most;
                *moves = *moves || most >= 2;
            } else if (!is_pure(o) || kind == KIND_GATHER || kind == KIND_MAP || kind == KIND_DESCRIPTOR) {
                bool plain = kind == KIND_FOR || kind == KIND_IF || kind == KIND_WHILE || kind == KIND_END ||
                             o->code == OP_REDUCE || o->code == OP_ASSUME;
                if (!plain) *parts = 1, *moves = true;
            }
            for (int i = 0; i < o->region_count; i++) find_parts(t, &o->regions[i], parts, moves);
        }
}

int tile_parts(tile *t) {
    int64_t parts = 1;
    bool moves = false;
    find_parts(t, &t->kernel->regions[0], &parts, &moves);
    int power = 1;
    while (power * 2 <= parts && power < MAX_PARTS) power *= 2;
    return power;
}

bool tile_iterate_layout(tile *t, bool splits) {
    layout l = {.t = t};
    region *body = &t->kernel->regions[0];
    do {
        l.joins = false;
        for_values(&l, body, join);
    } while (l.joins);
    if (t->parts > 1) {
        for_values(&l, body, keep_lines);
        t->parts = l.again ? 1 : splits ? t->parts / 2 : t->parts;
        l.again |= splits;
    }
    if (!l.again) for_values(&l, body, drop_remat_candidate);
    for_values(&l, body, give_up_parts);
    for_values(&l, body, forget_emission);
    bool again = l.again || t->layout_changed;
    if (l.again) {
        for_values(&l, body, forget_layout);
        t->preferences = NULL;
        tile_layout(t);
    } else {
        for_values(&l, body, again ? forget_locations : fix_layout);
    }
    t->layout_changed = false;
    return again;
}
