/* Attention (formulas in attention.cl) on XMX with 8 lanes: fp16 and bf16, accumulators and softmax in fp32.
 * The host treats it like attention_ptx.cl. Backward: attention_xmx8_grad.h.
 *
 * Launch: a work-group of SUBGROUPS subgroups has TILE rows of queries, 8 or 16 per subgroup, in blocked
 * (DPAS) layout in local memory or, for 8 rows and heads up to 64, in registers. It traverses the keys STEP
 * at a time: the next keys and values are loaded into registers during the last product of a step and stored
 * afterwards. Scores are accumulators, a column per work-item. For heads above 64, registers can't hold the
 * accumulators of 16 rows: four subgroups, a quad, share 32 rows (QUADS); each has the scores of half of the
 * rows with half of the keys of a step and a quarter of the columns of all results; weights are exchanged
 * through local memory (attention_xmx8_quad.h).
 * Algorithm: online softmax with two changes.
 * - Two blocks of scores side by side, rounded, are the next product's left operand as they are, if a dword
 *   has an element of each: of 16 keys, element l and element l + 8 are adjacent along k. Values are permuted
 *   likewise.
 * - Exponents are relative to a shift, the row maximum at some earlier step. It is updated, and
 *   accumulators are rescaled, only when a score of the subgroup exceeds it by more than 2^RESCALE_THRESHOLD,
 *   which is rare. Lanes of a row need no other exchange before the end.
 * Kernels:
 *   attention_matrix_forward   TILE rows of one head, or of `packed` heads with one query each; IS_SPLIT:
 *                              partial results of a split-KV slice to `partial`
 *   attention_matrix_merge     attention_merge.h
 * Options: T, BIAS_T, BIAS_IS_MASK, DROPOUT, BANDED as in attention.cl; MATRIX_T, as T; DEPTH, VALUE_DEPTH,
 * multiples of 16, rows are aligned to 16 bytes; SUBGROUPS; STEP, a multiple of 16; SUMS_M, blocks of 8 rows
 * per subgroup; SUBGROUPS_PER_ROWS, subgroups that share rows. */
#include "attention/attention.h"

#define FLOAT_T 1
#define DOUBLE_T 0
#define COMPLEX_T 0
#include "gemm/gemm_tile.h"

#include "attention/attention_merge.h"
#ifndef FINISH
#ifdef MATRIX_EMULATED
#include "matrix/xmx_emulation.cl"
#endif
#include "matrix/xmx8_blocks.h"

#define ROUND_bf16 intel_convert_bfloat168_as_ushort8
#define ROUND_f16 narrow8_f16
#define ROUND XPU_CAT(ROUND_, MATRIX_T)
#define INLINED static inline __attribute__((always_inline))
#define BLOCKS_OF(i, j, width)                                                                               \
    UNROLL for (int j = 0; j < (width); j++) UNROLL                                                          \
        for (int i = 0; i < SUMS_M; i++)

#define ROWS (SUMS_M * 8)
#ifdef FORWARD
#define QUADS (SUBGROUPS_PER_ROWS == 4)
#else
#define QUADS 0
#endif
#define OUT_M (SUMS_M * (1 + QUADS))          /* blocks of rows of accumulators, without those of scores */
#define SETS (SUBGROUPS / SUBGROUPS_PER_ROWS) /* number of subgroups that share these rows */
#define TILE (SETS * OUT_M * 8)
#define CHUNKS (DEPTH / 16)
#define COLUMNS (VALUE_DEPTH / 16) /* vectors per row of values */

/* Declares p, the parameters for item or packed sequence b of `given`. */
#if BANDED
#define SEQUENCE_OF(b) const attention_params sequence_ = of_sequence(&given, b), *const p = &sequence_
#else
#define SEQUENCE_OF(b) const attention_params *const p = &given
#endif
/* Loop over the rows of the other side, from x to `end`, in steps of `step(edge)`. Between `whole` and
 * `common` no row is masked, so `edge` is false. */
#define GO_THROUGH(x, whole, common, end, step)                                                              \
    for (int until_ = min(whole, end); (x) < (end); until_ = (end)) {                                        \
        for (; (x) < until_; (x) += STEP) step(true);                                                        \
        for (; (x) + STEP <= (common); (x) += STEP) step(false);                                             \
    }

/* The index in a form that the compiler knows to be uniform, so that conditions on it become jumps. */
static inline uint subgroup_index(void) { return sub_group_broadcast(get_sub_group_id(), 0); }

/* Data of a step: rows of two tensors, of depth DEPTH and VALUE_DEPTH. The first is the right operand of the
 * scores (K along rows). The tensor that is multiplied by weights is a right operand with K across rows,
 * whose dwords are of rows l and l + 8: the second tensor or, if FIRST_TWICE, the first again; then the
 * second one is needed along rows, too. A subgroup loads 16 rows of 16 elements (a unit) at a time, which are
 * two DPAS blocks in either form. */
#ifdef BACKWARD
#define FIRST_TWICE (GRADS != 1)
#else
#define FIRST_TWICE 0
#endif
/* Chunks of 16 elements along K. */
#define MOST_CHUNKS (FIRST_TWICE && COLUMNS > CHUNKS ? COLUMNS : CHUNKS)
/* Chunks of a row that stay in registers; the others are in local memory. */
#ifdef BIAS_T
#define BIASED 1
#else
#define BIASED 0
#endif
#ifdef FORWARD
#define HELD_MOST (SUMS_M == 1 && DEPTH <= 64 && VALUE_DEPTH <= 64 ? 4 : 0)
#else
#define HELD_MOST (MOST_CHUNKS <= 4 ? 4 : (GRADS == 1 ? 1 : 4) - BIASED)
#endif
#define HELD (HELD_MOST < MOST_CHUNKS ? HELD_MOST : MOST_CHUNKS)
#define FIRST_UNITS (STEP / 16 * CHUNKS)
#define SECOND_UNITS (STEP / 16 * COLUMNS)
#define FIRST_ROUNDS ((FIRST_UNITS + SUBGROUPS - 1) / SUBGROUPS)
#define APART (QUADS || FIRST_UNITS % SUBGROUPS == 0) /* no round has units of both tensors */
#define FIRST_SPAN (APART ? FIRST_ROUNDS * SUBGROUPS : FIRST_UNITS)
#define STEP_UNITS (FIRST_SPAN + SECOND_UNITS)
#define UNITS ((STEP_UNITS + SUBGROUPS - 1) / SUBGROUPS)
#define ALL_ROUNDS 0, UNITS
#define FIRST_ONLY 0, FIRST_ROUNDS
#define SECOND_ONLY FIRST_ROUNDS, UNITS
#define SECOND_ALONG (2 * FIRST_UNITS) /* DPAS blocks of the stage before it */
#define ACROSS_AT (2 * FIRST_UNITS + FIRST_TWICE * 2 * SECOND_UNITS)
#define STAGE ((ACROSS_AT + 2 * (FIRST_TWICE ? FIRST_UNITS : SECOND_UNITS)) * DPAS_BLOCK_BYTES)
typedef struct next_step {
    xpu_addr first, second; /* the first rows of the step */
    uint at[UNITS], first_pitch, second_pitch;
    uint8 vecs[UNITS][2];
} next_step;

/* The unit of round t: its tensor, block of rows and chunk. */
#define UNIT_OF(t)                                                                                           \
    const uint unit = subgroup + (t) * SUBGROUPS, second = unit - FIRST_SPAN;                                \
    const bool is_first = APART ? (t) < FIRST_ROUNDS : unit < FIRST_UNITS;                                   \
    const bool is_there = APART && is_first ? FIRST_UNITS % SUBGROUPS == 0 || unit < FIRST_UNITS             \
                                            : STEP_UNITS % SUBGROUPS == 0 || unit < STEP_UNITS;              \
    const uint block = is_first ? unit / CHUNKS : second / COLUMNS;                                          \
    const uint chunk = is_first ? unit % CHUNKS : second % COLUMNS;

INLINED void open_step(__private next_step *n, uint subgroup, uint lane) {
    UNROLL for (uint t = 0; t < UNITS; t++) {
        UNIT_OF(t)
        n->at[t] = (block * 16 + lane) * (is_first ? n->first_pitch : n->second_pitch) + chunk * HALF;
    }
}
/* Loads the units of rounds `begin` … `end` - 1; rows from `left` on become zeros. */
INLINED void prefetch_step(__private next_step *n, int left, uint subgroup, uint lane, const uint begin,
                           const uint end) {
    UNROLL for (uint t = begin; t < end; t++) {
        UNIT_OF(t)
        const int row = (int)(block * 16 + lane);
        const xpu_addr from = (is_first ? n->first : n->second) + n->at[t];
        if (!is_there) continue;
        n->vecs[t][0] = load_vector_in_order(row < left ? from : ZERO_VECTOR);
        n->vecs[t][1] = load_vector_in_order(
            row + 8 < left ? from + 8 * (is_first ? n->first_pitch : n->second_pitch) : ZERO_VECTOR);
    }
    if (begin == 0) n->first += STEP * n->first_pitch;
    if (end == UNITS) n->second += STEP * n->second_pitch;
}
enum { ALONG = 1, ACROSS = 2 };
/* Stores units as right operands with K along rows, across rows, or both. */
INLINED void store_step(__local uchar *stage, __private const next_step *n, uint subgroup, uint lane,
                        const int which) {
    UNROLL for (uint t = 0; t < UNITS; t++) {
        UNIT_OF(t)
        const uint chunks = is_first ? CHUNKS : COLUMNS;
        if (!is_there) continue;
        if ((which & ALONG) && (is_first || FIRST_TWICE)) {
            __local uchar *to =
                stage + ((is_first ? 0 : SECOND_ALONG) + block * 2 * chunks + chunk) * DPAS_BLOCK_BYTES;
            write_dpas_block(to, n->vecs[t][0]);
            write_dpas_block(to + chunks * DPAS_BLOCK_BYTES, n->vecs[t][1]);
        }
        if ((which & ACROSS) && is_first == FIRST_TWICE) {
            __local uchar *to =
                stage + (ACROSS_AT + (block * chunks + chunk) * 2) * DPAS_BLOCK_BYTES + lane * HALF;
            *(__local uint8 *)to = to_vnni(n->vecs[t][0].lo, n->vecs[t][1].lo);
            *(__local uint8 *)(to + DPAS_BLOCK_BYTES) = to_vnni(n->vecs[t][0].hi, n->vecs[t][1].hi);
        }
    }
}

static inline xpu_addr rows_at(const attention_matrix *m, long b, long h, long row) {
    return m->data + (b * m->stride[0] + h * m->stride[1] + row * m->stride[2]) * ELEMENT;
}
/* A subgroup's rows as a left operand. */
typedef struct left_rows {
    int8 held[SUMS_M][HELD > 0 ? HELD : 1];
    const __local uchar *rest; /* DPAS blocks; those of a block of 8 rows are adjacent */
} left_rows;
#define REST (MOST_CHUNKS - HELD)
#define REST_BYTES (SUMS_M * REST * DPAS_BLOCK_BYTES)
/* Loads rows of a matrix, zeros from `left` on. `own` is a DPAS block of scratch for the subgroup. `rest` is
 * shared by the subgroups with the same rows, which all write it. */
INLINED void take_rows(__private left_rows *rows, xpu_addr from, long pitch, int left, const int chunks,
                       __local uchar *own, __local uchar *rest, uint lane) {
    rows->rest = rest;
    UNROLL for (int i = 0; i < SUMS_M; i++) UNROLL
        for (int c = 0; c < chunks; c++) {
            __local uchar *const to = c < HELD ? own : rest + (i * REST + c - HELD) * DPAS_BLOCK_BYTES;
            *(__local uint8 *)(to + lane * HALF) = load_vector_in_order(
                i * 8 + (int)lane < left ? from + (i * 8 + lane) * pitch + c * HALF : ZERO_VECTOR);
            if (c >= HELD) continue;
            sub_group_barrier(CLK_LOCAL_MEM_FENCE);
            rows->held[i][c] = read_dpas_block(own);
            sub_group_barrier(CLK_LOCAL_MEM_FENCE);
        }
}

/* s = the subgroup's rows times `width` blocks of 8 rows, each of `chunks` DPAS blocks. Rows are the outer
 * loop, as in matrix_xmx8.h. */
INLINED void multiply_rows(__private float8 (*s)[SUMS_M], __private const left_rows *rows,
                           const __local uchar *right, const int width, int chunks) {
    BLOCKS_OF(i, j, width) s[j][i] = 0;
    UNROLL for (int c = 0; c < MOST_CHUNKS; c++)
        if (c < chunks) {
            int8 block[STEP / 8]; /* of which the first `width` are used */
            UNROLL for (int j = 0; j < width; j++)
                block[j] = read_dpas_block(right + (j * chunks + c) * DPAS_BLOCK_BYTES);
            UNROLL for (int i = 0; i < SUMS_M; i++) {
                const int8 left =
                    c < HELD ? rows->held[i][c]
                             : read_dpas_block(rows->rest + (i * REST + c - HELD) * DPAS_BLOCK_BYTES);
                UNROLL for (int j = 0; j < width; j++)
                    s[j][i] = MULTIPLY(left, block[j], s[j][i]);
            }
        }
}

/* Two adjacent blocks, rounded, as a left operand. */
INLINED int8 pairs_of(float8 first, float8 second) {
    const ushort8 a = ROUND(first), b = ROUND(second);
    return (int8)(as_int((ushort2)(a.s0, b.s0)), as_int((ushort2)(a.s1, b.s1)), as_int((ushort2)(a.s2, b.s2)),
                  as_int((ushort2)(a.s3, b.s3)), as_int((ushort2)(a.s4, b.s4)), as_int((ushort2)(a.s5, b.s5)),
                  as_int((ushort2)(a.s6, b.s6)), as_int((ushort2)(a.s7, b.s7)));
}
/* sum += weights of 16 rows times `width` DPAS blocks. */
INLINED void add_weighted(__private float8 (*sum)[OUT_M], __private const int8 *weights,
                          const __local uchar *right, const int width) {
    UNROLL for (int v = 0; v < width; v++) {
        const int8 block = read_dpas_block(right + v * DPAS_BLOCK_BYTES);
        UNROLL for (int i = 0; i < OUT_M; i++)
            sum[v][i] = MULTIPLY(weights[i], block, sum[v][i]);
    }
}
/* Reads weights of each block of rows, `row` bytes apart, as DPAS blocks. */
INLINED void read_weights(__private int8 *weights, const __local uchar *given, int row, const int count) {
    UNROLL for (int i = 0; i < count; i++)
        weights[i] = read_dpas_block(given + i * row);
}

static inline float8 exp2_of(float8 v) {
    return (float8)(POWER_OF_2(v.s0), POWER_OF_2(v.s1), POWER_OF_2(v.s2), POWER_OF_2(v.s3), POWER_OF_2(v.s4),
                    POWER_OF_2(v.s5), POWER_OF_2(v.s6), POWER_OF_2(v.s7));
}
/* Per-row values: each lane has one row of a block. */
static inline float8 of_rows(float v) {
#define OF_ROW(r) sub_group_broadcast(v, r)
    return (float8)(OF_ROW(0), OF_ROW(1), OF_ROW(2), OF_ROW(3), OF_ROW(4), OF_ROW(5), OF_ROW(6), OF_ROW(7));
}
#if DROPOUT
#define KEEP_SCALE p->keep_scale
/* Clears what dropout drops; one bit per row of each block's column. */
INLINED void drop(__private float8 (*s)[SUMS_M], __private const uint *bits, const int width) {
    BLOCKS_OF(i, j, width) UNROLL
        for (int r = 0; r < 8; r++)
            if (!(bits[j] >> (i * 8 + r) & 1)) s[j][i][r] = 0;
}
#else
#define KEEP_SCALE 1.0f
#endif

#ifdef FORWARD
#define WIDTH (STEP / 8 / (1 + QUADS)) /* adjacent blocks of a subgroup's scores */
#define OUT_BLOCKS                                                                                           \
    ((2 * COLUMNS + SUBGROUPS_PER_ROWS - 1) / SUBGROUPS_PER_ROWS) /* … and of its output accumulators, … */
#define OUT_BLOCK(v) (f->role * OUT_BLOCKS + (v))                 /* … of which a work-item has columns */
#define HAS_BLOCK(v) (2 * COLUMNS % SUBGROUPS_PER_ROWS == 0 || OUT_BLOCK(v) < 2 * COLUMNS)
#define RESCALE_THRESHOLD 8
#define UNSET -1e30f

/* State of a subgroup: its rows of scores, of heads from h on or of one head. A work-item keeps the partial
 * sum of exponentials of its columns; with quads, which are short of registers, the sum of one row. */
#if QUADS
typedef float row_sums;
#define OF_SUMS(alpha) (alpha)
#else
typedef float8 row_sums;
#define OF_SUMS(alpha) of_rows(alpha)
#endif
typedef struct forward_state {
    long b, h;
    int row0, turn; /* turn: current stage */
    uint role;      /* index within a quad */
#if BANDED
    band within; /* of the scores, relative to query 0 */
#endif
    float8 out[OUT_BLOCKS][OUT_M];
    row_sums sum[SUMS_M];
    float less[SUMS_M]; /* one row per lane: what is added to the scores (-m) */
    left_rows rows;
} forward_state;
#define HEAD(row) (p->packed > 1 ? f->h + (row) : f->h)
#define QUERY(row) (p->packed > 1 ? 0 : (row))

/* Maximum of each row over a work-item's columns. */
INLINED float8 best_of(__private float8 (*s)[SUMS_M], int i) {
    float8 best = s[0][i];
    UNROLL for (int j = 1; j < WIDTH; j++)
        best = fmax(best, s[j][i]);
    return best;
}
/* Does a score, times the power of two `factor`, exceed its row's shift by too much? */
INLINED bool is_above(__private const forward_state *f, __private float8 (*s)[SUMS_M], float factor) {
    float most = -INFINITY;
    UNROLL for (int i = 0; i < SUMS_M; i++) {
        const float8 over = mad(best_of(s, i), (float8)factor, of_rows(f->less[i]));
        const float4 four = fmax(over.lo, over.hi);
        most = fmax(most, fmax(fmax(four.s0, four.s1), fmax(four.s2, four.s3)));
    }
    return sub_group_any(most > RESCALE_THRESHOLD);
}
/* The shifts that a block's rows should have, one row per lane. */
INLINED float shift_of(__private const forward_state *f, __private float8 (*s)[SUMS_M], float factor, int i) {
    const int lane = (int)get_local_id(0) % MATRIX_SUBGROUP_SIZE;
    const float8 best = best_of(s, i);
    float now = f->less[i];
    UNROLL for (int r = 0; r < 8; r++) {
        const float row_max = sub_group_reduce_max(best[r]) * factor;
        now = lane == r ? fmin(now, -row_max) : now;
    }
    return now;
}
/* alpha: the factors by which changed shifts scale a block's sums, one row per lane. */
INLINED float shift_row(__private forward_state *f, int i, float now) {
    const float alpha = POWER_OF_2(now - f->less[i]);
    f->less[i] = now;
    f->sum[i] *= OF_SUMS(alpha);
    return alpha;
}
INLINED void scale_rows(__private forward_state *f, int i, float alpha) {
    const float8 rows = of_rows(alpha);
    UNROLL for (int v = 0; v < OUT_BLOCKS; v++)
        f->out[v][i] *= rows;
}
/* Adds up the work-items' partial sums, one row per lane. */
INLINED float total_of(float8 parts) {
    const int lane = (int)get_local_id(0) % MATRIX_SUBGROUP_SIZE;
    float own = 0;
    UNROLL for (int r = 0; r < 8; r++) {
        const float total = sub_group_reduce_add(parts[r]);
        own = lane == r ? total : own;
    }
    return own;
}
INLINED void soften(__private const forward_state *f, __private float8 (*s)[SUMS_M], float factor) {
    BLOCKS_OF(i, j, WIDTH) s[j][i] = exp2_of(mad(s[j][i], (float8)factor, of_rows(f->less[i])));
}

/* Scores of keys from k0 on; at an `edge`, some rows don't attend to all of them. */
INLINED void compute_scores(const attention_params *p, __private const forward_state *f,
                            __private float8 (*s)[SUMS_M], const __local uchar *keys, int k0, int k_end,
                            bool edge) {
    const int lane = (int)get_local_id(0) % MATRIX_SUBGROUP_SIZE;
    multiply_rows(s, &f->rows, keys, WIDTH, CHUNKS);
#ifdef BIAS_T
    BLOCKS_OF(i, j, WIDTH) UNROLL
        for (int r = 0; r < 8; r++) {
            const int row = f->row0 + i * 8 + r;
            s[j][i][r] = score(p, f->b, HEAD(row), QUERY(row), k0 + j * 8 + lane, s[j][i][r]) * LOG2E;
        }
#else
    if (edge) UNROLL
        for (int i = 0; i < SUMS_M; i++) UNROLL
            for (int r = 0; r < 8; r++) {
                const int query = QUERY(f->row0 + i * 8 + r);
#if BANDED
                const int seen = min(k_end, query + f->within.upper) - k0,
                          from = query + f->within.lower - k0;
#else
                const int seen = (p->causal ? min(k_end, query + 1) : k_end) - k0, from = 0;
#endif
                UNROLL for (int j = 0; j < WIDTH; j++)
                    if (j * 8 + lane >= seen || (BANDED && j * 8 + lane < from)) s[j][i][r] = -INFINITY;
            }
#endif
}

#ifdef BIAS_T
#define FACTOR 1.0f
#else
#define FACTOR (p->scale * LOG2E)
#endif
#if QUADS
#include "attention/attention_xmx8_quad.h"
#else
#define STAGES 2
#define BESIDE 0
INLINED void add_values(__private forward_state *f, __private float8 (*s)[SUMS_M],
                        const __local uchar *values) {
    UNROLL for (int m = 0; m < STEP / 16; m++) {
        int8 left[SUMS_M];
        UNROLL for (int i = 0; i < SUMS_M; i++)
            left[i] = pairs_of(s[2 * m][i], s[2 * m + 1][i]);
        add_weighted(f->out, left, values + m * 2 * COLUMNS * DPAS_BLOCK_BYTES, 2 * COLUMNS);
    }
}

/* One step: keys from k0 on, if any row of the subgroup attends to one; at an `edge`, not all rows attend to
 * all of them. */
INLINED void forward_step(const attention_params *p, __private forward_state *f, __private next_step *n,
                          __local uchar *stages, int k0, int k_end, bool on, const bool edge) {
    const uint lane = (uint)get_local_id(0) % MATRIX_SUBGROUP_SIZE, subgroup = subgroup_index();
    const __local uchar *const stage = stages + f->turn % 2 * STAGE;
    barrier(CLK_LOCAL_MEM_FENCE); /* this step has arrived, and the previous one has been read */
    f->turn++;
    /* Code before and after the prefetch of the next step is in one branch, otherwise the compiler would
     * duplicate it. */
    if (on) {
        const float factor = FACTOR;
        float8 s[WIDTH][SUMS_M];
        compute_scores(p, f, s, stage, k0, k_end, edge);
        if (is_above(f, s, factor)) UNROLL
            for (int i = 0; i < SUMS_M; i++) scale_rows(f, i, shift_row(f, i, shift_of(f, s, factor, i)));
        soften(f, s, factor);
        BLOCKS_OF(i, j, WIDTH) f->sum[i] += s[j][i];
#if DROPOUT
        uint kept[WIDTH];
        load_dropout_mask(p, kept_row(p, f->b, HEAD(f->row0), QUERY(f->row0)) + (ulong)k0 + lane,
                          (ulong)ROW_KEYS(p), 8, ROWS, WIDTH, kept);
        drop(s, kept, WIDTH);
#endif
        prefetch_step(n, (int)p->keys - k0 - STEP, subgroup, lane, ALL_ROUNDS);
        add_values(f, s, stage + ACROSS_AT * DPAS_BLOCK_BYTES);
    } else {
        prefetch_step(n, (int)p->keys - k0 - STEP, subgroup, lane, ALL_ROUNDS);
    }
    store_step(stages + f->turn % 2 * STAGE, n, subgroup, lane, ALONG | ACROSS);
}
INLINED void compute_totals(__private const forward_state *f, __private float *totals,
                            __private float *shifts, __local uchar *unused) {
    UNROLL for (int i = 0; i < SUMS_M; i++)
        totals[i] = total_of(f->sum[i]), shifts[i] = f->less[i];
}
#define OUT_ROW(i) (f->row0 + (i) * 8)
#endif
/* Local memory: stages, then the quads' data or a scratch DPAS block per subgroup, then rows. */
#define STAGES_BYTES (STAGES * STAGE + BESIDE)
#define REST_AT (STAGES_BYTES > SUBGROUPS * DPAS_BLOCK_BYTES ? STAGES_BYTES : SUBGROUPS * DPAS_BLOCK_BYTES)

MATRIX_KERNEL __attribute__((reqd_work_group_size(SUBGROUPS * MATRIX_SUBGROUP_SIZE, 1, 1))) void
attention_matrix_forward(const attention_params given) {
    __local uchar stages[REST_AT + SUBGROUPS / (1 + QUADS) * REST_BYTES] __attribute__((aligned(64)));
    const long blocks = (given.packed * given.queries + TILE - 1) / TILE, sets = given.heads / given.packed;
    /* The work-group's number is (slice, batch, set of heads, rows); with a causal mask the longest rows come
     * first. */
    long g = XPU_GROUP(0);
    const long r0 = (LIMITED(given) ? blocks - 1 - g % blocks : g % blocks) * TILE;
    g /= blocks;
    const long h = g % sets * given.packed;
    g /= sets;
    const long b = g % given.batch, slice = g / given.batch, kh = h / (given.heads / given.key_heads);
    SEQUENCE_OF(b);
    const long all = p->packed * p->queries;
    if (BANDED && r0 >= all) return;
    const uint lane = (uint)get_local_id(0) % MATRIX_SUBGROUP_SIZE, subgroup = subgroup_index();
    const uint mine = QUADS ? subgroup / 2 : subgroup; /* among the subgroups with rows of scores */
    const int row0 = (int)r0 + (int)mine * ROWS;

    forward_state state;
    __private forward_state *const f = &state;
    f->b = b, f->h = h, f->row0 = row0, f->turn = 0, f->role = subgroup % SUBGROUPS_PER_ROWS;
    UNROLL for (int v = 0; v < OUT_BLOCKS; v++) UNROLL
        for (int i = 0; i < OUT_M; i++) f->out[v][i] = 0;
    UNROLL for (int i = 0; i < SUMS_M; i++)
        f->sum[i] = 0, f->less[i] = -UNSET;

    const long row_pitch = p->packed > 1 ? p->query.stride[1] : p->query.stride[2];
    const xpu_addr query = rows_at(&p->query, b, h, 0) + row0 * row_pitch * ELEMENT;
    take_rows(&f->rows, query, row_pitch * ELEMENT, (int)min(all - row0, (long)ROWS), CHUNKS,
              stages + subgroup * DPAS_BLOCK_BYTES, stages + REST_AT + mine * REST_BYTES, lane);
    barrier(CLK_LOCAL_MEM_FENCE);

#if BANDED
    f->within = band_of(p, 0);
    const band of_group = band_of(p, (int)r0);
    const int begin = max(0, of_group.lower), group_end = min((int)p->keys, of_group.upper + TILE - 1);
    const int k_end = row0 >= all ? 0 : min((int)p->keys, row0 + ROWS - 1 + f->within.upper);
    const int k_begin = row0 + f->within.lower; /* of the subgroup's first row */
#else
    const bool diagonal = p->causal && p->packed == 1;
    const int begin = (int)(slice * p->slice), cut = (int)min(p->keys, (slice + 1) * p->slice);
    const int group_end =
        (int)(diagonal ? min((long)cut, r0 + TILE) : cut); /* keys that any row attends to */
    const int k_end = row0 >= all ? 0 : diagonal ? min(cut, row0 + ROWS) : cut;
    /* All rows attend to these keys. */
    const int common = (int)(p->causal ? diagonal ? min((long)cut, r0 + 1) : 0 : cut);
#endif
    next_step n;
    n.first_pitch = (uint)p->key.stride[2] * ELEMENT, n.second_pitch = (uint)p->value.stride[2] * ELEMENT;
    n.first = rows_at(&p->key, b, kh, begin), n.second = rows_at(&p->value, b, kh, begin);
    open_step(&n, subgroup, lane);
    prefetch_step(&n, (int)p->keys - begin, subgroup, lane, ALL_ROUNDS);
    store_step(stages, &n, subgroup, lane, QUADS ? ALONG : ALONG | ACROSS);
#if QUADS
    if (get_local_id(0) == 0) *(__local int *)(stages + FLAG_AT) = 0;
#endif
    int k0 = begin;
#if BANDED
#define BY_STEP(edge)                                                                                        \
    forward_step(p, f, &n, stages, k0, k_end, !(edge) || (k0 < k_end && k0 + STEP > k_begin), edge)
    GO_THROUGH(k0, of_group.lower + TILE - 1, min((int)p->keys, of_group.upper), group_end, BY_STEP)
#else
    for (; k0 + STEP <= common; k0 += STEP) forward_step(p, f, &n, stages, k0, k_end, true, false);
    for (; k0 < group_end; k0 += STEP) forward_step(p, f, &n, stages, k0, k_end, k0 < k_end, true);
#endif

    float totals[OUT_M], shifts[OUT_M];
    compute_totals(f, totals, shifts, stages);
    UNROLL for (int i = 0; i < OUT_M; i++) UNROLL
        for (int r = 0; r < 8; r++) {
            const float total = sub_group_broadcast(totals[i], r);
            const int row = OUT_ROW(i) + r;
            if (row >= all) continue;
            const long head = HEAD(row), query_ = QUERY(row);
            const float scale = total == 0 ? 0.0f : KEEP_SCALE / total;
            const float logsum =
                total == 0 ? -INFINITY : (log2(total) - sub_group_broadcast(shifts[i], r)) * LN2;
#if IS_SPLIT
            const long place = ((slice * p->batch + b) * p->heads + head) * p->queries + query_;
            const long first = place * PARTIAL_PITCH(p->value_depth);
            UNROLL for (int v = 0; v < OUT_BLOCKS; v++)
                if (HAS_BLOCK(v))
                    XPU_PTR(float, p->partial)[first + OUT_BLOCK(v) * 8 + lane] = f->out[v][i][r] * scale;
            if (lane == 0 && f->role == 0) XPU_PTR(float, p->partial_sums)[place] = logsum;
#else
            UNROLL for (int v = 0; v < OUT_BLOCKS; v++)
                if (HAS_BLOCK(v))
                    PUT(p->out, b, head, query_, OUT_BLOCK(v) * 8 + lane, f->out[v][i][r] * scale);
            if (lane == 0 && f->role == 0 && p->logsumexp.data) *logsumexp_at(p, b, head, query_) = logsum;
#endif
        }
}
#endif

#ifdef BACKWARD
#include "attention/attention_xmx8_grad.h"
#endif
#endif
