// The calls of a process group: what each hands to the carrier.
#include "backend.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <numeric>

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

// The options with a reduction that the carrier has.
template <typename Options> Options summing(Options options) {
    if (options.reduceOp.op_ == ReduceOp::AVG || options.reduceOp.op_ == ReduceOp::PREMUL_SUM)
        options.reduceOp = ReduceOp(ReduceOp::SUM);
    return options;
}

} // namespace

// Sends a list's tensors to the ranks, joined, with their lengths; what is received is parted by `returns`.
WorkPtr CollectiveBackend::exchange(const Tensors &from, const Tensors &to, std::vector<Return> &returns,
                                    const c10d::AllToAllOptions &options) {
    std::vector<int64_t> lengths[2];
    Tensors flat[2];
    for (int i = 0; i < 2; i++)
        for (const auto &tensor : i ? to : from) {
            flat[i].push_back(tensor.view(-1));
            lengths[i].push_back(tensor.numel());
        }
    auto sent = at::cat(flat[0]);
    auto received =
        at::empty({std::accumulate(lengths[1].begin(), lengths[1].end(), int64_t{0})}, sent.options());
    const auto parts = received.split_with_sizes(lengths[1]);
    for (size_t i = 0; i < parts.size(); i++)
        returns.insert(returns.begin() + static_cast<long>(i), {flat[1][i], parts[i]});
    return carrier_->alltoall_base(received, sent, lengths[1], lengths[0], options);
}

WorkPtr CollectiveBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) {
    return run({.type = OpType::BROADCAST,
                .title = "xccl:broadcast",
                .reads_outputs = rank_ == options.rootRank,
                .alike = Collective::outputs,
                .root = root_among(options.rootRank, size_)},
               {}, {tensors}, [&](auto &, auto &to, auto &) { return carrier_->broadcast(to[0], options); });
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
                .alike = Collective::outputs},
               {}, {tensors},
               [&](auto &, auto &to, auto &) { return carrier_->allreduce(to[0], summing(options)); });
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
               {}, {tensors}, [&](auto &, auto &to, auto &) {
                   return carrier_->allreduce_coalesced(to[0], summing(options));
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
               {}, {tensors},
               [&](auto &, auto &to, auto &) { return carrier_->reduce(to[0], summing(options)); });
}

WorkPtr CollectiveBackend::allgather(TensorLists &outputs, Tensors &inputs,
                                     const c10d::AllgatherOptions &options) {
    // All ranks see all sizes, and so whether Gloo has a ring for them.
    const bool differ =
        outputs.size() == 1 && inputs.size() == 1 && static_cast<int>(outputs[0].size()) == size_ &&
        std::any_of(outputs[0].begin(), outputs[0].end(),
                    [&](const Tensor &each) { return each.numel() != outputs[0][0].numel(); });
    if (differ) {
        TORCH_CHECK_VALUE(inputs[0].numel() == outputs[0][rank_].numel(), "xccl:all_gather: rank ", rank_,
                          " has a place for ", outputs[0][rank_].numel(), " elements of its own, but gives ",
                          inputs[0].numel());
        c10d::AllToAllOptions each;
        each.timeout = options.timeout;
        each.asyncOp = options.asyncOp;
        return run({.type = OpType::ALLGATHER, .title = "xccl:all_gather"}, {inputs}, outputs,
                   [&](auto &from, auto &to, auto &returns) {
                       return exchange(Tensors(static_cast<size_t>(size_), from[0][0]), to[0], returns, each);
                   });
    }
    return run({.type = OpType::ALLGATHER, .title = "xccl:all_gather", .alike = Collective::inputs}, {inputs},
               outputs,
               [&](auto &from, auto &to, auto &) { return carrier_->allgather(to, from[0], options); });
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
               {{input}}, {{output}}, [&](auto &from, auto &to, auto &) {
                   return carrier_->_allgather_base(to[0][0], from[0][0], options);
               });
}

WorkPtr CollectiveBackend::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                               const c10d::AllgatherOptions &options) {
    return run({.type = OpType::ALLGATHER_COALESCED, .title = "xccl:all_gather", .alike = Collective::inputs},
               {inputs}, outputs, [&](auto &from, auto &to, auto &) {
                   return carrier_->allgather_coalesced(to, from[0], options);
               });
}

WorkPtr CollectiveBackend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                           const c10d::AllgatherOptions &options) {
    return run({.type = OpType::COALESCED,
                .title = "xccl:all_gather",
                .as = Collective::flat,
                .alike = Collective::inputs},
               {inputs}, {outputs}, [&](auto &from, auto &to, auto &) {
                   return carrier_->allgather_into_tensor_coalesced(to[0], from[0], options);
               });
}

WorkPtr CollectiveBackend::gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &options) {
    return run({.type = OpType::GATHER,
                .title = "xccl:gather",
                .alike = Collective::inputs,
                .root = root_among(options.rootRank, size_)},
               {inputs}, outputs,
               [&](auto &from, auto &to, auto &) { return carrier_->gather(to, from[0], options); });
}

WorkPtr CollectiveBackend::scatter(Tensors &outputs, TensorLists &inputs,
                                   const c10d::ScatterOptions &options) {
    return run({.type = OpType::SCATTER,
                .title = "xccl:scatter",
                .alike = Collective::outputs,
                .root = root_among(options.rootRank, size_)},
               inputs, {outputs},
               [&](auto &from, auto &to, auto &) { return carrier_->scatter(to[0], from, options); });
}

WorkPtr CollectiveBackend::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                          const c10d::ReduceScatterOptions &options) {
    return run({.type = OpType::REDUCE_SCATTER,
                .title = "xccl:reduce_scatter",
                .reduces = options.reduceOp,
                .alike = Collective::outputs},
               inputs, {outputs}, [&](auto &from, auto &to, auto &) {
                   return carrier_->reduce_scatter(to[0], from, summing(options));
               });
}

WorkPtr CollectiveBackend::_reduce_scatter_base(Tensor &output, Tensor &input,
                                                const c10d::ReduceScatterOptions &options) {
    TORCH_CHECK_TYPE(input.scalar_type() == output.scalar_type(),
                     "input tensor must be the same type as the output tensor.");
    TORCH_CHECK_VALUE(input.numel() == output.numel() * size_,
                      "input tensor must be the same size as output size times world size");
    return run({.type = OpType::_REDUCE_SCATTER_BASE,
                .title = "xccl:_reduce_scatter_base",
                .reduces = options.reduceOp,
                .as = Collective::flat,
                .alike = Collective::outputs},
               {{input}}, {{output}}, [&](auto &from, auto &to, auto &) {
                   return carrier_->_reduce_scatter_base(to[0][0], from[0][0], summing(options));
               });
}

WorkPtr CollectiveBackend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                           const c10d::ReduceScatterOptions &options) {
    return run({.type = OpType::_REDUCE_SCATTER_BASE,
                .title = "xccl:reduce_scatter",
                .reduces = options.reduceOp,
                .as = Collective::flat,
                .alike = Collective::outputs},
               {inputs}, {outputs}, [&](auto &from, auto &to, auto &) {
                   return carrier_->reduce_scatter_tensor_coalesced(to[0], from[0], summing(options));
               });
}

WorkPtr CollectiveBackend::alltoall_base(Tensor &output, Tensor &input, std::vector<int64_t> &output_rows,
                                         std::vector<int64_t> &input_rows,
                                         const c10d::AllToAllOptions &options) {
    return run({.type = OpType::ALLTOALL_BASE, .title = "xccl:all_to_all", .as = Collective::rows}, {{input}},
               {{output}}, [&](auto &from, auto &to, auto &) {
                   return carrier_->alltoall_base(to[0][0], from[0][0], output_rows, input_rows, options);
               });
}

// Gloo has lists of tensors of one size only. All ranks join theirs: one can't see whether others have to.
WorkPtr CollectiveBackend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) {
    for (const auto *list : {&inputs, &outputs})
        TORCH_CHECK_VALUE(static_cast<int>(list->size()) == size_, "xccl:all_to_all: expected ", size_,
                          " tensors in each list, one for each rank, but got ", list->size());
    return run(
        {.type = OpType::ALLTOALL, .title = "xccl:all_to_all"}, {inputs}, {outputs},
        [&](auto &from, auto &to, auto &returns) { return exchange(from[0], to[0], returns, options); });
}

WorkPtr CollectiveBackend::send(Tensors &tensors, int to, int tag) {
    return run({.type = OpType::SEND, .title = "xccl:send", .root = to, .is_between_two = true}, {tensors},
               {}, [&](auto &from, auto &, auto &) { return carrier_->send(from[0], to, tag); });
}

WorkPtr CollectiveBackend::recv(Tensors &tensors, int from, int tag) {
    return run({.type = OpType::RECV, .title = "xccl:recv", .root = from, .is_between_two = true}, {},
               {tensors}, [&](auto &, auto &to, auto &) { return carrier_->recv(to[0], from, tag); });
}

WorkPtr CollectiveBackend::recvAnysource(Tensors &tensors, int tag) {
    return run({.type = OpType::RECVANYSOURCE, .title = "xccl:recv", .is_between_two = true}, {}, {tensors},
               [&](auto &, auto &to, auto &) { return carrier_->recvAnysource(to[0], tag); });
}

// What was given to the current stream before is done before it.
WorkPtr CollectiveBackend::barrier(const c10d::BarrierOptions &options) {
    const c10::impl::VirtualGuardImpl impl(c10::kXPU);
    if (impl.deviceCount()) {
        const auto device = options.device && options.device->is_xpu() ? *options.device : impl.getDevice();
        impl.synchronizeStream(impl.getStream(device));
    }
    return run({.type = OpType::BARRIER, .title = "xccl:barrier"}, {}, {},
               [&](auto &, auto &, auto &) { return carrier_->barrier(options); });
}

void CollectiveBackend::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_for_all) {
    carrier_->monitoredBarrier(options, wait_for_all);
}

} // namespace openxpu
