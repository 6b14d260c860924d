/* NVIDIA tensor cores (ptx_mma.h) for MATRIX_T (bf16, f16, f32, i8).
 *
 * fp32 products use 3xTF32: each value is split into two tf32 (11 bits) and a product takes three
 * multiplications (make_split_left, make_split_right, multiply_split; Ootomo and Yokota, arXiv:2203.03341,
 * without rescaling). The error is 2^-21; infinities become NaN. */
#include "matrix/ptx_mma.h"

#define ELEMENT ((int)sizeof(STORED(MATRIX_T)))
#define UNIT_K (32 / ELEMENT)          /* depth of one multiplication */
#define VECTOR_ELEMENTS (16 / ELEMENT) /* elements in 16 bytes */

#define PAIR XPU_CAT(PAIR_, MATRIX_T) /* two elements in memory */
#define PAIR_bf16 ushort2
#define PAIR_f16 ushort2
#define PAIR_f32 float2
#define WHOLE_bf16 0
#define WHOLE_f16 0
#define WHOLE_f32 1
#define WHOLE_i8 0
#define MATRIX_IS_FP32 XPU_CAT(WHOLE_, MATRIX_T) /* fp32 */
#define BYTES_bf16 0
#define BYTES_f16 0
#define BYTES_f32 0
#define BYTES_i8 1
#define MATRIX_IS_INT8 XPU_CAT(BYTES_, MATRIX_T) /* int8 */

#if MATRIX_IS_INT8
typedef int4 fragment_sum;
typedef int2 sum_pair;
#else
typedef float4 fragment_sum;
typedef float2 sum_pair;
#endif

/* The value of the lane whose index differs in the bits of `mask`. */
#ifdef MATRIX_EMULATED
static inline float lane_across(float v, const uint mask) { return sub_group_shuffle(v, MATRIX_LANE ^ mask); }
#else
static inline float lane_across(float v, const uint mask) { return as_float(xpu_warp_xor(as_uint(v), mask)); }
#endif

#if MATRIX_IS_FP32
#define read_left_transposed read_left_transposed_f32
/* Loads with k in the order of accumulators used as a left operand (accumulators_as_left): rows 0, 2, 4, 6,
 * 1, 3, 5, 7. */
static inline uint4 read_right_transposed(local_tile s, uint from, uint step, const uint vecs) {
    const uint row = step * UNIT_K + MATRIX_LANE % 4 * 2;
    return read_right_rows(s, row, row + 1, from, vecs);
}
#define read_right_in_k_order read_right_transposed_f32
#elif MATRIX_IS_INT8
#define multiply_blocks multiply_i8
#define read_left_transposed read_left_transposed_i8
#define read_right_transposed read_right_transposed_i8
#else
#define multiply_blocks XPU_CAT(multiply_, MATRIX_T)
#define round_pair XPU_CAT(round_pair_, MATRIX_T)
#define add_pairs XPU_CAT(add_pairs_, MATRIX_T)
#define multiply_pairs XPU_CAT(multiply_pairs_, MATRIX_T)
#define read_left_transposed read_left_transposed_f16
#define read_right_transposed read_right_transposed_f16
#endif

/* Operands prepared for any number of multiplications, and accumulators converted to a left operand: one fp32
 * block, otherwise two blocks side by side. */
#if MATRIX_IS_FP32
typedef struct split_left {
    uint4 high, low;
} split_left;
typedef struct split_right {
    uint2 high, low;
} split_right;
static inline split_left make_split_left(uint4 v) {
    const uint4 high = v + 0x1000 & 0xffffe000u;
    return (split_left){high, as_uint4(as_float4(v) - as_float4(high)) + 0x1000};
}
static inline split_right make_split_right(uint2 v) {
    const uint2 high = v + 0x1000 & 0xffffe000u;
    return (split_right){high, as_uint2(as_float2(v) - as_float2(high)) + 0x1000};
}
static inline void multiply_split(__private float4 *sum, split_left a, split_right b) {
    multiply_tf32(sum, a.low, b.high);
    multiply_tf32(sum, a.high, b.low);
    multiply_tf32(sum, a.high, b.high);
}
#define BLOCKS_PER_LEFT 1
static inline fragment_a accumulators_as_left(__private const float4 *v) { return as_uint4(v->xzyw); }
#elif !MATRIX_IS_INT8
typedef fragment_a split_left;
typedef fragment_b split_right;
#define make_split_left(v) (v)
#define make_split_right(v) (v)
#define multiply_split multiply_blocks
#define BLOCKS_PER_LEFT 2
static inline fragment_a accumulators_as_left(__private const float4 *v) {
    return (uint4)(round_pair(v[0].x, v[0].y), round_pair(v[0].z, v[0].w), round_pair(v[1].x, v[1].y),
                   round_pair(v[1].z, v[1].w));
}
#endif
