#include "check/taint.h"

#include "eu/decode.h"
#include "eu/operand.h"
#include "eu/thread.h"
#include "eu/unit.h"

bool is_tainted(const struct taint *x, int at, int size) {
    uint8_t any = 0;
    for (int i = 0; i < size; i++) any |= x->bytes[at + i];
    return any != 0;
}

bool taint_is_stored(const struct taint *x, const struct thread *t, int at, int size) {
    for (int i = at; i < at + size; i++)
        if (x->bytes[i] && (x->bytes[i] != TAINT_COPY || t->registers[i] != SIM_POISON)) return true;
    return false;
}

static uint32_t flag_taint(const struct taint *x, const struct instruction *in) {
    uint64_t v;
    const int bit = in->flag * 16 + in->channel;
    memcpy(&v, x->bytes + REG_FLAG + bit / 8, sizeof v);
    return (uint32_t)(v >> (bit % 8)) & in->lane_mask;
}

static void merge_flag_taint(struct taint *x, const struct instruction *in, uint32_t mask, uint32_t bits) {
    uint64_t v;
    const int bit = in->flag * 16 + in->channel;
    memcpy(&v, x->bytes + REG_FLAG + bit / 8, sizeof v);
    v = (v & ~((uint64_t)mask << (bit % 8))) | (uint64_t)(bits & mask) << (bit % 8);
    memcpy(x->bytes + REG_FLAG + bit / 8, &v, sizeof v);
}

static void follow_alu(struct taint *x, const struct thread *t, const struct instruction *in, uint32_t mask) {
    uint16_t offsets[MAX_LANES];
    uint32_t bits = in->predicated ? flag_taint(x, in) : 0;
    uint8_t kinds = bits || in->opcode != OP_MOV ? TAINT_VALUE : 0;
    for (int k = 0; k < in->sources; k++) {
        const struct operand *o = &in->source[k];
        if (o->kind != OPERAND_REGISTER && o->kind != OPERAND_INDIRECT) continue;
        const uint16_t *lane = operand_lanes(t, o, offsets);
        for (int i = 0; i < in->lanes; i++)
            if (is_tainted(x, lane[i], type_bytes(o->type))) {
                bits |= 1u << i;
                kinds |= x->bytes[lane[i]];
            }
    }
    const uint8_t kind = kinds == TAINT_COPY ? TAINT_COPY : TAINT_VALUE;
    const struct operand *d = &in->destination;
    if (in->sets_flags) merge_flag_taint(x, in, mask, bits);
    if (d->kind != OPERAND_REGISTER && d->kind != OPERAND_INDIRECT) return;
    const uint16_t *lane = operand_lanes(t, d, offsets);
    for (uint32_t m = mask; m; m &= m - 1) {
        const int i = __builtin_ctz(m);
        memset(x->bytes + lane[i], bits >> i & 1 ? kind : 0, (size_t)type_bytes(d->type));
    }
}

/* An element of the result is tainted by its addend, its row of the left factor, its column of the right one.
 */
static void follow_dpas(struct taint *x, const struct instruction *in) {
    const struct operand *d = &in->destination, *c = &in->source[0], *b = &in->source[1], *a = &in->source[2];
    const int n = in->lanes, c_bytes = type_bytes(c->type), d_bytes = type_bytes(d->type);
    uint8_t result[8][16];
    for (int r = 0; r < in->repeat; r++) {
        const bool row = is_tainted(x, a->lane[0] + 4 * r * in->depth, 4 * in->depth);
        for (int i = 0; i < n; i++) {
            bool v = row || (c->kind == OPERAND_REGISTER &&
                             is_tainted(x, c->lane[0] + (r * n + i) * c_bytes, c_bytes));
            for (int k = 0; k < in->depth && !v; k++) v = is_tainted(x, b->lane[0] + 4 * (k * n + i), 4);
            result[r][i] = v ? TAINT_VALUE : 0;
        }
    }
    for (int r = 0; r < in->repeat; r++)
        for (int i = 0; i < n; i++)
            memset(x->bytes + d->lane[0] + (r * n + i) * d_bytes, result[r][i], (size_t)d_bytes);
}

/* Lanes of a payload's element blocks. `stored`: of a store to global memory, of which only the element
 * counts that memory gets. */
static uint32_t payload_taint(const struct taint *x, const struct thread *t, const struct instruction *in,
                              int at, int size, int blocks, bool stored) {
    const struct message *m = &in->message;
    const int block = block_bytes(t, in, size);
    uint32_t bits = 0;
    for (int e = 0; e < blocks; e++)
        for (int i = 0; i < in->lanes; i++) {
            const int place = at + e * block + i * size;
            if (stored ? taint_is_stored(x, t, place + m->shift / 8, m->element_bytes)
                       : is_tainted(x, place, size))
                bits |= 1u << i;
        }
    return bits;
}

static enum taint_use follow_send(struct taint *x, const struct thread *t, const struct instruction *in,
                                  uint32_t mask, uint32_t *lanes) {
    const struct message *m = &in->message;
    const bool lsc = (in->unit == UNIT_UGM || in->unit == UNIT_SLM) && m->element_bytes;
    if (!lsc) { /* blocks and fences: what is loaded is known */
        if (in->destination.kind == OPERAND_REGISTER)
            memset(x->bytes + in->destination.lane[0], 0,
                   (m->descriptor >> 20 & 31) * (size_t)register_bytes(t));
        return TAINT_UNUSED;
    }
    *lanes = payload_taint(x, t, in, in->source[0].lane[0], m->address_bytes, 1, false) & mask;
    if (*lanes) return TAINT_ADDRESS;
    if (m->store || m->atomic) {
        const bool stored = !m->local && !m->atomic;
        const int at = in->source[1].lane[0], block = m->elements * m->element_bytes;
        if (in->source[1].kind == OPERAND_REGISTER)
            *lanes =
                mask & (!m->transposed ? payload_taint(x, t, in, at, m->register_bytes, m->elements, stored)
                        : stored       ? (uint32_t)taint_is_stored(x, t, at, block)
                                       : (uint32_t)is_tainted(x, at, block));
        if (*lanes) return TAINT_DATA;
    }
    if (in->destination.kind != OPERAND_REGISTER) return TAINT_UNUSED;
    const int size = m->transposed ? m->elements * m->element_bytes : m->register_bytes;
    for (int e = 0; e < (m->transposed ? 1 : m->elements); e++)
        for (uint32_t rest = mask; rest; rest &= rest - 1)
            memset(x->bytes + in->destination.lane[0] + e * block_bytes(t, in, m->register_bytes) +
                       __builtin_ctz(rest) * m->register_bytes,
                   0, (size_t)size);
    return TAINT_UNUSED;
}

enum taint_use taint_follow(struct taint *x, const struct thread *t, const struct instruction *in,
                            uint32_t mask, uint32_t *lanes) {
    *lanes = 0;
    if (!x->any || in->problem) return TAINT_UNUSED;
    switch (opcode_class[in->opcode]) {
    case CLASS_ALU:
    case CLASS_MATH: follow_alu(x, t, in, mask); return TAINT_UNUSED;
    case CLASS_MATRIX: follow_dpas(x, in); return TAINT_UNUSED;
    case CLASS_SEND: return follow_send(x, t, in, mask, lanes);
    case CLASS_FLOW:
        *lanes = in->predicated ? flag_taint(x, in) & (in->opcode == OP_JMPI ? 1 : mask) : 0;
        return *lanes ? TAINT_BRANCH : TAINT_UNUSED;
    default: return TAINT_UNUSED;
    }
}
