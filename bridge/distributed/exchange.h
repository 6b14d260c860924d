// Collectives, sends and receives as direct message exchanges: each rank sends its data to the others and
// reduces what it receives.
//
// The transport's own collectives run in its threads and use a ring: two hand-overs between threads and, for
// an all_reduce, 4 (ranks - 1) sequential messages. Here the calling thread sends all messages at once; the
// thread that waits reduces what has arrived and forwards it.
//
// The first message between two ranks is a header with the sender's collective, dtype, and the bytes that it
// sends and expects. A mismatch is therefore an error and never a wrong result: a receive by itself doesn't
// tell how much arrived. Small tensors are part of the header message.
//
// Between ranks of one host, messages use shared memory (shared_memory.h). What follows the header does so
// if the header says it. The thread that waits copies its data in, and reduces received data in place.
#pragma once

#include <condition_variable>

#include "collective.h"
#include "shared_memory.h"

namespace openxpu {

constexpr int everyone = -1, nobody = -2, anyone = -3; // or one rank

// What this rank sends to and receives from each other rank. A send or receive has a tag and a single list,
// for its only partner.
struct Exchange {
    std::vector<Tensors> given, taken; // per rank, contiguous; the own entry is not used. May be empty
    // Second phase: data produced by `arrived` (or received) that this rank forwards, and what it receives
    // from others in that phase. `passed` has no more indices than `given` or `taken`.
    std::vector<Tensors> passed = {}, gathered = {};
    size_t ahead = SIZE_MAX;        // tensors of `taken` that are this many indices apart may share memory
    bool arrives_after_sent = true; // `arrived` overwrites `given`
    uint64_t number = 0; // of the collective in its group, or of the message with its tag; equal on all ranks
    std::string what;    // description for error texts
    std::string alike;   // must be equal on all ranks, except for sends and receives
    bool announces_sizes =
        false;            // announces all byte counts to all (up to 64 ranks), so that each finds mismatches
    bool refuses = false; // this rank rejects the collective; `what` says why
    int to = everyone, from = everyone;
    std::optional<int> tag = std::nullopt; // of a send or receive
    bool is_late = false; // a receive whose number is not known yet; large data is received after the header
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout; // unset: the transport's
    // Waits until `given` has been copied from a device. If set, the exchange begins in `start`.
    std::function<void()> ready = {};
    // Called by the waiting thread, in order, when these bytes of one index have been received from all ranks
    // and sent to them. Data in shared memory stays there until this returns and is not copied elsewhere.
    struct Arrival {
        size_t index, from = 0, bytes = SIZE_MAX; // range in the tensor; by default all of it
        std::vector<const void *> in_memory = {}; // per rank; null: the data is in `taken`. May be empty
        bool alone = false;
    };
    std::function<void(const Arrival &arrival)> arrived = {};
    // If all ranks can use shared memory, each sends this to all others instead of the lists above, which
    // needs only one wait. It has the same size on all ranks and fits into a ring.
    at::Tensor whole = {};
    std::function<void(const Arrival &arrival)> whole_arrived = {};
};

// Tags from here on belong to exchanges; a program's sends and receives use lower ones.
constexpr int first_exchange_tag = 1 << 28;

// Tensors of up to this many bytes are part of the header message, in a group of `ranks` ranks.
size_t max_inline_bytes(int ranks);
// The maximum size of a header message.
size_t max_header_bytes(int ranks);

// An exchange in progress; it begins immediately, or in `start`. It has no future; `abort` ends a `wait`. The
// caller must keep it until it is over, because messages arrive in its memory.
class ExchangeWork final : public c10d::Work {
  public:
    ExchangeWork(c10::intrusive_ptr<c10d::Backend> transport, Exchange what,
                 std::shared_ptr<SharedMemory> memory = nullptr);

    // Begins it when its data is ready; called once. Errors are reported by `finish`. All ranks must start
    // exchanges with the same tag in the same order.
    void start();
    bool is_to_start() const { return static_cast<bool>(what_.ready); }
    // Waits for the headers of the other ranks. Returns the mismatch; "" if there is none, or if it was
    // aborted.
    std::string mismatch_text(std::chrono::milliseconds timeout);
    // The mismatch in the headers received so far; used after Gloo has failed and nothing more arrives.
    std::string known_mismatch() const;
    // Waits for all messages; called once. False if aborted; throws on a mismatch. `alone` is passed to
    // `arrived`.
    bool finish(std::chrono::milliseconds timeout, bool alone);
    bool wait(std::chrono::milliseconds timeout) override { return finish(timeout, false); }
    void abort() override;
    int sourceRank() const override;
    std::chrono::milliseconds timeout() const { return what_.timeout; }
    bool continues_after_header() const {
        return what_.is_late && bytes_of(what_.taken, 0) > max_inline_bytes(size_);
    }

  private:
    struct Header;
    using Works = std::vector<WorkPtr>;
    // The progress of a list that uses a ring, to or from one rank.
    struct Stream {
        int ring = -1;              // -1: the list uses the transport
        bool isnt_known = false;    // which, before the header has been received_header
        size_t index = 0, from = 0; // next byte to copy
    };
    const int size_;
    const c10::intrusive_ptr<c10d::Backend> transport_;
    const Exchange what_;
    const std::shared_ptr<SharedMemory> memory_; // null: none
    std::vector<Stream> giving_, passing_;       // for each rank
    std::vector<Stream> taking_, gathering_;
    std::vector<Stream> wholes_, whole_of_;                     // to and from each rank
    std::vector<Tensors> whole_lists_;                          // for them
    bool offers_whole_ = false;                                 // as all others have to
    std::vector<SharedMemory::Route> routes_;                   // of the first message, to each rank
    std::vector<char> must_post_, must_receive_, has_received_; // through memory, to and from each rank
    std::vector<std::pair<at::Tensor, WorkPtr>>
        duplicate_headers_;                      // headers that also came through the transport
    size_t made_index_ = 0, made_bytes_ = 0;     // progress of `arrived`
    at::Tensor sent_headers_, received_headers_; // headers, of each rank
    Works header_sends_, header_receives_;       // of headers, for each rank; null: none
    std::vector<Works> sends_, receives_;        // of tensors, for each index
    std::vector<Works> passes_, gathers_;        // of what goes then
    std::mutex beginning_;                       // guards changes of them
    std::exception_ptr failure_;                 // of its beginning; guarded by beginning_, too
    c10::intrusive_ptr<ExchangeWork> refusal_;   // which tells that the others
    std::condition_variable begun_;              // or aborted
    std::atomic<bool> has_begun_ = false, is_aborted_ = false;
    std::mutex header_lock_; // guards the fields below
    std::optional<std::string> mismatch_;

    bool finish_messages(std::chrono::milliseconds timeout, bool alone);
    void begin_messages();
    void keep_if_begun(WorkPtr &place, WorkPtr work);
    // False: aborted before.
    bool wait_for_begin();
    size_t rows() const { return what_.tag ? 1 : static_cast<size_t>(size_); }
    size_t row(int other) const { return what_.tag ? 0 : static_cast<size_t>(other); }
    size_t stride() const { return max_header_bytes(size_); }
    size_t announced_sizes() const { return what_.announces_sizes && !what_.tag && size_ <= 64 ? size_ : 0; }
    size_t bytes_of(const std::vector<Tensors> &lists, int other) const;
    Header received_header(size_t row) const;
    bool has_received_header(size_t row) const;
    // Calls `begin` with each of the ranks, starting with the one after this rank.
    template <typename Begin> void turn(int which, Begin &&begin) const;
    void begin(std::vector<Works> &works, size_t index, bool sends, const at::Tensor &tensor, int other,
               int tag);
    // The tensors of that index that are not part of the header message.
    void begin_all(std::vector<Works> &works, size_t index, bool sends, const std::vector<Tensors> &lists,
                   int which, uint64_t number, bool is_later);
    bool wait_for(const Works &works, std::chrono::milliseconds timeout) const;
    bool is_transportable(bool sends, bool is_later, int other) const;
    std::vector<int> other_ranks() const;
    void lease_rings();
    // Whether the whole is given, as all have offered, or what else there is: then that begins. Aborted:
    // nothing.
    std::optional<bool> settle(std::chrono::milliseconds timeout);
    bool arrive_whole(std::chrono::milliseconds timeout, bool alone);
    // Processes arriving data from these ranks through shared memory, chunk by chunk.
    template <typename IsGiven>
    bool arrive_in_pieces(Exchange::Arrival arrival, size_t all, const std::vector<int> &near,
                          std::vector<Stream> &streams, std::chrono::milliseconds timeout,
                          IsGiven &&is_given);
    void release_rings();
    bool is_all_over() const; // what goes through memory
    bool end_messages(std::chrono::milliseconds timeout);
    // Processes all bytes of an index. False if aborted.
    bool arrive(size_t index, std::chrono::milliseconds timeout, bool alone);
    // Has the stream got past that byte of that index?
    static bool is_past(const Stream &stream, const Tensors &list, size_t index, size_t bytes);
    // Copies to and from rings as far as possible. False if nothing could be copied.
    bool push(int other, Stream &stream, const Tensors &list, bool is_made);
    bool pull(int other, Stream &stream, const Tensors &list);
    bool post(int other);
    bool read_inbox(int other, std::chrono::milliseconds timeout);
    size_t announced_bytes(int other) const;
    bool advance();
    // Does that until there is something. False: aborted.
    template <typename Is> bool advance_until(std::chrono::milliseconds timeout, Is &&is);
    // Data that remains to be sent to and received from a rank.
    bool is_left(int other) const;
    // The reason why a transfer cannot continue; "" if it can.
    std::string stuck(bool is_late) const;
    int tag_of(uint64_t number, size_t bytes, bool is_later) const;
    void put(int other);
    void take(int other);
    std::string compare(size_t row) const;
    std::string compare_all() const;
};

// Reduces `parts` (CPU tensors of one size and dtype), divides by `divisor`, and writes to `result`, which
// may be one of them. The order is fixed, so all ranks get the same bits. Half-precision values are added in
// fp32 and rounded once. `alone`: do not use PyTorch's thread pool, which would start a second pool beside
// that of the computing thread.
void reduce(c10d::ReduceOp::RedOpType reduction, const Tensors &parts, at::Tensor result, int divisor,
            bool alone);

} // namespace openxpu
