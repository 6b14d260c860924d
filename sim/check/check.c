/* What is checked, in the order in which it happens (there is one worker):
 *
 * Bounds: an access of global memory lies in one bound range. Local memory's size is always checked
 * (memory.c).
 *
 * Uninitialized: what is read of local memory where the group has written nothing decides no branch and no
 * address, and is not stored to global memory; it may be copied and computed with (taint.c).
 *
 * Races: of two accesses to the same byte, at least one a write and none an atomic, by different hardware
 * threads, one must be ordered before the other:
 *   - in a group, by a barrier between them;
 *   - anywhere, by a release after the first (a fence, then an atomic) and an acquire (an atomic) before the
 * second. Work-items of one hardware thread run in lockstep: sub-group barriers leave no trace in machine
 * code. Which variable an atomic uses is not compared, and between groups a release by any thread counts for
 * its group: this misses some races and reports none that are not. A write of what memory holds already is no
 * race. */
#include "check/check.h"

#include <stdlib.h>

#include "check/taint.h"
#include "eu/unit.h"

enum { CELL_BYTES = 4, CELLS = SIM_PAGE / CELL_BYTES, BUCKETS = 1 << 14, READERS = 2 };

/* Who accessed, when. `time` counts fences and atomics of the walk. */
struct event {
    uint32_t thread; /* in its group, plus 1; 0: nobody */
    uint32_t group, interval, time, instruction;
};

struct cell {
    struct event writer, reader[READERS];
    uint8_t written, read; /* bytes: of the last writer, of the readers */
    uint8_t initialized;   /* bytes: of local memory */
};

struct page {
    struct page *next;
    uint64_t number;
    struct cell cells[CELLS];
};

/* Releases of a thread or of a group: the one at `when` covers what was written before `covers`. */
struct releases {
    uint32_t count, capacity;
    struct {
        uint32_t covers, when;
    } *of;
    uint32_t fence[2], acquired; /* times of the last fence (global, local) and atomic; 0: none */
};

struct check_walk {
    const struct sim_walk *walk;
    const struct program *program;
    unsigned checks;
    uint32_t time, group;
    struct releases *groups, *threads;
    uint64_t group_count;
    int thread_count;
    struct cell *local;
    struct taint *taints;    /* of the group's threads */
    uint32_t tainted_stores; /* lanes of the current message */
    uint8_t *reported;       /* of each instruction: enum sim_check */
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
                        const struct event *other, bool other_writes) {
    const struct instruction *in = &c->program->code[other->instruction];
    REPORT(c, a, SIM_CHECK_RACES,
           "race: %s of %s memory at %#llx, lane %d, is not ordered with a %s by %s thread %u (group %u of "
           "the walk) at +%#x: %s",
           a->store ? "write" : "read", a->local ? "local" : "global", (unsigned long long)address, a->lane,
           other_writes ? "write" : "read", other->group == c->group ? "this group's" : "another group's",
           other->thread - 1, other->group, in->offset, in->text);
}

/* ---- order ---- */

static bool released(const struct releases *r, uint32_t time, uint32_t acquired) {
    uint32_t low = 0, high = r->count;
    while (low < high) { /* the first release that covers `time` */
        const uint32_t middle = (low + high) / 2;
        if (r->of[middle].covers > time)
            high = middle;
        else
            low = middle + 1;
    }
    return low < r->count && r->of[low].when <= acquired;
}

static bool is_ordered(const struct check_walk *c, const struct event *before, const struct thread *t) {
    if (!before->thread) return true;
    if (before->group == c->group) {
        const uint32_t thread = before->thread - 1;
        return (int)thread == t->id || before->interval < t->interval ||
               released(&c->threads[thread], before->time, c->threads[t->id].acquired);
    }
    /* private memory, found by the slot where a thread runs */
    const uint32_t slots = (uint32_t)t->group->worker->slot_groups, count = (uint32_t)c->thread_count;
    const uint32_t slot = (uint32_t)(t->slot - t->group->worker->first_slot);
    if ((before->group % slots) * count + before->thread - 1 == slot) return true;
    return released(&c->groups[before->group], before->time, c->groups[c->group].acquired);
}

static void release(struct releases *r, uint32_t now) {
    const uint32_t fence = r->fence[0] > r->fence[1] ? r->fence[0] : r->fence[1];
    if (!fence || (r->count && r->of[r->count - 1].covers >= fence)) return;
    if (r->count == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 4;
        r->of = realloc(r->of, r->capacity * sizeof *r->of);
        if (!r->of) abort();
    }
    r->of[r->count].covers = fence;
    r->of[r->count++].when = now;
}

static void synchronize(struct check_walk *c, const struct access *a) {
    const uint32_t now = ++c->time;
    struct releases *const both[] = {&c->threads[a->thread->id], &c->groups[c->group]};
    for (int i = 0; i < 2; i++) {
        if (i && a->local) break; /* other groups do not see local memory */
        release(both[i], now);
        both[i]->acquired = now;
    }
}

void check_fence(struct thread *t, bool local) {
    struct check_walk *c = t->group->worker->check;
    const uint32_t now = ++c->time;
    c->threads[t->id].fence[local] = now;
    if (!local) c->groups[c->group].fence[0] = now;
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
    if (a->store) {
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

/* `offset`: of the cell's first byte in the access. */
static void taint_load(struct check_walk *c, const struct access *a, uint32_t offset, uint32_t size) {
    struct taint *x = &c->taints[a->thread->id];
    const struct message *m = a->message;
    if (!m || a->in->destination.kind != OPERAND_REGISTER) return;
    const int place = m->transposed ? 0
                                    : a->element * block_bytes(a->thread, a->in, m->register_bytes) +
                                          a->lane * m->register_bytes;
    memset(x->bytes + a->in->destination.lane[0] + place + (int)offset + m->shift / 8, 0xff, size);
    x->any = true;
}

static void check_initialized(struct check_walk *c, const struct access *a, struct cell *cell,
                              uint32_t offset, uint32_t size, uint8_t bytes) {
    if (a->store && !a->atomic) {
        if (c->tainted_stores >> a->lane & 1)
            cell->initialized &= (uint8_t)~bytes;
        else
            cell->initialized |= bytes;
    } else if (bytes & ~cell->initialized) {
        if (a->atomic)
            REPORT(c, a, SIM_CHECK_UNINITIALIZED, "atomic of local memory that was not written, lane %d",
                   a->lane);
        else
            taint_load(c, a, offset, size);
    }
    if (a->atomic) cell->initialized |= bytes;
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
    c->tainted_stores = kept ? lanes : 0;
    if (use == TAINT_UNUSED || kept) return;
    const struct access a = {.thread = t, .in = in};
    REPORT(c, &a, SIM_CHECK_UNINITIALIZED, "%s on local memory that was not written, lane %d", uses[use],
           __builtin_ctz(lanes));
}

static void check_cell(struct check_walk *c, const struct access *a, uint64_t address, const uint8_t *from,
                       uint32_t offset, uint32_t size) {
    struct cell *cell = cell_at(c, a->local, address);
    const uint8_t bytes = (uint8_t)(((1u << size) - 1) << (address % CELL_BYTES));
    const struct event now = {(uint32_t)a->thread->id + 1, c->group, a->thread->interval, c->time,
                              (uint32_t)(a->in - c->program->code)};
    if (a->local && (c->checks & SIM_CHECK_UNINITIALIZED)) check_initialized(c, a, cell, offset, size, bytes);
    if (!(c->checks & SIM_CHECK_RACES) || a->atomic) return;
    if ((cell->written & bytes) && !is_ordered(c, &cell->writer, a->thread) &&
        (!a->store || changes(a, address, from, size)))
        report_race(c, a, address, &cell->writer, true);
    if (a->store && (cell->read & bytes))
        for (int i = 0; i < READERS; i++)
            if (!is_ordered(c, &cell->reader[i], a->thread) && changes(a, address, from, size))
                report_race(c, a, address, &cell->reader[i], false);
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
        "access of %u bytes at %#llx, lane %d, crosses the end of an allocation of %llu bytes", size,
        (unsigned long long)address, a->lane, (unsigned long long)bytes);
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
    if (a->atomic) synchronize(c, a);
    if (!a->local && (a->scratch || !(c->checks & SIM_CHECK_RACES))) return true;
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
    c->group_count = groups;
    c->thread_count = w->threads > 0 ? w->threads : 1;
    c->groups = calloc(groups, sizeof *c->groups);
    c->threads = calloc((size_t)c->thread_count, sizeof *c->threads);
    c->local = calloc(w->local_bytes / CELL_BYTES + 1, sizeof *c->local);
    c->reported = calloc(program->count, 1);
    c->taints = calloc((size_t)c->thread_count, sizeof *c->taints);
    if (!c->groups || !c->threads || !c->local || !c->taints || !c->reported) abort();
    return c;
}

void check_walk_end(struct check_walk *c) {
    for (int i = 0; i < BUCKETS; i++)
        for (struct page *p = c->buckets[i], *next; p; p = next) {
            next = p->next;
            free(p);
        }
    for (uint64_t i = 0; i < c->group_count; i++) free(c->groups[i].of);
    for (int i = 0; i < c->thread_count; i++) free(c->threads[i].of);
    free(c->groups);
    free(c->threads);
    free(c->local);
    free(c->reported);
    free(c->taints);
    free(c);
}

void check_group_start(struct group *g, uint64_t index) {
    struct check_walk *c = g->worker->check;
    c->group = (uint32_t)index;
    memset(c->local, 0, (g->local_bytes / CELL_BYTES + 1) * sizeof *c->local);
    for (int i = 0; i < c->thread_count; i++) {
        if (c->taints[i].any) memset(&c->taints[i], 0, sizeof c->taints[i]);
        c->threads[i].count = 0;
        c->threads[i].fence[0] = c->threads[i].fence[1] = c->threads[i].acquired = 0;
    }
}
