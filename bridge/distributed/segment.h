/* Shared memory of the processes of one host. Each process has a segment, which the others map, with rings
 * of slots to each of them.
 *
 * A ring has one sender (the segment's owner) and one receiver. The sender copies a chunk into the next slot
 * and increments its counter; the receiver uses the chunk in place and increments its own. Both then ring
 * the other's bell: a word in the other's segment on which it sleeps (a futex).
 *
 * A rank also has an inbox for each other rank: small messages, found by their number.
 *
 * A segment has no name in a file system: others open it through the owner's /proc entry, so a killed
 * process leaves nothing behind. Without such access there is no segment. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SEGMENT_RINGS = 4,
    SEGMENT_SLOTS = 8,
    SEGMENT_INBOX_SLOTS = 16
}; /* rings to each other rank; slots per ring; inbox slots per rank */

typedef struct segment segment;

/* What other processes need to open a segment. All zeros: there is none. */
typedef struct {
    uint64_t token; /* random, because processes on other hosts may have the same ids */
    int32_t process, file;
} segment_name;

/* Bytes of a ring slot in a group of this many ranks; a multiple of 64. */
size_t segment_slot_bytes(uint32_t ranks);

/* Creates this rank's segment, with inbox messages of up to inbox_bytes. NULL if the system has no memory or
 * no file descriptors left. */
segment *segment_create(uint32_t rank, uint32_t ranks, size_t inbox_bytes, segment_name *name);
/* Opens another rank's segment. NULL if it is not accessible from here. */
segment *segment_open(const segment_name *name, uint32_t rank, uint32_t ranks, size_t inbox_bytes);
/* Unmaps a segment; no thread may use it any more. NULL is allowed. */
void segment_close(segment *mapped);

/* Allocates the memory for the inbox of that rank, or for its rings, on the first call. False if there is not
 * enough memory. */
bool segment_reserve(segment *own, uint32_t to, bool rings);

/* Tells the other ranks that this rank has left. Does nothing in a forked child. */
void segment_leave(segment *own);
/* Has the owner left? Has its process ended? */
bool segment_has_left(const segment *other);
bool segment_has_ended(const segment *other);

/* The number of rings of its bell so far. */
uint32_t segment_bell(const segment *any);
void segment_ring(segment *any);
/* Sleeps until the own bell's count differs from `seen`, a signal arrives, or `ms` have passed. */
void segment_sleep(segment *own, uint32_t seen, unsigned ms);

/* Sender. is_empty: has the receiver taken everything? room: the slot for the next chunk, or NULL while the
 * ring is full. put: publishes that slot. */
bool segment_is_empty(const segment *own, uint32_t to, unsigned ring);
void *segment_room(segment *own, uint32_t to, unsigned ring);
void segment_put(segment *own, segment *receiver, uint32_t to, unsigned ring);

/* Receiver. next: the next chunk, or NULL if none has arrived. take: returns its slot to the sender. */
const void *segment_next(const segment *sender, uint32_t to, unsigned ring);
void segment_take(segment *sender, uint32_t to, unsigned ring);

/* Sender. inbox_room: the slot for message `number`, or NULL while it holds an unread one. inbox_put:
 * publishes it. */
void *segment_inbox_room(segment *own, uint32_t to, uint64_t number, uint64_t first);
void segment_inbox_put(segment *own, segment *receiver, uint32_t to, uint64_t number);
/* Receiver. inbox_next: message `number`, or NULL if it has not arrived. inbox_take: releases it and all
 * earlier ones.
 */
const void *segment_inbox_next(const segment *sender, uint32_t to, uint64_t number);
void segment_inbox_take(segment *sender, uint32_t to, uint64_t number);

#ifdef __cplusplus
}
#endif
