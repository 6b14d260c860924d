/* Attention (formulas in attention.cl) on XMX with 16 lanes: fp16 and bf16, accumulators and softmax in fp32.
 * Same kernels and host code as attention_ptx.cl.
 *
 * Launch: a work-group of SUBGROUPS subgroups has TILE rows, 16 per subgroup: queries, or keys in
 * attention_matrix_grad_key_value. It traverses the other side STEP rows at a time with 2D block reads whose
 * addresses stay in registers (block_address.h), and reads its own rows again in every step: there is no
 * local memory, no barrier, and no register left for them. A work-item has a column of the scores, 8 rows in
 * a float8; rounded accumulators are the next product's left operand.
 * Kernels:
 *   attention_matrix_forward          TILE rows of one head, or of `packed` heads with one query each;
 *   IS_SPLIT: partial results of a split-KV slice to `partial`
 *   attention_matrix_merge            attention_merge.h
 *   attention_matrix_grad_query       TILE queries
 *   attention_matrix_grad_key_value   TILE keys; GRADS: 1 gradient of the values, 2 of the keys: the
 *   accumulators of both don't fit into registers
 * Options: T, BIAS_T, BIAS_IS_MASK, DROPOUT, BANDED as in attention.cl; MATRIX_T, as T; DEPTH, VALUE_DEPTH,
 * rounded up to multiples of 32; SUBGROUPS; STEP: 32 or 64. */
#include "attention/attention.h"

#define FLOAT_T 1
#define DOUBLE_T 0
#define COMPLEX_T 0
#include "gemm/gemm_tile.h"

#include "attention/attention_merge.h"
#define SUMS_M 2 /* blocks of 8 rows of a subgroup */
#include "matrix/matrix_xmx.h"
#include "matrix/block_address.h"

#define ROWS 16
#define TILE (SUBGROUPS * ROWS)
#define KERNEL                                                                                               \
    __attribute__((intel_reqd_sub_group_size(MATRIX_SUBGROUP_SIZE)))                                         \
    __attribute__((reqd_work_group_size(SUBGROUPS * MATRIX_SUBGROUP_SIZE, 1, 1))) __kernel void

/* What a kernel is told, `given`, for item or sequence b: p. A sequence's rows needn't begin where a surface
 * may, so its surfaces begin where the tensor does, with rows from `first_query` and `first_key` on, and end
 * with the sequence. */
#if BANDED
#define SEQUENCE_OF(b)                                                                                       \
    const attention_params sequence_ = of_sequence(&given, b), *const p = &sequence_;                        \
    const int first_query =                                                                                  \
        given.query_starts ? (int)rows_of_sequence(&given, given.query_starts, b, given.all_queries).x : 0;  \
    const int first_key =                                                                                    \
        given.query_starts ? (int)rows_of_sequence(&given, given.key_starts, b, given.all_keys).x : 0
#else
#define SEQUENCE_OF(b)                                                                                       \
    const attention_params *const p = &given;                                                                \
    const int first_query = 0, first_key = 0
#endif

static inline surface surface_of(const attention_matrix *m, long b, long h, int first, long rows, int depth) {
    const surface s = {XPU_PTR(void, m->data + (b * m->stride[0] + h * m->stride[1]) * ELEMENT),
                       depth * ELEMENT, first + (int)rows, (int)m->stride[2] * ELEMENT};
    return s;
}

/* A step's addresses: of the subgroup's 16 rows as a left operand, of the other side's as a right one whose k
 * are the elements of a row, and as one whose k are the rows. */
#define LEFT(s, row) OPEN(s, 0, row, 16, 16, 2)
#define ALONG(s, row) OPEN(s, 0, row, 8, 16, 1)
#define ACROSS(s, row) OPEN(s, 0, row, 16, 32, 2)
#define NEXT(p, rows) go_on(&(p), 1, false, rows)

/* 32 elements of k: [half of them][block of rows] */
static inline void read_left(__private short8 (*to)[SUMS_M], __private payload *p, int x) {
    union {
        BLOCK_VALUES(ushort, 32);
        short8 blocks[2][SUMS_M];
    } v;
    READ_BLOCK(u16_m16k16v2, v, *p, x, 0);
    UNROLL for (int h = 0; h < 2; h++) UNROLL
        for (int i = 0; i < SUMS_M; i++) to[h][i] = v.blocks[h][i];
}
/* 16 of k, as dwords, of 16 rows */
static inline int8 read_along(__private payload *p, int x, int y) {
    union {
        BLOCK_VALUES(uint, 8);
        int8 block;
    } v;
    READ_BLOCK(transpose_u32_m16k8v1, v, *p, x, y);
    return v.block;
}
/* 32 rows of 32 elements: [block of elements][half of the rows] */
static inline void read_across(__private int8 (*to)[2], __private payload *p, int x, int y) {
    union {
        BLOCK_VALUES(uint, 32);
        int8 blocks[2][2];
    } v;
    READ_BLOCK(transform_u16_m32k16v2, v, *p, x, y);
    UNROLL for (int i = 0; i < 4; i++)
        to[i / 2][i % 2] = v.blocks[i / 2][i % 2];
}

/* sum[block of 16 columns][block of rows] += the subgroup's rows times (STEP rows of `right`)^T */
#define ADD_PRODUCT(sum, left, right, depth)                                                                 \
    UNROLL for (int c_ = 0; c_ < (depth) / 32; c_++) {                                                       \
        short8 l_[2][SUMS_M];                                                                                \
        read_left(l_, left, c_ * 32);                                                                        \
        UNROLL for (int j_ = 0; j_ < STEP / 16; j_++) {                                                      \
            int8 r_[2];                                                                                      \
            UNROLL for (int k_ = 0; k_ < 2; k_++)                                                            \
                r_[k_] = read_along(right, c_ * 16 + k_ * 8, j_ * 16);                                       \
            UNROLL for (int k_ = 0; k_ < 2; k_++) UNROLL                                                     \
                for (int i_ = 0; i_ < SUMS_M; i_++) sum[j_][i_] = MULTIPLY(l_[k_][i_], r_[k_], sum[j_][i_]); \
        }                                                                                                    \
    }

/* sum[block of 16 columns][block of rows] += weights, sums as they lie, times STEP rows of `rows` */
#define ADD_WEIGHTED(sum, weights, rows, depth)                                                              \
    UNROLL for (int h_ = 0; h_ < STEP / 32; h_++) {                                                          \
        short8 left_[2][SUMS_M];                                                                             \
        UNROLL for (int j_ = 0; j_ < 2; j_++) UNROLL                                                         \
            for (int i_ = 0; i_ < SUMS_M; i_++) left_[j_][i_] = ROUND_BLOCK(weights[h_ * 2 + j_][i_]);       \
        UNROLL for (int c_ = 0; c_ < (depth) / 32; c_++) {                                                   \
            int8 r_[2][2];                                                                                   \
            read_across(r_, rows, c_ * 32, h_ * 32);                                                         \
            UNROLL for (int k_ = 0; k_ < 2; k_++) UNROLL                                                     \
                for (int j_ = 0; j_ < 2; j_++) UNROLL                                                        \
                    for (int i_ = 0; i_ < SUMS_M; i_++)                                                      \
                        sum[c_ * 2 + j_][i_] = MULTIPLY(left_[k_][i_], r_[j_][k_], sum[c_ * 2 + j_][i_]);    \
        }                                                                                                    \
    }

#define CLEAR(sum, width)                                                                                    \
    UNROLL for (int j_ = 0; j_ < (width); j_++) UNROLL                                                       \
        for (int i_ = 0; i_ < SUMS_M; i_++) sum[j_][i_] = 0
/* The subgroup's first row in the group's; lanes agree, so that what follows from it is computed once. */
static inline int subgroup_row(void) {
    return (int)sub_group_broadcast((uint)get_local_id(0) / MATRIX_SUBGROUP_SIZE, 0) * ROWS;
}
#define INLINED static inline __attribute__((always_inline))
#define BLOCKS_OF(i, j, width)                                                                               \
    UNROLL for (int j = 0; j < (width); j++) UNROLL                                                          \
        for (int i = 0; i < SUMS_M; i++)

/* What the lanes have of the rows of a block. */
static inline float8 of_rows(float v, const int i) {
#define OF_ROW(r) sub_group_broadcast(v, i * 8 + r)
    return (float8)(OF_ROW(0), OF_ROW(1), OF_ROW(2), OF_ROW(3), OF_ROW(4), OF_ROW(5), OF_ROW(6), OF_ROW(7));
}

/* Leaves out the keys, columns, from number `last` of the step at k0 on, and if `limited` those outside of
 * the band. */
#define LEAVE_OUT(s, k0, last, limited, within)                                                              \
    const int last_ = (last) - lane, upper_ = (within).upper - (k0) - lane;                                  \
    BLOCKS_OF(i_, j_, STEP / 16)                                                                             \
        if (j_ * 16 >= last_) s[j_][i_] = -INFINITY;                                                         \
    if (limited)                                                                                             \
        BLOCKS_OF(i_, j_, STEP / 16) UNROLL                                                                  \
            for (int r_ = 0; r_ < 8; r_++)                                                                   \
                if (j_ * 16 - i_ * 8 - r_ >= upper_) s[j_][i_][r_] = -INFINITY;                              \
    if (BANDED) {                                                                                            \
        const int lower_ = (within).lower - (k0) - lane;                                                     \
        BLOCKS_OF(i_, j_, STEP / 16) UNROLL                                                                  \
            for (int r_ = 0; r_ < 8; r_++)                                                                   \
                if (j_ * 16 - i_ * 8 - r_ < lower_) s[j_][i_][r_] = -INFINITY;                               \
    }

/* What is looked up for rows of queries: a lane has a row's place in the bias, so that no row's place needs a
 * register, and dropout counts on from the first row's. */
typedef struct row_places {
    long bias;
    ulong kept;
} row_places;
static inline row_places places_of(const attention_params *p, long b, long h, int query) {
    row_places places = {0, 0};
#ifdef BIAS_T
    const long row = min((long)query, p->queries - 1);
    places.bias = b * p->bias.stride[0] + h * p->bias.stride[1] + row * p->bias.stride[2];
#endif
#if DROPOUT
    places.kept = sub_group_broadcast(kept_row(p, b, h, query), 0);
#endif
    return places;
}

/* Scores for keys from k0 on, times log2(e), of what the products gave. */
INLINED void add_bias(const attention_params *p, const row_places places, int k0,
                      __private float8 (*s)[SUMS_M]) {
#ifdef BIAS_T
    UNROLL for (int j = 0; j < STEP / 16; j++) {
        const long key =
            min((long)k0 + j * 16 + (int)get_sub_group_local_id(), p->keys - 1) * p->bias.stride[3];
        UNROLL for (int i = 0; i < SUMS_M; i++) UNROLL
            for (int r = 0; r < 8; r++) {
                const long at = sub_group_broadcast(places.bias, i * 8 + r) + key;
                const float v = LOAD(BIAS_T, XPU_CPTR(STORED(BIAS_T), p->bias.data), at);
#if BIAS_IS_MASK
                s[j][i][r] = v != 0 ? s[j][i][r] * p->scale * LOG2E : -INFINITY;
#else
                s[j][i][r] = (s[j][i][r] * p->scale + v) * LOG2E;
#endif
            }
    }
#endif
}

#if DROPOUT
/* A bit a row of each block's column: is the score kept? */
typedef struct kept_scores {
    uint bits[STEP / 16];
} kept_scores;
INLINED void load_kept_rows(const attention_params *p, const row_places places, int k0,
                            __private kept_scores *kept) {
    load_dropout_mask(p, places.kept + (ulong)(k0 + (int)get_sub_group_local_id()), (ulong)ROW_KEYS(p), 16,
                      ROWS, STEP / 16, kept->bits);
}
INLINED void drop(__private const kept_scores *kept, __private float8 (*s)[SUMS_M]) {
    BLOCKS_OF(i, j, STEP / 16) UNROLL
        for (int r = 0; r < 8; r++)
            if (!(kept->bits[j] >> (i * 8 + r) & 1)) s[j][i][r] = 0;
}
#define KEEP_SCALE p->keep_scale
#else
#define KEEP_SCALE 1.0f
#endif

static inline float8 exp2_of(float8 v) {
    return (float8)(POWER_OF_2(v.s0), POWER_OF_2(v.s1), POWER_OF_2(v.s2), POWER_OF_2(v.s3), POWER_OF_2(v.s4),
                    POWER_OF_2(v.s5), POWER_OF_2(v.s6), POWER_OF_2(v.s7));
}

#ifdef FORWARD
/* What a subgroup has: its rows, of heads from h on or of one; queries and keys from where to where. */
typedef struct forward_state {
    payload queries, keys, values;
    row_places places;
    band within;
    /* sum: the work-item's part of the row's */
    float8 out[VALUE_DEPTH / 16][SUMS_M], row_max[SUMS_M], sum[SUMS_M];
} forward_state;
#define HEAD(row) (p->packed > 1 ? h + (row) : h)
#define QUERY(row) (p->packed > 1 ? 0 : (row))

/* Keys from k0 on; at an `edge` some rows don't look at all of them. */
INLINED void forward_step(const attention_params *p, __private forward_state *f, int k0, int k_end,
                          const bool edge) {
    const int lane = (int)get_sub_group_local_id();
#if DROPOUT
    kept_scores kept;
    load_kept_rows(p, f->places, k0, &kept);
#endif
    float8 s[STEP / 16][SUMS_M];
    CLEAR(s, STEP / 16);
    ADD_PRODUCT(s, &f->queries, &f->keys, DEPTH);
    NEXT(f->keys, STEP);
#ifdef BIAS_T
    const float factor = 1;
    add_bias(p, f->places, k0, s);
#else
    const float factor = p->scale * LOG2E;
#endif
    if (edge) {
        const bool diagonal = LIMITED(*p) && p->packed == 1;
        LEAVE_OUT(s, k0, (LIMITED(*p) && !diagonal ? min(k_end, 1) : k_end) - k0, diagonal, f->within);
    }
    UNROLL for (int i = 0; i < SUMS_M; i++) {
        float8 largest = s[0][i], shift, alpha, part = 0;
        UNROLL for (int j = 1; j < STEP / 16; j++)
            largest = fmax(largest, s[j][i]);
        UNROLL for (int r = 0; r < 8; r++) {
            const float over = fmax(f->row_max[i][r], sub_group_reduce_max(largest[r]));
            shift[r] = over == -INFINITY ? 0 : over * factor; /* nothing taken part yet? */
            alpha[r] = POWER_OF_2(f->row_max[i][r] * factor - shift[r]);
            f->row_max[i][r] = over;
        }
        UNROLL for (int j = 0; j < STEP / 16; j++) {
            s[j][i] = exp2_of(mad(s[j][i], (float8)factor, -shift));
            part += s[j][i];
        }
        f->sum[i] = mad(f->sum[i], alpha, part);
        UNROLL for (int j = 0; j < VALUE_DEPTH / 16; j++)
            f->out[j][i] *= alpha;
    }
#if DROPOUT
    drop(&kept, s);
#endif
    ADD_WEIGHTED(f->out, s, &f->values, VALUE_DEPTH);
    NEXT(f->values, STEP);
}

KERNEL attention_matrix_forward(const attention_params given) {
    const long blocks = (given.packed * given.queries + TILE - 1) / TILE, sets = given.heads / given.packed;
    /* The group's number is (slice, batch, set of heads, rows): of a causal one the longest first. */
    long g = XPU_GROUP(0);
    const long r0 = (LIMITED(given) ? blocks - 1 - g % blocks : g % blocks) * TILE;
    g /= blocks;
    const long h = g % sets * given.packed;
    g /= sets;
    const long b = g % given.batch, slice = g / given.batch, kh = h / (given.heads / given.key_heads);
    SEQUENCE_OF(b);
    const long all = p->packed * p->queries;
    const int lane = (int)get_sub_group_local_id(), row0 = (int)r0 + subgroup_row();
    if (row0 >= all) return;

    forward_state state;
    __private forward_state *const f = &state;
    const long lane_row = min((long)row0 + lane, all - 1);
    f->within = band_of(p, row0), f->places = places_of(p, b, HEAD(lane_row), QUERY(lane_row));
    surface queries = surface_of(&given.query, b, h, first_query, all, p->depth);
    if (p->packed > 1) queries.pitch = (int)p->query.stride[1] * ELEMENT; /* a query a head */
    const surface keys = surface_of(&given.key, b, kh, first_key, p->keys, p->depth);
    const surface values = surface_of(&given.value, b, kh, first_key, p->keys, p->value_depth);
    int k0 = BANDED ? max(0, f->within.lower) : (int)(slice * p->slice);
    f->queries = LEFT(&queries, first_query + row0);
    f->keys = ALONG(&keys, first_key + k0), f->values = ACROSS(&values, first_key + k0);
    CLEAR(f->out, VALUE_DEPTH / 16);
    UNROLL for (int i = 0; i < SUMS_M; i++)
        f->row_max[i] = -INFINITY, f->sum[i] = 0;

    const bool diagonal = LIMITED(*p) && p->packed == 1;
    const int last = diagonal ? min((int)p->keys, f->within.upper + ROWS - 1) : (int)p->keys;
    const int k_end = BANDED ? last : (int)min((long)last, slice * p->slice + p->slice);
    /* All rows look at the keys between these. */
    const int whole = f->within.lower + ROWS - 1;
    const int common = LIMITED(*p) ? diagonal ? min(k_end, f->within.upper) : 0 : k_end;
    for (; k0 < k_end; k0 += STEP)
        forward_step(p, f, k0, k_end, k0 + STEP > common || (BANDED && k0 < whole));

#ifdef BIAS_T
    const float factor = 1;
#else
    const float factor = p->scale * LOG2E;
#endif
    UNROLL for (int i = 0; i < SUMS_M; i++) UNROLL
        for (int r = 0; r < 8; r++) {
            const float total = sub_group_reduce_add(f->sum[i][r]);
            const int row = row0 + i * 8 + r;
            if (row >= all) continue;
            const long head = HEAD(row), query_ = QUERY(row);
            const float scale = total == 0 ? 0.0f : KEEP_SCALE / total,
                        logsum = (f->row_max[i][r] * factor + log2(total)) * LN2;
#if IS_SPLIT
            const long n = ((slice * p->batch + b) * p->heads + head) * p->queries + query_;
            // clang-format off
            UNROLL for (int j = 0; j < VALUE_DEPTH / 16; j++)
                if (j * 16 + lane < p->value_depth)
                    XPU_PTR(float, p->partial)
                        [n * PARTIAL_PITCH(p->value_depth) + j * 16 + lane] = f->out[j][i][r] * scale;
            // clang-format on
            if (lane == 0) XPU_PTR(float, p->partial_sums)[n] = logsum;
#else
            UNROLL for (int j = 0; j < VALUE_DEPTH / 16; j++)
                if (j * 16 + lane < p->value_depth)
                    PUT(p->out, b, head, query_, j * 16 + lane, f->out[j][i][r] * scale);
            if (lane == 0 && p->logsumexp.data) *logsumexp_at(p, b, head, query_) = logsum;
#endif
        }
}
#endif

#ifdef BACKWARD
typedef struct grad_query_state {
    payload queries, grads, keys, keys_across, values;
    row_places places;
    band within;
    float8 sum[DEPTH / 16][SUMS_M];
    float log_sum, delta; /* a lane has a row's */
} grad_query_state;

INLINED void grad_query_step(const attention_params *p, __private grad_query_state *f, int k0,
                             const bool edge) {
    const int lane = (int)get_sub_group_local_id();
#if DROPOUT
    kept_scores kept;
    load_kept_rows(p, f->places, k0, &kept);
#endif
    float8 s[STEP / 16][SUMS_M], grad[STEP / 16][SUMS_M];
    CLEAR(s, STEP / 16);
    CLEAR(grad, STEP / 16);
    ADD_PRODUCT(s, &f->queries, &f->keys, DEPTH);
    NEXT(f->keys, STEP);
    ADD_PRODUCT(grad, &f->grads, &f->values, VALUE_DEPTH);
    NEXT(f->values, STEP);
#ifdef BIAS_T
    const float factor = 1;
    add_bias(p, f->places, k0, s);
#else
    const float factor = p->scale * LOG2E;
#endif
    if (edge) { LEAVE_OUT(s, k0, (int)p->keys - k0, LIMITED(*p), f->within); }
#if DROPOUT
    drop(&kept, grad);
#endif
    BLOCKS_OF(i, j, STEP / 16)
        s[j][i] = exp2_of(mad(s[j][i], (float8)factor, -of_rows(f->log_sum, i))) *
                  mad(grad[j][i], (float8)KEEP_SCALE, -of_rows(f->delta, i));
    ADD_WEIGHTED(f->sum, s, &f->keys_across, DEPTH);
    NEXT(f->keys_across, STEP);
}

KERNEL attention_matrix_grad_query(const attention_params given) {
    const long blocks = (given.queries + TILE - 1) / TILE;
    long g = XPU_GROUP(0);
    const long q0 = (LIMITED(given) ? blocks - 1 - g % blocks : g % blocks) * TILE;
    g /= blocks;
    const long h = g % given.heads, b = g / given.heads, kh = h / (given.heads / given.key_heads);
    SEQUENCE_OF(b);
    const int lane = (int)get_sub_group_local_id(), row0 = (int)q0 + subgroup_row();
    if (row0 >= p->queries) return;

    grad_query_state state;
    __private grad_query_state *const f = &state;
    f->within = band_of(p, row0), f->places = places_of(p, b, h, row0 + lane);
    const surface queries = surface_of(&given.query, b, h, first_query, p->queries, p->depth);
    const surface grads = surface_of(&given.grad_out, b, h, first_query, p->queries, p->value_depth);
    const surface keys = surface_of(&given.key, b, kh, first_key, p->keys, p->depth);
    const surface values = surface_of(&given.value, b, kh, first_key, p->keys, p->value_depth);
    int k0 = BANDED ? max(0, f->within.lower) : 0;
    f->queries = LEFT(&queries, first_query + row0), f->grads = LEFT(&grads, first_query + row0);
    f->keys = ALONG(&keys, first_key + k0), f->keys_across = ACROSS(&keys, first_key + k0);
    f->values = ALONG(&values, first_key + k0);
    CLEAR(f->sum, DEPTH / 16);
    f->log_sum = log_sum(p, b, h, row0 + lane), f->delta = delta_of(p, b, h, row0 + lane);
    const int k_end = LIMITED(*p) ? min((int)p->keys, f->within.upper + ROWS - 1) : (int)p->keys;
    const int whole = f->within.lower + ROWS - 1, common = LIMITED(*p) ? min(k_end, f->within.upper) : k_end;
    for (; k0 < k_end; k0 += STEP) grad_query_step(p, f, k0, k0 + STEP > common || (BANDED && k0 < whole));
    BLOCKS_OF(i, j, DEPTH / 16) UNROLL
        for (int r = 0; r < 8; r++) {
            const int row = row0 + i * 8 + r, column = j * 16 + lane;
            if (row < p->queries && column < p->depth)
                PUT(p->grad_query, b, h, row, column, f->sum[j][i][r] * p->scale);
        }
}

typedef struct grad_key_state {
    payload queries, across, grads, keys, values; /* across: the rows that are weighted */
    long b, h;
    int row0, lower, upper; /* query q looks at keys lower + q to before upper + q */
#if GRADS == 1
    float8 value_sum[VALUE_DEPTH / 16][SUMS_M];
#endif
#if GRADS == 2
    float8 key_sum[DEPTH / 16][SUMS_M];
#endif
} grad_key_state;

INLINED void grad_key_step(const attention_params *p, __private grad_key_state *f, int q0, const bool edge) {
    const int lane = (int)get_sub_group_local_id();
#if DROPOUT
    kept_scores kept;
    load_dropout_mask(p, kept_row(p, f->b, f->h, q0 + lane) + (ulong)f->row0, 1, 16 * (ulong)ROW_KEYS(p),
                      ROWS, STEP / 16, kept.bits);
#endif
    float8 s[STEP / 16][SUMS_M];
    CLEAR(s, STEP / 16);
    ADD_PRODUCT(s, &f->keys, &f->queries, DEPTH);
    NEXT(f->queries, STEP);
#if GRADS == 2
    float8 grad[STEP / 16][SUMS_M];
    CLEAR(grad, STEP / 16);
    ADD_PRODUCT(grad, &f->values, &f->grads, VALUE_DEPTH);
    NEXT(f->grads, STEP);
#if DROPOUT
    drop(&kept, grad);
#endif
#endif
    const int query0 = q0 + lane;
#ifndef BIAS_T
    if (edge) UNROLL
        for (int j = 0; j < STEP / 16; j++) {
            /* The query, a column, looks at the subgroup's keys between these. */
            const int seen =
                (LIMITED(*p) ? min((int)p->keys, query0 + j * 16 + f->upper) : (int)p->keys) - f->row0;
            const int from = query0 + j * 16 + f->lower - f->row0;
            UNROLL for (int i = 0; i < SUMS_M; i++) UNROLL
                for (int r = 0; r < 8; r++)
                    if (i * 8 + r >= seen || (BANDED && i * 8 + r < from)) s[j][i][r] = -INFINITY;
        }
#endif
    UNROLL for (int j = 0; j < STEP / 16; j++) {
        const int query = query0 + j * 16;
        const float log_sum_ = log_sum(p, f->b, f->h, query), delta = delta_of(p, f->b, f->h, query);
        UNROLL for (int i = 0; i < SUMS_M; i++) {
#ifdef BIAS_T
            const float factor = 1;
            UNROLL for (int r = 0; r < 8; r++)
                s[j][i][r] = score(p, f->b, f->h, query, f->row0 + i * 8 + r, s[j][i][r]) * LOG2E;
#else
            const float factor = p->scale * LOG2E;
#endif
            const float8 weight = exp2_of(mad(s[j][i], (float8)factor, (float8)-log_sum_));
#if GRADS == 2
            grad[j][i] = weight * mad(grad[j][i], (float8)KEEP_SCALE, (float8)-delta);
#else
            s[j][i] = weight;
#endif
        }
    }
#if DROPOUT && GRADS == 1
    drop(&kept, s);
#endif
#if GRADS == 1
    ADD_WEIGHTED(f->value_sum, s, &f->across, VALUE_DEPTH);
#endif
#if GRADS == 2
    ADD_WEIGHTED(f->key_sum, grad, &f->across, DEPTH);
#endif
    NEXT(f->across, STEP);
}

KERNEL attention_matrix_grad_key_value(const attention_params given) {
    const long blocks = (given.keys + TILE - 1) / TILE, share = given.heads / given.key_heads;
    long g = XPU_GROUP(0);
    const long k0 = g % blocks * TILE;
    g /= blocks;
    const long kh = g % given.key_heads, b = g / given.key_heads;
    SEQUENCE_OF(b);
    const int lane = (int)get_sub_group_local_id(), row0 = (int)k0 + subgroup_row();
    if (row0 >= p->keys) return;

    grad_key_state state;
    __private grad_key_state *const f = &state;
    f->b = b, f->row0 = row0;
    const surface keys = surface_of(&given.key, b, kh, first_key, p->keys, p->depth);
    const surface values = surface_of(&given.value, b, kh, first_key, p->keys, p->value_depth);
    f->keys = LEFT(&keys, first_key + row0), f->values = LEFT(&values, first_key + row0);
#if GRADS == 1
    CLEAR(f->value_sum, VALUE_DEPTH / 16);
#endif
#if GRADS == 2
    CLEAR(f->key_sum, DEPTH / 16);
#endif
    const band one = band_of(p, 0);
    f->lower = one.lower, f->upper = one.upper;
    /* Queries before `first` and from `end` on look at none of these keys, those from `whole` to before
     * `common` at all. */
    const int queries_ = (int)p->queries;
    const int first = LIMITED(*p) ? max(0, row0 + 1 - one.upper) : 0;
    const int end = BANDED ? min(queries_, row0 + ROWS - one.lower) : queries_;
    const int whole = row0 + ROWS > p->keys ? queries_ : LIMITED(*p) ? row0 + ROWS - one.upper : 0;
    const int common = BANDED ? row0 + 1 - one.lower : queries_;
    for (f->h = kh * share; f->h < (kh + 1) * share; f->h++) {
        const surface queries = surface_of(&given.query, b, f->h, first_query, p->queries, p->depth);
        const surface grads = surface_of(&given.grad_out, b, f->h, first_query, p->queries, p->value_depth);
        const int row = first_query + first;
        f->queries = ALONG(&queries, row), f->grads = ALONG(&grads, row);
        f->across = GRADS == 1 ? ACROSS(&grads, row) : ACROSS(&queries, row);
        for (int q0 = first; q0 < end; q0 += STEP)
            grad_key_step(p, f, q0, q0 < whole || (BANDED && q0 + STEP > common));
    }
    UNROLL for (int i = 0; i < SUMS_M; i++) UNROLL
        for (int r = 0; r < 8; r++) {
            const int row = row0 + i * 8 + r;
            if (row >= p->keys) continue;
#if GRADS == 2
            UNROLL for (int j = 0; j < DEPTH / 16; j++)
                if (j * 16 + lane < p->depth)
                    PUT(p->grad_key, b, kh, row, j * 16 + lane, f->key_sum[j][i][r] * p->scale);
#endif
#if GRADS == 1
            UNROLL for (int j = 0; j < VALUE_DEPTH / 16; j++)
                if (j * 16 + lane < p->value_depth)
                    PUT(p->grad_value, b, kh, row, j * 16 + lane, f->value_sum[j][i][r] * KEEP_SCALE);
#endif
        }
}
#endif
