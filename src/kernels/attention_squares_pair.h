/* Forward attention by pairs of teams, for attention_squares.cl: heads above 64 elements, without bias and
 * dropout.
 *
 * A step has three parts, each behind a barrier. In the first one each team finds the scores of half of the
 * keys, and all keep their values, which came in before. In the second one they write down the scores'
 * weights; where a team saw a score too far above its row's shift the group works out new shifts first. In
 * the third one they multiply the weights of all of the step's keys with half of the values' columns. The
 * next keys come in from the second part on and are kept in the third, when the next values are asked for:
 * registers hold one of the two at a time. */
#define PAIRED_SQUARES (SUMS_M * STEP / 32) /* of a team's weights */
#define WEIGHTS_AT STAGE
#define SHIFTS_AT (WEIGHTS_AT + TEAMS * PAIRED_SQUARES * SQUARE)
#define FLAG_AT (SHIFTS_AT + TEAMS * ROWS * 4)
#define STAGES 1
#define BESIDE (FLAG_AT + 64 - STAGE)

/* What the two teams of a pair have of a row each, where a lane has a row of each block. */
INLINED void exchange_rows(__private const float *own, __private float *other, __local float *between) {
    const uint lane = (uint)get_local_id(0) % MATRIX_TEAM, team = team_number();
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) between[team * ROWS + i * 8 + lane] = own[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) other[i] = between[(team ^ 1) * ROWS + i * 8 + lane];
}

/* Keys from k0 on, whose values are in registers; weights of rows that look at none are 0. */
INLINED void forward_step(const attention_params *p, __private forward_state *f, __private next_step *n,
                          __local uchar *stage, int k0, int k_end, bool on, const bool edge) {
    const uint lane = (uint)get_local_id(0) % MATRIX_TEAM, team = team_number();
    const int left = (int)p->keys - k0 - STEP;
    const float factor = FACTOR;
    __local uchar *const given = stage + WEIGHTS_AT + team * (PAIRED_SQUARES * SQUARE);
    __local int *const flag = (__local int *)(stage + FLAG_AT);
    float8 s[WIDTH][SUMS_M];
    int8 weights[WIDTH / 2][SUMS_M];
    barrier(CLK_LOCAL_MEM_FENCE); /* these keys are there, the values and weights before have been read */
    f->turn++;
    keep_step(stage, n, team, lane, ACROSS);
    find_scores(p, f, s, stage + f->role * (WIDTH * CHUNKS * SQUARE), k0 + (int)f->role * (STEP / 2), k_end,
                edge);
    if (is_above(f, s, factor)) *flag = f->turn;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (*flag == f->turn) { /* which all see */
        float now[SUMS_M], others[SUMS_M];
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) now[i] = shift_of(f, s, factor, i);
        exchange_rows(now, others, (__local float *)(stage + SHIFTS_AT));
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) shift_rows(f, i, fmin(now[i], others[i]));
    }
    fetch_step(n, left, team, lane, FIRST_ALONE);
    soften(f, s, factor);
    BLOCKS_OF(i, j, WIDTH) f->sum[i] += s[j][i];
    WRITTEN_OUT for (int m = 0; m < WIDTH / 2; m++) WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) {
        weights[m][i] = pairs_of(s[2 * m][i], s[2 * m + 1][i]);
        write_square(given + (m * SUMS_M + i) * SQUARE, as_uint8(weights[m][i]));
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* values and weights are there, these keys have been read */
    const __local uchar *const values = stage + (ACROSS_AT + f->role * OUT_BLOCKS) * SQUARE;
    const __local uchar *const others = stage + WEIGHTS_AT + (team ^ 1) * (PAIRED_SQUARES * SQUARE);
    WRITTEN_OUT for (int m = 0; m < WIDTH / 2; m++) add_weighted(
        f->out, weights[m], values + (f->role * (WIDTH / 2) + m) * (2 * COLUMNS * SQUARE), OUT_BLOCKS);
    keep_step(stage, n, team, lane, ALONG);
    fetch_step(n, left, team, lane, SECOND_ALONE);
    add_given(f->out, others, SQUARE, SUMS_M * SQUARE,
              values + (f->role ^ 1) * (WIDTH / 2) * (2 * COLUMNS * SQUARE), 2 * COLUMNS, WIDTH / 2,
              OUT_BLOCKS);
}
/* A row's sum, of a pair's two. */
INLINED void find_totals(__private const forward_state *f, __private float8 *totals, __local uchar *stage) {
    const int lane = (int)get_local_id(0) % MATRIX_TEAM;
    float own[SUMS_M], other[SUMS_M];
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) {
        own[i] = 0;
        WRITTEN_OUT for (int r = 0; r < 8; r++) {
            const float total = sub_group_reduce_add(f->sum[i][r]);
            own[i] = lane == r ? total : own[i];
        }
    }
    exchange_rows(own, other, (__local float *)(stage + SHIFTS_AT));
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) totals[i] = of_rows(own[i] + other[i]);
}
