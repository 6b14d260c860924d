// Work in progress (work.h): copies between host and device, futures, and waiting for the transport.
#include "work.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <Python.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <condition_variable>
#include <deque>
#include <sstream>
#include <thread>

#include "backend.h"
#include "host_alias.h"
#include "lower.h"
#include "recorder.h"

namespace openxpu {

using at::Tensor;

namespace {

constexpr const char *reduction_names[] = {"sum", "average", "product", "min",        "max",
                                           "and", "or",      "xor",     "scaled sum", "unused"};

// Describes a call, with the tensors' sizes or, for the comparison between ranks, their element counts.
std::string in_words(const Collective &collective, const Tensors &tensors, bool with_sizes) {
    std::ostringstream text;
    text << collective.title;
    if (!tensors.empty()) {
        text << " of " << c10::toString(tensors[0].scalar_type());
        if (collective.alike != Collective::nobodys && !tensors[0].is_sparse())
            for (const auto &tensor : tensors)
                with_sizes ? text << " " << tensor.sizes() : text << " " << tensor.numel();
        else if (collective.is_between_two)
            text << " " << tensors[0].sizes();
    }
    if (collective.reduces) text << ", " << reduction_names[collective.reduces->op_];
    if (collective.root >= 0) text << (collective.is_between_two ? ", rank " : ", root ") << collective.root;
    return text.str();
}

// A contiguous CPU tensor in the shape and dtype that the transport gets.
Tensor as_transportable(const Tensor &host, const Collective &collective) {
    if (host.is_sparse()) return host;
    const bool in_bytes = !collective.reduces && !is_transportable(host.scalar_type());
    const auto real = collective.reduces && host.is_complex() ? at::view_as_real(host) : host;
    if (collective.as == Collective::keep && !in_bytes) return real;
    // A single element may have any stride, which a view as bytes does not allow.
    const auto row = real.numel() == 1 ? real.as_strided({1}, {1}) : real.view({-1});
    const auto flat = in_bytes ? row.view(at::kByte) : row;
    if (collective.as != Collective::rows) return flat;
    if (!in_bytes) return real;
    const int64_t rows = host.dim() ? host.size(0) : 1;
    return flat.view({rows, rows ? flat.numel() / rows : 0});
}

} // namespace

bool is_transportable(c10::ScalarType type) {
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

Tensor Transfer::map(const Tensor &tensor, const Collective &collective, bool read, bool written) {
    TORCH_CHECK(tensor.is_xpu() || collective.is_replayed || (takes_cpu && tensor.is_cpu()), collective.title,
                ": all tensors must be on xpu, but one is on ", tensor.device());
    TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(), collective.title,
                ": tensors with a conjugate or negative bit must be resolved first");
    // float8 is reduced in fp32 and rounded once.
    const bool is_widened = collective.reduces && c10::isFloat8Type(tensor.scalar_type());
    const auto type = is_widened ? at::kFloat : tensor.scalar_type();
    Tensor host;
    if (tensor.is_sparse()) {
        host = tensor.cpu();
        if (written) returns.push_back({tensor, host});
    } else if (!copying) {
        const auto alias = as_cpu(tensor); // the tensor itself in a replay
        const bool is_itself = alias.is_contiguous() && !is_widened;
        host = is_itself ? alias : at::empty(alias.sizes(), alias.options().dtype(type));
        if (!is_itself) {
            if (read) host.copy_(alias);
            if (written) returns.push_back({alias, host});
        }
    } else {
        const c10::StreamGuard guard(*copying);
        // In a CUDA build the tensor factories pin memory for CUDA, which is ordinary memory to this device.
        host = at::detail::empty_generic(tensor.sizes(), at::getHostAllocator(c10::kXPU),
                                         c10::DispatchKeySet(c10::DispatchKey::CPU), type, std::nullopt);
        if (read) host.copy_(is_widened ? tensor.to(type) : tensor, true);
        reads = reads || read;
        if (written) returns.push_back({tensor, host});
    }
    const auto carried = as_transportable(host, collective);
    if (written) results.push_back(carried);
    return carried;
}

c10::intrusive_ptr<c10::ivalue::Future> wait_if_python(c10::intrusive_ptr<c10::ivalue::Future> future) {
    if (PyGILState_Check()) {
        auto *thread = PyEval_SaveThread();
        future->wait();
        PyEval_RestoreThread(thread);
    }
    return future;
}

// --- one collective ---

CollectiveWork::CollectiveWork(const c10::intrusive_ptr<CollectiveBackend> &backend,
                               const Collective &collective, Tensors inputs, Tensors outputs)
    : Work(backend->getRank(), collective.type, collective.title, inputs), outputs_(std::move(outputs)),
      backend_(backend), is_between_two_(collective.is_between_two), root_(collective.root) {
    const auto &sized = collective.alike == Collective::inputs || outputs_.empty() ? inputs : outputs_;
    what_ = in_words(collective, sized, true);
    alike_ = in_words(collective, sized, false);
    std::vector<c10::Device> devices;
    for (const auto &tensor : outputs_)
        if (tensor.is_xpu() && std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
            devices.push_back(tensor.device());
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       std::move(devices));
}

// A thread that fails the work meanwhile either finds its recording, or set_recording finds that it has
// failed.
void CollectiveWork::set_recording(std::shared_ptr<Recording> recording) {
    {
        const std::lock_guard guard(following_);
        recording_ = recording;
        if (!is_over_) return;
    }
    if (recording) recording->over(false);
}

void CollectiveWork::follow(WorkPtr carried, Transfer transfer) {
    bool is_over;
    {
        const std::lock_guard guard(following_);
        transport_work_ = std::move(carried);
        transfer_ = std::move(transfer);
        exchange_ = transfer_.exchange;
        needs_waiter_ = transport_work_ == exchange_; // Gloo's sends and receives have no future
        is_over = is_over_;
    }
    if (is_over && exchange_) {
        backend_->keep(exchange_);
        exchange_->abort();
    }
    if (needs_waiter_) return;
    const auto self = c10::intrusive_ptr<CollectiveWork>::reclaim_copy(this);
    transport_work_->getFuture()->addCallback([self](c10::ivalue::Future &done) {
        self->complete(done.hasError() ? done.exception_ptr() : nullptr);
    });
}

void CollectiveWork::fail(const std::exception_ptr &failure) {
    if (is_over_.exchange(true)) return;
    c10::intrusive_ptr<ExchangeWork> exchange;
    std::shared_ptr<Recording> recording;
    {
        const std::lock_guard guard(following_);
        exchange = exchange_;
        recording = recording_;
    }
    if (exchange) backend_->keep(exchange);
    if (recording) recording->over(false);
    finish(failure);
    future_->setError(failure);
    if (exchange) exchange->abort(); // wakes the thread that waits for it
}

void CollectiveWork::abandon_transport() {
    c10::intrusive_ptr<ExchangeWork> exchange;
    {
        const std::lock_guard guard(following_);
        exchange = exchange_;
    }
    if (!exchange) return;
    c10::intrusive_ptr<ExchangeWork>(exchange).release();
    exchange->abort();
}

bool CollectiveWork::continues_after_header() const {
    return exchange_ && exchange_->continues_after_header();
}

void CollectiveWork::synchronize() {
    if (!copied_) return;
    const c10::impl::VirtualGuardImpl device(c10::kXPU);
    copied_->block(device.getStream(copied_->device()));
}

void CollectiveWork::release_resources() {
    outputs_.clear();
    future_.reset();
    transport_work_.reset();
    exchange_.reset();
    transfer_ = {};
    recording_.reset();
    backend_.reset();
}

std::string CollectiveWork::mismatch_so_far() {
    c10::intrusive_ptr<ExchangeWork> exchange;
    {
        const std::lock_guard guard(following_);
        exchange = exchange_;
    }
    return exchange ? exchange->known_mismatch() : "";
}

void CollectiveWork::wait_for_transport(std::chrono::milliseconds timeout, bool alone) {
    std::exception_ptr failure;
    try {
        const at::AutoDispatchBelowADInplaceOrView below_autograd;
        if (!(exchange_ ? exchange_->finish(timeout, alone) : transport_work_->wait(timeout)))
            return; // aborted: the aborting thread reports the reason
    } catch (...) { failure = std::current_exception(); }
    complete(failure);
}

void CollectiveWork::wait_aside() {
    if (!claim()) return;
    auto self = c10::intrusive_ptr<CollectiveWork>::reclaim_copy(this);
    std::thread([self = std::move(self), at_work = std::make_unique<AtWork>()]() mutable {
        self->wait_for_transport(kNoTimeout, true);
        self.reset();
    }).detach();
}

void CollectiveWork::copy_back() {
    c10::OptionalStreamGuard guard(transfer_.copying);
    for (const auto &copy : transfer_.returns) {
        Tensor(copy.to).copy_(copy.from, true);
        if (transfer_.copying && copy.to.is_xpu() && !copy.to.is_sparse())
            copy.to.record_stream(*transfer_.copying);
    }
    if (transfer_.copying && !transfer_.returns.empty()) {
        copied_.emplace(c10::kXPU);
        copied_->record(*transfer_.copying);
    }
}

void CollectiveWork::complete(std::exception_ptr failure) {
    const auto copying = transfer_.copying;
    std::string why;
    bool is_known = false;
    std::exception_ptr refusal;
    try {
        if (failure) std::rethrow_exception(failure);
        if (exchange_ && !is_over_) why = exchange_->mismatch_text(kNoTimeout);
        if (why.empty() && !is_over_) { // otherwise it has been given up
            const at::AutoDispatchBelowADInplaceOrView below_autograd;
            for (const auto &each : transfer_.finish) each();
            copy_back();
        }
    } catch (const c10::Error &) { // the arguments are at fault, so the group continues
        refusal = std::current_exception();
    } catch (const std::exception &error) {
        why = error.what();
        if (exchange_) {
            const auto differs = exchange_->known_mismatch();
            is_known = !differs.empty();
            if (is_known) why = differs;
        }
    }
    transfer_ = {};
    if (refusal) return fail(refusal);
    if (!why.empty()) return fail(backend_->explain(*this, why, is_known));
    if (is_over_.exchange(true)) return;
    if (recording_) recording_->over(true);
    finish(nullptr);
    const c10::OptionalStreamGuard guard(copying);
    future_->markCompleted(c10::IValue(outputs_));
}

RecordedWork::RecordedWork(int rank, const Collective &collective, const Tensors &outputs)
    : Work(rank, collective.type), outputs_(outputs),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
    finish();
    future_->markCompleted(c10::IValue(outputs_));
}

// --- waiting thread ---

struct Waiter::State {
    std::mutex lock; // guards the fields below
    std::condition_variable changes;
    struct Task {
        std::function<void()> function;
        std::unique_ptr<AtWork> at_work; // outlives everything that the function holds
    };
    std::deque<Task> waiting;
    bool runs = false, ends = false;

    void run() {
        std::unique_lock hold(lock);
        for (;;) {
            changes.wait(hold, [this] { return ends || !waiting.empty(); });
            if (waiting.empty()) return;
            auto first = std::move(waiting.front());
            waiting.pop_front();
            hold.unlock();
            first.function();
            first = {}; // destroys what it holds, without the lock
            hold.lock();
        }
    }
};

Waiter::Waiter() : state_(std::make_shared<State>()) {}

void Waiter::add(std::function<void()> waiting) {
    bool begins;
    {
        const std::lock_guard guard(state_->lock);
        state_->waiting.push_back({std::move(waiting), std::make_unique<AtWork>()});
        begins = !std::exchange(state_->runs, true);
    }
    if (begins)
        std::thread([state = state_] { state->run(); }).detach();
    else
        state_->changes.notify_one();
}

Waiter::~Waiter() {
    {
        const std::lock_guard guard(state_->lock);
        state_->ends = true;
    }
    state_->changes.notify_one();
}

// --- coalesced works ---

bool CoalescedWork::isCompleted() {
    for (const auto &part : parts_)
        if (!part->isCompleted()) return false;
    return true;
}

bool CoalescedWork::isSuccess() const {
    for (const auto &part : parts_)
        if (!part->isSuccess()) return false;
    return true;
}

std::exception_ptr CoalescedWork::exception() const {
    for (const auto &part : parts_)
        if (auto failure = part->exception()) return failure;
    return nullptr;
}

Tensors CoalescedWork::result() {
    Tensors all;
    for (const auto &part : parts_)
        for (const auto &tensor : part->result()) all.push_back(tensor);
    return all;
}

} // namespace openxpu
