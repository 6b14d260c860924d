/* Gradients of attention on XMX with 8 lanes, for attention_xmx8.cl.
 *
 * Launch: SUBGROUPS_PER_ROWS subgroups share 16 rows (queries or keys); each has a part of the columns of the
 * gradient. In every step of STEP rows of the other side, a subgroup also computes some of the scores and
 * from them weights. Gradient of values: the two subgroups of a pair have half of the rows each. Gradients of
 * queries and keys: one subgroup of a pair computes the scores with their exponentials, the other the
 * gradients of the weights; they exchange these for half of their rows each and compute the weights of the
 * rest. Quads consist of two such pairs with half of the rows of the other side each. Then all subgroups
 * multiply all weights with their columns of the other side. Exchanges go through local memory, as fp32 or as
 * a left operand; rows stay in registers or, HELD chunks of them, partly.
 *
 * A step has two or three phases, each behind a barrier, and one buffer in local memory, since the next rows
 * are loaded into registers meanwhile: the K-major ones are stored at the end of the step, the others at the
 * start of their phase.
 *
 * Options: GRADS: 0 attention_matrix_grad_query, TILE queries; 1 attention_matrix_grad_key_value, gradient of
 * the values of TILE keys; 2 gradient of the keys. SUBGROUPS_PER_ROWS: 2, or 4 if GRADS isn't 1. */
#define OF_VALUES (GRADS == 1)
#define PARTS (OF_VALUES ? SUBGROUPS_PER_ROWS : SUBGROUPS_PER_ROWS / 2) /* of the rows of a step */
#define WIDTH (STEP / 8 / PARTS)                                        /* blocks of scores per subgroup */
#define PITCH (2 * (OF_VALUES ? COLUMNS : CHUNKS)) /* DPAS blocks of 16 rows with K across rows */
#define SUMS ((PITCH + SUBGROUPS_PER_ROWS - 1) / SUBGROUPS_PER_ROWS)
#define EXCHANGE_BYTES (WIDTH * DPAS_BLOCK_BYTES) /* per subgroup */
#define BITS_AT (STAGE + SUBGROUPS * EXCHANGE_BYTES)
#define REST_AT (BITS_AT + (DROPOUT && !OF_VALUES ? SUBGROUPS * MATRIX_SUBGROUP_SIZE * 4 : 0))
#define LOCAL_BYTES (REST_AT + (OF_VALUES ? SETS : 2 * SETS) * REST_BYTES)

typedef struct grad_state {
    long b, h;
    int row0;
    uint role; /* index within the set */
#if BANDED
    band within; /* of the scores, relative to query 0 */
#if GRADS != 0
    uint keys_of_query; /* the width of the band */
#endif
#endif
    left_rows rows;
    float8 sum[SUMS][SUMS_M];
    /* Per-query values (logsumexp or delta): their address and stride in bytes; for the subgroup's rows, one
     * row per lane. */
    xpu_addr looked_up;
    uint apart;
#if GRADS == 0
    float of_row[SUMS_M];
#endif
} grad_state;

/* Does the subgroup compute probabilities? */
#define FINDS_WEIGHTS(f) (OF_VALUES || (f)->role % 2 == 0)
INLINED void look_up(const attention_params *p, __private grad_state *f) {
    f->looked_up =
        FINDS_WEIGHTS(f) ? (xpu_addr)logsumexp_at(p, f->b, f->h, 0) : (xpu_addr)delta_at(p, f->b, f->h, 0);
    f->apart = (uint)sizeof(float) * (FINDS_WEIGHTS(f) ? (uint)p->logsumexp.stride[2] : 1);
}
/* As log_sum and delta_of in attention_merge.h. */
INLINED float of_query(const attention_params *p, __private const grad_state *f, int query) {
    const bool is_there = query < (int)p->queries;
    const float v = *XPU_CPTR(float, is_there ? f->looked_up + (ulong)(uint)query * f->apart : ZERO_VECTOR);
    return !FINDS_WEIGHTS(f) ? v : v == -INFINITY || !is_there ? INFINITY : v * LOG2E;
}

/* Probabilities from scores with rows of the other side from x0 on; at an `edge`, some are masked. */
INLINED void compute_weights(const attention_params *p, __private const grad_state *f,
                             __private float8 (*s)[SUMS_M], int x0, const bool edge) {
    const int lane = (int)get_local_id(0) % MATRIX_SUBGROUP_SIZE;
#ifdef BIAS_T
    const float factor = 1;
    BLOCKS_OF(i, j, WIDTH) UNROLL
        for (int r = 0; r < 8; r++) {
            const int row = f->row0 + i * 8 + r, other = x0 + j * 8 + lane;
            s[j][i][r] = (GRADS == 0 ? score(p, f->b, f->h, row, other, s[j][i][r])
                                     : score(p, f->b, f->h, other, row, s[j][i][r])) *
                         LOG2E;
        }
#else
    const float factor = p->scale * LOG2E;
#if BANDED && GRADS != 0
    /* A query's keys are `keys_of_query` from `lower` on; rows past the keys are not stored. (One comparison
     * of a vector needs fewer registers than two per element.) */
    if (edge)
        BLOCKS_OF(i, j, WIDTH) {
            const int8 at =
                (int8)(0, 1, 2, 3, 4, 5, 6, 7) + (f->row0 + i * 8 - f->within.lower - (x0 + j * 8 + lane));
            s[j][i] = select(s[j][i], (float8)-INFINITY, as_uint8(at) >= f->keys_of_query);
        }
#else
    if (edge)
        BLOCKS_OF(i, j, WIDTH) UNROLL
            for (int r = 0; r < 8; r++) {
                const int row = f->row0 + i * 8 + r, other = x0 + j * 8 + lane;
#if BANDED
                if (other >= min((int)p->keys, row + f->within.upper) || other < row + f->within.lower)
                    s[j][i][r] = -INFINITY;
#elif GRADS == 0
                if (other >= (p->causal ? min((int)p->keys, row + 1) : (int)p->keys)) s[j][i][r] = -INFINITY;
#else
                if (p->causal && row > other) s[j][i][r] = -INFINITY;
#endif
            }
#endif
#endif
#if GRADS == 0
    BLOCKS_OF(i, j, WIDTH) s[j][i] = exp2_of(mad(s[j][i], (float8)factor, -of_rows(f->of_row[i])));
#else
    UNROLL for (int j = 0; j < WIDTH; j++) {
        const float8 log_sum_ = of_query(p, f, x0 + j * 8 + lane);
        UNROLL for (int i = 0; i < SUMS_M; i++)
            s[j][i] = exp2_of(mad(s[j][i], (float8)factor, -log_sum_));
    }
#endif
}

#if DROPOUT
/* Dropout bits of `width` blocks from x0 on: one bit per row of each block's column. */
INLINED void pack_dropout_bits(const attention_params *p, __private const grad_state *f, __private uint *bits,
                               int x0, const int width) {
    const int lane = (int)get_local_id(0) % MATRIX_SUBGROUP_SIZE;
#if GRADS == 0
    load_dropout_mask(p, kept_row(p, f->b, f->h, f->row0) + (ulong)(x0 + lane), (ulong)ROW_KEYS(p), 8, ROWS,
                      width, bits);
#else
    load_dropout_mask(p, kept_row(p, f->b, f->h, x0 + lane) + (ulong)f->row0, 1, 8 * (ulong)ROW_KEYS(p), ROWS,
                      width, bits);
#endif
}
#endif

/* Gradients of the scores from dO V^T, without the factor P. */
INLINED void compute_slopes(const attention_params *p, __private const grad_state *f,
                            __private float8 (*s)[SUMS_M], int x0) {
    UNROLL for (int j = 0; j < WIDTH; j++) {
#if GRADS != 0
        const float8 delta = of_query(p, f, x0 + j * 8 + (int)get_local_id(0) % MATRIX_SUBGROUP_SIZE);
#endif
        UNROLL for (int i = 0; i < SUMS_M; i++)
#if GRADS == 0
            s[j][i] = mad(s[j][i], (float8)KEEP_SCALE, -of_rows(f->of_row[i]));
#else
            s[j][i] = mad(s[j][i], (float8)KEEP_SCALE, -delta);
#endif
    }
}

/* Loads STEP rows of the other side from x0 on, `left` of them valid. */
INLINED void grad_step(const attention_params *p, __private grad_state *f, __private next_step *n,
                       __local uchar *stage, int x0, int left, const bool edge) {
    const uint lane = (uint)get_local_id(0) % MATRIX_SUBGROUP_SIZE, subgroup = subgroup_index();
    const uint part = OF_VALUES ? f->role : f->role / 2, odd = f->role % 2;
    const int first = x0 + (int)part * (WIDTH * 8);
    const __local uchar *const right = stage + (ACROSS_AT + f->role * SUMS) * DPAS_BLOCK_BYTES;
    __local uchar *const given = stage + STAGE + subgroup * EXCHANGE_BYTES;
    __local uchar *const others = stage + STAGE + (subgroup ^ 1) * EXCHANGE_BYTES;
    float8 s[WIDTH][SUMS_M];
#if DROPOUT
    uint bits[WIDTH];
#if OF_VALUES
    pack_dropout_bits(p, f, bits, first, WIDTH);
#else /* each subgroup of a pair has a half */
    pack_dropout_bits(p, f, bits, first + (int)odd * 8, 1);
    __local uint *const both =
        (__local uint *)(stage + BITS_AT) + (subgroup & ~1u) * MATRIX_SUBGROUP_SIZE + lane;
    both[odd * MATRIX_SUBGROUP_SIZE] = bits[0];
#endif
#endif
    barrier(CLK_LOCAL_MEM_FENCE); /* the operands along rows have arrived; those across rows and the previous
                                     weights have been read */
    store_step(stage, n, subgroup, lane, ACROSS);
#if OF_VALUES
    int8 weights[WIDTH / 2][SUMS_M];
    multiply_rows(s, &f->rows, stage + part * (WIDTH * CHUNKS * DPAS_BLOCK_BYTES), WIDTH, CHUNKS);
    compute_weights(p, f, s, first, edge);
#if DROPOUT
    drop(s, bits, WIDTH);
#endif
    BLOCKS_OF(i, m, WIDTH / 2) {
        weights[m][i] = pairs_of(s[2 * m][i], s[2 * m + 1][i]);
        write_dpas_block(given + (m * SUMS_M + i) * DPAS_BLOCK_BYTES, as_uint8(weights[m][i]));
    }
    prefetch_step(n, left - STEP, subgroup, lane, ALL_ROUNDS);
    barrier(CLK_LOCAL_MEM_FENCE); /* weights and the operands across rows have arrived; those along rows have
                                     been read */
    const __local uchar *const own = right + part * (WIDTH / 2) * (PITCH * DPAS_BLOCK_BYTES);
    UNROLL for (int m = 0; m < WIDTH / 2; m++)
        add_weighted(f->sum, weights[m], own + m * (PITCH * DPAS_BLOCK_BYTES), SUMS);
    UNROLL for (int m = 0; m < WIDTH / 2; m++) {
        read_weights(weights[m], others + m * SUMS_M * DPAS_BLOCK_BYTES, DPAS_BLOCK_BYTES, SUMS_M);
        add_weighted(f->sum, weights[m], right + ((part ^ 1) * (WIDTH / 2) + m) * (PITCH * DPAS_BLOCK_BYTES),
                     SUMS);
    }
#else
    const int chunks = CHUNKS == COLUMNS || odd == 0 ? CHUNKS : COLUMNS;
    multiply_rows(s, &f->rows, stage + (odd * SECOND_ALONG + part * WIDTH * chunks) * DPAS_BLOCK_BYTES, WIDTH,
                  chunks);
#if DROPOUT
    UNROLL for (int j = 0; j < WIDTH; j++)
        bits[j] = odd ? both[j * MATRIX_SUBGROUP_SIZE] : ~0u;
    drop(s, bits, WIDTH);
#endif
    if (odd == 0)
        compute_weights(p, f, s, first, edge);
    else
        compute_slopes(p, f, s, first);
    UNROLL for (int j = 0; j < WIDTH; j++)
        write_dpas_block(given + j * DPAS_BLOCK_BYTES, as_uint8(odd ? s[j][0] : s[j][1]));
    prefetch_step(n, left - STEP, subgroup, lane, ALL_ROUNDS);
    barrier(CLK_LOCAL_MEM_FENCE); /* the weights are complete; operands along rows have been read */
    /* Replaces the given block by block `odd` of the subgroup. */
    UNROLL for (int m = 0; m < WIDTH / 2; m++) {
        float8 own[2];
        UNROLL for (int j = 0; j < 2; j++)
            own[j] = (odd ? s[2 * m + j][1] : s[2 * m + j][0]) *
                     as_float8(read_dpas_block(others + (2 * m + j) * DPAS_BLOCK_BYTES));
        write_dpas_block(others + m * DPAS_BLOCK_BYTES, as_uint8(pairs_of(own[0], own[1])));
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* weights and the operands across rows have arrived */
    const __local uchar *const first_given =
        stage + STAGE + ((subgroup & ~(SUBGROUPS_PER_ROWS - 1u)) + 1) * EXCHANGE_BYTES;
    UNROLL for (int m = 0; m < STEP / 16; m++) {
        int8 weights[SUMS_M];
        read_weights(weights,
                     first_given + m / (WIDTH / 2) * 2 * EXCHANGE_BYTES + m % (WIDTH / 2) * DPAS_BLOCK_BYTES,
                     -EXCHANGE_BYTES, SUMS_M);
        add_weighted(f->sum, weights, right + m * (PITCH * DPAS_BLOCK_BYTES), SUMS);
    }
#endif
    store_step(stage, n, subgroup, lane, ALONG);
}

/* The subgroup's rows of a matrix with `all` rows. */
INLINED void hold_rows(__private grad_state *f, const attention_matrix *m, long h, long all, const int chunks,
                       __local uchar *stage, uint subgroup, uint lane) {
    const uint which =
        OF_VALUES ? subgroup / SUBGROUPS_PER_ROWS : subgroup / SUBGROUPS_PER_ROWS * 2 + subgroup % 2;
    take_rows(&f->rows, rows_at(m, f->b, h, f->row0), m->stride[2] * ELEMENT,
              (int)min(all - f->row0, (long)ROWS), chunks, stage + subgroup * DPAS_BLOCK_BYTES,
              stage + REST_AT + which * REST_BYTES, lane);
}
INLINED void store_sums(__private const grad_state *f, const attention_matrix *m, long h, long all,
                        float scale, uint lane) {
    BLOCKS_OF(i, v, SUMS) UNROLL
        for (int r = 0; r < 8; r++) {
            const long row = f->row0 + i * 8 + r;
            if (row < all && (PITCH % SUBGROUPS_PER_ROWS == 0 || f->role * SUMS + v < PITCH))
                PUT(*m, f->b, h, row, (f->role * SUMS + v) * 8 + lane, f->sum[v][i][r] * scale);
        }
}
/* Starts loading the other side's rows from x0 on. */
INLINED void begin_rows(__private grad_state *f, __private next_step *n, __local uchar *stage,
                        const attention_matrix *first, const attention_matrix *second, long h, int x0,
                        int left, uint subgroup, uint lane) {
    n->first = rows_at(first, f->b, h, x0), n->second = rows_at(second, f->b, h, x0);
    prefetch_step(n, left, subgroup, lane, ALL_ROUNDS);
    store_step(stage, n, subgroup, lane, ALONG);
}

#define GRAD_KERNEL                                                                                          \
    MATRIX_KERNEL __attribute__((reqd_work_group_size(SUBGROUPS * MATRIX_SUBGROUP_SIZE, 1, 1))) void
#if GRADS == 0
GRAD_KERNEL attention_matrix_grad_query(const attention_params given) {
    __local uchar stage[LOCAL_BYTES] __attribute__((aligned(64)));
    const long blocks = (given.queries + TILE - 1) / TILE;
    long g = XPU_GROUP(0);
    const long q0 = (LIMITED(given) ? blocks - 1 - g % blocks : g % blocks) * TILE;
    g /= blocks;
    const long h = g % given.heads, b = g / given.heads, kh = h / (given.heads / given.key_heads);
    SEQUENCE_OF(b);
    if (BANDED && q0 >= p->queries) return;
    const uint lane = (uint)get_local_id(0) % MATRIX_SUBGROUP_SIZE, subgroup = subgroup_index();

    grad_state state;
    __private grad_state *const f = &state;
    f->b = b, f->h = h, f->row0 = (int)q0 + (int)(subgroup / SUBGROUPS_PER_ROWS) * ROWS,
    f->role = subgroup % SUBGROUPS_PER_ROWS;
    BLOCKS_OF(i, v, SUMS) f->sum[v][i] = 0;
    if (f->role % 2 == 0)
        hold_rows(f, &p->query, h, p->queries, CHUNKS, stage, subgroup, lane);
    else
        hold_rows(f, &p->grad_out, h, p->queries, COLUMNS, stage, subgroup, lane);
    look_up(p, f);
    UNROLL for (int i = 0; i < SUMS_M; i++)
        f->of_row[i] = of_query(p, f, f->row0 + i * 8 + (int)lane);
    barrier(CLK_LOCAL_MEM_FENCE);

    next_step n;
    n.first_pitch = (uint)p->key.stride[2] * ELEMENT, n.second_pitch = (uint)p->value.stride[2] * ELEMENT;
    open_step(&n, subgroup, lane);
    /* Keys that all queries of the work-group attend to, and keys that some do. */
#if BANDED
    f->within = band_of(p, 0);
    const band of_group = band_of(p, (int)q0);
    int k0 = max(0, of_group.lower);
    begin_rows(f, &n, stage, &p->key, &p->value, kh, k0, (int)p->keys - k0, subgroup, lane);
    const int common = min((int)p->keys, of_group.upper);
    const int group_end = min((int)p->keys, of_group.upper + TILE - 1);
#define BY_STEP(edge) grad_step(p, f, &n, stage, k0, (int)p->keys - k0, edge)
    GO_THROUGH(k0, of_group.lower + TILE - 1, common, group_end, BY_STEP)
#else
    begin_rows(f, &n, stage, &p->key, &p->value, kh, 0, (int)p->keys, subgroup, lane);
    const int common = (int)(p->causal ? min(p->keys, q0 + 1) : p->keys);
    const int group_end = (int)(p->causal ? min(p->keys, q0 + TILE) : p->keys);
    int k0 = 0;
    for (; k0 + STEP <= common; k0 += STEP) grad_step(p, f, &n, stage, k0, (int)p->keys - k0, false);
    for (; k0 < group_end; k0 += STEP) grad_step(p, f, &n, stage, k0, (int)p->keys - k0, true);
#endif
    store_sums(f, &p->grad_query, h, p->queries, p->scale, lane);
}
#else
GRAD_KERNEL attention_matrix_grad_key_value(const attention_params given) {
    __local uchar stage[LOCAL_BYTES] __attribute__((aligned(64)));
    const long blocks = (given.keys + TILE - 1) / TILE, share = given.heads / given.key_heads;
    long g = XPU_GROUP(0);
    const long k0 = g % blocks * TILE;
    g /= blocks;
    const long kh = g % given.key_heads, b = g / given.key_heads;
    SEQUENCE_OF(b);
    if (BANDED && k0 >= p->keys) return;
    const uint lane = (uint)get_local_id(0) % MATRIX_SUBGROUP_SIZE, subgroup = subgroup_index();

    grad_state state;
    __private grad_state *const f = &state;
    f->b = b, f->row0 = (int)k0 + (int)(subgroup / SUBGROUPS_PER_ROWS) * ROWS,
    f->role = subgroup % SUBGROUPS_PER_ROWS;
    BLOCKS_OF(i, v, SUMS) f->sum[v][i] = 0;
    if (OF_VALUES || f->role % 2 == 0)
        hold_rows(f, &p->key, kh, p->keys, CHUNKS, stage, subgroup, lane);
    else
        hold_rows(f, &p->value, kh, p->keys, COLUMNS, stage, subgroup, lane);
    barrier(CLK_LOCAL_MEM_FENCE);

    next_step n;
    n.first_pitch = (uint)p->query.stride[2] * ELEMENT,
    n.second_pitch = (uint)p->grad_out.stride[2] * ELEMENT;
    open_step(&n, subgroup, lane);
    /* Queries before `first` attend to none of the work-group's keys, those from `whole` on to all; with
     * BANDED, to all only before `common`, and to none from `end` on. */
#if BANDED
    f->within = band_of(p, 0);
    f->keys_of_query = (uint)f->within.upper - (uint)f->within.lower;
    const int queries = (int)p->queries, first = max(0, (int)k0 + 1 - f->within.upper);
    const int whole = (int)k0 + TILE - f->within.upper, common = (int)k0 + 1 - f->within.lower;
    const int end = min(queries, common + TILE - 1);
#else
    const int queries = (int)p->queries, first = p->causal ? (int)min(k0, p->queries) / STEP * STEP : 0;
    const int whole = p->causal ? (int)k0 + TILE - 1 : 0;
#endif
    for (f->h = kh * share; f->h < (kh + 1) * share; f->h++) {
        look_up(p, f);
        begin_rows(f, &n, stage, &p->query, &p->grad_out, f->h, first, queries - first, subgroup, lane);
        int q0 = first;
#if BANDED
#define BY_STEP(edge) grad_step(p, f, &n, stage, q0, queries - q0, edge)
        GO_THROUGH(q0, whole, min(common, end), end, BY_STEP)
#else
        for (; q0 < min(queries, whole); q0 += STEP) grad_step(p, f, &n, stage, q0, queries - q0, true);
        for (; q0 < queries; q0 += STEP) grad_step(p, f, &n, stage, q0, queries - q0, false);
#endif
    }
    if (OF_VALUES)
        store_sums(f, &p->grad_value, kh, p->keys, KEEP_SCALE, lane);
    else
        store_sums(f, &p->grad_key, kh, p->keys, p->scale, lane);
}
#endif
