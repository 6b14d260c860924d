/* gemm_small_m_host: products of a few rows with a quantized K-major matrix on CPUs, sixteen elements at a
 * time.
 *
 * Launch: a work-item has COLUMNS rows of B, a work-group SUBGROUPS work-items.
 * Algorithm:
 *   NIBBLES=0   k and its groups are multiples of 16; a vector has contiguous elements
 *   NIBBLES=1   4-bit integers; k and its groups are multiples of 128. A dword has eight elements. Element j
 *               of 16 dwords is dequantized at once: a bit select, sometimes after a shift, puts it into the
 *               mantissa of a power of two. A is permuted in local memory to match: of each 128 elements
 *               first element 0 of every dword, then element 1, and so on. The contribution of the powers is
 *               subtracted from the sum of each SPAN; that of the zero point, and of the 8 that makes signed
 *               integers unsigned, from the sum of each group
 * Options: X_ROOM, elements of a row of A in local memory, at least k; those of vector16.h and
 * quantized_load.h. */

#define UNROLL_HINT __attribute__((opencl_unroll_hint))
#define BLOCK (NIBBLES ? 128 : 16)

static inline float sum16(float16 v) {
    const float8 a = v.lo + v.hi;
    const float4 b = a.lo + a.hi;
    return (b.x + b.y) + (b.z + b.w);
}

#if NIBBLES
#define OFFSET (E_FORM == FORM_SIGNED ? 8 : 0)
/* Bit position in the mantissa for element `j` (0 … 7) of a dword, and the left shift that moves it there.
 * With 16-bit results one shift serves two or three elements: a power of two up to 4096 comes with the
 * integer. That leaves 11 of 24 bits for the fraction, or 6 for the sum of a lane's 32 elements of a SPAN;
 * then the power is subtracted. */
#define SPAN 512
#define SINGLE_f32 1
#if XPU_CAT(SINGLE_, T)
#define PLACE_OF(j) 19
#define SHIFT_OF(j) (19 - 4 * (j))
#else
#define PLACE_OF(j) ((j) < 3 ? 11 + 4 * (j) : (j) < 5 ? 4 * (j) : 4 * (j) - 9)
#define SHIFT_OF(j) ((j) < 3 ? 11 : (j) < 5 ? 0 : -9)
#endif
/* The power of two that comes with element j. */
static inline float power_of(int j) { return as_float((uint)(150 - PLACE_OF(j)) << 23); }
/* Element `j` of each dword, biased to be unsigned, plus its power of two. */
static inline float16 nibbles(uint16 v, int j) {
    const uint16 moved = SHIFT_OF(j) < 0 ? v >> (uint)-SHIFT_OF(j) : v << (uint)SHIFT_OF(j);
    return as_float16((moved & 15u << PLACE_OF(j)) | as_uint(power_of(j)));
}

/* Permutes 128 elements so that every eighth one is adjacent. */
static inline void permute_nibbles(__local float *to, __local float *sums, __local float *powers,
                                   __global const STORED(T) *from) {
    float16 a[8], b[8];
    UNROLL_HINT for (int i = 0; i < 8; i++)
        a[i] = LOAD16(from + i * 16);
    /* moves even elements to the front, three times */
    UNROLL_HINT for (int i = 0; i < 4; i++)
        b[i] = (float16)(a[2 * i].even, a[2 * i + 1].even),
        b[4 + i] = (float16)(a[2 * i].odd, a[2 * i + 1].odd);
    UNROLL_HINT for (int h = 0; h < 8; h += 4) UNROLL_HINT
        for (int i = 0; i < 2; i++)
            a[h + i] = (float16)(b[h + 2 * i].even, b[h + 2 * i + 1].even),
                  a[h + 2 + i] = (float16)(b[h + 2 * i].odd, b[h + 2 * i + 1].odd);
    UNROLL_HINT for (int h = 0; h < 8; h += 2) {
        const int place = (h & 4 ? 1 : 0) + (h & 2 ? 2 : 0);
        *(__local float16 *)(to + place * 16) = (float16)(a[h].even, a[h + 1].even);
        *(__local float16 *)(to + (place + 4) * 16) = (float16)(a[h].odd, a[h + 1].odd);
    }
    float16 all = 0, with_powers = 0;
    UNROLL_HINT for (int i = 0; i < 8; i++) {
        const float16 v = *(__local float16 *)(to + i * 16);
        all += v, with_powers = fma(v, power_of(i), with_powers);
    }
    *(__local float16 *)sums = all, *(__local float16 *)powers = with_powers;
}
#else
#define OFFSET 0
static inline float16 sixteen_of_b(xpu_addr line, long k) {
#if E_FORM == FORM_SIGNED && E_BITS == 8
    return convert_float16(vload16(0, XPU_CPTR(char, line) + k));
#elif E_FORM == FORM_UNSIGNED && E_BITS == 8
    return convert_float16(vload16(0, XPU_CPTR(uchar, line) + k));
#elif E_FORM == FORM_E4M3FN /* except NaN (has_nan) */
    const short16 v = convert_short16(vload16(0, XPU_CPTR(char, line) + k)) << (short)7;
    return widen16_f16(as_ushort16(v) & (ushort)0xbf80);
#else
    return (float16)(numbers(load_vec8(line, k)) - MANTISSA_OFFSET,
                     numbers(load_vec8(line, k + 8)) - MANTISSA_OFFSET);
#endif
}
#endif

#if E_FORM == FORM_E4M3FN
/* Is there a NaN from `from` to `to`, multiples of 16? A NaN has all 7 bits besides the sign set, so adding 1
 * carries into the sign bit. */
static inline bool has_nan(xpu_addr line, long from, long to) {
    uint16 found = 0;
    for (; from + 64 <= to; from += 64)
        found |= (vload16(0, XPU_CPTR(uint, line + from)) & 0x7f7f7f7fu) + 0x01010101u;
    for (; from < to; from += 16)
        found.s0123 |= (vload4(0, XPU_CPTR(uint, line + from)) & 0x7f7f7f7fu) + 0x01010101u;
    const uint8 half_ = found.lo | found.hi;
    const uint4 quarter = half_.lo | half_.hi;
    return ((quarter.x | quarter.y | quarter.z | quarter.w) & 0x80808080u) != 0;
}
#else
#define has_nan(line, from, to) false
#endif

XPU_NO_VECTORIZE __kernel __attribute__((reqd_work_group_size(1, SUBGROUPS, 1))) void
gemm_small_m_host(const gemm_quantized_params q) {
    const int subgroup = (int)get_local_id(1);
    const gemm_params p = q.gemm;
    const long blocks_m = (p.m + ROWS - 1) / ROWS,
               blocks_n = (p.n + COLUMNS * SUBGROUPS - 1) / (COLUMNS * SUBGROUPS);
    long g = XPU_GROUP(0);
    const long m0 = g % blocks_m * ROWS;
    g /= blocks_m;
    const long n0 = g % blocks_n * (COLUMNS * SUBGROUPS) + subgroup * COLUMNS, b = g / blocks_n;
    /* Out-of-range rows of A and B are clamped to the last one; their results are discarded. */
    __global const STORED(T) *row[ROWS];
    xpu_addr line[COLUMNS];
    long scales[COLUMNS], zeros[COLUMNS];
    for (int r = 0; r < ROWS; r++)
        row[r] = XPU_CPTR(STORED(T), p.a) + b * p.a_stride.batch + min(m0 + r, p.m - 1) * p.a_stride.row;
    for (int j = 0; j < COLUMNS; j++) {
        const long n = min(n0 + j, p.n - 1);
        line[j] = q.b.data + (b * q.b.batch + n * q.b.across) * E_BITS / 8;
        scales[j] = scales_offset(&q.b, b, n / q.b.group_across);
        zeros[j] = place_of(&q.b.zero, b, n / q.b.group_across);
    }
#if NIBBLES
    __local float permuted[ROWS][X_ROOM] __attribute__((aligned(64)));
    __local float eights[ROWS][X_ROOM / 8]
        __attribute__((aligned(64))); /* sums of the eight elements that match a dword */
    __local float powers[ROWS][X_ROOM / 8]
        __attribute__((aligned(64))); /* … of these times the powers of two that come with the integers */
    for (int r = 0; r < ROWS; r++)
        for (long k = subgroup * BLOCK; k < p.k; k += SUBGROUPS * BLOCK)
            permute_nibbles(permuted[r] + k, eights[r] + k / 8, powers[r] + k / 8, row[r] + k);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif

    float16 total[ROWS][COLUMNS];
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < COLUMNS; j++) total[r][j] = 0;
    for (long from = 0, along = 0; from < p.k; from += q.b.group_along, along++) {
        const long to = min(p.k, from + q.b.group_along);
        float16 sum[ROWS][COLUMNS], of_row[ROWS];
        for (int r = 0; r < ROWS; r++) {
            of_row[r] = 0;
            for (int j = 0; j < COLUMNS; j++) sum[r][j] = 0;
        }
#if NIBBLES
        for (long part = from; part < to; part += SPAN) {
            const long end = min(to, part + SPAN);
            float16 less[ROWS];
            for (int r = 0; r < ROWS; r++) less[r] = 0;
            for (long k = part; k < end; k += BLOCK) {
                uint16 bits[COLUMNS];
                UNROLL_HINT for (int j = 0; j < COLUMNS; j++) {
                    bits[j] = vload16(0, XPU_CPTR(uint, line[j]) + k / 8);
                    if (E_FORM == FORM_SIGNED) bits[j] ^= 0x88888888u;
                }
                UNROLL_HINT for (int i = 0; i < 8; i++) UNROLL_HINT
                    for (int r = 0; r < ROWS; r++) {
                        const float16 x = *(__local const float16 *)(permuted[r] + k + i * 16);
                        UNROLL_HINT for (int j = 0; j < COLUMNS; j++)
                            sum[r][j] = fma(x, nibbles(bits[j], i), sum[r][j]);
                    }
                UNROLL_HINT for (int r = 0; r < ROWS; r++) {
                    of_row[r] += *(__local const float16 *)(eights[r] + k / 8);
                    less[r] += *(__local const float16 *)(powers[r] + k / 8);
                }
            }
            for (int r = 0; r < ROWS; r++)
                for (int j = 0; j < COLUMNS; j++) sum[r][j] -= less[r];
        }
#else
        for (long k = from; k < to; k += BLOCK) {
            float16 x[ROWS];
            UNROLL_HINT for (int r = 0; r < ROWS; r++)
                x[r] = LOAD16(row[r] + k);
            if (ZERO_FORM || HAS_ZERO_OFFSET) UNROLL_HINT
                for (int r = 0; r < ROWS; r++) of_row[r] += x[r];
            UNROLL_HINT for (int j = 0; j < COLUMNS; j++) {
                const float16 v = sixteen_of_b(line[j], k);
                UNROLL_HINT for (int r = 0; r < ROWS; r++)
                    sum[r][j] = fma(x[r], v, sum[r][j]);
            }
        }
#endif
        const float offset =
            OFFSET + (E_FORM <= FORM_UNSIGNED && HAS_ZERO_OFFSET ? (float)q.b.zero_offset : 0);
        for (int j = 0; j < COLUMNS; j++) {
            const bool is_nan = has_nan(line[j], from, to);
            const float scale = scale_of(&q.b, scales[j], along), zero = zero_of(&q.b, zeros[j], along);
            const float away = ZERO_FORM == 3 ? offset : offset + zero / FOLD;
            for (int r = 0; r < ROWS; r++) {
                const bool has_away = NIBBLES || ZERO_FORM || HAS_ZERO_OFFSET;
                float16 products = is_nan ? (float16)(NAN) : sum[r][j];
                if (has_away) products -= away * of_row[r];
                total[r][j] = fma(products, scale, total[r][j]);
                if (ZERO_FORM == 3) total[r][j] = fma(of_row[r], zero, total[r][j]);
            }
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < COLUMNS; j++)
            if (m0 + r < p.m && n0 + j < p.n) store_result(&p, b, m0 + r, n0 + j, sum16(total[r][j]));
}
