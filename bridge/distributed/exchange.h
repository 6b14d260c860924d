// Collectives that go straight from rank to rank: each gives every other one what that needs, and reduces
// what it gets itself.
//
// The carrier's own collectives run in its threads, and go round a ring: two hand-overs between threads and,
// for an all_reduce, 4 (ranks - 1) messages one after the other. Here messages are sent by the thread that
// calls, all at once, and who waits reduces what has come.
//
// The first message from rank to rank says what the sender does: which collective of which dtype, how many
// bytes it gives and expects. So what doesn't fit is an error, and never a wrong number: a reception by
// itself doesn't tell how much came. Few bytes are in that message. It goes beside the carrier's own
// collectives, too.
#pragma once

#include "backend.h"

namespace openxpu {

constexpr int everyone = -1, nobody = -2; // or one rank

// What goes to each other rank and comes from each.
struct Exchange {
    std::vector<Tensors> given, taken; // for each rank, contiguous; the own place is not used. May be empty
    uint64_t number = 0;               // of the collective in its group, the same on all ranks
    std::string what;                  // the same on all ranks, too
    bool tells_sizes = false;          // of all pairs, to all, up to 64 ranks: each finds what doesn't fit
    bool refuses = false;              // to take part; `what` says why
    int to = everyone, from = everyone;
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout; // then the carrier's
    // Called by who waits, in order, when all ranks' tensors of that index have come and gone.
    std::function<void(size_t index, bool alone)> arrived = {};
};

// Tags from here on are the exchanges'; sends and receptions of programs have the ones below.
constexpr int first_exchange_tag = 0x7f000000;

// One under way; it begins at once. The work has no future: who calls `wait` lets `abort` end that. Until it
// is over it must be kept: messages come into its memory.
class ExchangeWork final : public c10d::Work {
  public:
    ExchangeWork(c10d::Backend &carrier, Exchange what);

    // Waits for what the others say they do. What doesn't fit together, or nothing, also where it was
    // aborted.
    std::string misfit(std::chrono::milliseconds timeout);
    // What doesn't fit in what has come by now, when Gloo has failed: nothing more comes then.
    std::string known_misfit() const;
    // Waits for all messages. False: aborted. Throws where something doesn't fit. `alone`: for `arrived`.
    bool finish(std::chrono::milliseconds timeout, bool alone);
    bool wait(std::chrono::milliseconds timeout) override { return finish(timeout, false); }
    void abort() override;

  private:
    struct Header;
    const int size_;
    const Exchange what_;
    at::Tensor said_, heard_;                            // headers, of `size_` ranks each
    std::vector<WorkPtr> told_, hears_;                  // of headers, for each rank; null: none
    std::vector<std::vector<WorkPtr>> sends_, receives_; // of tensors, for each index
    std::mutex hearing_;                                 // guards what follows
    std::optional<std::string> misfit_;
    std::atomic<bool> is_aborted_ = false;

    size_t stride() const;
    size_t sizes_told() const { return what_.tells_sizes && size_ <= 64 ? size_ : 0; }
    bool is_partner(int other, int which) const {
        return other != rank_ && (which == everyone || which == other);
    }
    void put(int other);
    void take(int other);
    std::string compare(int other) const;
    std::string compare_all() const;
};

// Writes the reduction of `parts`, CPU tensors of one size and dtype, divided by `divisor`, into `result`,
// which may be one of them: in their order, so all ranks get the same bits. Halves are added in fp32 and
// rounded once. With `alone` PyTorch's other threads are left alone, which would make a second team beside
// the one of the thread that computes.
void reduce(c10d::ReduceOp::RedOpType reduction, const Tensors &parts, at::Tensor result, int divisor,
            bool alone);

} // namespace openxpu
