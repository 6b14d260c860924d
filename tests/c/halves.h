/* Repeatable random numbers, and conversion of float16 and bfloat16 on the host. */
#ifndef TESTS_HALVES_H
#define TESTS_HALVES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "xpu/ops.h"

static uint64_t random_state = 1;

static inline int64_t pick(int64_t from, int64_t to) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return from + (int64_t)((random_state >> 33) % (uint64_t)(to - from + 1));
}

/* bf16 and fp16 of multiples of 1/8 in [-1, 1], and back. */
static inline uint16_t encode(xpu_dtype dtype, double value) {
    const float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (dtype == XPU_BFLOAT16) return (uint16_t)(bits >> 16);
    if (value == 0) return 0;
    return (uint16_t)((bits >> 16 & 0x8000) | ((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 1023));
}

static inline double decode(xpu_dtype dtype, uint16_t half) {
    if (dtype == XPU_FLOAT16) {
        const int e = half >> 10 & 31;
        const double m = ldexp((half & 1023) + (e ? 1024 : 0), (e ? e : 1) - 25);
        return half & 0x8000 ? -m : m;
    }
    const uint32_t bits = (uint32_t)half << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* The same including float32: element i of `data`. */
static inline void put_number(xpu_dtype dtype, void *data, int64_t i, double value) {
    if (dtype == XPU_FLOAT32)
        ((float *)data)[i] = (float)value;
    else
        ((uint16_t *)data)[i] = encode(dtype, value);
}
static inline double get_number(xpu_dtype dtype, const void *data, int64_t i) {
    return dtype == XPU_FLOAT32 ? ((const float *)data)[i] : decode(dtype, ((const uint16_t *)data)[i]);
}

/* The nearest value of the dtype, ties to even. */
static inline double rounded(xpu_dtype dtype, double value) {
    int e;
    if (value == 0) return 0;
    frexp(value, &e);
    const int bits = dtype == XPU_BFLOAT16 ? 8 : 11;
    if (dtype == XPU_FLOAT16 && e < -13) e = -13;
    return ldexp(nearbyint(ldexp(value, bits - e)), e - bits);
}

#endif
