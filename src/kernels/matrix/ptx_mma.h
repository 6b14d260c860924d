/* NVIDIA tensor cores and asynchronous copies as functions of a warp, for all types (mma.sync, ldmatrix and
 * cp.async; PTX ISA 8.5, sections 9.7.14.5 and 9.7.9.25). matrix_ptx.h selects one type for the operators'
 * kernels; kernels compiled from Triton use them by name.
 *
 * A block of the left operand is 16 x 16, of the right operand 16 x 8, of the accumulator 16 x 8. Fragment
 * layout, with pairs of adjacent elements (along k in operands, along n in accumulators):
 *
 *     left          row lane / 4 (and 8 below it: .y, .w), column lane % 4 * 2 (and 8 beside it: .z, .w)
 *     right         column lane / 4, row lane % 4 * 2 (and 8 below it: .y)
 *     accumulator   row lane / 4 (and 8 below it: .zw), column lane % 4 * 2, and the one beside it in .y and
 *                   .w
 *
 * Two accumulator blocks side by side, rounded to pairs, therefore form a left block.
 *
 * fp32 blocks are half as deep, left 16 x 8, right 8 x 8, with single elements:
 *
 *     left          row lane / 4 (and 8 below it: .y, .w), column lane % 4 (and 4 beside it: .z, .w)
 *     right         column lane / 4, row lane % 4 (and 4 below it: .y)
 *
 * int8 blocks are twice as deep, left 16 x 32, right 32 x 8, with dwords of four adjacent elements along k,
 * at the same byte offsets as pairs of half-precision elements. Blocks loaded from tiles with rows of k have
 * the even columns (rows, of the left operand) of 16 in one block and the odd ones in the other.
 *
 * With MATRIX_EMULATED the same in plain OpenCL C, for tests: a subgroup of 32 exchanges addresses and values
 * by shuffles. */
#include "matrix/local_tile.h"

#define MATRIX_SUBGROUP_SIZE 32
#define MATRIX_LANE ((uint)get_local_id(0) % MATRIX_SUBGROUP_SIZE)

/* Alignment of arrays in local memory that are copied to: copies to an array that does not start at a row of
 * banks take 2.5 times as long. */
#define LOCAL_TILE_ALIGNED __attribute__((aligned(128)))

typedef uint4 fragment_a;
typedef uint2 fragment_b;

/* Byte offset of a vector in a tile with `vecs` vectors per row, swizzled: eight rows of a column of vectors,
 * which are loaded at once, are in eight different bank groups (local_tile.h). */
static inline uint swizzled_offset(uint row, uint vec, const uint vecs) {
    const uint turn = vecs % 8 == 0 ? row & 7 : vecs == 4 ? row >> 1 & 3 : vecs == 2 ? row >> 2 & 1 : 0;
    return (row * LOCAL_TILE_PITCH(vecs) + (vec ^ turn)) * 16;
}

/* Keeps the first `valid` of two bytes and clears the others. */
static inline ushort two_bytes(xpu_addr from, int valid) {
    return valid == 2   ? *(__global const ushort *)from
           : valid == 1 ? (ushort) * (__global const uchar *)from
                        : (ushort)0;
}

#ifndef MATRIX_EMULATED
#define UNROLL _Pragma("unroll")
#define MATRIX_KERNEL __kernel
typedef uint local_tile; /* an address in local memory */
#define LOCAL_TILE_ADDRESS(pointer) ((uint)(size_t)(pointer))

/* Inserts bits of `v` into a word: one instruction, which the compiler does not find by itself. */
static inline uint bits_into(uint v, uint mask, uint word) {
    uint r;
    __asm__("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(r) : "r"(v), "r"(mask), "r"(word));
    return r;
}
/* Reads 16 bytes that are not written while the kernel runs. */
static inline uint4 load_vector_nc(xpu_addr from) {
    uint4 r;
    __asm__("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
            : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
            : "l"(from));
    return r;
}
/* Copies 16 bytes asynchronously. */
static inline void copy_async(local_tile to, xpu_addr from) {
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}
/* Copies `size` bytes; those from `valid` on become zero. */
static inline void copy_part_async(local_tile to, xpu_addr from, const int size, int valid) {
    if (size == 16) {
        __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid));
    } else if (size == 8) {
        __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(valid));
    } else if (size == 4) {
        __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid));
    } else if (size == 2) {
        __asm__ volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(two_bytes(from, valid)));
    } else {
        for (int i = 0; i < size; i++) {
            const uint v = i < valid ? ((__global const uchar *)from)[i] : 0;
            __asm__ volatile("st.shared.u8 [%0], %1;" ::"r"(to + i), "r"(v));
        }
    }
}
/* Copies 16 bytes asynchronously if `there`, else writes `word` four times. This avoids many reads of the
 * same address for vectors outside the matrix. */
static inline void copy_or_fill_async(local_tile to, xpu_addr from, uint there, uint word) {
    __asm__ volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t"
                     "@p cp.async.cg.shared.global [%0], [%1], 16;\n\t"
                     "@!p st.shared.v4.u32 [%0], {%3, %3, %3, %3};\n\t}" ::"r"(to),
                     "l"(from), "r"(there), "r"(word));
}
static inline void commit_copies(void) { __asm__ volatile("cp.async.commit_group;" ::: "memory"); }
static inline void store_vector(local_tile to, uint4 v) {
    __asm__ volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z),
                     "r"(v.w));
}
/* Waits until at most the last `open` groups of copies are in flight. */
#define WAIT_FOR_COPIES(open) __asm__ volatile("cp.async.wait_group %0;" ::"n"(open) : "memory")

#define LOAD_BLOCKS(name, transposed)                                                                        \
    static inline uint4 name(uint at) {                                                                      \
        uint4 r;                                                                                             \
        __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4" transposed ".shared.b16 {%0,%1,%2,%3}, [%4];"       \
                         : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)                                        \
                         : "r"(at));                                                                         \
        return r;                                                                                            \
    }
LOAD_BLOCKS(load_blocks, "")
LOAD_BLOCKS(load_blocks_transposed, ".trans")

static inline void multiply_tf32(__private float4 *sum, fragment_a a, fragment_b b) {
    __asm__("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(sum->x), "+f"(sum->y), "+f"(sum->z), "+f"(sum->w)
            : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}
/* Converts a value to the operand format (tf32). */
static inline uint round_tf32(uint v) {
    uint r;
    __asm__("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(as_float(v)));
    return r;
}
static inline uint load_word(local_tile at) {
    uint r;
    __asm__ volatile("ld.shared.u32 %0, [%1];" : "=r"(r) : "r"(at));
    return r;
}
static inline void multiply_i8(__private int4 *sum, fragment_a a, fragment_b b) {
    __asm__("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+r"(sum->x), "+r"(sum->y), "+r"(sum->z), "+r"(sum->w)
            : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}
#define MULTIPLY_HALF_PRECISION(t, unit, round, add, one)                                                    \
    static inline void multiply_##t(__private float4 *sum, fragment_a a, fragment_b b) {                     \
        __asm__("mma.sync.aligned." unit " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"            \
                : "+f"(sum->x), "+f"(sum->y), "+f"(sum->z), "+f"(sum->w)                                     \
                : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));                               \
    }                                                                                                        \
    /* Rounds two values to a pair. */                                                                       \
    static inline uint round_pair_##t(float low, float high) {                                               \
        uint r;                                                                                              \
        __asm__(round " %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));                                       \
        return r;                                                                                            \
    }                                                                                                        \
    /* Adds two pairs, rounded. */                                                                           \
    static inline uint add_pairs_##t(uint v, uint w) {                                                       \
        uint r;                                                                                              \
        __asm__(add " %0, %1, %2, %3;" : "=r"(r) : "r"(v), "r"(one), "r"(w));                                \
        return r;                                                                                            \
    }                                                                                                        \
    /* Multiplies two pairs, rounded. */                                                                     \
    static inline uint multiply_pairs_##t(uint v, uint w) {                                                  \
        uint r;                                                                                              \
        __asm__(add " %0, %1, %2, %3;" : "=r"(r) : "r"(v), "r"(w), "r"(0x80008000u));                        \
        return r;                                                                                            \
    }
MULTIPLY_HALF_PRECISION(bf16, "m16n8k16.row.col.f32.bf16.bf16.f32", "cvt.rn.bf16x2.f32", "fma.rn.bf16x2",
                        0x3f803f80u)
MULTIPLY_HALF_PRECISION(f16, "m16n8k16.row.col.f32.f16.f16.f32", "cvt.rn.f16x2.f32", "fma.rn.f16x2",
                        0x3c003c00u)
#endif

#ifdef MATRIX_EMULATED
#define UNROLL _Pragma("nounroll")
#define MATRIX_KERNEL __attribute__((intel_reqd_sub_group_size(MATRIX_SUBGROUP_SIZE))) __kernel
typedef ulong local_tile;
#define LOCAL_TILE_ADDRESS(pointer) ((ulong)(pointer))

static inline uint bits_into(uint v, uint mask, uint word) { return (v & mask) ^ word; }
/* Returns NaN where the hardware would fault. */
static inline uint4 load_vector_nc(xpu_addr from) {
    return from % 16 ? (uint4)(0xffffffffu) : *(__global const uint4 *)from;
}
static inline void copy_part_async(local_tile to, xpu_addr from, const int size, int valid) {
    if (size == 2)
        *(__local ushort *)to = two_bytes(from, valid);
    else
        for (int i = 0; i < size; i++)
            ((__local uchar *)to)[i] = i < valid ? ((__global const uchar *)from)[i] : (uchar)0;
}
static inline void copy_async(local_tile to, xpu_addr from) { copy_part_async(to, from, 16, 16); }
static inline void copy_or_fill_async(local_tile to, xpu_addr from, uint there, uint word) {
    if (there)
        copy_async(to, from);
    else
        *(__local uint4 *)to = (uint4)(word);
}
static inline void commit_copies(void) {}
static inline void store_vector(local_tile to, uint4 v) { *(__local uint4 *)to = v; }
#define WAIT_FOR_COPIES(open)

static inline uint4 load_blocks(local_tile at) {
    const uint lane = MATRIX_LANE;
    uint r[4];
    for (uint i = 0; i < 4; i++)
        r[i] = *(__local const uint *)(sub_group_shuffle(at, i * 8 + lane / 4) + lane % 4 * 4);
    return (uint4)(r[0], r[1], r[2], r[3]);
}
static inline uint4 load_blocks_transposed(local_tile at) {
    const uint lane = MATRIX_LANE;
    uint r[4];
    for (uint i = 0; i < 4; i++) {
        const local_tile row = sub_group_shuffle(at, i * 8 + lane % 4 * 2);
        const local_tile next = sub_group_shuffle(at, i * 8 + lane % 4 * 2 + 1);
        r[i] = *(__local const ushort *)(row + lane / 4 * 2) |
               (uint) * (__local const ushort *)(next + lane / 4 * 2) << 16;
    }
    return (uint4)(r[0], r[1], r[2], r[3]);
}

static inline float truncated(uint v) { return as_float(v & 0xffffe000u); }
static inline void multiply_tf32(__private float4 *sum, fragment_a a, fragment_b b) {
    const uint lane = MATRIX_LANE;
    for (uint k = 0; k < 8; k++) {
        const uint left = lane / 4 * 4 + k % 4, right = lane % 4 * 8 + k % 4;
        const float x = truncated(sub_group_shuffle(k < 4 ? a.x : a.z, left));
        const float z = truncated(sub_group_shuffle(k < 4 ? a.y : a.w, left));
        const float u = truncated(sub_group_shuffle(k < 4 ? b.x : b.y, right));
        const float v = truncated(sub_group_shuffle(k < 4 ? b.x : b.y, right + 4));
        *sum = fma((float4)(x, x, z, z), (float4)(u, v, u, v), *sum);
    }
}
static inline uint round_tf32(uint v) { return isnan(as_float(v)) ? v : v + 0x1000 & 0xffffe000u; }
static inline uint load_word(local_tile at) { return *(__local const uint *)at; }
static inline void multiply_i8(__private int4 *sum, fragment_a a, fragment_b b) {
    const uint lane = MATRIX_LANE;
    for (uint k = 0; k < 8; k++) { /* four elements along k */
        const uint left = lane / 4 * 4 + k % 4, right = lane % 4 * 8 + k % 4;
        const uint x = sub_group_shuffle(k < 4 ? a.x : a.z, left);
        const uint z = sub_group_shuffle(k < 4 ? a.y : a.w, left);
        const uint u = sub_group_shuffle(k < 4 ? b.x : b.y, right);
        const uint v = sub_group_shuffle(k < 4 ? b.x : b.y, right + 4);
        for (uint i = 0; i < 32; i += 8) {
            const int xx = (char)(x >> i), zz = (char)(z >> i), uu = (char)(u >> i), vv = (char)(v >> i);
            *sum += (int4)(xx, xx, zz, zz) * (int4)(uu, vv, uu, vv);
        }
    }
}
#define MULTIPLY_HALF_PRECISION(t)                                                                           \
    static inline void multiply_##t(__private float4 *sum, fragment_a a, fragment_b b) {                     \
        const uint lane = MATRIX_LANE;                                                                       \
        for (uint k = 0; k < 8; k++) { /* pairs of elements along k */                                       \
            const uint left = lane / 4 * 4 + k % 4, right = lane % 4 * 8 + k % 4;                            \
            const uint x = sub_group_shuffle(k < 4 ? a.x : a.z, left);                                       \
            const uint z = sub_group_shuffle(k < 4 ? a.y : a.w, left);                                       \
            const uint u = sub_group_shuffle(k < 4 ? b.x : b.y, right);                                      \
            const uint v = sub_group_shuffle(k < 4 ? b.x : b.y, right + 4);                                  \
            for (uint i = 0; i < 32; i += 16) {                                                              \
                const float xx = widen_##t((ushort)(x >> i)), zz = widen_##t((ushort)(z >> i));              \
                const float uu = widen_##t((ushort)(u >> i)), vv = widen_##t((ushort)(v >> i));              \
                *sum = fma((float4)(xx, xx, zz, zz), (float4)(uu, vv, uu, vv), *sum);                        \
            }                                                                                                \
        }                                                                                                    \
    }                                                                                                        \
    static inline uint round_pair_##t(float low, float high) {                                               \
        return (ushort)narrow_##t(low) | (uint)(ushort)narrow_##t(high) << 16;                               \
    }                                                                                                        \
    static inline uint add_pairs_##t(uint v, uint w) {                                                       \
        return round_pair_##t(widen_##t((ushort)v) + widen_##t((ushort)w),                                   \
                              widen_##t((ushort)(v >> 16)) + widen_##t((ushort)(w >> 16)));                  \
    }                                                                                                        \
    static inline uint multiply_pairs_##t(uint v, uint w) {                                                  \
        return round_pair_##t(widen_##t((ushort)v) * widen_##t((ushort)w),                                   \
                              widen_##t((ushort)(v >> 16)) * widen_##t((ushort)(w >> 16)));                  \
    }
MULTIPLY_HALF_PRECISION(bf16)
MULTIPLY_HALF_PRECISION(f16)
#endif

static inline uint4 rounded_to_tf32(uint4 v) {
    return (uint4)(round_tf32(v.x), round_tf32(v.y), round_tf32(v.z), round_tf32(v.w));
}

/* Copies a vector in pieces of `size` bytes: `valid` bytes of it, then zeros. `base`: any alignment. */
static inline void copy_vector_async(local_tile to, xpu_addr from, xpu_addr base, int valid, const int size) {
    UNROLL for (int j = 0; j < 16; j += size) {
        const int some = clamp(valid - j, 0, size);
        copy_part_async(to + j, some ? from + j : base, size, some);
    }
}

/* Loads fragments from tiles with `vecs` vectors per row: K-major, or with rows of k (transposed). Each lane
 * passes the address of one row of eight elements. `from` is the block's first row or column, a multiple of
 * 16; `step` counts blocks of 32 bytes along k. */
static inline fragment_a read_left(local_tile s, uint from, uint step, const uint vecs) {
    const uint lane = MATRIX_LANE;
    return load_blocks(s + swizzled_offset(from + (lane & 15), step * 2 + (lane >> 4), vecs));
}
/* For the right operand: two adjacent blocks, .xy and .zw. */
static inline uint4 read_right(local_tile s, uint from, uint step, const uint vecs) {
    const uint lane = MATRIX_LANE;
    return load_blocks(
        s + swizzled_offset(from + (lane & 7) + (lane >> 4) * 8, step * 2 + (lane >> 3 & 1), vecs));
}

/* The same for half precision. */
static inline fragment_a read_left_transposed_f16(local_tile s, uint from, uint step, const uint vecs) {
    const uint lane = MATRIX_LANE;
    return load_blocks_transposed(
        s + swizzled_offset(step * 16 + (lane & 7) + (lane >> 4) * 8, from / 8 + (lane >> 3 & 1), vecs));
}
static inline uint4 read_right_transposed_f16(local_tile s, uint from, uint step, const uint vecs) {
    const uint lane = MATRIX_LANE;
    return load_blocks_transposed(
        s + swizzled_offset(step * 16 + (lane & 7) + (lane >> 3 & 1) * 8, from / 8 + (lane >> 4), vecs));
}

/* The same for fp32: loads the element at a row of k and a column. */
static inline uint word_transposed(local_tile s, uint row, uint column, const uint vecs) {
    return load_word(s + swizzled_offset(row, column / 4, vecs) + column % 4 * 4);
}
static inline fragment_a read_left_transposed_f32(local_tile s, uint from, uint step, const uint vecs) {
    const uint row = step * 8 + MATRIX_LANE % 4, column = from + MATRIX_LANE / 4;
    return (uint4)(word_transposed(s, row, column, vecs), word_transposed(s, row, column + 8, vecs),
                   word_transposed(s, row + 4, column, vecs), word_transposed(s, row + 4, column + 8, vecs));
}
static inline uint4 read_right_rows(local_tile s, uint row, uint next, uint from, const uint vecs) {
    const uint column = from + MATRIX_LANE / 4;
    return (uint4)(word_transposed(s, row, column, vecs), word_transposed(s, next, column, vecs),
                   word_transposed(s, row, column + 8, vecs), word_transposed(s, next, column + 8, vecs));
}
static inline uint4 read_right_transposed_f32(local_tile s, uint from, uint step, const uint vecs) {
    const uint row = step * 8 + MATRIX_LANE % 4;
    return read_right_rows(s, row, row + 4, from, vecs);
}

/* The same for int8: 32 elements of k for 16 columns: first the even columns (.xy: the first and the last 16
 * of k), then the odd ones. Rows are read in an order that gives a lane two elements of each of four adjacent
 * rows. */
static inline uint4 read_right_transposed_i8(local_tile s, uint from, uint step, const uint vecs) {
    const uint lane = MATRIX_LANE, row = lane & 7;
    const uint k = step * 32 + (row >> 1) * 4 + (row & 1) + (lane >> 3 & 1) * 2 + (lane >> 4) * 16;
    const uint4 v = load_blocks_transposed(s + swizzled_offset(k, from / 16, vecs));
    const uchar8 first = as_uchar8(v.xy), last = as_uchar8(v.zw);
    return (uint4)(as_uint(first.even), as_uint(last.even), as_uint(first.odd), as_uint(last.odd));
}
static inline fragment_a read_left_transposed_i8(local_tile s, uint from, uint step, const uint vecs) {
    return read_right_transposed_i8(s, from, step, vecs).xzyw;
}
