/* Bytes that the host's own threads move, where memory is theirs: a launch takes longer than to move a few,
 * and the C library copies long pieces faster than a kernel. */
#ifndef OPS_HOST_BYTES_H
#define OPS_HOST_BYTES_H

#include <stdint.h>

/* Bytes below which one thread copies as fast as several. */
#define WORTH_SHARING ((int64_t)1 << 18)

/* Calls `move` for shares of the bytes 0 … `bytes` - 1, of which all begin at multiples of 64: on the host's
 * team where that is worth waking it, else once, for all of them. */
void host_move(int64_t bytes, void (*move)(const void *of, int64_t begin, int64_t count), const void *of);

#endif
