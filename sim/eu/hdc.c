/* Messages of the older data cache (HDC, units dc0 and dc1): products before Xe2 use it for blocks of scratch
 * memory and of owords, Xe-LP for everything. Lanes' loads, stores and atomics have the layout of the
 * load/store cache's, which executes them. Descriptor, from Mesa's brw_eu.h and IGA: binding table entry 7:0,
 * control 13:8, type 18:14, header 19. */
#include "eu/unit.h"

#include "eu/memory.h"

/* Descriptor: 19 header, 18 scratch, 17 write, 13:12 log2 of registers (of 32 bytes), 11:0 offset in
 * registers of 32 bytes. r0.5 of the header is the surface's offset. */
static bool scratch_block(struct thread *t, const struct instruction *in, const struct message *m,
                          uint32_t mask) {
    uint32_t header;
    uint64_t base, size;
    memcpy(&header, t->registers + in->source[0].lane[0] + 20, 4);
    if (t->group->walk->payload_from_memory)
        base = t->group->walk->bases.general + (header & ~1023u);
    else if (!memory_surface(t, in, MODEL_SURFACE, (header & ~1023u) >> 4, &base, &size))
        return false;
    const uint64_t address = base + (m->descriptor & 4095) * 32;
    const uint32_t bytes = 32u << (m->descriptor >> 12 & 3);
    const struct access a = {.thread = t, .in = in, .store = m->store, .scratch = true};
    if (!m->store) return memory_read(&a, address, t->registers + in->destination.lane[0], bytes);
    for (uint32_t i = 0; i < bytes / 4; i++) { /* lanes of the mask write their dwords */
        if (!in->no_mask && !(mask >> (i % in->lanes) & 1)) continue;
        if (!memory_write(&a, address + 4 * i, t->registers + in->source[1].lane[0] + 4 * i, 4)) return false;
    }
    return true;
}

/* Header dword 2: the offset in local memory or from the general state's base, in owords, of the unaligned
 * message (type 1) in bytes; descriptor 10:8: the size. */
static bool oword_block(struct thread *t, const struct instruction *in, const struct message *m,
                        uint32_t mask) {
    static const uint16_t bytes[] = {16, 16, 32, 64, 128, 256, 0, 0};
    uint32_t offset;
    (void)mask;
    memcpy(&offset, t->registers + in->source[0].lane[0] + 8, 4);
    const uint64_t at = (uint64_t)offset * (m->descriptor >> 14 & 1 ? 1 : 16);
    const struct access a = {.thread = t, .in = in, .local = m->local};
    return memory_read(&a, m->local ? local_address(at) : t->group->walk->bases.general + at,
                       t->registers + in->destination.lane[0], bytes[m->descriptor >> 8 & 7]);
}

enum {
    STATELESS_FROM = 240,
    BINDLESS = 252,
    LOCAL = 254,
    DC0_BYTES = 4,
    DC0_FENCE = 7,
    DC1_UNTYPED = 1,
    DC1_ATOMIC = 2,
    DC1_FLOAT_ATOMIC = 0x1b,
    STORES = 8, /* added to a load's type */
    DC1_A64_SCATTERED = 0x10,
    DC1_A64_UNTYPED = 0x11,
    DC1_A64_ATOMIC = 0x12,
    DC1_A64_BLOCK = 0x14,
    DC1_A64_BLOCK_STORE = 0x15,
    DC1_A64_UNTYPED_STORE = 0x19,
    DC1_A64_SCATTERED_STORE = 0x1a,
    DC1_A64_FLOAT_ATOMIC = 0x1d
};

static void set_data(struct message *m, int element_bytes, int elements) {
    m->element_bytes = (uint8_t)element_bytes;
    m->register_bytes = element_bytes == 8 ? 8 : 4;
    m->elements = (uint8_t)elements;
}

/* 11:8: components that are not accessed */
static void decode_untyped(struct message *m, bool store) {
    m->components = ~m->descriptor >> 8 & 15;
    set_data(m, 4, __builtin_popcount(m->components));
    m->store = store;
    m->execute = store ? lsc_store : lsc_load;
}

/* 9:8: bytes, dwords, qwords; 11:10: log2 of their number. Those of bytes are joined to one element. */
static void decode_scattered(struct message *m, bool store) {
    const int kind = m->descriptor >> 8 & 3, count = 1 << (m->descriptor >> 10 & 3);
    if (kind == 3 || (kind == 0 && count > 4)) return;
    if (kind)
        set_data(m, kind == 1 ? 4 : 8, count);
    else
        set_data(m, count, 1);
    m->store = store;
    m->execute = store ? lsc_store : lsc_load;
}

/* 12:11: owords, unaligned owords, -, pieces of 32 bytes; 10:8: log2 of their number plus 1 */
static void decode_block(struct message *m, bool store) {
    const int kind = m->descriptor >> 11 & 3, code = m->descriptor >> 8 & 7;
    const int bytes = (kind == 3 ? 32 : 16) << (code ? code - 1 : 0);
    if (kind == 2 || code > 4 || code == (kind == 3 ? 0 : 1)) return; /* an oword's upper half: not known */
    set_data(m, 4, bytes / 4);
    m->store = store;
    m->execute = lsc_block;
}

/* 11:8: the operation, as numbers of the load/store cache's */
static void decode_atomic(struct message *m, const struct instruction *in, bool is_float, int bytes) {
    static const uint8_t integer[16] = {0, 24, 25, 26, 11, 8, 9, 12, 13, 0, 15, 14, 17, 16, 18, 0},
                         floating[16] = {0, 22, 21, 23, 19};
    m->operation = (is_float ? floating : integer)[m->descriptor >> 8 & 15];
    set_data(m, bytes, 1);
    if (m->operation) atomic_decode(m, in);
}

static void decode_flat(struct message *m, const struct instruction *in, uint32_t type) {
    m->model = MODEL_FLAT;
    m->address_bytes = 8;
    switch (type) {
    case DC1_A64_SCATTERED: decode_scattered(m, false); break;
    case DC1_A64_SCATTERED_STORE: decode_scattered(m, true); break;
    case DC1_A64_UNTYPED: decode_untyped(m, false); break;
    case DC1_A64_UNTYPED_STORE: decode_untyped(m, true); break;
    case DC1_A64_BLOCK: decode_block(m, false); break;
    case DC1_A64_BLOCK_STORE: decode_block(m, true); break;
    case DC1_A64_ATOMIC: decode_atomic(m, in, false, m->descriptor >> 12 & 1 ? 8 : 4); break;
    case DC1_A64_FLOAT_ATOMIC: decode_atomic(m, in, true, 4); break;
    default: break;
    }
}

/* Addresses of 32 bits in local memory, a surface, or from the general state's base. */
static void decode_surface(struct message *m, const struct instruction *in, uint32_t type) {
    const uint32_t entry = m->descriptor & 255, size = m->descriptor >> 10 & 3, load = type & 23;
    const bool store = type & STORES;
    if (entry == BINDLESS || m->descriptor >> 19 & 1) return;
    m->local = entry == LOCAL;
    m->model = m->local ? MODEL_FLAT : MODEL_BINDING_TABLE;
    m->extended = entry << 24;
    m->address_bytes = 4;
    if (in->unit == UNIT_DC0 && load == DC0_BYTES && size < 3) {
        set_data(m, 1 << size, 1);
        m->store = store;
        m->execute = store ? lsc_store : lsc_load;
    } else if (in->unit == UNIT_DC1 && load == DC1_UNTYPED) {
        decode_untyped(m, store);
    } else if (in->unit == UNIT_DC1 && (type == DC1_ATOMIC || type == DC1_FLOAT_ATOMIC)) {
        decode_atomic(m, in, type == DC1_FLOAT_ATOMIC, 4);
    }
}

void hdc_decode(struct message *m, const struct instruction *in) {
    const uint32_t d = m->descriptor, type = d >> 14 & 31;
    if (in->unit == UNIT_DC0 && (d >> 18 & 1)) {
        m->store = d >> 17 & 1;
        m->execute = scratch_block;
    } else if (in->unit == UNIT_DC0 && type == DC0_FENCE) {
        m->local = (d & 255) == LOCAL;
        m->execute = lsc_fence;
    } else if (in->unit == UNIT_DC0 && type <= 1) {
        m->local = (d & 255) == LOCAL;
        if ((d & 255) >= STATELESS_FROM && (d >> 8 & 7) < 6) m->execute = oword_block;
    } else if (in->unit == UNIT_DC1 && (type & 16) && type != DC1_FLOAT_ATOMIC) {
        decode_flat(m, in, type);
    } else {
        decode_surface(m, in, type);
    }
}
