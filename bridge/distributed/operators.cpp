// Registers c10d's operators for xpu tensors, which call the process group's xpu backend, and DDP's timer.
// The backend owns all state; errors of the backend propagate.
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/library.h>

#include <map>

#include "backend.h"

namespace openxpu {
namespace {

using at::Tensor;
using at::TensorList;
using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Reduction = c10::intrusive_ptr<c10d::ReduceOp>;

c10::intrusive_ptr<c10d::Backend> backend_of(const Group &group) {
    const auto types = group->getDeviceTypes();
    TORCH_CHECK(std::find(types.begin(), types.end(), c10::kXPU) != types.end(),
                "this process group has no backend for xpu tensors: init_process_group and new_group take "
                "\"xccl\", \"cpu:gloo,xpu:gloo\" or no name for one");
    return group->getBackend(c10::kXPU);
}

std::chrono::milliseconds timeout_of(int64_t milliseconds) { return std::chrono::milliseconds(milliseconds); }

WorkPtr send(TensorList tensors, const Group &group, int64_t to, int64_t tag) {
    auto list = tensors.vec();
    return backend_of(group)->send(list, static_cast<int>(to), static_cast<int>(tag));
}

WorkPtr recv_(TensorList tensors, const Group &group, int64_t from, int64_t tag) {
    auto list = tensors.vec();
    return backend_of(group)->recv(list, static_cast<int>(from), static_cast<int>(tag));
}

WorkPtr recv_any_source_(TensorList tensors, const Group &group, int64_t tag) {
    auto list = tensors.vec();
    return backend_of(group)->recvAnysource(list, static_cast<int>(tag));
}

WorkPtr reduce_(TensorList tensors, const Group &group, const Reduction &reduction, int64_t root,
                int64_t root_tensor, bool async, int64_t timeout) {
    auto list = tensors.vec();
    return backend_of(group)->reduce(list, {*reduction, root, root_tensor, timeout_of(timeout), async});
}

std::tuple<Tensors, WorkPtr> broadcast_(TensorList tensors, const Group &group, int64_t root,
                                        int64_t root_tensor, bool async, int64_t timeout) {
    auto list = tensors.vec();
    auto work = backend_of(group)->broadcast(list, {root, root_tensor, timeout_of(timeout), async});
    return {std::move(list), std::move(work)};
}

std::tuple<Tensors, WorkPtr> allreduce_(TensorList tensors, const Group &group, const Reduction &reduction,
                                        const std::optional<Tensor> &sparse_indices, bool async,
                                        int64_t timeout) {
    auto list = tensors.vec();
    auto work = backend_of(group)->allreduce(list, {*reduction, timeout_of(timeout), async, sparse_indices});
    return {std::move(list), std::move(work)};
}

WorkPtr allreduce_coalesced_(TensorList tensors, const Group &group, const Reduction &reduction, bool async,
                             int64_t timeout) {
    auto list = tensors.vec();
    c10d::AllreduceCoalescedOptions options;
    options.reduceOp = *reduction;
    options.timeout = timeout_of(timeout);
    options.asyncOp = async;
    return backend_of(group)->allreduce_coalesced(list, options);
}

std::tuple<TensorLists, WorkPtr> allgather_(const TensorLists &outputs, TensorList inputs, const Group &group,
                                            bool async, int64_t timeout) {
    auto list = inputs.vec();
    auto to = outputs;
    auto work = backend_of(group)->allgather(to, list, {timeout_of(timeout), async});
    return {std::move(to), std::move(work)};
}

std::tuple<Tensor, WorkPtr> allgather_base_(Tensor &output, Tensor &input, const Group &group, bool async,
                                            int64_t timeout) {
    auto work = backend_of(group)->_allgather_base(output, input, {timeout_of(timeout), async});
    return {output, std::move(work)};
}

WorkPtr allgather_coalesced_(const TensorLists &outputs, const TensorList &inputs, const Group &group,
                             bool async) {
    auto list = inputs.vec();
    auto to = outputs;
    return backend_of(group)->allgather_coalesced(to, list, {c10d::kUnsetTimeout, async});
}

WorkPtr allgather_into_tensor_coalesced_(TensorList outputs, TensorList inputs, const Group &group,
                                         bool async) {
    auto to = outputs.vec(), from = inputs.vec();
    return backend_of(group)->allgather_into_tensor_coalesced(to, from, {c10d::kUnsetTimeout, async});
}

std::tuple<Tensors, WorkPtr> reduce_scatter_(const TensorList &outputs, const TensorLists &inputs,
                                             const Group &group, const Reduction &reduction, bool async,
                                             int64_t timeout) {
    auto to = outputs.vec();
    auto from = inputs;
    auto work = backend_of(group)->reduce_scatter(to, from, {*reduction, timeout_of(timeout), async});
    return {std::move(to), std::move(work)};
}

std::tuple<Tensor, WorkPtr> reduce_scatter_base_(Tensor &output, Tensor &input, const Group &group,
                                                 const Reduction &reduction, bool async, int64_t timeout) {
    auto work =
        backend_of(group)->_reduce_scatter_base(output, input, {*reduction, timeout_of(timeout), async});
    return {output, std::move(work)};
}

WorkPtr reduce_scatter_tensor_coalesced_(TensorList outputs, TensorList inputs, const Group &group,
                                         const Reduction &reduction, bool async, int64_t timeout) {
    auto to = outputs.vec(), from = inputs.vec();
    return backend_of(group)->reduce_scatter_tensor_coalesced(to, from,
                                                              {*reduction, timeout_of(timeout), async});
}

WorkPtr gather_(const TensorLists &outputs, const TensorList &inputs, const Group &group, int64_t root,
                bool async, int64_t timeout) {
    auto list = inputs.vec();
    auto to = outputs;
    return backend_of(group)->gather(to, list, {root, timeout_of(timeout), async});
}

std::tuple<Tensors, WorkPtr> scatter_(const TensorList &outputs, const TensorLists &inputs,
                                      const Group &group, int64_t root, bool async, int64_t timeout) {
    auto to = outputs.vec();
    auto from = inputs;
    auto work = backend_of(group)->scatter(to, from, {root, timeout_of(timeout), async});
    return {std::move(to), std::move(work)};
}

std::tuple<Tensors, WorkPtr> alltoall_(const TensorList &outputs, const TensorList &inputs,
                                       const Group &group, bool async, int64_t timeout) {
    auto to = outputs.vec(), from = inputs.vec();
    auto work = backend_of(group)->alltoall(to, from, {timeout_of(timeout), async});
    return {std::move(to), std::move(work)};
}

WorkPtr alltoall_base_(Tensor &output, Tensor &input, const Group &group, std::vector<int64_t> output_rows,
                       std::vector<int64_t> input_rows, bool async, int64_t timeout) {
    return backend_of(group)->alltoall_base(output, input, output_rows, input_rows,
                                            {timeout_of(timeout), async});
}

c10d::BarrierOptions barrier_options(const Tensor &where, const std::vector<int64_t> &devices,
                                     int64_t timeout) {
    c10d::BarrierOptions options;
    options.device_ids = devices;
    options.timeout = timeout_of(timeout);
    options.device = where.device();
    return options;
}

WorkPtr barrier(Tensor where, const Group &group, const std::vector<int64_t> &devices, bool async,
                int64_t timeout) {
    auto options = barrier_options(where, devices, timeout);
    options.asyncOp = async;
    return backend_of(group)->barrier(options);
}

void monitored_barrier_(Tensor where, const Group &group, const std::vector<int64_t> &devices,
                        int64_t timeout, bool wait_for_all) {
    backend_of(group)->monitoredBarrier(barrier_options(where, devices, timeout), wait_for_all);
}

TORCH_LIBRARY_IMPL(c10d, XPU, m) {
    m.impl("send", send);
    m.impl("recv_", recv_);
    m.impl("recv_any_source_", recv_any_source_);
    m.impl("reduce_", reduce_);
    m.impl("broadcast_", broadcast_);
    m.impl("allreduce_", allreduce_);
    m.impl("allreduce_coalesced_", allreduce_coalesced_);
    m.impl("allgather_", allgather_);
    m.impl("_allgather_base_", allgather_base_);
    m.impl("allgather_coalesced_", allgather_coalesced_);
    m.impl("allgather_into_tensor_coalesced_", allgather_into_tensor_coalesced_);
    m.impl("reduce_scatter_", reduce_scatter_);
    m.impl("_reduce_scatter_base_", reduce_scatter_base_);
    m.impl("reduce_scatter_tensor_coalesced_", reduce_scatter_tensor_coalesced_);
    m.impl("gather_", gather_);
    m.impl("scatter_", scatter_);
    m.impl("alltoall_", alltoall_);
    m.impl("alltoall_base_", alltoall_base_);
    m.impl("barrier", barrier);
    m.impl("monitored_barrier_", monitored_barrier_);
}

TORCH_LIBRARY_IMPL(c10d, SparseXPU, m) { m.impl("allreduce_", allreduce_); }

// Start and end of DDP's forward, backward and communication, on the device's clock.
class Clock final : public c10d::Timer {
  public:
    explicit Clock(c10::Device device) : device_(device) {}

    void record(Event event) override {
        Timer::record(event); // the host time as well
        const c10::impl::VirtualGuardImpl impl(c10::kXPU);
        auto &mark = marks_.insert_or_assign(event, c10::Event(c10::kXPU, c10::EventFlag::BACKEND_DEFAULT))
                         .first->second;
        mark.record(impl.getStream(device_));
    }

    std::optional<int64_t> measureDifference(Event start, Event end) override {
        const auto from = marks_.find(start), to = marks_.find(end);
        if (from == marks_.end() || to == marks_.end()) return std::nullopt;
        from->second.synchronize();
        to->second.synchronize();
        const double milliseconds = from->second.elapsedTime(to->second);
        if (milliseconds < 0) return std::nullopt; // the events are from different steps
        return static_cast<int64_t>(milliseconds * 1e6);
    }

  private:
    const c10::Device device_;
    std::map<Event, c10::Event> marks_;
};

} // namespace
} // namespace openxpu

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kXPU, openxpu::Clock)
}
