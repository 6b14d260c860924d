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
 *                           own result. For gemm, gemm_matrix and gemm_host; ends that are not ascending,
 *                           or out of range, are reported
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
#include "matrix/tile_copy.h"
#include "matrix/quad.h"
#define post_ops_t value_t
#include "matrix/epilogue_math.h"
#include "matrix/quantize_output.h"

#if QUANTIZED_B || defined(FEW) || defined(SMALL_M_ON_HOST) || defined(SMALL_M_MMA)
#include "gemm/quantized_load.h"
#endif
#if defined(HOST_ROWS) || defined(SMALL_M_ON_HOST) /* a file is included only once, at its first use */
#include "vector16.h"
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
#define A_FLIP 0x80808080u /* turns four uint8 elements into int8 ones that are smaller by 128 */
#endif
#ifdef B_UNSIGNED
#define B_FLIP 0x80808080u
#endif

#define COMPENSATION_AT(side, i)                                                                             \
    (p->compensation_common[side] +                                                                          \
     (p->compensation[side] ? XPU_CPTR(int, p->compensation[side])[(i) * p->compensation_stride[side]] : 0))

#define SCALE_AT(t, address, place) (float)LOAD(t, XPU_CPTR(STORED(t), address), place)

/* The scaled sum, before C is added. */
static inline value_t scaled(const gemm_params *p, long b, long m, long n, acc_t sum) {
    if (p->k == 0) return (value_t)0; /* alpha may be infinite */
#ifdef ZERO_COMPENSATION
    sum -= COMPENSATION_AT(0, m) * COMPENSATION_AT(1, n);
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

static inline long c_offset(const gemm_params *p, long b, long m, long n) {
    return b * p->c_stride.batch + m * p->c_stride.row + n * p->c_stride.column;
}

/* C and the operand of the binary post-op. */
#define FETCH_RESULT(address, place) ((value_t)LOAD(T, XPU_CPTR(STORED(T), address), place))
#define FETCH_C(place) FETCH_RESULT(p->c, place)
#if COMBINE
static inline long other_offset(const gemm_params *p, long b, long m, long n) {
    return b * p->other_stride.batch + m * p->other_stride.row + n * p->other_stride.column;
}
#define OTHER(p, b, m, n) load_post_op_operand(&(p)->leave, (p)->end.other, other_offset(p, b, m, n))
#else
#define OTHER(p, b, m, n) ((value_t)0)
#endif

static inline value_t value(const gemm_params *p, long b, long m, long n, acc_t sum) {
    value_t v = scaled(p, b, m, n, sum), beta = SCALAR(p->beta);
    if (!is_zero(beta)) v = multiply_add(v, beta, FETCH_C(c_offset(p, b, m, n)));
    return apply_post_ops(&p->end, v, OTHER(p, b, m, n));
}

static inline void store_result(const gemm_params *p, long b, long m, long n, acc_t sum) {
    STORE(OUT_T, XPU_PTR(STORED(OUT_T), p->out),
          b * p->out_stride.batch + m * p->out_stride.row + n * p->out_stride.column,
          quantize_output(&p->leave, value(p, b, m, n, sum)));
}

#if defined(FEW) || defined(SMALL_M_MMA) || defined(VECTOR)
#include "gemm/gemm_fused.h"
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
/* The work of a work-group: the tile at row m and column n of product b, over `depth` elements of K from k
 * on. */
typedef struct tile_origin {
    long m, n, b, slice, k, depth;
} tile_origin;

#if GROUPED
/* Finds the group that tile number *g belongs to, makes *g its number within the group, and returns the
 * group's bounds. A group has `across` tiles for every `size` rows or columns, or `across` in all if K is
 * grouped. Negative if there is no such tile. */
static inline int find_group(const gemm_params *p, uint *g, uint size, uint across, long *from, long *to) {
    const long most = GROUPED == 1 ? p->m : GROUPED == 2 ? p->n : p->k;
    __global const int *ends = XPU_CPTR(int, p->ends);
    *to = 0;
    for (int i = 0; i < (int)p->batch; i++) {
        *from = *to;
        *to = clamp((long)ends[i], *from, most);
        if (*to != ends[i])
            fault_report((struct fault_watch){p->partial, (xpu_u64)p->slices}, FAULT_TEXT, 0, 0);
        const uint tiles = GROUPED == 3 ? across : (uint)((*to - *from + size - 1) / size) * across;
        if (*g < tiles) return i;
        *g -= tiles;
    }
    return -1;
}
#endif

/* Decodes the work-group's number: (slice, batch, band of BAND rows of tiles, column, row in the band). Work-
 * groups that run at the same time share rows and columns, which are then in the cache. For grouped products,
 * `p` becomes that of the tile's group. b is negative if the number is out of range. */
#if GROUPED
static inline tile_origin find_gemm_tile(__private gemm_params *p, const uint tile_m, const uint tile_n) {
#else
static inline tile_origin find_gemm_tile(const gemm_params *p, const uint tile_m, const uint tile_n) {
#endif
    uint tiles_n = (uint)((p->n + tile_n - 1) / tile_n), tiles_m = (uint)((p->m + tile_m - 1) / tile_m);
    uint t = (uint)XPU_GROUP(0);
    tile_origin at = {0};
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
    const uint first = t / (BAND * tiles_n) * BAND, rows = min(tiles_m - first, (uint)BAND),
               u = t % (BAND * tiles_n);
    at.m += (long)(first + u % rows) * tile_m, at.n += (long)(u / rows) * tile_n;
    return at;
}
#if GROUPED
#define FIND_TILE(at, tile_m, tile_n)                                                                        \
    const tile_origin at = find_gemm_tile(&p, tile_m, tile_n);                                               \
    if (at.b < 0) return
#else
#define FIND_TILE(at, tile_m, tile_n) const tile_origin at = find_gemm_tile(&p, tile_m, tile_n)
#endif

#ifdef HOST_ROWS
#include "gemm/gemm_host.h"
#endif

#ifdef TILE
__kernel __attribute__((reqd_work_group_size(LX, LY, 1))) void gemm(GIVEN) {
    TAKE_GIVEN
    __local acc_t local_tile_a[TILE_K][PITCH], local_tile_b[TILE_K][PITCH];
    FIND_TILE(at, TILE, TILE);
    const long n0 = at.n, m0 = at.m, b = at.b, k_begin = at.k, k_end = at.k + at.depth;
    const xpu_addr pa = p.a + b * p.a_stride.batch * sizeof(STORED(OPERAND_T));
    const xpu_addr pb = p.b + b * p.b_stride.batch * sizeof(STORED(OPERAND_T));

#define A_AT(mm, kk)                                                                                         \
    ((mm) < p.m && (kk) < k_end                                                                              \
         ? MAYBE_CONJUGATE_A(FETCH(pa, (mm) * p.a_stride.row + (kk) * p.a_stride.column))                    \
         : (acc_t)0)
#define B_AT(kk, nn)                                                                                         \
    ((nn) < p.n && (kk) < k_end                                                                              \
         ? MAYBE_CONJUGATE_B(FETCH(pb, (kk) * p.b_stride.row + (nn) * p.b_stride.column))                    \
         : (acc_t)0)

    acc_t sum[SIDE][SIDE];
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) sum[i][j] = (acc_t)0;
    TILE_PRODUCT(sum, A_AT, B_AT, m0, n0, k_begin, k_end);
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            const long m = m0 + PLACE(get_local_id(1), i), n = n0 + PLACE(get_local_id(0), j);
            if (m >= p.m || n >= p.n) continue;
#if IS_SPLIT
            XPU_PTR(acc_t, p.partial)[((at.slice * p.batch + b) * p.m + m) * p.n + n] = sum[i][j];
#else
            store_result(&p, b, m, n, sum[i][j]);
#endif
        }
}
#endif

#ifdef MATRIX_T
static inline void store_partial_sum(const gemm_params *p, const tile_origin *at, long m, long n, acc_t sum) {
    if (m >= p->m || n >= p->n) return;
#if IS_SPLIT
    XPU_PTR(acc_t, p->partial)[((at->slice * p->batch + at->b) * p->m + m) * p->n + n] = sum;
#else
    store_result(p, at->b, m, n, sum);
#endif
}
#endif

#ifdef SMALL_M_MMA
#define MATRIX_T T
#endif
#if defined(MATRIX_PTX) || defined(SMALL_M_MMA)
#include "matrix/matrix_ptx.h"
#endif
#ifdef MATRIX_FMA
#include "matrix/matrix_fma.h"
#define RUN 4 /* adjacent accumulators that are stored together */
#elif defined(MATRIX_PTX)
#include "matrix/matrix.h"
#if QUANTIZED_B
#include "matrix/mma_dequant.h"
#endif
#define RUN 8
#endif
#ifdef RUN
#include "gemm/gemm_store.h"
#endif

#if defined(MATRIX_XMX) || defined(MATRIX_XMX8)
#ifdef MATRIX_EMULATED
#include "matrix/xmx_emulation.cl" /* here, because a file is included only once */
#endif
/* int8; uint8 operands have unsigned types. */
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
#include "gemm/gemm_xmx.h"
#else
#include "matrix/matrix_xmx8.h"
#endif
/* Stores a subgroup's accumulators, from row m and column n on. */
static inline void store_blocks(const gemm_params *p, const tile_origin *at, long m, long n,
                                __private sum_block (*sum)[SUMS_N]) {
    n += get_local_id(0) % MATRIX_SUBGROUP_SIZE;
    UNROLL for (int i = 0; i < SUMS_M; i++) UNROLL
        for (int j = 0; j < SUMS_N; j++) {
            const acc_t rows[8] = {sum[i][j].s0, sum[i][j].s1, sum[i][j].s2, sum[i][j].s3,
                                   sum[i][j].s4, sum[i][j].s5, sum[i][j].s6, sum[i][j].s7};
            UNROLL for (int r = 0; r < 8; r++)
                store_partial_sum(p, at, m + i * 8 + r, n + j * MATRIX_SUBGROUP_SIZE, rows[r]);
        }
}

__attribute__((intel_reqd_sub_group_size(MATRIX_SUBGROUP_SIZE)))
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
gemm_matrix(GIVEN) {
    TAKE_GIVEN
    FIND_TILE(at, TILE_M, TILE_N);
    const uint subgroup = get_local_id(0) / MATRIX_SUBGROUP_SIZE;
    const uint m = subgroup % SUBGROUPS_ALONG_M * (SUMS_M * 8),
               n = subgroup / SUBGROUPS_ALONG_M * (SUMS_N * MATRIX_SUBGROUP_SIZE);
    sum_block sum[SUMS_M][SUMS_N];
    UNROLL for (int i = 0; i < SUMS_M; i++) UNROLL
        for (int j = 0; j < SUMS_N; j++) sum[i][j] = 0;
#ifdef MATRIX_XMX
    const surface a = {XPU_PTR(void, p.a + at.b * p.a_stride.batch * ELEMENT),
                       (int)(A_K_MAJOR ? p.k : p.m) * ELEMENT, (int)(A_K_MAJOR ? p.m : p.k),
                       (int)(A_K_MAJOR ? p.a_stride.row : p.a_stride.column) * ELEMENT};
#if QUANTIZED_B
    const surface b = {XPU_PTR(void, q.b.data + at.b * q.b.batch * E_BITS / 8), (int)p.k * E_BITS / 8,
                       (int)p.n, (int)q.b.across * E_BITS / 8};
#if SHARED_B
    __local uint made[2 * SHARED_ROUND] __attribute__((aligned(64)));
#define GIVEN_LINES , &q.b, at.b, made
#else
#define GIVEN_LINES , &q.b, at.b
#endif
#else
    const surface b = {XPU_PTR(void, p.b + at.b * p.b_stride.batch * ELEMENT),
                       (int)(B_K_MAJOR ? p.k : p.n) * ELEMENT, (int)(B_K_MAJOR ? p.n : p.k),
                       (int)(B_K_MAJOR ? p.b_stride.column : p.b_stride.row) * ELEMENT};
#define GIVEN_LINES
#endif
    multiply_surfaces(sum, &a, &b, (int)at.m, (int)at.n, (int)(at.m + m), (int)(at.n + n), (int)at.k,
                      (int)(at.k + at.depth) GIVEN_LINES);
#else
    __local uchar local_tiles[2 * STAGE] __attribute__((aligned(64)));
    const uint pitch_a = (uint)p.a_stride.row * ELEMENT, pitch_b = (uint)p.b_stride.column * ELEMENT;
    xpu_addr pa = p.a + (at.b * p.a_stride.batch + at.m * p.a_stride.row + at.k) * ELEMENT;
    xpu_addr pb = p.b + (at.b * p.b_stride.batch + at.n * p.b_stride.column + at.k) * ELEMENT;
    operand_a a;
    operand_b b;
    open_vectors(a.at, pitch_a, (int)min(p.m - at.m, (long)TILE_M), TILE_M, true);
    open_vectors(b.at, pitch_b, (int)min(p.n - at.n, (long)TILE_N), TILE_N, false);
    const int depth = (int)at.depth * ELEMENT;
    int stage = 0;
#define PREFETCH_BOTH(step)                                                                                  \
    {                                                                                                        \
        const int left_ = depth - (step) * LINE;                                                             \
        if (left_ > 0) {                                                                                     \
            prefetch_vectors(a.next, pa, a.at, left_, TILE_M, true);                                         \
            prefetch_vectors(b.next, pb, b.at, left_, TILE_N, false);                                        \
        }                                                                                                    \
        pa += LINE, pb += LINE;                                                                              \
    }
#define STORE_BOTH(local_tile)                                                                               \
    {                                                                                                        \
        store_left(local_tile, a.next);                                                                      \
        store_right((local_tile) + TILE_M * LINE, b.next);                                                   \
    }
    PRODUCT_DOUBLE_BUFFERED(sum, local_tiles, stage, (depth + LINE - 1) / LINE, PREFETCH_BOTH, STORE_BOTH);
#endif
    store_blocks(&p, &at, at.m + m, at.n + n, sum);
}
#elif defined(MATRIX_FMA)
#define BYTES ((int)sizeof(STORED(OPERAND_T))) /* size of an element in memory */
MATRIX_KERNEL __attribute__((reqd_work_group_size(THREADS, 1, 1))) void gemm_matrix(GIVEN) {
    TAKE_GIVEN
    __local element_t local_tiles[2 * STAGE] LOCAL_TILE_ALIGNED;
    FIND_TILE(at, TILE_M, TILE_N);
    const long step_a = p.a_stride.column * ELEMENT, step_b = p.b_stride.row * ELEMENT; /* along K */
    const uint pitch_a = (uint)(A_K_MAJOR ? p.a_stride.row * BYTES : step_a);
    const uint pitch_b = (uint)(B_K_MAJOR ? p.b_stride.column * BYTES : step_b);
    xpu_addr pa = p.a + (at.b * p.a_stride.batch + at.m * p.a_stride.row + at.k * p.a_stride.column) * BYTES;
    xpu_addr pb = p.b + (at.b * p.b_stride.batch + at.n * p.b_stride.column + at.k * p.b_stride.row) * BYTES;
    const int left_m = (int)min(p.m - at.m, (long)TILE_M), left_n = (int)min(p.n - at.n, (long)TILE_N);
    const int whole = (int)(at.depth / (TILE_K * K_EACH)), rest = (int)(at.depth % (TILE_K * K_EACH));

    operand_a a;
    operand_b o;
    open_quads(a.at, pitch_a, left_m, TILE_M, A_K_MAJOR);
    open_quads(o.at, pitch_b, left_n, TILE_N, B_K_MAJOR);
    acc_t sum[SUMS_M][SUMS_N];
    UNROLL for (int i = 0; i < SUMS_M; i++) UNROLL
        for (int j = 0; j < SUMS_N; j++) sum[i][j] = (acc_t)0;

/* At the last step the current tile is read again instead of testing for the end. */
#define PREFETCH_BOTH(step)                                                                                  \
    {                                                                                                        \
        pa += 0 < (step) && (step) < whole ? TILE_K * step_a : 0;                                            \
        pb += 0 < (step) && (step) < whole ? TILE_K * step_b : 0;                                            \
        prefetch_quads(a.next, pa, a.at, left_m, TILE_M, A_K_MAJOR, A_QUADS);                                \
        prefetch_quads(o.next, pb, o.at, left_n, TILE_N, B_K_MAJOR, B_QUADS);                                \
    }
#define STORE_BOTH(local_tile)                                                                               \
    {                                                                                                        \
        FLIP_QUADS(a.next, TILE_M, A_FLIP);                                                                  \
        FLIP_QUADS(o.next, TILE_N, B_FLIP);                                                                  \
        store_quads(local_tile, a.next, TILE_M, A_K_MAJOR, CONJUGATE_A, (element_t)0);                       \
        store_quads((local_tile) + TILE_K * PITCH_A, o.next, TILE_N, B_K_MAJOR, CONJUGATE_B, (element_t)0);  \
    }
    int stage = 0;
    PRODUCT_DOUBLE_BUFFERED(sum, local_tiles, stage, whole, PREFETCH_BOTH, STORE_BOTH);
    if (rest > 0) {
        if (whole > 0) pa += TILE_K * step_a, pb += TILE_K * step_b;
        prefetch_remainder(a.next, pa, pitch_a, rest, left_m, TILE_M, A_K_MAJOR);
        prefetch_remainder(o.next, pb, pitch_b, rest, left_n, TILE_N, B_K_MAJOR);
        STORE_BOTH(local_tiles + stage); /* overwrites the tile that was read again */
        barrier(CLK_LOCAL_MEM_FENCE);
        multiply_local_tile(sum, local_tiles + stage);
    }

    const long row = at.m + first_row(), column = at.n + first_column();
    UNROLL for (int i = 0; i < SUMS_M; i++) UNROLL
        for (int j = 0; j < SUMS_N; j += 4)
            store_run(&p, &at, row + i / 4 * 16 + i % 4, column + j / 4 * 32, &sum[i][j]);
}
#elif defined(MATRIX_PTX)
/* Swaps accumulators between lanes that differ in `bit`: each sends those whose index has (or lacks)
 * `place`. */
static inline void exchange(__private acc_t (*two)[2], const uint bit, const uint place) {
    const bool upper = MATRIX_LANE & bit;
    UNROLL for (uint i = 0; i < 4; i++) {
        if (i & place) continue;
        UNROLL for (uint j = 0; j < 2; j++) {
            const acc_t sent = upper ? two[i][j] : two[i + place][j];
            const acc_t got = XPU_CAT(as_, acc_t)(lane_across(as_float(sent), bit));
            two[i][j] = upper ? got : two[i][j];
            two[i + place][j] = upper ? two[i + place][j] : got;
        }
    }
}
/* Before: four lanes have adjacent elements of a row, two of each of four blocks. After: each lane has the
 * eight of one block. If even and odd columns are in adjacent blocks (ptx_mma.h), each lane has four elements
 * of two blocks. */
static inline void gather_row(__private acc_t (*two)[2]) {
#if MATRIX_IS_INT8 && !B_K_MAJOR
    acc_t four[4][2];
    UNROLL for (uint i = 0; i < 4; i++) UNROLL
        for (uint j = 0; j < 2; j++) four[i][j] = two[i / 2 * 2 + j][i % 2];
    exchange(four, 2, 2);
    exchange(four, 1, 2);
    UNROLL for (uint i = 0; i < 4; i++) UNROLL
        for (uint j = 0; j < 2; j++) two[i][j] = four[i][j];
#else
    exchange(two, 1, 1);
    exchange(two, 2, 2);
#endif
}

MATRIX_KERNEL __attribute__((reqd_work_group_size(THREADS, 1, 1))) void gemm_matrix(GIVEN) {
    TAKE_GIVEN
    __local uchar local_tiles[STAGES * STAGE_BYTES] LOCAL_TILE_ALIGNED;
    FIND_TILE(at, TILE_M, TILE_N);
    const long m0 = at.m, n0 = at.n, depth = at.depth;
    const long step_a = p.a_stride.column * ELEMENT; /* along K */
    const long pitch_a = A_K_MAJOR ? p.a_stride.row * ELEMENT : step_a, ahead_a = TILE_K * step_a;
    const xpu_addr pa =
        p.a + (at.b * p.a_stride.batch + m0 * p.a_stride.row + at.k * p.a_stride.column) * ELEMENT;
    const int left_m = (int)min(p.m - m0, (long)TILE_M), left_n = (int)min(p.n - n0, (long)TILE_N);

    operand_a a;
    open_operand(a.from, pa, pitch_a, left_m, TILE_M, A_K_MAJOR);
#if QUANTIZED_B
    quantized_tile o;
#define OPEN_B(step) open_quantized(&o, &q.b, at.b, n0, at.k + (step) * TILE_K, left_n)
#define LOAD_PART_B(stage, depth) load_dequantized(stage, &o, &q.b, depth)
/* Stores the dequantized previous step, and prefetches the next one. */
#define LOAD_B(stage, on, part)                                                                              \
    {                                                                                                        \
        store_dequantized(stage, &o, &q.b, part);                                                            \
        if ((part) == LOADS - 1) {                                                                           \
            advance_quantized(&o, on);                                                                       \
            prefetch_quantized(&o, &q.b);                                                                    \
        }                                                                                                    \
    }
#define BEGIN_B prefetch_quantized(&o, &q.b)
#else
    const long step_b = p.b_stride.row * ELEMENT;
    const long pitch_b = B_K_MAJOR ? p.b_stride.column * ELEMENT : step_b, ahead_b = TILE_K * step_b;
    const xpu_addr pb =
        p.b + (at.b * p.b_stride.batch + n0 * p.b_stride.column + at.k * p.b_stride.row) * ELEMENT;
    operand_b o;
#define OPEN_B(step) open_operand(o.from, pb + (step) * ahead_b, pitch_b, left_n, TILE_N, B_K_MAJOR)
#define LOAD_PART_B(stage, depth)                                                                            \
    load_part(stage, o.from, ahead_b, depth, left_n, TILE_N, B_K_MAJOR, B_ALIGNMENT)
#define LOAD_B(stage, on, part) load_local_tile(stage, o.from, (on) ? ahead_b : 0, TILE_N, B_K_MAJOR)
#define BEGIN_B
#endif
    OPEN_B(0);
    fragment_sum sum[FRAGMENTS_M][FRAGMENTS_N];
    UNROLL for (int i = 0; i < FRAGMENTS_M; i++) UNROLL
        for (int j = 0; j < FRAGMENTS_N; j++) sum[i][j] = (fragment_sum)0;

#define LOAD_REST(stage, step, part)                                                                         \
    if ((part) == 0) {                                                                                       \
        const int left_ = (int)clamp(depth - (long)(step) * TILE_K, 0L, (long)TILE_K);                       \
        load_part(stage, a.from, ahead_a, left_, left_m, TILE_M, A_K_MAJOR, A_ALIGNMENT);                    \
        LOAD_PART_B((stage) + LOCAL_TILE_A_BYTES, left_);                                                    \
    }
#if A_ALIGNMENT == 16 && B_ALIGNMENT == 16
    const int whole = (int)(depth / TILE_K) / LOCAL_TILES_PER_ITERATION * LOCAL_TILES_PER_ITERATION;
#define LOAD_BOTH(stage, step, part)                                                                         \
    {                                                                                                        \
        const bool on_ = (step) + 1 < whole;                                                                 \
        if ((part) == 0) load_local_tile(stage, a.from, on_ ? ahead_a : 0, TILE_M, A_K_MAJOR);               \
        LOAD_B((stage) + LOCAL_TILE_A_BYTES, on_, part);                                                     \
    }
    if (whole > 0) {
        BEGIN_B;
        MATRIX_PRODUCT(sum, LOCAL_TILE_ADDRESS(local_tiles), whole, LOAD_BOTH);
    }
    open_operand(a.from, pa + whole * ahead_a, pitch_a, left_m, TILE_M, A_K_MAJOR);
    OPEN_B(whole);
    for (int s = whole; s * TILE_K < depth; s++)
        MATRIX_PRODUCT_OF_TILE(sum, LOCAL_TILE_ADDRESS(local_tiles), s, LOAD_REST);
#else
    const int all =
        (int)((depth + TILE_K * LOCAL_TILES_PER_ITERATION - 1) / (TILE_K * LOCAL_TILES_PER_ITERATION)) *
        LOCAL_TILES_PER_ITERATION;
    MATRIX_PRODUCT(sum, LOCAL_TILE_ADDRESS(local_tiles), all, LOAD_REST);
#endif

    const uint lane = get_local_id(0) % MATRIX_SUBGROUP_SIZE,
               subgroup = get_local_id(0) / MATRIX_SUBGROUP_SIZE;
    const long row = m0 + subgroup % SUBGROUPS_M * (FRAGMENTS_M * 16) + lane / 4 * LEFT_ROWS;
    const long column = n0 + subgroup / SUBGROUPS_M * (FRAGMENTS_N * 8) + lane % 4 * 8;
    UNROLL for (int i = 0; i < FRAGMENTS_M; i++) UNROLL
        for (int j = 0; j < FRAGMENTS_N; j += 4) UNROLL
            for (int lower = 0; lower < 2; lower++) {
                acc_t two[4][2];
                UNROLL for (int l = 0; l < 4; l++) {
                    two[l][0] = lower ? sum[i][j + l].z : sum[i][j + l].x;
                    two[l][1] = lower ? sum[i][j + l].w : sum[i][j + l].y;
                }
                gather_row(two);
                store_run(&p, &at, row + i * 16 + lower * LEFT_HALVES, column + j * 8, &two[0][0]);
            }
}
#endif

#ifdef VECTOR
#include "gemm/gemv.h"
#endif

#ifdef FEW
#include "gemm/gemm_small_m.h"
#elif defined(SMALL_M_ON_HOST)
#include "gemm/gemm_small_m_host.h"
#elif defined(SMALL_M_MMA)
#include "gemm/gemm_small_m_mma.h"
#endif

#ifdef ROW
#define COLUMNS (B_K_MAJOR ? 1 : 16)
#define PARTS (B_K_MAJOR ? 64 : 16)
__kernel __attribute__((reqd_work_group_size(COLUMNS, PARTS, 1))) void gemv_portable(const gemm_params p) {
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
#if IS_SPLIT
        XPU_PTR(acc_t, p.partial)[(slice * p.batch + b) * p.n + n] = sums[0][x];
#else
        store_result(&p, b, 0, n, sums[0][x]);
#endif
    }
}
#endif

#ifdef SKINNY
#define LANES 16
#define COLUMNS (LANES / SKINNY) /* per subgroup; each lane gets one result */
/* independent partial sums along K */
#define DEPTH (SKINNY * COLUMNS_AT_ONCE >= 8 ? 1 : SKINNY * COLUMNS_AT_ONCE == 4 ? 2 : 4)
__attribute__((intel_reqd_sub_group_size(LANES)))
__attribute__((reqd_work_group_size(LANES, 1, 1))) __kernel void gemm_skinny(const gemm_params p) {
    const uint lane = get_sub_group_local_id();
    const long blocks = (p.n + COLUMNS - 1) / COLUMNS, g = XPU_GROUP(0);
    const long n0 = g % blocks * COLUMNS, b = g / blocks;
    const xpu_addr pa = p.a + b * p.a_stride.batch * sizeof(STORED(OPERAND_T));
    const xpu_addr pb = p.b + b * p.b_stride.batch * sizeof(STORED(OPERAND_T));
    for (long m0 = 0; m0 < p.m; m0 += SKINNY) {
        float mine = 0;
        for (int n = 0; n < COLUMNS; n += COLUMNS_AT_ONCE) {
            /* Out-of-range rows and columns are clamped to the last one; their results are discarded. */
            xpu_addr row[SKINNY], column[COLUMNS_AT_ONCE];
            float sum[SKINNY][COLUMNS_AT_ONCE][DEPTH];
            for (int i = 0; i < SKINNY; i++)
                row[i] = pa + min(m0 + i, p.m - 1) * p.a_stride.row * sizeof(STORED(T));
            for (int j = 0; j < COLUMNS_AT_ONCE; j++)
                column[j] = pb + min(n0 + n + j, p.n - 1) * p.b_stride.column * sizeof(STORED(T));
            for (int i = 0; i < SKINNY; i++)
                for (int j = 0; j < COLUMNS_AT_ONCE; j++)
                    for (int d = 0; d < DEPTH; d++) sum[i][j][d] = 0;
#define STEP(k, d)                                                                                           \
    {                                                                                                        \
        float v[COLUMNS_AT_ONCE];                                                                            \
        for (int j = 0; j < COLUMNS_AT_ONCE; j++) v[j] = FETCH(column[j], k);                                \
        for (int i = 0; i < SKINNY; i++) {                                                                   \
            const float u = FETCH(row[i], k);                                                                \
            for (int j = 0; j < COLUMNS_AT_ONCE; j++) sum[i][j][d] = fma(u, v[j], sum[i][j][d]);             \
        }                                                                                                    \
    }
            long k = 0;
            for (; k + DEPTH * LANES <= p.k; k += DEPTH * LANES)
                for (int d = 0; d < DEPTH; d++) STEP(k + d * LANES + lane, d)
            for (; k + LANES <= p.k; k += LANES) STEP(k + lane, 0)
            if (k + lane < p.k) STEP(k + lane, 0)
            for (int i = 0; i < SKINNY; i++)
                for (int j = 0; j < COLUMNS_AT_ONCE; j++) {
                    float all = 0;
                    for (int d = 0; d < DEPTH; d++) all += sum[i][j][d];
                    all = sub_group_reduce_add(all);
                    if (lane == i * COLUMNS + n + j) mine = all;
                }
        }
        const long m = m0 + lane / COLUMNS, n = n0 + lane % COLUMNS;
        if (m < p.m && n < p.n) store_result(&p, b, m, n, mine);
    }
}
#endif

#ifdef FINISH
#define SUMS (256 / PARTS)
__kernel __attribute__((reqd_work_group_size(256, 1, 1))) void gemm_reduce_slices(GIVEN) {
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
    store_result(&p, b, m, n, sum);
}
#endif

#ifdef ROWS_OF_SUMS
__kernel
    __attribute__((reqd_work_group_size(GEMM_EPILOGUE_LANES, 1, 1))) void gemm_epilogue(const gemm_params p) {
    const long spans = (p.n + GEMM_EPILOGUE_SPAN - 1) / GEMM_EPILOGUE_SPAN, g = XPU_GROUP(0), row = g / spans;
    const long m = row % p.m, b = row / p.m, from = g % spans * GEMM_EPILOGUE_SPAN;
    const long to = min(p.n, from + GEMM_EPILOGUE_SPAN);
    gemm_params q = p;
    if (CONTIGUOUS_MASK & 1) q.out_stride.column = 1;
    if (CONTIGUOUS_MASK & 2) q.c_stride.column = 1;
    if (CONTIGUOUS_MASK & 4) q.other_stride.column = 1;
    if (CONTIGUOUS_MASK & 8) q.b_scale_stride[1] = 1;
    __global const acc_t *const sums = XPU_CPTR(acc_t, p.partial) + row * p.n;
    for (long n = from + (long)get_local_id(0); n < to; n += GEMM_EPILOGUE_LANES)
        store_result(&q, b, m, n, sums[n]);
}
#endif
