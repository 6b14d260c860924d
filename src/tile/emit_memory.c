/* Emits stores and atomics, through pointers and descriptors; assertions; prints. */
#include "tile/emit.h"

const char *both(emitter *e, const char *a, const char *b) {
    return !a ? b : !b ? a : tile_format(e->t, "%s && %s", a, b);
}

const char *mask_text(emitter *e, op *o, int index, const coords *at) {
    if (o->arg_count <= index) return NULL;
    expr m = emit_value(e, o->args[index], at);
    if (m.is_constant && m.constant) return NULL;
    return lane_text(e, &m);
}

/* `parts` remembers a lane's elements until they can be written at once; NULL: each by itself. */
void emit_store(emitter *e, op *o, const coords *at, const char *guard, const char **parts) {
    expr p = emit_value(e, o->args[0], at), v = emit_value(e, o->args[1], at), m = {.kind = UNIFORM};
    if (o->arg_count > 2) m = emit_value(e, o->args[2], at);
    const char *mask = both(e, guard, mask_text(e, o, 2, at)), *text;
    element el = o->args[1]->type->element;
    if (parts && !guard && is_run(&p) && is_whole(&m)) {
        parts[p.part] = stored_text(e, el, lane_text(e, &v));
        if (p.part < p.parts - 1) return;
        buffer all = {0};
        for (int i = 0; i < p.parts; i++) buffer_addf(e->t, &all, "%s%s", i ? ", " : "", parts[i]);
        const char *vector = tile_format(e->t, "%s%d", c_bits(e, el), p.parts);
        p.part = 0;
        const char *words = run_words(e, el, p.parts);
        text = tile_format(e->t, "*(__global %s *)(%s + %s) = as_%s((%s)(%s));", words, p.root,
                           lane_text(e, &p), words, vector, all.data);
    } else {
        e->splits |= p.kind == LINEAR && p.stride == 1 && p.parts > 1;
        text = store_text(e, el, &p, lane_text(e, &v));
    }
    if (mask)
        emit_line(e, e->depth, "if (%s) %s", mask, text);
    else
        emit_line(e, e->depth, "%s", text);
    e->work += e->weight * (uint64_t)e->lanes;
}

static const char *atomic_text(emitter *e, op *o, const char *pointer, const char *const *args) {
    tile *t = e->t;
    const type *ty = o->args[1]->type;
    element el = ty->element;
    int bits = element_bits(el);
    const char *prefix = bits == 64 ? "atom" : "atomic";
    if (bits == 64) use(e, "tile_atomic_i64");
    if (o->code == OP_ATOMIC_CAS) {
        if (bits == 16 && is_float(ty))
            return tile_format(t, "%s(%s, %s, %s)",
                               use(e, tile_format(t, "tile_atomic_cas_%s", element_names[el])), pointer,
                               args[0], args[1]);
        if (bits == 16)
            return tile_format(t, "(short)%s((__global ushort *)(%s), (ushort)%s, (ushort)%s)",
                               use(e, "tile_atomic_swap_16"), pointer, args[0], args[1]);
        if (bits < 32) tile_unsupported(t, o->at, "tt.atomic_cas on %s", element_names[el]);
        if (is_float(ty)) { /* by its bits */
            const char *of = bits == 64 ? "double" : "float", *as = bits == 64 ? "long" : "int";
            return tile_format(t, "as_%s(%s_cmpxchg((volatile __global %s *)(%s), as_%s(%s), as_%s(%s)))", of,
                               prefix, as, pointer, as, args[0], as, args[1]);
        }
        return tile_format(t, "%s_cmpxchg((volatile __global %s *)(%s), %s, %s)", prefix, c_type(ty), pointer,
                           args[0], args[1]);
    }
    static const char *const names[RMW_COUNT] = {[RMW_AND] = "and",  [RMW_OR] = "or",    [RMW_XOR] = "xor",
                                                 [RMW_ADD] = "add",  [RMW_MAX] = "max",  [RMW_MIN] = "min",
                                                 [RMW_UMAX] = "max", [RMW_UMIN] = "min", [RMW_XCHG] = "xchg"};
    int64_t order = op_attr_int(o, "atomic_rmw_op", 0);
    if (order == RMW_FADD) {
        if (bits < 16) tile_unsupported(t, o->at, "an atomic addition of %s", element_names[el]);
        return tile_format(t, "%s(%s, %s)", use(e, tile_format(t, "tile_atomic_fadd_%s", element_names[el])),
                           pointer, args[0]);
    }
    if (bits < 32) tile_unsupported(t, o->at, "an atomic operation on %s", element_names[el]);
    if (is_float(ty)) /* exchange */
        return bits == 64
                   ? tile_format(t, "as_double(atom_xchg((volatile __global long *)(%s), as_long(%s)))",
                                 pointer, args[0])
                   : tile_format(t, "as_float(atomic_xchg((volatile __global int *)(%s), as_int(%s)))",
                                 pointer, args[0]);
    const char *sign = order == RMW_UMAX || order == RMW_UMIN ? "u" : "";
    return tile_format(t, "(%s)%s_%s((volatile __global %s%s *)(%s), (%s%s)%s)", c_type(ty), prefix,
                       names[order], sign, c_type(ty), pointer, sign, c_type(ty), args[0]);
}

/* An atomic operation at the coordinates (NULL: on a scalar); gives its result. */
expr emit_atomic(emitter *e, op *o, const coords *at, const char *guard) {
    expr p = emit_value(e, o->args[0], at);
    const char *args[2];
    bool cas = o->code == OP_ATOMIC_CAS;
    for (int i = 0; i < 1 + cas; i++) {
        expr x = emit_value(e, o->args[1 + i], at);
        args[i] = lane_text(e, &x);
    }
    const char *mask = both(e, guard, cas ? NULL : mask_text(e, o, 2, at)), *name = new_name(e, "v");
    const char *pointer = tile_format(e->t, "%s + %s", p.root, lane_text(e, &p));
    const char *text = atomic_text(e, o, pointer, args);
    emit_line(e, e->depth, "%s %s = 0;", c_type(o->results[0].type), name);
    if (mask)
        emit_line(e, e->depth, "if (%s) %s = %s;", mask, name, text);
    else
        emit_line(e, e->depth, "%s = %s;", name, text);
    e->work += e->weight * (uint64_t)e->lanes * 4;
    return (expr){.text = name, .kind = VARYING, .depth = e->depth, .divisor = 1};
}

/* Other programs see what was written before, and what they have written is seen after. */
static void emit_fence(emitter *e) {
    const xpu_tile_target *target = &e->t->target;
    const char *name = target->is_cpu           ? "mem_fence"
                       : target->has_inline_ptx ? "tile_fence_ptx"
                                                : "tile_fence";
    emit_line(e, e->depth, "%s(CLK_GLOBAL_MEM_FENCE);", target->is_cpu ? name : use(e, name));
}

/* A store or atomic of one element: one lane does it. The others' would be no harm if lanes went together,
 * but the CPU driver runs a kernel without anything varying lane by lane: each would read what the last has
 * written. */
void emit_scalar_atomic(emitter *e, op *o) {
    if (o->code == OP_STORE) {
        if (o->follows_reads) emit_barrier(e, FENCE_GLOBAL);
        emit_store(e, o, NULL, "lane == 0", NULL);
        emit_barrier(e, FENCE_GLOBAL); /* the other lanes may read it */
        return;
    }
    int64_t sem = op_attr_int(o, "sem", 4); /* relaxed, acquire, release, both */
    if (!e->t->target.is_cpu) {             /* after what the other lanes read and wrote before */
        emit_barrier(e, FENCE_GLOBAL | FENCE_LOCAL);
        e->touches_local = false;
    } else if (o->follows_reads) {
        emit_barrier(e, FENCE_GLOBAL);
    }
    if (sem >= 3) emit_fence(e);
    expr x = emit_atomic(e, o, NULL, "lane == 0");
    if (sem == 2 || sem == 4) emit_fence(e);
    if (!o->results[0].uses) return;
    op like = {.at = o->at, .args = &(value *){&o->results[0]}};
    exchange(e, &like, &x, &x, 1, FROM_ONE, 0);
    x.kind = UNIFORM;
    remember(e, &o->results[0], NULL, x);
}

/* A string of the IR as part of a printf format in a C string. */
static const char *quoted(emitter *e, const op *o, const char *name) {
    const attr *a = op_attr(o, name);
    buffer out = {0};
    for (size_t i = 0; a && a->kind == ATTR_STRING && i < a->length; i++) {
        unsigned char c = (unsigned char)a->string[i];
        if (c == '%')
            buffer_add(e->t, &out, "%%", 2);
        else if (c == '"' || c == '\\' || c < ' ' || c > 126)
            buffer_addf(e->t, &out, "\\%03o", c);
        else
            buffer_add(e->t, &out, (const char *)&c, 1);
    }
    return out.size ? out.data : "";
}

/* tt.assert: at the coordinates, or (NULL) on a scalar. It stands as far outside as what it asserts, so that
 * no load that it is to keep from happening comes before it. */
void emit_assert(emitter *e, op *o, const coords *at) {
    expr c = emit_value(e, o->args[0], at);
    if (c.is_constant && c.constant) return;
    int depth = c.depth > e->block_depth ? c.depth : e->block_depth;
    emit_line(e, depth, "%s(%d, %s)", use(e, "TILE_ASSERT"), o->number, lane_text(e, &c));
}

/* tt.print: at the coordinates, or (NULL) on scalars */
void emit_message(emitter *e, op *o, const coords *at, const char *guard) {
    static const char where[] = "(int)XPU_GROUP(0), (int)XPU_GROUP(1), (int)XPU_GROUP(2)";
    const char *condition = guard ? tile_format(e->t, "if (%s) ", guard) : "",
               *prefix = quoted(e, o, "prefix");
    if (!o->arg_count)
        emit_line(e, e->depth, "%sprintf(\"program (%%d, %%d, %%d):%s\\n\", %s);", condition, prefix, where);
    for (int i = 0; i < o->arg_count; i++) {
        expr x = emit_value(e, o->args[i], at);
        bool floats = is_float(o->args[i]->type);
        const char *text =
            x.root ? tile_format(e->t, "(long)(%s + %s)", x.root, lane_text(e, &x)) : lane_text(e, &x);
        emit_line(e, e->depth, "%sprintf(\"program (%%d, %%d, %%d):%s%s\\n\", %s, %s%s);", condition, prefix,
                  floats ? "%f" : "%ld", where, floats ? "" : "(long)", text);
    }
}

void emit_descriptor_effect(emitter *e, op *o, const coords *at, const char *guard) {
    const char *inside;
    int depth;
    expr p = descriptor_element(e, o, at, &inside, &depth), v = emit_value(e, o->args[o->arg_count - 1], at);
    const char *mask = both(e, guard, inside), *text;
    element el = o->args[o->arg_count - 1]->type->element;
    if (o->code == OP_DESCRIPTOR_REDUCE) {
        static const int kinds[] = {0, RMW_ADD, RMW_MIN, RMW_MAX, 0, 0, RMW_AND, RMW_OR, RMW_XOR};
        int64_t kind = op_attr_int(o, "kind", 0);
        bool floats = is_float(o->args[o->arg_count - 1]->type);
        if (kind < 1 || kind > 8 || !kinds[kind] || (floats && kind != 1))
            tile_unsupported(e->t, o->at, "this reduction through a descriptor");
        op like = {.code = OP_ATOMIC_RMW, .at = o->at};
        value *args[2] = {o->args[0], o->args[o->arg_count - 1]};
        attr order = {.name = "atomic_rmw_op", .kind = ATTR_INT, .integer = floats ? RMW_FADD : kinds[kind]};
        like.args = args;
        like.arg_count = 2;
        like.attrs = &order;
        const char *x = lane_text(e, &v);
        text = tile_format(e->t, "%s;",
                           atomic_text(e, &like, tile_format(e->t, "%s + %s", p.root, lane_text(e, &p)), &x));
    } else {
        text = store_text(e, el, &p, lane_text(e, &v));
    }
    emit_line(e, e->depth, "if (%s) %s", mask, text);
}
