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

static int32_t integer_element(const uint8_t *dword, int type, int e) {
    const int bits = element_bits(type), at = e * bits;
    const uint32_t code = (uint32_t)dword[at / 8] >> (at % 8) & ((1u << bits) - 1);
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

/* B as rows of lanes, for each element along k. */
VECTORIZED static void unpack_halves(float b[MAX_K][16], const uint8_t *from, int dwords, int lanes,
                                     bool bfloat) {
    for (int k = 0; k < dwords; k++)
        for (int i = 0; i < lanes; i++) {
            uint32_t u;
            memcpy(&u, from + 4 * (k * lanes + i), 4);
            b[2 * k][i] = bfloat ? float_of_bits(u << 16) : float_of_half((uint16_t)u);
            b[2 * k + 1][i] = bfloat ? float_of_bits(u & 0xffff0000u) : float_of_half((uint16_t)(u >> 16));
        }
}

VECTORIZED static void unpack_bytes(int32_t b[MAX_K][16], const uint8_t *from, int dwords, int lanes,
                                    bool is_signed) {
    for (int k = 0; k < dwords; k++)
        for (int e = 0; e < 4; e++)
            for (int i = 0; i < lanes; i++) {
                uint32_t u;
                memcpy(&u, from + 4 * (k * lanes + i), 4);
                u >>= 8 * e;
                b[4 * k + e][i] = is_signed ? (int8_t)u : (uint8_t)u;
            }
}

static void unpack_integers(int32_t b[MAX_K][16], const uint8_t *from, const struct shape_of *s, int type) {
    if (type == TYPE_B || type == TYPE_UB) {
        unpack_bytes(b, from, s->depth, s->lanes, type == TYPE_B);
        return;
    }
    for (int k = 0; k < s->k; k++)
        for (int i = 0; i < s->lanes; i++)
            b[k][i] = integer_element(from + 4 * (k / s->elements * s->lanes + i), type, k % s->elements);
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

static void left_integers(int32_t *a, const uint8_t *from, const struct shape_of *s, int type) {
    for (int i = 0; i < s->rows * s->k; i++) {
        if (type == TYPE_B)
            a[i] = (int8_t)from[i];
        else if (type == TYPE_UB)
            a[i] = from[i];
        else
            a[i] = integer_element(from + 4 * (i / s->elements), type, i % s->elements);
    }
}

VECTORIZED static void multiply_floats(float *restrict c, const float *restrict a, float (*b)[16],
                                       int k_count) {
    float sum[16];
    memcpy(sum, c, sizeof sum);
    for (int k = 0; k < k_count; k++)
        for (int i = 0; i < 16; i++) sum[i] += a[k] * b[k][i];
    memcpy(c, sum, sizeof sum);
}

VECTORIZED static void multiply_integers(int32_t *restrict c, const int32_t *restrict a, int32_t (*b)[16],
                                         int k_count) {
    int32_t sum[16];
    memcpy(sum, c, sizeof sum);
    for (int k = 0; k < k_count; k++)
        for (int i = 0; i < 16; i++) sum[i] += a[k] * b[k][i];
    memcpy(c, sum, sizeof sum);
}

static float accumulator_float(const uint8_t *p, int type) {
    uint16_t h;
    float f;
    if (type == TYPE_F) {
        memcpy(&f, p, 4);
        return f;
    }
    memcpy(&h, p, 2);
    return type == TYPE_BF ? float_of_bfloat(h) : float_of_half(h);
}

static void execute_floats(struct thread *t, const struct instruction *in, uint32_t mask) {
    const struct shape_of s = shape_of(in);
    const struct operand *d = &in->destination, *c = &in->source[0];
    float a[MAX_ROWS * MAX_K], b[MAX_K][16], sum[MAX_ROWS][16] = {{0}};
    (void)mask;
    unpack_floats(b, t->registers + in->source[1].lane[0], &s, in->source[1].type);
    left_floats(a, t->registers + in->source[2].lane[0], &s, in->source[2].type);
    const int c_bytes = type_bytes(c->type), d_bytes = type_bytes(d->type);
    for (int r = 0; r < s.rows; r++) {
        if (c->kind == OPERAND_REGISTER)
            for (int i = 0; i < s.lanes; i++)
                sum[r][i] =
                    accumulator_float(t->registers + c->lane[0] + (r * s.lanes + i) * c_bytes, c->type);
        multiply_floats(sum[r], a + r * s.k, b, s.k);
    }
    for (int r = 0; r < s.rows; r++)
        for (int i = 0; i < s.lanes; i++) {
            uint8_t *to = t->registers + d->lane[0] + (r * s.lanes + i) * d_bytes;
            const uint16_t h = d->type == TYPE_BF ? bfloat_nearest(sum[r][i]) : half_nearest(sum[r][i]);
            if (d->type == TYPE_F)
                memcpy(to, &sum[r][i], 4);
            else
                memcpy(to, &h, 2);
        }
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
    if (element_bits(a->type) != element_bits(b->type)) return "mixed widths of dpas are not known";
    if (is_integer(a->type) && is_integer(b->type) && type_bytes(d->type) == 4 && !type_is_float(d->type) &&
        c_known) {
        in->execute = execute_integers;
        return NULL;
    }
    const bool known = is_factor(a->type) && is_factor(b->type) &&
                       (d->type == TYPE_F || d->type == TYPE_HF || d->type == TYPE_BF);
    if (!known || !c_known) return "types of dpas not known";
    in->execute = execute_floats;
    return NULL;
}
