/* What kernels execute, counted for `--profile`, and printed when the program ends. */
#ifndef SIM_PROFILE_H
#define SIM_PROFILE_H

#include "eu/eu.h"

enum { PROFILE_LINE = 64, PROFILE_CACHE_LINES = 4096, PROFILE_EXTENTS = 64 };

/* The part of an allocation that is read, or that is written: lines first to last. */
struct profile_extent {
    uint64_t start, end, first, last;
    bool store;
};

/* Of one worker: executions and lanes of each of a program's instructions, and what its messages touch. */
struct profile_counts {
    uint64_t lines;    /* of 64 bytes, that a message to global memory touches */
    uint64_t l1_bytes; /* between the L1 cache and registers: lines of scattered lanes, bytes of blocks */
    uint64_t misses; /* of the lines, in a direct-mapped cache of 256 KiB that is empty when a group starts */
    uint64_t conflicts; /* cycles that a message to local memory waits for a bank */
    uint64_t groups;
    uint64_t cache[PROFILE_CACHE_LINES]; /* number of the line + 1 */
    struct profile_extent extents[PROFILE_EXTENTS];
    int extent_count;
    uint64_t elsewhere; /* lines read or written outside them */
    uint32_t instructions;
    struct {
        uint64_t times, lanes;
    } of[];
};

struct profile_counts *profile_counts_new(uint32_t instructions);
void profile_start_group(struct profile_counts *counts);
/* Adds `from` to `to`, and frees it. */
void profile_merge(struct profile_counts *to, struct profile_counts *from);
/* Adds a walk's counts to those of the kernel, and frees them. `groups`: of the walk, of which the counted
 * ones are a sample. */
void profile_add(const struct sim_walk *walk, const struct program *program, struct profile_counts *counts,
                 uint64_t groups);
/* Of one message: where its lanes access memory. */
void profile_addresses(struct worker *worker, const struct instruction *in, const struct message *m,
                       const uint64_t address[MAX_LANES], uint32_t mask);
/* The same for a row of a block. */
void profile_range(struct worker *worker, const struct instruction *in, const struct message *m,
                   uint64_t address, uint64_t bytes);

static inline void profile_count(struct profile_counts *c, uint32_t instruction, uint32_t mask) {
    c->of[instruction].times++;
    c->of[instruction].lanes += (unsigned)__builtin_popcount(mask);
}

#endif
