/* MPI requests, and the packets by which ranks agree on a transfer: contents up to MPI_MESSAGE_INSIDE bytes
 * come with their envelope (WHOLE); larger ones are offered (OFFER), and the receiver answers (TAKE, REFUSE).
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { PLACES = 16, PIECE = 1 << 30 };
enum { PACKET = sizeof(struct envelope) + MPI_MESSAGE_INSIDE };

struct packet {
    struct mpi_message *message; /* complete once the packet is sent, or NULL */
    char bytes[];
};

/* What an MPI request belongs to. */
struct job {
    enum { ARRIVAL, PACKET_SENT, PIECE_DONE } what;
    void *of;
};

MPI_Comm envelopes = MPI_COMM_NULL, contents = MPI_COMM_NULL;
int most_tag = 32767;

static MPI_Request *requests;
static struct job *jobs;
static int *indices;
static MPI_Status *statuses;
static int request_count, request_room;
int flights;

static char (*places)[PACKET];
static uint32_t *sent_to, *came_from; /* sequence numbers per rank */
static struct early **out_of_order;   /* per rank */

static MPI_Request *new_request(int what, void *of) {
    if (request_count == request_room) {
        request_room = request_room ? 2 * request_room : 64;
        requests = need(realloc(requests, (size_t)request_room * sizeof *requests));
        jobs = need(realloc(jobs, (size_t)request_room * sizeof *jobs));
        indices = need(realloc(indices, (size_t)request_room * sizeof *indices));
        statuses = need(realloc(statuses, (size_t)request_room * sizeof *statuses));
    }
    jobs[request_count] = (struct job){what, of};
    requests[request_count] = MPI_REQUEST_NULL;
    if (what != ARRIVAL) flights++;
    return &requests[request_count++];
}

void post(struct envelope envelope, int to, const void *inside, size_t bytes, struct mpi_message *message) {
    struct packet *packet = need(malloc(sizeof *packet + sizeof envelope + bytes));
    envelope.number = sent_to[to]++;
    packet->message = message;
    memcpy(packet->bytes, &envelope, sizeof envelope);
    if (bytes) memcpy(packet->bytes + sizeof envelope, inside, bytes);
    const int code = MPI_Isend(packet->bytes, (int)(sizeof envelope + bytes), MPI_BYTE, to, 0, envelopes,
                               new_request(PACKET_SENT, packet));
    if (code) {
        request_count--, flights--;
        free(packet);
        break_down(code);
        if (message) finish(message, broken);
    }
}

/* Starts the transfer of the contents, in pieces, because MPI counts in int. */
static void fly(struct mpi_message *message, int partner, int tag) {
    message->state = FLYING;
    for (size_t from = 0; from < message->bytes && !broken; from += PIECE) {
        const size_t left = message->bytes - from;
        const int here = left < PIECE ? (int)left : PIECE;
        MPI_Request *request = new_request(PIECE_DONE, message);
        const int code =
            message->is_send
                ? MPI_Isend(message->memory + from, here, MPI_BYTE, partner, tag, contents, request)
                : MPI_Irecv(message->memory + from, here, MPI_BYTE, partner, tag, contents, request);
        if (code) {
            request_count--, flights--;
            break_down(code);
        } else {
            message->pieces++;
        }
    }
}

void land(struct mpi_message *message, int source, const struct envelope *envelope, const char *inside) {
    message->source = source;
    message->state = FLYING; /* in no list */
    if (envelope->kind == WHOLE) {
        if (envelope->bytes > message->bytes)
            return finish(message,
                          say("received %llu bytes, but there is room for %llu",
                              (unsigned long long)envelope->bytes, (unsigned long long)message->bytes));
        if (envelope->bytes) memcpy(message->memory, inside, envelope->bytes);
        return finish(message, NULL);
    }
    struct envelope answer = {.kind = TAKE, .offer = envelope->offer, .place = name_of(message)};
    if (envelope->bytes != message->bytes || message->index > (uint32_t)most_tag) {
        answer.kind = REFUSE;
        answer.bytes = message->bytes;
        post(answer, source, NULL, 0, NULL);
        return finish(message,
                      envelope->bytes == message->bytes
                          ? "more receives are pending than MPI has tags"
                          : say("the sender has %llu bytes, but there is room for %llu",
                                (unsigned long long)envelope->bytes, (unsigned long long)message->bytes));
    }
    fly(message, source, (int)message->index);
    post(answer, source, NULL, 0, NULL);
}

/* Handles a message, in the order of sending. */
static void accept(int source, const struct envelope *envelope, const char *inside) {
    struct mpi_message *message;
    switch ((enum kind)envelope->kind) {
    case WHOLE:
    case OFFER:
        message = first_receive(source, envelope);
        if (message) {
            unlist(message);
            land(message, source, envelope, inside);
        } else if (!is_closed(envelope->group)) {
            enlist_early(keep_early(source, envelope, inside));
        }
        return;
    case TAKE:
        if ((message = named(envelope->offer, OFFERED))) {
            unlist(message);
            fly(message, source, (int)(uint32_t)envelope->place);
        } else { /* the message was canceled: tell the receiver */
            post((struct envelope){.kind = GONE, .place = envelope->place}, source, NULL, 0, NULL);
        }
        return;
    case REFUSE:
        if ((message = named(envelope->offer, OFFERED))) {
            unlist(message);
            finish(message, say("the sender has %llu bytes, but there is room for %llu",
                                (unsigned long long)message->bytes, (unsigned long long)envelope->bytes));
        }
        return;
    case WITHDRAW: {
        struct early *one = early_offer(source, envelope);
        if (!one) return; /* already taken: the answer to that is GONE */
        unlist_early(one);
        free(one);
        return;
    }
    case GONE:
        if ((message = named(envelope->place, FLYING))) {
            message->why = copy_of("the sender canceled the message");
            for (int i = 0; i < request_count; i++)
                if (jobs[i].what == PIECE_DONE && jobs[i].of == message) MPI_Cancel(&requests[i]);
        }
        return;
    }
}

static void arrived(int source, const char *bytes) {
    struct envelope envelope;
    memcpy(&envelope, bytes, sizeof envelope);
    if (envelope.number != came_from[source]) {
        struct early *one = keep_early(source, &envelope, bytes + sizeof envelope);
        one->next = out_of_order[source];
        out_of_order[source] = one;
        return;
    }
    came_from[source]++;
    accept(source, &envelope, bytes + sizeof envelope);
    for (struct early **each = &out_of_order[source]; *each;) {
        struct early *one = *each;
        if (one->envelope.number != came_from[source]) {
            each = &one->next;
            continue;
        }
        *each = one->next;
        came_from[source]++;
        accept(source, &one->envelope, one->inside);
        free(one);
        each = &out_of_order[source]; /* its successor may be earlier in the list */
    }
}

static void await_arrival(char *place) {
    const int code =
        MPI_Irecv(place, PACKET, MPI_BYTE, MPI_ANY_SOURCE, 0, envelopes, new_request(ARRIVAL, place));
    if (code) {
        request_count--;
        break_down(code);
    }
}

void begin_arrivals(int size) {
    sent_to = need(calloc((size_t)size, sizeof *sent_to));
    came_from = need(calloc((size_t)size, sizeof *came_from));
    out_of_order = need(calloc((size_t)size, sizeof *out_of_order));
    places = need(malloc(PLACES * sizeof *places));
    for (int i = 0; i < PLACES; i++) await_arrival(places[i]);
}

void cancel_arrivals(void) {
    for (int i = 0; i < request_count; i++)
        if (jobs[i].what == ARRIVAL && requests[i] != MPI_REQUEST_NULL) {
            MPI_Cancel(&requests[i]);
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        }
    request_count = 0;
}

bool drive(void) {
    bool has_moved = false;
    for (int turn = 0; turn < 16 && !broken; turn++) {
        int done = 0;
        const int code = MPI_Testsome(request_count, requests, &done, indices, statuses);
        if (code && code != MPI_ERR_IN_STATUS) {
            break_down(code);
            return true;
        }
        if (done <= 0) break; /* or MPI_UNDEFINED */
        has_moved = true;
        struct {
            struct job job;
            MPI_Status status;
            int code;
        } *all = need(malloc((size_t)done * sizeof *all));
        for (int i = 0; i < done; i++) {
            all[i].job = jobs[indices[i]];
            all[i].status = statuses[i];
            all[i].code = code ? statuses[i].MPI_ERROR : MPI_SUCCESS;
            jobs[indices[i]].of = NULL;
        }
        int left = 0;
        for (int i = 0; i < request_count; i++)
            if (jobs[i].of) {
                requests[left] = requests[i];
                jobs[left++] = jobs[i];
            } else if (jobs[i].what != ARRIVAL) {
                flights--;
            }
        request_count = left;
        for (int i = 0; i < done; i++) {
            switch (all[i].job.what) {
            case ARRIVAL:
                if (all[i].code) {
                    break_down(all[i].code);
                } else {
                    int was_canceled = 0;
                    MPI_Test_cancelled(&all[i].status, &was_canceled);
                    if (was_canceled) break;
                    arrived(all[i].status.MPI_SOURCE, all[i].job.of);
                    if (!broken) await_arrival(all[i].job.of);
                }
                break;
            case PACKET_SENT: {
                struct packet *packet = all[i].job.of;
                if (packet->message) finish(packet->message, all[i].code ? mpi_text(all[i].code) : NULL);
                free(packet);
                break;
            }
            case PIECE_DONE: {
                struct mpi_message *message = all[i].job.of;
                if (all[i].code && !message->why) message->why = copy_of(mpi_text(all[i].code));
                if (!--message->pieces) finish(message, NULL);
                break;
            }
            }
        }
        free(all);
    }
    return has_moved;
}
