/* Implements messages.h over MPI. Compiled by mpicc only. */
#define _POSIX_C_SOURCE 200809L
#include "messages.h"

#include <mpi.h>

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sys/prctl.h>

/* --- message format --- */

enum kind { WHOLE = 1, OFFER, TAKE, REFUSE, GONE, WITHDRAW };

/* Header of every message on the first communicator, on which all messages have one tag. */
struct envelope {
    uint32_t kind, number; /* sequence number from this rank to that one; messages may arrive out of order */
    uint64_t group, tag, bytes;
    uint64_t offer; /* the sender's message; answers refer to it */
    uint64_t place; /* the receiver's message; also the tag on the second communicator */
};

enum { PLACES = 16, PARTS = 1024, PIECE = 1 << 30 };
enum { PACKET = sizeof(struct envelope) + MPI_MESSAGE_INSIDE };

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

struct packet {
    struct mpi_message *message; /* complete once the packet is sent, or NULL */
    char bytes[];
};

/* What an MPI request belongs to. */
struct job {
    enum { ARRIVAL, PACKET_SENT, PIECE_DONE } what;
    void *of;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards everything below */
static pthread_cond_t changes; /* a message has completed, or no thread drives MPI */
static bool is_started, is_driven, is_ending, is_ours;
static const char *ended; /* the reason, if MPI can't be used any more */
static char *broken;      /* MPI's error text */
static struct mpi_messages_world world;
static MPI_Comm envelopes = MPI_COMM_NULL, contents = MPI_COMM_NULL;
static int most_tag = 32767;
static pthread_t helper;
static pthread_cond_t wakes;

static MPI_Request *requests;
static struct job *jobs;
static int *indices;
static MPI_Status *statuses;
static int request_count, request_room, flights; /* requests other than arrivals */

static char (*places)[PACKET];
static uint32_t *sent_to, *came_from; /* sequence numbers per rank */
static struct early **out_of_order;   /* per rank */

static struct mpi_message **messages; /* by index */
static uint32_t *generations;         /* per index */
static uint32_t message_room, free_count, *free_indices;
static uint64_t orders;

struct list {
    struct mpi_message *first, *last;
};
static struct list posted[PARTS], from_anyone, offered;
static struct {
    struct early *first, *last;
} early[PARTS], all_early;

static uint64_t *closed; /* ids of closed groups */
static size_t closed_count, closed_room;

struct released {
    struct released *next;
    void *kept;
    void (*release)(void *kept);
};
static struct released *released; /* called without the lock */

static _Thread_local char said[512];

static const char *say(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(said, sizeof said, format, values);
    va_end(values);
    return said;
}

static const char *mpi_text(int code) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return say("MPI: %.400s", text);
}

static char *copy_of(const char *text) {
    char *copy = malloc(strlen(text) + 1);
    if (copy) strcpy(copy, text);
    return copy;
}

static void *need(void *memory) {
    if (memory) return memory;
    fprintf(stderr, "openxpu: out of host memory for MPI messages\n");
    abort();
}

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void sleep_us(int64_t us) {
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

static struct timespec after_us(int64_t us) {
    const int64_t then = now_us() + us;
    return (struct timespec){.tv_sec = then / 1000000, .tv_nsec = then % 1000000 * 1000};
}

/* Releases the lock, then calls pending release functions: their owner may do anything. */
static void leave(void) {
    struct released *all = released;
    released = NULL;
    pthread_mutex_unlock(&lock);
    while (all) {
        struct released *next = all->next;
        all->release(all->kept);
        free(all);
        all = next;
    }
}

/* --- lists --- */

static size_t part_of(uint64_t group, uint64_t tag, int rank) {
    uint64_t hash = (group ^ tag * 0x9e3779b97f4a7c15 ^ (uint64_t)(uint32_t)rank << 32) * 0xbf58476d1ce4e5b9;
    return (hash ^ hash >> 31) % PARTS;
}

static struct list *list_of(const struct mpi_message *message) {
    const struct mpi_address *address = &message->address;
    if (message->is_send) return &offered;
    if (address->rank < 0) return &from_anyone;
    return &posted[part_of(address->group, address->tag, address->rank)];
}

static void enlist(struct mpi_message *message) {
    struct list *list = list_of(message);
    message->next = NULL;
    message->before = list->last;
    *(list->last ? &list->last->next : &list->first) = message;
    list->last = message;
}

static void unlist(struct mpi_message *message) {
    struct list *list = list_of(message);
    *(message->before ? &message->before->next : &list->first) = message->next;
    *(message->next ? &message->next->before : &list->last) = message->before;
}

static void enlist_early(struct early *one) {
    const size_t part = part_of(one->envelope.group, one->envelope.tag, one->source);
    one->next = one->later = NULL;
    one->before = early[part].last;
    *(early[part].last ? &early[part].last->next : &early[part].first) = one;
    early[part].last = one;
    one->earlier = all_early.last;
    *(all_early.last ? &all_early.last->later : &all_early.first) = one;
    all_early.last = one;
}

static void unlist_early(struct early *one) {
    const size_t part = part_of(one->envelope.group, one->envelope.tag, one->source);
    *(one->before ? &one->before->next : &early[part].first) = one->next;
    *(one->next ? &one->next->before : &early[part].last) = one->before;
    *(one->earlier ? &one->earlier->later : &all_early.first) = one->later;
    *(one->later ? &one->later->earlier : &all_early.last) = one->earlier;
}

/* --- messages --- */

static struct mpi_message *make(const struct mpi_address *address, bool is_send, const void *memory,
                                size_t bytes, void *kept, void (*release)(void *)) {
    if (!free_count) {
        const uint32_t room = message_room ? 2 * message_room : 256;
        messages = need(realloc(messages, room * sizeof *messages));
        generations = need(realloc(generations, room * sizeof *generations));
        free_indices = need(realloc(free_indices, room * sizeof *free_indices));
        for (uint32_t i = room; i-- > message_room;) {
            messages[i] = NULL;
            generations[i] = 0;
            free_indices[free_count++] = i;
        }
        message_room = room;
    }
    struct mpi_message *message = need(calloc(1, sizeof *message));
    *message = (struct mpi_message){.order = orders++,
                                    .is_send = is_send,
                                    .is_used = true,
                                    .address = *address,
                                    .source = -1,
                                    .memory = (char *)memory,
                                    .bytes = bytes,
                                    .index = free_indices[--free_count],
                                    .kept = kept,
                                    .release = release};
    messages[message->index] = message;
    return message;
}

static void drop(struct mpi_message *message) {
    free(message->why);
    free(message);
}

static void finish(struct mpi_message *message, const char *why) {
    if (message->state == OVER) return;
    message->state = OVER;
    if (why && !message->why) message->why = copy_of(why);
    messages[message->index] = NULL;
    generations[message->index]++;
    free_indices[free_count++] = message->index;
    if (message->release) {
        struct released *one = need(malloc(sizeof *one));
        *one = (struct released){released, message->kept, message->release};
        released = one;
    }
    if (!message->is_used) drop(message);
    pthread_cond_broadcast(&changes);
}

static uint64_t name_of(const struct mpi_message *message) {
    return (uint64_t)generations[message->index] << 32 | message->index;
}

static struct mpi_message *named(uint64_t name, enum state state) {
    const uint32_t index = (uint32_t)name;
    if (index >= message_room || !messages[index] || generations[index] != (uint32_t)(name >> 32))
        return NULL;
    return messages[index]->state == state ? messages[index] : NULL;
}

/* MPI itself has failed: fails all messages, since none would complete. */
static void break_down(int code) {
    if (broken) return;
    broken = copy_of(mpi_text(code));
    for (uint32_t i = 0; i < message_room; i++)
        if (messages[i]) {
            if (messages[i]->state == POSTED || messages[i]->state == OFFERED) unlist(messages[i]);
            if (messages[i]->state != FLYING) {
                finish(messages[i], broken);
            } else { /* MPI may still write to its memory */
                if (!messages[i]->why) messages[i]->why = copy_of(broken);
                messages[i]->is_aborted = true;
            }
        }
    pthread_cond_broadcast(&changes);
}

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

static void post(struct envelope envelope, int to, const void *inside, size_t bytes,
                 struct mpi_message *message) {
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

static void land(struct mpi_message *message, int source, const struct envelope *envelope,
                 const char *inside) {
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

static bool is_closed(uint64_t group) {
    for (size_t i = closed_count; i-- > 0;)
        if (closed[i] == group) return true;
    return false;
}

static bool fits(const struct mpi_address *address, uint64_t group, uint64_t tag, int source) {
    return address->group == group && address->tag == tag && (address->rank < 0 || address->rank == source);
}

static struct early *keep_early(int source, const struct envelope *envelope, const char *inside) {
    const size_t bytes = envelope->kind == WHOLE ? envelope->bytes : 0;
    struct early *one = need(malloc(sizeof *one + bytes));
    one->source = source;
    one->envelope = *envelope;
    if (bytes) memcpy(one->inside, inside, bytes);
    return one;
}

/* Handles a message, in the order of sending. */
static void accept(int source, const struct envelope *envelope, const char *inside) {
    struct mpi_message *message;
    switch ((enum kind)envelope->kind) {
    case WHOLE:
    case OFFER: {
        message = posted[part_of(envelope->group, envelope->tag, source)].first;
        while (message && !fits(&message->address, envelope->group, envelope->tag, source))
            message = message->next;
        struct mpi_message *any = from_anyone.first;
        while (any && !fits(&any->address, envelope->group, envelope->tag, source)) any = any->next;
        if (any && (!message || any->order < message->order)) message = any;
        if (message) {
            unlist(message);
            land(message, source, envelope, inside);
        } else if (!is_closed(envelope->group)) {
            enlist_early(keep_early(source, envelope, inside));
        }
        return;
    }
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
        struct early *one = early[part_of(envelope->group, envelope->tag, source)].first;
        while (one && (one->envelope.kind != OFFER || one->envelope.offer != envelope->offer ||
                       one->source != source))
            one = one->next;
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

/* Handles completed MPI requests. Returns whether there were any. */
static bool drive(void) {
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

/* Progress thread, for messages that no thread waits for: polls often while messages are in progress, else
 * rarely. */
static void *help(void *nothing) {
    (void)nothing;
    int64_t pause = 50;
    pthread_mutex_lock(&lock);
    while (!is_ending && !ended) {
        const bool is_busy = message_room != free_count || flights;
        if (!is_driven && drive()) pause = 50;
        const int64_t most = is_busy ? 1000 : 5000;
        leave();
        sleep_us(pause);
        pthread_mutex_lock(&lock);
        pause = pause * 2 < most ? pause * 2 : most;
        while (is_driven && !is_ending && !ended) { /* a waiting thread drives MPI */
            const struct timespec then = after_us(5000);
            pthread_cond_timedwait(&wakes, &lock, &then);
        }
    }
    leave();
    return NULL;
}

/* --- initialization --- */

/* Waits for an MPI request without holding the lock for long. */
static const char *complete(MPI_Request *request, int64_t ms, const char *what) {
    const int64_t end = ms > 0 ? now_us() + ms * 1000 : INT64_MAX;
    int64_t pause = 20;
    for (;;) {
        int is_done = 0;
        const int code = MPI_Test(request, &is_done, MPI_STATUS_IGNORE);
        if (code) return mpi_text(code);
        if (is_done) return NULL;
        if (now_us() > end)
            return say("not all %d processes of MPI_COMM_WORLD reached %s within %lld ms", world.size, what,
                       (long long)ms);
        pthread_mutex_unlock(&lock);
        sleep_us(pause);
        pause = pause < 1000 ? 2 * pause : pause;
        pthread_mutex_lock(&lock);
    }
}

static void forked(void) { /* in the child: the thread that held the lock doesn't exist here */
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (is_started)
        ended = "MPI was initialized in the parent process; this process was forked and can't use it";
}

static void let_arrivals_go(void) {
    for (int i = 0; i < request_count; i++)
        if (jobs[i].what == ARRIVAL && requests[i] != MPI_REQUEST_NULL) {
            MPI_Cancel(&requests[i]);
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        }
    request_count = 0;
}

/* MPI_Finalize deletes the attributes of MPI_COMM_SELF first, whoever calls it; after that no receive may be
 * pending. */
static int at_finalize(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    pthread_mutex_lock(&lock);
    if (!ended) {
        ended = "MPI has been finalized";
        let_arrivals_go();
        pthread_cond_broadcast(&changes);
    }
    leave();
    return MPI_SUCCESS;
}

static const char *begin_mpi(int64_t ms) {
    int is_there = 0, is_over = 0, level = 0;
    MPI_Finalized(&is_over);
    if (is_over) return ended = "MPI has been finalized";
    MPI_Initialized(&is_there);
    int code = is_there ? MPI_Query_thread(&level) : MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (code) return mpi_text(code);
    is_ours = !is_there;
    world.is_foreign = is_there;
    if (level < MPI_THREAD_SERIALIZED)
        return say("MPI was initialized for calls from one thread only (level %d); initialize it with "
                   "MPI_THREAD_MULTIPLE or MPI_THREAD_SERIALIZED",
                   level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.size);
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0, *most = NULL, is_known = 0;
    MPI_Get_library_version(library, &length);
    size_t used = 0;
    for (const char *each = library; *each && !strchr("\n,", *each) && used + 1 < sizeof world.library;
         each++) {
        const bool is_blank = *each == ' ' || *each == '\t';
        if (!is_blank) world.library[used++] = *each;
        if (is_blank && used && world.library[used - 1] != ' ') world.library[used++] = ' ';
    }
    MPI_Comm *all[] = {&envelopes, &contents};
    for (int i = 0; i < 2; i++) {
        MPI_Request request = MPI_REQUEST_NULL;
        if ((code = MPI_Comm_idup(MPI_COMM_WORLD, all[i], &request))) return mpi_text(code);
        const char *why = complete(&request, ms, "the initialization of MPI");
        if (why) return why;
        MPI_Comm_set_errhandler(*all[i], MPI_ERRORS_RETURN);
    }
    MPI_Comm_get_attr(contents, MPI_TAG_UB, &most, &is_known);
    if (is_known) most_tag = *most;
    int key = 0;
    if (!MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &key, NULL))
        MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    const size_t size = (size_t)world.size;
    sent_to = need(calloc(size, sizeof *sent_to));
    came_from = need(calloc(size, sizeof *came_from));
    out_of_order = need(calloc(size, sizeof *out_of_order));
    places = need(malloc(PLACES * sizeof *places));
    for (int i = 0; i < PLACES; i++) await_arrival(places[i]);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changes, &attributes);
    pthread_cond_init(&wakes, &attributes);
    is_started = true;
    pthread_atfork(NULL, NULL, forked);
    if (pthread_create(&helper, NULL, help, NULL)) return ended = "could not start the thread that calls MPI";
    return broken;
}

static const char *start(int64_t ms, struct mpi_messages_world *result) {
    static const char *why;
    static bool was_tried;
    pthread_mutex_lock(&lock);
    if (!was_tried) {
        was_tried = true;
        why = begin_mpi(ms);
        if (why) why = need(copy_of(why));
    }
    *result = world;
    const char *says = why ? why : ended;
    leave();
    return says;
}

static const char *tell(void *bytes, size_t count, int64_t ms) {
    MPI_Request request = MPI_REQUEST_NULL;
    char *copy = need(malloc(count)); /* leaked on a timeout, because MPI may still write to it */
    memcpy(copy, bytes, count);
    pthread_mutex_lock(&lock);
    const int code = MPI_Ibcast(copy, (int)count, MPI_BYTE, 0, contents, &request);
    const char *why = code ? mpi_text(code) : complete(&request, ms, "the creation of the process group");
    leave();
    if (why) return why;
    memcpy(bytes, copy, count);
    free(copy);
    return NULL;
}

/* --- functions of the table --- */

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
    const bool is_any = from->rank < 0;
    struct early *one = is_any ? all_early.first : early[part_of(from->group, from->tag, from->rank)].first;
    while (one && !fits(from, one->envelope.group, one->envelope.tag, one->source))
        one = is_any ? one->later : one->next;
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

static bool has_end(const struct mpi_message *message) {
    return message->state == OVER || message->is_aborted || ended;
}

static enum mpi_end wait(struct mpi_message *message, int64_t ms) {
    const int64_t begin = now_us(), end = ms > 0 ? begin + ms * 1000 : INT64_MAX;
    int64_t pause = 5, moved = begin; /* when MPI last made progress */
    pthread_mutex_lock(&lock);
    while (!has_end(message)) {
        const int64_t now = now_us();
        if (now > end) break;
        if (is_driven) { /* another waiting thread drives MPI */
            const struct timespec then = after_us(end - now < 100000 ? end - now + 1 : 100000);
            pthread_cond_timedwait(&changes, &lock, &then);
            continue;
        }
        is_driven = true;
        const int slack = prctl(PR_GET_TIMERSLACK);
        prctl(PR_SET_TIMERSLACK, 1000UL); /* ns; the default of 50 µs is longer than most messages take */
        while (!has_end(message)) {
            const bool has_moved = drive();
            if (has_end(message)) break;
            const int64_t then = now_us();
            if (then > end) break;
            if (has_moved) pause = 5, moved = then;
            leave();
            if (then - moved < 30) {
                sched_yield();
            } else { /* sleep early, so that other threads get the CPU; a thread that has slept gets it back
                        at once */
                sleep_us(pause);
                if (then - moved > 2000 && pause < 200) pause *= 2;
            }
            pthread_mutex_lock(&lock);
        }
        is_driven = false;
        if (slack > 0) prctl(PR_SET_TIMERSLACK, (unsigned long)slack);
        pthread_cond_broadcast(&changes); /* another waiting thread takes over */
        pthread_cond_signal(&wakes);
    }
    enum mpi_end how = MPI_TIME_OVER;
    if (message->why)
        how = MPI_HAS_FAILED;
    else if (message->is_aborted)
        how = MPI_WAS_ABORTED;
    else if (message->state == OVER)
        how = MPI_IS_OVER;
    else if (ended)
        how = MPI_HAS_FAILED;
    leave();
    return how;
}

static bool is_over(struct mpi_message *message) {
    pthread_mutex_lock(&lock);
    if (!has_end(message) && !is_driven) drive();
    const bool is = has_end(message);
    leave();
    return is;
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
        for (struct early *one = all_early.first; one;) {
            struct early *later = one->later;
            if (one->envelope.group == group) {
                unlist_early(one);
                free(one);
            }
            one = later;
        }
        if (closed_count == closed_room) {
            closed_room = closed_room ? 2 * closed_room : 64;
            closed = need(realloc(closed, closed_room * sizeof *closed));
        }
        closed[closed_count++] = group;
    }
    leave();
}

/* All ranks meet before MPI_Finalize, because some implementations don't wait for ranks that are still busy,
 * and none of them tells the launcher of a failed rank. */
static void end(bool in_order) {
    pthread_mutex_lock(&lock);
    if (!is_started || ended || is_ending) return leave();
    is_ending = true;
    pthread_cond_broadcast(&wakes);
    leave();
    pthread_join(helper, NULL);
    pthread_mutex_lock(&lock);
    const int64_t limit = now_us() + 5000000;
    while (in_order && flights && !broken && now_us() < limit)
        if (!drive()) sleep_us(100);
    in_order = in_order && !flights && !broken;
    MPI_Request request = MPI_REQUEST_NULL;
    if (in_order && is_ours && !MPI_Ibarrier(contents, &request)) {
        int is_done = 0;
        int64_t pause = 20;
        while (!broken && !MPI_Test(&request, &is_done, MPI_STATUS_IGNORE) && !is_done)
            if (!drive()) {
                leave(); /* threads that wait make progress meanwhile */
                sleep_us(pause);
                pause = pause < 5000 ? 2 * pause : pause;
                pthread_mutex_lock(&lock);
            }
        in_order = is_done;
    }
    const bool finalizes = in_order && is_ours;
    if (in_order && !finalizes) let_arrivals_go();
    if (finalizes) {
        ended = "MPI has been finalized";
        let_arrivals_go();
        MPI_Comm_free(&envelopes);
        MPI_Comm_free(&contents);
    } else {
        ended = "the process is exiting";
    }
    pthread_cond_broadcast(&changes);
    leave();
    if (finalizes) MPI_Finalize();
}

const struct mpi_messages openxpu_mpi_messages = {
    .version = MPI_MESSAGES_VERSION,
    .start = start,
    .tell = tell,
    .send = send,
    .receive = receive,
    .wait = wait,
    .is_over = is_over,
    .why = why,
    .source = source,
    .abort = abort_message,
    .let_go = let_go,
    .close = close_group,
    .end = end,
};
