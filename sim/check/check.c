/* What is checked, in the order in which it happens (there is one worker):
 *
 * Bounds: an access of global memory lies in one allocation, whose exact size OpenCL tells (opencl.c). Local
 * memory's size is always checked (memory.c).
 *
 * Uninitialized: what is read where nobody has written decides no branch and no address, and what is computed
 * from it is not stored to global memory (taint.c). Of local memory it is known who has written. Global
 * memory is full of SIM_POISON when the program allocates it, so that what the host and the copy engines
 * write need not be followed; it may be copied as it is.
 *
 * Races: of two accesses to the same byte, at least one a write and not both atomics, by different hardware
 * threads, one must be ordered before the other (order.h):
 * in a group, by a barrier between them, with a fence after writes of global memory; anywhere, by a release
 * after the first (a fence, then an atomic) and an acquire (an atomic, then a fence) before the second.
 * Work-items of one hardware thread run in lockstep, and compilers emit nothing for a subgroup's barrier: a
 * missing one is no fault in machine code. Which variable an atomic uses is not compared: this misses some
 * races and reports none that are not. A write of what memory holds already is no race, and neither is a read
 * beside an atomic, of global memory or where the kernel compares and swaps: such loops begin with one.
 *
 * Barriers: all work-items come to the same one (reported with races). */
#include "check/check.h"

#include <stdlib.h>

#include "check/order.h"
#include "check/taint.h"
#include "eu/unit.h"

enum { CELL_BYTES = 4, CELLS = SIM_PAGE / CELL_BYTES, BUCKETS = 1 << 14, READERS = 2 };

/* Who accessed, when. `time` counts fences, atomics and barriers of the walk. */
struct event {
    uint32_t thread; /* in its group, plus 1; 0: nobody */
    uint32_t group, interval, time, instruction;
};

struct cell {
    struct event writer, reader[READERS], atomic; /* atomic: the last one that wrote */
    uint8_t written, read, updated; /* bytes: of the last writer, of the readers, of the atomic */
    uint8_t initialized;            /* bytes: of local memory */
};

struct page {
    struct page *next;
    uint64_t number;
    struct cell cells[CELLS];
};

struct check_walk {
    const struct sim_walk *walk;
    const struct program *program;
    unsigned checks;
    uint32_t time, group;
    struct order *order;
    int thread_count;
    bool swaps;                      /* the program compares and swaps in local memory */
    uint32_t barrier, barrier_phase; /* instruction that the group waits at; phase plus 1 */
    struct cell *local;
    struct taint *taints; /* of the group's threads */
    uint8_t *reported;    /* of each instruction: enum sim_check */
    struct page *buckets[BUCKETS];
    uint64_t allocation_start, allocation_end; /* the last range that an access was found in */
};

/* ---- reports ---- */

static bool is_first_report(struct check_walk *c, const struct access *a, unsigned kind) {
    uint8_t *r = &c->reported[a->in - c->program->code];
    const bool first = !(*r & kind);
    *r |= (uint8_t)kind;
    return first;
}

/* The thread goes on. */
#define REPORT(c, a, kind, ...)                                                                              \
    do {                                                                                                     \
        if (is_first_report(c, a, kind)) {                                                                   \
            thread_fault((a)->thread, (a)->in, __VA_ARGS__);                                                 \
            (a)->thread->state = THREAD_RUNS;                                                                \
        }                                                                                                    \
    } while (0)

static void report_race(struct check_walk *c, const struct access *a, uint64_t address,
                        const struct event *other, const char *what) {
    const struct instruction *in = &c->program->code[other->instruction];
    REPORT(c, a, SIM_CHECK_RACES,
           "race: %s of %s memory at %#llx, lane %d, is not ordered with a %s by %s thread %u (group %u of "
           "the walk) at +%#x: %s",
           a->atomic  ? "atomic"
           : a->store ? "write"
                      : "read",
           a->local ? "local" : "global", (unsigned long long)address, a->lane, what,
           other->group == c->group ? "this group's" : "another group's", other->thread - 1, other->group,
           in->offset, in->text);
}

/* ---- order ---- */

static bool is_ordered(const struct check_walk *c, const struct event *before, const struct access *a,
                       bool is_read) {
    const struct thread *t = a->thread;
    if (!before->thread) return true;
    const uint32_t other = before->thread - 1, own = (uint32_t)t->id;
    if (before->group == c->group) {
        if (other == own || (is_read && before->interval < t->interval)) return true;
    } else { /* private memory, found by the slot where a thread runs */
        const uint32_t slots = (uint32_t)t->group->worker->slot_groups, count = (uint32_t)c->thread_count;
        const uint32_t slot = (uint32_t)(t->slot - t->group->worker->first_slot);
        if ((before->group % slots) * count + other == slot) return true;
    }
    return order_knows(c->order, own, a->local, before->group, other, before->time);
}

void check_fence(struct thread *t, bool local, bool device) {
    struct check_walk *c = t->group->worker->check;
    order_fence(c->order, (uint32_t)t->id,
                local    ? FENCE_LOCAL
                : device ? FENCE_DEVICE
                         : FENCE_GROUP,
                ++c->time);
}

void check_barrier(struct thread *t, const struct instruction *in) {
    struct check_walk *c = t->group->worker->check;
    const struct access a = {.thread = t, .in = in};
    const uint32_t own = (uint32_t)(in - c->program->code), phase = t->barrier_phase;
    order_arrive(c->order, (uint32_t)t->id, phase, ++c->time);
    if (!(c->checks & SIM_CHECK_RACES)) return;
    if (t->active != t->started)
        REPORT(c, &a, SIM_CHECK_RACES,
               "divergent barrier: of the thread's lanes %#x only %#x have come to it", t->started,
               t->active);
    if (c->barrier_phase != phase + 1) {
        c->barrier_phase = phase + 1;
        c->barrier = own;
    } else if (c->barrier != own) {
        REPORT(c, &a, SIM_CHECK_RACES,
               "divergent barrier: other threads of the group wait for the one at +%#x",
               c->program->code[c->barrier].offset);
    }
}

void check_barrier_passed(struct thread *t) {
    struct check_walk *c = t->group->worker->check;
    order_pass(c->order, (uint32_t)t->id, t->barrier_phase);
}

/* ---- cells ---- */

static struct cell *cell_at(struct check_walk *c, bool local, uint64_t address) {
    if (local) return &c->local[address / CELL_BYTES];
    const uint64_t number = address / SIM_PAGE;
    struct page **bucket = &c->buckets[(number ^ number >> 14) % BUCKETS], *p = *bucket;
    while (p && p->number != number) p = p->next;
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p) abort();
        p->number = number;
        p->next = *bucket;
        *bucket = p;
    }
    return &p->cells[address % SIM_PAGE / CELL_BYTES];
}

/* Whether the write would change memory: `from` is what is written, or NULL if that is not known. */
static bool changes(const struct access *a, uint64_t address, const uint8_t *from, uint32_t size) {
    const uint8_t *host = from ? memory_locate(a, address, size) : NULL;
    return !host || memcmp(host, from, size) != 0;
}

static void record(struct cell *cell, const struct access *a, const struct event *now, uint8_t bytes) {
    if (a->atomic) {
        if (!a->store) return;
        cell->atomic = *now;
        cell->updated = bytes;
        return;
    }
    if (a->store) {
        cell->updated = 0;
        cell->writer = *now;
        cell->written = bytes;
        cell->reader[0].thread = cell->reader[1].thread = 0;
        cell->read = 0;
        return;
    }
    struct event *r = &cell->reader[0];
    if (r->thread && (r->thread != now->thread || r->group != now->group)) r = &cell->reader[1];
    *r = *now;
    cell->read |= bytes;
}

static bool is_poison(const uint8_t *bytes, uint32_t size) {
    while (size && bytes[size - 1] == SIM_POISON) size--;
    return !size;
}

/* Where the part of an access from its byte `offset` on lies in the registers of an operand. */
static int part_of(const struct access *a, const struct operand *o, uint32_t offset) {
    const struct message *m = a->message;
    const int place = m->transposed ? 0
                                    : a->element * block_bytes(a->thread, a->in, m->register_bytes) +
                                          a->lane * m->register_bytes;
    return o->lane[0] + place + (int)offset + m->shift / 8;
}

/* The part of the access at `address`, which is its byte `offset`. */
static void taint_load(struct check_walk *c, const struct access *a, uint64_t address, uint32_t offset,
                       uint32_t size) {
    struct taint *x = &c->taints[a->thread->id];
    const uint8_t *host = memory_locate(a, address, size);
    const struct operand *to = &a->in->destination;
    if (!a->message || to->kind != OPERAND_REGISTER) return;
    memset(x->bytes + part_of(a, to, offset), host && is_poison(host, size) ? TAINT_COPY : TAINT_VALUE, size);
    x->any = true;
}

static bool is_tainted_store(struct check_walk *c, const struct access *a, uint32_t offset, uint32_t size) {
    const struct taint *x = &c->taints[a->thread->id];
    const struct operand *from = &a->in->source[1];
    return x->any && a->message && from->kind == OPERAND_REGISTER &&
           is_tainted(x, part_of(a, from, offset), (int)size);
}

static void check_initialized(struct check_walk *c, const struct access *a, struct cell *cell,
                              uint64_t address, uint32_t offset, uint32_t size, uint8_t bytes) {
    if (a->store && !a->atomic) {
        if (is_tainted_store(c, a, offset, size))
            cell->initialized &= (uint8_t)~bytes;
        else
            cell->initialized |= bytes;
    } else if (bytes & ~cell->initialized) {
        if (a->atomic)
            REPORT(c, a, SIM_CHECK_UNINITIALIZED, "atomic of local memory that was not written, lane %d",
                   a->lane);
        else
            taint_load(c, a, address, offset, size);
    }
    if (a->atomic) cell->initialized |= bytes;
}

/* A part of a read or of an atomic in global memory, that lies in one cell. */
static void check_written(struct check_walk *c, const struct access *a, uint64_t address, uint32_t offset,
                          uint32_t size) {
    const uint8_t *host = memory_locate(a, address & ~(uint64_t)(CELL_BYTES - 1), CELL_BYTES);
    if (!host || !is_poison(host, CELL_BYTES)) return;
    if (a->atomic)
        REPORT(c, a, SIM_CHECK_UNINITIALIZED, "atomic of global memory that was not written, lane %d",
               a->lane);
    else
        taint_load(c, a, address, offset, size);
}

void check_block_read(struct thread *t, const uint8_t *registers, uint32_t size) {
    struct check_walk *c = t->group->worker->check;
    struct taint *x = &c->taints[t->id];
    if (!(c->checks & SIM_CHECK_UNINITIALIZED)) return;
    for (uint32_t at = 0; at + CELL_BYTES <= size; at += CELL_BYTES)
        if (is_poison(registers + at, CELL_BYTES)) {
            memset(x->bytes + (registers - t->registers) + at, TAINT_COPY, CELL_BYTES);
            x->any = true;
        }
}

void check_block_write(const struct access *a, const uint8_t *registers, uint32_t size) {
    struct check_walk *c = a->thread->group->worker->check;
    const struct taint *x = &c->taints[a->thread->id];
    if (!(c->checks & SIM_CHECK_UNINITIALIZED) || !x->any) return;
    if (taint_is_stored(x, a->thread, (int)(registers - a->thread->registers), (int)size))
        REPORT(c, a, SIM_CHECK_UNINITIALIZED, "what is stored depends on memory that was not written");
}

void check_instruction(struct thread *t, const struct instruction *in, uint32_t mask) {
    static const char *const uses[] = {"", "an address depends", "what is stored depends",
                                       "a branch depends"};
    struct check_walk *c = t->group->worker->check;
    uint32_t lanes;
    if (!(c->checks & SIM_CHECK_UNINITIALIZED)) return;
    const enum taint_use use = taint_follow(&c->taints[t->id], t, in, mask, &lanes);
    const struct message *m = &in->message;
    const bool is_private = m->local || m->model == MODEL_SURFACE || m->model == MODEL_BINDLESS; /* spills */
    const bool kept = use == TAINT_DATA && is_private && !m->atomic;
    if (use == TAINT_UNUSED || kept) return;
    const struct access a = {.thread = t, .in = in};
    REPORT(c, &a, SIM_CHECK_UNINITIALIZED, "%s on memory that was not written, lane %d", uses[use],
           __builtin_ctz(lanes));
}

/* Are reads beside atomics races? */
static bool are_reads_checked(const struct check_walk *c, const struct access *a) {
    return a->local && !c->swaps;
}

static void check_cell(struct check_walk *c, const struct access *a, uint64_t address, const uint8_t *from,
                       uint32_t offset, uint32_t size) {
    struct cell *cell = cell_at(c, a->local, address);
    const uint8_t bytes = (uint8_t)(((1u << size) - 1) << (address % CELL_BYTES));
    const struct event now = {(uint32_t)a->thread->id + 1, c->group, a->thread->interval, c->time,
                              (uint32_t)(a->in - c->program->code)};
    if (c->checks & SIM_CHECK_UNINITIALIZED) {
        if (!a->local && (!a->store || a->atomic)) check_written(c, a, address, offset, size);
        if (a->local) check_initialized(c, a, cell, address, offset, size, bytes);
    }
    if (!(c->checks & SIM_CHECK_RACES)) return;
    if ((cell->written & bytes) && !is_ordered(c, &cell->writer, a, false) &&
        (!a->store || changes(a, address, from, size)))
        report_race(c, a, address, &cell->writer, "write");
    if (!a->atomic && (a->store || are_reads_checked(c, a)) && (cell->updated & bytes) &&
        !is_ordered(c, &cell->atomic, a, false))
        report_race(c, a, address, &cell->atomic, "atomic");
    if (a->store && (!a->atomic || are_reads_checked(c, a)) && (cell->read & bytes))
        for (int i = 0; i < READERS; i++)
            if (!is_ordered(c, &cell->reader[i], a, true) && changes(a, address, from, size))
                report_race(c, a, address, &cell->reader[i], "read");
    record(cell, a, &now, bytes);
}

static bool check_bounds(struct check_walk *c, const struct access *a, uint64_t address, uint32_t size) {
    if (address >= c->allocation_start && address + size <= c->allocation_end) return true;
    uint64_t start, bytes;
    if (!sim_vm_allocation(c->walk->vm, address, &start, &bytes))
        return true; /* memory.c reports the page fault */
    c->allocation_start = start;
    c->allocation_end = start + bytes;
    if (address + size <= start + bytes) return true;
    return thread_fault(
        a->thread, a->in,
        "%s of %u bytes at %#llx, lane %d, ends %llu bytes behind an allocation of %llu bytes",
        a->atomic  ? "atomic"
        : a->store ? "write"
                   : "read",
        size, (unsigned long long)address, a->lane, (unsigned long long)(address + size - start - bytes),
        (unsigned long long)bytes);
}

bool check_access(const struct access *a, uint64_t address, const void *from, uint32_t size) {
    struct check_walk *c = a->thread->group->worker->check;
    if (a->local) {
        address = local_address(address);
        if (address + size > a->thread->group->local_bytes) return true; /* memory.c reports it */
    } else {
        address &= (1ull << c->walk->product->address_bits) - 1;
        if ((c->checks & SIM_CHECK_MEMORY) && !check_bounds(c, a, address, size)) return false;
    }
    if (a->atomic) order_atomic(c->order, (uint32_t)a->thread->id, a->local, ++c->time);
    if (!a->local && (a->scratch || !(c->checks & (SIM_CHECK_RACES | SIM_CHECK_UNINITIALIZED)))) return true;
    for (uint32_t at = 0; at < size;) {
        uint32_t n = CELL_BYTES - (uint32_t)((address + at) % CELL_BYTES);
        if (n > size - at) n = size - at;
        check_cell(c, a, address + at, from ? (const uint8_t *)from + at : NULL, at, n);
        at += n;
    }
    return true;
}

/* ---- walks and groups ---- */

struct check_walk *check_walk_start(const struct sim_walk *w, const struct program *program,
                                    uint64_t groups) {
    struct check_walk *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->walk = w;
    c->program = program;
    c->checks = sim_options()->checks;
    c->time = 1;
    for (uint32_t i = 0; i < program->count; i++)
        c->swaps |= program->code[i].message.swap && program->code[i].message.local;
    c->thread_count = w->threads > 0 ? w->threads : 1;
    c->order = order_start(groups, (uint32_t)c->thread_count);
    c->local = calloc(w->local_bytes / CELL_BYTES + 1, sizeof *c->local);
    c->reported = calloc(program->count, 1);
    c->taints = calloc((size_t)c->thread_count, sizeof *c->taints);
    if (!c->local || !c->taints || !c->reported) abort();
    return c;
}

void check_walk_end(struct check_walk *c) {
    for (int i = 0; i < BUCKETS; i++)
        for (struct page *p = c->buckets[i], *next; p; p = next) {
            next = p->next;
            free(p);
        }
    order_end(c->order);
    free(c->local);
    free(c->reported);
    free(c->taints);
    free(c);
}

void check_group_start(struct group *g, uint64_t index) {
    struct check_walk *c = g->worker->check;
    c->group = (uint32_t)index;
    memset(c->local, 0, (g->local_bytes / CELL_BYTES + 1) * sizeof *c->local);
    c->barrier_phase = 0;
    order_group_start(c->order, c->group);
    for (int i = 0; i < c->thread_count; i++)
        if (c->taints[i].any) memset(&c->taints[i], 0, sizeof c->taints[i]);
}
