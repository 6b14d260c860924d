/* tt.dot and tt.dot_scaled. */
#include <string.h>

#include "tile/emit.h"

/* The format of an operand of tt.dot_scaled: its name, or Triton's number for it. */
static const char *scaled_format(emitter *e, const op *o, int which) {
    static const char *const formats[] = {"e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "bf16", "fp16"};
    const attr *name = op_attr(o, which ? "rhs" : "lhs");
    if (name && name->kind == ATTR_OTHER) return tile_strndup(e->t, name->string, name->length);
    int64_t number = op_attr_int(o, which ? "b_elem_type" : "a_elem_type", -1);
    return number >= 0 && number < 7 ? formats[number] : "?";
}

/* An operand of tt.dot_scaled times its scales, as floats in an array of its own. */
static const char *emit_scaled(emitter *e, op *o, int which) {
    tile *t = e->t;
    value *v = o->args[which];
    const char *format = scaled_format(e, o, which);
    bool packed = !strcmp(format, "e2m1"), has_left = op_attr_int(o, "has_lhs_scale", o->arg_count > 3);
    bool has = which ? op_attr_int(o, "has_rhs_scale", o->arg_count > 4) : has_left;
    value *scale = has ? o->args[3 + (which && has_left)] : NULL;
    if (packed && !op_attr_int(o, which ? "rhs_k_pack" : "lhs_k_pack", 1))
        tile_unsupported(t, o->at, "tt.dot_scaled of numbers that aren't packed along K");
    int k_dim = which ? 0 : 1;
    type wide = {
        .element = F32, .is_tensor = true, .rank = 2, .shape = {v->type->shape[0], v->type->shape[1]}};
    if (packed) wide.shape[k_dim] *= 2;
    held *h = NEW(t, held);
    *h = (held){.type = type_make(t, wide), .lane_dim = 1, .last_use = o->id};
    hold_allocate(e, h);
    plan p = {.shape = h->type, .axis = -1, .lane = 1};
    uint64_t weight = e->weight;
    e->group.is_reversed = false;
    open_plan(e, &p, NULL);
    expr k = p.at->dims[k_dim], dims[2] = {p.at->dims[0], p.at->dims[1]};
    if (packed) dims[k_dim] = int_op(e, OP_DIVSI, I32, k, constant_int(e, 2));
    expr x = emit_value(e, v, make_coords(e, 2, dims, NULL)),
         y = {.kind = VARYING, .depth = e->depth, .divisor = 1};
    const char *text = lane_text(e, &x);
    if (packed)
        text = tile_format(t, "%s(((uchar)%s >> (4 * (%s & 1))) & 15)", use(e, "tile_from_e2m1"), text,
                           lane_text(e, &k));
    else if (is_int(v->type) && (!strcmp(format, "e4m3") || !strcmp(format, "e5m2")))
        text = tile_format(t, "%s((uchar)%s)",
                           use(e, format[1] == '4' ? "tile_from_f8e4m3fn" : "tile_from_f8e5m2"), text);
    else if (!is_float(v->type))
        tile_unsupported(t, o->at, "tt.dot_scaled of format %s", format);
    if (scale) {
        int size = h->type->shape[k_dim] / scale->type->shape[1];
        expr at[2] = {p.at->dims[1 - k_dim], int_op(e, OP_DIVSI, I32, k, constant_int(e, size))};
        expr s = emit_value(e, scale, make_coords(e, 2, at, NULL));
        text = tile_format(t, "%s * %s((uchar)%s)", text, use(e, "tile_scale_e8m0"), lane_text(e, &s));
    }
    y.text = text;
    y = declare(e, h->type, y, "v", v->id);
    write_held(e, &(value){.held = h}, p.at, &y, t->target.is_cpu ? NULL : p.guard);
    while (p.loops--) close_scope(e, "}");
    e->weight = weight;
    return h->name;
}

/* c[m][n] += a[m][k] * b[k][n]; a and b are held. The lanes form a grid of `down` rows of `across`, each with
 * `rows` × `columns` elements of c, that many lanes apart, in registers. */
void emit_dot(emitter *e, op *o) {
    tile *t = e->t;
    bool scaled = o->code == OP_DOT_SCALED;
    const type *ty = o->results[0].type, *a = o->args[0]->type;
    int r = ty->rank;
    int batch = r == 3 ? ty->shape[0] : 1, M = ty->shape[r - 2], N = ty->shape[r - 1], K = a->shape[r - 1];
    value *result = &o->results[0];
    if (!result->held) return;
    hold_allocate(e, result->held);
    const char *ha = scaled ? emit_scaled(e, o, 0) : o->args[0]->held->name;
    const char *hb = scaled ? emit_scaled(e, o, 1) : o->args[1]->held->name;
    if (scaled) {
        if (!strcmp(scaled_format(e, o, 0), "e2m1")) K *= 2;
        barrier_if_touched(e);
    }
    int across = N < 16 ? N : 16, down = e->lanes / across < M ? e->lanes / across : M;
    int columns = N >= 4 * across ? 4 : N / across, rows = 16 / columns < M / down ? 16 / columns : M / down;
    if (rows > 8) rows = 8;
    const char *c = c_type(ty), *ca = scaled ? "float" : c_held(a);
    bool whole = across == e->lanes;
    const char *n_lane = whole ? "lane" : tile_format(t, "(lane & %d)", across - 1);
    const char *m_lane = down == 1 ? "0" : tile_format(t, "(lane / %d)", across);
    plan p = {0};
    uint64_t weight = e->weight;
    expr ib = open_loop(e, &p, "b", batch, 1), im = open_loop(e, &p, "m", M, rows * down),
         in = open_loop(e, &p, "n", N, columns * across);
    in.divisor = across;
    bool idle = across * down < e->lanes && !t->target.is_cpu;
    if (idle) open_scope(e, "if (lane < %d) {", across * down);
    expr acc[64];
    const coords *at[64];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            expr dims[3], n = int_op(e, OP_ADDI, I32, in, constant_int(e, j * across)),
                          m = int_op(e, OP_ADDI, I32, im, constant_int(e, i * down));
            expr lane = lane_part(e, n_lane, 0), row = lane_part(e, m_lane, 0);
            if (r == 3) dims[0] = ib;
            dims[r - 2] = down == 1 ? m : int_op(e, OP_ADDI, I32, m, row);
            dims[r - 1] = whole ? on_lanes(n) : int_op(e, OP_ADDI, I32, n, lane);
            int k = i * columns + j;
            at[k] = make_coords(e, r, dims, NULL);
            expr start = emit_value(e, o->args[2], at[k]);
            const char *name = tile_format(t, "c%d_%d_%d", i, j, ++e->names);
            emit_line(e, e->depth, "%s %s = %s;", c, name, lane_text(e, &start));
            acc[k] = (expr){.text = name, .kind = VARYING, .depth = e->depth, .divisor = 1};
        }
    const char *k = new_name(e, "k"), *base_a = im.text, *base_b = k;
    if (r == 3) {
        base_a = tile_format(t, "(%s * %d + %s)", ib.text, M, im.text);
        base_b = tile_format(t, "(%s * %d + %s)", ib.text, K, k);
    }
    emit_line(e, e->depth, "__local const %s *const a_%s = %s + (%s + %s) * %d;", ca, k, ha, base_a, m_lane,
              K);
    open_scope(e, "for (int %s = 0; %s < %d; %s++) {", k, k, K, k);
    for (int j = 0; j < columns; j++)
        emit_line(e, e->depth, "const %s b%d = %s[%s * %d + %s + %d + %s];", c, j, hb, base_b, N, in.text,
                  j * across, n_lane);
    for (int i = 0; i < rows; i++) {
        emit_line(e, e->depth, "const %s a%d = a_%s[%d + %s];", c, i, k, i * down * K, k);
        for (int j = 0; j < columns; j++) {
            const char *sum = acc[i * columns + j].text;
            emit_line(e, e->depth, is_float(ty) ? "%s = fma(a%d, b%d, %s);" : "%s = a%d * b%d + %s;", sum, i,
                      j, sum);
        }
    }
    close_scope(e, "}");
    for (int i = 0; i < rows * columns; i++) {
        acc[i].text = rounded(e, ty->element, acc[i].text);
        write_held(e, result, at[i], &acc[i], NULL);
    }
    if (idle) close_scope(e, "}");
    while (p.loops--) close_scope(e, "}");
    e->weight = weight;
    e->work += weight * (uint64_t)batch * (uint64_t)M * (uint64_t)N * (uint64_t)K / 2;
    e->touches_local = true;
}
