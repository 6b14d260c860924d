#include "profile.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "eu/decode.h"
#include "eu/unit.h"

enum { LINE = 64, BANKS = 32, MAX_LINES = 256 };

/* The sums of one kernel over all of its walks. */
struct kernel {
    struct kernel *next;
    char name[64];
    uint64_t address;
    uint64_t walks, groups;
    uint64_t instructions[CLASS_COUNT], lanes[CLASS_COUNT], idle_lanes, matrix_operations;
    uint64_t messages[2][3], bytes[2][3]; /* global, local; load, store, atomic */
    uint64_t lines, conflicts;
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

static uint64_t distinct_lines(const struct message *m, const uint64_t address[MAX_LANES], uint32_t mask) {
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
    return (uint64_t)n;
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

void profile_addresses(struct profile_counts *c, const struct message *m, const uint64_t address[MAX_LANES],
                       uint32_t mask) {
    if (m->local)
        c->conflicts += bank_conflicts(m, address, mask);
    else
        c->lines += distinct_lines(m, address, mask);
}

/* ---- sums ---- */

static void add_message(struct kernel *k, const struct instruction *in, int unit, uint64_t times,
                        uint64_t lanes) {
    const struct message *m = &in->message;
    const int kind = m->atomic ? KIND_ATOMIC : m->store ? KIND_STORE : KIND_LOAD;
    uint64_t bytes = (m->transposed ? times : lanes) * m->elements * m->element_bytes;
    if (in->unit == UNIT_GATEWAY || m->execute == lsc_fence ||
        (kind == KIND_LOAD && in->destination.kind == OPERAND_NULL)) /* prefetches */
        return;
    if (!m->element_bytes) /* blocks: whole registers */
        bytes = times * (uint64_t)unit * (m->store ? in->source[1].registers : m->descriptor >> 20 & 31);
    k->messages[m->local][kind] += times;
    k->bytes[m->local][kind] += bytes;
}

static void add_instruction(struct kernel *k, const struct instruction *in, int unit, uint64_t times,
                            uint64_t lanes) {
    const int class = opcode_class[in->opcode];
    k->instructions[class] += times;
    k->lanes[class] += lanes;
    if (class == CLASS_ALU || class == CLASS_MATH) k->idle_lanes += times * in->lanes - lanes;
    if (class == CLASS_SEND) add_message(k, in, unit, times, lanes);
    if (class == CLASS_MATRIX) /* multiplications and additions */
        k->matrix_operations +=
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
    }
}

void profile_add(const struct sim_walk *w, const struct program *p, struct profile_counts *c) {
    pthread_mutex_lock(&lock);
    if (!kernels) atexit(print);
    struct kernel *k = kernel_of(w, p);
    if (c->of[0].times) { /* a worker that ran a group */
        k->walks++;
        k->groups += c->of[0].times / (uint64_t)(w->threads > 0 ? w->threads : 1);
    }
    for (uint32_t i = 0; i < p->count; i++)
        if (c->of[i].times)
            add_instruction(k, &p->code[i], p->register_bytes, c->of[i].times, c->of[i].lanes);
    k->lines += c->lines;
    k->conflicts += c->conflicts;
    pthread_mutex_unlock(&lock);
    free(c);
}
