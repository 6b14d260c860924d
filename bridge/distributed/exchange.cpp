// Direct exchanges (exchange.h): headers, mismatch checks, the two phases, and messages through shared
// memory.
#include "exchange.h"

#include <cstring>
#include <numeric>

namespace openxpu {

using at::Tensor;
using c10d::ReduceOp;

// --- headers ---

// The first message between two ranks. It is followed by the byte counts that each rank sends and expects, if
// they are included, and by the data, if it is small.
struct ExchangeWork::Header {
    uint64_t number;
    uint64_t gives, takes; // bytes that the sender sends to, and expects from, the reader
    uint64_t hash;         // of the sender's collective
    uint16_t refuses, sizes;
    int32_t rank;
    SharedMemory::Announcement memory;
    uint8_t given_ring, passed_ring, whole_ring; // ring index + 1, or 0
    uint8_t is_sent_both_ways;                   // through the transport and through shared memory
    char what[172];                              // its beginning
};

namespace {

constexpr size_t header_bytes = 256;
constexpr uint8_t not_there = 0xff; // its last byte, which ends a text, before it has come

uint64_t hash_of(const std::string &text) { // FNV-1a
    uint64_t hash = 0xcbf29ce484222325;
    for (const char each : text) hash = (hash ^ static_cast<unsigned char>(each)) * 0x100000001b3;
    return hash;
}

int mixed(uint64_t value, int bits) { // SplitMix64's end
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return static_cast<int>((value ^ value >> 31) >> (64 - bits));
}

} // namespace

// Smaller in large groups, because the headers of all ranks need receive buffers.
size_t max_inline_bytes(int ranks) {
    return std::clamp<size_t>((256 << 10) / static_cast<size_t>(ranks), 1 << 10, 16 << 10);
}

size_t ExchangeWork::bytes_of(const std::vector<Tensors> &lists, int other) const {
    size_t bytes = 0;
    if (!lists.empty())
        for (const auto &tensor : lists[row(other)]) bytes += tensor.nbytes();
    return bytes;
}

// The tag of messages after the header. It depends on the size, because a message larger than expected would
// end Gloo's thread. It also differs between phases and between exchanges that may be in progress at the same
// time.
int ExchangeWork::tag_of(uint64_t number, size_t bytes, bool is_later) const {
    const auto low = static_cast<int>(number & 0x3ff);
    const auto rest = static_cast<uint64_t>(bytes) ^ (number >> 10) << 40;
    if (what_.tag) {
        const auto other = static_cast<uint64_t>(*what_.tag) * 0x9e3779b97f4a7c15;
        return 1 << 29 | low << 19 | mixed(rest + other, 19);
    }
    return 1 << 30 | low << 20 | static_cast<int>(is_later) << 19 | mixed(rest, 19);
}

// Large enough for the header of any collective, because another rank may have called a different one.
size_t max_header_bytes(int ranks) {
    return header_bytes + 16 * static_cast<size_t>(ranks <= 64 ? ranks : 0) + max_inline_bytes(ranks);
}

ExchangeWork::Header ExchangeWork::received_header(size_t row) const {
    Header header;
    std::memcpy(&header, received_headers_[static_cast<int64_t>(row)].const_data_ptr(), sizeof header);
    header.what[sizeof header.what - 1] = 0;
    return header;
}

bool ExchangeWork::has_received_header(size_t row) const {
    return (header_receives_[row] || (!must_receive_.empty() && must_receive_[row])) &&
           received_headers_[static_cast<int64_t>(row)].const_data_ptr<uint8_t>()[header_bytes - 1] !=
               not_there;
}

// --- exchange ---

template <typename Begin> void ExchangeWork::turn(int which, Begin &&begin) const {
    for (int i = 1; i < size_; i++) {
        const int other = (rank_ + i) % size_;
        if (which == everyone || which == other) begin(other);
    }
}

ExchangeWork::ExchangeWork(c10::intrusive_ptr<c10d::Backend> transport, Exchange what,
                           std::shared_ptr<SharedMemory> memory)
    : Work(transport->getRank()), size_(transport->getSize()), transport_(std::move(transport)),
      what_(std::move(what)), memory_(what_.tag ? nullptr : std::move(memory)), header_sends_(rows()),
      header_receives_(rows()) {
    for (auto *all : {&giving_, &passing_, &taking_, &gathering_, &wholes_, &whole_of_})
        all->resize(static_cast<size_t>(size_));
    whole_lists_.resize(static_cast<size_t>(size_));
    routes_.resize(static_cast<size_t>(size_), SharedMemory::by_transport);
    must_post_.resize(routes_.size());
    must_receive_.resize(routes_.size());
    has_received_.resize(routes_.size());
    if (memory_ && what_.whole.defined()) whole_lists_.assign(whole_lists_.size(), {what_.whole});
    static_assert(sizeof(Header) == header_bytes);
    sent_headers_ = at::empty({static_cast<int64_t>(rows()), static_cast<int64_t>(stride())}, at::kByte);
    received_headers_ = at::empty_like(sent_headers_);
    const auto indices = [](const auto &...lists) {
        size_t most = 0;
        for (const auto *all : {&lists...})
            for (const auto &list : *all) most = std::max(most, list.size());
        return most;
    };
    sends_.resize(indices(what_.given, what_.taken, what_.passed));
    receives_.resize(sends_.size());
    passes_.resize(sends_.size());
    gathers_.resize(indices(what_.gathered));
    if (what_.ready) return;
    begin_messages();
    has_begun_ = true;
}

void ExchangeWork::begin_messages() {
    const int tag = what_.tag ? *what_.tag : first_exchange_tag | static_cast<int>(what_.number & 0xfffffff);
    lease_rings();
    // Send everything before anything can arrive: a message larger than expected stops Gloo's thread while it
    // holds a lock that sends to the same rank need.
    turn(what_.to, [&](int other) {
        if (memory_) routes_[row(other)] = memory_->route_to(other, what_.number);
        put(other);
        if (routes_[row(other)] != SharedMemory::by_transport) must_post_[row(other)] = !post(other);
        if (routes_[row(other)] == SharedMemory::by_memory) return;
        Tensors one{sent_headers_[static_cast<int64_t>(row(other))].narrow(
            0, 0, static_cast<int64_t>(announced_bytes(other)))};
        keep_if_begun(header_sends_[row(other)], transport_->send(one, other, tag));
    });
    for (size_t i = 0; i < sends_.size(); i++)
        begin_all(sends_, i, true, what_.given, what_.to, what_.number, false);
    const auto hear = [&](int other) {
        Tensors one{received_headers_[static_cast<int64_t>(row(other))]};
        one[0].mutable_data_ptr<uint8_t>()[header_bytes - 1] = not_there;
        if (memory_ && memory_->relies_on(other, what_.number)) {
            must_receive_[row(other)] = true;
            return;
        }
        keep_if_begun(header_receives_[row(other)], other == anyone ? transport_->recvAnysource(one, tag)
                                                                    : transport_->recv(one, other, tag));
    };
    if (what_.from == anyone) hear(anyone);
    turn(what_.from, hear);
    if (memory_)
        turn(what_.from, [&](int other) {
            taking_[static_cast<size_t>(other)].isnt_known = memory_->may_come(other, what_.number);
        });
    if (!what_.is_late)
        for (size_t i = 0; i < std::min(receives_.size(), what_.ahead); i++)
            begin_all(receives_, i, false, what_.taken, what_.from, what_.number, false);
    advance();
    if (memory_ && what_.from == nobody) memory_->discard_inbox(what_.number);
}

void ExchangeWork::start() {
    std::exception_ptr failure;
    try {
        what_.ready();
        if (!is_aborted_) begin_messages();
    } catch (const c10::Error &error) { // invalid arguments: the other ranks wait for a header
        failure = std::current_exception();
        refusal_ = c10::make_intrusive<ExchangeWork>(transport_,
                                                     Exchange{.number = what_.number,
                                                              .what = error.what_without_backtrace(),
                                                              .refuses = true,
                                                              .to = what_.to,
                                                              .from = nobody,
                                                              .tag = what_.tag},
                                                     memory_);
    } catch (...) { failure = std::current_exception(); }
    {
        const std::lock_guard guard(beginning_);
        failure_ = failure;
        has_begun_ = true;
    }
    begun_.notify_all();
}

bool ExchangeWork::wait_for_begin() {
    if (has_begun_ && !what_.ready) return true;
    std::unique_lock hold(beginning_);
    begun_.wait(hold, [this] { return has_begun_ || is_aborted_; });
    if (failure_) std::rethrow_exception(failure_);
    return has_begun_;
}

// A thread that aborts the exchange while it begins does not see this work yet, so check again.
void ExchangeWork::keep_if_begun(WorkPtr &place, WorkPtr work) {
    const std::lock_guard guard(beginning_);
    if (is_aborted_) work->abort();
    place = std::move(work);
}

void ExchangeWork::begin(std::vector<Works> &works, size_t index, bool sends, const Tensor &tensor, int other,
                         int tag) {
    if (!tensor.numel() || is_aborted_) return;
    Tensors one{tensor};
    auto work = sends ? transport_->send(one, other, tag) : transport_->recv(one, other, tag);
    const std::lock_guard guard(beginning_);
    if (is_aborted_) work->abort();
    works[index].push_back(std::move(work));
}

void ExchangeWork::begin_all(std::vector<Works> &works, size_t index, bool sends,
                             const std::vector<Tensors> &lists, int which, uint64_t number, bool is_later) {
    if (lists.empty()) return;
    turn(which, [&](int other) {
        if (!is_transportable(sends, is_later, other)) return;
        const auto &list = lists[row(other)];
        if (index < list.size() && (is_later || bytes_of(lists, other) > max_inline_bytes(size_)))
            begin(works, index, sends, list[index], other, tag_of(number, list[index].nbytes(), is_later));
    });
}

void ExchangeWork::put(int other) {
    auto *to = sent_headers_[static_cast<int64_t>(row(other))].mutable_data_ptr<uint8_t>();
    Header header{};
    header.number = what_.number;
    header.gives = bytes_of(what_.given, other);
    header.takes = bytes_of(what_.taken, other);
    header.hash = hash_of(what_.alike);
    header.refuses = what_.refuses;
    header.sizes = static_cast<uint16_t>(announced_sizes());
    header.rank = rank_;
    header.memory = {};
    if (memory_) {
        header.memory = memory_->say(other);
        const auto ring = [&](const std::vector<Stream> &streams) {
            return static_cast<uint8_t>(streams[row(other)].ring + 1);
        };
        header.given_ring = ring(giving_);
        header.passed_ring = ring(passing_);
        header.whole_ring = ring(wholes_);
        header.is_sent_both_ways = routes_[row(other)] == SharedMemory::both_ways;
    }
    std::strncpy(header.what, what_.what.c_str(), sizeof header.what - 1);
    std::memcpy(to, &header, sizeof header);
    to += sizeof header;
    for (const auto *lists : {&what_.given, &what_.taken})
        for (int r = 0; r < static_cast<int>(announced_sizes()); r++, to += 8) {
            const uint64_t bytes = r == rank_ ? 0 : bytes_of(*lists, r);
            std::memcpy(to, &bytes, 8);
        }
    if (header.gives <= max_inline_bytes(size_) && header.gives)
        for (const auto &tensor : what_.given[row(other)]) {
            std::memcpy(to, tensor.const_data_ptr(), tensor.nbytes());
            to += tensor.nbytes();
        }
}

// Takes the data in a matching header, and begins the receives that had to know the number first.
void ExchangeWork::take(int other) {
    const auto length = bytes_of(what_.taken, other);
    bool is_now = what_.is_late;
    if (memory_) {
        const auto header = received_header(row(other));
        auto &taking = taking_[row(other)];
        taking.ring = header.given_ring - 1;
        whole_of_[row(other)].ring = header.whole_ring - 1;
        is_now = taking.isnt_known && !header.whole_ring;
        taking.isnt_known = header.whole_ring; // settle() finds out
        gathering_[row(other)].ring = header.passed_ring - 1;
    }
    if (!length) return;
    if (length > max_inline_bytes(size_)) {
        if (is_now)
            for (size_t i = 0; i < std::min(receives_.size(), what_.ahead); i++)
                begin_all(receives_, i, false, what_.taken, other, received_header(row(other)).number, false);
        return;
    }
    const auto *from = received_headers_[static_cast<int64_t>(row(other))].const_data_ptr<uint8_t>() +
                       header_bytes + 16 * announced_sizes();
    for (const auto &tensor : what_.taken[row(other)]) {
        std::memcpy(tensor.mutable_data_ptr(), from, tensor.nbytes());
        from += tensor.nbytes();
    }
}

std::string ExchangeWork::compare(size_t row) const {
    const auto header = received_header(row);
    const int other = header.rank;
    if (header.refuses) return c10::str("rank ", other, " refused: ", header.what);
    if (!what_.tag && (header.number != what_.number || header.hash != hash_of(what_.alike) ||
                       header.sizes != announced_sizes()))
        return c10::str("not all ranks called the same collective: rank ", other, " called ", header.what);
    const auto gives = bytes_of(what_.given, other), takes = bytes_of(what_.taken, other);
    if (header.gives != takes)
        return c10::str("rank ", other, " sends ", header.gives, " bytes to rank ", rank_,
                        ", which has room for ", takes);
    if (what_.tag) {
        if (header.number != what_.number && !what_.is_late)
            return c10::str("rank ", other, "'s message is number ", header.number + 1, " with tag ",
                            *what_.tag, ", but expected number ", what_.number + 1);
        return "";
    }
    if (header.takes != gives)
        return c10::str("rank ", rank_, " sends ", gives, " bytes to rank ", other, ", which has room for ",
                        header.takes);
    return "";
}

// Mismatches between two other ranks.
std::string ExchangeWork::compare_all() const {
    const auto size_at = [&](int rank, bool takes, int other) {
        uint64_t bytes;
        std::memcpy(&bytes,
                    received_headers_[rank].const_data_ptr<uint8_t>() + header_bytes +
                        8 * (static_cast<size_t>(other) + (takes ? announced_sizes() : 0)),
                    8);
        return bytes;
    };
    for (int from = 0; from < static_cast<int>(announced_sizes()); from++)
        for (int to = 0; to < size_; to++) {
            if (from == to || from == rank_ || to == rank_) continue;
            const auto sent = size_at(from, false, to), room = size_at(to, true, from);
            if (sent != room)
                return c10::str("rank ", from, " sends ", sent, " bytes to rank ", to,
                                ", which has room for ", room);
        }
    return "";
}

std::string ExchangeWork::mismatch_text(std::chrono::milliseconds timeout) {
    if (!wait_for_begin()) return ""; // aborted
    if (timeout == kNoTimeout && what_.timeout != c10d::kUnsetTimeout) timeout = what_.timeout;
    const std::lock_guard guard(header_lock_);
    if (mismatch_) return *mismatch_;
    for (size_t i = 0; i < rows(); i++) {
        const size_t each = (static_cast<size_t>(rank_) + i) % rows();
        const auto &hears = header_receives_[each];
        if (!hears && !must_receive_[each]) continue;
        try {
            if (hears ? !hears->wait(timeout) : !read_inbox(static_cast<int>(each), timeout))
                return *(mismatch_ = ""); // aborted
        } catch (const std::exception &error) {
            const auto who = what_.from == anyone ? std::string("no rank responded: ")
                                                  : c10::str("rank ", what_.tag ? what_.from : int(each),
                                                             " did not respond: ");
            return *(mismatch_ = c10::str(who, error.what()));
        }
        if (memory_) {
            const auto header = received_header(each);
            memory_->hear(static_cast<int>(each), header.memory);
            if (hears && header.is_sent_both_ways)
                segment_inbox_take(memory_->of(static_cast<int>(each)), static_cast<uint32_t>(rank_),
                                   what_.number);
        }
        auto differs = compare(each);
        if (!differs.empty()) return *(mismatch_ = std::move(differs));
        take(received_header(each).rank);
    }
    return *(mismatch_ = compare_all());
}

std::string ExchangeWork::known_mismatch() const {
    if (!has_begun_) return "";
    for (size_t each = 0; each < rows(); each++)
        if (has_received_header(each)) {
            auto differs = compare(each);
            if (!differs.empty()) return differs;
        }
    return "";
}

bool ExchangeWork::wait_for(const Works &works, std::chrono::milliseconds timeout) const {
    for (auto each = works.rbegin(); each != works.rend(); ++each)
        if (*each && !(*each)->wait(timeout)) return false;
    return true;
}

bool ExchangeWork::finish(std::chrono::milliseconds timeout, bool alone) {
    bool is_over = false;
    const auto ignore_the_rest = [&] {
        if (memory_ && !is_over) memory_->discard_inbox(what_.number);
    };
    try {
        is_over = finish_messages(timeout, alone);
    } catch (...) {
        ignore_the_rest();
        throw;
    }
    ignore_the_rest();
    return is_over;
}

bool ExchangeWork::finish_messages(std::chrono::milliseconds timeout, bool alone) {
    if (timeout == kNoTimeout && what_.timeout != c10d::kUnsetTimeout) timeout = what_.timeout;
    const auto differs = mismatch_text(timeout);
    if (!differs.empty()) throw std::runtime_error(differs);
    if (is_aborted_) return false;
    // Before waiting for the transport, because ranks that have this rank's header request their data.
    const auto has_mailed = [this] {
        return std::none_of(must_post_.begin(), must_post_.end(), [](char is) { return is; });
    };
    if (!advance_until(timeout, has_mailed)) return false;
    const auto gives_whole = settle(timeout);
    if (!gives_whole) return false;
    if (*gives_whole) { return arrive_whole(timeout, alone) && end_messages(timeout); }
    // Request forwarded data only after forwarding this rank's own, index by index. A rank that is asked
    // before it has the data writes in its calling thread, while Gloo's thread spins on the connection's
    // lock.
    const auto gather = [&](size_t i) {
        begin_all(gathers_, i, false, what_.gathered, everyone, what_.number, true);
    };
    for (size_t i = 0; i < receives_.size(); i++) {
        if (!wait_for(receives_[i], timeout)) return false;
        if (what_.arrives_after_sent && !wait_for(sends_[i], timeout)) return false;
        if (!arrive(i, timeout, alone)) return false;
        begin_all(passes_, i, true, what_.passed, everyone, what_.number, true);
        gather(i);
        if (what_.ahead < receives_.size() - i)
            begin_all(receives_, i + what_.ahead, false, what_.taken, what_.from, what_.number, false);
        if (is_aborted_) return false;
    }
    for (size_t i = receives_.size(); i < gathers_.size(); i++) gather(i); // other ranks' parts may be larger
    if (!advance_until(timeout, [this] { return is_all_over(); })) return false;
    for (const auto *all :
         {&gathers_, &sends_, &passes_}) // wait exactly once for each: the transport counts waits
        if (all != &sends_ || !what_.arrives_after_sent)
            for (const auto &each : *all)
                if (!wait_for(each, timeout)) return false;
    return end_messages(timeout);
}

bool ExchangeWork::is_all_over() const {
    for (int other = 0; other < size_; other++)
        if (is_left(other)) return false;
    return true;
}

bool ExchangeWork::end_messages(std::chrono::milliseconds timeout) {
    if (!advance_until(timeout, [this] { return is_all_over(); }) || !wait_for(header_sends_, timeout))
        return false;
    for (const auto &each : duplicate_headers_)
        if (!each.second->wait(timeout)) return false;
    release_rings();
    return true;
}

// --- shared memory ---

size_t ExchangeWork::announced_bytes(int other) const {
    const auto length = bytes_of(what_.given, other);
    return header_bytes + 16 * announced_sizes() + (length <= max_inline_bytes(size_) ? length : 0);
}

// Writes the header to the inbox, if there is room.
bool ExchangeWork::post(int other) {
    auto *room = segment_inbox_room(memory_->own(), static_cast<uint32_t>(other), what_.number,
                                    memory_->inbox_from(other));
    if (!room) return false;
    std::memcpy(room, sent_headers_[other].const_data_ptr(), announced_bytes(other));
    segment_inbox_put(memory_->own(), memory_->of(other), static_cast<uint32_t>(other), what_.number);
    return true;
}

bool ExchangeWork::read_inbox(int other, std::chrono::milliseconds timeout) {
    auto *its = memory_->of(other);
    const auto to = static_cast<uint32_t>(rank_);
    if (!advance_until(timeout, [&] { return segment_inbox_next(its, to, what_.number) != nullptr; }))
        return false;
    const auto *from = static_cast<const char *>(segment_inbox_next(its, to, what_.number));
    Header header;
    std::memcpy(&header, from, sizeof header);
    const auto inside = header.gives <= max_inline_bytes(size_) ? header.gives : 0;
    std::memcpy(received_headers_[other].mutable_data_ptr(), from,
                std::min<size_t>(header_bytes + size_t(16) * header.sizes + inside, stride()));
    segment_inbox_take(its, to, what_.number);
    has_received_[static_cast<size_t>(other)] = true;
    if (header.is_sent_both_ways) { // the duplicate needs a receive buffer
        const int tag = first_exchange_tag | static_cast<int>(what_.number & 0xfffffff);
        Tensors one{at::empty({static_cast<int64_t>(stride())}, at::kByte)};
        WorkPtr work;
        keep_if_begun(work, transport_->recv(one, other, tag));
        const std::lock_guard guard(beginning_);
        duplicate_headers_.emplace_back(one[0], std::move(work));
    }
    return true;
}

bool ExchangeWork::is_transportable(bool sends, bool is_later, int other) const {
    const auto &streams = sends ? (is_later ? passing_ : giving_) : is_later ? gathering_ : taking_;
    const auto &stream = streams[static_cast<size_t>(other)];
    return stream.ring < 0 && !stream.isnt_known;
}

bool ExchangeWork::is_past(const Stream &stream, const Tensors &list, size_t index, size_t bytes) {
    return stream.index > index || stream.index >= list.size() ||
           (stream.index == index && stream.from >= std::min<size_t>(bytes, list[index].nbytes()));
}

bool ExchangeWork::is_left(int other) const {
    const auto r = static_cast<size_t>(other);
    const auto is = [r](const Stream &stream, const std::vector<Tensors> &lists) {
        return stream.ring >= 0 && stream.index < lists[r].size();
    };
    return must_post_[r] || (must_receive_[r] && !has_received_[r]) || is(wholes_[r], whole_lists_) ||
           is(whole_of_[r], whole_lists_) || is(giving_[r], what_.given) || is(passing_[r], what_.passed) ||
           is(taking_[r], what_.taken) || is(gathering_[r], what_.gathered);
}

bool ExchangeWork::push(int other, Stream &stream, const Tensors &list, bool is_made) {
    bool moved = false;
    for (; stream.index < list.size(); stream.index++, stream.from = 0) {
        const auto &tensor = list[stream.index];
        const size_t all = tensor.nbytes();
        while (stream.from < all) {
            const auto bytes = std::min(memory_->slot_bytes(), all - stream.from);
            if (!is_made && (stream.index > made_index_ ||
                             (stream.index == made_index_ && stream.from + bytes > made_bytes_)))
                return moved;
            const auto to = static_cast<uint32_t>(other);
            const auto ring = static_cast<unsigned>(stream.ring);
            auto *slot = segment_room(memory_->own(), to, ring);
            if (!slot) return moved;
            std::memcpy(slot, static_cast<const char *>(tensor.const_data_ptr()) + stream.from, bytes);
            segment_put(memory_->own(), memory_->of(other), to, ring);
            memory_->count(bytes);
            stream.from += bytes;
            moved = true;
        }
        if (!is_made && stream.index >= made_index_) return moved;
    }
    return moved;
}

bool ExchangeWork::pull(int other, Stream &stream, const Tensors &list) {
    bool moved = false;
    for (; stream.index < list.size(); stream.index++, stream.from = 0) {
        const auto &tensor = list[stream.index];
        const size_t all = tensor.nbytes();
        while (stream.from < all) {
            const auto bytes = std::min(memory_->slot_bytes(), all - stream.from);
            const auto to = static_cast<uint32_t>(rank_);
            const auto ring = static_cast<unsigned>(stream.ring);
            const auto *slot = segment_next(memory_->of(other), to, ring);
            if (!slot) return moved;
            std::memcpy(static_cast<char *>(tensor.mutable_data_ptr()) + stream.from, slot, bytes);
            segment_take(memory_->of(other), to, ring);
            stream.from += bytes;
            moved = true;
        }
    }
    return moved;
}

bool ExchangeWork::advance() {
    bool moved = false;
    if (!memory_ || is_aborted_) return moved;
    for (int other = 0; other < size_; other++) {
        const auto r = static_cast<size_t>(other);
        if (must_post_[r] && post(other)) {
            must_post_[r] = false;
            moved = true;
        }
        if (giving_[r].ring >= 0) moved |= push(other, giving_[r], what_.given[r], true);
        if (passing_[r].ring >= 0) moved |= push(other, passing_[r], what_.passed[r], false);
        if (taking_[r].ring >= 0 && !what_.arrived) moved |= pull(other, taking_[r], what_.taken[r]);
        if (wholes_[r].ring >= 0) moved |= push(other, wholes_[r], whole_lists_[r], true);
        if (gathering_[r].ring >= 0) moved |= pull(other, gathering_[r], what_.gathered[r]);
    }
    return moved;
}

bool ExchangeWork::arrive(size_t index, std::chrono::milliseconds timeout, bool alone) {
    std::vector<int> near; // ranks whose data comes through shared memory
    size_t all = 0;
    for (int other = 0; other < size_; other++) {
        const auto r = static_cast<size_t>(other);
        if (taking_[r].ring < 0 || index >= what_.taken[r].size()) continue;
        near.push_back(other);
        all = what_.taken[r][index].nbytes(); // equal for all ranks in a reduction
    }
    if (near.empty()) {
        if (what_.arrived) what_.arrived({.index = index, .alone = alone});
    } else if (what_.arrived) {
        const auto is_given = [&](size_t bytes) {
            if (!what_.arrives_after_sent) return true;
            for (size_t r = 0; r < giving_.size(); r++)
                if (giving_[r].ring >= 0 && !is_past(giving_[r], what_.given[r], index, bytes)) return false;
            return true;
        };
        if (!arrive_in_pieces({.index = index, .alone = alone}, all, near, taking_, timeout, is_given))
            return false;
    } else {
        const auto is_taken = [&] {
            return std::all_of(near.begin(), near.end(), [&](int other) {
                const auto r = static_cast<size_t>(other);
                return is_past(taking_[r], what_.taken[r], index, SIZE_MAX);
            });
        };
        if (!advance_until(timeout, is_taken)) return false;
    }
    made_index_ = index + 1;
    made_bytes_ = 0;
    return true;
}

template <typename IsGiven>
bool ExchangeWork::arrive_in_pieces(Exchange::Arrival arrival, size_t all, const std::vector<int> &near,
                                    std::vector<Stream> &streams, std::chrono::milliseconds timeout,
                                    IsGiven &&is_given) {
    const auto to = static_cast<uint32_t>(rank_);
    const auto stream = [&](int other) -> Stream & { return streams[static_cast<size_t>(other)]; };
    const auto next = [&](int other) {
        return segment_next(memory_->of(other), to, static_cast<unsigned>(stream(other).ring));
    };
    const bool is_whole = &streams == &whole_of_;
    arrival.in_memory.resize(static_cast<size_t>(size_));
    for (; arrival.from < all; arrival.from += arrival.bytes) {
        arrival.bytes = std::min(memory_->slot_bytes(), all - arrival.from);
        const auto are_there = [&] {
            return std::all_of(near.begin(), near.end(), next) && is_given(arrival.from + arrival.bytes);
        };
        if (!advance_until(timeout, are_there)) return false;
        for (const int other : near) arrival.in_memory[static_cast<size_t>(other)] = next(other);
        is_whole ? what_.whole_arrived(arrival) : what_.arrived(arrival);
        for (const int other : near) {
            segment_take(memory_->of(other), to, static_cast<unsigned>(stream(other).ring));
            stream(other).from += arrival.bytes;
        }
        if (!is_whole) {
            made_bytes_ = arrival.from + arrival.bytes;
            advance();
        }
    }
    for (const int other : near) {
        stream(other).index++;
        stream(other).from = 0;
    }
    return true;
}

// --- one-phase exchange through shared memory ---

std::vector<int> ExchangeWork::other_ranks() const {
    std::vector<int> others;
    for (int i = 1; i < size_; i++) others.push_back((rank_ + i) % size_);
    return others;
}

void ExchangeWork::lease_rings() {
    if (!memory_) return;
    const auto others = other_ranks();
    bool has_large = what_.whole.defined();
    for (const int other : others)
        for (const auto *lists : {&what_.given, &what_.taken, &what_.passed, &what_.gathered})
            has_large = has_large || bytes_of(*lists, other) > max_inline_bytes(size_);
    memory_->begin(what_.number, has_large);
    const auto lease = [&](std::vector<Stream> &streams, int other) {
        return (streams[static_cast<size_t>(other)].ring = memory_->lease(other, what_.number)) >= 0;
    };
    if (what_.whole.defined()) {
        offers_whole_ =
            std::all_of(others.begin(), others.end(), [&](int other) { return lease(wholes_, other); });
        if (!offers_whole_) release_rings();
    }
    for (const int other : others) {
        giving_[static_cast<size_t>(other)].isnt_known = offers_whole_;
        if (offers_whole_) continue; // everything else uses the transport
        if (bytes_of(what_.given, other) > max_inline_bytes(size_)) lease(giving_, other);
        if (bytes_of(what_.passed, other) > max_inline_bytes(size_)) lease(passing_, other);
    }
}

void ExchangeWork::release_rings() {
    for (auto *all : {&giving_, &passing_, &wholes_})
        for (const int other : other_ranks())
            if (const int ring = std::exchange((*all)[static_cast<size_t>(other)].ring, -1); ring >= 0)
                memory_->give_back(other, ring);
}

std::optional<bool> ExchangeWork::settle(std::chrono::milliseconds timeout) {
    if (!memory_ || !what_.whole.defined()) return false;
    const auto others = other_ranks();
    const auto has_offered = [&](int other) { return whole_of_[static_cast<size_t>(other)].ring >= 0; };
    if (offers_whole_ && std::all_of(others.begin(), others.end(), has_offered)) return true;
    const auto to = static_cast<uint32_t>(rank_);
    for (const int other : others) { // discard what others have offered
        if (!has_offered(other)) continue;
        auto &whole = whole_of_[static_cast<size_t>(other)];
        const auto ring = static_cast<unsigned>(whole.ring);
        for (size_t from = 0; from < what_.whole.nbytes(); from += memory_->slot_bytes()) {
            const auto is_there = [&] { return segment_next(memory_->of(other), to, ring) != nullptr; };
            if (!advance_until(timeout, is_there)) return std::nullopt;
            segment_take(memory_->of(other), to, ring);
        }
        whole.ring = -1;
    }
    for (const int other : others) {
        const auto r = static_cast<size_t>(other);
        if (std::exchange(giving_[r].isnt_known, false))
            for (size_t i = 0; i < sends_.size(); i++)
                begin_all(sends_, i, true, what_.given, other, what_.number, false);
        if (std::exchange(taking_[r].isnt_known, false))
            for (size_t i = 0; i < std::min(receives_.size(), what_.ahead); i++)
                begin_all(receives_, i, false, what_.taken, other, what_.number, false);
    }
    return false;
}

bool ExchangeWork::arrive_whole(std::chrono::milliseconds timeout, bool alone) {
    const auto others = other_ranks();
    const auto is_given = [&](size_t bytes) {
        return std::all_of(others.begin(), others.end(), [&](int other) {
            const auto r = static_cast<size_t>(other);
            return is_past(wholes_[r], whole_lists_[r], 0, bytes);
        });
    };
    return arrive_in_pieces({.index = 0, .alone = alone}, what_.whole.nbytes(), others, whole_of_, timeout,
                            is_given);
}

template <typename Is> bool ExchangeWork::advance_until(std::chrono::milliseconds timeout, Is &&is) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds turn(100); // the end of another process is noticed within this time
    if (is()) return true;
    const auto most = timeout == kNoTimeout ? memory_->timeout() : timeout;
    const auto nap = std::clamp<std::chrono::milliseconds>(most, std::chrono::milliseconds(1), turn);
    for (auto moved = Clock::now(), looked = moved;;) {
        const auto seen = segment_bell(memory_->own());
        if (is_aborted_) return false;
        const bool moves = advance();
        if (is()) return true;
        if (moves) {
            moved = looked = Clock::now();
            continue;
        }
        segment_sleep(memory_->own(), seen, static_cast<unsigned>(nap.count()));
        const auto now = Clock::now();
        if (now - looked < nap) continue;
        looked = now;
        const auto why = stuck(now - moved >= most);
        if (!why.empty()) throw std::runtime_error(why);
    }
}

std::string ExchangeWork::stuck(bool is_late) const {
    for (int other = 0; other < size_; other++) {
        if (!is_left(other)) continue;
        const auto r = static_cast<size_t>(other);
        auto *its = memory_->of(other);
        // Read these before its rings, so that everything it wrote before leaving is visible.
        const bool has_ended = segment_has_ended(its), has_left = segment_has_left(its);
        const auto waits = [&](const Stream &stream, const std::vector<Tensors> &lists, bool sends) {
            if (stream.ring < 0 || stream.index >= lists[r].size()) return false;
            const auto ring = static_cast<unsigned>(stream.ring);
            return sends ? !segment_room(memory_->own(), static_cast<uint32_t>(other), ring)
                         : !segment_next(its, static_cast<uint32_t>(rank_), ring);
        };
        const bool hears = must_receive_[r] && !has_received_[r] &&
                           !segment_inbox_next(its, static_cast<uint32_t>(rank_), what_.number);
        const bool takes = hears || waits(taking_[r], what_.taken, false) ||
                           waits(gathering_[r], what_.gathered, false) ||
                           waits(whole_of_[r], whole_lists_, false);
        if (!takes && !must_post_[r] && !waits(giving_[r], what_.given, true) &&
            !waits(passing_[r], what_.passed, true) && !waits(wholes_[r], whole_lists_, true))
            continue;
        if (has_ended) return c10::str("rank ", other, " has ended during the collective");
        if (has_left) return c10::str("rank ", other, " has left the group during the collective");
        if (is_late)
            return c10::str("timed out: rank ", other, takes ? " sent" : " took",
                            " nothing more through shared memory");
    }
    return is_late ? "timed out: nothing arrived through shared memory" : "";
}

void ExchangeWork::abort() {
    const std::lock_guard guard(beginning_);
    is_aborted_ = true;
    begun_.notify_all();
    if (memory_) memory_->wake();
    const auto end = [](const Works &works) {
        for (const auto &each : works)
            if (each) each->abort();
    };
    end(header_sends_);
    end(header_receives_);
    for (const auto &each : duplicate_headers_) each.second->abort();
    for (const auto *all : {&sends_, &receives_, &passes_, &gathers_})
        for (const auto &each : *all) end(each);
}

int ExchangeWork::sourceRank() const {
    TORCH_CHECK(what_.tag && has_received_header(0),
                "the source rank is known only after a receive has completed");
    return received_header(0).rank;
}

// --- reducing ---

namespace {

// result = reduction of a and b; result may be a.
void combine(ReduceOp::RedOpType reduction, Tensor &result, const Tensor &a, const Tensor &b) {
    switch (reduction) {
    case ReduceOp::SUM: at::add_out(result, a, b); return;
    case ReduceOp::PRODUCT: at::mul_out(result, a, b); return;
    case ReduceOp::MIN: at::minimum_out(result, a, b); return;
    case ReduceOp::MAX: at::maximum_out(result, a, b); return;
    case ReduceOp::BAND: at::bitwise_and_out(result, a, b); return;
    case ReduceOp::BOR: at::bitwise_or_out(result, a, b); return;
    case ReduceOp::BXOR: at::bitwise_xor_out(result, a, b); return;
    default: TORCH_CHECK_VALUE(false, "unsupported reduction: ", static_cast<int>(reduction));
    }
}

void divide(Tensor &sum, int divisor) {
    if (divisor == 1) return;
    if (sum.is_floating_point())
        sum.div_(divisor);
    else
        sum.div_(divisor, "trunc");
}

} // namespace

void reduce(ReduceOp::RedOpType reduction, const Tensors &parts, Tensor result, int divisor, bool alone) {
    const int64_t length = result.numel();
    const auto type = result.scalar_type();
    const bool is_half = type == at::kHalf || type == at::kBFloat16;
    const bool in_fp32 = is_half && (parts.size() > 2 || divisor > 1); // the sum may be too large for fp16
    if (parts.size() == 2 && !alone && !in_fp32) {
        combine(reduction, result, parts[0], parts[1]);
        return divide(result, divisor);
    }
    constexpr int64_t piece = 16384; // elements: PyTorch's loops use several threads from 32,768 on
    Tensor sum;
    if (parts.size() > 2 || in_fp32)
        sum = at::empty({std::min(piece, length)},
                        in_fp32 ? result.options().dtype(at::kFloat) : result.options());
    for (int64_t from = 0; from < length; from += piece) {
        const int64_t here = std::min(piece, length - from);
        const auto part = [&](size_t i) { return parts[i].narrow(0, from, here); };
        auto to = result.narrow(0, from, here);
        if (parts.size() == 1) {
            if (result.data_ptr() != parts[0].data_ptr()) to.copy_(part(0));
            continue;
        }
        if (in_fp32) {
            auto so_far = sum.narrow(0, 0, here);
            so_far.copy_(part(0));
            for (size_t i = 1; i < parts.size(); i++) combine(reduction, so_far, so_far, part(i));
            divide(so_far, divisor);
            to.copy_(so_far);
            continue;
        }
        if (parts.size() == 2) {
            combine(reduction, to, part(0), part(1));
        } else {
            auto so_far = sum.narrow(0, 0, here); // not in `to`, which may be an operand that is still needed
            combine(reduction, so_far, part(0), part(1));
            for (size_t i = 2; i + 1 < parts.size(); i++) combine(reduction, so_far, so_far, part(i));
            combine(reduction, to, so_far, part(parts.size() - 1));
        }
        divide(to, divisor);
    }
}

} // namespace openxpu
