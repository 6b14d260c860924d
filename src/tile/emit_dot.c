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

/* How c's elements lie on the lanes: a grid of `down` rows of `across`, each lane with `rows` × `columns`
 * elements, that many lanes apart, in registers; and how many steps along K are taken at once. */
typedef struct tiling {
    int across, down, rows, columns, step;
    bool is_own; /* there is one grid, and its elements are those that a lane has of a chunk */
} tiling;
enum { MOST_PARTS = 128 };

static int at_most(int a, int b) { return a < b ? a : b; }

static tiling tiling_of(const emitter *e, int batch, int M, int N, int K) {
    const xpu_tile_target *target = &e->t->target;
    tiling x = {.across = at_most(N, e->lanes), .step = 1};
    if (!target->is_cpu) x.step = K % 4 ? 1 : 4; /* local memory gives four numbers as fast as one */
    x.down = e->lanes / x.across;
    int64_t parts = (int64_t)M * N / e->lanes;
    if (!target->is_cpu && batch == 1 && x.down <= M && parts <= registers_of(e)) {
        /* a row's elements lie on neighbouring lanes, which read the same number of a: from there, the sums
         * can stay in registers over the loop around, and be read by what comes after it */
        x.rows = M / x.down;
        x.columns = N / x.across;
        x.is_own = true;
        return x;
    }
    x.across = at_most(N, 16);
    x.down = at_most(e->lanes / x.across, M);
    x.columns = N >= 4 * x.across ? 4 : N / x.across;
    x.rows = at_most(at_most(16 / x.columns, M / x.down), 8);
    return x;
}

/* c[m][n] += a[m][k] * b[k][n]; a and b are held. */
void emit_dot(emitter *e, op *o) {
    tile *t = e->t;
    bool scaled = o->code == OP_DOT_SCALED;
    const type *ty = o->results[0].type, *a = o->args[0]->type;
    int r = ty->rank;
    int batch = r == 3 ? ty->shape[0] : 1, M = ty->shape[r - 2], N = ty->shape[r - 1], K = a->shape[r - 1];
    value *result = &o->results[0];
    for (int i = 0; i < 2; i++)
        if (o->args[i]->held) o->args[i]->held->is_crossed = true; /* lanes read all elements */
    if (!result->held) return;
    hold_allocate(e, result->held);
    const char *ha = scaled ? emit_scaled(e, o, 0) : o->args[0]->held->name;
    const char *hb = scaled ? emit_scaled(e, o, 1) : o->args[1]->held->name;
    if (scaled) {
        if (!strcmp(scaled_format(e, o, 0), "e2m1")) K *= 2;
        barrier_if_touched(e);
    }
    tiling x = tiling_of(e, batch, M, N, K);
    int across = x.across, down = x.down, rows = x.rows, columns = x.columns;
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
    expr acc[MOST_PARTS];
    const coords *at[MOST_PARTS];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            expr dims[3], n = int_op(e, OP_ADDI, I32, in, constant_int(e, j * across)),
                          m = int_op(e, OP_ADDI, I32, im, constant_int(e, i * down));
            expr lane = lane_part(e, n_lane, 0), row = lane_part(e, m_lane, 0);
            expr linear = on_lanes(constant_int(e, i * down * N + j * across));
            if (r == 3) dims[0] = ib;
            dims[r - 2] = down == 1 ? m : int_op(e, OP_ADDI, I32, m, row);
            dims[r - 1] = whole ? on_lanes(n) : int_op(e, OP_ADDI, I32, n, lane);
            int k = i * columns + j;
            at[k] = make_coords(e, r, dims, x.is_own ? &linear : NULL);
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
    if (x.step > 1)
        open_scope(e, "for (int %s = 0; %s < %d; %s += %d) {", k, k, K, k, x.step);
    else
        open_scope(e, "for (int %s = 0; %s < %d; %s++) {", k, k, K, k);
    emit_line(e, e->depth, "__local const %s *const b_%s = %s + %s * %d + %s + %s;", ca, k, hb, base_b, N,
              in.text, n_lane);
    for (int s = 0; s < x.step; s++)
        for (int j = 0; j < columns; j++)
            emit_line(e, e->depth, "const %s b%d_%d = b_%s[%d];", c, j, s, k, s * N + j * across);
    for (int i = 0; i < rows; i++) {
        if (x.step > 1)
            emit_line(e, e->depth, "const %s%d a%d = *(__local const %s%d *)(a_%s + %d + %s);", ca, x.step, i,
                      ca, x.step, k, i * down * K, k);
        else
            emit_line(e, e->depth, "const %s a%d = a_%s[%d + %s];", c, i, k, i * down * K, k);
        for (int s = 0; s < x.step; s++) {
            const char *part = x.step > 1 ? tile_format(t, "a%d.s%d", i, s) : tile_format(t, "a%d", i);
            for (int j = 0; j < columns; j++) {
                const char *sum = acc[i * columns + j].text;
                emit_line(e, e->depth, is_float(ty) ? "%s = fma(%s, b%d_%d, %s);" : "%s = %s * b%d_%d + %s;",
                          sum, part, j, s, sum);
            }
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
