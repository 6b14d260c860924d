/* A few rows times a matrix of fewer bits whose lines lie along k, by NVIDIA's units (ptx_units.h): 16 lines
 * are the left operand of a multiplication and up to 8 rows of A the right one, so that all rows cost what
 * one does, and an element of 4 bits two instructions.
 *
 * Work-groups of (MATRIX_TEAM, TEAMS), whose teams have 16 lines together and share k out. A team goes along
 * its part in steps of FEW_STEP elements, 16 bytes of each line a work-item; it asks for AHEAD steps at a
 * time. A work-item's elements lie beside each other in memory and are at other places of k in the unit,
 * which doesn't matter, since those of A's rows are taken likewise: an octet gives pairs of an element and
 * the fourth after it.
 *
 * A and the numbers are of T, float16 or bfloat16, which hold all that elements stand for less a whole zero
 * point. Scales are applied to sums: a group has whole steps of k, or all. k is a multiple of FEW_CHUNK, or,
 * with -DK_WHOLE=1, of FEW_STEP. -DROW_BLOCKS: of 8 rows each. For several B, and rows of A that are normed,
 * gemm_joined.h. Wants quantised_read.h and matrix_ptx.h */
#define FEW_CHUNK (128 / E_BITS) /* elements of a work-item */
#define FEW_STEP (4 * FEW_CHUNK)
#define AHEAD 2
#define FEW_ROWS (8 * ROW_BLOCKS)

/* BASE of 16 bits: integers of 4 bits, raised to begin at 0, are written into its mantissa. */
#define PAIR_BASE_bf16 64.0f
#define PAIR_BITS_bf16 0x42804280u
#define PAIR_PLACE_bf16 1
#define PAIR_BASE_f16 1024.0f
#define PAIR_BITS_f16 0x64006400u
#define PAIR_PLACE_f16 0
#define IS_SMALL_WHOLE (E_BITS == 4 && E_FORM <= FORM_UNSIGNED)

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
/* The numbers of an octet, less `less`, which is a pair for integers of 4 bits: pairs of elements i and i
 * + 4. */
static inline uint4 pairs_of(octet bits, float less) {
#if IS_SMALL_WHOLE
    const uint v = E_FORM == FORM_SIGNED ? bits.x ^ 0x88888888u : bits.x;
    const uint mask = 0x000f000fu << XPU_CAT(PAIR_PLACE_, T), base = XPU_CAT(PAIR_BITS_, T);
    const uint place = XPU_CAT(PAIR_PLACE_, T);
    const uint by = round_pair(-less, -less);
    return (uint4)(add_pairs(bits_into(v << place, mask, base), by),
                   add_pairs(bits_into(v >> (4 - place), mask, base), by),
                   add_pairs(bits_into(v >> (8 - place), mask, base), by),
                   add_pairs(bits_into(v >> (12 - place), mask, base), by));
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
    return (uint4)(multiply_pairs(v.x, w.x), multiply_pairs(v.y, w.y), multiply_pairs(v.z, w.z),
                   multiply_pairs(v.w, w.w));
}
#define NORMED_PIECE(v, at) normed(v, read_piece(at))
#else
#define NORMED_PIECE(v, at) (v)
#endif

/* Of a group's 16 lines those of the first matrix, and where the others' scales and zeros are. */
#define EACH (GATED ? 8 : 16)
#if GATED
#define LINES(j) (*((j) ? &second : &l))
#else
#define LINES(j) l
#endif

/* Reads steps from `step` on, as many as are in `next`, and multiplies them. */
#define FEW_STEPS(count)                                                                                     \
    {                                                                                                        \
        few_step next[count];                                                                                \
        WRITTEN_OUT for (int s = 0; s < (count); s++) {                                                      \
            const uint from = (uint)(step + s) * FEW_STEP;                                                   \
            const long along = (uint)group_of(&l, from); /* of all lanes, whose sums these become */         \
            WRITTEN_OUT for (int j = 0; j < 2; j++) {                                                        \
                next[s].bits[j] = IS_THERE(from + part) ? read_piece(lines[j] + s * 64) : (uint4)(0);        \
                next[s].scale[j] = scale_of(&LINES(j), scales[j], along);                                    \
                next[s].less[j] = base + zero_of(&LINES(j), zeros[j], along);                                \
            }                                                                                                \
        }                                                                                                    \
        WRITTEN_OUT for (int s = 0; s < (count); s++) {                                                      \
            const bool there = IS_THERE((uint)(step + s) * FEW_STEP + part);                                 \
            float4 sum[ROW_BLOCKS];                                                                          \
            WRITTEN_OUT for (int i = 0; i < ROW_BLOCKS; i++) sum[i] = 0;                                     \
            WRITTEN_OUT for (int o = 0; o < FEW_CHUNK / 8; o++) {                                            \
                const uint4 v = pairs_of(octet_of(next[s].bits[0], o), next[s].less[0]);                     \
                const uint4 w = pairs_of(octet_of(next[s].bits[1], o), next[s].less[1]);                     \
                WRITTEN_OUT for (int i = 0; i < ROW_BLOCKS; i++) {                                           \
                    const uint4 x =                                                                          \
                        there ? pairs_of_row(NORMED_PIECE(read_piece(rows[i] + s * FEW_STEP * 2 + o * 16),   \
                                                          norm + s * FEW_STEP * 2 + o * 16))                 \
                              : (uint4)(0);                                                                  \
                    multiply_blocks(&sum[i], (uint4)(v.x, w.x, v.y, w.y), x.lo);                             \
                    multiply_blocks(&sum[i], (uint4)(v.z, w.z, v.w, w.w), x.hi);                             \
                }                                                                                            \
            }                                                                                                \
            const float4 scale = {next[s].scale[0], next[s].scale[0], next[s].scale[1], next[s].scale[1]};   \
            WRITTEN_OUT for (int i = 0; i < ROW_BLOCKS; i++) total[i] = fma(sum[i], scale, total[i]);        \
        }                                                                                                    \
        step += (count);                                                                                     \
        WRITTEN_OUT for (int j = 0; j < 2; j++) lines[j] += (count) * 64;                                    \
        WRITTEN_OUT for (int i = 0; i < ROW_BLOCKS; i++) rows[i] += (count) * FEW_STEP * 2;                  \
        norm += (count) * FEW_STEP * 2;                                                                      \
    }

MATRIX_KERNEL __attribute__((reqd_work_group_size(MATRIX_TEAM, TEAMS, 1)))
#if PARTS
void gemm_few_units(const gemm_joined_params joined) {
    gemm_quantised_params q = joined.given;
#else
void gemm_few_units(const gemm_quantised_params q) {
#endif
    __local float sums[TEAMS][FEW_ROWS][16];
    const int lane = (int)get_local_id(0), team = (int)get_local_id(1), id = team * MATRIX_TEAM + lane;
    const int line = lane / 4, part = lane % 4 * FEW_CHUNK;
    /* A group's beginning is a good part of its time: everything here has 32 bits. */
    const uint blocks_m = ((uint)q.gemm.m + FEW_ROWS - 1) / FEW_ROWS, g = (uint)XPU_GROUP(0);
    uint of_rows = g / blocks_m;
#if PARTS
    of_rows -= take_part(&q.gemm, &q.b, &joined, of_rows);
#endif
    const gemm_params p = q.gemm;
    const uint blocks_n = ((uint)p.n + EACH - 1) / EACH;
    const long m0 = g % blocks_m * FEW_ROWS, n0 = of_rows % blocks_n * EACH, b = of_rows / blocks_n;
    const int steps = (int)(((uint)p.k + FEW_STEP - 1) / FEW_STEP),
              end = (int)((uint)steps * (team + 1) / TEAMS);
    int step = (int)((uint)steps * team / TEAMS);
    quantised_lines l = q.b; /* with distances that take one instruction to multiply */
    l.scale.along = (uint)l.scale.along, l.zero.along = (uint)l.zero.along;
#if GATED
    quantised_lines second = second_lines(&joined);
    second.scale.along = (uint)second.scale.along, second.zero.along = (uint)second.zero.along;
#endif
#if NORMED
    xpu_addr norm = joined.norm + ((long)step * FEW_STEP + part) * 2;
#else
    xpu_addr norm = 0;
#endif
    const float base = E_FORM > FORM_UNSIGNED ? 0
                       : IS_SMALL_WHOLE
                           ? (float)l.middle + XPU_CAT(PAIR_BASE_, T) + (E_FORM == FORM_SIGNED ? 8 : 0)
                           : (float)l.middle + OFFSET;
    /* Beyond the last line, and row, the last is done again. */
    xpu_addr lines[2], rows[ROW_BLOCKS];
    long scales[2], zeros[2];
    for (int j = 0; j < 2; j++) {
        const long n = min((uint)n0 + line + j * (EACH - 8), (uint)p.n - 1);
        lines[j] = LINES(j).data + (b * l.batch + n * l.across + (long)step * FEW_STEP + part) * E_BITS / 8;
        scales[j] = place_of(&l.scale, b, (uint)n / (uint)l.group_across);
        zeros[j] = place_of(&l.zero, b, (uint)n / (uint)l.group_across);
    }
    float4 total[ROW_BLOCKS];
    for (int i = 0; i < ROW_BLOCKS; i++) {
        const long m = min(m0 + line + i * 8, p.m - 1);
        rows[i] = p.a + (b * p.a_stride.batch + m * p.a_stride.row + (long)step * FEW_STEP + part) * 2;
        total[i] = 0;
    }
    while (step + AHEAD <= end) FEW_STEPS(AHEAD)
    while (step < end) FEW_STEPS(1)

    const int column = lane % 4 * 2;
    for (int i = 0; i < ROW_BLOCKS; i++) {
        sums[team][i * 8 + column][line] = total[i].x, sums[team][i * 8 + column + 1][line] = total[i].y;
        sums[team][i * 8 + column][line + 8] = total[i].z,
                                          sums[team][i * 8 + column + 1][line + 8] = total[i].w;
    }
#if NORMED
    __local float roots[MATRIX_TEAM * TEAMS * FEW_ROWS];
    find_roots(roots, &joined, m0, FEW_ROWS, id, MATRIX_TEAM * TEAMS);
#define ROOT(m) *roots[m]
#else
#define ROOT(m)
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    for (int i = id; i < EACH * FEW_ROWS; i += MATRIX_TEAM * TEAMS) {
        const int m = i / EACH, n = i % EACH;
        if (m0 + m >= p.m || n0 + n >= p.n) continue;
        float sum = 0;
        for (int t = 0; t < TEAMS; t++) sum += sums[t][m][n];
#if GATED
        float other = 0;
        for (int t = 0; t < TEAMS; t++) other += sums[t][m][n + 8];
        put_gated(&p, &joined, m0 + m, n0 + n, sum ROOT(m), other ROOT(m));
#else
        put(&p, b, m0 + m, n0 + n, sum ROOT(m));
#endif
    }
}
