#include "shared_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace openxpu {

SharedMemory::SharedMemory(int rank, int size, size_t mail_bytes, std::chrono::milliseconds timeout)
    : rank_(static_cast<uint32_t>(rank)), mail_bytes_(mail_bytes), timeout_(timeout),
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
    own_ = segment_create(rank_, static_cast<uint32_t>(peers_.size()), mail_bytes_, &name_);
}

void SharedMemory::begin(uint64_t number, bool has_large) {
    const std::lock_guard guard(lock_);
    latest_ = std::max(latest_, number);
    constexpr uint64_t some = 8; // collectives, after which a group is worth it
    if (has_large || number >= some) make_own();
}

// Collectives that have begun don't expect anything in a ring.
SharedMemory::Said SharedMemory::say(int other) {
    const std::lock_guard guard(lock_);
    auto &peer = peers_[static_cast<size_t>(other)];
    auto &told = peer.told;
    const auto &heard = peer.heard;
    const auto decide = [this](uint64_t &from, uint64_t at_least) {
        if (from == UINT64_MAX) from = std::max(latest_ + 1, at_least);
    };
    if (peer.mapped) {
        decide(told.takes_from, 0);
        if (heard.takes_from != UINT64_MAX && segment_reserve(own_, static_cast<uint32_t>(other), false))
            decide(told.mails_from, heard.takes_from);
        if (heard.mails_from != UINT64_MAX) decide(told.relies_from, heard.mails_from);
    }
    return {name_, told.takes_from, told.mails_from, told.relies_from};
}

void SharedMemory::hear(int other, const Said &said) {
    const std::lock_guard guard(lock_);
    auto &peer = peers_[static_cast<size_t>(other)];
    auto &heard = peer.heard;
    heard.takes_from = std::min(heard.takes_from, said.takes_from);
    heard.mails_from = std::min(heard.mails_from, said.mails_from);
    heard.relies_from = std::min(heard.relies_from, said.relies_from);
    if (!said.name.process || std::exchange(peer.was_tried, true)) return;
    make_own();
    if (own_)
        peer.mapped = segment_open(&said.name, static_cast<uint32_t>(other),
                                   static_cast<uint32_t>(peers_.size()), mail_bytes_);
}

bool SharedMemory::may_come(int other, uint64_t number) {
    const std::lock_guard guard(lock_);
    return number >= peers_[static_cast<size_t>(other)].told.takes_from;
}

SharedMemory::Way SharedMemory::way_to(int other, uint64_t number) {
    const std::lock_guard guard(lock_);
    const auto &peer = peers_[static_cast<size_t>(other)];
    if (number < peer.told.mails_from) return by_carrier;
    return number < peer.heard.relies_from ? both_ways : by_memory;
}

uint64_t SharedMemory::mails_from(int other) {
    const std::lock_guard guard(lock_);
    return peers_[static_cast<size_t>(other)].told.mails_from;
}

bool SharedMemory::relies_on(int other, uint64_t number) {
    const std::lock_guard guard(lock_);
    return number >= peers_[static_cast<size_t>(other)].told.relies_from;
}

void SharedMemory::ignore_mails(uint64_t number) {
    for (auto &peer : peers_)
        if (segment *other = peer.mapped) segment_mail_take(other, rank_, number);
}

int SharedMemory::lease(int other, uint64_t number) {
    const std::lock_guard guard(lock_);
    auto &peer = peers_[static_cast<size_t>(other)];
    const auto to = static_cast<uint32_t>(other);
    if (number < peer.heard.takes_from || !peer.mapped || !segment_reserve(own_, to, true)) return -1;
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
