/* out = epilogue(alpha A B + beta C), any strides, batched. Portable.
 *
 * -DT=<dtype> -DCOMPLEX_T -DFLOAT_T -DDOUBLE_T: the dtype and its class (gemm_tile.h)
 * -DEPILOGUE=0 none, 1 relu, 2 gelu, 3 gelu with tanh; -DCONJUGATE_A -DCONJUGATE_B 0 or 1
 * gemm:        tiles, one a work-group; -DTILE -DTILE_K -DSIDE -DA_K_FAST -DB_K_FAST
 * gemm_row:    m = 1; work-groups of 16 columns x 16 parts of the slice, or (B_K_FAST) of 1 x 64
 * gemm_thin:   few rows, k fast in A and B, on processors: a subgroup reads its columns of B once, 16 k at a
 *              time; -DTHIN=1, 2 or 4 rows and -DSTREAMS=1 or 4 columns at once
 * gemm_finish: sums the slices when k was cut: one work-item an element
 * With -DSLICED=1 gemm and gemm_row write their bare sums to `partial`. */
#include "gemm.h"
#include "gemm_tile.h"

static inline acc_t finish(acc_t v) {
#if EPILOGUE == 1
    return v < 0 ? (acc_t)0 : v;
#elif EPILOGUE == 2 && DOUBLE_T
    return 0.5 * v * (1 + erf(v * 0.70710678118654752440));
#elif EPILOGUE == 2
    return 0.5f * v * (1 + erf(v * 0.70710678118654752440f));
#elif EPILOGUE == 3 && DOUBLE_T
    return 0.5 * v * (1 + tanh(0.79788456080286535588 * (v + 0.044715 * v * v * v)));
#elif EPILOGUE == 3
    return 0.5f * v * (1 + tanh(0.79788456080286535588f * (v + 0.044715f * v * v * v)));
#else
    return v;
#endif
}

static inline void put(const gemm_params *p, long b, long m, long n, acc_t sum) {
    acc_t v = multiply(SCALAR(p->alpha), sum), beta = SCALAR(p->beta);
    if (p->k == 0) v = (acc_t)0; /* alpha may be infinite */
    if (!is_zero(beta)) {
        acc_t c = FETCH(p->c, b * p->c_stride.batch + m * p->c_stride.row + n * p->c_stride.column);
        v = multiply_add(v, beta, c);
    }
    KEEP(p->out, b * p->out_stride.batch + m * p->out_stride.row + n * p->out_stride.column, finish(v));
}

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
__kernel __attribute__((reqd_work_group_size(LX, LY, 1))) void gemm(const gemm_params p) {
    __local acc_t slab_a[TILE_K][PITCH], slab_b[TILE_K][PITCH];
    /* The group's number is (slice, batch, row of tiles, column of tiles), columns fastest. */
    const long tiles_n = (p.n + TILE - 1) / TILE, tiles_m = (p.m + TILE - 1) / TILE;
    long g = XPU_GROUP(0);
    const long n0 = g % tiles_n * TILE;
    g /= tiles_n;
    const long m0 = g % tiles_m * TILE;
    g /= tiles_m;
    const long b = g % p.batch, slice = g / p.batch;
    const long k_begin = slice * p.slice, k_end = min(p.k, k_begin + p.slice);
    const xpu_addr pa = p.a + b * p.a_stride.batch * sizeof(STORED(T));
    const xpu_addr pb = p.b + b * p.b_stride.batch * sizeof(STORED(T));

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
            XPU_PTR(acc_t, p.partial)[((slice * p.batch + b) * p.m + m) * p.n + n] = sum[i][j];
#else
            put(&p, b, m, n, sum[i][j]);
#endif
        }
}
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
            sum = multiply_add(sum, u, v);
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
    const xpu_addr pa = p.a + b * p.a_stride.batch * sizeof(STORED(T));
    const xpu_addr pb = p.b + b * p.b_stride.batch * sizeof(STORED(T));
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
__kernel void gemm_finish(const gemm_params p) {
    const long i = get_global_id(0), count = p.batch * p.m * p.n;
    if (i >= count) return;
    acc_t sum = (acc_t)0;
    for (long s = 0; s < p.slices; s++) sum += XPU_CPTR(acc_t, p.partial)[s * count + i];
    const long n = i % p.n, m = i / p.n % p.m, b = i / p.n / p.m;
    put(&p, b, m, n, sum);
}
#endif
