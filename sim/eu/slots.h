/* Slots: a product's hardware threads, by whose numbers kernels find their private memory. Walks that run at
 * a time, on other queues, have other slots. */
#ifndef SIM_EU_SLOTS_H
#define SIM_EU_SLOTS_H

#include "sim.h"

/* Takes adjacent slots for `*parts` work-groups of `threads`, or, if fewer are free, for as many as those
 * serve, which `*parts` then is; waits while that is none. The first, or -1 if the product has not so many.
 */
int slots_take(const struct sim_product *product, int threads, int *parts);
void slots_give(int first, int count);

#endif
