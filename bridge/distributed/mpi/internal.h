/* What the files of this folder share; mpicc compiles them into one library. A file calls only those below:
 *
 *     messages.c   the table: sends and receives, cancellation, closed groups
 *     session.c    from MPI_Init to MPI_Finalize: start, broadcast, end
 *     progress.c   who calls MPI: a waiting thread, else the progress thread
 *     protocol.c   MPI requests, and the packets by which ranks agree on a transfer
 *     records.c    messages and early arrivals by index and address; the lock; error texts
 *
 * Except where noted, functions are called with the lock, which also guards all variables. */
#pragma once
#define _POSIX_C_SOURCE 200809L
#include "messages.h"

#include <mpi.h>

#include <pthread.h>
#include <time.h>

#pragma GCC visibility push(hidden) /* the library exports its table only */

/* --- records.c --- */

enum kind { WHOLE = 1, OFFER, TAKE, REFUSE, GONE, WITHDRAW };

/* Header of every message on the first communicator, on which all messages have one tag. */
struct envelope {
    uint32_t kind, number; /* sequence number from this rank to that one; messages may arrive out of order */
    uint64_t group, tag, bytes;
    uint64_t offer; /* the sender's message; answers refer to it */
    uint64_t place; /* the receiver's message; also the tag on the second communicator */
};

enum state { POSTED, OFFERED, FLYING, OVER };

struct mpi_message {
    struct mpi_message *next, *before; /* in a list of messages that wait for partners, in order */
    uint64_t order;
    bool is_send;
    enum state state;
    bool is_aborted, is_used; /* by the caller */
    struct mpi_address address;
    int source;
    char *memory;
    size_t bytes;
    uint32_t index; /* in `messages` */
    int pieces;     /* MPI operations in progress */
    char *why;      /* error text, if it failed */
    void *kept;
    void (*release)(void *kept);
};

/* A message that no receive matches yet, or that arrived before its predecessors. */
struct early {
    struct early *next, *before, *later, *earlier; /* lists: of the same address; of all */
    int source;
    struct envelope envelope;
    char inside[];
};

extern pthread_mutex_t lock;
extern pthread_cond_t changes;        /* a message has completed, or no thread drives MPI */
extern const char *ended;             /* the reason, if MPI can't be used any more */
extern char *broken;                  /* MPI's error text */
extern struct mpi_message **messages; /* by index; NULL where there is none */
extern uint32_t message_room;

/* Texts are valid until the thread's next call of `say` or `mpi_text`. These need no lock. */
const char *say(const char *format, ...);
const char *mpi_text(int code);
char *copy_of(const char *text);
void *need(void *memory); /* aborts if it is NULL */
int64_t now_us(void);
void sleep_us(int64_t us);
struct timespec after_us(int64_t us);
void init_monotonic(pthread_cond_t *condition); /* for waits until after_us() */

/* Releases the lock, then calls pending release functions: their owner may do anything. */
void leave(void);

struct mpi_message *make(const struct mpi_address *address, bool is_send, const void *memory, size_t bytes,
                         void *kept, void (*release)(void *));
void drop(struct mpi_message *message);
void finish(struct mpi_message *message, const char *why); /* `why` is NULL on success */
bool has_messages(void);                                   /* that are not over */

/* A message's name for other ranks; NULL if none of that name is in this state. */
uint64_t name_of(const struct mpi_message *message);
struct mpi_message *named(uint64_t name, enum state state);

/* MPI itself has failed: fails all messages, since none would complete. */
void break_down(int code);

/* Messages that wait for partners. */
void enlist(struct mpi_message *message);
void unlist(struct mpi_message *message);
struct mpi_message *first_receive(int source, const struct envelope *envelope); /* that matches, or NULL */

/* Arrivals without a receive. */
struct early *keep_early(int source, const struct envelope *envelope, const char *inside);
void enlist_early(struct early *one);
void unlist_early(struct early *one);
struct early *first_early(const struct mpi_address *from); /* that matches, or NULL */
/* The offer that a WITHDRAW is about, or NULL if it is no longer here. */
struct early *early_offer(int source, const struct envelope *envelope);

/* Discards what has arrived for a group, and marks it closed. */
void discard_group(uint64_t group);
bool is_closed(uint64_t group);

/* --- protocol.c --- */

extern MPI_Comm envelopes, contents; /* headers with small contents; other contents */
extern int most_tag;
extern int flights; /* requests other than arrivals */

/* Allocates what is kept per rank, and posts the first receives. */
void begin_arrivals(int size);
void cancel_arrivals(void);

/* Sends an envelope, and contents of up to MPI_MESSAGE_INSIDE bytes; `message`, if any, completes with it. */
void post(struct envelope envelope, int to, const void *inside, size_t bytes, struct mpi_message *message);

/* Completes a receive, or answers the offer. */
void land(struct mpi_message *message, int source, const struct envelope *envelope, const char *inside);

/* Handles completed MPI requests. Returns whether there were any. */
bool drive(void);

/* --- progress.c --- */

extern bool is_ending;

int begin_progress(void); /* pthread_create's result */
void end_progress(void);  /* releases the lock meanwhile, for the thread to end */
bool has_end(const struct mpi_message *message);

/* Functions of the table, called without the lock. */
enum mpi_end progress_wait(struct mpi_message *message, int64_t ms);
bool progress_is_over(struct mpi_message *message);

/* --- session.c: functions of the table, called without the lock --- */

const char *session_start(int64_t ms, struct mpi_messages_world *result);
const char *session_tell(void *bytes, size_t count, int64_t ms);
void session_end(bool in_order);

#pragma GCC visibility pop
