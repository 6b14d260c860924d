/* A 128-bit hash of bytes, for names of cache files and checks of their contents. Not cryptographic:
 * it finds accidents, not forgers. Two 64-bit FNV-1a streams (Fowler, Noll, Vo) with a final avalanche. */
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
/* Ends a hash, and writes it as hex digits and a 0. */
enum { HASH128_DIGITS = 32 };
void hash128_text(hash128 h, char text[HASH128_DIGITS + 1]);

#endif
