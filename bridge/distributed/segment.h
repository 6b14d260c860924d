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
}; /* to each other rank; slots of a ring */

typedef struct segment segment;

/* By which others find it. All zeros: none. */
typedef struct {
    uint64_t token; /* random: processes of other hosts may have such numbers, too */
    int32_t process, file;
} segment_name;

/* Of a slot, in a group of so many ranks: a multiple of 64. */
size_t segment_slot_bytes(uint32_t ranks);

/* A rank's own, with mails of up to so many bytes. NULL: the system has no memory for it, or no files left.
 */
segment *segment_create(uint32_t rank, uint32_t ranks, size_t inbox_bytes, segment_name *name);
/* Another rank's. NULL: it isn't to be had here. */
segment *segment_open(const segment_name *name, uint32_t rank, uint32_t ranks, size_t inbox_bytes);
/* Ends the mapping, which nobody may use any more. NULL is nothing. */
void segment_close(segment *mapped);

/* Gets memory for the mails to that rank, or its rings, once. False: there is none, or not for so many ranks.
 */
bool segment_reserve(segment *own, uint32_t to, bool rings);

/* Says to the others that this rank takes part no more. Of a forked child's copy: nothing. */
void segment_leave(segment *own);
/* Its owner has left, or its process has ended. */
bool segment_has_left(const segment *other);
bool segment_has_ended(const segment *other);

/* How often its bell has been rung. */
uint32_t segment_bell(const segment *any);
void segment_ring(segment *any);
/* Sleeps until the own bell has been rung since it was `seen`, a signal comes, or so many ms are over. */
void segment_sleep(segment *own, uint32_t seen, unsigned ms);

/* The sender: whether all that was put into the ring has been taken; the slot for the next piece, NULL where
 * the receiver has to take one before; that it is filled. */
bool segment_is_empty(const segment *own, uint32_t to, unsigned ring);
void *segment_room(segment *own, uint32_t to, unsigned ring);
void segment_put(segment *own, segment *receiver, uint32_t to, unsigned ring);

/* The receiver: the next piece, NULL where there is none yet; that it is used. */
const void *segment_next(const segment *sender, uint32_t to, unsigned ring);
void segment_take(segment *sender, uint32_t to, unsigned ring);

/* The sender: the place for the mail of that number, NULL where the receiver hasn't read one that is there;
 * that it is written. */
void *segment_inbox_room(segment *own, uint32_t to, uint64_t number, uint64_t first);
void segment_inbox_put(segment *own, segment *receiver, uint32_t to, uint64_t number);
/* The receiver: that mail, NULL where it hasn't come; that neither it nor one before it is wanted any more.
 */
const void *segment_inbox_next(const segment *sender, uint32_t to, uint64_t number);
void segment_inbox_take(segment *sender, uint32_t to, uint64_t number);

#ifdef __cplusplus
}
#endif
