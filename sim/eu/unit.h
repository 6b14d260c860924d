/* The units that serve messages: each decodes the descriptors in *m and sets m->execute, or leaves it NULL if
 * it does not know the message. */
#ifndef SIM_EU_UNIT_H
#define SIM_EU_UNIT_H

#include "eu/eu.h"

void lsc_decode(struct message *m, const struct instruction *in);
void block2d_decode(struct message *m, const struct instruction *in);
void atomic_decode(struct message *m, const struct instruction *in);
void hdc_decode(struct message *m, const struct instruction *in);
void gateway_decode(struct message *m, const struct instruction *in);

/* What executes loads and stores, of the older data cache, too. */
bool lsc_load(struct thread *t, const struct instruction *in, const struct message *m, uint32_t mask);
bool lsc_store(struct thread *t, const struct instruction *in, const struct message *m, uint32_t mask);
bool lsc_block(struct thread *t, const struct instruction *in, const struct message *m, uint32_t mask);
bool lsc_fence(struct thread *t, const struct instruction *in, const struct message *m, uint32_t mask);

/* Byte addresses of an LSC message's lanes, without the surface's base. */
void lsc_addresses(const struct thread *t, const struct instruction *in, const struct message *m,
                   uint64_t base, uint64_t address[MAX_LANES]);

/* A load without a destination, which only fills caches. */
static inline bool is_prefetch(const struct message *m, const struct instruction *in) {
    return !m->store && !m->atomic && in->destination.kind == OPERAND_NULL;
}

/* Bytes of a register block that holds `bytes` of each lane: of at least as many lanes as a message has. */
static inline int block_bytes(const struct thread *t, const struct instruction *in, int bytes) {
    const int unit = register_bytes(t);
    const int least = unit == 32 ? 8 : 16, lanes = in->lanes > least ? in->lanes : least;
    return (lanes * bytes + unit - 1) / unit * unit;
}

#endif
