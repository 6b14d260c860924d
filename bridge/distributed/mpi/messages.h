/* Messages between processes over MPI, with 64-bit tags, groups, timeouts and cancellation.
 *
 * MPICH and Open MPI have different ABIs. This folder is therefore compiled at run time with that MPI's own
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

struct mpi_message; /* a message in progress */

enum mpi_end { MPI_IS_OVER, MPI_TIME_OVER, MPI_WAS_ABORTED, MPI_HAS_FAILED };

struct mpi_messages_world {
    int rank, size;
    bool is_foreign; /* the program initialized MPI, and finalizes it */
    char library[64];
};

/* A send and a receive match if group, tag and ranks do. */
struct mpi_address {
    int rank; /* destination or source in MPI_COMM_WORLD; -1: any source */
    uint64_t group, tag;
};

/* Functions that return a text return NULL on success, else the reason, which is valid until the thread's
 * next call. Times are in ms; 0 means no timeout. Any thread may call. */
struct mpi_messages {
    uint32_t version;
    /* Initializes MPI if the program has not; waits until all processes have called it. Later calls return
     * the same result. */
    const char *(*start)(int64_t ms, struct mpi_messages_world *world);
    /* Broadcasts rank 0's bytes; collective. */
    const char *(*tell)(void *bytes, size_t count, int64_t ms);
    /* `memory` must stay valid until release(kept) is called, by any thread, also after an abort. */
    struct mpi_message *(*send)(const struct mpi_address *to, const void *memory, size_t bytes, void *kept,
                                void (*release)(void *kept));
    struct mpi_message *(*receive)(const struct mpi_address *from, void *memory, size_t bytes, void *kept,
                                   void (*release)(void *kept));
    enum mpi_end (*wait)(struct mpi_message *message, int64_t ms);
    bool (*is_over)(struct mpi_message *message);    /* completed, failed or aborted */
    const char *(*why)(struct mpi_message *message); /* the reason of a failure */
    int (*source)(struct mpi_message *message);      /* of a completed receive: the rank in MPI_COMM_WORLD */
    void (*abort)(struct mpi_message *message);      /* wakes waiting threads */
    void (*let_go)(struct mpi_message *message);     /* the caller drops the message; it still completes */
    /* Aborts the group's messages without a partner, and discards later arrivals. */
    void (*close)(uint64_t group);
    /* Finalizes MPI together with all processes; or, if not `in_order`, leaves it, so that the launcher ends
     * the other processes. */
    void (*end)(bool in_order);
};

extern const struct mpi_messages openxpu_mpi_messages;
