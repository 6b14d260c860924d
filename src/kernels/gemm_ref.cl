/* out = epilogue(alpha A B + beta C), any strides, batched. Portable.
 *
 * -DT=<dtype> -DCOMPLEX_T -DFLOAT_T -DDOUBLE_T: the dtype and its class (gemm_tile.h)
 * -DEPILOGUE=0 none, 1 relu, 2 gelu, 3 gelu with tanh; -DCONJUGATE_A -DCONJUGATE_B 0 or 1
 * gemm:        tiles, one a work-group; -DTILE -DTILE_K -DSIDE -DA_K_FAST -DB_K_FAST
 * gemm_row:    m = 1; work-groups of 16 columns x 16 parts of the slice, or (B_K_FAST) of 1 x 64
 * gemm_finish: sums the slices when k was cut: one work-item an element
 * With -DSLICED=1 the first two write their bare sums to `partial`. */
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
