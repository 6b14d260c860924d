/* Forward attention by quads of subgroups, for attention_xmx8.cl: heads above 64 elements without bias and
 * dropout.
 *
 * A quad has 32 rows; each of its subgroups has a quarter of the value columns. Two subgroups have the scores
 * of the same half of the rows, each with half of a step's keys.
 *
 * A step has three phases, each behind a barrier. 1: subgroups compute their scores, and store the values of
 * the keys that were loaded before. 2: they store the weights of the scores; if a score exceeded its row's
 * shift by too much, the work-group first computes new shifts. 3: they multiply the weights of all rows with
 * their columns. The next keys are loaded from phase 2 on and stored in phase 3, where the next values are
 * requested: registers hold one of the two. */
#define GIVEN_BYTES (WIDTH / 2 * SUMS_M * SQUARE) /* a team's weights */
#define WEIGHTS_AT STAGE
#define SHIFTS_AT (WEIGHTS_AT + TEAMS * GIVEN_BYTES)
#define FLAG_AT (SHIFTS_AT + TEAMS * ROWS * 4)
#define STAGES 1
#define BESIDE (FLAG_AT + 64 - STAGE)

/* Which half of the rows and of a step's keys a team has: bit 1 and bit 0 of its role. Its own rows' sums
 * come before those of the other half. */
#define SHARES_KEYS 2u /* the teams whose roles differ in this have the same keys, and other rows */
#define SHARES_ROWS 1u
#define KEYS_OF(role) ((role) % 2)
#define OUT_ROW(i) (((i) < SUMS_M ? f->row0 : f->row0 ^ ROWS) + (i) % SUMS_M * 8)

/* A lane has a row of each block of its team: those of all teams, in `between`. */
INLINED void give_rows(__private const float *own, __local float *between) {
    const uint lane = (uint)get_local_id(0) % MATRIX_TEAM, team = team_number();
    barrier(CLK_LOCAL_MEM_FENCE); /* what was there has been read */
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) between[team * ROWS + i * 8 + lane] = own[i];
    barrier(CLK_LOCAL_MEM_FENCE);
}
INLINED float given_row(const __local float *between, uint team, int i) {
    return between[team * ROWS + i * 8 + (uint)get_local_id(0) % MATRIX_TEAM];
}

/* Keys from k0 on, whose values are in registers; weights of rows that look at none are 0. */
INLINED void forward_step(const attention_params *p, __private forward_state *f, __private next_step *n,
                          __local uchar *stage, int k0, int k_end, bool on, const bool edge) {
    const uint lane = (uint)get_local_id(0) % MATRIX_TEAM, team = team_number(), part = KEYS_OF(f->role);
    const int left = (int)p->keys - k0 - STEP;
    const float factor = FACTOR;
    __local uchar *const given = stage + WEIGHTS_AT;
    __local float *const shifts = (__local float *)(stage + SHIFTS_AT);
    __local int *const flag = (__local int *)(stage + FLAG_AT);
    float8 s[WIDTH][SUMS_M];
    int8 weights[WIDTH / 2][OUT_M];
    barrier(CLK_LOCAL_MEM_FENCE); /* these keys are there, the values and weights before have been read */
    f->turn++;
    keep_step(stage, n, team, lane, ACROSS);
    find_scores(p, f, s, stage + part * (WIDTH * CHUNKS * SQUARE), k0 + (int)part * (STEP / 2), k_end, edge);
    if (is_above(f, s, factor)) *flag = f->turn;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (*flag == f->turn) { /* which all see */
        float of_own[SUMS_M];
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) of_own[i] = shift_of(f, s, factor, i);
        give_rows(of_own, shifts);
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) {
            of_own[i] = shift_row(f, i, fmin(of_own[i], given_row(shifts, team ^ SHARES_ROWS, i)));
            fade_rows(f, i, of_own[i]);
        }
        give_rows(of_own, shifts);
        WRITTEN_OUT for (int i = 0; i < SUMS_M; i++)
            fade_rows(f, SUMS_M + i, given_row(shifts, team ^ SHARES_KEYS, i));
    }
    fetch_step(n, left, team, lane, FIRST_ALONE);
    soften(f, s, factor);
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) {
        float8 parts = s[0][i];
        WRITTEN_OUT for (int j = 1; j < WIDTH; j++) parts += s[j][i];
        f->sum[i] += total_of(parts);
    }
    BLOCKS_OF(i, m, WIDTH / 2) {
        weights[m][i] = pairs_of(s[2 * m][i], s[2 * m + 1][i]);
        write_square(given + team * GIVEN_BYTES + (m * SUMS_M + i) * SQUARE, as_uint8(weights[m][i]));
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* values and weights are there, these keys have been read */
    const __local uchar *const values = stage + (ACROSS_AT + f->role * OUT_BLOCKS) * SQUARE;
    WRITTEN_OUT for (int m = 0; m < WIDTH / 2; m++) {
        read_weights(weights[m] + SUMS_M, given + (team ^ SHARES_KEYS) * GIVEN_BYTES + m * SUMS_M * SQUARE,
                     SQUARE, SUMS_M);
        add_weighted(f->out, weights[m], values + (part * (WIDTH / 2) + m) * (2 * COLUMNS * SQUARE),
                     OUT_BLOCKS);
    }
    keep_step(stage, n, team, lane, ALONG);
    fetch_step(n, left, team, lane, SECOND_ALONE);
    WRITTEN_OUT for (int m = 0; m < WIDTH / 2; m++) {
        const uint other = team ^ SHARES_ROWS;
        read_weights(weights[m], given + other * GIVEN_BYTES + m * SUMS_M * SQUARE, SQUARE, SUMS_M);
        read_weights(weights[m] + SUMS_M, given + (other ^ SHARES_KEYS) * GIVEN_BYTES + m * SUMS_M * SQUARE,
                     SQUARE, SUMS_M);
        add_weighted(f->out, weights[m], values + ((part ^ 1) * (WIDTH / 2) + m) * (2 * COLUMNS * SQUARE),
                     OUT_BLOCKS);
    }
}
/* Of all rows, whose sums are of two teams. */
INLINED void find_totals(__private const forward_state *f, __private float *totals, __private float *shifts,
                         __local uchar *stage) {
    const uint team = team_number();
    __local float *const between = (__local float *)(stage + SHIFTS_AT);
    give_rows(f->sum, between);
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) {
        totals[i] = f->sum[i] + given_row(between, team ^ SHARES_ROWS, i);
        totals[SUMS_M + i] = given_row(between, team ^ SHARES_KEYS, i) +
                             given_row(between, team ^ SHARES_KEYS ^ SHARES_ROWS, i);
    }
    give_rows(f->less, between);
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) {
        shifts[i] = f->less[i];
        shifts[SUMS_M + i] = given_row(between, team ^ SHARES_KEYS, i);
    }
}
