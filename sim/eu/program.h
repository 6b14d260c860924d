/* Decoded kernels, kept by address while memory holds the same machine code. */
#ifndef SIM_EU_PROGRAM_H
#define SIM_EU_PROGRAM_H

#include "eu/eu.h"

/* The walk's kernel, decoded from its first instruction to its end; NULL after a fault. Any thread may call.
 * Released with program_release. */
struct program *program_acquire(const struct sim_walk *walk);
void program_release(struct program *program);

#endif
