/* Messages over MPI (bridge/distributed/mpi) by several threads a process, each in a group of its own: few
 * bytes and many, asked for before and after they come, given up while the others take them. What comes is
 * compared, and all memory has to be given back. tests/python/test_mpi.py builds and starts it:
 *
 *     cd bridge/distributed/mpi
 *     mpicc -std=c11 -pthread -I . ../../../tests/races/mpi_messages.c *.c
 *     mpiexec -n 3 ./a.out
 */
#define _POSIX_C_SOURCE 200809L
#include "messages.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS = 4, ROUNDS = 60, MOST_RANKS = 16, LONG = 60000 };

static const struct mpi_messages *const m = &openxpu_mpi_messages;
static struct mpi_messages_world world;
static atomic_int begun, released;

static void release(void *kept) {
    free(kept);
    released++;
}

static void need(bool is_so, const char *what) {
    if (is_so) return;
    printf("rank %d: %s\n", world.rank, what);
    exit(1);
}

static size_t size_of(int group, int round, int from, int to) {
    static const size_t sizes[] = {1,     8,       100,    MPI_MESSAGE_INSIDE, MPI_MESSAGE_INSIDE + 1,
                                   70000, 1 << 20, 3000001};
    return sizes[(unsigned)(group + round + 3 * from + to) % (sizeof sizes / sizeof *sizes)];
}

static char byte_of(int round, int from, int to) { return (char)(16 * from + to + round); }

static struct mpi_message *begin(bool sends, int other, int group, uint64_t tag, char *memory, size_t bytes,
                                 void *kept) {
    const struct mpi_address address = {other, (uint64_t)group, tag};
    begun++;
    return sends ? m->send(&address, memory, bytes, kept, release)
                 : m->receive(&address, memory, bytes, kept, release);
}

/* What nobody sends or takes, and what is given up while it is taken. */
static void give_up(int group, int round, unsigned *seed) {
    const int next = (world.rank + 1) % world.size, last = (world.rank + world.size - 1) % world.size;
    char *given = calloc(1, LONG), *place = calloc(1, LONG), *few = calloc(1, 8);
    struct mpi_message *sent = begin(true, next, group, 1000 + (uint64_t)round, given, LONG, given);
    struct mpi_message *taken = begin(false, last, group, 1000 + (uint64_t)round, place, LONG, place);
    struct mpi_message *never = begin(false, -1, group, 1, few, 8, few);
    need(m->wait(never, 2) == MPI_TIME_OVER, "something came that nobody sent");
    m->abort(never);
    need(m->wait(never, 0) == MPI_WAS_ABORTED, "what was aborted goes on");
    if (rand_r(seed) & 1) m->wait(taken, 1);
    m->abort(sent);
    if (m->wait(taken, 20) == MPI_TIME_OVER) m->abort(taken);
    m->let_go(sent), m->let_go(taken), m->let_go(never);
}

static void *run(void *argument) {
    const int group = *(int *)argument;
    unsigned seed = (unsigned)(group * 100 + world.rank);
    for (int round = 0; round < ROUNDS; round++) {
        struct mpi_message *sent[MOST_RANKS] = {0}, *taken[MOST_RANKS] = {0};
        char *places[MOST_RANKS];
        const uint64_t tag = (uint64_t)round << 40;
        const bool first = rand_r(&seed) & 1;
        for (int pass = 0; pass < 2; pass++)
            for (int other = 0; other < world.size; other++) {
                if (other == world.rank) continue;
                if ((pass == 0) == first) {
                    const size_t bytes = size_of(group, round, world.rank, other);
                    char *given = malloc(bytes);
                    memset(given, byte_of(round, world.rank, other), bytes);
                    sent[other] = begin(true, other, group, tag, given, bytes, given);
                } else {
                    const size_t bytes = size_of(group, round, other, world.rank);
                    places[other] = malloc(bytes);
                    taken[other] = begin(false, other, group, tag, places[other], bytes, malloc(1));
                }
            }
        if (round % 4 == 0) give_up(group, round, &seed);
        for (int other = 0; other < world.size; other++) {
            if (other == world.rank) continue;
            need(m->wait(taken[other], 60000) == MPI_IS_OVER, m->why(taken[other]));
            need(m->source(taken[other]) == other, "another source");
            const size_t bytes = size_of(group, round, other, world.rank);
            for (size_t i = 0; i < bytes; i++)
                need(places[other][i] == byte_of(round, other, world.rank), "wrong bytes");
            need(m->wait(sent[other], 60000) == MPI_IS_OVER, m->why(sent[other]));
            m->let_go(taken[other]), m->let_go(sent[other]);
            free(places[other]);
        }
    }
    m->close((uint64_t)group);
    return NULL;
}

int main(void) {
    const char *why = m->start(20000, &world);
    need(!why, why);
    need(world.size <= MOST_RANKS, "too many ranks");
    char text[8] = "nothing";
    if (!world.rank) memcpy(text, "told it", 8);
    why = m->tell(text, 8, 20000);
    need(!why && !strcmp(text, "told it"), "nothing was told");
    pthread_t threads[GROUPS];
    int groups[GROUPS];
    for (int i = 0; i < GROUPS; i++) {
        groups[i] = i + 1;
        pthread_create(&threads[i], NULL, run, &groups[i]);
    }
    for (int i = 0; i < GROUPS; i++) pthread_join(threads[i], NULL);
    m->end(true);
    need(begun == released, "memory that wasn't given back");
    printf("%s: %d messages\n", world.library, begun);
    return 0;
}
