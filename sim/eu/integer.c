/* Integers of 32 bits (fast; results modulo 2^32), and of 64 bits, which also serve where narrow types need
 * results beyond 32 bits: saturation, comparison of mixed signs, upper halves of products. */
#include "eu/alu.h"

static bool is_wide(const struct instruction *in) {
    return type_bytes(in->source[0].type) == 8 || type_bytes(in->destination.type) == 8;
}

static uint64_t type_mask(int type) {
    return type_bytes(type) == 8 ? ~0ull : (1ull << (8 * type_bytes(type))) - 1;
}

/* X(name, expression of a, b, c): the same for both widths */
#define COMMON(X)                                                                                            \
    X(mov, a[i])                                                                                             \
    X(not, ~a[i])                                                                                            \
    X(and, a[i] & b[i])                                                                                      \
    X(or, a[i] | b[i])                                                                                       \
    X(xor, a[i] ^ b[i])                                                                                      \
    X(shl, a[i] << (b[i] & count))                                                                           \
    X(add, a[i] + b[i])                                                                                      \
    X(add3, a[i] + b[i] + c[i])                                                                              \
    X(mul, a[i] * b[i])                                                                                      \
    X(mad, b[i] * c[i] + a[i])                                                                               \
    X(shr, a[i] >> (b[i] & count))

#define FUNCTION(width, S, U, name, EXPRESSION)                                                              \
    VECTORIZED static void name##_##width(const struct alu *x) {                                             \
        U *restrict r = x->result;                                                                           \
        const U *a = x->a, *b = x->b, *c = x->c;                                                             \
        const U count = width == 64 && is_wide(x->in) ? 63 : 31;                                             \
        (void)b, (void)c, (void)count;                                                                       \
        EACH_LANE(i, x->lanes) r[i] = (U)(EXPRESSION);                                                       \
    }
#define FUNCTION_32(name, EXPRESSION) FUNCTION(32, int32_t, uint32_t, name, EXPRESSION)
#define FUNCTION_64(name, EXPRESSION) FUNCTION(64, int64_t, uint64_t, name, EXPRESSION)
COMMON(FUNCTION_32)
COMMON(FUNCTION_64)
FUNCTION_32(asr, (int32_t)a[i] >> (b[i] & count))
FUNCTION_64(asr, (int64_t)a[i] >> (b[i] & count))
FUNCTION_64(avg, (uint64_t)((int64_t)(a[i] + b[i] + 1) >> 1))

/* Bit k of the function is the result where the bits of a, b, c are those of k. */
#define BFN(width, U)                                                                                        \
    VECTORIZED static void bfn_##width(const struct alu *x) {                                                \
        U *restrict r = x->result;                                                                           \
        const U *a = x->a, *b = x->b, *c = x->c;                                                             \
        U f[8];                                                                                              \
        for (int k = 0; k < 8; k++) f[k] = (U)0 - (x->in->function >> k & 1);                                \
        EACH_LANE(i, x->lanes) {                                                                             \
            const U p = a[i], q = b[i], s = c[i];                                                            \
            const U low = (q & ((p & f[3]) | (~p & f[2]))) | (~q & ((p & f[1]) | (~p & f[0])));              \
            const U high = (q & ((p & f[7]) | (~p & f[6]))) | (~q & ((p & f[5]) | (~p & f[4])));             \
            r[i] = (s & high) | (~s & low);                                                                  \
        }                                                                                                    \
    }
BFN(32, uint32_t)
BFN(64, uint64_t)

/* Right shifts of narrow types held in 64 bits. */
static void shr_narrow(const struct alu *x) {
    const uint64_t *a = x->a, *b = x->b, mask = type_mask(x->in->source[0].type);
    uint64_t *r = x->result;
    for (int i = 0; i < x->lanes; i++) r[i] = (a[i] & mask) >> (b[i] & (is_wide(x->in) ? 63 : 31));
}

static void rotate(const struct alu *x) {
    const uint64_t *a = x->a, *b = x->b, mask = type_mask(x->in->source[0].type);
    const int width = 8 * type_bytes(x->in->source[0].type);
    uint64_t *r = x->result;
    for (int i = 0; i < x->lanes; i++) {
        const uint64_t v = a[i] & mask;
        int k = (int)b[i] & (width - 1);
        if (x->in->opcode == OP_ROR) k = (width - k) & (width - 1);
        r[i] = k ? (v << k | v >> (width - k)) & mask : v;
    }
}

static void bfrev(const struct alu *x) {
    const uint32_t *a = x->a;
    uint32_t *r = x->result;
    for (int i = 0; i < x->lanes; i++) {
        uint32_t v = a[i];
        v = (v >> 1 & 0x55555555u) | (v & 0x55555555u) << 1;
        v = (v >> 2 & 0x33333333u) | (v & 0x33333333u) << 2;
        v = (v >> 4 & 0x0f0f0f0fu) | (v & 0x0f0f0f0fu) << 4;
        r[i] = __builtin_bswap32(v);
    }
}

/* src0: width, src1: offset, src2: value */
static void bfe(const struct alu *x) {
    const uint32_t *a = x->a, *b = x->b, *c = x->c;
    uint32_t *r = x->result;
    const bool is_signed = x->in->destination.type == TYPE_D;
    for (int i = 0; i < x->lanes; i++) {
        const uint32_t width = a[i] & 31, offset = b[i] & 31;
        const uint32_t left = offset + width < 32 ? 32 - width - offset : 0,
                       right = offset + width < 32 ? 32 - width : offset;
        const uint32_t v = c[i] << left;
        r[i] = !width ? 0 : is_signed ? (uint32_t)((int32_t)v >> right) : v >> right;
    }
}

static void bfi1(const struct alu *x) {
    const uint32_t *a = x->a, *b = x->b;
    uint32_t *r = x->result;
    for (int i = 0; i < x->lanes; i++) r[i] = ((1u << (a[i] & 31)) - 1) << (b[i] & 31);
}

static void bfi2(const struct alu *x) {
    const uint32_t *a = x->a, *b = x->b, *c = x->c;
    uint32_t *r = x->result;
    for (int i = 0; i < x->lanes; i++) {
        const int offset = a[i] ? __builtin_ctz(a[i]) : 0;
        r[i] = (a[i] & b[i] << offset) | (~a[i] & c[i]);
    }
}

static void count_bits(const struct alu *x) {
    const uint64_t *a = x->a, mask = type_mask(x->in->source[0].type);
    uint64_t *r = x->result;
    for (int i = 0; i < x->lanes; i++) {
        const uint64_t v = a[i] & mask;
        const uint32_t low = (uint32_t)v,
                       flipped = x->in->source[0].type == TYPE_D && (low >> 31) ? ~low : low;
        switch (x->in->opcode) {
        case OP_LZD: r[i] = low ? (uint32_t)__builtin_clz(low) : 32; break;
        case OP_FBL: r[i] = low ? (uint32_t)__builtin_ctz(low) : 0xffffffffu; break;
        case OP_FBH: r[i] = flipped ? (uint32_t)__builtin_clz(flipped) : 0xffffffffu; break;
        default: r[i] = (uint64_t)__builtin_popcountll(v); break;
        }
    }
}

static void write_accumulator(const struct alu *x, int lane, uint32_t v) {
    if (x->mask & lane_bit[lane]) memcpy(x->thread->registers + REG_ACCUMULATOR + 4 * lane, &v, 4);
}

/* The upper half of a 32-bit product, and the lower half in the accumulator; the multiplication into it
 * before is not needed. */
static void mach(const struct alu *x) {
    const int64_t *a = x->a, *b = x->b;
    int64_t *r = x->result;
    for (int i = 0; i < x->lanes; i++) {
        const int64_t left = a[i], right = b[i], p = left * right;
        r[i] = (left | right) >= 0 ? (int64_t)((uint64_t)p >> 32) : p >> 32;
        write_accumulator(x, i, (uint32_t)p);
    }
}

/* The carry or borrow goes to the accumulator. */
static void add_carry(const struct alu *x) {
    const uint32_t *a = x->a, *b = x->b;
    uint32_t *r = x->result;
    const bool subtract = x->in->opcode == OP_SUBB;
    for (int i = 0; i < x->lanes; i++) {
        r[i] = subtract ? a[i] - b[i] : a[i] + b[i];
        write_accumulator(x, i, subtract ? a[i] < b[i] : r[i] < a[i]);
    }
}

#define DP4A(width, U)                                                                                       \
    VECTORIZED static void dp4a_##width(const struct alu *x) {                                               \
        const U *a = x->a, *b = x->b, *c = x->c;                                                             \
        U *restrict r = x->result;                                                                           \
        const bool signed_b = x->in->source[1].type == TYPE_D, signed_c = x->in->source[2].type == TYPE_D;   \
        EACH_LANE(i, x->lanes) {                                                                             \
            const U left = b[i], right = c[i];                                                               \
            U sum = a[i];                                                                                    \
            for (int k = 0; k < 32; k += 8) {                                                                \
                const int32_t p = signed_b ? (int8_t)(left >> k) : (uint8_t)(left >> k);                     \
                const int32_t q = signed_c ? (int8_t)(right >> k) : (uint8_t)(right >> k);                   \
                sum += (U)(int64_t)(p * q);                                                                  \
            }                                                                                                \
            r[i] = sum;                                                                                      \
        }                                                                                                    \
    }
DP4A(32, uint32_t)
DP4A(64, uint64_t) /* for saturation */

/* Floats, as bits: random bits are added to the mantissa, and what the destination does not hold is cut off.
 */
static void srnd(const struct alu *x) {
    const uint32_t *a = x->a, *b = x->b;
    uint32_t *r = x->result;
    const int from = x->in->source[0].type, to = x->in->destination.type;
    for (int i = 0; i < x->lanes; i++) {
        const uint32_t top = from == TYPE_F ? 0x7f800000u : from == TYPE_HF ? 0x7c00u : 0x7f80u;
        const uint32_t v = a[i] + ((a[i] & top) == top ? 0 : b[i] & (from == TYPE_F ? 0x1fffu : 0xffu));
        const float f = from == TYPE_F    ? float_of_bits(v)
                        : from == TYPE_HF ? float_of_half((uint16_t)v)
                                          : float_of_bfloat((uint16_t)v);
        r[i] = small_of_double((double)f, to == TYPE_HF8 ? 4 : 5,
                               to == TYPE_HF    ? 10
                               : to == TYPE_HF8 ? 3
                                                : 2,
                               ROUND_ZERO);
    }
}

static void divide(const struct alu *x) {
    const int64_t *a = x->a, *b = x->b;
    int64_t *r = x->result;
    for (int i = 0; i < x->lanes; i++) {
        const int64_t d = b[i] ? b[i] : 1, q = a[i] / d;
        r[i] = !b[i] ? -1 : x->in->function == MATH_IREM ? a[i] - q * d : q;
    }
}

static compute_function *const functions[][OP_COUNT] = {
    [DOMAIN_I32] = {[OP_MOV] = mov_32,     [OP_MOVI] = mov_32,  [OP_NOT] = not_32,   [OP_AND] = and_32,
                    [OP_OR] = or_32,       [OP_XOR] = xor_32,   [OP_SHL] = shl_32,   [OP_SHR] = shr_32,
                    [OP_ASR] = asr_32,     [OP_ADD] = add_32,   [OP_ADD3] = add3_32, [OP_MUL] = mul_32,
                    [OP_MACL] = mul_32,    [OP_MAD] = mad_32,   [OP_BFN] = bfn_32,   [OP_BFREV] = bfrev,
                    [OP_BFE] = bfe,        [OP_BFI1] = bfi1,    [OP_BFI2] = bfi2,    [OP_ADDC] = add_carry,
                    [OP_SUBB] = add_carry, [OP_DP4A] = dp4a_32, [OP_SRND] = srnd},
    [DOMAIN_I64] = {[OP_MOV] = mov_64,      [OP_NOT] = not_64,     [OP_AND] = and_64,
                    [OP_OR] = or_64,        [OP_XOR] = xor_64,     [OP_SHL] = shl_64,
                    [OP_SHR] = shr_narrow,  [OP_ASR] = asr_64,     [OP_ADD] = add_64,
                    [OP_ADD3] = add3_64,    [OP_MUL] = mul_64,     [OP_MACL] = mul_64,
                    [OP_MAD] = mad_64,      [OP_BFN] = bfn_64,     [OP_AVG] = avg_64,
                    [OP_MACH] = mach,       [OP_ROL] = rotate,     [OP_ROR] = rotate,
                    [OP_LZD] = count_bits,  [OP_FBL] = count_bits, [OP_FBH] = count_bits,
                    [OP_CBIT] = count_bits, [OP_DP4A] = dp4a_64},
};

compute_function *integer_function(const struct instruction *in) {
    if (in->opcode == OP_MATH)
        return in->domain == DOMAIN_I64 && in->function >= MATH_IDIV && in->function <= MATH_IREM ? divide
                                                                                                  : NULL;
    if (in->opcode == OP_SHR && in->domain == DOMAIN_I64 && type_bytes(in->source[0].type) == 8)
        return shr_64;
    return functions[in->domain][in->opcode];
}

/* ---- comparisons of all domains ---- */

#define COMPARE(name, T, EXPRESSION)                                                                         \
    VECTORIZED static uint32_t name##_##T(const void *left, const void *right, int lanes) {                  \
        const T *a = left, *b = right;                                                                       \
        uint32_t bits = 0;                                                                                   \
        EACH_LANE(i, lanes) bits |= (0u - (uint32_t)(EXPRESSION)) & lane_bit[i];                             \
        return bits;                                                                                         \
    }
#define COMPARES(T)                                                                                          \
    COMPARE(eq, T, a[i] == b[i])                                                                             \
    COMPARE(ne, T, a[i] != b[i])                                                                             \
    COMPARE(gt, T, a[i] > b[i])                                                                              \
    COMPARE(ge, T, a[i] >= b[i])                                                                             \
    COMPARE(lt, T, a[i] < b[i])                                                                              \
    COMPARE(le, T, a[i] <= b[i])
#define ORDERED(T)                                                                                           \
    [COND_EQ] = eq_##T, [COND_NE] = ne_##T, [COND_GT] = gt_##T, [COND_GE] = ge_##T, [COND_LT] = lt_##T,      \
    [COND_LE] = le_##T
COMPARES(int32_t)
COMPARES(uint32_t)
COMPARES(int64_t)
COMPARES(uint64_t)
COMPARES(float)
COMPARES(double)
COMPARE(un, float, (a[i] != a[i]) | (b[i] != b[i]))
COMPARE(un, double, (a[i] != a[i]) | (b[i] != b[i]))

compare_function *compare_function_of(enum condition condition, enum domain domain, bool is_unsigned) {
    static compare_function *const table[DOMAIN_COUNT][2][COND_COUNT] = {
        [DOMAIN_I32] = {{ORDERED(int32_t)}, {ORDERED(uint32_t)}},
        [DOMAIN_I64] = {{ORDERED(int64_t)}, {ORDERED(uint64_t)}},
        [DOMAIN_F32] = {{ORDERED(float), [COND_UN] = un_float}, {ORDERED(float), [COND_UN] = un_float}},
        [DOMAIN_F64] = {{ORDERED(double), [COND_UN] = un_double}, {ORDERED(double), [COND_UN] = un_double}},
    };
    return table[domain][is_unsigned][condition];
}

/* Minimum and maximum: of a number and NaN the number. */
#define CHOICES(T)                                                                                           \
    COMPARE(choose_gt, T, ((a[i] > b[i]) | (b[i] != b[i])) & (a[i] == a[i]))                                 \
    COMPARE(choose_ge, T, ((a[i] >= b[i]) | (b[i] != b[i])) & (a[i] == a[i]))                                \
    COMPARE(choose_lt, T, ((a[i] < b[i]) | (b[i] != b[i])) & (a[i] == a[i]))                                 \
    COMPARE(choose_le, T, ((a[i] <= b[i]) | (b[i] != b[i])) & (a[i] == a[i]))
CHOICES(float)
CHOICES(double)

compare_function *choice_function_of(enum condition condition, enum domain domain, bool is_unsigned) {
#define CHOICE(T)                                                                                            \
    [COND_GT] = choose_gt_##T, [COND_GE] = choose_ge_##T, [COND_LT] = choose_lt_##T, [COND_LE] = choose_le_##T
    static compare_function *const table[DOMAIN_COUNT][COND_COUNT] = {[DOMAIN_F32] = {CHOICE(float)},
                                                                      [DOMAIN_F64] = {CHOICE(double)}};
#undef CHOICE
    if (domain == DOMAIN_F32 || domain == DOMAIN_F64) return table[domain][condition];
    return compare_function_of(condition, domain, is_unsigned);
}
