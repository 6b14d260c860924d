/* Chooses the functions that execute a decoded instruction. */
#ifndef SIM_EU_BIND_H
#define SIM_EU_BIND_H

#include "eu/eu.h"

/* Sets in->execute and all that it depends on; in->problem if there is no such function. `allocate` gives
 * aligned memory that lives as long as the instruction. */
void bind(struct instruction *in, const struct sim_product *product, void *(*allocate)(void *, size_t),
          void *context);

#endif
