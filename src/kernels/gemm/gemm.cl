/* Matrix products: out = epilogue(combine(alpha A B + beta C, other)), batched, any strides.
 *
 * Kernels:
 *   gemm           portable: a work-group computes one tile; TILE, TILE_K, SIDE, A_K_MAJOR, B_K_MAJOR
 *                  (gemm_tile.h)
 *   gemm_matrix    matrix engines, or multiply-adds on GPUs; A and B have one unit stride. A work-group
 *                  computes one TILE_M x TILE_N tile. MATRIX_T and the options of matrix.h, of matrix_xmx.h
 *                  with MATRIX_XMX, of matrix_xmx8.h with MATRIX_XMX8, or of matrix_fma.h with MATRIX_FMA
 *   gemv           M = 1 on GPUs, B with one unit stride (gemv.h)
 *   gemv_portable  M = 1; work-groups of 16 columns x 16 parts of the slice of k or, with B_K_MAJOR, of 1 x
 *                  64
 *   gemm_small_m   few rows, quantized B (gemm_small_m.h); gemm_small_m_mma on tensor cores
 *                  (gemm_small_m_mma.h), gemm_small_m_host on CPUs (gemm_small_m_host.h). These and gemv also
 *                  take several B: gemm_fused.h
 *   gemm_skinny    CPU, few rows, A and B K-major: a subgroup reads its columns of B once, 16 elements of k
 *                  at a time; SKINNY=1, 2 or 4 rows and COLUMNS_AT_ONCE=1 or 4
 *   gemm_host      CPU, fp32, fp16 and bf16 (gemm_host.h)
 *   gemm_reduce_slices   split-K: adds up the slices' partial sums; PARTS work-items per element
 *   gemm_epilogue  CPU: post-processes sums of another library; a work-group has GEMM_EPILOGUE_SPAN columns
 *                  of a row; CONTIGUOUS_MASK, whose columns are contiguous: 1 the result, 2 C, 4 the binary
 *                  post-op's operand, 8 B's scales
 *
 * Options of all kernels:
 *   T, COMPLEX_T, FLOAT_T, DOUBLE_T   dtype and its class (gemm_tile.h); OPERAND_T, dtype of A and B if it
 *   isn't T
 *   A_SCALE, B_SCALE        dtypes of scales of A's rows and B's columns, which multiply the sums
 *   ZERO_COMPENSATION       zero-point compensation is subtracted from the sums: products of integers of A's
 *                           rows and B's columns
 *   A_UNSIGNED, B_UNSIGNED  the int8 operand is uint8; it is shifted by -128 except on XMX
 *   OUT_T, OTHER_T, OUT_BYTES, OTHER_BYTES   quantize_output.h
 *   COMBINE, EPILOGUE       epilogue_math.h; CONJUGATE_A, CONJUGATE_B: 0 or 1
 *   GROUPED                 1: rows of A and of the result are those of `batch` consecutive groups, each with
 *                           its own B; 2: likewise columns of B and of the result; 3: k, each group has its
 *                           own result. For gemm, gemm_matrix and gemm_host; groups whose ends are not
 *                           ascending, or out of range, are empty
 *   QUANTIZED_B=1           gemm_matrix with quantized B on tensor cores or XMX (16 lanes): mma_dequant.h,
 *                           gemm_xmx_dequant.h
 *   IS_SPLIT=1              split-K: gemm_matrix, gemm, gemv and gemv_portable store partial sums to
 *                           `partial`
 *   BAND                    gemm_matrix: rows of tiles that are scheduled together
 *   OUT_VECTOR_BYTES        gemm_matrix: contiguous result bytes stored at a time, 0 for any strides;
 *                           OTHER_VECTOR_BYTES, likewise loaded of the binary post-op's operand
 *   C_FORM                  gemm_matrix: 0 no C, 1 any strides, 2 contiguous, loaded C_VECTOR_BYTES at a time
 */
#ifndef GROUPED
#define GROUPED 0
#endif
#include "gemm/gemm.h"
#include "gemm/quantized.h"
#include "gemm/gemm_tile.h"
#include "matrix/pieces.h"
#include "matrix/quad.h"
#define ending_t value_t
#include "matrix/epilogue_math.h"
#include "matrix/leaving.h"

#if QUANTIZED_B || defined(FEW) || defined(FEW_ON_HOST) || defined(FEW_BY_UNITS)
#include "gemm/quantized_read.h"
#endif
#if defined(HOST_ROWS) || defined(FEW_ON_HOST) /* a file comes in once, where it is first asked for */
#include "sixteen.h"
#endif
#if QUANTIZED_B
#define GIVEN const gemm_quantized_params q
#if GROUPED
#define TAKE_GIVEN gemm_params p = q.gemm;
#else
#define TAKE_GIVEN const gemm_params p = q.gemm;
#endif
#elif GROUPED
#define GIVEN const gemm_params given
#define TAKE_GIVEN gemm_params p = given;
#else
#define GIVEN const gemm_params p
#define TAKE_GIVEN
#endif

#ifdef A_UNSIGNED
#define A_FLIP 0x80808080u /* of four bytes, whose numbers are 128 less then */
#endif
#ifdef B_UNSIGNED
#define B_FLIP 0x80808080u
#endif

#define MINUS_AT(side, i)                                                                                    \
    (p->minus_plus[side] + (p->minus[side] ? XPU_CPTR(int, p->minus[side])[(i) * p->minus_stride[side]] : 0))

#define SCALE_AT(t, address, place) (float)LOAD(t, XPU_CPTR(STORED(t), address), place)

/* alpha times a sum, before C is added. */
static inline value_t scaled(const gemm_params *p, long b, long m, long n, acc_t sum) {
    if (p->k == 0) return (value_t)0; /* alpha may be infinite */
#ifdef MINUS
    sum -= MINUS_AT(0, m) * MINUS_AT(1, n);
#endif
    value_t v = (value_t)sum;
#ifdef A_SCALE
    v *= SCALE_AT(A_SCALE, p->a_scale, b * p->a_scale_stride[0] + m * p->a_scale_stride[1]);
#endif
#ifdef B_SCALE
    v *= SCALE_AT(B_SCALE, p->b_scale, b * p->b_scale_stride[0] + n * p->b_scale_stride[1]);
#endif
    return multiply(SCALAR(p->alpha), v);
}

static inline long c_place(const gemm_params *p, long b, long m, long n) {
    return b * p->c_stride.batch + m * p->c_stride.row + n * p->c_stride.column;
}

/* C, and what is combined with the sums. */
#define FETCH_RESULT(address, place) ((value_t)LOAD(T, XPU_CPTR(STORED(T), address), place))
#define FETCH_C(place) FETCH_RESULT(p->c, place)
#if COMBINE
static inline long other_place(const gemm_params *p, long b, long m, long n) {
    return b * p->other_stride.batch + m * p->other_stride.row + n * p->other_stride.column;
}
#define OTHER(p, b, m, n) coming(&(p)->leave, (p)->end.other, other_place(p, b, m, n))
#else
#define OTHER(p, b, m, n) ((value_t)0)
#endif

static inline value_t value(const gemm_params *p, long b, long m, long n, acc_t sum) {
    value_t v = scaled(p, b, m, n, sum), beta = SCALAR(p->beta);
    if (!is_zero(beta)) v = multiply_add(v, beta, FETCH_C(c_place(p, b, m, n)));
    return ended(&p->end, v, OTHER(p, b, m, n));
}

static inline void put(const gemm_params *p, long b, long m, long n, acc_t sum) {
    STORE(OUT_T, XPU_PTR(STORED(OUT_T), p->out),
          b * p->out_stride.batch + m * p->out_stride.row + n * p->out_stride.column,
          leaving(&p->leave, value(p, b, m, n, sum)));
}

#if defined(FEW) || defined(FEW_BY_UNITS) || defined(VECTOR)
#include "gemm/gemm_joined.h"
#endif

#if CONJUGATE_A
#define MAYBE_CONJUGATE_A(x) conjugate(x)
#else
#define MAYBE_CONJUGATE_A(x) (x)
#endif
#if CONJUGATE_B
#define MAYBE_CONJUGATE_B(x) conjugate(x)
#else
#define MAYBE_CONJUGATE_B(x) (x)
#endif

#ifdef TILE
#define TILE_M TILE
#define TILE_N TILE
#endif
#ifndef BAND
#define BAND 1
#endif
/* What a group computes: the tile that begins at row m and column n of product b, over `depth` of k from k on. */
typedef struct tile_place {
    long m, n, b, slice, k, depth;
} tile_place;

#if GROUPED
/* The group whose tiles number *g, made a number in it, is one of, and where it begins and ends: it has
 * `across` of them for each `size` rows or columns, or, of k, `across` in all. Negative where there is none.
 */
static inline int find_group(const gemm_params *p, uint *g, uint size, uint across, long *from, long *to) {
    const long most = GROUPED == 1 ? p->m : GROUPED == 2 ? p->n : p->k;
    __global const int *ends = XPU_CPTR(int, p->ends);
    *to = 0;
    for (int i = 0; i < (int)p->batch; i++) {
        *from = *to;
        *to = clamp((long)ends[i], *from, most);
        const uint tiles = GROUPED == 3 ? across : (uint)((*to - *from + size - 1) / size) * across;
        if (*g < tiles) return i;
        *g -= tiles;
    }
    return -1;
}
#endif

/* Number g is (slice, batch, band of BAND rows of tiles, column, row in the band): groups that run at a time
 * share rows and columns, which lie in the cache then. Where groups are computed `p` becomes the tile's
 * group's; b is negative where the number is none's. */
#if GROUPED
static inline tile_place find_place(__private gemm_params *p, const uint tile_m, const uint tile_n) {
#else
static inline tile_place find_place(const gemm_params *p, const uint tile_m, const uint tile_n) {
#endif
    uint tiles_n = (uint)((p->n + tile_n - 1) / tile_n), tiles_m = (uint)((p->m + tile_m - 1) / tile_m);
    uint t = (uint)XPU_GROUP(0);
    tile_place at = {0};
#if GROUPED
    long from = 0, to = 0;
    at.b = GROUPED == 1   ? find_group(p, &t, tile_m, tiles_n, &from, &to)
           : GROUPED == 2 ? find_group(p, &t, tile_n, tiles_m, &from, &to)
                          : find_group(p, &t, 1, tiles_m * tiles_n, &from, &to);
    if (at.b < 0) return at;
    at.depth = GROUPED == 3 ? to - from : p->k;
    if (GROUPED == 1) tiles_m = (uint)((to - from + tile_m - 1) / tile_m), at.m = from, p->m = to;
    if (GROUPED == 2) tiles_n = (uint)((to - from + tile_n - 1) / tile_n), at.n = from, p->n = to;
    if (GROUPED == 3) at.k = from, p->k = to;
#else
    const uint each = tiles_m * tiles_n, z = t / each;
    t %= each;
    at.b = z % (uint)p->batch, at.slice = z / (uint)p->batch;
    at.k = at.slice * p->slice, at.depth = min(p->k - at.k, p->slice);
#endif
    const uint first = t / (BAND * tiles_n) * BAND, rows = min(tiles_m - first, (uint)BAND), u = t % (BAND * tiles_n);
    at.m += (long)(first + u % rows) * tile_m, at.n += (long)(u / rows) * tile_n;
    return at;
}
#if GROUPED
#define FIND_TILE(at, tile_m, tile_n)                                                                        \
    const tile_place at = find_place(&p, tile_m, tile_n);                                                    \
    if (at.b < 0) return
#else
#define FIND_TILE(at, tile_m, tile_n) const tile_place at = find_place(&p, tile_m, tile_n)
#endif

#ifdef HOST_ROWS
#include "gemm/gemm_host.h"
#endif

#ifdef TILE
__kernel __attribute__((reqd_work_group_size(LX, LY, 1))) void gemm(GIVEN) {
    TAKE_GIVEN
    __local acc_t slab_a[TILE_K][PITCH], slab_b[TILE_K][PITCH];
    FIND_TILE(at, TILE, TILE);
    const long n0 = at.n, m0 = at.m, b = at.b, k_begin = at.k, k_end = at.k + at.depth;
    const xpu_addr pa = p.a + b * p.a_stride.batch * sizeof(STORED(OPERAND_T));
    const xpu_addr pb = p.b + b * p.b_stride.batch * sizeof(STORED(OPERAND_T));

#define A_AT(mm, kk) \
    ((mm) < p.m && (kk) < k_end ? MAYBE_CONJUGATE_A(FETCH(pa, (mm) * p.a_stride.row + (kk) * p.a_stride.column)) : (acc_t)0)
#define B_AT(kk, nn) \
    ((nn) < p.n && (kk) < k_end ? MAYBE_CONJUGATE_B(FETCH(pb, (kk) * p.b_stride.row + (nn) * p.b_stride.column)) : (acc_t)0)

    acc_t sum[SIDE][SIDE];
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) sum[i][j] = (acc_t)0;
    TILE_PRODUCT(sum, A_AT, B_AT, m0, n0, k_begin, k_end);
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            const long m = m0 + PLACE(get_local_id(1), i), n = n0 + PLACE(get_local_id(0), j);
            if (m >= p.m || n >= p.n) continue;
#if SLICED
            XPU_PTR(acc_t, p.partial)[((at.slice * p.batch + b) * p.m + m) * p.n + n] = sum[i][j];
#else
            put(&p, b, m, n, sum[i][j]);
#endif
        }
}
#endif

#ifdef MATRIX_T
static inline void put_sum(const gemm_params *p, const tile_place *at, long m, long n, acc_t sum) {
    if (m >= p->m || n >= p->n) return;
#if SLICED
    XPU_PTR(acc_t, p->partial)[((at->slice * p->batch + at->b) * p->m + m) * p->n + n] = sum;
#else
    put(p, at->b, m, n, sum);
#endif
}
#endif

#ifdef FEW_BY_UNITS
#define MATRIX_T T
#endif
#if defined(MATRIX_PTX) || defined(FEW_BY_UNITS)
#include "matrix/matrix_ptx.h"
#endif
#ifdef MATRIX_FMA
#include "matrix/matrix_fma.h"
#define RUN 4 /* sums that are written together */
#elif defined(MATRIX_PTX)
#include "matrix/matrix.h"
#if QUANTIZED_B
#include "matrix/matrix_quantized.h"
#endif
#define RUN 8
#endif
#ifdef RUN
#include "gemm/gemm_put.h"
#endif

#if defined(MATRIX_XMX) || defined(MATRIX_SQUARES)
#ifdef MATRIX_EMULATED
#include "matrix/matrix_units.cl" /* here, since a file is included once */
#endif
/* Of bytes; of uint8 operands are of unsigned types. */
#ifdef MATRIX_XMX
#define AS_UNSIGNED_LEFT as_ushort8
#else
#define AS_UNSIGNED_LEFT as_uint8
#endif
#if defined(A_UNSIGNED) && defined(B_UNSIGNED)
#define MULTIPLY_BYTES(a, b, sum) intel_sub_group_u8_u8_matrix_mad_k32(AS_UNSIGNED_LEFT(a), as_uint8(b), sum)
#elif defined(A_UNSIGNED)
#define MULTIPLY_BYTES(a, b, sum) intel_sub_group_u8_i8_matrix_mad_k32(AS_UNSIGNED_LEFT(a), b, sum)
#elif defined(B_UNSIGNED)
#define MULTIPLY_BYTES(a, b, sum) intel_sub_group_i8_u8_matrix_mad_k32(a, as_uint8(b), sum)
#else
#define MULTIPLY_BYTES intel_sub_group_i8_i8_matrix_mad_k32
#endif
#ifdef MATRIX_XMX
#include "matrix/matrix_xmx.h"
#include "gemm/gemm_blocks.h"
#else
#include "matrix/matrix_squares.h"
#endif
/* A team's sums, of the rows from m and the columns from n on. */
static inline void put_blocks(const gemm_params *p, const tile_place *at, long m, long n,
                              __private sum_block (*sum)[SUMS_N]) {
    n += get_local_id(0) % MATRIX_TEAM;
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++)
        WRITTEN_OUT for (int j = 0; j < SUMS_N; j++) {
            const acc_t rows[8] = {sum[i][j].s0, sum[i][j].s1, sum[i][j].s2, sum[i][j].s3,
                                   sum[i][j].s4, sum[i][j].s5, sum[i][j].s6, sum[i][j].s7};
            WRITTEN_OUT for (int r = 0; r < 8; r++) put_sum(p, at, m + i * 8 + r, n + j * MATRIX_TEAM, rows[r]);
        }
}

__attribute__((intel_reqd_sub_group_size(MATRIX_TEAM))) __attribute__((reqd_work_group_size(THREADS, 1, 1)))
__kernel void gemm_matrix(GIVEN) {
    TAKE_GIVEN
    FIND_TILE(at, TILE_M, TILE_N);
    const uint team = get_local_id(0) / MATRIX_TEAM;
    const uint m = team % TEAMS_DOWN * (SUMS_M * 8), n = team / TEAMS_DOWN * (SUMS_N * MATRIX_TEAM);
    sum_block sum[SUMS_M][SUMS_N];
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++)
        WRITTEN_OUT for (int j = 0; j < SUMS_N; j++) sum[i][j] = 0;
#ifdef MATRIX_XMX
    const surface a = {XPU_PTR(void, p.a + at.b * p.a_stride.batch * ELEMENT),
                       (int)(A_K_FAST ? p.k : p.m) * ELEMENT, (int)(A_K_FAST ? p.m : p.k),
                       (int)(A_K_FAST ? p.a_stride.row : p.a_stride.column) * ELEMENT};
#if QUANTIZED_B
    const surface b = {XPU_PTR(void, q.b.data + at.b * q.b.batch * E_BITS / 8), (int)p.k * E_BITS / 8, (int)p.n,
                       (int)q.b.across * E_BITS / 8};
#if SHARED_B
    __local uint made[2 * MADE_ROUND] __attribute__((aligned(64)));
#define GIVEN_LINES , &q.b, at.b, made
#else
#define GIVEN_LINES , &q.b, at.b
#endif
#else
    const surface b = {XPU_PTR(void, p.b + at.b * p.b_stride.batch * ELEMENT),
                       (int)(B_K_FAST ? p.k : p.n) * ELEMENT, (int)(B_K_FAST ? p.n : p.k),
                       (int)(B_K_FAST ? p.b_stride.column : p.b_stride.row) * ELEMENT};
#define GIVEN_LINES
#endif
    multiply_surfaces(sum, &a, &b, (int)at.m, (int)at.n, (int)(at.m + m), (int)(at.n + n), (int)at.k,
                      (int)(at.k + at.depth) GIVEN_LINES);
#else
    __local uchar slabs[2 * STAGE] __attribute__((aligned(64)));
    const uint pitch_a = (uint)p.a_stride.row * ELEMENT, pitch_b = (uint)p.b_stride.column * ELEMENT;
    xpu_addr pa = p.a + (at.b * p.a_stride.batch + at.m * p.a_stride.row + at.k) * ELEMENT;
    xpu_addr pb = p.b + (at.b * p.b_stride.batch + at.n * p.b_stride.column + at.k) * ELEMENT;
    operand_a a;
    operand_b b;
    open_pieces(a.at, pitch_a, (int)min(p.m - at.m, (long)TILE_M), TILE_M, true);
    open_pieces(b.at, pitch_b, (int)min(p.n - at.n, (long)TILE_N), TILE_N, false);
    const int depth = (int)at.depth * ELEMENT;
    int stage = 0;
#define FETCH_BOTH(step)                                                                                     \
    {                                                                                                        \
        const int left_ = depth - (step) * LINE;                                                             \
        if (left_ > 0) {                                                                                     \
            fetch_pieces(a.next, pa, a.at, left_, TILE_M, true);                                             \
            fetch_pieces(b.next, pb, b.at, left_, TILE_N, false);                                            \
        }                                                                                                    \
        pa += LINE, pb += LINE;                                                                              \
    }
#define KEEP_BOTH(slab)                                                                                      \
    {                                                                                                        \
        keep_left(slab, a.next);                                                                             \
        keep_right((slab) + TILE_M * LINE, b.next);                                                          \
    }
    PRODUCT_BY_TURNS(sum, slabs, stage, (depth + LINE - 1) / LINE, FETCH_BOTH, KEEP_BOTH);
#endif
    put_blocks(&p, &at, at.m + m, at.n + n, sum);
}
#elif defined(MATRIX_FMA)
#define BYTES ((int)sizeof(STORED(OPERAND_T))) /* of an element in memory */
MATRIX_KERNEL __attribute__((reqd_work_group_size(THREADS, 1, 1))) void gemm_matrix(GIVEN) {
    TAKE_GIVEN
    __local number_t slabs[2 * STAGE] SLAB_ALIGNED;
    FIND_TILE(at, TILE_M, TILE_N);
    const long step_a = p.a_stride.column * ELEMENT, step_b = p.b_stride.row * ELEMENT; /* along k */
    const uint pitch_a = (uint)(A_K_FAST ? p.a_stride.row * BYTES : step_a);
    const uint pitch_b = (uint)(B_K_FAST ? p.b_stride.column * BYTES : step_b);
    xpu_addr pa = p.a + (at.b * p.a_stride.batch + at.m * p.a_stride.row + at.k * p.a_stride.column) * BYTES;
    xpu_addr pb = p.b + (at.b * p.b_stride.batch + at.n * p.b_stride.column + at.k * p.b_stride.row) * BYTES;
    const int left_m = (int)min(p.m - at.m, (long)TILE_M), left_n = (int)min(p.n - at.n, (long)TILE_N);
    const int whole = (int)(at.depth / (TILE_K * K_EACH)), rest = (int)(at.depth % (TILE_K * K_EACH));

    operand_a a;
    operand_b o;
    open_quads(a.at, pitch_a, left_m, TILE_M, A_K_FAST);
    open_quads(o.at, pitch_b, left_n, TILE_N, B_K_FAST);
    acc_t sum[SUMS_M][SUMS_N];
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) WRITTEN_OUT for (int j = 0; j < SUMS_N; j++) sum[i][j] = (acc_t)0;

#define FETCH_BOTH(step) /* the last tile is read twice rather than asked for */                             \
    {                                                                                                        \
        pa += 0 < (step) && (step) < whole ? TILE_K * step_a : 0;                                            \
        pb += 0 < (step) && (step) < whole ? TILE_K * step_b : 0;                                            \
        fetch_quads(a.next, pa, a.at, left_m, TILE_M, A_K_FAST, A_QUADS);                                    \
        fetch_quads(o.next, pb, o.at, left_n, TILE_N, B_K_FAST, B_QUADS);                                    \
    }
#define KEEP_BOTH(slab)                                                                                      \
    {                                                                                                        \
        FLIP_QUADS(a.next, TILE_M, A_FLIP);                                                                  \
        FLIP_QUADS(o.next, TILE_N, B_FLIP);                                                                  \
        keep_quads(slab, a.next, TILE_M, A_K_FAST, CONJUGATE_A, (number_t)0);                                \
        keep_quads((slab) + TILE_K * PITCH_A, o.next, TILE_N, B_K_FAST, CONJUGATE_B, (number_t)0);           \
    }
    int stage = 0;
    PRODUCT_BY_TURNS(sum, slabs, stage, whole, FETCH_BOTH, KEEP_BOTH);
    if (rest > 0) {
        if (whole > 0) pa += TILE_K * step_a, pb += TILE_K * step_b;
        fetch_rest(a.next, pa, pitch_a, rest, left_m, TILE_M, A_K_FAST);
        fetch_rest(o.next, pb, pitch_b, rest, left_n, TILE_N, B_K_FAST);
        KEEP_BOTH(slabs + stage); /* in place of the tile that was read twice */
        barrier(CLK_LOCAL_MEM_FENCE);
        multiply_slab(sum, slabs + stage);
    }

    const long row = at.m + first_row(), column = at.n + first_column();
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) WRITTEN_OUT for (int j = 0; j < SUMS_N; j += 4)
        put_run(&p, &at, row + i / 4 * 16 + i % 4, column + j / 4 * 32, &sum[i][j]);
}
#elif defined(MATRIX_PTX)
/* Lanes that differ in `bit` change the numbers whose places differ in `place`. */
static inline void exchange(__private acc_t (*two)[2], const uint bit, const uint place) {
    const bool upper = MATRIX_LANE & bit;
    WRITTEN_OUT for (uint i = 0; i < 4; i++) {
        if (i & place) continue;
        WRITTEN_OUT for (uint j = 0; j < 2; j++) {
            const acc_t sent = upper ? two[i][j] : two[i + place][j];
            const acc_t got = XPU_CAT(as_, acc_t)(lane_across(as_float(sent), bit));
            two[i][j] = upper ? got : two[i][j];
            two[i + place][j] = upper ? two[i + place][j] : got;
        }
    }
}
/* Four lanes have neighbors of a row, two of each of four blocks; then each has the eight of one block. Of
 * blocks of even and of odd columns beside each other (ptx_units.h) they have four, in two of them. */
static inline void gather_row(__private acc_t (*two)[2]) {
#if MATRIX_BYTES && !B_K_FAST
    acc_t four[4][2];
    WRITTEN_OUT for (uint i = 0; i < 4; i++)
        WRITTEN_OUT for (uint j = 0; j < 2; j++) four[i][j] = two[i / 2 * 2 + j][i % 2];
    exchange(four, 2, 2);
    exchange(four, 1, 2);
    WRITTEN_OUT for (uint i = 0; i < 4; i++) WRITTEN_OUT for (uint j = 0; j < 2; j++) two[i][j] = four[i][j];
#else
    exchange(two, 1, 1);
    exchange(two, 2, 2);
#endif
}

MATRIX_KERNEL __attribute__((reqd_work_group_size(THREADS, 1, 1))) void gemm_matrix(GIVEN) {
    TAKE_GIVEN
    __local uchar slabs[STAGES * STAGE_BYTES] SLAB_ALIGNED;
    FIND_TILE(at, TILE_M, TILE_N);
    const long m0 = at.m, n0 = at.n, depth = at.depth;
    const long step_a = p.a_stride.column * ELEMENT; /* along k */
    const long pitch_a = A_K_FAST ? p.a_stride.row * ELEMENT : step_a, ahead_a = TILE_K * step_a;
    const xpu_addr pa =
        p.a + (at.b * p.a_stride.batch + m0 * p.a_stride.row + at.k * p.a_stride.column) * ELEMENT;
    const int left_m = (int)min(p.m - m0, (long)TILE_M), left_n = (int)min(p.n - n0, (long)TILE_N);

    operand_a a;
    open_operand(a.from, pa, pitch_a, left_m, TILE_M, A_K_FAST);
#if QUANTIZED_B
    operand_lines o;
#define OPEN_B(step) open_lines(&o, &q.b, at.b, n0, at.k + (step) * TILE_K, left_n)
#define LOAD_PART_B(stage, depth) load_octets(stage, &o, &q.b, depth)
/* What came with the step before is written down, and the next read. */
#define LOAD_B(stage, on, part)                                                                              \
    {                                                                                                        \
        keep_octets(stage, &o, &q.b, part);                                                                  \
        if ((part) == LOADS - 1) {                                                                           \
            step_octets(&o, on);                                                                             \
            fetch_octets(&o, &q.b);                                                                          \
        }                                                                                                    \
    }
#define BEGIN_B fetch_octets(&o, &q.b)
#else
    const long step_b = p.b_stride.row * ELEMENT;
    const long pitch_b = B_K_FAST ? p.b_stride.column * ELEMENT : step_b, ahead_b = TILE_K * step_b;
    const xpu_addr pb =
        p.b + (at.b * p.b_stride.batch + n0 * p.b_stride.column + at.k * p.b_stride.row) * ELEMENT;
    operand_b o;
#define OPEN_B(step) open_operand(o.from, pb + (step) * ahead_b, pitch_b, left_n, TILE_N, B_K_FAST)
#define LOAD_PART_B(stage, depth) load_part(stage, o.from, ahead_b, depth, left_n, TILE_N, B_K_FAST, B_PIECE)
#define LOAD_B(stage, on, part) load_slab(stage, o.from, (on) ? ahead_b : 0, TILE_N, B_K_FAST)
#define BEGIN_B
#endif
    OPEN_B(0);
    fragment_sum sum[FRAGMENTS_M][FRAGMENTS_N];
    WRITTEN_OUT for (int i = 0; i < FRAGMENTS_M; i++)
        WRITTEN_OUT for (int j = 0; j < FRAGMENTS_N; j++) sum[i][j] = (fragment_sum)0;

#define LOAD_REST(stage, step, part)                                                                         \
    if ((part) == 0) {                                                                                       \
        const int left_ = (int)clamp(depth - (long)(step) * TILE_K, 0L, (long)TILE_K);                       \
        load_part(stage, a.from, ahead_a, left_, left_m, TILE_M, A_K_FAST, A_PIECE);                         \
        LOAD_PART_B((stage) + SLAB_A_BYTES, left_);                                                          \
    }
#if A_PIECE == 16 && B_PIECE == 16
    const int whole = (int)(depth / TILE_K) / SLABS_AT_ONCE * SLABS_AT_ONCE;
#define LOAD_BOTH(stage, step, part)                                                                         \
    {                                                                                                        \
        const bool on_ = (step) + 1 < whole;                                                                 \
        if ((part) == 0) load_slab(stage, a.from, on_ ? ahead_a : 0, TILE_M, A_K_FAST);                      \
        LOAD_B((stage) + SLAB_A_BYTES, on_, part);                                                           \
    }
    if (whole > 0) {
        BEGIN_B;
        MATRIX_PRODUCT(sum, SLAB_OF(slabs), whole, LOAD_BOTH);
    }
    open_operand(a.from, pa + whole * ahead_a, pitch_a, left_m, TILE_M, A_K_FAST);
    OPEN_B(whole);
    for (int s = whole; s * TILE_K < depth; s++) MATRIX_PRODUCT_OF_SLAB(sum, SLAB_OF(slabs), s, LOAD_REST);
#else
    const int all = (int)((depth + TILE_K * SLABS_AT_ONCE - 1) / (TILE_K * SLABS_AT_ONCE)) * SLABS_AT_ONCE;
    MATRIX_PRODUCT(sum, SLAB_OF(slabs), all, LOAD_REST);
#endif

    const uint lane = get_local_id(0) % MATRIX_TEAM, team = get_local_id(0) / MATRIX_TEAM;
    const long row = m0 + team % TEAMS_M * (FRAGMENTS_M * 16) + lane / 4 * LEFT_ROWS;
    const long column = n0 + team / TEAMS_M * (FRAGMENTS_N * 8) + lane % 4 * 8;
    WRITTEN_OUT for (int i = 0; i < FRAGMENTS_M; i++)
        WRITTEN_OUT for (int j = 0; j < FRAGMENTS_N; j += 4)
            WRITTEN_OUT for (int lower = 0; lower < 2; lower++) {
                acc_t two[4][2];
                WRITTEN_OUT for (int l = 0; l < 4; l++) {
                    two[l][0] = lower ? sum[i][j + l].z : sum[i][j + l].x;
                    two[l][1] = lower ? sum[i][j + l].w : sum[i][j + l].y;
                }
                gather_row(two);
                put_run(&p, &at, row + i * 16 + lower * LEFT_HALVES, column + j * 8, &two[0][0]);
            }
}
#endif

#ifdef VECTOR
#include "gemm/gemm_vector.h"
#endif

#ifdef FEW
#include "gemm/gemm_few.h"
#elif defined(FEW_ON_HOST)
#include "gemm/gemm_few_host.h"
#elif defined(FEW_BY_UNITS)
#include "gemm/gemm_few_units.h"
#endif

#ifdef ROW
#define COLUMNS (B_K_FAST ? 1 : 16)
#define PARTS (B_K_FAST ? 64 : 16)
__kernel __attribute__((reqd_work_group_size(COLUMNS, PARTS, 1))) void gemm_row(const gemm_params p) {
    __local acc_t sums[PARTS][COLUMNS];
    const long blocks = (p.n + COLUMNS - 1) / COLUMNS;
    long g = XPU_GROUP(0);
    const int x = (int)get_local_id(0), y = (int)get_local_id(1);
    const long n = g % blocks * COLUMNS + x;
    g /= blocks;
    const long b = g % p.batch, slice = g / p.batch;
    const long k_end = min(p.k, (slice + 1) * p.slice);
    const long a0 = b * p.a_stride.batch, b0 = b * p.b_stride.batch + n * p.b_stride.column;
    acc_t sum = (acc_t)0;
    if (n < p.n)
        for (long k = slice * p.slice + y; k < k_end; k += PARTS) {
            const acc_t u = MAYBE_CONJUGATE_A(FETCH(p.a, a0 + k * p.a_stride.column));
            const acc_t v = MAYBE_CONJUGATE_B(FETCH(p.b, b0 + k * p.b_stride.row));
            sum = add_product(sum, u, v);
        }
    sums[y][x] = sum;
    for (int half_ = PARTS / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (y < half_) sums[y][x] += sums[y + half_][x];
    }
    if (y == 0 && n < p.n) {
#if SLICED
        XPU_PTR(acc_t, p.partial)[(slice * p.batch + b) * p.n + n] = sums[0][x];
#else
        put(&p, b, 0, n, sums[0][x]);
#endif
    }
}
#endif

#ifdef THIN
#define LANES 16
#define COLUMNS (LANES / THIN) /* of a subgroup, so that each lane gets one result */
#define DEPTH (THIN * STREAMS >= 8 ? 1 : THIN * STREAMS == 4 ? 2 : 4) /* of k: sums that don't wait for each other */
__attribute__((intel_reqd_sub_group_size(LANES))) __attribute__((reqd_work_group_size(LANES, 1, 1)))
__kernel void gemm_thin(const gemm_params p) {
    const uint lane = get_sub_group_local_id();
    const long blocks = (p.n + COLUMNS - 1) / COLUMNS, g = XPU_GROUP(0);
    const long n0 = g % blocks * COLUMNS, b = g / blocks;
    const xpu_addr pa = p.a + b * p.a_stride.batch * sizeof(STORED(OPERAND_T));
    const xpu_addr pb = p.b + b * p.b_stride.batch * sizeof(STORED(OPERAND_T));
    for (long m0 = 0; m0 < p.m; m0 += THIN) {
        float mine = 0;
        for (int n = 0; n < COLUMNS; n += STREAMS) {
            /* Beyond the last row or column the last is done again. */
            xpu_addr row[THIN], column[STREAMS];
            float sum[THIN][STREAMS][DEPTH];
            for (int i = 0; i < THIN; i++)
                row[i] = pa + min(m0 + i, p.m - 1) * p.a_stride.row * sizeof(STORED(T));
            for (int j = 0; j < STREAMS; j++)
                column[j] = pb + min(n0 + n + j, p.n - 1) * p.b_stride.column * sizeof(STORED(T));
            for (int i = 0; i < THIN; i++)
                for (int j = 0; j < STREAMS; j++)
                    for (int d = 0; d < DEPTH; d++) sum[i][j][d] = 0;
#define STEP(k, d)                                                                                           \
    {                                                                                                        \
        float v[STREAMS];                                                                                    \
        for (int j = 0; j < STREAMS; j++) v[j] = FETCH(column[j], k);                                        \
        for (int i = 0; i < THIN; i++) {                                                                     \
            const float u = FETCH(row[i], k);                                                                \
            for (int j = 0; j < STREAMS; j++) sum[i][j][d] = fma(u, v[j], sum[i][j][d]);                     \
        }                                                                                                    \
    }
            long k = 0;
            for (; k + DEPTH * LANES <= p.k; k += DEPTH * LANES)
                for (int d = 0; d < DEPTH; d++) STEP(k + d * LANES + lane, d)
            for (; k + LANES <= p.k; k += LANES) STEP(k + lane, 0)
            if (k + lane < p.k) STEP(k + lane, 0)
            for (int i = 0; i < THIN; i++)
                for (int j = 0; j < STREAMS; j++) {
                    float all = 0;
                    for (int d = 0; d < DEPTH; d++) all += sum[i][j][d];
                    all = sub_group_reduce_add(all);
                    if (lane == i * COLUMNS + n + j) mine = all;
                }
        }
        const long m = m0 + lane / COLUMNS, n = n0 + lane % COLUMNS;
        if (m < p.m && n < p.n) put(&p, b, m, n, mine);
    }
}
#endif

#ifdef FINISH
#define SUMS (256 / PARTS)
__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void gemm_finish(GIVEN) {
    TAKE_GIVEN
    const int x = (int)get_local_id(0) % SUMS, part = (int)get_local_id(0) / SUMS;
    const long i = XPU_GROUP(0) * SUMS + x, count = p.batch * p.m * p.n;
    acc_t sum = (acc_t)0;
    if (i < count)
        for (long s = part; s < p.slices; s += PARTS) sum += XPU_CPTR(acc_t, p.partial)[s * count + i];
#if PARTS > 1
    __local acc_t sums[256];
    sums[get_local_id(0)] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (part > 0) return;
    for (int other = 1; other < PARTS; other++) sum += sums[other * SUMS + x];
#endif
    if (i >= count) return;
    const long n = i % p.n, m = i / p.n % p.m, b = i / p.n / p.m;
    put(&p, b, m, n, sum);
}
#endif

#ifdef ROWS_OF_SUMS
__kernel __attribute__((reqd_work_group_size(GEMM_ROW_LANES, 1, 1))) void gemm_rows(const gemm_params p) {
    const long spans = (p.n + GEMM_ROW_SPAN - 1) / GEMM_ROW_SPAN, g = XPU_GROUP(0), row = g / spans;
    const long m = row % p.m, b = row / p.m, from = g % spans * GEMM_ROW_SPAN;
    const long to = min(p.n, from + GEMM_ROW_SPAN);
    gemm_params q = p;
    if (NEIGHBORS & 1) q.out_stride.column = 1;
    if (NEIGHBORS & 2) q.c_stride.column = 1;
    if (NEIGHBORS & 4) q.other_stride.column = 1;
    if (NEIGHBORS & 8) q.b_scale_stride[1] = 1;
    __global const acc_t *const sums = XPU_CPTR(acc_t, p.partial) + row * p.n;
    for (long n = from + (long)get_local_id(0); n < to; n += GEMM_ROW_LANES) put(&q, b, m, n, sums[n]);
}
#endif
