/* Implements messages.h over MPI, with the other files of this folder. Compiled by mpicc only. */
#include "internal.h"

#include <stdlib.h>

static struct mpi_message *send(const struct mpi_address *to, const void *memory, size_t bytes, void *kept,
                                void (*release)(void *)) {
    pthread_mutex_lock(&lock);
    struct mpi_message *message = make(to, true, memory, bytes, kept, release);
    struct envelope envelope = {.kind = bytes > MPI_MESSAGE_INSIDE ? OFFER : WHOLE,
                                .group = to->group,
                                .tag = to->tag,
                                .bytes = bytes,
                                .offer = name_of(message)};
    if (ended || broken) {
        finish(message, ended ? ended : broken);
    } else if (envelope.kind == WHOLE) {
        message->state = FLYING;
        post(envelope, to->rank, memory, bytes, message);
    } else {
        message->state = OFFERED;
        enlist(message);
        post(envelope, to->rank, NULL, 0, NULL);
    }
    leave();
    return message;
}

static struct mpi_message *receive(const struct mpi_address *from, void *memory, size_t bytes, void *kept,
                                   void (*release)(void *)) {
    pthread_mutex_lock(&lock);
    struct mpi_message *message = make(from, false, memory, bytes, kept, release);
    struct early *one = first_early(from);
    if (one) unlist_early(one);
    if (ended || broken) {
        finish(message, ended ? ended : broken);
    } else if (one) {
        land(message, one->source, &one->envelope, one->inside);
    } else {
        message->state = POSTED;
        enlist(message);
    }
    free(one);
    leave();
    return message;
}

static const char *why(struct mpi_message *message) {
    pthread_mutex_lock(&lock);
    const char *text = say("%s", message->why ? message->why : ended ? ended : "");
    leave();
    return text;
}

static int source(struct mpi_message *message) {
    pthread_mutex_lock(&lock);
    const int rank = message->source;
    leave();
    return rank;
}

/* Cancels a message. Transfers in progress continue, and keep their memory until they end. */
static void give_up(struct mpi_message *message) {
    message->is_aborted = true;
    const struct mpi_address to = message->address;
    const struct envelope withdraws = {
        .kind = WITHDRAW, .group = to.group, .tag = to.tag, .offer = name_of(message)};
    const bool was_offered = message->state == OFFERED;
    if (message->state == POSTED || was_offered) {
        unlist(message);
        finish(message, NULL);
    }
    if (was_offered) post(withdraws, to.rank, NULL, 0, NULL);
    pthread_cond_broadcast(&changes);
}

static void abort_message(struct mpi_message *message) {
    pthread_mutex_lock(&lock);
    if (message->state != OVER && !ended) give_up(message);
    leave();
}

static void let_go(struct mpi_message *message) {
    pthread_mutex_lock(&lock);
    message->is_used = false;
    if (message->state == OVER) drop(message);
    leave();
}

static void close_group(uint64_t group) {
    pthread_mutex_lock(&lock);
    if (!ended) {
        for (uint32_t i = 0; i < message_room; i++)
            if (messages[i] && messages[i]->address.group == group) give_up(messages[i]);
        discard_group(group);
    }
    leave();
}

const struct mpi_messages openxpu_mpi_messages = {
    .version = MPI_MESSAGES_VERSION,
    .start = session_start,
    .tell = session_tell,
    .send = send,
    .receive = receive,
    .wait = progress_wait,
    .is_over = progress_is_over,
    .why = why,
    .source = source,
    .abort = abort_message,
    .let_go = let_go,
    .close = close_group,
    .end = session_end,
};
