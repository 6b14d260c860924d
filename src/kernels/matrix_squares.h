/* Products by Intel's matrix units of 8 lanes, which have no reads of blocks: their operands come by way of
 * local memory.
 *
 * A work-group of TEAMS_M x TEAMS_N teams computes a tile of TILE_M x TILE_N sums. A team is a subgroup, and
 * has SUMS_M x SUMS_N blocks of 8 x 8 sums in registers: a work-item a column of a block, its rows in a
 * vector of 8.
 *
 * A step is 64 bytes of each line, along k. In local memory it lies in squares of 256 bytes, half a step
 * deep: 8 rows of A by 8 dwords, or 8 dwords of B by 8 columns, so that the block read of a square is what a
 * multiplication takes. Two stages take turns: the next step's pieces of 16 bytes are read into registers
 * while this one is multiplied, and written down then. (cl_intel_subgroup_matrix_multiply_accumulate,
 * cl_intel_subgroup_local_block_io)
 *
 * Wants MATRIX_T (bf16, f16, i8), TILE_M, TILE_N, TEAMS_M and TEAMS_N. Both operands lie along k, their lines
 * at multiples of 16 bytes; what a convolution gathers, in halves, may lie across. With MATRIX_EMULATED
 * matrix_units.cl comes before it. */
#ifdef MATRIX_EMULATED
#define WRITTEN_OUT _Pragma("nounroll")
#else
#define WRITTEN_OUT __attribute__((opencl_unroll_hint))
#endif

#define MATRIX_TEAM 8
#define MATRIX_KERNEL __attribute__((intel_reqd_sub_group_size(MATRIX_TEAM))) __kernel
#define THREADS (TEAMS_M * TEAMS_N * MATRIX_TEAM)
#define TEAMS_DOWN TEAMS_M
#define SUMS_M (TILE_M / TEAMS_M / 8)
#define SUMS_N (TILE_N / TEAMS_N / 8)
#define ELEMENT ((int)sizeof(STORED(MATRIX_T)))

#define MULTIPLY_bf16 intel_sub_group_bf16_bf16_matrix_mad_k16
#define MULTIPLY_f16 intel_sub_group_f16_f16_matrix_mad_k16
#define MULTIPLY_i8 MULTIPLY_BYTES /* gemm.cl */
#define MULTIPLY XPU_CAT(MULTIPLY_, MATRIX_T)
#define SUMS_bf16 float8
#define SUMS_f16 float8
#define SUMS_i8 int8
#define sum_block XPU_CAT(SUMS_, MATRIX_T)

#define LINE 64    /* bytes of a line in a step */
#define SQUARE 256 /* bytes */
#define STAGE ((TILE_M + TILE_N) * LINE)

/* What a work-item brings in of an operand at each step, in pieces of half a line: bytes from the tile's
 * first one. */
#define HALF (LINE / 2)
typedef uint8 piece __attribute__((aligned(16)));
#define PIECES(tile) ((tile) * 2 / THREADS)
typedef struct operand_a {
    uint at[PIECES(TILE_M)];
    uint8 next[PIECES(TILE_M)];
} operand_a;
typedef struct operand_b {
    uint at[PIECES(TILE_N)];
    uint8 next[PIECES(TILE_N)];
} operand_b;

/* Number i of a work-item: the line, and which half of it. Neighbouring work-items have a row of A together;
 * of B a subgroup has eight columns, which lie beside each other in a square. */
static inline uint piece_line(uint i, const bool is_left) {
    const uint e = (uint)get_local_id(0) + i * THREADS;
    return is_left ? e / 2 : e / 16 * 8 + e % 8;
}
static inline uint piece_of(uint i, const bool is_left) {
    const uint e = (uint)get_local_id(0) + i * THREADS;
    return is_left ? e % 2 : e / 8 % 2;
}

/* Of the tile's lines the matrix has `left`: what is beyond is read as the last one, since nobody looks at
 * its sums. `pitch` bytes from line to line. */
static inline void open_pieces(__private uint *at, uint pitch, int left, const int tile, const bool is_left) {
    WRITTEN_OUT for (uint i = 0; i < PIECES(tile); i++) at[i] =
        min(piece_line(i, is_left), (uint)left - 1) * pitch + piece_of(i, is_left) * HALF;
}

/* Nothing that is read so may be looked at later than it stands, or it would be read after the
 * multiplications (volatile), and nothing may have an index that varies, or it would lie in memory. */
static inline uint8 fetch_piece(xpu_addr from) { return *(volatile __global const piece *)from; }

/* Reads a step's pieces, of whose lines `left` bytes are there, with zeros behind them: by 16 bytes, which,
 * aligned, lie in the page of the first. */
static inline void fetch_pieces(__private uint8 *next, xpu_addr from, __private const uint *at, int left,
                                const int tile, const bool is_left) {
    if (left >= LINE) {
        WRITTEN_OUT for (uint i = 0; i < PIECES(tile); i++) next[i] = fetch_piece(from + at[i]);
    } else {
        WRITTEN_OUT for (uint i = 0; i < PIECES(tile); i++) {
            const int before = (int)piece_of(i, is_left) * HALF, some = left - before;
            const xpu_addr first = from + at[i] - (some > 0 ? 0 : before),
                           second = first + (some > 16 ? 16 : 0);
            const uint8 v = (uint8)(*XPU_CPTR(uint4, first), *XPU_CPTR(uint4, second));
            const int8 bits = clamp((int8)(some) * 8 - (int8)(0, 32, 64, 96, 128, 160, 192, 224), 0, 32);
            next[i] = v & select((uint8)(~0u), ((uint8)(1) << as_uint8(bits)) - 1, bits < 32);
        }
    }
}

static inline void keep_left(__local uchar *slab, __private const uint8 *next) {
    WRITTEN_OUT for (uint i = 0; i < PIECES(TILE_M); i++) {
        const uint line = piece_line(i, true);
        *(__local uint8 *)(slab + (line / 8 * 2 + piece_of(i, true)) * SQUARE + line % 8 * HALF) = next[i];
    }
}
static inline void keep_right(__local uchar *slab, __private const uint8 *next) {
    WRITTEN_OUT for (uint i = 0; i < PIECES(TILE_N); i++) {
        const uint square = piece_line(i, false) / 8 * 2 + piece_of(i, false);
        intel_sub_group_block_write8((__local uint *)(slab + square * SQUARE), next[i]);
    }
}

/* Of an operand across k, in halves, pieces are 16 numbers of a line; two neighbours along k come in
 * together, numbers 2 i and 2 i + 1 of a work-item, in tiles of 16 twice. A subgroup has neighbours along k.
 */
#define PIECES_ACROSS(tile) (PIECES(tile) > 2 ? PIECES(tile) : 2)
#define PAIRS_APART(tile) (THREADS * 16 / (tile) < 16 ? THREADS * 16 / (tile) : 16)
static inline uint pair_line(uint i, const int tile) {
    return ((uint)get_local_id(0) % PAIRS_APART(tile) + i / 2 * PAIRS_APART(tile)) * 2 + i % 2;
}
static inline uint pair_piece(const int tile) {
    return (uint)get_local_id(0) / PAIRS_APART(tile) % (tile / 16);
}

/* Of eight numbers in each of two lines, dwords of neighbours along k. */
static inline uint8 paired(uint4 even, uint4 odd) {
    const uint4 low = (even & 0xffff) | odd << 16, high = even >> 16 | (odd & 0xffff0000);
    return (uint8)(low.s0, high.s0, low.s1, high.s1, low.s2, high.s2, low.s3, high.s3);
}
static inline void keep_left_turned(__local uchar *slab, __private const uint8 *next) {
    WRITTEN_OUT for (uint i = 0; i < PIECES_ACROSS(TILE_M); i += 2) {
        __local uchar *to = slab + (pair_piece(TILE_M) * 4 + pair_line(i, TILE_M) / 16) * SQUARE;
        intel_sub_group_block_write8((__local uint *)to, paired(next[i].lo, next[i + 1].lo));
        intel_sub_group_block_write8((__local uint *)(to + 2 * SQUARE), paired(next[i].hi, next[i + 1].hi));
    }
}
static inline void keep_right_turned(__local uchar *slab, __private const uint8 *next) {
    WRITTEN_OUT for (uint i = 0; i < PIECES_ACROSS(TILE_N); i += 2) {
        const uint pair = pair_line(i, TILE_N) / 2;
        __local uchar *to = slab + (pair_piece(TILE_N) * 4 + pair / 8) * SQUARE + pair % 8 * HALF;
        *(__local uint8 *)to = paired(next[i].lo, next[i + 1].lo);
        *(__local uint8 *)(to + 2 * SQUARE) = paired(next[i].hi, next[i + 1].hi);
    }
}

/* Adds a step's product; the squares are those of the team. */
static inline void multiply_squares(__private sum_block (*sum)[SUMS_N], const __local uchar *a,
                                    const __local uchar *b) {
    WRITTEN_OUT for (int h = 0; h < 2; h++) {
        int8 left[SUMS_M];
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) left[i] =
            as_int8(intel_sub_group_block_read8((const __local uint *)(a + (i * 2 + h) * SQUARE)));
        WRITTEN_OUT for (int j = 0; j < SUMS_N; j++) {
            const int8 right =
                as_int8(intel_sub_group_block_read8((const __local uint *)(b + (j * 2 + h) * SQUARE)));
            WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) sum[i][j] = MULTIPLY(left[i], right, sum[i][j]);
        }
    }
}

/* The same of a slab's squares, A's before B's. */
static inline void multiply_slab(__private sum_block (*sum)[SUMS_N], const __local uchar *slab) {
    const uint team = (uint)get_local_id(0) / MATRIX_TEAM;
    multiply_squares(sum, slab + team % TEAMS_M * (SUMS_M * 8) * LINE,
                     slab + (TILE_M + team / TEAMS_M * (SUMS_N * 8)) * LINE);
}
