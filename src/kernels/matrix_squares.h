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
 * at multiples of 16 bytes. With MATRIX_EMULATED matrix_units.cl comes before it. */
#ifdef MATRIX_EMULATED
#define WRITTEN_OUT _Pragma("nounroll")
#else
#define WRITTEN_OUT __attribute__((opencl_unroll_hint))
#endif

#define MATRIX_TEAM 8
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

/* The pieces of an operand that a work-item brings in at each step: bytes from the tile's first one. */
#define PIECES(tile) ((tile) * LINE / 16 / THREADS)
typedef struct operand_a {
    uint at[PIECES(TILE_M)];
    uint4 next[PIECES(TILE_M)];
} operand_a;
typedef struct operand_b {
    uint at[PIECES(TILE_N)];
    uint4 next[PIECES(TILE_N)];
} operand_b;

/* Number i of a work-item: the line, and the piece of its four. Neighbouring work-items have a row of A
 * together; of B they have eight columns, which lie beside each other in a square. */
static inline uint piece_line(uint i, const bool is_left) {
    const uint e = (uint)get_local_id(0) + i * THREADS;
    return is_left ? e / 4 : e / 32 * 8 + e % 8;
}
static inline uint piece_of(uint i, const bool is_left) {
    const uint e = (uint)get_local_id(0) + i * THREADS;
    return is_left ? e % 4 : e / 8 % 4;
}

/* Of the tile's lines the matrix has `left`: what is beyond is read as the last one, since nobody looks at
 * its sums. `pitch` bytes from line to line. */
static inline void open_pieces(__private uint *at, uint pitch, int left, const int tile, const bool is_left) {
    WRITTEN_OUT for (uint i = 0; i < PIECES(tile); i++) at[i] =
        min(piece_line(i, is_left), (uint)left - 1) * pitch + piece_of(i, is_left) * 16;
}

/* Reads a step's pieces, of whose lines `left` bytes are there, with zeros behind them. A piece that is
 * aligned lies in the page of its first byte. Nothing here may be looked at later than it stands, or it would
 * be read after the multiplications (volatile), and nothing may have an index that varies, or it would lie in
 * memory. */
static inline void fetch_pieces(__private uint4 *next, xpu_addr from, __private const uint *at, int left,
                                const int tile, const bool is_left) {
    if (left >= LINE) {
        WRITTEN_OUT for (uint i = 0; i < PIECES(tile); i++) next[i] =
            *(volatile __global const uint4 *)(from + at[i]);
    } else {
        WRITTEN_OUT for (uint i = 0; i < PIECES(tile); i++) {
            const int before = (int)piece_of(i, is_left) * 16, some = left - before;
            const uint4 v = *XPU_CPTR(uint4, from + at[i] - (some > 0 ? 0 : before));
            const int4 bits = clamp((int4)(some) * 8 - (int4)(0, 32, 64, 96), 0, 32);
            next[i] = v & select((uint4)(~0u), ((uint4)(1) << as_uint4(bits)) - 1, bits < 32);
        }
    }
}

static inline void keep_left(__local uchar *slab, __private const uint4 *next) {
    WRITTEN_OUT for (uint i = 0; i < PIECES(TILE_M); i++) {
        const uint line = piece_line(i, true), piece = piece_of(i, true);
        *(__local uint4 *)(slab + (line / 8 * 2 + piece / 2) * SQUARE + line % 8 * 32 + piece % 2 * 16) =
            next[i];
    }
}
static inline void keep_right(__local uchar *slab, __private const uint4 *next) {
    WRITTEN_OUT for (uint i = 0; i < PIECES(TILE_N); i++) {
        const uint line = piece_line(i, false), piece = piece_of(i, false);
        __local uint *to =
            (__local uint *)(slab + (line / 8 * 2 + piece / 2) * SQUARE + piece % 2 * 128 + line % 8 * 4);
        const uint4 v = next[i];
        to[0] = v.s0, to[8] = v.s1, to[16] = v.s2, to[24] = v.s3;
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
