// The calls of a process group: what each hands to the carrier.
#include "backend.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>

#include "exchange.h"
#include "lower.h"
#include "work.h"

namespace openxpu {

using at::Tensor;
using c10d::OpType;
using c10d::ReduceOp;

namespace {

int root_among(int64_t root, int size) {
    TORCH_CHECK_VALUE(root >= 0 && root < size, "invalid root rank: ", root, " of ", size);
    return static_cast<int>(root);
}

// The reduction by which the carrier makes that of a tensor. A sum of truth values is whether one is true, as
// with NCCL.
ReduceOp::RedOpType carried_reduction(const ReduceOp &reduction, const Tensor &tensor) {
    const bool sums = reduction.op_ == ReduceOp::SUM || reduction.op_ == ReduceOp::AVG ||
                      reduction.op_ == ReduceOp::PREMUL_SUM;
    if (!sums) return reduction.op_;
    return tensor.scalar_type() == at::kBool ? ReduceOp::MAX : ReduceOp::SUM;
}

// The options with a reduction that the carrier has.
template <typename Options> Options carried_options(Options options, const Tensor &tensor) {
    options.reduceOp = ReduceOp(carried_reduction(options.reduceOp, tensor));
    return options;
}

bool differ_in_size(const Tensors &tensors) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const Tensor &each) { return each.numel() != tensors[0].numel(); });
}

} // namespace

// --- straight from rank to rank ---

// Of two ranks one sends no more than in a ring. With more, each sends all that it has to every other one,
// which is worth it while that takes no longer than the ring's messages, that wait for each other.
bool CollectiveBackend::goes_straight(const Tensor &whole) const {
    const size_t bytes = whole.is_sparse() ? 0 : whole.nbytes();
    if (whole.is_sparse() || size_ == 1) return false;
    return size_ == 2 ? bytes <= 1 << 20 : bytes <= 1 << 16 && bytes * static_cast<size_t>(size_) <= 4 << 20;
}

// Memory for what others send, kept for the next time: fresh pages take as long as the bytes that come into
// them.
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

WorkPtr CollectiveBackend::reduce_straight(const Tensors &given, const Tensor &result,
                                           const ReduceOp &reduction, Transfer &transfer,
                                           std::chrono::milliseconds timeout) {
    const auto length = result.numel();
    const auto bytes = result.nbytes() * static_cast<size_t>(size_ - 1);
    const auto scratch = take_scratch(bytes);
    auto parts = scratch.narrow(0, 0, static_cast<int64_t>(bytes))
                     .view(result.scalar_type())
                     .view({size_ - 1, length})
                     .unbind();
    parts.insert(parts.begin() + rank_, given[static_cast<size_t>(rank_)].view(-1));
    transfer.is_exchange = true;
    transfer.finish.push_back([this, scratch, parts, result = result.view(-1),
                               which = carried_reduction(reduction, result)](bool alone) {
        openxpu::reduce(which, parts, result, alone);
        keep_scratch(scratch);
    });
    return exchange(*carrier_, {given, parts, transfer.number, timeout});
}

WorkPtr CollectiveBackend::pass_straight(const Tensors &given, const Tensors &taken, Transfer &transfer,
                                         std::chrono::milliseconds timeout) {
    transfer.is_exchange = true;
    const auto own = static_cast<size_t>(rank_);
    transfer.finish.push_back([from = given[own], to = taken[own]](bool) {
        if (from.data_ptr() != to.data_ptr()) std::memcpy(to.data_ptr(), from.data_ptr(), to.nbytes());
    });
    return exchange(*carrier_, {given, taken, transfer.number, timeout});
}

// What this rank can't take part in has begun on others. They expect `bytes` from it, and get more, which
// ends them with an error, and on the board the reason.
void CollectiveBackend::refuse(const std::string &what, int64_t bytes) {
    if (size_ == 1) return;
    uint64_t number;
    {
        const std::lock_guard guard(lock_);
        number = ++issued_;
    }
    board_.tell_failure(number, what);
    const Tensors more(static_cast<size_t>(size_), at::zeros({bytes + 1}, at::kByte));
    const Tensors nothing(static_cast<size_t>(size_), at::empty({0}, at::kByte));
    auto work = exchange(*carrier_, {more, nothing, number, c10d::kUnsetTimeout});
    const std::lock_guard guard(lock_);
    refusals_.push_back(std::move(work));
}

// --- the calls ---

WorkPtr CollectiveBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) {
    return run({.type = OpType::BROADCAST,
                .title = "xccl:broadcast",
                .reads_outputs = rank_ == options.rootRank,
                .alike = Collective::outputs,
                .root = root_among(options.rootRank, size_)},
               {}, {tensors},
               [=, this](auto &, auto &to, auto &) { return carrier_->broadcast(to[0], options); });
}

// Tensors that are copied for the carrier go in pieces: while one is sent the next is copied down, and the
// last one back. Pieces below some megabytes cost more than they hide.
static constexpr size_t piece_bytes = 4 << 20;

bool CollectiveBackend::is_large_and_copied(const Tensors &tensors) {
    return tensors.size() == 1 && tensors[0].is_xpu() && !tensors[0].is_sparse() &&
           tensors[0].is_contiguous() && tensors[0].nbytes() >= 2 * piece_bytes &&
           !is_host_device(tensors[0].device().index());
}

WorkPtr CollectiveBackend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) {
    if (is_large_and_copied(tensors)) {
        const auto flat = tensors[0].view(-1);
        const auto length = static_cast<int64_t>(piece_bytes / flat.element_size());
        std::vector<WorkPtr> works;
        for (int64_t from = 0; from < flat.numel(); from += length) {
            Tensors piece{flat.narrow(0, from, std::min(length, flat.numel() - from))};
            works.push_back(allreduce(piece, options));
        }
        auto all = c10::make_intrusive<CoalescedWork>(rank_, std::move(works), OpType::ALLREDUCE);
        all->gather(tensors[0]);
        return all;
    }
    return run({.type = OpType::ALLREDUCE,
                .title = "xccl:all_reduce",
                .reduces = options.reduceOp,
                .reads_outputs = true,
                .alike = Collective::outputs,
                .is_awaited = !options.asyncOp},
               {}, {tensors}, [=, this](auto &, auto &to, auto &transfer) {
                   auto &tensor = to[0][0];
                   if (to[0].size() != 1 || !goes_straight(tensor))
                       return carrier_->allreduce(to[0], carried_options(options, tensor));
                   return reduce_straight(Tensors(static_cast<size_t>(size_), tensor), tensor,
                                          options.reduceOp, transfer, options.timeout);
               });
}

WorkPtr CollectiveBackend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) {
    return allreduce(tensors, options);
}

WorkPtr CollectiveBackend::allreduce_coalesced(Tensors &tensors,
                                               const c10d::AllreduceCoalescedOptions &options) {
    return run({.type = OpType::ALLREDUCE_COALESCED,
                .title = "xccl:all_reduce",
                .reduces = options.reduceOp,
                .reads_outputs = true,
                .alike = Collective::outputs},
               {}, {tensors}, [=, this](auto &, auto &to, auto &) {
                   return carrier_->allreduce_coalesced(to[0], carried_options(options, to[0][0]));
               });
}

WorkPtr CollectiveBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &options) {
    return run({.type = OpType::REDUCE,
                .title = "xccl:reduce",
                .reduces = options.reduceOp,
                .reads_outputs = true,
                .divides = rank_ == options.rootRank,
                .alike = Collective::outputs,
                .root = root_among(options.rootRank, size_)},
               {}, {tensors}, [=, this](auto &, auto &to, auto &) {
                   return carrier_->reduce(to[0], carried_options(options, to[0][0]));
               });
}

WorkPtr CollectiveBackend::allgather(TensorLists &outputs, Tensors &inputs,
                                     const c10d::AllgatherOptions &options) {
    TORCH_CHECK_VALUE(outputs.size() == 1 && inputs.size() == 1 &&
                          static_cast<int>(outputs[0].size()) == size_,
                      "xccl:all_gather: expected one tensor and ", size_, " places, one for each rank");
    const auto &own = outputs[0][static_cast<size_t>(rank_)];
    for (const auto &each : outputs[0])
        TORCH_CHECK_TYPE(each.scalar_type() == inputs[0].scalar_type(), "xccl:all_gather: a tensor of ",
                         inputs[0].scalar_type(), ", but a place of ", each.scalar_type());
    if (inputs[0].numel() != own.numel()) {
        const auto what =
            c10::str("xccl:all_gather of ", inputs[0].numel(), " elements, in a place for ", own.numel());
        refuse(what, static_cast<int64_t>(own.nbytes()));
        TORCH_CHECK_VALUE(false, "xccl:all_gather: rank ", rank_, " has a place for ", own.numel(),
                          " elements of its own, but gives ", inputs[0].numel());
    }
    return run({.type = OpType::ALLGATHER,
                .title = "xccl:all_gather",
                .alike = differ_in_size(outputs[0]) ? Collective::nobodys : Collective::inputs,
                .is_awaited = !options.asyncOp},
               {inputs}, outputs, [=, this](auto &from, auto &to, auto &transfer) {
                   return pass_straight(Tensors(static_cast<size_t>(size_), from[0][0]), to[0], transfer,
                                        options.timeout);
               });
}

WorkPtr CollectiveBackend::_allgather_base(Tensor &output, Tensor &input,
                                           const c10d::AllgatherOptions &options) {
    TORCH_CHECK_TYPE(input.scalar_type() == output.scalar_type(),
                     "output tensor must have the same type as input tensor");
    TORCH_CHECK_VALUE(input.numel() * size_ == output.numel(),
                      "output tensor size must be equal to world_size times input tensor size");
    return run({.type = OpType::_ALLGATHER_BASE,
                .title = "xccl:_all_gather_base",
                .as = Collective::flat,
                .alike = Collective::inputs},
               {{input}}, {{output}}, [=, this](auto &from, auto &to, auto &) {
                   return carrier_->_allgather_base(to[0][0], from[0][0], options);
               });
}

WorkPtr CollectiveBackend::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                               const c10d::AllgatherOptions &options) {
    return run({.type = OpType::ALLGATHER_COALESCED, .title = "xccl:all_gather", .alike = Collective::inputs},
               {inputs}, outputs, [=, this](auto &from, auto &to, auto &) {
                   return carrier_->allgather_coalesced(to, from[0], options);
               });
}

WorkPtr CollectiveBackend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                           const c10d::AllgatherOptions &options) {
    return run({.type = OpType::COALESCED,
                .title = "xccl:all_gather",
                .as = Collective::flat,
                .alike = Collective::inputs},
               {inputs}, {outputs}, [=, this](auto &from, auto &to, auto &) {
                   return carrier_->allgather_into_tensor_coalesced(to[0], from[0], options);
               });
}

WorkPtr CollectiveBackend::gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &options) {
    return run({.type = OpType::GATHER,
                .title = "xccl:gather",
                .alike = Collective::inputs,
                .root = root_among(options.rootRank, size_)},
               {inputs}, outputs,
               [=, this](auto &from, auto &to, auto &) { return carrier_->gather(to, from[0], options); });
}

WorkPtr CollectiveBackend::scatter(Tensors &outputs, TensorLists &inputs,
                                   const c10d::ScatterOptions &options) {
    return run({.type = OpType::SCATTER,
                .title = "xccl:scatter",
                .alike = Collective::outputs,
                .root = root_among(options.rootRank, size_)},
               inputs, {outputs},
               [=, this](auto &from, auto &to, auto &) { return carrier_->scatter(to[0], from, options); });
}

WorkPtr CollectiveBackend::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                          const c10d::ReduceScatterOptions &options) {
    TORCH_CHECK_VALUE(
        outputs.size() == 1 && inputs.size() == 1 && static_cast<int>(inputs[0].size()) == size_,
        "xccl:reduce_scatter: expected one output and a list of ", size_, " tensors, one for each rank");
    const auto &own = inputs[0][static_cast<size_t>(rank_)];
    TORCH_CHECK_TYPE(own.scalar_type() == outputs[0].scalar_type(),
                     "input tensor must be the same type as the output tensor.");
    TORCH_CHECK_VALUE(own.numel() == outputs[0].numel(), "xccl:reduce_scatter: rank ", rank_, " keeps ",
                      outputs[0].numel(), " elements, but gives ", own.numel(), " of its own");
    return run({.type = OpType::REDUCE_SCATTER,
                .title = "xccl:reduce_scatter",
                .reduces = options.reduceOp,
                .alike = differ_in_size(inputs[0]) ? Collective::nobodys : Collective::outputs,
                .is_awaited = !options.asyncOp},
               inputs, {outputs}, [=, this](auto &from, auto &to, auto &transfer) {
                   return reduce_straight(from[0], to[0][0], options.reduceOp, transfer, options.timeout);
               });
}

WorkPtr CollectiveBackend::_reduce_scatter_base(Tensor &output, Tensor &input,
                                                const c10d::ReduceScatterOptions &options) {
    return scatter_whole(OpType::_REDUCE_SCATTER_BASE, "xccl:_reduce_scatter_base", {output}, {input},
                         options);
}

WorkPtr CollectiveBackend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                           const c10d::ReduceScatterOptions &options) {
    return scatter_whole(OpType::REDUCE_SCATTER, "xccl:reduce_scatter", outputs, inputs, options);
}

// Each output is this rank's part of the reduction of an input.
WorkPtr CollectiveBackend::scatter_whole(OpType type, const char *title, const Tensors &outputs,
                                         const Tensors &inputs, const c10d::ReduceScatterOptions &options) {
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
                .is_awaited = !options.asyncOp},
               {inputs}, {outputs}, [=, this](auto &from, auto &to, auto &transfer) {
                   std::vector<WorkPtr> works;
                   for (size_t i = 0; i < to[0].size(); i++) {
                       const auto parts = from[0][i].view({size_, to[0][i].numel()}).unbind();
                       works.push_back(
                           reduce_straight(parts, to[0][i], options.reduceOp, transfer, options.timeout));
                   }
                   if (works.size() == 1) return works[0];
                   return WorkPtr(c10::make_intrusive<CoalescedWork>(rank_, std::move(works)));
               });
}

WorkPtr CollectiveBackend::alltoall_base(Tensor &output, Tensor &input, std::vector<int64_t> &output_rows,
                                         std::vector<int64_t> &input_rows,
                                         const c10d::AllToAllOptions &options) {
    return run({.type = OpType::ALLTOALL_BASE, .title = "xccl:all_to_all", .as = Collective::rows}, {{input}},
               {{output}}, [=, this](auto &from, auto &to, auto &) {
                   auto to_rows = output_rows, from_rows = input_rows;
                   return carrier_->alltoall_base(to[0][0], from[0][0], to_rows, from_rows, options);
               });
}

// Gloo has lists of tensors of one size only.
WorkPtr CollectiveBackend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) {
    for (const auto *list : {&inputs, &outputs})
        TORCH_CHECK_VALUE(static_cast<int>(list->size()) == size_, "xccl:all_to_all: expected ", size_,
                          " tensors in each list, one for each rank, but got ", list->size());
    const auto own = static_cast<size_t>(rank_);
    TORCH_CHECK_VALUE(inputs[own].numel() == outputs[own].numel(), "xccl:all_to_all: rank ", rank_,
                      " gives itself ", inputs[own].numel(), " elements, but has a place for ",
                      outputs[own].numel());
    return run({.type = OpType::ALLTOALL, .title = "xccl:all_to_all", .is_awaited = !options.asyncOp},
               {inputs}, {outputs}, [=, this](auto &from, auto &to, auto &transfer) {
                   return pass_straight(from[0], to[0], transfer, options.timeout);
               });
}

static void check_tag(int tag) {
    TORCH_CHECK_VALUE(tag < first_exchange_tag, "tags from ", first_exchange_tag,
                      " on are the group's own, but got ", tag);
}

WorkPtr CollectiveBackend::send(Tensors &tensors, int to, int tag) {
    check_tag(tag);
    return run({.type = OpType::SEND, .title = "xccl:send", .root = to, .is_between_two = true}, {tensors},
               {}, [=, this](auto &from, auto &, auto &) { return carrier_->send(from[0], to, tag); });
}

WorkPtr CollectiveBackend::recv(Tensors &tensors, int from, int tag) {
    check_tag(tag);
    return run({.type = OpType::RECV, .title = "xccl:recv", .root = from, .is_between_two = true}, {},
               {tensors}, [=, this](auto &, auto &to, auto &) { return carrier_->recv(to[0], from, tag); });
}

WorkPtr CollectiveBackend::recvAnysource(Tensors &tensors, int tag) {
    check_tag(tag);
    return run({.type = OpType::RECVANYSOURCE, .title = "xccl:recv", .is_between_two = true}, {}, {tensors},
               [=, this](auto &, auto &to, auto &) { return carrier_->recvAnysource(to[0], tag); });
}

// What was given to the current stream before is done before it.
WorkPtr CollectiveBackend::barrier(const c10d::BarrierOptions &options) {
    const c10::impl::VirtualGuardImpl impl(c10::kXPU);
    if (impl.deviceCount()) {
        const auto device = options.device && options.device->is_xpu() ? *options.device : impl.getDevice();
        impl.synchronizeStream(impl.getStream(device));
    }
    return run({.type = OpType::BARRIER, .title = "xccl:barrier"}, {}, {},
               [=, this](auto &, auto &, auto &) { return carrier_->barrier(options); });
}

void CollectiveBackend::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_for_all) {
    carrier_->monitoredBarrier(options, wait_for_all);
}

} // namespace openxpu
