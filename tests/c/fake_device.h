/* A device that exists only in the test: replaces the layers below and beside the memory parts of
 * src/runtime, and the test controls every answer. Work is a counter: a stream has `submitted` and `finished`
 * units. */
#ifndef TESTS_FAKE_DEVICE_H
#define TESTS_FAKE_DEVICE_H

#include <stdatomic.h>

#include "cl/cl.h"
#include "runtime/fault.h"
#include "xpu/memory.h"
#include "xpu/stream.h"

enum { FAKE_DEVICES = 2, FAKE_STREAMS = 4 };

struct xpu_stream {
    int device;
    int64_t id;
    atomic_ulong submitted, finished;
};

typedef struct fake_device {
    xpu_device_properties properties;
    xpu_stream streams[FAKE_STREAMS];
    size_t limit;  /* bytes that the driver has; more is out of memory */
    uint64_t left; /* what the operating system says is left */
    atomic_size_t used;
    atomic_int allocs, frees; /* raw memory calls that succeeded */
    void *last;               /* what the driver gave last */
} fake_device;

extern fake_device fakes[FAKE_DEVICES];
extern atomic_int fake_events; /* events that exist */
extern atomic_int fake_events_made;
extern atomic_int fake_host_blocks; /* raw pinned blocks that exist */
extern bool fake_bad_fork;
extern xpu_status fake_event_failure; /* what event calls answer; XPU_SUCCESS: they work */
extern xpu_status fake_alloc_failure; /* the same for raw memory */
extern bool fake_no_reuse;            /* the driver never gives freed addresses again */

/* Both devices: 1 GiB, GPUs, asynchronous, nothing submitted. Memory in use stays. */
void fake_reset(void);

static inline void fake_submit(xpu_stream *s) { s->submitted++; }
static inline void fake_finish(xpu_stream *s) { s->finished = s->submitted; }

/* --- random numbers for tests: splitmix64 --- */
static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}
static inline uint64_t random_below(uint64_t *state, uint64_t n) { return random_next(state) % n; }

#define MIB ((size_t)1 << 20)

#endif
