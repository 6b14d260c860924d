// Work in progress: one collective, or several that are awaited as one.
#pragma once

#include <c10/core/Event.h>

#include <atomic>

#include "at_work.h"
#include "exchange.h"

namespace openxpu {

// What kind of call it is.
struct Collective {
    c10d::OpType type;
    const char *title; // for profiles; what errors say follows the colon
    std::optional<c10d::ReduceOp> reduces = std::nullopt;
    bool reads_outputs = false;          // in place
    enum { keep, flat, rows } as = keep; // shapes of what the transport gets: rows stay rows in bytes, too
    // Whose sizes are the same on all ranks.
    enum { nobodys, inputs, outputs } alike = nobodys;
    int root = -1;
    bool is_between_two = false;  // a send or a reception
    bool is_straight = false;     // by an exchange, and not one of the transport's own collectives
    bool is_awaited = false;      // by who calls, at once
    bool is_replayed = false;     // by a graph, on CPU tensors
    bool is_read_at_once = false; // by who calls, what it gives
};

// The tensors of one call on the CPU.
struct Transfer {
    bool takes_cpu = false;             // as they are
    std::optional<c10::Device> device;  // the first tensor's
    std::optional<c10::Stream> copying; // where copies run, if there are any between host and device
    bool reads = false;                 // so that something is copied to the host
    std::vector<Return> returns;
    Tensors results;                           // what the transport writes
    Exchange said;                             // to the other ranks: what this one does
    c10::intrusive_ptr<ExchangeWork> exchange; // by which it is done; null: by the transport's own
    std::vector<std::function<void()>> finish; // what is left to do with what has come

    // The tensor in the shape and dtype that the transport gets, contiguous. What is `written` there goes
    // back when the transport is done.
    at::Tensor map(const at::Tensor &tensor, const Collective &collective, bool read, bool written);
};

// Python's callbacks may issue further collectives (PowerSGD's do), and all ranks must issue theirs in one
// order. So they run when they are added, as they do with NCCL: Python gets a completed future. C++ (DDP's
// reducer) gets one that completes by and by.
c10::intrusive_ptr<c10::ivalue::Future> wait_if_python(c10::intrusive_ptr<c10::ivalue::Future> future);

// One call under way. Its future is complete when the copies back to the device, if there are any, are in
// their stream: who waits for it has his current stream wait for that one, as with NCCL.
class CollectiveWork final : public c10d::Work {
  public:
    CollectiveWork(const c10::intrusive_ptr<CollectiveBackend> &backend, const Collective &collective,
                   Tensors inputs, Tensors outputs);

    // Takes what the transport has begun. What `transfer` says is to be done then is done when that is over
    // and has succeeded: by the transport's thread, or by who waits for it where the transport tells nobody.
    void follow(WorkPtr carried, Transfer transfer);
    // Waits for a transport that tells nobody, unless somebody does. Failures are those of the work.
    void wait_here(std::chrono::milliseconds timeout = kNoTimeout) {
        if (claim()) wait_for_transport(timeout, false);
    }
    // The right to wait for the transport, once.
    bool claim() { return !is_claimed_.exchange(true); }
    // `alone`: in a thread that computes nothing else.
    void wait_for_transport(std::chrono::milliseconds timeout, bool alone);

    const std::string &what() const { return what_; }
    // All of it that must be the same on all ranks: numbers of elements, and not sizes.
    const std::string &alike() const { return alike_; }
    uint64_t number() const { return number_; }
    int root() const { return root_; }
    bool is_between_two() const { return is_between_two_; }
    void set_number(uint64_t number) { number_ = number; }
    void set_recording(std::shared_ptr<Recording> recording);
    // Lets a thread of its own wait for the transport, unless somebody does.
    void wait_aside();
    // What is to come is asked for by who waits, when the other rank has said something: somebody has to.
    bool continues_after_header() const;
    // What doesn't fit of what has been heard.
    std::string mismatch_so_far();

    // Ends it with an error, unless it has ended.
    void fail(const std::string &why) {
        fail(std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, why)));
    }
    void fail(const std::exception_ptr &failure);
    // Ends waiting for the transport; the work goes on till it fails. What the transport has is kept for
    // good: one of its threads may have it, and go on no more.
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

    // The backend's list of what is under way keeps the object, but not what it holds.
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
    std::mutex following_; // guards transport_work_, exchange_ and recording_ till it is over
    std::atomic<bool> is_over_ = false;
    std::atomic<bool> needs_waiter_ = false; // that the transport is done: somebody has to wait for it
    std::atomic<bool> is_claimed_ = false;   // by who waits for the transport

    void copy_back();
    void complete(std::exception_ptr failure);
};

// A thread that waits for exchanges which nobody waits for, one after the other, and so does what is left to
// do with them. It begins with the first. All ranks begin them in one order, so none waits for a later one.
class Waiter {
  public:
    Waiter();
    ~Waiter();
    void add(std::function<void()> waiting);

  private:
    struct State;
    const std::shared_ptr<State>
        state_; // the thread's, too: the last work that it holds may hold the backend
};

// What a graph has written down: nothing is under way, and the tensors are those of its replays.
class RecordedWork final : public c10d::Work {
  public:
    RecordedWork(int rank, const Collective &collective, const Tensors &outputs);
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
    Tensors result() override { return outputs_; }

  private:
    const Tensors outputs_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// All that was given between startCoalescing and endCoalescing.
class CoalescedWork final : public c10d::Work {
  public:
    CoalescedWork(int rank, std::vector<WorkPtr> parts)
        : Work(rank, c10d::OpType::COALESCED), parts_(std::move(parts)) {}

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
        TORCH_CHECK_NOT_IMPLEMENTED(false, "what was coalesced has no future");
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
