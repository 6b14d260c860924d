/* The emitter's core: output text, scopes, values at coordinates, materialized arrays, the open group. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tile/emit.h"

/* --- text --- */

static void buffer_reserve(tile *t, buffer *b, size_t size) {
    if (b->size + size + 1 <= b->room) return;
    size_t room = 2 * (b->size + size) + 256;
    char *more = tile_alloc(t, room);
    if (b->size) memcpy(more, b->data, b->size);
    b->data = more;
    b->room = room;
}

void buffer_add(tile *t, buffer *b, const char *data, size_t size) {
    buffer_reserve(t, b, size);
    memcpy(b->data + b->size, data, size);
    b->size += size;
    b->data[b->size] = 0;
}

static void buffer_addv(tile *t, buffer *b, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    size_t room = b->room - b->size;
    size_t size = tile_vformat(b->data ? b->data + b->size : NULL, room, format, args);
    if (size >= room) {
        buffer_reserve(t, b, size);
        tile_vformat(b->data + b->size, size + 1, format, again);
    }
    b->size += size;
    va_end(again);
}

void buffer_addf(tile *t, buffer *b, const char *format, ...) {
    va_list args;
    va_start(args, format);
    buffer_addv(t, b, format, args);
    va_end(args);
}

static void line_v(emitter *e, int depth, const char *format, va_list args) {
    static const char spaces[] = "                                ";
    scope *s = &e->scopes[depth];
    if (e->is_trial) return; /* nobody will read it */
    for (size_t left = 4 * (size_t)s->indent, n; left; left -= n) {
        n = left < sizeof spaces - 1 ? left : sizeof spaces - 1;
        buffer_add(e->t, &s->text, spaces, n);
    }
    buffer_addv(e->t, &s->text, format, args);
    buffer_add(e->t, &s->text, "\n", 1);
}

void emit_line(emitter *e, int depth, const char *format, ...) {
    va_list args;
    va_start(args, format);
    line_v(e, depth, format, args);
    va_end(args);
}

/* --- scopes: each has its own text, so that a line can still be put before a loop that is open --- */

void open_scope(emitter *e, const char *format, ...) {
    if (e->depth + 1 == MAX_SCOPES)
        tile_unsupported(e->t, NULL, "loops and branches nested more than %d deep", MAX_SCOPES);
    scope *s = &e->scopes[++e->depth];
    *s = (scope){.serial = ++e->serials, .indent = e->scopes[e->depth - 1].indent + 1};
    va_list args;
    va_start(args, format);
    s->indent--;
    line_v(e, e->depth, format, args);
    s->indent++;
    va_end(args);
}

void close_scope(emitter *e, const char *format, ...) {
    scope *s = &e->scopes[e->depth], *outer = s - 1;
    reconverge_after_selects(e);
    if (format) {
        va_list args;
        va_start(args, format);
        s->indent--;
        line_v(e, e->depth, format, args);
        va_end(args);
    }
    const char *hint = unroll_hint(e, s);
    if (hint) buffer_addf(e->t, &outer->text, "%*s%s\n", 4 * outer->indent, "", hint);
    if (s->text.size) buffer_add(e->t, &outer->text, s->text.data, s->text.size);
    e->depth--;
}

const char *new_name(emitter *e, const char *prefix) { return tile_format(e->t, "%s%d", prefix, ++e->names); }

const char *use(emitter *e, const char *function) {
    const char *line = tile_format(e->t, "\n%s\n", function);
    if (!e->library.size) buffer_add(e->t, &e->library, "\n", 1);
    if (!strstr(e->library.data, line)) buffer_addf(e->t, &e->library, "%s\n", function);
    return function;
}

/* --- expressions --- */

static int deeper(int a, int b) { return a > b ? a : b; }

const char *lane_index(emitter *e, const expr *x) {
    return x->parts > 1 ? tile_format(e->t, "(%d * lane + %d)", x->parts, x->part) : "lane";
}

const char *lane_text(emitter *e, const expr *x) {
    if (x->kind != LINEAR) return x->text;
    const char *lane = lane_index(e, x);
    if (x->is_constant && x->constant == 0)
        return x->stride == 1 ? lane : tile_format(e->t, "(%lld * %s)", (long long)x->stride, lane);
    if (x->stride == 1) return tile_format(e->t, "(%s + %s)", x->text, lane);
    return tile_format(e->t, "(%s + %lld * %s)", x->text, (long long)x->stride, lane);
}

/* Gives `x` a name, in the outermost scope in which it can be computed. */
expr declare(emitter *e, const type *ty, expr x, const char *prefix, int id) {
    if (x.is_constant) return x;
    if (x.row) {
        expr *row = NEW(e->t, expr);
        *row = *x.row;
        row->root = x.root;
        *row = declare(e, ty, *row, prefix, id);
        x.row = row;
    }
    const char *name = tile_format(e->t, "%s%d_%d", prefix, id, ++e->names);
    x.depth = deeper(x.depth, e->block_depth);
    const char *text = x.text;
    size_t size = strlen(text);
    if (text[0] == '(' && text[size - 1] == ')') { /* one pair of parentheses around all? */
        int open = 0;
        size_t i = 0;
        for (; i < size; i++) {
            open += (text[i] == '(') - (text[i] == ')');
            if (!open) break;
        }
        if (i == size - 1) text = tile_strndup(e->t, text + 1, size - 2);
    }
    emit_line(e, x.depth, "const %s %s = %s;", x.root ? "long" : c_type(ty), name, text);
    if (x.kind == VARYING) e->work += e->weight * (uint64_t)e->lanes;
    x.text = name;
    return x;
}

void remember(emitter *e, value *v, const coords *at, expr x) {
    memo *m = NEW(e->t, memo);
    *m = (memo){v->memo, at, x, e->scopes[deeper(x.depth, 0)].serial};
    v->memo = m;
}

bool is_whole(const expr *x) { return x->kind == UNIFORM || (x->kind == VARYING && x->is_whole); }

bool same_coords(const coords *a, const coords *b, bool any_part) {
    if (!a || a == b) return true;
    if (!b || a->rank != b->rank || a->hash != b->hash) return false;
    for (int i = 0; i < a->rank; i++) {
        const expr *x = &a->dims[i], *y = &b->dims[i];
        if (x->kind != y->kind || x->stride != y->stride || strcmp(x->text, y->text)) return false;
        if (x->kind == LINEAR && (x->parts != y->parts || (x->part != y->part && !any_part))) return false;
    }
    return true;
}

static int part_of(const coords *at) {
    for (int i = 0; at && i < at->rank; i++)
        if (at->dims[i].kind == LINEAR) return at->dims[i].part;
    return 0;
}

bool recall(emitter *e, value *v, const coords *at, expr *x) {
    for (memo **next = &v->memo, *m; (m = *next);) {
        if (m->result.depth > e->depth || e->scopes[m->result.depth].serial != m->serial) {
            *next = m->next; /* its scope is closed */
            continue;
        }
        if (same_coords(m->at, at, m->result.kind == LINEAR || is_whole(&m->result))) {
            *x = m->result;
            if (x->kind == LINEAR && m->at) x->part = part_of(at);
            return true;
        }
        next = &m->next;
    }
    return false;
}

/* --- values at coordinates --- */

static const coords *without_dim(emitter *e, const coords *at, int axis, const expr *linear) {
    expr dims[MAX_RANK];
    for (int i = 0, k = 0; i < at->rank; i++)
        if (i != axis) dims[k++] = at->dims[i];
    return make_coords(e, at->rank - 1, dims, linear);
}

static const coords *with_dim(emitter *e, const coords *at, int axis, expr x) {
    expr dims[MAX_RANK];
    for (int i = 0, k = 0; i <= at->rank; i++) dims[i] = i == axis ? x : at->dims[k++];
    return make_coords(e, at->rank + 1, dims, NULL);
}

/* The operand's element of an operation that only moves elements. */
static expr emit_moved(emitter *e, op *o, const coords *at, int index) {
    value *from = o->args[0];
    expr dims[MAX_RANK];
    switch (o->code) {
    case OP_BROADCAST: {
        bool same = true;
        for (int i = 0; i < at->rank; i++) {
            dims[i] = from->type->shape[i] == 1 ? constant_int(e, 0) : at->dims[i];
            same = same && from->type->shape[i] == o->results[0].type->shape[i];
        }
        return emit_value(e, from, same ? at : make_coords(e, at->rank, dims, NULL));
    }
    case OP_EXPAND_DIMS:
        return emit_value(e, from, without_dim(e, at, (int)op_attr_int(o, "axis", 0), at->linear));
    case OP_TRANS: {
        const attr *order = op_attr(o, "order");
        for (int i = 0; i < at->rank; i++) dims[order->list[i].integer] = at->dims[i];
        return emit_value(e, from, make_coords(e, at->rank, dims, NULL));
    }
    case OP_RESHAPE:
        return emit_value(e, from, delinear(e, from->type, linear_index(e, o->results[0].type, at)));
    case OP_SPLIT: return emit_value(e, from, with_dim(e, at, at->rank, constant_int(e, index)));
    default: /* join, cat: which of two */
    {
        bool join = o->code == OP_JOIN;
        int axis = join ? at->rank - 1 : 0;
        expr which = at->dims[axis], half = constant_int(e, from->type->shape[0]);
        const coords *left, *right;
        if (join) {
            left = right = without_dim(e, at, axis, NULL);
        } else {
            memcpy(dims, at->dims, sizeof(expr) * (size_t)at->rank);
            dims[0] = int_op(e, OP_REMSI, I32, which, half);
            left = right = make_coords(e, at->rank, dims, NULL);
            which = int_op(e, OP_DIVSI, I32, which, half);
        }
        if (which.kind == UNIFORM && which.is_constant)
            return emit_value(e, o->args[which.constant != 0], left);
        expr a = emit_value(e, o->args[0], left), b = emit_value(e, o->args[1], right);
        if (a.root) tile_unsupported(e->t, o->at, "%s of pointers", op_table[o->code].name);
        expr x = {.kind = which.kind == UNIFORM && a.kind == UNIFORM && b.kind == UNIFORM ? UNIFORM : VARYING,
                  .depth = deeper(which.depth, deeper(a.depth, b.depth)),
                  .divisor = 1};
        x.text = tile_format(e->t, "%s ? %s : %s", lane_text(e, &which), lane_text(e, &b), lane_text(e, &a));
        return declare(e, from->type, x, "v", o->results[0].id);
    }
    }
}

/* What a lane has loaded of an operation's elements at once: so many parts from one address on. */
typedef struct loaded {
    struct loaded *next;
    const op *op;
    const char *root, *address, *name;
    int depth, serial;
} loaded;

bool is_run(const expr *p) {
    return p->kind == LINEAR && p->stride == 1 && p->parts > 1 && p->divisor % p->parts == 0;
}

/* The vector of the lane's parts from `p` on, and (in *depth) where it is known. */
static const char *load_run(emitter *e, const op *o, const expr *p, const expr *mask, int *depth) {
    element el = o->results[0].type->element;
    *depth = deeper(p->depth, e->block_depth);
    if (mask) *depth = deeper(*depth, mask->depth);
    for (const loaded *l = e->loaded; l; l = l->next)
        if (l->op == o && l->depth <= e->depth && l->serial == e->scopes[l->depth].serial &&
            !strcmp(l->root, p->root) && !strcmp(l->address, p->text))
            return l->name;
    expr first = *p;
    first.part = 0;
    const char *vector = tile_format(e->t, "%s%d", c_bits(e, el), p->parts), *name = new_name(e, "w");
    const char *from = tile_format(e->t, "as_%s(*(const __global %s *)(%s + %s))", vector,
                                   run_words(e, el, p->parts), p->root, lane_text(e, &first));
    if (mask) from = tile_format(e->t, "%s ? %s : (%s)(0)", mask->text, from, vector);
    emit_line(e, *depth, "const %s %s = %s;", vector, name, from);
    loaded *l = NEW(e->t, loaded);
    *l = (loaded){e->loaded, o, p->root, p->text, name, *depth, e->scopes[*depth].serial};
    e->loaded = l;
    return name;
}

/* A load's element: "mask ? root[offset] : other" */
static expr emit_load(emitter *e, op *o, const coords *at) {
    expr p = emit_value(e, o->args[0], at),
         x = {.kind = p.kind == UNIFORM ? UNIFORM : VARYING, .depth = p.depth, .divisor = 1};
    const type *ty = o->results[0].type;
    const char *base = p.root;
    if (op_attr(o, "isVolatile"))
        base = tile_format(e->t, "((volatile __global %s *)%s)", c_stored(ty->element), base);
    bool run = is_run(&p) && base == p.root;
    expr mask = {.text = "true", .kind = UNIFORM, .is_constant = true, .constant = 1};
    x.is_whole = is_whole(&p);
    e->splits |= p.kind == LINEAR && p.stride == 1 && p.parts > 1 && !run;
    x.text = load_text(e, ty->element, base, &p);
    if (p.row) /* mostly a vector: elements one by one only where they are apart */
        x.text = tile_format(e->t, "(%s ? %s : %s)", p.when, load_text(e, ty->element, base, p.row), x.text);
    if (o->arg_count > 1) mask = emit_value(e, o->args[1], at);
    bool masked = !(mask.is_constant && mask.constant);
    if (run && is_whole(&mask)) {
        const char *name = load_run(e, o, &p, masked ? &mask : NULL, &x.depth);
        x.text = loaded_text(e, ty->element, tile_format(e->t, "%s.s%d", name, p.part));
        if (o->arg_count < 3) masked = false; /* the vector has zeros there */
    } else {
        e->splits |= run;
    }
    if (masked) {
        expr other = {.text = "0", .kind = UNIFORM};
        if (o->arg_count > 2) other = emit_value(e, o->args[2], at);
        x.text = tile_format(e->t, "%s ? %s : %s", lane_text(e, &mask), x.text, lane_text(e, &other));
        x.depth = deeper(x.depth, deeper(mask.depth, other.depth));
        x.is_whole = x.is_whole && is_whole(&mask) && is_whole(&other);
        if (mask.kind != UNIFORM || other.kind != UNIFORM) x.kind = VARYING;
    }
    return declare(e, ty, x, "v", o->results[0].id);
}

/* --- descriptors: a block of a strided matrix, with bounds --- */

static op *descriptor_of(emitter *e, op *o) {
    op *d = o->args[0]->def;
    if (!d || d->code != OP_MAKE_DESCRIPTOR)
        tile_unsupported(e->t, o->at, "a tensor descriptor that isn't made in the kernel");
    return d;
}

/* The address of the block's element `at`, and whether it lies inside. */
expr descriptor_element(emitter *e, op *o, const coords *at, const char **inside, int *depth) {
    op *d = descriptor_of(e, o);
    const type *shape = d->results[0].type;
    expr p = emit_value(e, d->args[0], NULL), offset = constant_int(e, 0);
    buffer all = {0};
    int rank = shape->rank;
    bool indexed = o->code == OP_DESCRIPTOR_GATHER || o->code == OP_DESCRIPTOR_SCATTER;
    if (!indexed && at->rank != rank)
        at = delinear(
            e, shape,
            linear_index(
                e, o->code == OP_DESCRIPTOR_LOAD ? o->results[0].type : o->args[o->arg_count - 1]->type, at));
    *depth = e->block_depth;
    for (int i = 0; i < rank; i++) {
        expr c;
        if (indexed && i == 0) { /* rows by a vector of numbers */
            c = emit_value(e, o->args[1], make_coords(e, 1, at->dims, NULL));
        } else {
            expr first = emit_value(e, o->args[indexed ? 2 : 1 + i], NULL);
            c = int_op(e, OP_ADDI, I32, first, at->dims[i]);
        }
        expr size = emit_value(e, d->args[1 + i], NULL), stride = emit_value(e, d->args[1 + rank + i], NULL);
        const char *text = lane_text(e, &c);
        buffer_addf(e->t, &all, "%s%s >= 0 && %s < %s", i ? " && " : "", text, text, size.text);
        *depth = deeper(*depth, deeper(c.depth, size.depth));
        c.text = tile_format(e->t, "(long)%s", c.text);
        offset = int_op(e, OP_ADDI, I64, offset, int_op(e, OP_MULI, I64, c, stride));
    }
    *inside = tile_format(e->t, "(%s)", all.data);
    expr sum = int_op(e, OP_ADDI, I64, p, offset);
    sum.root = p.root;
    return sum;
}

bool pads_with_nan(const op *descriptor) {
    const attr *padding = op_attr(descriptor, "padding");
    return padding && padding->kind == ATTR_INT
               ? padding->integer == 2
               : padding && padding->string && strstr(padding->string, "nan");
}

static expr emit_descriptor_load(emitter *e, op *o, const coords *at) {
    const char *inside;
    int depth;
    expr p = descriptor_element(e, o, at, &inside, &depth), x = {.kind = VARYING, .divisor = 1};
    const type *ty = o->results[0].type;
    bool nan = pads_with_nan(descriptor_of(e, o));
    x.text = tile_format(e->t, "%s ? %s : %s", inside, load_text(e, ty->element, p.root, &p),
                         nan && is_float(ty) ? "NAN" : "0");
    x.depth = e->depth > deeper(depth, p.depth) ? e->depth : deeper(depth, p.depth);
    return declare(e, ty, x, "v", o->results[0].id);
}

static expr emit_materialized(emitter *e, value *v, const coords *at) {
    materialized *h = v->materialized;
    if (!h->name)
        tile_error(e->t, v->def ? v->def->at : NULL,
                   "internal error: a materialized value is read before it is written");
    expr i, x = {.text = materialized_text(e, h, at, &i), .divisor = 1};
    if (h->order) x.text = loaded_text(e, h->packed, x.text);
    x.kind = i.kind == UNIFORM ? UNIFORM : VARYING;
    x.depth = deeper(i.depth, e->block_depth);
    if (!v->type->is_pointer) return declare(e, v->type, x, "v", v->id);
    x = declare(e, type_scalar(e->t, I64), x, "v", v->id); /* kept as an address */
    x.root = tile_format(e->t, "((__global %s *)%s)", c_stored(v->type->element), x.text);
    x.text = "0";
    x.is_constant = true;
    x.constant = 0;
    return x;
}

/* A reduction over two elements, where it is wanted. */
static expr emit_small_reduce(emitter *e, op *o, const coords *at, int index) {
    int axis = (int)op_attr_int(o, "axis", 0), n = o->arg_count;
    expr *sum = NEW_ARRAY(e->t, expr, n), *next_element = NEW_ARRAY(e->t, expr, n);
    for (int k = 0; k < o->args[0]->type->shape[axis]; k++) {
        const coords *from = with_dim(e, at, axis, constant_int(e, k));
        for (int i = 0; i < n; i++) next_element[i] = emit_value(e, o->args[i], from);
        if (k) {
            expr *next = NEW_ARRAY(e->t, expr, n);
            emit_combine(e, o, sum, next_element, next);
            sum = next;
        } else {
            memcpy(sum, next_element, sizeof(expr) * (size_t)n);
        }
    }
    return sum[index];
}

static expr emit_gather(emitter *e, op *o, const coords *at) {
    int axis = (int)op_attr_int(o, "axis", 0);
    expr index = emit_value(e, o->args[1], at), dims[MAX_RANK];
    memcpy(dims, at->dims, sizeof(expr) * (size_t)at->rank);
    dims[axis] = index;
    dims[axis].is_nonnegative = true;
    return emit_value(e, o->args[0], make_coords(e, at->rank, dims, NULL));
}

expr emit_recomputed(emitter *e, value *v, const coords *at) {
    op *o = v->def;
    expr args[MAX_RANK];
    switch (o->code) {
    case OP_LOAD: return emit_load(e, o, at);
    case OP_DESCRIPTOR_LOAD:
    case OP_DESCRIPTOR_GATHER: return emit_descriptor_load(e, o, at);
    case OP_MAKE_RANGE:
        return int_op(e, OP_ADDI, I32, at->dims[0], constant_int(e, op_attr_int(o, "start", 0)));
    case OP_SPLAT: return emit_value(e, o->args[0], NULL);
    case OP_UNSPLAT: return emit_value(e, o->args[0], at);
    case OP_BROADCAST:
    case OP_EXPAND_DIMS:
    case OP_TRANS:
    case OP_RESHAPE:
    case OP_JOIN:
    case OP_SPLIT:
    case OP_CAT: return emit_moved(e, o, at, v->index);
    case OP_REDUCE: return emit_small_reduce(e, o, at, v->index);
    case OP_GATHER: return emit_gather(e, o, at);
    default: break;
    }
    if (o->arg_count > MAX_RANK) tile_unsupported(e->t, o->at, "more than %d operands", MAX_RANK);
    for (int i = 0; i < o->arg_count; i++) args[i] = emit_value(e, o->args[i], at);
    hide_negated_byte(e, o, args);
    return emit_elementwise(e, o, args, v->index);
}

static expr value_at(emitter *e, value *v, const coords *at) {
    expr x;
    if (is_scalar(v)) at = NULL;
    if (recall(e, v, at, &x)) return x;
    if (v->offset) { /* the loop's start, moved */
        x = emit_value(e, v->offset->start, at);
        expr moved = {.text = v->offset->name, .kind = UNIFORM, .depth = e->block_depth, .divisor = 1};
        expr sum = int_op(e, OP_ADDI, v->type->is_pointer ? I64 : v->type->element, x, moved);
        sum.root = x.root;
        return sum;
    }
    if (v->materialized) {
        x = emit_materialized(e, v, at);
    } else {
        if (is_scalar(v) && !at) {
            expr dims[MAX_RANK];
            for (int i = 0; i < v->type->rank; i++) dims[i] = constant_int(e, 0);
            at = make_coords(e, v->type->rank, dims, NULL);
        }
        if (!v->def || !is_pure(v->def))
            tile_error(e->t, v->def ? v->def->at : NULL, "internal error: a value that was never computed");
        x = emit_recomputed(e, v, at);
        if (is_scalar(v)) at = NULL;
    }
    remember(e, v, at, x);
    return x;
}

/* The element of `v` at the coordinates; a scalar, whatever they are. */
expr emit_value(emitter *e, value *v, const coords *at) {
    expr x = value_at(e, v, at);
    if (x.kind == VARYING && v->type->element == I1) note_choice(e);
    return x;
}

/* --- materialized values --- */

materialized *hold_new(emitter *e, value *v) {
    hold_allocate(e, v->materialized);
    return v->materialized;
}

/* Registers of a lane, of 32 bits, that `h` takes; 0 if its elements don't fill the lanes. */
static int64_t words(const emitter *e, const materialized *h) {
    bool wide = h->type->is_pointer || element_bits(h->type->element) == 64;
    return h->type->count / e->lanes * (1 + wide);
}

/* How many of them may be taken by materialized values. Intel's newer GPUs, those with more local memory,
 * have registers of twice the width; half as many lanes share them where matrix units want that; and a
 * program may have twice as many. */
int registers_of(const tile *t) {
    bool wide = t->target.local_memory >= 128 << 10 || t->subgroup < t->target.lanes;
    int most = t->target.has_inline_ptx ? 128 : t->target.has_subgroups && wide ? 64 : 32;
    return t->is_large ? most * 5 / 2 : most;
}

void hold_allocate(emitter *e, materialized *h) {
    if (h->name) return;
    if (h->in_registers) {
        int vector = h->grid ? h->grid->vector : 1;
        const char *c = c_materialized(h->type);
        h->name = new_name(e, "r");
        buffer_addf(e->t, &e->locals, "    %s %s[%lld];\n",
                    vector > 1 ? tile_format(e->t, "%s%d", c, vector) : c, h->name,
                    (long long)(h->type->count / e->lanes / vector));
        return;
    }
    int64_t taken = words(e, h), most = registers_of(e->t);
    for (const materialized *other = e->in_use; other; other = other->next)
        if (!other->is_cross_lane) taken += words(e, other);
    for (materialized *other = e->in_use; other && !h->is_remat_candidate && taken > most;
         other = other->next) {
        if (other->is_cross_lane || !other->is_remat_candidate) continue;
        other->is_cross_lane = true; /* what can be computed anew gives way */
        taken -= words(e, other);
    }
    if (taken > most) h->is_cross_lane = true;
    for (materialized **f = &e->free; *f && !h->stages; f = &(*f)->next)
        if ((*f)->type->count == h->type->count && !strcmp(c_array(e, *f), c_array(e, h))) {
            h->name = (*f)->name;
            *f = (*f)->next;
            break;
        }
    if (!h->name) {
        h->name = new_name(e, "h");
        int bytes = h->type->is_pointer ? 8 : element_bits(h->type->element) / 8;
        bytes = is_float(h->type) && bytes < 4 ? 4 : bytes ? bytes : 1;
        if (h->order) bytes = element_bits(h->packed) / 8;
        uint64_t count = (uint64_t)h->type->count * (uint64_t)(h->stages ? h->stages : 1);
        uint64_t size = (count * (uint64_t)bytes + 63) & ~(uint64_t)63;
        e->local_memory += size;
        if (e->local_memory > e->t->target.local_memory && !e->is_trial && !e->ahead)
            tile_too_large(e->t,
                           "the blocks need more than the %llu bytes of local memory that %s has: smaller "
                           "blocks may fit",
                           (unsigned long long)e->t->target.local_memory, e->t->target.name);
        buffer_addf(e->t, &e->locals, "    __local %s %s[%lld] __attribute__((aligned(%d)));\n",
                    c_array(e, h), h->name, (long long)count, e->t->target.has_inline_ptx ? 128 : 64);
    }
    h->next = e->in_use;
    e->in_use = h;
}

/* Gives back the arrays that nothing from operation `now` on reads. */
static void release(emitter *e, int now) {
    for (materialized **h = &e->in_use; *h;) {
        materialized *done = *h;
        if (done->last_use >= now || done->is_shared) {
            h = &done->next;
            continue;
        }
        *h = done->next;
        materialized *back =
            NEW(e->t, materialized); /* `done` keeps its name: it was read by what is emitted */
        *back = *done;
        back->next = e->free;
        e->free = back;
    }
}

void emit_barrier(emitter *e, unsigned fences) {
    static const char *const flags[] = {[FENCE_GLOBAL] = "CLK_GLOBAL_MEM_FENCE",
                                        [FENCE_LOCAL] = "CLK_LOCAL_MEM_FENCE",
                                        [FENCE_GLOBAL | FENCE_LOCAL] =
                                            "CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE"};
    scope *s = &e->scopes[e->depth];
    if (s->barrier < s->behind && s->behind == s->text.size) { /* is there one directly before? */
        s->text.size = s->barrier;
        fences |= s->fences;
    }
    s->barrier = s->text.size;
    emit_line(e, e->depth, "%s(%s);", e->t->target.is_cpu ? "sub_group_barrier" : "barrier", flags[fences]);
    s->behind = s->text.size;
    s->fences = fences;
}

void barrier_if_touched(emitter *e) {
    if (!e->touches_local) return;
    if (e->copies)
        emit_line(e, e->depth, "commit_copies();\n%*sWAIT_FOR_COPIES(0);", 4 * e->scopes[e->depth].indent,
                  "");
    e->copies = false;
    emit_barrier(e, FENCE_LOCAL);
    e->touches_local = false;
}

/* --- groups --- */

void flush(emitter *e) {
    if (!e->group.shape) return;
    emit_group(e);
    e->group.shape = NULL;
    e->group.count = 0;
    barrier_if_touched(e);
    release(e, e->now);
}

bool moves_elements(op_code code) {
    switch (code) {
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_TRANS:
    case OP_EXPAND_DIMS:
    case OP_JOIN:
    case OP_SPLIT:
    case OP_CAT:
    case OP_GATHER:
    case OP_REDUCE: return true;
    default: return false;
    }
}

static bool pure_available(emitter *e, const op *o, bool moved, int budget);

/* Can `v`, wanted at a group's own coordinates (or at others: `moved`), be had inside the group? */
bool available(emitter *e, const value *v, bool moved, int budget) {
    const group *g = &e->group;
    if (is_scalar(v)) return v->pending != g->serial;
    if (v->offset) return available(e, v->offset->start, moved, budget);
    if (v->pending == g->serial) return v->def->code != OP_REDUCE && !moved;
    if (v->materialized || !v->def || !is_pure(v->def)) return true;
    return budget > 0 && pure_available(e, v->def, moved, budget);
}

static bool pure_available(emitter *e, const op *o, bool moved, int budget) {
    const group *g = &e->group;
    bool loads = op_table[o->code].kind == KIND_LOAD || op_table[o->code].kind == KIND_DESCRIPTOR;
    if (loads && g->has_effect && o->epoch > g->epoch) return false;
    for (int i = 0; i < o->arg_count; i++)
        if (!available(e, o->args[i], moved || moves_elements(o->code), budget - 1)) return false;
    return true;
}

static bool operands_available(emitter *e, const root *r) {
    if (r->kind == ROOT_COPY) return available(e, r->value, false, 64);
    if (r->kind == ROOT_HOLD) return pure_available(e, r->value->def, false, 64);
    for (int i = 0; i < r->op->arg_count; i++)
        if (!available(e, r->op->args[i], false, 64)) return false;
    return true;
}

static bool same_shape(const type *a, const type *b) {
    return a->rank == b->rank && !memcmp(a->shape, b->shape, sizeof(int32_t) * (size_t)a->rank);
}

/* Where a warp's lanes have parts of a row, in NVIDIA's units' sums, a reduction along the rows goes from
 * them. */
bool reduces_rows(const tiling *x, const type *shape, int axis) {
    return x->vector == 4 && axis == 1 && shape->rank == 2 && shape->shape[0] == x->rows * x->down &&
           shape->shape[1] == x->columns * x->across;
}

/* Would `v`, computed in the open group, be read from memory that `write` overwrites? */
static bool reads_overwritten(const emitter *e, const value *v, const op *write, bool moved, int budget) {
    if (v->offset) v = v->offset->start;
    const op *o = v->def;
    if (is_scalar(v) || v->materialized || !o || !is_pure(o)) return false;
    if (!budget || (op_reads(o) && is_overwritten(e->t, o, write, moved))) return true;
    for (int i = 0; i < o->arg_count; i++)
        if (reads_overwritten(e, o->args[i], write, moved || moves_elements(o->code), budget - 1))
            return true;
    return false;
}

/* Does the open group read for all its elements what `write` overwrites? */
static bool group_reads(const emitter *e, const op *write) {
    for (int i = 0; i < e->group.count; i++) {
        const root *r = &e->group.roots[i];
        const op *o = r->kind == ROOT_OP ? r->op : r->kind == ROOT_HOLD ? r->value->def : NULL;
        if (!o && reads_overwritten(e, r->value, write, false, 64)) return true;
        if (o && op_reads(o) && is_overwritten(e->t, o, write, false)) return true;
        for (int k = 0; o && k < o->arg_count; k++)
            if (reads_overwritten(e, o->args[k], write, moves_elements(o->code), 64)) return true;
    }
    return false;
}

/* Puts a root into the open group, or into a new one where it doesn't fit. */
void add_root(emitter *e, root r, const type *shape, int axis) {
    group *g = &e->group;
    bool reversed = r.kind == ROOT_OP && r.op->code == OP_SCAN && op_attr_int(r.op, "reverse", 0);
    int lane = r.kind == ROOT_HOLD ? r.value->materialized->fill_dim : lane_dim(e->t, shape);
    bool once = r.kind == ROOT_OP && (r.op->code == OP_ATOMIC_RMW || r.op->code == OP_ATOMIC_CAS ||
                                      r.op->code == OP_PRINT || r.op->code == OP_ASSERT);
    const tiling *grid = r.kind == ROOT_OP ? r.op->grid : r.value->grid;
    if (r.kind == ROOT_COPY && r.to->grid) grid = r.to->grid;
    bool fits = g->shape && g->lane == lane && g->grid == grid &&
                (!grid || axis < 0 || reduces_rows(grid, shape, axis)) && same_shape(g->shape, shape) &&
                g->count < MAX_ROOTS &&
                (axis < 0 || g->axis < 0 || (g->axis == axis && g->is_reversed == reversed)) &&
                !(reversed && g->count) && !(once && g->axis >= 0) && !(axis >= 0 && g->has_once);
    bool apart = r.kind == ROOT_OP && /* what it overwrites is read for all elements before */
                 (r.op->overwrites || (r.op->follows_reads && group_reads(e, r.op)));
    if (!fits || apart || !operands_available(e, &r)) flush(e);
    if (!g->shape) {
        g->shape = shape;
        g->lane = lane;
        g->axis = -1;
        g->grid = axis < 0 || (grid && reduces_rows(grid, shape, axis)) ? grid : NULL;
        g->is_reversed = false;
        g->serial = ++e->serials;
        g->has_effect = g->has_assert = g->has_once = g->follows_reads = false;
        g->epoch = r.kind == ROOT_OP ? r.op->epoch : r.value->def ? r.value->def->epoch : 0;
    }
    if (axis >= 0) {
        g->axis = axis;
        g->is_reversed = reversed;
    }
    g->has_once = g->has_once || once;
    g->follows_reads = g->follows_reads || apart || (r.kind == ROOT_OP && r.op->follows_reads);
    g->roots[g->count++] = r;
    if (r.kind == ROOT_HOLD) r.value->pending = g->serial;
    if (r.kind == ROOT_OP) {
        op_code code = r.op->code;
        g->has_assert = g->has_assert || code == OP_ASSERT;
        if (code == OP_STORE || code == OP_ATOMIC_RMW || code == OP_ATOMIC_CAS) {
            if (!g->has_effect) g->epoch = r.op->epoch;
            g->has_effect = true;
        }
        for (int i = 0; i < r.op->result_count; i++) r.op->results[i].pending = g->serial;
    }
}
