/* Pixels and phases of a convolution as the parameters in conv_matrix.h describe them.
 * Options: VOLUME, 1 if there are three dimensions; PHASES, 1 if there are several phases. */
#include "conv/conv_matrix.h"

/* fast_divisor, ops/iter.h */
static inline uint quotient(uint n, conv_divisor by) { return (mul_hi(n, by.factor) + n) >> by.shift; }

typedef struct pixel {
    uint n, d, h, w;
} pixel;

static inline pixel pixel_of(const conv_matrix_params *p, uint number) {
    pixel at;
    const uint lines = quotient(number, p->extent[2]);
    at.w = number - lines * p->extent[2].value;
#if VOLUME
    const uint planes = quotient(lines, p->extent[1]);
    at.h = lines - planes * p->extent[1].value;
    at.n = quotient(planes, p->extent[0]);
    at.d = planes - at.n * p->extent[0].value;
#else
    at.n = quotient(lines, p->extent[1]);
    at.h = lines - at.n * p->extent[1].value;
    at.d = 0;
#endif
    return at;
}

/* A product: its group and phase, and the values that all pixels of the phase share. */
typedef struct product {
    uint group, slice;
    conv_phase d, h, w;
} product;

static inline product product_of(const conv_matrix_params *p, uint number) {
    product at;
    at.group = number % p->groups;
    uint rest = number / p->groups;
    uint w = 0, h = 0, d = 0;
#if PHASES
    w = rest % p->phases[2], rest /= p->phases[2];
    h = rest % p->phases[1], rest /= p->phases[1];
    d = rest % p->phases[0], rest /= p->phases[0];
#endif
    at.slice = rest;
    at.d = p->phase[0][d], at.h = p->phase[1][h], at.w = p->phase[2][w];
    return at;
}
