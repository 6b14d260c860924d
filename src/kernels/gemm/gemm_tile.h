/* The portable tiled product that gemm.cl and conv.cl share, and the arithmetic of accumulators.
 *
 * Launch: a work-group of LX x LY work-items computes a TILE x TILE tile, SIDE x SIDE results per work-item.
 * Algorithm: tiles of A and B, TILE_K deep, are in local memory; the next ones are loaded into registers
 * while the present ones are multiplied.
 * Options: T; TILE, TILE_K, SIDE; A_K_MAJOR, B_K_MAJOR, 1 if consecutive k are closer in memory than
 * consecutive rows or columns; OPERAND_T, dtype of A and B if it isn't T (int8 with int32 sums or, with
 * SUM_T, multiplied and summed in that type). */

#define acc_i8 int
#define acc_i16 int
#define acc_i32 int
#define acc_u8 uint
#define acc_u16 uint
#define acc_u32 uint
#define acc_i64 long
#define acc_u64 ulong
#define acc_f16 float
#define acc_bf16 float
#define acc_f32 float
#define acc_f64 double
#define acc_c64 float2
#define acc_c128 double2
#if defined(OPERAND_T) && !defined(SUM_T)
#define add_product(sum, a, b) ((sum) + (a) * (b))
#else
#define add_product multiply_add
#endif
#ifndef OPERAND_T
#define OPERAND_T T
#endif
#ifndef SUM_T
#define SUM_T OPERAND_T
#else
#define INT8_AS_SUM_T
#endif
#define acc_t XPU_CAT(acc_, SUM_T) /* a sum of products */
#define value_t XPU_CAT(acc_, T)   /* the type in which results are computed */

/* COMPLEX_T: 1 for complex dtypes; FLOAT_T: 1 for those that accumulate in fp32 (or pairs of it); DOUBLE_T:
 * in fp64; otherwise integers. */
static inline value_t multiply(value_t a, value_t b) {
#if COMPLEX_T
    return (value_t)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
#else
    return a * b;
#endif
}

static inline value_t multiply_add(value_t sum, value_t a, value_t b) {
#if COMPLEX_T
    return (value_t)(sum.x + a.x * b.x - a.y * b.y, sum.y + a.x * b.y + a.y * b.x);
#elif FLOAT_T || DOUBLE_T
    return fma(a, b, sum);
#else
    return sum + a * b;
#endif
}

static inline acc_t conjugate(acc_t a) {
#if COMPLEX_T
    return (acc_t)(a.x, -a.y);
#else
    return a;
#endif
}

static inline bool is_zero(value_t a) {
#if COMPLEX_T
    return a.x == 0 && a.y == 0;
#else
    return a == 0;
#endif
}

#if COMPLEX_T && FLOAT_T
#define SCALAR(word) ((value_t)(as_float((uint)(word)[0]), as_float((uint)(word)[1])))
#elif COMPLEX_T
#define SCALAR(word) ((value_t)(as_double((word)[0]), as_double((word)[1])))
#elif FLOAT_T
#define SCALAR(word) as_float((uint)(word)[0])
#elif DOUBLE_T
#define SCALAR(word) as_double((word)[0])
#else
#define SCALAR(word) ((value_t)(word)[0])
#endif

#define FETCH(address, index) ((acc_t)LOAD(OPERAND_T, XPU_CPTR(STORED(OPERAND_T), address), index))
#define KEEP(address, index, value) STORE(T, XPU_PTR(STORED(T), address), index, (COMPUTED(T))(value))

#ifdef TILE
#define LX (TILE / SIDE)
#define LY (TILE / SIDE)
#define THREADS (LX * LY)
#define LOADS (TILE * TILE_K / THREADS)
#define PITCH                                                                                                \
    (TILE + 4) /* padding: fewer bank conflicts if K is contiguous; keeps rows aligned for vectors */

/* The rows (columns) of the tile that work-item `id` has: runs of 4 on GPUs, so that local memory is read as
 * vectors; on CPUs adjacent lanes have adjacent ones. */
#if defined(XPU_IS_CPU) || SIDE < 4
#define PLACE(id, i) ((id) + (i) * LX)
#else
#define PLACE(id, i) ((i) / 4 * (LX * 4) + (id) * 4 + (i) % 4)
#endif

#define LOCAL_TILE_K(e, fast) ((fast) ? (e) % TILE_K : (e) / TILE)
#define LOCAL_TILE_X(e, fast) ((fast) ? (e) / TILE_K : (e) % TILE)

#define TILE_FETCH(A, B, m0, n0, k0)                                                                         \
    for (int i_ = 0; i_ < LOADS; i_++) {                                                                     \
        const int e_ = thread + i_ * THREADS;                                                                \
        next_a[i_] = A((m0) + LOCAL_TILE_X(e_, A_K_MAJOR), (k0) + LOCAL_TILE_K(e_, A_K_MAJOR));              \
        next_b[i_] = B((k0) + LOCAL_TILE_K(e_, B_K_MAJOR), (n0) + LOCAL_TILE_X(e_, B_K_MAJOR));              \
    }

/* Adds the product over k_begin … k_end-1 to sum[SIDE][SIDE]. A(m, k) and B(k, n) give elements, or 0
 * outside; `local_tile_a` and `local_tile_b` are __local acc_t [TILE_K][PITCH]. */
#define TILE_PRODUCT(sum, A, B, m0, n0, k_begin, k_end)                                                      \
    do {                                                                                                     \
        const int thread = (int)(get_local_id(1) * LX + get_local_id(0));                                    \
        acc_t next_a[LOADS], next_b[LOADS];                                                                  \
        if ((k_begin) < (k_end)) { TILE_FETCH(A, B, m0, n0, k_begin) }                                       \
        for (long k0_ = (k_begin); k0_ < (k_end); k0_ += TILE_K) {                                           \
            for (int i_ = 0; i_ < LOADS; i_++) {                                                             \
                const int e_ = thread + i_ * THREADS;                                                        \
                local_tile_a[LOCAL_TILE_K(e_, A_K_MAJOR)][LOCAL_TILE_X(e_, A_K_MAJOR)] = next_a[i_];         \
                local_tile_b[LOCAL_TILE_K(e_, B_K_MAJOR)][LOCAL_TILE_X(e_, B_K_MAJOR)] = next_b[i_];         \
            }                                                                                                \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
            if (k0_ + TILE_K < (k_end)) { TILE_FETCH(A, B, m0, n0, k0_ + TILE_K) }                           \
            for (int k_ = 0; k_ < TILE_K; k_++) {                                                            \
                acc_t x_[SIDE], y_[SIDE];                                                                    \
                for (int i_ = 0; i_ < SIDE; i_++) x_[i_] = local_tile_a[k_][PLACE(get_local_id(1), i_)];     \
                for (int i_ = 0; i_ < SIDE; i_++) y_[i_] = local_tile_b[k_][PLACE(get_local_id(0), i_)];     \
                for (int i_ = 0; i_ < SIDE; i_++)                                                            \
                    for (int j_ = 0; j_ < SIDE; j_++)                                                        \
                        sum[i_][j_] = add_product(sum[i_][j_], x_[i_], y_[j_]);                              \
            }                                                                                                \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                    \
        }                                                                                                    \
    } while (0)
#endif
