/* gemm_host: products of fp32 on processors, where no library of the host's does them.
 *
 * A work-item is a group and has p.slice rows (at most HOST_M) and HOST_N columns of the result. HOST_K of B
 * at a time are written down beside each other, columns in the lanes; HOST_ROWS rows of A then take them,
 * each element of A being the same in all lanes: six rows of 16 columns, and what they need, fit in 16
 * registers of eight numbers. Rows beyond the last are the last once more, columns beyond the last are 0;
 * neither is written. Wants -DHOST_ROWS and -DA_K_FAST, -DB_K_FAST, 1 where consecutive k lie beside each
 * other. */
#define HOST_N 32
#define HOST_K 128
#define HOST_M 96

#define FIRST_1(a, b)                                                                                        \
    a.s0, b.s0, a.s2, b.s2, a.s4, b.s4, a.s6, b.s6, a.s8, b.s8, a.sa, b.sa, a.sc, b.sc, a.se, b.se
#define SECOND_1(a, b)                                                                                       \
    a.s1, b.s1, a.s3, b.s3, a.s5, b.s5, a.s7, b.s7, a.s9, b.s9, a.sb, b.sb, a.sd, b.sd, a.sf, b.sf
#define FIRST_2(a, b) a.s01, b.s01, a.s45, b.s45, a.s89, b.s89, a.scd, b.scd
#define SECOND_2(a, b) a.s23, b.s23, a.s67, b.s67, a.sab, b.sab, a.sef, b.sef
#define FIRST_4(a, b) a.s0123, b.s0123, a.s89ab, b.s89ab
#define SECOND_4(a, b) a.s4567, b.s4567, a.scdef, b.scdef
#define FIRST_8(a, b) a.s01234567, b.s01234567
#define SECOND_8(a, b) a.s89abcdef, b.s89abcdef
/* Off the diagonal, the squares of n x n change places in all squares of 2n x 2n. */
#define EXCHANGE(n)                                                                                          \
    _Pragma("unroll") for (int i = 0; i < 16; i++) if (!(i & n)) {                                           \
        const float16 a = (float16)(FIRST_##n(row[i], row[i + n])),                                          \
                      b = (float16)(SECOND_##n(row[i], row[i + n]));                                         \
        row[i] = a;                                                                                          \
        row[i + n] = b;                                                                                      \
    }

/* panel[column / 16][k][column % 16] = B[k][column], from `from` on. */
#define PANEL(n, k) (panel + (n) * HOST_K + (k) * 16) /* n: a multiple of 16 */
static inline void host_pack(const gemm_params *p, __local float *panel, __global const float *from,
                             int depth, int columns) {
    const long down = p->b_stride.row, across = p->b_stride.column;
    for (int n = 0; n < columns; n += 16) {
        int k = 0;
        if (n + 16 <= columns) {
#if B_K_FAST
            for (; k + 16 <= depth; k += 16) {
                float16 row[16];
                _Pragma("unroll") for (int i = 0; i < 16; i++) row[i] =
                    vload16(0, from + (n + i) * across + k);
                EXCHANGE(8)
                EXCHANGE(4)
                EXCHANGE(2)
                EXCHANGE(1)
                _Pragma("unroll") for (int i = 0; i < 16; i++) vstore16(row[i], 0, PANEL(n, k + i));
            }
#else
            if (across == 1)
                for (; k < depth; k++) vstore16(vload16(0, from + k * down + n), 0, PANEL(n, k));
#endif
        }
        for (; k < depth; k++)
            for (int i = 0; i < 16; i++)
                PANEL(n, k)[i] = n + i < columns ? from[k * down + (n + i) * across] : 0;
    }
}

#if !EPILOGUE && !COMBINE
static inline float16 host_value(const gemm_params *p, __global const float *c, float16 sum) {
    const float16 v = SCALAR(p->alpha) * sum;
    const float beta = SCALAR(p->beta);
    if (beta == 0) return v;
    return fma((float16)beta, p->c_stride.column == 1 ? vload16(0, c) : (float16)*c, v);
}
#endif

/* Writes 16 sums of a row, or as many as are left of it. */
static inline void host_put(const gemm_params *p, long b, long m, long n, float16 sum) {
#if !EPILOGUE && !COMBINE
    if (n + 16 <= p->n && p->out_stride.column == 1 && p->c_stride.column <= 1) {
        vstore16(host_value(p, XPU_CPTR(float, p->c) + c_place(p, b, m, n), sum), 0,
                 XPU_PTR(float, p->out) + b * p->out_stride.batch + m * p->out_stride.row + n);
        return;
    }
#endif
    float lane[16];
    vstore16(sum, 0, lane);
    for (int i = 0; i < 16 && n + i < p->n; i++) put(p, b, m, n + i, lane[i]);
}

XPU_BY_ITSELF __attribute__((reqd_work_group_size(1, 1, 1))) __kernel void gemm_host(const gemm_params p) {
    __local float panel[HOST_K * HOST_N] __attribute__((aligned(64)));
    __local float sums[HOST_M * HOST_N] __attribute__((aligned(64)));
    const long panels = (p.n + HOST_N - 1) / HOST_N, bands = (p.m + p.slice - 1) / p.slice;
    const long g = XPU_GROUP(0), n0 = g % panels * HOST_N, m0 = g / panels % bands * p.slice,
               b = g / panels / bands;
    const int rows = (int)min(p.m - m0, p.slice), columns = (int)min(p.n - n0, (long)HOST_N);
    __global const float *from_a = XPU_CPTR(float, p.a) + b * p.a_stride.batch + m0 * p.a_stride.row;
    __global const float *from_b = XPU_CPTR(float, p.b) + b * p.b_stride.batch + n0 * p.b_stride.column;
    const long step = A_K_FAST ? 1 : p.a_stride.column;
    for (long k0 = 0; k0 < p.k; k0 += HOST_K) {
        const int depth = (int)min(p.k - k0, (long)HOST_K);
        const bool is_last = k0 + HOST_K >= p.k;
        host_pack(&p, panel, from_b + k0 * p.b_stride.row, depth, columns);
        for (int m = 0; m < rows; m += HOST_ROWS)
            for (int n = 0; n < columns; n += 16) {
                float16 sum[HOST_ROWS];
                __global const float *a[HOST_ROWS];
                _Pragma("unroll") for (int i = 0; i < HOST_ROWS; i++) {
                    const int row = min(m + i, rows - 1);
                    a[i] = from_a + row * p.a_stride.row + k0 * step;
                    sum[i] = k0 ? vload16(0, sums + row * HOST_N + n) : 0;
                }
                for (int k = 0; k < depth; k++) {
                    const float16 right = vload16(0, PANEL(n, k));
                    _Pragma("unroll") for (int i = 0; i < HOST_ROWS; i++) sum[i] =
                        fma((float16)a[i][k * step], right, sum[i]);
                }
                _Pragma("unroll") for (int i = 0; i < HOST_ROWS; i++) {
                    const int row = m + i;
                    if (row < rows && !is_last)
                        vstore16(sum[i], 0, sums + row * HOST_N + n);
                    else if (row < rows)
                        host_put(&p, b, m0 + row, n0 + n, sum[i]);
                }
            }
    }
}
