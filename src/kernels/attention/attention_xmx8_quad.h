/* Forward attention by quads, groups of four subgroups, for attention_xmx8.cl: head sizes above 64, no bias,
 * no dropout.
 *
 * A quad computes 32 rows of O = P V, where P = exp(S - m), S is the scaled Q K^T, and m, the row's shift, is
 * its maximum at an earlier step. Each subgroup accumulates a quarter of the columns of O for all 32 rows. It
 * computes S and P for half of the rows and half of a step's keys.
 *
 * A step has three phases, each after a barrier:
 * 1. Compute S from the keys in local memory. Store this step's V, loaded during the previous step.
 * 2. If an S exceeds its row's m by too much, update m and rescale O and the sums of P. Then store P.
 * 3. O += P V, with the P of all subgroups.
 * The next step's K is loaded in phase 2 and stored in phase 3, and then its V is loaded, so registers hold
 * only one of the two. */
#define EXCHANGE_BYTES (WIDTH / 2 * SUMS_M * DPAS_BLOCK_BYTES) /* a subgroup's P */
#define WEIGHTS_AT STAGE
#define SHIFTS_AT (WEIGHTS_AT + SUBGROUPS * EXCHANGE_BYTES)
#define FLAG_AT (SHIFTS_AT + SUBGROUPS * ROWS * 4)
#define STAGES 1
#define BESIDE (FLAG_AT + 64 - STAGE)

/* Which half of the rows and of a step's keys a subgroup has: bits 1 and 0 of its role. The sums of its own
 * rows come first. */
#define SAME_KEYS 2u /* subgroups whose roles differ in this bit have the same keys and other rows */
#define SAME_ROWS 1u
#define KEYS_OF(role) ((role) % 2)
#define OUT_ROW(i) (((i) < SUMS_M ? f->row0 : f->row0 ^ ROWS) + (i) % SUMS_M * 8)

/* Exchanges values of rows (one per lane and block) among all subgroups, through `between`. */
INLINED void exchange_rows_out(__private const float *own, __local float *between) {
    const uint lane = (uint)get_local_id(0) % MATRIX_SUBGROUP_SIZE, subgroup = subgroup_index();
    barrier(CLK_LOCAL_MEM_FENCE); /* the previous contents have been read */
    UNROLL for (int i = 0; i < SUMS_M; i++)
        between[subgroup * ROWS + i * 8 + lane] = own[i];
    barrier(CLK_LOCAL_MEM_FENCE);
}
INLINED float exchanged_row(const __local float *between, uint subgroup, int i) {
    return between[subgroup * ROWS + i * 8 + (uint)get_local_id(0) % MATRIX_SUBGROUP_SIZE];
}

/* A step: keys from k0 on, whose values are in registers. Weights of masked rows are 0. */
INLINED void forward_step(const attention_params *p, __private forward_state *f, __private next_step *n,
                          __local uchar *stage, int k0, int k_end, bool on, const bool edge) {
    const uint lane = (uint)get_local_id(0) % MATRIX_SUBGROUP_SIZE, subgroup = subgroup_index(),
               part = KEYS_OF(f->role);
    const int left = (int)p->keys - k0 - STEP;
    const float factor = FACTOR;
    __local uchar *const given = stage + WEIGHTS_AT;
    __local float *const shifts = (__local float *)(stage + SHIFTS_AT);
    __local int *const flag = (__local int *)(stage + FLAG_AT);
    float8 s[WIDTH][SUMS_M];
    int8 weights[WIDTH / 2][OUT_M];
    barrier(CLK_LOCAL_MEM_FENCE); /* the keys have arrived; the previous values and weights have been read */
    f->turn++;
    store_step(stage, n, subgroup, lane, ACROSS);
    compute_scores(p, f, s, stage + part * (WIDTH * CHUNKS * DPAS_BLOCK_BYTES), k0 + (int)part * (STEP / 2),
                   k_end, edge);
    if (is_above(f, s, factor)) *flag = f->turn;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (*flag == f->turn) { /* visible to all */
        float of_own[SUMS_M];
        UNROLL for (int i = 0; i < SUMS_M; i++)
            of_own[i] = shift_of(f, s, factor, i);
        exchange_rows_out(of_own, shifts);
        UNROLL for (int i = 0; i < SUMS_M; i++) {
            of_own[i] = shift_row(f, i, fmin(of_own[i], exchanged_row(shifts, subgroup ^ SAME_ROWS, i)));
            scale_rows(f, i, of_own[i]);
        }
        exchange_rows_out(of_own, shifts);
        UNROLL for (int i = 0; i < SUMS_M; i++)
            scale_rows(f, SUMS_M + i, exchanged_row(shifts, subgroup ^ SAME_KEYS, i));
    }
    prefetch_step(n, left, subgroup, lane, FIRST_ONLY);
    soften(f, s, factor);
    UNROLL for (int i = 0; i < SUMS_M; i++) {
        float8 parts = s[0][i];
        UNROLL for (int j = 1; j < WIDTH; j++)
            parts += s[j][i];
        f->sum[i] += total_of(parts);
    }
    BLOCKS_OF(i, m, WIDTH / 2) {
        weights[m][i] = pairs_of(s[2 * m][i], s[2 * m + 1][i]);
        write_dpas_block(given + subgroup * EXCHANGE_BYTES + (m * SUMS_M + i) * DPAS_BLOCK_BYTES,
                         as_uint8(weights[m][i]));
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* values and weights have arrived; the keys have been read */
    const __local uchar *const values = stage + (ACROSS_AT + f->role * OUT_BLOCKS) * DPAS_BLOCK_BYTES;
    UNROLL for (int m = 0; m < WIDTH / 2; m++) {
        read_weights(weights[m] + SUMS_M,
                     given + (subgroup ^ SAME_KEYS) * EXCHANGE_BYTES + m * SUMS_M * DPAS_BLOCK_BYTES,
                     DPAS_BLOCK_BYTES, SUMS_M);
        add_weighted(f->out, weights[m], values + (part * (WIDTH / 2) + m) * (2 * COLUMNS * DPAS_BLOCK_BYTES),
                     OUT_BLOCKS);
    }
    store_step(stage, n, subgroup, lane, ALONG);
    prefetch_step(n, left, subgroup, lane, SECOND_ONLY);
    UNROLL for (int m = 0; m < WIDTH / 2; m++) {
        const uint other = subgroup ^ SAME_ROWS;
        read_weights(weights[m], given + other * EXCHANGE_BYTES + m * SUMS_M * DPAS_BLOCK_BYTES,
                     DPAS_BLOCK_BYTES, SUMS_M);
        read_weights(weights[m] + SUMS_M,
                     given + (other ^ SAME_KEYS) * EXCHANGE_BYTES + m * SUMS_M * DPAS_BLOCK_BYTES,
                     DPAS_BLOCK_BYTES, SUMS_M);
        add_weighted(f->out, weights[m],
                     values + ((part ^ 1) * (WIDTH / 2) + m) * (2 * COLUMNS * DPAS_BLOCK_BYTES), OUT_BLOCKS);
    }
}
/* For all rows; the sums are spread over two subgroups. */
INLINED void compute_totals(__private const forward_state *f, __private float *totals,
                            __private float *shifts, __local uchar *stage) {
    const uint subgroup = subgroup_index();
    __local float *const between = (__local float *)(stage + SHIFTS_AT);
    exchange_rows_out(f->sum, between);
    UNROLL for (int i = 0; i < SUMS_M; i++) {
        totals[i] = f->sum[i] + exchanged_row(between, subgroup ^ SAME_ROWS, i);
        totals[SUMS_M + i] = exchanged_row(between, subgroup ^ SAME_KEYS, i) +
                             exchanged_row(between, subgroup ^ SAME_KEYS ^ SAME_ROWS, i);
    }
    exchange_rows_out(f->less, between);
    UNROLL for (int i = 0; i < SUMS_M; i++) {
        shifts[i] = f->less[i];
        shifts[SUMS_M + i] = exchanged_row(between, subgroup ^ SAME_KEYS, i);
    }
}
