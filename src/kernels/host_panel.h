/* host_panel: sixteen numbers at a time, and matrices written down as fp32 in panels of sixteen columns, on
 * processors. Wants T: f32, f16 or bf16. */
/* Sixteen numbers beside each other. */
static inline float16 load16_f32(__global const s_f32 *from) { return vload16(0, from); }
static inline void store16_f32(float16 v, __global s_f32 *to) { vstore16(v, 0, to); }
static inline float16 load16_f16(__global const s_f16 *from) {
    const ushort16 v = vload16(0, from);
    return (float16)(widen8_f16(v.lo), widen8_f16(v.hi));
}
static inline void store16_f16(float16 v, __global s_f16 *to) {
    vstore16((ushort16)(narrow8_f16(v.lo), narrow8_f16(v.hi)), 0, to);
}
static inline float16 load16_bf16(__global const s_bf16 *from) {
    return as_float16(convert_uint16(vload16(0, from)) << 16);
}
static inline void store16_bf16(float16 v, __global s_bf16 *to) { /* as store_bf16 */
    const uint16 bits = as_uint16(v), rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    vstore16(convert_ushort16(select(rounded, (uint16)0x7fc0, isnan(v))), 0, to);
}
#define LOAD16 XPU_CAT(load16_, T)
#define STORE16 XPU_CAT(store16_, T)

#define FIRST_1(a, b)                                                                                        \
    a.s0, b.s0, a.s2, b.s2, a.s4, b.s4, a.s6, b.s6, a.s8, b.s8, a.sa, b.sa, a.sc, b.sc, a.se, b.se
#define SECOND_1(a, b)                                                                                       \
    a.s1, b.s1, a.s3, b.s3, a.s5, b.s5, a.s7, b.s7, a.s9, b.s9, a.sb, b.sb, a.sd, b.sd, a.sf, b.sf
#define FIRST_2(a, b) a.s01, b.s01, a.s45, b.s45, a.s89, b.s89, a.scd, b.scd
#define SECOND_2(a, b) a.s23, b.s23, a.s67, b.s67, a.sab, b.sab, a.sef, b.sef
#define FIRST_4(a, b) a.s0123, b.s0123, a.s89ab, b.s89ab
#define SECOND_4(a, b) a.s4567, b.s4567, a.scdef, b.scdef
#define FIRST_8(a, b) a.s01234567, b.s01234567
#define SECOND_8(a, b) a.s89abcdef, b.s89abcdef
/* Off the diagonal, the squares of n x n change places in all squares of 2n x 2n. */
#define EXCHANGE(n)                                                                                          \
    _Pragma("unroll") for (int i = 0; i < 16; i++) if (!(i & n)) {                                           \
        const float16 a = (float16)(FIRST_##n(row[i], row[i + n])),                                          \
                      b = (float16)(SECOND_##n(row[i], row[i + n]));                                         \
        row[i] = a;                                                                                          \
        row[i + n] = b;                                                                                      \
    }

/* panel[column / 16][k][column % 16] = M[k][column] of `depth` x `columns`, 0 in columns beyond the last; a
 * panel has room for `room` k. M begins at `from`, has its next k `down` and its next column `across`
 * elements on; `k_fast`: `down` is 1. */
static inline void host_pack(__local float *panel, int room, __global const STORED(T) * from, long down,
                             long across, bool k_fast, int depth, int columns) {
    for (int n = 0; n < columns; n += 16) {
        __local float *to = panel + n * room;
        int k = 0;
        if (n + 16 <= columns && k_fast) {
            for (; k + 16 <= depth; k += 16) {
                float16 row[16];
                _Pragma("unroll") for (int i = 0; i < 16; i++) row[i] = LOAD16(from + (n + i) * across + k);
                EXCHANGE(8)
                EXCHANGE(4)
                EXCHANGE(2)
                EXCHANGE(1)
                _Pragma("unroll") for (int i = 0; i < 16; i++) vstore16(row[i], 0, to + (k + i) * 16);
            }
        } else if (n + 16 <= columns && across == 1) {
            for (; k < depth; k++) vstore16(LOAD16(from + k * down + n), 0, to + k * 16);
        }
        for (; k < depth; k++)
            for (int i = 0; i < 16; i++)
                to[k * 16 + i] = n + i < columns ? LOAD(T, from, k * down + (n + i) * across) : 0;
    }
}
