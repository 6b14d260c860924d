/* Checks of a kernel's accesses, enabled by --check: races, bounds, uninitialized memory. */
#ifndef SIM_CHECK_CHECK_H
#define SIM_CHECK_CHECK_H

#include "eu/eu.h"
#include "eu/memory.h"

struct check_walk *check_walk_start(const struct sim_walk *walk);
void check_walk_end(struct check_walk *check);

void check_group_start(struct group *group);
/* False after a fault. */
bool check_group_end(struct group *group);

/* Every access, before it happens. False after a fault. */
bool check_access(const struct access *a, uint64_t address, uint32_t size);

#endif
