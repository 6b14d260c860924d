/* Work-groups of a walk on threads of the host. A group's hardware threads take turns on one of them: each
 * runs until it waits or has used up its turn. */
#include <pthread.h>
#include <stdlib.h>
#include <xmmintrin.h>

#include "check/check.h"
#include "eu/program.h"
#include "eu/slots.h"
#include "eu/thread.h"
#include "profile.h"

enum { TURN = 1 << 16, SHORT_TURN = 64, MAX_WORKERS = 64, SPREAD = 256, LOCAL_POISON = 0x5a };

struct job {
    const struct sim_walk *walk;
    const struct program *program;
    uint64_t groups;       /* of the walk */
    uint64_t executed;     /* of these that run: all, or a sample */
    uint64_t next_group;   /* atomic */
    uint64_t instructions; /* atomic */
    bool failed;           /* atomic */
};

struct worker_job {
    struct job *job;
    struct worker worker;
    pthread_t host;
};

static uint64_t random_next(struct worker *w) { /* xorshift64 */
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random >> 11;
}

static void start_group(struct group *g, const struct job *job, uint64_t index) {
    const struct sim_walk *w = job->walk;
    const uint32_t nx = w->groups[0] - w->first_group[0], ny = w->groups[1] - w->first_group[1];
    const uint32_t full = w->simd >= 32 ? 0xffffffffu : (1u << w->simd) - 1;
    g->id[0] = w->first_group[0] + (uint32_t)(index % nx);
    g->id[1] = w->first_group[1] + (uint32_t)(index / nx % ny);
    g->id[2] = w->first_group[2] + (uint32_t)(index / nx / ny);
    memset(g->barriers, 0, sizeof g->barriers);
    if (g->local) memset(g->local, LOCAL_POISON, g->local_bytes);
    for (int i = 0; i < g->count; i++) {
        struct thread *t = &g->threads[i];
        t->group = g;
        t->program = job->program;
        t->id = i;
        t->slot = g->worker->first_slot + (int)(index % (uint64_t)g->worker->slot_groups) * g->count + i;
        thread_start(t, i == g->count - 1 ? w->execution_mask & full : full);
    }
    if (g->worker->check) check_group_start(g, index);
}

/* Lets the threads that can run take their turns; false if none can. */
static bool take_turns(struct group *g, bool in_order) {
    /* in profiles, threads use a cache together as they do on hardware */
    const uint64_t turn = g->worker->counts ? SHORT_TURN : TURN;
    bool any = false;
    for (int i = 0; i < g->count; i++) {
        struct thread *t = &g->threads[in_order ? i : (int)(random_next(g->worker) % (uint64_t)g->count)];
        if (t->state == THREAD_WAITS && g->barriers[t->barrier].phase != t->barrier_phase) {
            t->state = THREAD_RUNS;
            thread_pass_barrier(t);
        }
        if (t->state != THREAD_RUNS) continue;
        any = true;
        thread_run(t, in_order ? turn : 1 + random_next(g->worker) % SHORT_TURN);
        if (t->state == THREAD_FAULTED) break;
    }
    return any;
}

enum group_state { GROUP_ENDED, GROUP_RUNS, GROUP_FAULTED };

static enum group_state group_state(struct group *g) {
    int ended = 0, waiting = 0;
    struct thread *last = NULL;
    for (int i = 0; i < g->count; i++) {
        struct thread *t = &g->threads[i];
        if (t->state == THREAD_FAULTED) return GROUP_FAULTED;
        ended += t->state == THREAD_ENDED;
        if (t->state == THREAD_WAITS && g->barriers[t->barrier].phase == t->barrier_phase) {
            waiting++;
            last = t;
        }
    }
    if (ended == g->count) return GROUP_ENDED;
    if (ended + waiting < g->count) return GROUP_RUNS;
    thread_fault(last, last->next - 1,
                 "divergent barrier: %d of %d threads wait for it, the others have ended", waiting, g->count);
    return GROUP_FAULTED;
}

static bool within_limit(struct job *job, struct group *g, uint64_t *counted) {
    const uint64_t limit = sim_options()->instruction_limit, done = g->worker->instructions - *counted;
    *counted = g->worker->instructions;
    if (__atomic_add_fetch(&job->instructions, done, __ATOMIC_RELAXED) <= limit || !limit) return true;
    thread_fault(&g->threads[0], g->threads[0].next, "the kernel did not end within %llu instructions",
                 (unsigned long long)limit);
    return false;
}

static bool run_group(struct job *job, struct group *g, uint64_t index) {
    const uint64_t seed = sim_options()->seed;
    uint64_t counted = g->worker->instructions;
    g->worker->random = (seed + index + 1) * 0x9e3779b97f4a7c15ull;
    start_group(g, job, index);
    for (;;) {
        take_turns(g, !seed);
        const enum group_state state = group_state(g);
        if (state == GROUP_FAULTED || !within_limit(job, g, &counted)) return false;
        if (state == GROUP_ENDED) break;
    }
    return true;
}

/* What the kernel declares, if that is to be checked and known; else in the sizes that the hardware gives. */
static uint32_t local_bytes(const struct job *job) {
    const struct sim_kernel *k = job->program->kernel;
    const uint32_t all = job->walk->local_bytes;
    const bool exact =
        (sim_options()->checks & SIM_CHECK_MEMORY) && k && k->local_bytes && k->local_bytes < all;
    return exact ? k->local_bytes : all;
}

/* The groups of a sample lie evenly over the walk, from the first to the last. */
static uint64_t spread(const struct job *job, uint64_t index) {
    if (job->executed == job->groups || !index) return index;
    return (uint64_t)((unsigned __int128)index * (job->groups - 1) / (job->executed - 1));
}

static void run_groups(struct worker_job *wj) {
    struct job *job = wj->job;
    const struct sim_walk *w = job->walk;
    const unsigned host_control = _mm_getcsr();
    struct group g = {.walk = w,
                      .worker = &wj->worker,
                      .local_bytes = local_bytes(job),
                      .count = w->threads > 0 ? w->threads : 1};
    g.threads = aligned_alloc(64, sizeof *g.threads * (size_t)g.count);
    if (w->local_bytes) g.local = malloc(w->local_bytes);
    if (!g.threads || (w->local_bytes && !g.local)) abort();
    while (!__atomic_load_n(&job->failed, __ATOMIC_RELAXED)) {
        const uint64_t index = __atomic_fetch_add(&job->next_group, 1, __ATOMIC_RELAXED);
        if (index >= job->executed) break;
        if (wj->worker.counts) profile_start_group(wj->worker.counts);
        if (!run_group(job, &g, spread(job, index))) __atomic_store_n(&job->failed, true, __ATOMIC_RELAXED);
    }
    free(g.local);
    free(g.threads);
    _mm_setcsr(host_control);
}

static void *worker_main(void *argument) {
    run_groups(argument);
    return NULL;
}

/* The queue's own thread is worker 0. */
static void run_workers(struct worker_job *workers, int count) {
    int started = 1;
    for (; started < count; started++)
        if (pthread_create(&workers[started].host, NULL, worker_main, &workers[started])) break;
    run_groups(&workers[0]);
    for (int i = 1; i < started; i++) pthread_join(workers[i].host, NULL);
}

static int worker_count(const struct job *job) {
    int n = sim_options()->host_threads;
    if ((uint64_t)n > job->executed) n = (int)job->executed;
    return n < 1 ? 1 : n > MAX_WORKERS ? MAX_WORKERS : n;
}

static uint64_t add_counts(const struct job *job, const struct worker_job *workers, int count) {
    uint64_t instructions = 0;
    for (int i = 0; i < count; i++) {
        instructions += workers[i].worker.instructions;
        if (i && workers[i].worker.counts) profile_merge(workers[0].worker.counts, workers[i].worker.counts);
    }
    if (workers[0].worker.counts) profile_add(job->walk, job->program, workers[0].worker.counts, job->groups);
    return instructions;
}

int sim_eu_run(const struct sim_walk *walk) {
    struct job job = {.walk = walk, .groups = 1};
    const int threads = walk->threads > 0 ? walk->threads : 1;
    const bool checks = sim_options()->checks != 0;
    for (int d = 0; d < 3; d++) {
        if (walk->groups[d] <= walk->first_group[d]) return 0;
        job.groups *= walk->groups[d] - walk->first_group[d];
    }
    const uint64_t sample = sim_options()->sample;
    job.executed = sample && sample < job.groups ? sample : job.groups;
    struct program *program = program_acquire(walk);
    if (!program) return -1;
    job.program = program;
    /* if checks know that private memory is used again by other groups only much later, they tell it from
     * shared memory */
    int parts = !checks ? worker_count(&job) : threads < SPREAD ? SPREAD / threads : 1;
    const int first_slot = slots_take(walk->product, threads, &parts);
    if (first_slot < 0) {
        sim_fault("a work-group of %d threads does not fit on the product", threads);
        program_release(program);
        return -1;
    }
    const int count = checks ? 1 : parts; /* checks compare accesses in the order in which they happen */
    struct worker_job *workers = calloc((size_t)count, sizeof *workers);
    if (!workers) abort();
    struct check_walk *check = checks ? check_walk_start(walk, program, job.groups) : NULL;
    for (int i = 0; i < count; i++) {
        workers[i].job = &job;
        workers[i].worker = (struct worker){.vm = walk->vm,
                                            .walk = walk,
                                            .check = check,
                                            .first_slot = first_slot + i * threads,
                                            .slot_groups = checks ? parts : 1};
        if (sim_options()->profile) workers[i].worker.counts = profile_counts_new(program->count);
    }
    const uint64_t start = sim_time_ns();
    run_workers(workers, count);
    slots_give(first_slot, parts * threads);
    const uint64_t instructions = add_counts(&job, workers, count);
    if (check) check_walk_end(check);
    SIM_LOG(SIM_LOG_SUBMISSIONS, "kernel %s: %llu groups, %llu instructions, %.3f s%s", program_name(program),
            (unsigned long long)job.groups, (unsigned long long)instructions,
            (double)(sim_time_ns() - start) * 1e-9, job.failed ? ", faulted" : "");
    free(workers);
    program_release(program);
    return job.failed ? -1 : 0;
}
