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
 * Contract: A and the dequantized elements are of T, fp16 or bf16, which represent element minus integer zero
 * point exactly. Scales are applied to sums: a group has whole steps of k, or all of k. k is a multiple of
 * SMALL_M_CHUNK or, with K_WHOLE=1, of SMALL_M_STEP.
 * Options: X_ROOM=<vectors of 8 elements>, rows of A, normalized, are copied to local memory once per
 * work-group, X_EACH vectors of a row per work-item (0: read where needed); RING=1 (needs X_ROOM), the steps
 * go to local memory, too, each work-item's own part, and so do SCALE_ROOM scales and zero points of rows (0:
 * none); RING=0, to registers; ROW_BLOCKS; SINGLE=1, one batch, no more rows than these, each row of B has
 * its own scales; gemm_fused.h for several B and normalized rows of A; those of quantized_load.h and
 * matrix_ptx.h. */
#define FEW_CHUNK (128 / E_BITS) /* elements of a work-item */
#define FEW_STEP (4 * FEW_CHUNK)
#define STEP_PIECES (FEW_STEP / 8)
#define AHEAD 2
#define FEW_ROWS (8 * ROW_BLOCKS)
#define FEW_ITEMS (MATRIX_TEAM * TEAMS)
#define K_TEAMS (TEAMS / SETS)
#define SUMS_PITCH (RING ? AHEAD * 256 : FEW_ROWS * 16) /* a team's numbers */
#define SUM_AT(team, row, line) sums[(team) * SUMS_PITCH + (row) * 16 + (line)]

/* Integers of 4 bits, raised to begin at 0, are written into the mantissa of a BASE of 16 bits, from bit
 * PLACE on. Where the sums of A's rows are at hand BASE and the zero point are taken from the products' sums;
 * the smaller one of bfloat16 is taken from each number, which is exact. */
#define IS_SMALL_WHOLE (E_BITS == 4 && E_FORM <= FORM_UNSIGNED)
#define IS_RAISED (IS_SMALL_WHOLE && X_ROOM > 0)
#define PAIR_BASE_bf16 (IS_RAISED ? 128.0f : 64.0f)
#define PAIR_BITS_bf16 (IS_RAISED ? 0x43004300u : PAIR_64_bf16)
#define PAIR_PLACE_bf16 (IS_RAISED ? 0 : ONE_OF_64_bf16)
#define PAIR_BASE_f16 64.0f
#define PAIR_BITS_f16 PAIR_64_f16
#define PAIR_PLACE_f16 ONE_OF_64_f16

#define IS_THERE(i) (K_WHOLE || (i) < (uint)p.k)

/* What a work-item has of a step: its lines are `line` and 8 below it. */
typedef struct few_step {
    uint4 bits[2];
    float scale[2], less[2];
} few_step;

static inline octet octet_of(uint4 v, const int i) {
#if E_BITS == 4
    return (octet)(i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w, 0);
#else
    return i ? v.hi : v.lo;
#endif
}
#if IS_SMALL_WHOLE
/* Elements i and i + 4 of eight, raised to begin at 0, and BASE. */
#define RAISED_BITS                                                                                          \
    (XPU_CAT(PAIR_BITS_, T) | (E_FORM == FORM_SIGNED ? 0x00080008u << XPU_CAT(PAIR_PLACE_, T) : 0))
static inline uint raised_pair(uint v, const int i) {
    const int from = 4 * i, to = XPU_CAT(PAIR_PLACE_, T);
    return bits_into(from >= to ? v >> (from - to) : v << (to - from), 0x000f000fu << to, RAISED_BITS);
}
#endif
/* The numbers of an octet, less `less` but where they are raised: pairs of elements i and i + 4. */
static inline uint4 pairs_of(octet bits, float less) {
#if IS_SMALL_WHOLE
    const uint v = bits.x;
    const uint4 raised = (uint4)(raised_pair(v, 0), raised_pair(v, 1), raised_pair(v, 2), raised_pair(v, 3));
#if IS_RAISED
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
/* Eight numbers of a row of A likewise. */
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
#if PLUS_ONE
    const float8 y = EIGHT_OF(v) * (1 + EIGHT_OF(w));
    return (uint4)(round_pair(y.s0, y.s1), round_pair(y.s2, y.s3), round_pair(y.s4, y.s5),
                   round_pair(y.s6, y.s7));
#endif
    return (uint4)(multiply_pairs(v.x, w.x), multiply_pairs(v.y, w.y), multiply_pairs(v.z, w.z),
                   multiply_pairs(v.w, w.w));
}
#define NORMED_PIECE(v, at) normed(v, read_piece(joined.norm + (at)))
#define NORM_ADDRESS joined.norm
#else
#define NORMED_PIECE(v, at) (v)
#define NORM_ADDRESS 0
#endif

/* What a work-item has of a row of A, and what that is multiplied by. */
#define READ_ROW(r)                                                                                          \
    {                                                                                                        \
        const xpu_addr row_ = p.a + (b * p.a_stride.batch + (m0 + (r)) * p.a_stride.row) * 2;                \
        WRITTEN_OUT for (int i = 0; i < X_EACH; i++) {                                                       \
            const int e_ = i * FEW_ITEMS + id;                                                               \
            const bool there_ = e_ * 8 < (int)p.k;                                                           \
            x_pieces[i] = there_ ? read_piece(row_ + e_ * 16) : (uint4)(0);                                  \
            if (NORMED) x_norm[i] = there_ ? read_piece(NORM_ADDRESS + e_ * 16) : (uint4)(0);                \
        }                                                                                                    \
    }

/* The sum over the `count` work-items beside each other, a power of two, that this one is of. */
static inline float over_neighbors(float v, const uint count) {
    WRITTEN_OUT for (uint i = 1; i < count; i *= 2) v += lane_across(v, i);
    return v;
}

/* Of a group's 16 lines those of the first matrix, and where the others' scales and zeros are. */
#define EACH (PAIRED ? 8 : 16)
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

/* Reads AHEAD steps from `from` on; from `end` on the last one again. */
#define READ_STEPS(to, from)                                                                                 \
    {                                                                                                        \
        WRITTEN_OUT for (int s = 0; s < AHEAD; s++) WRITTEN_OUT for (int j = 0; j < 2; j++) {                \
            const uint at_ = (uint)min((from) + s, end - 1);                                                 \
            to[s].bits[j] = IS_THERE(at_ * FEW_STEP + part) ? read_piece(lines[j] + at_ * 64) : (uint4)(0);  \
        }                                                                                                    \
        WRITTEN_OUT for (int s = 0; s < AHEAD; s++) {                                                        \
            const uint at_ = (uint)min((from) + s, end - 1) * FEW_STEP;                                      \
            const uint along = (uint)group_of(&l, at_); /* of all lanes, whose sums these become */          \
            WRITTEN_OUT for (int j = 0; j < 2; j++) {                                                        \
                to[s].scale[j] = SCALE_FROM(scales[j] + (ulong)along * scale_pitch[j]);                      \
                to[s].less[j] = base + ZERO_AT(zeros[j] + (ulong)along * zero_pitch[j]);                     \
            }                                                                                                \
        }                                                                                                    \
    }

/* Adds a step's products, times their scales, to `total`. */
#define MULTIPLY_STEP(here, step)                                                                            \
    {                                                                                                        \
        float4 sum[ROW_BLOCKS], other_sum[ROW_BLOCKS]; /* two, that fewer wait for each other */             \
        WRITTEN_OUT for (int i = 0; i < ROW_BLOCKS; i++) sum[i] = other_sum[i] = 0;                          \
        WRITTEN_OUT for (int o = 0; o < FEW_CHUNK / 8; o++) {                                                \
            const uint4 v = pairs_of(octet_of((here).bits[0], o), (here).less[0]);                           \
            const uint4 w = pairs_of(octet_of((here).bits[1], o), (here).less[1]);                           \
            WRITTEN_OUT for (int i = 0; i < ROW_BLOCKS; i++) {                                               \
                const uint4 x = X_AT(i, step, o);                                                            \
                multiply_blocks(&sum[i], (uint4)(v.x, w.x, v.y, w.y), x.lo);                                 \
                multiply_blocks(&other_sum[i], (uint4)(v.z, w.z, v.w, w.w), x.hi);                           \
            }                                                                                                \
        }                                                                                                    \
        const float4 scale = {(here).scale[0], (here).scale[0], (here).scale[1], (here).scale[1]};           \
        WRITTEN_OUT for (int i = 0; i < ROW_BLOCKS; i++) {                                                   \
            sum[i] += other_sum[i];                                                                          \
            LESSEN_SUM(i, here, step)                                                                        \
            total[i] = fma(sum[i], scale, total[i]);                                                         \
        }                                                                                                    \
    }
#if IS_RAISED
#define LESSEN_SUM(i, here, step)                                                                            \
    const float x_ = of_column[i][0][step], y_ = of_column[i][1][step];                                      \
    const float4 less_ = {(here).less[0], (here).less[0], (here).less[1], (here).less[1]};                   \
    sum[i] = fma(-less_, (float4)(x_, y_, x_, y_), sum[i]);
#else
#define LESSEN_SUM(i, here, step)
#endif

MATRIX_KERNEL __attribute__((reqd_work_group_size(MATRIX_TEAM, TEAMS, 1)))
#if PARTS
void gemm_few_units(const gemm_joined_params joined) {
    gemm_quantized_params q = joined.given;
#else
void gemm_few_units(const gemm_quantized_params q) {
#endif
#if !RING
    __local float sums[TEAMS * SUMS_PITCH];
#endif
    const int lane = (int)get_local_id(0), team = (int)get_local_id(1), id = team * MATRIX_TEAM + lane;
    const int line = lane / 4, part = lane % 4 * FEW_CHUNK, column = lane % 4 * 2;
    /* A group's beginning is a good part of its time: everything here has 32 bits. */
    const uint blocks_m = SINGLE ? 1 : ((uint)q.gemm.m + FEW_ROWS - 1) / FEW_ROWS, g = (uint)XPU_GROUP(0);
    uint of_rows = g / blocks_m;
#if PARTS
    const uint block = of_rows;
    of_rows -= take_part(&q.gemm, &q.b, &joined, of_rows);
#endif
    const gemm_params p = q.gemm;
    const uint blocks_n = ((uint)p.n + GROUP_EACH - 1) / GROUP_EACH;
    const long m0 = SINGLE ? 0 : g % blocks_m * FEW_ROWS,
               n0 = (SINGLE ? of_rows : of_rows % blocks_n) * GROUP_EACH, b = SINGLE ? 0 : of_rows / blocks_n;
    const uint of_k = (uint)team % K_TEAMS, set = (uint)team / K_TEAMS;
    const int rows_here = (int)min(p.m - m0, (long)FEW_ROWS);
    const int steps = (int)(((uint)p.k + FEW_STEP - 1) / FEW_STEP),
              begin = (int)((uint)steps * of_k / K_TEAMS), end = (int)((uint)steps * (of_k + 1) / K_TEAMS);
    const quantized_lines l = q.b;
#if GATED
    const quantized_lines second = second_lines(&joined);
#endif
    const float base = E_FORM > FORM_UNSIGNED ? 0
                       : IS_SMALL_WHOLE
                           ? (float)l.middle + XPU_CAT(PAIR_BASE_, T) + (E_FORM == FORM_SIGNED ? 8 : 0)
                           : (float)l.middle + AWAY.s0;
    /* Beyond the last line, and row, the last is done again. */
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
    __local uint4 ring[TEAMS * AHEAD * 2 * MATRIX_TEAM] SLAB_ALIGNED;
    /* A team's sums come where its steps were. */
    __local float *const sums = (__local float *)ring;
    const slab own = SLAB_OF(ring + team * (AHEAD * 2 * MATRIX_TEAM) + lane);
#define BRING_STEP(slot, step)                                                                               \
    {                                                                                                        \
        WRITTEN_OUT for (int j = 0; j < 2; j++) {                                                            \
            const bool there_ = IS_THERE((uint)(step) * FEW_STEP + part);                                    \
            copy_part_ahead(own + ((slot) * 2 + j) * MATRIX_TEAM * 16,                                       \
                            there_ ? lines[j] + (uint)(step) * 64 : lines[j], 16, there_ ? 16 : 0);          \
        }                                                                                                    \
    }
    WRITTEN_OUT for (int s = 0; s < AHEAD; s++) {
        if (begin + s < end) BRING_STEP(s, begin + s);
        copies_close();
    }
#if SCALE_ROOM
    __local float2 numbers_of[SCALE_ROOM];
    __local const float2 *numbers_here = numbers_of + set * 16 + line;
#endif
#else
    few_step now[AHEAD], next[AHEAD];
    READ_STEPS(now, begin)
#endif

#if X_ROOM
    /* A row's vectors as work-items read them, the first of all four `part`s of a step before the second
     * ones.
     */
    __local uint4 pieces[X_ROOM];
    __local float row_sums[X_ROOM / STEP_PIECES]; /* of each step */
    const int pitch = steps * STEP_PIECES + 4;    /* rows beside each other are half the banks apart */
#if NORMED
    __local float squares[TEAMS][FEW_ROWS];
#endif
    uint4 x_pieces[X_EACH], x_norm[X_EACH];
    READ_ROW(0)
#if RING && SCALE_ROOM
    /* After A's first row is asked for, that neither waits for the other. */
    WRITTEN_OUT for (int i = 0; i < SCALE_ROOM / FEW_ITEMS; i++) {
        const uint e = (uint)(i * FEW_ITEMS + id), of_group = e % (16 * SETS), along = e / (16 * SETS),
                   j = of_group / 8 % 2;
        if (along > (uint)group_of(&l, (steps - 1) * FEW_STEP)) continue;
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
        WRITTEN_OUT for (int i = 0; i < X_EACH; i++) {
            const int e = i * FEW_ITEMS + id, at = e % STEP_PIECES;
            uint4 v = x_pieces[i];
#if NORMED
            const float8 of = EIGHT_OF(v);
            square += sum8(of * of);
            v = normed(v, x_norm[i]);
#endif
            if (e < steps * STEP_PIECES)
                pieces[r * pitch + e - at + at % (FEW_CHUNK / 8) * 4 + at / (FEW_CHUNK / 8)] =
                    pairs_of_row(v);
#if IS_RAISED
            const float sum = over_neighbors(sum8(EIGHT_OF(v)), STEP_PIECES);
            if (at == 0 && e < steps * STEP_PIECES) row_sums[r * steps + e / STEP_PIECES] = sum;
#endif
        }
#if NORMED
        square = over_neighbors(square, MATRIX_TEAM);
        if (lane == 0) squares[team][r] = square;
#endif
        if (r + 1 < rows_here) READ_ROW(r + 1)
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __local const uint4 *rows[ROW_BLOCKS];
    __local const float *of_column[ROW_BLOCKS][2];
    for (int i = 0; i < ROW_BLOCKS; i++) {
        rows[i] = pieces + min(line + i * 8, rows_here - 1) * pitch + lane % 4;
        for (int j = 0; j < 2; j++)
            of_column[i][j] = row_sums + min(column + j + i * 8, rows_here - 1) * steps;
    }
#define X_AT(i, step, o) rows[i][(step) * STEP_PIECES + (o) * 4]
#else
    xpu_addr rows[ROW_BLOCKS];
    for (int i = 0; i < ROW_BLOCKS; i++)
        rows[i] = p.a + (b * p.a_stride.batch + min(m0 + line + i * 8, p.m - 1) * p.a_stride.row + part) * 2;
#define PLACE_OF(step, o) (((step) * FEW_STEP + (o) * 8) * 2)
#define X_AT(i, step, o)                                                                                     \
    (IS_THERE((step) * FEW_STEP + part)                                                                      \
         ? pairs_of_row(NORMED_PIECE(read_piece(rows[i] + PLACE_OF(step, o)), part * 2 + PLACE_OF(step, o))) \
         : (uint4)(0))
#endif
    float4 total[ROW_BLOCKS];
    for (int i = 0; i < ROW_BLOCKS; i++) total[i] = 0;
#if RING
    for (int step = begin, slot = 0; step < end; step++) {
        COPIES_WAIT(AHEAD - 1);
        few_step now;
        WRITTEN_OUT for (int j = 0; j < 2; j++) {
            now.bits[j] = ring[(team * AHEAD + slot) * (2 * MATRIX_TEAM) + j * MATRIX_TEAM + lane];
#if SCALE_ROOM
            const float2 of_line = numbers_here[(uint)group_of(&l, step * FEW_STEP) * (16 * SETS) + j * 8];
            now.scale[j] = of_line.x, now.less[j] = of_line.y;
#else
            now.scale[j] = FOLD, now.less[j] = base;
#endif
        }
        MULTIPLY_STEP(now, step)
        if (step + AHEAD < end) BRING_STEP(slot, step + AHEAD);
        copies_close();
        slot = slot + 1 == AHEAD ? 0 : slot + 1;
    }
#else
    for (int first = begin; first < end; first += AHEAD) {
        READ_STEPS(next, first + AHEAD)
        WRITTEN_OUT for (int s = 0; s < AHEAD; s++) {
            const uint step = (uint)(first + s);
            if ((int)step >= end) break;
            MULTIPLY_STEP(now[s], step)
        }
        WRITTEN_OUT for (int s = 0; s < AHEAD; s++) now[s] = next[s];
    }
#endif

    for (int i = 0; i < ROW_BLOCKS; i++) {
        SUM_AT(team, i * 8 + column, line) = total[i].x, SUM_AT(team, i * 8 + column + 1, line) = total[i].y;
        SUM_AT(team, i * 8 + column, line + 8) = total[i].z;
        SUM_AT(team, i * 8 + column + 1, line + 8) = total[i].w;
    }
#if NORMED && !X_ROOM
    __local float roots[FEW_ITEMS * FEW_ROWS];
    find_roots(roots, &joined, m0, FEW_ROWS, id, FEW_ITEMS);
#else
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    for (int i = id; i < GROUP_EACH * rows_here; i += FEW_ITEMS) {
        const int m = i / GROUP_EACH, n = i % GROUP_EACH, first = n / EACH * K_TEAMS;
        if (n0 + n >= p.n) continue;
        float sum = 0;
        WRITTEN_OUT for (int t = 0; t < K_TEAMS; t++) sum += SUM_AT(first + t, m, n % EACH);
#if PAIRED
        float other = 0;
        WRITTEN_OUT for (int t = 0; t < K_TEAMS; t++) other += SUM_AT(first + t, m, n % EACH + 8);
#endif
#if NORMED
#if X_ROOM
        float square = 0;
        WRITTEN_OUT for (int t = 0; t < TEAMS; t++) square += squares[t][m];
        const float root = root_of(&joined, square);
#else
        const float root = roots[m];
#endif
        sum *= root;
#if PAIRED
        other *= root;
#endif
#endif
#if GATED
        put_gated(&p, &joined, m0 + m, n0 + n, sum, other);
#elif CACHED
        put_cached(&p, &joined, block, m0 + m, n0 + n, sum, other);
#else
    put(&p, b, m0 + m, n0 + n, sum);
#endif
    }
#if HEADS_NORMED
    __local uint last;
    put_heads(&p, &joined, block, m0, rows_here, (uint)n0, sums, &last, (uint)id, FEW_ITEMS);
#endif
}
