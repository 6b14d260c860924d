/* Attention: S = scale Q K^T + bias, P = softmax(S), O = dropout(P) V, and its gradients
 *
 *     dV = dropout(P)^T dO;  dP = dropout(dO V^T);  delta = sum(dO * O);  dS = P (dP - delta)
 *     dQ = scale dS K;  dK = scale dS^T Q;
 *     dbias = dS, summed over the dimensions in which the bias is broadcast
 *
 * Algorithm: online softmax over tiles of 64 x 64 scores, which never reach global memory (FlashAttention).
 * Portable:
 * work-groups of 16 x 16, less than 48 KiB of local memory, fp32 accumulation.
 *
 * Kernels:
 *   attention_forward          a work-group per 64 queries and part of the head
 *   attention_delta            a work-group of 64 per query
 *   attention_grad_query       a work-group per 64 queries and part
 *   attention_grad_key_value   a work-group per 64 keys and part
 *   attention_grad_bias        a work-group per 64 x 64 of the bias and slice of the summed dimensions
 * Options: T; BIAS_T, dtype of the bias if there is one (b8: a boolean mask); DROPOUT=0|1; BANDED=1, sliding
 * windows and packed sequences of different lengths; DEPTH, VALUE_DEPTH, rounded up to multiples of 16; heads
 * above 256 are split into parts, and a work-group computes one part of the result. */
#include "attention/attention.h"

#define TILE 64
#define TILE_K 16
#define SIDE 4
#define A_K_MAJOR 1
#define B_K_MAJOR 1
#define FLOAT_T 1
#define DOUBLE_T 0
#define COMPLEX_T 0
#include "gemm/gemm_tile.h"

#include "attention/attention_score.h"

/* sum[i][j] += sum over the 64 rows of `weights` [row of X][row of the result] times X(row, column). X has 16
 * WIDTH columns; sum[i][j] is column lx + 16 j. */
#define ACCUMULATE(sum, WIDTH, X)                                                                            \
    do {                                                                                                     \
        const int thread = (int)(get_local_id(1) * LX + get_local_id(0));                                    \
        for (int r0_ = 0; r0_ < TILE; r0_ += 16) {                                                           \
            for (int e_ = thread; e_ < 16 * 16 * (WIDTH); e_ += THREADS)                                     \
                rows[e_ / (16 * (WIDTH))][e_ % (16 * (WIDTH))] =                                             \
                    X(r0_ + e_ / (16 * (WIDTH)), e_ % (16 * (WIDTH)));                                       \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
            for (int r_ = 0; r_ < 16; r_++) {                                                                \
                float x_[SIDE];                                                                              \
                for (int i_ = 0; i_ < SIDE; i_++) x_[i_] = weights[r0_ + r_][PLACE(get_local_id(1), i_)];    \
                for (int j_ = 0; j_ < (WIDTH); j_++) {                                                       \
                    const float y_ = rows[r_][get_local_id(0) + 16 * j_];                                    \
                    for (int i_ = 0; i_ < SIDE; i_++) sum[i_][j_] = fma(x_[i_], y_, sum[i_][j_]);            \
                }                                                                                            \
            }                                                                                                \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
        }                                                                                                    \
    } while (0)

#define CLEAR(sum, WIDTH)                                                                                    \
    for (int i = 0; i < SIDE; i++)                                                                           \
        for (int j = 0; j < (WIDTH); j++) sum[i][j] = 0

#define WIDER (DEPTH > VALUE_DEPTH ? DEPTH : VALUE_DEPTH)
#define KERNEL __kernel __attribute__((reqd_work_group_size(16, 16, 1))) void

/* Elements of the operands, 0 out of range. `b`, `h`, `kh`, `q0`, `k0` are variables of the kernel. */
#define QUERY(row, i) (q0 + (row) < p.queries && (i) < p.depth ? AT(p.query, b, h, q0 + (row), i) : 0.0f)
#define KEY(row, i) (k0 + (row) < p.keys && (i) < p.depth ? AT(p.key, b, kh, k0 + (row), i) : 0.0f)
#define VALUE(row, i) (k0 + (row) < p.keys && (i) < p.value_depth ? AT(p.value, b, kh, k0 + (row), i) : 0.0f)
#define GRAD_OUT(row, i)                                                                                     \
    (q0 + (row) < p.queries && (i) < p.value_depth ? AT(p.grad_out, b, h, q0 + (row), i) : 0.0f)
/* The same within the work-group's part of the head, which begins at `part` in keys and queries and at
 * `value_part` in values. */
#define QUERY_PART(row, i) QUERY(row, part + (i))
#define KEY_PART(row, i) KEY(row, part + (i))
#define VALUE_PART(row, i) VALUE(row, value_part + (i))
#define GRAD_OUT_PART(row, i) GRAD_OUT(row, value_part + (i))
#define KEY_COLUMN(i, row) KEY(row, i)
#define VALUE_COLUMN(i, row) VALUE(row, i)
#define QUERY_COLUMN(i, row) QUERY(row, i)
#define GRAD_OUT_COLUMN(i, row) GRAD_OUT(row, i)

#ifdef FORWARD
/* Reduces each of this work-item's rows (maximum or sum) over the 16 work-items that share it. */
static inline void over_row(float v[SIDE], __local float (*shared)[17], bool largest) {
    const int x = (int)get_local_id(0), y = (int)get_local_id(1);
    for (int i = 0; i < SIDE; i++) shared[PLACE(y, i)][x] = v[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < SIDE; i++) {
        float all = largest ? -INFINITY : 0.0f;
        for (int j = 0; j < 16; j++) {
            const float other = shared[PLACE(y, i)][j];
            all = largest ? fmax(all, other) : all + other;
        }
        v[i] = all;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

KERNEL attention_forward(const attention_params GIVEN) {
    __local float local_tile_a[TILE_K][PITCH], local_tile_b[TILE_K][PITCH], weights[TILE][PITCH],
        rows[16][VALUE_DEPTH];
    __local float shared[TILE][17];
    const long blocks = (GIVEN.queries + TILE - 1) / TILE;
    long g = XPU_GROUP(0);
    const long q0 = g % blocks * TILE;
    g /= blocks;
    const long h = g % GIVEN.heads, b = g / GIVEN.heads % GIVEN.batch,
               kh = h / (GIVEN.heads / GIVEN.key_heads);
    const int value_part = (int)(g / GIVEN.heads / GIVEN.batch) * VALUE_DEPTH;
    SEQUENCE(b)
    if (BANDED && q0 >= p.queries) return;
    const int x = (int)get_local_id(0), y = (int)get_local_id(1);

    float out[SIDE][VALUE_DEPTH / 16], row_max[SIDE], sum[SIDE];
    CLEAR(out, VALUE_DEPTH / 16);
    for (int i = 0; i < SIDE; i++) row_max[i] = -INFINITY, sum[i] = 0;

    const long k_end = end_key_of(&p, q0 + TILE - 1);
    for (long k0 = first_key_of(&p, q0); k0 < k_end; k0 += TILE) {
        float s[SIDE][SIDE], corner[SIDE], part[SIDE];
        CLEAR(s, SIDE);
        TILE_PRODUCT(s, QUERY, KEY_COLUMN, 0, 0, 0, p.depth);
        for (int i = 0; i < SIDE; i++) {
            corner[i] = row_max[i];
            for (int j = 0; j < SIDE; j++) {
                s[i][j] = score(&p, b, h, q0 + PLACE(y, i), k0 + PLACE(x, j), s[i][j]);
                corner[i] = s[i][j] > corner[i] || s[i][j] != s[i][j] ? s[i][j] : corner[i];
            }
        }
        over_row(corner, shared, true);
        for (int i = 0; i < SIDE; i++) {
            const float shift = corner[i] == -INFINITY ? 0.0f : corner[i]; /* all keys masked so far? */
            const float alpha = exp(row_max[i] - shift);
            row_max[i] = corner[i];
            part[i] = 0;
            for (int j = 0; j < SIDE; j++) {
                s[i][j] = exp(s[i][j] - shift);
                part[i] += s[i][j];
            }
            sum[i] *= alpha;
            for (int j = 0; j < VALUE_DEPTH / 16; j++) out[i][j] *= alpha;
        }
        over_row(part, shared, false);
        for (int i = 0; i < SIDE; i++) {
            sum[i] += part[i];
            for (int j = 0; j < SIDE; j++)
                weights[PLACE(x, j)][PLACE(y, i)] =
                    s[i][j] * kept(&p, b, h, q0 + PLACE(y, i), k0 + PLACE(x, j));
        }
        /* ACCUMULATE starts with a barrier, before `weights` is read. */
        ACCUMULATE(out, VALUE_DEPTH / 16, VALUE_PART);
    }
    for (int i = 0; i < SIDE; i++) {
        const long query = q0 + PLACE(y, i);
        if (query >= p.queries) continue;
        const float scale = sum[i] == 0 ? 0.0f : 1 / sum[i];
        for (int j = 0; j < VALUE_DEPTH / 16; j++) {
            const int at = value_part + x + 16 * j;
            if (at < p.value_depth) PUT(p.out, b, h, query, at, out[i][j] * scale);
        }
        if (x == 0 && value_part == 0 && p.logsumexp.data)
            *logsumexp_at(&p, b, h, query) = row_max[i] + log(sum[i]);
    }
}
#endif

#if defined(BACKWARD) || defined(GRAD_BIAS)
/* P and dS of one (query, key) from the products Q K^T and dO V^T. */
static inline void grad_score(const attention_params *p, long b, long h, long query, long key, float product,
                              float grad, float *weight, float *grad_s) {
    *weight = *grad_s = 0;
    const float s = score(p, b, h, query, key, product);
    if (s == -INFINITY) return;
    const float total = *logsumexp_at(p, b, h, query);
    const float probability = exp(s - total), keep = kept(p, b, h, query, key);
    *weight = probability * keep;
    *grad_s = probability * (grad * keep - *delta_at(p, b, h, query));
}
#endif

/* Both products of a tile; its rows are queries or keys. */
#define BOTH_PRODUCTS(s, grad, left, right, grad_left, grad_right)                                           \
    CLEAR(s, SIDE);                                                                                          \
    CLEAR(grad, SIDE);                                                                                       \
    TILE_PRODUCT(s, left, right, 0, 0, 0, p.depth);                                                          \
    TILE_PRODUCT(grad, grad_left, grad_right, 0, 0, 0, p.value_depth)

#ifdef BACKWARD
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void attention_delta(const attention_params GIVEN) {
    __local float sums[64];
    const long row = XPU_GROUP(0), query = row % GIVEN.queries, h = row / GIVEN.queries % GIVEN.heads;
    const long b = row / GIVEN.queries / GIVEN.heads;
    SEQUENCE(b)
    if (BANDED && query >= p.queries) return;
    const int x = (int)get_local_id(0);
    float sum = 0;
    for (int i = x; i < p.value_depth; i += 64)
        sum += AT(p.grad_out, b, h, query, i) * AT(p.out, b, h, query, i);
    sums[x] = sum;
    for (int other = 32; other > 0; other /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (x < other) sums[x] += sums[x + other];
    }
    if (x == 0) *delta_at(&p, b, h, query) = sums[0];
}

KERNEL attention_grad_query(const attention_params GIVEN) {
    __local float local_tile_a[TILE_K][PITCH], local_tile_b[TILE_K][PITCH], weights[TILE][PITCH],
        rows[16][DEPTH];
    const long blocks = (GIVEN.queries + TILE - 1) / TILE;
    long g = XPU_GROUP(0);
    const long q0 = g % blocks * TILE;
    g /= blocks;
    const long h = g % GIVEN.heads, b = g / GIVEN.heads % GIVEN.batch,
               kh = h / (GIVEN.heads / GIVEN.key_heads);
    const int part = (int)(g / GIVEN.heads / GIVEN.batch) * DEPTH;
    SEQUENCE(b)
    if (BANDED && q0 >= p.queries) return;
    const int x = (int)get_local_id(0), y = (int)get_local_id(1);

    float sum[SIDE][DEPTH / 16];
    CLEAR(sum, DEPTH / 16);
    const long k_end = end_key_of(&p, q0 + TILE - 1);
    for (long k0 = first_key_of(&p, q0); k0 < k_end; k0 += TILE) {
        float s[SIDE][SIDE], grad[SIDE][SIDE], weight;
        BOTH_PRODUCTS(s, grad, QUERY, KEY_COLUMN, GRAD_OUT, VALUE_COLUMN);
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                grad_score(&p, b, h, q0 + PLACE(y, i), k0 + PLACE(x, j), s[i][j], grad[i][j], &weight,
                           &s[i][j]);
                weights[PLACE(x, j)][PLACE(y, i)] = s[i][j];
            }
        ACCUMULATE(sum, DEPTH / 16, KEY_PART);
    }
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < DEPTH / 16; j++) {
            const int at = part + x + 16 * j;
            if (q0 + PLACE(y, i) < p.queries && at < p.depth)
                PUT(p.grad_query, b, h, q0 + PLACE(y, i), at, sum[i][j] * p.scale);
        }
}

KERNEL attention_grad_key_value(const attention_params GIVEN) {
    __local float local_tile_a[TILE_K][PITCH], local_tile_b[TILE_K][PITCH], weights[TILE][PITCH],
        rows[16][WIDER];
    const long blocks = (GIVEN.keys + TILE - 1) / TILE, share = GIVEN.heads / GIVEN.key_heads;
    long g = XPU_GROUP(0);
    const long k0 = g % blocks * TILE;
    g /= blocks;
    const long kh = g % GIVEN.key_heads, b = g / GIVEN.key_heads % GIVEN.batch;
    const int number = (int)(g / GIVEN.key_heads / GIVEN.batch), part = number * DEPTH,
              value_part = number * VALUE_DEPTH;
    SEQUENCE(b)
    if (BANDED && k0 >= p.keys) return;
    const int x = (int)get_local_id(0), y = (int)get_local_id(1);

    float key_sum[SIDE][DEPTH / 16], value_sum[SIDE][VALUE_DEPTH / 16];
    CLEAR(key_sum, DEPTH / 16);
    CLEAR(value_sum, VALUE_DEPTH / 16);
    for (long h = kh * share; h < (kh + 1) * share; h++)
        for (long q0 = first_query_of(&p, k0); q0 < end_query_of(&p, k0 + TILE - 1); q0 += TILE) {
            float s[SIDE][SIDE], grad[SIDE][SIDE], weight;
            BOTH_PRODUCTS(s, grad, KEY, QUERY_COLUMN, VALUE, GRAD_OUT_COLUMN);
            for (int i = 0; i < SIDE; i++)
                for (int j = 0; j < SIDE; j++) {
                    grad_score(&p, b, h, q0 + PLACE(x, j), k0 + PLACE(y, i), s[i][j], grad[i][j], &weight,
                               &s[i][j]);
                    weights[PLACE(x, j)][PLACE(y, i)] = weight;
                }
            ACCUMULATE(value_sum, VALUE_DEPTH / 16, GRAD_OUT_PART);
            for (int i = 0; i < SIDE; i++)
                for (int j = 0; j < SIDE; j++) weights[PLACE(x, j)][PLACE(y, i)] = s[i][j];
            ACCUMULATE(key_sum, DEPTH / 16, QUERY_PART);
        }
    for (int i = 0; i < SIDE; i++) {
        const long key = k0 + PLACE(y, i);
        if (key >= p.keys) continue;
        for (int j = 0; j < DEPTH / 16; j++) {
            const int at = part + x + 16 * j;
            if (at < p.depth) PUT(p.grad_key, b, kh, key, at, key_sum[i][j] * p.scale);
        }
        for (int j = 0; j < VALUE_DEPTH / 16; j++) {
            const int at = value_part + x + 16 * j;
            if (at < p.value_depth) PUT(p.grad_value, b, kh, key, at, value_sum[i][j]);
        }
    }
}
#endif

#ifdef GRAD_BIAS
KERNEL attention_grad_bias(const attention_params p) {
    __local float local_tile_a[TILE_K][PITCH], local_tile_b[TILE_K][PITCH], weights[TILE][PITCH];
    const long rows = p.bias_size[2], columns = p.bias_size[3];
    const bool over_queries = rows < p.queries, over_keys = columns < p.keys;
    const long row_blocks = (rows + TILE - 1) / TILE, column_blocks = (columns + TILE - 1) / TILE;
    long g = XPU_GROUP(0);
    const long column = g % column_blocks * TILE;
    g /= column_blocks;
    const long row = g % row_blocks * TILE;
    g /= row_blocks;
    const long bias_h = g % p.bias_size[1];
    g /= p.bias_size[1];
    const long bias_b = g % p.bias_size[0], slice = g / p.bias_size[0];
    const int x = (int)get_local_id(0), y = (int)get_local_id(1);

    /* The tiles of scores that are summed, keys innermost. */
    const long key_blocks = over_keys ? (p.keys + TILE - 1) / TILE : 1;
    const long query_blocks = over_queries ? (p.queries + TILE - 1) / TILE : 1;
    const long heads = p.heads / p.bias_size[1],
               tiles = p.batch / p.bias_size[0] * heads * query_blocks * key_blocks;
    float sum[SIDE][SIDE];
    CLEAR(sum, SIDE);
    for (long t = slice * p.slice; t < min(tiles, (slice + 1) * p.slice); t++) {
        const long k0 = column + t % key_blocks * TILE, block = t / key_blocks;
        const long q0 = row + block % query_blocks * TILE, set = block / query_blocks;
        const long h = bias_h + set % heads, b = bias_b + set / heads, kh = h / (p.heads / p.key_heads);
        if (k0 >= end_key_of(&p, q0 + TILE - 1)) continue;
        float s[SIDE][SIDE], grad[SIDE][SIDE], weight, grad_s;
        BOTH_PRODUCTS(s, grad, QUERY, KEY_COLUMN, GRAD_OUT, VALUE_COLUMN);
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                grad_score(&p, b, h, q0 + PLACE(y, i), k0 + PLACE(x, j), s[i][j], grad[i][j], &weight,
                           &grad_s);
                sum[i][j] += grad_s;
            }
    }
    /* The last tile still has to be added. */
    const int down = over_queries ? TILE : 1, across = over_keys ? TILE : 1;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) weights[PLACE(y, i)][PLACE(x, j)] = sum[i][j];
    barrier(CLK_LOCAL_MEM_FENCE);
    const int wide = TILE / across;
    for (int e = y * LX + x; e < TILE / down * wide; e += THREADS) {
        const long query = row + e / wide, key = column + e % wide;
        if (query >= rows || key >= columns) continue;
        float total = 0;
        for (int i = 0; i < down; i++)
            for (int j = 0; j < across; j++) total += weights[e / wide + i][e % wide + j];
        if (p.partial) {
            const long n = (slice * p.bias_size[0] + bias_b) * p.bias_size[1] + bias_h;
            XPU_PTR(float, p.partial)[(n * rows + query) * columns + key] = total;
        } else {
            const attention_matrix m = p.grad_bias;
            STORE(BIAS_T, XPU_PTR(STORED(BIAS_T), m.data),
                  bias_b * m.stride[0] + bias_h * m.stride[1] + query * m.stride[2] + key * m.stride[3],
                  (COMPUTED(BIAS_T))total);
        }
    }
}
#endif
