/* Tiled products on XMX (8 lanes; xmx8_blocks.h).
 *
 * Launch: a work-group of SUBGROUPS_M x SUBGROUPS_N subgroups computes one TILE_M x TILE_N tile. A subgroup
 * has SUMS_M x SUMS_N blocks of 8 x 8 accumulators: a work-item has a column of a block, its rows in a vector
 * of 8.
 * Algorithm: double buffering through local memory in blocked (DPAS) layout. A step is 64 bytes of every row
 * along k; a block is half a step deep. The next step's half rows are loaded into registers during a step and
 * stored afterwards.
 * Options: MATRIX_T (bf16, f16, i8), TILE_M, TILE_N, SUBGROUPS_M, SUBGROUPS_N. Both operands are K-major with
 * rows aligned to 16 bytes; the im2col operand of a convolution may be M-major in half precision. With
 * MATRIX_EMULATED, include xmx_emulation.cl first. */
#include "matrix/xmx8_blocks.h"

#define THREADS (SUBGROUPS_M * SUBGROUPS_N * MATRIX_SUBGROUP_SIZE)
#define SUBGROUPS_ALONG_M SUBGROUPS_M
#define SUMS_M (TILE_M / SUBGROUPS_M / 8)
#define SUMS_N (TILE_N / SUBGROUPS_N / 8)
#define STAGE ((TILE_M + TILE_N) * LINE)

/* The vectors (half rows) that a work-item loads of an operand at each step: byte offsets from the tile's
 * first. In the last round there may be more work-items than vectors: whole subgroups then load the tile's
 * last row again and do not store it. */
#define PIECES(tile) (((tile) * 2 + THREADS - 1) / THREADS)
#define IS_KEPT(i, tile) (((i) + 1) * THREADS <= (tile) * 2 || get_local_id(0) + (i) * THREADS < (tile) * 2)
typedef struct operand_a {
    uint at[PIECES(TILE_M)];
    uint8 next[PIECES(TILE_M)];
} operand_a;
typedef struct operand_b {
    uint at[PIECES(TILE_N)];
    uint8 next[PIECES(TILE_N)];
} operand_b;

/* Vector i of a work-item: its row, and which half of the row. For A, adjacent work-items share a row; for B,
 * a subgroup has eight columns, which are contiguous in a block. */
static inline uint vector_row(uint i, const bool is_left) {
    const uint e = (uint)get_local_id(0) + i * THREADS;
    return is_left ? e / 2 : e / 16 * 8 + e % 8;
}
static inline uint vector_half(uint i, const bool is_left) {
    const uint e = (uint)get_local_id(0) + i * THREADS;
    return is_left ? e % 2 : e / 8 % 2;
}

/* The matrix has `left` of the tile's rows. Vectors beyond them repeat the last row: the accumulators that
 * they affect are not stored. `pitch`: bytes per row. */
static inline void open_vectors(__private uint *at, uint pitch, int left, const int tile,
                                const bool is_left) {
    UNROLL for (uint i = 0; i < PIECES(tile); i++)
        at[i] = min(vector_row(i, is_left), (uint)left - 1) * pitch + vector_half(i, is_left) * HALF;
}

/* Loads a step's vectors of rows with `left` bytes, and zeros beyond. Loads are 16 bytes and aligned, so each
 * is in one page. */
static inline void prefetch_vectors(__private uint8 *next, xpu_addr from, __private const uint *at, int left,
                                    const int tile, const bool is_left) {
    if (left >= LINE) {
        UNROLL for (uint i = 0; i < PIECES(tile); i++)
            next[i] = load_vector_in_order(from + at[i]);
    } else {
        UNROLL for (uint i = 0; i < PIECES(tile); i++) {
            const int before = (int)vector_half(i, is_left) * HALF, some = left - before;
            const xpu_addr first = from + at[i] - (some > 0 ? 0 : before),
                           second = first + (some > 16 ? 16 : 0);
            const uint8 v = (uint8)(*XPU_CPTR(uint4, first), *XPU_CPTR(uint4, second));
            const int8 bits = clamp((int8)(some) * 8 - (int8)(0, 32, 64, 96, 128, 160, 192, 224), 0, 32);
            next[i] = v & select((uint8)(~0u), ((uint8)(1) << as_uint8(bits)) - 1, bits < 32);
        }
    }
}

static inline void store_left(__local uchar *local_tile, __private const uint8 *next) {
    UNROLL for (uint i = 0; i < PIECES(TILE_M); i++) {
        const uint line = vector_row(i, true);
        if (IS_KEPT(i, TILE_M))
            *(__local uint8 *)(local_tile + (line / 8 * 2 + vector_half(i, true)) * DPAS_BLOCK_BYTES +
                               line % 8 * HALF) = next[i];
    }
}
static inline void store_right(__local uchar *local_tile, __private const uint8 *next) {
    UNROLL for (uint i = 0; i < PIECES(TILE_N); i++) {
        const uint square = vector_row(i, false) / 8 * 2 + vector_half(i, false);
        if (IS_KEPT(i, TILE_N)) write_dpas_block(local_tile + square * DPAS_BLOCK_BYTES, next[i]);
    }
}

/* For an M-major half-precision operand a vector is 16 elements of a row. A work-item loads pairs of rows
 * adjacent in k, its vectors 2 i and 2 i + 1. A subgroup has rows adjacent in k. If there are enough work-
 * items (IN_EIGHTS), each loads 8 elements of two adjacent rows, which together are one vector. */
#define IN_EIGHTS(tile) ((tile) * 2 <= THREADS)
#define VECTORS_ACROSS(tile) (IN_EIGHTS(tile) ? 1 : PIECES(tile) > 2 ? PIECES(tile) : 2)
#define PAIRS_ACROSS(tile) ((VECTORS_ACROSS(tile) + 1) / 2)
#define PAIR_STRIDE(tile) (THREADS * 16 / (tile) < 16 ? THREADS * 16 / (tile) : 16)
static inline uint pair_row(uint i, const int tile) {
    return ((uint)get_local_id(0) % PAIR_STRIDE(tile) + i * PAIR_STRIDE(tile)) * 2;
}
/* With IN_EIGHTS. */
static inline uint pair_column(const int tile) {
    const uint number = (uint)get_local_id(0) / PAIR_STRIDE(tile);
    return IN_EIGHTS(tile) ? number % (tile / 8) : number % (tile / 16) * 2;
}
/* Pair i of a work-item. */
static inline void prefetch_pair(__private uint8 *to, uint i, xpu_addr even, xpu_addr odd, const int tile) {
    if (IN_EIGHTS(tile)) {
        to[0] = (uint8)(load_half_vector_in_order(even), load_half_vector_in_order(odd));
    } else {
        to[2 * i] = load_vector_in_order(even);
        to[2 * i + 1] = load_vector_in_order(odd);
    }
}

static inline void store_left_transposed(__local uchar *local_tile, __private const uint8 *next) {
    UNROLL for (uint i = 0; i < PAIRS_ACROSS(TILE_M); i++) {
        __local uchar *to =
            local_tile + (pair_column(TILE_M) * 2 + pair_row(i, TILE_M) / 16) * DPAS_BLOCK_BYTES;
#if IN_EIGHTS(TILE_M)
        write_dpas_block(to, to_vnni(next[0].lo, next[0].hi));
#else
        write_dpas_block(to, to_vnni(next[2 * i].lo, next[2 * i + 1].lo));
        write_dpas_block(to + 2 * DPAS_BLOCK_BYTES, to_vnni(next[2 * i].hi, next[2 * i + 1].hi));
#endif
    }
}
static inline void store_right_transposed(__local uchar *local_tile, __private const uint8 *next) {
    UNROLL for (uint i = 0; i < PAIRS_ACROSS(TILE_N); i++) {
        const uint pair = pair_row(i, TILE_N) / 2;
        __local uchar *to =
            local_tile + (pair_column(TILE_N) * 2 + pair / 8) * DPAS_BLOCK_BYTES + pair % 8 * HALF;
#if IN_EIGHTS(TILE_N)
        *(__local uint8 *)to = to_vnni(next[0].lo, next[0].hi);
#else
        *(__local uint8 *)to = to_vnni(next[2 * i].lo, next[2 * i + 1].lo);
        *(__local uint8 *)(to + 2 * DPAS_BLOCK_BYTES) = to_vnni(next[2 * i].hi, next[2 * i + 1].hi);
#endif
    }
}

/* Adds a step's product; the blocks are those of the subgroup. Rows are the outer loop: where the first two
 * of a group of multiplications share B, Intel's compiler puts an idle one before them on dg2. */
static inline void multiply_dpas_blocks(__private sum_block (*sum)[SUMS_N], const __local uchar *a,
                                        const __local uchar *b) {
    UNROLL for (int h = 0; h < 2; h++) {
        int8 right[SUMS_N];
        UNROLL for (int j = 0; j < SUMS_N; j++)
            right[j] = read_dpas_block(b + (j * 2 + h) * DPAS_BLOCK_BYTES);
        UNROLL for (int i = 0; i < SUMS_M; i++) {
            const int8 left = read_dpas_block(a + (i * 2 + h) * DPAS_BLOCK_BYTES);
            UNROLL for (int j = 0; j < SUMS_N; j++)
                sum[i][j] = MULTIPLY(left, right[j], sum[i][j]);
        }
    }
}

/* The same for the blocks of a tile, A's before B's. */
static inline void multiply_local_tile(__private sum_block (*sum)[SUMS_N], const __local uchar *local_tile) {
    const uint subgroup = (uint)get_local_id(0) / MATRIX_SUBGROUP_SIZE;
    multiply_dpas_blocks(sum, local_tile + subgroup % SUBGROUPS_M * (SUMS_M * 8) * LINE,
                         local_tile + (TILE_M + subgroup / SUBGROUPS_M * (SUMS_N * 8)) * LINE);
}
