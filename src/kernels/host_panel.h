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

#define TURN 16
#include "turn.h"

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
                EXCHANGE_ALL(row, float16)
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
