#include "eu/bind.h"

#include "eu/alu.h"
#include "eu/decode.h"
#include "eu/dpas.h"
#include "eu/flow.h"
#include "eu/message.h"
#include "eu/operand.h"

static bool is_logical(int opcode) {
    return opcode == OP_NOT || opcode == OP_AND || opcode == OP_OR || opcode == OP_XOR || opcode == OP_BFN;
}

/* ---- domains ---- */

static bool any_type(const struct instruction *in, int type) {
    bool any = in->destination.type == type;
    for (int i = 0; i < in->sources; i++) any |= in->source[i].type == type;
    return any;
}

static bool any_float(const struct instruction *in) {
    bool any = type_is_float(in->destination.type);
    for (int i = 0; i < in->sources; i++) any |= type_is_float(in->source[i].type);
    return any;
}

static bool fits_signed(const struct operand *o) {
    if (o->kind == OPERAND_IMMEDIATE && o->type != TYPE_UV) return (int64_t)o->immediate <= INT32_MAX;
    return o->type != TYPE_UD && o->type != TYPE_UQ;
}

static bool fits_unsigned(const struct operand *o) {
    if (o->kind == OPERAND_IMMEDIATE) return (int64_t)o->immediate >= 0 && o->type != TYPE_V;
    return !type_is_signed(o->type) && !o->negate && o->type != TYPE_UQ;
}

/* Whether 32 bits are enough for the operands, and for the result as it is used. */
static bool fits_in_32_bits(const struct instruction *in) {
    const int result = in->destination.type ? in->destination.type : in->source[0].type;
    for (int i = 0; i < in->sources; i++)
        if (type_bytes(in->source[i].type) > 4) return false;
    if (in->saturate || in->condition == COND_OV || type_bytes(result) > 4) return false;
    const struct operand *a = &in->source[0], *b = &in->source[1];
    switch (in->opcode) {
    case OP_CMP:
    case OP_CMPN: return (fits_signed(a) && fits_signed(b)) || (fits_unsigned(a) && fits_unsigned(b));
    case OP_SEL:
        return !in->condition || (fits_signed(a) && fits_signed(b)) || (fits_unsigned(a) && fits_unsigned(b));
    case OP_CSEL: return fits_signed(&in->source[2]) || fits_unsigned(&in->source[2]);
    case OP_SHR:
        if (type_bytes(a->type) < 4 && !fits_unsigned(a)) return false;
        break;
    case OP_ASR:
        if (!type_is_signed(a->type)) return false;
        break;
    default: break;
    }
    if (!in->condition) return true;
    const bool order = in->condition != COND_EQ && in->condition != COND_NE;
    const bool exact = in->opcode == OP_ADD || in->opcode == OP_MUL;
    return type_bytes(result) == 4 && !(order && exact);
}

static enum domain choose_domain(struct instruction *in) {
    in->domain = DOMAIN_I32;
    if (in->opcode == OP_SRND) return DOMAIN_I32;
    const bool small = in->destination.type == TYPE_HF || in->destination.type == TYPE_BF;
    if (any_type(in, TYPE_DF)) return DOMAIN_F64;
    if (any_float(in)) {
        const bool large_integer =
            in->opcode == OP_MOV && !type_is_float(in->source[0].type) && type_bytes(in->source[0].type) >= 4;
        return small && (large_integer || in->opcode == OP_MAD) ? DOMAIN_F64 : DOMAIN_F32;
    }
    const bool chooses =
        in->opcode == OP_CMP || in->opcode == OP_CMPN || in->opcode == OP_SEL || in->opcode == OP_CSEL;
    return fits_in_32_bits(in) && (chooses || integer_function(in)) ? DOMAIN_I32 : DOMAIN_I64;
}

/* A move of floats to the same type copies bits, also of signaling NaNs and subnormals. */
static void retype_copies(struct instruction *in) {
    static const uint8_t integer[] = {[1] = TYPE_UB, [2] = TYPE_UW, [4] = TYPE_UD, [8] = TYPE_UQ};
    struct operand *d = &in->destination, *s = &in->source[0];
    if (in->opcode != OP_MOV || in->sources != 1 || d->type != s->type || !type_is_float(d->type) ||
        d->type == TYPE_VF)
        return;
    if (in->saturate || in->condition || s->negate || s->absolute) return;
    d->type = s->type = integer[type_bytes(d->type)];
}

/* ---- arithmetic ---- */

static bool is_special(const struct operand *o) {
    return o->kind == OPERAND_REGISTER && o->lane[0] >= REG_CONTROL && o->lane[0] < REG_SCALAR;
}

static bool can_copy(const struct instruction *in) {
    const struct operand *d = &in->destination, *s = &in->source[0];
    return in->opcode == OP_MOV && !type_is_float(d->type) && !type_is_float(s->type) && s->direct &&
           d->kind == OPERAND_REGISTER && d->shape == SHAPE_CONTIGUOUS &&
           type_bytes(d->type) == type_bytes(s->type) && !in->condition && !in->saturate;
}

static execute_function *choose_execute(struct instruction *in) {
    bool special = is_special(&in->destination);
    for (int i = 0; i < in->sources; i++) special |= is_special(&in->source[i]);
    if (special) return alu_execute_special;
    switch (in->opcode) {
    case OP_CMP:
    case OP_CMPN: return alu_compare;
    case OP_SEL: return in->condition ? alu_select_condition : alu_select;
    case OP_CSEL: return alu_select_condition;
    default: return can_copy(in) ? alu_move : in->sets_flags ? alu_execute_flags : alu_execute;
    }
}

static const char *bind_condition(struct instruction *in) {
    const struct operand *a = &in->source[in->opcode == OP_CSEL ? 2 : 0], *b = &in->source[1];
    const bool compares = in->opcode == OP_CMP || in->opcode == OP_CMPN || in->opcode == OP_SEL;
    if (in->opcode == OP_CSEL && !in->condition) {
        /* The compiler lets time pass with it: both choices are the same registers. */
        const struct operand *first = &in->source[0];
        if (first->kind != OPERAND_REGISTER || memcmp(first->lane, b->lane, sizeof b->lane))
            return "csel without a condition";
        in->condition = COND_EQ;
    }
    if (!in->condition || in->condition == COND_EO) return NULL;
    if (in->condition == COND_OV && (in->opcode == OP_ADD || in->opcode == OP_ADD3) &&
        in->domain == DOMAIN_I64) {
        const int result = in->destination.type ? in->destination.type : a->type;
        return type_bytes(result) <= 4 ? NULL : "overflow of 64 bits is not known";
    }
    bool is_unsigned = in->domain == DOMAIN_I64 && a->type == TYPE_UQ;
    if (compares) {
        if (in->domain == DOMAIN_I32) is_unsigned = !(fits_signed(a) && fits_signed(b));
        if (in->domain == DOMAIN_I64) is_unsigned |= b->type == TYPE_UQ;
    } else if (in->opcode == OP_CSEL) {
        if (in->domain == DOMAIN_I32) is_unsigned = !fits_signed(a);
    } else {
        const int result = in->destination.type ? in->destination.type : a->type;
        is_unsigned = result == (in->domain == DOMAIN_I32 ? TYPE_UD : TYPE_UQ);
    }
    in->compare = (in->opcode == OP_SEL ? choice_function_of : compare_function_of)(
        (enum condition)in->condition, (enum domain)in->domain, is_unsigned);
    return in->compare ? NULL : "condition without a meaning for these types";
}

static const char *bind_alu(struct instruction *in, void *(*allocate)(void *, size_t), void *context) {
    const bool logical = is_logical(in->opcode);
    if (in->opcode == OP_SEL || in->opcode == OP_CSEL)
        in->sets_flags = false;
    else
        in->sets_flags = in->condition != COND_NONE;
    retype_copies(in);
    in->domain = (uint8_t)choose_domain(in);
    for (int i = 0; i < in->sources; i++) {
        struct operand *o = &in->source[i];
        o->load = operand_loader(o, (enum domain)in->domain, logical);
        if (!o->load) return "type of a source not known";
        if (o->kind != OPERAND_IMMEDIATE) continue;
        o->constant = allocate(context, sizeof *o->constant);
        if (!operand_constant(o, &in->destination, (enum domain)in->domain, logical, o->constant))
            return "type of an immediate not known";
    }
    bool exists = true;
    const bool compares = in->opcode == OP_CMP || in->opcode == OP_CMPN;
    const bool selects = in->opcode == OP_SEL || in->opcode == OP_CSEL;
    if (in->destination.kind != OPERAND_NULL && !compares)
        in->convert = operand_converter(in->destination.type, (enum domain)in->domain, &exists);
    if (!exists) return "type of the destination not known";
    if (!compares && !selects) {
        in->compute = in->domain <= DOMAIN_I64 ? integer_function(in) : floating_function(in);
        if (!in->compute) return "not defined for these types";
    }
    if (in->saturate && in->domain == DOMAIN_I32) return "saturation of these types";
    in->execute = choose_execute(in);
    return bind_condition(in);
}

void bind(struct instruction *in, const struct sim_product *product, void *(*allocate)(void *, size_t),
          void *context) {
    const int class = opcode_class[in->opcode];
    in->masked_by_predicate = in->predicated && in->opcode != OP_SEL && class != CLASS_FLOW;
    in->runs_without_lanes =
        class == CLASS_FLOW || class == CLASS_SYNC || class == CLASS_MISC || in->end_of_thread;
    switch (class) {
    case CLASS_ALU:
    case CLASS_MATH: in->problem = bind_alu(in, allocate, context); break;
    case CLASS_MATRIX: in->problem = dpas_bind(in); break;
    case CLASS_SEND: in->problem = message_bind(in, product); break;
    default: in->problem = flow_bind(in); break;
    }
}
