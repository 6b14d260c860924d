#include "profile.h"
#include <stdlib.h>
struct profile_counts *profile_counts_new(uint32_t n) { return calloc(1, sizeof(struct profile_counts) + n * 16); }
void profile_add(const struct sim_walk *walk, const struct program *program, struct profile_counts *counts) { (void)walk, (void)program; free(counts); }
