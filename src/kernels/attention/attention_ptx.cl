/* Attention (formulas in attention.cl) on NVIDIA tensor cores: fp16, bf16 and, by 3xTF32, fp32; accumulators
 * and softmax in fp32. After FlashAttention-2 (Dao, arXiv:2307.08691); the gradients use two kernels without
 * atomics.
 *
 * Launch: a work-group of SUBGROUPS warps has TILE rows, 16 * BLOCKS per warp: queries, or keys in
 * attention_matrix_grad_key_value. It traverses the other side STEP rows at a time through local memory.
 * Scores exist as fragments only: the accumulators of one product, rounded, are the left operand of the next
 * one (ptx_mma.h).
 * Kernels:
 *   attention_matrix_forward          TILE rows: `packed` heads' queries one after the other. IS_SPLIT=1:
 *   partial results of a split-KV slice to `partial`; IS_SPLIT=2: the last work-group merges them
 *   attention_matrix_merge            attention_merge.h
 *   attention_matrix_grad_query       TILE queries
 *   attention_matrix_grad_key_value   TILE keys
 * Options: T, BIAS_T, BIAS_IS_MASK, DROPOUT, BANDED as in attention.cl; MATRIX_T, as T; DEPTH, VALUE_DEPTH,
 * rounded up to multiples of 16; SUBGROUPS, BLOCKS, STEP (16, 32 or 64); STAGES, of local memory: with 2 the
 * next step is prefetched; ALIGNED, bytes (at most 16) to which all rows that are read are aligned;
 * OUT_PAIRS=1, two contiguous results can be stored as one; SHARED=1, few rows: all warps share 16 * BLOCKS
 * rows and have STEP keys each of SUBGROUPS * STEP. */
#include "attention/attention.h"

#define FLOAT_T 1
#define DOUBLE_T 0
#define COMPLEX_T 0
#include "gemm/gemm_tile.h"

#include "attention/attention_merge.h"
#include "matrix/last_group.h"
#include "matrix/matrix_ptx.h"

#define THREADS (SUBGROUPS * MATRIX_SUBGROUP_SIZE)
#define TILE ((SHARED ? 1 : SUBGROUPS) * 16 * BLOCKS)
/* rows of the other side per step of a work-group */
#define GROUP_STEP ((SHARED ? SUBGROUPS : 1) * STEP)
#define KERNEL MATRIX_KERNEL __attribute__((reqd_work_group_size(THREADS, 1, 1))) void

#define PIECES (DEPTH / VECTOR_ELEMENTS)
#define VALUE_VECTORS (VALUE_DEPTH / VECTOR_ELEMENTS)
#define ROW_BYTES (LOCAL_TILE_PITCH(PIECES) * 16)
#define VALUE_ROW_BYTES (LOCAL_TILE_PITCH(VALUE_VECTORS) * 16)
/* keys and values, or queries and gradients */
#define STAGE_BYTES (GROUP_STEP * (ROW_BYTES + VALUE_ROW_BYTES))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))

/* Copies `rows` rows of `vecs` vectors into a tile; row r is at ADDRESS(r). Rows from `left` on and elements
 * from `depth` on become zeros. */
#define PREFETCH(to, rows, vecs, left, depth, base, ADDRESS)                                                 \
    UNROLL for (uint i_ = 0; i_ < ((rows) * (vecs) + THREADS - 1) / THREADS; i_++) {                         \
        const uint e_ = get_local_id(0) + i_ * THREADS, row_ = e_ / (vecs), piece_ = e_ % (vecs);            \
        if ((rows) * (vecs) % THREADS && e_ >= (rows) * (vecs)) break;                                       \
        const int valid_ =                                                                                   \
            (int)row_ < (left) ? clamp(((depth) - (int)piece_ * VECTOR_ELEMENTS) * ELEMENT, 0, 16) : 0;      \
        copy_vector_async((to) + swizzled_offset(row_, piece_, vecs), ADDRESS(row_) + piece_ * 16, base,     \
                          valid_, ALIGNED);                                                                  \
    }

/* Copies the work-group's TILE rows the same way; each subgroup keeps its own in registers as a left operand:
 * to[block][step along K]. */
#define HOLD(to, vecs, left, depth, base, ADDRESS)                                                           \
    do {                                                                                                     \
        PREFETCH(stages, TILE, vecs, left, depth, base, ADDRESS);                                            \
        HOLD_ROWS(to, stages, vecs);                                                                         \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
    } while (0)
/* … from a tile at `from`. */
#define HOLD_ROWS(to, from, vecs)                                                                            \
    do {                                                                                                     \
        commit_copies();                                                                                     \
        WAIT_FOR_COPIES(0);                                                                                  \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
        UNROLL for (uint i_ = 0; i_ < BLOCKS; i_++) UNROLL                                                   \
            for (uint k_ = 0; k_ < (vecs) * VECTOR_ELEMENTS / UNIT_K; k_++)                                  \
                to[i_][k_] = read_left(from, subgroup_row + i_ * 16, k_, vecs);                              \
    } while (0)

static inline xpu_addr start_of(const attention_matrix *m, long b, long h, long row) {
    return m->data + (b * m->stride[0] + h * m->stride[1] + row * m->stride[2]) * ELEMENT;
}

/* For kernels that traverse keys and values of (b, kh) up to k_end: their addresses, and copying of STEP rows
 * from `from` on into a stage, values after keys. */
#define OPEN_KEYS                                                                                            \
    const long key_pitch = p.key.stride[2] * ELEMENT, value_pitch = p.value.stride[2] * ELEMENT;             \
    const xpu_addr first_key = start_of(&p.key, b, kh, 0), first_value = start_of(&p.value, b, kh, 0);
#define KEY_ROW(row) (first_key + (next_ + row) * key_pitch)
#define VALUE_ROW(row) (first_value + (next_ + row) * value_pitch)
#define PREFETCH_KEYS(stage, from)                                                                           \
    {                                                                                                        \
        const long next_ = from;                                                                             \
        PREFETCH(stage, GROUP_STEP, PIECES, k_end - next_, p.depth, p.key.data, KEY_ROW);                    \
    }
#define PREFETCH_VALUES(stage, from)                                                                         \
    {                                                                                                        \
        const long next_ = from;                                                                             \
        PREFETCH((stage) + GROUP_STEP * ROW_BYTES, GROUP_STEP, VALUE_VECTORS, k_end - next_, p.value_depth,  \
                 p.value.data, VALUE_ROW);                                                                   \
    }

/* sum += left (rows in registers) times right^T, with `columns` rows of a tile. */
#define ADD_PRODUCT(sum, left, right, columns, depth, vecs)                                                  \
    UNROLL for (uint k_ = 0; k_ < (depth) / UNIT_K; k_++) {                                                  \
        split_left left_[BLOCKS];                                                                            \
        UNROLL for (uint i_ = 0; i_ < BLOCKS; i_++)                                                          \
            left_[i_] = make_split_left(left[i_][k_]);                                                       \
        UNROLL for (uint n_ = 0; n_ < (columns) / 16; n_++) {                                                \
            const uint4 r_ = read_right(right, n_ * 16, k_, vecs);                                           \
            const split_right u_ = make_split_right(r_.xy), v_ = make_split_right(r_.zw);                    \
            UNROLL for (uint i_ = 0; i_ < BLOCKS; i_++) {                                                    \
                multiply_split(&sum[i_][n_ * 2], left_[i_], u_);                                             \
                multiply_split(&sum[i_][n_ * 2 + 1], left_[i_], v_);                                         \
            }                                                                                                \
        }                                                                                                    \
    }

/* sum += `weights` (in accumulator layout) times the rows of a tile. Tensor cores truncate when they add up,
 * so the sums of a step are added in fp32. */
#if MATRIX_IS_FP32
#define ADD_WEIGHTED(sum, weights, rows, width, vecs)                                                        \
    do {                                                                                                     \
        split_left left_[STEP / UNIT_K][BLOCKS];                                                             \
        UNROLL for (uint k_ = 0; k_ < STEP / UNIT_K; k_++) UNROLL                                            \
            for (uint i_ = 0; i_ < BLOCKS; i_++)                                                             \
                left_[k_][i_] = make_split_left(accumulators_as_left(&weights[i_][k_ * BLOCKS_PER_LEFT]));   \
        UNROLL for (uint n_ = 0; n_ < (width) / 16; n_++) {                                                  \
            float4 part_[BLOCKS][2];                                                                         \
            CLEAR(part_, 2);                                                                                 \
            UNROLL for (uint k_ = 0; k_ < STEP / UNIT_K; k_++) {                                             \
                const uint4 r_ = read_right_transposed(rows, n_ * 16, k_, vecs);                             \
                const split_right u_ = make_split_right(r_.xy), v_ = make_split_right(r_.zw);                \
                UNROLL for (uint i_ = 0; i_ < BLOCKS; i_++) {                                                \
                    multiply_split(&part_[i_][0], left_[k_][i_], u_);                                        \
                    multiply_split(&part_[i_][1], left_[k_][i_], v_);                                        \
                }                                                                                            \
            }                                                                                                \
            UNROLL for (uint i_ = 0; i_ < BLOCKS; i_++) {                                                    \
                sum[i_][n_ * 2] += part_[i_][0];                                                             \
                sum[i_][n_ * 2 + 1] += part_[i_][1];                                                         \
            }                                                                                                \
        }                                                                                                    \
    } while (0)
#else
#define ADD_WEIGHTED(sum, weights, rows, width, vecs)                                                        \
    UNROLL for (uint k_ = 0; k_ < STEP / UNIT_K; k_++) {                                                     \
        fragment_a left_[BLOCKS];                                                                            \
        UNROLL for (uint i_ = 0; i_ < BLOCKS; i_++)                                                          \
            left_[i_] = accumulators_as_left(&weights[i_][k_ * BLOCKS_PER_LEFT]);                            \
        UNROLL for (uint n_ = 0; n_ < (width) / 16; n_++) {                                                  \
            const uint4 r_ = read_right_transposed(rows, n_ * 16, k_, vecs);                                 \
            UNROLL for (uint i_ = 0; i_ < BLOCKS; i_++) {                                                    \
                multiply_blocks(&sum[i_][n_ * 2], left_[i_], r_.xy);                                         \
                multiply_blocks(&sum[i_][n_ * 2 + 1], left_[i_], r_.zw);                                     \
            }                                                                                                \
        }                                                                                                    \
    }
#endif

#define CLEAR(sum, width)                                                                                    \
    UNROLL for (uint i_ = 0; i_ < BLOCKS; i_++) UNROLL                                                       \
        for (uint j_ = 0; j_ < (width); j_++) sum[i_][j_] = 0

/* Row and column of a work-item's first accumulator, within the subgroup's rows and the blocks of 8
 * columns. */
#define ROW(i) (MATRIX_LANE / 4 + (i) * 16)
#define COLUMN(j) ((int)(MATRIX_LANE % 4 * 2 + (j) * 8))

/* The position of a row or limit relative to a step at k0. */
static inline int in_step(long key, long k0) { return (int)clamp(key - k0, 0L, (long)STEP); }
/* Masks the keys that a work-item's two rows don't attend to: all columns but `start` … `end` - 1. */
#define LEAVE_OUT(v, column, start, end)                                                                     \
    do {                                                                                                     \
        if ((column) < start[0] || (column) >= end[0]) v.x = -INFINITY;                                      \
        if ((column) + 1 < start[0] || (column) + 1 >= end[0]) v.y = -INFINITY;                              \
        if ((column) < start[1] || (column) >= end[1]) v.z = -INFINITY;                                      \
        if ((column) + 1 < start[1] || (column) + 1 >= end[1]) v.w = -INFINITY;                              \
    } while (0)

static inline float over_row_max(float v) {
    v = fmax(v, lane_across(v, 1));
    return fmax(v, lane_across(v, 2));
}
static inline float over_row_sum(float v) {
    v += lane_across(v, 1);
    return v + lane_across(v, 2);
}

static inline void put_pair(const attention_matrix *m, long b, long h, long row, int i, int depth, float x,
                            float y) {
    const xpu_addr to = start_of(m, b, h, row);
#if OUT_PAIRS
#if MATRIX_IS_FP32
    if (i + 1 < depth) *XPU_PTR(float2, to + i * ELEMENT) = (float2)(x, y);
#else
    if (i + 1 < depth) *XPU_PTR(uint, to + i * ELEMENT) = round_pair(x, y);
#endif
    else if (i < depth)
        KEEP(to, i, x);
#else
    if (i < depth) KEEP(to, i * m->stride[3], x);
    if (i + 1 < depth) KEEP(to, (i + 1) * m->stride[3], y);
#endif
}

/* Dropout factors of four probabilities: (query, key), the next key, and both for query + 8. */
static inline float4 kept4(const attention_params *p, long b, long h, long query, long key) {
    return (float4)(kept(p, b, h, query, key), kept(p, b, h, query, key + 1), kept(p, b, h, query + 8, key),
                    kept(p, b, h, query + 8, key + 1));
}
/* … for transposed scores, whose rows are keys. */
static inline float4 kept4_turned(const attention_params *p, long b, long h, long key, long query) {
    return (float4)(kept(p, b, h, query, key), kept(p, b, h, query + 1, key), kept(p, b, h, query, key + 8),
                    kept(p, b, h, query + 1, key + 8));
}

#ifdef FORWARD
/* Head and query of a row of the work-group. */
typedef struct place {
    long h, query;
} place;
static inline place place_of(const attention_params *p, long first, long row) {
    place at = {first, row};
    if (p->packed > 1) {
        const uint head = (uint)row / (uint)p->queries;
        at.h += head, at.query -= head * p->queries;
    }
    return at;
}

/* The bias of two adjacent keys for two rows, which attend to keys `start` … `end` - 1. */
static inline float4 bias4(const attention_params *p, xpu_addr upper, xpu_addr lower, long key,
                           __private const long *start, __private const long *end) {
#ifdef BIAS_T
    const long first = key * p->bias.stride[3], second = first + p->bias.stride[3];
#define BIAS_AT(row, place, key, u)                                                                          \
    ((key) >= start[u] && (key) < end[u] ? BIAS_NUMBER(row, place) : -INFINITY)
    return (float4)(BIAS_AT(upper, first, key, 0), BIAS_AT(upper, second, key + 1, 0),
                    BIAS_AT(lower, first, key, 1), BIAS_AT(lower, second, key + 1, 1));
#else
    return 0;
#endif
}
/* The address of a row's bias, clamped to the last row. */
static inline xpu_addr bias_row(const attention_params *p, long b, long h, long row) {
#ifdef BIAS_T
    const place at = place_of(p, h, min(row, p->packed * p->queries - 1));
    return p->bias.data + (b * p->bias.stride[0] + at.h * p->bias.stride[1] + at.query * p->bias.stride[2]) *
                              sizeof(STORED(BIAS_T));
#else
    return 0;
#endif
}
#define BIAS4(i, j) bias4(&p, bias_rows[i][0], bias_rows[i][1], k0 + COLUMN(j), start[i], end[i])
static inline float4 biased4(const attention_params *p, float4 v, float4 bias) {
    return (float4)(biased(p, v.x, bias.x), biased(p, v.y, bias.y), biased(p, v.z, bias.z),
                    biased(p, v.w, bias.w));
}

KERNEL attention_matrix_forward(const attention_params GIVEN) {
#if SHARED
    __local uchar local_tiles[LARGER(STAGES * STAGE_BYTES + TILE * ROW_BYTES,
                                     SUBGROUPS * TILE * (VALUE_DEPTH + 2) * 4)] LOCAL_TILE_ALIGNED;
#else
    __local uchar local_tiles[LARGER(TILE * ROW_BYTES, STAGES * STAGE_BYTES)] LOCAL_TILE_ALIGNED;
#endif
    const local_tile stages = LOCAL_TILE_ADDRESS(local_tiles);
    /* The work-group's number is (slice, batch, set of heads, rows); with a causal mask the longest rows come
     * first. Divisions have 32 bits, since 64-bit ones would take longer than everything else before the
     * first load. */
    const uint blocks = (uint)(GIVEN.packed * GIVEN.queries + TILE - 1) / TILE,
               sets = (uint)GIVEN.heads / (uint)GIVEN.packed;
    const uint at_rows = (uint)XPU_GROUP(0), at_set = at_rows / blocks, at_batch = at_set / sets;
    const uint block = at_rows - at_set * blocks;
    const long r0 = (long)(LIMITED(GIVEN) ? blocks - 1 - block : block) * TILE;
    const long h = (long)(at_set - at_batch * sets) * GIVEN.packed;
    const long slice = at_batch / (uint)GIVEN.batch, b = at_batch - (uint)slice * (uint)GIVEN.batch;
    const long kh = (uint)h / ((uint)GIVEN.heads / (uint)GIVEN.key_heads);
    SEQUENCE(b)
    const long all = p.packed * p.queries;
    if (BANDED && r0 >= all) return;
    const uint subgroup = get_local_id(0) / MATRIX_SUBGROUP_SIZE,
               subgroup_row = SHARED ? 0 : subgroup * 16 * BLOCKS,
               subgroup_key = SHARED ? subgroup * STEP : 0;

    fragment_a query[BLOCKS][DEPTH / UNIT_K];
#define QUERY_ROW(row) (at_ = place_of(&p, h, r0 + row), start_of(&p.query, b, at_.h, at_.query))
    place at_;
#if !SHARED
    HOLD(query, PIECES, all - r0, p.depth, p.query.data, QUERY_ROW);
#endif

    float4 out[BLOCKS][VALUE_DEPTH / 8];
    float row_max[BLOCKS][2], sum[BLOCKS][2];
    long start[BLOCKS][2], end[BLOCKS][2]; /* keys that the row attends to */
    xpu_addr bias_rows[BLOCKS][2];
    CLEAR(out, VALUE_DEPTH / 8);
    UNROLL for (uint i = 0; i < BLOCKS; i++) UNROLL
        for (uint u = 0; u < 2; u++) {
            row_max[i][u] = -INFINITY, sum[i][u] = 0;
            const long query_ = place_of(&p, h, r0 + subgroup_row + ROW(i) + u * 8).query;
            start[i][u] = first_key_of(&p, query_), end[i][u] = end_key_of(&p, query_);
            bias_rows[i][u] = bias_row(&p, b, h, r0 + subgroup_row + ROW(i) + u * 8);
        }
    const bool many = p.packed > 1; /* several heads */
    const long last = many ? p.keys : end_key_of(&p, r0 + TILE - 1);
    const long k_begin = BANDED ? first_key_of(&p, r0) / GROUP_STEP * GROUP_STEP : slice * p.slice;
    const long k_end = BANDED ? last : min(last, k_begin + p.slice);
    /* All rows of the subgroup attend to all keys between these. */
    const long whole = BANDED ? first_key_of(&p, r0 + subgroup_row + 16 * BLOCKS - 1) : 0;
    const long common = !many ? end_key_of(&p, r0 + subgroup_row) : LIMITED(p) ? 0 : p.keys;
    const float factor = p.scale * LOG2E;

    OPEN_KEYS
    int now = 0;
    PREFETCH_KEYS(stages, k_begin)
    commit_copies();
    if (STAGES > 1) {
        PREFETCH_VALUES(stages, k_begin)
        commit_copies();
    }
#if SHARED /* together with the keys, since there may be only one step */
    PREFETCH(stages + STAGES * STAGE_BYTES, TILE, PIECES, all - r0, p.depth, p.query.data, QUERY_ROW);
#endif
    for (long step = k_begin; step < k_end; step += GROUP_STEP) {
        const long k0 = step + subgroup_key;
        const local_tile keys = stages + now * STAGE_BYTES + subgroup_key * ROW_BYTES,
                         values = stages + now * STAGE_BYTES + GROUP_STEP * ROW_BYTES +
                                  subgroup_key * VALUE_ROW_BYTES;
#if defined(BIAS_T) && SHARED /* loaded together with the keys; larger tiles have no registers for it */
        float4 bias[BLOCKS][STEP / 8];
        UNROLL for (uint i = 0; i < BLOCKS; i++) UNROLL
            for (uint j = 0; j < STEP / 8; j++) bias[i][j] = BIAS4(i, j);
#define BIAS_HERE(i, j) bias[i][j]
#else
#define BIAS_HERE(i, j) BIAS4(i, j)
#endif
#if SHARED
        if (step == k_begin) HOLD_ROWS(query, stages + STAGES * STAGE_BYTES, PIECES);
#endif
        WAIT_FOR_COPIES(0);
        barrier(CLK_LOCAL_MEM_FENCE); /* the keys have arrived, and the previous contents have been read */
        now = (now + 1) % STAGES;
        if (STAGES > 1 && step + GROUP_STEP < k_end)
            PREFETCH_KEYS(stages + now * STAGE_BYTES, step + GROUP_STEP)
        if (STAGES > 1) commit_copies();
        if (STAGES == 1 || step + GROUP_STEP < k_end)
            PREFETCH_VALUES(stages + now * STAGE_BYTES, STAGES > 1 ? step + GROUP_STEP : step)
        commit_copies();
        float4 s[BLOCKS][STEP / 8];
        CLEAR(s, STEP / 8);
        ADD_PRODUCT(s, query, keys, STEP, DEPTH, PIECES);
#ifdef BIAS_T
        UNROLL for (uint i = 0; i < BLOCKS; i++) UNROLL
            for (uint j = 0; j < STEP / 8; j++) s[i][j] = biased4(&p, s[i][j], BIAS_HERE(i, j)) * LOG2E;
#else
        UNROLL for (uint i = 0; i < BLOCKS; i++) UNROLL
            for (uint j = 0; j < STEP / 8; j++) s[i][j] *= factor;
        if (k0 + STEP > min(common, k_end) || k0 < whole) UNROLL
            for (uint i = 0; i < BLOCKS; i++) {
                const int from[2] = {in_step(start[i][0], k0), in_step(start[i][1], k0)};
                const int to[2] = {in_step(end[i][0], k0), in_step(end[i][1], k0)};
                UNROLL for (uint j = 0; j < STEP / 8; j++)
                    LEAVE_OUT(s[i][j], COLUMN(j), from, to);
            }
#endif
        UNROLL for (uint i = 0; i < BLOCKS; i++) {
            float upper = row_max[i][0], lower = row_max[i][1];
            UNROLL for (uint j = 0; j < STEP / 8; j++) {
                upper = fmax(upper, fmax(s[i][j].x, s[i][j].y));
                lower = fmax(lower, fmax(s[i][j].z, s[i][j].w));
            }
            upper = over_row_max(upper), lower = over_row_max(lower);
            const float shift = upper == -INFINITY ? 0 : upper; /* all keys masked so far? */
            const float lower_shift = lower == -INFINITY ? 0 : lower;
            const float alpha = POWER_OF_2(row_max[i][0] - shift),
                        lower_alpha = POWER_OF_2(row_max[i][1] - lower_shift);
            row_max[i][0] = upper, row_max[i][1] = lower;
            float part = 0, lower_part = 0;
            UNROLL for (uint j = 0; j < STEP / 8; j++) {
                s[i][j].x = POWER_OF_2(s[i][j].x - shift), s[i][j].y = POWER_OF_2(s[i][j].y - shift);
                s[i][j].z = POWER_OF_2(s[i][j].z - lower_shift),
                s[i][j].w = POWER_OF_2(s[i][j].w - lower_shift);
                part += s[i][j].x + s[i][j].y, lower_part += s[i][j].z + s[i][j].w;
            }
            sum[i][0] = sum[i][0] * alpha + part, sum[i][1] = sum[i][1] * lower_alpha + lower_part;
            UNROLL for (uint j = 0; j < VALUE_DEPTH / 8; j++)
                out[i][j] *= (float4)(alpha, alpha, lower_alpha, lower_alpha);
#if DROPOUT
            const place first = place_of(&p, h, r0 + subgroup_row + ROW(i)),
                        second = place_of(&p, h, r0 + subgroup_row + ROW(i) + 8);
            UNROLL for (uint j = 0; j < STEP / 8; j++) {
                const long key = k0 + COLUMN(j);
                s[i][j] *= (float4)(kept(&p, b, first.h, first.query, key),
                                    kept(&p, b, first.h, first.query, key + 1),
                                    kept(&p, b, second.h, second.query, key),
                                    kept(&p, b, second.h, second.query, key + 1));
            }
#endif
        }
        if (STAGES == 1) {
            WAIT_FOR_COPIES(0);
            barrier(CLK_LOCAL_MEM_FENCE); /* the values have arrived, and the keys have been read */
            PREFETCH_KEYS(stages, step + GROUP_STEP)
            commit_copies();
        }
        ADD_WEIGHTED(out, s, values, VALUE_DEPTH, VALUE_VECTORS);
    }
    WAIT_FOR_COPIES(0);

    UNROLL for (uint i = 0; i < BLOCKS; i++) UNROLL
        for (uint u = 0; u < 2; u++) sum[i][u] = over_row_sum(sum[i][u]);
#if SHARED
    /* Merges the subgroups' results: each subgroup merges every SUBGROUPS-th block of eight columns. */
    __local float *found = (__local float *)local_tiles;
#define FOUND(subgroup, row, column) found[((subgroup) * TILE + (row)) * (VALUE_DEPTH + 2) + (column)]
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (uint i = 0; i < BLOCKS; i++) {
        UNROLL for (uint j = 0; j < VALUE_DEPTH / 8; j++) {
            FOUND(subgroup, ROW(i), COLUMN(j)) = out[i][j].x,
                                    FOUND(subgroup, ROW(i), COLUMN(j) + 1) = out[i][j].y;
            FOUND(subgroup, ROW(i) + 8, COLUMN(j)) = out[i][j].z,
                                        FOUND(subgroup, ROW(i) + 8, COLUMN(j) + 1) = out[i][j].w;
        }
        if (MATRIX_LANE % 4 == 0) UNROLL
            for (uint u = 0; u < 2; u++) {
                FOUND(subgroup, ROW(i) + u * 8, VALUE_DEPTH) = row_max[i][u];
                FOUND(subgroup, ROW(i) + u * 8, VALUE_DEPTH + 1) = sum[i][u];
            }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (uint i = 0; i < BLOCKS; i++) {
        UNROLL for (uint u = 0; u < 2; u++) {
            row_max[i][u] = -INFINITY, sum[i][u] = 0;
            UNROLL for (uint t = 0; t < SUBGROUPS; t++)
                row_max[i][u] = fmax(row_max[i][u], FOUND(t, ROW(i) + u * 8, VALUE_DEPTH));
        }
        UNROLL for (uint j = 0; j < VALUE_DEPTH / 8; j++)
            out[i][j] = 0;
        UNROLL for (uint t = 0; t < SUBGROUPS; t++) {
            float alpha[2];
            UNROLL for (uint u = 0; u < 2; u++) {
                const float shift = row_max[i][u] == -INFINITY ? 0 : row_max[i][u];
                alpha[u] = POWER_OF_2(FOUND(t, ROW(i) + u * 8, VALUE_DEPTH) - shift);
                sum[i][u] = fma(FOUND(t, ROW(i) + u * 8, VALUE_DEPTH + 1), alpha[u], sum[i][u]);
            }
            UNROLL for (uint j = 0; j < VALUE_DEPTH / 8; j++)
                if (j % SUBGROUPS == subgroup)
                    out[i][j] += (float4)(FOUND(t, ROW(i), COLUMN(j)) * alpha[0],
                                          FOUND(t, ROW(i), COLUMN(j) + 1) * alpha[0],
                                          FOUND(t, ROW(i) + 8, COLUMN(j)) * alpha[1],
                                          FOUND(t, ROW(i) + 8, COLUMN(j) + 1) * alpha[1]);
        }
    }
#define HAS_BLOCK(j) ((j) % SUBGROUPS == subgroup)
#define HAS_SUMS (MATRIX_LANE % 4 == 0 && subgroup == 0)
#else
#define HAS_BLOCK(j) true
#define HAS_SUMS (MATRIX_LANE % 4 == 0)
#endif
    UNROLL for (uint i = 0; i < BLOCKS; i++) UNROLL
        for (uint u = 0; u < 2; u++) {
            const long row = r0 + subgroup_row + ROW(i) + u * 8;
            const float total = sum[i][u];
            if (row >= all) continue;
            const place at = place_of(&p, h, row);
            const float scale = total == 0 ? 0.0f : 1 / total, logsum = (row_max[i][u] + log2(total)) * LN2;
#if IS_SPLIT
            const long n = ((slice * p.batch + b) * p.heads + at.h) * p.queries + at.query,
                       pitch = PARTIAL_PITCH(p.value_depth);
            UNROLL for (uint j = 0; j < VALUE_DEPTH / 8; j++) {
                if (!HAS_BLOCK(j)) continue;
                const float4 v = out[i][j] * scale;
                if (COLUMN(j) < p.value_depth)
                    XPU_PTR(float, p.partial)[n * pitch + COLUMN(j)] = u ? v.z : v.x;
                if (COLUMN(j) + 1 < p.value_depth)
                    XPU_PTR(float, p.partial)[n * pitch + COLUMN(j) + 1] = u ? v.w : v.y;
            }
            if (HAS_SUMS) XPU_PTR(float, p.partial_sums)[n] = logsum;
#else
            UNROLL for (uint j = 0; j < VALUE_DEPTH / 8; j++) {
                if (!HAS_BLOCK(j)) continue;
                const float4 v = out[i][j] * scale;
                put_pair(&p.out, b, at.h, at.query, COLUMN(j), p.value_depth, u ? v.z : v.x, u ? v.w : v.y);
            }
            if (HAS_SUMS && p.logsumexp.data) *logsumexp_at(&p, b, at.h, at.query) = logsum;
#endif
        }
#if IS_SPLIT == 2
    __local uint room;
    const uint each = blocks * sets * (uint)p.batch;
    if (!is_last_group(XPU_PTR(uint, p.counters) + XPU_GROUP(0) % each, (uint)p.slices, &room)) return;
    /* Adjacent lanes have the same four elements of a row and different splits. */
    const int rows = (int)min(all - r0, (long)TILE), quads = (p.value_depth + 3) / 4, places = rows * quads;
    int count = 1;
    while (count < 8 && 2 * count * places <= THREADS) count *= 2;
    for (int first = 0; first < places; first += THREADS / count) {
        const int e = min(first + (int)get_local_id(0) / count, places - 1), row = e / quads,
                  part = (int)get_local_id(0) % count;
        const place at = place_of(&p, h, r0 + row);
        split_softmax sum = merge_splits(&p, b, at.h, at.query, (e - row * quads) * 4, part, count);
        for (int apart = 1; apart < count; apart *= 2)
            sum = merge_two(
                &sum, &(split_softmax){(float4)(lane_across(sum.sum.x, apart), lane_across(sum.sum.y, apart),
                                                lane_across(sum.sum.z, apart), lane_across(sum.sum.w, apart)),
                                       lane_across(sum.total, apart), lane_across(sum.row_max, apart)});
        if (part == 0 && first + (int)get_local_id(0) / count < places)
            store_merged(&p, &sum, b, at.h, at.query, (e - row * quads) * 4);
    }
#endif
}
#endif

#ifdef BACKWARD
/* Probabilities from masked scores and each row's log_sum. */
static inline float4 probabilities(float4 s, float4 log_sums) {
    s -= log_sums;
    return (float4)(POWER_OF_2(s.x), POWER_OF_2(s.y), POWER_OF_2(s.z), POWER_OF_2(s.w));
}

KERNEL attention_matrix_grad_query(const attention_params GIVEN) {
    __local uchar local_tiles[LARGER(TILE * LARGER(ROW_BYTES, VALUE_ROW_BYTES),
                                     STAGES * STAGE_BYTES)] LOCAL_TILE_ALIGNED;
    const local_tile stages = LOCAL_TILE_ADDRESS(local_tiles);
    const long blocks = (GIVEN.queries + TILE - 1) / TILE;
    long g = XPU_GROUP(0);
    const long q0 = (LIMITED(GIVEN) ? blocks - 1 - g % blocks : g % blocks) * TILE;
    g /= blocks;
    const long h = g % GIVEN.heads, b = g / GIVEN.heads, kh = h / (GIVEN.heads / GIVEN.key_heads);
    SEQUENCE(b)
    if (BANDED && q0 >= p.queries) return;
    const uint subgroup_row = get_local_id(0) / MATRIX_SUBGROUP_SIZE * 16 * BLOCKS;

    fragment_a query[BLOCKS][DEPTH / UNIT_K], grad_out[BLOCKS][VALUE_DEPTH / UNIT_K];
    const xpu_addr first_query = start_of(&p.query, b, h, q0), first_grad = start_of(&p.grad_out, b, h, q0);
    const long query_pitch = p.query.stride[2] * ELEMENT, grad_pitch = p.grad_out.stride[2] * ELEMENT;
#define QUERY_ROW(row) (first_query + row * query_pitch)
#define GRAD_ROW(row) (first_grad + row * grad_pitch)
    HOLD(query, PIECES, p.queries - q0, p.depth, p.query.data, QUERY_ROW);
    HOLD(grad_out, VALUE_VECTORS, p.queries - q0, p.value_depth, p.grad_out.data, GRAD_ROW);

    float4 sum[BLOCKS][DEPTH / 8], log_sums[BLOCKS], deltas[BLOCKS];
    CLEAR(sum, DEPTH / 8);
    UNROLL for (uint i = 0; i < BLOCKS; i++) {
        const long row = q0 + subgroup_row + ROW(i);
        log_sums[i].xy = log_sum(&p, b, h, row), log_sums[i].zw = log_sum(&p, b, h, row + 8);
        deltas[i].xy = delta_of(&p, b, h, row), deltas[i].zw = delta_of(&p, b, h, row + 8);
    }
    const long k_begin = first_key_of(&p, q0) / STEP * STEP, k_end = end_key_of(&p, q0 + TILE - 1);
    /* All rows of the subgroup attend to all keys between these. */
    const long whole = first_key_of(&p, q0 + subgroup_row + 16 * BLOCKS - 1),
               common = end_key_of(&p, q0 + subgroup_row);
    const float factor = p.scale * LOG2E;
    OPEN_KEYS
#define PREFETCH_KEYS_VALUES(stage, from)                                                                    \
    {                                                                                                        \
        PREFETCH_KEYS(stage, from)                                                                           \
        PREFETCH_VALUES(stage, from)                                                                         \
        commit_copies();                                                                                     \
    }
    int now = 0;
    PREFETCH_KEYS_VALUES(stages, k_begin);
    for (long k0 = k_begin; k0 < k_end; k0 += STEP) {
        WAIT_FOR_COPIES(0);
        barrier(CLK_LOCAL_MEM_FENCE); /* this stage has arrived, and the other one has been read */
        const local_tile keys = stages + now * STAGE_BYTES, values = keys + STEP * ROW_BYTES;
        now = (now + 1) % STAGES;
        if (STAGES > 1) PREFETCH_KEYS_VALUES(stages + now * STAGE_BYTES, k0 + STEP);
        float4 s[BLOCKS][STEP / 8], grad[BLOCKS][STEP / 8];
        CLEAR(s, STEP / 8);
        CLEAR(grad, STEP / 8);
        ADD_PRODUCT(s, query, keys, STEP, DEPTH, PIECES);
        ADD_PRODUCT(grad, grad_out, values, STEP, VALUE_DEPTH, VALUE_VECTORS);
        const bool edge = k0 + STEP > common || k0 < whole;
        UNROLL for (uint i = 0; i < BLOCKS; i++) {
            const long row = q0 + subgroup_row + ROW(i);
            const int from[2] = {in_step(first_key_of(&p, row), k0), in_step(first_key_of(&p, row + 8), k0)};
            const int to[2] = {in_step(end_key_of(&p, row), k0), in_step(end_key_of(&p, row + 8), k0)};
            UNROLL for (uint j = 0; j < STEP / 8; j++) {
                const long key = k0 + COLUMN(j);
#ifdef BIAS_T
                const float4 v =
                    (float4)(score(&p, b, h, row, key, s[i][j].x), score(&p, b, h, row, key + 1, s[i][j].y),
                             score(&p, b, h, row + 8, key, s[i][j].z),
                             score(&p, b, h, row + 8, key + 1, s[i][j].w)) *
                    LOG2E;
#else
                float4 v = s[i][j] * factor;
                if (edge) LEAVE_OUT(v, COLUMN(j), from, to);
#endif
                const float4 weight = probabilities(v, log_sums[i]);
#if DROPOUT
                grad[i][j] *= kept4(&p, b, h, row, key);
#endif
                s[i][j] = weight * (grad[i][j] - deltas[i]);
            }
        }
        ADD_WEIGHTED(sum, s, keys, DEPTH, PIECES);
        if (STAGES == 1) {
            barrier(CLK_LOCAL_MEM_FENCE);
            PREFETCH_KEYS_VALUES(stages, k0 + STEP);
        }
    }
    WAIT_FOR_COPIES(0);
    UNROLL for (uint i = 0; i < BLOCKS; i++) UNROLL
        for (uint j = 0; j < DEPTH / 8; j++) {
            const long row = q0 + subgroup_row + ROW(i);
            const float4 v = sum[i][j] * p.scale;
            if (row < p.queries) put_pair(&p.grad_query, b, h, row, COLUMN(j), p.depth, v.x, v.y);
            if (row + 8 < p.queries) put_pair(&p.grad_query, b, h, row + 8, COLUMN(j), p.depth, v.z, v.w);
        }
}

KERNEL attention_matrix_grad_key_value(const attention_params GIVEN) {
    __local uchar local_tiles[LARGER(TILE * LARGER(ROW_BYTES, VALUE_ROW_BYTES),
                                     STAGES * STAGE_BYTES)] LOCAL_TILE_ALIGNED;
    __local float rows[STAGES][2][STEP]; /* log_sum and delta of the queries */
    const local_tile stages = LOCAL_TILE_ADDRESS(local_tiles);
    const long blocks = (GIVEN.keys + TILE - 1) / TILE, share = GIVEN.heads / GIVEN.key_heads;
    long g = XPU_GROUP(0);
    const long k0 = g % blocks * TILE;
    g /= blocks;
    const long kh = g % GIVEN.key_heads, b = g / GIVEN.key_heads;
    SEQUENCE(b)
    if (BANDED && k0 >= p.keys) return;
    const uint subgroup_row = get_local_id(0) / MATRIX_SUBGROUP_SIZE * 16 * BLOCKS;

    fragment_a key[BLOCKS][DEPTH / UNIT_K], value[BLOCKS][VALUE_DEPTH / UNIT_K];
    const xpu_addr first_key = start_of(&p.key, b, kh, k0), first_value = start_of(&p.value, b, kh, k0);
    const long key_pitch = p.key.stride[2] * ELEMENT, value_pitch = p.value.stride[2] * ELEMENT;
#undef QUERY_ROW
#undef GRAD_ROW
#define HELD_KEY(row) (first_key + row * key_pitch)
#define HELD_VALUE(row) (first_value + row * value_pitch)
    HOLD(key, PIECES, p.keys - k0, p.depth, p.key.data, HELD_KEY);
    HOLD(value, VALUE_VECTORS, p.keys - k0, p.value_depth, p.value.data, HELD_VALUE);

    float4 key_sum[BLOCKS][DEPTH / 8], value_sum[BLOCKS][VALUE_DEPTH / 8];
    CLEAR(key_sum, DEPTH / 8);
    CLEAR(value_sum, VALUE_DEPTH / 8);
    const float factor = p.scale * LOG2E;
    const long query_pitch = p.query.stride[2] * ELEMENT, grad_pitch = p.grad_out.stride[2] * ELEMENT;
    /* The steps of all heads in sequence: step number `step` has queries from first + step % each * STEP
     * on. */
    const long first = min(first_query_of(&p, k0), p.queries) / STEP * STEP,
               end = end_query_of(&p, k0 + TILE - 1);
    const long each = max(end - first + STEP - 1, 0L) / STEP, steps = each * share;
#define QUERY_ROW(row) (first_query_ + row * query_pitch)
#define GRAD_ROW(row) (first_grad_ + row * grad_pitch)
#define PREFETCH_QUERIES(stage, number, step)                                                                \
    {                                                                                                        \
        const long h_ = kh * share + (step) / each, q_ = first + (step) % each * STEP;                       \
        const long left_ = (step) < steps ? p.queries - q_ : 0;                                              \
        const xpu_addr first_query_ = start_of(&p.query, b, h_, q_);                                         \
        const xpu_addr first_grad_ = start_of(&p.grad_out, b, h_, q_);                                       \
        PREFETCH(stage, STEP, PIECES, left_, p.depth, p.query.data, QUERY_ROW);                              \
        PREFETCH((stage) + STEP * ROW_BYTES, STEP, VALUE_VECTORS, left_, p.value_depth, p.grad_out.data,     \
                 GRAD_ROW);                                                                                  \
        commit_copies();                                                                                     \
        const uint x_ = get_local_id(0);                                                                     \
        if (x_ < STEP && (step) < steps) {                                                                   \
            rows[number][0][x_] = log_sum(&p, b, h_, q_ + x_);                                               \
            rows[number][1][x_] = delta_of(&p, b, h_, q_ + x_);                                              \
        }                                                                                                    \
    }
    int now = 0;
    if (steps > 0) PREFETCH_QUERIES(stages, 0, 0);
    for (long step = 0; step < steps; step++) {
        WAIT_FOR_COPIES(0);
        barrier(CLK_LOCAL_MEM_FENCE); /* this stage has arrived, and the other one has been read */
        const local_tile queries = stages + now * STAGE_BYTES, grads = queries + STEP * ROW_BYTES;
        const int present = now;
        now = (now + 1) % STAGES;
        if (STAGES > 1) PREFETCH_QUERIES(stages + now * STAGE_BYTES, now, step + 1);
        const long h = kh * share + step / each, q0 = first + step % each * STEP;
        float4 s[BLOCKS][STEP / 8], grad[BLOCKS][STEP / 8];
        CLEAR(s, STEP / 8);
        CLEAR(grad, STEP / 8);
        ADD_PRODUCT(s, key, queries, STEP, DEPTH, PIECES);
        ADD_PRODUCT(grad, value, grads, STEP, VALUE_DEPTH, VALUE_VECTORS);
        const long row_max = k0 + subgroup_row; /* the subgroup's first key */
        const bool edge = row_max + 16 * BLOCKS > p.keys ||
                          first_query_of(&p, row_max + 16 * BLOCKS - 1) > q0 ||
                          (BANDED && end_query_of(&p, row_max) < q0 + STEP);
        UNROLL for (uint i = 0; i < BLOCKS; i++) UNROLL
            for (uint j = 0; j < STEP / 8; j++) {
                const long row = row_max + ROW(i), query = q0 + COLUMN(j);
#ifdef BIAS_T
                const float4 v = (float4)(score(&p, b, h, query, row, s[i][j].x),
                                          score(&p, b, h, query + 1, row, s[i][j].y),
                                          score(&p, b, h, query, row + 8, s[i][j].z),
                                          score(&p, b, h, query + 1, row + 8, s[i][j].w)) *
                                 LOG2E;
#else
                float4 v = s[i][j] * factor;
                if (edge) {
                    const long end_0 = end_key_of(&p, query), end_1 = end_key_of(&p, query + 1);
                    const long start_0 = first_key_of(&p, query), start_1 = first_key_of(&p, query + 1);
                    if (row >= end_0 || row < start_0) v.x = -INFINITY;
                    if (row >= end_1 || row < start_1) v.y = -INFINITY;
                    if (row + 8 >= end_0 || row + 8 < start_0) v.z = -INFINITY;
                    if (row + 8 >= end_1 || row + 8 < start_1) v.w = -INFINITY;
                }
#endif
                const float log_0 = rows[present][0][COLUMN(j)], log_1 = rows[present][0][COLUMN(j) + 1];
                const float delta_0 = rows[present][1][COLUMN(j)], delta_1 = rows[present][1][COLUMN(j) + 1];
                const float4 weight = probabilities(v, (float4)(log_0, log_1, log_0, log_1));
                float4 keep = 1;
#if DROPOUT
                keep = kept4_turned(&p, b, h, row, query);
#endif
                grad[i][j] = weight * (grad[i][j] * keep - (float4)(delta_0, delta_1, delta_0, delta_1));
                s[i][j] = weight * keep;
            }
        ADD_WEIGHTED(value_sum, s, grads, VALUE_DEPTH, VALUE_VECTORS);
        ADD_WEIGHTED(key_sum, grad, queries, DEPTH, PIECES);
        if (STAGES == 1) {
            barrier(CLK_LOCAL_MEM_FENCE);
            PREFETCH_QUERIES(stages, 0, step + 1);
        }
    }
    WAIT_FOR_COPIES(0);
    UNROLL for (uint i = 0; i < BLOCKS; i++) {
        const long row = k0 + subgroup_row + ROW(i);
        UNROLL for (uint u = 0; u < 2; u++) {
            if (row + u * 8 >= p.keys) continue;
            UNROLL for (uint j = 0; j < DEPTH / 8; j++) {
                const float4 v = key_sum[i][j] * p.scale;
                put_pair(&p.grad_key, b, kh, row + u * 8, COLUMN(j), p.depth, u ? v.z : v.x, u ? v.w : v.y);
            }
            UNROLL for (uint j = 0; j < VALUE_DEPTH / 8; j++) {
                const float4 v = value_sum[i][j];
                put_pair(&p.grad_value, b, kh, row + u * 8, COLUMN(j), p.value_depth, u ? v.z : v.x,
                         u ? v.w : v.y);
            }
        }
    }
}
#endif
