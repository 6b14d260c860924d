/* conv_matrix on XMX with 8 lanes (matrix_xmx8.h): a work-item loads half rows of both operands into
 * registers, one step ahead, and stores them in blocked (DPAS) layout. A step is 32 elements (64 for int8):
 * two vectors along k, or 32 rows across it.
 *
 * These GPUs have no 64-bit address arithmetic, so offsets within a tile are 32-bit byte offsets, and the
 * base of an operand's tile advances by a uniform amount; the im2col operand keeps one address per row. A
 * vector that doesn't exist (padding, or past the end of k) is read from a block of zeros, by selecting the
 * address: loaded values must not be modified before they are stored (load_vector_in_order). */
#define VECTORS_K (TILE_K / VECTOR_ELEMENTS)
#define BYTES(vecs) ((long)(vecs) * HALF)

/* What is read of x's padding. */
#if HAS_PAD_VALUE
#define PADDING p->bytes.blank
#else
#define PADDING ZERO_VECTOR
#endif

typedef struct operands {
#if DIRECTION == 2
    uint8 a[VECTORS_ACROSS(TILE_M)], b[VECTORS_ACROSS(TILE_N)];
#elif DIRECTION == 1
    uint8 a[PIECES(TILE_M)], b[VECTORS_ACROSS(TILE_N)];
#else
    uint8 a[PIECES(TILE_M)], b[PIECES(TILE_N)];
#endif
} operands;
static inline void store_operands(__local uchar *local_tile, __private const operands *o) {
#if DIRECTION == 2
    store_left_transposed(local_tile, o->a);
#else
    store_left(local_tile, o->a);
#endif
#if DIRECTION == 0
    store_right(local_tile + TILE_M * LINE, o->b);
#else
    store_right_transposed(local_tile + TILE_M * LINE, o->b);
#endif
}

static inline bool is_inside(const conv_matrix_params *p, int d, int h, int w) {
    bool inside = true;
#if PADDED
    inside = ((uint)h < (uint)p->source[1]) & ((uint)w < (uint)p->source[2]);
#if VOLUME
    inside = inside & ((uint)d < (uint)p->source[0]);
#endif
#endif
    return inside;
}

#if DIRECTION != 2
/* The rows of the im2col operand that a work-item gathers: address of their first tap (even outside of the
 * image), and its coordinates. */
typedef struct im2col_rows {
    xpu_addr from[PIECES(TILE_M)];
    int d[PIECES(TILE_M)], h[PIECES(TILE_M)], w[PIECES(TILE_M)];
} im2col_rows;
static inline void open_im2col(const conv_matrix_params *p, const product *z, __private im2col_rows *g,
                               uint m0) {
    const xpu_addr base = p->im2col + BYTES((long)z->group * p->im2col_group);
    UNROLL for (uint i = 0; i < PIECES(TILE_M); i++) {
        const pixel q = pixel_of(p, min(m0 + vector_row(i, true), p->rows - 1));
        g->d[i] = (int)q.d * p->step[0] + z->d.first, g->h[i] = (int)q.h * p->step[1] + z->h.first;
        g->w[i] = (int)q.w * p->step[2] + z->w.first;
        const long vecs = (long)q.n * p->im2col_pitch[0] + (long)g->d[i] * p->im2col_pitch[1] +
                          (long)g->h[i] * p->im2col_pitch[2] + (long)g->w[i] * p->im2col_pitch[3];
        g->from[i] = base + BYTES(vecs + (IS_1X1 ? vector_half(i, true) : 0));
    }
}

/* Offset of a tap's vectors from those of the first tap. */
static inline long ahead_of_tap(const conv_matrix_params *p, tap at) {
    const int d = p->tap_step[0] * p->im2col_pitch[1], h = p->tap_step[1] * p->im2col_pitch[2];
    const int w = p->tap_step[2] * p->im2col_pitch[3];
    return BYTES((VOLUME ? (int)at.d * d : 0) + (int)at.h * h + (int)at.w * w + (int)at.vec);
}
static inline void load_im2col(const conv_matrix_params *p, __private uint8 *to,
                               __private const im2col_rows *g, tap at, long ahead, bool on) {
    const int d = (int)at.d * p->tap_step[0], h = (int)at.h * p->tap_step[1], w = (int)at.w * p->tap_step[2];
    UNROLL for (uint i = 0; i < PIECES(TILE_M); i++) {
        const bool inside = on & is_inside(p, g->d[i] + d, g->h[i] + h, g->w[i] + w);
        to[i] = load_vector_in_order(inside ? g->from[i] + ahead : PADDING);
    }
}

#if DIRECTION == 1
/* Offset of w's rows for a tap's vector of channels. */
static inline long weights_of_tap(const conv_matrix_params *p, tap at) {
    return BYTES((int)(at.vec * VECTOR_ELEMENTS) * p->dense_pitch +
                 (VOLUME ? (int)at.d * p->dense_tap[0] : 0) + (int)at.h * p->dense_tap[1] +
                 (int)at.w * p->dense_tap[2]);
}
#endif

#if IS_1X1
/* The tap of a step, uniform for the work-group, and its offsets in the im2col operand and in w. */
typedef struct walk {
    tap at;
    long ahead, weights;
} walk;
static inline void find_tap(const conv_matrix_params *p, __private walk *k) {
    k->ahead = ahead_of_tap(p, k->at);
#if DIRECTION == 1
    k->weights = weights_of_tap(p, k->at);
#endif
}
static inline void next_step(const conv_matrix_params *p, const product *z, __private walk *k) {
    k->at.vec += VECTORS_K;
    k->ahead += LINE;
    k->weights += DIRECTION == 0 ? LINE : BYTES((long)TILE_K * p->dense_pitch);
    if (k->at.vec < p->per_tap.value) return;
    k->at.vec = 0;
    if (++k->at.w == z->w.taps.value) {
        k->at.w = 0, k->at.h++;
#if VOLUME
        if (k->at.h == z->h.taps.value) k->at.h = 0, k->at.d++;
#endif
    }
    find_tap(p, k);
}
#endif
#endif

#if DIRECTION == 0
/* w for the forward pass: rows are channels of y and contain all of K, of which `left` vectors remain. */
static inline void open_weights(const conv_matrix_params *p, __private uint *at, uint n0) {
    const uint pitch = (uint)BYTES(p->dense_pitch);
    open_vectors(at, pitch, (int)min(p->columns - n0, (uint)TILE_N), TILE_N, false);
}
static inline void load_weights(const conv_matrix_params *p, __private uint8 *to, xpu_addr from,
                                __private const uint *at, uint left) {
    UNROLL for (uint i = 0; i < PIECES(TILE_N); i++)
        to[i] = load_vector_in_order(IS_1X1 || (int)vector_half(i, false) < (int)left ? from + at[i]
                                                                                      : ZERO_VECTOR);
}
#elif DIRECTION == 1
/* w for the gradient of x: rows are channels of y at one tap and contain the channels of x; two adjacent rows
 * are interleaved. */
static inline void open_weights(const conv_matrix_params *p, __private uint *at, uint n0) {
    const uint pitch = (uint)BYTES(p->dense_pitch), last = (p->columns - 1 - n0) / 16 * 2 + IN_EIGHTS(TILE_N);
    UNROLL for (uint i = 0; i < PAIRS_ACROSS(TILE_N); i++)
        at[i] = pair_row(i, TILE_N) * pitch + min(pair_column(TILE_N), last) * (HALF / 2);
}
/* Loads K from element `first` of the tap on. */
static inline void load_weights(const conv_matrix_params *p, __private uint8 *to, xpu_addr base,
                                __private const uint *at, uint first) {
    const xpu_addr of[2] = {base, base + BYTES(p->dense_pitch)};
    UNROLL for (uint i = 0; i < PAIRS_ACROSS(TILE_N); i++) {
        const uint number = first + pair_row(i, TILE_N);
        prefetch_pair(to, i, number < p->depth ? of[0] + at[i] : ZERO_VECTOR,
                      number + 1 < p->depth ? of[1] + at[i] : ZERO_VECTOR, TILE_N);
    }
}
#else
/* y for the gradient of w: rows are pixels, K from `first` on, and contain channels. */
static inline void open_dense(const conv_matrix_params *p, __private uint *at, uint m0) {
    const uint pitch = (uint)BYTES(p->dense_pitch), last = (p->rows - 1 - m0) / 16 * 2 + IN_EIGHTS(TILE_M);
    UNROLL for (uint i = 0; i < PAIRS_ACROSS(TILE_M); i++)
        at[i] = pair_row(i, TILE_M) * pitch + min(pair_column(TILE_M), last) * (HALF / 2);
}
static inline void load_dense(const conv_matrix_params *p, __private uint8 *to, xpu_addr from,
                              __private const uint *at, uint first) {
    const xpu_addr of[2] = {from, from + BYTES(p->dense_pitch)};
    UNROLL for (uint i = 0; i < PAIRS_ACROSS(TILE_M); i++) {
        const uint number = first + pair_row(i, TILE_M);
        prefetch_pair(to, i, number < p->depth ? of[0] + at[i] : ZERO_VECTOR,
                      number + 1 < p->depth ? of[1] + at[i] : ZERO_VECTOR, TILE_M);
    }
}
/* x at these pixels, for the tap and channels of a work-item's columns. */
typedef struct column {
    xpu_addr from;
    int d, h, w;
} column;
static inline column column_of(const conv_matrix_params *p, const product *z, uint n0) {
    const tap at =
        tap_of(p, z, min(n0 / VECTOR_ELEMENTS + pair_column(TILE_N) / 2, p->columns / VECTOR_ELEMENTS - 1));
    const int d = (int)at.d * p->tap_step[0] + z->d.first, h = (int)at.h * p->tap_step[1] + z->h.first;
    const int w = (int)at.w * p->tap_step[2] + z->w.first;
    const long vecs = (long)z->group * p->im2col_group + (int)at.vec + (long)d * p->im2col_pitch[1] +
                      (long)h * p->im2col_pitch[2] + (long)w * p->im2col_pitch[3];
    return (column){p->im2col + BYTES(vecs) + pair_column(TILE_N) % 2 * (HALF / 2), d, h, w};
}
/* Distances in vectors from a pixel's source to the next one's: in the same row, in the next row, plane and
 * image. */
typedef struct ways {
    int pixel, line, plane, image;
} ways;
static inline ways ways_of(const conv_matrix_params *p) {
    ways to;
    to.pixel = p->step[2] * p->im2col_pitch[3];
    const int line = p->step[1] * p->im2col_pitch[2], back = (int)(p->extent[2].value - 1) * to.pixel;
    to.line = line - back;
    const int back_line = back + (int)(p->extent[1].value - 1) * line;
#if VOLUME
    const int plane = p->step[0] * p->im2col_pitch[1];
    to.plane = plane - back_line;
    to.image = p->im2col_pitch[0] - back_line - (int)(p->extent[0].value - 1) * plane;
#else
    to.plane = to.image = p->im2col_pitch[0] - back_line;
#endif
    return to;
}
static inline void load_im2col_columns(const conv_matrix_params *p, __private uint8 *to,
                                       __private const column *c, __private const ways *next, uint first) {
    UNROLL for (uint i = 0; i < PAIRS_ACROSS(TILE_N); i++) {
        const uint number = first + pair_row(i, TILE_N);
        const pixel q = pixel_of(p, number);
        const int d = (int)q.d * p->step[0], h = (int)q.h * p->step[1], w = (int)q.w * p->step[2];
        int vecs = (int)q.n * p->im2col_pitch[0] + (int)q.h * (p->step[1] * p->im2col_pitch[2]) +
                   (int)q.w * next->pixel;
#if VOLUME
        vecs += d * p->im2col_pitch[1];
#endif
        const bool inside = (number < p->depth) & is_inside(p, c->d + d, c->h + h, c->w + w);
        const bool line = q.w + 1 == p->extent[2].value, plane = line & (q.h + 1 == p->extent[1].value);
        const int w_after = line ? 0 : w + p->step[2], h_after = plane ? 0 : line ? h + p->step[1] : h;
        int d_after = d, way = plane ? next->plane : line ? next->line : next->pixel;
#if VOLUME
        const bool image = plane & (q.d + 1 == p->extent[0].value);
        d_after = image ? 0 : plane ? d + p->step[0] : d;
        way = image ? next->image : way;
#endif
        const bool too =
            (number + 1 < p->depth) & is_inside(p, c->d + d_after, c->h + h_after, c->w + w_after);
        prefetch_pair(to, i, inside ? c->from + BYTES(vecs) : ZERO_VECTOR,
                      too ? c->from + BYTES(vecs + way) : ZERO_VECTOR, TILE_N);
    }
}
#endif

MATRIX_KERNEL
__attribute__((reqd_work_group_size(THREADS, 1, 1))) void conv_matrix(const conv_matrix_params params) {
    const conv_matrix_params *const p = &params;
    __local uchar local_tiles[2 * STAGE] __attribute__((aligned(64)));
    const tile_origin t = find_conv_tile(p);
    const product z = product_of(p, t.product);
    operands o;
    sum_block sum[SUMS_M][SUMS_N];
    UNROLL for (int i = 0; i < SUMS_M; i++) UNROLL
        for (int j = 0; j < SUMS_N; j++) sum[i][j] = 0;

    const uint begin = z.slice * p->slice; /* in steps */
#if DIRECTION == 2
    const uint steps = (p->depth + TILE_K - 1) / TILE_K;
    uint at_a[PAIRS_ACROSS(TILE_M)];
    open_dense(p, at_a, t.m);
    const column c = column_of(p, &z, t.n);
    const ways next = ways_of(p);
    xpu_addr other = p->other + BYTES((long)z.group * p->dense_group + t.m / VECTOR_ELEMENTS +
                                      (long)(begin * TILE_K) * p->dense_pitch);
    const long other_step = BYTES((long)TILE_K * p->dense_pitch);
    uint first = begin * TILE_K;
#define LOAD_BOTH(step)                                                                                      \
    {                                                                                                        \
        load_dense(p, o.a, other, at_a, first);                                                              \
        load_im2col_columns(p, o.b, &c, &next, first);                                                       \
        other += other_step, first += TILE_K;                                                                \
    }
#else
    const uint depth = z.d.taps.value * z.h.taps.value * z.w.taps.value * p->per_tap.value; /* in vectors */
    const uint steps = (depth + VECTORS_K - 1) / VECTORS_K;
    im2col_rows g;
    open_im2col(p, &z, &g, t.m);
#if DIRECTION == 0
    uint at_b[PIECES(TILE_N)];
    xpu_addr other =
        p->other + BYTES((long)z.group * p->dense_group + (long)t.n * p->dense_pitch + begin * VECTORS_K);
#else
    uint at_b[PAIRS_ACROSS(TILE_N)];
    xpu_addr other =
        p->other +
        BYTES((long)z.group * p->dense_group + t.n / VECTOR_ELEMENTS + (long)z.d.tap * p->dense_tap_first[0] +
              (long)z.h.tap * p->dense_tap_first[1] + (long)z.w.tap * p->dense_tap_first[2]);
#endif
    open_weights(p, at_b, t.n);
    uint first = begin * VECTORS_K;
#if IS_1X1 /* past the end the last step is read again */
    walk k = {.at = tap_of(p, &z, first)};
    find_tap(p, &k);
#define LOAD_BOTH(step)                                                                                      \
    {                                                                                                        \
        load_im2col(p, o.a, &g, k.at, k.ahead, true);                                                        \
        load_weights(p, o.b, other + k.weights, at_b, k.at.vec * VECTOR_ELEMENTS);                           \
        if ((uint)(step) + 1 < left) next_step(p, &z, &k);                                                   \
    }
#else
#define LOAD_BOTH(step)                                                                                      \
    {                                                                                                        \
        const uint own_ = first + vector_half(0, true);                                                      \
        const tap at_ = tap_of(p, &z, own_);                                                                 \
        load_im2col(p, o.a, &g, at_, ahead_of_tap(p, at_), own_ < depth);                                    \
        load_weights(p, o.b, other, at_b, depth - first);                                                    \
        other += LINE, first += VECTORS_K;                                                                   \
    }
#endif
#endif
    const uint left = steps > begin ? min(steps - begin, p->slice) : 0;
#define STORE_BOTH(local_tile) store_operands(local_tile, &o)
    int stage = 0;
    PRODUCT_DOUBLE_BUFFERED(sum, local_tiles, stage, (int)left, LOAD_BOTH, STORE_BOTH);

#if OUT_VECTORS
    barrier(CLK_LOCAL_MEM_FENCE); /* the last tile has been read */
    store_tile(p, &z, local_tiles, sum, t.m, t.n);
#else
    store_sums(p, &z, t.product, sum, t.m, t.n);
#endif
}
