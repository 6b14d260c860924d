/* Attention (attention.cl has the formulas) by Intel's matrix units of 8 lanes, forward: fp16 and bf16, sums and softmax
 * in fp32. For the host it is what attention_ptx.cl is for NVIDIA's.
 *
 * A work-group of TEAMS teams has TILE rows of queries, 8 a team, in squares of local memory (squares.h), or, of heads
 * of 64 and less, in registers. It goes through the keys STEP at a time: the next ones and their values come into registers while
 * the last product of these is computed, and are written down then. Scores are sums, a work-item having a column.
 *
 * - Two blocks of scores beside each other, rounded, are the next product's left operand as they lie, if a dword is a
 *   number of each: of 16 keys, number l and number l + 8 are neighbours along k. Values are paired likewise.
 * - Exponentials are of scores less a shift, which is a row's largest score as it was once: it is worked out anew,
 *   and sums are scaled, when a score of the team's is more than 2^LEEWAY above it, which is seldom. Nothing else needs
 *   a row's lanes together before the end.
 *
 * -DT=<dtype> -DBIAS_T -DBIAS_IS_MASK -DDROPOUT: as in attention.cl; -DMATRIX_T: as T
 * -DDEPTH -DVALUE_DEPTH: multiples of 16, at rows that begin at multiples of 16 bytes; -DTEAMS; -DSTEP: a multiple of 16
 * attention_matrix_forward: TILE rows of one head, or of `packed` heads with a query each; with -DSLICED sums of a
 *                           slice of the keys to `partial`
 * attention_matrix_finish:  attention_join.h */
#include "attention.h"

#define FLOAT_T 1
#define DOUBLE_T 0
#define COMPLEX_T 0
#include "gemm_tile.h"

#include "attention_join.h"
#ifdef FORWARD
#ifdef MATRIX_EMULATED
#include "matrix_units.cl"
#endif
#include "squares.h"

#define ROUND_bf16 intel_convert_bfloat168_as_ushort8
#define ROUND_f16 narrow8_f16
#define ROUND XPU_CAT(ROUND_, MATRIX_T)

#define SUMS_M 1 /* blocks of 8 rows of a team: of two, registers spill */
#define ROWS (SUMS_M * 8)
#define TILE (TEAMS * ROWS)
#define CHUNKS (DEPTH / 16)
#define COLUMNS (VALUE_DEPTH / 16) /* pieces of a row of values */
#define HELD (DEPTH <= 64 && VALUE_DEPTH <= 64) /* queries stay in registers */
#define LEEWAY 8
#define UNSET -1e30f

/* What a subgroup reads at a time: half a line of 8 keys, a square; or of the values of 16 keys, two of them. */
#define KEY_UNITS (STEP / 8 * CHUNKS)
#define VALUE_UNITS (STEP / 16 * COLUMNS)
#define UNITS ((KEY_UNITS + VALUE_UNITS + TEAMS - 1) / TEAMS)
#define STAGE ((KEY_UNITS + 2 * VALUE_UNITS) * SQUARE)
typedef struct next_step {
    xpu_addr keys, values; /* the step's first rows */
    uint at[UNITS], key_pitch, value_pitch;
    uint8 pieces[UNITS][2];
} next_step;

#define INLINED static inline __attribute__((always_inline))
INLINED void open_step(__private next_step *n, uint team, uint lane) {
    WRITTEN_OUT for (uint t = 0; t < UNITS; t++) {
        const uint unit = team + t * TEAMS, value = unit - KEY_UNITS;
        n->at[t] = unit < KEY_UNITS ? (unit / CHUNKS * 8 + lane) * n->key_pitch + unit % CHUNKS * HALF
                                    : (value / COLUMNS * 16 + lane) * n->value_pitch + value % COLUMNS * HALF;
    }
}
/* Of which `left` rows are there. */
INLINED void fetch_step(__private next_step *n, int left, uint team, uint lane) {
    WRITTEN_OUT for (uint t = 0; t < UNITS; t++) {
        const uint unit = team + t * TEAMS, value = unit - KEY_UNITS;
        if (unit < KEY_UNITS) {
            const int row = (int)(unit / CHUNKS * 8 + lane);
            n->pieces[t][0] = fetch_piece(row < left ? n->keys + n->at[t] : NOTHING);
        } else if (unit < KEY_UNITS + VALUE_UNITS) {
            const int row = (int)(value / COLUMNS * 16 + lane);
            const xpu_addr from = n->values + n->at[t];
            n->pieces[t][0] = fetch_piece(row < left ? from : NOTHING);
            n->pieces[t][1] = fetch_piece(row + 8 < left ? from + 8 * n->value_pitch : NOTHING);
        }
    }
    n->keys += STEP * n->key_pitch, n->values += STEP * n->value_pitch;
}
INLINED void keep_step(__local uchar *stage, __private const next_step *n, uint team, uint lane) {
    WRITTEN_OUT for (uint t = 0; t < UNITS; t++) {
        const uint unit = team + t * TEAMS, value = unit - KEY_UNITS;
        if (unit < KEY_UNITS) {
            write_square(stage + unit * SQUARE, n->pieces[t][0]);
        } else if (unit < KEY_UNITS + VALUE_UNITS) {
            __local uchar *to = stage + (KEY_UNITS + value * 2) * SQUARE + lane * HALF;
            *(__local uint8 *)to = paired(n->pieces[t][0].lo, n->pieces[t][1].lo);
            *(__local uint8 *)(to + SQUARE) = paired(n->pieces[t][0].hi, n->pieces[t][1].hi);
        }
    }
}

/* What a team has: its rows, of heads from h on or of one. A row's numbers are the same in all work-items but for
 * `sum`, the work-item's part. */
typedef struct forward_state {
    long b, h;
    int row0;
    float8 out[2 * COLUMNS][SUMS_M], sum[SUMS_M];
    float shift[SUMS_M][8];
#if HELD
    int8 query[SUMS_M][CHUNKS];
#endif
} forward_state;
#define HEAD(row) (p->packed > 1 ? f->h + (row) : f->h)
#define QUERY(row) (p->packed > 1 ? 0 : (row))
#define BLOCKS_OF(i, j, width)                                                                               \
    WRITTEN_OUT for (int j = 0; j < (width); j++) WRITTEN_OUT for (int i = 0; i < SUMS_M; i++)

static inline float8 exp2_of(float8 v) {
    return (float8)(POWER_OF_2(v.s0), POWER_OF_2(v.s1), POWER_OF_2(v.s2), POWER_OF_2(v.s3), POWER_OF_2(v.s4),
                    POWER_OF_2(v.s5), POWER_OF_2(v.s6), POWER_OF_2(v.s7));
}
INLINED float8 vector_of(__private const float *v) { return (float8)(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]); }

/* The largest score of each row in a work-item's columns. */
INLINED float8 best_of(__private float8 (*s)[SUMS_M], int i) {
    float8 best = s[0][i];
    WRITTEN_OUT for (int j = 1; j < STEP / 8; j++) best = fmax(best, s[j][i]);
    return best;
}
/* Of scores, which times `factor` are powers of 2, the exponentials. */
INLINED void soften(__private forward_state *f, __private float8 (*s)[SUMS_M], float factor) {
    float most = -INFINITY;
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) {
        const float8 over = mad(best_of(s, i), (float8)factor, -vector_of(f->shift[i]));
        const float4 four = fmax(over.lo, over.hi);
        most = fmax(most, fmax(fmax(four.s0, four.s1), fmax(four.s2, four.s3)));
    }
    if (sub_group_any(most > LEEWAY))
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) {
            const float8 best = best_of(s, i);
            float8 fade;
            WRITTEN_OUT for (int r = 0; r < 8; r++) {
                const float was = f->shift[i][r], now = fmax(was, sub_group_reduce_max(best[r]) * factor);
                fade[r] = POWER_OF_2(was - now);
                f->shift[i][r] = now;
            }
            f->sum[i] *= fade;
            WRITTEN_OUT for (int v = 0; v < 2 * COLUMNS; v++) f->out[v][i] *= fade;
        }
    BLOCKS_OF(i, j, STEP / 8) {
        s[j][i] = exp2_of(mad(s[j][i], (float8)factor, -vector_of(f->shift[i])));
        f->sum[i] += s[j][i];
    }
}

/* The scores of keys from k0 on, at whose `edge` some rows don't look at all of them. */
INLINED void find_scores(const attention_params *p, __private const forward_state *f, __private float8 (*s)[SUMS_M],
                         const __local uchar *queries, const __local uchar *keys, int k0, int k_end, bool edge) {
    const int lane = (int)get_local_id(0) % MATRIX_TEAM;
    BLOCKS_OF(i, j, STEP / 8) s[j][i] = 0;
    WRITTEN_OUT for (int c = 0; c < CHUNKS; c++) {
        int8 left[SUMS_M];
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++)
#if HELD
            left[i] = f->query[i][c];
#else
            left[i] = read_square(queries + (i * CHUNKS + c) * SQUARE);
#endif
        WRITTEN_OUT for (int j = 0; j < STEP / 8; j++) {
            const int8 right = read_square(keys + (j * CHUNKS + c) * SQUARE);
            WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) s[j][i] = MULTIPLY(left[i], right, s[j][i]);
        }
    }
#ifdef BIAS_T
    BLOCKS_OF(i, j, STEP / 8) WRITTEN_OUT for (int r = 0; r < 8; r++) {
        const int row = f->row0 + i * 8 + r;
        s[j][i][r] = score(p, f->b, HEAD(row), QUERY(row), k0 + j * 8 + lane, s[j][i][r]) * LOG2E;
    }
#else
    if (edge)
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) WRITTEN_OUT for (int r = 0; r < 8; r++) {
            const int seen = (p->causal ? min(k_end, QUERY(f->row0 + i * 8 + r) + 1) : k_end) - k0;
            WRITTEN_OUT for (int j = 0; j < STEP / 8; j++) if (j * 8 + lane >= seen) s[j][i][r] = -INFINITY;
        }
#endif
}

INLINED int8 pairs_of(ushort8 a, ushort8 b) {
    return (int8)(as_int((ushort2)(a.s0, b.s0)), as_int((ushort2)(a.s1, b.s1)), as_int((ushort2)(a.s2, b.s2)),
                  as_int((ushort2)(a.s3, b.s3)), as_int((ushort2)(a.s4, b.s4)), as_int((ushort2)(a.s5, b.s5)),
                  as_int((ushort2)(a.s6, b.s6)), as_int((ushort2)(a.s7, b.s7)));
}
INLINED void add_values(__private forward_state *f, __private float8 (*s)[SUMS_M], const __local uchar *values) {
    WRITTEN_OUT for (int m = 0; m < STEP / 16; m++) {
        int8 left[SUMS_M];
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) left[i] =
            pairs_of(ROUND(s[2 * m][i]), ROUND(s[2 * m + 1][i]));
        WRITTEN_OUT for (int v = 0; v < 2 * COLUMNS; v++) {
            const int8 right = read_square(values + (m * 2 * COLUMNS + v) * SQUARE);
            WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) f->out[v][i] = MULTIPLY(left[i], right, f->out[v][i]);
        }
    }
}

MATRIX_KERNEL __attribute__((reqd_work_group_size(TEAMS * MATRIX_TEAM, 1, 1)))
void attention_matrix_forward(const attention_params params) {
    const attention_params *const p = &params;
    __local uchar squares[TEAMS * SUMS_M * CHUNKS * SQUARE + 2 * STAGE] __attribute__((aligned(64)));
    const long all = p->packed * p->queries, blocks = (all + TILE - 1) / TILE, sets = p->heads / p->packed;
    /* The group's number is (slice, batch, set of heads, rows): of a causal one the longest first. */
    long g = XPU_GROUP(0);
    const long r0 = (p->causal ? blocks - 1 - g % blocks : g % blocks) * TILE;
    g /= blocks;
    const long h = g % sets * p->packed;
    g /= sets;
    const long b = g % p->batch, slice = g / p->batch, kh = h / (p->heads / p->key_heads);
    const uint lane = (uint)get_local_id(0) % MATRIX_TEAM, team = get_sub_group_id();
    const int row0 = (int)r0 + (int)team * ROWS;

    __local uchar *const queries = squares + team * (SUMS_M * CHUNKS * SQUARE);
    __local uchar *const stages = squares + TEAMS * SUMS_M * CHUNKS * SQUARE;
    const long row_pitch = p->packed > 1 ? p->query.stride[1] : p->query.stride[2];
    const xpu_addr query = p->query.data + (b * p->query.stride[0] + h * p->query.stride[1] + row0 * row_pitch) * ELEMENT;
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) WRITTEN_OUT for (int c = 0; c < CHUNKS; c++) {
        const long row = i * 8 + lane;
        const uint8 v = fetch_piece(row0 + row < all ? query + row * row_pitch * ELEMENT + c * HALF : NOTHING);
        *(__local uint8 *)(queries + (i * CHUNKS + c) * SQUARE + lane * HALF) = v;
    }

    forward_state state;
    __private forward_state *const f = &state;
    f->b = b, f->h = h, f->row0 = row0;
    BLOCKS_OF(i, v, 2 * COLUMNS) f->out[v][i] = 0;
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) {
        f->sum[i] = 0;
        WRITTEN_OUT for (int r = 0; r < 8; r++) f->shift[i][r] = UNSET;
    }

#if HELD
    sub_group_barrier(CLK_LOCAL_MEM_FENCE);
    BLOCKS_OF(i, c, CHUNKS) f->query[i][c] = read_square(queries + (i * CHUNKS + c) * SQUARE);
#endif

    const bool diagonal = p->causal && p->packed == 1;
    const int begin = (int)(slice * p->slice), cut = (int)min(p->keys, (slice + 1) * p->slice);
    const int group_end = (int)(diagonal ? min((long)cut, r0 + TILE) : cut); /* keys that some row looks at */
    const int k_end = row0 >= all ? 0 : diagonal ? min(cut, row0 + ROWS) : cut;
    const int common = p->causal ? diagonal ? min(k_end, row0 + 1) : 0 : k_end; /* all rows look at these */
#ifdef BIAS_T
    const float factor = 1;
#else
    const float factor = p->scale * LOG2E;
#endif
    next_step n;
    n.key_pitch = (uint)p->key.stride[2] * ELEMENT, n.value_pitch = (uint)p->value.stride[2] * ELEMENT;
    n.keys = p->key.data + (b * p->key.stride[0] + kh * p->key.stride[1]) * ELEMENT + (ulong)begin * n.key_pitch;
    n.values = p->value.data + (b * p->value.stride[0] + kh * p->value.stride[1]) * ELEMENT +
               (ulong)begin * n.value_pitch;
    open_step(&n, team, lane);
    fetch_step(&n, (int)p->keys - begin, team, lane);
    keep_step(stages, &n, team, lane);
    int turn = 0;
    for (int k0 = begin; k0 < group_end; k0 += STEP, turn++) {
        const __local uchar *const stage = stages + turn % 2 * STAGE;
        float8 s[STEP / 8][SUMS_M];
        barrier(CLK_LOCAL_MEM_FENCE); /* this step is there, the one before has been read */
        const bool on = k0 < k_end;
        if (on) {
            find_scores(p, f, s, queries, stage, k0, k_end, k0 + STEP > common);
            soften(f, s, factor);
#if DROPOUT
            BLOCKS_OF(i, j, STEP / 8) WRITTEN_OUT for (int r = 0; r < 8; r++) {
                const int row = row0 + i * 8 + r;
                s[j][i][r] *= kept(p, b, HEAD(row), QUERY(row), k0 + j * 8 + lane);
            }
#endif
        }
        fetch_step(&n, (int)p->keys - k0 - STEP, team, lane);
        if (on) add_values(f, s, stage + KEY_UNITS * SQUARE);
        keep_step(stages + (turn + 1) % 2 * STAGE, &n, team, lane);
    }

    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) WRITTEN_OUT for (int r = 0; r < 8; r++) {
        const float total = sub_group_reduce_add(f->sum[i][r]);
        const int row = row0 + i * 8 + r;
        if (row >= all) continue;
        const long head = HEAD(row), query_ = QUERY(row);
        const float scale = total == 0 ? 0.0f : 1 / total;
        const float logsum = total == 0 ? -INFINITY : (f->shift[i][r] + log2(total)) * LN2;
#if SLICED
        const long place = ((slice * p->batch + b) * p->heads + head) * p->queries + query_;
        WRITTEN_OUT for (int v = 0; v < 2 * COLUMNS; v++)
            XPU_PTR(float, p->partial)[place * PARTIAL_PITCH(p->value_depth) + v * 8 + lane] = f->out[v][i][r] * scale;
        if (lane == 0) XPU_PTR(float, p->partial_sums)[place] = logsum;
#else
        WRITTEN_OUT for (int v = 0; v < 2 * COLUMNS; v++)
            PUT(p->out, b, head, query_, v * 8 + lane, f->out[v][i][r] * scale);
        if (lane == 0 && p->logsumexp.data) *logsumexp_at(p, b, head, query_) = logsum;
#endif
    }
}
#endif
