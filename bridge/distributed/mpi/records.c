/* Bookkeeping of messages: by index, by the address that they wait for, and those that no receive matches
 * yet. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t changes;
const char *ended;
char *broken;

struct mpi_message **messages;
uint32_t message_room;
static uint32_t *generations; /* per index */
static uint32_t free_count, *free_indices;
static uint64_t orders;

enum { PARTS = 1024 };
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

const char *say(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(said, sizeof said, format, values);
    va_end(values);
    return said;
}

const char *mpi_text(int code) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return say("MPI: %.400s", text);
}

char *copy_of(const char *text) {
    char *copy = malloc(strlen(text) + 1);
    if (copy) strcpy(copy, text);
    return copy;
}

void *need(void *memory) {
    if (memory) return memory;
    fprintf(stderr, "openxpu: out of host memory for MPI messages\n");
    abort();
}

int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void sleep_us(int64_t us) {
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

struct timespec after_us(int64_t us) {
    const int64_t then = now_us() + us;
    return (struct timespec){.tv_sec = then / 1000000, .tv_nsec = then % 1000000 * 1000};
}

void init_monotonic(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
}

void leave(void) {
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

/* --- messages --- */

struct mpi_message *make(const struct mpi_address *address, bool is_send, const void *memory, size_t bytes,
                         void *kept, void (*release)(void *)) {
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

void drop(struct mpi_message *message) {
    free(message->why);
    free(message);
}

void finish(struct mpi_message *message, const char *why) {
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

bool has_messages(void) { return message_room != free_count; }

uint64_t name_of(const struct mpi_message *message) {
    return (uint64_t)generations[message->index] << 32 | message->index;
}

struct mpi_message *named(uint64_t name, enum state state) {
    const uint32_t index = (uint32_t)name;
    if (index >= message_room || !messages[index] || generations[index] != (uint32_t)(name >> 32))
        return NULL;
    return messages[index]->state == state ? messages[index] : NULL;
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

void enlist(struct mpi_message *message) {
    struct list *list = list_of(message);
    message->next = NULL;
    message->before = list->last;
    *(list->last ? &list->last->next : &list->first) = message;
    list->last = message;
}

void unlist(struct mpi_message *message) {
    struct list *list = list_of(message);
    *(message->before ? &message->before->next : &list->first) = message->next;
    *(message->next ? &message->next->before : &list->last) = message->before;
}

void break_down(int code) {
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

struct early *keep_early(int source, const struct envelope *envelope, const char *inside) {
    const size_t bytes = envelope->kind == WHOLE ? envelope->bytes : 0;
    struct early *one = need(malloc(sizeof *one + bytes));
    one->source = source;
    one->envelope = *envelope;
    if (bytes) memcpy(one->inside, inside, bytes);
    return one;
}

void enlist_early(struct early *one) {
    const size_t part = part_of(one->envelope.group, one->envelope.tag, one->source);
    one->next = one->later = NULL;
    one->before = early[part].last;
    *(early[part].last ? &early[part].last->next : &early[part].first) = one;
    early[part].last = one;
    one->earlier = all_early.last;
    *(all_early.last ? &all_early.last->later : &all_early.first) = one;
    all_early.last = one;
}

void unlist_early(struct early *one) {
    const size_t part = part_of(one->envelope.group, one->envelope.tag, one->source);
    *(one->before ? &one->before->next : &early[part].first) = one->next;
    *(one->next ? &one->next->before : &early[part].last) = one->before;
    *(one->earlier ? &one->earlier->later : &all_early.first) = one->later;
    *(one->later ? &one->later->earlier : &all_early.last) = one->earlier;
}

static bool fits(const struct mpi_address *address, uint64_t group, uint64_t tag, int source) {
    return address->group == group && address->tag == tag && (address->rank < 0 || address->rank == source);
}

struct mpi_message *first_receive(int source, const struct envelope *envelope) {
    struct mpi_message *message = posted[part_of(envelope->group, envelope->tag, source)].first;
    while (message && !fits(&message->address, envelope->group, envelope->tag, source))
        message = message->next;
    struct mpi_message *any = from_anyone.first;
    while (any && !fits(&any->address, envelope->group, envelope->tag, source)) any = any->next;
    return any && (!message || any->order < message->order) ? any : message;
}

struct early *first_early(const struct mpi_address *from) {
    const bool is_any = from->rank < 0;
    struct early *one = is_any ? all_early.first : early[part_of(from->group, from->tag, from->rank)].first;
    while (one && !fits(from, one->envelope.group, one->envelope.tag, one->source))
        one = is_any ? one->later : one->next;
    return one;
}

struct early *early_offer(int source, const struct envelope *envelope) {
    struct early *one = early[part_of(envelope->group, envelope->tag, source)].first;
    while (one &&
           (one->envelope.kind != OFFER || one->envelope.offer != envelope->offer || one->source != source))
        one = one->next;
    return one;
}

void discard_group(uint64_t group) {
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

bool is_closed(uint64_t group) {
    for (size_t i = closed_count; i-- > 0;)
        if (closed[i] == group) return true;
    return false;
}
