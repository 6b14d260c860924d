/* Dequantizes a K-major right operand B on XMX (16 lanes). A transposed block read gives each lane a row of
 * B, which the lane dequantizes to MATRIX_T in registers. During a step, the elements, scales and zero points
 * of the next one are loaded.
 *
 * Contract: the group size along k is a multiple of the step, 32 elements, or a group is a whole row.
 * Options: ROWS_SHARE_SCALES=1, several rows share scales and zero points; those of quantized_load.h.
 * Include after gemm_xmx.h's block addresses. */
#define B_DWORDS E_BITS /* per row of B and step */
/* Blocks of 16 rows of B that a subgroup dequantizes per step. */
#if SHARED_B
#define SHARED_BLOCKS 1
#else
#define SHARED_BLOCKS SUMS_N
#endif
typedef struct octets {
    uint elements[SHARED_BLOCKS][B_DWORDS];
    float scale[SHARED_BLOCKS], zero[SHARED_BLOCKS];
    int group_end; /* end of the group along K that the scales and zero points belong to */
} octets;

/* Offsets of a lane's scales and zero points. */
typedef struct row_scale_offsets {
    long scale[SHARED_BLOCKS], zero[SHARED_BLOCKS];
} row_scale_offsets;

/* Rows of B from n on, clamped to the last of `rows`. */
static inline void open_scales(__private row_scale_offsets *p, const quantized_lines *q, long b, int n,
                               int rows) {
    UNROLL for (int j = 0; j < SHARED_BLOCKS; j++) {
        const uint line = (uint)min(n + j * 16 + (int)(get_local_id(0) % MATRIX_SUBGROUP_SIZE), rows - 1);
        const long across = ROWS_SHARE_SCALES ? line / (uint)q->group_across : line;
        p->scale[j] = scales_offset(q, b, across);
        p->zero[j] = place_of(&q->zero, b, across);
    }
}

/* Reads the step at element k of rows of `length` elements; scales and zero points at the start of a
 * group. */
static inline void prefetch_quantized(__private octets *o, __private blocks_b *b,
                                      __private const row_scale_offsets *p, const quantized_lines *q, int k,
                                      int length) {
    UNROLL for (int j = 0; j < SHARED_BLOCKS; j++) {
        union {
            BLOCK_VALUES(uint, B_DWORDS);
            uint dwords[B_DWORDS];
        } v;
        READ_BLOCK(READ_B, v, KEPT_OF(b, j), 0, OFFSET(Y_OF_B(j)));
        UNROLL for (int i = 0; i < B_DWORDS; i++)
            o->elements[j][i] = v.dwords[i];
    }
    if (k < o->group_end) return;
    const long group = group_of(q, min(k, length - 1)), end = (group + 1) * q->group_along;
    o->group_end = end < length ? (int)end : INT_MAX;
    UNROLL for (int j = 0; j < SHARED_BLOCKS; j++) {
        o->scale[j] = scale_of(q, p->scale[j], group);
        o->zero[j] = zero_of(q, p->zero[j], group);
    }
}

#if E_FORM == FORM_E4M3FN
/* Is there a NaN? */
static inline bool has_nan(__private const octets *o) {
    uint found = 0;
    UNROLL for (int j = 0; j < SHARED_BLOCKS; j++) UNROLL
        for (int i = 0; i < B_DWORDS; i++) found |= (o->elements[j][i] & 0x7f7f7f7fu) + 0x01010101u;
    return sub_group_any((found & 0x80808080u) != 0);
}
/* Replaces the elements whose byte is a NaN. */
static inline short8 put_nan(short8 v, octet bits) {
    return select(v, (short8)0x7fff, (convert_short8(as_char8(bits)) & (short)0x7f) == (short)0x7f);
}
#endif

/* Run i of eight elements of a lane's row. */
static inline octet octet_of(__private const octets *o, int j, int i) {
    return E_BITS == 8 ? (octet)(o->elements[j][i * 2 % B_DWORDS], o->elements[j][(i * 2 + 1) % B_DWORDS])
                       : (octet)(o->elements[j][i], 0);
}

/* Dequantizes to right blocks: [block of columns][half of the step]. */
static inline void dequantize_block(__private int8 (*to)[2], __private const octets *o,
                                    const quantized_lines *q) {
    union {
        short8 numbers[4];
        int8 halves[2];
    } v[SHARED_BLOCKS];
    UNROLL for (int j = 0; j < SHARED_BLOCKS; j++) UNROLL
        for (int i = 0; i < 4; i++)
            v[j].numbers[i] = ROUND_BLOCK(dequantize_vec8(q, octet_of(o, j, i), o->scale[j], o->zero[j]));
#if E_FORM == FORM_E4M3FN
    if (has_nan(o)) UNROLL
        for (int j = 0; j < SHARED_BLOCKS; j++) UNROLL
            for (int i = 0; i < 4; i++) v[j].numbers[i] = put_nan(v[j].numbers[i], octet_of(o, j, i));
#endif
    UNROLL for (int j = 0; j < SHARED_BLOCKS; j++)
        to[j][0] = v[j].halves[0], to[j][1] = v[j].halves[1];
}

#if SHARED_B
/* Subgroups with the same columns multiply by the same rows of B. Each dequantizes one block of 16 rows in
 * one step of a round, and all read the blocks from local memory, which holds two rounds. */
#define ROUND (SUBGROUPS_ALONG_M / SUMS_N) /* steps */
#define SHARED_BLOCK 256                   /* dwords */
#define SHARED_ROUND (SUBGROUPS_ALONG_N * SUBGROUPS_ALONG_M * SHARED_BLOCK)
static inline void store_shared_block(__local uint *to, __private const octets *o, const quantized_lines *q) {
    int8 right[1][2];
    dequantize_block(right, o, q);
    intel_sub_group_block_write8(to, as_uint8(right[0][0]));
    intel_sub_group_block_write8(to + 128, as_uint8(right[0][1]));
}
static inline void load_shared_block(__private int8 (*right)[2], const __local uint *from) {
    UNROLL for (int j = 0; j < SUMS_N; j++) UNROLL
        for (int h = 0; h < 2; h++)
            right[j][h] = as_int8(intel_sub_group_block_read8(from + j * SHARED_BLOCK + h * 128));
}
#endif
