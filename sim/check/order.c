#include "check/order.h"

#include <stdlib.h>
#include <string.h>

/* Kinds of knowledge: of global and local memory, and that of global memory which other groups can be given.
 */
enum { GLOBAL, LOCAL, DEVICE, SPACES };

/* What a group handed to other groups: rows of a time and of what is known of each of its threads from then
 * on. */
struct handed {
    uint32_t count, capacity, *rows;
};

struct order {
    uint64_t groups;
    uint32_t threads, width, group; /* width: of a row: the threads, then the other groups as a whole */
    struct handed *handed;          /* of each group */
    /* rows of all threads and spaces */
    uint32_t *known, *pending; /* pending: taken by the next fence */
    uint32_t *released;        /* by the group's atomics: a row for each space */
    uint32_t *barrier[2];      /* by those who signaled, by the phase's parity */
    uint32_t barrier_phase[2]; /* plus 1; 0: none */
    /* what changed since it was last joined */
    uint32_t *changes, *published, *seen, releases;
};

static uint32_t *row_of(const struct order *o, uint32_t *rows, uint32_t thread, int space) {
    return rows + (SPACES * thread + (uint32_t)space) * o->width;
}

static void join(uint32_t *to, const uint32_t *from, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) to[i] = from[i] > to[i] ? from[i] : to[i];
}

static uint32_t *zeros(uint64_t count) {
    uint32_t *made = calloc(count, sizeof *made);
    if (!made) abort();
    return made;
}

struct order *order_start(uint64_t groups, uint32_t threads) {
    struct order *o = calloc(1, sizeof *o);
    if (!o) abort();
    o->groups = groups;
    o->threads = threads;
    o->width = threads + 1;
    o->handed = calloc(groups, sizeof *o->handed);
    if (!o->handed) abort();
    o->known = zeros((uint64_t)SPACES * threads * o->width);
    o->pending = zeros((uint64_t)SPACES * threads * o->width);
    o->released = zeros((uint64_t)SPACES * o->width);
    for (int i = 0; i < 2; i++) o->barrier[i] = zeros((uint64_t)SPACES * o->width);
    o->changes = zeros(threads);
    o->published = zeros(threads);
    o->seen = zeros(threads);
    return o;
}

void order_end(struct order *o) {
    for (uint64_t i = 0; i < o->groups; i++) free(o->handed[i].rows);
    free(o->handed);
    free(o->known);
    free(o->pending);
    free(o->released);
    for (int i = 0; i < 2; i++) free(o->barrier[i]);
    free(o->changes);
    free(o->published);
    free(o->seen);
    free(o);
}

void order_group_start(struct order *o, uint32_t group) {
    const size_t bytes = SPACES * o->width * sizeof *o->known;
    o->group = group;
    memset(o->known, 0, o->threads * bytes);
    memset(o->pending, 0, o->threads * bytes);
    memset(o->released, 0, bytes);
    memset(o->barrier_phase, 0, sizeof o->barrier_phase);
    memset(o->changes, 0, o->threads * sizeof *o->changes);
    memset(o->published, 0, o->threads * sizeof *o->published);
    memset(o->seen, 0, o->threads * sizeof *o->seen);
    o->releases = 0;
}

void order_fence(struct order *o, uint32_t thread, enum order_fence kind, uint32_t now) {
    const uint32_t n =
        kind == FENCE_DEVICE ? o->width : o->threads; /* is what other groups gave taken, too? */
    uint32_t *global = row_of(o, o->known, thread, GLOBAL);
    for (int s = 0; s < SPACES; s++)
        join(row_of(o, o->known, thread, s), row_of(o, o->pending, thread, s), n);
    row_of(o, o->known, thread, kind == FENCE_LOCAL ? LOCAL : GLOBAL)[thread] = now;
    if (kind == FENCE_DEVICE) join(row_of(o, o->known, thread, DEVICE), global, o->width);
    o->changes[thread]++;
}

/* The group's log of what it hands to others. */
static void hand_out(struct order *o, uint32_t now) {
    struct handed *h = &o->handed[o->group];
    if (h->count == h->capacity) {
        h->capacity = h->capacity ? 2 * h->capacity : 4;
        h->rows = realloc(h->rows, (size_t)h->capacity * o->width * sizeof *h->rows);
        if (!h->rows) abort();
    }
    uint32_t *row = h->rows + (size_t)h->count++ * o->width;
    row[0] = now;
    memcpy(row + 1, row_of(o, o->released, 0, DEVICE), o->threads * sizeof *row);
}

void order_atomic(struct order *o, uint32_t thread, bool local, uint32_t now) {
    if (o->published[thread] != o->changes[thread]) {
        for (int s = 0; s < SPACES; s++)
            join(row_of(o, o->released, 0, s), row_of(o, o->known, thread, s), o->width);
        o->published[thread] = o->changes[thread];
        o->releases++;
        if (!local) hand_out(o, now);
    }
    if (o->seen[thread] != o->releases) {
        for (int s = 0; s < SPACES; s++)
            join(row_of(o, o->pending, thread, s), row_of(o, o->released, 0, s), o->width);
        o->seen[thread] = o->releases;
    }
    if (!local) row_of(o, o->pending, thread, GLOBAL)[o->threads] = now;
}

void order_arrive(struct order *o, uint32_t thread, uint32_t phase, uint32_t now) {
    const int parity = (int)(phase & 1);
    if (o->barrier_phase[parity] != phase + 1) {
        memset(o->barrier[parity], 0, SPACES * o->width * sizeof *o->known);
        o->barrier_phase[parity] = phase + 1;
    }
    for (int s = 0; s < SPACES; s++)
        join(row_of(o, o->barrier[parity], 0, s), row_of(o, o->known, thread, s), o->width);
    row_of(o, o->barrier[parity], 0, LOCAL)[thread] = now; /* local memory is in order without a fence */
}

void order_pass(struct order *o, uint32_t thread, uint32_t phase) {
    for (int s = 0; s < SPACES; s++)
        join(row_of(o, o->known, thread, s), row_of(o, o->barrier[phase & 1], 0, s), o->width);
    o->changes[thread]++;
}

bool order_knows(const struct order *o, uint32_t thread, bool local, uint32_t group, uint32_t other,
                 uint32_t time) {
    const uint32_t *known = row_of(o, o->known, thread, local ? LOCAL : GLOBAL);
    if (group == o->group) return known[other] > time;
    const struct handed *h = &o->handed[group];
    uint32_t low = 0, high = h->count;
    while (low < high) { /* the first row that was handed out too late */
        const uint32_t middle = (low + high) / 2;
        if (h->rows[(size_t)middle * o->width] > known[o->threads])
            high = middle;
        else
            low = middle + 1;
    }
    return low && h->rows[(size_t)(low - 1) * o->width + 1 + other] > time;
}
