// Shared memory segments (segment.h) on Linux: memfd, futexes and lock-free counters.
#define _GNU_SOURCE // memfd_create, syscall
#include "segment.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum { LINE = 64 };
enum { MAGIC = 0x78707502 }; // change it with the layout below

static const char memory_name[] = "openxpu";

// Slot counters, which wrap around. Two processes write them, so each has its own cache line.
struct ring {
    _Alignas(LINE) _Atomic uint32_t filled; // written by the sender
    _Alignas(LINE) _Atomic uint32_t emptied;
};

// 1 + the number of the last message written to this slot, and of the last one that is no longer needed.
struct inbox_slot {
    _Alignas(LINE) _Atomic uint64_t written; // written by the sender
    _Alignas(LINE) _Atomic uint64_t read;
};

struct head {
    uint32_t magic, rank, ranks;
    uint64_t token, slot_bytes, inbox_bytes;
    _Alignas(LINE) _Atomic uint32_t bell;
    _Atomic uint32_t sleepers, has_left;
    struct ring rings[]; // SEGMENT_RINGS to each rank; then SEGMENT_INBOX_SLOTS of struct inbox_slot
};

struct segment {
    struct head *head;
    size_t bytes, slots_at, to_each; // offsets from `head`
    uint64_t reserved;               // bytes
    pid_t creator;                   // 0: another rank's segment
    int file;           // own segment: the memfd; otherwise a pidfd that reports the end of the owner
    bool is_reserved[]; // per rank: inbox slots, rings
};

_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "atomics of shared memory have no locks");

// Chunks that stay in a core's cache between writer and reader. With many ranks on a host they are smaller,
// to limit the total size of all rings.
size_t segment_slot_bytes(uint32_t ranks) { return ranks <= 8 ? 128 << 10 : 32 << 10; }

static size_t inbox_stride(size_t inbox_bytes) { return (inbox_bytes + LINE - 1) / LINE * LINE; }

static size_t rings_bytes(uint32_t ranks) {
    return SEGMENT_RINGS * SEGMENT_SLOTS * segment_slot_bytes(ranks);
}

// Bytes of rings and inbox for one receiving rank.
static size_t bytes_to_each(uint32_t ranks, size_t inbox_bytes) {
    return (rings_bytes(ranks) + SEGMENT_INBOX_SLOTS * inbox_stride(inbox_bytes) + 4095) / 4096 * 4096;
}

static size_t slots_at(uint32_t ranks) {
    const size_t head =
        sizeof(struct head) + (size_t)ranks * (SEGMENT_RINGS * sizeof(struct ring) +
                                               SEGMENT_INBOX_SLOTS * sizeof(struct inbox_slot));
    return (head + 4095) / 4096 * 4096;
}

static segment *map(int file, uint32_t ranks, size_t inbox_bytes) {
    segment *mapped = calloc(1, sizeof *mapped + 2 * ranks * sizeof(bool));
    if (!mapped) return NULL;
    mapped->slots_at = slots_at(ranks);
    mapped->to_each = bytes_to_each(ranks, inbox_bytes);
    mapped->bytes = mapped->slots_at + ranks * mapped->to_each;
    mapped->file = -1;
    mapped->head = mmap(NULL, mapped->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped->head != MAP_FAILED) return mapped;
    free(mapped);
    return NULL;
}

segment *segment_create(uint32_t rank, uint32_t ranks, size_t inbox_bytes, segment_name *name) {
    struct rlimit most;
    memset(name, 0, sizeof *name);
    const size_t bytes = slots_at(ranks) + ranks * bytes_to_each(ranks, inbox_bytes);
    // writing beyond the limit would raise a signal
    if (getrlimit(RLIMIT_FSIZE, &most) || (most.rlim_cur != RLIM_INFINITY && most.rlim_cur < bytes))
        return NULL;
    const int file = memfd_create(memory_name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) return NULL;
    segment *own = NULL;
    uint64_t token = 0;
    // Sealed against shrinking and allocated up front: accessing missing memory would raise a signal.
    if (!ftruncate(file, (off_t)bytes) && !fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) &&
        !fallocate(file, 0, 0, (off_t)slots_at(ranks)) && getrandom(&token, sizeof token, 0) == sizeof token)
        own = map(file, ranks, inbox_bytes);
    if (!own) {
        close(file);
        return NULL;
    }
    own->creator = getpid();
    own->file = file;
    struct head *head = own->head;
    head->rank = rank;
    head->ranks = ranks;
    head->token = token;
    head->slot_bytes = segment_slot_bytes(ranks);
    head->inbox_bytes = inbox_bytes;
    head->magic = MAGIC;
    *name = (segment_name){token, (int32_t)own->creator, file};
    return own;
}

segment *segment_open(const segment_name *name, uint32_t rank, uint32_t ranks, size_t inbox_bytes) {
    if (name->process <= 0 || name->file < 0) return NULL;
    char path[64], target[sizeof "/memfd:" + sizeof memory_name] = "", wanted[sizeof target];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", name->process, name->file);
    // On another host a process with this id may have an unrelated file there, which must not be opened.
    snprintf(wanted, sizeof wanted, "/memfd:%s", memory_name);
    const ssize_t length = readlink(path, target, sizeof target);
    if (length < (ssize_t)strlen(wanted) || memcmp(target, wanted, strlen(wanted)) != 0) return NULL;
    const int process = (int)syscall(SYS_pidfd_open, name->process, 0);
    if (process < 0) return NULL;
    segment *other = NULL;
    const int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    struct stat is;
    if (file >= 0 && !fstat(file, &is) && S_ISREG(is.st_mode) &&
        is.st_size == (off_t)(slots_at(ranks) + ranks * bytes_to_each(ranks, inbox_bytes)))
        other = map(file, ranks, inbox_bytes);
    if (file >= 0) close(file);
    if (!other) {
        close(process);
        return NULL;
    }
    other->file = process;
    const struct head *head = other->head;
    if (head->magic == MAGIC && head->token == name->token && head->rank == rank && head->ranks == ranks &&
        head->slot_bytes == segment_slot_bytes(ranks) && head->inbox_bytes == inbox_bytes)
        return other;
    segment_close(other);
    return NULL;
}

void segment_close(segment *mapped) {
    if (!mapped) return;
    munmap(mapped->head, mapped->bytes);
    if (mapped->file >= 0) close(mapped->file);
    free(mapped);
}

bool segment_reserve(segment *own, uint32_t to, bool rings) {
    const uint64_t most = 32 << 20;
    const size_t all_rings = rings_bytes(own->head->ranks);
    const size_t from = own->slots_at + to * own->to_each + (rings ? 0 : all_rings);
    const size_t bytes = rings ? all_rings : own->to_each - all_rings;
    bool *is_reserved = &own->is_reserved[2 * to + rings];
    if (*is_reserved) return true;
    if (own->reserved + bytes > most) return false;
    if (fallocate(own->file, 0, (off_t)from, (off_t)bytes)) return false;
    own->reserved += bytes;
    return *is_reserved = true;
}

void segment_leave(segment *own) {
    if (own->creator != getpid()) return;
    atomic_store(&own->head->has_left, 1);
}

bool segment_has_left(const segment *other) { return atomic_load(&other->head->has_left); }

bool segment_has_ended(const segment *other) {
    struct pollfd process = {.fd = other->file, .events = POLLIN};
    return poll(&process, 1, 0) > 0;
}

// --- bells ---

uint32_t segment_bell(const segment *any) { return atomic_load(&any->head->bell); }

void segment_ring(segment *any) {
    atomic_fetch_add(&any->head->bell, 1);
    if (atomic_load(&any->head->sleepers))
        syscall(SYS_futex, &any->head->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void segment_sleep(segment *own, uint32_t seen, unsigned ms) {
    const struct timespec most = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    atomic_fetch_add(&own->head->sleepers, 1);
    syscall(SYS_futex, &own->head->bell, FUTEX_WAIT, seen, &most, NULL, 0);
    atomic_fetch_sub(&own->head->sleepers, 1);
}

// --- rings ---

static struct ring *ring_of(const segment *of, uint32_t to, unsigned ring) {
    return &of->head->rings[to * SEGMENT_RINGS + ring];
}

static char *slot_of(const segment *of, uint32_t to, unsigned ring, uint32_t count) {
    const size_t slot = (size_t)ring * SEGMENT_SLOTS + count % SEGMENT_SLOTS;
    return (char *)of->head + of->slots_at + to * of->to_each + slot * of->head->slot_bytes;
}

bool segment_is_empty(const segment *own, uint32_t to, unsigned ring) {
    struct ring *at = ring_of(own, to, ring);
    return atomic_load_explicit(&at->emptied, memory_order_acquire) ==
           atomic_load_explicit(&at->filled, memory_order_relaxed);
}

void *segment_room(segment *own, uint32_t to, unsigned ring) {
    struct ring *at = ring_of(own, to, ring);
    const uint32_t filled = atomic_load_explicit(&at->filled, memory_order_relaxed);
    const uint32_t emptied = atomic_load_explicit(&at->emptied, memory_order_acquire);
    return filled - emptied < SEGMENT_SLOTS ? slot_of(own, to, ring, filled) : NULL;
}

void segment_put(segment *own, segment *receiver, uint32_t to, unsigned ring) {
    atomic_fetch_add(&ring_of(own, to, ring)->filled, 1);
    segment_ring(receiver);
}

const void *segment_next(const segment *sender, uint32_t to, unsigned ring) {
    struct ring *at = ring_of(sender, to, ring);
    const uint32_t emptied = atomic_load_explicit(&at->emptied, memory_order_relaxed);
    const uint32_t filled = atomic_load_explicit(&at->filled, memory_order_acquire);
    return filled != emptied ? slot_of(sender, to, ring, emptied) : NULL;
}

void segment_take(segment *sender, uint32_t to, unsigned ring) {
    atomic_fetch_add(&ring_of(sender, to, ring)->emptied, 1);
    segment_ring(sender);
}

// --- inbox ---

static struct inbox_slot *inbox_slot_of(const segment *of, uint32_t to, uint64_t number) {
    struct inbox_slot *inbox_slots =
        (struct inbox_slot *)&of->head->rings[(size_t)of->head->ranks * SEGMENT_RINGS];
    return &inbox_slots[(size_t)to * SEGMENT_INBOX_SLOTS + number % SEGMENT_INBOX_SLOTS];
}

static char *text_of(const segment *of, uint32_t to, uint64_t number) {
    return (char *)of->head + of->slots_at + to * of->to_each + rings_bytes(of->head->ranks) +
           number % SEGMENT_INBOX_SLOTS * inbox_stride(of->head->inbox_bytes);
}

void *segment_inbox_room(segment *own, uint32_t to, uint64_t number, uint64_t first) {
    struct inbox_slot *inbox_slot = inbox_slot_of(own, to, number);
    const uint64_t written = atomic_load_explicit(&inbox_slot->written, memory_order_relaxed);
    // Messages from `first` on are written in order.
    if (number >= first + SEGMENT_INBOX_SLOTS && written != number + 1 - SEGMENT_INBOX_SLOTS) return NULL;
    return atomic_load_explicit(&inbox_slot->read, memory_order_acquire) >= written ? text_of(own, to, number)
                                                                                    : NULL;
}

void segment_inbox_put(segment *own, segment *receiver, uint32_t to, uint64_t number) {
    atomic_store(&inbox_slot_of(own, to, number)->written, number + 1);
    segment_ring(receiver);
}

const void *segment_inbox_next(const segment *sender, uint32_t to, uint64_t number) {
    struct inbox_slot *inbox_slot = inbox_slot_of(sender, to, number);
    return atomic_load_explicit(&inbox_slot->written, memory_order_acquire) == number + 1
               ? text_of(sender, to, number)
               : NULL;
}

void segment_inbox_take(segment *sender, uint32_t to, uint64_t number) {
    struct inbox_slot *inbox_slot = inbox_slot_of(sender, to, number);
    uint64_t read = atomic_load(&inbox_slot->read);
    while (read < number + 1 && !atomic_compare_exchange_weak(&inbox_slot->read, &read, number + 1)) {}
    segment_ring(sender);
}
