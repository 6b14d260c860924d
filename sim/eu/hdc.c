/* Messages of the older data cache (HDC) that products before Xe2 still use: blocks of scratch memory and
 * aligned blocks of owords. */
#include "eu/unit.h"

#include "eu/memory.h"

/* Descriptor: 19 header, 18 scratch, 17 write, 13:12 log2 of registers (of 32 bytes), 11:0 offset in
 * registers of 32 bytes. r0.5 of the header is the surface's offset. */
static bool scratch_block(struct thread *t, const struct instruction *in, const struct message *m,
                          uint32_t mask) {
    uint32_t header;
    uint64_t base, size;
    memcpy(&header, t->registers + in->source[0].lane[0] + 20, 4);
    if (!memory_surface(t, in, MODEL_SURFACE, (header & ~1023u) >> 4, &base, &size)) return false;
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

/* Header dword 2: the offset in bytes from the general state's base; descriptor 10:8: the size. */
static bool oword_block(struct thread *t, const struct instruction *in, const struct message *m,
                        uint32_t mask) {
    static const uint16_t bytes[] = {16, 16, 32, 64, 128, 256, 0, 0};
    uint32_t offset;
    (void)mask;
    memcpy(&offset, t->registers + in->source[0].lane[0] + 8, 4);
    const struct access a = {.thread = t, .in = in, .store = false};
    return memory_read(&a, t->group->walk->bases.general + offset, t->registers + in->destination.lane[0],
                       bytes[m->descriptor >> 8 & 7]);
}

void hdc_decode(struct message *m, const struct instruction *in) {
    const uint32_t d = m->descriptor, type = d >> 14 & 31;
    enum { STATELESS_FROM = 240 };
    if (in->unit == UNIT_DC0 && (d >> 18 & 1)) {
        m->store = d >> 17 & 1;
        m->execute = scratch_block;
    } else if (in->unit == UNIT_DC0 && type <= 1 && (d & 255) >= STATELESS_FROM && (d >> 8 & 7) < 6) {
        m->execute = oword_block;
    }
}
