/* IGA's text, for example
 *
 *     (W&~f0.0.any) add (16|M0) (lt)f1.0 (sat)r10.0<1>:d -r12.0<8;8,1>:d 0x10:w {Compacted,I@1} // comment
 *
 * The parser keeps one pointer into the text. Each read_… function moves it behind what it has read, or
 * returns false. Offsets of lanes are computed here, because they depend on nothing that changes at run time.
 */
#include "eu/decode.h"

#include <ctype.h>
#include <stdlib.h>

const char *const opcode_text[OP_COUNT] = {
#define OPCODE(constant, text, class) [OP_##constant] = text,
#include "eu/opcodes.def"
#undef OPCODE
};
const uint8_t opcode_class[OP_COUNT] = {
#define OPCODE(constant, text, class) [OP_##constant] = CLASS_##class,
#include "eu/opcodes.def"
#undef OPCODE
};

static const char *const condition_text[COND_COUNT] = {"",   "eq", "ne", "gt", "ge",
                                                       "lt", "le", "ov", "un", "eo"};
static const char *const math_text[MATH_COUNT] = {"inv",   "log",  "exp",  "sqt",  "rsqt", "sin",
                                                  "cos",   "idiv", "iqot", "irem", "pow",  "invm",
                                                  "rsqtm", "fdiv", "tanh", "sigm"};
static const char *const unit_text[] = {"ugm", "slm", "tgm", "gtwy", "dc0", "dc1"};

struct cursor {
    const char *s;
    int register_bytes;
};

static void skip_spaces(struct cursor *c) {
    while (*c->s == ' ' || *c->s == '\t') c->s++;
}

static bool skip_text(struct cursor *c, const char *text) {
    const size_t n = strlen(text);
    if (strncmp(c->s, text, n)) return false;
    c->s += n;
    return true;
}

static long read_number(struct cursor *c) {
    char *end;
    const long v = strtol(c->s, &end, 0);
    c->s = end;
    return v;
}

static bool at_end(struct cursor *c) {
    skip_spaces(c);
    return !*c->s || *c->s == '{' || (c->s[0] == '/' && c->s[1] == '/');
}

static bool read_type(struct cursor *c, uint8_t *type) {
    size_t n = 0;
    while (isalnum((unsigned char)c->s[n])) n++;
    for (int t = 1; t < TYPE_COUNT; t++)
        if (strlen(type_info[t].text) == n && !memcmp(c->s, type_info[t].text, n)) {
            *type = (uint8_t)t;
            c->s += n;
            return true;
        }
    return false;
}

/* A register's name and number: its offset in the register file. */
static bool read_register(struct cursor *c, long *offset) {
    static const struct {
        const char *name;
        int base, bytes;
    } files[] = {{"acc", REG_ACCUMULATOR, 0}, {"a", REG_ADDRESS, 32},  {"f", REG_FLAG, 4},
                 {"cr", REG_CONTROL, 64},     {"sr", REG_STATE, 16},   {"ce", REG_CHANNEL, 4},
                 {"tm", REG_TIME, 32},        {"msg", REG_MESSAGE, 4}, {"s", REG_SCALAR, 64},
                 {"r", REG_GENERAL, 0}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const size_t n = strlen(files[i].name);
        if (strncmp(c->s, files[i].name, n)) continue;
        if (!isdigit((unsigned char)c->s[n]) && c->s[n] != '<') continue; /* ce has no number */
        c->s += n;
        *offset = files[i].base + read_number(c) * (files[i].bytes ? files[i].bytes : c->register_bytes);
        return true;
    }
    return false;
}

/* <stride>, <vertical;horizontal>, <vertical;width,horizontal>, or <width,horizontal> with an address for
 * each row */
struct region {
    int count;
    bool vertical;
    long value[3];
};

static bool read_region(struct cursor *c, struct region *r) {
    *r = (struct region){0};
    if (*c->s != '<') return true;
    c->s++;
    while (*c->s && *c->s != '>' && r->count < 3) {
        r->value[r->count++] = read_number(c);
        if (*c->s == ';') r->vertical = true;
        if (*c->s == ';' || *c->s == ',') c->s++;
    }
    if (*c->s != '>') return false;
    c->s++;
    return true;
}

/* Number of elements between the region's start and a lane's. */
static long region_element(const struct region *r, bool is_destination, long lane) {
    const long *v = r->value;
    if (!r->count) return lane;
    if (is_destination || r->count == 1) return lane * v[0];
    if (r->count == 2 && !r->vertical) return lane % (v[0] ? v[0] : 1) * v[1];
    if (r->count == 2) { /* of three-source instructions: width is vertical / horizontal */
        if (!v[0] || !v[1]) return lane * (v[0] + v[1]);
        const long width = v[0] > v[1] ? v[0] / v[1] : 1;
        return lane / width * v[0] + lane % width * v[1];
    }
    const long width = v[1] ? v[1] : 1;
    return lane / width * v[0] + lane % width * v[2];
}

static bool place_lanes(struct operand *o, const struct region *r, long start, int lanes,
                        bool is_destination) {
    const int size = type_bytes(o->type) ? type_bytes(o->type) : 1;
    bool contiguous = true, scalar = true;
    for (int i = 0; i < lanes; i++) {
        const long at = start + region_element(r, is_destination, i) * size;
        if (o->kind == OPERAND_REGISTER && (at < 0 || at + size > REG_NULL)) return false;
        o->lane[i] = (uint16_t)at;
        contiguous &= at == start + i * size;
        scalar &= at == start;
    }
    if (o->kind == OPERAND_INDIRECT) contiguous = scalar = false;
    o->shape = contiguous ? SHAPE_CONTIGUOUS : scalar ? SHAPE_SCALAR : SHAPE_LANES;
    o->lanes = (uint8_t)lanes;
    return true;
}

static bool read_modifiers(struct cursor *c, struct operand *o) {
    for (;;) {
        if ((*c->s == '-' && !isdigit((unsigned char)c->s[1])) || *c->s == '~') {
            o->negate = true;
            c->s++;
        } else if (skip_text(c, "(abs)")) {
            o->absolute = true;
        } else {
            return true;
        }
    }
}

static bool read_null(struct cursor *c, struct operand *o, int lanes) {
    struct region r;
    o->kind = OPERAND_NULL;
    o->lanes = (uint8_t)lanes;
    if (*c->s == '.') {
        c->s++;
        read_number(c);
    }
    for (int i = 0; i < MAX_LANES; i++) o->lane[i] = REG_NULL;
    o->shape = SHAPE_SCALAR;
    if (!read_region(c, &r)) return false;
    if (*c->s != ':') return true;
    c->s++;
    if (!isdigit((unsigned char)*c->s)) return read_type(c, &o->type);
    o->registers = (uint8_t)read_number(c);
    return true;
}

/* r[a0.N,displacement]<region>:type */
static bool read_indirect(struct cursor *c, struct operand *o, int lanes, bool is_destination) {
    struct region r;
    o->kind = OPERAND_INDIRECT;
    if (!skip_text(c, "a0.")) return false;
    o->address = (uint8_t)read_number(c);
    skip_spaces(c);
    if (*c->s == ',') c->s++;
    skip_spaces(c);
    if (*c->s != ']') o->displacement = (int16_t)read_number(c);
    skip_spaces(c);
    if (!skip_text(c, "]") || !read_region(c, &r) || !skip_text(c, ":") || !read_type(c, &o->type))
        return false;
    if (!is_destination && r.count == 2 && !r.vertical)
        o->lanes_per_address = (uint8_t)(r.value[0] ? r.value[0] : 1);
    return place_lanes(o, &r, 0, lanes, is_destination);
}

static bool read_immediate(struct cursor *c, struct operand *o, int lanes) {
    char *end;
    o->kind = OPERAND_IMMEDIATE;
    o->lanes = (uint8_t)lanes;
    const bool minus = skip_text(c, "-");
    uint64_t v = strtoull(c->s, &end, 0);
    if (end == c->s) return false;
    c->s = end;
    if (minus) v = 0 - v;
    if (!skip_text(c, ":") || !read_type(c, &o->type)) return false;
    switch (o->type) {
    case TYPE_UB: v = (uint8_t)v; break;
    case TYPE_B: v = (uint64_t)(int64_t)(int8_t)v; break;
    case TYPE_UW: v = (uint16_t)v; break;
    case TYPE_W: v = (uint64_t)(int64_t)(int16_t)v; break;
    case TYPE_UD: v = (uint32_t)v; break;
    case TYPE_D: v = (uint64_t)(int64_t)(int32_t)v; break;
    default: break;
    }
    o->immediate = v;
    return true;
}

static bool read_operand(struct cursor *c, struct operand *o, int lanes, bool is_destination) {
    struct region r;
    long start, element = 0;
    skip_spaces(c);
    memset(o, 0, sizeof *o);
    if (!read_modifiers(c, o)) return false;
    if (skip_text(c, "null")) return read_null(c, o, lanes);
    if (skip_text(c, "r[")) return read_indirect(c, o, lanes, is_destination);
    if (!read_register(c, &start)) return read_immediate(c, o, lanes);
    o->kind = OPERAND_REGISTER;
    if (*c->s == '.') {
        c->s++;
        if (isdigit((unsigned char)*c->s))
            element = read_number(c);
        else /* mme0 to mme7, nomme: extra bits of the accumulators, which are not kept */
            while (isalnum((unsigned char)*c->s)) c->s++;
    }
    if (!read_region(c, &r)) return false;
    if (*c->s == ':') {
        c->s++;
        if (!read_type(c, &o->type)) return false;
    }
    const int size = type_bytes(o->type) ? type_bytes(o->type) : 1;
    return place_lanes(o, &r, start + element * size, lanes, is_destination);
}

/* Of a message, call and ret: a register without a region, perhaps with the number of registers. */
static bool read_payload(struct cursor *c, struct operand *o) {
    long start;
    skip_spaces(c);
    memset(o, 0, sizeof *o);
    if (skip_text(c, "null")) {
        if (!read_null(c, o, 1)) return false;
    } else if (skip_text(c, "r[s0.")) { /* Xe3: a list of registers, one byte each, from a byte of s0 on */
        o->kind = OPERAND_INDIRECT;
        o->address = (uint8_t)read_number(c);
        if (!skip_text(c, "]")) return false;
    } else {
        if (!read_register(c, &start)) return false;
        if (skip_text(c, ".")) start += 4 * read_number(c);
        o->kind = OPERAND_REGISTER;
        o->lane[0] = (uint16_t)start;
    }
    if (*c->s == ':' && isdigit((unsigned char)c->s[1])) {
        c->s++;
        o->registers = (uint8_t)read_number(c);
    }
    return true;
}

static bool read_flag(struct cursor *c, uint8_t *flag) {
    if (!skip_text(c, "f")) return false;
    long at = read_number(c) * 2;
    if (*c->s == '.' && isdigit((unsigned char)c->s[1])) {
        c->s++;
        at += read_number(c);
    }
    *flag = (uint8_t)at;
    return true;
}

/* (W&~f0.0.any16h) */
static bool read_predicate(struct cursor *c, struct instruction *in) {
    if (!skip_text(c, "(")) return true;
    if (skip_text(c, "W")) {
        in->no_mask = true;
        skip_text(c, "&");
    }
    if (skip_text(c, "~")) in->predicate_inverted = true;
    if (*c->s == 'f') {
        in->predicated = true;
        if (!read_flag(c, &in->flag)) return false;
        if (skip_text(c, ".any"))
            in->predicate_group = GROUP_ANY;
        else if (skip_text(c, ".all"))
            in->predicate_group = GROUP_ALL;
        if (isdigit((unsigned char)*c->s)) in->group_lanes = (uint8_t)read_number(c);
        skip_text(c, "h");
    }
    return skip_text(c, ")");
}

static bool read_opcode(struct cursor *c, struct instruction *in, char *suffix, size_t size) {
    size_t n = 0, k = 0;
    while (isalnum((unsigned char)c->s[n])) n++;
    int op = 0;
    while (op < OP_COUNT && (strlen(opcode_text[op]) != n || memcmp(opcode_text[op], c->s, n))) op++;
    if (op == OP_COUNT) return false;
    in->opcode = (uint8_t)op;
    c->s += n;
    if (*c->s == '.') c->s++;
    while (*c->s && *c->s != ' ' && k + 1 < size) suffix[k++] = *c->s++;
    suffix[k] = 0;
    skip_spaces(c);
    return true;
}

/* (16|M8): execution size and first channel */
static bool read_lanes(struct cursor *c, struct instruction *in) {
    in->lanes = 1;
    if (c->s[0] == '(' && isdigit((unsigned char)c->s[1])) {
        c->s++;
        in->lanes = (uint8_t)read_number(c);
        if (skip_text(c, "|M")) in->channel = (uint8_t)read_number(c);
        if (!skip_text(c, ")")) return false;
        skip_spaces(c);
    }
    in->lane_mask = in->lanes >= 32 ? 0xffffffffu : (1u << in->lanes) - 1;
    return in->lanes <= MAX_LANES && in->channel < MAX_LANES;
}

/* (lt)f0.1; without the flag for sel and csel */
static bool read_condition(struct cursor *c, struct instruction *in) {
    if (*c->s != '(' || !strncmp(c->s, "(sat)", 5) || !strncmp(c->s, "(abs)", 5)) return true;
    for (int k = 1; k < COND_COUNT; k++)
        if (!strncmp(c->s + 1, condition_text[k], 2)) in->condition = (uint8_t)k;
    if (!strncmp(c->s + 1, "nz", 2)) in->condition = COND_NE;
    if (!strncmp(c->s + 1, "z)", 2)) in->condition = COND_EQ;
    if (!in->condition) return false;
    while (*c->s != ')') c->s++;
    c->s++;
    if (*c->s == 'f' && isdigit((unsigned char)c->s[1]) && !read_flag(c, &in->flag)) return false;
    skip_spaces(c);
    return true;
}

static bool read_jumps(struct cursor *c, struct instruction *in) {
    if (in->opcode == OP_CALL && !read_payload(c, &in->destination)) return false;
    if (in->opcode == OP_RET) return read_payload(c, &in->source[0]);
    skip_spaces(c);
    for (int k = 0; k < 2 && !at_end(c); k++) {
        if (*c->s != '-' && !isdigit((unsigned char)*c->s)) return false;
        in->jump_bytes[k] = read_number(c);
    }
    return true;
}

static bool read_send(struct cursor *c, struct instruction *in, const char *unit) {
    in->unit = UNIT_OTHER;
    for (size_t i = 0; i < sizeof unit_text / sizeof *unit_text; i++)
        if (!strcmp(unit, unit_text[i])) in->unit = (uint8_t)i;
    if (!strcmp(unit, "ugml")) in->unit = UNIT_UGM;
    if (!strcmp(unit, "ts")) in->unit = UNIT_GATEWAY; /* Xe-LP ends threads there */
    if (!read_payload(c, &in->destination) || !read_payload(c, &in->source[0])) return false;
    const bool gathered = in->source[0].kind == OPERAND_INDIRECT; /* the whole payload */
    if (!gathered && !read_payload(c, &in->source[1])) return false;
    skip_spaces(c);
    if (strncmp(c->s, "a0.", 3)) {
        in->message.extended = (uint32_t)strtoul(c->s, (char **)&c->s, 0);
        skip_text(c, ":");
    }
    if (skip_text(c, "a0.")) in->extended_register = (int8_t)read_number(c);
    skip_spaces(c);
    if (skip_text(c, "a0."))
        in->descriptor_register = (int8_t)read_number(c);
    else
        in->message.descriptor = (uint32_t)strtoul(c->s, (char **)&c->s, 0);
    /* before Xe-HP the text gives the payload's length only in the extended descriptor */
    if (!gathered && !in->source[1].registers) in->source[1].registers = in->message.extended >> 6 & 31;
    in->end_of_thread = strstr(c->s, "EOT") != NULL;
    return at_end(c);
}

static bool read_operands(struct cursor *c, struct instruction *in) {
    if (skip_text(c, "(sat)")) in->saturate = true;
    if (!read_operand(c, &in->destination, in->lanes, true)) return false;
    while (!at_end(c)) {
        if (in->sources == 3 || !read_operand(c, &in->source[in->sources], in->lanes, false)) return false;
        in->sources++;
    }
    return true;
}

/* What follows the mnemonic's dot. */
static bool read_suffix(struct instruction *in, const char *suffix) {
    char *end;
    switch (in->opcode) {
    case OP_MATH:
        for (int i = 0; i < MATH_COUNT; i++)
            if (!strcmp(suffix, math_text[i])) {
                in->function = (uint8_t)i;
                return true;
            }
        return false;
    case OP_BFN: in->function = (uint8_t)strtol(suffix, NULL, 0); return true;
    case OP_DPAS:
    case OP_DPASW:
        in->depth = (uint8_t)strtol(suffix, &end, 10);
        in->repeat = *end ? (uint8_t)strtol(end + 1, NULL, 10) : 1;
        return in->depth && in->repeat;
    case OP_GOTO: in->branch_back = !strcmp(suffix, "b"); return true;
    case OP_SYNC: in->barrier = !strcmp(suffix, "bar"); return strcmp(suffix, "host") != 0;
    default: return opcode_class[in->opcode] == CLASS_SEND || !*suffix;
    }
}

static const char *decode_parts(struct instruction *in, const struct sim_product *product) {
    struct cursor c = {.s = in->text, .register_bytes = product->register_bytes};
    char suffix[32];
    skip_spaces(&c);
    if (!read_predicate(&c, in)) return "predicate not known";
    skip_spaces(&c);
    if (!read_opcode(&c, in, suffix, sizeof suffix)) return "opcode not known";
    if (!read_suffix(in, suffix)) return "function not known";
    if (in->opcode == OP_ILLEGAL) return "illegal instruction";
    if (in->opcode == OP_SYNC || in->opcode == OP_NOP) return NULL;
    if (!read_lanes(&c, in)) return "execution size not known";
    if (!read_condition(&c, in)) return "condition not known";
    if (opcode_class[in->opcode] == CLASS_FLOW) return read_jumps(&c, in) ? NULL : "branch target not known";
    if (opcode_class[in->opcode] == CLASS_SEND) return read_send(&c, in, suffix) ? NULL : "message not known";
    if (!read_operands(&c, in)) return "operand not known";
    in->atomic = strstr(c.s, "Atomic") != NULL;
    /* before Xe-HPC one opcode computes both halves of a product: the upper if it writes the accumulator */
    if (in->opcode == OP_MACH && product->iga < SIM_IGA_XE_HPC && !strstr(c.s, "AccWrEn"))
        in->opcode = OP_MACL;
    return NULL;
}

void decode(struct instruction *in, const struct sim_product *product) {
    in->descriptor_register = in->extended_register = -1;
    in->lanes = 1;
    in->lane_mask = 1;
    in->problem = decode_parts(in, product);
}
