/* 8-bit floating point: from a byte to a float, and from a float to the byte of the nearest number, ties to
 * even. The same lines serve the op library's kernels (float8.cl), those that are compiled from Triton IR
 * (tile_library.cl) and the host, where a number is filled in.
 *
 *   name          exponent, mantissa   finite up to   beyond it     NaN         notes
 *   f8e4m3fn             4, 3          448            448           7f, ff      no infinity
 *   f8e5m2               5, 2          57344          infinity      7d … 7f     the upper byte of a half
 *   f8e4m3fnuz           4, 3          240            NaN           80          one zero
 *   f8e5m2fnuz           5, 2          57344          NaN           80          one zero
 *   f8e4m3b11fnuz        4, 3          30             NaN           80          one zero; Triton's
 *   f8e8m0fnu            8, 0          2^127          NaN           ff          no sign, no zero
 *
 * Numbers below the normal ones are made by arithmetic on normal floats, so that a device that takes tiny
 * floats for 0 gives them, too; f8e8m0fnu's least one is such a float. */
#ifndef XPU_KERNELS_FLOAT8_H
#define XPU_KERNELS_FLOAT8_H

#ifdef __OPENCL_VERSION__
typedef uint float8_word;
typedef uchar float8_byte;
#define float8_bits(v) as_uint(v)
#define float8_value(u) as_float(u)
#define float8_round(v) rint(v)
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
typedef uint32_t float8_word;
typedef uint8_t float8_byte;
static inline float8_word float8_bits(float v) {
    float8_word u;
    memcpy(&u, &v, sizeof u);
    return u;
}
static inline float float8_value(float8_word u) {
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}
#define float8_round(v) rintf(v)
#endif

/* Decodes the magnitude bits of a byte with `bits` mantissa bits and exponent bias `bias`; no special values.
 */
static inline float float8_widen(float8_word magnitude, int bits, int bias) {
    const float small = (float)(int)magnitude * float8_value((float8_word)(1 - bias - bits + 127) << 23);
    const float normal = float8_value((magnitude << (23 - bits)) + ((float8_word)(127 - bias) << 23));
    return magnitude >> bits ? normal : small;
}

/* Rounds v to the nearest magnitude bits; returns `beyond` if the result is greater than `most`. */
static inline float8_word float8_narrow(float v, int bits, int bias, float8_word most, float8_word beyond) {
    const float8_word u = float8_bits(v) & 0x7fffffffu;
    const int drop = 23 - bits;
    const float8_word least = (float8_word)(128 - bias) << 23; /* the smallest normal value */
    const float8_word rebased = u - ((float8_word)(127 - bias) << 23);
    const float8_word normal = (rebased + ((1u << (drop - 1)) - 1u) + ((rebased >> drop) & 1u)) >> drop;
    /* in units of the smallest subnormal; clamped, because the unselected value must fit an integer, too */
    const float tiny = float8_value(u < least ? u : least);
    const float8_word small =
        (float8_word)(int)float8_round(tiny * float8_value((float8_word)(bias - 1 + bits + 127) << 23));
    const float8_word r = u < least ? small : normal;
    return r > most ? beyond : r;
}

static inline float8_byte float8_signed(float8_word magnitude, float v) {
    return (float8_byte)(magnitude | (float8_bits(v) >> 24 & 0x80u));
}
static inline float float8_with_sign(float magnitude, float8_byte v) {
    return float8_value(float8_bits(magnitude) | (float8_word)(v & 0x80) << 24);
}
/* The fnuz formats: a lone sign bit is NaN, and so is everything above the largest value. NaN must not be a
 * constant here: compilers fold the conversion of a constant NaN to an integer to arbitrary bits. */
static inline float float8_widen_fnuz(float8_byte v, int bits, int bias) {
    const float8_word above = v == 0x80 ? 0x7fc00000u : (float8_word)(v & 0x80) << 24;
    return float8_value(float8_bits(float8_widen(v & 0x7fu, bits, bias)) | above);
}
static inline float8_byte float8_narrow_fnuz(float v, int bits, int bias) {
    const float8_word magnitude = v != v ? 0x80u : float8_narrow(v, bits, bias, 0x7fu, 0x80u);
    return magnitude & 0x7fu ? float8_signed(magnitude, v) : (float8_byte)magnitude;
}

static inline float widen_f8e4m3fn(float8_byte v) {
    const float r = (v & 0x7f) == 0x7f ? float8_value(0x7fc00000u) : float8_widen(v & 0x7fu, 3, 7);
    return float8_with_sign(r, v);
}
static inline float8_byte narrow_f8e4m3fn(float v) {
    return float8_signed(v != v ? 0x7fu : float8_narrow(v, 3, 7, 0x7eu, 0x7eu), v);
}
static inline float widen_f8e5m2(float8_byte v) {
    const float8_word magnitude = v & 0x7fu;
    const float r = magnitude > 0x7cu    ? float8_value(0x7fc00000u)
                    : magnitude == 0x7cu ? float8_value(0x7f800000u)
                                         : float8_widen(magnitude, 2, 15);
    return float8_with_sign(r, v);
}
static inline float8_byte narrow_f8e5m2(float v) {
    return float8_signed(v != v ? 0x7fu : float8_narrow(v, 2, 15, 0x7bu, 0x7cu), v);
}
static inline float widen_f8e4m3fnuz(float8_byte v) { return float8_widen_fnuz(v, 3, 8); }
static inline float8_byte narrow_f8e4m3fnuz(float v) { return float8_narrow_fnuz(v, 3, 8); }
static inline float widen_f8e5m2fnuz(float8_byte v) { return float8_widen_fnuz(v, 2, 16); }
static inline float8_byte narrow_f8e5m2fnuz(float v) { return float8_narrow_fnuz(v, 2, 16); }
static inline float widen_f8e4m3b11fnuz(float8_byte v) { return float8_widen_fnuz(v, 3, 11); }
static inline float8_byte narrow_f8e4m3b11fnuz(float v) { return float8_narrow_fnuz(v, 3, 11); }
static inline float widen_f8e8m0fnu(float8_byte v) {
    const float8_word middle =
        v == 255 || v == 0 ? 0x00400000u : 0; /* turns infinity into NaN and 0 into the smallest value */
    return float8_value((float8_word)v << 23 | middle);
}
/* The sign is ignored; 0 becomes the smallest value, since the format has no zero. */
static inline float8_byte narrow_f8e8m0fnu(float v) {
    const float8_word u = float8_bits(v) & 0x7fffffffu, exponent = u >> 23, rest = u & 0x7fffffu;
    const float8_word up = rest > 0x400000u || (rest == 0x400000u && exponent > 0);
    return (float8_byte)(exponent == 255 ? 255 : exponent + up);
}
#endif
