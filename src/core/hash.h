/* A 128-bit hash for cache file names and for checks of their contents: two 64-bit streams in the style of
 * FNV-1a (Fowler, Noll, Vo) with a final avalanche. Not cryptographic: it detects damage, not forgery. Adding
 * in parts gives the same hash as adding at once only if all parts but the last are multiples of 8 bytes. No
 * state, so any thread may call. */
#ifndef CORE_HASH_H
#define CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct hash128 {
    uint64_t a, b;
} hash128;

#define HASH128_START ((hash128){0xcbf29ce484222325u, 0x84222325cbf29ce4u})
hash128 hash128_add(hash128 h, const void *data, size_t size);
hash128 hash128_end(hash128 h);
/* Finishes a hash and writes it as hexadecimal digits with a terminating NUL. */
enum { HASH128_DIGITS = 32 };
void hash128_text(hash128 h, char text[HASH128_DIGITS + 1]);

#endif
