/* What kernels execute, counted for `--profile`, and printed when the program ends. */
#ifndef SIM_PROFILE_H
#define SIM_PROFILE_H

#include "eu/eu.h"

/* Of one worker: executions and lanes of each of a program's instructions, and what its messages touch. */
struct profile_counts {
    uint64_t lines;     /* of 64 bytes, that a message to global memory touches */
    uint64_t conflicts; /* cycles that a message to local memory waits for a bank */
    uint32_t instructions;
    struct {
        uint64_t times, lanes;
    } of[];
};

struct profile_counts *profile_counts_new(uint32_t instructions);
/* Adds a worker's counts to those of the kernel, and frees them. */
void profile_add(const struct sim_walk *walk, const struct program *program, struct profile_counts *counts);
/* Of one message: where its lanes access memory. */
void profile_addresses(struct profile_counts *counts, const struct message *m,
                       const uint64_t address[MAX_LANES], uint32_t mask);

static inline void profile_count(struct profile_counts *c, uint32_t instruction, uint32_t mask) {
    c->of[instruction].times++;
    c->of[instruction].lanes += (unsigned)__builtin_popcount(mask);
}

#endif
