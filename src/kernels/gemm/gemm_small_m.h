/* gemm_small_m: products of a few rows with a quantized K-major matrix, memory-bound. Every row of B is read
 * once for ROWS rows of A, and its elements are dequantized in registers.
 *
 * Launch: work-groups of (LANES, SUBGROUPS); the LANES work-items of a subgroup share COLUMNS rows of B,
 * which they traverse together along k. Rows of A are contiguous along k.
 * Algorithm: LANES=1 (CPUs) processes eight elements as a vector and applies the scale to a group's sum.
 * Otherwise scales are applied to the sums of OCTETS x 8 elements that a lane loads at once (16 bytes, or 8
 * elements); groups are multiples of these.
 * Options: A_WHOLE=1, A is aligned to 8 elements; A_ALIKE=1, A has the elements of B, float8 without scales;
 * SUBGROUP_SIZE=8 or 16, on Intel GPUs, which then have more registers; those of quantized_load.h; for
 * several B with LANES > 1, gemm_fused.h. */

#define UNROLL_HINT __attribute__((opencl_unroll_hint))

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
#if A_ALIKE
#define A_BYTES 1
#define A_FOLD FOLD
#define A_OCTET(row, k) numbers(load_vec8(row, k))
#define A_GATHER(row, k, count) numbers(gather_vec8(row, k, 1, count))
#else
#define A_BYTES sizeof(STORED(T))
#define A_FOLD 1.0f
#define A_OCTET(row, k) (XPU_CAT(octet_, T)(XPU_CPTR(STORED(T), row) + (k)) NORM_AT(k))
#define A_GATHER(row, k, count) (gather_a(row, k, count) NORM_AT(k))
#endif
#if NORMED
#define NORM_AT(k) *(UNIT_OFFSET_WEIGHT + EIGHT_AT(fused.norm, k))
#else
#define NORM_AT(k)
#endif

/* Rows of B per subgroup that belong to the first weight. */
#define EACH (LINE_PAIRS ? COLUMNS / 2 : COLUMNS)
#if GATED
#define LINES(j) (*((j) < EACH ? &q.b : &second))
#else
#define LINES(j) q.b
#endif

static inline float8 gather_a(xpu_addr row, long k, int count) {
    float v[8];
    for (int j = 0; j < 8; j++) v[j] = j < count ? LOAD(T, XPU_CPTR(STORED(T), row), k + j) : 0;
    return (float8)(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
}

/* Adds the products of eight elements for each row of A and row of B. */
#define MULTIPLY_OCTET(sum, k, A_AT, B_AT)                                                                   \
    {                                                                                                        \
        float8 x_[ROWS];                                                                                     \
        for (int r = 0; r < ROWS; r++) x_[r] = A_AT(row[r], k);                                              \
        for (int j = 0; j < COLUMNS; j++) {                                                                  \
            const float8 v_ = ZERO_FORM == 3                                                                 \
                                  ? subtract_zero(&q.b, numbers(B_AT(j, k)), 0) * scale[j] + zero[j]         \
                                  : subtract_zero(&q.b, numbers(B_AT(j, k)), zero[j]);                       \
            for (int r = 0; r < ROWS; r++) sum[r][j] = fma(x_[r], v_, sum[r][j]);                            \
        }                                                                                                    \
    }
#define B_WHOLE(j, k) load_vec8(line[j], k)
#define A_REST(row, k) A_GATHER(row, k, (int)(p.k - (k)))
#define B_REST(j, k) gather_vec8(line[j], k, 1, (int)(p.k - (k)))
#define FIND_GROUP(along)                                                                                    \
    for (int j = 0; j < COLUMNS; j++) {                                                                      \
        scale[j] = scale_of(&LINES(j), scales[j], along);                                                    \
        zero[j] = zero_of(&LINES(j), zeros[j], along);                                                       \
    }
#define SUM_SCALE(j) (ZERO_FORM == 3 ? A_FOLD : scale[j] * A_FOLD)

#if LANES > 1
/* Reads 16 bytes, or at least 8 elements. */
static inline void read_octets(__private octet *to, xpu_addr line, long i) {
#if OCTETS == 4
    const uint4 v = XPU_CPTR(uint4, line)[i / 32];
    to[0].x = v.x, to[1].x = v.y, to[2].x = v.z, to[3].x = v.w;
#elif OCTETS == 2
    const uint4 v = XPU_CPTR(uint4, line)[i / 16];
    to[0] = v.lo, to[1] = v.hi;
#else
    to[0] = load_vec8(line, i);
#endif
}
static inline float add_products(float8 x, float8 v, float sum) {
    sum = fma(x.s0, v.s0, sum), sum = fma(x.s1, v.s1, sum), sum = fma(x.s2, v.s2, sum),
    sum = fma(x.s3, v.s3, sum);
    sum = fma(x.s4, v.s4, sum), sum = fma(x.s5, v.s5, sum), sum = fma(x.s6, v.s6, sum),
    sum = fma(x.s7, v.s7, sum);
    return sum;
}
/* Adds the products of `count` runs of eight elements of each row of A and of B, within one quantization
 * group. */
#define ADD_OCTETS(count, A, B)                                                                              \
    float sum[ROWS][COLUMNS];                                                                                \
    UNROLL_HINT for (int r = 0; r < ROWS; r++)                                                               \
        for (int j = 0; j < COLUMNS; j++) sum[r][j] = 0;                                                     \
    UNROLL_HINT for (int o = 0; o < (count); o++) {                                                          \
        float8 x_[ROWS];                                                                                     \
        UNROLL_HINT for (int r = 0; r < ROWS; r++)                                                           \
            x_[r] = A;                                                                                       \
        UNROLL_HINT for (int j = 0; j < COLUMNS; j++) {                                                      \
            const float8 v_ = ZERO_FORM == 3 ? dequantize_vec8(&q.b, B, scale[j], zero[j])                   \
                                             : subtract_zero(&q.b, numbers(B), zero[j]);                     \
            UNROLL_HINT for (int r = 0; r < ROWS; r++)                                                       \
                sum[r][j] = add_products(x_[r], v_, sum[r][j]);                                              \
        }                                                                                                    \
    }                                                                                                        \
    UNROLL_HINT for (int r = 0; r < ROWS; r++)                                                               \
        for (int j = 0; j < COLUMNS; j++) total[r][j] = fma(sum[r][j], SUM_SCALE(j), total[r][j]);
#endif

#ifdef SUBGROUP_SIZE
__attribute__((intel_reqd_sub_group_size(SUBGROUP_SIZE)))
#endif
__kernel __attribute__((reqd_work_group_size(LANES, SUBGROUPS, 1)))
#if PARTS
void gemm_small_m(const gemm_fused_params fused) {
    gemm_quantized_params q = fused.given;
#else
void gemm_small_m(const gemm_quantized_params q) {
#endif
    const int lane = (int)get_local_id(0), subgroup = (int)get_local_id(1);
    const long blocks_m = (q.gemm.m + ROWS - 1) / ROWS;
    long g = XPU_GROUP(0);
    const long m0 = g % blocks_m * ROWS;
    g /= blocks_m;
#if PARTS
    const uint block = (uint)g;
    g -= take_part(&q.gemm, &q.b, &fused, block);
#endif
#if GATED
    const quantized_lines second = second_lines(&fused);
#endif
    const gemm_params p = q.gemm;
    const long blocks_n = (p.n + EACH * SUBGROUPS - 1) / (EACH * SUBGROUPS);
    const long n0 = g % blocks_n * (EACH * SUBGROUPS) + subgroup * EACH, b = g / blocks_n;
    /* Out-of-range rows of A and B are clamped to the last one; their results are discarded. */
    xpu_addr row[ROWS], line[COLUMNS];
    long scales[COLUMNS], zeros[COLUMNS];
    float scale[COLUMNS], zero[COLUMNS];
    for (int r = 0; r < ROWS; r++)
        row[r] = p.a + (b * p.a_stride.batch + min(m0 + r, p.m - 1) * p.a_stride.row) * A_BYTES;
    for (int j = 0; j < COLUMNS; j++) {
        const long n = LINE_OF(min(n0 + j % EACH, p.n - 1), j / EACH);
        line[j] = LINES(j).data + (b * q.b.batch + n * q.b.across) * E_BITS / 8;
        scales[j] = scales_offset(&q.b, b, n / q.b.group_across);
        zeros[j] = place_of(&q.b.zero, b, n / q.b.group_across);
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
            if (m0 + r < p.m && n0 + j < p.n) store_result(&p, b, m0 + r, n0 + j, sum8(total[r][j]));
#else
    __local float sums[SUBGROUPS][ROWS][COLUMNS][LANES];
    float total[ROWS][COLUMNS];
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < COLUMNS; j++) total[r][j] = 0;
    const long whole = p.k / (8 * OCTETS) * (8 * OCTETS);
    for (long k = lane * (8 * OCTETS); k < whole; k += LANES * 8 * OCTETS) {
        octet bits[COLUMNS][OCTETS];
        for (int j = 0; j < COLUMNS; j++) read_octets(bits[j], line[j], k);
        FIND_GROUP(group_of(&q.b, k));
        ADD_OCTETS(OCTETS, A_OCTET(row[r], k + o * 8), bits[j][o])
    }
    for (long k = whole + lane * 8; k < p.k; k += LANES * 8) {
        const int count = (int)min(p.k - k, 8L);
        FIND_GROUP(group_of(&q.b, k));
        ADD_OCTETS(1, A_GATHER(row[r], k, count), gather_vec8(line[j], k, 1, count))
    }
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < COLUMNS; j++) sums[subgroup][r][j][lane] = total[r][j];
    for (int half_ = LANES / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_)
            for (int r = 0; r < ROWS; r++)
                for (int j = 0; j < COLUMNS; j++)
                    sums[subgroup][r][j][lane] += sums[subgroup][r][j][lane + half_];
    }
#if NORMED
    __local float roots[LANES * SUBGROUPS * ROWS];
    find_inverse_rms(roots, &fused, m0, ROWS, subgroup * LANES + lane, LANES * SUBGROUPS);
#define ROOT(r) *roots[r]
#else
#define ROOT(r)
#endif
    if (lane == 0)
        for (int r = 0; r < ROWS; r++)
            for (int j = 0; j < EACH; j++) {
                if (m0 + r >= p.m || n0 + j >= p.n) continue;
#if GATED
                store_gated(&p, &fused, m0 + r, n0 + j, sums[subgroup][r][j][0] ROOT(r),
                            sums[subgroup][r][j + EACH][0] ROOT(r));
#elif QKV_CACHE
                store_qkv(&p, &fused, block, m0 + r, n0 + j, sums[subgroup][r][j][0] ROOT(r),
                          sums[subgroup][r][j + EACH][0] ROOT(r));
#else
                store_result(&p, b, m0 + r, n0 + j, sums[subgroup][r][j][0] ROOT(r));
#endif
            }
#if NORM_HEADS
    __local uint last;
    store_normed_heads(&p, &fused, block, m0, (int)min(p.m - m0, (long)ROWS), (uint)n0, (__local float *)sums,
                       &last, (uint)(subgroup * LANES + lane), LANES * SUBGROUPS);
#endif
#endif
}
