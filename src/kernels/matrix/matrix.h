/* Tiled products on NVIDIA tensor cores: C[TILE_M][TILE_N] += A[TILE_M][k] B[k][TILE_N].
 *
 * Launch: a work-group of SUBGROUPS_M x SUBGROUPS_N subgroups computes one tile; a subgroup has FRAGMENTS_M x
 * FRAGMENTS_N blocks of 16 x 8 accumulators in registers, four per work-item (ptx_mma.h).
 * Algorithm: multistage pipeline. Tiles of A and B, TILE_K deep, are copied asynchronously to local memory
 * STAGES - 1 steps ahead of their use, in 16-byte vectors. Operands keep their memory layout: rows are rows
 * of k if the operand is K-major (A_K_MAJOR, B_K_MAJOR), else rows of m or n. Vectors are swizzled within
 * rows so that fragment loads hit all banks. fp32 is rounded to tf32; int8 accumulates in int32.
 * Options: those of matrix_ptx.h; TILE_M, TILE_N, TILE_K, SUBGROUPS_M, SUBGROUPS_N, STAGES, A_K_MAJOR,
 * B_K_MAJOR; A_ALIGNMENT, B_ALIGNMENT: bytes (16, 8, 4 or one element) to which all rows of the operand are
 * aligned. */
#include "matrix/matrix_ptx.h"

#define THREADS (SUBGROUPS_M * SUBGROUPS_N * MATRIX_SUBGROUP_SIZE)
#define FRAGMENTS_M (TILE_M / SUBGROUPS_M / 16)
#define FRAGMENTS_N (TILE_N / SUBGROUPS_N / 8)

#define LOCAL_TILE_A_BYTES (TILE_M * TILE_K * ELEMENT)
#define LOCAL_TILE_B_BYTES (TILE_N * TILE_K * ELEMENT)
#define STAGE_BYTES (LOCAL_TILE_A_BYTES + LOCAL_TILE_B_BYTES)

/* The vectors of an operand that a work-item copies at each step: the addresses of the next ones. */
typedef struct operand_a {
    xpu_addr from[VECTORS_PER_ITEM(TILE_M)];
} operand_a;
typedef struct operand_b {
    xpu_addr from[VECTORS_PER_ITEM(TILE_N)];
} operand_b;

/* Starts at `data`, the tile's first element, with `pitch` bytes per row. The matrix has `rows` of the tile's
 * rows (columns). Vectors beyond them repeat the last row or vector: the accumulators that they affect are
 * not stored. */
static inline void open_operand(__private xpu_addr *from, xpu_addr data, long pitch, int rows, const int tile,
                                const bool k_major) {
    const uint vecs = (k_major ? TILE_K : tile) / VECTOR_ELEMENTS;
    UNROLL for (uint i = 0; i < VECTORS_PER_ITEM(tile); i++) {
        const uint row = COPY_ROW(i, vecs), vec = COPY_COLUMN(i, vecs);
        from[i] = data + (k_major ? min(row, (uint)rows - 1) : row) * pitch +
                  (k_major ? vec : min(vec, ((uint)rows - 1) / VECTOR_ELEMENTS)) * 16;
    }
}

/* Copies a tile in whole vectors and advances by `step` bytes. Must not branch, so that the compiler can
 * place it between the multiplications. An aligned vector is in the same page as its first element, so
 * reading all of it is safe. */
static inline void load_local_tile(local_tile to, __private xpu_addr *from, long step, const int tile,
                                   const bool k_major) {
    const uint vecs = (k_major ? TILE_K : tile) / VECTOR_ELEMENTS;
    UNROLL for (uint i = 0; i < VECTORS_PER_ITEM(tile); i++) {
        copy_async(to + swizzled_offset(COPY_ROW(i, vecs), COPY_COLUMN(i, vecs), vecs), from[i]);
        from[i] += step;
    }
}

/* Copies a tile in pieces of `size` bytes; `depth` elements of k and `rows` are left, the rest becomes
 * zero. */
static inline void load_part(local_tile to, __private xpu_addr *from, long step, int depth, int rows,
                             const int tile, const bool k_major, const int size) {
    const uint vecs = (k_major ? TILE_K : tile) / VECTOR_ELEMENTS;
    UNROLL for (uint i = 0; i < VECTORS_PER_ITEM(tile); i++) {
        const uint row = COPY_ROW(i, vecs);
        const int vec = (int)COPY_COLUMN(i, vecs), left = (k_major ? depth : rows) - vec * VECTOR_ELEMENTS;
        const int valid = k_major || (int)row < depth ? clamp(left * ELEMENT, 0, 16) : 0;
        const local_tile place = to + swizzled_offset(row, (uint)vec, vecs);
        copy_vector_async(place, from[i], from[0], valid, size);
        from[i] += step;
    }
}

/* Distances in the fragment layout between adjacent accumulator rows of a block, and between its upper and
 * lower half (ptx_mma.h). */
#define LEFT_ROWS (MATRIX_IS_INT8 && !A_K_MAJOR ? 2 : 1)
#define LEFT_HALVES (MATRIX_IS_INT8 && !A_K_MAJOR ? 1 : 8)

/* The fragments that a subgroup multiplies at a time. */
typedef struct fragments {
    fragment_a a[FRAGMENTS_M];
    fragment_b b[FRAGMENTS_N];
} fragments;

#if MATRIX_IS_FP32
#define READ_ACROSS read_right_in_k_order
#define MULTIPLY_FRAGMENT multiply_tf32
#define ROUNDED(v, flip) rounded_to_tf32(v)
#else
#define READ_ACROSS read_right_transposed
#define MULTIPLY_FRAGMENT multiply_blocks
#define ROUNDED(v, flip) ((v) ^ (flip))
#endif
#ifndef A_FLIP /* of the bits of each dword (gemm.cl) */
#define A_FLIP 0u
#endif
#ifndef B_FLIP
#define B_FLIP 0u
#endif

static inline void load_fragments(__private fragments *f, local_tile stage, uint step) {
    const uint subgroup = get_local_id(0) / MATRIX_SUBGROUP_SIZE;
    const uint row = subgroup % SUBGROUPS_M * (FRAGMENTS_M * 16),
               column = subgroup / SUBGROUPS_M * (FRAGMENTS_N * 8);
    UNROLL for (uint i = 0; i < FRAGMENTS_M; i++)
        f->a[i] = A_K_MAJOR ? read_left(stage, row + i * 16, step, TILE_K / VECTOR_ELEMENTS)
                            : read_left_transposed(stage, row + i * 16, step, TILE_M / VECTOR_ELEMENTS);
    UNROLL for (uint j = 0; j < FRAGMENTS_N; j += 2) {
        const local_tile b = stage + LOCAL_TILE_A_BYTES;
        const uint4 r = B_K_MAJOR ? read_right(b, column + j * 8, step, TILE_K / VECTOR_ELEMENTS)
                                  : READ_ACROSS(b, column + j * 8, step, TILE_N / VECTOR_ELEMENTS);
        f->b[j] = r.xy;
        f->b[j + 1] = r.zw;
    }
}

static inline void multiply_fragments(__private fragment_sum (*sum)[FRAGMENTS_N],
                                      __private const fragments *f) {
    fragments r; /* round here: rounding on loading would wait for the load */
    UNROLL for (uint i = 0; i < FRAGMENTS_M; i++)
        r.a[i] = ROUNDED(f->a[i], A_FLIP);
    UNROLL for (uint j = 0; j < FRAGMENTS_N; j += 2) {
        const uint4 two = ROUNDED(((uint4)(f->b[j], f->b[j + 1])), B_FLIP);
        r.b[j] = two.xy, r.b[j + 1] = two.zw;
    }
    UNROLL for (uint i = 0; i < FRAGMENTS_M; i++) UNROLL
        for (uint j = 0; j < FRAGMENTS_N; j++) MULTIPLY_FRAGMENT(&sum[i][j], r.a[i], r.b[j]);
}

/* Adds the product over `local_tiles` tiles, a multiple of LOCAL_TILES_PER_ITERATION, to `sum`. LOAD(stage,
 * step, part) copies the next tile of both operands, number `step`, in LOADS parts, of which the first starts
 * all copies. The parts are placed between the multiplications. Tiles loaded beyond the last one are ignored.
 * `stages` has STAGES STAGE_BYTES. Fragments are double-buffered in registers: while one step's are
 * multiplied, the next step's are loaded, at the end of a tile from the next tile. On return no copy is in
 * flight. */
#define STEPS (TILE_K / UNIT_K)
#define LOCAL_TILES_PER_ITERATION (STEPS == 1 ? 2 : 1)
#if QUANTIZED_B
#define LOADS (STEPS > 1 ? STEPS - 1 : 1)
#else
#define LOADS 1
#endif
#define MATRIX_PRODUCT(sum, stages, local_tiles, LOAD)                                                       \
    do {                                                                                                     \
        for (int s_ = 0; s_ < STAGES - 1; s_++) {                                                            \
            UNROLL for (int u_ = 0; u_ < LOADS; u_++)                                                        \
                LOAD((stages) + s_ * STAGE_BYTES, s_, u_);                                                   \
            commit_copies();                                                                                 \
        }                                                                                                    \
        fragments f_[2];                                                                                     \
        int now_ = 0, next_ = (STAGES - 1) * STAGE_BYTES;                                                    \
        WAIT_FOR_COPIES(STAGES - 2);                                                                         \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
        load_fragments(&f_[0], (stages), 0);                                                                 \
        for (int s_ = 0; s_ < (local_tiles); s_ += LOCAL_TILES_PER_ITERATION) {                              \
            UNROLL for (int u_ = 0; u_ < LOCAL_TILES_PER_ITERATION * STEPS; u_++) {                          \
                if (u_ % STEPS < LOADS) /* all fragments of the previous tile have been loaded */            \
                    LOAD((stages) + next_, s_ + u_ / STEPS + STAGES - 1, u_ % STEPS);                        \
                if (u_ % STEPS == 0) commit_copies();                                                        \
                if (u_ % STEPS == STEPS - 1) { /* the next tile must have arrived */                         \
                    next_ = next_ == (STAGES - 1) * STAGE_BYTES ? 0 : next_ + STAGE_BYTES;                   \
                    WAIT_FOR_COPIES(STAGES - 2);                                                             \
                    barrier(CLK_LOCAL_MEM_FENCE);                                                            \
                    now_ = now_ == (STAGES - 1) * STAGE_BYTES ? 0 : now_ + STAGE_BYTES;                      \
                }                                                                                            \
                load_fragments(&f_[(u_ + 1) % 2], (stages) + now_, (u_ + 1) % STEPS);                        \
                multiply_fragments(sum, &f_[u_ % 2]);                                                        \
            }                                                                                                \
        }                                                                                                    \
        WAIT_FOR_COPIES(0);                                                                                  \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
    } while (0)

/* The same for one tile that LOAD(stage, step) copies, without prefetching. */
#define MATRIX_PRODUCT_OF_TILE(sum, stages, step, LOAD)                                                      \
    do {                                                                                                     \
        UNROLL for (int u_ = 0; u_ < LOADS; u_++)                                                            \
            LOAD(stages, step, u_);                                                                          \
        commit_copies();                                                                                     \
        WAIT_FOR_COPIES(0);                                                                                  \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
        fragments f_;                                                                                        \
        for (int u_ = 0; u_ < STEPS; u_++) {                                                                 \
            load_fragments(&f_, stages, u_);                                                                 \
            multiply_fragments(sum, &f_);                                                                    \
        }                                                                                                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
    } while (0)
