/* The main loop of products on XMX (16 lanes): operands are 2D blocks of surfaces whose addresses stay in
 * registers (block_address.h). Include after matrix_xmx.h, which has geometry and options. */
#include "matrix/block_address.h"

/* The reads of a step of each operand: how many, their shape (columns, rows, blocks beside each other), and
 * where number r lies from the first on. */
#define ROWS_AT_ONCE (SUMS_M < 4 ? SUMS_M : 4) /* blocks of 8 */
#if !A_K_MAJOR
#define BLOCKS_A (SUMS_M < 2 ? SUMS_M : 2) /* of 8 rows in a read */
#define READS_A (2 * SUMS_M / BLOCKS_A)
#define SHAPE_A 8, 16, 1
#define X_OF_A(r) ((r) / 2 * 8)
#define Y_OF_A(r) ((r) % 2 * 16)
#elif MATRIX_IS_FP32 /* the compiler would copy the operands out of larger reads */
#define READS_A (2 * SUMS_M)
#define SHAPE_A 8, 8, 1
#define X_OF_A(r) ((r) / SUMS_M * 8)
#define Y_OF_A(r) ((r) % SUMS_M * 8)
#else
#define READS_A (SUMS_M / ROWS_AT_ONCE)
#define SHAPE_A 16, ROWS_AT_ONCE * 8, 2
#define X_OF_A(r) 0
#define Y_OF_A(r) ((r) * ROWS_AT_ONCE * 8)
#if SUMS_M >= 4
#define READ_A u16_m32k16v2
#define WORDS_OF_A 64
#elif SUMS_M == 2
#define READ_A u16_m16k16v2
#define WORDS_OF_A 32
#else
#define READ_A u16_m8k16v2
#define WORDS_OF_A 16
#endif
#endif

#if QUANTIZED_B /* gemm_xmx_dequant.h */
#define READS_B (SHARED_B ? 1 : SUMS_N)
#define SHAPE_B E_BITS, 16, 1
#define X_OF_B(r) 0
#define Y_OF_B(r) ((r) * 16)
#define READ_B XPU_CAT(transpose_u32_m16k, XPU_CAT(E_BITS, v1))
#elif B_K_MAJOR /* transposed reads of dwords */
#define READS_B (2 * SUMS_N)
#define SHAPE_B 8, 16, 1
#define X_OF_B(r) ((r) % 2 * 8)
#define Y_OF_B(r) ((r) / 2 * 16)
#elif MATRIX_IS_FP32
#define READS_B SUMS_N
#define SHAPE_B 16, 16, 1
#define X_OF_B(r) ((r) * 16)
#define Y_OF_B(r) 0
#elif MATRIX_IS_INT8
#define READS_B 2
#define SHAPE_B 16, 32, BLOCKS_OF_BYTES
#define X_OF_B(r) 0
#define Y_OF_B(r) ((r) * 32)
#define READ_B XPU_CAT(transform_u8_m32k16v, BLOCKS_OF_BYTES)
#if TILE_N / SUBGROUPS_ALONG_N == 64
#define BLOCKS_OF_BYTES 4
#define DWORDS_OF_BYTES 32
#else
#define BLOCKS_OF_BYTES 2
#define DWORDS_OF_BYTES 16
#endif
#else
#define READS_B (SUMS_N / 2)
#define SHAPE_B 16, 32, 2
#define X_OF_B(r) ((r) * 32)
#define Y_OF_B(r) 0
#endif

/* A step along K in the units of the operand's reads: words or dwords of a row, or rows. */
#define A_WORDS (MATRIX_IS_FP32 || !A_K_MAJOR ? 4 : 2) /* bytes of such a unit */
#define B_WORDS (B_K_MAJOR || MATRIX_IS_FP32 ? 4 : ELEMENT)
#define STEP_A (A_K_MAJOR ? 64 / A_WORDS : STEP_K)
#if QUANTIZED_B
#define STEP_B E_BITS
#define WORDS_B(k) ((k) * E_BITS / 32)
#else
#define STEP_B (B_K_MAJOR ? 64 / B_WORDS : STEP_K)
#define WORDS_B(k) ((k) * ELEMENT / B_WORDS)
#endif

/* Address payloads of an operand: one for all reads if reads have immediate offsets. */
#define KEPT(reads) (HAS_OFFSETS ? 1 : (reads))
typedef struct blocks_a {
    payload at[KEPT(READS_A)];
} blocks_a;
typedef struct blocks_b {
    payload at[KEPT(READS_B)];
} blocks_b;
/* The payload of read r of a step, and the offset of the read from it. */
#define KEPT_OF(o, r) (o)->at[HAS_OFFSETS ? 0 : (r)]
#define OFFSET(x) (HAS_OFFSETS ? (x) : 0)

/* Payloads of the reads of rows from m, or columns from n, on, at element k. */
static inline void open_a(__private blocks_a *a, const surface *s, int m, int k) {
    const int x = A_K_MAJOR ? k * ELEMENT / A_WORDS : m * ELEMENT / A_WORDS, y = A_K_MAJOR ? m : k;
    UNROLL for (int r = 0; r < KEPT(READS_A); r++)
        a->at[r] = OPEN(s, x + X_OF_A(r), y + Y_OF_A(r), SHAPE_A);
}
static inline void open_b(__private blocks_b *b, const surface *s, int n, int k) {
    const int x = B_K_MAJOR ? WORDS_B(k) : n, y = B_K_MAJOR ? n : k;
    UNROLL for (int r = 0; r < KEPT(READS_B); r++)
        b->at[r] = OPEN(s, x + X_OF_B(r), y + Y_OF_B(r), SHAPE_B);
}
/* Read r of a step, `ahead` steps after the one that the payloads describe. */
#define READ_OF_A(name, to, r)                                                                               \
    READ_BLOCK(name, to, KEPT_OF(a, r), OFFSET(X_OF_A(r) + (A_K_MAJOR ? ahead * STEP_A : 0)),                \
               OFFSET(Y_OF_A(r) + (A_K_MAJOR ? 0 : ahead * STEP_A)))
#define READ_OF_B(name, to, r)                                                                               \
    READ_BLOCK(name, to, KEPT_OF(b, r), OFFSET(X_OF_B(r) + (B_K_MAJOR ? ahead * STEP_B : 0)),                \
               OFFSET(Y_OF_B(r) + (B_K_MAJOR ? 0 : ahead * STEP_B)))

static inline void read_rows(__private left_block (*to)[SUMS_M], __private blocks_a *a, const int r,
                             const int ahead) {
#if !A_K_MAJOR
    union {
        BLOCK_VALUES(uint, 8);
        uint pairs[8];
    } v;
    READ_OF_A(transpose_u32_m16k8v1, v, r);
    transpose_pairs(&to[r % 2][r / 2 * BLOCKS_A], v.pairs, BLOCKS_A);
#elif MATRIX_IS_FP32
    union {
        BLOCK_VALUES(uint, 4);
        float4 block;
    } v;
    READ_OF_A(u32_m8k8v1, v, r);
    to[r / SUMS_M][r % SUMS_M] = v.block;
#else
    union {
        BLOCK_VALUES(ushort, WORDS_OF_A);
        left_block blocks[2][ROWS_AT_ONCE];
    } v;
    READ_OF_A(READ_A, v, r);
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < ROWS_AT_ONCE; i++) to[h][r * ROWS_AT_ONCE + i] = v.blocks[h][i];
#endif
}
static inline void read_left(__private left_block (*to)[SUMS_M], __private blocks_a *a, const int ahead) {
    UNROLL for (int r = 0; r < READS_A; r++)
        read_rows(to, a, r, ahead);
}

#if QUANTIZED_B
#include "gemm/gemm_xmx_dequant.h"
#else
static inline void read_right(__private int8 (*to)[2], __private blocks_b *b, const int ahead) {
    UNROLL for (int r = 0; r < READS_B; r++) {
#if B_K_MAJOR
        union {
            BLOCK_VALUES(uint, 8);
            int8 block;
        } v;
        READ_OF_B(transpose_u32_m16k8v1, v, r);
        to[r / 2][r % 2] = v.block;
#elif MATRIX_IS_FP32
        union {
            BLOCK_VALUES(uint, 16);
            int8 blocks[2];
        } v;
        READ_OF_B(u32_m16k16v1, v, r);
        to[r][0] = v.blocks[0], to[r][1] = v.blocks[1];
#elif MATRIX_IS_INT8
        union {
            BLOCK_VALUES(uint, DWORDS_OF_BYTES);
            int8 blocks[BLOCKS_OF_BYTES];
        } v;
        READ_OF_B(READ_B, v, r);
        for (int j = 0; j < SUMS_N; j++) to[j][r] = v.blocks[j];
#else
        union {
            BLOCK_VALUES(uint, 32);
            int8 blocks[2][2];
        } v;
        READ_OF_B(transform_u16_m32k16v2, v, r);
        for (int i = 0; i < 4; i++) to[r * 2 + i / 2][i % 2] = v.blocks[i / 2][i % 2];
#endif
    }
}

static inline void multiply_step(__private sum_block (*sum)[SUMS_N], __private blocks_a *a,
                                 __private blocks_b *b, const int ahead) {
    left_block left[2][SUMS_M];
    int8 right[SUMS_N][2];
    read_left(left, a, ahead);
    read_right(right, b, ahead);
    multiply_blocks(sum, left, right);
}
#endif

/* Steps per loop iteration. The subgroups of a work-group prefetch the work-group's tile of the next
 * iteration into the cache, in blocks of 32 rows of 64 bytes; each subgroup prefetches some blocks of A and
 * of B. */
#define AT_ONCE (HAS_OFFSETS || TILE_M < 128 ? 4 : 8)
#define SUBGROUPS (SUBGROUPS_M * SUBGROUPS_N)
#define REQUESTS (TILE_M == TILE_N ? AT_ONCE * TILE_M / 32 / SUBGROUPS : 0) /* per operand */
#if REQUESTS
typedef struct request {
    payload at[KEPT(REQUESTS)];
} request;
/* Blocks along K; coordinates of a subgroup's first block, and of its block i relative to the first. */
#define ALONG(k_major) (AT_ONCE * ((k_major) ? 32 : STEP_K) / 32)
#define FIRST_X(k_major, b) ((k_major) ? (b) % ALONG(true) : (b) / ALONG(false)) * 32
#define FIRST_Y(k_major, b) ((k_major) ? (b) / ALONG(true) : (b) % ALONG(false)) * 32

static inline void open_request(__private request *q, const surface *s, int first, int k,
                                const bool k_major) {
    const int subgroup =
        (int)sub_group_broadcast((uint)get_local_id(0) / MATRIX_SUBGROUP_SIZE, 0); /* uniform */
    const int x =
        (k_major ? k * ELEMENT / 2 + ALONG(true) * 32 : first * ELEMENT / 2) + FIRST_X(k_major, subgroup);
    const int y = (k_major ? first : k + ALONG(false) * 32) + FIRST_Y(k_major, subgroup);
    UNROLL for (int i = 0; i < KEPT(REQUESTS); i++)
        q->at[i] =
            OPEN(s, x + FIRST_X(k_major, i * SUBGROUPS), y + FIRST_Y(k_major, i * SUBGROUPS), 16, 32, 2);
}
/* Without immediate offsets, copies of the payloads are sent: changing a payload that was sent waits for its
 * read, and the copies are waited for all at once. */
#define ASK(p, x, y) __builtin_IB_subgroup_block_read_ap_prefetch_u16_m32k16v2(p, x, y, BOTH_CACHES)
#if HAS_OFFSETS
#define ASK_FOR(q, k_major, i)                                                                               \
    ASK(PAYLOAD((q)->at[0]), FIRST_X(k_major, (i) * SUBGROUPS), FIRST_Y(k_major, (i) * SUBGROUPS))
static inline void ask(__private request *a, __private request *b) {
    UNROLL for (int i = 0; i < REQUESTS; i++)
        ASK_FOR(a, A_K_MAJOR, i);
#if !QUANTIZED_B
    UNROLL for (int i = 0; i < REQUESTS; i++)
        ASK_FOR(b, B_K_MAJOR, i);
#endif
}
#else
static inline void ask(__private request *a, __private request *b) {
    payload sent[2 * REQUESTS];
    UNROLL for (int i = 0; i < REQUESTS; i++) {
        sent[2 * i] = __builtin_IB_subgroup_copyBlock2DAddressPayload(a->at[i]);
        sent[2 * i + 1] = __builtin_IB_subgroup_copyBlock2DAddressPayload(b->at[i]);
    }
    NO_REORDER;
    UNROLL for (int i = 0; i < 2 * REQUESTS; i++)
        ASK(PAYLOAD(sent[i]), 0, 0);
    NO_REORDER;
}
#endif
#endif

/* sum += A B for the subgroup's rows from m0 and columns from n0 on, over k_begin … k_end - 1. m and n are
 * those of the work-group's tile. k_end - k_begin is a multiple of the step, or k_end is the end of the
 * matrices. */
#if QUANTIZED_B
static inline void multiply_rows(__private sum_block (*sum)[SUMS_N], __private blocks_a *a,
                                 __private int8 (*right)[2], const int ahead) {
    UNROLL for (int r = 0; r < READS_A; r++) {
        left_block left[2][SUMS_M];
        read_rows(left, a, r, ahead);
        UNROLL for (int h = 0; h < 2; h++) UNROLL
            for (int j = 0; j < SUMS_N; j++) UNROLL
                for (int i = r * ROWS_AT_ONCE; i < (r + 1) * ROWS_AT_ONCE; i++)
                    sum[i][j] = MULTIPLY(left[h][i], right[j][h], sum[i][j]);
    }
}
#endif
#if QUANTIZED_B && !SHARED_B
static inline void multiply_surfaces(__private sum_block (*sum)[SUMS_N], const surface *sa, const surface *sb,
                                     int m, int n, int m0, int n0, int k_begin, int k_end,
                                     const quantized_lines *q, long batch) {
    if (k_begin >= k_end) return; /* an empty slice would read scales out of range */
    blocks_a a;
    blocks_b b;
    open_a(&a, sa, m0, k_begin);
    open_b(&b, sb, n0, k_begin);
    row_scale_offsets parts;
    open_scales(&parts, q, batch, n0, sb->height);
    octets next;
    next.group_end = k_begin;
    prefetch_quantized(&next, &b, &parts, q, k_begin, k_end);
    for (int k = k_begin; k < k_end; k += STEP_K) {
        int8 right[SUMS_N][2];
        dequantize_block(right, &next, q);
        go_on(b.at, KEPT(READS_B), true, STEP_B);
        prefetch_quantized(&next, &b, &parts, q, k + STEP_K, k_end);
        multiply_rows(sum, &a, right, 0);
#if !HAS_OFFSETS
        NO_REORDER;
#endif
        go_on(a.at, KEPT(READS_A), A_K_MAJOR, STEP_A);
    }
}
#elif QUANTIZED_B
static inline void multiply_shared_block(__private sum_block (*sum)[SUMS_N], __private blocks_a *a,
                                         const __local uint *made, const int ahead) {
    int8 right[SUMS_N][2];
    load_shared_block(right, made + ahead * (SUMS_N * SHARED_BLOCK));
    multiply_rows(sum, a, right, HAS_OFFSETS ? ahead : 0);
#if !HAS_OFFSETS
    NO_REORDER;
    go_on(a->at, KEPT(READS_A), A_K_MAJOR, STEP_A);
#endif
}
/* A round is dequantized while the previous one is multiplied. */
static inline void multiply_surfaces(__private sum_block (*sum)[SUMS_N], const surface *sa, const surface *sb,
                                     int m, int n, int m0, int n0, int k_begin, int k_end,
                                     const quantized_lines *q, long batch, __local uint *made) {
    if (k_begin >= k_end) return; /* an empty slice would read scales out of range */
    const int subgroup = (int)sub_group_broadcast((uint)get_local_id(0) / MATRIX_SUBGROUP_SIZE, 0);
    const int own = subgroup % SUBGROUPS_ALONG_M, line = n0 + own % SUMS_N * 16;
    int k = k_begin + own / SUMS_N * STEP_K;
    blocks_a a;
    blocks_b b;
    open_a(&a, sa, m0, k_begin);
    open_b(&b, sb, line, k);
    row_scale_offsets parts;
    open_scales(&parts, q, batch, line, sb->height);
    octets next;
    next.group_end = k_begin;
    made += subgroup / SUBGROUPS_ALONG_M * (SUBGROUPS_ALONG_M * SHARED_BLOCK);
    __local uint *other = made + SHARED_ROUND;
#define NEXT_ROUND(to)                                                                                       \
    {                                                                                                        \
        store_shared_block((to) + own * SHARED_BLOCK, &next, q);                                             \
        k += ROUND * STEP_K;                                                                                 \
        go_on(b.at, KEPT(READS_B), true, ROUND * STEP_B);                                                    \
        prefetch_quantized(&next, &b, &parts, q, k, k_end);                                                  \
    }
    prefetch_quantized(&next, &b, &parts, q, k, k_end);
    NEXT_ROUND(made)
    barrier(CLK_LOCAL_MEM_FENCE);
    const int steps = (k_end - k_begin + STEP_K - 1) / STEP_K;
    for (int times = steps / ROUND; times != 0; times--) {
        UNROLL for (int i = 0; i < ROUND; i++) {
            multiply_shared_block(sum, &a, made, i);
            if (i == ROUND / 2 - 1) NEXT_ROUND(other)
        }
#if HAS_OFFSETS
        go_on(a.at, KEPT(READS_A), A_K_MAJOR, ROUND * STEP_A);
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
        __local uint *const done = made;
        made = other, other = done;
    }
    for (int rest = steps % ROUND; rest > 0; rest--) {
        multiply_shared_block(sum, &a, made, 0);
        made += SUMS_N * SHARED_BLOCK;
#if HAS_OFFSETS
        go_on(a.at, KEPT(READS_A), A_K_MAJOR, STEP_A);
#endif
    }
#undef NEXT_ROUND
}
#else
static inline void multiply_surfaces(__private sum_block (*sum)[SUMS_N], const surface *sa, const surface *sb,
                                     int m, int n, int m0, int n0, int k_begin, int k_end) {
    blocks_a a;
    blocks_b b;
    open_a(&a, sa, m0, k_begin);
    open_b(&b, sb, n0, k_begin);
#if REQUESTS
    request of_a, of_b;
    open_request(&of_a, sa, m, k_begin, A_K_MAJOR);
    open_request(&of_b, sb, n, k_begin, B_K_MAJOR);
#endif
    const int steps = (k_end - k_begin + STEP_K - 1) / STEP_K;
    for (int times = steps / AT_ONCE; times != 0; times--) {
#if REQUESTS
        ask(&of_a, &of_b);
#endif
        UNROLL for (int i = 0; i < AT_ONCE; i++) {
            multiply_step(sum, &a, &b, HAS_OFFSETS ? i : 0);
#if !HAS_OFFSETS /* after the step's reads have returned; advancing during the read costs three more         \
                    instructions */
            NO_REORDER;
            go_on(a.at, KEPT(READS_A), A_K_MAJOR, STEP_A);
            go_on(b.at, KEPT(READS_B), B_K_MAJOR, STEP_B);
#endif
        }
#if HAS_OFFSETS
        go_on(a.at, KEPT(READS_A), A_K_MAJOR, AT_ONCE * STEP_A);
        go_on(b.at, KEPT(READS_B), B_K_MAJOR, AT_ONCE * STEP_B);
#endif
#if REQUESTS
        go_on(of_a.at, KEPT(REQUESTS), A_K_MAJOR, ALONG(A_K_MAJOR) * 32);
        go_on(of_b.at, KEPT(REQUESTS), B_K_MAJOR, ALONG(B_K_MAJOR) * 32);
#endif
    }
    for (int rest = steps % AT_ONCE; rest > 0; rest--) {
        multiply_step(sum, &a, &b, 0);
        go_on(a.at, KEPT(READS_A), A_K_MAJOR, STEP_A);
        go_on(b.at, KEPT(READS_B), B_K_MAJOR, STEP_B);
    }
}
#endif
