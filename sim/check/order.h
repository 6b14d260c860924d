/* Which accesses are ordered before which. Each thread of the group that runs knows, for every other one, the
 * time before which its accesses are ordered before the thread's own next one, in global and in local memory.
 * Times are check.c's count of fences, atomics and barriers in a walk. Barriers hand knowledge to all threads
 * of a group. An atomic hands out what its thread knows, and a fence after an atomic takes what was handed
 * out before. Between groups both fences must be of the whole device. */
#ifndef SIM_CHECK_ORDER_H
#define SIM_CHECK_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct order *order_start(uint64_t groups, uint32_t threads);
void order_end(struct order *order);
void order_group_start(struct order *order, uint32_t group);

enum order_fence { FENCE_LOCAL, FENCE_GROUP, FENCE_DEVICE }; /* the last two: of global memory */
void order_fence(struct order *order, uint32_t thread, enum order_fence kind, uint32_t now);
/* An atomic, of local or global memory. */
void order_atomic(struct order *order, uint32_t thread, bool local, uint32_t now);
/* The thread signals the group's barrier, and has waited for it. */
void order_arrive(struct order *order, uint32_t thread, uint32_t phase, uint32_t now);
void order_pass(struct order *order, uint32_t thread, uint32_t phase);

/* Is what a thread of `group` did at `time` ordered before what `thread` does now? */
bool order_knows(const struct order *order, uint32_t thread, bool local, uint32_t group, uint32_t other,
                 uint32_t time);

#endif
