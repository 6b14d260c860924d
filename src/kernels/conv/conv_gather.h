/* conv_matrix through local memory, on NVIDIA tensor cores and by multiply-adds. In every step each work-item
 * copies vectors of both operands to local memory; the addresses of the im2col operand are computed on the
 * fly. */
#define PIECES_K (TILE_K / PIECE)
#define A_PIECES (A_K_FAST ? PIECES_K : TILE_M / PIECE) /* of a row of the tile */
#define B_PIECES (B_K_FAST ? PIECES_K : TILE_N / PIECE)
#define PLACE_IN(base, pieces) ((base) + (long)(pieces) * (PIECE * ELEMENT))

/* Brings in vector number i of a work-item, which lies `from` vectors beyond `base`; zeros where it isn't
 * `on`, without a branch. Units' tiles are copied to while others are multiplied, multiply-adds' pass through
 * registers. */
#ifdef MATRIX_FMA
typedef __private quad *slab;
static inline void bring(slab to, uint i, const uint pieces, xpu_addr base, int from, bool on) {
    read_quad(&to[i], PLACE_IN(base, on ? from : 0), on);
}
static inline void bring_or_fill(slab to, uint i, const uint pieces, xpu_addr base, int from, bool on,
                                 uint word) {
    bring(to, i, pieces, base, from, on);
    WRITTEN_OUT for (int j = 0; j < QUAD_PARTS; j++) to[i].parts[j] = on ? to[i].parts[j] : (PART)(word);
}
#else
static inline void bring(slab to, uint i, const uint pieces, xpu_addr base, int from, bool on) {
    copy_part_ahead(to + slab_place(COPY_ROW(i, pieces), COPY_PIECE(i, pieces), pieces),
                    PLACE_IN(base, on ? from : 0), 16, on ? 16 : 0);
}
static inline void bring_or_fill(slab to, uint i, const uint pieces, xpu_addr base, int from, bool on,
                                 uint word) {
    copy_or_fill(to + slab_place(COPY_ROW(i, pieces), COPY_PIECE(i, pieces), pieces), PLACE_IN(base, from),
                 on, word);
}
#endif

/* The rows of the im2col operand that a work-item copies: where their tap 0 lies, in vectors, and where in
 * the image. */
#if SOUGHT != 2
typedef struct gather {
    int from[COPIES(TILE_M)];
#if BLANK
    uint blank; /* four bytes of what x is in its padding */
#endif
#if PADDED
    int h[COPIES(TILE_M)], w[COPIES(TILE_M)];
#if VOLUME
    int d[COPIES(TILE_M)];
#endif
#endif
} gather;

static inline void open_gather(const conv_matrix_params *p, const product *z, __private gather *g, uint m0) {
#if BLANK
    g->blank = ((uint)zero_of(p) & 0xff) * 0x01010101u ^ A_FLIP;
#endif
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_M); i++) {
        const pixel q = pixel_of(p, min(m0 + (uint)COPY_ROW(i, A_PIECES), p->rows - 1));
        const int d = (int)q.d * p->step[0] + z->d.first, h = (int)q.h * p->step[1] + z->h.first;
        const int w = (int)q.w * p->step[2] + z->w.first;
        g->from[i] = (int)q.n * p->gathered_pitch[0] + d * p->gathered_pitch[1] + h * p->gathered_pitch[2] +
                     w * p->gathered_pitch[3] + (ONE_TAP ? (int)COPY_PIECE(i, A_PIECES) : 0);
#if PADDED
        g->h[i] = h, g->w[i] = w;
#if VOLUME
        g->d[i] = d;
#endif
#endif
    }
}

/* Brings in the rows' vectors from the tap's source; zeros, or what stands for them, where that is outside,
 * and beyond the last tap. */
static inline void load_gather(const conv_matrix_params *p, const product *z, slab to, xpu_addr base,
                               __private const gather *g, tap at, bool on) {
    const int d = (int)at.d * p->tap_step[0], h = (int)at.h * p->tap_step[1], w = (int)at.w * p->tap_step[2];
    const int ahead =
        d * p->gathered_pitch[1] + h * p->gathered_pitch[2] + w * p->gathered_pitch[3] + (int)at.piece;
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_M); i++) {
        bool inside = on;
#if PADDED
        inside =
            inside & ((uint)(g->h[i] + h) < (uint)p->source[1]) & ((uint)(g->w[i] + w) < (uint)p->source[2]);
#if VOLUME
        inside = inside & ((uint)(g->d[i] + d) < (uint)p->source[0]);
#endif
#endif
#if BLANK
        bring_or_fill(to, i, A_PIECES, base, g->from[i] + ahead, inside, g->blank);
#else
        bring(to, i, A_PIECES, base, g->from[i] + ahead, inside);
#endif
    }
}
#endif

#if SOUGHT == 0
/* w, whose rows are channels of y and hold all of k. */
static inline void load_weights(const conv_matrix_params *p, slab to, xpu_addr base, uint n0, uint pieces,
                                bool on) {
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_N); i++) {
        const uint row = (uint)COPY_ROW(i, B_PIECES);
        bring(to, i, B_PIECES, base, (int)min(n0 + row, p->columns - 1) * p->other_pitch + (int)pieces, on);
    }
}
#elif SOUGHT == 1
/* w, whose rows are channels of y at one tap and hold the channels of x. `first` is k at the tile's row 0. */
static inline void load_weights(const conv_matrix_params *p, const product *z, slab to, xpu_addr base,
                                uint n0, uint first, uint end) {
#if ONE_TAP
    const tap all = tap_of(p, z, first / PIECE);
#endif
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_N); i++) {
        const uint row = COPY_ROW(i, B_PIECES), piece = COPY_PIECE(i, B_PIECES);
#if ONE_TAP
        const tap at = all;
        const uint beyond = row; /* the tap's element that its vector begins with */
#else
        const tap at = tap_of(p, z, (first + row) / PIECE);
        const uint beyond = (first + row) % PIECE;
#endif
        const bool on = at.piece * PIECE + beyond < p->depth && (ONE_TAP ? first : first + row) < end;
        const int column = (int)min(n0 / PIECE + piece, (p->columns - 1) / PIECE);
        const int from = (int)(at.piece * PIECE) * p->other_pitch + (int)beyond * p->other_pitch + column +
                         (int)at.d * p->other_tap[0] + (int)at.h * p->other_tap[1] +
                         (int)at.w * p->other_tap[2];
        bring(to, i, B_PIECES, base, from, on);
    }
}
#else
#if PIXELS_FAST
/* y, whose rows are its channels in an image and hold pixels. A vector is of one image, where those of the
 * images before take so many places more than there are pixels. */
static inline void load_given(const conv_matrix_params *p, slab to, xpu_addr base, uint m0, uint first) {
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_M); i++) {
        const uint row = COPY_ROW(i, A_PIECES), number = first + (uint)COPY_PIECE(i, A_PIECES) * PIECE;
        const int from = (int)(number / PIECE) + (int)pixel_of(p, number).n * p->other_image +
                         (int)min(m0 + row, p->rows - 1) * p->other_pitch;
        bring(to, i, A_PIECES, base, from, number < p->depth);
    }
}
#else
/* y, whose rows are pixels and hold its channels. */
static inline void load_given(const conv_matrix_params *p, slab to, xpu_addr base, uint m0, uint first) {
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_M); i++) {
        const uint row = COPY_ROW(i, A_PIECES), piece = COPY_PIECE(i, A_PIECES), number = first + row;
        const bool on = number < p->depth;
        const int from = (int)number * p->other_pitch + (int)min(m0 / PIECE + piece, (p->rows - 1) / PIECE);
        bring(to, i, A_PIECES, base, from, on);
    }
}
#endif
/* x under those pixels, at the tap and channels of each column. */
typedef struct column {
    int from, d, h, w;
} column;
static inline void load_unfolded(const conv_matrix_params *p, slab to, xpu_addr base, column c, uint first) {
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_N); i++) {
        const uint number = first + (uint)COPY_ROW(i, B_PIECES);
        const pixel q = pixel_of(p, number);
        bool inside = number < p->depth;
        const int h = (int)q.h * p->step[1], w = (int)q.w * p->step[2];
        int from =
            c.from + (int)q.n * p->gathered_pitch[0] + h * p->gathered_pitch[2] + w * p->gathered_pitch[3];
#if VOLUME
        const int d = (int)q.d * p->step[0];
        from += d * p->gathered_pitch[1];
#endif
#if PADDED
        inside = inside & ((uint)(c.h + h) < (uint)p->source[1]) & ((uint)(c.w + w) < (uint)p->source[2]);
#if VOLUME
        inside = inside & ((uint)(c.d + d) < (uint)p->source[0]);
#endif
#endif
        bring(to, i, B_PIECES, base, from, inside);
    }
}
#endif

MATRIX_KERNEL
__attribute__((reqd_work_group_size(THREADS, 1, 1))) void conv_matrix(const conv_matrix_params p) {
#ifdef MATRIX_FMA
    __local number_t slabs[2 * STAGE] SLAB_ALIGNED;
    quad next_a[COPIES(TILE_M)], next_b[COPIES(TILE_N)];
    acc_t sum[SUMS_M][SUMS_N];
    WRITTEN_OUT for (int i = 0; i < SUMS_M; i++) WRITTEN_OUT for (int j = 0; j < SUMS_N; j++) sum[i][j] =
        (acc_t)0;
#else
    __local uchar slabs[STAGES * STAGE_BYTES] SLAB_ALIGNED;
    fragment_sum sum[FRAGMENTS_M][FRAGMENTS_N];
    WRITTEN_OUT for (int i = 0; i < FRAGMENTS_M; i++) WRITTEN_OUT for (int j = 0; j < FRAGMENTS_N; j++)
        sum[i][j] = (fragment_sum)0;
#endif
    const tile_place t = find_tile(&p);
    const product z = product_of(&p, t.product);
    const uint m0 = t.m, n0 = t.n;

    const xpu_addr gathered = PLACE_IN(p.gathered, (long)z.group * p.gathered_group);
    const uint begin = z.slice * p.slice; /* in steps */

#if SOUGHT == 2
    const xpu_addr other = PLACE_IN(p.other, (long)z.group * p.other_group);
    const tap at = tap_of(&p, &z, min(n0 / PIECE + (uint)COPY_PIECE(0, B_PIECES), p.columns / PIECE - 1));
    column c = {.d = (int)at.d * p.tap_step[0] + z.d.first,
                .h = (int)at.h * p.tap_step[1] + z.h.first,
                .w = (int)at.w * p.tap_step[2] + z.w.first};
    c.from =
        (int)at.piece + c.d * p.gathered_pitch[1] + c.h * p.gathered_pitch[2] + c.w * p.gathered_pitch[3];
    const uint steps = (p.depth + TILE_K - 1) / TILE_K;
#define LOAD_OPERANDS(a, b, step)                                                                            \
    {                                                                                                        \
        const uint first_ = (begin + (uint)(step)) * TILE_K;                                                 \
        load_given(&p, a, other, m0, first_);                                                                \
        load_unfolded(&p, b, gathered, c, first_);                                                           \
    }
#else
    const uint taps = z.d.taps.value * z.h.taps.value * z.w.taps.value, depth = taps * p.per_tap.value;
    const uint steps = (depth + PIECES_K - 1) / PIECES_K;
    gather g;
    open_gather(&p, &z, &g, m0);
#if ONE_TAP
#define OWN_PIECES 0
#else
#define OWN_PIECES (uint) COPY_PIECE(0, A_PIECES)
#endif
#if SOUGHT == 0
    const xpu_addr other = PLACE_IN(p.other, (long)z.group * p.other_group);
#define LOAD_OTHER(stage, first)                                                                             \
    load_weights(&p, stage, other, n0, (first) + (uint)COPY_PIECE(0, B_PIECES),                              \
                 (first) + (uint)COPY_PIECE(0, B_PIECES) < depth)
#else
    const xpu_addr other =
        PLACE_IN(p.other, (long)z.group * p.other_group + z.d.tap * p.other_tap_first[0] +
                              z.h.tap * p.other_tap_first[1] + z.w.tap * p.other_tap_first[2]);
#define LOAD_OTHER(stage, first) load_weights(&p, &z, stage, other, n0, (first) * PIECE, depth * PIECE)
#endif
#define LOAD_OPERANDS(a, b, step)                                                                            \
    {                                                                                                        \
        const uint first_ = (begin + (uint)(step)) * PIECES_K;                                               \
        load_gather(&p, &z, a, gathered, &g, tap_of(&p, &z, first_ + OWN_PIECES),                            \
                    first_ + OWN_PIECES < depth);                                                            \
        LOAD_OTHER(b, first_);                                                                               \
    }
#endif
    const uint left = steps > begin ? min(steps - begin, p.slice) : 0;
#ifdef MATRIX_FMA
#define LOAD_BOTH(step) LOAD_OPERANDS(next_a, next_b, step)
#define KEEP_BOTH(slab)                                                                                      \
    {                                                                                                        \
        FLIP_QUADS(next_a, TILE_M, A_FLIP);                                                                  \
        keep_quads(slab, next_a, TILE_M, A_K_FAST, false, zero);                                             \
        keep_quads((slab) + TILE_K * PITCH_A, next_b, TILE_N, B_K_FAST, false, (number_t)0);                 \
    }
#ifdef BYTES_AS_NUMBERS
    const number_t zero = (number_t)zero_of(&p);
#else
    const number_t zero = (number_t)0;
#endif
    int stage = 0;
    PRODUCT_BY_TURNS(sum, slabs, stage, (int)left, LOAD_BOTH, KEEP_BOTH);
#else
#define LOAD_BOTH(stage, step, part) LOAD_OPERANDS(stage, (stage) + SLAB_A_BYTES, step)
    const int all = (int)((left + SLABS_AT_ONCE - 1) / SLABS_AT_ONCE * SLABS_AT_ONCE);
    if (all > 0) MATRIX_PRODUCT(sum, SLAB_OF(slabs), all, LOAD_BOTH);
#endif

#if (OUT_PIECES || OUT_PIXELS) && !defined(MATRIX_FMA)
    put_tile(&p, &z, slabs, sum, m0, n0);
#else
    put_sums(&p, &z, t.product, sum, m0, n0);
#endif
}
