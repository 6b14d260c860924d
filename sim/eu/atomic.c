/* Atomics of the load/store cache. Groups may run on several threads of the host, so they are the host's
 * atomics. */
#include "eu/unit.h"

#include "eu/memory.h"

enum {
    ATOMIC_INC = 8,
    ATOMIC_DEC,
    ATOMIC_LOAD,
    ATOMIC_STORE,
    ATOMIC_ADD,
    ATOMIC_SUB,
    ATOMIC_SMIN,
    ATOMIC_SMAX,
    ATOMIC_UMIN,
    ATOMIC_UMAX,
    ATOMIC_CAS,
    ATOMIC_FADD,
    ATOMIC_FSUB,
    ATOMIC_FMIN,
    ATOMIC_FMAX,
    ATOMIC_FCAS,
    ATOMIC_AND,
    ATOMIC_OR,
    ATOMIC_XOR
};

static int64_t sign_extended(uint64_t v, int bytes) {
    const int shift = 64 - 8 * bytes;
    return (int64_t)(v << shift) >> shift;
}

static uint64_t integer_result(int operation, int bytes, uint64_t old, uint64_t a, uint64_t b) {
    const uint64_t mask = bytes == 8 ? ~0ull : (1ull << (8 * bytes)) - 1;
    const int64_t so = sign_extended(old, bytes), sa = sign_extended(a, bytes);
    switch (operation) {
    case ATOMIC_INC: return old + 1;
    case ATOMIC_DEC: return old - 1;
    case ATOMIC_STORE: return a;
    case ATOMIC_ADD: return old + a;
    case ATOMIC_SUB: return old - a;
    case ATOMIC_SMIN: return sa < so ? a : old;
    case ATOMIC_SMAX: return sa > so ? a : old;
    case ATOMIC_UMIN: return (a & mask) < (old & mask) ? a : old;
    case ATOMIC_UMAX: return (a & mask) > (old & mask) ? a : old;
    case ATOMIC_CAS: return (old & mask) == (a & mask) ? b : old;
    case ATOMIC_AND: return old & a;
    case ATOMIC_OR: return old | a;
    case ATOMIC_XOR: return old ^ a;
    default: return old;
    }
}

static double double_of(uint64_t v, int bytes) {
    double d;
    if (bytes == 2) return float_of_half((uint16_t)v);
    if (bytes == 4) return float_of_bits((uint32_t)v);
    memcpy(&d, &v, sizeof d);
    return d;
}

static uint64_t bits_of(double d, int bytes) {
    uint64_t v;
    if (bytes == 2) return half_nearest((float)d);
    if (bytes == 4) return bits_of_float((float)d);
    memcpy(&v, &d, sizeof v);
    return v;
}

/* A sum of two floats, rounded to double and then to float, is rounded as if once. */
static uint64_t float_result(int operation, int bytes, uint64_t old, uint64_t a, uint64_t b) {
    const double o = double_of(old, bytes), x = double_of(a, bytes);
    switch (operation) {
    case ATOMIC_FADD: return bits_of(o + x, bytes);
    case ATOMIC_FSUB: return bits_of(o - x, bytes);
    case ATOMIC_FMIN: return o != o || x < o ? a : old;
    case ATOMIC_FMAX: return o != o || x > o ? a : old;
    default: return o == x ? b : old; /* FCAS */
    }
}

static uint64_t result_of(int operation, int bytes, uint64_t old, uint64_t a, uint64_t b) {
    const bool is_float = operation >= ATOMIC_FADD && operation <= ATOMIC_FCAS;
    return is_float ? float_result(operation, bytes, old, a, b) : integer_result(operation, bytes, old, a, b);
}

#define UPDATE(T)                                                                                            \
    static uint64_t update_##T(uint8_t *host, int operation, uint64_t a, uint64_t b) {                       \
        T *p = (T *)(void *)host, old = __atomic_load_n(p, __ATOMIC_SEQ_CST);                                \
        if (operation == ATOMIC_LOAD) return old;                                                            \
        while (!__atomic_compare_exchange_n(p, &old, (T)result_of(operation, sizeof(T), old, a, b), false,   \
                                            __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}                          \
        return old;                                                                                          \
    }
UPDATE(uint16_t)
UPDATE(uint32_t)
UPDATE(uint64_t)

static bool update(const struct access *a, const struct message *m, uint64_t address, uint64_t x, uint64_t y,
                   uint64_t *old) {
    uint64_t ignored;
    if (address % m->element_bytes)
        return thread_fault(a->thread, a->in, "atomic at %#llx is not aligned, lane %d",
                            (unsigned long long)address, a->lane);
    if (a->thread->group->worker->check && !memory_read(a, address, &ignored, m->element_bytes)) return false;
    uint8_t *host = memory_locate(a, address, m->element_bytes);
    if (!host) return memory_read(a, address, &ignored, m->element_bytes) && false; /* reports the fault */
    *old = m->element_bytes == 2   ? update_uint16_t(host, m->operation, x, y)
           : m->element_bytes == 4 ? update_uint32_t(host, m->operation, x, y)
                                   : update_uint64_t(host, m->operation, x, y);
    return true;
}

static bool atomic(struct thread *t, const struct instruction *in, const struct message *m, uint32_t mask) {
    uint64_t base = 0, size, address[MAX_LANES];
    if (!m->local && m->model != MODEL_FLAT &&
        !memory_surface(t, in, (enum address_model)m->model, m->extended, &base, &size))
        return false;
    lsc_addresses(t, in, m, base, address);
    struct access a = {
        .thread = t, .in = in, .local = m->local, .store = m->operation != ATOMIC_LOAD, .atomic = true};
    const uint8_t *from = t->registers + in->source[1].lane[0];
    const int block = block_bytes(t, in, m->register_bytes);
    for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
        const int i = __builtin_ctz(lanes);
        uint64_t x = 0, y = 0, old = 0;
        a.lane = i;
        if (in->source[1].kind == OPERAND_REGISTER) {
            memcpy(&x, from + i * m->register_bytes, m->register_bytes);
            if (in->source[1].registers * register_bytes(t) > block)
                memcpy(&y, from + block + i * m->register_bytes, m->register_bytes);
        }
        if (!update(&a, m, address[i], x, y, &old)) return false;
        if (in->destination.kind == OPERAND_REGISTER)
            memcpy(t->registers + in->destination.lane[0] + i * m->register_bytes, &old, m->register_bytes);
    }
    return true;
}

void atomic_decode(struct message *m, const struct instruction *in) {
    (void)in;
    m->atomic = true;
    m->swap = m->operation == ATOMIC_CAS || m->operation == ATOMIC_FCAS;
    if (m->element_bytes >= 2 && m->elements == 1 && !m->transposed && !m->shift) m->execute = atomic;
}
