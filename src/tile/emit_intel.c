/* Forms that avoid faults of Intel's GPU compiler (docs/internals/compiler-faults.md). */
#include <math.h>

#include "tile/emit.h"

static bool is_intel_gpu(const emitter *e) { return e->t->target.has_subgroups && !e->t->target.is_cpu; }

static bool is_number(const value *v, double number) {
    const attr *a = splat_constant(v);
    return a && a->kind == ATTR_FLOAT && a->real == number && !signbit(a->real) == !signbit(number);
}

/* Which operand a floating-point operation negates, or -1. */
static int negated(const op *o) {
    switch (o->code) {
    case OP_NEGF: return 0;
    case OP_MULF: return is_number(o->args[0], -1.0) ? 1 : is_number(o->args[1], -1.0) ? 0 : -1;
    case OP_SUBF: return is_number(o->args[0], -0.0) ? 1 : -1;
    default: return -1;
    }
}

/* A zero that the compiler can't prove to be one: a grid is never negative. */
#define OPAQUE_ZERO "(p.grid[0] >> 31)"

/* The same integer, about which the compiler knows nothing. */
static void hide(emitter *e, expr *x) {
    x->text = tile_format(e->t, "(%s | " OPAQUE_ZERO ")", x->text);
    x->is_constant = false;
}

const char *safe_formula(emitter *e, const op *o, const char *const *texts) {
    if (!is_intel_gpu(e)) return NULL;
    /* The compiler may take the least integer's absolute value, which wraps around, for positive. */
    if (o->code == OP_ABSI) return "($t)(abs(($t)$0) | " OPAQUE_ZERO ")";
    const int operand = negated(o);
    if (operand < 0) return NULL;
    return tile_format(e->t,
                       o->results[0].type->element == F64 ? "as_double(as_ulong(%s) ^ 0x8000000000000000UL)"
                                                          : "as_float(as_uint(%s) ^ 0x80000000U)",
                       texts[operand]);
}

/* May the compiler find out that an integer fits few bits: it was extended from at most `bits` of them, or is
 * the result of a mask or of a remainder? */
static bool may_be_narrowed(const value *v, int bits, int depth) {
    enum { DEEPEST = 16 };
    const op *o = v->def;
    if (!o || depth > DEEPEST) return false;
    switch (o->code) {
    case OP_EXTUI:
    case OP_EXTSI:
        return element_bits(o->args[0]->type->element) <= (o->code == OP_EXTUI ? bits : 1) ||
               may_be_narrowed(o->args[0], bits, depth + 1);
    case OP_TRUNCI:
    case OP_INDEX_CAST:
    case OP_SPLAT:
    case OP_BROADCAST:
    case OP_EXPAND_DIMS:
    case OP_RESHAPE:
    case OP_TRANS:
    case OP_SHRUI: return may_be_narrowed(o->args[0], bits, depth + 1);
    case OP_ADDI:
    case OP_SUBI:
    case OP_ORI:
    case OP_XORI:
        return may_be_narrowed(o->args[0], bits, depth + 1) || may_be_narrowed(o->args[1], bits, depth + 1);
    case OP_ANDI:
    case OP_DIVSI:
    case OP_DIVUI:
    case OP_CEILDIVSI:
    case OP_CEILDIVUI:
    case OP_FLOORDIVSI:
    case OP_REMSI:
    case OP_REMUI: return splat_constant(o->args[1]);
    case OP_MINSI:
    case OP_MINUI:
    case OP_MAXSI:
    case OP_MAXUI: return splat_constant(o->args[0]) || splat_constant(o->args[1]);
    case OP_SELECT:
        return (splat_constant(o->args[1]) || may_be_narrowed(o->args[1], bits, depth + 1)) &&
               (splat_constant(o->args[2]) || may_be_narrowed(o->args[2], bits, depth + 1));
    default: return false;
    }
}

/* The compiler computes differences of narrow indices in their bits, as though they did not wrap. */
bool is_unsafe_index(emitter *e, const value *index) {
    return is_intel_gpu(e) && may_be_narrowed(index, 1, 0);
}

const char *safe_address(emitter *e, const op *o, const char *pointer, const char *step) {
    const int bytes = (element_bits(o->results[0].type->element) + 7) / 8;
    return tile_format(e->t, "(long)(%s) + (long)%s * %d", pointer, step, bytes);
}

/* Which operand an integer operation negates, or -1. ~x counts, since ~x + 1 is -x. */
static int negated_integer(const op *o) {
    switch (o->code) {
    case OP_SUBI: return 1;
    case OP_EXTSI: return o->args[0]->type->element == I1 ? 0 : -1;
    case OP_MULI:
    case OP_XORI:
        for (int i = 0; i < 2; i++) {
            const attr *a = splat_constant(o->args[i]);
            if (a && a->kind == ATTR_INT && a->integer == -1) return 1 - i;
        }
        return -1;
    default: return -1;
    }
}

/* A product minus an unsigned byte becomes a multiply-add, which takes the negative byte for an unsigned
 * word. So the compiler must not see that it is a byte. */
void hide_negated_byte(emitter *e, const op *o, expr *args) {
    enum { BYTE = 8, WORD = 16 };
    if (!is_intel_gpu(e) || element_bits(o->results[0].type->element) <= WORD) return;
    const int operand = negated_integer(o);
    if (operand < 0) return;
    const value *v = o->args[operand];
    expr *x = &args[operand];
    if (x->is_constant || x->kind == LINEAR) return;
    if (v->type->element == I1 || may_be_narrowed(v, BYTE, 0)) hide(e, x);
}

/* The compiler crashes on the sum over a subgroup of the least integer: it adds that by an exclusive OR. */
void hide_least_integer(emitter *e, const type *ty, expr *x) {
    const int bits = element_bits(ty->element);
    if (!is_intel_gpu(e) || !x->is_constant || x->kind != UNIFORM || x->root || bits < 8) return;
    if (x->constant == INT64_MIN >> (64 - bits)) hide(e, x);
}
