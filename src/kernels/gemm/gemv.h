/* gemv: M = 1 on GPUs, a vector times a matrix, memory-bound; every work-item reads 16 bytes of B at a time.
 *
 * Launch: work-groups of (LANES, SUBGROUPS), where a subgroup is a group of LANES work-items:
 *   B_K_MAJOR   a subgroup has COLUMNS rows of B, which its lanes traverse together along k; A is read once
 *               for all
 *   otherwise   a lane has as many columns as fit into 16 bytes; a subgroup takes every SUBGROUPS-th row of k
 * Options: A_WHOLE=1, A can be read 16 bytes at a time, too. Slices of k start at multiples of 64. For
 * several B (gemm_fused.h): B_K_MAJOR, not split. */
#define WIDTH ((int)(16 / sizeof(RAW(OPERAND_T)))) /* numbers in 16 bytes */
typedef union vec {
    uint4 bits;
    RAW(OPERAND_T) of[16 / sizeof(RAW(OPERAND_T))];
} vec;

#define A_VALUE(raw) MAYBE_CONJUGATE_A((acc_t)WIDEN(OPERAND_T, raw))
#define B_VALUE(raw) MAYBE_CONJUGATE_B((acc_t)WIDEN(OPERAND_T, raw))
#define SUM_OUT(n, sum) store_split_result(&p, b, slice, n, sum)

/* Rows of B per subgroup that belong to the first weight. */
#define EACH (LINE_PAIRS ? COLUMNS / 2 : COLUMNS)

static inline void store_split_result(const gemm_params *p, long b, long slice, long n, acc_t sum) {
    if (n >= p->n) return;
#if IS_SPLIT
    XPU_PTR(acc_t, p->partial)[(slice * p->batch + b) * p->n + n] = sum;
#else
    store_result(p, b, 0, n, sum);
#endif
}

__kernel __attribute__((reqd_work_group_size(LANES, SUBGROUPS, 1)))
#if PARTS
void gemv(const gemm_fused_params fused) {
    long g = XPU_GROUP(0);
    gemm_params p = fused.given.gemm;
    const uint block = (uint)g;
    g -= take_part(&p, NULL, &fused, block);
#else
void gemv(const gemm_params p) {
    long g = XPU_GROUP(0);
#endif
    const int lane = (int)get_local_id(0), subgroup = (int)get_local_id(1);
    const long each = B_K_MAJOR ? EACH * SUBGROUPS : LANES * WIDTH, blocks = (p.n + each - 1) / each;
    const long n0 = g % blocks * each;
    g /= blocks;
    const long b = g % p.batch, slice = g / p.batch;
    const long from = slice * p.slice, depth = min(p.k - from, p.slice);
    const xpu_addr pa = p.a + (b * p.a_stride.batch + from * p.a_stride.column) * sizeof(RAW(OPERAND_T));
    const xpu_addr pb = p.b + (b * p.b_stride.batch + from * p.b_stride.row) * sizeof(RAW(OPERAND_T));
#if B_K_MAJOR
    __local acc_t sums[SUBGROUPS][COLUMNS + NORMED][LANES]; /* after those of B's rows, the squares of A */
    __global const RAW(OPERAND_T) *line[COLUMNS];
    acc_t sum[COLUMNS + NORMED];
    sum[COLUMNS + NORMED - 1] = (acc_t)0;
    for (int j = 0; j < COLUMNS; j++) {
        const long n = LINE_OF(min(n0 + subgroup * EACH + j % EACH, p.n - 1), j / EACH);
#if GATED
        const xpu_addr of = j < EACH ? pb : fused.part[1].b;
#else
        const xpu_addr of = pb;
#endif
        line[j] = XPU_CPTR(RAW(OPERAND_T), of + n * p.b_stride.column * sizeof(RAW(OPERAND_T)));
        sum[j] = (acc_t)0;
    }
    const long whole = depth > 0 ? depth / WIDTH * WIDTH : 0;
    for (long k = lane * WIDTH; k < whole; k += LANES * WIDTH) {
        vec x, y[COLUMNS];
        for (int j = 0; j < COLUMNS; j++) y[j].bits = *(__global const uint4 *)(line[j] + k);
#if A_WHOLE
        x.bits = *(__global const uint4 *)(XPU_CPTR(RAW(OPERAND_T), pa) + k);
#else
        for (int i = 0; i < WIDTH; i++) x.of[i] = XPU_CPTR(RAW(OPERAND_T), pa)[(k + i) * p.a_stride.column];
#endif
#if NORMED
        vec norm;
        norm.bits = *(__global const uint4 *)(XPU_CPTR(RAW(OPERAND_T), fused.norm) + k);
        for (int i = 0; i < WIDTH; i++) {
            const acc_t v = A_VALUE(x.of[i]);
            sum[COLUMNS] = add_product(sum[COLUMNS], v, v);
        }
#define X_VALUE(i) (A_VALUE(x.of[i]) * ((acc_t)UNIT_OFFSET_WEIGHT + (acc_t)WIDEN(OPERAND_T, norm.of[i])))
#else
#define X_VALUE(i) A_VALUE(x.of[i])
#endif
        for (int j = 0; j < COLUMNS; j++)
            for (int i = 0; i < WIDTH; i++) sum[j] = add_product(sum[j], X_VALUE(i), B_VALUE(y[j].of[i]));
    }
    for (long k = whole + lane; k < depth; k += LANES)
        for (int j = 0; j < COLUMNS; j++)
            sum[j] = add_product(sum[j], A_VALUE(XPU_CPTR(RAW(OPERAND_T), pa)[k * p.a_stride.column]),
                                 B_VALUE(line[j][k]));
    for (int j = 0; j < COLUMNS + NORMED; j++) sums[subgroup][j][lane] = sum[j];
    for (int half_ = LANES / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_)
            for (int j = 0; j < COLUMNS + NORMED; j++)
                sums[subgroup][j][lane] += sums[subgroup][j][lane + half_];
    }
#if NORMED
    const acc_t root = inverse_rms_of(&fused, sums[subgroup][COLUMNS][0]);
#else
    const acc_t root = (acc_t)1;
#endif
    for (int j = 0; j < (lane > 0 ? 0 : EACH); j++) {
        const long n_ = n0 + subgroup * EACH + j;
#if GATED
        if (n_ < p.n)
            store_gated(&p, &fused, 0, n_, sums[subgroup][j][0] * root, sums[subgroup][j + EACH][0] * root);
#elif QKV_CACHE
        if (n_ < p.n)
            store_qkv(&p, &fused, block, 0, n_, sums[subgroup][j][0] * root,
                      sums[subgroup][j + EACH][0] * root);
#elif NORMED
        SUM_OUT(n_, sums[subgroup][j][0] * root);
#else
        SUM_OUT(n_, sums[subgroup][j][0]);
#endif
    }
#if NORM_HEADS
    __local uint last;
    store_normed_heads(&p, &fused, block, 0, 1, (uint)n0, (__local float *)sums, &last,
                       (uint)(subgroup * LANES + lane), LANES * SUBGROUPS);
#endif
#else
    __local acc_t sums[SUBGROUPS][LANES * WIDTH];
    /* A vector may extend past the row's end: being aligned, it stays within the page of its first
     * element. */
    const long n = min(n0 + lane * WIDTH, (p.n - 1) / WIDTH * WIDTH);
    __global const RAW(OPERAND_T) *column = XPU_CPTR(RAW(OPERAND_T), pb) + n;
    acc_t sum[16 / sizeof(RAW(OPERAND_T))];
    for (int i = 0; i < WIDTH; i++) sum[i] = (acc_t)0;
    for (long k = subgroup; k < depth; k += 4 * SUBGROUPS) {
        vec y[4];
        acc_t x[4];
        for (int j = 0; j < 4; j++) { /* past the end the last row is read again */
            const long at = min(k + j * SUBGROUPS, depth - 1);
            y[j].bits = *(__global const uint4 *)(column + at * p.b_stride.row);
            x[j] = A_VALUE(XPU_CPTR(RAW(OPERAND_T), pa)[at * p.a_stride.column]);
        }
        for (int j = 0; j < 4; j++)
            if (k + j * SUBGROUPS < depth)
                for (int i = 0; i < WIDTH; i++) sum[i] = add_product(sum[i], x[j], B_VALUE(y[j].of[i]));
    }
    for (int i = 0; i < WIDTH; i++) sums[subgroup][lane * WIDTH + i] = sum[i];
    for (int half_ = SUBGROUPS / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (subgroup < half_)
            for (int i = lane; i < LANES * WIDTH; i += LANES) sums[subgroup][i] += sums[subgroup + half_][i];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = subgroup * LANES + lane; i < LANES * WIDTH; i += SUBGROUPS * LANES)
        SUM_OUT(n0 + i, sums[0][i]);
#endif
}
