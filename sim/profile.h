/* What kernels execute, counted for `--profile`. */
#ifndef SIM_PROFILE_H
#define SIM_PROFILE_H

#include "eu/eu.h"

/* Of one worker: executions and lanes of each of a program's instructions. */
struct profile_counts {
    uint32_t instructions;
    struct {
        uint64_t times, lanes;
    } of[];
};

struct profile_counts *profile_counts_new(uint32_t instructions);
/* Adds a worker's counts to those of the kernel, and frees them. */
void profile_add(const struct sim_walk *walk, const struct program *program, struct profile_counts *counts);

static inline void profile_count(struct profile_counts *c, uint32_t instruction, uint32_t mask) {
    c->of[instruction].times++;
    c->of[instruction].lanes += (unsigned)__builtin_popcount(mask);
}

#endif
