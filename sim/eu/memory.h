/* Access of lanes to global and local memory. */
#ifndef SIM_EU_MEMORY_H
#define SIM_EU_MEMORY_H

#include "eu/eu.h"

struct access {
    struct thread *thread;
    const struct instruction *in;
    const struct message *message; /* of LSC messages, else NULL */
    int lane, element;
    bool local, store, atomic;
    bool scratch; /* the thread's own memory */
};

/* Global memory's host address, valid to the end of the page, or NULL. */
uint8_t *memory_page(struct worker *worker, uint64_t address);

/* Host address of `size` bytes that lie in one page or in local memory. NULL: they do not, or it is a fault;
 * memory_read and memory_write then do what is right. */
uint8_t *memory_locate(const struct access *a, uint64_t address, uint32_t size);

/* False after a fault. */
bool memory_read(const struct access *a, uint64_t address, void *to, uint32_t size);
bool memory_write(const struct access *a, uint64_t address, const void *from, uint32_t size);

/* The surface of a stateful message: its first byte and number of bytes. `slot_of` for scratch memory. */
bool memory_surface(struct thread *t, const struct instruction *in, enum address_model model,
                    uint32_t extended, uint64_t *base, uint64_t *size);

/* IGC sets bit 28 of pointers to local memory, so that none is NULL; the hardware ignores high bits. */
static inline uint64_t local_address(uint64_t address) { return address & 0x0fffffffu; }

#endif
