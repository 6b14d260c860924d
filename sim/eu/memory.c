#include "eu/memory.h"

#include "check/check.h"

uint8_t *memory_page(struct worker *w, uint64_t address) {
    const uint64_t page = address / SIM_PAGE;
    const uint32_t offset = (uint32_t)(address & (SIM_PAGE - 1)), slot = page & (TLB_ENTRIES - 1);
    if (w->tlb[slot].page == page && w->tlb[slot].host) return w->tlb[slot].host + offset;
    uint8_t *host = sim_vm_host(w->vm, page * SIM_PAGE);
    if (!host) return NULL;
    w->tlb[slot].page = page;
    w->tlb[slot].host = host;
    return host + offset;
}

uint8_t *memory_locate(const struct access *a, uint64_t address, uint32_t size) {
    const struct group *g = a->thread->group;
    if (a->local) {
        address = local_address(address);
        return address + size <= g->local_bytes ? g->local + address : NULL;
    }
    if ((address & (SIM_PAGE - 1)) + size > SIM_PAGE) return NULL;
    return memory_page(g->worker, address);
}

static bool fault(const struct access *a, uint64_t address, uint32_t size) {
    const char *const what = a->atomic ? "atomic" : a->store ? "write" : "read";
    if (a->local)
        return thread_fault(
            a->thread, a->in, "%s of %u bytes at %#llx of local memory, which has %u bytes, lane %d", what,
            size, (unsigned long long)local_address(address), a->thread->group->local_bytes, a->lane);
    return thread_fault(a->thread, a->in, "page fault: %s of %u bytes at %#llx, lane %d", what, size,
                        (unsigned long long)address, a->lane);
}

bool memory_read(const struct access *a, uint64_t address, void *to, uint32_t size) {
    if (a->thread->group->worker->check && !check_access(a, address, NULL, size)) return false;
    const uint8_t *host = memory_locate(a, address, size);
    if (host) {
        memcpy(to, host, size);
        return true;
    }
    if (!a->local && sim_vm_read(a->thread->group->walk->vm, address, to, size)) return true;
    return fault(a, address, size);
}

bool memory_write(const struct access *a, uint64_t address, const void *from, uint32_t size) {
    if (a->thread->group->worker->check && !check_access(a, address, from, size)) return false;
    uint8_t *host = memory_locate(a, address, size);
    if (host) {
        memcpy(host, from, size);
        return true;
    }
    if (!a->local && sim_vm_write(a->thread->group->walk->vm, address, from, size)) return true;
    return fault(a, address, size);
}

/* RENDER_SURFACE_STATE: type in 31:29 of dword 0, base in dwords 8 and 9; of buffers the size less one in
 * pieces in dwords 2 and 3; of scratch the bytes of a thread less one in dword 3. */
enum { SURFACE_BUFFER = 4, SURFACE_SCRATCH = 6 };

static bool read_surface(struct thread *t, const struct instruction *in, uint64_t state) {
    struct worker *w = t->group->worker;
    uint32_t s[16];
    if (!sim_vm_read(w->vm, state, s, sizeof s))
        return thread_fault(t, in, "surface state at %#llx is not mapped", (unsigned long long)state);
    const uint32_t type = s[0] >> 29;
    w->surface.base = s[8] | (uint64_t)s[9] << 32;
    w->surface.scratch = type == SURFACE_SCRATCH;
    if (type == SURFACE_SCRATCH)
        w->surface.size = (s[3] & 0x3ffff) + 1;
    else if (type == SURFACE_BUFFER)
        w->surface.size =
            (s[2] & 0x7f) + 1 + ((uint64_t)(s[2] >> 16 & 0x3fff) << 7) + ((uint64_t)(s[3] >> 21) << 21);
    else
        return thread_fault(t, in, "surface of type %u at %#llx: only buffers and scratch memory are known",
                            type, (unsigned long long)state);
    return true;
}

bool memory_surface(struct thread *t, const struct instruction *in, enum address_model model,
                    uint32_t extended, uint64_t *base, uint64_t *size) {
    const struct sim_walk *walk = t->group->walk;
    struct worker *w = t->group->worker;
    enum { STATELESS_FROM = 240 }; /* entries of the binding table from here on are no surfaces */
    if (model == MODEL_BINDING_TABLE && extended >> 24 >= STATELESS_FROM) {
        *base = walk->bases.general;
        *size = UINT64_MAX;
        return true;
    }
    const uint64_t key = (uint64_t)model << 32 | extended | 1ull << 40;
    if (w->surface.key != key) {
        uint64_t state;
        if (model == MODEL_BINDING_TABLE) {
            uint32_t entry;
            if (!sim_vm_read(w->vm, walk->bases.surface + walk->binding_table + 4 * (extended >> 24), &entry,
                             4))
                return thread_fault(t, in, "binding table is not mapped");
            state = walk->bases.surface + (entry & ~63u);
        } else {
            state = (model == MODEL_BINDLESS ? walk->bases.bindless_surface : walk->bases.surface) +
                    (extended & ~63u);
        }
        if (!read_surface(t, in, state)) return false;
        w->surface.key = key;
    }
    *base = w->surface.base + (w->surface.scratch ? w->surface.size * (uint64_t)t->slot : 0);
    *size = w->surface.size;
    return true;
}
