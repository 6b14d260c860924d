/* gemm_host: products of fp32, fp16 and bf16 on CPUs, for hosts without a BLAS.
 *
 * Launch: a work-item is a work-group and has p.slice rows (at most HOST_M) and HOST_N columns of the result.
 * Algorithm: HOST_K rows of B at a time are packed into panels with columns in the vector lanes; the register
 * tile is HOST_ROWS rows x 16 columns, with A broadcast: six rows fit into 16 registers of eight floats. Rows
 * past the last repeat the last one, columns past the last are 0; neither is stored. Half-precision A is
 * converted to fp32, HOST_K at a time. Each panel is summed from 0, which makes rounding errors of long sums
 * several times smaller than one sum in order would.
 * Options: HOST_ROWS; A_K_MAJOR, B_K_MAJOR, 1 if consecutive k are contiguous; HALVES, T is fp16 or bf16. */
#define HOST_N 32
#define HOST_K 128
#define HOST_M 96

#include "matrix/host_panel.h"
#define PANEL(n, k) (panel + (n) * HOST_K + (k) * 16) /* n: a multiple of 16 */

#if HALVES
/* Copies row[k] of A from `from` on to left[row][k]. */
static inline void host_widen(const gemm_params *p, __local float *left, __global const STORED(T) *from,
                              int depth, int rows) {
    const long down = p->a_stride.row, across = A_K_MAJOR ? 1 : p->a_stride.column;
    for (int m = 0; m < rows; m++) {
        int k = 0;
#if A_K_MAJOR
        for (; k + 16 <= depth; k += 16) vstore16(LOAD16(from + m * down + k), 0, left + m * HOST_K + k);
#endif
        for (; k < depth; k++) left[m * HOST_K + k] = LOAD(T, from, m * down + k * across);
    }
}
#endif

#if !EPILOGUE && !COMBINE
static inline float16 host_value(const gemm_params *p, __global const STORED(T) *c, float16 sum) {
    const float16 v = SCALAR(p->alpha) * sum;
    const float beta = SCALAR(p->beta);
    if (beta == 0) return v;
    return fma((float16)beta, p->c_stride.column == 1 ? LOAD16(c) : (float16)LOAD(T, c, 0), v);
}
#endif

/* Stores 16 sums of a row, or fewer at the end of the row. */
static inline void host_store(const gemm_params *p, long b, long m, long n, float16 sum) {
#if !EPILOGUE && !COMBINE
    if (n + 16 <= p->n && p->out_stride.column == 1 && p->c_stride.column <= 1) {
        STORE16(host_value(p, XPU_CPTR(STORED(T), p->c) + c_offset(p, b, m, n), sum),
                XPU_PTR(STORED(T), p->out) + b * p->out_stride.batch + m * p->out_stride.row + n);
        return;
    }
#endif
    float lane[16];
    vstore16(sum, 0, lane);
    for (int i = 0; i < 16 && n + i < p->n; i++) store_result(p, b, m, n + i, lane[i]);
}

XPU_NO_VECTORIZE __attribute__((reqd_work_group_size(1, 1, 1))) __kernel void gemm_host(GIVEN) {
    TAKE_GIVEN
    __local float panel[HOST_K * HOST_N] __attribute__((aligned(64)));
    __local float sums[HOST_M * HOST_N] __attribute__((aligned(64)));
#if HALVES
    __local float left[HOST_M * HOST_K] __attribute__((aligned(64)));
#endif
    FIND_TILE(at, (uint)p.slice, HOST_N);
    const long n0 = at.n, m0 = at.m, b = at.b, k_all = GROUPED == 3 ? at.depth : p.k;
    const int rows = (int)min(p.m - m0, p.slice), columns = (int)min(p.n - n0, (long)HOST_N);
    __global const STORED(T) *from_a =
        XPU_CPTR(STORED(T), p.a) + b * p.a_stride.batch + m0 * p.a_stride.row + at.k * p.a_stride.column;
    __global const STORED(T) *from_b =
        XPU_CPTR(STORED(T), p.b) + b * p.b_stride.batch + n0 * p.b_stride.column + at.k * p.b_stride.row;
    const long down = A_K_MAJOR ? 1 : p.a_stride.column;
#if HALVES
    const long step = 1;
#else
    const long step = down;
#endif
    for (long k0 = 0; k0 < k_all || k0 == 0; k0 += HOST_K) { /* also if K is 0 */
        const int depth = (int)min(k_all - k0, (long)HOST_K);
        const bool is_last = k0 + HOST_K >= k_all;
        host_pack_panel(panel, HOST_K, from_b + k0 * p.b_stride.row, p.b_stride.row, p.b_stride.column,
                        B_K_MAJOR, depth, columns);
#if HALVES
        host_widen(&p, left, from_a + k0 * down, depth, rows);
#endif
        for (int m = 0; m < rows; m += HOST_ROWS)
            for (int n = 0; n < columns; n += 16) {
                float16 sum[HOST_ROWS];
#if HALVES
                __local const float *a[HOST_ROWS];
#else
                __global const float *a[HOST_ROWS];
#endif
                _Pragma("unroll") for (int i = 0; i < HOST_ROWS; i++) {
                    const int row = min(m + i, rows - 1);
#if HALVES
                    a[i] = left + row * HOST_K;
#else
                    a[i] = from_a + row * p.a_stride.row + k0 * step;
#endif
                    sum[i] = 0;
                }
                for (int k = 0; k < depth; k++) {
                    const float16 right = vload16(0, PANEL(n, k));
                    _Pragma("unroll") for (int i = 0; i < HOST_ROWS; i++)
                        sum[i] = fma((float16)a[i][k * step], right, sum[i]);
                }
                _Pragma("unroll") for (int i = 0; i < HOST_ROWS; i++) {
                    const int row = m + i;
                    if (row >= rows) continue;
                    if (k0) sum[i] += vload16(0, sums + row * HOST_N + n);
                    if (!is_last)
                        vstore16(sum[i], 0, sums + row * HOST_N + n);
                    else
                        host_store(&p, b, m0 + row, n0 + n, sum[i]);
                }
            }
    }
}
