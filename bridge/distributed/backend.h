// The process group backend "xccl": collectives of xpu tensors.
//
// The transport is another backend for CPU tensors (Gloo, MPI). On host devices it works on the tensors' own
// memory. For other devices tensors are copied to pinned memory and back, on a separate stream.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <sys/types.h>

#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "failure_log.h"

namespace openxpu {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

struct Collective;
struct Exchange;
struct RecordedGroup;
struct Transfer;
class CollectiveWork;
class Dumps;
class ExchangeWork;
class Recording;
class SharedMemory;
class Waiter;

// The dtypes that the transport, Gloo, knows. Others it can move, as bytes.
bool is_transportable(c10::ScalarType type);

// A copy that is due when the transport is done.
struct Return {
    at::Tensor to, from;
};

// Which ranks get a rank's results then, and what comes of each.
struct Passing {
    std::vector<bool> to = {};
    TensorLists gathered = {};
};

// What a process group is asked for: c10d's options, of which the timeout counts for the transport, too.
struct CollectiveOptions : c10d::Backend::Options {
    explicit CollectiveOptions(bool is_high_priority_stream = false)
        : Options("xccl"), is_high_priority_stream(is_high_priority_stream) {}

    bool is_high_priority_stream; // taken and not used
};

class CollectiveBackend final : public c10d::Backend {
  public:
    // Connects the ranks of a new group, one of them, over a store of their own.
    using Connect = std::function<c10::intrusive_ptr<c10d::Backend>(
        const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
        const c10::intrusive_ptr<CollectiveOptions> &options)>;

    CollectiveBackend(c10::intrusive_ptr<c10d::Backend> transport, c10::intrusive_ptr<c10d::Store> store,
                      c10::intrusive_ptr<CollectiveOptions> options, Connect connect);
    ~CollectiveBackend() override;
    void release_resources() override; // nobody has it any more

    const std::string getBackendName() const override { return takes_cpu_ ? "mpi" : "xccl"; }
    c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
    c10::intrusive_ptr<CollectiveOptions> options() const { return options_; }
    void setTimeout(std::chrono::milliseconds timeout) override {
        options_->timeout = timeout;
        transport_->setTimeout(timeout);
        set_memory_timeout(timeout);
    }
    // Gloo itself can split, too, but reads past the end of its list of ranks where that is empty.
    bool supportsSplitting() const override { return true; }
    // The backend of a group of `ranks` of this one; null where this rank isn't among them.
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store,
                                            const std::vector<int> &ranks,
                                            const c10::intrusive_ptr<Options> &options) override;
    bool supportsShrinking() const override { return true; }
    // The backend of the ranks that are not excluded, which all call it, with the group's own store; the
    // others may have ended. There is nothing to end first (`flags`): the group may have failed.
    c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t> &excluded, int flags,
                                             const c10::intrusive_ptr<Options> &options) override;
    void setSequenceNumberForGroup() override { transport_->setSequenceNumberForGroup(); }
    uint64_t getSequenceNumberForGroup() override {
        const std::lock_guard guard(lock_);
        return issued_;
    }
    void enableCollectivesTiming() override { is_timed_ = true; }
    c10d::ErrorType getError() override;
    void abort() override;
    void shutdown() override;
    bool is_busy(bool with_messages = true); // those are over when someone waits for them
    // For a process that ends: whether collectives of its own are under way, which go on by themselves.
    static bool any_is_busy();
    // Gives up all that is under way, and asks no other rank about it.
    static void leave_all();
    // How many bytes of collectives this rank has sent through memory that it shares with others of its host.
    uint64_t bytes_through_memory() const;
    // Ends all that is under way with an error, and refuses what comes.
    void give_up(const std::string &reason, bool explains = true);
    // Some ranks may begin a collective of the transport's that others don't: whose next one would be taken
    // for it. From now on every call fails.
    void end_out_of_step(const std::string &why);
    // What is said of a collective that failed: by the first its reason and what the other ranks are at.
    // `is_known`: that is what doesn't fit.
    std::string explain(const CollectiveWork &work, const std::string &reason, bool is_known = false);
    // What has failed is not over for the transport, which may still write to its memory.
    void keep(WorkPtr exchange);

    // What is given between these two becomes one work; each is issued as it comes.
    bool supportsCoalescing() const override { return true; }
    void startCoalescing() override;
    WorkPtr endCoalescing() override;

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
    WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) override;
    WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
    WorkPtr allgather(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &options) override;
    WorkPtr allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &options) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &options) override;
    WorkPtr gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &options) override;
    WorkPtr scatter(Tensors &outputs, TensorLists &inputs, const c10d::ScatterOptions &options) override;
    WorkPtr reduce_scatter(Tensors &outputs, TensorLists &inputs,
                           const c10d::ReduceScatterOptions &options) override;
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &options) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &options) override;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_rows,
                          std::vector<int64_t> &input_rows, const c10d::AllToAllOptions &options) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) override;
    WorkPtr send(Tensors &tensors, int to, int tag) override;
    WorkPtr recv(Tensors &tensors, int from, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;
    WorkPtr barrier(const c10d::BarrierOptions &options) override;
    void monitoredBarrier(const c10d::BarrierOptions &options, bool wait_for_all) override;

  private:
    const c10::intrusive_ptr<c10d::Backend> transport_;
    const c10::intrusive_ptr<c10d::Store> store_;
    const c10::intrusive_ptr<CollectiveOptions> options_;
    const Connect connect_;
    const pid_t process_; // a child of it has neither the transport's threads nor a store of its own
    // TORCH_XCCL_NAN_CHECK, TORCH_NCCL_NAN_CHECK: what holds NaN is refused, on all ranks.
    const bool refuses_nan_;
    const bool takes_cpu_; // tensors of the CPU, too: MPI's transport is no backend by itself
    const std::shared_ptr<SharedMemory> memory_; // null: everything is the transport's
    std::mutex lock_;                            // guards what follows
    std::map<c10::DeviceIndex, c10::Stream> copying_;
    bool is_coalescing_ = false;
    std::vector<WorkPtr> coalesced_;
    struct Replayed {
        bool is_send; // which a replay doesn't wait for
        std::function<WorkPtr()> begin;
    };
    std::vector<Replayed> replayed_; // sends and receptions that were coalesced in a capture
    c10::DeviceIndex replayed_on_ = -1;
    uint64_t issued_ = 0;                    // collectives
    uint64_t sent_off_ = 0, operations_ = 0; // sends and receptions, those that go together once; all
    std::shared_ptr<Recording> together_;    // of sends and receptions that are coalesced
    size_t works_together_ = 0;
    std::vector<c10::weak_intrusive_ptr<CollectiveWork>> under_way_;
    std::string given_up_;                                                                  // why, if so
    c10::weak_intrusive_ptr<c10d::Backend> split_off_{c10::intrusive_ptr<c10d::Backend>()}; // last
    std::string split_off_name_;
    bool is_listed_ = false;
    at::Tensor scratch_;                             // bytes; undefined while a call has them
    const std::unique_ptr<Waiter> waiter_, starter_; // for exchanges that are over, and that may begin
    std::vector<WorkPtr> kept_;

    std::mutex numbering_;                                    // guards what follows
    std::map<std::pair<int, int>, uint64_t> sent_, received_; // to and from a rank, with a tag
    std::set<int> from_anyone_;                               // tags

    const std::shared_ptr<Dumps> dumps_;
    const size_t id_; // in this process
    std::atomic<bool> is_timed_ = false;

    std::mutex explaining_; // guards what follows
    std::string first_failure_;
    FailureLog failure_log_;

    c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store> &store,
                                              const std::vector<int> &ranks,
                                              const c10::intrusive_ptr<Options> &options);
    void check_process(const char *title) const;
    void number(CollectiveWork &work);
    void agree(CollectiveWork &work, const Exchange &said);
    std::vector<uint64_t> global_ranks() const;
    RecordedGroup recorded_group() const;
    // Enters the call into the flight recorder, if there is one.
    std::shared_ptr<Recording> record_call(const Collective &collective, const CollectiveWork &work,
                                           const TensorLists &inputs, const TensorLists &outputs);
    // Each rank gets its list of `given`, and this one's are put into `taken`, or each result is the
    // reduction of what all ranks give for it.
    WorkPtr pass_straight(const TensorLists &given, const TensorLists &taken, Transfer &transfer,
                          std::chrono::milliseconds timeout);
    WorkPtr reduce_straight(const TensorLists &given, const Tensors &results, const c10d::ReduceOp &reduction,
                            Transfer &transfer, std::chrono::milliseconds timeout,
                            const Passing &passing = {}, const at::Tensor &whole = {});
    WorkPtr reduce_whole(const at::Tensor &whole, int root, const c10d::ReduceOp &reduction,
                         Transfer &transfer, std::chrono::milliseconds timeout);
    WorkPtr pass_whole(const at::Tensor &whole, int root, Transfer &transfer,
                       std::chrono::milliseconds timeout);
    WorkPtr pass_between(const Tensors &tensors, bool sends, int other, int tag, Transfer &transfer);
    at::Tensor take_scratch(size_t bytes);
    void keep_scratch(const at::Tensor &scratch);
    bool goes_whole(const at::Tensor &whole) const;
    void set_memory_timeout(std::chrono::milliseconds timeout);
    c10::intrusive_ptr<ExchangeWork> begin(Exchange what);
    // What `call` returns. If it throws before anything has begun, the other ranks get that as their error.
    WorkPtr or_refuse(const char *title, const std::function<WorkPtr()> &call);
    void refuse(const char *title, const std::string &why);
    WorkPtr scatter_whole(c10d::OpType type, const char *title, const Tensors &outputs, const Tensors &inputs,
                          const c10d::ReduceScatterOptions &options);
    WorkPtr gather_whole(c10d::OpType type, const char *title, const Tensors &outputs, const Tensors &inputs,
                         const c10d::AllgatherOptions &options);
    void check_root_list(const char *title, const TensorLists &lists, const at::Tensor &own,
                         int64_t root) const;

    c10::Stream copying_stream(c10::Device device);
    // Maps the tensors to the CPU, has `issue(inputs, outputs, transfer)` call the transport, and takes care
    // of the rest. What is to be done when the transport is done may be added to `transfer`.
    using Issue = std::function<WorkPtr(TensorLists &, TensorLists &, Transfer &)>;
    WorkPtr run(const Collective &collective, const TensorLists &inputs, const TensorLists &outputs,
                const Issue &issue);
    // In a capture: lets the graph do the same, whole, in each replay.
    WorkPtr record(const Collective &collective, c10::Device where, const TensorLists &inputs,
                   const TensorLists &outputs, const Issue &issue);
};

} // namespace openxpu
