/* conv_matrix through local memory, on NVIDIA tensor cores and by multiply-adds. In every step each work-item
 * copies vectors of both operands to local memory; the addresses of the im2col operand are computed on the
 * fly. */
#define VECTORS_K (TILE_K / VECTOR_ELEMENTS)
#define A_VECTORS (A_K_MAJOR ? VECTORS_K : TILE_M / VECTOR_ELEMENTS) /* of a row of the tile */
#define B_VECTORS (B_K_MAJOR ? VECTORS_K : TILE_N / VECTOR_ELEMENTS)
#define VECTOR_ADDRESS(base, vecs) ((base) + (long)(vecs) * (VECTOR_ELEMENTS * ELEMENT))

/* Brings in vector number i of a work-item, which lies `from` vectors beyond `base`; zeros where it isn't
 * `on`, without a branch. Units' tiles are copied to while others are multiplied, multiply-adds' pass through
 * registers. */
#ifdef MATRIX_FMA
typedef __private quad *local_tile;
static inline void copy_in(local_tile to, uint i, const uint vecs, xpu_addr base, int from, bool on) {
    read_quad(&to[i], VECTOR_ADDRESS(base, on ? from : 0), on);
}
static inline void copy_in_or_fill(local_tile to, uint i, const uint vecs, xpu_addr base, int from, bool on,
                                   uint word) {
    copy_in(to, i, vecs, base, from, on);
    UNROLL for (int j = 0; j < QUAD_PARTS; j++)
        to[i].parts[j] = on ? to[i].parts[j] : (PART)(word);
}
#else
static inline void copy_in(local_tile to, uint i, const uint vecs, xpu_addr base, int from, bool on) {
    copy_part_async(to + swizzled_offset(COPY_ROW(i, vecs), COPY_COLUMN(i, vecs), vecs),
                    VECTOR_ADDRESS(base, on ? from : 0), 16, on ? 16 : 0);
}
static inline void copy_in_or_fill(local_tile to, uint i, const uint vecs, xpu_addr base, int from, bool on,
                                   uint word) {
    copy_or_fill_async(to + swizzled_offset(COPY_ROW(i, vecs), COPY_COLUMN(i, vecs), vecs),
                       VECTOR_ADDRESS(base, from), on, word);
}
#endif

/* The rows of the im2col operand that a work-item copies: offset of their tap 0 in vectors, and its
 * coordinates in the image. */
#if DIRECTION != 2
typedef struct im2col_rows {
    int from[VECTORS_PER_ITEM(TILE_M)];
#if HAS_PAD_VALUE
    uint blank; /* the padding value of x, four times */
#endif
#if PADDED
    int h[VECTORS_PER_ITEM(TILE_M)], w[VECTORS_PER_ITEM(TILE_M)];
#if VOLUME
    int d[VECTORS_PER_ITEM(TILE_M)];
#endif
#endif
} im2col_rows;

static inline void open_im2col(const conv_matrix_params *p, const product *z, __private im2col_rows *g,
                               uint m0) {
#if HAS_PAD_VALUE
    g->blank = ((uint)zero_of(p) & 0xff) * 0x01010101u ^ A_FLIP;
#endif
    UNROLL for (uint i = 0; i < VECTORS_PER_ITEM(TILE_M); i++) {
        const pixel q = pixel_of(p, min(m0 + (uint)COPY_ROW(i, A_VECTORS), p->rows - 1));
        const int d = (int)q.d * p->step[0] + z->d.first, h = (int)q.h * p->step[1] + z->h.first;
        const int w = (int)q.w * p->step[2] + z->w.first;
        g->from[i] = (int)q.n * p->im2col_pitch[0] + d * p->im2col_pitch[1] + h * p->im2col_pitch[2] +
                     w * p->im2col_pitch[3] + (IS_1X1 ? (int)COPY_COLUMN(i, A_VECTORS) : 0);
#if PADDED
        g->h[i] = h, g->w[i] = w;
#if VOLUME
        g->d[i] = d;
#endif
#endif
    }
}

/* Copies the rows' vectors of a tap; the padding value outside of the image and past the last tap. */
static inline void load_im2col(const conv_matrix_params *p, const product *z, local_tile to, xpu_addr base,
                               __private const im2col_rows *g, tap at, bool on) {
    const int d = (int)at.d * p->tap_step[0], h = (int)at.h * p->tap_step[1], w = (int)at.w * p->tap_step[2];
    const int ahead = d * p->im2col_pitch[1] + h * p->im2col_pitch[2] + w * p->im2col_pitch[3] + (int)at.vec;
    UNROLL for (uint i = 0; i < VECTORS_PER_ITEM(TILE_M); i++) {
        bool inside = on;
#if PADDED
        inside =
            inside & ((uint)(g->h[i] + h) < (uint)p->source[1]) & ((uint)(g->w[i] + w) < (uint)p->source[2]);
#if VOLUME
        inside = inside & ((uint)(g->d[i] + d) < (uint)p->source[0]);
#endif
#endif
#if HAS_PAD_VALUE
        copy_in_or_fill(to, i, A_VECTORS, base, g->from[i] + ahead, inside, g->blank);
#else
        copy_in(to, i, A_VECTORS, base, g->from[i] + ahead, inside);
#endif
    }
}
#endif

#if DIRECTION == 0
/* w for the forward pass: rows are channels of y and contain all of K. */
static inline void load_weights(const conv_matrix_params *p, local_tile to, xpu_addr base, uint n0, uint vecs,
                                bool on) {
    UNROLL for (uint i = 0; i < VECTORS_PER_ITEM(TILE_N); i++) {
        const uint row = (uint)COPY_ROW(i, B_VECTORS);
        copy_in(to, i, B_VECTORS, base, (int)min(n0 + row, p->columns - 1) * p->dense_pitch + (int)vecs, on);
    }
}
#elif DIRECTION == 1
/* w for the gradient of x: rows are channels of y at one tap and contain the channels of x. `first` is K at
 * row 0 of the tile. */
static inline void load_weights(const conv_matrix_params *p, const product *z, local_tile to, xpu_addr base,
                                uint n0, uint first, uint end) {
#if IS_1X1
    const tap all = tap_of(p, z, first / VECTOR_ELEMENTS);
#endif
    UNROLL for (uint i = 0; i < VECTORS_PER_ITEM(TILE_N); i++) {
        const uint row = COPY_ROW(i, B_VECTORS), vec = COPY_COLUMN(i, B_VECTORS);
#if IS_1X1
        const tap at = all;
        const uint beyond = row; /* element of the tap */
#else
        const tap at = tap_of(p, z, (first + row) / VECTOR_ELEMENTS);
        const uint beyond = (first + row) % VECTOR_ELEMENTS;
#endif
        const bool on = at.vec * VECTOR_ELEMENTS + beyond < p->depth && (IS_1X1 ? first : first + row) < end;
        const int column = (int)min(n0 / VECTOR_ELEMENTS + vec, (p->columns - 1) / VECTOR_ELEMENTS);
        const int from = (int)(at.vec * VECTOR_ELEMENTS) * p->dense_pitch + (int)beyond * p->dense_pitch +
                         column + (int)at.d * p->dense_tap[0] + (int)at.h * p->dense_tap[1] +
                         (int)at.w * p->dense_tap[2];
        copy_in(to, i, B_VECTORS, base, from, on);
    }
}
#else
#if PIXELS_CONTIGUOUS
/* y for the gradient of w: rows are channels of an image and contain its pixels. A vector is within one
 * image. dense_image is the gap between images, in vectors. */
static inline void load_dense(const conv_matrix_params *p, local_tile to, xpu_addr base, uint m0,
                              uint first) {
    UNROLL for (uint i = 0; i < VECTORS_PER_ITEM(TILE_M); i++) {
        const uint row = COPY_ROW(i, A_VECTORS),
                   number = first + (uint)COPY_COLUMN(i, A_VECTORS) * VECTOR_ELEMENTS;
        const int from = (int)(number / VECTOR_ELEMENTS) + (int)pixel_of(p, number).n * p->dense_image +
                         (int)min(m0 + row, p->rows - 1) * p->dense_pitch;
        copy_in(to, i, A_VECTORS, base, from, number < p->depth);
    }
}
#else
/* y for the gradient of w: rows are pixels and contain its channels. */
static inline void load_dense(const conv_matrix_params *p, local_tile to, xpu_addr base, uint m0,
                              uint first) {
    UNROLL for (uint i = 0; i < VECTORS_PER_ITEM(TILE_M); i++) {
        const uint row = COPY_ROW(i, A_VECTORS), vec = COPY_COLUMN(i, A_VECTORS), number = first + row;
        const bool on = number < p->depth;
        const int from = (int)number * p->dense_pitch +
                         (int)min(m0 / VECTOR_ELEMENTS + vec, (p->rows - 1) / VECTOR_ELEMENTS);
        copy_in(to, i, A_VECTORS, base, from, on);
    }
}
#endif
/* x at these pixels, for the tap and channels of each column. */
typedef struct column {
    int from, d, h, w;
} column;
static inline void load_im2col_columns(const conv_matrix_params *p, local_tile to, xpu_addr base, column c,
                                       uint first) {
    UNROLL for (uint i = 0; i < VECTORS_PER_ITEM(TILE_N); i++) {
        const uint number = first + (uint)COPY_ROW(i, B_VECTORS);
        const pixel q = pixel_of(p, number);
        bool inside = number < p->depth;
        const int h = (int)q.h * p->step[1], w = (int)q.w * p->step[2];
        int from = c.from + (int)q.n * p->im2col_pitch[0] + h * p->im2col_pitch[2] + w * p->im2col_pitch[3];
#if VOLUME
        const int d = (int)q.d * p->step[0];
        from += d * p->im2col_pitch[1];
#endif
#if PADDED
        inside = inside & ((uint)(c.h + h) < (uint)p->source[1]) & ((uint)(c.w + w) < (uint)p->source[2]);
#if VOLUME
        inside = inside & ((uint)(c.d + d) < (uint)p->source[0]);
#endif
#endif
        copy_in(to, i, B_VECTORS, base, from, inside);
    }
}
#endif

MATRIX_KERNEL
__attribute__((reqd_work_group_size(THREADS, 1, 1))) void conv_matrix(const conv_matrix_params p) {
#ifdef MATRIX_FMA
    __local element_t local_tiles[2 * STAGE] LOCAL_TILE_ALIGNED;
    quad next_a[VECTORS_PER_ITEM(TILE_M)], next_b[VECTORS_PER_ITEM(TILE_N)];
    acc_t sum[SUMS_M][SUMS_N];
    UNROLL for (int i = 0; i < SUMS_M; i++) UNROLL
        for (int j = 0; j < SUMS_N; j++) sum[i][j] = (acc_t)0;
#else
    __local uchar local_tiles[STAGES * STAGE_BYTES] LOCAL_TILE_ALIGNED;
    fragment_sum sum[FRAGMENTS_M][FRAGMENTS_N];
    UNROLL for (int i = 0; i < FRAGMENTS_M; i++) UNROLL
        for (int j = 0; j < FRAGMENTS_N; j++) sum[i][j] = (fragment_sum)0;
#endif
    const tile_origin t = find_conv_tile(&p);
    const product z = product_of(&p, t.product);
    const uint m0 = t.m, n0 = t.n;

    const xpu_addr im2col = VECTOR_ADDRESS(p.im2col, (long)z.group * p.im2col_group);
    const uint begin = z.slice * p.slice; /* in steps */

#if DIRECTION == 2
    const xpu_addr other = VECTOR_ADDRESS(p.other, (long)z.group * p.dense_group);
    const tap at = tap_of(
        &p, &z, min(n0 / VECTOR_ELEMENTS + (uint)COPY_COLUMN(0, B_VECTORS), p.columns / VECTOR_ELEMENTS - 1));
    column c = {.d = (int)at.d * p.tap_step[0] + z.d.first,
                .h = (int)at.h * p.tap_step[1] + z.h.first,
                .w = (int)at.w * p.tap_step[2] + z.w.first};
    c.from = (int)at.vec + c.d * p.im2col_pitch[1] + c.h * p.im2col_pitch[2] + c.w * p.im2col_pitch[3];
    const uint steps = (p.depth + TILE_K - 1) / TILE_K;
#define LOAD_OPERANDS(a, b, step)                                                                            \
    {                                                                                                        \
        const uint first_ = (begin + (uint)(step)) * TILE_K;                                                 \
        load_dense(&p, a, other, m0, first_);                                                                \
        load_im2col_columns(&p, b, im2col, c, first_);                                                       \
    }
#else
    const uint taps = z.d.taps.value * z.h.taps.value * z.w.taps.value, depth = taps * p.per_tap.value;
    const uint steps = (depth + VECTORS_K - 1) / VECTORS_K;
    im2col_rows g;
    open_im2col(&p, &z, &g, m0);
#if IS_1X1
#define OWN_VECTORS 0
#else
#define OWN_VECTORS (uint) COPY_COLUMN(0, A_VECTORS)
#endif
#if DIRECTION == 0
    const xpu_addr other = VECTOR_ADDRESS(p.other, (long)z.group * p.dense_group);
#define LOAD_DENSE(stage, first)                                                                             \
    load_weights(&p, stage, other, n0, (first) + (uint)COPY_COLUMN(0, B_VECTORS),                            \
                 (first) + (uint)COPY_COLUMN(0, B_VECTORS) < depth)
#else
    const xpu_addr other =
        VECTOR_ADDRESS(p.other, (long)z.group * p.dense_group + z.d.tap * p.dense_tap_first[0] +
                                    z.h.tap * p.dense_tap_first[1] + z.w.tap * p.dense_tap_first[2]);
#define LOAD_DENSE(stage, first)                                                                             \
    load_weights(&p, &z, stage, other, n0, (first) * VECTOR_ELEMENTS, depth * VECTOR_ELEMENTS)
#endif
#define LOAD_OPERANDS(a, b, step)                                                                            \
    {                                                                                                        \
        const uint first_ = (begin + (uint)(step)) * VECTORS_K;                                              \
        load_im2col(&p, &z, a, im2col, &g, tap_of(&p, &z, first_ + OWN_VECTORS),                             \
                    first_ + OWN_VECTORS < depth);                                                           \
        LOAD_DENSE(b, first_);                                                                               \
    }
#endif
    const uint left = steps > begin ? min(steps - begin, p.slice) : 0;
#ifdef MATRIX_FMA
#define LOAD_BOTH(step) LOAD_OPERANDS(next_a, next_b, step)
#define STORE_BOTH(local_tile)                                                                               \
    {                                                                                                        \
        FLIP_QUADS(next_a, TILE_M, A_FLIP);                                                                  \
        store_quads(local_tile, next_a, TILE_M, A_K_MAJOR, false, zero);                                     \
        store_quads((local_tile) + TILE_K * PITCH_A, next_b, TILE_N, B_K_MAJOR, false, (element_t)0);        \
    }
#ifdef INT8_AS_SUM_T
    const element_t zero = (element_t)zero_of(&p);
#else
    const element_t zero = (element_t)0;
#endif
    int stage = 0;
    PRODUCT_DOUBLE_BUFFERED(sum, local_tiles, stage, (int)left, LOAD_BOTH, STORE_BOTH);
#else
#define LOAD_BOTH(stage, step, part) LOAD_OPERANDS(stage, (stage) + LOCAL_TILE_A_BYTES, step)
    const int all =
        (int)((left + LOCAL_TILES_PER_ITERATION - 1) / LOCAL_TILES_PER_ITERATION * LOCAL_TILES_PER_ITERATION);
    if (all > 0) MATRIX_PRODUCT(sum, LOCAL_TILE_ADDRESS(local_tiles), all, LOAD_BOTH);
#endif

#if (OUT_VECTORS || OUT_PIXELS) && !defined(MATRIX_FMA)
    store_tile(&p, &z, local_tiles, sum, m0, n0);
#else
    store_sums(&p, &z, t.product, sum, m0, n0);
#endif
}
