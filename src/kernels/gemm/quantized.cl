/* Dequantization to dtype T: out = (element - zero point) * scale.
 *
 * Launch: work-groups of LANES; work-group = (span of a row, row, batch), spans fastest.
 * Options: T; LANES; ALIGNED=1, elements are contiguous in eights at multiples of 8 elements; SHARED=1, these
 * eights have one scale and zero point; OUT_ALIGNED=1, rows of the result are aligned to 8 elements; CUT
 * (quantized.h), what belongs to groups whose ends are in device memory: rows and matrices of no group are
 * not written; swizzled scales of rows, or of parts of rows, are stored group after group, each padded to
 * whole tiles; those of quantized_load.h. */
#include "gemm/quantized_load.h"

static inline ushort8 narrow8_bf16(float8 v) {
    const uint8 u = as_uint8(v);
    const ushort8 rounded = convert_ushort8((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
    return select((ushort8)0x7fc0, rounded, convert_ushort8(as_uint8(v == v)));
}
static inline float8 narrow8_f32(float8 v) { return v; }
#define OCTET_OF_f32 float8
#define OCTET_OF_bf16 ushort8
#define OCTET_OF_f16 ushort8

/* i is a multiple of 8. */
static inline void store_vec8(__global STORED(T) *out, long i, float8 v, int count) {
    if (OUT_ALIGNED && count == 8) {
        *(__global XPU_CAT(OCTET_OF_, T) *)(out + i) = XPU_CAT(narrow8_, T)(v);
        return;
    }
    const float of[8] = {v.s0, v.s1, v.s2, v.s3, v.s4, v.s5, v.s6, v.s7};
    for (int j = 0; j < count; j++) STORE(T, out, i + j, of[j]);
}

#if CUT == CUT_ROWS || CUT == CUT_ALONG
/* A group, and the number of rows (CUT_ALONG: columns) of scale tiles of the groups before it. */
typedef struct cut_group {
    long begin, end, tiles;
    int next;
} cut_group;
/* Advances to the group of row, or element, i; false if it is in no group. */
static inline bool go_on(__private cut_group *g, const dequantize_params *p, long i) {
    const long most = CUT == CUT_ROWS ? p->lines : p->length;
    const long tile = CUT == CUT_ROWS ? SCALE_TILE_ROWS : SCALE_TILE_GROUPS * p->from.group_along;
    while (g->end <= i) {
        if (g->next == (int)p->groups) return false;
        g->tiles += (g->end - g->begin + tile - 1) / tile;
        g->begin = g->end;
        g->end = clamp((long)XPU_CPTR(int, p->ends)[g->next++], g->begin, most);
    }
    return true;
}
/* The scale of element i of a row; NaN if there are too few scales. */
static inline float scale_in_group(const dequantize_params *p, __private const cut_group *g, long line,
                                   long i) {
#if CUT == CUT_ROWS
    const long place = g->tiles * p->from.scale.across + scales_across(&p->from, line - g->begin);
    const long along = group_of(&p->from, i);
#else
    const long tile = SCALE_TILE_GROUPS * p->from.group_along,
               rows = (p->lines + SCALE_TILE_ROWS - 1) / SCALE_TILE_ROWS;
    quantized_lines part = p->from;
    part.scale.across = (g->end - g->begin + tile - 1) / tile * SCALE_TILE_SIZE;
    const long place = g->tiles * rows * SCALE_TILE_SIZE + scales_across(&part, line);
    const long along = group_of(&p->from, i - g->begin);
#endif
    return place + scale_along(&p->from, along) < p->scales ? scale_of(&p->from, place, along) : NAN;
}
#define SCALE_AT(i) scale_in_group(&p, &group, line, i)
#else
#define SCALE_AT(i) scale_of(&p.from, scales, group_of(&p.from, i))
#endif
#if CUT == CUT_ALONG
/* Do adjacent elements share a scale? */
#define ARE_ALIKE(i, count) (SHARED && group.end >= (i) + (count) && ((i) - group.begin) % 8 == 0)
#define GO_ON(i) go_on(&group, &p, i)
#else
#define ARE_ALIKE(i, count) SHARED
#define GO_ON(i) true
#endif

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void dequantize(const dequantize_params p) {
    const long spans = (p.length + p.span - 1) / p.span, g = XPU_GROUP(0);
    const long line = g / spans % p.lines, b = g / spans / p.lines;
    const long begin = g % spans * p.span, end = min(p.length, begin + p.span),
               across = line / p.from.group_across;
#if CUT == CUT_ROWS || CUT == CUT_ALONG
    cut_group group = {0};
    if (CUT == CUT_ROWS && !go_on(&group, &p, line)) return;
#else
    const long scales = scales_offset(&p.from, b, across);
#endif
#if CUT == CUT_BATCH /* an empty group: the matrix is not used */
    if (XPU_CPTR(int, p.ends)[b] <= (b ? XPU_CPTR(int, p.ends)[b - 1] : 0)) return;
#endif
    const long zeros = place_of(&p.from.zero, b, across);
    const long first = b * p.from.batch + line * p.from.across;
    __global STORED(T) *out = XPU_PTR(STORED(T), p.out) + b * p.out_batch + line * p.out_across;
    for (long i = begin + (long)get_local_id(0) * 8; i < end; i += LANES * 8) {
        const int count = (int)min(end - i, 8L);
        if (!GO_ON(i)) {
            store_vec8(out, i, (float8)(0), count);
            continue;
        }
#if ALIGNED
        const octet bits = count == 8 ? load_vec8(p.from.data + first * E_BITS / 8, i)
                                      : gather_vec8(p.from.data, first + i, 1, count);
#else
        const octet bits = gather_vec8(p.from.data, first + i * p.from.along, p.from.along, count);
#endif
        if (ARE_ALIKE(i, count)) {
            const float zero = zero_of(&p.from, zeros, group_of(&p.from, i));
            store_vec8(out, i, dequantize_vec8(&p.from, bits, SCALE_AT(i), zero), count);
            continue;
        }
        octet one = bits;
        for (int j = 0; j < count; j++) {
            const float zero = zero_of(&p.from, zeros, group_of(&p.from, i + j));
            const float v = GO_ON(i + j) ? dequantize_vec8(&p.from, one, SCALE_AT(i + j), zero).s0 : 0;
            STORE(T, out, i + j, v);
            one = as_uint2(as_ulong(one) >> E_BITS);
        }
    }
    if (end == p.length)
        for (long i = end + (long)get_local_id(0); i < p.padded; i += LANES) STORE(T, out, i, 0.0f);
}
