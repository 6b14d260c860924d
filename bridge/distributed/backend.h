// The process group backend "xccl": collectives of xpu tensors.
//
// The transport is another backend for CPU tensors (Gloo, MPI). On CPU devices it works on the tensors' own
// memory. For other devices tensors are copied to pinned memory and back, on a separate stream. The process
// group owns the backend, which owns the transport. Any thread may call, but all ranks must issue collectives
// in the same order. Failures throw c10::DistBackendError; after a failure of the transport the group refuses
// further calls.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "collective.h"
#include "failure_log.h"

namespace openxpu {

struct Exchange;
struct RecordedGroup;
struct Transfer;
class CollectiveWork;
class Dumps;
class ExchangeWork;
class Recording;
class SharedMemory;
class Waiter;

// Which ranks receive this rank's results then, and where those of the others go.
struct Passing {
    std::vector<bool> to = {};
    TensorLists gathered = {};
};

// Options of a process group: c10d's; the timeout also applies to the transport.
struct CollectiveOptions : c10d::Backend::Options {
    explicit CollectiveOptions(bool high_priority = false)
        : Options("xccl"), is_high_priority_stream(high_priority) {}

    bool is_high_priority_stream; // accepted, but not used
};

class CollectiveBackend final : public c10d::Backend {
  public:
    // Connects this rank to the others of a new group, through their own store.
    using Connect = std::function<c10::intrusive_ptr<c10d::Backend>(
        const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
        const c10::intrusive_ptr<CollectiveOptions> &options)>;

    CollectiveBackend(c10::intrusive_ptr<c10d::Backend> transport, c10::intrusive_ptr<c10d::Store> store,
                      c10::intrusive_ptr<CollectiveOptions> options, Connect connect);
    ~CollectiveBackend() override;
    void release_resources() override; // called when no strong reference is left

    const std::string getBackendName() const override { return takes_cpu_ ? "mpi" : "xccl"; }
    c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
    c10::intrusive_ptr<CollectiveOptions> options() const { return options_; }
    void setTimeout(std::chrono::milliseconds timeout) override {
        options_->timeout = timeout;
        transport_->setTimeout(timeout);
        set_memory_timeout(timeout);
    }
    // Does not use Gloo's own split, which reads past the end of an empty list of ranks.
    bool supportsSplitting() const override { return true; }
    // The backend of a subgroup of `ranks`; null if this rank is not in it.
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store,
                                            const std::vector<int> &ranks,
                                            const c10::intrusive_ptr<Options> &options) override;
    bool supportsShrinking() const override { return true; }
    // The backend of the ranks that are not excluded; all of them must call it, with the group's store.
    // Excluded ranks may have ended. `flags` is ignored: the group may have failed, so there is nothing to
    // shut down first.
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
    // Called at process exit: does this process have collectives in progress?
    static bool any_is_busy();
    // Fails everything in progress without asking the other ranks.
    static void leave_all();
    // Bytes that this rank's collectives have sent through shared memory.
    uint64_t bytes_through_memory() const;
    // Fails everything in progress, and all later calls.
    void give_up(const std::string &reason, bool explains = true);
    // Ranks are out of step: some may have begun a transport collective that others have not, and would match
    // it with the next one. Fails all later calls.
    void end_out_of_step(const std::string &why);
    // The error text of a failed collective. The first failure includes what the other ranks are doing.
    // `is_known`: the reason is a mismatch.
    std::string explain(const CollectiveWork &work, const std::string &reason, bool is_known = false);
    // Keeps a failed exchange alive, because the transport may still write to its memory.
    void keep(WorkPtr exchange);

    // Calls between these two form one work; each is issued immediately.
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
    const pid_t process_; // a forked child has neither the transport's threads nor its own store connection
    // TORCH_XCCL_NAN_CHECK, TORCH_NCCL_NAN_CHECK: inputs with NaN are refused on all ranks.
    const bool refuses_nan_;
    const bool takes_cpu_; // also CPU tensors, because MPI's transport is not a registered backend
    const std::shared_ptr<SharedMemory> memory_; // null: everything uses the transport
    std::mutex lock_;                            // guards what follows
    std::map<c10::DeviceIndex, c10::Stream> copying_;
    bool is_coalescing_ = false;
    std::vector<WorkPtr> coalesced_;
    struct Replayed {
        bool is_send; // a replay does not wait for it
        std::function<WorkPtr()> begin;
    };
    std::vector<Replayed> replayed_; // sends and receives that were coalesced in a capture
    c10::DeviceIndex replayed_on_ = -1;
    uint64_t issued_ = 0;                    // collectives
    uint64_t sent_off_ = 0, operations_ = 0; // sends and receptions, those that go together once; all
    std::shared_ptr<Recording> together_;    // of sends and receptions that are coalesced
    size_t works_together_ = 0;
    std::vector<c10::weak_intrusive_ptr<CollectiveWork>> under_way_;
    std::string given_up_; // reason, if the group has failed
    c10::weak_intrusive_ptr<c10d::Backend> split_off_{c10::intrusive_ptr<c10d::Backend>()}; // last
    std::string split_off_name_;
    bool is_listed_ = false;
    at::Tensor scratch_;                             // receive buffer; undefined while a call uses it
    const std::unique_ptr<Waiter> waiter_, starter_; // for exchanges that are over, and that may begin
    std::vector<WorkPtr> kept_;

    std::mutex numbering_;                                    // guards what follows
    std::map<std::pair<int, int>, uint64_t> sent_, received_; // to and from a rank, with a tag
    std::set<int> from_anyone_;                               // tags

    const std::shared_ptr<Dumps> dumps_;
    const size_t id_; // in this process
    std::atomic<bool> is_timed_ = false;

    std::mutex explaining_; // guards the fields below
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
    // Adds the call to the flight recorder, if it is enabled.
    std::shared_ptr<Recording> record_call(const Collective &collective, const CollectiveWork &work,
                                           const TensorLists &inputs, const TensorLists &outputs);
    // Sends each rank its list of `given`. Received tensors go to `taken`, or each result is the reduction of
    // the tensors that all ranks send for it.
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
    // Calls `call`. If it throws before a collective has begun, the error is announced to the other ranks.
    WorkPtr or_refuse(const char *title, const std::function<WorkPtr()> &call);
    void refuse(const char *title, const std::string &why);
    WorkPtr scatter_whole(c10d::OpType type, const char *title, const Tensors &outputs, const Tensors &inputs,
                          const c10d::ReduceScatterOptions &options);
    WorkPtr gather_whole(c10d::OpType type, const char *title, const Tensors &outputs, const Tensors &inputs,
                         const c10d::AllgatherOptions &options);
    void check_root_list(const char *title, const TensorLists &lists, const at::Tensor &own,
                         int64_t root) const;

    c10::Stream copying_stream(c10::Device device);
    // Maps the tensors to the CPU, calls `issue(inputs, outputs, transfer)` to use the transport, and handles
    // everything else. `issue` may add steps to `transfer` that run when the transport is done.
    using Issue = std::function<WorkPtr(TensorLists &, TensorLists &, Transfer &)>;
    WorkPtr run(const Collective &collective, const TensorLists &inputs, const TensorLists &outputs,
                const Issue &issue);
    // In a capture: makes the graph repeat the whole call in each replay.
    WorkPtr record(const Collective &collective, c10::Device where, const TensorLists &inputs,
                   const TensorLists &outputs, const Issue &issue);
};

} // namespace openxpu
