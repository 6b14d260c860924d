/* Loads and stores of 16 contiguous elements on CPUs. Option: T: f16, bf16 and f32 (as fp32), or f64. */
#ifndef XPU_KERNELS_VECTOR16_H
#define XPU_KERNELS_VECTOR16_H
#ifdef XPU_HAS_FP64
static inline double16 load16_f64(__global const s_f64 *from) { return vload16(0, from); }
static inline void store16_f64(double16 v, __global s_f64 *to) { vstore16(v, 0, to); }
#endif
static inline float16 load16_f32(__global const s_f32 *from) { return vload16(0, from); }
static inline void store16_f32(float16 v, __global s_f32 *to) { vstore16(v, 0, to); }
static inline float16 load16_f16(__global const s_f16 *from) { return widen16_f16(vload16(0, from)); }
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
#endif
