/* The right operand of NVIDIA's units where it is quantised and its lines lie along k: octets of elements
 * become pieces of numbers, of MATRIX_T, on their way through registers into a slab. While a step is
 * multiplied the next one's octets, scales and zero points come into registers. Groups along k are multiples
 * of 8, and so is k. -DLINES_SHARE=1: several lines have a scale and a zero in common. Wants quantised_read.h
 * and matrix.h */

#define PIECES_B (TILE_K / PIECE) /* of a row of the slab */
#define LINE_STEP (TILE_K * E_BITS / 8)
/* Where number i of a work-item goes in the slab: pieces of rows that are a multiple of eight apart change
 * places alike, and needn't be reckoned again. */
#define ROWS_APART (THREADS / PIECES_B)
#define OCTET_PLACE(i)                                                                                       \
    (slab_place(COPY_ROW(ROWS_APART % 8 ? (i) : 0, PIECES_B), COPY_PIECE(0, PIECES_B), PIECES_B) +           \
     (ROWS_APART % 8 ? 0 : (i) * ROWS_APART * SLAB_PITCH(PIECES_B) * 16))

/* A work-item's octets of a step, one of each of COPIES(TILE_N) lines, at the same place along k. */
typedef struct operand_lines {
    xpu_addr from;              /* of the tile's first line, the next octet */
    uint row[COPIES(TILE_N)];   /* lines from there */
    xpu_addr scales, zeros;     /* of the first line's first groups */
    uint group[COPIES(TILE_N)]; /* groups from there, or, in tiles, scales */
    uint k;                     /* of the next octet */
    octet bits[COPIES(TILE_N)];
    float scale[COPIES(TILE_N)], zero[COPIES(TILE_N)];
} operand_lines;

/* From element k of line n on; the matrix has `rows` lines, the last of which stands for those beyond. */
static inline void open_lines(__private operand_lines *o, const quantised_lines *q, long b, long n, long k,
                              int rows) {
    const uint first = LINES_SHARE ? (uint)n / (uint)q->group_across : (uint)n;
    o->k = (uint)k + COPY_PIECE(0, PIECES_B) * 8;
    o->from = q->data + (b * q->batch + n * q->across + o->k) * E_BITS / 8;
#ifdef SCALE
    o->scales = q->scale.data + scales_place(q, b, TILED ? 0 : first) * sizeof(STORED(SCALE));
#endif
#if ZERO_FORM
    o->zeros = q->zero.data + (b * q->zero.batch + first * q->zero.across) * sizeof(STORED(ZERO));
#endif
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_N); i++) {
        o->row[i] = min(COPY_ROW(i, PIECES_B), (uint)rows - 1);
        o->group[i] = TILED         ? (uint)scales_across(q, n + o->row[i])
                      : LINES_SHARE ? ((uint)n + o->row[i]) / (uint)q->group_across - first
                                    : o->row[i];
    }
}

/* Reads them. */
static inline void fetch_octets(__private operand_lines *o, const quantised_lines *q) {
    const long group = group_of(q, o->k);
    const uint pitch = (uint)q->across * E_BITS / 8;
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_N); i++) {
        o->bits[i] = read_octet(o->from + o->row[i] * pitch, 0);
        o->scale[i] = FOLD, o->zero[i] = 0;
#ifdef SCALE
        const xpu_addr scales = o->scales + scale_along(q, group) * sizeof(STORED(SCALE));
        const uint across = o->group[i] * (TILED ? 1 : (uint)q->scale.across);
        o->scale[i] *= (float)LOAD(SCALE, XPU_CPTR(STORED(SCALE), scales), across);
#endif
#if ZERO_FORM
        const xpu_addr zeros = o->zeros + group * q->zero.along * sizeof(STORED(ZERO));
        o->zero[i] = (float)LOAD(ZERO, XPU_CPTR(STORED(ZERO), zeros), o->group[i] * (uint)q->zero.across);
#endif
    }
}
static inline void step_octets(__private operand_lines *o, bool on) {
    o->from += on ? LINE_STEP : 0, o->k += on ? TILE_K : 0;
}

/* Writes their numbers down. */
static inline void keep_octets(slab to, __private const operand_lines *o, const quantised_lines *q) {
    WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_N); i++) {
        const float8 v = scaled_octet(q, o->bits[i], o->scale[i], o->zero[i]);
        const uint4 piece = {round_pair(v.s0, v.s1), round_pair(v.s2, v.s3), round_pair(v.s4, v.s5),
                             round_pair(v.s6, v.s7)};
        store_piece(to + OCTET_PLACE(i), piece);
    }
}

/* A step of which `depth` is left, zeros behind it, without looking ahead. */
static inline void load_octets(slab to, __private operand_lines *o, const quantised_lines *q, int depth) {
    if ((int)COPY_PIECE(0, PIECES_B) * 8 < depth) {
        fetch_octets(o, q);
        keep_octets(to, o, q);
    } else {
        WRITTEN_OUT for (uint i = 0; i < COPIES(TILE_N); i++) store_piece(to + OCTET_PLACE(i), (uint4)(0));
    }
    step_octets(o, true);
}
