#include "eu/slots.h"

#include <pthread.h>
#include <string.h>

enum { MAX_SLOTS = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t freed = PTHREAD_COND_INITIALIZER;
static bool taken[MAX_SLOTS];

/* A forked child runs none of its parent's walks. */
static void forget_slots(void) {
    pthread_mutex_init(&lock, NULL);
    memset(taken, 0, sizeof taken);
}
static void prepare_fork(void) { pthread_atfork(NULL, NULL, forget_slots); }

static int slot_count(const struct sim_product *p) {
    const int all = p->slices * p->cores_per_slice * p->units_per_core * p->threads_per_unit;
    const int most = p->iga == SIM_IGA_XE ? 512 : MAX_SLOTS; /* r0.5 of Xe-LP has 9 bits for it */
    return all < most ? all : most;
}

/* The first of `count` free slots, or -1. */
static int find_slots(int all, int count) {
    for (int at = 0, free = 0; at < all; at++) {
        free = taken[at] ? 0 : free + 1;
        if (free == count) return at + 1 - count;
    }
    return -1;
}

int slots_take(const struct sim_product *product, int threads, int *parts) {
    static pthread_once_t prepared = PTHREAD_ONCE_INIT;
    const int all = slot_count(product), most = all / threads;
    int n, first = -1;
    pthread_once(&prepared, prepare_fork);
    pthread_mutex_lock(&lock);
    for (;;) {
        for (n = *parts < most ? *parts : most; n; n--)
            if ((first = find_slots(all, n * threads)) >= 0) break;
        if (first >= 0 || !most) break;
        pthread_cond_wait(&freed, &lock);
    }
    if (first >= 0) memset(taken + first, true, (size_t)(n * threads));
    pthread_mutex_unlock(&lock);
    *parts = n;
    return first;
}

void slots_give(int first, int count) {
    pthread_mutex_lock(&lock);
    memset(taken + first, false, (size_t)count);
    pthread_cond_broadcast(&freed);
    pthread_mutex_unlock(&lock);
}
