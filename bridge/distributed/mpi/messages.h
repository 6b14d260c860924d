/* Messages between processes over MPI, with tags of 64 bits, groups, time limits and an end for each.
 *
 * MPICH's and Open MPI's interfaces differ in binary form, so messages.c is compiled where it runs, by that
 * MPI's own mpicc, and this table is all that the bridge knows of it. MPI itself is called with a lock, by
 * one thread at a time: by who waits, and beside it by a thread that sleeps most of the time.
 *
 * Up to MPI_MESSAGE_INSIDE bytes go at once. Of more a message is offered, and goes when the other process
 * has a place for it: so what is never asked for can be given up, and no message waits in MPI that doesn't
 * fit. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MPI_MESSAGES_VERSION 1
#define MPI_MESSAGE_INSIDE 20480

struct mpi_message; /* one under way */

enum mpi_end { MPI_IS_OVER, MPI_TIME_OVER, MPI_WAS_ABORTED, MPI_HAS_FAILED };

struct mpi_messages_world {
    int rank, size;
    bool is_foreign; /* MPI had been initialised by others, who end it */
    char library[64];
};

/* Which messages fit together. */
struct mpi_address {
    int rank; /* in MPI_COMM_WORLD: to whom, or from whom; -1: from anyone */
    uint64_t group, tag;
};

/* Functions that return a text return NULL if all went well, else why not, till the thread's next call. Times
 * are in ms, 0: without end. Any thread may call. */
struct mpi_messages {
    uint32_t version;
    /* Initialises MPI if nobody has; once, by all processes, which meet here. Again: says the same. */
    const char *(*start)(int64_t ms, struct mpi_messages_world *world);
    /* Rank 0's bytes to all, once all call it. */
    const char *(*tell)(void *bytes, size_t count, int64_t ms);
    /* `memory` is left alone until release(kept) is called, by any thread, also of what was aborted. */
    struct mpi_message *(*send)(const struct mpi_address *to, const void *memory, size_t bytes, void *kept,
                                void (*release)(void *kept));
    struct mpi_message *(*receive)(const struct mpi_address *from, void *memory, size_t bytes, void *kept,
                                   void (*release)(void *kept));
    enum mpi_end (*wait)(struct mpi_message *message, int64_t ms);
    bool (*is_over)(struct mpi_message *message);    /* in whatever way */
    const char *(*why)(struct mpi_message *message); /* it failed */
    int (*source)(struct mpi_message *message);      /* of what was received: the rank in MPI_COMM_WORLD */
    void (*abort)(struct mpi_message *message);      /* who waits goes on */
    void (*let_go)(struct mpi_message *message);     /* it goes on, but nobody asks for it any more */
    /* Ends what waits for its partner in that group, and drops what comes for it. */
    void (*close)(uint64_t group);
    /* Ends MPI when all processes do, or, if not `in_order`, leaves it as it is: the launcher ends the others
     * then. */
    void (*end)(bool in_order);
};

extern const struct mpi_messages openxpu_mpi_messages;
