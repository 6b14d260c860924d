// Which ranks share this rank's host, and through which rings of their segments messages go.
//
// Ranks announce their state in the headers of their collectives: how to open the segment, after a large
// message or several collectives; then the first collective from which the rank receives through memory,
// sends headers through memory, and reads others' headers there only. These are collectives that haven't
// begun yet. A rank that begins one therefore acts as the others expect, whatever it has received since. If
// a rank can't open another's segment, or was announced of none, all messages between the two use the
// transport.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <vector>

#include "segment.h"

namespace openxpu {

class SharedMemory {
  public:
    // What a rank announces to another one.
    struct Announcement {
        segment_name name{};
        // Numbers of the first collectives from which this rank receives through shared memory, sends its
        // headers through it, and reads the other rank's headers there only.
        uint64_t takes_from = UINT64_MAX, inbox_from = UINT64_MAX, relies_from = UINT64_MAX;
    };

    SharedMemory(int rank, int size, size_t inbox_bytes, std::chrono::milliseconds timeout);
    ~SharedMemory();
    SharedMemory(const SharedMemory &) = delete;
    SharedMemory &operator=(const SharedMemory &) = delete;

    // False if OPENXPU_SHARED_MEMORY is 0.
    static bool is_wanted();

    // Called when a collective begins, before its headers are written.
    void begin(uint64_t number, bool has_large);
    Announcement say(int other);
    void hear(int other, const Announcement &said);
    // May that rank send the collective's data through a ring? Its header says if it does.
    bool may_come(int other, uint64_t number);
    // The route of the header to that rank: transport, shared memory, or both.
    enum Route { by_transport, both_ways, by_memory };
    Route route_to(int other, uint64_t number);
    uint64_t inbox_from(int other); // first collective whose header does not use the transport alone
    // Does that rank's header come through shared memory only?
    bool relies_on(int other, uint64_t number);
    // Releases the inbox messages up to that number.
    void discard_inbox(uint64_t number);
    // Reserves a ring to that rank for one list of the collective; -1: use the transport. Return the ring
    // only after all data has been sent: leftovers of an incomplete list could be mistaken for the next one.
    int lease(int other, uint64_t number);
    void give_back(int other, int ring);

    // Valid once there is a ring to or from a rank.
    segment *own() const { return own_; }
    segment *of(int other) const { return peers_[static_cast<size_t>(other)].mapped; }
    size_t slot_bytes() const { return segment_slot_bytes(static_cast<uint32_t>(peers_.size())); }

    // Wakes all waiting threads.
    void wake();
    // Tells the other ranks that this rank has left.
    void leave();

    void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
    std::chrono::milliseconds timeout() const { return timeout_; }

    void count(size_t bytes) { sent_ += bytes; }
    uint64_t sent() const { return sent_; }

  private:
    struct Peer {
        std::atomic<segment *> mapped = nullptr;
        bool was_tried = false, leased[SEGMENT_RINGS] = {};
        Announcement announced, received; // without names
    };
    const uint32_t rank_;
    const size_t inbox_bytes_;
    std::atomic<std::chrono::milliseconds> timeout_;
    std::mutex lock_; // guards the fields below
    std::atomic<segment *> own_ = nullptr;
    segment_name name_{};
    bool was_tried_ = false;
    uint64_t latest_ = 0; // collective that has begun
    std::vector<Peer> peers_;
    std::atomic<uint64_t> sent_ = 0; // bytes

    void make_own();
};

} // namespace openxpu
