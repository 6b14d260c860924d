/* Element types of operands, as IGA's text names them, and conversions between the small floats and float. */
#ifndef SIM_EU_TYPE_H
#define SIM_EU_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*   constant  text   bytes in a register  kind */
#define SIM_TYPES(X)                                                                                         \
    X(UB, "ub", 1, UNSIGNED)                                                                                 \
    X(B, "b", 1, SIGNED)                                                                                     \
    X(UW, "uw", 2, UNSIGNED)                                                                                 \
    X(W, "w", 2, SIGNED)                                                                                     \
    X(UD, "ud", 4, UNSIGNED)                                                                                 \
    X(D, "d", 4, SIGNED)                                                                                     \
    X(UQ, "uq", 8, UNSIGNED)                                                                                 \
    X(Q, "q", 8, SIGNED)                                                                                     \
    X(HF, "hf", 2, FLOAT)                                                                                    \
    X(BF, "bf", 2, FLOAT)                                                                                    \
    X(F, "f", 4, FLOAT)                                                                                      \
    X(DF, "df", 8, FLOAT)                                                                                    \
    X(TF32, "tf32", 4, FLOAT)                                                                                \
    X(BF8, "bf8", 1, FLOAT)                                                                                  \
    X(HF8, "hf8", 1, FLOAT)                                                                                  \
    X(V, "v", 4, SIGNED)   /* immediates only: eight s4 */                                                   \
    X(UV, "uv", 4, SIGNED) /* immediates only: eight u4 */                                                   \
    X(VF, "vf", 4, FLOAT)  /* immediates only: four 8-bit floats */                                          \
    X(U4, "u4", 1, NIBBLE) /* dpas only */                                                                   \
    X(S4, "s4", 1, NIBBLE)                                                                                   \
    X(U2, "u2", 1, CRUMB)                                                                                    \
    X(S2, "s2", 1, CRUMB)

enum type {
    TYPE_NONE,
#define X(constant, text, bytes, kind) TYPE_##constant,
    SIM_TYPES(X)
#undef X
        TYPE_COUNT
};
enum type_kind { KIND_NONE, KIND_UNSIGNED, KIND_SIGNED, KIND_FLOAT, KIND_NIBBLE, KIND_CRUMB };

struct type_info {
    const char *text;
    uint8_t bytes, kind;
};
extern const struct type_info type_info[TYPE_COUNT];

static inline int type_bytes(int type) { return type_info[type].bytes; }
static inline bool type_is_float(int type) { return type_info[type].kind == KIND_FLOAT; }
static inline bool type_is_signed(int type) { return type_info[type].kind == KIND_SIGNED; }

static inline uint32_t bits_of_float(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
static inline float float_of_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Exact. Written without branches, so that loops over lanes are vectorized; subnormals are computed from
 * integers, because the host may flush subnormal floats. */
static inline float float_of_half(uint16_t h) {
    const uint32_t magnitude = h & 0x7fffu, sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t normal = (magnitude << 13) + (magnitude >= 0x7c00 ? 224u << 23 : 112u << 23);
    const uint32_t subnormal = bits_of_float((float)(int32_t)magnitude * 0x1p-24f);
    return float_of_bits(sign | (magnitude < 0x400 ? subnormal : normal));
}
static inline float float_of_bfloat(uint16_t b) { return float_of_bits((uint32_t)b << 16); }

/* Rounding as cr0 encodes it. */
enum rounding { ROUND_NEAREST, ROUND_UP, ROUND_DOWN, ROUND_ZERO };

/* To the nearest, ties to even; vectorized. */
static inline uint16_t half_nearest(float f) {
    const uint32_t u = bits_of_float(f), magnitude = u & 0x7fffffffu, sign = u >> 16 & 0x8000u;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    const uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t large = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : 0x7c00u;
    const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
    return (uint16_t)(sign | (magnitude >= 0x47800000u ? large : finite));
}
static inline uint16_t bfloat_nearest(float f) {
    const uint32_t u = bits_of_float(f);
    const uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40u : rounded);
}

/* A float of 1 sign bit, `exponent` and `mantissa` bits. HF8 (4, 3) has no infinity: its largest code is NaN.
 */
uint32_t small_of_double(double value, int exponent, int mantissa, enum rounding rounding);
float float_of_small(uint32_t code, int exponent, int mantissa);

#endif
