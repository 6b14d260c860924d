// Agreement between ranks on when to use shared memory (shared_memory.h).
#include "shared_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace openxpu {

SharedMemory::SharedMemory(int rank, int size, size_t inbox_bytes, std::chrono::milliseconds timeout)
    : rank_(static_cast<uint32_t>(rank)), inbox_bytes_(inbox_bytes), timeout_(timeout),
      peers_(static_cast<size_t>(size)) {}

SharedMemory::~SharedMemory() {
    leave();
    for (auto &peer : peers_) segment_close(peer.mapped);
    segment_close(own_);
}

bool SharedMemory::is_wanted() {
    const auto *set = std::getenv("OPENXPU_SHARED_MEMORY");
    return !set || std::strcmp(set, "0") != 0;
}

void SharedMemory::make_own() {
    if (std::exchange(was_tried_, true)) return;
    own_ = segment_create(rank_, static_cast<uint32_t>(peers_.size()), inbox_bytes_, &name_);
}

void SharedMemory::begin(uint64_t number, bool has_large) {
    const std::lock_guard guard(lock_);
    latest_ = std::max(latest_, number);
    constexpr uint64_t some = 8; // collectives after which a segment pays off
    if (has_large || number >= some) make_own();
}

// Collectives that have already begun expect nothing in a ring.
SharedMemory::Announcement SharedMemory::say(int other) {
    const std::lock_guard guard(lock_);
    auto &peer = peers_[static_cast<size_t>(other)];
    auto &announced = peer.announced;
    const auto &received = peer.received;
    const auto decide = [this](uint64_t &from, uint64_t at_least) {
        if (from == UINT64_MAX) from = std::max(latest_ + 1, at_least);
    };
    if (peer.mapped) {
        decide(announced.takes_from, 0);
        if (received.takes_from != UINT64_MAX && segment_reserve(own_, static_cast<uint32_t>(other), false))
            decide(announced.inbox_from, received.takes_from);
        if (received.inbox_from != UINT64_MAX) decide(announced.relies_from, received.inbox_from);
    }
    return {name_, announced.takes_from, announced.inbox_from, announced.relies_from};
}

void SharedMemory::hear(int other, const Announcement &said) {
    const std::lock_guard guard(lock_);
    auto &peer = peers_[static_cast<size_t>(other)];
    auto &received = peer.received;
    received.takes_from = std::min(received.takes_from, said.takes_from);
    received.inbox_from = std::min(received.inbox_from, said.inbox_from);
    received.relies_from = std::min(received.relies_from, said.relies_from);
    if (!said.name.process || std::exchange(peer.was_tried, true)) return;
    make_own();
    if (own_)
        peer.mapped = segment_open(&said.name, static_cast<uint32_t>(other),
                                   static_cast<uint32_t>(peers_.size()), inbox_bytes_);
}

bool SharedMemory::may_come(int other, uint64_t number) {
    const std::lock_guard guard(lock_);
    return number >= peers_[static_cast<size_t>(other)].announced.takes_from;
}

SharedMemory::Route SharedMemory::route_to(int other, uint64_t number) {
    const std::lock_guard guard(lock_);
    const auto &peer = peers_[static_cast<size_t>(other)];
    if (number < peer.announced.inbox_from) return by_transport;
    return number < peer.received.relies_from ? both_ways : by_memory;
}

uint64_t SharedMemory::inbox_from(int other) {
    const std::lock_guard guard(lock_);
    return peers_[static_cast<size_t>(other)].announced.inbox_from;
}

bool SharedMemory::relies_on(int other, uint64_t number) {
    const std::lock_guard guard(lock_);
    return number >= peers_[static_cast<size_t>(other)].announced.relies_from;
}

void SharedMemory::discard_inbox(uint64_t number) {
    for (auto &peer : peers_)
        if (segment *other = peer.mapped) segment_inbox_take(other, rank_, number);
}

int SharedMemory::lease(int other, uint64_t number) {
    const std::lock_guard guard(lock_);
    auto &peer = peers_[static_cast<size_t>(other)];
    const auto to = static_cast<uint32_t>(other);
    if (number < peer.received.takes_from || !peer.mapped || !segment_reserve(own_, to, true)) return -1;
    for (unsigned ring = 0; ring < SEGMENT_RINGS; ring++)
        if (!peer.leased[ring] && segment_is_empty(own_, to, ring)) {
            peer.leased[ring] = true;
            return static_cast<int>(ring);
        }
    return -1;
}

void SharedMemory::give_back(int other, int ring) {
    const std::lock_guard guard(lock_);
    peers_[static_cast<size_t>(other)].leased[ring] = false;
}

void SharedMemory::wake() {
    if (segment *own = own_) segment_ring(own);
}

void SharedMemory::leave() {
    segment *own = own_;
    if (!own) return;
    segment_leave(own);
    for (auto &peer : peers_)
        if (segment *other = peer.mapped) segment_ring(other);
}

} // namespace openxpu
