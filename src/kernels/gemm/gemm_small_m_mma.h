/* gemm_small_m_mma: products of up to 8 * ROW_BLOCKS rows with a quantized K-major matrix on NVIDIA tensor
 * cores (ptx_mma.h). 16 rows of B are the left operand of a multiplication and 8 rows of A the right one, so
 * that 8 rows cost as much as one, and dequantizing a 4-bit element takes about one instruction.
 *
 * Launch: work-groups of (MATRIX_SUBGROUP_SIZE, SUBGROUPS) have SETS sets of 16 rows of B; the warps of a set
 * split k. A warp goes along its part in steps of SMALL_M_STEP elements, 16 bytes of each row per work-item,
 * and prefetches PREFETCH_DISTANCE steps. The elements of a work-item are contiguous in memory but not in the
 * fragment's order of k; elements of A are permuted in the same way: 8 elements give pairs of element i and
 * element i + 4.
 *
 * Contract: A and the dequantized elements are of T, fp16 or bf16, which represent element compensation
 * integer zero point exactly. Scales are applied to sums: a group has whole steps of k, or all of k. k is a
 * multiple of SMALL_M_CHUNK or, with K_WHOLE=1, of SMALL_M_STEP. Options: X_ROOM=<vectors of 8 elements>,
 * rows of A, normalized, are copied to local memory once per work-group, X_EACH vectors of a row per
 * work-item (0: read where needed); RING=1 (needs X_ROOM), the steps go to local memory, too, each
 * work-item's own part, and so do SCALE_ROOM scales and zero points of rows (0: none); RING=0, to registers;
 * ROW_BLOCKS; SINGLE=1, one batch, no more rows than these, each row of B has its own scales; gemm_fused.h
 * for several B and normalized rows of A; those of quantized_load.h and matrix_ptx.h. */
#define SMALL_M_CHUNK (128 / E_BITS) /* elements per work-item */
#define SMALL_M_STEP (4 * SMALL_M_CHUNK)
#define STEP_VECTORS (SMALL_M_STEP / 8)
#define PREFETCH_DISTANCE 2
#define SMALL_M_ROWS (8 * ROW_BLOCKS)
#define SMALL_M_ITEMS (MATRIX_SUBGROUP_SIZE * SUBGROUPS)
#define K_SUBGROUPS (SUBGROUPS / SETS)
#define PARTIAL_SUMS_PITCH (RING ? PREFETCH_DISTANCE * 256 : SMALL_M_ROWS * 16) /* elements per subgroup */
#define SUM_AT(subgroup, row, line) sums[(subgroup) * PARTIAL_SUMS_PITCH + (row) * 16 + (line)]

/* 4-bit integers, biased to be unsigned, are written into the mantissa of a 16-bit BASE, from bit PLACE on.
 * If the sums of A's rows are in local memory, BASE and the zero point are subtracted from the accumulators;
 * otherwise the smaller BASE of bfloat16 is subtracted from each element, which is exact. */
#define IS_SMALL_WHOLE (E_BITS == 4 && E_FORM <= FORM_UNSIGNED)
#define IS_BIASED (IS_SMALL_WHOLE && X_ROOM > 0)
#define PAIR_BASE_bf16 (IS_BIASED ? 128.0f : 64.0f)
#define PAIR_BITS_bf16 (IS_BIASED ? 0x43004300u : PAIR_64_bf16)
#define PAIR_PLACE_bf16 (IS_BIASED ? 0 : ONE_OF_64_bf16)
#define PAIR_BASE_f16 64.0f
#define PAIR_BITS_f16 PAIR_64_f16
#define PAIR_PLACE_f16 ONE_OF_64_f16

#define IS_THERE(i) (K_WHOLE || (i) < (uint)p.k)

/* A work-item's part of a step: rows `line` and `line` + 8 of B. */
typedef struct small_m_step {
    uint4 bits[2];
    float scale[2], less[2];
} small_m_step;

static inline octet octet_of(uint4 v, const int i) {
#if E_BITS == 4
    return (octet)(i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w, 0);
#else
    return i ? v.hi : v.lo;
#endif
}
#if IS_SMALL_WHOLE
/* Elements i and i + 4 of eight, biased to be unsigned, plus BASE. */
#define SIGNED_BIAS_BITS                                                                                     \
    (XPU_CAT(PAIR_BITS_, T) | (E_FORM == FORM_SIGNED ? 0x00080008u << XPU_CAT(PAIR_PLACE_, T) : 0))
static inline uint biased_pair(uint v, const int i) {
    const int from = 4 * i, to = XPU_CAT(PAIR_PLACE_, T);
    return bits_into(from >= to ? v >> (from - to) : v << (to - from), 0x000f000fu << to, SIGNED_BIAS_BITS);
}
#endif
/* Dequantizes eight elements into pairs of elements i and i + 4; subtracts `less` unless IS_BIASED. */
static inline uint4 pairs_of(octet bits, float less) {
#if IS_SMALL_WHOLE
    const uint v = bits.x;
    const uint4 raised = (uint4)(biased_pair(v, 0), biased_pair(v, 1), biased_pair(v, 2), biased_pair(v, 3));
#if IS_BIASED
    return raised;
#else
    const uint by = round_pair(-less, -less);
    return (uint4)(add_pairs(raised.x, by), add_pairs(raised.y, by), add_pairs(raised.z, by),
                   add_pairs(raised.w, by));
#endif
#else
    const float8 v = numbers(bits) - less;
    return (uint4)(round_pair(v.s0, v.s4), round_pair(v.s1, v.s5), round_pair(v.s2, v.s6),
                   round_pair(v.s3, v.s7));
#endif
}
/* Rearranges eight elements of a row of A the same way. */
static inline uint4 pairs_of_row(uint4 v) {
#ifdef XPU_HAS_INLINE_PTX
    return (uint4)(xpu_bytes(v.x, v.z, 0x5410u), xpu_bytes(v.x, v.z, 0x7632u), xpu_bytes(v.y, v.w, 0x5410u),
                   xpu_bytes(v.y, v.w, 0x7632u));
#else
    const uint4 low = v & 0xffffu, high = v & 0xffff0000u;
    return (uint4)(low.x | low.z << 16, high.x >> 16 | high.z, low.y | low.w << 16, high.y >> 16 | high.w);
#endif
}

#if NORMED
static inline uint4 normed(uint4 v, uint4 w) {
#if UNIT_OFFSET_WEIGHT
    const float8 y = EIGHT_OF(v) * (1 + EIGHT_OF(w));
    return (uint4)(round_pair(y.s0, y.s1), round_pair(y.s2, y.s3), round_pair(y.s4, y.s5),
                   round_pair(y.s6, y.s7));
#endif
    return (uint4)(multiply_pairs(v.x, w.x), multiply_pairs(v.y, w.y), multiply_pairs(v.z, w.z),
                   multiply_pairs(v.w, w.w));
}
#define NORMED_VECTOR(v, at) normed(v, load_vector_nc(fused.norm + (at)))
#define NORM_ADDRESS fused.norm
#else
#define NORMED_VECTOR(v, at) (v)
#define NORM_ADDRESS 0
#endif

/* Reads the work-item's part of a row of A, and of the norm's weight. */
#define READ_ROW(r)                                                                                          \
    {                                                                                                        \
        const xpu_addr row_ = p.a + (b * p.a_stride.batch + (m0 + (r)) * p.a_stride.row) * 2;                \
        UNROLL for (int i = 0; i < X_EACH; i++) {                                                            \
            const int e_ = i * SMALL_M_ITEMS + id;                                                           \
            const bool there_ = e_ * 8 < (int)p.k;                                                           \
            x_vectors[i] = there_ ? load_vector_nc(row_ + e_ * 16) : (uint4)(0);                             \
            if (NORMED) x_norm[i] = there_ ? load_vector_nc(NORM_ADDRESS + e_ * 16) : (uint4)(0);            \
        }                                                                                                    \
    }

/* The sum over `count` adjacent lanes, a power of two. */
static inline float over_neighbors(float v, const uint count) {
    UNROLL for (uint i = 1; i < count; i *= 2)
        v += lane_across(v, i);
    return v;
}

/* Of 16 rows of B, those of the first weight; the rows of the second one have their own scales and zero
 * points. */
#define EACH (LINE_PAIRS ? 8 : 16)
#define GROUP_EACH (EACH * SETS)
#if GATED
#define LINES(j) (*((j) ? &second : &l))
#else
#define LINES(j) l
#endif

#ifdef SCALE
#define SCALE_BYTES sizeof(STORED(SCALE))
#define SCALE_FROM(address) ((float)LOAD(SCALE, XPU_CPTR(STORED(SCALE), address), 0) * FOLD)
#else
#define SCALE_BYTES 0
#define SCALE_FROM(address) FOLD
#endif
#if ZERO_FORM
#define ZERO_BYTES sizeof(STORED(ZERO))
#define ZERO_AT(address) ((float)LOAD(ZERO, XPU_CPTR(STORED(ZERO), address), 0))
#else
#define ZERO_BYTES 0
#define ZERO_AT(address) 0.0f
#endif

/* Reads PREFETCH_DISTANCE steps from `from` on; past the end the last one is read again. */
#define READ_STEPS(to, from)                                                                                 \
    {                                                                                                        \
        UNROLL for (int s = 0; s < PREFETCH_DISTANCE; s++) UNROLL                                            \
            for (int j = 0; j < 2; j++) {                                                                    \
                const uint at_ = (uint)min((from) + s, end - 1);                                             \
                to[s].bits[j] =                                                                              \
                    IS_THERE(at_ * SMALL_M_STEP + part) ? load_vector_nc(lines[j] + at_ * 64) : (uint4)(0);  \
            }                                                                                                \
        UNROLL for (int s = 0; s < PREFETCH_DISTANCE; s++) {                                                 \
            const uint at_ = (uint)min((from) + s, end - 1) * SMALL_M_STEP;                                  \
            const uint along = (uint)group_of(&l, at_); /* a step has one scale per row */                   \
            UNROLL for (int j = 0; j < 2; j++) {                                                             \
                to[s].scale[j] = SCALE_FROM(scales[j] + (ulong)along * scale_pitch[j]);                      \
                to[s].less[j] = base + ZERO_AT(zeros[j] + (ulong)along * zero_pitch[j]);                     \
            }                                                                                                \
        }                                                                                                    \
    }

/* Adds the products of a step, times their scales, to `total`. */
#define MULTIPLY_STEP(here, step)                                                                            \
    {                                                                                                        \
        float4 sum[ROW_BLOCKS], other_sum[ROW_BLOCKS]; /* two, to shorten dependency chains */               \
        UNROLL for (int i = 0; i < ROW_BLOCKS; i++)                                                          \
            sum[i] = other_sum[i] = 0;                                                                       \
        UNROLL for (int o = 0; o < SMALL_M_CHUNK / 8; o++) {                                                 \
            const uint4 v = pairs_of(octet_of((here).bits[0], o), (here).less[0]);                           \
            const uint4 w = pairs_of(octet_of((here).bits[1], o), (here).less[1]);                           \
            UNROLL for (int i = 0; i < ROW_BLOCKS; i++) {                                                    \
                const uint4 x = X_AT(i, step, o);                                                            \
                multiply_blocks(&sum[i], (uint4)(v.x, w.x, v.y, w.y), x.lo);                                 \
                multiply_blocks(&other_sum[i], (uint4)(v.z, w.z, v.w, w.w), x.hi);                           \
            }                                                                                                \
        }                                                                                                    \
        const float4 scale = {(here).scale[0], (here).scale[0], (here).scale[1], (here).scale[1]};           \
        UNROLL for (int i = 0; i < ROW_BLOCKS; i++) {                                                        \
            sum[i] += other_sum[i];                                                                          \
            COMPENSATE_SUM(i, here, step)                                                                    \
            total[i] = fma(sum[i], scale, total[i]);                                                         \
        }                                                                                                    \
    }
#if IS_BIASED
#define COMPENSATE_SUM(i, here, step)                                                                        \
    const float x_ = of_column[i][0][step], y_ = of_column[i][1][step];                                      \
    const float4 less_ = {(here).less[0], (here).less[0], (here).less[1], (here).less[1]};                   \
    sum[i] = fma(-less_, (float4)(x_, y_, x_, y_), sum[i]);
#else
#define COMPENSATE_SUM(i, here, step)
#endif

MATRIX_KERNEL __attribute__((reqd_work_group_size(MATRIX_SUBGROUP_SIZE, SUBGROUPS, 1)))
#if PARTS
void gemm_small_m_mma(const gemm_fused_params fused) {
    gemm_quantized_params q = fused.given;
#else
void gemm_small_m_mma(const gemm_quantized_params q) {
#endif
#if !RING
    __local float sums[SUBGROUPS * PARTIAL_SUMS_PITCH];
#endif
    const int lane = (int)get_local_id(0), subgroup = (int)get_local_id(1),
              id = subgroup * MATRIX_SUBGROUP_SIZE + lane;
    const int line = lane / 4, part = lane % 4 * SMALL_M_CHUNK, column = lane % 4 * 2;
    /* The start takes a good part of a work-group's time, so everything here has 32 bits. */
    const uint blocks_m = SINGLE ? 1 : ((uint)q.gemm.m + SMALL_M_ROWS - 1) / SMALL_M_ROWS,
               g = (uint)XPU_GROUP(0);
    uint of_rows = g / blocks_m;
#if PARTS
    const uint block = of_rows;
    of_rows -= take_part(&q.gemm, &q.b, &fused, of_rows);
#endif
    const gemm_params p = q.gemm;
    const uint blocks_n = ((uint)p.n + GROUP_EACH - 1) / GROUP_EACH;
    const long m0 = SINGLE ? 0 : g % blocks_m * SMALL_M_ROWS,
               n0 = (SINGLE ? of_rows : of_rows % blocks_n) * GROUP_EACH, b = SINGLE ? 0 : of_rows / blocks_n;
    const uint of_k = (uint)subgroup % K_SUBGROUPS, set = (uint)subgroup / K_SUBGROUPS;
    const int rows_here = (int)min(p.m - m0, (long)SMALL_M_ROWS);
    const int steps = (int)(((uint)p.k + SMALL_M_STEP - 1) / SMALL_M_STEP),
              begin = (int)((uint)steps * of_k / K_SUBGROUPS),
              end = (int)((uint)steps * (of_k + 1) / K_SUBGROUPS);
    const quantized_lines l = q.b;
#if GATED
    const quantized_lines second = second_lines(&fused);
#endif
    const float base = E_FORM > FORM_UNSIGNED ? 0
                       : IS_SMALL_WHOLE
                           ? (float)l.zero_offset + XPU_CAT(PAIR_BASE_, T) + (E_FORM == FORM_SIGNED ? 8 : 0)
                           : (float)l.zero_offset + MANTISSA_OFFSET.s0;
    /* Out-of-range rows of A and B are clamped to the last one; their results are discarded. */
    xpu_addr lines[2];
#if !RING
    xpu_addr scales[2], zeros[2];
    uint scale_pitch[2], zero_pitch[2];
#endif
    for (int j = 0; j < 2; j++) {
        const long n = LINE_OF(min((uint)n0 + set * EACH + line + j * (EACH - 8), (uint)p.n - 1), j);
        lines[j] = LINES(j).data + (b * l.batch + n * l.across + part) * E_BITS / 8;
#if !RING
        const long across = SINGLE ? n : (uint)n / (uint)l.group_across;
        scales[j] = LINES(j).scale.data + place_of(&l.scale, b, across) * SCALE_BYTES;
        zeros[j] = LINES(j).zero.data + place_of(&l.zero, b, across) * ZERO_BYTES;
        scale_pitch[j] = (uint)LINES(j).scale.along * SCALE_BYTES;
        zero_pitch[j] = (uint)LINES(j).zero.along * ZERO_BYTES;
#endif
    }
#if RING
    __local uint4 ring[SUBGROUPS * PREFETCH_DISTANCE * 2 * MATRIX_SUBGROUP_SIZE] LOCAL_TILE_ALIGNED;
    /* The partial sums reuse the memory of the subgroup's steps. */
    __local float *const sums = (__local float *)ring;
    const local_tile own =
        LOCAL_TILE_ADDRESS(ring + subgroup * (PREFETCH_DISTANCE * 2 * MATRIX_SUBGROUP_SIZE) + lane);
#define PREFETCH_STEP(slot, step)                                                                            \
    {                                                                                                        \
        UNROLL for (int j = 0; j < 2; j++) {                                                                 \
            const bool there_ = IS_THERE((uint)(step) * SMALL_M_STEP + part);                                \
            copy_part_async(own + ((slot) * 2 + j) * MATRIX_SUBGROUP_SIZE * 16,                              \
                            there_ ? lines[j] + (uint)(step) * 64 : lines[j], 16, there_ ? 16 : 0);          \
        }                                                                                                    \
    }
    UNROLL for (int s = 0; s < PREFETCH_DISTANCE; s++) {
        if (begin + s < end) PREFETCH_STEP(s, begin + s);
        commit_copies();
    }
#if SCALE_ROOM
    __local float2 numbers_of[SCALE_ROOM];
    __local const float2 *numbers_here = numbers_of + set * 16 + line;
#endif
#else
    small_m_step now[PREFETCH_DISTANCE], next[PREFETCH_DISTANCE];
    READ_STEPS(now, begin)
#endif

#if X_ROOM
    /* Vectors of a row in the order in which work-items read them: in each step the first vectors of all four
     * `part`s, then the second ones. */
    __local uint4 vecs[X_ROOM];
    __local float row_sums[X_ROOM / STEP_VECTORS]; /* per step */
    const int pitch = steps * STEP_VECTORS + 4; /* padding, so that adjacent rows are half the banks apart */
#if NORMED
    __local float squares[SUBGROUPS][SMALL_M_ROWS];
#endif
    uint4 x_vectors[X_EACH], x_norm[X_EACH];
    READ_ROW(0)
#if RING && SCALE_ROOM
    /* After the first row of A is requested, so that both loads overlap. */
    UNROLL for (int i = 0; i < SCALE_ROOM / SMALL_M_ITEMS; i++) {
        const uint e = (uint)(i * SMALL_M_ITEMS + id), of_group = e % (16 * SETS), along = e / (16 * SETS),
                   j = of_group / 8 % 2;
        if (along > (uint)group_of(&l, (steps - 1) * SMALL_M_STEP)) continue;
        const long n =
            LINE_OF(min((uint)n0 + of_group / 16 * EACH + of_group % 8 + j * (EACH - 8), (uint)p.n - 1), j);
        const long across = SINGLE ? n : (uint)n / (uint)l.group_across;
        const quantized_part scale = LINES(j).scale, zero = LINES(j).zero;
        numbers_of[e] =
            (float2)(SCALE_FROM(scale.data +
                                (place_of(&scale, b, across) + along * scale.along) * SCALE_BYTES),
                     base +
                         ZERO_AT(zero.data + (place_of(&zero, b, across) + along * zero.along) * ZERO_BYTES));
    }
#endif
    for (int r = 0; r < rows_here; r++) {
        float square = 0;
        UNROLL for (int i = 0; i < X_EACH; i++) {
            const int e = i * SMALL_M_ITEMS + id, at = e % STEP_VECTORS;
            uint4 v = x_vectors[i];
#if NORMED
            const float8 of = EIGHT_OF(v);
            square += sum8(of * of);
            v = normed(v, x_norm[i]);
#endif
            if (e < steps * STEP_VECTORS)
                vecs[r * pitch + e - at + at % (SMALL_M_CHUNK / 8) * 4 + at / (SMALL_M_CHUNK / 8)] =
                    pairs_of_row(v);
#if IS_BIASED
            const float sum = over_neighbors(sum8(EIGHT_OF(v)), STEP_VECTORS);
            if (at == 0 && e < steps * STEP_VECTORS) row_sums[r * steps + e / STEP_VECTORS] = sum;
#endif
        }
#if NORMED
        square = over_neighbors(square, MATRIX_SUBGROUP_SIZE);
        if (lane == 0) squares[subgroup][r] = square;
#endif
        if (r + 1 < rows_here) READ_ROW(r + 1)
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __local const uint4 *rows[ROW_BLOCKS];
    __local const float *of_column[ROW_BLOCKS][2];
    for (int i = 0; i < ROW_BLOCKS; i++) {
        rows[i] = vecs + min(line + i * 8, rows_here - 1) * pitch + lane % 4;
        for (int j = 0; j < 2; j++)
            of_column[i][j] = row_sums + min(column + j + i * 8, rows_here - 1) * steps;
    }
#define X_AT(i, step, o) rows[i][(step) * STEP_VECTORS + (o) * 4]
#else
    xpu_addr rows[ROW_BLOCKS];
    for (int i = 0; i < ROW_BLOCKS; i++)
        rows[i] = p.a + (b * p.a_stride.batch + min(m0 + line + i * 8, p.m - 1) * p.a_stride.row + part) * 2;
#define PLACE_OF(step, o) (((step) * SMALL_M_STEP + (o) * 8) * 2)
#define X_AT(i, step, o)                                                                                     \
    (IS_THERE((step) * SMALL_M_STEP + part)                                                                  \
         ? pairs_of_row(                                                                                     \
               NORMED_VECTOR(load_vector_nc(rows[i] + PLACE_OF(step, o)), part * 2 + PLACE_OF(step, o)))     \
         : (uint4)(0))
#endif
    float4 total[ROW_BLOCKS];
    for (int i = 0; i < ROW_BLOCKS; i++) total[i] = 0;
#if RING
    for (int step = begin, slot = 0; step < end; step++) {
        WAIT_FOR_COPIES(PREFETCH_DISTANCE - 1);
        small_m_step now;
        UNROLL for (int j = 0; j < 2; j++) {
            now.bits[j] = ring[(subgroup * PREFETCH_DISTANCE + slot) * (2 * MATRIX_SUBGROUP_SIZE) +
                               j * MATRIX_SUBGROUP_SIZE + lane];
#if SCALE_ROOM
            const float2 of_line =
                numbers_here[(uint)group_of(&l, step * SMALL_M_STEP) * (16 * SETS) + j * 8];
            now.scale[j] = of_line.x, now.less[j] = of_line.y;
#else
            now.scale[j] = FOLD, now.less[j] = base;
#endif
        }
        MULTIPLY_STEP(now, step)
        if (step + PREFETCH_DISTANCE < end) PREFETCH_STEP(slot, step + PREFETCH_DISTANCE);
        commit_copies();
        slot = slot + 1 == PREFETCH_DISTANCE ? 0 : slot + 1;
    }
#else
    for (int first = begin; first < end; first += PREFETCH_DISTANCE) {
        READ_STEPS(next, first + PREFETCH_DISTANCE)
        UNROLL for (int s = 0; s < PREFETCH_DISTANCE; s++) {
            const uint step = (uint)(first + s);
            if ((int)step >= end) break;
            MULTIPLY_STEP(now[s], step)
        }
        UNROLL for (int s = 0; s < PREFETCH_DISTANCE; s++)
            now[s] = next[s];
    }
#endif

    for (int i = 0; i < ROW_BLOCKS; i++) {
        SUM_AT(subgroup, i * 8 + column, line) = total[i].x,
                                         SUM_AT(subgroup, i * 8 + column + 1, line) = total[i].y;
        SUM_AT(subgroup, i * 8 + column, line + 8) = total[i].z;
        SUM_AT(subgroup, i * 8 + column + 1, line + 8) = total[i].w;
    }
#if NORMED && !X_ROOM
    __local float roots[SMALL_M_ITEMS * SMALL_M_ROWS];
    find_inverse_rms(roots, &fused, m0, SMALL_M_ROWS, id, SMALL_M_ITEMS);
#else
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    for (int i = id; i < GROUP_EACH * rows_here; i += SMALL_M_ITEMS) {
        const int m = i / GROUP_EACH, n = i % GROUP_EACH, first = n / EACH * K_SUBGROUPS;
        if (n0 + n >= p.n) continue;
        float sum = 0;
        UNROLL for (int t = 0; t < K_SUBGROUPS; t++)
            sum += SUM_AT(first + t, m, n % EACH);
#if LINE_PAIRS
        float other = 0;
        UNROLL for (int t = 0; t < K_SUBGROUPS; t++)
            other += SUM_AT(first + t, m, n % EACH + 8);
#endif
#if NORMED
#if X_ROOM
        float square = 0;
        UNROLL for (int t = 0; t < SUBGROUPS; t++)
            square += squares[t][m];
        const float root = inverse_rms_of(&fused, square);
#else
        const float root = roots[m];
#endif
        sum *= root;
#if LINE_PAIRS
        other *= root;
#endif
#endif
#if GATED
        store_gated(&p, &fused, m0 + m, n0 + n, sum, other);
#elif QKV_CACHE
        store_qkv(&p, &fused, block, m0 + m, n0 + n, sum, other);
#else
    store_result(&p, b, m0 + m, n0 + n, sum);
#endif
    }
#if NORM_HEADS
    __local uint last;
    store_normed_heads(&p, &fused, block, m0, rows_here, (uint)n0, sums, &last, (uint)id, SMALL_M_ITEMS);
#endif
}
