#include "profile.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "eu/decode.h"
#include "eu/unit.h"
#include "predict.h"

enum { LINE = PROFILE_LINE, BANKS = 32, MAX_LINES = 256 };

/* The sums of one kernel over all of its walks. */
struct kernel {
    struct kernel *next;
    char name[64];
    uint64_t address;
    uint64_t walks, groups;
    uint64_t instructions[CLASS_COUNT], lanes[CLASS_COUNT], idle_lanes, matrix_operations;
    uint64_t messages[2][3], bytes[2][3]; /* global, local; load, store, atomic */
    uint64_t lines, conflicts;
    struct prediction predicted;
};
enum { KIND_LOAD, KIND_STORE, KIND_ATOMIC };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kernel *kernels;

struct profile_counts *profile_counts_new(uint32_t instructions) {
    struct profile_counts *c = calloc(1, sizeof *c + instructions * sizeof c->of[0]);
    if (!c) abort();
    c->instructions = instructions;
    return c;
}

/* ---- addresses of a message ---- */

/* Remembers that a walk touches a line, in the extent of the line's allocation. */
static void extend(struct worker *w, uint64_t line, bool store) {
    struct profile_counts *c = w->counts;
    struct profile_extent *e = c->extents;
    const uint64_t address = line * LINE & ((1ull << w->walk->product->address_bits) - 1);
    while (e < c->extents + c->extent_count && (address < e->start || address >= e->end || e->store != store))
        e++;
    if (e == c->extents + PROFILE_EXTENTS) {
        c->elsewhere++;
        return;
    }
    if (e == c->extents + c->extent_count) {
        uint64_t start = address, size = LINE;
        sim_vm_allocation(w->vm, address, &start, &size);
        *e = (struct profile_extent){start, start + size, line, line, store};
        c->extent_count++;
    }
    if (line < e->first) e->first = line;
    if (line > e->last) e->last = line;
}

/* Stores go through the L1 cache to the L2 cache. */
static void touch(struct worker *w, uint64_t line, bool store) {
    /* hashed: rows of a matrix are often a power of two apart */
    uint64_t *const cached = &w->counts->cache[(line * 0x9e3779b97f4a7c15u >> 32) % PROFILE_CACHE_LINES];
    w->counts->lines++;
    if (*cached == line + 1 && !store) return;
    *cached = line + 1;
    w->counts->misses++;
    extend(w, line, store);
}

void profile_range(struct worker *w, const struct instruction *in, const struct message *m, uint64_t address,
                   uint64_t bytes) {
    for (uint64_t line = address / LINE; line * LINE < address + bytes; line++) touch(w, line, m->store);
    if (!is_prefetch(m, in)) w->counts->l1_bytes += bytes;
}

static int touch_lines(struct worker *w, const struct message *m, const uint64_t address[MAX_LANES],
                       uint32_t mask) {
    uint64_t seen[MAX_LINES];
    int n = 0;
    for (uint32_t lanes = m->transposed ? mask & 1 : mask; lanes; lanes &= lanes - 1) {
        const uint64_t start = address[__builtin_ctz(lanes)],
                       end = start + (uint64_t)m->elements * m->element_bytes;
        for (uint64_t line = start / LINE; line * LINE < end; line++) {
            int i = 0;
            while (i < n && seen[i] != line) i++;
            if (i == n && n < MAX_LINES) seen[n++] = line;
        }
    }
    for (int i = 0; i < n; i++) touch(w, seen[i], m->store || m->atomic);
    return n;
}

/* Lanes that access different dwords of one bank wait for each other. */
static uint64_t bank_conflicts(const struct message *m, const uint64_t address[MAX_LANES], uint32_t mask) {
    uint64_t dword[BANKS][MAX_LANES];
    int used[BANKS] = {0}, most = 1;
    if (m->transposed) return 0;
    for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
        const uint64_t at = address[__builtin_ctz(lanes)] / 4;
        const int bank = (int)(at % BANKS);
        int i = 0;
        while (i < used[bank] && dword[bank][i] != at) i++;
        if (i == used[bank]) dword[bank][used[bank]++] = at;
        if (used[bank] > most) most = used[bank];
    }
    return (uint64_t)(most - 1) * m->elements;
}

void profile_addresses(struct worker *w, const struct instruction *in, const struct message *m,
                       const uint64_t address[MAX_LANES], uint32_t mask) {
    if (m->local) {
        w->counts->conflicts += bank_conflicts(m, address, mask);
        return;
    }
    const int lines = touch_lines(w, m, address, mask);
    if (!is_prefetch(m, in)) w->counts->l1_bytes += (uint64_t)lines * LINE;
}

void profile_start_group(struct profile_counts *c) {
    c->groups++;
    memset(c->cache, 0, sizeof c->cache);
}

/* ---- sums ---- */

static void merge_extent(struct profile_counts *to, const struct profile_extent *from) {
    struct profile_extent *e = to->extents;
    while (e < to->extents + to->extent_count && (e->start != from->start || e->store != from->store)) e++;
    if (e == to->extents + PROFILE_EXTENTS) {
        to->elsewhere += from->last - from->first + 1;
        return;
    }
    if (e == to->extents + to->extent_count) to->extents[to->extent_count++] = *from;
    if (from->first < e->first) e->first = from->first;
    if (from->last > e->last) e->last = from->last;
}

void profile_merge(struct profile_counts *to, struct profile_counts *from) {
    for (uint32_t i = 0; i < to->instructions; i++) {
        to->of[i].times += from->of[i].times;
        to->of[i].lanes += from->of[i].lanes;
    }
    to->lines += from->lines;
    to->l1_bytes += from->l1_bytes;
    to->misses += from->misses;
    to->conflicts += from->conflicts;
    to->groups += from->groups;
    to->elsewhere += from->elsewhere;
    for (int i = 0; i < from->extent_count; i++) merge_extent(to, &from->extents[i]);
    free(from);
}

/* A sample's counts, as those of the whole walk. */
static void scale(struct profile_counts *c, uint64_t groups) {
    const double factor = (double)groups / (double)c->groups;
    uint64_t *const counts[] = {&c->lines, &c->l1_bytes, &c->misses, &c->conflicts, &c->elsewhere};
    if (c->groups == groups) return;
    for (int i = 0; i < 5; i++) *counts[i] = (uint64_t)((double)*counts[i] * factor);
    for (uint32_t i = 0; i < c->instructions; i++) {
        c->of[i].times = (uint64_t)((double)c->of[i].times * factor);
        c->of[i].lanes = (uint64_t)((double)c->of[i].lanes * factor);
    }
    c->groups = groups;
}

static uint64_t message_bytes(const struct instruction *in, int unit, uint64_t times, uint64_t lanes) {
    const struct message *m = &in->message;
    if (!m->element_bytes) /* blocks: whole registers */
        return times * (uint64_t)unit * (m->store ? in->source[1].registers : m->descriptor >> 20 & 31);
    return (m->transposed ? times : lanes) * m->elements * m->element_bytes;
}

static void add_message(struct kernel *k, struct walk_costs *costs, const struct instruction *in, int unit,
                        uint64_t times, uint64_t lanes) {
    const struct message *m = &in->message;
    const int kind = m->atomic ? KIND_ATOMIC : m->store ? KIND_STORE : KIND_LOAD;
    const uint64_t bytes = message_bytes(in, unit, times, lanes);
    if (in->unit == UNIT_GATEWAY || m->execute == lsc_fence || is_prefetch(m, in)) return;
    k->messages[m->local][kind] += times;
    k->bytes[m->local][kind] += bytes;
    if (m->local) costs->local_bytes += (double)bytes;
}

/* Clocks for which an instruction occupies its pipe: a register's width of the widest operand each clock, a
 * quarter of that for math. */
static double issue_clocks(const struct instruction *in, int unit) {
    int widest = in->destination.kind == OPERAND_REGISTER ? type_bytes(in->destination.type) : 0;
    if (opcode_class[in->opcode] != CLASS_ALU && opcode_class[in->opcode] != CLASS_MATH) return 1;
    for (int i = 0; i < in->sources; i++)
        if (in->source[i].kind == OPERAND_REGISTER && type_bytes(in->source[i].type) > widest)
            widest = type_bytes(in->source[i].type);
    const double clocks = (double)(in->lanes * widest) / unit;
    return (clocks > 1 ? clocks : 1) * (opcode_class[in->opcode] == CLASS_MATH ? 4 : 1);
}

static void add_instruction(struct kernel *k, struct walk_costs *costs, const struct instruction *in,
                            int unit, uint64_t times, uint64_t lanes) {
    const int class = opcode_class[in->opcode];
    k->instructions[class] += times;
    k->lanes[class] += lanes;
    if (class == CLASS_ALU || class == CLASS_MATH) k->idle_lanes += times * in->lanes - lanes;
    if (class == CLASS_SEND) add_message(k, costs, in, unit, times, lanes);
    if (class != CLASS_MATRIX) {
        costs->issue += (double)times * issue_clocks(in, unit);
        return;
    }
    costs->matrix += (double)times * in->repeat;
    k->matrix_operations += /* multiplications and additions */
        2 * times * in->repeat * in->depth * in->lanes * (unsigned)(4 / type_bytes(in->source[1].type));
}

static struct kernel *kernel_of(const struct sim_walk *w, const struct program *p) {
    char name[sizeof kernels->name];
    snprintf(name, sizeof name, "%s", program_name(p));
    for (struct kernel *k = kernels; k; k = k->next)
        if (!strcmp(k->name, name) && (p->kernel || k->address == w->kernel)) return k;
    struct kernel *k = calloc(1, sizeof *k);
    if (!k) abort();
    memcpy(k->name, name, sizeof name);
    k->address = w->kernel;
    k->next = kernels;
    kernels = k;
    return k;
}

static void print(void) {
    static const char *const classes[CLASS_COUNT] = {"other",  "sync", "alu", "math",
                                                     "matrix", "send", "flow"};
    static const char *const kinds[] = {"loads", "stores", "atomics"};
    for (const struct kernel *k = kernels; k; k = k->next) {
        const uint64_t lanes = k->lanes[CLASS_ALU] + k->lanes[CLASS_MATH], all = lanes + k->idle_lanes;
        fprintf(stderr, "profile: kernel %s at %#llx, %llu walks, %llu groups\n  instructions:", k->name,
                (unsigned long long)k->address, (unsigned long long)k->walks, (unsigned long long)k->groups);
        for (int c = 0; c < CLASS_COUNT; c++)
            if (k->instructions[c])
                fprintf(stderr, " %s %llu", classes[c], (unsigned long long)k->instructions[c]);
        fprintf(stderr, "\n  lane operations %llu, idle lanes %.1f %%, matrix operations %llu\n",
                (unsigned long long)lanes, all ? 100.0 * (double)k->idle_lanes / (double)all : 0.0,
                (unsigned long long)k->matrix_operations);
        for (int local = 0; local < 2; local++)
            for (int i = 0; i < 3; i++)
                if (k->messages[local][i])
                    fprintf(stderr, "  %s memory: %s %llu, %llu bytes\n", local ? "local" : "global",
                            kinds[i], (unsigned long long)k->messages[local][i],
                            (unsigned long long)k->bytes[local][i]);
        fprintf(stderr, "  lines of 64 bytes %llu, cycles of bank conflicts %llu\n",
                (unsigned long long)k->lines, (unsigned long long)k->conflicts);
        predict_print(stderr, &k->predicted);
    }
}

void profile_add(const struct sim_walk *w, const struct program *p, struct profile_counts *c,
                 uint64_t groups) {
    struct walk_costs costs = {.groups = (double)groups, .threads = w->threads > 0 ? w->threads : 1};
    if (!c->groups) {
        free(c);
        return;
    }
    scale(c, groups);
    costs.touched = (double)c->elsewhere * LINE;
    for (int i = 0; i < c->extent_count; i++)
        costs.touched += (double)(c->extents[i].last - c->extents[i].first + 1) * LINE;
    pthread_mutex_lock(&lock);
    if (!kernels) atexit(print);
    struct kernel *k = kernel_of(w, p);
    k->walks++;
    k->groups += groups;
    for (uint32_t i = 0; i < p->count; i++)
        if (c->of[i].times)
            add_instruction(k, &costs, &p->code[i], p->register_bytes, c->of[i].times, c->of[i].lanes);
    k->lines += c->lines;
    k->conflicts += c->conflicts;
    costs.l1_bytes = (double)c->l1_bytes;
    costs.l2_bytes = (double)(c->misses * LINE);
    costs.conflicts = (double)c->conflicts;
    predict(w->product, &costs, &k->predicted);
    pthread_mutex_unlock(&lock);
    free(c);
}
