#include "eu/message.h"

#include "eu/unit.h"

static void decode_message(struct message *m, const struct instruction *in) {
    switch (in->unit) {
    case UNIT_UGM:
    case UNIT_SLM:
    case UNIT_TGM: lsc_decode(m, in); break;
    case UNIT_GATEWAY: gateway_decode(m, in); break;
    case UNIT_DC0:
    case UNIT_DC1: hdc_decode(m, in); break;
    default: break;
    }
}

static void send(struct thread *t, const struct instruction *in, uint32_t mask) {
    if (!in->message.execute(t, in, &in->message, mask)) t->state = THREAD_FAULTED;
}

static uint32_t address_register(const struct thread *t, int index) {
    uint32_t v;
    memcpy(&v, t->registers + REG_ADDRESS + 4 * index, sizeof v);
    return v;
}

/* Descriptors in a0 are known only now. */
static void send_indirect(struct thread *t, const struct instruction *in, uint32_t mask) {
    struct message m = {.descriptor = in->message.descriptor, .extended = in->message.extended};
    if (in->descriptor_register >= 0) m.descriptor = address_register(t, in->descriptor_register);
    if (in->extended_register >= 0) m.extended = address_register(t, in->extended_register);
    decode_message(&m, in);
    if (!m.execute)
        thread_fault(t, in, "message not known: descriptor %#x, extended %#x", m.descriptor, m.extended);
    if (!m.execute || !m.execute(t, in, &m, mask)) t->state = THREAD_FAULTED;
}

static struct operand payload_at(int offset, int registers) {
    struct operand o = {.kind = OPERAND_REGISTER, .registers = (uint8_t)registers};
    o.lane[0] = (uint16_t)offset;
    return o;
}

/* Gather messages of Xe3 list the registers of their payload, addresses and then data, in s0: they are copied
 * together. */
static void send_gathered(struct thread *t, const struct instruction *in, uint32_t mask) {
    struct instruction plain = *in;
    const struct message *m = &in->message;
    uint8_t payload[32 * REGISTER_BYTES_MAX], kept[32 * REGISTER_BYTES_MAX];
    const int unit = register_bytes(t), count = (int)(m->descriptor >> 25 & 15), place = (256 - 32) * unit;
    const bool has_lanes = m->address_bytes && !m->transposed; /* else one address for all */
    const int addresses = has_lanes ? block_bytes(t, in, m->address_bytes) / unit : 1;
    const uint8_t *list = t->registers + REG_SCALAR + in->source[0].address;
    for (int i = 0; i < count; i++) memcpy(payload + i * unit, t->registers + list[i] * unit, (size_t)unit);
    /* the highest registers hold the payload while the message is sent */
    memcpy(kept, t->registers + place, (size_t)(32 * unit));
    memcpy(t->registers + place, payload, (size_t)(count * unit));
    plain.source[0] = payload_at(place, addresses);
    if (count > addresses) plain.source[1] = payload_at(place + addresses * unit, count - addresses);
    send(t, &plain, mask);
    const bool overlaps = in->destination.kind == OPERAND_REGISTER && in->destination.lane[0] >= place;
    if (!overlaps) memcpy(t->registers + place, kept, (size_t)(32 * unit));
}

const char *message_bind(struct instruction *in, const struct sim_product *product) {
    (void)product;
    if (in->descriptor_register < 0) decode_message(&in->message, in); /* also for profiles */
    if (in->descriptor_register >= 0 || in->extended_register >= 0) {
        in->execute = send_indirect;
        return in->source[0].kind == OPERAND_INDIRECT ? "message not known" : NULL;
    }
    in->execute = in->source[0].kind == OPERAND_INDIRECT ? send_gathered : send;
    return in->message.execute ? NULL : "message not known";
}
