/* A few rows times a matrix of fewer bits whose lines lie along k: each line is read once for ROWS rows, and
 * its elements become numbers in registers. Work-groups of (LANES, TEAMS); a team has COLUMNS lines, along
 * which its lanes go together, eight elements each. Rows of A lie along k.
 *
 * With one lane, on processors, eight elements are a vector, and the scale is applied to a group's sums; with
 * more, to those of eight elements: groups are multiples of 8. -DA_WHOLE=1: A is aligned to 8 elements */
#include "quantised_read.h"

static inline float8 octet_f32(__global const float *p) {
    return A_WHOLE ? *(__global const float8 *)p : vload8(0, p);
}
static inline ushort8 octet_raw(__global const ushort *p) {
    return A_WHOLE ? *(__global const ushort8 *)p : vload8(0, p);
}
static inline float8 octet_bf16(__global const ushort *p) {
    return as_float8(convert_uint8(octet_raw(p)) << 16);
}
static inline float8 octet_f16(__global const ushort *p) { return widen8_f16(octet_raw(p)); }
#define A_OCTET(row, k) XPU_CAT(octet_, T)(XPU_CPTR(STORED(T), row) + (k))

static inline float8 gather_a(xpu_addr row, long k, int count) {
    float v[8];
    for (int j = 0; j < 8; j++) v[j] = j < count ? LOAD(T, XPU_CPTR(STORED(T), row), k + j) : 0;
    return (float8)(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
}
static inline float sum8(float8 v) {
    const float4 w = v.lo + v.hi;
    return (w.x + w.y) + (w.z + w.w);
}

/* Adds eight products of each row and line. */
#define MULTIPLY_OCTET(sum, k, A_AT, B_AT)                                                                   \
    {                                                                                                        \
        float8 x_[ROWS];                                                                                     \
        for (int r = 0; r < ROWS; r++) x_[r] = A_AT(row[r], k);                                              \
        for (int j = 0; j < COLUMNS; j++) {                                                                  \
            const float8 v_ = ZERO_FORM == 3 ? lessened(&q.b, numbers(B_AT(j, k)), 0) * scale[j] + zero[j]   \
                                             : lessened(&q.b, numbers(B_AT(j, k)), zero[j]);                 \
            for (int r = 0; r < ROWS; r++) sum[r][j] = fma(x_[r], v_, sum[r][j]);                            \
        }                                                                                                    \
    }
#define B_WHOLE(j, k) read_octet(line[j], k)
#define A_REST(row, k) gather_a(row, k, (int)(p.k - (k)))
#define B_REST(j, k) gather_octet(line[j], k, 1, (int)(p.k - (k)))
#define FIND_GROUP(along)                                                                                    \
    for (int j = 0; j < COLUMNS; j++) {                                                                      \
        scale[j] = scale_of(&q.b, b, across[j], along);                                                      \
        zero[j] = zero_of(&q.b, b, across[j], along);                                                        \
    }
#define SUM_SCALE(j) (ZERO_FORM == 3 ? 1.0f : scale[j])

__kernel __attribute__((reqd_work_group_size(LANES, TEAMS, 1))) void gemm_few(const gemm_few_params q) {
    const gemm_params p = q.gemm;
    const int lane = (int)get_local_id(0), team = (int)get_local_id(1);
    const long blocks_m = (p.m + ROWS - 1) / ROWS, blocks_n = (p.n + COLUMNS * TEAMS - 1) / (COLUMNS * TEAMS);
    long g = XPU_GROUP(0);
    const long m0 = g % blocks_m * ROWS;
    g /= blocks_m;
    const long n0 = g % blocks_n * (COLUMNS * TEAMS) + team * COLUMNS, b = g / blocks_n;
    /* Beyond the last row or line the last is done again. */
    xpu_addr row[ROWS], line[COLUMNS];
    long across[COLUMNS];
    float scale[COLUMNS], zero[COLUMNS];
    for (int r = 0; r < ROWS; r++)
        row[r] = p.a + (b * p.a_stride.batch + min(m0 + r, p.m - 1) * p.a_stride.row) * sizeof(STORED(T));
    for (int j = 0; j < COLUMNS; j++) {
        const long n = min(n0 + j, p.n - 1);
        line[j] = q.b.data + (b * q.b.batch + n * q.b.across) * E_BITS / 8;
        across[j] = n / q.b.group_across;
    }
#if LANES == 1
    float8 total[ROWS][COLUMNS];
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < COLUMNS; j++) total[r][j] = 0;
    for (long from = 0, along = 0; from < p.k; from += q.b.group_along, along++) {
        const long to = min(p.k, from + q.b.group_along);
        float8 sum[ROWS][COLUMNS];
        for (int r = 0; r < ROWS; r++)
            for (int j = 0; j < COLUMNS; j++) sum[r][j] = 0;
        FIND_GROUP(along);
        long k = from;
        for (; k + 8 <= to; k += 8) MULTIPLY_OCTET(sum, k, A_OCTET, B_WHOLE)
        if (k < to) MULTIPLY_OCTET(sum, k, A_REST, B_REST)
        for (int r = 0; r < ROWS; r++)
            for (int j = 0; j < COLUMNS; j++) total[r][j] = fma(sum[r][j], SUM_SCALE(j), total[r][j]);
    }
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < COLUMNS; j++)
            if (m0 + r < p.m && n0 + j < p.n) put(&p, b, m0 + r, n0 + j, sum8(total[r][j]));
#else
    __local float sums[TEAMS][ROWS][COLUMNS][LANES];
    float total[ROWS][COLUMNS];
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < COLUMNS; j++) total[r][j] = 0;
#define ADD_OCTET(k, A_AT, B_AT)                                                                             \
    {                                                                                                        \
        float8 sum[ROWS][COLUMNS];                                                                           \
        for (int r = 0; r < ROWS; r++)                                                                       \
            for (int j = 0; j < COLUMNS; j++) sum[r][j] = 0;                                                 \
        FIND_GROUP(group_of(&q.b, k));                                                                       \
        MULTIPLY_OCTET(sum, k, A_AT, B_AT)                                                                   \
        for (int r = 0; r < ROWS; r++)                                                                       \
            for (int j = 0; j < COLUMNS; j++) total[r][j] = fma(sum8(sum[r][j]), SUM_SCALE(j), total[r][j]); \
    }
    long k = lane * 8;
    for (; k + 8 <= p.k; k += LANES * 8) ADD_OCTET(k, A_OCTET, B_WHOLE)
    if (k < p.k) ADD_OCTET(k, A_REST, B_REST)
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < COLUMNS; j++) sums[team][r][j][lane] = total[r][j];
    for (int half_ = LANES / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_)
            for (int r = 0; r < ROWS; r++)
                for (int j = 0; j < COLUMNS; j++) sums[team][r][j][lane] += sums[team][r][j][lane + half_];
    }
    if (lane == 0)
        for (int r = 0; r < ROWS; r++)
            for (int j = 0; j < COLUMNS; j++)
                if (m0 + r < p.m && n0 + j < p.n) put(&p, b, m0 + r, n0 + j, sums[team][r][j][0]);
#endif
}
