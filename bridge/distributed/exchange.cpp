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
    uint32_t refuses, sizes;
    char what[216]; // its beginning
};

namespace {

constexpr size_t header_bytes = 256;
constexpr uint8_t not_there = 0xff; // its last byte, which ends a text, before it has come

// Tensors of up to so many bytes go with the header: fewer where headers of many ranks are awaited.
size_t most_inside(int size) {
    return std::clamp<size_t>((256 << 10) / static_cast<size_t>(size), 1 << 10, 16 << 10);
}

uint64_t hash_of(const std::string &text) { // FNV-1a
    uint64_t hash = 0xcbf29ce484222325;
    for (const char each : text) hash = (hash ^ static_cast<unsigned char>(each)) * 0x100000001b3;
    return hash;
}

size_t bytes_of(const std::vector<Tensors> &lists, int rank) {
    size_t bytes = 0;
    if (!lists.empty())
        for (const auto &tensor : lists[static_cast<size_t>(rank)]) bytes += tensor.nbytes();
    return bytes;
}

int header_tag(uint64_t number) { return first_exchange_tag + static_cast<int>(number & 0x7fffff); }

// Another one for other sizes: more than is expected would end Gloo's thread.
int tensor_tag(uint64_t number, size_t bytes) {
    auto mixed = static_cast<uint64_t>(bytes); // SplitMix64's end: sizes that are alike in no way more often
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    const auto size_bits = static_cast<int>((mixed ^ mixed >> 31) >> 52);
    return first_exchange_tag + 0x800000 + (static_cast<int>(number & 0x7ff) << 12) + size_bits;
}

} // namespace

// Room for the longest of any collective, as others may do another one.
size_t ExchangeWork::stride() const {
    return header_bytes + 16 * static_cast<size_t>(size_ <= 64 ? size_ : 0) + most_inside(size_);
}

// --- one exchange ---

ExchangeWork::ExchangeWork(c10d::Backend &carrier, Exchange what)
    : Work(carrier.getRank()), size_(carrier.getSize()), what_(std::move(what)),
      told_(static_cast<size_t>(size_)), hears_(static_cast<size_t>(size_)) {
    static_assert(sizeof(Header) == header_bytes);
    const auto ranks = static_cast<int64_t>(size_);
    said_ = at::empty({ranks, static_cast<int64_t>(stride())}, at::kByte);
    heard_ = at::empty_like(said_);
    size_t indices = 0;
    for (const auto *lists : {&what_.given, &what_.taken})
        for (const auto &list : *lists) indices = std::max(indices, list.size());
    sends_.resize(indices);
    receives_.resize(indices);
    // All is sent before anything can come: what is larger than expected, in a collective of Gloo's, stops
    // its thread, which keeps a lock that sends to the same rank would wait for.
    const auto turn = [&](int which, auto &&begin) {
        for (int i = 1; i < size_; i++) {
            const int other = (rank_ + i) % size_;
            if (is_partner(other, which)) begin(other);
        }
    };
    const auto outside = [&](const std::vector<Tensors> &lists, int which, auto &&begin) {
        turn(which, [&](int other) {
            if (bytes_of(lists, other) <= most_inside(size_)) return;
            const auto &list = lists[static_cast<size_t>(other)];
            for (size_t i = 0; i < list.size(); i++) {
                Tensors one{list[i]};
                if (list[i].numel()) begin(i, one, other, tensor_tag(what_.number, list[i].nbytes()));
            }
        });
    };
    turn(what_.to, [&](int other) {
        put(other);
        const auto length = bytes_of(what_.given, other);
        const auto inside = length <= most_inside(size_) ? length : 0;
        Tensors one{
            said_[other].narrow(0, 0, static_cast<int64_t>(header_bytes + 16 * sizes_told() + inside))};
        told_[static_cast<size_t>(other)] = carrier.send(one, other, header_tag(what_.number));
    });
    outside(what_.given, what_.to, [&](size_t i, Tensors &one, int other, int tag) {
        sends_[i].push_back(carrier.send(one, other, tag));
    });
    turn(what_.from, [&](int other) {
        Tensors one{heard_[other]};
        one[0].mutable_data_ptr<uint8_t>()[header_bytes - 1] = not_there;
        hears_[static_cast<size_t>(other)] = carrier.recv(one, other, header_tag(what_.number));
    });
    outside(what_.taken, what_.from, [&](size_t i, Tensors &one, int other, int tag) {
        receives_[i].push_back(carrier.recv(one, other, tag));
    });
}

void ExchangeWork::put(int other) {
    auto *to = said_[other].mutable_data_ptr<uint8_t>();
    Header header{};
    header.number = what_.number;
    header.gives = bytes_of(what_.given, other);
    header.takes = bytes_of(what_.taken, other);
    header.hash = hash_of(what_.what);
    header.refuses = what_.refuses;
    header.sizes = static_cast<uint32_t>(sizes_told());
    std::strncpy(header.what, what_.what.c_str(), sizeof header.what - 1);
    std::memcpy(to, &header, sizeof header);
    to += sizeof header;
    for (const auto *lists : {&what_.given, &what_.taken})
        for (int r = 0; r < static_cast<int>(sizes_told()); r++, to += 8) {
            const uint64_t bytes = r == rank_ ? 0 : bytes_of(*lists, r);
            std::memcpy(to, &bytes, 8);
        }
    if (header.gives <= most_inside(size_) && header.gives)
        for (const auto &tensor : what_.given[static_cast<size_t>(other)]) {
            std::memcpy(to, tensor.const_data_ptr(), tensor.nbytes());
            to += tensor.nbytes();
        }
}

// What came with the header, which fits.
void ExchangeWork::take(int other) {
    const auto length = bytes_of(what_.taken, other);
    if (!length || length > most_inside(size_)) return;
    const auto *from = heard_[other].const_data_ptr<uint8_t>() + header_bytes + 16 * sizes_told();
    for (const auto &tensor : what_.taken[static_cast<size_t>(other)]) {
        std::memcpy(tensor.mutable_data_ptr(), from, tensor.nbytes());
        from += tensor.nbytes();
    }
}

std::string ExchangeWork::compare(int other) const {
    Header header;
    std::memcpy(&header, heard_[other].const_data_ptr(), sizeof header);
    header.what[sizeof header.what - 1] = 0;
    if (header.refuses) return c10::str("rank ", other, " refused: ", header.what);
    if (header.number != what_.number || header.hash != hash_of(what_.what) || header.sizes != sizes_told())
        return c10::str("not all ranks do the same: rank ", other, "'s is ", header.what);
    const auto gives = bytes_of(what_.given, other), takes = bytes_of(what_.taken, other);
    if (header.gives != takes)
        return c10::str("rank ", other, " sends ", header.gives, " bytes to rank ", rank_,
                        ", which has room for ", takes);
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
    if (timeout == kNoTimeout && what_.timeout != c10d::kUnsetTimeout) timeout = what_.timeout;
    const std::lock_guard guard(hearing_);
    if (misfit_) return *misfit_;
    for (int i = 1; i < size_; i++) {
        const int other = (rank_ + i) % size_;
        const auto &hears = hears_[static_cast<size_t>(other)];
        if (!hears) continue;
        try {
            if (!hears->wait(timeout)) return *(misfit_ = ""); // aborted
        } catch (const std::exception &error) {
            return *(misfit_ = c10::str("rank ", other, " said nothing: ", error.what()));
        }
        auto differs = compare(other);
        if (!differs.empty()) return *(misfit_ = std::move(differs));
        take(other);
    }
    return *(misfit_ = compare_all());
}

std::string ExchangeWork::known_misfit() const {
    for (int other = 0; other < size_; other++)
        if (is_partner(other, what_.from) &&
            heard_[other].const_data_ptr<uint8_t>()[header_bytes - 1] != not_there) {
            auto differs = compare(other);
            if (!differs.empty()) return differs;
        }
    return "";
}

bool ExchangeWork::finish(std::chrono::milliseconds timeout, bool alone) {
    if (timeout == kNoTimeout && what_.timeout != c10d::kUnsetTimeout) timeout = what_.timeout;
    const auto differs = misfit(timeout);
    if (!differs.empty()) throw std::runtime_error(differs);
    if (is_aborted_) return false;
    for (size_t i = 0; i < receives_.size(); i++) {
        for (const auto *list : {&receives_[i], &sends_[i]})
            for (auto part = list->rbegin(); part != list->rend(); ++part)
                if (!(*part)->wait(timeout)) return false;
        if (what_.arrived) what_.arrived(i, alone);
    }
    for (const auto &told : told_)
        if (told && !told->wait(timeout)) return false;
    return true;
}

void ExchangeWork::abort() {
    is_aborted_ = true;
    for (const auto *list : {&told_, &hears_})
        for (const auto &part : *list)
            if (part) part->abort();
    for (const auto *lists : {&sends_, &receives_})
        for (const auto &list : *lists)
            for (const auto &part : list) part->abort();
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
