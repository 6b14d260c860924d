/* An operand in fewer bits (xpu_quantised) as numbers of dtype T: out = (element - zero) * scale. Work-groups of
 * LANES; group (span of a line, line, batch), spans fastest.
 *
 * -DT -DLANES; -DALIGNED=1: octets of elements lie beside each other at multiples of 8 elements, -DSHARED=1: and have
 * one scale and zero; -DOUT_ALIGNED=1: lines of the result are aligned to 8 elements; and what quantised_read.h wants */
#include "quantised_read.h"

static inline ushort8 narrow8_bf16(float8 v) {
    const uint8 u = as_uint8(v);
    const ushort8 rounded = convert_ushort8(u + 0x7fffu + (u >> 16 & 1u) >> 16);
    return select((ushort8)0x7fc0, rounded, convert_ushort8(as_uint8(v == v)));
}
static inline float8 narrow8_f32(float8 v) { return v; }
#define OCTET_OF_f32 float8
#define OCTET_OF_bf16 ushort8
#define OCTET_OF_f16 ushort8

/* i is a multiple of 8. */
static inline void put_octet(__global STORED(T) *out, long i, float8 v, int count) {
    if (OUT_ALIGNED && count == 8) {
        *(__global XPU_CAT(OCTET_OF_, T) *)(out + i) = XPU_CAT(narrow8_, T)(v);
        return;
    }
    const float of[8] = {v.s0, v.s1, v.s2, v.s3, v.s4, v.s5, v.s6, v.s7};
    for (int j = 0; j < count; j++) STORE(T, out, i + j, of[j]);
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void dequantise(const dequantise_params p) {
    const long spans = (p.length + p.span - 1) / p.span, g = XPU_GROUP(0);
    const long line = g / spans % p.lines, b = g / spans / p.lines;
    const long begin = g % spans * p.span, end = min(p.length, begin + p.span), across = line / p.from.group_across;
    const long scales = place_of(&p.from.scale, b, across), zeros = place_of(&p.from.zero, b, across);
    const long first = b * p.from.batch + line * p.from.across;
    __global STORED(T) *out = XPU_PTR(STORED(T), p.out) + b * p.out_batch + line * p.out_across;
    for (long i = begin + (long)get_local_id(0) * 8; i < end; i += LANES * 8) {
        const int count = (int)min(end - i, 8L);
#if ALIGNED
        const octet bits = count == 8 ? read_octet(p.from.data + first * E_BITS / 8, i)
                                      : gather_octet(p.from.data, first + i, 1, count);
#else
        const octet bits = gather_octet(p.from.data, first + i * p.from.along, p.from.along, count);
#endif
#if SHARED
        const long along = group_of(&p.from, i);
        put_octet(out, i, scaled_octet(&p.from, bits, scale_of(&p.from, scales, along), zero_of(&p.from, zeros, along)), count);
#else
        octet one = bits;
        for (int j = 0; j < count; j++) {
            const long along = group_of(&p.from, i + j);
            const float8 v = scaled_octet(&p.from, one, scale_of(&p.from, scales, along), zero_of(&p.from, zeros, along));
            STORE(T, out, i + j, v.s0);
            one = as_uint2(as_ulong(one) >> E_BITS);
        }
#endif
    }
}
