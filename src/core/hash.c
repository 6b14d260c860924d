/* The 128-bit hash (hash.h). Cache file names depend on it: changing the function invalidates all caches. */
#include "core/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PRIME 0x100000001b3u

hash128 hash128_add(hash128 h, const void *data, size_t size) {
    const unsigned char *p = data;
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h.a = (h.a ^ word) * PRIME;
        h.a ^= h.a >> 29;
        h.b = (h.b + word) * 0x9e3779b97f4a7c15u;
        h.b ^= h.b >> 32;
    }
    for (; size; p++, size--) {
        h.a = (h.a ^ *p) * PRIME;
        h.b = (h.b + *p) * 0x9e3779b97f4a7c15u;
    }
    return h;
}

static uint64_t avalanche(uint64_t x) { /* the finalizer of MurmurHash3 */
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

hash128 hash128_end(hash128 h) { return (hash128){avalanche(h.a ^ h.b >> 1), avalanche(h.b)}; }

void hash128_text(hash128 h, char text[HASH128_DIGITS + 1]) {
    h = hash128_end(h);
    snprintf(text, HASH128_DIGITS + 1, "%016" PRIx64 "%016" PRIx64, h.a, h.b);
}
