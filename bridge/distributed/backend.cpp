#include "backend.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <Python.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <thread>

#include "lower.h"

namespace openxpu {

using at::Tensor;
using c10d::OpType;
using c10d::ReduceOp;

// What kind of call it is.
struct Collective {
    OpType type;
    const char *title; // for profiles; what errors say follows the colon
    std::optional<ReduceOp> reduces = std::nullopt;
    bool reads_outputs = false;          // in place
    bool divides = true;                 // an average is wanted here, not on another rank only
    enum { keep, flat, rows } as = keep; // shapes of what the carrier gets: rows stay rows in bytes, too
};

namespace {

// The dtypes that Gloo knows. Others it can move, as bytes.
bool is_carried(c10::ScalarType type) {
    switch (type) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kChar:
    case at::kByte:
    case at::kBool:
    case at::kInt:
    case at::kLong: return true;
    default: return false;
    }
}

// A contiguous CPU tensor in the shape and dtype that the carrier gets.
Tensor as_carried(const Tensor &host, const Collective &collective) {
    if (host.is_sparse()) return host;
    const bool in_bytes = !collective.reduces && !is_carried(host.scalar_type());
    if (collective.as == Collective::keep && !in_bytes) return host;
    const auto flat = in_bytes ? host.view({-1}).view(at::kByte) : host.view({-1});
    if (collective.as != Collective::rows) return flat;
    if (!in_bytes) return host;
    const int64_t rows = host.dim() ? host.size(0) : 1;
    return flat.view({rows, rows ? flat.numel() / rows : 0});
}

// A copy that is due when the carrier is done.
struct Return {
    Tensor to, from;
};

// The tensors of one call on the CPU.
struct Transfer {
    std::optional<c10::Device> device;  // the first tensor's
    std::optional<c10::Stream> copying; // where copies run, if there are any between host and device
    std::vector<Return> returns;
    Tensors results; // what the carrier writes

    Tensor map(const Tensor &tensor, const Collective &collective, bool read, bool written) {
        TORCH_CHECK(tensor.is_xpu(), collective.title, ": all tensors must be on xpu, but one is on ",
                    tensor.device());
        TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(), collective.title,
                    ": tensors with a conjugate or negative bit must be resolved first");
        Tensor host;
        if (tensor.is_sparse()) {
            host = tensor.cpu();
            if (written) returns.push_back({tensor, host});
        } else if (!copying) {
            const auto alias = as_cpu(tensor);
            host = alias.is_contiguous() ? alias : at::empty(alias.sizes(), alias.options());
            if (!alias.is_contiguous()) {
                if (read) host.copy_(alias);
                if (written) returns.push_back({alias, host});
            }
        } else {
            const c10::StreamGuard guard(*copying);
            host = at::empty(tensor.sizes(), tensor.options().device(c10::kCPU).pinned_memory(true));
            if (read) host.copy_(tensor, true);
            if (written) returns.push_back({tensor, host});
        }
        const auto carried = as_carried(host, collective);
        if (written) results.push_back(carried);
        return carried;
    }
};

} // namespace

// One call under way. Its future is complete when the copies back to the device, if there are any, are in
// their stream: who waits for it has his current stream wait for that one, as with NCCL.
class CollectiveWork final : public c10d::Work {
  public:
    CollectiveWork(int rank, const Collective &collective, Tensors inputs, Tensors outputs)
        : Work(rank, collective.type, collective.title, inputs), outputs_(std::move(outputs)) {
        std::vector<c10::Device> devices;
        for (const auto &tensor : outputs_)
            if (std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
                devices.push_back(tensor.device());
        future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                           std::move(devices));
    }

    // Takes what the carrier has begun; `after` runs when that is over and has succeeded.
    void follow(WorkPtr carried, Transfer transfer, std::function<void(Transfer &)> after) {
        carried_ = std::move(carried);
        transfer_ = std::move(transfer);
        after_ = std::move(after);
        c10::intrusive_ptr<c10::ivalue::Future> over;
        try {
            over = carried_->getFuture();
        } catch (const c10::Error &) { // Gloo's sends, receptions and scattered reductions have none
            tells_nobody_ = true;
            return;
        }
        const auto self = c10::intrusive_ptr<CollectiveWork>::reclaim_copy(this);
        over->addCallback([self](c10::ivalue::Future &done) {
            self->complete(done.hasError() ? done.exception_ptr() : nullptr);
        });
    }

    bool isCompleted() override {
        if (tells_nobody_) wait_aside();
        return Work::isCompleted();
    }
    bool wait(std::chrono::milliseconds timeout) override {
        if (tells_nobody_ && !is_awaited_.exchange(true)) wait_for_carrier(timeout);
        return Work::wait(timeout);
    }
    void synchronize() override {
        if (!copied_) return;
        const c10::impl::VirtualGuardImpl device(c10::kXPU);
        copied_->block(device.getStream(copied_->device()));
    }
    void blockCurrentStream() override { wait(kNoTimeout); }
    void abort() override { carried_->abort(); }
    int sourceRank() const override { return carried_->sourceRank(); }
    uint64_t getSequencenumber() const override { return carried_->getSequencenumber(); }
    Tensors result() override { return outputs_; }

    // Python's callbacks may issue further collectives (PowerSGD's do), and all ranks must issue theirs in
    // one order. So they run when they are added, as they do with NCCL: Python gets a completed future. C++
    // (DDP's reducer) gets one that completes by and by.
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
        if (tells_nobody_) wait_aside();
        if (PyGILState_Check()) {
            auto *thread = PyEval_SaveThread();
            future_->wait();
            PyEval_RestoreThread(thread);
        }
        return future_;
    }

  private:
    const Tensors outputs_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    WorkPtr carried_;
    Transfer transfer_;
    std::function<void(Transfer &)> after_;
    std::optional<c10::Event> copied_;
    bool tells_nobody_ = false; // that the carrier is done: somebody has to wait for it
    std::atomic<bool> is_awaited_ = false;

    void wait_for_carrier(std::chrono::milliseconds timeout) {
        std::exception_ptr failure;
        try {
            carried_->wait(timeout);
        } catch (...) { failure = std::current_exception(); }
        complete(failure);
    }

    // Lets a thread of its own wait for the carrier, unless somebody does.
    void wait_aside() {
        if (is_awaited_.exchange(true)) return;
        const auto self = c10::intrusive_ptr<CollectiveWork>::reclaim_copy(this);
        std::thread([self] { self->wait_for_carrier(kNoTimeout); }).detach();
    }

    void copy_back() {
        const at::AutoDispatchBelowADInplaceOrView below_autograd;
        c10::OptionalStreamGuard guard(transfer_.copying);
        for (const auto &copy : transfer_.returns) {
            Tensor(copy.to).copy_(copy.from, true);
            if (transfer_.copying && !copy.to.is_sparse()) copy.to.record_stream(*transfer_.copying);
        }
        if (transfer_.copying && !transfer_.returns.empty()) {
            copied_.emplace(c10::kXPU);
            copied_->record(*transfer_.copying);
        }
    }

    void complete(std::exception_ptr failure) {
        const auto copying = transfer_.copying;
        if (!failure) {
            try {
                if (after_) after_(transfer_);
                copy_back();
            } catch (...) { failure = std::current_exception(); }
        }
        after_ = nullptr;
        transfer_ = {};
        finish(failure);
        if (failure) {
            future_->setError(failure);
        } else {
            const c10::OptionalStreamGuard guard(copying);
            future_->markCompleted(c10::IValue(outputs_));
        }
    }
};

namespace {

// All that was given between startCoalescing and endCoalescing.
class CoalescedWork final : public c10d::Work {
  public:
    CoalescedWork(int rank, std::vector<WorkPtr> parts)
        : Work(rank, OpType::COALESCED), parts_(std::move(parts)) {}

    bool isCompleted() override {
        for (const auto &part : parts_)
            if (!part->isCompleted()) return false;
        return true;
    }
    bool isSuccess() const override {
        for (const auto &part : parts_)
            if (!part->isSuccess()) return false;
        return true;
    }
    std::exception_ptr exception() const override {
        for (const auto &part : parts_)
            if (auto failure = part->exception()) return failure;
        return nullptr;
    }
    bool wait(std::chrono::milliseconds timeout) override {
        for (const auto &part : parts_) part->wait(timeout);
        return true;
    }
    void synchronize() override {
        for (const auto &part : parts_) part->synchronize();
    }
    void blockCurrentStream() override { wait(kNoTimeout); }
    void abort() override {
        for (const auto &part : parts_) part->abort();
    }
    Tensors result() override {
        Tensors all;
        for (const auto &part : parts_)
            for (const auto &tensor : part->result()) all.push_back(tensor);
        return all;
    }

  private:
    const std::vector<WorkPtr> parts_;
};

} // namespace

CollectiveBackend::CollectiveBackend(c10::intrusive_ptr<c10d::Backend> carrier)
    : Backend(carrier->getRank(), carrier->getSize()), carrier_(std::move(carrier)) {}

c10::Stream CollectiveBackend::copying_stream(c10::Device device) {
    const std::lock_guard guard(lock_);
    const auto known = copying_.find(device.index());
    if (known != copying_.end()) return known->second;
    const c10::impl::VirtualGuardImpl impl(c10::kXPU);
    return copying_.emplace(device.index(), impl.getStreamFromGlobalPool(device)).first->second;
}

template <typename Issue>
WorkPtr CollectiveBackend::run(const Collective &collective, const TensorLists &inputs,
                               const TensorLists &outputs, const Issue &issue) {
    Tensors read, written;
    for (const auto &list : inputs) read.insert(read.end(), list.begin(), list.end());
    for (const auto &list : outputs) written.insert(written.end(), list.begin(), list.end());
    Transfer transfer;
    for (const auto *all : {&read, &written})
        for (const auto &tensor : *all) {
            if (!transfer.device) transfer.device = tensor.device();
            TORCH_CHECK(tensor.device() == *transfer.device, collective.title,
                        ": expected all tensors on one device, but got ", tensor.device(), " and ",
                        *transfer.device);
            TORCH_CHECK_NOT_IMPLEMENTED(!collective.reduces || is_carried(tensor.scalar_type()),
                                        collective.title, ": Gloo, which carries it, has no reduction of ",
                                        tensor.scalar_type());
        }

    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::OptionalDeviceGuard guard(transfer.device);
    const c10::impl::VirtualGuardImpl impl(c10::kXPU);
    if (transfer.device && transfer.device->is_xpu() && !is_host_device(transfer.device->index())) {
        transfer.copying = copying_stream(*transfer.device);
        c10::Event ready(c10::kXPU);
        ready.record(impl.getStream(*transfer.device));
        ready.block(*transfer.copying);
    }
    TensorLists sources, targets;
    for (const auto &list : inputs) {
        auto &mapped = sources.emplace_back();
        for (const auto &tensor : list) mapped.push_back(transfer.map(tensor, collective, true, false));
    }
    for (const auto &list : outputs) {
        auto &mapped = targets.emplace_back();
        for (const auto &tensor : list)
            mapped.push_back(transfer.map(tensor, collective, collective.reads_outputs, true));
    }
    if (transfer.copying) impl.synchronizeStream(*transfer.copying);

    auto work = c10::make_intrusive<CollectiveWork>(rank_, collective, std::move(read), std::move(written));
    std::function<void(Transfer &)> after;
    if (collective.reduces && collective.reduces->op_ == ReduceOp::AVG && collective.divides)
        after = [size = size_](Transfer &done) { // Gloo has sums only
            const at::AutoDispatchBelowADInplaceOrView below_autograd;
            for (auto &sum : done.results) {
                if (sum.is_floating_point())
                    sum.div_(size);
                else
                    sum.div_(size, "trunc");
            }
        };
    auto carried = issue(sources, targets);
    work->follow(std::move(carried), std::move(transfer), std::move(after));
    const std::lock_guard lock(lock_);
    if (is_coalescing_) coalesced_.push_back(work);
    return work;
}

void CollectiveBackend::startCoalescing() {
    const std::lock_guard guard(lock_);
    is_coalescing_ = true;
    coalesced_.clear();
}

WorkPtr CollectiveBackend::endCoalescing() {
    const std::lock_guard guard(lock_);
    is_coalescing_ = false;
    return c10::make_intrusive<CoalescedWork>(rank_, std::exchange(coalesced_, {}));
}

// --- the calls ---

namespace {

// The options with a reduction that the carrier has.
template <typename Options> Options summing(Options options) {
    TORCH_CHECK_NOT_IMPLEMENTED(options.reduceOp.op_ != ReduceOp::PREMUL_SUM,
                                "collectives of xpu tensors have no PREMUL_SUM: Gloo, which carries them, "
                                "has none");
    if (options.reduceOp.op_ == ReduceOp::AVG) options.reduceOp = ReduceOp::SUM;
    return options;
}

} // namespace

WorkPtr CollectiveBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) {
    return run(
        {.type = OpType::BROADCAST, .title = "xccl:broadcast", .reads_outputs = rank_ == options.rootRank},
        {}, {tensors}, [&](auto &, auto &to) { return carrier_->broadcast(to[0], options); });
}

WorkPtr CollectiveBackend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) {
    return run({.type = OpType::ALLREDUCE,
                .title = "xccl:all_reduce",
                .reduces = options.reduceOp,
                .reads_outputs = true},
               {}, {tensors}, [&](auto &, auto &to) { return carrier_->allreduce(to[0], summing(options)); });
}

WorkPtr CollectiveBackend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) {
    return allreduce(tensors, options);
}

WorkPtr CollectiveBackend::allreduce_coalesced(Tensors &tensors,
                                               const c10d::AllreduceCoalescedOptions &options) {
    return run({.type = OpType::ALLREDUCE_COALESCED,
                .title = "xccl:all_reduce",
                .reduces = options.reduceOp,
                .reads_outputs = true},
               {}, {tensors},
               [&](auto &, auto &to) { return carrier_->allreduce_coalesced(to[0], summing(options)); });
}

WorkPtr CollectiveBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &options) {
    return run({.type = OpType::REDUCE,
                .title = "xccl:reduce",
                .reduces = options.reduceOp,
                .reads_outputs = true,
                .divides = rank_ == options.rootRank},
               {}, {tensors}, [&](auto &, auto &to) { return carrier_->reduce(to[0], summing(options)); });
}

WorkPtr CollectiveBackend::allgather(TensorLists &outputs, Tensors &inputs,
                                     const c10d::AllgatherOptions &options) {
    return run({.type = OpType::ALLGATHER, .title = "xccl:all_gather"}, {inputs}, outputs,
               [&](auto &from, auto &to) { return carrier_->allgather(to, from[0], options); });
}

WorkPtr CollectiveBackend::_allgather_base(Tensor &output, Tensor &input,
                                           const c10d::AllgatherOptions &options) {
    return run({.type = OpType::_ALLGATHER_BASE, .title = "xccl:_all_gather_base", .as = Collective::flat},
               {{input}}, {{output}}, [&](auto &from, auto &to) {
                   return carrier_->_allgather_base(to[0][0], from[0][0], options);
               });
}

WorkPtr CollectiveBackend::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                               const c10d::AllgatherOptions &options) {
    return run({.type = OpType::ALLGATHER_COALESCED, .title = "xccl:all_gather"}, {inputs}, outputs,
               [&](auto &from, auto &to) { return carrier_->allgather_coalesced(to, from[0], options); });
}

WorkPtr CollectiveBackend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                           const c10d::AllgatherOptions &options) {
    return run({.type = OpType::COALESCED, .title = "xccl:all_gather", .as = Collective::flat}, {inputs},
               {outputs}, [&](auto &from, auto &to) {
                   return carrier_->allgather_into_tensor_coalesced(to[0], from[0], options);
               });
}

WorkPtr CollectiveBackend::gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &options) {
    return run({.type = OpType::GATHER, .title = "xccl:gather"}, {inputs}, outputs,
               [&](auto &from, auto &to) { return carrier_->gather(to, from[0], options); });
}

WorkPtr CollectiveBackend::scatter(Tensors &outputs, TensorLists &inputs,
                                   const c10d::ScatterOptions &options) {
    return run({.type = OpType::SCATTER, .title = "xccl:scatter"}, inputs, {outputs},
               [&](auto &from, auto &to) { return carrier_->scatter(to[0], from, options); });
}

WorkPtr CollectiveBackend::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                          const c10d::ReduceScatterOptions &options) {
    return run({.type = OpType::REDUCE_SCATTER, .title = "xccl:reduce_scatter", .reduces = options.reduceOp},
               inputs, {outputs},
               [&](auto &from, auto &to) { return carrier_->reduce_scatter(to[0], from, summing(options)); });
}

WorkPtr CollectiveBackend::_reduce_scatter_base(Tensor &output, Tensor &input,
                                                const c10d::ReduceScatterOptions &options) {
    return run({.type = OpType::_REDUCE_SCATTER_BASE,
                .title = "xccl:_reduce_scatter_base",
                .reduces = options.reduceOp,
                .as = Collective::flat},
               {{input}}, {{output}}, [&](auto &from, auto &to) {
                   return carrier_->_reduce_scatter_base(to[0][0], from[0][0], summing(options));
               });
}

WorkPtr CollectiveBackend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                           const c10d::ReduceScatterOptions &options) {
    return run({.type = OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                .title = "xccl:reduce_scatter",
                .reduces = options.reduceOp,
                .as = Collective::flat},
               {inputs}, {outputs}, [&](auto &from, auto &to) {
                   return carrier_->reduce_scatter_tensor_coalesced(to[0], from[0], summing(options));
               });
}

WorkPtr CollectiveBackend::alltoall_base(Tensor &output, Tensor &input, std::vector<int64_t> &output_rows,
                                         std::vector<int64_t> &input_rows,
                                         const c10d::AllToAllOptions &options) {
    return run({.type = OpType::ALLTOALL_BASE, .title = "xccl:all_to_all", .as = Collective::rows}, {{input}},
               {{output}}, [&](auto &from, auto &to) {
                   return carrier_->alltoall_base(to[0][0], from[0][0], output_rows, input_rows, options);
               });
}

WorkPtr CollectiveBackend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) {
    return run({.type = OpType::ALLTOALL, .title = "xccl:all_to_all"}, {inputs}, {outputs},
               [&](auto &from, auto &to) { return carrier_->alltoall(to[0], from[0], options); });
}

WorkPtr CollectiveBackend::send(Tensors &tensors, int to, int tag) {
    return run({.type = OpType::SEND, .title = "xccl:send"}, {tensors}, {},
               [&](auto &from, auto &) { return carrier_->send(from[0], to, tag); });
}

WorkPtr CollectiveBackend::recv(Tensors &tensors, int from, int tag) {
    return run({.type = OpType::RECV, .title = "xccl:recv"}, {}, {tensors},
               [&](auto &, auto &to) { return carrier_->recv(to[0], from, tag); });
}

WorkPtr CollectiveBackend::recvAnysource(Tensors &tensors, int tag) {
    return run({.type = OpType::RECVANYSOURCE, .title = "xccl:recv"}, {}, {tensors},
               [&](auto &, auto &to) { return carrier_->recvAnysource(to[0], tag); });
}

// What was given to the current stream before is done before it.
WorkPtr CollectiveBackend::barrier(const c10d::BarrierOptions &options) {
    const c10::impl::VirtualGuardImpl impl(c10::kXPU);
    if (impl.deviceCount()) {
        const auto device = options.device && options.device->is_xpu() ? *options.device : impl.getDevice();
        impl.synchronizeStream(impl.getStream(device));
    }
    return carrier_->barrier(options);
}

void CollectiveBackend::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_for_all) {
    carrier_->monitoredBarrier(options, wait_for_all);
}

} // namespace openxpu
