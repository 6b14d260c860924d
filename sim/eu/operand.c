#include "eu/operand.h"

const uint32_t lane_bit[MAX_LANES] = {
#define B(i) 1u << (i), 1u << (i + 1), 1u << (i + 2), 1u << (i + 3)
    B(0),  B(4),  B(8), B(12), B(16),
    B(20), B(24), B(28)
#undef B
};

const uint16_t *operand_lanes(const struct thread *t, const struct operand *o, uint16_t to[MAX_LANES]) {
    if (o->kind != OPERAND_INDIRECT) return o->lane;
    uint16_t a[16];
    memcpy(a, t->registers + REG_ADDRESS, sizeof a);
    for (int i = 0; i < o->lanes; i++) {
        const int row = o->lanes_per_address ? i / o->lanes_per_address : 0;
        const uint32_t at = (uint32_t)(a[(o->address + row) & 15] + o->displacement + o->lane[i]);
        to[i] = (uint16_t)(at < REG_ACCUMULATOR ? at : REG_NULL); /* beyond r255: nowhere */
    }
    return to;
}

/* ---- loading ---- */

static inline float float_of_bf8(uint8_t b) { return float_of_half((uint16_t)(b << 8)); }
static inline float float_of_hf8(uint8_t b) { return float_of_small(b, 4, 3); }
static inline float float_of_tf32(uint32_t u) { return float_of_bits(u & 0xffffe000u); }
#define SAME(x) (x)

/* X(domain, element of union lanes, its C type, type, C type in registers, conversion) */
#define FLOAT_LOADS(X, N, m, T)                                                                              \
    X(N, m, T, UB, uint8_t, (T))                                                                             \
    X(N, m, T, B, int8_t, (T))                                                                               \
    X(N, m, T, UW, uint16_t, (T))                                                                            \
    X(N, m, T, W, int16_t, (T))                                                                              \
    X(N, m, T, UD, uint32_t, (T))                                                                            \
    X(N, m, T, D, int32_t, (T))                                                                              \
    X(N, m, T, UQ, uint64_t, (T))                                                                            \
    X(N, m, T, Q, int64_t, (T))                                                                              \
    X(N, m, T, HF, uint16_t, float_of_half)                                                                  \
    X(N, m, T, BF, uint16_t, float_of_bfloat)                                                                \
    X(N, m, T, F, float, SAME)                                                                               \
    X(N, m, T, DF, double, (T))                                                                              \
    X(N, m, T, TF32, uint32_t, float_of_tf32)                                                                \
    X(N, m, T, BF8, uint8_t, float_of_bf8)                                                                   \
    X(N, m, T, HF8, uint8_t, float_of_hf8)
#define INTEGER_LOADS(X, N, m, T)                                                                            \
    X(N, m, T, UB, uint8_t, SAME)                                                                            \
    X(N, m, T, B, int8_t, (T))                                                                               \
    X(N, m, T, UW, uint16_t, SAME)                                                                           \
    X(N, m, T, W, int16_t, (T))                                                                              \
    X(N, m, T, UD, uint32_t, SAME)                                                                           \
    X(N, m, T, D, int32_t, (T))                                                                              \
    X(N, m, T, HF, uint16_t, SAME)                                                                           \
    X(N, m, T, BF, uint16_t, SAME)                                                                           \
    X(N, m, T, F, uint32_t, SAME)                                                                            \
    X(N, m, T, TF32, uint32_t, SAME)                                                                         \
    X(N, m, T, BF8, uint8_t, SAME)                                                                           \
    X(N, m, T, HF8, uint8_t, SAME)                                                                           \
    X(N, m, T, UQ, uint64_t, (T))                                                                            \
    X(N, m, T, Q, int64_t, (T))                                                                              \
    X(N, m, T, DF, uint64_t, (T))
#define ALL_LOADS(X)                                                                                         \
    INTEGER_LOADS(X, I32, u32, uint32_t)                                                                     \
    INTEGER_LOADS(X, I64, s64, int64_t)                                                                      \
    FLOAT_LOADS(X, F32, f32, float)                                                                          \
    FLOAT_LOADS(X, F64, f64, double)

/* Modifiers of sources: |x| first, then -x (or ~x). */
#define MODIFIERS(N, m, T, ABSOLUTE)                                                                         \
    VECTORIZED static void modify_##N(union lanes *v, const struct operand *o) {                             \
        if (o->absolute) EACH_LANE(i, o->lanes) v->m[i] = ABSOLUTE;                                          \
        if (o->negate) EACH_LANE(i, o->lanes) v->m[i] = (T) - v->m[i];                                       \
    }
MODIFIERS(I32, s32, int32_t, v->s32[i] < 0 ? (int32_t)-(uint32_t)v->s32[i] : v->s32[i])
MODIFIERS(I64, s64, int64_t, v->s64[i] < 0 ? (int64_t)-(uint64_t)v->s64[i] : v->s64[i])
MODIFIERS(F32, f32, float, __builtin_fabsf(v->f32[i]))
MODIFIERS(F64, f64, double, __builtin_fabs(v->f64[i]))

#define LOAD(N, m, T, TYPE, S, CONVERT)                                                                      \
    VECTORIZED static void read_##N##_##TYPE(const uint8_t *r, const struct operand *o,                      \
                                             const uint16_t *lane, union lanes *to) {                        \
        T *restrict v = to->m;                                                                               \
        S x;                                                                                                 \
        if (o->shape == SHAPE_CONTIGUOUS) {                                                                  \
            r += lane[0];                                                                                    \
            EACH_LANE(i, o->lanes) {                                                                         \
                memcpy(&x, r + (size_t)i * sizeof x, sizeof x);                                              \
                v[i] = CONVERT(x);                                                                           \
            }                                                                                                \
        } else if (o->shape == SHAPE_SCALAR) {                                                               \
            memcpy(&x, r + lane[0], sizeof x);                                                               \
            const T all = CONVERT(x);                                                                        \
            EACH_LANE(i, o->lanes) v[i] = all;                                                               \
        } else {                                                                                             \
            for (int i = 0; i < o->lanes; i++) {                                                             \
                memcpy(&x, r + lane[i], sizeof x);                                                           \
                v[i] = CONVERT(x);                                                                           \
            }                                                                                                \
        }                                                                                                    \
    }                                                                                                        \
    static const void *load_##N##_##TYPE(const struct thread *t, const struct operand *o, union lanes *to) { \
        uint16_t lanes[MAX_LANES];                                                                           \
        read_##N##_##TYPE(t->registers, o, operand_lanes(t, o, lanes), to);                                  \
        if (o->absolute || o->negate) modify_##N(to, o);                                                     \
        return to;                                                                                           \
    }
ALL_LOADS(LOAD)
#undef LOAD

static load_function *const loaders[DOMAIN_COUNT][TYPE_COUNT] = {
#define LOAD(N, m, T, TYPE, S, CONVERT) [DOMAIN_##N][TYPE_##TYPE] = load_##N##_##TYPE,
    ALL_LOADS(LOAD)
#undef LOAD
};

/* Sources of logical instructions are complemented instead of negated. */
#define COMPLEMENT(N, m)                                                                                     \
    static const void *load_complement_##N(const struct thread *t, const struct operand *o,                  \
                                           union lanes *to) {                                                \
        struct operand plain = *o;                                                                           \
        plain.negate = false;                                                                                \
        loaders[DOMAIN_##N][o->type](t, &plain, to);                                                         \
        EACH_LANE(i, o->lanes) to->m[i] = ~to->m[i];                                                         \
        return to;                                                                                           \
    }
COMPLEMENT(I32, u32)
COMPLEMENT(I64, u64)

static const void *load_constant(const struct thread *t, const struct operand *o, union lanes *to) {
    (void)t, (void)to;
    return o->constant;
}

static const void *load_zero(const struct thread *t, const struct operand *o, union lanes *to) {
    (void)t, (void)o;
    memset(to, 0, sizeof *to);
    return to;
}

load_function *operand_loader(struct operand *o, enum domain domain, bool logical) {
    static const uint8_t element[DOMAIN_COUNT] = {4, 8, 4, 8};
    const bool modified = o->negate || o->absolute, is_float = domain == DOMAIN_F32 || domain == DOMAIN_F64;
    if (o->kind == OPERAND_IMMEDIATE) return load_constant;
    if (o->kind == OPERAND_NULL) return load_zero;
    o->direct = o->kind == OPERAND_REGISTER && o->shape == SHAPE_CONTIGUOUS && !modified &&
                type_bytes(o->type) == element[domain] &&
                (!is_float || o->type == TYPE_F || o->type == TYPE_DF);
    if (logical && o->negate && !is_float)
        return domain == DOMAIN_I64 ? load_complement_I64 : load_complement_I32;
    return loaders[domain][o->type];
}

/* 1 sign, 3 exponent, 4 mantissa bits */
static float float_of_vf(uint32_t code) {
    if (!(code & 0x7f)) return code & 0x80 ? -0.0f : 0;
    return float_of_bits((code & 0x80) << 24 | ((code >> 4 & 7) + 124) << 23 | (code & 15) << 19);
}

/* Distance of the lanes of a destination in bytes. */
static int distance(const struct operand *o) {
    return o->kind == OPERAND_REGISTER && o->lanes > 1 ? o->lane[1] - o->lane[0] : type_bytes(o->type);
}

bool operand_constant(const struct operand *o, const struct operand *destination, enum domain domain,
                      bool logical, union lanes *to) {
    memset(to, 0, sizeof *to);
    const bool is_float = domain == DOMAIN_F32 || domain == DOMAIN_F64;
    if (o->type == TYPE_V || o->type == TYPE_UV || o->type == TYPE_VF) {
        if (o->type == TYPE_VF && !is_float) return false;
        /* an element lies beside each word (vf: dword) of the destination: lanes two words apart skip one */
        const int bytes = o->type == TYPE_VF ? 4 : 2, step = distance(destination) / bytes;
        for (int i = 0; i < MAX_LANES; i++) {
            const int element = i * (step ? step : 1);
            const int nibble = (int)(o->immediate >> (4 * (element & 7)) & 15);
            const int v = o->type == TYPE_V && (nibble & 8) ? nibble - 16 : nibble;
            const float f = float_of_vf((uint32_t)(o->immediate >> (8 * (element & 3))) & 255);
            if (domain == DOMAIN_I32) to->s32[i] = v;
            if (domain == DOMAIN_I64) to->s64[i] = v;
            if (domain == DOMAIN_F32) to->f32[i] = o->type == TYPE_VF ? f : (float)v;
            if (domain == DOMAIN_F64) to->f64[i] = o->type == TYPE_VF ? (double)f : v;
        }
        return true;
    }
    if (!loaders[domain][o->type]) return false;
    static struct thread
        scratch; /* only its first bytes are used; bind's caller holds the lock of programs */
    struct operand value = *o;
    value.kind = OPERAND_REGISTER;
    value.shape = SHAPE_SCALAR;
    value.lanes = MAX_LANES;
    memset(value.lane, 0, sizeof value.lane);
    memcpy(scratch.registers, &o->immediate, sizeof o->immediate);
    load_function *load = loaders[domain][o->type];
    if (logical && o->negate) load = domain == DOMAIN_I64 ? load_complement_I64 : load_complement_I32;
    load(&scratch, &value, to);
    return true;
}

/* ---- conversion to the destination's type ---- */

/* Floats become the nearest integer towards zero in the type's range, NaN becomes 0. */
#define TRUNCATE(T, LOW, HIGH, LIMIT)                                                                        \
    static inline T truncate_##T(double x) {                                                                 \
        return x != x ? 0 : x <= (LOW) ? (T)(LOW) : x >= (HIGH) ? (LIMIT) : (T)x;                            \
    }
TRUNCATE(uint8_t, 0.0, 255.0, 255)
TRUNCATE(int8_t, -128.0, 127.0, 127)
TRUNCATE(uint16_t, 0.0, 65535.0, 65535)
TRUNCATE(int16_t, -32768.0, 32767.0, 32767)
TRUNCATE(uint32_t, 0.0, 4294967295.0, 4294967295u)
TRUNCATE(int32_t, -2147483648.0, 2147483647.0, 2147483647)
TRUNCATE(uint64_t, 0.0, 0x1p64, ~0ull)
TRUNCATE(int64_t, -0x1p63, 0x1p63, INT64_MAX)

#define ROUNDED(name, exponent, mantissa)                                                                    \
    ((uint32_t)small_of_double((double)(name), exponent, mantissa, rounding))
/* Nearly always rounding is to nearest: then floats become small floats without branches. */
#define TO_HALF(x) (rounding == ROUND_NEAREST ? half_nearest(x) : (uint16_t)ROUNDED(x, 5, 10))
#define TO_BFLOAT(x) (rounding == ROUND_NEAREST ? bfloat_nearest(x) : (uint16_t)ROUNDED(x, 8, 7))
#define TO_BF8(x) (uint8_t)ROUNDED(x, 5, 2)
#define TO_HF8(x) (uint8_t)ROUNDED(x, 4, 3)
static inline uint32_t tf32_nearest(float f) {
    const uint32_t u = bits_of_float(f);
    return ((u >> 23 & 255) != 255 ? u + 0xfffu + (u >> 13 & 1) : u) & 0xffffe000u;
}
static inline uint16_t half_of_double(double x, enum rounding rounding) {
    return (uint16_t)ROUNDED(x, 5, 10);
}
static inline uint16_t bfloat_of_double(double x, enum rounding rounding) {
    return (uint16_t)ROUNDED(x, 8, 7);
}

/* X(domain, element of union lanes, type, C type in registers, conversion of x) */
#define INTEGER_STORES(X, N, m)                                                                              \
    X(N, m, UB, uint8_t, (uint8_t)x)                                                                         \
    X(N, m, B, uint8_t, (uint8_t)x)                                                                          \
    X(N, m, UW, uint16_t, (uint16_t)x)                                                                       \
    X(N, m, W, uint16_t, (uint16_t)x)                                                                        \
    X(N, m, HF, uint16_t, (uint16_t)x)                                                                       \
    X(N, m, BF, uint16_t, (uint16_t)x)                                                                       \
    X(N, m, BF8, uint8_t, (uint8_t)x)                                                                        \
    X(N, m, HF8, uint8_t, (uint8_t)x)
#define FLOAT_STORES(X, N, m)                                                                                \
    X(N, m, UB, uint8_t, truncate_uint8_t((double)x))                                                        \
    X(N, m, B, int8_t, truncate_int8_t((double)x))                                                           \
    X(N, m, UW, uint16_t, truncate_uint16_t((double)x))                                                      \
    X(N, m, W, int16_t, truncate_int16_t((double)x))                                                         \
    X(N, m, UD, uint32_t, truncate_uint32_t((double)x))                                                      \
    X(N, m, D, int32_t, truncate_int32_t((double)x))                                                         \
    X(N, m, UQ, uint64_t, truncate_uint64_t((double)x))                                                      \
    X(N, m, Q, int64_t, truncate_int64_t((double)x))                                                         \
    X(N, m, TF32, uint32_t, tf32_nearest((float)x))                                                          \
    X(N, m, BF8, uint8_t, TO_BF8(x))                                                                         \
    X(N, m, HF8, uint8_t, TO_HF8(x))
#define ALL_STORES(X)                                                                                        \
    INTEGER_STORES(X, I32, u32)                                                                              \
    X(I32, u32, UQ, uint64_t, x)                                                                             \
    X(I32, s32, Q, int64_t, x)                                                                               \
    INTEGER_STORES(X, I64, u64)                                                                              \
    X(I64, u64, UD, uint32_t, (uint32_t)x)                                                                   \
    X(I64, u64, D, uint32_t, (uint32_t)x)                                                                    \
    X(I64, u64, F, uint32_t, (uint32_t)x)                                                                    \
    FLOAT_STORES(X, F32, f32)                                                                                \
    X(F32, f32, DF, double, (double)x)                                                                       \
    X(F32, f32, HF, uint16_t, TO_HALF(x))                                                                    \
    X(F32, f32, BF, uint16_t, TO_BFLOAT(x))                                                                  \
    FLOAT_STORES(X, F64, f64)                                                                                \
    X(F64, f64, F, float, (float)x)                                                                          \
    X(F64, f64, HF, uint16_t, half_of_double(x, rounding))                                                   \
    X(F64, f64, BF, uint16_t, bfloat_of_double(x, rounding))

#define CONVERT(N, m, TYPE, S, EXPRESSION)                                                                   \
    VECTORIZED static void convert_##N##_##TYPE(void *to, const union lanes *from, const struct thread *t,   \
                                                int lanes) {                                                 \
        S *restrict v = to;                                                                                  \
        const enum rounding rounding = (enum rounding)t->rounding;                                           \
        (void)rounding;                                                                                      \
        EACH_LANE(i, lanes) {                                                                                \
            const __typeof__(from->m[0]) x = from->m[i];                                                     \
            v[i] = EXPRESSION;                                                                               \
        }                                                                                                    \
    }
ALL_STORES(CONVERT)
#undef CONVERT

static convert_function *const converters[DOMAIN_COUNT][TYPE_COUNT] = {
#define CONVERT(N, m, TYPE, S, EXPRESSION) [DOMAIN_##N][TYPE_##TYPE] = convert_##N##_##TYPE,
    ALL_STORES(CONVERT)
#undef CONVERT
};

convert_function *operand_converter(int type, enum domain domain, bool *exists) {
    static const uint8_t same[DOMAIN_COUNT][3] = {{TYPE_UD, TYPE_D, TYPE_F},
                                                  {TYPE_UQ, TYPE_Q, TYPE_DF},
                                                  {TYPE_F, TYPE_F, TYPE_F},
                                                  {TYPE_DF, TYPE_DF, TYPE_DF}};
    const bool none = type == same[domain][0] || type == same[domain][1] || type == same[domain][2];
    convert_function *const f = none ? NULL : converters[domain][type];
    *exists = none || f;
    return f;
}

/* `wraps`: v is a uq, which may be beyond the range of int64_t. */
static int64_t clamp(int64_t v, int type, bool wraps) {
    const int bits = 8 * type_bytes(type);
    const int64_t low = type_is_signed(type) ? (int64_t)(~0ull << (bits - 1)) : 0;
    const int64_t high = bits == 64             ? INT64_MAX
                         : type_is_signed(type) ? (1ll << (bits - 1)) - 1
                                                : (1ll << bits) - 1;
    if (wraps && v < 0) return type == TYPE_UQ ? v : high;
    return v < low ? low : v > high ? high : v;
}

void operand_saturate(union lanes *r, int type, enum domain domain, int lanes, bool wraps) {
    for (int i = 0; i < lanes; i++) switch (domain) {
        case DOMAIN_F32:
            if (type_is_float(type)) r->f32[i] = !(r->f32[i] > 0) ? 0 : r->f32[i] > 1 ? 1 : r->f32[i];
            break;
        case DOMAIN_F64:
            if (type_is_float(type)) r->f64[i] = !(r->f64[i] > 0) ? 0 : r->f64[i] > 1 ? 1 : r->f64[i];
            break;
        case DOMAIN_I64: r->s64[i] = clamp(r->s64[i], type, wraps); break;
        default: break;
        }
}

/* ---- storing ---- */

VECTORIZED static void blend_dwords(uint32_t *to, const uint32_t *v, uint32_t mask, int n) {
    for (int i = 0; i < n; i++) {
        const uint32_t x = v[i], y = to[i];
        to[i] = mask & lane_bit[i] ? x : y;
    }
}

#define SCATTER(T)                                                                                           \
    static void scatter_##T(uint8_t *r, const uint16_t *lane, const void *packed, uint32_t mask) {           \
        const T *v = packed;                                                                                 \
        for (uint32_t m = mask; m; m &= m - 1) {                                                             \
            const int i = __builtin_ctz(m);                                                                  \
            memcpy(r + lane[i], v + i, sizeof *v);                                                           \
        }                                                                                                    \
    }
SCATTER(uint8_t)
SCATTER(uint16_t)
SCATTER(uint32_t)
SCATTER(uint64_t)

void operand_store(struct thread *t, const struct instruction *in, uint32_t mask, const void *packed) {
    const struct operand *o = &in->destination;
    uint16_t lanes[MAX_LANES];
    uint8_t *r = t->registers;
    const int size = type_bytes(o->type);
    if (o->kind == OPERAND_NULL) return;
    if (o->shape == SHAPE_CONTIGUOUS) {
        uint8_t *to = r + o->lane[0];
        if (mask == in->lane_mask) {
            copy_lanes(to, packed, (size_t)(size * in->lanes));
            return;
        }
        if (size == 4) {
            blend_dwords((uint32_t *)(void *)to, packed, mask, in->lanes);
            return;
        }
    }
    const uint16_t *lane = operand_lanes(t, o, lanes);
    switch (size) {
    case 1: scatter_uint8_t(r, lane, packed, mask); break;
    case 2: scatter_uint16_t(r, lane, packed, mask); break;
    case 4: scatter_uint32_t(r, lane, packed, mask); break;
    case 8: scatter_uint64_t(r, lane, packed, mask); break;
    default: break;
    }
}
