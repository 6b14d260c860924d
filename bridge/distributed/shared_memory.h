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
    // What a rank tells another one.
    struct Announcement {
        segment_name name{};
        // From which collective on, by its number, this rank takes what comes through memory, sends its
        // first messages so, whatever else it does, and takes those of the other rank from there alone.
        uint64_t takes_from = UINT64_MAX, inbox_from = UINT64_MAX, relies_from = UINT64_MAX;
    };

    SharedMemory(int rank, int size, size_t inbox_bytes, std::chrono::milliseconds timeout);
    ~SharedMemory();
    SharedMemory(const SharedMemory &) = delete;
    SharedMemory &operator=(const SharedMemory &) = delete;

    // OPENXPU_SHARED_MEMORY isn't 0.
    static bool is_wanted();

    // A collective begins; what is said by it comes after this.
    void begin(uint64_t number, bool has_large);
    Announcement say(int other);
    void hear(int other, const Announcement &said);
    // Whether that rank may send what belongs to the collective through a ring: it says so.
    bool may_come(int other, uint64_t number);
    // How the first message to that rank goes: by the transport, through memory, or both ways.
    enum Route { by_transport, both_ways, by_memory };
    Route route_to(int other, uint64_t number);
    uint64_t inbox_from(int other); // the first of them that isn't the transport's alone
    // Whether that rank's comes through memory, and is looked for there alone.
    bool relies_on(int other, uint64_t number);
    // No mail of that number is wanted any more, nor one before it.
    void discard_inbox(uint64_t number);
    // A ring to that rank for one list of that collective; -1: the list is the transport's. Only who has sent
    // all of it gives the ring back: what is left of another one could be taken for the next.
    int lease(int other, uint64_t number);
    void give_back(int other, int ring);

    // Once there is a ring to or from a rank.
    segment *own() const { return own_; }
    segment *of(int other) const { return peers_[static_cast<size_t>(other)].mapped; }
    size_t slot_bytes() const { return segment_slot_bytes(static_cast<uint32_t>(peers_.size())); }

    // Wakes those that wait here.
    void wake();
    // Tells the others that nothing more comes.
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
    std::mutex lock_; // guards what follows
    std::atomic<segment *> own_ = nullptr;
    segment_name name_{};
    bool was_tried_ = false;
    uint64_t latest_ = 0; // collective that has begun
    std::vector<Peer> peers_;
    std::atomic<uint64_t> sent_ = 0; // bytes

    void make_own();
};

} // namespace openxpu
