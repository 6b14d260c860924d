/* Loads and dequantizes eight elements of a quantized operand at a time, as floats.
 *
 * Options: E, dtype; E_BITS=4 or 8; E_FORM, one of the values below; SCALE, ZERO, their dtypes, undefined if
 * there is none; ZERO_FORM: 0 no zero point; 1 integer, subtracted before the scale is applied; 2 likewise,
 * but not an integer; 3 added after the scale is applied; TILED=1, scales are swizzled (quantized.h). */
#include "gemm/quantized.h"
#define FORM_SIGNED 0
#define FORM_UNSIGNED 1
#define FORM_FLOAT4 2
#define FORM_E4M3FN 3
#define FORM_E5M2 4
#define FORM_OTHER 5

/* Eight elements; 4-bit ones are in x, from the lowest bits on. */
typedef uint2 octet;

/* Loads eight adjacent elements; i is a multiple of 8. */
static inline octet load_vec8(xpu_addr line, long i) {
#if E_BITS == 4
    return (octet)(XPU_CPTR(uint, line)[i / 8], 0);
#else
    return XPU_CPTR(uint2, line)[i / 8];
#endif
}
/* Gathers `count` elements from element `at` on, `apart` elements from each other, padded with zeros. */
static inline octet gather_vec8(xpu_addr data, long at, long apart, int count) {
    ulong bits = 0;
    for (int j = 0; j < count; j++) {
        const long e = at + j * apart;
#if E_BITS == 4
        const uchar pair = XPU_CPTR(uchar, data)[e / 2];
        bits |= (ulong)(e % 2 ? pair >> 4 : pair & 15) << (4 * j);
#else
        bits |= (ulong)XPU_CPTR(uchar, data)[e] << (8 * j);
#endif
    }
    return as_uint2(bits);
}

/* Factor between decoded values and the elements' values; it is folded into the scale. */
#if E_FORM == FORM_FLOAT4
#define FOLD 0.5f
#elif E_FORM == FORM_E4M3FN && !defined(XPU_HAS_PTX_FP8) && !defined(MATRIX_XMX)
#define FOLD 256.0f
#else
#define FOLD 1.0f
#endif

/* Integers are written into the mantissa of BASE, PLACE bits up; MANTISSA_OFFSET, and the zero point, is
 * subtracted afterwards. That never costs more than a conversion, and less on GPUs. Signed integers are
 * biased to be unsigned. On tensor cores BASE is so small that its products with short scales are exact
 * (dequantize_vec8); on CPUs the BASE with the fewest shifts is best. On XMX with SIMD16 every other integer
 * stays in place and has its own BASE, so that one shift serves two integers, except for int8 with scales,
 * for which that BASE would be too large. */
#define SIGNED_BIAS (E_FORM == FORM_SIGNED ? 1 << (E_BITS - 1) : 0)
#if defined(MATRIX_XMX) && E_BITS == 4
#define BASE (float8)(2048, 128, 2048, 128, 2048, 128, 2048, 128)
#define PLACES                                                                                               \
    bits.x << 12, bits.x << 12, bits.x << 4, bits.x << 4, bits.x >> 4, bits.x >> 4, bits.x >> 12, bits.x >> 12
#define EVEN 12
#define ODD 16
#elif defined(MATRIX_XMX) && !defined(SCALE)
#define BASE (float8)(8388608, 32768, 8388608, 32768, 8388608, 32768, 8388608, 32768)
#define PLACES bits.x, bits.x, bits.x >> 16, bits.x >> 16, bits.y, bits.y, bits.y >> 16, bits.y >> 16
#define EVEN 0
#define ODD 8
#elif defined(MATRIX_XMX)
#define BASE 32768.0f
#define PLACES bits.x << 8, bits.x, bits.x >> 8, bits.x >> 16, bits.y << 8, bits.y, bits.y >> 8, bits.y >> 16
#define EVEN 8
#define ODD 8
#elif !defined(XPU_HAS_INLINE_PTX) && !defined(MATRIX_EMULATED)
#define BASE 8388608.0f
#define PLACE 0
#elif E_BITS == 4
#define BASE 2048.0f
#define PLACE 12
#else
#define BASE 32768.0f
#define PLACE 8
#endif
#if E_FORM <= FORM_UNSIGNED
#define MANTISSA_OFFSET ((float8)(BASE) + (float)SIGNED_BIAS)
#else
#define MANTISSA_OFFSET ((float8)(0))
#endif
#if defined(SCALE) && (defined(MATRIX_XMX) || PLACE)
#define IS_EXACT 1 /* BASE times a short scale is exact */
#else
#define IS_EXACT 0
#endif

#ifdef MATRIX_XMX
/* BASE plus an integer, biased to be unsigned. */
static inline float8 based(octet bits) {
    const uint8 places = {PLACES};
    const uint ones = (1 << E_BITS) - 1;
#define ALTERNATING(a, b) (uint8)(a, b, a, b, a, b, a, b)
    return as_float8((places & ALTERNATING(ones << EVEN, ones << ODD)) ^
                     (as_uint8((float8)(BASE)) | ALTERNATING(SIGNED_BIAS << EVEN, SIGNED_BIAS << ODD)));
}
#else
/* BASE plus an unsigned integer. */
static inline float8 based(octet bits) {
#ifdef XPU_HAS_INLINE_PTX
#define BYTE(v, i) xpu_bytes(v, as_uint(BASE), 0x7404u | (i) << 4)
#if E_BITS == 4
    const uint a = bits.x << 4 & 0xf0f0f0f0u, b = bits.x & 0xf0f0f0f0u;
    return as_float8((uint8)(BYTE(a, 0), BYTE(b, 0), BYTE(a, 1), BYTE(b, 1), BYTE(a, 2), BYTE(b, 2),
                             BYTE(a, 3), BYTE(b, 3)));
#else
    return as_float8((uint8)(BYTE(bits.x, 0), BYTE(bits.x, 1), BYTE(bits.x, 2), BYTE(bits.x, 3),
                             BYTE(bits.y, 0), BYTE(bits.y, 1), BYTE(bits.y, 2), BYTE(bits.y, 3)));
#endif
#elif E_BITS == 4 && PLACE
    const uint v = bits.x;
    const uint8 places = {v << 12, v << 8, v << 4, v, v >> 4, v >> 8, v >> 12, v >> 16};
    return as_float8(places & 0xf000u | as_uint(BASE));
#elif E_BITS == 4
    return as_float8((uint8)(bits.x) >> (uint8)(0, 4, 8, 12, 16, 20, 24, 28) & 15u | as_uint(BASE));
#else
    return as_float8(convert_uint8(as_uchar8(bits)) << PLACE | as_uint(BASE));
#endif
}
#endif

/* A pair of 64 in half precision, and the mantissa bit with value 1. Adding up to 15 and subtracting an
 * integer from -177 to 256 is exact. */
#define PAIR_64_bf16 0x42804280u
#define PAIR_64_f16 0x54005400u
#define ONE_OF_64_bf16 1
#define ONE_OF_64_f16 4

/* The decoded elements plus MANTISSA_OFFSET. */
static inline float8 numbers(octet bits) {
#if defined(MATRIX_XMX) && E_FORM <= FORM_UNSIGNED
    return based(bits);
#elif E_FORM == FORM_SIGNED
    return based(bits ^ (E_BITS == 4 ? 0x88888888u : 0x80808080u));
#elif E_FORM == FORM_UNSIGNED
    return based(bits);
#elif E_FORM == FORM_FLOAT4
    const uint8 n = (uint8)(bits.x) >> (uint8)(0, 4, 8, 12, 16, 20, 24, 28) &
                    15u; /* index of twice 0, 0.5, 1, 1.5, 2, 3, 4, 6 */
    const uint8 twice = (uint8)(0xc8643210u) >> ((n & 7) << 2) & 15u;
    return as_float8(as_uint8(as_float8(twice | 0x4b000000u) - 8388608.0f) | (n & 8) << 28);
#elif E_FORM == FORM_E4M3FN && defined(XPU_HAS_PTX_FP8)
    return (float8)(xpu_widen_e4m3(bits.x), xpu_widen_e4m3(bits.y));
#elif E_FORM == FORM_E4M3FN && defined(MATRIX_XMX) /* gemm_xmx_dequant.h handles NaN */
    const int8 at_top = as_int8((uint8)(bits.xxxx, bits.yyyy) << (uint8)(24, 16, 8, 0, 24, 16, 8, 0));
    return as_float8(at_top >> 4 & (int)0x87f00000) * 0x1p120f; /* corrects the exponent's bias */
#elif E_FORM == FORM_E4M3FN
    const ushort8 n = convert_ushort8(as_uchar8(bits)), magnitude = n & (ushort)0x7f;
    const ushort8 half_ = (magnitude << (ushort)7) | (n & (ushort)0x80) << (ushort)8;
    return widen8_f16(select(half_, (ushort8)0x7e00, magnitude == (ushort)0x7f));
#elif E_FORM == FORM_E5M2
    return widen8_f16(convert_ushort8(as_uchar8(bits)) << (ushort)8);
#else
    const uchar8 v = as_uchar8(bits);
    return (float8)(WIDEN(E, v.s0), WIDEN(E, v.s1), WIDEN(E, v.s2), WIDEN(E, v.s3), WIDEN(E, v.s4),
                    WIDEN(E, v.s5), WIDEN(E, v.s6), WIDEN(E, v.s7));
#endif
}

/* The offset of the scales, or zero points, of a row. */
static inline long place_of(const quantized_part *part, long b, long across) {
    return b * part->batch + across * part->across;
}
/* Offsets in the scales: of a row, or of rows that share them; and of a group along the row. */
static inline long scales_across(const quantized_lines *q, long across) {
#if TILED
    return across / SCALE_TILE_ROWS * q->scale.across + across % 32 * 16 + across / 32 % 4 * 4;
#else
    return across * q->scale.across;
#endif
}
static inline long scale_along(const quantized_lines *q, long along) {
#if TILED
    return along / SCALE_TILE_GROUPS * SCALE_TILE_SIZE + along % SCALE_TILE_GROUPS;
#else
    return along * q->scale.along;
#endif
}
static inline long scales_offset(const quantized_lines *q, long b, long across) {
    return b * q->scale.batch + scales_across(q, across);
}
/* The scale and the zero point of a group. */
static inline float scale_of(const quantized_lines *q, long place, long along) {
#ifdef SCALE
    return (float)LOAD(SCALE, XPU_CPTR(STORED(SCALE), q->scale.data), place + scale_along(q, along)) * FOLD;
#else
    return FOLD;
#endif
}
static inline float zero_of(const quantized_lines *q, long place, long along) {
#if ZERO_FORM
    return (float)LOAD(ZERO, XPU_CPTR(STORED(ZERO), q->zero.data), place + along * q->zero.along);
#else
    return 0;
#endif
}

/* The decoded elements minus their zero point, before scaling. */
static inline float8 subtract_zero(const quantized_lines *q, float8 v, float zero) {
    const float8 offset =
        MANTISSA_OFFSET + (E_FORM <= FORM_UNSIGNED && HAS_ZERO_OFFSET ? (float)q->zero_offset : 0);
#if ZERO_FORM == 1
    return v - (offset + zero / FOLD);
#elif ZERO_FORM == 2
    return (v - offset) - zero / FOLD;
#else
    return v - offset;
#endif
}

/* The dequantized elements. For integers with integer zero points, the subtracted value has 16 bits (12 for
 * 4-bit elements), so its product with an 8-bit (11-bit) scale is exact, and one fma is enough. */
static inline float8 dequantize_vec8(const quantized_lines *q, octet bits, float scale, float zero) {
#if SCALE_IS_SHORT && IS_EXACT && E_FORM <= FORM_UNSIGNED && ZERO_FORM <= 1
    return fma(numbers(bits), scale,
               -((MANTISSA_OFFSET + (HAS_ZERO_OFFSET ? (float)q->zero_offset : 0) + zero) * scale));
#else
    const float8 v = subtract_zero(q, numbers(bits), zero) * scale;
    return ZERO_FORM == 3 ? v + zero : v;
#endif
}

static inline long group_of(const quantized_lines *q, long i) {
    return (mul_hi((uint)i, q->along_factor) + (uint)i) >> q->along_shift;
}
