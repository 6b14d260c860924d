/* Checks of a kernel's accesses, enabled by --check: races, bounds, uninitialized memory. */
#ifndef SIM_CHECK_CHECK_H
#define SIM_CHECK_CHECK_H

#include "eu/eu.h"
#include "eu/memory.h"

struct check_walk *check_walk_start(const struct sim_walk *walk, const struct program *program,
                                    uint64_t groups);
void check_walk_end(struct check_walk *check);

/* `index`: number of the group in the walk. */
void check_group_start(struct group *group, uint64_t index);

/* Every instruction, before it is executed. */
void check_instruction(struct thread *t, const struct instruction *in, uint32_t mask);
/* Every access, before it happens; `from`: what is written, if it is known. False after a fault that ends the
 * thread. */
bool check_access(const struct access *a, uint64_t address, const void *from, uint32_t size);
/* What a block message has read into registers, and what it is about to write from them. */
void check_block_read(struct thread *t, const uint8_t *registers, uint32_t size);
void check_block_write(const struct access *a, const uint8_t *registers, uint32_t size);
/* The thread signals the group's barrier, and has waited for it. */
void check_barrier(struct thread *t, const struct instruction *in);
void check_barrier_passed(struct thread *t);
/* A fence of local or global memory; `device`: of all groups. */
void check_fence(struct thread *t, bool local, bool device);

#endif
