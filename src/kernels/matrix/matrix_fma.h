/* Tiled products by multiply-add instructions on GPUs, for any dtype; both operands have one unit stride.
 *
 * With MATRIX_DOT, int8 products of four (dot product instructions): an element is a dword of four values
 * along k; both operands are K-major with rows aligned to 4 bytes. With SUM_T, int8 is converted to that type
 * first.
 * Launch: a work-group of SUBGROUPS_M x SUBGROUPS_N groups of 32 work-items computes one TILE_M x TILE_N
 * tile. A group is 4 rows x 8 columns of work-items with SUMS_M x SUMS_N accumulators each, in runs of 4: run
 * i of a work-item is 4 x 4 rows (8 x 4 columns) after run i - 1. Lanes 2 apart share a row and lanes 1 apart
 * a column, so that a group reads few different local addresses, which NVIDIA's local memory broadcasts.
 * Algorithm: double buffering. Tiles of A and B, TILE_K deep and always with rows of k, alternate between two
 * stages of local memory, converted to the type computed in. The next tiles are loaded into registers, in
 * vectors of four contiguous elements, while the present ones are multiplied.
 * Options: OPERAND_T and what gemm_tile.h defines for it, quad.h, tile_copy.h; TILE_M, TILE_N, TILE_K,
 * SUBGROUPS_M, SUBGROUPS_N, A_K_MAJOR, B_K_MAJOR; A_ALIGNMENT, B_ALIGNMENT: bytes, at most 16, to which all
 * rows are aligned. */
#define MATRIX_SUBGROUP_SIZE 32
#define THREADS (SUBGROUPS_M * SUBGROUPS_N * MATRIX_SUBGROUP_SIZE)
#define SUMS_M (TILE_M / SUBGROUPS_M / 4)
#define SUMS_N (TILE_N / SUBGROUPS_N / 8)
#ifdef MATRIX_DOT
#define K_EACH 4 /* elements of k in one value */
#define MULTIPLY_ADD(sum, a, b) ((sum) + dot4(a, b))
#else
#define K_EACH 1
#define MULTIPLY_ADD add_product
#endif
#define ELEMENT ((int)sizeof(STORED(ELEMENT_T)))
#define VECTOR_ELEMENTS 4 /* a quad */
#ifdef XPU_BUILT_FOR_CPU
#define UNROLL _Pragma("nounroll") /* otherwise the compiler takes minutes */
#else
#define UNROLL _Pragma("unroll")
#endif
#ifdef LANES /* work-items of a subgroup */
#define MATRIX_KERNEL __attribute__((intel_reqd_sub_group_size(LANES))) __kernel
#else
#define MATRIX_KERNEL __kernel
#endif
#ifdef XPU_IS_NVIDIA
#define UNROLL_ON_NVIDIA _Pragma("unroll")
#else
#define UNROLL_ON_NVIDIA _Pragma("nounroll")
#endif

#if defined(MATRIX_DOT) && defined(MATRIX_EMULATED)
static inline int dot4(uint a, uint b) {
    int sum = 0;
    for (int i = 0; i < 32; i += 8) sum += (char)(a >> i) * (char)(b >> i);
    return sum;
}
#elif defined(MATRIX_DOT) && defined(XPU_IS_NVIDIA)
static inline int dot4(uint a, uint b) {
    int sum;
    __asm__("dp4a.s32.s32 %0, %1, %2, 0;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
}
#elif defined(MATRIX_DOT)
#define dot4 dot_4x8packed_ss_int
#endif

#define A_QUADS (A_ALIGNMENT >= (int)sizeof(PART))
#define B_QUADS (B_ALIGNMENT >= (int)sizeof(PART))

static inline run read_run(__local const element_t *from) {
    run r;
    UNROLL for (int i = 0; i < RUN_PARTS; i++)
        r.parts[i] = ((__local const uint4 *)from)[i];
    return r;
}

/* Rows of k in a tile keep their vectors aligned; the padding of four elements spreads a column over the
 * banks. */
#define PITCH_A (TILE_M + 4)
#define PITCH_B (TILE_N + 4)
#define STAGE (TILE_K * (PITCH_A + PITCH_B))
#define LOCAL_TILE_ALIGNED __attribute__((aligned(128)))

/* The quads of an operand that a work-item loads at each step: byte offsets from the tile's first element. */
typedef struct operand_a {
    uint at[VECTORS_PER_ITEM(TILE_M)];
    quad next[VECTORS_PER_ITEM(TILE_M)];
} operand_a;
typedef struct operand_b {
    uint at[VECTORS_PER_ITEM(TILE_N)];
    quad next[VECTORS_PER_ITEM(TILE_N)];
} operand_b;

/* Quad i of a work-item: position of its first element along m (n) and along k. */
static inline int quad_x(int i, const int tile, const bool k_major) {
    return (int)(k_major ? COPY_ROW(i, TILE_K / 4) : COPY_COLUMN(i, tile / 4) * 4);
}
static inline int quad_k(int i, const int tile, const bool k_major) {
    return (int)(k_major ? COPY_COLUMN(i, TILE_K / 4) * 4 : COPY_ROW(i, tile / 4));
}

/* The matrix has `left` of the tile's rows (columns). Quads beyond them repeat the last row or quad: the
 * accumulators that they affect are not stored. `pitch`: bytes per row. */
static inline void open_quads(__private uint *at, uint pitch, int left, const int tile, const bool k_major) {
    UNROLL for (int i = 0; i < VECTORS_PER_ITEM(tile); i++) {
        const int x = min(quad_x(i, tile, k_major), k_major ? left - 1 : (left - 1) / 4 * 4);
        const int k = quad_k(i, tile, k_major);
        at[i] = k_major ? (uint)x * pitch + k * ELEMENT : (uint)k * pitch + x * ELEMENT;
    }
}

/* Loads a tile's quads. An aligned part of a quad is in the same page as its first element and is read whole;
 * of others only the elements inside the matrix are read. */
static inline void prefetch_quads(__private quad *next, xpu_addr from, __private const uint *at, int left,
                                  const int tile, const bool k_major, const bool aligned) {
    UNROLL for (int i = 0; i < VECTORS_PER_ITEM(tile); i++) {
        const int last = k_major ? 3 : min((left - 1) - min(quad_x(i, tile, false), (left - 1) / 4 * 4), 3);
        if (aligned) {
            UNROLL for (int j = 0; j < QUAD_PARTS; j++)
                next[i].parts[j] = XPU_CPTR(PART, from + at[i])[min(j, last * QUAD_PARTS / 4)];
        } else {
            UNROLL for (int j = 0; j < 4; j++)
                next[i].of[j] = XPU_CPTR(RAW(ELEMENT_T), from + at[i])[min(j, last)];
        }
    }
}

/* The same for the last tile: `depth` elements of k are left, the rest is zero. */
static inline void prefetch_remainder(__private quad *next, xpu_addr from, uint pitch, int depth, int left,
                                      const int tile, const bool k_major) {
    UNROLL for (int i = 0; i < VECTORS_PER_ITEM(tile); i++) UNROLL
        for (int j = 0; j < 4; j++) {
            const int x = quad_x(i, tile, k_major) + (k_major ? 0 : j),
                      k = quad_k(i, tile, k_major) + (k_major ? j : 0);
            const uint place = k_major ? (uint)x * pitch + k * ELEMENT : (uint)k * pitch + x * ELEMENT;
            next[i].of[j] = (RAW(ELEMENT_T))0;
#ifdef MATRIX_DOT
            for (int byte = 0; byte < 4; byte++)
                if (x < left && k * 4 + byte < depth)
                    next[i].of[j] |= (uint)XPU_CPTR(uchar, from + place)[byte] << byte * 8;
#else
            if (x < left && k < depth) next[i].of[j] = *XPU_CPTR(RAW(ELEMENT_T), from + place);
#endif
        }
}

/* `less`: zero point that is subtracted from int8 elements. */
static inline void store_quads(__local element_t *local_tile, __private const quad *next, const int tile,
                               const bool k_major, const bool conjugated, const element_t less) {
    UNROLL for (int i = 0; i < VECTORS_PER_ITEM(tile); i++) {
        const int x = quad_x(i, tile, k_major), k = quad_k(i, tile, k_major);
        run r;
        UNROLL for (int j = 0; j < 4; j++) {
            r.of[j] = (element_t)WIDEN(ELEMENT_T, next[i].of[j]);
#ifdef INT8_AS_SUM_T
            r.of[j] -= less;
#endif
#if COMPLEX_T
            if (conjugated) r.of[j] = conjugate(r.of[j]);
#endif
        }
        if (k_major) {
            UNROLL for (int j = 0; j < 4; j++)
                local_tile[(k + j) * (tile + 4) + x] = r.of[j];
        } else {
            UNROLL for (int j = 0; j < RUN_PARTS; j++)
                ((__local uint4 *)(local_tile + k * (tile + 4) + x))[j] = r.parts[j];
        }
    }
}

/* Flips bits of the loaded bytes. */
#if defined(MATRIX_DOT) || defined(INT8_AS_SUM_T)
static inline void flip_quads(__private quad *next, const int tile, const uint flip) {
    UNROLL for (int i = 0; i < VECTORS_PER_ITEM(tile); i++) UNROLL
        for (int j = 0; j < QUAD_PARTS; j++) next[i].parts[j] ^= flip;
}
#ifndef A_FLIP
#define A_FLIP 0u
#endif
#ifndef B_FLIP
#define B_FLIP 0u
#endif
#define FLIP_QUADS flip_quads
#else
#define FLIP_QUADS(next, tile, flip)
#endif

/* First row and column of a work-item's accumulators in the tile. */
static inline int first_row(void) {
    const int lane = (int)get_local_id(0) % MATRIX_SUBGROUP_SIZE,
              subgroup = (int)get_local_id(0) / MATRIX_SUBGROUP_SIZE;
    return subgroup % SUBGROUPS_M * (4 * SUMS_M) + ((lane & 1) | (lane >> 3 & 2)) * 4;
}
static inline int first_column(void) {
    const int lane = (int)get_local_id(0) % MATRIX_SUBGROUP_SIZE,
              subgroup = (int)get_local_id(0) / MATRIX_SUBGROUP_SIZE;
    return subgroup / SUBGROUPS_M * (8 * SUMS_N) + (lane >> 1 & 7) * 4;
}

/* The values that a work-item reads of one row of k. */
typedef struct runs {
    run x[SUMS_M / 4], y[SUMS_N / 4];
} runs;
static inline void read_runs(__private runs *r, __local const element_t *a, __local const element_t *b,
                             const int k) {
    UNROLL for (int i = 0; i < SUMS_M / 4; i++)
        r->x[i] = read_run(a + k * PITCH_A + i * 16);
    UNROLL for (int j = 0; j < SUMS_N / 4; j++)
        r->y[j] = read_run(b + k * PITCH_B + j * 32);
}

/* Adds the product of a stage's tiles. NVIDIA's compiler loads the next row of k while this one is
 * multiplied; Intel's would load many rows and run out of registers. */
static inline void multiply_local_tile(__private acc_t (*sum)[SUMS_N], __local const element_t *stage) {
    __local const element_t *const a = stage + first_row();
    __local const element_t *const b = stage + TILE_K * PITCH_A + first_column();
    UNROLL_ON_NVIDIA for (int k = 0; k < TILE_K; k++) {
        runs r;
        read_runs(&r, a, b, k);
        UNROLL for (int i = 0; i < SUMS_M; i++) UNROLL
            for (int j = 0; j < SUMS_N; j++)
                sum[i][j] = MULTIPLY_ADD(sum[i][j], r.x[i / 4].of[i % 4], r.y[j / 4].of[j % 4]);
    }
}
