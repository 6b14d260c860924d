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
 * Wants MATRIX_T (bf16, f16, i8, or f32, whose numbers are cut to tf32), TILE_M, TILE_N, TEAMS_M, TEAMS_N,
 * A_K_FAST (0 for halves alone, with B_K_FAST 0) and B_K_FAST. A step, TILE_K, is 64 bytes of each line; a
 * multiplication takes half of it. With MATRIX_EMULATED the builtins are written out (matrix_units.cl).
 * Attention wants SUMS_M, and takes the reads of halves alone. */
#ifdef MATRIX_EMULATED
#include "matrix_units.cl"
#define WRITTEN_OUT _Pragma("nounroll")
#else
#define WRITTEN_OUT __attribute__((opencl_unroll_hint))
#endif

#define MATRIX_TEAM 16
#define ELEMENT ((int)sizeof(STORED(MATRIX_T)))
#define STEP_K (64 / ELEMENT)
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

#ifdef TILE_M
#define THREADS (TEAMS_M * TEAMS_N * MATRIX_TEAM)
/* A right operand along k comes by reads that turn 16 columns each, a left one of halves or bytes by reads of
 * 32 rows: there the teams of a square tile have fewer columns and more rows. */
#if B_K_FAST && TILE_M == TILE_N && !MATRIX_WHOLE
#define TEAMS_DOWN TEAMS_N
#define TEAMS_ACROSS TEAMS_M
#else
#define TEAMS_DOWN TEAMS_M
#define TEAMS_ACROSS TEAMS_N
#endif
#define SUMS_M (TILE_M / TEAMS_DOWN / 8)
#define SUMS_N (TILE_N / TEAMS_ACROSS / 16)
#endif

#define ROWS_AT_ONCE (SUMS_M < 4 ? SUMS_M : 4) /* blocks of 8 */
#if SUMS_M >= 4
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

/* A step of the team's rows from m0 on: [half][block of rows]; `k` counts words, or dwords
 * of fp32. */
static inline void read_a(__private left_block (*to)[SUMS_M], const surface *s, int m0, int k) {
#if MATRIX_WHOLE /* of larger reads the compiler would copy what each multiplication takes */
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
    for (int first = 0; first < SUMS_M; first += ROWS_AT_ONCE) {
        union {
            ushort numbers[ROWS_AT_ONCE * 16];
            left_block blocks[2][ROWS_AT_ONCE];
        } a;
        READ_A(s->base, s->width, s->height, s->pitch, (int2)(k, m0 + first * 8), a.numbers);
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < ROWS_AT_ONCE; i++) to[h][first + i] = a.blocks[h][i];
    }
#endif
}

/* Half a step, 16 of k, of rows of halves that lie across k, by pairs of rows: a turned read has pairs in
 * dwords, a register for each, which two movements a pair put behind each other. */
static inline void read_a_across(__private short8 *to, const surface *s, int m0, int k) {
    for (int first = 0; first < SUMS_M; first += 2) {
        uint pairs[8];
        intel_sub_group_2d_block_read_transpose_32b_16r8x1c(s->base, s->width, s->height, s->pitch,
                                                            (int2)(m0 / 2 + first * 4, k), pairs);
        for (int i = 0; i < 2 && first + i < SUMS_M; i++) {
            const short2 a = as_short2(pairs[i * 4]), b = as_short2(pairs[i * 4 + 1]),
                         c = as_short2(pairs[i * 4 + 2]), d = as_short2(pairs[i * 4 + 3]);
            to[first + i] = (short8)(a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y);
        }
    }
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
/* Half a step of two such blocks beside each other. */
static inline void read_b_half(__private int8 *to, const surface *s, int n, int k) {
    union {
        uint dwords[16];
        int8 blocks[2];
    } b;
    intel_sub_group_2d_block_read_transform_16b_16r16x2c(s->base, s->width, s->height, s->pitch, (int2)(n, k),
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
/* A step of all of a team's columns, from number `d` of k on; where they lie along k, from dword `d`. */
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
#if MATRIX_BYTES && defined(A_FLIP)
    WRITTEN_OUT for (int h = 0; h < 2; h++) WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) left[h][i] ^=
        (short)A_FLIP;
#endif
#if MATRIX_BYTES && defined(B_FLIP)
    WRITTEN_OUT for (int h = 0; h < 2; h++) WRITTEN_OUT for (int j = 0; j < SUMS_N; j++) right[j][h] ^=
        (int)B_FLIP;
#endif
    WRITTEN_OUT for (int h = 0; h < 2; h++) WRITTEN_OUT for (int j = 0; j < SUMS_N; j++)
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) sum[i][j] = MULTIPLY(left[h][i], right[j][h], sum[i][j]);
}

/* Where a step begins along k: counted in what the reads count, since to work these out from one another at
 * each step took a fifth of the instructions. */
typedef struct place_k {
    int of_a, of_b;
} place_k;
#define A_BYTES (MATRIX_WHOLE ? 4 : 2) /* that it is counted in along k */
#define A_STEP (A_K_FAST ? 64 / A_BYTES : STEP_K)
#define B_STEP (STEP_K / K_EACH) /* dwords, or numbers */
static inline place_k further(place_k at, int steps) {
    return (place_k){at.of_a + steps * A_STEP, at.of_b + steps * B_STEP};
}

static inline void multiply_step(__private sum_block (*sum)[SUMS_N], const surface *a, const surface *b,
                                 int m0, int n0, place_k at) {
    left_block left[2][SUMS_M];
    int8 right[SUMS_N][2];
#if A_K_FAST
    read_a(left, a, m0, at.of_a);
#else
    for (int h = 0; h < 2; h++) read_a_across(left[h], a, m0, at.of_a + h * 16);
#endif
    read_b(right, b, n0, at.of_b);
    multiply_blocks(sum, left, right);
}

/* The steps that the loop takes at once: more than one where reads have offsets of their own, else each wants
 * an address more than it saves. */
#ifndef AT_ONCE
#if defined(XPU_HAS_BLOCK_OFFSETS) || defined(MATRIX_EMULATED)
#define AT_ONCE 4
#else
#define AT_ONCE 2
#endif
#endif

/* The teams of a group ask the cache for its tile of the next steps, in blocks of 32 lines of 64 bytes: every
 * other team for A's, the others for B's, each for the BLOCKS from its own number on. */
#define TEAMS (TEAMS_M * TEAMS_N)
#define BLOCKS (TILE_M == TILE_N ? AT_ONCE * TILE_M / 32 / (TEAMS / 2) : 0)
#if BLOCKS
typedef struct share {
    surface of;
    int2 at[BLOCKS], step;
} share;

static inline share share_of(const surface *a, const surface *b, int m, int n, place_k at) {
    const uint team =
        sub_group_broadcast((uint)get_local_id(0) / MATRIX_TEAM, 0); /* the same for all lanes */
    const bool of_b = team % 2, k_fast = of_b ? B_K_FAST : A_K_FAST;
    const int k = of_b ? at.of_b * (B_K_FAST ? 2 : 1) : at.of_a * (A_K_FAST ? A_BYTES / 2 : 1);
    const int along = AT_ONCE * (k_fast ? 32 : STEP_K) / 32;
    share own = {.of = of_b ? *b : *a};
    WRITTEN_OUT for (int i = 0; i < BLOCKS; i++) {
        const int block = (int)team / 2 + i * (TEAMS / 2);
        const int ahead = k + (along + block % along) * 32, line = (of_b ? n : m) + block / along * 32;
        own.at[i] =
            k_fast ? (int2)(ahead, line) : (int2)((of_b ? n : m) * ELEMENT / 2 + block / along * 32, ahead);
    }
    own.step = k_fast ? (int2)(along * 32, 0) : (int2)(0, along * 32);
    return own;
}
static inline void prefetch(__private share *own) {
    WRITTEN_OUT for (int i = 0; i < BLOCKS; i++) {
        intel_sub_group_2d_block_prefetch_16b_32r16x2c(own->of.base, own->of.width, own->of.height,
                                                       own->of.pitch, own->at[i]);
        own->at[i] += own->step;
    }
}
#endif

/* Adds the product of the team's rows from m0 and columns from n0 on, of the group's from m and n on, over
 * k_begin … k_end - 1 to `sum`. k_end is a multiple of a step away from k_begin, or the end of the matrices.
 */
static inline void multiply_surfaces(__private sum_block (*sum)[SUMS_N], const surface *a, const surface *b,
                                     int m, int n, int m0, int n0, int k_begin, int k_end) {
    const int steps = (k_end - k_begin + STEP_K - 1) / STEP_K;
    place_k at = {A_K_FAST ? k_begin * ELEMENT / A_BYTES : k_begin, k_begin / K_EACH};
    const int end = at.of_b + steps * B_STEP, whole = end - steps % AT_ONCE * B_STEP;
#if BLOCKS
    share own = share_of(a, b, m, n, at);
#endif
    while (at.of_b < whole) {
#if BLOCKS
        prefetch(&own);
#endif
        WRITTEN_OUT for (int i = 0; i < AT_ONCE; i++) multiply_step(sum, a, b, m0, n0, further(at, i));
        at = further(at, AT_ONCE);
    }
    for (; at.of_b < end; at = further(at, 1)) multiply_step(sum, a, b, m0, n0, at);
}
#endif
