/* Products by Intel's matrix units of 16 lanes, their operands read from memory as blocks.
 *
 * A work-group of TEAMS_M x TEAMS_N teams computes a tile of TILE_M x TILE_N sums. A team is a subgroup, and
 * has SUMS_M x SUMS_N blocks of 8 x 16 sums in registers: a work-item a column of a block, its rows in a
 * float8. No local memory: neighbouring teams find each other's operands in the cache.
 *
 * Reads beyond the matrix give zeros. The rules of block reads: all matrices of an operand begin at multiples
 * of 64 bytes, have lines of 64 bytes or more, a multiple of 4, a multiple of 16 apart, and fewer than 2^24
 * lines of fewer than 2^24 bytes. (cl_intel_subgroup_matrix_multiply_accumulate,
 * cl_intel_subgroup_2d_block_io)
 *
 * Wants MATRIX_T (bf16, f16, i8, or f32, whose numbers are cut to tf32), TILE_M, TILE_N, TEAMS_M, TEAMS_N and
 * B_K_FAST; A lies along k. A step, TILE_K, is 64 bytes of each line; a multiplication takes half of it. With
 * MATRIX_EMULATED the builtins are written out (matrix_units.cl). Attention wants SUMS_M, and takes the reads
 * of halves alone. */
#ifdef MATRIX_EMULATED
#include "matrix_units.cl"
#define WRITTEN_OUT _Pragma("nounroll")
#else
#define WRITTEN_OUT __attribute__((opencl_unroll_hint))
#endif

#define MATRIX_TEAM 16
#define ELEMENT ((int)sizeof(STORED(MATRIX_T)))
#define STEP_K (64 / ELEMENT)
#ifdef TILE_M
#define THREADS (TEAMS_M * TEAMS_N * MATRIX_TEAM)
#define SUMS_M (TILE_M / TEAMS_M / 8)
#define SUMS_N (TILE_N / TEAMS_N / 16)
#endif

/* A multiplication; its left block: a word, or half a dword, of each of 8 rows, or two rows of fp32 side by
 * side; its sums. The right block is 8 dwords along k of a column, of whatever numbers. */
#define MULTIPLY_bf16 intel_sub_group_bf16_bf16_matrix_mad_k16
#define MULTIPLY_f16 intel_sub_group_f16_f16_matrix_mad_k16
#define MULTIPLY_i8 intel_sub_group_i8_i8_matrix_mad_k32
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
#define MATRIX_WHOLE XPU_CAT(WHOLE_, MATRIX_T) /* fp32 */
#define BYTES_bf16 0
#define BYTES_f16 0
#define BYTES_i8 1
#define BYTES_f32 0
#define MATRIX_BYTES XPU_CAT(BYTES_, MATRIX_T)

#if SUMS_M == 4
#define READ_A intel_sub_group_2d_block_read_16b_32r16x2c
#elif SUMS_M == 2
#define READ_A intel_sub_group_2d_block_read_16b_16r16x2c
#else
#define READ_A intel_sub_group_2d_block_read_16b_8r16x2c
#endif
/* An operand in memory: lines of `width` bytes, `height` of them, `pitch` bytes apart. */
typedef struct surface {
    __global void *base;
    int width, height, pitch;
} surface;

/* A step of the team's rows from m0 on: [half][block of rows]. */
static inline void read_a(__private left_block (*to)[SUMS_M], const surface *s, int m0, int k) {
#if MATRIX_WHOLE
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < SUMS_M; i++) {
            union {
                uint numbers[4];
                float4 block;
            } a;
            intel_sub_group_2d_block_read_32b_8r8x1c(s->base, s->width, s->height, s->pitch,
                                                     (int2)(k + h * 8, m0 + i * 8), a.numbers);
            to[h][i] = a.block;
        }
#else
    union {
        ushort numbers[SUMS_M * 16];
        left_block blocks[2][SUMS_M];
    } a;
    READ_A(s->base, s->width, s->height, s->pitch, (int2)(k * ELEMENT / 2, m0), a.numbers);
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < SUMS_M; i++) to[h][i] = a.blocks[h][i];
#endif
}

/* A step of 16 columns from n on: [half], in dwords of neighbours in k. Of an operand that lies along k, … */
static inline void read_b_along(__private int8 *to, const surface *s, int n, int k) {
    union {
        uint dwords[16];
        int8 blocks[2];
    } b;
    for (int i = 0; i < 2; i++)
        intel_sub_group_2d_block_read_transpose_32b_16r8x1c(
            s->base, s->width, s->height, s->pitch, (int2)(k * ELEMENT / 4 + i * 8, n), b.dwords + i * 8);
    to[0] = b.blocks[0], to[1] = b.blocks[1];
}
/* … or of halves along its columns. */
static inline void read_b_across(__private int8 *to, const surface *s, int n, int k) {
    union {
        uint dwords[16];
        int8 blocks[2];
    } b;
    intel_sub_group_2d_block_read_transform_16b_32r16x1c(s->base, s->width, s->height, s->pitch, (int2)(n, k),
                                                         b.dwords);
    to[0] = b.blocks[0], to[1] = b.blocks[1];
}
/* … and two such blocks of columns beside each other: [block][half]. */
static inline void read_b_twice(__private int8 (*to)[2], const surface *s, int n, int k) {
    union {
        uint dwords[32];
        int8 blocks[2][2];
    } b;
#if MATRIX_WHOLE
    for (int j = 0; j < 2; j++)
        intel_sub_group_2d_block_read_32b_16r16x1c(s->base, s->width, s->height, s->pitch,
                                                   (int2)(n + j * 16, k), b.dwords + j * 16);
#elif MATRIX_BYTES
    union {
        uint dwords[16];
        int8 blocks[2];
    } both;
    for (int h = 0; h < 2; h++) {
        intel_sub_group_2d_block_read_transform_8b_32r16x2c(s->base, s->width, s->height, s->pitch,
                                                            (int2)(n, k + h * 32), both.dwords);
        to[0][h] = both.blocks[0], to[1][h] = both.blocks[1];
    }
    return;
#else
    intel_sub_group_2d_block_read_transform_16b_32r16x2c(s->base, s->width, s->height, s->pitch, (int2)(n, k),
                                                         b.dwords);
#endif
    for (int i = 0; i < 4; i++) to[i / 2][i % 2] = b.blocks[i / 2][i % 2];
}

#ifdef TILE_M
/* A step of all of a team's columns, from number `d` of k on: counted in what the read counts, dwords along
 * k, since to work it out at each step took a fifth of the instructions. */
#define K_EACH (B_K_FAST ? 4 / ELEMENT : 1)
static inline void read_b(__private int8 (*to)[2], const surface *s, int n, int d) {
#if B_K_FAST
    union {
        uint dwords[8];
        int8 block;
    } b;
    for (int j = 0; j < SUMS_N; j++)
        for (int h = 0; h < 2; h++) {
            intel_sub_group_2d_block_read_transpose_32b_16r8x1c(s->base, s->width, s->height, s->pitch,
                                                                (int2)(d + h * 8, n + j * 16), b.dwords);
            to[j][h] = b.block;
        }
#elif MATRIX_BYTES && SUMS_N == 4
    union {
        uint dwords[32];
        int8 blocks[4];
    } b;
    for (int h = 0; h < 2; h++) {
        intel_sub_group_2d_block_read_transform_8b_32r16x4c(s->base, s->width, s->height, s->pitch,
                                                            (int2)(n, d + h * 32), b.dwords);
        for (int j = 0; j < 4; j++) to[j][h] = b.blocks[j];
    }
#else
    WRITTEN_OUT for (int j = 0; j < SUMS_N; j += 2) read_b_twice(&to[j], s, n + j * 16, d);
#endif
}
#endif

/* Sums, rounded: rows of a left operand as they lie. */
#define ROUND_bf16(v) as_short8(intel_convert_bfloat168_as_ushort8(v))
#define ROUND_f16(v) as_short8(narrow8_f16(v))
#define ROUND_BLOCK XPU_CAT(ROUND_, MATRIX_T)

#ifdef TILE_M
static inline void multiply_blocks(__private sum_block (*sum)[SUMS_N], __private left_block (*left)[SUMS_M],
                                   __private int8 (*right)[2]) {
    WRITTEN_OUT for (int h = 0; h < 2; h++) WRITTEN_OUT for (int j = 0; j < SUMS_N; j++)
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) sum[i][j] = MULTIPLY(left[h][i], right[j][h], sum[i][j]);
}

/* Adds the product of the team's rows from m0 and columns from n0 on over k_begin … k_end - 1 to `sum`. k_end
 * is a multiple of a step away from k_begin, or the end of the matrices. */
static inline void multiply_surfaces(__private sum_block (*sum)[SUMS_N], const surface *a, const surface *b,
                                     int m0, int n0, int k_begin, int k_end) {
    const int end = (k_end + K_EACH - 1) / K_EACH;
    for (int d = k_begin / K_EACH; d < end; d += STEP_K / K_EACH) {
        left_block left[2][SUMS_M];
        int8 right[SUMS_N][2];
        read_a(left, a, m0, d * K_EACH);
        read_b(right, b, n0, d);
        multiply_blocks(sum, left, right);
    }
}
#endif
