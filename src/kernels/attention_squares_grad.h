/* Gradients of attention by Intel's matrix units of 8 lanes, for attention_squares.cl.
 *
 * Two teams, a pair, have ROWS rows, queries or keys, and half of the columns of these rows' gradient each:
 * registers hold what a team multiplies the other side with, and half of the sums, so that local memory has
 * the other side alone. Of each STEP rows of that, for the gradient of queries and of keys one team finds the
 * scores and their exponentials, the other the gradients of dropout's results; for that of values each finds
 * exponentials of half of them. They exchange these by way of local memory.
 *
 * -DGRADS: 0 attention_matrix_grad_query, TILE queries; 1 attention_matrix_grad_key_value, the values'
 * gradient of TILE keys; 2 the keys' */
#define PAIRS (TEAMS / 2)
#define TILE (PAIRS * ROWS)
#define OF_VALUES (GRADS == 1)
#define WIDTH (STEP / 8 / (1 + OF_VALUES)) /* blocks of scores of a team */
#define SUMS (OF_VALUES ? COLUMNS : CHUNKS)
#define EXCHANGED (SUMS_M * (OF_VALUES ? WIDTH / 2 : WIDTH)) /* squares of a team */
#define LOCAL_BYTES (2 * STAGE + TEAMS * EXCHANGED * SQUARE)

typedef struct grad_state {
    long b, h;
    int row0, turn; /* turn: of the stages */
    uint role;      /* which of the pair */
    int8 rows[SUMS_M][MOST_CHUNKS];
    float8 sum[SUMS][SUMS_M];
    /* What queries have for this team, logarithms of their sums of exponentials or sums of grad_out * out:
     * where that is, bytes apart; of the team's rows, a lane has a row's. */
    xpu_addr looked_up;
    uint apart;
#if GRADS == 0
    float of_row[SUMS_M];
#endif
} grad_state;

/* Does the team find exponentials? */
#define FINDS_WEIGHTS(f) (OF_VALUES || (f)->role == 0)
INLINED void look_up(const attention_params *p, __private grad_state *f) {
    f->looked_up =
        FINDS_WEIGHTS(f) ? (xpu_addr)logsumexp_at(p, f->b, f->h, 0) : (xpu_addr)delta_at(p, f->b, f->h, 0);
    f->apart = (uint)sizeof(float) * (FINDS_WEIGHTS(f) ? (uint)p->logsumexp.stride[2] : 1);
}
/* As log_sum and delta_of of attention_join.h give it. */
INLINED float of_query(const attention_params *p, __private const grad_state *f, int query) {
    const bool is_there = query < (int)p->queries;
    const float v = *XPU_CPTR(float, is_there ? f->looked_up + (ulong)(uint)query * f->apart : NOTHING);
    return !FINDS_WEIGHTS(f) ? v : v == -INFINITY || !is_there ? INFINITY : v * LOG2E;
}

/* Of products with rows of the other side from x0 on, exponentials; at an `edge` not all take part. */
INLINED void find_weights(const attention_params *p, __private const grad_state *f,
                          __private float8 (*s)[SUMS_M], int x0, const bool edge) {
    const int lane = (int)get_local_id(0) % MATRIX_TEAM;
#ifdef BIAS_T
    const float factor = 1;
    BLOCKS_OF(i, j, WIDTH) WRITTEN_OUT for (int r = 0; r < 8; r++) {
        const int row = f->row0 + i * 8 + r, other = x0 + j * 8 + lane;
        s[j][i][r] = (GRADS == 0 ? score(p, f->b, f->h, row, other, s[j][i][r])
                                 : score(p, f->b, f->h, other, row, s[j][i][r])) *
                     LOG2E;
    }
#else
    const float factor = p->scale * LOG2E;
    if (edge) BLOCKS_OF(i, j, WIDTH) WRITTEN_OUT for (int r = 0; r < 8; r++) {
            const int row = f->row0 + i * 8 + r, other = x0 + j * 8 + lane;
#if GRADS == 0
            if (other >= (p->causal ? min((int)p->keys, row + 1) : (int)p->keys)) s[j][i][r] = -INFINITY;
#else
            if (p->causal && row > other) s[j][i][r] = -INFINITY;
#endif
        }
#endif
#if GRADS == 0
    BLOCKS_OF(i, j, WIDTH) s[j][i] = exp2_of(mad(s[j][i], (float8)factor, -of_rows(f->of_row[i])));
#else
    WRITTEN_OUT for (int j = 0; j < WIDTH; j++) {
        const float8 log_sum_ = of_query(p, f, x0 + j * 8 + lane);
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) s[j][i] =
            exp2_of(mad(s[j][i], (float8)factor, -log_sum_));
    }
#endif
}

/* Does dropout keep the scores? A bit a row of each block's column. */
INLINED void find_bits(const attention_params *p, __private const grad_state *f, __private uint *bits,
                       int x0) {
#if DROPOUT
    const int lane = (int)get_local_id(0) % MATRIX_TEAM;
#if GRADS == 0
    find_kept(p, kept_row(p, f->b, f->h, f->row0) + (ulong)(x0 + lane), (ulong)ROW_KEYS(p), 8, ROWS, WIDTH,
              bits);
#else
    find_kept(p, kept_row(p, f->b, f->h, x0 + lane) + (ulong)f->row0, 1, 8 * (ulong)ROW_KEYS(p), ROWS, WIDTH,
              bits);
#endif
#endif
}

/* Of products with values or their results' gradients, the scores' gradients, but for the weights. */
INLINED void find_slopes(const attention_params *p, __private const grad_state *f,
                         __private float8 (*s)[SUMS_M], int x0) {
    WRITTEN_OUT for (int j = 0; j < WIDTH; j++) {
#if GRADS != 0
        const float8 delta = of_query(p, f, x0 + j * 8 + (int)get_local_id(0) % MATRIX_TEAM);
#endif
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++)
#if GRADS == 0
            s[j][i] = mad(s[j][i], (float8)KEEP_SCALE, -of_rows(f->of_row[i]));
#else
            s[j][i] = mad(s[j][i], (float8)KEEP_SCALE, -delta);
#endif
    }
}

/* STEP rows of the other side from x0 on, of which `left` are there. `on`: some of the pair's rows take part.
 */
INLINED void grad_step(const attention_params *p, __private grad_state *f, __private next_step *n,
                       __local uchar *stages, int x0, int left, bool on, const bool edge) {
    const uint lane = (uint)get_local_id(0) % MATRIX_TEAM, team = get_sub_group_id();
    const __local uchar *const stage = stages + f->turn % 2 * STAGE;
    __local uchar *const exchange = stages + 2 * STAGE;
    __local uchar *const given = exchange + team * (EXCHANGED * SQUARE);
    float8 s[WIDTH][SUMS_M];
    uint bits[WIDTH] = {0};
    barrier(CLK_LOCAL_MEM_FENCE); /* this step is there, the one before has been read */
    f->turn++;
    if (on) {
#if OF_VALUES
        const int first = x0 + (int)f->role * (STEP / 2);
        find_bits(p, f, bits, first);
        multiply_rows(s, f->rows, stage + f->role * (FIRST_UNITS * SQUARE), WIDTH, CHUNKS);
        find_weights(p, f, s, first, edge);
#if DROPOUT
        drop(s, bits, WIDTH);
#endif
        WRITTEN_OUT for (int m = 0; m < WIDTH / 2; m++) WRITTEN_OUT for (int i = 0; i < SUMS_M; i++)
            write_square(given + (m * SUMS_M + i) * SQUARE, as_uint8(pairs_of(s[2 * m][i], s[2 * m + 1][i])));
#else
        if (f->role == 1) find_bits(p, f, bits, x0);
        multiply_rows(s, f->rows, stage + f->role * (SECOND_ALONG * SQUARE), WIDTH,
                      CHUNKS == COLUMNS || f->role == 0 ? CHUNKS : COLUMNS);
        if (f->role == 0) {
            find_weights(p, f, s, x0, edge);
        } else {
#if DROPOUT
            drop(s, bits, WIDTH);
#endif
            find_slopes(p, f, s, x0);
        }
        BLOCKS_OF(i, j, WIDTH) write_square(given + (j * SUMS_M + i) * SQUARE, as_uint8(s[j][i]));
#endif
    }
    fetch_step(n, left - STEP, team, lane, ALL_TURNS);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (on) {
        const __local uchar *const right = stage + (ACROSS + f->role * SUMS) * SQUARE;
        WRITTEN_OUT for (int m = 0; m < STEP / 16; m++) {
            int8 weights[SUMS_M];
#if OF_VALUES
            const __local uchar *const from = exchange +
                                              ((team & ~1u) + m / (WIDTH / 2)) * (EXCHANGED * SQUARE) +
                                              m % (WIDTH / 2) * SUMS_M * SQUARE;
            WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) weights[i] = read_square(from + i * SQUARE);
#else
            const __local uchar *const from =
                exchange + (team ^ 1) * (EXCHANGED * SQUARE) + 2 * m * SUMS_M * SQUARE;
            WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) weights[i] =
                pairs_of(s[2 * m][i] * as_float8(read_square(from + i * SQUARE)),
                         s[2 * m + 1][i] * as_float8(read_square(from + (SUMS_M + i) * SQUARE)));
#endif
            add_weighted(f->sum, weights, right + m * 2 * SUMS * SQUARE, SUMS);
        }
    }
    keep_step(stages + f->turn % 2 * STAGE, n, team, lane, ALL_TURNS);
}

/* The team's rows of a matrix, which has `all`. */
INLINED void hold_rows(__private grad_state *f, const attention_matrix *m, long h, long all, const int chunks,
                       __local uchar *own, uint lane) {
    const long pitch = m->stride[2] * ELEMENT;
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) WRITTEN_OUT for (int c = 0; c < chunks; c++) {
        const int row = f->row0 + i * 8;
        keep_rows(own, rows_at(m, f->b, h, row) + c * HALF, pitch, (int)min(all - row, 8L), 1, lane);
        sub_group_barrier(CLK_LOCAL_MEM_FENCE);
        f->rows[i][c] = read_square(own);
        sub_group_barrier(CLK_LOCAL_MEM_FENCE);
    }
}
INLINED void put_sums(__private const grad_state *f, const attention_matrix *m, long h, long all, float scale,
                      uint lane) {
    BLOCKS_OF(i, v, SUMS) WRITTEN_OUT for (int r = 0; r < 8; r++) {
        const long row = f->row0 + i * 8 + r;
        if (row < all) PUT(*m, f->b, h, row, (f->role * SUMS + v) * 8 + lane, f->sum[v][i][r] * scale);
    }
}
/* The other side's rows from x0 on: the first ones come into the stage whose turn it is. */
INLINED void begin_rows(__private grad_state *f, __private next_step *n, __local uchar *stages,
                        const attention_matrix *first, const attention_matrix *second, long h, int x0,
                        int left, uint team, uint lane) {
    n->first = rows_at(first, f->b, h, x0), n->second = rows_at(second, f->b, h, x0);
    fetch_step(n, left, team, lane, ALL_TURNS);
    keep_step(stages + f->turn % 2 * STAGE, n, team, lane, ALL_TURNS);
}

#define GRAD_KERNEL MATRIX_KERNEL __attribute__((reqd_work_group_size(TEAMS * MATRIX_TEAM, 1, 1))) void
#if GRADS == 0
GRAD_KERNEL attention_matrix_grad_query(const attention_params params) {
    const attention_params *const p = &params;
    __local uchar stages[LOCAL_BYTES] __attribute__((aligned(64)));
    const long blocks = (p->queries + TILE - 1) / TILE;
    long g = XPU_GROUP(0);
    const long q0 = (p->causal ? blocks - 1 - g % blocks : g % blocks) * TILE;
    g /= blocks;
    const long h = g % p->heads, b = g / p->heads, kh = h / (p->heads / p->key_heads);
    const uint lane = (uint)get_local_id(0) % MATRIX_TEAM, team = get_sub_group_id();

    grad_state state;
    __private grad_state *const f = &state;
    f->b = b, f->h = h, f->row0 = (int)q0 + (int)(team / 2) * ROWS, f->turn = 0, f->role = team % 2;
    BLOCKS_OF(i, v, SUMS) f->sum[v][i] = 0;
    if (f->role == 0)
        hold_rows(f, &p->query, h, p->queries, CHUNKS, stages + team * SQUARE, lane);
    else
        hold_rows(f, &p->grad_out, h, p->queries, COLUMNS, stages + team * SQUARE, lane);
    look_up(p, f);
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) f->of_row[i] = of_query(p, f, f->row0 + i * 8 + (int)lane);
    barrier(CLK_LOCAL_MEM_FENCE);

    next_step n;
    n.first_pitch = (uint)p->key.stride[2] * ELEMENT, n.second_pitch = (uint)p->value.stride[2] * ELEMENT;
    open_step(&n, team, lane);
    begin_rows(f, &n, stages, &p->key, &p->value, kh, 0, (int)p->keys, team, lane);
    /* Keys that all of the group's queries look at, that some look at, that some of the pair's do. */
    const int common = (int)(p->causal ? min(p->keys, q0 + 1) : p->keys);
    const int group_end = (int)(p->causal ? min(p->keys, q0 + TILE) : p->keys);
    const int end = p->causal ? min((int)p->keys, f->row0 + ROWS) : (int)p->keys;
    int k0 = 0;
    for (; k0 + STEP <= common; k0 += STEP) grad_step(p, f, &n, stages, k0, (int)p->keys - k0, true, false);
    for (; k0 < group_end; k0 += STEP) grad_step(p, f, &n, stages, k0, (int)p->keys - k0, k0 < end, true);
    put_sums(f, &p->grad_query, h, p->queries, p->scale, lane);
}
#else
GRAD_KERNEL attention_matrix_grad_key_value(const attention_params params) {
    const attention_params *const p = &params;
    __local uchar stages[LOCAL_BYTES] __attribute__((aligned(64)));
    const long blocks = (p->keys + TILE - 1) / TILE, share = p->heads / p->key_heads;
    long g = XPU_GROUP(0);
    const long k0 = g % blocks * TILE;
    g /= blocks;
    const long kh = g % p->key_heads, b = g / p->key_heads;
    const uint lane = (uint)get_local_id(0) % MATRIX_TEAM, team = get_sub_group_id();

    grad_state state;
    __private grad_state *const f = &state;
    f->b = b, f->row0 = (int)k0 + (int)(team / 2) * ROWS, f->turn = 0, f->role = team % 2;
    BLOCKS_OF(i, v, SUMS) f->sum[v][i] = 0;
    if (OF_VALUES || f->role == 0)
        hold_rows(f, &p->key, kh, p->keys, CHUNKS, stages + team * SQUARE, lane);
    else
        hold_rows(f, &p->value, kh, p->keys, COLUMNS, stages + team * SQUARE, lane);
    barrier(CLK_LOCAL_MEM_FENCE);

    next_step n;
    n.first_pitch = (uint)p->query.stride[2] * ELEMENT,
    n.second_pitch = (uint)p->grad_out.stride[2] * ELEMENT;
    open_step(&n, team, lane);
    /* Queries before `first` look at none of the group's keys, those from `whole` on at all. */
    const int queries = (int)p->queries, first = p->causal ? (int)min(k0, p->queries) / STEP * STEP : 0;
    const int whole = p->causal ? (int)k0 + TILE - 1 : 0;
    for (f->h = kh * share; f->h < (kh + 1) * share; f->h++) {
        look_up(p, f);
        begin_rows(f, &n, stages, &p->query, &p->grad_out, f->h, first, queries - first, team, lane);
        int q0 = first;
        for (; q0 < min(queries, whole); q0 += STEP)
            grad_step(p, f, &n, stages, q0, queries - q0, q0 + STEP > f->row0, true);
        for (; q0 < queries; q0 += STEP) grad_step(p, f, &n, stages, q0, queries - q0, true, false);
    }
    if (OF_VALUES)
        put_sums(f, &p->grad_value, kh, p->keys, KEEP_SCALE, lane);
    else
        put_sums(f, &p->grad_key, kh, p->keys, p->scale, lane);
}
#endif
