/* dpas.DxR (N): D[r][n] = C[r][n] + sum over k < depth, e < elements of a dword: A[r][k, e] * B[k, e][n].
 * B (src1) holds a dword for each lane in a register for each k; A (src2) holds `depth` dwords for each r.
 * Sums of floats are single floats, added in order; products of its types are exact in single floats but
 * tf32's and bf16's, whose exponents can overflow as on hardware. */
#include "eu/dpas.h"

#include "eu/operand.h"

enum { MAX_ROWS = 8, MAX_K = 64 };

struct shape_of {
    int lanes, depth, rows, elements, k; /* k: elements along the inner dimension */
};

static int element_bits(int type) {
    const int kind = type_info[type].kind;
    return kind == KIND_NIBBLE ? 4 : kind == KIND_CRUMB ? 2 : 8 * type_bytes(type);
}

static struct shape_of shape_of(const struct instruction *in) {
    const int a = element_bits(in->source[2].type), b = element_bits(in->source[1].type),
              widest = a > b ? a : b;
    const int elements = widest == 32 ? 1 : widest == 16 ? 2 : widest == 8 ? 4 : 8;
    return (struct shape_of){in->lanes, in->depth, in->repeat, elements, in->depth * elements};
}

/* Element k of what is packed along the inner dimension, in dwords that lie `stride` dwords apart. */
static int32_t integer_element(const uint8_t *from, int type, int k, int stride) {
    const int bits = element_bits(type), at = k * bits;
    const uint32_t code = (uint32_t)from[at / 32 * 4 * stride + at / 8 % 4] >> (at % 8) & ((1u << bits) - 1);
    const bool is_signed = type == TYPE_B || type == TYPE_S4 || type == TYPE_S2;
    return is_signed && code >> (bits - 1) ? (int32_t)code - (1 << bits) : (int32_t)code;
}

static float float_element(const uint8_t *dword, int type, int e) {
    uint16_t h;
    uint32_t u;
    switch (type) {
    case TYPE_HF: memcpy(&h, dword + 2 * e, 2); return float_of_half(h);
    case TYPE_BF: memcpy(&h, dword + 2 * e, 2); return float_of_bfloat(h);
    case TYPE_BF8: return float_of_half((uint16_t)(dword[e] << 8));
    case TYPE_HF8: return float_of_small(dword[e], 4, 3);
    default: memcpy(&u, dword, 4); return float_of_bits(u & 0xffffe000u); /* tf32 */
    }
}

/* B as rows of lanes, for each element along k. Rows have 16 lanes; of 8, the upper ones are garbage. */
VECTORIZED static void unpack_halves(float b[MAX_K][16], const uint8_t *from, int dwords, int lanes,
                                     bool bfloat) {
    for (int k = 0; k < dwords; k++) {
        uint32_t dword[16];
        memcpy(dword, from + 4 * k * lanes, sizeof dword);
        float *low = b[2 * k], *high = b[2 * k + 1];
        if (bfloat)
            for (int i = 0; i < 16; i++) {
                low[i] = float_of_bits(dword[i] << 16);
                high[i] = float_of_bits(dword[i] & 0xffff0000u);
            }
        else
            for (int i = 0; i < 16; i++) {
                low[i] = float_of_half((uint16_t)dword[i]);
                high[i] = float_of_half((uint16_t)(dword[i] >> 16));
            }
    }
}

VECTORIZED static void unpack_bytes(int32_t b[MAX_K][16], const uint8_t *from, int dwords, int lanes,
                                    bool is_signed) {
    for (int k = 0; k < dwords; k++) {
        int32_t dword[16];
        memcpy(dword, from + 4 * k * lanes, sizeof dword);
        for (int e = 0; e < 4; e++) {
            int32_t *row = b[4 * k + e];
            if (is_signed)
                for (int i = 0; i < 16; i++) row[i] = dword[i] << (24 - 8 * e) >> 24;
            else
                for (int i = 0; i < 16; i++) row[i] = dword[i] >> 8 * e & 255;
        }
    }
}

static void unpack_integers(int32_t b[MAX_K][16], const uint8_t *from, const struct shape_of *s, int type) {
    if (type_bytes(type) == 1 && element_bits(type) == 8) {
        unpack_bytes(b, from, s->depth, s->lanes, type == TYPE_B);
        return;
    }
    for (int k = 0; k < s->k; k++)
        for (int i = 0; i < s->lanes; i++) b[k][i] = integer_element(from + 4 * i, type, k, s->lanes);
}

static void unpack_floats(float b[MAX_K][16], const uint8_t *from, const struct shape_of *s, int type) {
    if (type == TYPE_HF || type == TYPE_BF) {
        unpack_halves(b, from, s->depth, s->lanes, type == TYPE_BF);
        return;
    }
    for (int k = 0; k < s->k; k++)
        for (int i = 0; i < s->lanes; i++)
            b[k][i] = float_element(from + 4 * (k / s->elements * s->lanes + i), type, k % s->elements);
}

/* A as it lies: row by row. */
VECTORIZED static void left_halves(float *restrict a, const uint8_t *from, int count, bool bfloat) {
    uint16_t h[MAX_ROWS * MAX_K];
    memcpy(h, from, (size_t)(2 * count));
    if (bfloat)
        for (int i = 0; i < count; i++) a[i] = float_of_bfloat(h[i]);
    else
        for (int i = 0; i < count; i++) a[i] = float_of_half(h[i]);
}

static void left_floats(float *a, const uint8_t *from, const struct shape_of *s, int type) {
    if (type == TYPE_HF || type == TYPE_BF) {
        left_halves(a, from, s->rows * s->k, type == TYPE_BF);
        return;
    }
    for (int i = 0; i < s->rows * s->k; i++)
        a[i] = float_element(from + 4 * (i / s->elements), type, i % s->elements);
}

VECTORIZED static void left_bytes(int32_t *restrict a, const uint8_t *from, int count, bool is_signed) {
    if (is_signed)
        for (int i = 0; i < count; i++) a[i] = (int8_t)from[i];
    else
        for (int i = 0; i < count; i++) a[i] = from[i];
}

static void left_integers(int32_t *a, const uint8_t *from, const struct shape_of *s, int type) {
    if (type == TYPE_B || type == TYPE_UB) {
        left_bytes(a, from, s->rows * s->k, type == TYPE_B);
        return;
    }
    for (int i = 0; i < s->rows * s->k; i++) a[i] = integer_element(from, type, i, 1);
}

/* GNU C's vectors, unaligned: both halves of a row of sums stay in registers of the host. */
typedef float float_half __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t integer_half __attribute__((vector_size(32), aligned(4), may_alias));

#define MULTIPLY(name, half, T)                                                                              \
    VECTORIZED static void name(T c[16], const T *restrict a, T(*b)[16], int k_count) {                      \
        half low = *(const half *)c, high = *(const half *)(c + 8);                                          \
        for (int k = 0; k < k_count; k++) {                                                                  \
            low += a[k] * *(const half *)b[k];                                                               \
            high += a[k] * *(const half *)(b[k] + 8);                                                        \
        }                                                                                                    \
        *(half *)c = low;                                                                                    \
        *(half *)(c + 8) = high;                                                                             \
    }
MULTIPLY(multiply_floats, float_half, float)
MULTIPLY(multiply_integers, integer_half, int32_t)

static void load_addend(float *sum, const uint8_t *from, int lanes, int type) {
    uint16_t h[16];
    if (type == TYPE_F) {
        copy_lanes(sum, from, (size_t)(4 * lanes));
        return;
    }
    memcpy(h, from, (size_t)(2 * lanes));
    for (int i = 0; i < lanes; i++) sum[i] = type == TYPE_BF ? float_of_bfloat(h[i]) : float_of_half(h[i]);
}

static void store_sum(uint8_t *to, const float *sum, int lanes, int type) {
    uint16_t h[16];
    if (type == TYPE_F) {
        copy_lanes(to, sum, (size_t)(4 * lanes));
        return;
    }
    for (int i = 0; i < lanes; i++) h[i] = type == TYPE_BF ? bfloat_nearest(sum[i]) : half_nearest(sum[i]);
    memcpy(to, h, (size_t)(2 * lanes));
}

static void execute_floats(struct thread *t, const struct instruction *in, uint32_t mask) {
    const struct shape_of s = shape_of(in);
    const struct operand *d = &in->destination, *c = &in->source[0], *right = &in->source[1],
                         *left = &in->source[2];
    const int c_row = s.lanes * type_bytes(c->type), d_row = s.lanes * type_bytes(d->type);
    float a[MAX_ROWS * MAX_K], b[MAX_K][16], sum[MAX_ROWS][16];
    (void)mask;
    unpack_floats(b, t->registers + right->lane[0], &s, right->type);
    left_floats(a, t->registers + left->lane[0], &s, left->type);
    for (int r = 0; r < s.rows; r++) {
        if (c->kind == OPERAND_REGISTER)
            load_addend(sum[r], t->registers + c->lane[0] + r * c_row, s.lanes, c->type);
        else
            memset(sum[r], 0, sizeof sum[r]);
        multiply_floats(sum[r], a + r * s.k, b, s.k);
    }
    for (int r = 0; r < s.rows; r++)
        store_sum(t->registers + d->lane[0] + r * d_row, sum[r], s.lanes, d->type);
}

static void execute_integers(struct thread *t, const struct instruction *in, uint32_t mask) {
    const struct shape_of s = shape_of(in);
    const struct operand *d = &in->destination, *c = &in->source[0], *right = &in->source[1],
                         *left = &in->source[2];
    int32_t a[MAX_ROWS * MAX_K], b[MAX_K][16], sum[MAX_ROWS][16] = {{0}};
    (void)mask;
    unpack_integers(b, t->registers + right->lane[0], &s, right->type);
    left_integers(a, t->registers + left->lane[0], &s, left->type);
    for (int r = 0; r < s.rows; r++) {
        if (c->kind == OPERAND_REGISTER)
            memcpy(sum[r], t->registers + c->lane[0] + 4 * r * s.lanes, (size_t)(4 * s.lanes));
        multiply_integers(sum[r], a + r * s.k, b, s.k);
    }
    for (int r = 0; r < s.rows; r++)
        memcpy(t->registers + d->lane[0] + 4 * r * s.lanes, sum[r], (size_t)(4 * s.lanes));
}

/* Before some chains on Xe-HPG the compiler puts a dpas without an addend, whose two factors are one
 * register, only to work around a fault of the hardware: its result never arrives. */
static void ignore(struct thread *t, const struct instruction *in, uint32_t mask) {
    (void)t, (void)in, (void)mask;
}

static bool is_integer(int type) {
    return type == TYPE_UB || type == TYPE_B || type_info[type].kind == KIND_NIBBLE ||
           type_info[type].kind == KIND_CRUMB;
}
static bool is_factor(int type) {
    return type == TYPE_HF || type == TYPE_BF || type == TYPE_TF32 || type == TYPE_BF8 || type == TYPE_HF8;
}

const char *dpas_bind(struct instruction *in) {
    const struct operand *d = &in->destination, *c = &in->source[0], *b = &in->source[1], *a = &in->source[2];
    if (in->sources != 3 || d->kind != OPERAND_REGISTER || a->kind != OPERAND_REGISTER ||
        b->kind != OPERAND_REGISTER)
        return "operands of dpas not known";
    if (in->opcode == OP_DPASW || in->depth > 8 || in->repeat > MAX_ROWS || in->lanes > 16)
        return "shape of dpas not known";
    if (in->saturate || in->predicated || a->negate || b->negate || c->negate)
        return "modifier of dpas not known";
    if (in->atomic && c->kind == OPERAND_NULL && a->lane[0] == b->lane[0]) {
        in->execute = ignore;
        return NULL;
    }
    const bool c_known = c->kind == OPERAND_NULL || c->kind == OPERAND_REGISTER;
    if (is_integer(a->type) && is_integer(b->type) && type_bytes(d->type) == 4 && !type_is_float(d->type) &&
        c_known) {
        in->execute = execute_integers;
        return NULL;
    }
    const bool known = is_factor(a->type) && is_factor(b->type) &&
                       (d->type == TYPE_F || d->type == TYPE_HF || d->type == TYPE_BF);
    if (!known || !c_known || element_bits(a->type) != element_bits(b->type))
        return "types of dpas not known";
    in->execute = execute_floats;
    return NULL;
}
