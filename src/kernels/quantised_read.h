/* Eight elements of an operand in fewer bits at a time, as floats.
 *
 * -DE=<dtype> -DE_BITS=4 or 8 -DE_FORM, one of the numbers below; -DSCALE -DZERO: their dtypes, or not
 * defined; -DZERO_FORM=0: no zero; 1: an integer, taken away before the scale is applied; 2: so, but not an
 * integer; 3: added to what the scale makes of an element */
#include "quantised.h"
#define FORM_SIGNED 0
#define FORM_UNSIGNED 1
#define FORM_FLOAT4 2
#define FORM_E4M3FN 3
#define FORM_E5M2 4
#define FORM_OTHER 5

/* The elements' bits: 4-bit ones in x, from the lowest bits on. */
typedef uint2 octet;

/* Neighbours, the first at a multiple of 8. */
static inline octet read_octet(xpu_addr line, long i) {
#if E_BITS == 4
    return (octet)(XPU_CPTR(uint, line)[i / 8], 0);
#else
    return XPU_CPTR(uint2, line)[i / 8];
#endif
}
/* `count` from element `at` on, `apart` from each other; zeros follow them. */
static inline octet gather_octet(xpu_addr data, long at, long apart, int count) {
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

/* Numbers times FOLD are what the elements stand for. */
#if E_FORM == FORM_FLOAT4
#define FOLD 0.5f
#elif E_FORM == FORM_E4M3FN
#define FOLD 256.0f
#else
#define FOLD 1.0f
#endif

/* Integers are written into the mantissa of 2^23, from which OFFSET is then taken away with their zero:
 * dearer than a conversion nowhere, and cheaper on NVIDIA's GPUs. Signed ones are raised to begin at 0. */
#define MAGIC 0x4b000000u
#define OFFSET                                                                                               \
    (E_FORM == FORM_SIGNED ? 8388608.0f + (1 << (E_BITS - 1)) : E_FORM == FORM_UNSIGNED ? 8388608.0f : 0.0f)

static inline uint8 integers(octet bits) {
#if E_BITS == 4
    return (uint8)(bits.x) >> (uint8)(0, 4, 8, 12, 16, 20, 24, 28) & 15u;
#else
    return convert_uint8(as_uchar8(bits));
#endif
}

/* To be lessened by OFFSET. */
static inline float8 numbers(octet bits) {
#if E_FORM == FORM_SIGNED
    return as_float8(integers(bits) ^ (uint)(1 << (E_BITS - 1)) | MAGIC);
#elif E_FORM == FORM_UNSIGNED
    return as_float8(integers(bits) | MAGIC);
#elif E_FORM == FORM_FLOAT4
    const uint8 n = integers(bits); /* twice 0, 0.5, 1, 1.5, 2, 3, 4, 6 */
    const uint8 twice = (uint8)(0xc8643210u) >> ((n & 7) << 2) & 15u;
    return as_float8(as_uint8(as_float8(twice | MAGIC) - 8388608.0f) | (n & 8) << 28);
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

static inline long place_of(const quantised_part *part, long b, long across, long along) {
    return b * part->batch + across * part->across + along * part->along;
}
/* Of a group: what numbers are multiplied by, and what is to be taken away from them first. */
static inline float scale_of(const quantised_lines *q, long b, long across, long along) {
#ifdef SCALE
    return (float)LOAD(SCALE, XPU_CPTR(STORED(SCALE), q->scale.data), place_of(&q->scale, b, across, along)) *
           FOLD;
#else
    return FOLD;
#endif
}
static inline float zero_of(const quantised_lines *q, long b, long across, long along) {
#if ZERO_FORM
    return (float)LOAD(ZERO, XPU_CPTR(STORED(ZERO), q->zero.data), place_of(&q->zero, b, across, along));
#else
    return 0;
#endif
}

/* What an element stands for, before the scale. At 2^23 an offset has no fraction. */
static inline float8 lessened(const quantised_lines *q, float8 v, float zero) {
    const float offset = OFFSET + (E_FORM <= FORM_UNSIGNED ? (float)q->middle : 0);
#if ZERO_FORM == 1
    return v - (offset + zero / FOLD);
#elif ZERO_FORM == 2
    return (v - offset) - zero / FOLD;
#else
    return v - offset;
#endif
}

static inline long group_of(const quantised_lines *q, long i) {
    return (mul_hi((uint)i, q->along_factor) + (uint)i) >> q->along_shift;
}
