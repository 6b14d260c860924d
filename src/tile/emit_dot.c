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

enum { MOST_PARTS = 128 };

static int at_most(int a, int b) { return a < b ? a : b; }

static void dot_shape(const op *o, int *batch, int *M, int *N, int *K) {
    const type *ty = o->results[0].type;
    int r = ty->rank;
    *batch = r == 3 ? ty->shape[0] : 1;
    *M = ty->shape[r - 2];
    *N = ty->shape[r - 1];
    *K = o->args[0]->type->shape[r - 1];
}

/* For sums that stay in registers: as square as possible, since a step along K reads rows + columns numbers.
 */
const tiling *dot_parts(tile *t, const op *o) {
    int batch, M, N, K, lanes = tile_lanes(t);
    dot_shape(o, &batch, &M, &N, &K);
    tiling best = {0};
    if (o->results[0].type->rank != 2 || M * N % lanes || M * N / lanes > registers_of(t)) return NULL;
    for (int columns = 1; columns <= at_most(16, N); columns *= 2) {
        tiling x = {.across = N / columns, .columns = columns, .width = at_most(columns, 4)};
        x.down = lanes / x.across;
        if (x.across > lanes || x.down > M) continue;
        x.rows = M / x.down;
        if (!best.rows || x.rows + x.columns < best.rows + best.columns) best = x;
    }
    if (!best.rows) return NULL;
    for (const tiling *x = t->tilings; x; x = x->next)
        if (x->across == best.across && x->down == best.down && x->rows == best.rows &&
            x->columns == best.columns)
            return x;
    tiling *x = NEW(t, tiling);
    *x = best;
    x->next = t->tilings;
    return t->tilings = x;
}

/* For sums that are read and written at each dot: some at a time. */
static tiling dot_pass(const emitter *e, int M, int N) {
    tiling x = {.across = at_most(N, 16), .width = 1};
    x.down = at_most(e->lanes / x.across, M);
    x.columns = N >= 4 * x.across ? 4 : N / x.across;
    x.rows = at_most(at_most(16 / x.columns, M / x.down), 8);
    return x;
}

/* The coordinates of part number `part`, of the tile whose first element is (m, n). */
static const coords *part_at(emitter *e, const tiling *x, int rank, const expr *b, expr m, expr n, int part) {
    expr dims[3];
    int i = part / x->columns, j = part % x->columns;
    if (rank == 3) dims[0] = *b;
    m = int_op(e, OP_ADDI, I32, m, constant_int(e, i * x->down));
    n = int_op(e, OP_ADDI, I32, n, constant_int(e, j / x->width * x->across * x->width + j % x->width));
    if (x->down > 1) m = int_op(e, OP_ADDI, I32, m, lane_part(e, "(lane / %lld)", x->across));
    dims[rank - 2] = m;
    if (x->across == e->lanes && x->width == 1) {
        dims[rank - 1] = on_lanes(n);
    } else {
        expr lane = lane_part(e, "(lane & %lld)", x->across - 1);
        if (x->width > 1) lane = int_op(e, OP_MULI, I32, lane, constant_int(e, x->width));
        dims[rank - 1] = int_op(e, OP_ADDI, I32, n, lane);
    }
    return make_coords(e, rank, dims, NULL);
}

const coords *part_coords(emitter *e, const type *ty, const tiling *x, int part) {
    return part_at(e, x, ty->rank, NULL, constant_int(e, 0), constant_int(e, 0), part);
}

/* c[m][n] += a[m][k] * b[k][n]; a and b are held. */
void emit_dot(emitter *e, op *o) {
    tile *t = e->t;
    bool scaled = o->code == OP_DOT_SCALED;
    const type *ty = o->results[0].type;
    int r = ty->rank, batch, M, N, K;
    dot_shape(o, &batch, &M, &N, &K);
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
    const tiling *parts = result->held->grid, x = parts ? *parts : dot_pass(e, M, N);
    int across = x.across, down = x.down, rows = x.rows, columns = x.columns, width = x.width;
    int step = t->target.is_cpu || K % 4 ? 1 : 4; /* local memory gives four numbers in one instruction */
    const char *c = c_type(ty), *ca = scaled ? "float" : c_held(o->args[0]->type);
    const char *n_lane = across == e->lanes ? "lane" : tile_format(t, "(lane & %d)", across - 1);
    const char *m_lane = down == 1 ? "0" : tile_format(t, "(lane / %d)", across);
    if (width > 1) n_lane = tile_format(t, "%s * %d", n_lane, width);
    plan p = {0};
    uint64_t weight = e->weight;
    expr ib = open_loop(e, &p, "b", batch, 1), im = open_loop(e, &p, "m", M, rows * down),
         in = open_loop(e, &p, "n", N, columns * across);
    in.divisor = across;
    bool idle = across * down < e->lanes && !t->target.is_cpu;
    if (idle) open_scope(e, "if (lane < %d) {", across * down);
    expr acc[MOST_PARTS];
    const coords *at[MOST_PARTS];
    e->grid = parts;
    for (int k = 0; k < rows * columns; k++) {
        e->place = k;
        at[k] = part_at(e, &x, r, &ib, im, in, k);
        if (parts) e->here = at[k];
        expr start = emit_value(e, o->args[2], at[k]);
        const char *name = tile_format(t, "c%d_%d_%d", k / columns, k % columns, ++e->names);
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
    if (step > 1)
        open_scope(e, "for (int %s = 0; %s < %d; %s += %d) {", k, k, K, k, step);
    else
        open_scope(e, "for (int %s = 0; %s < %d; %s++) {", k, k, K, k);
    emit_line(e, e->depth, "__local const %s *const b_%s = %s + %s * %d + %s + %s;", ca, k, hb, base_b, N,
              in.text, n_lane);
    for (int s = 0; s < step; s++)
        for (int j = 0; j < columns; j += width) {
            int from = s * N + j * across;
            if (width > 1)
                emit_line(e, e->depth, "const %s%d b%d_%d = *(__local const %s%d *)(b_%s + %d);", ca, width,
                          j, s, ca, width, k, from);
            else
                emit_line(e, e->depth, "const %s b%d_%d = b_%s[%d];", c, j, s, k, from);
        }
    for (int i = 0; i < rows; i++) {
        if (step > 1)
            emit_line(e, e->depth, "const %s%d a%d = *(__local const %s%d *)(a_%s + %d + %s);", ca, step, i,
                      ca, step, k, i * down * K, k);
        else
            emit_line(e, e->depth, "const %s a%d = a_%s[%d + %s];", c, i, k, i * down * K, k);
        for (int s = 0; s < step; s++) {
            const char *left = step > 1 ? tile_format(t, "a%d.s%d", i, s) : tile_format(t, "a%d", i);
            for (int j = 0; j < columns; j++) {
                const char *sum = acc[i * columns + j].text,
                           *right = width > 1 ? tile_format(t, "b%d_%d.s%d", j - j % width, s, j % width)
                                              : tile_format(t, "b%d_%d", j, s);
                emit_line(e, e->depth, is_float(ty) ? "%s = fma(%s, %s, %s);" : "%s = %s * %s + %s;", sum,
                          left, right, sum);
            }
        }
    }
    close_scope(e, "}");
    for (int i = 0; i < rows * columns; i++) {
        e->place = i;
        if (parts) e->here = at[i];
        acc[i].text = rounded(e, ty->element, acc[i].text);
        write_held(e, result, at[i], &acc[i], NULL);
    }
    e->grid = NULL;
    e->here = NULL;
    if (idle) close_scope(e, "}");
    while (p.loops--) close_scope(e, "}");
    e->weight = weight;
    e->work += weight * (uint64_t)batch * (uint64_t)M * (uint64_t)N * (uint64_t)K / 2;
    e->touches_local = true;
}
