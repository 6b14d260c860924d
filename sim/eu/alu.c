#include "eu/alu.h"

#include <xmmintrin.h>

#include "eu/operand.h"
#include "eu/thread.h"

const union lanes zero_lanes;

static void load_sources(struct alu *x, union lanes s[3]) {
    const struct instruction *in = x->in;
    if (in->sources > 0) x->a = operand_load(x->thread, &in->source[0], &s[0]);
    if (in->sources > 1) x->b = operand_load(x->thread, &in->source[1], &s[1]);
    if (in->sources > 2) x->c = operand_load(x->thread, &in->source[2], &s[2]);
}

static void store_result(struct thread *t, const struct instruction *in, uint32_t mask, union lanes *r) {
    union lanes packed;
    if (in->saturate)
        operand_saturate(r, in->destination.type, in->domain, in->lanes, in->source[0].type == TYPE_UQ);
    if (in->convert) in->convert(&packed, r, t, in->lanes);
    operand_store(t, in, mask, in->convert ? &packed : r);
}

/* Subnormals become zero, if cr0 says so: of operands and results that are hf. */
#define FLUSH_HALF(m, F)                                                                                     \
    static void flush_half_##m(union lanes *v, int lanes) {                                                  \
        for (int i = 0; i < lanes; i++)                                                                      \
            if (__builtin_fabs##F(v->m[i]) < 0x1p-14f) v->m[i] = __builtin_copysign##F(0, v->m[i]);          \
    }
FLUSH_HALF(f32, f)
FLUSH_HALF(f64, )

static void compute(struct alu *x, union lanes s[3]) {
    const struct instruction *in = x->in;
    const void *const sources[] = {x->a, x->b, x->c};
    if (!x->thread->flush_half || in->domain < DOMAIN_F32 || in->opcode == OP_MOV) {
        in->compute(x);
        return;
    }
    void (*flush_half)(union lanes *, int) = in->domain == DOMAIN_F32 ? flush_half_f32 : flush_half_f64;
    for (int i = 0; i < in->sources; i++)
        if (in->source[i].type == TYPE_HF && sources[i] == &s[i]) flush_half(&s[i], in->lanes);
    in->compute(x);
    if (in->destination.type == TYPE_HF) flush_half(x->result, in->lanes);
}

void alu_execute(struct thread *t, const struct instruction *in, uint32_t mask) {
    union lanes s[3], r;
    struct alu x = {.result = &r, .lanes = in->lanes, .mask = mask, .in = in, .thread = t};
    load_sources(&x, s);
    compute(&x, s);
    store_result(t, in, mask, &r);
}

/* A copy of contiguous lanes of one size. */
void alu_move(struct thread *t, const struct instruction *in, uint32_t mask) {
    union lanes s;
    const size_t size = (size_t)(in->lanes * type_bytes(in->destination.type));
    if (mask == in->lane_mask) {
        memmove(t->registers + in->destination.lane[0], t->registers + in->source[0].lane[0], size);
        return;
    }
    memcpy(&s, t->registers + in->source[0].lane[0], size);
    operand_store(t, in, mask, &s);
}

/* Conditions look at the result as the destination's type holds it; but where an addition or a product is
 * compared in order, at the exact result. */
static void wrap(union lanes *r, const struct instruction *in) {
    const int type = in->destination.type ? in->destination.type : in->source[0].type,
              bytes = type_bytes(type);
    const bool ordered = in->condition != COND_EQ && in->condition != COND_NE;
    if (bytes == 8 || (ordered && !in->saturate && (in->opcode == OP_ADD || in->opcode == OP_MUL))) return;
    if (in->saturate) {
        operand_saturate(r, type, in->domain, in->lanes, in->source[0].type == TYPE_UQ);
        return;
    }
    const int shift = 64 - 8 * bytes;
    for (int i = 0; i < in->lanes; i++) {
        const uint64_t top = r->u64[i] << shift;
        r->s64[i] = type_is_signed(type) ? (int64_t)top >> shift : (int64_t)(top >> shift);
    }
}

/* Floating-point results as the integers that the destination gets, in the domain. IGC merges comparisons of
 * these with 0 into the conversion. */
static void to_integers(union lanes *to, const union lanes *r, const struct instruction *in) {
    const bool is_signed = type_is_signed(in->destination.type);
    for (int i = 0; i < in->lanes; i++) {
        const double v = __builtin_trunc(in->domain == DOMAIN_F32 ? (double)r->f32[i] : r->f64[i]);
        const double held = v > 0 || (is_signed && v < 0) ? v : 0; /* NaN becomes 0 */
        if (in->domain == DOMAIN_F32)
            to->f32[i] = (float)held;
        else
            to->f64[i] = held;
    }
}

/* Sums that the destination's type does not hold. */
static uint32_t overflow_bits(const union lanes *r, const struct instruction *in) {
    union lanes held = *r;
    uint32_t bits = 0;
    operand_saturate(&held, in->destination.type ? in->destination.type : in->source[0].type, in->domain,
                     in->lanes, false);
    for (int i = 0; i < in->lanes; i++) bits |= (0u - (uint32_t)(held.u64[i] != r->u64[i])) & lane_bit[i];
    return bits;
}

void alu_execute_flags(struct thread *t, const struct instruction *in, uint32_t mask) {
    union lanes s[3], r;
    struct alu x = {.result = &r, .lanes = in->lanes, .mask = mask, .in = in, .thread = t};
    load_sources(&x, s);
    compute(&x, s);
    uint32_t bits = 0xffffffffu; /* early out of math.invm and math.rsqtm */
    if (in->condition == COND_OV) {
        bits = overflow_bits(&r, in);
    } else if (in->condition != COND_EO) {
        if (in->domain == DOMAIN_I64) wrap(&r, in);
        union lanes integers;
        const union lanes *seen = &r;
        const bool is_float = in->domain == DOMAIN_F32 || in->domain == DOMAIN_F64;
        if (is_float && in->destination.type && !type_is_float(in->destination.type)) {
            to_integers(&integers, &r, in);
            seen = &integers;
        }
        bits = in->compare(seen, &zero_lanes, in->lanes);
    }
    store_result(t, in, mask, &r);
    flag_merge(t, in, mask, bits);
}

static void store_truth(struct thread *t, const struct instruction *in, uint32_t mask, uint32_t bits) {
    union lanes r;
    if (in->destination.kind == OPERAND_NULL) return;
    for (int i = 0; i < in->lanes; i++) {
        const uint64_t v = bits & lane_bit[i] ? ~0ull : 0;
        switch (type_bytes(in->destination.type)) {
        case 1: r.u8[i] = (uint8_t)v; break;
        case 2: r.u16[i] = (uint16_t)v; break;
        case 4: r.u32[i] = (uint32_t)v; break;
        default: r.u64[i] = v; break;
        }
    }
    operand_store(t, in, mask, &r);
}

void alu_compare(struct thread *t, const struct instruction *in, uint32_t mask) {
    union lanes s[2];
    const void *a = operand_load(t, &in->source[0], &s[0]), *b = operand_load(t, &in->source[1], &s[1]);
    const uint32_t bits = in->compare(a, b, in->lanes);
    store_truth(t, in, mask, bits);
    flag_merge(t, in, mask, bits);
}

VECTORIZED static void choose_32(uint32_t *restrict r, const uint32_t *a, const uint32_t *b, uint32_t bits,
                                 int n) {
    EACH_LANE(i, n) {
        const uint32_t x = a[i], y = b[i];
        r[i] = bits & lane_bit[i] ? x : y;
    }
}
VECTORIZED static void choose_64(uint64_t *restrict r, const uint64_t *a, const uint64_t *b, uint32_t bits,
                                 int n) {
    EACH_LANE(i, n) {
        const uint64_t x = a[i], y = b[i];
        r[i] = bits & lane_bit[i] ? x : y;
    }
}

static void choose(struct thread *t, const struct instruction *in, uint32_t mask, const struct alu *x,
                   uint32_t bits) {
    union lanes r;
    if (in->domain == DOMAIN_I32 || in->domain == DOMAIN_F32)
        choose_32(r.u32, x->a, x->b, bits, in->lanes);
    else
        choose_64(r.u64, x->a, x->b, bits, in->lanes);
    store_result(t, in, mask, &r);
}

/* sel: lanes of the predicate take the first source. */
void alu_select(struct thread *t, const struct instruction *in, uint32_t mask) {
    union lanes s[3];
    struct alu x = {.lanes = in->lanes, .mask = mask, .in = in, .thread = t};
    load_sources(&x, s);
    choose(t, in, mask, &x, predicate_bits(t, in));
}

/* sel with a condition is a minimum or maximum; csel compares its third source
 * with 0. */
void alu_select_condition(struct thread *t, const struct instruction *in, uint32_t mask) {
    union lanes s[3];
    struct alu x = {.lanes = in->lanes, .mask = mask, .in = in, .thread = t};
    load_sources(&x, s);
    const bool third = in->opcode == OP_CSEL;
    choose(t, in, mask, &x, in->compare(third ? x.c : x.a, third ? &zero_lanes : x.b, in->lanes));
}

/* cr0: bits 5:4 rounding; 6, 7 and 10 keep subnormals of doubles, floats, halves. For the first two the host
 * has one switch for both. */
void alu_apply_control(struct thread *t) {
    static const unsigned host_rounding[] = {_MM_ROUND_NEAREST, _MM_ROUND_UP, _MM_ROUND_DOWN,
                                             _MM_ROUND_TOWARD_ZERO};
    uint32_t cr;
    memcpy(&cr, t->registers + REG_CONTROL, sizeof cr);
    t->rounding = (int)(cr >> 4 & 3);
    t->flush_half = !(cr & 0x400);
    const unsigned flush = cr & 0x80 ? 0 : 0x8040; /* FTZ and DAZ */
    _mm_setcsr((_mm_getcsr() & ~(unsigned)(_MM_ROUND_MASK | 0x8040)) | host_rounding[t->rounding] | flush);
}

/* Instructions that read or write architecture registers. */
void alu_execute_special(struct thread *t, const struct instruction *in, uint32_t mask) {
    const uint64_t time = sim_timestamp();
    memcpy(t->registers + REG_TIME, &time, sizeof time);
    memcpy(t->registers + REG_CHANNEL, &t->active, sizeof t->active);
    if (in->sets_flags)
        alu_execute_flags(t, in, mask);
    else
        alu_execute(t, in, mask);
    if (in->destination.lane[0] >= REG_CONTROL && in->destination.lane[0] < REG_STATE) alu_apply_control(t);
}
