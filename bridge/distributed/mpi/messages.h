/* Messages between processes over MPI, with 64-bit tags, groups, timeouts and cancellation.
 *
 * MPICH and Open MPI have different ABIs. messages.c is therefore compiled at run time with that MPI's own
 * mpicc, and this table is the only interface to the bridge. MPI is called under a lock, by one thread at a
 * time: a waiting thread, or a background thread that sleeps most of the time.
 *
 * Messages of up to MPI_MESSAGE_INSIDE bytes are sent eagerly. Larger ones are offered, and sent when the
 * receiver has a buffer. An offer that is never accepted can thus be canceled, and no message of the wrong
 * size waits in MPI. */
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
    bool is_foreign; /* MPI had been initialized by others, who end it */
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
    /* Initializes MPI if nobody has; once, by all processes, which meet here. Again: says the same. */
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
