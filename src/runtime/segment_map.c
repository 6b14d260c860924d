/* The segment map (segment_map.h): a three-level radix table. Owners are atomic words, because two segments
 * of different devices, with different locks, may share a granule. */
#include "runtime/segment_map.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/memory.h"
#include "core/status.h"

enum {
    GRANULE_BITS = 21,
    LEAF_BITS = 14,
    MIDDLE_BITS = 14,
    ROOT_BITS = 64 - GRANULE_BITS - LEAF_BITS - MIDDLE_BITS
};

/* A granule's owners in one word that is read without a lock. Two segments can share a granule: `low` owns
 * its first bytes, `high` its last. The word holds both lengths and both devices; length 0 means no owner. */
typedef struct granule {
    _Atomic uint64_t owners;
    struct segment *low, *high; /* each guarded by its own device's lock */
} granule;

enum { LENGTH_BITS = GRANULE_BITS + 1, DEVICE_BITS = 8, HALF_BITS = LENGTH_BITS + DEVICE_BITS };

static uint64_t owner_pack(size_t length, int device) { return length | (uint64_t)device << LENGTH_BITS; }
static size_t owner_length(uint64_t half) { return half & (((uint64_t)1 << LENGTH_BITS) - 1); }
static int owner_device(uint64_t half) { return (int)(half >> LENGTH_BITS & ((1u << DEVICE_BITS) - 1)); }
static uint64_t owners_low(uint64_t owners) { return owners & (((uint64_t)1 << HALF_BITS) - 1); }
static uint64_t owners_high(uint64_t owners) { return owners >> HALF_BITS; }

typedef struct leaf {
    granule granules[(size_t)1 << LEAF_BITS];
} leaf;
typedef struct middle {
    _Atomic(leaf *) leaves[(size_t)1 << MIDDLE_BITS];
} middle;

/* Nodes are added and never removed, so readers need no lock. */
static _Atomic(middle *) root[(size_t)1 << ROOT_BITS];

static granule *find_granule(uintptr_t address) {
    uintptr_t i = address >> GRANULE_BITS;
    middle *m = atomic_load_explicit(&root[i >> (LEAF_BITS + MIDDLE_BITS)], memory_order_acquire);
    if (!m) return NULL;
    leaf *l = atomic_load_explicit(&m->leaves[i >> LEAF_BITS & (((uintptr_t)1 << MIDDLE_BITS) - 1)],
                                   memory_order_acquire);
    if (!l) return NULL;
    return &l->granules[i & (((uintptr_t)1 << LEAF_BITS) - 1)];
}

static granule *make_granule(uintptr_t address) {
    uintptr_t i = address >> GRANULE_BITS;
    _Atomic(middle *) *at_middle = &root[i >> (LEAF_BITS + MIDDLE_BITS)];
    middle *m = atomic_load_explicit(at_middle, memory_order_acquire);
    if (!m) {
        middle *fresh = core_calloc(1, sizeof *fresh);
        if (!fresh) return NULL;
        if (atomic_compare_exchange_strong(at_middle, &m, fresh))
            m = fresh;
        else
            core_free(fresh); /* another thread was first */
    }
    _Atomic(leaf *) *at_leaf = &m->leaves[i >> LEAF_BITS & (((uintptr_t)1 << MIDDLE_BITS) - 1)];
    leaf *l = atomic_load_explicit(at_leaf, memory_order_acquire);
    if (!l) {
        leaf *fresh = core_calloc(1, sizeof *fresh);
        if (!fresh) return NULL;
        if (atomic_compare_exchange_strong(at_leaf, &l, fresh))
            l = fresh;
        else
            core_free(fresh);
    }
    return &l->granules[i & (((uintptr_t)1 << LEAF_BITS) - 1)];
}

int segment_map_device(const void *pointer) {
    const granule *g = find_granule((uintptr_t)pointer);
    if (!g) return -1;
    uint64_t owners = atomic_load_explicit(&g->owners, memory_order_acquire);
    size_t offset = (uintptr_t)pointer & (SEGMENT_GRANULE - 1);
    if (offset < owner_length(owners_low(owners))) return owner_device(owners_low(owners));
    if (SEGMENT_GRANULE - offset <= owner_length(owners_high(owners)))
        return owner_device(owners_high(owners));
    return -1;
}

struct segment *segment_map_find(const void *pointer) {
    const granule *g = find_granule((uintptr_t)pointer);
    if (!g) return NULL;
    uint64_t owners = atomic_load_explicit(&g->owners, memory_order_acquire);
    size_t offset = (uintptr_t)pointer & (SEGMENT_GRANULE - 1);
    if (offset < owner_length(owners_low(owners))) return g->low;
    if (SEGMENT_GRANULE - offset <= owner_length(owners_high(owners))) return g->high;
    return NULL;
}

/* Length of the overlap of [base, base+size) with the granule at `start`; *high: it is at the upper end. */
static size_t part(uintptr_t start, uintptr_t base, size_t size, bool *high) {
    *high = base > start;
    if (*high) return SEGMENT_GRANULE - (base - start);
    uintptr_t end = base + size; /* a segment never ends at the very top of the address space */
    return end - start < SEGMENT_GRANULE ? end - start : SEGMENT_GRANULE;
}

/* Claims one side of a granule, or releases it (length 0). Returns false if another segment has those bytes.
 */
static bool set_owner(granule *g, bool high, size_t length, int device) {
    uint64_t half = owner_pack(length, device), old = atomic_load(&g->owners), new;
    do {
        uint64_t low = owners_low(old), up = owners_high(old);
        if (length) {
            size_t mine = owner_length(high ? up : low), other = owner_length(high ? low : up);
            if (mine || other + length > SEGMENT_GRANULE) return false;
        }
        new = high ? (low | half << HALF_BITS) : (half | up << HALF_BITS);
    } while (!atomic_compare_exchange_weak(&g->owners, &old, new));
    return true;
}

static void remove_until(uintptr_t base, size_t size, uintptr_t stop) {
    for (uintptr_t at = base & ~(SEGMENT_GRANULE - 1); at < stop; at += SEGMENT_GRANULE) {
        bool high;
        part(at, base, size, &high);
        set_owner(find_granule(at), high, 0, 0);
    }
}

xpu_status segment_map_add(int device, struct segment *segment, char *base, size_t size) {
    uintptr_t first = (uintptr_t)base, end = first + size;
    for (uintptr_t at = first & ~(SEGMENT_GRANULE - 1); at < end; at += SEGMENT_GRANULE)
        if (!make_granule(at))
            return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY,
                            "out of host memory while recording a segment of %zu bytes", size);
    for (uintptr_t at = first & ~(SEGMENT_GRANULE - 1); at < end; at += SEGMENT_GRANULE) {
        bool high;
        size_t length = part(at, first, size, &high);
        granule *g = find_granule(at);
        if (!set_owner(g, high, length, device)) {
            remove_until(first, size, at);
            return xpu_fail(
                XPU_ERROR_NOT_SUPPORTED,
                "the driver of device %d returned memory at %p that overlaps another device's memory", device,
                (void *)base);
        }
        *(high ? &g->high : &g->low) = segment;
    }
    return XPU_SUCCESS;
}

void segment_map_remove(char *base, size_t size) {
    remove_until((uintptr_t)base, size, (uintptr_t)base + size);
}
