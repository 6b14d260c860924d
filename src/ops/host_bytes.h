/* Byte operations by host threads on host memory: for small sizes a kernel launch costs more than the work,
 * and for large ones the C library copies faster than a kernel. */
#ifndef OPS_HOST_BYTES_H
#define OPS_HOST_BYTES_H

#include <stdint.h>

/* Bytes below which one thread copies as fast as several. */
#define MIN_SHARED_BYTES ((int64_t)1 << 18)

/* Calls `move` for disjoint ranges of the bytes 0 … `bytes` - 1, which start at multiples of 64: on the
 * host's thread pool if there are enough bytes, otherwise once for all of them. */
void host_move_shared(int64_t bytes, void (*move)(const void *of, int64_t begin, int64_t count),
                      const void *of);

#endif
