// Library functions of emitted kernels. A kernel includes those that it uses, in this order.
// "//! name needs…" starts a function and lists the functions that it needs.

//! TILE_ASSERT
// If an assertion fails in any lane, the program reports it and ends. Lanes that synchronize must end
// together. On a GPU they share two flags, which alternate between assertions: a lane reuses a flag only
// after a barrier that all lanes reach after they have read it.
#include "fault.h"
#define TILE_FAIL(number)                                                                                    \
    fault_report((struct fault_watch){p.faults, p.asserts}, ~(number), (int)XPU_GROUP(0),                    \
                 (long)XPU_GROUP(2) << 32 | (uint)XPU_GROUP(1))
#if defined(TILE_LANES_GO_TOGETHER)
#define TILE_ASSERT(number, holds)                                                                           \
    if (sub_group_any(!(holds))) {                                                                           \
        if (!(holds)) TILE_FAIL(number);                                                                     \
        return;                                                                                              \
    }
#elif defined(TILE_LANES_SYNCHRONIZE)
#define TILE_ASSERT(number, holds)                                                                           \
    if (!(holds)) {                                                                                          \
        TILE_FAIL(number);                                                                                   \
        tile_failed[tile_asserted & 1] = 1;                                                                  \
    }                                                                                                        \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                            \
    if (tile_failed[tile_asserted++ & 1]) return;
#else
#define TILE_ASSERT(number, holds)                                                                           \
    if (!(holds)) {                                                                                          \
        TILE_FAIL(number);                                                                                   \
        return;                                                                                              \
    }
#endif

//! tile_div
static inline char __attribute__((overloadable)) tile_div(char a, char b) {
    return b == 0 ? 0 : (char)(a / b);
}
static inline short __attribute__((overloadable)) tile_div(short a, short b) {
    return b == 0 ? 0 : (short)(a / b);
}
static inline int __attribute__((overloadable)) tile_div(int a, int b) {
    return b == 0 ? 0 : b == -1 ? (int)(0u - (uint)a) : a / b;
}
static inline long __attribute__((overloadable)) tile_div(long a, long b) {
    return b == 0 ? 0 : b == -1 ? (long)(0ul - (ulong)a) : a / b;
}

//! tile_rem
static inline char __attribute__((overloadable)) tile_rem(char a, char b) {
    return b == 0 ? 0 : (char)(a % b);
}
static inline short __attribute__((overloadable)) tile_rem(short a, short b) {
    return b == 0 ? 0 : (short)(a % b);
}
static inline int __attribute__((overloadable)) tile_rem(int a, int b) {
    if (b > 0 && (uint)a < (uint)b)
        return a; // an index that rarely wraps: a comparison instead of a division
    return b == 0 || b == -1 ? 0 : a % b;
}
static inline long __attribute__((overloadable)) tile_rem(long a, long b) {
    if (b > 0 && (ulong)a < (ulong)b) return a;
    return b == 0 || b == -1 ? 0 : a % b;
}

//! tile_carry
// n / d for 0 <= n < d + the number of lanes. For large d the quotient is at most 1; for other d, float
// division is exact enough.
static inline int __attribute__((overloadable)) tile_carry(int n, int d) {
    return d >= TILE_LANES ? (int)(n >= d) : (int)(((float)n + 0.5f) / (float)d);
}
static inline long __attribute__((overloadable)) tile_carry(long n, long d) {
    return d >= TILE_LANES ? (long)(n >= d) : (long)(((float)n + 0.5f) / (float)d);
}

//! tile_lane_div tile_div tile_carry
// (first + lane) / d for uniform first >= 0 and d, with scalar divisions only.
static inline int __attribute__((overloadable)) tile_lane_div(int first, int d, int lane) {
    int q = tile_div(first, d), carry = tile_carry(first - q * d + lane, d < 0 ? -d : d);
    return d < 0 ? q - carry : q + carry;
}
static inline long __attribute__((overloadable)) tile_lane_div(long first, long d, int lane) {
    long q = tile_div(first, d), carry = tile_carry(first - q * d + lane, d < 0 ? -d : d);
    return d < 0 ? q - carry : q + carry;
}

//! tile_lane_rem tile_div tile_carry
static inline int __attribute__((overloadable)) tile_lane_rem(int first, int d, int lane) {
    int r = first - tile_div(first, d) * d + lane, m = d < 0 ? -d : d;
    return r - tile_carry(r, m) * m;
}
static inline long __attribute__((overloadable)) tile_lane_rem(long first, long d, int lane) {
    long r = first - tile_div(first, d) * d + lane, m = d < 0 ? -d : d;
    return r - tile_carry(r, m) * m;
}

//! tile_run_div tile_div
// (first + lane) / d, where first and d are multiples of the number of lanes. It differs from first / d only
// where first is a negative multiple of d, because lanes after the first then round toward 0.
static inline int __attribute__((overloadable)) tile_run_div(int first, int d, int lane) {
    int q = tile_div(first, d), whole = first < 0 && first == q * d && lane > 0;
    return d < 0 ? q - whole : q + whole;
}
static inline long __attribute__((overloadable)) tile_run_div(long first, long d, int lane) {
    long q = tile_div(first, d), whole = first < 0 && first == q * d && lane > 0;
    return d < 0 ? q - whole : q + whole;
}

//! tile_run_rem tile_rem
static inline int __attribute__((overloadable)) tile_run_rem(int first, int d, int lane) {
    int r = tile_rem(first, d), whole = first < 0 && r == 0 && lane > 0;
    return r + lane - (whole ? (d < 0 ? -d : d) : 0);
}
static inline long __attribute__((overloadable)) tile_run_rem(long first, long d, int lane) {
    long r = tile_rem(first, d);
    bool whole = first < 0 && r == 0 && lane > 0;
    return r + lane - (whole ? (d < 0 ? -d : d) : 0);
}

//! tile_divide
// NVIDIA: division with an error of up to 2 ulp, as in CUDA. The operator / rounds correctly, but takes four
// times as long.
#ifdef MATRIX_EMULATED
static inline float tile_divide(float a, float b) { return a / b; }
#else
static inline float tile_divide(float a, float b) {
    float q;
    __asm__("div.full.f32 %0, %1, %2;" : "=f"(q) : "f"(a), "f"(b));
    return q;
}
#endif

//! tile_udiv
static inline uchar __attribute__((overloadable)) tile_udiv(uchar a, uchar b) {
    return b == 0 ? 0 : (uchar)(a / b);
}
static inline ushort __attribute__((overloadable)) tile_udiv(ushort a, ushort b) {
    return b == 0 ? 0 : (ushort)(a / b);
}
static inline uint __attribute__((overloadable)) tile_udiv(uint a, uint b) { return b == 0 ? 0 : a / b; }
static inline ulong __attribute__((overloadable)) tile_udiv(ulong a, ulong b) { return b == 0 ? 0 : a / b; }

//! tile_urem
static inline uchar __attribute__((overloadable)) tile_urem(uchar a, uchar b) {
    return b == 0 ? 0 : (uchar)(a % b);
}
static inline ushort __attribute__((overloadable)) tile_urem(ushort a, ushort b) {
    return b == 0 ? 0 : (ushort)(a % b);
}
static inline uint __attribute__((overloadable)) tile_urem(uint a, uint b) { return b == 0 ? 0 : a % b; }
static inline ulong __attribute__((overloadable)) tile_urem(ulong a, ulong b) { return b == 0 ? 0 : a % b; }

//! tile_maximum
// NaN propagates, and 0 > -0.
static inline float __attribute__((overloadable)) tile_maximum(float a, float b) {
    return a != a ? a : b != b ? b : a == b ? as_float(as_int(a) & as_int(b)) : fmax(a, b);
}
#ifdef cl_khr_fp64
static inline double __attribute__((overloadable)) tile_maximum(double a, double b) {
    return a != a ? a : b != b ? b : a == b ? as_double(as_long(a) & as_long(b)) : fmax(a, b);
}
#endif

//! tile_minimum
static inline float __attribute__((overloadable)) tile_minimum(float a, float b) {
    return a != a ? a : b != b ? b : a == b ? as_float(as_int(a) | as_int(b)) : fmin(a, b);
}
#ifdef cl_khr_fp64
static inline double __attribute__((overloadable)) tile_minimum(double a, double b) {
    return a != a ? a : b != b ? b : a == b ? as_double(as_long(a) | as_long(b)) : fmin(a, b);
}
#endif

//! tile_half_bits
static inline float tile_half_bits(ushort v) { return vload_half(0, (const half *)&v); }

//! tile_bits_of_half
static inline ushort tile_bits_of_half(float v) {
    ushort bits;
    vstore_half_rte(v, 0, (half *)&bits);
    return bits;
}

//! tile_round_f16 tile_half_bits tile_bits_of_half
#ifdef TILE_HAS_FP16
static inline float tile_round_f16(float v) { return (float)convert_half_rte(v); }
#else
static inline float tile_round_f16(float v) { return tile_half_bits(tile_bits_of_half(v)); }
#endif

//! tile_truncate_f16
static inline float tile_truncate_f16(float v) {
    ushort bits;
    vstore_half_rtz(v, 0, (half *)&bits);
    return vload_half(0, (const half *)&bits);
}

//! ptx_units tile_half_bits tile_bits_of_half tile_from_bf16 tile_round_bf16
// NVIDIA's tensor cores, through the same functions as in the operator library.
typedef ulong xpu_addr;
#define widen_f16 tile_half_bits
#define narrow_f16 tile_bits_of_half
#define widen_bf16 tile_from_bf16
#define narrow_bf16(v) (ushort)(as_uint(tile_round_bf16(v)) >> 16)
#include "matrix/ptx_mma.h"

//! swizzled_offset ptx_units

//! tile_erf
#include "erf.h"
static inline float __attribute__((overloadable)) tile_erf(float v) { return erf_float(v); }
#ifdef cl_khr_fp64
static inline double __attribute__((overloadable)) tile_erf(double v) { return erf(v); }
#endif

//! tile_from_bf16
static inline float tile_from_bf16(ushort v) { return as_float((uint)v << 16); }

//! tile_round_bf16
#if defined(TILE_HAS_PTX_BF16) && !defined(MATRIX_EMULATED)
static inline float tile_round_bf16(float v) {
    ushort r;
    __asm__("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return as_float((uint)r << 16);
}
#else
static inline float tile_round_bf16(float v) {
    uint u = as_uint(v);
    uint r = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
    return as_float(v != v ? 0x7fc00000u : r);
}
#endif

//! tile_truncate_bf16
static inline float tile_truncate_bf16(float v) {
    return as_float(v != v ? 0x7fc00000u : as_uint(v) & 0xffff0000u);
}

//! float8
// widen_… and narrow_… for each 8-bit format.
#include "float8.h"

//! tile_fence
// Memory order between programs, where the device supports it. mem_fence only orders within a work-group.
static inline void tile_fence(uint flags) {
#if defined(__opencl_c_atomic_order_acq_rel) && defined(__opencl_c_atomic_scope_device)
    atomic_work_item_fence(flags, memory_order_acq_rel, memory_scope_device);
#else
    mem_fence(flags);
#endif
}

//! tile_negate_ptx
// -v. When NVIDIA's compiler for sm_90 fuses two maxima or minima into one instruction, as in max(sum, max(v,
// -v)), it loses the sign of an int32 negated in 32 bits. Negating in 64 bits avoids that.
static inline int tile_negate_ptx(int v) {
    int negated;
    __asm__("{ .reg .s64 wide; cvt.s64.s32 wide, %1; neg.s64 wide, wide; cvt.u32.u64 %0, wide; }"
            : "=r"(negated)
            : "r"(v));
    return negated;
}

//! tile_fence_ptx
static inline void tile_fence_ptx(uint flags) { __asm__ volatile("membar.gl;" : : : "memory"); }

//! tile_atomic_fadd_f32
static inline float tile_atomic_fadd_f32(__global float *p, float v) {
    int old = *(volatile __global int *)p, seen;
    while ((seen = atomic_cmpxchg((volatile __global int *)p, old, as_int(as_float(old) + v))) != old)
        old = seen;
    return as_float(old);
}

//! tile_atomic_i64
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable

//! tile_atomic_fadd_f64 tile_atomic_i64
static inline double tile_atomic_fadd_f64(__global double *p, double v) {
    long old = *(volatile __global long *)p, seen;
    while ((seen = atom_cmpxchg((volatile __global long *)p, old, as_long(as_double(old) + v))) != old)
        old = seen;
    return as_double(old);
}

//! tile_atomic_swap_16
// 16-bit compare-and-swap: stores `v` if the old value equals `expected`; returns the old value.
static inline ushort tile_atomic_swap_16(__global ushort *p, ushort expected, ushort v) {
    ulong address = (ulong)p;
    volatile __global uint *word = (volatile __global uint *)(address & ~3ul);
    int shift = (address & 2) ? 16 : 0;
    uint rest = *word & ~(0xffffu << shift);
    for (;;) {
        uint want = rest | ((uint)expected << shift),
             seen = atomic_cmpxchg(word, want, rest | ((uint)v << shift));
        if (seen == want) return expected;
        if ((ushort)(seen >> shift) != expected) return (ushort)(seen >> shift);
        rest = seen & ~(0xffffu << shift);
    }
}

//! tile_atomic_fadd_f16 tile_atomic_swap_16 tile_half_bits tile_bits_of_half
static inline float tile_atomic_fadd_f16(__global half *p, float v) {
    __global ushort *q = (__global ushort *)p;
    ushort old = *(volatile __global ushort *)q, seen;
    while ((seen = tile_atomic_swap_16(q, old, tile_bits_of_half(tile_half_bits(old) + v))) != old)
        old = seen;
    return tile_half_bits(old);
}

//! tile_atomic_fadd_bf16 tile_atomic_swap_16 tile_from_bf16 tile_round_bf16
static inline float tile_atomic_fadd_bf16(__global ushort *p, float v) {
    ushort old = *(volatile __global ushort *)p, seen;
    while ((seen = tile_atomic_swap_16(
                p, old, (ushort)(as_uint(tile_round_bf16(tile_from_bf16(old) + v)) >> 16))) != old)
        old = seen;
    return tile_from_bf16(old);
}

//! tile_atomic_cas_f16 tile_atomic_swap_16 tile_half_bits tile_bits_of_half
static inline float tile_atomic_cas_f16(__global half *p, float expected, float v) {
    __global ushort *q = (__global ushort *)p;
    return tile_half_bits(tile_atomic_swap_16(q, tile_bits_of_half(expected), tile_bits_of_half(v)));
}

//! tile_atomic_cas_bf16 tile_atomic_swap_16 tile_from_bf16
static inline float tile_atomic_cas_bf16(__global ushort *p, float expected, float v) {
    return tile_from_bf16(
        tile_atomic_swap_16(p, (ushort)(as_uint(expected) >> 16), (ushort)(as_uint(v) >> 16)));
}

//! tile_reverse
static inline ulong tile_reverse(ulong v) {
    v = (v >> 1 & 0x5555555555555555ul) | (v & 0x5555555555555555ul) << 1;
    v = (v >> 2 & 0x3333333333333333ul) | (v & 0x3333333333333333ul) << 2;
    v = (v >> 4 & 0x0f0f0f0f0f0f0f0ful) | (v & 0x0f0f0f0f0f0f0f0ful) << 4;
    v = (v >> 8 & 0x00ff00ff00ff00fful) | (v & 0x00ff00ff00ff00fful) << 8;
    v = (v >> 16 & 0x0000ffff0000fffful) | (v & 0x0000ffff0000fffful) << 16;
    return v >> 32 | v << 32;
}

//! tile_byte_perm
static inline uint tile_byte_perm(uint a, uint b, uint selector) {
    ulong both = (ulong)b << 32 | a;
    uint r = 0;
    for (int i = 0; i < 4; i++) {
        uint s = selector >> (4 * i);
        uint byte = (uint)(both >> (8 * (s & 7))) & 0xffu;
        r |= ((s & 8) ? ((byte & 0x80u) ? 0xffu : 0u) : byte) << (8 * i);
    }
    return r;
}

//! tile_from_e2m1
// Decodes an e2m1 float: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
static inline float tile_from_e2m1(int v) {
    int magnitude = v & 7;
    float r = magnitude < 2 ? 0.5f * (float)magnitude
                            : as_float((uint)((magnitude >> 1) + 126) << 23 | (uint)(magnitude & 1) << 22);
    return v & 8 ? -r : r;
}

//! tile_warp_xor
// NVIDIA: the value of lane ^ mask.
static inline int __attribute__((overloadable)) tile_warp_xor(int v, int mask) {
#ifdef MATRIX_EMULATED
    return sub_group_shuffle_xor(v, (uint)mask);
#else
    int r;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(r) : "r"(v), "r"(mask));
    return r;
#endif
}
static inline char __attribute__((overloadable)) tile_warp_xor(char v, int mask) {
    return (char)tile_warp_xor((int)v, mask);
}
static inline short __attribute__((overloadable)) tile_warp_xor(short v, int mask) {
    return (short)tile_warp_xor((int)v, mask);
}
static inline float __attribute__((overloadable)) tile_warp_xor(float v, int mask) {
    return as_float(tile_warp_xor(as_int(v), mask));
}
static inline long __attribute__((overloadable)) tile_warp_xor(long v, int mask) {
    int2 halves = as_int2(v);
    return as_long((int2)(tile_warp_xor(halves.x, mask), tile_warp_xor(halves.y, mask)));
}
#ifdef cl_khr_fp64
static inline double __attribute__((overloadable)) tile_warp_xor(double v, int mask) {
    return as_double(tile_warp_xor(as_long(v), mask));
}
#endif

//! TILE_TRANSPOSE
// Register transpose of 16 vectors x0 ... x15 of 16 lanes: swaps the off-diagonal n x n blocks for n = 8, 4,
// 2, 1.
#define TILE_SWAP(a, b, n)                                                                                   \
    {                                                                                                        \
        float give = lane & n ? a : b, got = sub_group_shuffle_xor(give, n);                                 \
        a = lane & n ? got : a;                                                                              \
        b = lane & n ? b : got;                                                                              \
    }
// clang-format off
#define TILE_SWAP_8(x) \
    TILE_SWAP(x##0, x##8, 8) TILE_SWAP(x##1, x##9, 8) TILE_SWAP(x##2, x##10, 8) TILE_SWAP(x##3, x##11, 8) \
    TILE_SWAP(x##4, x##12, 8) TILE_SWAP(x##5, x##13, 8) TILE_SWAP(x##6, x##14, 8) TILE_SWAP(x##7, x##15, 8)
#define TILE_SWAP_4(x) \
    TILE_SWAP(x##0, x##4, 4) TILE_SWAP(x##1, x##5, 4) TILE_SWAP(x##2, x##6, 4) TILE_SWAP(x##3, x##7, 4) \
    TILE_SWAP(x##8, x##12, 4) TILE_SWAP(x##9, x##13, 4) TILE_SWAP(x##10, x##14, 4) TILE_SWAP(x##11, x##15, 4)
#define TILE_SWAP_2(x) \
    TILE_SWAP(x##0, x##2, 2) TILE_SWAP(x##1, x##3, 2) TILE_SWAP(x##4, x##6, 2) TILE_SWAP(x##5, x##7, 2) \
    TILE_SWAP(x##8, x##10, 2) TILE_SWAP(x##9, x##11, 2) TILE_SWAP(x##12, x##14, 2) TILE_SWAP(x##13, x##15, 2)
#define TILE_SWAP_1(x) \
    TILE_SWAP(x##0, x##1, 1) TILE_SWAP(x##2, x##3, 1) TILE_SWAP(x##4, x##5, 1) TILE_SWAP(x##6, x##7, 1) \
    TILE_SWAP(x##8, x##9, 1) TILE_SWAP(x##10, x##11, 1) TILE_SWAP(x##12, x##13, 1) TILE_SWAP(x##14, x##15, 1)
// clang-format on
#define TILE_TRANSPOSE(x) TILE_SWAP_8(x) TILE_SWAP_4(x) TILE_SWAP_2(x) TILE_SWAP_1(x)
