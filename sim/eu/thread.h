/* A hardware thread: flags, predicates, and the loop that executes instructions. */
#ifndef SIM_EU_THREAD_H
#define SIM_EU_THREAD_H

#include "eu/eu.h"

/* Bits of the flag registers from `flag` (in units of 16 bits) and `channel` on. */
static inline uint32_t flag_bits(const struct thread *t, int flag, int channel) {
    const int bit = flag * 16 + channel;
    uint64_t v;
    memcpy(&v, t->registers + REG_FLAG + bit / 8, sizeof v);
    return (uint32_t)(v >> (bit % 8));
}

static inline void flag_merge(struct thread *t, const struct instruction *in, uint32_t mask, uint32_t bits) {
    const int bit = in->flag * 16 + in->channel;
    uint64_t v;
    memcpy(&v, t->registers + REG_FLAG + bit / 8, sizeof v);
    v = (v & ~((uint64_t)mask << (bit % 8))) | (uint64_t)(bits & mask) << (bit % 8);
    memcpy(t->registers + REG_FLAG + bit / 8, &v, sizeof v);
}

/* Lanes that the predicate selects, of all lanes of the execution size. any8h to all32h look at the 8 to 32
 * flags around a channel, also those beyond the execution size; any and all at those of the instruction's
 * lanes. */
static inline uint32_t predicate_bits(const struct thread *t, const struct instruction *in) {
    uint32_t p = flag_bits(t, in->flag, in->channel) & in->lane_mask;
    if (in->predicate_group != GROUP_LANE) {
        const int width = in->group_lanes ? in->group_lanes : in->lanes;
        const uint32_t part = width >= 32 ? 0xffffffffu : (1u << width) - 1;
        uint32_t grouped = 0;
        for (int i = 0; i < in->lanes; i += width) {
            const int first = in->group_lanes ? (in->channel + i) & -width : in->channel;
            const uint32_t these = flag_bits(t, in->flag, first) & part;
            if (in->predicate_group == GROUP_ANY ? these != 0 : these == part) grouped |= part << i;
        }
        p = grouped;
    }
    return (in->predicate_inverted ? ~p : p) & in->lane_mask;
}

/* Prepares the registers that the hardware fills at dispatch. `lanes`: those that exist. */
void thread_start(struct thread *t, uint32_t lanes);
/* Executes until the thread ends, waits, faults, or has executed `budget` instructions. */
void thread_run(struct thread *t, uint64_t budget);
/* The barrier that it waits for is complete. */
void thread_pass_barrier(struct thread *t);

#endif
