/* Elements of any dtype whose sums are exact, on the host: storing, loading and comparing them. */
#ifndef TESTS_NUMBERS_H
#define TESTS_NUMBERS_H

#include <complex.h>
#include <stdbool.h>

#include "halves.h"

static inline bool is_integer(xpu_dtype dtype) { return dtype < XPU_FLOAT16; }
static inline bool is_complex(xpu_dtype dtype) { return dtype == XPU_COMPLEX64 || dtype == XPU_COMPLEX128; }

/* Integers are the lower bytes of an int64. */
static inline void encode_number(xpu_dtype dtype, double complex value, void *to) {
    const size_t size = xpu_dtype_size(dtype);
    const float f = (float)creal(value), pair[2] = {f, (float)cimag(value)};
    const double d = creal(value);
    const int64_t i = (int64_t)d;
    const uint16_t half = encode(dtype, d);
    memcpy(to,
           dtype == XPU_COMPLEX128  ? (const void *)&value
           : dtype == XPU_COMPLEX64 ? (const void *)pair
           : dtype == XPU_FLOAT64   ? (const void *)&d
           : dtype == XPU_FLOAT32   ? (const void *)&f
           : is_integer(dtype)      ? (const void *)&i
                                    : (const void *)&half,
           size);
}

static inline double complex decode_number(xpu_dtype dtype, const void *from) {
    const size_t size = xpu_dtype_size(dtype);
    float pair[2] = {0};
    double both[2] = {0};
    uint16_t half = 0;
    uint64_t i = 0;
    if (is_integer(dtype)) {
        memcpy(&i, from, size);
        const unsigned unused_bits = 64 - 8 * (unsigned)size;
        const bool is_signed =
            dtype == XPU_INT8 || dtype == XPU_INT16 || dtype == XPU_INT32 || dtype == XPU_INT64;
        return is_signed ? (double)((int64_t)(i << unused_bits) >> unused_bits) : (double)i;
    }
    if (dtype == XPU_FLOAT64 || dtype == XPU_COMPLEX128) {
        memcpy(both, from, size);
        return both[0] + I * both[1];
    }
    if (dtype == XPU_FLOAT32 || dtype == XPU_COMPLEX64) {
        memcpy(pair, from, size);
        return pair[0] + I * pair[1];
    }
    memcpy(&half, from, size);
    return decode(dtype, half);
}

/* The nearest value of the dtype, ties to even; integers wrap around. All sums fit floats. */
static inline double complex rounded_number(xpu_dtype dtype, double complex value) {
    if (dtype == XPU_BFLOAT16 || dtype == XPU_FLOAT16) return rounded(dtype, creal(value));
    double whole[2];
    encode_number(dtype, value, whole);
    return decode_number(dtype, whole);
}

/* int8 sums need not fit a float unless they are scaled. */
static bool full_range __attribute__((unused));

static inline double complex number(xpu_dtype dtype) {
    if (dtype == XPU_INT8 && full_range) return (double)pick(-128, 127);
    const double part = (double)pick(-8, 8) / (is_integer(dtype) ? 1 : 8);
    return is_complex(dtype) ? part + I * (double)pick(-8, 8) / 8 : part;
}

#endif
