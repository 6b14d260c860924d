/* Quantized K-major right operand on XMX (16 lanes): a transposed block read puts a row's elements into its
 * lane, where they are dequantized to MATRIX_T in registers. The next step's elements, scales and zero points
 * are loaded during a step.
 *
 * Contract: groups along k are multiples of a step of 32 elements, or whole rows.
 * Options: ROWS_SHARE_SCALES=1, several rows share scales and zero points; those of quantized_load.h; include
 * after gemm_xmx.h's block addresses. */
#define DWORDS_B E_BITS /* of a line in a step */
/* Blocks of 16 lines of which a team makes the numbers of a step. */
#if SHARED_B
#define MADE_N 1
#else
#define MADE_N SUMS_N
#endif
typedef struct octets {
    uint elements[MADE_N][DWORDS_B];
    float scale[MADE_N], zero[MADE_N];
    int group_end; /* of the group along k whose scales and zeros these are */
} octets;

/* Where a lane's scales and zeros lie. */
typedef struct line_parts {
    long scale[MADE_N], zero[MADE_N];
} line_parts;

/* Lines from n on, of `rows`, the last of which stands for those beyond. */
static inline void open_parts(__private line_parts *p, const quantized_lines *q, long b, int n, int rows) {
    WRITTEN_OUT for (int j = 0; j < MADE_N; j++) {
        const uint line = (uint)min(n + j * 16 + (int)(get_local_id(0) % MATRIX_TEAM), rows - 1);
        const long across = LINES_SHARE ? line / (uint)q->group_across : line;
        p->scale[j] = scales_place(q, b, across);
        p->zero[j] = place_of(&q->zero, b, across);
    }
}

/* Reads the step that begins at element k of the lines, which are `length` long; scales and zeros where their
 * group begins. */
static inline void fetch_octets(__private octets *o, __private blocks_b *b, __private const line_parts *p,
                                const quantized_lines *q, int k, int length) {
    WRITTEN_OUT for (int j = 0; j < MADE_N; j++) {
        union {
            NUMBERS(uint, DWORDS_B);
            uint dwords[DWORDS_B];
        } v;
        READ_BLOCK(READ_B, v, KEPT_OF(b, j), 0, OFFSET(Y_OF_B(j)));
        WRITTEN_OUT for (int i = 0; i < DWORDS_B; i++) o->elements[j][i] = v.dwords[i];
    }
    if (k < o->group_end) return;
    const long group = group_of(q, min(k, length - 1)), end = (group + 1) * q->group_along;
    o->group_end = end < length ? (int)end : INT_MAX;
    WRITTEN_OUT for (int j = 0; j < MADE_N; j++) {
        o->scale[j] = scale_of(q, p->scale[j], group);
        o->zero[j] = zero_of(q, p->zero[j], group);
    }
}

#if E_FORM == FORM_E4M3FN
/* Are there NaN? */
static inline bool has_nan(__private const octets *o) {
    uint found = 0;
    WRITTEN_OUT for (int j = 0; j < MADE_N; j++) WRITTEN_OUT for (int i = 0; i < DWORDS_B; i++) found |=
        (o->elements[j][i] & 0x7f7f7f7fu) + 0x01010101u;
    return sub_group_any((found & 0x80808080u) != 0);
}
/* A byte of NaN for each of them. */
static inline short8 put_nan(short8 v, octet bits) {
    return select(v, (short8)0x7fff, (convert_short8(as_char8(bits)) & (short)0x7f) == (short)0x7f);
}
#endif

/* Number i of a lane's octets of a line. */
static inline octet octet_of(__private const octets *o, int j, int i) {
    return E_BITS == 8 ? (octet)(o->elements[j][i * 2 % DWORDS_B], o->elements[j][(i * 2 + 1) % DWORDS_B])
                       : (octet)(o->elements[j][i], 0);
}

/* Makes right blocks of them: [block of columns][half of the step]. */
static inline void make_numbers(__private int8 (*to)[2], __private const octets *o,
                                const quantized_lines *q) {
    union {
        short8 numbers[4];
        int8 halves[2];
    } v[MADE_N];
    WRITTEN_OUT for (int j = 0; j < MADE_N; j++) WRITTEN_OUT for (int i = 0; i < 4; i++) v[j].numbers[i] =
        ROUND_BLOCK(scaled_octet(q, octet_of(o, j, i), o->scale[j], o->zero[j]));
#if E_FORM == FORM_E4M3FN
    if (has_nan(o))
        WRITTEN_OUT for (int j = 0; j < MADE_N; j++) WRITTEN_OUT for (int i = 0; i < 4; i++) v[j].numbers[i] =
            put_nan(v[j].numbers[i], octet_of(o, j, i));
#endif
    WRITTEN_OUT for (int j = 0; j < MADE_N; j++) to[j][0] = v[j].halves[0], to[j][1] = v[j].halves[1];
}

#if SHARED_B
/* Teams below each other multiply with the same lines: each makes the numbers of one block of 16 of them in
 * one step of a round, and all read them from local memory, where two rounds lie. */
#define ROUND (TEAMS_DOWN / SUMS_N) /* steps */
#define MADE_BLOCK 256              /* dwords */
#define MADE_ROUND (TEAMS_ACROSS * TEAMS_DOWN * MADE_BLOCK)
static inline void write_made(__local uint *to, __private const octets *o, const quantized_lines *q) {
    int8 right[1][2];
    make_numbers(right, o, q);
    intel_sub_group_block_write8(to, as_uint8(right[0][0]));
    intel_sub_group_block_write8(to + 128, as_uint8(right[0][1]));
}
static inline void read_made(__private int8 (*right)[2], const __local uint *from) {
    WRITTEN_OUT for (int j = 0; j < SUMS_N; j++) WRITTEN_OUT for (int h = 0; h < 2; h++) right[j][h] =
        as_int8(intel_sub_group_block_read8(from + j * MADE_BLOCK + h * 128));
}
#endif
