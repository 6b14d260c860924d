/* Address spaces: a page table of host addresses with four or five levels of 9 bits, read without a lock, and
 * a sorted list of the bound ranges, for what the page table does not say: exact sizes and whom a range
 * belongs to. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "xe/xe.h"

#define ENTRIES 512u

struct page_table {
    _Atomic(void *) entries[ENTRIES]; /* of the last level: host addresses of pages; else tables */
};

struct range {
    uint64_t start, size;
    uint8_t *host;        /* of `start` */
    struct xe_bo *object; /* with a reference; NULL for the process' own memory and null ranges */
    bool null;            /* reads give zeros, writes are dropped */
};

struct sim_vm {
    struct page_table root;
    uint64_t mask; /* of an address' bits */
    int top;       /* the root's level: 3 or 4; the last level is 0 */
    atomic_uint_fast64_t generation;
    uint32_t flags, references; /* under the file's lock */
    pthread_mutex_t lock;       /* of all below, and of changes of the page table */
    struct range *ranges;       /* sorted by start, disjoint */
    size_t count, room;
    uint8_t *null_page; /* what null ranges are mapped to, page by page; or NULL */
};

/* Generations are unique in the process, so that a cache need not ask which address space an entry is of. */
static atomic_uint_fast64_t next_generation = 1;

/* ---- the page table ---- */

static unsigned entry_of(uint64_t address, int level) {
    return (unsigned)(address >> (12 + 9 * level)) % ENTRIES;
}

/* The last level's table for an address; NULL if there is none and `make` is false, or without memory. */
static struct page_table *leaf(struct sim_vm *vm, uint64_t address, bool make) {
    struct page_table *table = &vm->root;
    for (int level = vm->top; level; level--) {
        _Atomic(void *) *entry = table->entries + entry_of(address, level);
        struct page_table *next = atomic_load_explicit(entry, memory_order_acquire);
        if (!next) {
            if (!make || !(next = calloc(1, sizeof *next))) return NULL;
            atomic_store_explicit(entry, next, memory_order_release);
        }
        table = next;
    }
    return table;
}

/* Maps pages to `host` with `step` bytes from page to page (0: all to the same), or unmaps them if host is
 * NULL. */
static bool map_pages(struct sim_vm *vm, uint64_t start, uint64_t size, uint8_t *host, size_t step) {
    struct page_table *table = NULL;
    for (uint64_t at = 0; at < size; at += SIM_PAGE) {
        unsigned entry = entry_of(start + at, 0);
        if (!table || !entry) table = leaf(vm, start + at, host != NULL);
        if (!table && host) return false;
        if (table)
            atomic_store_explicit(table->entries + entry, host ? host + at / SIM_PAGE * step : NULL,
                                  memory_order_release);
    }
    return true;
}

static void free_tables(struct page_table *table, int level) {
    for (unsigned i = 0; level && i < ENTRIES; i++) {
        struct page_table *next = atomic_load_explicit(table->entries + i, memory_order_relaxed);
        if (!next) continue;
        free_tables(next, level - 1);
        free(next);
    }
}

static void changed(struct sim_vm *vm) {
    atomic_store(&vm->generation, atomic_fetch_add(&next_generation, 1));
}

/* ---- translation ---- */

uint64_t sim_vm_generation(const struct sim_vm *vm) {
    return atomic_load_explicit(&vm->generation, memory_order_acquire);
}

/* Each thread's cache of translations. */
#define CACHED 256u
static _Thread_local struct {
    uint64_t page, generation;
    uint8_t *host;
} cache[CACHED];

uint8_t *sim_vm_host(struct sim_vm *vm, uint64_t address) {
    uint64_t page = (address & vm->mask) / SIM_PAGE, generation = sim_vm_generation(vm);
    unsigned slot = (unsigned)page % CACHED;
    if (cache[slot].page != page || cache[slot].generation != generation) {
        struct page_table *table = leaf(vm, address & vm->mask, false);
        uint8_t *host =
            !table ? NULL : atomic_load_explicit(table->entries + entry_of(address, 0), memory_order_acquire);
        if (!host) return NULL;
        cache[slot].page = page;
        cache[slot].generation = generation;
        cache[slot].host = host;
    }
    return cache[slot].host + address % SIM_PAGE;
}

bool sim_vm_read(struct sim_vm *vm, uint64_t address, void *to, size_t size) {
    while (size) {
        size_t part = SIM_PAGE - address % SIM_PAGE;
        if (part > size) part = size;
        const uint8_t *host = sim_vm_host(vm, address);
        if (!host) return false;
        memcpy(to, host, part);
        to = (uint8_t *)to + part;
        address += part;
        size -= part;
    }
    return true;
}

bool sim_vm_write(struct sim_vm *vm, uint64_t address, const void *from, size_t size) {
    while (size) {
        size_t part = SIM_PAGE - address % SIM_PAGE;
        if (part > size) part = size;
        uint8_t *host = sim_vm_host(vm, address);
        if (!host) return false;
        memcpy(host, from, part);
        from = (const uint8_t *)from + part;
        address += part;
        size -= part;
    }
    return true;
}

/* ---- ranges ---- */

/* The index of the first range that ends after `address`. */
static size_t first_after(const struct sim_vm *vm, uint64_t address) {
    size_t low = 0, high = vm->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (vm->ranges[middle].start + vm->ranges[middle].size <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool sim_vm_allocation(struct sim_vm *vm, uint64_t address, uint64_t *start, uint64_t *size) {
    address &= vm->mask;
    pthread_mutex_lock(&vm->lock);
    size_t at = first_after(vm, address);
    bool found = at < vm->count && vm->ranges[at].start <= address;
    if (found) {
        *start = vm->ranges[at].start;
        *size = vm->ranges[at].size;
        const struct range *r = &vm->ranges[at];
        const uint64_t before =
            r->object ? (uint64_t)(r->host - r->object->file->memory) - r->object->offset : 0;
        if (r->object && r->object->requested > before && r->object->requested - before < r->size)
            *size = r->object->requested - before;
    }
    pthread_mutex_unlock(&vm->lock);
    return found;
}

static bool insert(struct sim_vm *vm, size_t at, struct range range) {
    if (vm->count == vm->room) {
        size_t room = 2 * vm->room + 64;
        struct range *ranges = realloc(vm->ranges, room * sizeof *ranges);
        if (!ranges) return false;
        vm->ranges = ranges;
        vm->room = room;
    }
    memmove(vm->ranges + at + 1, vm->ranges + at, (vm->count++ - at) * sizeof range);
    vm->ranges[at] = range;
    return true;
}

static void drop(struct sim_vm *vm, size_t at) {
    if (vm->ranges[at].object) xe_bo_put(vm->ranges[at].object);
    memmove(vm->ranges + at, vm->ranges + at + 1, (--vm->count - at) * sizeof *vm->ranges);
}

/* Cuts `start`, `size` out of all ranges. */
static bool remove_range(struct sim_vm *vm, uint64_t start, uint64_t size) {
    uint64_t end = start + size;
    for (size_t at = first_after(vm, start); at < vm->count && vm->ranges[at].start < end;) {
        struct range *range = vm->ranges + at;
        uint64_t range_end = range->start + range->size;
        if (range->start >= start && range_end <= end) {
            drop(vm, at);
            continue;
        }
        if (range_end > end) { /* its tail stays: as a range of its own, if its head stays, too */
            struct range tail = *range;
            tail.start = end;
            tail.size = range_end - end;
            if (tail.host && !tail.null) tail.host += end - range->start;
            if (range->start >= start) {
                *range = tail;
                return true;
            }
            range->size = start - range->start;
            if (tail.object) tail.object->references++;
            return insert(vm, at + 1, tail);
        }
        range->size = start - range->start;
        at++;
    }
    return true;
}

/* ---- ioctls ---- */

int xe_vm_create(struct xe_file *file, struct xe_vm_create *create) {
    if (create->extensions || create->reserved[0] || create->reserved[1]) return -EINVAL;
    /* Fault mode is refused, as by a driver for a product without recoverable page faults. */
    if (create->flags & ~(XE_VM_SCRATCH_PAGE | XE_VM_LONG_RUNNING)) return -EINVAL;
    struct sim_vm *vm = calloc(1, sizeof *vm);
    if (!vm) return -ENOMEM;
    vm->flags = create->flags;
    vm->references = 1;
    vm->mask = (1ull << file->product->address_bits) - 1;
    vm->top = file->product->address_bits > 48 ? 4 : 3;
    pthread_mutex_init(&vm->lock, NULL);
    changed(vm);
    create->vm = table_add(&file->vms, vm);
    return create->vm ? 0 : -ENOMEM;
}

struct sim_vm *xe_vm_get(struct sim_vm *vm) {
    vm->references++;
    return vm;
}

void xe_vm_put(struct sim_vm *vm) {
    if (--vm->references) return;
    while (vm->count) drop(vm, vm->count - 1);
    free_tables(&vm->root, vm->top);
    if (vm->null_page) munmap(vm->null_page, SIM_PAGE);
    free(vm->ranges);
    pthread_mutex_destroy(&vm->lock);
    free(vm);
}

int xe_vm_destroy(struct xe_file *file, struct xe_vm_destroy *destroy) {
    if (destroy->pad || destroy->reserved[0] || destroy->reserved[1]) return -EINVAL;
    struct sim_vm *vm = table_get(&file->vms, destroy->vm);
    if (!vm) return -ENOENT;
    if (vm->references > 1) return -EBUSY; /* queues use it */
    table_remove(&file->vms, destroy->vm);
    xe_vm_put(vm);
    return 0;
}

static int check_bind(const struct xe_file *file, const struct sim_vm *vm, const struct xe_bind_op *op) {
    uint32_t flags = XE_BIND_READONLY | XE_BIND_IMMEDIATE | XE_BIND_NULL | XE_BIND_DUMPABLE;
    bool null = op->flags & XE_BIND_NULL;
    SIM_LOG(SIM_LOG_BINDS, "bind: op %u at %#lx, %#lx bytes, object %u, offset %#lx, flags %#x", op->op,
            op->address, op->range, op->object, op->offset, op->flags);
    if (op->extensions || op->pad || op->pad2 || op->reserved[0] || op->reserved[1] || op->reserved[2])
        return -EINVAL;
    if (op->op > XE_BIND_PREFETCH || op->flags & ~flags || (null && (op->op != XE_BIND_MAP || op->object)))
        return -EINVAL;
    if (op->op == XE_BIND_UNMAP_ALL) return table_get(&file->objects, op->object) ? 0 : -ENOENT;
    if (!op->range || op->range % SIM_PAGE || op->address % SIM_PAGE) return -EINVAL;
    if (op->range > vm->mask || op->address > vm->mask + 1 - op->range) return -EINVAL;
    if (op->op == XE_BIND_UNMAP || op->op == XE_BIND_PREFETCH || null) return 0;
    if (op->offset % SIM_PAGE) return -EINVAL;
    if (op->op == XE_BIND_MAP_USERPTR) return op->object ? -EINVAL : 0;
    const struct xe_bo *object = table_get(&file->objects, op->object);
    if (!object) return -ENOENT;
    return op->offset > object->size || op->range > object->size - op->offset ? -EINVAL : 0;
}

/* Maps a range, of which whatever was bound there has been removed. */
static int map(struct xe_file *file, struct sim_vm *vm, const struct xe_bind_op *op) {
    struct range range = {.start = op->address, .size = op->range, .null = op->flags & XE_BIND_NULL};
    if (range.null) {
        if (!vm->null_page)
            vm->null_page = mmap(NULL, SIM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (vm->null_page == MAP_FAILED) vm->null_page = NULL;
        range.host = vm->null_page;
    } else if (op->op == XE_BIND_MAP_USERPTR) {
        range.host = (uint8_t *)(uintptr_t)op->offset;
    } else {
        range.object = table_get(&file->objects, op->object);
        range.host = file->memory + range.object->offset + op->offset;
    }
    if (!range.host || !insert(vm, first_after(vm, range.start), range)) return -ENOMEM;
    if (range.object) range.object->references++;
    return map_pages(vm, range.start, range.size, range.host, range.null ? 0 : SIM_PAGE) ? 0 : -ENOMEM;
}

static int unmap_all(struct sim_vm *vm, const struct xe_bo *object) {
    for (size_t at = 0; at < vm->count;)
        if (vm->ranges[at].object == object) {
            map_pages(vm, vm->ranges[at].start, vm->ranges[at].size, NULL, 0);
            drop(vm, at);
        } else {
            at++;
        }
    return 0;
}

static int bind_one(struct xe_file *file, struct sim_vm *vm, const struct xe_bind_op *op) {
    if (op->op == XE_BIND_PREFETCH) return 0;
    if (op->op == XE_BIND_UNMAP_ALL) return unmap_all(vm, table_get(&file->objects, op->object));
    if (!remove_range(vm, op->address, op->range)) return -ENOMEM;
    if (op->op != XE_BIND_UNMAP) return map(file, vm, op);
    map_pages(vm, op->address, op->range, NULL, 0);
    return 0;
}

static int check_binds(const struct xe_file *file, const struct xe_vm_bind *bind,
                       const struct xe_bind_op *ops) {
    if (bind->extensions || bind->pad || bind->pad2 || bind->reserved[0] || bind->reserved[1]) return -EINVAL;
    const struct sim_vm *vm = table_get(&file->vms, bind->vm);
    if (!vm) return -ENOENT;
    if (bind->queue) return -EINVAL; /* there are no queues of class XE_CLASS_VM_BIND */
    for (uint32_t i = 0; i < bind->count; i++) {
        int status = check_bind(file, vm, ops + i);
        if (status) return status;
    }
    return 0;
}

/* Binds are done before the ioctl returns; the kernel may delay them until their syncs are signaled. */
int xe_vm_bind(struct xe_file *file, struct xe_vm_bind *bind) {
    const struct xe_bind_op *ops = bind->count == 1 ? &bind->op : (const void *)(uintptr_t)bind->ops;
    struct job_sync *syncs = NULL;
    pthread_mutex_lock(&file->lock);
    int status = check_binds(file, bind, ops);
    if (!status) status = xe_syncs_read(file, bind->syncs, bind->sync_count, &syncs);
    pthread_mutex_unlock(&file->lock);
    if (status) return status;

    xe_syncs_await(syncs, bind->sync_count);

    pthread_mutex_lock(&file->lock);
    status = check_binds(file, bind, ops); /* again: another thread may have closed something */
    if (!status) {
        struct sim_vm *vm = table_get(&file->vms, bind->vm);
        pthread_mutex_lock(&vm->lock);
        for (uint32_t i = 0; i < bind->count && !status; i++) status = bind_one(file, vm, ops + i);
        changed(vm);
        pthread_mutex_unlock(&vm->lock);
    }
    pthread_mutex_unlock(&file->lock);
    if (!status) xe_syncs_signal(NULL, syncs, bind->sync_count, true);
    xe_syncs_free(syncs, bind->sync_count);
    return status;
}
