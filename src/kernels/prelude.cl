/* The start of every kernel source: types, loads and stores, addresses, group indices, random bits. The host
 * prepends `#define XPU_HAS_…` lines for the device's capabilities:
 *   XPU_HAS_FP64, XPU_HAS_FP16, XPU_HAS_SUBGROUPS, XPU_HAS_INLINE_PTX, XPU_HAS_PTX_BF16, XPU_HAS_PTX_FP8,
 *   XPU_HAS_BLOCK_OFFSETS (2D block reads take immediate offsets), XPU_IS_CPU, XPU_IS_NVIDIA,
 *   XPU_IS_INTEL_GPU,
 *   XPU_BUILT_FOR_CPU (runs on a CPU, even if the device is treated as one with memory of its own). */

#ifdef XPU_HAS_FP16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#elif defined(cl_khr_fp16)
#pragma OPENCL EXTENSION cl_khr_fp16 : disable
#endif
#ifdef XPU_HAS_FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

/* Pointers are passed as 64-bit integers in the kernel's parameter struct. */
#define XPU_PTR(type, address) ((__global type *)(address))
#define XPU_CPTR(type, address) ((__global const type *)(address))

/* Kernel attribute: CPUs must not vectorize across work-items. */
#ifdef XPU_BUILT_FOR_CPU
#define XPU_NO_VECTORIZE __attribute__((intel_vec_len_hint(1)))
#else
#define XPU_NO_VECTORIZE
#endif

/* Kernel attribute for high register use: with 32 lanes, Intel GPUs would spill. */
#ifdef XPU_IS_INTEL_GPU
#define XPU_SUBGROUP_OF_16 __attribute__((intel_reqd_sub_group_size(16)))
#else
#define XPU_SUBGROUP_OF_16
#endif

/* The work-group's index in the whole launch, which on CPUs may be split by global offsets. Uniform. */
#ifdef XPU_IS_NVIDIA
#define XPU_GROUP(d) get_group_id(d) /* its compiler would divide */
#else
#define XPU_GROUP(d) (get_group_id(d) + get_global_offset(d) / get_local_size(d))
#endif

#define XPU_CAT_(a, b) a##b
#define XPU_CAT(a, b) XPU_CAT_(a, b)
#define STORED(t) XPU_CAT(s_, t)   /* type of elements of dtype t in memory */
#define COMPUTED(t) XPU_CAT(o_, t) /* type that they are computed in */
#define LOAD(t, p, i) XPU_CAT(load_, t)(p, i)
#define STORE(t, p, i, v) XPU_CAT(store_, t)(p, i, v)

/* Conversions between a raw element (raw_<dtype>), loaded as part of a vector, and the type computed in. */
#define WIDEN(t, v) XPU_CAT(widen_, t)(v)
#define NARROW(t, v) XPU_CAT(narrow_, t)(v)
#define RAW(t) XPU_CAT(raw_, t)

/* A dtype whose computed type is its memory type. The host appends a line for each such dtype of
 * xpu/dtype.def; other dtypes are below or in a file of their own. */
#define XPU_PLAIN(t, type)                                                                                   \
    typedef type s_##t;                                                                                      \
    typedef type o_##t;                                                                                      \
    typedef type raw_##t;                                                                                    \
    static inline o_##t widen_##t(raw_##t v) { return v; }                                                   \
    static inline raw_##t narrow_##t(o_##t v) { return v; }                                                  \
    static inline o_##t load_##t(__global const s_##t *p, size_t i) { return p[i]; }                         \
    static inline void store_##t(__global s_##t *p, size_t i, o_##t v) { p[i] = v; }

/* bool: one byte, 0 or 1. */
typedef uchar s_b8;
typedef uchar o_b8;
typedef uchar raw_b8;
static inline o_b8 widen_b8(raw_b8 v) { return v != 0; }
static inline raw_b8 narrow_b8(o_b8 v) { return v != 0; }
static inline o_b8 load_b8(__global const s_b8 *p, size_t i) { return p[i] != 0; }
static inline void store_b8(__global s_b8 *p, size_t i, o_b8 v) { p[i] = v != 0; }

/* fp16: works without cl_khr_fp16 through vload_half; with the extension, casts vectorize better. The memory
 * type is ushort, because devices without the extension can't load, assign or convert `half`: no other file
 * uses that type. */
typedef ushort s_f16;
typedef float o_f16;
typedef ushort raw_f16;
static inline o_f16 widen_f16(raw_f16 v) { return vload_half(0, (const __private half *)&v); }
static inline raw_f16 narrow_f16(o_f16 v) {
    raw_f16 r;
    vstore_half_rte(v, 0, (__private half *)&r);
    return r;
}
#ifdef XPU_HAS_FP16
static inline o_f16 load_f16(__global const s_f16 *p, size_t i) { return ((__global const half *)p)[i]; }
static inline void store_f16(__global s_f16 *p, size_t i, o_f16 v) {
    ((__global half *)p)[i] = convert_half_rte(v);
}
static inline float round_f16(float v) { return convert_float(convert_half_rte(v)); }
static inline ushort8 narrow8_f16(float8 v) { return as_ushort8(convert_half8_rte(v)); }
static inline float8 widen8_f16(ushort8 v) { return convert_float8(as_half8(v)); }
static inline float16 widen16_f16(ushort16 v) { return convert_float16(as_half16(v)); }
#else
static inline o_f16 load_f16(__global const s_f16 *p, size_t i) {
    return vload_half(i, (__global const half *)p);
}
static inline void store_f16(__global s_f16 *p, size_t i, o_f16 v) {
    vstore_half_rte(v, i, (__global half *)p);
}
static inline float round_f16(float v) { return widen_f16(narrow_f16(v)); }
static inline ushort8 narrow8_f16(float8 v) {
    ushort8 r;
    vstore_half8_rte(v, 0, (__private half *)&r);
    return r;
}
static inline float8 widen8_f16(ushort8 v) { return vload_half8(0, (const __private half *)&v); }
static inline float16 widen16_f16(ushort16 v) { return vload_half16(0, (const __private half *)&v); }
#endif

/* bf16: the upper 16 bits of a float; rounds to nearest even, NaN stays NaN. */
typedef ushort s_bf16;
typedef float o_bf16;
typedef ushort raw_bf16;
static inline float bf16_to_float(ushort v) { return as_float((uint)v << 16); }
#ifdef XPU_HAS_PTX_BF16
static inline ushort float_to_bf16(float v) {
    ushort r;
    __asm__("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}
#else
static inline ushort float_to_bf16(float v) {
    uint u = as_uint(v);
    uint rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return v != v ? (ushort)0x7fc0 : (ushort)rounded;
}
#endif
static inline o_bf16 widen_bf16(raw_bf16 v) { return bf16_to_float(v); }
static inline raw_bf16 narrow_bf16(o_bf16 v) { return float_to_bf16(v); }
static inline o_bf16 load_bf16(__global const s_bf16 *p, size_t i) { return bf16_to_float(p[i]); }
static inline void store_bf16(__global s_bf16 *p, size_t i, o_bf16 v) { p[i] = float_to_bf16(v); }

#ifdef XPU_HAS_INLINE_PTX
/* NVIDIA's OpenCL has no subgroups, but inline PTX can shuffle within a warp: 32 work-items, consecutive in
 * dimension 0. Returns the value of lane (lane ^ mask). All lanes of the warp must take part. */
#define XPU_WARP 32
static inline uint xpu_warp_xor(uint v, uint mask) {
    uint r;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(r) : "r"(v), "r"(mask));
    return r;
}
#endif

#ifdef XPU_HAS_INLINE_PTX
/* Selects four bytes of `low` (0 to 3) and `high` (4 to 7) by the hex digits of `which`. */
static inline uint xpu_bytes(uint low, uint high, uint which) {
    uint r;
    __asm__("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(which));
    return r;
}
#endif
#ifdef XPU_HAS_PTX_FP8
/* Converts four e4m3 values. */
static inline float4 xpu_widen_e4m3(uint v) {
    float4 r;
    __asm__("{.reg .b16 l, h, a, b, c, d;\n\t.reg .b32 p, q;\n\t"
            "mov.b32 {l, h}, %4;\n\tcvt.rn.f16x2.e4m3x2 p, l;\n\tcvt.rn.f16x2.e4m3x2 q, h;\n\t"
            "mov.b32 {a, b}, p;\n\tmov.b32 {c, d}, q;\n\t"
            "cvt.f32.f16 %0, a;\n\tcvt.f32.f16 %1, b;\n\tcvt.f32.f16 %2, c;\n\tcvt.f32.f16 %3, d;}"
            : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w)
            : "r"(v));
    return r;
}
#endif

/* Philox 4x32-10: counter (offset, subsequence), key seed. */
static inline uint4 xpu_philox(ulong seed, ulong subsequence, ulong offset) {
    uint4 c = (uint4)((uint)offset, (uint)(offset >> 32), (uint)subsequence, (uint)(subsequence >> 32));
    uint2 k = (uint2)((uint)seed, (uint)(seed >> 32));
    for (int round = 0; round < 10; round++) {
        uint hi0 = mul_hi(0xD2511F53u, c.x), lo0 = 0xD2511F53u * c.x;
        uint hi1 = mul_hi(0xCD9E8D57u, c.z), lo1 = 0xCD9E8D57u * c.z;
        c = (uint4)(hi1 ^ c.y ^ k.x, lo1, hi0 ^ c.w ^ k.y, lo0);
        k += (uint2)(0x9E3779B9u, 0xBB67AE85u);
    }
    return c;
}
/* Random bits as a float in (0, 1] (as in cuRAND), and in [0, 1) with 24 bits. */
static inline float xpu_uniform_open0(uint v) {
    return v * 2.3283064365386963e-10f + 1.1641532182693481e-10f;
}
static inline float xpu_uniform_open1(uint v) { return (v >> 8) * 5.9604644775390625e-8f; }
