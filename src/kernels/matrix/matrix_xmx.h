/* Tiled products on XMX (16 lanes) with operands read as 2D blocks; shared by matrix products (gemm_xmx.h),
 * convolutions and attention.
 *
 * Launch: a work-group of SUBGROUPS_M x SUBGROUPS_N subgroups computes one TILE_M x TILE_N tile. A subgroup
 * has SUMS_M x SUMS_N blocks of 8 x 16 accumulators: a work-item has a column of a block, its rows in a
 * float8. No local memory:
 * adjacent subgroups share operands through the cache.
 * Contract: reads outside a matrix return zeros. Block reads require that every matrix of an operand starts
 * at a multiple of 64 bytes, has rows of at least 64 bytes, a multiple of 4, at a pitch that is a multiple of
 * 16, and fewer than 2^24 rows of fewer than 2^24 bytes (cl_intel_subgroup_matrix_multiply_accumulate,
 * cl_intel_subgroup_2d_block_io).
 * Options: MATRIX_T (bf16, f16, i8, or f32, truncated to tf32); TILE_M, TILE_N, SUBGROUPS_M, SUBGROUPS_N;
 * A_K_MAJOR (0 for half precision only, with B_K_MAJOR 0), B_K_MAJOR; for i8 MULTIPLY_BYTES. A step, TILE_K,
 * is 64 bytes of every row, half of which is one multiplication. With MATRIX_EMULATED the builtins are
 * emulated (xmx_emulation.cl). The block reads in this file are a convolution's. Attention defines SUMS_M. */
#ifdef MATRIX_EMULATED
#include "matrix/xmx_emulation.cl"
#define UNROLL _Pragma("nounroll")
#else
#define UNROLL __attribute__((opencl_unroll_hint))
#endif

/* Reads can have immediate offsets; not on PVC, and not with -DNO_BLOCK_OFFSETS (for tests). */
#if (defined(XPU_HAS_BLOCK_OFFSETS) || defined(MATRIX_EMULATED)) && !defined(NO_BLOCK_OFFSETS)
#define HAS_OFFSETS 1
#else
#define HAS_OFFSETS 0
#endif
/* A scheduling barrier for the compiler, without any instruction. */
#define NO_REORDER sub_group_barrier(0)

#define MATRIX_SUBGROUP_SIZE 16
#define ELEMENT ((int)sizeof(STORED(MATRIX_T)))
#define STEP_K (64 / ELEMENT)
/* One multiplication. Left block: a word (or half a dword) of each of 8 rows, or two fp32 rows side by
 * side. Right block: 8 dwords along k of a column, whatever the element type. The last argument is the
 * accumulator. */
#define MULTIPLY_bf16 intel_sub_group_bf16_bf16_matrix_mad_k16
#define MULTIPLY_f16 intel_sub_group_f16_f16_matrix_mad_k16
#define MULTIPLY_i8 MULTIPLY_BYTES
#define MULTIPLY_f32(a, b, sum) intel_sub_group_tf32_tf32_matrix_mad_k8(a, as_float8(b), sum)
#define MULTIPLY XPU_CAT(MULTIPLY_, MATRIX_T)
#define LEFT_bf16 short8
#define LEFT_f16 short8
#define LEFT_i8 short8
#define LEFT_f32 float4
#define left_block XPU_CAT(LEFT_, MATRIX_T)
#define SUMS_bf16 float8
#define SUMS_f16 float8
#define SUMS_i8 int8
#define SUMS_f32 float8
#define sum_block XPU_CAT(SUMS_, MATRIX_T)
#define WHOLE_bf16 0
#define WHOLE_f16 0
#define WHOLE_i8 0
#define WHOLE_f32 1
#define MATRIX_IS_FP32 XPU_CAT(WHOLE_, MATRIX_T) /* fp32 */
#define BYTES_bf16 0
#define BYTES_f16 0
#define BYTES_i8 1
#define BYTES_f32 0
#define MATRIX_IS_INT8 XPU_CAT(BYTES_, MATRIX_T)

/* Subgroups share the dequantized elements of B (gemm_xmx_dequant.h). */
#define SHARED_B (QUANTIZED_B && SUBGROUPS_M * SUBGROUPS_N >= 32)
#ifdef TILE_M
#define THREADS (SUBGROUPS_M * SUBGROUPS_N * MATRIX_SUBGROUP_SIZE)
/* A K-major right operand is read by transposed reads of 16 columns, an M-major left operand of half
 * precision or bytes by reads of 32 rows: there the subgroups of a square tile have fewer columns and more
 * rows. If the right operand is dequantized, a subgroup has as few columns as possible. */
#if SHARED_B
#define SUBGROUPS_ALONG_N (TILE_N / (HAS_OFFSETS ? 32 : 16))
#define SUBGROUPS_ALONG_M (SUBGROUPS_M * SUBGROUPS_N / SUBGROUPS_ALONG_N)
#elif QUANTIZED_B
#define SUBGROUPS_ALONG_N (SUBGROUPS_M * SUBGROUPS_N < TILE_N / 16 ? SUBGROUPS_M * SUBGROUPS_N : TILE_N / 16)
#define SUBGROUPS_ALONG_M (SUBGROUPS_M * SUBGROUPS_N / SUBGROUPS_ALONG_N)
#elif B_K_MAJOR && TILE_M == TILE_N && !MATRIX_IS_FP32
#define SUBGROUPS_ALONG_M SUBGROUPS_N
#define SUBGROUPS_ALONG_N SUBGROUPS_M
#else
#define SUBGROUPS_ALONG_M SUBGROUPS_M
#define SUBGROUPS_ALONG_N SUBGROUPS_N
#endif
#define SUMS_M (TILE_M / SUBGROUPS_ALONG_M / 8)
#define SUMS_N (TILE_N / SUBGROUPS_ALONG_N / 16)
#endif

/* An operand in memory: `height` rows of `width` bytes, `pitch` bytes apart. */
typedef struct surface {
    __global void *base;
    int width, height, pitch;
} surface;

/* An M-major half-precision operand is loaded by a transposed read of dwords, so that a register has pairs of
 * rows: two moves per pair separate them. */
static inline void transpose_pairs(__private short8 *to, __private const uint *pairs, int blocks) {
    for (int i = 0; i < blocks; i++) {
        const short2 a = as_short2(pairs[i * 4]), b = as_short2(pairs[i * 4 + 1]),
                     c = as_short2(pairs[i * 4 + 2]), d = as_short2(pairs[i * 4 + 3]);
        to[i] = (short8)(a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y);
    }
}
/* Half a step, 16 elements of k, of such rows. */
static inline void read_a_across(__private short8 *to, const surface *s, int m0, int k) {
    for (int first = 0; first < SUMS_M; first += 2) {
        uint pairs[8];
        intel_sub_group_2d_block_read_transpose_32b_16r8x1c(s->base, s->width, s->height, s->pitch,
                                                            (int2)(m0 / 2 + first * 4, k), pairs);
        transpose_pairs(&to[first], pairs, min(2, SUMS_M - first));
    }
}

/* Half a step of two adjacent blocks of 16 columns from n on, as dwords of elements adjacent in k; of half-
 * precision rows along n. */
static inline void read_b_half(__private int8 *to, const surface *s, int n, int k) {
    union {
        uint dwords[16];
        int8 blocks[2];
    } b;
    intel_sub_group_2d_block_read_transform_16b_16r16x2c(s->base, s->width, s->height, s->pitch, (int2)(n, k),
                                                         b.dwords);
    to[0] = b.blocks[0], to[1] = b.blocks[1];
}
/* A step of them, or of bytes: [block][half]. */
static inline void read_b_twice(__private int8 (*to)[2], const surface *s, int n, int k) {
#if MATRIX_IS_INT8
    union {
        uint dwords[16];
        int8 blocks[2];
    } b;
    for (int h = 0; h < 2; h++) {
        intel_sub_group_2d_block_read_transform_8b_32r16x2c(s->base, s->width, s->height, s->pitch,
                                                            (int2)(n, k + h * 32), b.dwords);
        to[0][h] = b.blocks[0], to[1][h] = b.blocks[1];
    }
#else
    union {
        uint dwords[32];
        int8 blocks[2][2];
    } b;
    intel_sub_group_2d_block_read_transform_16b_32r16x2c(s->base, s->width, s->height, s->pitch, (int2)(n, k),
                                                         b.dwords);
    UNROLL for (int i = 0; i < 4; i++)
        to[i / 2][i % 2] = b.blocks[i / 2][i % 2];
#endif
}

/* Accumulators rounded to half precision, in the layout of left blocks. */
#define ROUND_bf16(v) as_short8(intel_convert_bfloat168_as_ushort8(v))
#define ROUND_f16(v) as_short8(narrow8_f16(v))
#define ROUND_BLOCK XPU_CAT(ROUND_, MATRIX_T)

#ifdef TILE_M
/* If the halves of a right block are two reads, each half of the multiplications uses some of both: this
 * needs fewer waits. */
#ifndef ALTERNATE_HALVES
#define ALTERNATE_HALVES (HAS_OFFSETS && (MATRIX_IS_INT8 || (B_K_MAJOR && !MATRIX_IS_FP32)))
#endif
static inline void multiply_blocks(__private sum_block (*sum)[SUMS_N], __private left_block (*left)[SUMS_M],
                                   __private int8 (*right)[2]) {
    UNROLL for (int g = 0; g < 2; g++) {
        UNROLL for (int j = 0; j < SUMS_N; j++) {
            const int h = ALTERNATE_HALVES ? (j + g) % 2 : g;
            UNROLL for (int i = 0; i < SUMS_M; i++)
                sum[i][j] = MULTIPLY(left[h][i], right[j][h], sum[i][j]);
        }
#if ALTERNATE_HALVES && B_K_MAJOR
        NO_REORDER;
#endif
    }
}
#endif
