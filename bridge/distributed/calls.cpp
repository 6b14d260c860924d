// The collectives, sends and receives of the process group, and the exchange or transport call that each
// becomes. Any thread may call; all ranks must issue collectives in the same order. Invalid arguments throw
// before a collective is numbered, or are announced to the other ranks (refuse).
#include "backend.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <cstring>

#include "exchange.h"
#include "lower.h"
#include "recorder.h"
#include "work.h"
#include "xpu/graph.h"

namespace openxpu {

using at::Tensor;
using c10d::OpType;
using c10d::ReduceOp;

namespace {

int root_among(int64_t root, int size) {
    TORCH_CHECK_VALUE(root >= 0 && root < size, "invalid root rank: ", root, " of ", size);
    return static_cast<int>(root);
}

// The transport's reduction for a tensor. A sum of bools is a logical or, as with NCCL.
ReduceOp::RedOpType transport_reduction(const ReduceOp &reduction, const Tensor &tensor) {
    const bool sums = reduction.op_ == ReduceOp::SUM || reduction.op_ == ReduceOp::AVG ||
                      reduction.op_ == ReduceOp::PREMUL_SUM;
    if (!sums) return reduction.op_;
    return tensor.scalar_type() == at::kBool ? ReduceOp::MAX : ReduceOp::SUM;
}

// The options with the transport's reduction.
template <typename Options> Options transport_options(Options options, const Tensor &tensor) {
    options.reduceOp = ReduceOp(transport_reduction(options.reduceOp, tensor));
    return options;
}

// Each rank's part of each tensor.
TensorLists parts_of(const Tensors &tensors, int size) {
    TensorLists parts(static_cast<size_t>(size));
    for (const auto &whole : tensors) {
        const auto rows = whole.view({size, whole.numel() / size}).unbind();
        for (size_t r = 0; r < parts.size(); r++) parts[r].push_back(rows[r]);
    }
    return parts;
}

// The number of rows per rank: as given, or divided equally.
std::vector<int64_t> rows_of(const Tensor &tensor, const std::vector<int64_t> &given, int size) {
    TORCH_CHECK(tensor.dim() > 0, "xccl:all_to_all: tensors need at least one dimension");
    c10d::checkSplitSizes(given, tensor, size);
    return given.empty() ? std::vector<int64_t>(static_cast<size_t>(size), tensor.size(0) / size) : given;
}

} // namespace

// --- direct exchanges between ranks ---

// Should each rank send the whole tensor to every other one, in one phase, instead of reduce-scatter plus
// all-gather? With two ranks this sends the same bytes but reduces twice as much. With more ranks it pays off
// while the extra bytes cost less than the second wait.
bool CollectiveBackend::goes_whole(const Tensor &whole) const {
    const size_t bytes = whole.nbytes();
    return size_ == 1 || (size_ == 2 ? bytes <= 1 << 18
                                     : bytes <= 1 << 16 && bytes * static_cast<size_t>(size_) <= 4 << 20);
}

// Receive buffer, cached between calls: faulting in fresh pages costs as much as receiving the data.
Tensor CollectiveBackend::take_scratch(size_t bytes) {
    const std::lock_guard guard(lock_);
    if (scratch_.defined() && scratch_.nbytes() >= bytes) return std::exchange(scratch_, Tensor());
    return at::empty({static_cast<int64_t>(bytes)}, at::kByte);
}

void CollectiveBackend::keep_scratch(const Tensor &scratch) {
    constexpr size_t most = 4 << 20;
    const std::lock_guard guard(lock_);
    if (scratch.nbytes() <= most && (!scratch_.defined() || scratch_.nbytes() < scratch.nbytes()))
        scratch_ = scratch;
}

namespace {

// Divides a tensor into chunks, so that one is reduced while the next arrives. All ranks get the same number.
// Smaller chunks would cost more in messages and thread hand-overs than they overlap.
Tensors in_pieces(const Tensor &whole, int size) {
    const size_t bytes = std::max<size_t>(64 << 10, (2 << 20) / static_cast<size_t>(std::max(size - 1, 1)));
    const auto flat = whole.view(-1);
    const auto length = static_cast<int64_t>((bytes + 63) / 64 * 64 / flat.element_size());
    Tensors pieces;
    for (int64_t from = 0; from < flat.numel(); from += length)
        pieces.push_back(flat.narrow(0, from, std::min(length, flat.numel() - from)));
    return pieces;
}

Tensors in_pieces(const Tensors &all, int size) {
    Tensors pieces;
    for (const auto &whole : all)
        for (auto &piece : in_pieces(whole, size)) pieces.push_back(std::move(piece));
    return pieces;
}

// Each rank's share of a tensor in a two-phase collective; the last shares may be smaller or empty.
Tensors shares_of(const Tensor &whole, int size) {
    const auto flat = whole.view(-1);
    const int64_t length = ((flat.numel() + size - 1) / size + 15) / 16 * 16;
    Tensors shares;
    for (int r = 0; r < size; r++) {
        const auto from = std::min(r * length, flat.numel());
        shares.push_back(flat.narrow(0, from, std::min(length, flat.numel() - from)));
    }
    return shares;
}

// Reduces part of a chunk. Operands are in `parts`, or in shared memory where arrival.in_memory is set.
void reduce_piece(ReduceOp::RedOpType reduction, const Tensors &parts, const Tensor &result, int divisor,
                  const Exchange::Arrival &arrival) {
    const auto size = static_cast<size_t>(result.element_size());
    const auto from = static_cast<int64_t>(arrival.from / size);
    const auto length = static_cast<int64_t>(arrival.bytes / size);
    Tensors here;
    for (size_t r = 0; r < parts.size(); r++) {
        auto *memory = const_cast<void *>(arrival.in_memory[r]);
        here.push_back(memory ? at::from_blob(memory, {length}, result.options())
                              : parts[r].narrow(0, from, length));
    }
    openxpu::reduce(reduction, here, result.narrow(0, from, length), divisor, arrival.alone);
}

} // namespace

WorkPtr CollectiveBackend::reduce_straight(const TensorLists &given, const Tensors &results,
                                           const ReduceOp &reduction, Transfer &transfer,
                                           std::chrono::milliseconds timeout, const Passing &passing,
                                           const Tensor &whole) {
    constexpr size_t most_scratch = 4 << 20;
    const auto pieces = in_pieces(results, size_);
    const auto others = static_cast<size_t>(size_ - 1);
    const auto room_of = [](const Tensor &piece) { return (piece.nbytes() + 63) / 64 * 64; };
    size_t bytes = 0, wanted = 0, largest = 0;
    for (const auto &piece : pieces) {
        bytes += piece.nbytes();
        wanted += room_of(piece) * others;
        largest = std::max(largest, room_of(piece));
    }
    size_t ahead = pieces.size(); // chunks with their own receive buffer; at least two if there are several
    if (wanted > most_scratch && bytes > max_inline_bytes(size_)) {
        ahead = std::clamp<size_t>(most_scratch / (largest * others), 2, std::max<size_t>(pieces.size(), 2));
        wanted = ahead * largest * others;
    }
    const auto scratch = take_scratch(wanted);
    TensorLists gives, taken(static_cast<size_t>(size_)), parts(pieces.size());
    for (const auto &list : given) gives.push_back(in_pieces(list, size_));
    int64_t from = 0;
    for (size_t i = 0; i < pieces.size(); i++) {
        if (ahead < pieces.size()) from = static_cast<int64_t>(i % ahead * largest * others);
        for (size_t r = 0; r < gives.size(); r++) {
            if (static_cast<int>(r) == rank_) {
                parts[i].push_back(gives[r][i]);
                continue;
            }
            const auto room = scratch.narrow(0, from, static_cast<int64_t>(pieces[i].nbytes()));
            parts[i].push_back(room.view(pieces[i].scalar_type()));
            taken[r].push_back(parts[i].back());
            from += static_cast<int64_t>(room_of(pieces[i]));
        }
    }
    const int divisor = reduction.op_ == ReduceOp::AVG ? size_ : 1;
    const auto which = transport_reduction(reduction, results[0]);
    transfer.finish.push_back([this, scratch] { keep_scratch(scratch); });
    auto what = transfer.said;
    what.given = std::move(gives);
    what.taken = std::move(taken);
    what.ahead = ahead;
    what.timeout = timeout;
    if (!passing.to.empty()) {
        what.arrives_after_sent = false;
        for (const bool wants : passing.to) what.passed.push_back(wants ? pieces : Tensors());
        for (const auto &each : passing.gathered) what.gathered.push_back(in_pieces(each, size_));
    }
    what.arrived = [parts, pieces, which, divisor](const Exchange::Arrival &arrival) {
        const auto i = arrival.index;
        if (i >= pieces.size()) return; // other ranks' parts may be larger
        if (arrival.in_memory.empty())
            openxpu::reduce(which, parts[i], pieces[i], divisor, arrival.alone);
        else
            reduce_piece(which, parts[i], pieces[i], divisor, arrival);
    };
    if (whole.defined()) {
        what.whole = whole.view(-1);
        what.whole_arrived = [parts = Tensors(static_cast<size_t>(size_), what.whole), to = what.whole, which,
                              divisor](const Exchange::Arrival &arrival) {
            reduce_piece(which, parts, to, divisor, arrival);
        };
    }
    return transfer.exchange = begin(std::move(what));
}

// Reduces a tensor. Small tensors are sent whole; otherwise each rank reduces a share and forwards the result
// to the ranks that need it.
WorkPtr CollectiveBackend::reduce_whole(const Tensor &whole, int root, const ReduceOp &reduction,
                                        Transfer &transfer, std::chrono::milliseconds timeout) {
    const auto own = static_cast<size_t>(rank_), size = static_cast<size_t>(size_);
    const auto wants = [root](size_t rank) { return root == everyone || static_cast<int>(rank) == root; };
    TensorLists given(size);
    if (goes_whole(whole)) {
        for (size_t r = 0; r < size; r++)
            if (wants(r)) given[r] = {whole};
        if (!wants(own)) return pass_straight(given, {}, transfer, timeout);
        return reduce_straight(given, {whole}, reduction, transfer, timeout);
    }
    const auto shares = shares_of(whole, size_);
    Passing passing;
    for (size_t r = 0; r < size; r++) {
        given[r] = {shares[r]};
        passing.to.push_back(r != own && wants(r));
        passing.gathered.push_back(r != own && wants(own) ? Tensors{shares[r]} : Tensors());
    }
    const auto result = wants(own) ? shares[own] : at::empty_like(shares[own]);
    // Through shared memory, sending it whole needs one wait instead of two, and no more copies.
    const bool may_be_given_whole = memory_ && root == everyone &&
                                    whole.nbytes() <= SEGMENT_SLOTS * memory_->slot_bytes() &&
                                    whole.nbytes() * (size - 1) <= 1 << 20;
    return reduce_straight(given, {result}, reduction, transfer, timeout, passing,
                           may_be_given_whole ? whole : Tensor());
}

WorkPtr CollectiveBackend::pass_straight(const TensorLists &given, const TensorLists &taken,
                                         Transfer &transfer, std::chrono::milliseconds timeout) {
    const auto own = static_cast<size_t>(rank_);
    if (!given.empty() && !taken.empty())
        transfer.finish.push_back([from = given[own], to = taken[own]] {
            for (size_t i = 0; i < to.size(); i++)
                if (from[i].data_ptr() != to[i].data_ptr())
                    std::memcpy(to[i].data_ptr(), from[i].data_ptr(), to[i].nbytes());
        });
    auto what = transfer.said;
    what.given = given;
    what.taken = taken;
    what.timeout = timeout;
    return transfer.exchange = begin(std::move(what));
}

// Broadcast. With large tensors and many ranks, each rank receives a share from the root and forwards it to
// the others.
WorkPtr CollectiveBackend::pass_whole(const Tensor &whole, int root, Transfer &transfer,
                                      std::chrono::milliseconds timeout) {
    const auto from = static_cast<size_t>(root), own = static_cast<size_t>(rank_);
    const auto size = static_cast<size_t>(size_);
    auto what = transfer.said;
    what.timeout = timeout;
    what.given.resize(size);
    what.taken.resize(size);
    if (size_ <= 3 || goes_whole(whole)) {
        if (rank_ != root)
            what.taken[from] = {whole};
        else
            for (size_t r = 0; r < size; r++) what.given[r] = {whole};
        return transfer.exchange = begin(std::move(what));
    }
    TensorLists shares;
    for (const auto &share : shares_of(whole, size_)) shares.push_back(in_pieces(share, size_));
    what.passed.resize(size);
    what.gathered.resize(size);
    if (rank_ != root) what.taken[from] = shares[own];
    for (size_t r = 0; r < size; r++) {
        if (r == own) continue;
        if (rank_ == root)
            what.given[r] = shares[r];
        else
            what.gathered[r] = shares[r];
        if (r != from) what.passed[r] = shares[own];
    }
    return transfer.exchange = begin(std::move(what));
}

// Begins an exchange. If its data is still being copied from a device, the starter thread waits for it and
// begins such exchanges in order.
c10::intrusive_ptr<ExchangeWork> CollectiveBackend::begin(Exchange what) {
    auto exchange = c10::make_intrusive<ExchangeWork>(transport_, std::move(what), memory_);
    if (exchange->is_to_start()) starter_->add([exchange] { exchange->start(); });
    return exchange;
}

// A send to, or receive from, one rank. Messages with the same tag keep their order on both ranks.
WorkPtr CollectiveBackend::pass_between(const Tensors &tensors, bool sends, int other, int tag,
                                        Transfer &transfer) {
    auto what = transfer.said;
    (sends ? what.given : what.taken) = {tensors};
    what.to = sends ? other : nobody;
    what.from = sends ? nobody : other;
    what.tag = tag;
    const std::lock_guard guard(numbering_); // held so that operations start in the order of their numbers
    if (other == anyone) from_anyone_.insert(tag);
    what.is_late = !sends && from_anyone_.count(tag);
    if (!what.is_late) what.number = (sends ? sent_ : received_)[{other, tag}]++;
    return transfer.exchange = begin(std::move(what));
}

WorkPtr CollectiveBackend::or_refuse(const char *title, const std::function<WorkPtr()> &call) {
    check_process(title);
    const auto before = getSequenceNumberForGroup();
    try {
        return call();
    } catch (const c10::Error &error) {
        if (getSequenceNumberForGroup() == before) refuse(title, error.what_without_backtrace());
        throw;
    }
}

// Announces a collective that this rank rejected, because other ranks may have begun it. It takes a number
// here, too.
void CollectiveBackend::refuse(const char *title, const std::string &why) {
    uint64_t number;
    {
        const std::lock_guard guard(lock_);
        if (size_ == 1 || !given_up_.empty()) return;
        number = ++issued_;
    }
    try {
        const auto what = why.rfind(title, 0) == 0 ? why : c10::str(title, ": ", why);
        failure_log_.record_failure(number, what);
        keep(c10::make_intrusive<ExchangeWork>(
            transport_, Exchange{.number = number, .what = what, .refuses = true, .from = nobody}, memory_));
    } catch (const std::exception &) {} // the group is shutting down
}

// --- operations ---

namespace {

const Tensor &only(const char *title, const Tensors &tensors) {
    TORCH_CHECK_VALUE(tensors.size() == 1, title, ": expected one tensor, but got ", tensors.size());
    return tensors[0];
}

} // namespace

WorkPtr CollectiveBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) {
    const auto *title = "xccl:broadcast";
    return or_refuse(title, [&] {
        only(title, tensors);
        const int root = root_among(options.rootRank, size_);
        return run({.type = OpType::BROADCAST,
                    .title = title,
                    .reads_outputs = rank_ == root,
                    .alike = Collective::outputs,
                    .root = root,
                    .is_straight = true,
                    .is_awaited = !options.asyncOp},
                   {}, {tensors}, [=, this](auto &, auto &to, auto &transfer) {
                       return pass_whole(to[0][0], root, transfer, options.timeout);
                   });
    });
}

WorkPtr CollectiveBackend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) {
    const auto *title = "xccl:all_reduce";
    return or_refuse(title, [&] {
        const bool is_straight = !only(title, tensors).is_sparse();
        return run({.type = OpType::ALLREDUCE,
                    .title = title,
                    .reduces = options.reduceOp,
                    .reads_outputs = true,
                    .alike = Collective::outputs,
                    .is_straight = is_straight,
                    .is_awaited = !options.asyncOp},
                   {}, {tensors}, [=, this](auto &, auto &to, auto &transfer) {
                       if (!is_straight)
                           return transport_->allreduce(to[0], transport_options(options, to[0][0]));
                       return reduce_whole(to[0][0], everyone, options.reduceOp, transfer, options.timeout);
                   });
    });
}

WorkPtr CollectiveBackend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) {
    return allreduce(tensors, options);
}

WorkPtr CollectiveBackend::allreduce_coalesced(Tensors &tensors,
                                               const c10d::AllreduceCoalescedOptions &options) {
    const auto *title = "xccl:allreduce_coalesced";
    return or_refuse(title, [&] {
        TORCH_CHECK_VALUE(!tensors.empty(), title, ": expected tensors, but got none");
        for (const auto &each : tensors)
            TORCH_CHECK_TYPE(each.scalar_type() == tensors[0].scalar_type(), title,
                             ": expected tensors of one dtype, but got ", each.scalar_type(), " and ",
                             tensors[0].scalar_type());
        return run({.type = OpType::ALLREDUCE_COALESCED,
                    .title = title,
                    .reduces = options.reduceOp,
                    .reads_outputs = true,
                    .as = Collective::flat,
                    .alike = Collective::outputs,
                    .is_straight = true,
                    .is_awaited = !options.asyncOp,
                    .is_read_at_once = tensors.size() > 1},
                   {}, {tensors}, [=, this](auto &, auto &to, auto &transfer) {
                       const auto whole = to[0].size() == 1 ? to[0][0] : at::cat(to[0]);
                       if (to[0].size() > 1)
                           transfer.finish.push_back([whole, all = to[0]] {
                               int64_t from = 0;
                               for (auto each : all) {
                                   each.copy_(whole.narrow(0, from, each.numel()));
                                   from += each.numel();
                               }
                           });
                       return reduce_whole(whole, everyone, options.reduceOp, transfer, options.timeout);
                   });
    });
}

WorkPtr CollectiveBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &options) {
    const auto *title = "xccl:reduce";
    return or_refuse(title, [&] {
        only(title, tensors);
        const int root = root_among(options.rootRank, size_);
        return run({.type = OpType::REDUCE,
                    .title = title,
                    .reduces = options.reduceOp,
                    .reads_outputs = true,
                    .alike = Collective::outputs,
                    .root = root,
                    .is_straight = true,
                    .is_awaited = !options.asyncOp},
                   {}, {tensors}, [=, this](auto &, auto &to, auto &transfer) {
                       return reduce_whole(to[0][0], root, options.reduceOp, transfer, options.timeout);
                   });
    });
}

WorkPtr CollectiveBackend::allgather(TensorLists &outputs, Tensors &inputs,
                                     const c10d::AllgatherOptions &options) {
    const auto *title = "xccl:all_gather";
    return or_refuse(title, [&] {
        TORCH_CHECK_VALUE(outputs.size() == 1 && inputs.size() == 1 &&
                              static_cast<int>(outputs[0].size()) == size_,
                          title, ": expected one tensor and ", size_, " outputs, one for each rank");
        const auto &own = outputs[0][static_cast<size_t>(rank_)];
        for (const auto &each : outputs[0])
            TORCH_CHECK_TYPE(each.scalar_type() == inputs[0].scalar_type(), title, ": the input has dtype ",
                             inputs[0].scalar_type(), ", but the output ", each.scalar_type());
        TORCH_CHECK_VALUE(inputs[0].numel() == own.numel(), title, ": rank ", rank_,
                          " has an output for itself of ", own.numel(), " elements, but its input has ",
                          inputs[0].numel());
        return run(
            {.type = OpType::ALLGATHER, .title = title, .is_straight = true, .is_awaited = !options.asyncOp},
            {inputs}, outputs, [=, this](auto &from, auto &to, auto &transfer) {
                TensorLists taken;
                for (const auto &each : to[0]) taken.push_back({each});
                return pass_straight(TensorLists(taken.size(), from[0]), taken, transfer, options.timeout);
            });
    });
}

WorkPtr CollectiveBackend::_allgather_base(Tensor &output, Tensor &input,
                                           const c10d::AllgatherOptions &options) {
    return gather_whole(OpType::_ALLGATHER_BASE, "xccl:_all_gather_base", {output}, {input}, options);
}

WorkPtr CollectiveBackend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                           const c10d::AllgatherOptions &options) {
    return gather_whole(OpType::COALESCED, "xccl:all_gather_into_tensor_coalesced", outputs, inputs, options);
}

// Each output is all ranks' inputs, one after the other.
WorkPtr CollectiveBackend::gather_whole(OpType type, const char *title, const Tensors &outputs,
                                        const Tensors &inputs, const c10d::AllgatherOptions &options) {
    return or_refuse(title, [&] {
        TORCH_CHECK_VALUE(!outputs.empty() && outputs.size() == inputs.size(), title, ": ", inputs.size(),
                          " inputs for ", outputs.size(), " outputs");
        for (size_t i = 0; i < outputs.size(); i++) {
            TORCH_CHECK_TYPE(inputs[i].scalar_type() == outputs[i].scalar_type(),
                             "output tensor must have the same type as input tensor");
            TORCH_CHECK_VALUE(inputs[i].numel() * size_ == outputs[i].numel(),
                              "output tensor size must be equal to world_size times input tensor size");
        }
        return run({.type = type,
                    .title = title,
                    .as = Collective::flat,
                    .alike = Collective::inputs,
                    .is_straight = true,
                    .is_awaited = !options.asyncOp},
                   {inputs}, {outputs}, [=, this](auto &from, auto &to, auto &transfer) {
                       const TensorLists given(static_cast<size_t>(size_), from[0]);
                       return pass_straight(given, parts_of(to[0], size_), transfer, options.timeout);
                   });
    });
}

WorkPtr CollectiveBackend::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                               const c10d::AllgatherOptions &options) {
    const auto *title = "xccl:all_gather_into_tensor_coalesced";
    return or_refuse(title, [&] {
        TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == size_, title, ": expected ", size_,
                          " lists, one for each rank, but got ", outputs.size());
        for (const auto &list : outputs) {
            TORCH_CHECK_VALUE(list.size() == inputs.size(), title, ": ", inputs.size(), " inputs for ",
                              list.size(), " outputs");
            for (size_t i = 0; i < list.size(); i++) {
                TORCH_CHECK_TYPE(inputs[i].scalar_type() == list[i].scalar_type(),
                                 "output tensor must have the same type as input tensor");
                TORCH_CHECK_VALUE(inputs[i].numel() == list[i].numel(), title, ": an input has ",
                                  inputs[i].numel(), " elements, but the output has ", list[i].numel());
            }
        }
        return run({.type = OpType::ALLGATHER_COALESCED,
                    .title = title,
                    .alike = Collective::inputs,
                    .is_straight = true,
                    .is_awaited = !options.asyncOp},
                   {inputs}, outputs, [=, this](auto &from, auto &to, auto &transfer) {
                       const TensorLists given(static_cast<size_t>(size_), from[0]);
                       return pass_straight(given, to, transfer, options.timeout);
                   });
    });
}

// A list on the root, of one size and dtype, is what each rank gives or gets; none on others.
void CollectiveBackend::check_root_list(const char *title, const TensorLists &lists, const Tensor &own,
                                        int64_t root) const {
    if (root_among(root, size_) != rank_) {
        TORCH_CHECK_VALUE(lists.empty() || (lists.size() == 1 && lists[0].empty()), title,
                          ": only the root, rank ", root, ", may pass a list of tensors");
        return;
    }
    TORCH_CHECK_VALUE(lists.size() == 1 && static_cast<int>(lists[0].size()) == size_, title,
                      ": expected a list of ", size_, " tensors on the root, one for each rank");
    for (const auto &each : lists[0]) {
        TORCH_CHECK_TYPE(each.scalar_type() == own.scalar_type(), title,
                         ": expected tensors of one dtype, but got ", each.scalar_type(), " and ",
                         own.scalar_type());
        TORCH_CHECK_VALUE(each.sizes() == own.sizes(), title, ": expected tensors of one size, but got ",
                          each.sizes(), " and ", own.sizes());
    }
}

WorkPtr CollectiveBackend::gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &options) {
    const auto *title = "xccl:gather";
    return or_refuse(title, [&] {
        TORCH_CHECK_VALUE(inputs.size() == 1, title, ": expected one tensor, but got ", inputs.size());
        check_root_list(title, outputs, inputs[0], options.rootRank);
        return run({.type = OpType::GATHER,
                    .title = title,
                    .alike = Collective::inputs,
                    .root = static_cast<int>(options.rootRank),
                    .is_straight = true,
                    .is_awaited = !options.asyncOp},
                   {inputs}, outputs, [=, this](auto &from, auto &to, auto &transfer) {
                       TensorLists given(static_cast<size_t>(size_)), taken;
                       given[static_cast<size_t>(options.rootRank)] = from[0];
                       if (rank_ == options.rootRank)
                           for (const auto &each : to[0]) taken.push_back({each});
                       return pass_straight(given, taken, transfer, options.timeout);
                   });
    });
}

WorkPtr CollectiveBackend::scatter(Tensors &outputs, TensorLists &inputs,
                                   const c10d::ScatterOptions &options) {
    const auto *title = "xccl:scatter";
    return or_refuse(title, [&] {
        TORCH_CHECK_VALUE(outputs.size() == 1, title, ": expected one tensor, but got ", outputs.size());
        check_root_list(title, inputs, outputs[0], options.rootRank);
        return run({.type = OpType::SCATTER,
                    .title = title,
                    .alike = Collective::outputs,
                    .root = static_cast<int>(options.rootRank),
                    .is_straight = true,
                    .is_awaited = !options.asyncOp},
                   inputs, {outputs}, [=, this](auto &from, auto &to, auto &transfer) {
                       TensorLists given, taken(static_cast<size_t>(size_));
                       taken[static_cast<size_t>(options.rootRank)] = to[0];
                       if (rank_ == options.rootRank)
                           for (const auto &each : from[0]) given.push_back({each});
                       return pass_straight(given, taken, transfer, options.timeout);
                   });
    });
}

WorkPtr CollectiveBackend::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                          const c10d::ReduceScatterOptions &options) {
    const auto *title = "xccl:reduce_scatter";
    return or_refuse(title, [&] {
        TORCH_CHECK_VALUE(
            outputs.size() == 1 && inputs.size() == 1 && static_cast<int>(inputs[0].size()) == size_, title,
            ": expected one output and a list of ", size_, " tensors, one for each rank");
        const auto &own = inputs[0][static_cast<size_t>(rank_)];
        TORCH_CHECK_TYPE(own.scalar_type() == outputs[0].scalar_type(),
                         "input tensor must be the same type as the output tensor.");
        TORCH_CHECK_VALUE(own.numel() == outputs[0].numel(), title, ": rank ", rank_, " has an output of ",
                          outputs[0].numel(), " elements, but its input for itself has ", own.numel(),
                          " elements");
        return run({.type = OpType::REDUCE_SCATTER,
                    .title = title,
                    .reduces = options.reduceOp,
                    .is_straight = true,
                    .is_awaited = !options.asyncOp},
                   inputs, {outputs}, [=, this](auto &from, auto &to, auto &transfer) {
                       TensorLists given;
                       for (const auto &each : from[0]) given.push_back({each});
                       return reduce_straight(given, to[0], options.reduceOp, transfer, options.timeout);
                   });
    });
}

WorkPtr CollectiveBackend::_reduce_scatter_base(Tensor &output, Tensor &input,
                                                const c10d::ReduceScatterOptions &options) {
    return scatter_whole(OpType::_REDUCE_SCATTER_BASE, "xccl:_reduce_scatter_base", {output}, {input},
                         options);
}

WorkPtr CollectiveBackend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                           const c10d::ReduceScatterOptions &options) {
    return scatter_whole(OpType::REDUCE_SCATTER, "xccl:reduce_scatter_tensor_coalesced", outputs, inputs,
                         options);
}

// Each output is this rank's part of the reduction of an input.
WorkPtr CollectiveBackend::scatter_whole(OpType type, const char *title, const Tensors &outputs,
                                         const Tensors &inputs, const c10d::ReduceScatterOptions &options) {
    return or_refuse(title, [&] {
        TORCH_CHECK_VALUE(!outputs.empty() && outputs.size() == inputs.size(), title, ": ", inputs.size(),
                          " inputs for ", outputs.size(), " outputs");
        for (size_t i = 0; i < outputs.size(); i++) {
            TORCH_CHECK_TYPE(inputs[i].scalar_type() == outputs[i].scalar_type(),
                             "input tensor must be the same type as the output tensor.");
            TORCH_CHECK_VALUE(inputs[i].numel() == outputs[i].numel() * size_,
                              "input tensor must be the same size as output size times world size");
        }
        return run({.type = type,
                    .title = title,
                    .reduces = options.reduceOp,
                    .as = Collective::flat,
                    .alike = Collective::outputs,
                    .is_straight = true,
                    .is_awaited = !options.asyncOp},
                   {inputs}, {outputs}, [=, this](auto &from, auto &to, auto &transfer) {
                       return reduce_straight(parts_of(from[0], size_), to[0], options.reduceOp, transfer,
                                              options.timeout);
                   });
    });
}

WorkPtr CollectiveBackend::alltoall_base(Tensor &output, Tensor &input, std::vector<int64_t> &output_rows,
                                         std::vector<int64_t> &input_rows,
                                         const c10d::AllToAllOptions &options) {
    const auto *title = "xccl:all_to_all";
    return or_refuse(title, [&] {
        TORCH_CHECK_TYPE(input.scalar_type() == output.scalar_type(), title, ": the input has dtype ",
                         input.scalar_type(), ", but the output ", output.scalar_type());
        const auto taken = rows_of(output, output_rows, size_), given = rows_of(input, input_rows, size_);
        const auto own = static_cast<size_t>(rank_);
        const auto row = [](const Tensor &all) { return all.numel() / std::max<int64_t>(all.size(0), 1); };
        TORCH_CHECK_VALUE(given[own] * row(input) == taken[own] * row(output), title, ": rank ", rank_,
                          " sends itself ", given[own], " rows, but receives ", taken[own]);
        return run({.type = OpType::ALLTOALL_BASE,
                    .title = title,
                    .as = Collective::rows,
                    .is_straight = true,
                    .is_awaited = !options.asyncOp},
                   {{input}}, {{output}}, [=, this](auto &from, auto &to, auto &transfer) {
                       TensorLists gives, takes;
                       for (auto &part : from[0][0].split_with_sizes(given)) gives.push_back({part});
                       for (auto &part : to[0][0].split_with_sizes(taken)) takes.push_back({part});
                       return pass_straight(gives, takes, transfer, options.timeout);
                   });
    });
}

WorkPtr CollectiveBackend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) {
    const auto *title = "xccl:all_to_all";
    return or_refuse(title, [&] {
        for (const auto *list : {&inputs, &outputs})
            TORCH_CHECK_VALUE(static_cast<int>(list->size()) == size_, title, ": expected ", size_,
                              " tensors in each list, one for each rank, but got ", list->size());
        const auto own = static_cast<size_t>(rank_);
        TORCH_CHECK_VALUE(inputs[own].numel() == outputs[own].numel(), title, ": rank ", rank_,
                          " sends itself ", inputs[own].numel(), " elements, but receives ",
                          outputs[own].numel());
        for (const auto *list : {&inputs, &outputs})
            for (const auto &each : *list)
                TORCH_CHECK_TYPE(each.scalar_type() == outputs[0].scalar_type(), title,
                                 ": expected tensors of one dtype, but got ", each.scalar_type(), " and ",
                                 outputs[0].scalar_type());
        return run(
            {.type = OpType::ALLTOALL, .title = title, .is_straight = true, .is_awaited = !options.asyncOp},
            {inputs}, {outputs}, [=, this](auto &from, auto &to, auto &transfer) {
                TensorLists given, taken;
                for (const auto &each : from[0]) given.push_back({each});
                for (const auto &each : to[0]) taken.push_back({each});
                return pass_straight(given, taken, transfer, options.timeout);
            });
    });
}

static void check_tag(int tag) {
    TORCH_CHECK_VALUE(tag < first_exchange_tag, "tags from ", first_exchange_tag,
                      " on are reserved, but got ", tag);
}

static void check_partner(const char *title, int other, int rank, int size) {
    TORCH_CHECK_VALUE(other >= 0 && other < size && other != rank, title, ": rank ", rank,
                      " can't communicate with rank ", other, " in a group of size ", size);
}

WorkPtr CollectiveBackend::send(Tensors &tensors, int to, int tag) {
    const auto *title = "xccl:send";
    check_tag(tag);
    check_partner(title, to, rank_, size_);
    only(title, tensors);
    return run({.type = OpType::SEND, .title = title, .root = to, .is_between_two = true}, {tensors}, {},
               [=, this](auto &from, auto &, auto &transfer) {
                   return pass_between(from[0], true, to, tag, transfer);
               });
}

WorkPtr CollectiveBackend::recv(Tensors &tensors, int from, int tag) {
    const auto *title = "xccl:recv";
    check_tag(tag);
    check_partner(title, from, rank_, size_);
    only(title, tensors);
    return run({.type = OpType::RECV, .title = title, .root = from, .is_between_two = true}, {}, {tensors},
               [=, this](auto &, auto &to, auto &transfer) {
                   return pass_between(to[0], false, from, tag, transfer);
               });
}

WorkPtr CollectiveBackend::recvAnysource(Tensors &tensors, int tag) {
    const auto *title = "xccl:recv";
    check_tag(tag);
    only(title, tensors);
    return run({.type = OpType::RECVANYSOURCE, .title = title, .is_between_two = true}, {}, {tensors},
               [=, this](auto &, auto &to, auto &transfer) {
                   return pass_between(to[0], false, anyone, tag, transfer);
               });
}

// Earlier work of the current stream completes first. Every rank exchanges a message with every other one.
WorkPtr CollectiveBackend::barrier(const c10d::BarrierOptions &options) {
    const Collective collective{.type = OpType::BARRIER,
                                .title = "xccl:barrier",
                                .alike = Collective::inputs,
                                .is_straight = true,
                                .is_awaited = !options.asyncOp};
    const Issue issue = [timeout = options.timeout, this](auto &, auto &, auto &transfer) {
        return pass_straight({}, {}, transfer, timeout);
    };
    const c10::impl::VirtualGuardImpl impl(c10::kXPU);
    if (impl.deviceCount()) {
        const auto device = options.device && options.device->is_xpu() ? *options.device : impl.getDevice();
        if (xpu_stream_is_capturing(current_stream(device.index())))
            return record(collective, device, {}, {}, issue);
        impl.synchronizeStream(impl.getStream(device));
    }
    return run(collective, {}, {}, issue);
}

void CollectiveBackend::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_for_all) {
    transport_->monitoredBarrier(options, wait_for_all);
}

} // namespace openxpu
