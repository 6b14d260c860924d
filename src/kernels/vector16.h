/* Loads and stores of 16 contiguous elements on CPUs. Option: T: f16, bf16 and f32 (as fp32), or f64. blend16
 * stores only the elements whose `keep` is 0; where it is -1, memory keeps its bits. */
#ifndef XPU_KERNELS_VECTOR16_H
#define XPU_KERNELS_VECTOR16_H
#ifdef XPU_HAS_FP64
static inline double16 load16_f64(__global const s_f64 *from) { return vload16(0, from); }
static inline void store16_f64(double16 v, __global s_f64 *to) { vstore16(v, 0, to); }
static inline void blend16_f64(double16 v, long16 keep, __global s_f64 *to) {
    __global long *bits = (__global long *)to;
    vstore16(select(as_long16(v), vload16(0, bits), keep), 0, bits);
}
#endif
static inline float16 load16_f32(__global const s_f32 *from) { return vload16(0, from); }
static inline void store16_f32(float16 v, __global s_f32 *to) { vstore16(v, 0, to); }
static inline void blend16_f32(float16 v, int16 keep, __global s_f32 *to) {
    __global int *bits = (__global int *)to;
    vstore16(select(as_int16(v), vload16(0, bits), keep), 0, bits);
}
static inline float16 load16_f16(__global const s_f16 *from) { return widen16_f16(vload16(0, from)); }
static inline ushort16 narrow16_f16(float16 v) { return (ushort16)(narrow8_f16(v.lo), narrow8_f16(v.hi)); }
static inline void store16_f16(float16 v, __global s_f16 *to) { vstore16(narrow16_f16(v), 0, to); }
static inline void blend16_f16(float16 v, int16 keep, __global s_f16 *to) {
    vstore16(select(narrow16_f16(v), vload16(0, to), convert_ushort16(keep)), 0, to);
}
static inline float16 load16_bf16(__global const s_bf16 *from) {
    return as_float16(convert_uint16(vload16(0, from)) << 16);
}
static inline ushort16 narrow16_bf16(float16 v) { /* as float_to_bf16 */
    const uint16 bits = as_uint16(v), rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return convert_ushort16(select(rounded, (uint16)0x7fc0, isnan(v)));
}
static inline void store16_bf16(float16 v, __global s_bf16 *to) { vstore16(narrow16_bf16(v), 0, to); }
static inline void blend16_bf16(float16 v, int16 keep, __global s_bf16 *to) {
    vstore16(select(narrow16_bf16(v), vload16(0, to), convert_ushort16(keep)), 0, to);
}
#define LOAD16 XPU_CAT(load16_, T)
#define STORE16 XPU_CAT(store16_, T)
#endif
