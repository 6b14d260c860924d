/* How gemm_matrix stores RUN contiguous accumulators: a part of a row of the result, or of a split-K slice's
 * partial sums.
 * Options: OUT_VECTOR_BYTES, C_FORM, C_VECTOR_BYTES and OTHER_VECTOR_BYTES (gemm.cl). */
#define CHUNK_0 uchar
#define CHUNK_1 uchar
#define CHUNK_2 ushort
#define CHUNK_4 uint
#define CHUNK_8 uint2
#define CHUNK_16 uint4
#define OUT_CHUNK XPU_CAT(CHUNK_, OUT_VECTOR_BYTES)
#define C_CHUNK XPU_CAT(CHUNK_, C_VECTOR_BYTES)
#if COMBINE
#define OTHER_CHUNK XPU_CAT(CHUNK_, OTHER_VECTOR_BYTES)
#else
#define OTHER_CHUNK uchar
#endif
#define OUT_CHUNKS (int)(RUN * sizeof(RAW(OUT_T)) / sizeof(OUT_CHUNK))
#define C_CHUNKS (int)(RUN * sizeof(RAW(T)) / sizeof(C_CHUNK))
#define OTHER_CHUNKS (int)(RUN * sizeof(RAW(T)) / sizeof(OTHER_CHUNK))
#define SUM_CHUNKS (int)(RUN * sizeof(acc_t) / 16)

typedef union packed_run {
    C_CHUNK c[C_CHUNKS];
    OTHER_CHUNK other[OTHER_CHUNKS];
    RAW(T) of[RUN];
} packed_run;
typedef union output_run {
    OUT_CHUNK out[OUT_CHUNKS];
    RAW(OUT_T) of[RUN];
} output_run;
typedef union sums_run {
    uint4 parts[SUM_CHUNKS];
    acc_t of[RUN];
} sums_run;

static inline void add_c(const gemm_params *p, long b, long m, long n, __private value_t *v) {
    const value_t beta = SCALAR(p->beta);
    if (is_zero(beta)) return; /* beta = 0: C may be NaN */
#if C_FORM == 2
    packed_run c;
    const xpu_addr from = p->c + c_offset(p, b, m, n) * sizeof(RAW(T));
    UNROLL for (int i = 0; i < C_CHUNKS; i++)
        c.c[i] = XPU_CPTR(C_CHUNK, from)[i];
    UNROLL for (int j = 0; j < RUN; j++)
        v[j] = multiply_add(v[j], beta, (value_t)WIDEN(T, c.of[j]));
#else
    UNROLL for (int j = 0; j < RUN; j++)
        v[j] = multiply_add(v[j], beta, FETCH_C(c_offset(p, b, m, n + j)));
#endif
}

/* Applies the post-ops to a run of accumulators. */
static inline void end_run(const gemm_params *p, long b, long m, long n, __private value_t *v) {
#if COMBINE && OTHER_VECTOR_BYTES
    packed_run r;
    const xpu_addr from = p->end.other + other_offset(p, b, m, n) * sizeof(RAW(T));
    UNROLL for (int i = 0; i < OTHER_CHUNKS; i++)
        r.other[i] = XPU_CPTR(OTHER_CHUNK, from)[i];
    UNROLL for (int j = 0; j < RUN; j++)
        v[j] = apply_post_ops(&p->end, v[j], (value_t)WIDEN(T, r.of[j]));
#else
    UNROLL for (int j = 0; j < RUN; j++)
        v[j] = apply_post_ops(&p->end, v[j], OTHER(p, b, m, n + j));
#endif
}

static inline void store_run(const gemm_params *p, const tile_origin *at, long m, long n,
                             __private const acc_t *sum) {
    if (m >= p->m) return;
#if IS_SPLIT
    if (n + RUN <= p->n && p->n % 4 == 0) {
        sums_run r;
        UNROLL for (int j = 0; j < RUN; j++)
            r.of[j] = sum[j];
        __global acc_t *to =
            XPU_PTR(acc_t, p->partial) + ((at->slice * p->batch + at->b) * p->m + m) * p->n + n;
        UNROLL for (int i = 0; i < SUM_CHUNKS; i++)
            ((__global uint4 *)to)[i] = r.parts[i];
        return;
    }
#elif OUT_VECTOR_BYTES
    if (n + RUN <= p->n) {
        value_t v[RUN];
        output_run r;
        UNROLL for (int j = 0; j < RUN; j++)
            v[j] = scaled(p, at->b, m, n + j, sum[j]);
#if C_FORM
        add_c(p, at->b, m, n, v);
#endif
        end_run(p, at->b, m, n, v);
        UNROLL for (int j = 0; j < RUN; j++)
            r.of[j] = NARROW(OUT_T, quantize_output(&p->leave, v[j]));
        const xpu_addr to =
            p->out + (at->b * p->out_stride.batch + m * p->out_stride.row + n) * sizeof(RAW(OUT_T));
        UNROLL for (int i = 0; i < OUT_CHUNKS; i++)
            XPU_PTR(OUT_CHUNK, to)[i] = r.out[i];
        return;
    }
#endif
    UNROLL for (int j = 0; j < RUN; j++)
        store_partial_sum(p, at, m, n + j, sum[j]);
}
