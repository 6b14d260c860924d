/* Loads, stores and fences of the load/store cache (LSC): units ugm (global memory), slm (local) and tgm
 * (fences only). Descriptor, from vISA's and IGA's public sources: operation 5:0, address size 8:7, data size
 * 11:9, elements of a lane 14:12 (component mask 15:12 of load_quad, store_quad), transposed 15, address
 * model 30:29. */
#include "eu/unit.h"

#include "check/check.h"
#include "eu/memory.h"
#include "profile.h"

enum {
    LSC_LOAD = 0,
    LSC_LOAD_QUAD = 2,
    LSC_LOAD_BLOCK = 3,
    LSC_STORE = 4,
    LSC_STORE_QUAD = 6,
    LSC_STORE_BLOCK = 7,
    LSC_ATOMIC_FIRST = 8,
    LSC_ATOMIC_LAST = 26,
    LSC_FENCE = 31
};

static uint8_t *payload(struct thread *t, const struct operand *o) { return t->registers + o->lane[0]; }

/* Buffers are addressed flat, or in the binding table. */
static bool is_scratch(const struct message *m) {
    return m->model == MODEL_SURFACE || m->model == MODEL_BINDLESS;
}

/* ---- addresses ---- */

void lsc_addresses(const struct thread *t, const struct instruction *in, const struct message *m,
                   uint64_t base, uint64_t address[MAX_LANES]) {
    const uint8_t *from = t->registers + in->source[0].lane[0];
    const uint64_t start = base + (uint64_t)(int64_t)m->offset;
    for (int i = 0; i < in->lanes; i++) {
        uint64_t a = 0;
        if (m->address_bytes == 8)
            memcpy(&a, from + 8 * i, 8);
        else if (m->address_bytes == 4)
            memcpy(&a, from + 4 * i, 4);
        else
            memcpy(&a, from + 2 * i, 2);
        address[i] = a + start;
    }
}

/* What immediate offsets hold depends on the model of the address and on where the extended descriptor
 * stands. */
static int32_t immediate_offset(const struct message *m, const struct instruction *in) {
    if (in->extended_register >= 0) {
        const uint32_t packed = in->message.extended >> 19 << 4 | (in->message.extended >> 12 & 15);
        return (int32_t)(packed << 15) >> 15;
    }
    if (m->model == MODEL_FLAT) return (int32_t)m->extended >> 12;
    if (m->model == MODEL_BINDING_TABLE) return (int32_t)(m->extended << 8) >> 20;
    return 0;
}

static bool surface(struct thread *t, const struct instruction *in, const struct message *m, uint64_t *base) {
    uint64_t size;
    *base = 0;
    if (m->local || m->model == MODEL_FLAT) return true;
    return memory_surface(t, in, (enum address_model)m->model, m->extended, base, &size);
}

static void count_addresses(const struct thread *t, const struct instruction *in, const struct message *m,
                            const uint64_t address[MAX_LANES], uint32_t mask) {
    if (t->group->worker->counts) profile_addresses(t->group->worker, in, m, address, mask);
}

/* ---- loads and stores ---- */

bool lsc_block(struct thread *t, const struct instruction *in, const struct message *m, uint32_t mask) {
    uint64_t base, address[MAX_LANES];
    if (!(mask & 1)) return true;
    if (!surface(t, in, m, &base)) return false;
    lsc_addresses(t, in, m, base, address);
    count_addresses(t, in, m, address, mask);
    const uint32_t size = (uint32_t)m->elements * m->element_bytes;
    const struct access a = {
        .thread = t, .in = in, .message = m, .local = m->local, .scratch = is_scratch(m), .store = m->store};
    if (m->store) return memory_write(&a, address[0], payload(t, &in->source[1]), size);
    if (is_prefetch(m, in)) return true;
    return memory_read(&a, address[0], payload(t, &in->destination), size);
}

/* Whether all lanes access consecutive elements that lie in one page: then *host is the first. */
static bool is_consecutive(const struct access *a, const struct instruction *in, const struct message *m,
                           uint32_t mask, const uint64_t address[MAX_LANES], uint8_t **host) {
    if (mask != in->lane_mask || m->components || m->elements != 1 || m->element_bytes != m->register_bytes)
        return false;
    bool all = true;
    for (int i = 1; i < in->lanes; i++) all &= address[i] == address[0] + (uint64_t)(i * m->element_bytes);
    if (!all || a->thread->group->worker->check) return false;
    *host = memory_locate(a, address[0], (uint32_t)(in->lanes * m->element_bytes));
    return *host != NULL;
}

/* Where an element lies in memory: quads pack those components in registers that their mask selects. */
static int component(const struct message *m, int element) {
    if (!m->components) return element;
    uint32_t rest = m->components;
    while (element--) rest &= rest - 1;
    return __builtin_ctz(rest);
}

static bool load_element(const struct access *a, const struct message *m, uint64_t address, uint8_t *to) {
    uint64_t v = 0;
    const uint8_t *host =
        a->thread->group->worker->check ? NULL : memory_locate(a, address, m->element_bytes);
    if (!host) {
        if (!memory_read(a, address, &v, m->element_bytes)) return false;
    } else {
        switch (m->element_bytes) {
        case 1: v = *host; break;
        case 2: memcpy(&v, host, 2); break;
        case 4: memcpy(&v, host, 4); break;
        default: memcpy(&v, host, 8); break;
        }
    }
    v <<= m->shift;
    if (m->register_bytes == 4)
        memcpy(to, &v, 4);
    else
        memcpy(to, &v, 8);
    return true;
}

static bool store_element(const struct access *a, const struct message *m, uint64_t address,
                          const uint8_t *from) {
    uint64_t v = 0;
    if (m->register_bytes == 4)
        memcpy(&v, from, 4);
    else
        memcpy(&v, from, 8);
    v >>= m->shift;
    uint8_t *host = a->thread->group->worker->check ? NULL : memory_locate(a, address, m->element_bytes);
    if (!host) return memory_write(a, address, &v, m->element_bytes);
    switch (m->element_bytes) {
    case 1: memcpy(host, &v, 1); break;
    case 2: memcpy(host, &v, 2); break;
    case 4: memcpy(host, &v, 4); break;
    default: memcpy(host, &v, 8); break;
    }
    return true;
}

/* Moves the elements of all lanes between memory and the registers of the payload. */
static bool transfer(struct thread *t, const struct instruction *in, const struct message *m, uint32_t mask,
                     uint8_t *registers) {
    uint64_t base, address[MAX_LANES];
    uint8_t *host;
    struct access a = {
        .thread = t, .in = in, .message = m, .local = m->local, .scratch = is_scratch(m), .store = m->store};
    if (!surface(t, in, m, &base)) return false;
    lsc_addresses(t, in, m, base, address);
    count_addresses(t, in, m, address, mask);
    if (is_consecutive(&a, in, m, mask, address, &host)) {
        copy_lanes(m->store ? host : registers, m->store ? registers : host,
                   (size_t)(in->lanes * m->element_bytes));
        return true;
    }
    const int block = block_bytes(t, in, m->register_bytes);
    bool ok = true;
    for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
        a.lane = __builtin_ctz(lanes);
        for (a.element = 0; a.element < m->elements && ok; a.element++) {
            const uint64_t at = address[a.lane] + (uint64_t)(component(m, a.element) * m->element_bytes);
            uint8_t *const held = registers + a.element * block + a.lane * m->register_bytes;
            ok = m->store ? store_element(&a, m, at, held) : load_element(&a, m, at, held);
        }
    }
    return ok;
}

bool lsc_load(struct thread *t, const struct instruction *in, const struct message *m, uint32_t mask) {
    if (is_prefetch(m, in)) return true;
    return transfer(t, in, m, mask, payload(t, &in->destination));
}

bool lsc_store(struct thread *t, const struct instruction *in, const struct message *m, uint32_t mask) {
    return transfer(t, in, m, mask, payload(t, &in->source[1]));
}

/* Memory is in order here. */
bool lsc_fence(struct thread *t, const struct instruction *in, const struct message *m, uint32_t mask) {
    (void)mask;
    enum { SCOPE_TILE = 2 }; /* descriptor 11:9; smaller ones: the group, the core */
    const bool device = in->unit == UNIT_DC0 || (m->descriptor >> 9 & 7) >= SCOPE_TILE;
    if (t->group->worker->check) check_fence(t, m->local, device);
    if (in->destination.kind == OPERAND_REGISTER)
        memset(payload(t, &in->destination), 0, (size_t)register_bytes(t));
    return true;
}

/* ---- descriptors ---- */

static void decode_data(struct message *m, bool quad) {
    static const uint8_t address_size[] = {0, 2, 4, 8};
    static const uint8_t memory_size[] = {1, 2, 4, 8, 1, 2, 2, 0},
                         element_count[] = {1, 2, 3, 4, 8, 16, 32, 64};
    const uint32_t d = m->descriptor, size = d >> 9 & 7, mask = d >> 12 & 15;
    m->address_bytes = address_size[d >> 7 & 3];
    m->element_bytes = memory_size[size];
    m->register_bytes = size == 3 ? 8 : 4;
    m->shift = size == 6 ? 16 : 0;
    m->elements = quad ? (uint8_t)__builtin_popcount(mask) : element_count[d >> 12 & 7];
    m->transposed = !quad && (d >> 15 & 1);
    /* d8, d16 (sizes 0 and 1) exist in transposed form only */
    if (!m->transposed && size < 2) m->element_bytes = 0;
    m->components = quad ? (uint8_t)mask : 0;
}

void lsc_decode(struct message *m, const struct instruction *in) {
    m->operation = m->descriptor & 63;
    m->local = in->unit == UNIT_SLM;
    m->model = m->local ? MODEL_FLAT : (uint8_t)(m->descriptor >> 29 & 3);
    if (m->operation == LSC_FENCE) {
        m->execute = lsc_fence;
        return;
    }
    if (in->unit == UNIT_TGM) return;
    if (m->operation == LSC_LOAD_BLOCK || m->operation == LSC_STORE_BLOCK) {
        m->store = m->operation == LSC_STORE_BLOCK;
        block2d_decode(m, in);
        return;
    }
    decode_data(m, m->operation == LSC_LOAD_QUAD || m->operation == LSC_STORE_QUAD);
    m->offset = immediate_offset(m, in);
    m->store = m->operation == LSC_STORE || m->operation == LSC_STORE_QUAD;
    if (!m->element_bytes || !m->address_bytes) return;
    if (m->operation >= LSC_ATOMIC_FIRST && m->operation <= LSC_ATOMIC_LAST)
        atomic_decode(m, in);
    else if (m->operation == LSC_LOAD || m->operation == LSC_LOAD_QUAD)
        m->execute = m->transposed ? lsc_block : lsc_load;
    else if (m->store)
        m->execute = m->transposed ? lsc_block : lsc_store;
}
