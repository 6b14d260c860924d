#include "backend.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <Python.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <sstream>
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
    // Whose sizes are the same on all ranks.
    enum { nobodys, inputs, outputs } alike = nobodys;
    int root = -1;
    bool is_between_two = false; // a send or a reception
};

namespace {

constexpr const char *reduction_names[] = {"sum", "average", "product", "min",        "max",
                                           "and", "or",      "xor",     "scaled sum", "unused"};

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

namespace {

// Python's callbacks may issue further collectives (PowerSGD's do), and all ranks must issue theirs in one
// order. So they run when they are added, as they do with NCCL: Python gets a completed future. C++ (DDP's
// reducer) gets one that completes by and by.
c10::intrusive_ptr<c10::ivalue::Future> wait_if_python(c10::intrusive_ptr<c10::ivalue::Future> future) {
    if (PyGILState_Check()) {
        auto *thread = PyEval_SaveThread();
        future->wait();
        PyEval_RestoreThread(thread);
    }
    return future;
}

} // namespace

// One call under way. Its future is complete when the copies back to the device, if there are any, are in
// their stream: who waits for it has his current stream wait for that one, as with NCCL.
class CollectiveWork final : public c10d::Work {
  public:
    CollectiveWork(const c10::intrusive_ptr<CollectiveBackend> &backend, const Collective &collective,
                   Tensors inputs, Tensors outputs)
        : Work(backend->getRank(), collective.type, collective.title, inputs), outputs_(std::move(outputs)),
          backend_(backend), is_between_two_(collective.is_between_two), root_(collective.root) {
        std::ostringstream text;
        text << collective.title;
        const auto &sized = collective.alike == Collective::inputs ? inputs : outputs_;
        if (!sized.empty()) {
            text << " of " << c10::toString(sized[0].scalar_type());
            if (collective.alike != Collective::nobodys && !sized[0].is_sparse())
                for (const auto &tensor : sized) text << " " << tensor.sizes();
            else if (is_between_two_)
                text << " " << sized[0].sizes();
        }
        if (collective.reduces) text << ", " << reduction_names[collective.reduces->op_];
        if (root_ >= 0) text << (is_between_two_ ? ", rank " : ", root ") << root_;
        what_ = text.str();
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

    const std::string &what() const { return what_; }
    uint64_t number() const { return number_; }
    int root() const { return root_; }
    bool is_between_two() const { return is_between_two_; }
    void set_number(uint64_t number, bool is_new) {
        number_ = number;
        is_new_ = is_new;
    }

    // Ends it with an error, unless it has ended.
    void fail(const std::string &why) {
        fail(std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, why)));
    }
    void fail(const std::exception_ptr &failure) {
        if (is_over_.exchange(true)) return;
        finish(failure);
        future_->setError(failure);
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

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
        if (tells_nobody_) wait_aside();
        return wait_if_python(future_);
    }

    // The backend's list of what is under way keeps the object, but not what it holds.
    void release_resources() override {
        outputs_.clear();
        future_.reset();
        carried_.reset();
        transfer_ = {};
        after_ = nullptr;
    }

    // `then` runs in the thread that completes the work, on the stream of its copies.
    void when_over(const std::function<void(const std::exception_ptr &)> &then) {
        future_->addCallback(
            [then](c10::ivalue::Future &done) { then(done.hasError() ? done.exception_ptr() : nullptr); });
    }

  private:
    Tensors outputs_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    WorkPtr carried_;
    Transfer transfer_;
    std::function<void(Transfer &)> after_;
    std::optional<c10::Event> copied_;
    const c10::intrusive_ptr<CollectiveBackend> backend_;
    const bool is_between_two_;
    const int root_;
    std::string what_;
    uint64_t number_ = 0;
    bool is_new_ = false; // may not be what other ranks do
    std::atomic<bool> is_over_ = false;
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
            if (transfer_.copying && copy.to.is_xpu() && !copy.to.is_sparse())
                copy.to.record_stream(*transfer_.copying);
        }
        if (transfer_.copying && !transfer_.returns.empty()) {
            copied_.emplace(c10::kXPU);
            copied_->record(*transfer_.copying);
        }
    }

    void complete(std::exception_ptr failure) {
        const auto copying = transfer_.copying;
        std::string why;
        std::exception_ptr refusal;
        try {
            if (failure) std::rethrow_exception(failure);
            if (is_new_) why = backend_->difference(*this);
            if (why.empty()) {
                if (is_over_) return; // given up meanwhile
                if (after_) after_(transfer_);
                copy_back();
            }
        } catch (const c10::Error &) { // what it was given is at fault, and the group goes on
            refusal = std::current_exception();
        } catch (const std::exception &error) { why = error.what(); }
        after_ = nullptr;
        transfer_ = {};
        if (refusal) return fail(refusal);
        if (!why.empty()) return fail(backend_->explain(*this, why));
        if (is_over_.exchange(true)) return;
        finish(nullptr);
        const c10::OptionalStreamGuard guard(copying);
        future_->markCompleted(c10::IValue(outputs_));
    }
};

namespace {

// All that was given between startCoalescing and endCoalescing, or the pieces of one tensor.
class CoalescedWork final : public c10d::Work {
  public:
    CoalescedWork(int rank, std::vector<WorkPtr> parts, OpType type = OpType::COALESCED)
        : Work(rank, type), parts_(std::move(parts)) {}

    // One future for all pieces of `whole`, complete with the last.
    void gather(const Tensor &whole) {
        whole_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                          std::vector<c10::Device>{whole.device()});
        const auto left = std::make_shared<std::atomic<size_t>>(parts_.size());
        for (const auto &part : parts_)
            static_cast<CollectiveWork &>(*part).when_over(
                [left, whole, future = whole_](const std::exception_ptr &failure) {
                    if (failure && left->exchange(0) != 0)
                        future->setError(failure);
                    else if (!failure && left->load() != 0 && left->fetch_sub(1) == 1)
                        future->markCompleted(c10::IValue(Tensors{whole}));
                });
    }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
        TORCH_CHECK_NOT_IMPLEMENTED(whole_, "what was coalesced has no future");
        return wait_if_python(whole_);
    }

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
    c10::intrusive_ptr<c10::ivalue::Future> whole_;
};

} // namespace

// --- what goes wrong ---

namespace {

std::mutex backends_lock; // guards what follows
std::vector<CollectiveBackend *> backends;
std::terminate_handler usual_end;

// Gloo throws in a thread of its own, where nobody can catch it, when more comes than was expected. Instead
// of the process what is under way ends, and the thread stays where it is: it holds Gloo's locks.
void end_collectives() {
    try {
        if (const auto error = std::current_exception()) std::rethrow_exception(error);
    } catch (const std::exception &error) {
        if (std::strstr(error.what(), "Received data size doesn't match expected size")) {
            std::vector<c10::intrusive_ptr<CollectiveBackend>> all;
            {
                const std::lock_guard guard(backends_lock);
                for (auto *backend : backends)
                    all.push_back(c10::intrusive_ptr<CollectiveBackend>::reclaim_copy(backend));
            }
            for (const auto &backend : all)
                if (backend->is_busy()) backend->give_up("another rank sent more than this one expected");
            for (;;) pause();
        }
    } catch (...) {}
    usual_end();
    std::abort();
}

} // namespace

CollectiveBackend::CollectiveBackend(c10::intrusive_ptr<c10d::Backend> carrier,
                                     c10::intrusive_ptr<c10d::Store> store,
                                     c10::intrusive_ptr<CollectiveOptions> options, Connect connect)
    : Backend(carrier->getRank(), carrier->getSize()), carrier_(std::move(carrier)),
      options_(std::move(options)), connect_(std::move(connect)), board_(std::move(store), rank_, size_) {
    const std::lock_guard guard(backends_lock);
    if (!usual_end) usual_end = std::set_terminate(end_collectives);
    backends.push_back(this);
}

CollectiveBackend::~CollectiveBackend() {
    {
        const std::lock_guard guard(backends_lock);
        backends.erase(std::find(backends.begin(), backends.end(), this));
    }
    // Its threads may hold locks that its end would wait for.
    if (!given_up_.empty()) c10::intrusive_ptr<c10d::Backend>(carrier_).release();
}

c10::intrusive_ptr<c10d::Backend> CollectiveBackend::split(const c10::intrusive_ptr<c10d::Store> &store,
                                                           const std::vector<int> &ranks,
                                                           const c10::intrusive_ptr<Options> &options) {
    for (const int rank : ranks) // on all ranks alike
        TORCH_CHECK_VALUE(rank >= 0 && rank < size_, "split: there is no rank ", rank, " among ", size_);
    const auto here = std::find(ranks.begin(), ranks.end(), rank_);
    if (here == ranks.end()) return nullptr;
    const auto *own = dynamic_cast<const CollectiveOptions *>(options.get());
    auto wanted = c10::make_intrusive<CollectiveOptions>(own ? own->is_high_priority_stream : false);
    wanted->timeout = options->timeout;
    wanted->group_name = options->group_name;
    const auto &global = options_->global_ranks_in_group; // empty: these are all
    for (const int rank : ranks)
        wanted->global_ranks_in_group.push_back(global.empty() ? rank : global[rank]);
    return connect_(c10::make_intrusive<c10d::PrefixStore>("xpu", store),
                    static_cast<int>(here - ranks.begin()), static_cast<int>(ranks.size()), wanted);
}

void CollectiveBackend::number(CollectiveWork &work) {
    const std::lock_guard guard(lock_);
    if (!given_up_.empty()) C10_THROW_ERROR(DistBackendError, given_up_);
    const size_t now = std::hash<std::string>()(work.what());
    const bool counts = !work.is_between_two() && size_ > 1;
    const bool is_new = counts && successions_.insert(last_ * 31 + now).second;
    if (counts) {
        last_ = now;
        issued_++;
    }
    work.set_number(issued_, is_new);
    if (is_new) board_.tell(issued_, work.what());
    if (under_way_.size() >= 64)
        under_way_.erase(std::remove_if(under_way_.begin(), under_way_.end(),
                                        [](const auto &weak) {
                                            const auto strong = weak.lock();
                                            return !strong || strong->c10d::Work::isCompleted();
                                        }),
                         under_way_.end());
    under_way_.emplace_back(c10::intrusive_ptr<CollectiveWork>::reclaim_copy(&work));
}

// Once for each two collectives that follow each other: programs repeat themselves.
std::string CollectiveBackend::difference(CollectiveWork &work) {
    // Only who gets something from the others can get what is wrong.
    const auto type = work.retrieveOpType();
    const bool to_root = type == OpType::REDUCE || type == OpType::GATHER;
    if (work.root() >= 0 && to_root != (work.root() == rank_)) return "";
    const auto differs =
        board_.difference(work.number(), work.what(), to_root ? -1 : work.root(), options_->timeout);
    return differs.empty() ? "" : "not all ranks do the same: " + differs;
}

std::string CollectiveBackend::explain(const CollectiveWork &work, const std::string &reason) {
    const std::lock_guard guard(explaining_);
    auto text = c10::str(work.what());
    if (!work.is_between_two()) text += c10::str(" (the group's collective number ", work.number(), ")");
    text += c10::str(" failed on rank ", rank_);
    if (!first_failure_.empty()) return text + ", after this: " + first_failure_;
    text += ": " + reason;
    const auto others = size_ > 1 ? board_.failure(work.number(), work.what()) : "";
    if (!others.empty()) text += ". Of the other ranks: " + others;
    return first_failure_ = text;
}

bool CollectiveBackend::is_busy() {
    const std::lock_guard guard(lock_);
    return std::any_of(under_way_.begin(), under_way_.end(), [](const auto &weak) {
        const auto work = weak.lock();
        return work && !work->c10d::Work::isCompleted();
    });
}

void CollectiveBackend::give_up(const std::string &reason) {
    std::vector<c10::weak_intrusive_ptr<CollectiveWork>> works;
    {
        const std::lock_guard guard(lock_);
        given_up_ = "this process group was given up: " + reason;
        works.swap(under_way_);
    }
    for (const auto &weak : works)
        if (const auto work = weak.lock())
            if (!work->c10d::Work::isCompleted()) work->fail(explain(*work, reason));
}

c10d::ErrorType CollectiveBackend::getError() {
    const std::lock_guard guard(explaining_);
    return first_failure_.empty() ? c10d::ErrorType::SUCCESS : c10d::ErrorType::COMM_ERROR;
}

void CollectiveBackend::abort() {
    give_up("it was aborted");
    carrier_->abort();
}

void CollectiveBackend::shutdown() {
    if (given_up_.empty()) carrier_->shutdown();
}

// --- carrying ---

c10::Stream CollectiveBackend::copying_stream(c10::Device device) {
    const std::lock_guard guard(lock_);
    const auto known = copying_.find(device.index());
    if (known != copying_.end()) return known->second;
    const c10::impl::VirtualGuardImpl impl(c10::kXPU);
    return copying_.emplace(device.index(), impl.getStreamFromGlobalPool(device)).first->second;
}

namespace {

// Gloo has sums only: what it gets is multiplied before. Sources may be the caller's own memory.
void scale(const ReduceOp &reduction, TensorLists &sources, TensorLists &targets, bool in_place) {
    const auto *premul = dynamic_cast<const c10d::NCCLPreMulSumSupplement *>(reduction.supplement_.get());
    TORCH_CHECK(premul, "PREMUL_SUM without its factor");
    const auto factor =
        premul->tensor_factor.defined() ? premul->tensor_factor.item() : premul->double_factor;
    for (auto *lists : {&sources, &targets})
        for (auto &list : *lists)
            for (auto &tensor : list) {
                TORCH_CHECK(tensor.is_floating_point(), "PREMUL_SUM takes floating-point tensors, but got ",
                            tensor.scalar_type());
                if (lists == &sources)
                    tensor = tensor.mul(factor);
                else if (in_place)
                    tensor.mul_(factor);
            }
}

} // namespace

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
    if (collective.reduces && collective.reduces->op_ == ReduceOp::PREMUL_SUM)
        scale(*collective.reduces, sources, targets, collective.reads_outputs);

    auto work = c10::make_intrusive<CollectiveWork>(c10::intrusive_ptr<CollectiveBackend>::reclaim_copy(this),
                                                    collective, std::move(read), std::move(written));
    number(*work);
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
    WorkPtr carried;
    if constexpr (std::is_invocable_v<Issue, TensorLists &, TensorLists &, std::vector<Return> &>)
        carried = issue(sources, targets, transfer.returns); // has copies to be made when it is done, too
    else
        carried = issue(sources, targets);
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
               {}, {tensors}, [&](auto &, auto &to) { return carrier_->broadcast(to[0], options); });
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
                .reads_outputs = true,
                .alike = Collective::outputs},
               {}, {tensors},
               [&](auto &, auto &to) { return carrier_->allreduce_coalesced(to[0], summing(options)); });
}

WorkPtr CollectiveBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &options) {
    return run({.type = OpType::REDUCE,
                .title = "xccl:reduce",
                .reduces = options.reduceOp,
                .reads_outputs = true,
                .divides = rank_ == options.rootRank,
                .alike = Collective::outputs,
                .root = root_among(options.rootRank, size_)},
               {}, {tensors}, [&](auto &, auto &to) { return carrier_->reduce(to[0], summing(options)); });
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
                   [&](auto &from, auto &to, std::vector<Return> &returns) {
                       return exchange(Tensors(static_cast<size_t>(size_), from[0][0]), to[0], returns, each);
                   });
    }
    return run({.type = OpType::ALLGATHER, .title = "xccl:all_gather", .alike = Collective::inputs}, {inputs},
               outputs, [&](auto &from, auto &to) { return carrier_->allgather(to, from[0], options); });
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
               {{input}}, {{output}}, [&](auto &from, auto &to) {
                   return carrier_->_allgather_base(to[0][0], from[0][0], options);
               });
}

WorkPtr CollectiveBackend::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                               const c10d::AllgatherOptions &options) {
    return run({.type = OpType::ALLGATHER_COALESCED, .title = "xccl:all_gather", .alike = Collective::inputs},
               {inputs}, outputs,
               [&](auto &from, auto &to) { return carrier_->allgather_coalesced(to, from[0], options); });
}

WorkPtr CollectiveBackend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                           const c10d::AllgatherOptions &options) {
    return run({.type = OpType::COALESCED,
                .title = "xccl:all_gather",
                .as = Collective::flat,
                .alike = Collective::inputs},
               {inputs}, {outputs}, [&](auto &from, auto &to) {
                   return carrier_->allgather_into_tensor_coalesced(to[0], from[0], options);
               });
}

WorkPtr CollectiveBackend::gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &options) {
    return run({.type = OpType::GATHER,
                .title = "xccl:gather",
                .alike = Collective::inputs,
                .root = root_among(options.rootRank, size_)},
               {inputs}, outputs,
               [&](auto &from, auto &to) { return carrier_->gather(to, from[0], options); });
}

WorkPtr CollectiveBackend::scatter(Tensors &outputs, TensorLists &inputs,
                                   const c10d::ScatterOptions &options) {
    return run({.type = OpType::SCATTER,
                .title = "xccl:scatter",
                .alike = Collective::outputs,
                .root = root_among(options.rootRank, size_)},
               inputs, {outputs},
               [&](auto &from, auto &to) { return carrier_->scatter(to[0], from, options); });
}

WorkPtr CollectiveBackend::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                          const c10d::ReduceScatterOptions &options) {
    return run({.type = OpType::REDUCE_SCATTER,
                .title = "xccl:reduce_scatter",
                .reduces = options.reduceOp,
                .alike = Collective::outputs},
               inputs, {outputs},
               [&](auto &from, auto &to) { return carrier_->reduce_scatter(to[0], from, summing(options)); });
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
               {{input}}, {{output}}, [&](auto &from, auto &to) {
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

// Gloo has lists of tensors of one size only. All ranks join theirs: one can't see whether others have to.
WorkPtr CollectiveBackend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) {
    for (const auto *list : {&inputs, &outputs})
        TORCH_CHECK_VALUE(static_cast<int>(list->size()) == size_, "xccl:all_to_all: expected ", size_,
                          " tensors in each list, one for each rank, but got ", list->size());
    return run({.type = OpType::ALLTOALL, .title = "xccl:all_to_all"}, {inputs}, {outputs},
               [&](auto &from, auto &to, std::vector<Return> &returns) {
                   return exchange(from[0], to[0], returns, options);
               });
}

WorkPtr CollectiveBackend::send(Tensors &tensors, int to, int tag) {
    return run({.type = OpType::SEND, .title = "xccl:send", .root = to, .is_between_two = true}, {tensors},
               {}, [&](auto &from, auto &) { return carrier_->send(from[0], to, tag); });
}

WorkPtr CollectiveBackend::recv(Tensors &tensors, int from, int tag) {
    return run({.type = OpType::RECV, .title = "xccl:recv", .root = from, .is_between_two = true}, {},
               {tensors}, [&](auto &, auto &to) { return carrier_->recv(to[0], from, tag); });
}

WorkPtr CollectiveBackend::recvAnysource(Tensors &tensors, int tag) {
    return run({.type = OpType::RECVANYSOURCE, .title = "xccl:recv", .is_between_two = true}, {}, {tensors},
               [&](auto &, auto &to) { return carrier_->recvAnysource(to[0], tag); });
}

// What was given to the current stream before is done before it.
WorkPtr CollectiveBackend::barrier(const c10d::BarrierOptions &options) {
    const c10::impl::VirtualGuardImpl impl(c10::kXPU);
    if (impl.deviceCount()) {
        const auto device = options.device && options.device->is_xpu() ? *options.device : impl.getDevice();
        impl.synchronizeStream(impl.getStream(device));
    }
    return run({.type = OpType::BARRIER, .title = "xccl:barrier"}, {}, {},
               [&](auto &, auto &) { return carrier_->barrier(options); });
}

void CollectiveBackend::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_for_all) {
    carrier_->monitoredBarrier(options, wait_for_all);
}

} // namespace openxpu
