/* Quantized K-major right operand on NVIDIA tensor cores: dequantizes elements to MATRIX_T in registers, on
 * the way from global to local memory.
 *
 * A work-item loads runs of up to 16 bytes from ROWS_PER_ITEM rows, so that a step needs few loads and as
 * many scales as groups begin in it. The next step's runs, scales and zero points are prefetched into
 * registers during a step.
 * Contract: k is a multiple of 8; groups along k have 8 * GROUP_OCTETS elements or, if GROUP_OCTETS is 8,
 * whole rows; rows are aligned to ROW_ALIGNMENT bytes: 4 (8 for 8-bit elements), 8 or 16.
 * Options: ROWS_SHARE_SCALES=1, several rows share scales and zero points; those of quantized_load.h and
 * matrix.h. */

#define VECTORS_B (TILE_K / VECTOR_ELEMENTS) /* per row of the tile */
#define OCTETS VECTORS_PER_ITEM(TILE_N)      /* per work-item */
#define AT_MOST(a, b) ((a) < (b) ? (a) : (b))
#define VEC8_PER_RUN AT_MOST(16 / E_BITS, AT_MOST(OCTETS, VECTORS_B))
#define ROWS_PER_ITEM (OCTETS / VEC8_PER_RUN)
#define RUNS (VECTORS_B / VEC8_PER_RUN) /* per row */
#define RUN_LINE(j) ((uint)get_local_id(0) / RUNS + (j) * (THREADS / RUNS))
#define RUN_VECTOR ((uint)get_local_id(0) % RUNS * VEC8_PER_RUN)
#define RUN_WORDS (VEC8_PER_RUN * E_BITS / 4)
#define VEC8_PER_SCALE AT_MOST(GROUP_OCTETS, VEC8_PER_RUN) /* that share a scale */

/* A work-item's data of one row. */
typedef struct line_run {
    xpu_addr from;      /* address of the next run */
    long scales, zeros; /* offsets of the row's scales and zero points */
    uint words[RUN_WORDS];
    float scale[VEC8_PER_RUN / VEC8_PER_SCALE], zero[VEC8_PER_RUN / VEC8_PER_SCALE];
} line_run;
typedef struct quantized_tile {
    uint k; /* position of the next runs */
    line_run line[ROWS_PER_ITEM];
} quantized_tile;

/* Starts at element k of row n; the matrix has `rows` of the tile's rows. Rows beyond repeat the last one. */
static inline void open_quantized(__private quantized_tile *o, const quantized_lines *q, long b, long n,
                                  long k, int rows) {
    o->k = (uint)k + RUN_VECTOR * 8;
    UNROLL for (uint j = 0; j < ROWS_PER_ITEM; j++) {
        const uint line = (uint)n + min(RUN_LINE(j), (uint)rows - 1);
        const uint across = ROWS_SHARE_SCALES ? line / (uint)q->group_across : line;
        o->line[j].from = q->data + (b * q->batch + line * q->across + o->k) * E_BITS / 8;
        o->line[j].scales = scales_offset(q, b, across);
        o->line[j].zeros = place_of(&q->zero, b, across);
    }
}

/* Loads the next runs. */
static inline void prefetch_quantized(__private quantized_tile *o, const quantized_lines *q) {
    const uint at_once = AT_MOST(ROW_ALIGNMENT / 4, AT_MOST(RUN_WORDS, 4));
    UNROLL for (uint j = 0; j < ROWS_PER_ITEM; j++) {
        __private line_run *to = &o->line[j];
        UNROLL for (uint i = 0; i < RUN_WORDS; i += at_once) {
            uint4 v = 0;
            if (at_once == 4) v = load_vector_nc(to->from + i * 4);
            if (at_once == 2) v.xy = XPU_CPTR(uint2, to->from)[i / 2];
            if (at_once == 1) v.x = XPU_CPTR(uint, to->from)[i];
            const uint words[4] = {v.x, v.y, v.z, v.w};
            UNROLL for (uint w = 0; w < at_once; w++)
                to->words[i + w] = words[w];
        }
        UNROLL for (uint i = 0; i < VEC8_PER_RUN / VEC8_PER_SCALE; i++) {
            const long group = group_of(q, o->k + i * VEC8_PER_SCALE * 8);
            to->scale[i] = scale_of(q, to->scales, group), to->zero[i] = zero_of(q, to->zeros, group);
        }
    }
}
static inline void advance_quantized(__private quantized_tile *o, bool on) {
    UNROLL for (uint j = 0; j < ROWS_PER_ITEM; j++)
        o->line[j].from += on ? TILE_K * E_BITS / 8 : 0;
    o->k += on ? TILE_K : 0;
}

/* Dequantizes pairs of elements with two-element instructions, with the same rounding as single ones. This
 * requires 4-bit integers with scales of MATRIX_T or none, and zero points such that at most 256 is
 * subtracted (PAIR_64); or signed bytes without scale and zero point. */
#define OWN_SCALE_bf16bf16 1
#define OWN_SCALE_f16f16 1
#define SMALL_ZERO_i8 1
#define IS_HALF_f16 1
#define IS_HALF XPU_CAT(IS_HALF_, MATRIX_T)
#ifdef SCALE
#define HAS_OWN_SCALE XPU_CAT(OWN_SCALE_, XPU_CAT(MATRIX_T, SCALE))
#else
#define HAS_OWN_SCALE 1
#endif
#if E_FORM > FORM_UNSIGNED || !SCALE_IS_SHORT
#define FOUR_BITS_IN_PAIRS 0
#elif ZERO_FORM
#define FOUR_BITS_IN_PAIRS                                                                                   \
    (E_BITS == 4 && HAS_OWN_SCALE && ZERO_FORM == 1 && XPU_CAT(SMALL_ZERO_, ZERO) && !HAS_ZERO_OFFSET)
#else
#define FOUR_BITS_IN_PAIRS (E_BITS == 4 && HAS_OWN_SCALE)
#endif
#if !defined(SCALE) && !ZERO_FORM && !HAS_ZERO_OFFSET
#define BYTES_IN_PAIRS (E_BITS == 8 && E_FORM == FORM_SIGNED)
#else
#define BYTES_IN_PAIRS 0
#endif

/* Byte i of `low` and byte j of `high` in the low bytes of two 16-bit halves; the high bytes are
 * undefined. */
static inline uint bytes_in_pair(uint low, const uint i, uint high, const uint j) {
#ifdef XPU_HAS_INLINE_PTX
    return xpu_bytes(low, high, 0x0400u | j << 8 | i);
#else
    return (low >> i * 8 & 255) | high >> j * 8 << 16;
#endif
}
#if FOUR_BITS_IN_PAIRS
static inline uint4 pieces_of(const quantized_lines *q, octet bits, float scale, float zero) {
    const int place = XPU_CAT(ONE_OF_64_, MATRIX_T);
    const float away = 64.0f + SIGNED_BIAS + (HAS_ZERO_OFFSET ? (float)q->zero_offset : 0) + zero;
    const uint by = round_pair(-away, -away), times = round_pair(scale, scale);
    const uint even = bits.x << place, odd = place == 4 ? bits.x : bits.x >> (4 - place);
    const uint mask = 0x000f000fu << place,
               base = XPU_CAT(PAIR_64_, MATRIX_T) | (SIGNED_BIAS ? 0x00080008u << place : 0);
    uint4 v = {bits_into(bytes_in_pair(even, 0, odd, 0), mask, base),
               bits_into(bytes_in_pair(even, 1, odd, 1), mask, base),
               bits_into(bytes_in_pair(even, 2, odd, 2), mask, base),
               bits_into(bytes_in_pair(even, 3, odd, 3), mask, base)};
    v = (uint4)(add_pairs(v.x, by), add_pairs(v.y, by), add_pairs(v.z, by), add_pairs(v.w, by));
#ifdef SCALE
    v = (uint4)(multiply_pairs(v.x, times), multiply_pairs(v.y, times), multiply_pairs(v.z, times),
                multiply_pairs(v.w, times));
#endif
    return v;
}
#elif BYTES_IN_PAIRS
/* bfloat16: 7 bits of the byte become the mantissa of 128 + x; the sign bit selects 256 or 128, which is
 * subtracted. */
static inline uint pair_of_bytes(uint v) {
#if IS_HALF
    return add_pairs(bits_into(v, 0x00ff00ffu, 0x64806480u), 0xe480e480u);
#else
    return add_pairs(bits_into(v, 0x007f007fu, 0x43004300u), bits_into(v, 0x00800080u, 0xc300c300u));
#endif
}
static inline uint4 pieces_of(const quantized_lines *q, octet bits, float scale, float zero) {
    return (uint4)(pair_of_bytes(bytes_in_pair(bits.x, 0, bits.x, 1)),
                   pair_of_bytes(bytes_in_pair(bits.x, 2, bits.x, 3)),
                   pair_of_bytes(bytes_in_pair(bits.y, 0, bits.y, 1)),
                   pair_of_bytes(bytes_in_pair(bits.y, 2, bits.y, 3)));
}
#else
static inline uint4 pieces_of(const quantized_lines *q, octet bits, float scale, float zero) {
    const float8 v = dequantize_vec8(q, bits, scale, zero);
    return (uint4)(round_pair(v.s0, v.s1), round_pair(v.s2, v.s3), round_pair(v.s4, v.s5),
                   round_pair(v.s6, v.s7));
}
#endif

static inline local_tile vec8_offset(local_tile to, const uint j, const uint i) {
    return to + swizzled_offset(RUN_LINE(j), RUN_VECTOR + i, VECTORS_B);
}
/* Dequantizes part `part` of the runs and stores it to local memory. */
static inline void store_dequantized(local_tile to, __private const quantized_tile *o,
                                     const quantized_lines *q, const uint part) {
    UNROLL for (uint e = 0; e < OCTETS; e++) {
        if (e % LOADS != part) continue;
        const uint i = e % VEC8_PER_RUN, w = i * (E_BITS / 4);
        __private const line_run *from = &o->line[e / VEC8_PER_RUN];
        const octet bits = {from->words[w], E_BITS == 4 ? 0 : from->words[AT_MOST(w + 1, RUN_WORDS - 1)]};
        store_vector(vec8_offset(to, e / VEC8_PER_RUN, i),
                     pieces_of(q, bits, from->scale[i / VEC8_PER_SCALE], from->zero[i / VEC8_PER_SCALE]));
    }
}

/* Loads and stores a step with `depth` elements left, then zeros, without prefetching. */
static inline void load_dequantized(local_tile to, __private quantized_tile *o, const quantized_lines *q,
                                    int depth) {
    for (uint j = 0; j < ROWS_PER_ITEM; j++)
        for (uint i = 0; i < VEC8_PER_RUN; i++) {
            __private const line_run *from = &o->line[j];
            uint4 v = 0;
            const long group = group_of(q, o->k + i * 8);
            if ((int)(RUN_VECTOR + i) * 8 < depth)
                v = pieces_of(q, load_vec8(from->from, i * 8), scale_of(q, from->scales, group),
                              zero_of(q, from->zeros, group));
            store_vector(vec8_offset(to, j, i), v);
        }
    advance_quantized(o, true);
}
