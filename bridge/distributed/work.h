// Work in progress: one collective, or several that are awaited as one. The caller and the backend share
// ownership. Any thread may wait; exactly one of them waits for the transport (claim). Failures are stored in
// the work and thrown by wait() as c10::DistBackendError.
#pragma once

#include <c10/core/Event.h>

#include <atomic>

#include "at_work.h"
#include "exchange.h"

namespace openxpu {

class CollectiveBackend;
class Recording;

// Does the transport (Gloo) support the dtype? Others can only be moved, as bytes.
bool is_transportable(c10::ScalarType type);

// A copy to make when the transport is done.
struct Return {
    at::Tensor to, from;
};

// The CPU tensors of one call.
struct Transfer {
    bool takes_cpu = false;             // CPU tensors are used directly
    std::optional<c10::Device> device;  // of the first tensor
    std::optional<c10::Stream> copying; // stream of the copies between host and device, if any
    bool reads = false;                 // inputs are copied to the host
    std::vector<Return> returns;
    Tensors results;                           // written by the transport
    Exchange said;                             // what this rank announces
    c10::intrusive_ptr<ExchangeWork> exchange; // null: the transport's own collective
    std::vector<std::function<void()>> finish; // called when the data has arrived

    // The tensor in the shape and dtype for the transport, contiguous. If `written`, the result is copied
    // back when the transport is done.
    at::Tensor map(const at::Tensor &tensor, const Collective &collective, bool read, bool written);
};

// Python callbacks may issue further collectives (PowerSGD does), which all ranks must issue in the same
// order. Therefore, as with NCCL, Python gets a completed future, whose callbacks run when they are added.
// C++ (DDP's reducer) gets a future that completes later.
c10::intrusive_ptr<c10::ivalue::Future> wait_if_python(c10::intrusive_ptr<c10::ivalue::Future> future);

// One call in progress. Its future completes when the copies back to the device, if any, have been submitted.
// As with NCCL, waiting for it makes the current stream wait for the stream of those copies.
class CollectiveWork final : public c10d::Work {
  public:
    CollectiveWork(const c10::intrusive_ptr<CollectiveBackend> &backend, const Collective &collective,
                   Tensors inputs, Tensors outputs);

    // Attaches the transport's work. When it succeeds, the steps in `transfer` run: in the transport's
    // thread, or in the waiting thread if the transport does not notify.
    void follow(WorkPtr carried, Transfer transfer);
    // Waits for a transport that does not notify, unless another thread does. Failures become those of the
    // work.
    void wait_here(std::chrono::milliseconds timeout = kNoTimeout) {
        if (claim()) wait_for_transport(timeout, false);
    }
    // Claims the wait for the transport; true for the first caller.
    bool claim() { return !is_claimed_.exchange(true); }
    // `alone`: the thread has nothing else to compute.
    void wait_for_transport(std::chrono::milliseconds timeout, bool alone);

    const std::string &what() const { return what_; }
    // The part that must be equal on all ranks: element counts, not sizes.
    const std::string &alike() const { return alike_; }
    uint64_t number() const { return number_; }
    int root() const { return root_; }
    bool is_between_two() const { return is_between_two_; }
    void set_number(uint64_t number) { number_ = number; }
    void set_recording(std::shared_ptr<Recording> recording);
    // Waits for the transport in a separate thread, unless another thread does.
    void wait_aside();
    // After the other rank's header the waiting thread must request the data, so some thread has to wait.
    bool continues_after_header() const;
    // Mismatches in the headers received so far.
    std::string mismatch_so_far();

    // Ends it with an error, unless it has ended.
    void fail(const std::string &why) {
        fail(std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, why)));
    }
    void fail(const std::exception_ptr &failure);
    // Stops waiting for the transport; the work stays open until it fails. What the transport holds is
    // leaked, because one of its blocked threads may use it.
    void abandon_transport();

    bool isCompleted() override {
        if (needs_waiter_) wait_aside();
        return Work::isCompleted();
    }
    bool wait(std::chrono::milliseconds timeout) override {
        if (needs_waiter_) wait_here(timeout);
        return Work::wait(timeout);
    }
    void synchronize() override;
    void blockCurrentStream() override { wait(kNoTimeout); }
    void abort() override {
        if (needs_waiter_)
            fail(what_ + " was aborted");
        else
            transport_work_->abort();
    }
    int sourceRank() const override { return transport_work_->sourceRank(); }
    uint64_t getSequencenumber() const override { return number_; }
    Tensors result() override { return outputs_; }

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
        if (needs_waiter_) wait_aside();
        return wait_if_python(future_);
    }

    // Frees what the work holds when only weak references (the backend's list of work in progress) remain.
    void release_resources() override;

  private:
    Tensors outputs_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    WorkPtr transport_work_;
    Transfer transfer_;
    std::optional<c10::Event> copied_;
    c10::intrusive_ptr<CollectiveBackend> backend_;
    const bool is_between_two_;
    const int root_;
    std::string what_, alike_;
    c10::intrusive_ptr<ExchangeWork> exchange_;
    uint64_t number_ = 0;
    std::shared_ptr<Recording> recording_;
    std::mutex following_; // guards transport_work_, exchange_ and recording_ until the work is over
    std::atomic<bool> is_over_ = false;
    std::atomic<bool> needs_waiter_ = false; // the transport does not notify, so a thread has to wait for it
    std::atomic<bool> is_claimed_ = false;   // a thread is waiting for the transport

    void copy_back();
    void complete(std::exception_ptr failure);
};

// A thread that waits for exchanges that no other thread waits for, in order, and completes them. It starts
// with the first exchange. All ranks begin exchanges in the same order, so none waits for a later one.
class Waiter {
  public:
    Waiter();
    ~Waiter();
    void add(std::function<void()> waiting);

  private:
    struct State;
    const std::shared_ptr<State> state_; // shared with the thread, whose last work may own the backend
};

// A collective recorded in a graph: nothing is in progress, and its tensors belong to replays.
class RecordedWork final : public c10d::Work {
  public:
    RecordedWork(int rank, const Collective &collective, const Tensors &outputs);
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
    Tensors result() override { return outputs_; }

  private:
    const Tensors outputs_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// All calls between startCoalescing and endCoalescing.
class CoalescedWork final : public c10d::Work {
  public:
    CoalescedWork(int rank, std::vector<WorkPtr> parts)
        : Work(rank, c10d::OpType::COALESCED), parts_(std::move(parts)) {}

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
        TORCH_CHECK_NOT_IMPLEMENTED(false, "coalesced work has no future");
    }

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    bool wait(std::chrono::milliseconds timeout) override {
        for (const auto &part : parts_)
            if (!part->wait(timeout)) return false; // aborted
        return true;
    }
    void synchronize() override {
        for (const auto &part : parts_) part->synchronize();
    }
    void blockCurrentStream() override { wait(kNoTimeout); }
    void abort() override {
        for (const auto &part : parts_) part->abort();
    }
    Tensors result() override;

  private:
    const std::vector<WorkPtr> parts_;
};

} // namespace openxpu
