/* Emits expressions: integer arithmetic that tracks lane dependence and divisibility, coordinates, single
 * elements of element-wise operations, conversions, literals. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tile/emit.h"

static int deeper(int a, int b) { return a > b ? a : b; }

/* --- types in C --- */

const char *c_type(const type *ty) {
    switch (ty->element) {
    case I1: return "bool";
    case I8: return "char";
    case I16: return "short";
    case I32: return "int";
    case I64: return "long";
    case F64: return "double";
    default: return "float"; /* narrower floats are floats whose value fits */
    }
}

static const char *c_unsigned(element el) {
    switch (el) {
    case I1:
    case I8: return "uchar";
    case I16: return "ushort";
    case I32: return "uint";
    default: return "ulong";
    }
}

const char *c_stored(element el) {
    switch (el) {
    case I1: return "uchar";
    case I8: return "char";
    case I16: return "short";
    case I32: return "int";
    case I64: return "long";
    case F16: return "half";
    case BF16: return "ushort";
    case F32: return "float";
    case F64: return "double";
    default: return "uchar"; /* 8-bit floats */
    }
}

const char *c_materialized(const type *ty) {
    return ty->is_pointer ? "ulong" : ty->element == I1 ? "uchar" : c_type(ty);
}

const char *c_array(emitter *e, const materialized *h) {
    return h->order ? c_bits(e, h->packed) : c_materialized(h->type);
}

/* --- integers --- */

static int64_t lowest_bit(int64_t v) { return v ? v & -v : (int64_t)1 << 40; }

expr constant_int(emitter *e, int64_t v) {
    return (expr){.text = v == INT64_MIN || v > INT32_MAX || v < -INT32_MAX
                              ? tile_format(e->t, "((long)0x%" PRIx64 "L)", (uint64_t)v)
                          : v < 0 ? tile_format(e->t, "(%" PRId64 ")", v)
                                  : tile_format(e->t, "%" PRId64, v),
                  .kind = UNIFORM,
                  .divisor = lowest_bit(v),
                  .is_nonnegative = v >= 0,
                  .is_constant = true,
                  .constant = v};
}

static int64_t wrap(int64_t v, element el) {
    switch (el) {
    case I1: return v & 1;
    case I8: return (int8_t)v;
    case I16: return (int16_t)v;
    case I32: return (int32_t)v;
    default: return v;
    }
}

static bool fold(op_code code, element el, int64_t a, int64_t b, int64_t *out) {
    uint64_t x = (uint64_t)a, y = (uint64_t)b, r;
    switch (code) {
    case OP_ADDI: r = x + y; break;
    case OP_SUBI: r = x - y; break;
    case OP_MULI: r = x * y; break;
    case OP_ANDI: r = x & y; break;
    case OP_ORI: r = x | y; break;
    case OP_XORI: r = x ^ y; break;
    case OP_DIVSI:
        if (b == 0 || b == -1) return false;
        r = (uint64_t)(a / b);
        break;
    case OP_REMSI:
        if (b == 0 || b == -1) return false;
        r = (uint64_t)(a % b);
        break;
    case OP_MINSI: r = (uint64_t)(a < b ? a : b); break;
    case OP_MAXSI: r = (uint64_t)(a > b ? a : b); break;
    default: return false;
    }
    *out = wrap((int64_t)r, el);
    return true;
}

static int log2_of(int64_t v) {
    int n = 0;
    while (v > 1) {
        v >>= 1;
        n++;
    }
    return n;
}

static bool is_power(int64_t v) { return v > 0 && !(v & (v - 1)); }

/* Division by 0 must not trap: a masked element may ask for it. */
static const char *divide_text(emitter *e, op_code code, element el, const char *a, const char *b) {
    const char *ty = c_type(type_scalar(e->t, el));
    return tile_format(e->t, "%s((%s)%s, (%s)%s)", use(e, code == OP_DIVSI ? "tile_div" : "tile_rem"), ty, a,
                       ty, b);
}

/* The operation on lane 0's (or all lanes') numbers, when it is an index: no wrap-around to mind. */
static const char *index_text(emitter *e, op_code code, element el, const expr *a, const expr *b) {
    tile *t = e->t;
    switch (code) {
    case OP_ADDI:
        if (b->is_constant && b->constant < 0 && b->constant > INT32_MIN)
            return tile_format(t, "(%s - %" PRId64 ")", a->text, -b->constant);
        return tile_format(t, "(%s + %s)", a->text, b->text);
    case OP_SUBI: return tile_format(t, "(%s - %s)", a->text, b->text);
    case OP_MULI: return tile_format(t, "(%s * %s)", a->text, b->text);
    case OP_DIVSI:
        if (b->is_constant && is_power(b->constant) && a->is_nonnegative && a->kind == VARYING)
            return tile_format(
                t, "(%s)((%s)%s >> %d)", c_type(type_scalar(t, el)), c_unsigned(el), a->text,
                log2_of(b->constant)); /* Intel's CPU compiler is wrong on signed sums in loops */
        if (b->is_constant && is_power(b->constant) && a->is_nonnegative)
            return tile_format(t, "(%s >> %d)", a->text, log2_of(b->constant));
        return b->is_constant ? tile_format(t, "(%s / %s)", a->text, b->text)
                              : divide_text(e, code, el, a->text, b->text);
    default:
        if (b->is_constant && is_power(b->constant) && a->is_nonnegative)
            return tile_format(t, "(%s & %" PRId64 ")", a->text, b->constant - 1);
        return b->is_constant ? tile_format(t, "(%s %% %s)", a->text, b->text)
                              : divide_text(e, code, el, a->text, b->text);
    }
}

static const char *wrapping_text(emitter *e, op_code code, element el, const char *a, const char *b) {
    static const char *const signs[] = {[OP_ADDI] = "+", [OP_SUBI] = "-", [OP_MULI] = "*"};
    const char *ty = c_type(type_scalar(e->t, el)), *u = c_unsigned(el);
    if (el == I1) return tile_format(e->t, code == OP_MULI ? "(%s && %s)" : "(%s != %s)", a, b);
    if (e->t->target.has_inline_ptx && el != I64) {
        const char *negated = code == OP_SUBI && !strcmp(a, "0")      ? b
                              : code == OP_MULI && !strcmp(b, "(-1)") ? a
                              : code == OP_MULI && !strcmp(a, "(-1)") ? b
                                                                      : NULL;
        if (negated) return tile_format(e->t, "(%s)%s(%s)", ty, use(e, "tile_negate_ptx"), negated);
    }
    if (code == OP_ADDI || code == OP_SUBI || code == OP_MULI)
        return tile_format(e->t, "(%s)((%s)%s %s (%s)%s)", ty, u, a, signs[code], u, b);
    return divide_text(e, code, el, a, b);
}

static const expr *expr_copy(emitter *e, expr x) {
    expr *copy = NEW(e->t, expr);
    *copy = x;
    return copy;
}

/* x = a / b or a % b, of consecutive numbers from a multiple of the lanes' number on, by a multiple of it:
 * the lanes stay together unless the first is negative, which isn't known here. */
static void find_row(emitter *e, op_code code, element el, expr a, const expr *b, expr *x) {
    bool rem = code == OP_REMSI;
    if ((code != OP_DIVSI && !rem) || a.kind != LINEAR || a.stride != 1 || b->kind != UNIFORM ||
        a.divisor % e->lanes || b->divisor % e->lanes || !e->t->target.is_cpu)
        return;
    const char *ty = c_type(type_scalar(e->t, el));
    if (!b->is_constant)
        x->text = tile_format(e->t, "%s((%s)%s, (%s)%s, lane)", use(e, rem ? "tile_run_rem" : "tile_run_div"),
                              ty, a.text, ty, b->text);
    x->when = tile_format(e->t, "%s >= 0", a.text);
    a.is_nonnegative = true;
    expr row = {.text = index_text(e, code, el, &a, b),
                .kind = rem ? LINEAR : UNIFORM,
                .depth = x->depth,
                .stride = rem,
                .divisor = rem ? e->lanes : 1};
    x->row = expr_copy(e, row);
}

static expr int_op_of_rows(emitter *e, op_code code, element el, expr a, expr b) {
    expr row_a = a.row ? *a.row : a, row_b = b.row ? *b.row : b;
    const char *when = !a.row || (b.row && !strcmp(a.when, b.when)) ? b.when
                       : !b.row ? a.when
                                : tile_format(e->t, "%s && %s", a.when, b.when);
    a.row = b.row = NULL;
    expr x = int_op(e, code, el, a, b), row = int_op(e, code, el, row_a, row_b);
    if (row.kind == VARYING || x.kind != VARYING) return x;
    x.row = expr_copy(e, row);
    x.when = when;
    return x;
}

/* The same number, cast. */
static expr widened(emitter *e, expr x, const char *ty) {
    x.text = tile_format(e->t, "(%s)%s", ty, x.text);
    if (x.row) x.row = expr_copy(e, widened(e, *x.row, ty));
    return x;
}

#define INDEX_BITS 13 /* of an index whose range isn't known */

static int bits_of_number(int64_t v) {
    int bits = 0;
    for (uint64_t u = v < 0 ? -(uint64_t)v : (uint64_t)v; u; u >>= 1) bits++;
    return bits;
}

static int bits_of(const expr *x) {
    if (x->is_constant && x->kind == UNIFORM) return bits_of_number(x->constant);
    return x->bits > INDEX_BITS ? x->bits : INDEX_BITS;
}

static bool
is_hash_multiplier(const expr *x) { /* no stride, but the multiplier of a hash or of random numbers */
    return x->is_constant && (x->constant & 1) && bits_of_number(x->constant) > 14;
}

/* Sums and products of indices are taken for indices, which keep within their type, until large numbers come
 * in, as in random numbers and hashes: those wrap around. Sets x->bits. */
static bool wraps_around(op_code code, element el, const expr *a, const expr *b, expr *x) {
    int n = element_bits(el), la = bits_of(a), lb = bits_of(b), more = la > lb ? la : lb;
    int most = n == 64 ? 70 : n == 32 ? 42 : n - 1;
    bool wraps = false;
    switch (code) {
    case OP_ADDI:
    case OP_SUBI:
        x->bits = more + (la == lb);
        wraps = (a->is_constant && la > n - 4) || (b->is_constant && lb > n - 4);
        break;
    case OP_MULI: /* an index times a stride is an index */
        x->bits = (a->kind == UNIFORM && !a->is_constant) || (b->kind == UNIFORM && !b->is_constant)
                      ? more
                      : la + lb;
        wraps = is_hash_multiplier(a) || is_hash_multiplier(b);
        break;
    case OP_DIVSI: x->bits = b->is_constant && la - lb + 1 > INDEX_BITS ? la - lb + 1 : la; return false;
    case OP_REMSI: x->bits = b->is_constant && lb > INDEX_BITS ? lb : INDEX_BITS; return false;
    default: return false;
    }
    if (!wraps && x->bits <= most) return false;
    x->bits = most + 1; /* and so do sums with it */
    return true;
}

/* The first lane's value v; other lanes' differ by x's stride. */
static expr constant_of_lanes(emitter *e, int64_t v, const expr *x) {
    expr c = constant_int(e, v);
    c.kind = x->kind;
    c.stride = x->stride;
    c.parts = x->parts;
    c.part = x->part;
    const int64_t last = (int64_t)e->lanes * (x->parts ? x->parts : 1) - 1;
    c.is_nonnegative = v >= 0 && (x->stride >= 0 || v >= -x->stride * last);
    return c;
}

/* a + b, a - b, a * b, a / b, a % b; other codes only fold. Index arithmetic stays readable, and what is
 * known of lanes is carried on. */
expr int_op(emitter *e, op_code code, element el, expr a, expr b) {
    int64_t folded;
    expr x = {.kind = VARYING, .depth = deeper(a.depth, b.depth), .divisor = 1};
    if (a.kind == UNIFORM && b.kind == UNIFORM && a.is_constant && b.is_constant && !a.root &&
        fold(code, el, a.constant, b.constant, &folded))
        return constant_int(e, folded);
    if (!a.root && b.kind == UNIFORM && b.is_constant) {
        if (b.constant == 0 && (code == OP_ADDI || code == OP_SUBI)) return a;
        if (b.constant == 1 && (code == OP_MULI || code == OP_DIVSI)) return a;
        if (b.constant == 0 && code == OP_MULI) return b;
        if (b.constant == 1 && code == OP_REMSI) return constant_int(e, 0);
    }
    if (a.kind == UNIFORM && a.is_constant && a.constant == 0 && code == OP_ADDI) {
        b.root = NULL;
        return b;
    }
    if (a.kind == UNIFORM && a.is_constant && a.constant == 0 && code == OP_MULI) return a;
    if (a.kind == UNIFORM && a.is_constant && a.constant == 1 && code == OP_MULI) return b;
    if (!a.root && wraps_around(code, el, &a, &b, &x)) {
        x.kind = a.kind == UNIFORM && b.kind == UNIFORM ? UNIFORM : VARYING;
        x.divisor = code == OP_MULI ? a.divisor : a.divisor < b.divisor ? a.divisor : b.divisor;
        x.text = wrapping_text(e, code, el, lane_text(e, &a), lane_text(e, &b));
        return x;
    }
    if (a.row || b.row) return int_op_of_rows(e, code, el, a, b);
    const expr *line = a.kind == LINEAR ? &a : &b;
    bool together = a.kind != LINEAR || b.kind != LINEAR || (a.parts == b.parts && a.part == b.part);
    int parts = line->kind == LINEAR && line->parts ? line->parts : 1, w = e->lanes * parts;
    x.is_whole = is_whole(&a) && is_whole(&b);
    if (code == OP_DIVSI && a.kind == LINEAR && a.stride == 1 && a.is_nonnegative && a.divisor % parts == 0 &&
        b.kind == UNIFORM && b.divisor % parts == 0)
        x.is_whole = true; /* no lane's parts lie on both sides of a multiple */
    bool whole = a.kind == LINEAR && a.stride == 1 && a.divisor % w == 0 && a.is_nonnegative &&
                 b.kind == UNIFORM && b.divisor % w == 0;
    x.is_nonnegative = a.is_nonnegative && b.is_nonnegative && code != OP_SUBI;
    bool linear = false;
    int64_t da = a.divisor, db = b.divisor, least = da < db ? da : db;
    switch (code) {
    case OP_ADDI:
    case OP_SUBI:
        x.divisor = least;
        if (a.kind != VARYING && b.kind != VARYING && together) {
            linear = true;
            x.stride = (a.kind == LINEAR ? a.stride : 0) +
                       (b.kind == LINEAR ? b.stride : 0) * (code == OP_SUBI ? -1 : 1);
        }
        break;
    case OP_MULI:
        x.divisor = da < ((int64_t)1 << 20) && db < ((int64_t)1 << 20) ? da * db : da > db ? da : db;
        if (a.kind == UNIFORM && b.kind == UNIFORM) linear = true;
        if (a.kind == LINEAR && b.kind == UNIFORM && b.is_constant)
            linear = true, x.stride = a.stride * b.constant;
        if (b.kind == LINEAR && a.kind == UNIFORM && a.is_constant)
            linear = true, x.stride = b.stride * a.constant;
        break;
    case OP_DIVSI:
        if (a.kind == UNIFORM && b.kind == UNIFORM) linear = true;
        if (whole) linear = true;
        if (b.is_constant && is_power(b.constant) && da > b.constant) x.divisor = da / b.constant;
        break;
    case OP_REMSI:
        x.is_nonnegative = a.is_nonnegative;
        x.divisor = least;
        if (a.kind == UNIFORM && b.kind == UNIFORM) linear = true;
        if (whole) linear = true, x.stride = 1;
        break;
    default: break;
    }
    if (linear) {
        x.kind = x.stride ? LINEAR : UNIFORM;
        if (x.kind == LINEAR) x.parts = line->parts, x.part = line->part;
        bool index = a.kind == LINEAR || b.kind == LINEAR || (a.is_nonnegative && b.is_nonnegative);
        if (a.is_constant && b.is_constant && fold(code, el, a.constant, b.constant, &folded)) {
            expr c = constant_of_lanes(e, folded, &x);
            c.depth = x.depth;
            return c;
        }
        if (a.is_constant && a.constant == 0 && code == OP_ADDI) {
            x.text = b.text;
        } else if (b.is_constant && b.constant == 0 && (code == OP_ADDI || code == OP_SUBI)) {
            x.text = a.text;
        } else if (code == OP_MULI && a.is_constant && a.constant == 0) {
            return constant_of_lanes(e, 0, &x);
        } else {
            x.text = index || code == OP_DIVSI || code == OP_REMSI
                         ? index_text(e, code, el, &a, &b)
                         : wrapping_text(e, code, el, a.text, b.text);
        }
        x.is_constant = false;
        return x;
    }
    if ((code == OP_DIVSI || code == OP_REMSI) && a.kind == LINEAR && a.stride == 1 && a.is_nonnegative &&
        b.kind == UNIFORM && !b.is_constant) { /* one scalar division, then a step in some of the lanes */
        const char *ty = c_type(type_scalar(e->t, el));
        x.text = tile_format(e->t, "%s((%s)%s, (%s)%s, %s)",
                             use(e, code == OP_DIVSI ? "tile_lane_div" : "tile_lane_rem"), ty, a.text, ty,
                             b.text, lane_index(e, &a));
        return x;
    }
    expr la = a, lb = b;
    la.text = lane_text(e, &a);
    lb.text = lane_text(e, &b);
    if (a.kind != UNIFORM) la.kind = VARYING;
    la.is_constant = a.kind == UNIFORM && a.is_constant;
    lb.is_constant = b.kind == UNIFORM && b.is_constant;
    bool index = a.is_nonnegative && b.is_nonnegative;
    x.text = (code == OP_DIVSI || code == OP_REMSI) && lb.is_constant && b.constant != 0 && b.constant != -1
                 ? index_text(e, code, el, &la, &lb)
             : index ? index_text(e, code, el, &la, &lb)
                     : wrapping_text(e, code, el, la.text, lb.text);
    find_row(e, code, el, a, &b, &x);
    return x;
}

/* --- coordinates --- */

const coords *make_coords(emitter *e, int rank, const expr *dims, const expr *linear) {
    coords *c = NEW(e->t, coords);
    c->rank = rank;
    c->dims = NEW_ARRAY(e->t, expr, rank);
    if (rank) memcpy(c->dims, dims, sizeof(expr) * (size_t)rank);
    for (int i = 0; i < rank; i++) {
        c->hash = (c->hash ^ (unsigned)dims[i].kind) * 31u + (unsigned)dims[i].stride;
        for (const char *s = dims[i].text; *s; s++) c->hash = c->hash * 31u + (unsigned char)*s;
    }
    if (linear) {
        expr *x = NEW(e->t, expr);
        *x = *linear;
        c->linear = x;
    }
    return c;
}

expr linear_index(emitter *e, const type *shape, const coords *at) {
    if (at->linear) return *at->linear;
    expr sum = constant_int(e, 0);
    int64_t stride = 1;
    for (int i = shape->rank - 1; i >= 0; i--) {
        expr part = int_op(e, OP_MULI, I32, at->dims[i], constant_int(e, stride));
        sum = int_op(e, OP_ADDI, I32, part, sum);
        stride *= shape->shape[i];
    }
    return sum;
}

const coords *delinear(emitter *e, const type *shape, expr index) {
    expr dims[MAX_RANK];
    int64_t stride = shape->count;
    bool outermost = true;
    index.is_nonnegative = true;
    for (int i = 0; i < shape->rank; i++) {
        int32_t n = shape->shape[i];
        stride /= n;
        if (n == 1) {
            dims[i] = constant_int(e, 0);
            continue;
        }
        dims[i] = int_op(e, OP_DIVSI, I32, index, constant_int(e, stride));
        if (!outermost) dims[i] = int_op(e, OP_REMSI, I32, dims[i], constant_int(e, n));
        outermost = false;
    }
    return make_coords(e, shape->rank, dims, &index);
}

/* Where a materialized element lies: the lane dimension's elements side by side, the others row-major around.
 */
static expr materialized_index(emitter *e, const materialized *h, const coords *at) {
    const type *ty = h->type;
    int last = ty->rank - 1;
    if (h->order) return blocked_index(e, h, at);
    while (last > 0 && ty->shape[last] == 1) last--;
    if (h->lane_dim == last || ty->rank < 2) return linear_index(e, ty, at);
    expr sum = at->dims[h->lane_dim];
    int64_t stride = ty->shape[h->lane_dim];
    for (int i = last; i >= 0; i--) {
        if (i == h->lane_dim) continue;
        sum = int_op(e, OP_ADDI, I32, int_op(e, OP_MULI, I32, at->dims[i], constant_int(e, stride)), sum);
        stride *= ty->shape[i];
    }
    return sum;
}

/* The element in C. Lane l's own are the l-th (or l-th few) of the chunks: if a lane wants no others, the
 * array is one of registers, and the loops around are unrolled, since registers have no addresses. */
const char *materialized_text(emitter *e, materialized *h, const coords *at, expr *index) {
    if (h->grid) {
        bool is_here = e->here && at && same_coords(at, e->here, false);
        if (is_here && e->grid == h->grid) {
            *index = (expr){.kind = VARYING, .depth = e->block_depth, .divisor = 1};
            return sum_text(e, h->name, h->grid, e->place);
        }
        if (!e->is_trial) tile_error(e->t, NULL, "internal error: a sum is wanted from another lane");
        const group *g = &e->group;
        bool scans = false;
        for (int i = 0; i < g->count; i++)
            scans = scans || (g->roots[i].kind == ROOT_OP && g->roots[i].op->code == OP_SCAN);
        if (is_here && !e->grid && g->shape && !scans &&
            (g->axis < 0 || reduces_rows(h->grid, g->shape, g->axis)))
            e->wanted = h->grid;
        else
            h->is_cross_lane = true;
        *index = materialized_index(e, h, at);
        return h->name;
    }
    *index = materialized_index(e, h, at);
    int parts = index->kind == LINEAR && index->parts ? index->parts : 1, span = e->lanes * parts;
    bool is_own = !e->is_inner && index->kind == LINEAR && index->stride == 1 && index->divisor % span == 0 &&
                  (!h->parts || h->parts == parts);
    h->parts = parts;
    if (!is_own) h->is_cross_lane = true;
    if (!h->in_registers) {
        e->touches_local = true;
        return tile_format(e->t, "%s[%s]", h->name, lane_text(e, index));
    }
    if (!is_own) tile_error(e->t, NULL, "internal error: a register of another lane is wanted");
    for (int d = e->depth; d; d--) e->scopes[d].is_unrolled = e->scopes[d].is_chunks;
    expr chunk = *index;
    chunk.kind = UNIFORM;
    chunk = int_op(e, OP_DIVSI, I32, chunk, constant_int(e, span));
    chunk = int_op(e, OP_MULI, I32, chunk, constant_int(e, parts));
    chunk = int_op(e, OP_ADDI, I32, chunk, constant_int(e, index->part));
    return tile_format(e->t, "%s[%s]", h->name, chunk.text);
}

/* --- memory --- */

static const char *f8_name(element el) {
    switch (el) {
    case F8E4M3FN: return "f8e4m3fn";
    case F8E5M2: return "f8e5m2";
    case F8E4M3FNUZ: return "f8e4m3fnuz";
    case F8E5M2FNUZ: return "f8e5m2fnuz";
    default: return "f8e4m3b11fnuz";
    }
}

const char *widening_f8(emitter *e, element el) {
    use(e, "float8");
    return tile_format(e->t, "widen_%s", f8_name(el));
}

const char *narrowing_f8(emitter *e, element el) {
    use(e, "float8");
    return tile_format(e->t, "narrow_%s", f8_name(el));
}

/* The offset of an element, by lane. In loops that the CPU driver unrolls it loses the part that all lanes
 * share from offsets of lanes that lie apart ("arg0[v + 10 * lane]"), so there the root takes that part. */
static const char *place(emitter *e, const char **base, const expr *p) {
    if (!e->t->target.is_cpu || p->kind != LINEAR || p->stride == 1 || p->is_constant) return lane_text(e, p);
    *base = tile_format(e->t, "(%s + %s)", *base, p->text);
    return tile_format(e->t, "%lld * lane", (long long)p->stride);
}

const char *c_bits(emitter *e, element el) {
    return el == F16 && !e->t->target.has_fp16 ? "ushort" : c_stored(el);
}

/* Of narrow elements a driver would move four at a time. */
const char *run_words(emitter *e, element el, int parts) {
    int bytes = (element_bits(el) + 7) / 8 * parts;
    if (element_bits(el) >= 32 || bytes % 4) return tile_format(e->t, "%s%d", c_bits(e, el), parts);
    return bytes == 4 ? "uint" : tile_format(e->t, "uint%d", bytes / 4);
}

/* The number whose bits, of type c_bits, lie in memory. */
const char *loaded_text(emitter *e, element el, const char *bits) {
    tile *t = e->t;
    switch (el) {
    case I1: return tile_format(t, "(%s != 0)", bits);
    case F16:
        return t->target.has_fp16 ? tile_format(t, "(float)%s", bits)
                                  : tile_format(t, "%s(%s)", use(e, "tile_half_bits"), bits);
    case BF16: return tile_format(t, "%s(%s)", use(e, "tile_from_bf16"), bits);
    case F8E4M3FN:
    case F8E5M2:
    case F8E4M3FNUZ:
    case F8E5M2FNUZ:
    case F8E4M3B11FNUZ: return tile_format(t, "%s(%s)", widening_f8(e, el), bits);
    default: return bits;
    }
}

const char *load_text(emitter *e, element el, const char *base, const expr *p) {
    const char *offset = place(e, &base, p);
    if (el == F16 && !e->t->target.has_fp16) return tile_format(e->t, "vload_half(%s, %s)", offset, base);
    return loaded_text(e, el, tile_format(e->t, "%s[%s]", base, offset));
}

/* Its bits; it fits the element type already. */
const char *stored_text(emitter *e, element el, const char *v) {
    tile *t = e->t;
    switch (el) {
    case F16:
        return t->target.has_fp16 ? tile_format(t, "(half)%s", v)
                                  : tile_format(t, "%s(%s)", use(e, "tile_bits_of_half"), v);
    case BF16: return tile_format(t, "(ushort)(as_uint(%s) >> 16)", v);
    case F8E4M3FN:
    case F8E5M2:
    case F8E4M3FNUZ:
    case F8E5M2FNUZ:
    case F8E4M3B11FNUZ: return tile_format(t, "%s(%s)", narrowing_f8(e, el), v);
    default: return v;
    }
}

/* The value fits the element type already. */
const char *store_text(emitter *e, element el, const expr *p, const char *v) {
    const char *base = p->root, *offset = place(e, &base, p);
    if (el == F16 && !e->t->target.has_fp16)
        return tile_format(e->t, "vstore_half_rte(%s, %s, %s);", v, offset, base);
    return tile_format(e->t, "%s[%s] = %s;", base, offset, stored_text(e, el, v));
}

/* `x`, computed in float, rounded to a narrower type. */
const char *rounded(emitter *e, element el, const char *x) {
    switch (el) {
    case F16: return tile_format(e->t, "%s(%s)", use(e, "tile_round_f16"), x);
    case BF16: return tile_format(e->t, "%s(%s)", use(e, "tile_round_bf16"), x);
    case F8E4M3FN:
    case F8E5M2:
    case F8E4M3FNUZ:
    case F8E5M2FNUZ:
    case F8E4M3B11FNUZ: return tile_format(e->t, "%s(%s(%s))", widening_f8(e, el), narrowing_f8(e, el), x);
    default: return x;
    }
}

/* --- literals --- */

const char *number_text(emitter *e, const type *ty, const attr *number) {
    tile *t = e->t;
    if (number->kind == ATTR_INT) {
        if (ty->element == I1) return number->integer ? "true" : "false";
        return constant_int(e, wrap(number->integer, ty->element)).text;
    }
    double v = number->real;
    bool wide = ty->element == F64;
    if (v != v) return wide ? "as_double(0x7ff8000000000000UL)" : "NAN";
    if (isinf(v))
        return v > 0 ? (wide ? "((double)INFINITY)" : "INFINITY")
                     : (wide ? "(-(double)INFINITY)" : "(-INFINITY)");
    if (wide) return tile_format(t, v < 0 ? "(%.17e)" : "%.17e", v);
    float f = (float)v;
    char digits[64];
    snprintf(digits, sizeof digits, "%.9g", (double)f);
    const char *dot = strpbrk(digits, ".e") ? "" : ".0";
    return tile_format(t, f < 0 || (f == 0 && signbit(f)) ? "(%s%sf)" : "%s%sf", digits, dot);
}

/* --- element-wise operations --- */

/* `formula` with $0 … $9 replaced by the arguments, $t by the type and $u by its unsigned twin. */
const char *fill(emitter *e, const char *formula, const type *ty, const char *const *args) {
    buffer out = {0};
    for (const char *c = formula; *c; c++) {
        if (*c != '$') {
            size_t plain = strcspn(c, "$");
            buffer_add(e->t, &out, c, plain);
            c += plain - 1;
            continue;
        }
        c++;
        const char *by = *c == 't' ? c_type(ty) : *c == 'u' ? c_unsigned(ty->element) : args[*c - '0'];
        buffer_add(e->t, &out, by, strlen(by));
    }
    return out.data;
}

static const char *compare_text(emitter *e, const op *o, const char *a, const char *b) {
    static const char *const ints[CMPI_COUNT] = {"%s == %s", "%s != %s", "%s < %s",
                                                 "%s <= %s", "%s > %s",  "%s >= %s"};
    static const char *const unsigneds[CMPI_COUNT] = {[CMPI_ULT] = "(%s)%s < (%s)%s",
                                                      [CMPI_ULE] = "(%s)%s <= (%s)%s",
                                                      [CMPI_UGT] = "(%s)%s > (%s)%s",
                                                      [CMPI_UGE] = "(%s)%s >= (%s)%s"};
    static const char *const floats[CMPF_COUNT] = {"false",
                                                   "%s == %s",
                                                   "%s > %s",
                                                   "%s >= %s",
                                                   "%s < %s",
                                                   "%s <= %s",
                                                   "islessgreater(%s, %s)",
                                                   "isordered(%s, %s)",
                                                   "!islessgreater(%s, %s)",
                                                   "!(%s <= %s)",
                                                   "!(%s < %s)",
                                                   "!(%s >= %s)",
                                                   "!(%s > %s)",
                                                   "%s != %s",
                                                   "isunordered(%s, %s)",
                                                   "true"};
    int64_t order = op_attr_int(o, "predicate", 0);
    element el = o->args[0]->type->element;
    if (o->code == OP_CMPF) return tile_format(e->t, floats[order], a, b);
    if (el == I1 && order >= CMPI_SLT && order <= CMPI_SGE)
        return tile_format(e->t, ints[order], b, a); /* true is -1 */
    if (order >= CMPI_ULT) return tile_format(e->t, unsigneds[order], c_unsigned(el), a, c_unsigned(el), b);
    return tile_format(e->t, ints[order], a, b);
}

static const char *cast_text(emitter *e, const op *o, const char *a) {
    tile *t = e->t;
    const type *from = o->args[0]->type, *to = o->results[0].type;
    const char *ty = c_type(to);
    element f = from->element, el = to->element;
    switch (o->code) {
    case OP_EXTSI: return f == I1 ? tile_format(t, "-(%s)%s", ty, a) : tile_format(t, "(%s)%s", ty, a);
    case OP_EXTUI:
        return f == I1 ? tile_format(t, "(%s)%s", ty, a) : tile_format(t, "(%s)(%s)%s", ty, c_unsigned(f), a);
    case OP_TRUNCI: return el == I1 ? tile_format(t, "(%s & 1) != 0", a) : tile_format(t, "(%s)%s", ty, a);
    case OP_INDEX_CAST: return tile_format(t, "(%s)%s", ty, a);
    case OP_SITOFP: return rounded(e, el, tile_format(t, f == I1 ? "(%s)-(int)%s" : "(%s)%s", ty, a));
    case OP_UITOFP: return rounded(e, el, tile_format(t, "(%s)(%s)%s", ty, c_unsigned(f), a));
    case OP_FPTOSI:
        if (el == I1) return tile_format(t, "%s != 0", a);
        return element_bits(el) < 32 ? tile_format(t, "(%s)(int)%s", ty, a) : tile_format(t, "(%s)%s", ty, a);
    case OP_FPTOUI:
        if (el == I1) return tile_format(t, "%s != 0", a);
        return element_bits(el) < 32 ? tile_format(t, "(%s)(int)%s", ty, a)
                                     : tile_format(t, "(%s)convert_%s_sat(fmax(%s, %s))", ty, c_unsigned(el),
                                                   a, f == F64 ? "0.0" : "0.0f"); /* NaN becomes 0 */
    default: {                                                                    /* float to float */
        const attr *mode = op_attr(o, "rounding");
        if (mode && mode->kind == ATTR_OTHER && mode->length >= 3 && !memcmp(mode->string, "rtz", 3) &&
            (el == F16 || el == BF16))
            return tile_format(t, "%s(%s)", use(e, el == F16 ? "tile_truncate_f16" : "tile_truncate_bf16"),
                               a);
        if (f == F64 && el != F64) a = tile_format(t, "(float)%s", a);
        if (f != F64 && el == F64) a = tile_format(t, "(double)%s", a);
        bool widens = element_bits(f) < element_bits(el);
        return widens ? a : rounded(e, el, a);
    }
    }
}

/* The same bits as another type. */
static expr emit_bitcast(emitter *e, const op *o, expr a) {
    tile *t = e->t;
    const type *from = o->args[0]->type, *to = o->results[0].type;
    if (from->is_pointer && to->is_pointer) { /* the address stays */
        int x = element_bits(from->element), y = element_bits(to->element);
        if ((x < 8 ? 8 : x) == (y < 8 ? 8 : y)) {
            a.root = tile_format(t, "((__global %s *)%s)", c_stored(to->element), a.root);
            return a;
        }
        a.root =
            tile_format(t, "((__global %s *)(%s + %s))", c_stored(to->element), a.root, lane_text(e, &a));
        a.text = "0";
        a.divisor = 1;
        a.is_constant = a.kind == UNIFORM;
        a.constant = 0;
        a.kind = a.kind == UNIFORM ? UNIFORM : VARYING;
        return a;
    }
    if (from->is_pointer) {
        expr x = {.kind = a.kind == UNIFORM ? UNIFORM : VARYING, .depth = a.depth, .divisor = 1};
        x.text = tile_format(t, "(long)(%s + %s)", a.root, lane_text(e, &a));
        return declare(e, to, x, "v", o->results[0].id);
    }
    if (to->is_pointer) {
        expr x = {.kind = a.kind == UNIFORM ? UNIFORM : VARYING,
                  .depth = a.depth,
                  .divisor = 1,
                  .text = "0",
                  .is_constant = a.kind == UNIFORM};
        x.root = tile_format(t, "((__global %s *)(ulong)%s)", c_stored(to->element), lane_text(e, &a));
        return x;
    }
    expr x = {.kind = a.kind == UNIFORM ? UNIFORM : VARYING, .depth = a.depth, .divisor = 1};
    const char *text = lane_text(e, &a);
    bool ff = is_float(from), tf = is_float(to);
    element f = from->element, el = to->element;
    if (!ff && !tf) {
        x.text = text;
    } else {
        const char *bits = text; /* first the bits as an integer */
        if (ff) {
            switch (f) {
            case F64: bits = tile_format(t, "as_long(%s)", text); break;
            case F32: bits = tile_format(t, "as_int(%s)", text); break;
            case F16: bits = tile_format(t, "(short)%s(%s)", use(e, "tile_bits_of_half"), text); break;
            case BF16: bits = tile_format(t, "(short)(as_uint(%s) >> 16)", text); break;
            default: bits = tile_format(t, "(char)%s(%s)", narrowing_f8(e, f), text); break;
            }
        }
        if (tf) {
            switch (el) {
            case F64: bits = tile_format(t, "as_double((long)%s)", bits); break;
            case F32: bits = tile_format(t, "as_float((int)%s)", bits); break;
            case F16: bits = tile_format(t, "%s((ushort)%s)", use(e, "tile_half_bits"), bits); break;
            case BF16: bits = tile_format(t, "%s((ushort)%s)", use(e, "tile_from_bf16"), bits); break;
            default: bits = tile_format(t, "%s((uchar)%s)", widening_f8(e, el), bits); break;
            }
        }
        x.text = bits;
    }
    return declare(e, to, x, "v", o->results[0].id);
}

/* A dense constant that isn't the same everywhere: chosen by the row-major index. */
static expr emit_constant(emitter *e, op *o) {
    const attr *a = op_attr(o, "value");
    const type *ty = o->results[0].type;
    if (a->kind == ATTR_DENSE) {
        if (a->count != 1) tile_unsupported(e->t, o->at, "a constant tensor of different numbers");
        a = &a->list[0];
    }
    expr x = {.kind = UNIFORM, .divisor = 1};
    if (a->kind == ATTR_INT) x = constant_int(e, wrap(a->integer, ty->element));
    x.text = number_text(e, ty, a);
    return x;
}

/* A comparison of consecutive numbers with a bound that no chunk straddles is the same in all lanes. */
static bool uniform_compare(emitter *e, const op *o, const expr *a, const expr *b) {
    int64_t order = op_attr_int(o, "predicate", 0);
    int parts = a->kind == LINEAR ? a->parts : b->parts, lanes = e->lanes * (parts ? parts : 1);
    if (o->code != OP_CMPI || a->divisor % lanes || b->divisor % lanes) return false;
    if (a->kind == LINEAR && a->stride == 1 && b->kind == UNIFORM)
        return order == CMPI_SLT || order == CMPI_SGE;
    if (b->kind == LINEAR && b->stride == 1 && a->kind == UNIFORM)
        return order == CMPI_SGT || order == CMPI_SLE;
    return false;
}

/* One that no lane's parts straddle. */
static bool whole_compare(const op *o, const expr *a, const expr *b) {
    int64_t order = op_attr_int(o, "predicate", 0);
    const expr *line = a->kind == LINEAR ? a : b, *bound = a->kind == LINEAR ? b : a;
    int parts = line->parts ? line->parts : 1;
    if (line->kind != LINEAR || line->stride != 1 || bound->kind != UNIFORM) return false;
    if (line->divisor % parts || bound->divisor % parts) return false;
    return line == a ? order == CMPI_SLT || order == CMPI_SGE : order == CMPI_SGT || order == CMPI_SLE;
}

static expr emit_map(emitter *e, op *o, const expr *args, int index);

/* The pointer that `o` results in, whose address is `x`. */
static expr pointer_at(emitter *e, op *o, expr x) {
    x = declare(e, type_scalar(e->t, I64), x, "v", o->results[0].id);
    x.root = tile_format(e->t, "((__global %s *)%s)", c_stored(o->results[0].type->element), x.text);
    x.text = "0";
    return x;
}

static expr emit_pointer_select(emitter *e, op *o, const expr *args) {
    const expr *c = &args[0], *a = &args[1], *b = &args[2];
    expr x = {.kind = VARYING, .depth = deeper(c->depth, deeper(a->depth, b->depth)), .divisor = 1};
    if (c->kind == UNIFORM && a->kind == UNIFORM && b->kind == UNIFORM) x.kind = UNIFORM;
    if (!strcmp(a->root, b->root)) {
        x.text = tile_format(e->t, "%s ? %s : %s", lane_text(e, c), lane_text(e, a), lane_text(e, b));
        x.root = a->root;
        return declare(e, o->results[0].type, x, "v", o->results[0].id);
    }
    x.text = tile_format(e->t, "(long)(%s ? %s + %s : %s + %s)", lane_text(e, c), a->root, lane_text(e, a),
                         b->root, lane_text(e, b));
    return pointer_at(e, o, x);
}

/* Does the user say that the result's elements lie in rows of at least as many as there are lanes?
 * (tl.max_contiguous) */
static bool promises_rows(emitter *e, const op *o) {
    const attr *a = op_attr(o, "tt.contiguity");
    return a && a->kind == ATTR_DENSE && a->count == 1 && a->list[0].kind == ATTR_INT &&
           a->list[0].integer % e->lanes == 0;
}

expr emit_elementwise(emitter *e, op *o, const expr *args, int index) {
    tile *t = e->t;
    const type *ty = o->results[index].type;
    int id = o->results[index].id;
    expr x = {.kind = UNIFORM, .divisor = 1, .is_whole = true}, y;
    for (int i = 0; i < o->arg_count; i++) {
        x.depth = deeper(x.depth, args[i].depth);
        x.is_whole = x.is_whole && is_whole(&args[i]);
        if (args[i].kind != UNIFORM) x.kind = VARYING;
    }
    switch (o->code) {
    case OP_CONSTANT: return emit_constant(e, o);
    case OP_POISON: x.text = "0"; return x;
    case OP_PROGRAM_ID:
        x.text = tile_format(t, "(int)XPU_GROUP(%d)", (int)op_attr_int(o, "axis", 0));
        x.is_nonnegative = true;
        return declare(e, ty, x, "pid", id);
    case OP_NUM_PROGRAMS:
        x.text = tile_format(t, "p.grid[%d]", (int)op_attr_int(o, "axis", 0));
        x.is_nonnegative = true;
        return declare(e, ty, x, "grid", id);
    case OP_ADDPTR:
        y = args[0];
        if (args[1].kind == UNIFORM && args[1].is_constant && args[1].constant == 0) return y;
        expr step = args[1];
        if (!(y.is_constant && y.kind == UNIFORM && y.constant == 0) && o->args[1]->type->element != I64 &&
            !step.is_constant)
            step = widened(e, step, "long"); /* the sum may need more than 32 bits */
        if (step.kind == VARYING && is_unsafe_index(e, o->args[1])) {
            const char *pointer = tile_format(t, "%s + %s", y.root, lane_text(e, &y));
            x.text = safe_address(e, o, pointer, lane_text(e, &step));
            return pointer_at(e, o, x);
        }
        expr from = y;
        from.root = NULL;
        x = int_op(e, OP_ADDI, I64, from, step);
        x.root = y.root;
        if (x.divisor > y.divisor) x.divisor = y.divisor;
        return x.is_constant || from.is_constant ? x : declare(e, ty, x, "off", id);
    case OP_ADDI:
    case OP_SUBI:
    case OP_MULI:
    case OP_DIVSI:
    case OP_REMSI:
        x = int_op(e, o->code, ty->element, args[0], args[1]);
        if (x.row && o->code == OP_REMSI && promises_rows(e, o)) x = *x.row;
        return declare(e, ty, x, "v", id);
    case OP_DIVUI:
    case OP_REMUI:
        if (args[0].is_nonnegative && args[1].is_nonnegative)
            return declare(
                e, ty, int_op(e, o->code == OP_DIVUI ? OP_DIVSI : OP_REMSI, ty->element, args[0], args[1]),
                "v", id);
        break;
    case OP_TRUNCI:
        if (args[0].kind == UNIFORM && args[0].is_constant && ty->element != I1)
            return constant_int(e, wrap(args[0].constant, ty->element));
        break;
    case OP_EXTSI:
    case OP_EXTUI:
        if (o->args[0]->type->element == I1 || (o->code == OP_EXTUI && !args[0].is_nonnegative)) break;
        y = args[0];
        if (y.is_constant) return y;
        return declare(e, ty, widened(e, y, c_type(ty)), "v", id);
    case OP_CMPI:
        if (uniform_compare(e, o, &args[0], &args[1])) {
            x.kind = UNIFORM;
            x.text = compare_text(e, o, args[0].text, args[1].text);
            return declare(e, ty, x, "m", id);
        }
        x.is_whole = x.is_whole || whole_compare(o, &args[0], &args[1]);
        break;
    case OP_SELECT:
        if (ty->is_pointer) return emit_pointer_select(e, o, args);
        if (args[0].is_constant) return args[0].constant ? args[1] : args[2];
        break;
    case OP_ANDI:
        if (ty->element == I1 && args[0].is_constant) return args[0].constant ? args[1] : args[0];
        if (ty->element == I1 && args[1].is_constant) return args[1].constant ? args[0] : args[1];
        break;
    case OP_BITCAST:
    case OP_ARITH_BITCAST:
    case OP_INT_TO_PTR:
    case OP_PTR_TO_INT: return emit_bitcast(e, o, args[0]);
    case OP_MAP_ELEMENTWISE: return emit_map(e, o, args, index);
    default: break;
    }
    int64_t folded;
    if (o->arg_count == 2 && x.kind == UNIFORM && args[0].is_constant && args[1].is_constant && is_int(ty) &&
        fold(o->code, ty->element, args[0].constant, args[1].constant, &folded)) {
        expr c = constant_int(e, folded);
        if (ty->element == I1) c.text = folded ? "true" : "false";
        return c;
    }
    const char *texts[MAX_RANK];
    for (int i = 0; i < o->arg_count; i++) texts[i] = lane_text(e, &args[i]);
    switch (op_table[o->code].kind) {
    case KIND_COMPARE: x.text = compare_text(e, o, texts[0], texts[1]); break;
    case KIND_CAST: x.text = cast_text(e, o, texts[0]); break;
    case KIND_ELEMENTWISE: x.text = extern_text(e, o, texts); break;
    default: {
        const char *formula = op_table[o->code].formula;
        if (o->code == OP_CLAMPF) {
            const attr *nan = op_attr(o, "propagateNan");
            formula = nan && nan->string && !strncmp(nan->string, "all", 3)
                          ? "($0 != $0 ? $0 : fmin(fmax($0, $1), $2))"
                          : "fmin(fmax($0, $1), $2)";
        }
        if (o->code == OP_DIVF && ty->element != F64 && t->target.has_inline_ptx)
            formula = "tile_divide($0, $1)";
        const char *safe = safe_formula(e, o, texts);
        if (safe) formula = safe;
        if (!formula) tile_unsupported(t, o->at, "%s", op_table[o->code].name);
        for (const char *c = strstr(formula, "tile_"); c; c = strstr(c + 1, "tile_"))
            use(e, tile_strndup(t, c, strcspn(c, "(")));
        if (ty->element == I1 && (o->code == OP_MAXUI || o->code == OP_MINSI)) formula = "$0 || $1";
        if (ty->element == I1 && (o->code == OP_MINUI || o->code == OP_MAXSI)) formula = "$0 && $1";
        x.text = fill(e, formula, ty, texts);
        if (is_float(ty) && o->code != OP_SELECT) x.text = rounded(e, ty->element, x.text);
    }
    }
    if (o->code == OP_MINSI || o->code == OP_MAXSI || o->code == OP_ANDI || o->code == OP_SHRUI ||
        o->code == OP_SHRSI) {
        x.is_nonnegative = args[0].is_nonnegative && args[1].is_nonnegative;
        if (o->code == OP_MINSI || o->code == OP_MAXSI)
            x.divisor = args[0].divisor < args[1].divisor ? args[0].divisor : args[1].divisor;
    }
    if (x.is_nonnegative || o->code == OP_SELECT) {
        int last = o->arg_count - 1, la = bits_of(&args[last - 1]), lb = bits_of(&args[last]);
        x.bits = la > lb ? la : lb;
    }
    if (o->code == OP_SELECT && is_int(ty)) {
        x.is_nonnegative = args[1].is_nonnegative && args[2].is_nonnegative;
        x.divisor = args[1].divisor < args[2].divisor ? args[1].divisor : args[2].divisor;
    }
    return declare(e, ty, x, ty->element == I1 ? "m" : "v", id);
}

/* tt.map_elementwise: the region for one lane's elements; branches are gotos. */
static expr emit_map(emitter *e, op *o, const expr *args, int index) {
    tile *t = e->t;
    region *r = &o->regions[0];
    const char *names[MAX_RANK], *end = new_name(e, "done");
    int depth = e->depth, outer = e->block_depth;
    if (o->result_count > MAX_RANK) tile_unsupported(t, o->at, "more than %d results", MAX_RANK);
    for (int i = 0; i < o->result_count; i++) {
        names[i] = new_name(e, "v");
        emit_line(e, depth, "%s %s;", c_type(o->results[i].type), names[i]);
    }
    const char *prefix = new_name(e, "bb");
    open_scope(e, "{");
    e->block_depth = e->depth;
    for (int i = 0; i < o->arg_count; i++) remember(e, r->first->args[i], NULL, args[i]);
    for (block *b = r->first->next; b; b = b->next)
        for (int i = 0; i < b->arg_count; i++) {
            const char *name = tile_format(t, "s%d", b->args[i]->id);
            emit_line(e, e->depth, "%s %s;", c_type(b->args[i]->type), name);
            remember(e, b->args[i], NULL,
                     (expr){.text = name, .kind = VARYING, .depth = e->depth, .divisor = 1});
        }
    for (block *b = r->first; b; b = b->next) {
        if (b != r->first) emit_line(e, e->depth, "%s_%d:;", prefix, b->id);
        for (op *c = b->first; c; c = c->next) {
            if (op_table[c->code].kind != KIND_END) {
                if (!is_pure(c))
                    tile_unsupported(t, c->at, "%s in tt.map_elementwise", op_table[c->code].name);
                for (int i = 0; i < c->result_count; i++) {
                    c->results[i].memo = NULL;
                    emit_value(e, &c->results[i], NULL);
                }
                continue;
            }
            int first = c->code == OP_COND_BR;
            if (c->code == OP_MAP_RETURN) {
                for (int i = 0; i < c->arg_count; i++) {
                    expr v = emit_value(e, c->args[i], NULL);
                    emit_line(e, e->depth, "%s = %s;", names[i], lane_text(e, &v));
                }
                if (b->next) emit_line(e, e->depth, "goto %s;", end);
                continue;
            }
            for (int k = 0; k < c->target_count; first += c->target_args[k++]) {
                if (c->code == OP_COND_BR && k == 0) {
                    expr v = emit_value(e, c->args[0], NULL);
                    emit_line(e, e->depth, "if (%s) {", lane_text(e, &v));
                }
                for (int i = 0; i < c->targets[k]->arg_count; i++) {
                    expr v = emit_value(e, c->args[first + i], NULL);
                    emit_line(e, e->depth, "s%d = %s;", c->targets[k]->args[i]->id, lane_text(e, &v));
                }
                emit_line(e, e->depth, "goto %s_%d;%s", prefix, c->targets[k]->id,
                          c->code == OP_COND_BR && k == 0 ? " }" : "");
            }
        }
    }
    emit_line(e, e->depth, "%s:;", end);
    e->block_depth = outer;
    close_scope(e, "}");
    expr x = {.kind = VARYING, .depth = depth, .divisor = 1};
    x.text = names[index];
    return x;
}
