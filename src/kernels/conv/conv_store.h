/* How the accumulators of conv_im2col.h are stored: as partial sums of split-K slices, element by element,
 * or, if the result's channels are contiguous, by vectors (tensor cores: through local memory). */
#define BYTES_OF_i8 1
#define BYTES_OF_u8 1
#define BYTES_OF_f16 2
#define BYTES_OF_bf16 2
#define BYTES_OF_f32 4
#define OUT_BYTES_EACH XPU_CAT(BYTES_OF_, OUT_T)

#define OUT_PIXELS (PIXELS_CONTIGUOUS && DIRECTION != 2 && !IS_SPLIT)

#if defined(MATRIX_FMA) && OUT_PIXELS
/* Stores a work-item's accumulators in runs of four pixels. */
static inline void store_sums(const conv_matrix_params *p, const product *z, uint number,
                              __private acc_t (*sum)[SUMS_N], uint m0, uint n0) {
    const uint row = m0 + (uint)first_row(), column = n0 + (uint)first_column();
    long places[SUMS_M / 4];
    UNROLL for (uint i = 0; i < SUMS_M / 4; i++)
        places[i] = place_of_row(p, z, row + i * 16);
    UNROLL for (uint j = 0; j < SUMS_N; j++) {
        const uint n = column + j / 4 * 32 + j % 4;
        const long place = place_of_column(p, z, n);
        if (place < 0) continue;
        const channel c = channel_of(p, z, n);
        UNROLL for (uint i = 0; i < SUMS_M / 4; i++) {
            run r;
            UNROLL for (uint k = 0; k < 4; k++)
                r.of[k] = sum[i * 4 + k][j];
            if (places[i] >= 0) write_quad(p, &c, 0, places[i] + place, &r);
        }
    }
}
#elif defined(MATRIX_FMA)
/* Stores a work-item's accumulators in runs of four channels. */
static inline void store_sums(const conv_matrix_params *p, const product *z, uint number,
                              __private acc_t (*sum)[SUMS_N], uint m0, uint n0) {
    const uint row = m0 + (uint)first_row(), column = n0 + (uint)first_column();
#if !IS_SPLIT && OUT_VECTORS
    int places[SUMS_M];
    UNROLL for (uint i = 0; i < SUMS_M; i++)
        places[i] = vector_of_row(p, z, row + i / 4 * 16 + i % 4);
#elif !IS_SPLIT
    long places[SUMS_M];
    UNROLL for (uint i = 0; i < SUMS_M; i++)
        places[i] = place_of_row(p, z, row + i / 4 * 16 + i % 4);
#endif
    UNROLL for (uint j = 0; j < SUMS_N; j += 4) {
        const uint n = column + j / 4 * 32;
        if (n >= p->columns) continue;
#if !IS_SPLIT
        channel c[4];
        UNROLL for (uint k = 0; k < 4; k++)
            c[k] = channel_of(p, z, n + k);
#endif
#if !IS_SPLIT && !OUT_VECTORS
        long columns[4];
        UNROLL for (uint k = 0; k < 4; k++)
            columns[k] = place_of_column(p, z, n + k);
#endif
        UNROLL for (uint i = 0; i < SUMS_M; i++) {
            run r;
            UNROLL for (uint k = 0; k < 4; k++)
                r.of[k] = sum[i][j + k];
#if IS_SPLIT
            const uint m = row + i / 4 * 16 + i % 4;
            if (m < p->rows)
                write_sums(XPU_PTR(acc_t, p->partial) + ((long)number * p->rows + m) * p->pitch + n, &r);
#else
#if OUT_VECTORS
            if (places[i] >= 0) write_quad(p, c, 1, (long)places[i] * RESULT_VECTOR + n, &r);
#else
            UNROLL for (uint k = 0; k < 4; k++)
                put(p, &c[k], places[i], columns[k], r.of[k]);
#endif
#endif
        }
    }
}
#else
#if OUT_VECTORS
/* The tile goes through local memory, so that whole rows of channels are stored; in several rounds if it is
 * too large. Tensor cores: padding after each row of the tile spreads a block's rows over the banks. XMX: a
 * block of 8 x 8 results is contiguous. */
#ifdef MATRIX_XMX8
#define ROW_ALIGNMENT (TILE_N * OUT_SIZE)
#define ROOM (2 * STAGE)
#define BLOCK_PLACE(row, n) (((row) / 8 * (TILE_N / 8) + (n) / 8) * 64 + (row) % 8 * 8 + (n) % 8)
#else
#define ROW_ALIGNMENT (TILE_N * OUT_SIZE + 16)
#define ROOM (STAGES * STAGE_BYTES)
#endif
#define IN_ROUNDS(n) (TILE_M / (n) * (ROW_ALIGNMENT + 4) <= ROOM)
#define ROUNDS (IN_ROUNDS(1) ? 1 : IN_ROUNDS(2) ? 2 : 4)
#define ROUND_ROWS (TILE_M / ROUNDS)
#define ROWS_PER_SUBGROUP (ROUND_ROWS / SUBGROUPS_M) /* rows per subgroup and round */

static inline uint4 read_line(__local const uchar *lines, uint row, uint vec) {
#if defined(MATRIX_XMX8) && OUT_BYTES_EACH == 1
    return (uint4)(*(__local const uint2 *)(lines + BLOCK_PLACE(row, vec * 16)),
                   *(__local const uint2 *)(lines + BLOCK_PLACE(row, vec * 16 + 8)));
#elif defined(MATRIX_XMX8)
    return *(__local const uint4 *)(lines + BLOCK_PLACE(row, vec * RESULT_VECTOR) * OUT_SIZE);
#else
    return *(__local const uint4 *)(lines + row * ROW_ALIGNMENT + vec * 16);
#endif
}
/* Offsets of a round's rows in the result, in vectors; and storing of the rows. */
static inline void find_places(const conv_matrix_params *p, const product *z, __local int *places, uint m0,
                               uint round) {
    for (uint row = (uint)get_local_id(0); row < ROUND_ROWS; row += THREADS)
        places[row] = vector_of_row(p, z,
                                    m0 + row / ROWS_PER_SUBGROUP * (TILE_M / SUBGROUPS_M) +
                                        round * ROWS_PER_SUBGROUP + row % ROWS_PER_SUBGROUP);
#if COMBINE
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
}
static inline void store_lines(const conv_matrix_params *p, __local const uchar *lines,
                               __local const int *places, uint n0, uint round) {
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (uint i = 0; i < ROUND_ROWS * TILE_N / RESULT_VECTOR / THREADS; i++) {
        const uint number = (uint)get_local_id(0) + i * THREADS;
        const uint row = number / (TILE_N / RESULT_VECTOR), vec = number % (TILE_N / RESULT_VECTOR);
        const int place = places[row];
        if (place < 0 || n0 + vec * RESULT_VECTOR >= p->columns) continue;
        XPU_PTR(uint4, p->result)[place + (int)(n0 / RESULT_VECTOR + vec)] = read_line(lines, row, vec);
    }
    if (round + 1 < ROUNDS) barrier(CLK_LOCAL_MEM_FENCE);
}
/* Offset of the post-op's operand; a valid one for results that are not stored. */
static inline long place_combined(const conv_matrix_params *p, __local const int *places, uint row, uint n) {
    return max(places[row], 0) * (long)RESULT_VECTOR + (n < p->columns ? n : 0);
}
#endif

#ifdef MATRIX_XMX8
/* The accumulator of one row of a block. */
static inline acc_t sum_of(sum_block sum, uint row) {
    const acc_t rows[8] = {sum.s0, sum.s1, sum.s2, sum.s3, sum.s4, sum.s5, sum.s6, sum.s7};
    return rows[row];
}

#if OUT_VECTORS
#define BLOCK_1 uchar8
#define BLOCK_2 ushort8
#define BLOCK_4 uint8
#define WRITE_BLOCK_1(to, v) intel_sub_group_block_write_uc8((__local uchar *)(to), v)
#define WRITE_BLOCK_2(to, v) intel_sub_group_block_write_us8((__local ushort *)(to), v)
#define WRITE_BLOCK_4(to, v) intel_sub_group_block_write8((__local uint *)(to), v)
typedef union output_block {
    RAW(OUT_T) of[8];
    XPU_CAT(BLOCK_, OUT_BYTES_EACH) all;
} output_block;
static inline void store_tile(const conv_matrix_params *p, const product *z, __local uchar *lines,
                              __private sum_block (*sum)[SUMS_N], uint m0, uint n0) {
    __local int *places = (__local int *)(lines + ROUND_ROWS * ROW_ALIGNMENT);
    const uint lane = get_local_id(0) % MATRIX_SUBGROUP_SIZE,
               subgroup = get_local_id(0) / MATRIX_SUBGROUP_SIZE;
    const uint first_row = subgroup % SUBGROUPS_M * ROWS_PER_SUBGROUP,
               first = subgroup / SUBGROUPS_M * (SUMS_N * 8);
    UNROLL for (uint r = 0; r < ROUNDS; r++) {
        find_places(p, z, places, m0, r);
        UNROLL for (uint j = 0; j < SUMS_N; j++) {
            const uint n = n0 + first + j * 8 + lane;
            const channel c = channel_of(p, z, n);
            UNROLL for (uint i = 0; i < ROWS_PER_SUBGROUP / 8; i++) {
                const uint row = first_row + i * 8;
                output_block v;
                UNROLL for (uint k = 0; k < 8; k++) {
                    long place = 0;
#if COMBINE
                    place = place_combined(p, places, row + k, n);
#endif
                    v.of[k] = NARROW(
                        OUT_T, result_of(p, &c, sum_of(sum[r * (ROWS_PER_SUBGROUP / 8) + i][j], k), place));
                }
                XPU_CAT(WRITE_BLOCK_, OUT_BYTES_EACH)(lines + BLOCK_PLACE(row, first + j * 8) * OUT_SIZE,
                                                      v.all);
            }
        }
        store_lines(p, lines, places, n0, r);
    }
}
#endif

/* Stores a work-item's accumulators one by one. */
static inline void store_sums(const conv_matrix_params *p, const product *z, uint number,
                              __private sum_block (*sum)[SUMS_N], uint m0, uint n0) {
    const uint lane = get_local_id(0) % MATRIX_SUBGROUP_SIZE,
               subgroup = get_local_id(0) / MATRIX_SUBGROUP_SIZE;
    const uint row = m0 + subgroup % SUBGROUPS_M * (SUMS_M * 8),
               first = n0 + subgroup / SUBGROUPS_M * (SUMS_N * 8) + lane;
#if !IS_SPLIT
    long columns[SUMS_N];
    channel c[SUMS_N];
    UNROLL for (uint j = 0; j < SUMS_N; j++) {
        columns[j] = place_of_column(p, z, first + j * 8);
        c[j] = channel_of(p, z, first + j * 8);
    }
#endif
    UNROLL for (uint i = 0; i < SUMS_M; i++) UNROLL
        for (uint k = 0; k < 8; k++) {
            const uint m = row + i * 8 + k;
#if IS_SPLIT
            if (m >= p->rows) continue;
            __global acc_t *to = XPU_PTR(acc_t, p->partial) + ((long)number * p->rows + m) * p->pitch + first;
            UNROLL for (uint j = 0; j < SUMS_N; j++) {
                if (first + j * 8 < p->columns) to[j * 8] = sum_of(sum[i][j], k);
            }
#else
            const long place = place_of_row(p, z, m);
#if OUT_PIXELS
            if (k % 4 != 0 || place < 0) continue;
            UNROLL for (uint j = 0; j < SUMS_N; j++) {
                run r;
                UNROLL for (uint l = 0; l < 4; l++)
                    r.of[l] = sum_of(sum[i][j], k + l);
                if (columns[j] >= 0) write_quad(p, &c[j], 0, place + columns[j], &r);
            }
#else
            UNROLL for (uint j = 0; j < SUMS_N; j++)
                put(p, &c[j], place, columns[j], sum_of(sum[i][j], k));
#endif
#endif
        }
}
#else
/* Stores two adjacent accumulators. */
static inline void put_pair(const conv_matrix_params *p, __private const channel *c, long row,
                            const long column[2], sum_pair sum) {
#if OUT_PAIRS
    if (row >= 0 && column[1] >= 0) {
        const xpu_addr to = p->result + (row + column[0]) * ELEMENT;
        *XPU_PTR(PAIR, to) = (PAIR)(NARROW(T, sum.x + c[0].bias), NARROW(T, sum.y + c[1].bias));
        return;
    }
#endif
    put(p, &c[0], row, column[0], sum.x);
    put(p, &c[1], row, column[1], sum.y);
}

#if OUT_VECTORS
/* Rounds two adjacent accumulators; `place` is their offset in the result. */
#if REQUANTIZED
#define LINE_PAIR_1 ushort
#define LINE_PAIR_2 uint
#define LINE_PAIR_4 uint2
#define LINE_PAIR XPU_CAT(LINE_PAIR_, OUT_BYTES_EACH)
static inline LINE_PAIR line_pair(const conv_matrix_params *p, __private const channel *c, sum_pair sum,
                                  long place) {
    union {
        RAW(OUT_T) of[2];
        LINE_PAIR both;
    } two;
    two.of[0] = NARROW(OUT_T, result_of(p, &c[0], sum.x, place));
    two.of[1] = NARROW(OUT_T, result_of(p, &c[1], sum.y, place + 1));
    return two.both;
}
#else
#define LINE_PAIR uint
#define line_pair(p, c, sum, place) round_pair((sum).x + (c)[0].bias, (sum).y + (c)[1].bias)
#endif

static inline void store_tile(const conv_matrix_params *p, const product *z, __local uchar *lines,
                              __private fragment_sum (*sum)[FRAGMENTS_N], uint m0, uint n0) {
    __local int *places = (__local int *)(lines + ROUND_ROWS * ROW_ALIGNMENT);
    const uint id = (uint)get_local_id(0), lane = id % MATRIX_SUBGROUP_SIZE,
               subgroup = id / MATRIX_SUBGROUP_SIZE;
    const uint column = subgroup / SUBGROUPS_M * (FRAGMENTS_N * 8) + lane % 4 * 2;
    const uint own_row = subgroup % SUBGROUPS_M * ROWS_PER_SUBGROUP + lane / 4;
    __local uchar *own = lines + own_row * ROW_ALIGNMENT + column * OUT_SIZE;
    UNROLL for (uint r = 0; r < ROUNDS; r++) {
        find_places(p, z, places, m0, r);
        UNROLL for (uint j = 0; j < FRAGMENTS_N; j++) {
            const uint n = n0 + column + j * 8;
            const channel c[2] = {channel_of(p, z, n), channel_of(p, z, n + 1)};
            UNROLL for (uint i = 0; i < ROWS_PER_SUBGROUP / 16; i++) {
                const fragment_sum v = sum[r * (ROWS_PER_SUBGROUP / 16) + i][j];
                __local uchar *to = own + i * 16 * ROW_ALIGNMENT + j * 8 * OUT_SIZE;
                long upper = 0, lower = 0;
#if COMBINE
                upper = place_combined(p, places, own_row + i * 16, n);
                lower = place_combined(p, places, own_row + i * 16 + 8, n);
#endif
                *(__local LINE_PAIR *)to = line_pair(p, c, v.xy, upper);
                *(__local LINE_PAIR *)(to + 8 * ROW_ALIGNMENT) = line_pair(p, c, v.zw, lower);
            }
        }
        store_lines(p, lines, places, n0, r);
    }
}
#endif

#if OUT_PIXELS
/* The transposed tile goes through local memory: rows of pixels per channel, in several rounds if it is too
 * large. Padding after each row spreads a block's columns over the banks. A work-item stores four adjacent
 * pixels in each of several channels. */
#define PIXEL_ROW (TILE_M * OUT_SIZE + 16)
#define PIXEL_ROOM (STAGES * STAGE_BYTES)
#define IN_PIXEL_ROUNDS(n) (TILE_N / (n) * PIXEL_ROW <= PIXEL_ROOM)
#define PIXEL_ROUNDS (IN_PIXEL_ROUNDS(1) ? 1 : IN_PIXEL_ROUNDS(2) ? 2 : 4)
#define ROUND_BLOCKS (FRAGMENTS_N / PIXEL_ROUNDS) /* blocks per subgroup and round */
#define ROUND_COLUMNS (TILE_N / PIXEL_ROUNDS)
static inline void store_tile(const conv_matrix_params *p, const product *z, __local uchar *lines,
                              __private fragment_sum (*sum)[FRAGMENTS_N], uint m0, uint n0) {
    const uint id = (uint)get_local_id(0), lane = id % MATRIX_SUBGROUP_SIZE,
               subgroup = id / MATRIX_SUBGROUP_SIZE;
    const uint row = subgroup % SUBGROUPS_M * (FRAGMENTS_M * 16) + lane / 4,
               of_subgroup = subgroup / SUBGROUPS_M;
    const uint own_row = id % (TILE_M / 4) * 4;
    const long own_place = place_of_row(p, z, m0 + own_row);
#if COMBINE
    long places[FRAGMENTS_M * 2];
    UNROLL for (uint i = 0; i < FRAGMENTS_M * 2; i++)
        places[i] = place_of_row(p, z, m0 + row + i * 8);
#endif
    UNROLL for (uint r = 0; r < PIXEL_ROUNDS; r++) {
        UNROLL for (uint j = 0; j < ROUND_BLOCKS; j++) UNROLL
            for (uint k = 0; k < 2; k++) {
                const uint in_subgroup = j * 8 + lane % 4 * 2 + k;
                const uint n = n0 + of_subgroup * (FRAGMENTS_N * 8) + r * (ROUND_BLOCKS * 8) + in_subgroup;
                const channel c = channel_of(p, z, n);
                __local RAW(OUT_T) *to =
                    (__local RAW(OUT_T) *)(lines +
                                           (of_subgroup * (ROUND_BLOCKS * 8) + in_subgroup) * PIXEL_ROW) +
                    row;
                UNROLL for (uint i = 0; i < FRAGMENTS_M * 2; i++) {
                    const fragment_sum v = sum[i / 2][r * ROUND_BLOCKS + j];
                    const sum_pair pair = i % 2 ? v.zw : v.xy;
                    long place = 0;
#if COMBINE
                    place = max(places[i], 0L) + max(place_of_column(p, z, n), 0L);
#endif
                    to[i * 8] = NARROW(OUT_T, result_of(p, &c, k ? pair.y : pair.x, place));
                }
            }
        barrier(CLK_LOCAL_MEM_FENCE);
        UNROLL for (uint i = 0; i < TILE_M / 4 * ROUND_COLUMNS / THREADS; i++) {
            const uint line = (id + i * THREADS) / (TILE_M / 4);
            const uint n = n0 + line / (ROUND_BLOCKS * 8) * (FRAGMENTS_N * 8) + r * (ROUND_BLOCKS * 8) +
                           line % (ROUND_BLOCKS * 8);
            const long place = place_of_column(p, z, n);
            if (own_place >= 0 && place >= 0)
                *XPU_PTR(OUT_PART, p->result + (own_place + place) * OUT_SIZE) =
                    *(__local const OUT_PART *)(lines + line * PIXEL_ROW + own_row * OUT_SIZE);
        }
        if (r + 1 < PIXEL_ROUNDS) barrier(CLK_LOCAL_MEM_FENCE);
    }
}
#endif

/* Stores a work-item's accumulators in pairs. */
static inline void store_sums(const conv_matrix_params *p, const product *z, uint number,
                              __private fragment_sum (*sum)[FRAGMENTS_N], uint m0, uint n0) {
    const uint lane = get_local_id(0) % MATRIX_SUBGROUP_SIZE,
               subgroup = get_local_id(0) / MATRIX_SUBGROUP_SIZE;
    const uint row = m0 + subgroup % SUBGROUPS_M * (FRAGMENTS_M * 16) + lane / 4;
    const uint first = n0 + subgroup / SUBGROUPS_M * (FRAGMENTS_N * 8) + lane % 4 * 2;
#if IS_SPLIT
    const long of = (long)number * p->rows;
    UNROLL for (uint i = 0; i < FRAGMENTS_M * 2; i++) {
        const uint m = row + i * 8;
        if (m >= p->rows) continue;
        __global acc_t *to = XPU_PTR(acc_t, p->partial) + (of + m) * p->pitch;
        UNROLL for (uint j = 0; j < FRAGMENTS_N; j++) {
            __global sum_pair *pair = (__global sum_pair *)(to + first + j * 8);
            if (first + j * 8 < p->columns) *pair = i % 2 ? sum[i / 2][j].zw : sum[i / 2][j].xy;
        }
    }
#else
    long places[FRAGMENTS_M * 2];
    UNROLL for (uint i = 0; i < FRAGMENTS_M * 2; i++)
        places[i] = place_of_row(p, z, row + i * 8);
    UNROLL for (uint j = 0; j < FRAGMENTS_N; j++) {
        const uint n = first + j * 8;
        const long columns[2] = {place_of_column(p, z, n), place_of_column(p, z, n + 1)};
        const channel c[2] = {channel_of(p, z, n), channel_of(p, z, n + 1)};
        UNROLL for (uint i = 0; i < FRAGMENTS_M * 2; i++)
            put_pair(p, c, places[i], columns, i % 2 ? sum[i / 2][j].zw : sum[i / 2][j].xy);
    }
#endif
}
#endif
#endif
