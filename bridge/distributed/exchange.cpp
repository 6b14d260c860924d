#include "exchange.h"

#include <cstring>
#include <numeric>

namespace openxpu {

using at::Tensor;
using c10d::ReduceOp;

// --- what a rank says ---

// Followed by the bytes that each rank gets and those that are expected from each, if they are told, and by
// the tensors, if they are few.
struct ExchangeWork::Header {
    uint64_t number;
    uint64_t gives, takes; // bytes: for who reads this, and from there
    uint64_t hash;         // of what this rank does
    uint16_t refuses, sizes;
    int32_t rank;
    char what[216]; // its beginning
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

// Fewer where headers of many ranks are awaited.
size_t most_inside(int ranks) {
    return std::clamp<size_t>((256 << 10) / static_cast<size_t>(ranks), 1 << 10, 16 << 10);
}

size_t ExchangeWork::bytes_of(const std::vector<Tensors> &lists, int other) const {
    size_t bytes = 0;
    if (!lists.empty())
        for (const auto &tensor : lists[row(other)]) bytes += tensor.nbytes();
    return bytes;
}

// Of what follows the first message. Another one for other sizes: more than is expected would end Gloo's
// thread. And another one for what goes later, and for each of what may be under way.
int ExchangeWork::tag_of(uint64_t number, size_t bytes, bool is_later) const {
    const auto low = static_cast<int>(number & 0x3ff);
    const auto rest = static_cast<uint64_t>(bytes) ^ (number >> 10) << 40;
    if (what_.tag) {
        const auto other = static_cast<uint64_t>(*what_.tag) * 0x9e3779b97f4a7c15;
        return 1 << 29 | low << 19 | mixed(rest + other, 19);
    }
    return 1 << 30 | low << 20 | static_cast<int>(is_later) << 19 | mixed(rest, 19);
}

// Room for the longest of any collective, as others may do another one.
size_t ExchangeWork::stride() const {
    return header_bytes + 16 * static_cast<size_t>(size_ <= 64 ? size_ : 0) + most_inside(size_);
}

ExchangeWork::Header ExchangeWork::heard(size_t row) const {
    Header header;
    std::memcpy(&header, heard_[static_cast<int64_t>(row)].const_data_ptr(), sizeof header);
    header.what[sizeof header.what - 1] = 0;
    return header;
}

bool ExchangeWork::is_heard(size_t row) const {
    return hears_[row] &&
           heard_[static_cast<int64_t>(row)].const_data_ptr<uint8_t>()[header_bytes - 1] != not_there;
}

// --- one exchange ---

template <typename Begin> void ExchangeWork::turn(int which, Begin &&begin) const {
    for (int i = 1; i < size_; i++) {
        const int other = (rank_ + i) % size_;
        if (which == everyone || which == other) begin(other);
    }
}

ExchangeWork::ExchangeWork(c10::intrusive_ptr<c10d::Backend> carrier, Exchange what)
    : Work(carrier->getRank()), size_(carrier->getSize()), carrier_(std::move(carrier)),
      what_(std::move(what)), told_(rows()), hears_(rows()) {
    static_assert(sizeof(Header) == header_bytes);
    said_ = at::empty({static_cast<int64_t>(rows()), static_cast<int64_t>(stride())}, at::kByte);
    heard_ = at::empty_like(said_);
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
    // All is sent before anything can come: what is larger than expected stops Gloo's thread, which keeps a
    // lock that sends to the same rank would wait for.
    turn(what_.to, [&](int other) {
        put(other);
        const auto length = bytes_of(what_.given, other);
        const auto inside = length <= most_inside(size_) ? length : 0;
        Tensors one{said_[static_cast<int64_t>(row(other))].narrow(
            0, 0, static_cast<int64_t>(header_bytes + 16 * sizes_told() + inside))};
        keep_if_begun(told_[row(other)], carrier_->send(one, other, tag));
    });
    for (size_t i = 0; i < sends_.size(); i++)
        begin_all(sends_, i, true, what_.given, what_.to, what_.number, false);
    const auto hear = [&](int other) {
        Tensors one{heard_[static_cast<int64_t>(row(other))]};
        one[0].mutable_data_ptr<uint8_t>()[header_bytes - 1] = not_there;
        keep_if_begun(hears_[row(other)],
                      other == anyone ? carrier_->recvAnysource(one, tag) : carrier_->recv(one, other, tag));
    };
    if (what_.from == anyone) hear(anyone);
    turn(what_.from, hear);
    if (!what_.is_late)
        for (size_t i = 0; i < std::min(receives_.size(), what_.ahead); i++)
            begin_all(receives_, i, false, what_.taken, what_.from, what_.number, false);
}

void ExchangeWork::start() {
    std::exception_ptr failure;
    try {
        what_.ready();
        if (!is_aborted_) begin_messages();
    } catch (const c10::Error &error) { // of what it was given: the others wait for that
        failure = std::current_exception();
        refusal_ =
            c10::make_intrusive<ExchangeWork>(carrier_, Exchange{.number = what_.number,
                                                                 .what = error.what_without_backtrace(),
                                                                 .refuses = true,
                                                                 .to = what_.to,
                                                                 .from = nobody,
                                                                 .tag = what_.tag});
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

// Who aborts it while it begins doesn't see this one yet.
void ExchangeWork::keep_if_begun(WorkPtr &place, WorkPtr work) {
    const std::lock_guard guard(beginning_);
    if (is_aborted_) work->abort();
    place = std::move(work);
}

void ExchangeWork::begin(std::vector<Works> &works, size_t index, bool sends, const Tensor &tensor, int other,
                         int tag) {
    if (!tensor.numel() || is_aborted_) return;
    Tensors one{tensor};
    auto work = sends ? carrier_->send(one, other, tag) : carrier_->recv(one, other, tag);
    const std::lock_guard guard(beginning_);
    if (is_aborted_) work->abort();
    works[index].push_back(std::move(work));
}

void ExchangeWork::begin_all(std::vector<Works> &works, size_t index, bool sends,
                             const std::vector<Tensors> &lists, int which, uint64_t number, bool is_later) {
    if (lists.empty()) return;
    turn(which, [&](int other) {
        const auto &list = lists[row(other)];
        if (index < list.size() && (is_later || bytes_of(lists, other) > most_inside(size_)))
            begin(works, index, sends, list[index], other, tag_of(number, list[index].nbytes(), is_later));
    });
}

void ExchangeWork::put(int other) {
    auto *to = said_[static_cast<int64_t>(row(other))].mutable_data_ptr<uint8_t>();
    Header header{};
    header.number = what_.number;
    header.gives = bytes_of(what_.given, other);
    header.takes = bytes_of(what_.taken, other);
    header.hash = hash_of(what_.alike);
    header.refuses = what_.refuses;
    header.sizes = static_cast<uint16_t>(sizes_told());
    header.rank = rank_;
    std::strncpy(header.what, what_.what.c_str(), sizeof header.what - 1);
    std::memcpy(to, &header, sizeof header);
    to += sizeof header;
    for (const auto *lists : {&what_.given, &what_.taken})
        for (int r = 0; r < static_cast<int>(sizes_told()); r++, to += 8) {
            const uint64_t bytes = r == rank_ ? 0 : bytes_of(*lists, r);
            std::memcpy(to, &bytes, 8);
        }
    if (header.gives <= most_inside(size_) && header.gives)
        for (const auto &tensor : what_.given[row(other)]) {
            std::memcpy(to, tensor.const_data_ptr(), tensor.nbytes());
            to += tensor.nbytes();
        }
}

// What came with the header, which fits; what is still to come begins, if that was to know its number first.
void ExchangeWork::take(int other) {
    const auto length = bytes_of(what_.taken, other);
    if (!length) return;
    if (length > most_inside(size_)) {
        if (what_.is_late)
            for (size_t i = 0; i < receives_.size(); i++)
                begin_all(receives_, i, false, what_.taken, other, heard(0).number, false);
        return;
    }
    const auto *from =
        heard_[static_cast<int64_t>(row(other))].const_data_ptr<uint8_t>() + header_bytes + 16 * sizes_told();
    for (const auto &tensor : what_.taken[row(other)]) {
        std::memcpy(tensor.mutable_data_ptr(), from, tensor.nbytes());
        from += tensor.nbytes();
    }
}

std::string ExchangeWork::compare(size_t row) const {
    const auto header = heard(row);
    const int other = header.rank;
    if (header.refuses) return c10::str("rank ", other, " refused: ", header.what);
    if (!what_.tag && (header.number != what_.number || header.hash != hash_of(what_.alike) ||
                       header.sizes != sizes_told()))
        return c10::str("not all ranks do the same: rank ", other, "'s is ", header.what);
    const auto gives = bytes_of(what_.given, other), takes = bytes_of(what_.taken, other);
    if (header.gives != takes)
        return c10::str("rank ", other, " sends ", header.gives, " bytes to rank ", rank_,
                        ", which has room for ", takes);
    if (what_.tag) {
        if (header.number != what_.number && !what_.is_late)
            return c10::str("rank ", other, "'s is number ", header.number + 1, " of tag ", *what_.tag,
                            ", but this is number ", what_.number + 1);
        return "";
    }
    if (header.takes != gives)
        return c10::str("rank ", rank_, " sends ", gives, " bytes to rank ", other, ", which has room for ",
                        header.takes);
    return "";
}

// What doesn't fit between two others.
std::string ExchangeWork::compare_all() const {
    const auto size_at = [&](int rank, bool takes, int other) {
        uint64_t bytes;
        std::memcpy(&bytes,
                    heard_[rank].const_data_ptr<uint8_t>() + header_bytes +
                        8 * (static_cast<size_t>(other) + (takes ? sizes_told() : 0)),
                    8);
        return bytes;
    };
    for (int from = 0; from < static_cast<int>(sizes_told()); from++)
        for (int to = 0; to < size_; to++) {
            if (from == to || from == rank_ || to == rank_) continue;
            const auto sent = size_at(from, false, to), room = size_at(to, true, from);
            if (sent != room)
                return c10::str("rank ", from, " sends ", sent, " bytes to rank ", to,
                                ", which has room for ", room);
        }
    return "";
}

std::string ExchangeWork::misfit(std::chrono::milliseconds timeout) {
    if (!wait_for_begin()) return ""; // aborted
    if (timeout == kNoTimeout && what_.timeout != c10d::kUnsetTimeout) timeout = what_.timeout;
    const std::lock_guard guard(hearing_);
    if (misfit_) return *misfit_;
    for (size_t i = 0; i < rows(); i++) {
        const size_t each = (static_cast<size_t>(rank_) + i) % rows();
        const auto &hears = hears_[each];
        if (!hears) continue;
        try {
            if (!hears->wait(timeout)) return *(misfit_ = ""); // aborted
        } catch (const std::exception &error) {
            const auto who = what_.from == anyone
                                 ? std::string("no rank said anything: ")
                                 : c10::str("rank ", what_.tag ? what_.from : int(each), " said nothing: ");
            return *(misfit_ = c10::str(who, error.what()));
        }
        auto differs = compare(each);
        if (!differs.empty()) return *(misfit_ = std::move(differs));
        take(heard(each).rank);
    }
    return *(misfit_ = compare_all());
}

std::string ExchangeWork::known_misfit() const {
    if (!has_begun_) return "";
    for (size_t each = 0; each < rows(); each++)
        if (is_heard(each)) {
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
    if (timeout == kNoTimeout && what_.timeout != c10d::kUnsetTimeout) timeout = what_.timeout;
    const auto differs = misfit(timeout);
    if (!differs.empty()) throw std::runtime_error(differs);
    if (is_aborted_) return false;
    // What others pass on is asked for after this rank has passed on its own, index by index: who is asked
    // before he has it writes in his calling thread, and Gloo's spins meanwhile, since both need the
    // connection's lock.
    const auto gather = [&](size_t i) {
        begin_all(gathers_, i, false, what_.gathered, everyone, what_.number, true);
    };
    for (size_t i = 0; i < receives_.size(); i++) {
        if (!wait_for(receives_[i], timeout)) return false;
        if (what_.arrives_after_sent && !wait_for(sends_[i], timeout)) return false;
        if (what_.arrived) what_.arrived(i, alone);
        begin_all(passes_, i, true, what_.passed, everyone, what_.number, true);
        gather(i);
        if (what_.ahead < receives_.size() - i)
            begin_all(receives_, i + what_.ahead, false, what_.taken, what_.from, what_.number, false);
        if (is_aborted_) return false;
    }
    for (size_t i = receives_.size(); i < gathers_.size(); i++) gather(i); // others' parts may be larger
    for (const auto *all : {&gathers_, &sends_, &passes_}) // each is waited for once: the carrier counts
        if (all != &sends_ || !what_.arrives_after_sent)
            for (const auto &each : *all)
                if (!wait_for(each, timeout)) return false;
    return wait_for(told_, timeout);
}

void ExchangeWork::abort() {
    const std::lock_guard guard(beginning_);
    is_aborted_ = true;
    begun_.notify_all();
    const auto end = [](const Works &works) {
        for (const auto &each : works)
            if (each) each->abort();
    };
    end(told_);
    end(hears_);
    for (const auto *all : {&sends_, &receives_, &passes_, &gathers_})
        for (const auto &each : *all) end(each);
}

int ExchangeWork::sourceRank() const {
    TORCH_CHECK(what_.tag && is_heard(0), "only what has been received has a source");
    return heard(0).rank;
}

// --- reducing ---

namespace {

// a = a reduced with b, or result = that.
void combine(ReduceOp::RedOpType reduction, Tensor &result, const Tensor &a, const Tensor &b) {
    switch (reduction) {
    case ReduceOp::SUM: at::add_out(result, a, b); return;
    case ReduceOp::PRODUCT: at::mul_out(result, a, b); return;
    case ReduceOp::MIN: at::minimum_out(result, a, b); return;
    case ReduceOp::MAX: at::maximum_out(result, a, b); return;
    case ReduceOp::BAND: at::bitwise_and_out(result, a, b); return;
    case ReduceOp::BOR: at::bitwise_or_out(result, a, b); return;
    case ReduceOp::BXOR: at::bitwise_xor_out(result, a, b); return;
    default: TORCH_CHECK_VALUE(false, "not a reduction: ", static_cast<int>(reduction));
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
    constexpr int64_t piece = 16384; // elements: PyTorch's loops take other threads from 32,768 on
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
            auto so_far = sum.narrow(0, 0, here); // not in `to`, which may be a part that is still wanted
            combine(reduction, so_far, part(0), part(1));
            for (size_t i = 2; i + 1 < parts.size(); i++) combine(reduction, so_far, so_far, part(i));
            combine(reduction, to, so_far, part(parts.size() - 1));
        }
        divide(to, divisor);
    }
}

} // namespace openxpu
