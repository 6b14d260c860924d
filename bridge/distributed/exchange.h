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

#include "backend.h"
#include "shared_memory.h"

namespace openxpu {

constexpr int everyone = -1, nobody = -2, anyone = -3; // or one rank

// What goes to each other rank and comes from each. In a send or a reception, which has a tag, there is one
// list, for the only partner.
struct Exchange {
    std::vector<Tensors> given, taken; // for each rank, contiguous; the own place is not used. May be empty
    // What goes when `arrived` has made it, index by index and byte by byte, or it has been taken, and what
    // comes of others' then: as above, where `passed` has no more indices than `given` or `taken`.
    std::vector<Tensors> passed = {}, gathered = {};
    size_t ahead = SIZE_MAX;        // of `taken` the tensor so many indices later may have the same memory
    bool arrives_after_sent = true; // `arrived` writes to what is given
    uint64_t number = 0;          // of the collective in its group, or the message of that tag, on all alike
    std::string what;             // in words
    std::string alike;            // the same on all ranks, too, but of sends and receptions
    bool announces_sizes = false; // of all pairs, to all, up to 64 ranks: each finds what doesn't fit
    bool refuses = false;         // to take part; `what` says why
    int to = everyone, from = everyone;
    std::optional<int> tag = std::nullopt; // of a send or a reception
    bool is_late = false; // of a reception: its number isn't known, so what is large comes when that is
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout; // then the transport's
    // Waits till what is given is there, on its way from a device: then it begins when `start` is called.
    std::function<void()> ready = {};
    // Called by who waits, in order, when these bytes of all ranks' tensors of one index have come and gone.
    // What came through memory lies there till this returns, and isn't taken elsewhere.
    struct Arrival {
        size_t index, from = 0, bytes = SIZE_MAX; // of the tensor, or all of it
        std::vector<const void *> in_memory = {}; // for each rank; null: what is taken. Or none
        bool alone = false;
    };
    std::function<void(const Arrival &arrival)> arrived = {};
    // What each rank gives to all others through memory where all can, in place of all of the above: who
    // then has all of it waits only once. Of the same size on all, and no more than a ring has room for.
    at::Tensor whole = {};
    std::function<void(const Arrival &arrival)> whole_arrived = {};
};

// Tags from here on are the exchanges'; sends and receptions of programs have the ones below.
constexpr int first_exchange_tag = 1 << 28;

// Tensors of up to so many bytes go with the first message, in a group of so many ranks.
size_t max_inline_bytes(int ranks);
// Of how many bytes that message is at most.
size_t max_header_bytes(int ranks);

// One under way; it begins at once, or has to be started. The work has no future: who calls `wait` lets
// `abort` end that. Until it is over it must be kept: messages come into its memory.
class ExchangeWork final : public c10d::Work {
  public:
    ExchangeWork(c10::intrusive_ptr<c10d::Backend> transport, Exchange what,
                 std::shared_ptr<SharedMemory> memory = nullptr);

    // Begins it when what it gives is ready, once; what goes wrong is said by `finish`. Those whose messages
    // have the same tag are started in one order by all ranks.
    void start();
    bool is_to_start() const { return static_cast<bool>(what_.ready); }
    // Waits for what the others say they do. What doesn't fit together, or nothing, also where it was
    // aborted.
    std::string mismatch_text(std::chrono::milliseconds timeout);
    // What doesn't fit in what has come by now, when Gloo has failed: nothing more comes then.
    std::string known_mismatch() const;
    // Waits for all messages, once. False: aborted. Throws where something doesn't fit. `alone`: for
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
    // A list that goes through a ring, to or from one rank.
    struct Stream {
        int ring = -1;              // none: it is the transport's
        bool isnt_known = false;    // which, before the header has been received_header
        size_t index = 0, from = 0; // what is next
    };
    const int size_;
    const c10::intrusive_ptr<c10d::Backend> transport_;
    const Exchange what_;
    const std::shared_ptr<SharedMemory> memory_; // null: none
    std::vector<Stream> giving_, passing_;       // for each rank
    std::vector<Stream> taking_, gathering_;
    std::vector<Stream> wholes_, whole_of_;                         // to and from each rank
    std::vector<Tensors> whole_lists_;                              // for them
    bool offers_whole_ = false;                                     // as all others have to
    std::vector<SharedMemory::Route> routes_;                       // of the first message, to each rank
    std::vector<char> must_post_, must_receive_, has_received_;     // through memory, to and from each rank
    std::vector<std::pair<at::Tensor, WorkPtr>> duplicate_headers_; // what came by the transport, too
    size_t made_index_ = 0, made_bytes_ = 0;                        // so far `arrived` has come
    at::Tensor sent_headers_, received_headers_;                    // headers, of each rank
    Works header_sends_, header_receives_;                          // of headers, for each rank; null: none
    std::vector<Works> sends_, receives_;                           // of tensors, for each index
    std::vector<Works> passes_, gathers_;                           // of what goes then
    std::mutex beginning_;                                          // guards changes of them
    std::exception_ptr failure_;               // of its beginning; guarded by beginning_, too
    c10::intrusive_ptr<ExchangeWork> refusal_; // which tells that the others
    std::condition_variable begun_;            // or aborted
    std::atomic<bool> has_begun_ = false, is_aborted_ = false;
    std::mutex header_lock_; // guards what follows
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
    // Calls `begin` with each of the ranks, the next one first.
    template <typename Begin> void turn(int which, Begin &&begin) const;
    void begin(std::vector<Works> &works, size_t index, bool sends, const at::Tensor &tensor, int other,
               int tag);
    // Those tensors of that index which aren't in the first message.
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
    // Has so many bytes arrive that come from these ranks through memory, piece by piece.
    template <typename IsGiven>
    bool arrive_in_pieces(Exchange::Arrival arrival, size_t all, const std::vector<int> &near,
                          std::vector<Stream> &streams, std::chrono::milliseconds timeout,
                          IsGiven &&is_given);
    void release_rings();
    bool is_all_over() const; // what goes through memory
    bool end_messages(std::chrono::milliseconds timeout);
    // Has all bytes of an index arrive. False: aborted.
    bool arrive(size_t index, std::chrono::milliseconds timeout, bool alone);
    // What has been done with the stream when it has come to that byte of that index.
    static bool is_past(const Stream &stream, const Tensors &list, size_t index, size_t bytes);
    // Copies what can be copied, to where there is room and from where something is. False: nothing.
    bool push(int other, Stream &stream, const Tensors &list, bool is_made);
    bool pull(int other, Stream &stream, const Tensors &list);
    bool post(int other);
    bool read_inbox(int other, std::chrono::milliseconds timeout);
    size_t announced_bytes(int other) const;
    bool advance();
    // Does that until there is something. False: aborted.
    template <typename Is> bool advance_until(std::chrono::milliseconds timeout, Is &&is);
    // What is left to be sent to and taken from a rank.
    bool is_left(int other) const;
    // Why nothing more comes or goes; nothing where it may.
    std::string stuck(bool is_late) const;
    int tag_of(uint64_t number, size_t bytes, bool is_later) const;
    void put(int other);
    void take(int other);
    std::string compare(size_t row) const;
    std::string compare_all() const;
};

// Writes the reduction of `parts`, CPU tensors of one size and dtype, divided by `divisor`, into `result`,
// which may be one of them: in their order, so all ranks get the same bits. Halves are added in fp32 and
// rounded once. With `alone` PyTorch's other threads are left alone, which would make a second team beside
// the one of the thread that computes.
void reduce(c10d::ReduceOp::RedOpType reduction, const Tensors &parts, at::Tensor result, int divisor,
            bool alone);

} // namespace openxpu
