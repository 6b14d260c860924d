// The process group backend: groups, failures, checks that all ranks agree, and handing collectives to the
// transport (backend.h). Failures reach the caller as c10::DistBackendError from wait(); lists of work in
// progress are guarded by lock_. Long waits release the GIL.
#include "backend.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <Python.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <unistd.h>

#include <cstring>

#include "host_memory.h"
#include "lower.h"
#include "recorder.h"
#include "shared_memory.h"
#include "work.h"

namespace openxpu {

using at::Tensor;
using c10d::OpType;
using c10d::ReduceOp;

// --- failures ---

namespace {

std::mutex backends_lock;                                         // guards `backends`
std::vector<c10::weak_intrusive_ptr<CollectiveBackend>> backends; // those that have begun a collective
std::terminate_handler usual_end;
std::atomic<size_t> backends_made = 0;

std::vector<c10::intrusive_ptr<CollectiveBackend>> begun_backends() {
    std::vector<c10::intrusive_ptr<CollectiveBackend>> all;
    const std::lock_guard guard(backends_lock);
    for (const auto &weak : backends)
        if (auto backend = weak.lock()) all.push_back(std::move(backend));
    return all;
}

// Terminate handler. If a message is larger than expected, Gloo throws in its own thread, where nobody can
// catch it. Instead of ending the process, this fails the collectives in progress and keeps the thread, which
// holds Gloo's locks, blocked forever.
void end_collectives() {
    try {
        if (const auto error = std::current_exception()) std::rethrow_exception(error);
    } catch (const std::exception &error) {
        if (std::strstr(error.what(), "Received data size doesn't match expected size")) {
            auto all = begun_backends();
            for (auto &backend : all) {
                if (backend->is_busy())
                    backend->give_up("another rank sent more data than this rank expected");
                else
                    backend.reset(); // this thread never ends, so it must not keep an idle group alive
            }
            for (;;) pause();
        }
    } catch (...) {}
    usual_end();
    std::abort();
}

} // namespace

CollectiveBackend::CollectiveBackend(c10::intrusive_ptr<c10d::Backend> transport,
                                     c10::intrusive_ptr<c10d::Store> store,
                                     c10::intrusive_ptr<CollectiveOptions> options, Connect connect)
    : Backend(transport->getRank(), transport->getSize()), transport_(std::move(transport)), store_(store),
      options_(std::move(options)), connect_(std::move(connect)), process_(getpid()),
      refuses_nan_(c10d::getCvarBool({"TORCH_XCCL_NAN_CHECK", "TORCH_NCCL_NAN_CHECK"}, false)),
      takes_cpu_(transport_->getBackendName() == "mpi"),
      memory_(takes_cpu_ || size_ == 1 || !SharedMemory::is_wanted()
                  ? nullptr
                  : std::make_shared<SharedMemory>(rank_, size_, max_header_bytes(size_), options_->timeout)),
      waiter_(std::make_unique<Waiter>()), starter_(std::make_unique<Waiter>()),
      dumps_(Dumps::make(store, global_ranks()[static_cast<size_t>(rank_)])), id_(backends_made++),
      failure_log_(std::move(store), rank_, size_) {
    const std::lock_guard guard(backends_lock);
    if (!usual_end) usual_end = std::set_terminate(end_collectives);
}

void CollectiveBackend::release_resources() {
    const std::lock_guard guard(backends_lock);
    const auto is_this = [this](const auto &weak) { return weak._unsafe_get_target() == this; };
    backends.erase(std::remove_if(backends.begin(), backends.end(), is_this), backends.end());
}

CollectiveBackend::~CollectiveBackend() {
    if (memory_) memory_->leave();
    // After a failure the transport's threads may hold locks that its destructor would wait for, so leak it.
    if (!given_up_.empty()) c10::intrusive_ptr<c10d::Backend>(transport_).release();
}

uint64_t CollectiveBackend::bytes_through_memory() const { return memory_ ? memory_->sent() : 0; }

void CollectiveBackend::set_memory_timeout(std::chrono::milliseconds timeout) {
    if (memory_) memory_->set_timeout(timeout);
}

// A group that uses this backend for two device types calls split once for each.
c10::intrusive_ptr<c10d::Backend> CollectiveBackend::split(const c10::intrusive_ptr<c10d::Store> &store,
                                                           const std::vector<int> &ranks,
                                                           const c10::intrusive_ptr<Options> &options) {
    if (!takes_cpu_) return connect(store, ranks, options);
    const auto name = c10::str(options->group_name, ":", ranks);
    {
        const std::lock_guard guard(lock_);
        auto last = split_off_.lock();
        if (last && split_off_name_ == name) return last;
    }
    auto made = connect(store, ranks, options);
    const std::lock_guard guard(lock_);
    split_off_ = made;
    split_off_name_ = name;
    return made;
}

c10::intrusive_ptr<c10d::Backend> CollectiveBackend::connect(const c10::intrusive_ptr<c10d::Store> &store,
                                                             const std::vector<int> &ranks,
                                                             const c10::intrusive_ptr<Options> &options) {
    for (const int rank : ranks) // the same on all ranks
        TORCH_CHECK_VALUE(rank >= 0 && rank < size_, "split: rank ", rank,
                          " is out of range for a group of size ", size_);
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

c10::intrusive_ptr<c10d::Backend> CollectiveBackend::shrink(const std::vector<int64_t> &excluded, int,
                                                            const c10::intrusive_ptr<Options> &options) {
    std::vector<int> left;
    std::string name = "shrunk";
    for (int rank = 0; rank < size_; rank++)
        if (std::find(excluded.begin(), excluded.end(), rank) == excluded.end()) {
            left.push_back(rank);
            name += c10::str("/", rank);
        }
    return connect(c10::make_intrusive<c10d::PrefixStore>(name, store_), left,
                   options ? options : c10::intrusive_ptr<Options>(options_));
}

void CollectiveBackend::check_process(const char *title) const {
    if (getpid() != process_)
        C10_THROW_ERROR(
            DistBackendError,
            c10::str(title, ": this process was forked and is not a member of the process group"));
}

void CollectiveBackend::number(CollectiveWork &work) {
    // These may be the last references. Their destructors free tensors, so they must run after the lock is
    // released.
    std::vector<c10::weak_intrusive_ptr<CollectiveWork>> before;
    std::vector<c10::intrusive_ptr<CollectiveWork>> held;
    const std::lock_guard guard(lock_);
    if (!given_up_.empty()) C10_THROW_ERROR(DistBackendError, given_up_);
    if (!std::exchange(is_listed_, true)) {
        const std::lock_guard listing(backends_lock);
        backends.emplace_back(c10::intrusive_ptr<CollectiveBackend>::reclaim_copy(this));
    }
    if (!work.is_between_two()) issued_++;
    work.set_number(issued_);
    if (under_way_.size() >= 64) {
        before.swap(under_way_);
        for (const auto &weak : before)
            if (auto one = weak.lock()) {
                if (!one->c10d::Work::isCompleted()) under_way_.push_back(weak);
                held.push_back(std::move(one));
            }
    }
    under_way_.emplace_back(c10::intrusive_ptr<CollectiveWork>::reclaim_copy(&work));
}

void CollectiveBackend::keep(WorkPtr exchange) {
    const std::lock_guard guard(lock_);
    kept_.push_back(std::move(exchange));
}

namespace {

// Releases the GIL for its lifetime, if this thread holds it.
struct WithoutInterpreter {
    PyThreadState *const thread = PyGILState_Check() ? PyEval_SaveThread() : nullptr;
    ~WithoutInterpreter() {
        if (thread) PyEval_RestoreThread(thread);
    }
};

// Dumps the flight recorder during its lifetime; the destructor waits up to one more second.
struct WritesDumps {
    std::future<void> written = Dumps::failed();
    ~WritesDumps() { written.wait_for(std::chrono::seconds(1)); }
};

} // namespace

std::string CollectiveBackend::explain(const CollectiveWork &work, const std::string &reason, bool is_known) {
    const WithoutInterpreter others_go_on;
    const WritesDumps dumps;
    const std::lock_guard guard(explaining_);
    auto text = c10::str(work.what());
    if (!work.is_between_two()) text += c10::str(" (the group's collective number ", work.number(), ")");
    text += c10::str(" failed on rank ", rank_, ": ", reason);
    if (!first_failure_.empty()) return text + ". Before that: " + first_failure_;
    std::string others;
    if (is_known && work.is_between_two()) // other ranks are not involved and continue
        failure_log_.record_failure(work.number(), work.what());
    else if (size_ > 1)
        others = failure_log_.failure(work.number(), work.what());
    if (!others.empty()) text += ". Other ranks: " + others;
    return first_failure_ = text;
}

bool CollectiveBackend::any_is_busy() {
    const auto all = begun_backends();
    return std::any_of(all.begin(), all.end(), [](const auto &backend) {
        return backend->process_ == getpid() &&
               backend->is_busy(false); // a forked child does not own its parent's
    });
}

void CollectiveBackend::leave_all() {
    for (const auto &backend : begun_backends())
        if (backend->process_ == getpid() && backend->is_busy())
            backend->give_up("this process is exiting", false);
}

bool CollectiveBackend::is_busy(bool with_messages) {
    std::vector<c10::weak_intrusive_ptr<CollectiveWork>> works;
    {
        const std::lock_guard guard(lock_);
        works = under_way_;
    }
    return std::any_of(works.begin(), works.end(), [with_messages](const auto &weak) {
        const auto work = weak.lock();
        return work && (with_messages || !work->is_between_two()) && !work->c10d::Work::isCompleted();
    });
}

void CollectiveBackend::give_up(const std::string &reason, bool explains) {
    std::vector<c10::weak_intrusive_ptr<CollectiveWork>> works;
    {
        const std::lock_guard guard(lock_);
        given_up_ = "this process group was given up: " + reason;
        works.swap(under_way_);
    }
    if (memory_) memory_->leave();
    std::vector<c10::intrusive_ptr<CollectiveWork>> left;
    for (const auto &weak : works)
        if (auto work = weak.lock())
            if (!work->c10d::Work::isCompleted()) left.push_back(std::move(work));
    for (const auto &work : left) work->abandon_transport(); // first, because the explanation takes seconds
    for (const auto &work : left) {
        const auto differs = work->mismatch_so_far();
        const auto &why = differs.empty() ? reason : differs;
        work->fail(explains ? explain(*work, why) : why);
    }
}

void CollectiveBackend::end_out_of_step(const std::string &why) {
    const std::lock_guard guard(lock_);
    if (given_up_.empty())
        given_up_ = "this process group's ranks are out of step, so it accepts no more collectives: " + why;
}

c10d::ErrorType CollectiveBackend::getError() {
    const std::lock_guard guard(explaining_);
    return first_failure_.empty() ? c10d::ErrorType::SUCCESS : c10d::ErrorType::COMM_ERROR;
}

void CollectiveBackend::abort() {
    give_up("it was aborted");
    transport_->abort();
}

void CollectiveBackend::shutdown() {
    {
        const std::lock_guard guard(lock_);
        if (!given_up_.empty()) return;
    }
    transport_->shutdown();
}

// --- transport ---

c10::Stream CollectiveBackend::copying_stream(c10::Device device) {
    const std::lock_guard guard(lock_);
    const auto known = copying_.find(device.index());
    if (known != copying_.end()) return known->second;
    const c10::impl::VirtualGuardImpl impl(c10::kXPU);
    return copying_.emplace(device.index(), impl.getStreamFromGlobalPool(device)).first->second;
}

namespace {

// The factor of a PREMUL_SUM.
at::Scalar factor_of(const ReduceOp &reduction) {
    const auto *premul = dynamic_cast<const c10d::NCCLPreMulSumSupplement *>(reduction.supplement_.get());
    TORCH_CHECK(premul, "PREMUL_SUM needs a factor");
    return premul->tensor_factor.defined() ? premul->tensor_factor.item() : at::Scalar(premul->double_factor);
}

// Gloo has no PREMUL_SUM, so inputs are multiplied before a sum. Sources may be the caller's own memory.
void scale(const at::Scalar &factor, TensorLists &sources, TensorLists &targets, bool in_place) {
    for (auto *lists : {&sources, &targets})
        for (auto &list : *lists)
            for (auto &tensor : list) {
                TORCH_CHECK(tensor.is_floating_point(), "PREMUL_SUM needs floating-point tensors, but got ",
                            tensor.scalar_type());
                if (lists == &sources)
                    tensor = tensor.mul(factor);
                else if (in_place)
                    tensor.mul_(factor);
            }
}

} // namespace

namespace {

constexpr const char *reductions[] = {"SUM",  "AVG", "PRODUCT", "MIN",        "MAX",
                                      "BAND", "BOR", "BXOR",    "PREMUL_SUM", "UNUSED"};

// Raises CUDA's errors for reductions that NCCL does not support.
void check_reduction(const char *title, const ReduceOp &reduction, const Tensor &tensor) {
    const auto type = tensor.scalar_type();
    TORCH_CHECK(reduction.op_ < ReduceOp::UNUSED, "Unhandled ReduceOp");
    const auto *name = reductions[reduction.op_];
    if (c10::isFloat8Type(type)) {
        TORCH_CHECK(type == at::kFloat8_e4m3fn || type == at::kFloat8_e5m2, title,
                    ": Unsupported Float8 type for a reduction, ", type);
        TORCH_CHECK_TYPE(reduction.op_ != ReduceOp::PREMUL_SUM, title, ": PREMUL_SUM does not support ",
                         type);
    } else if (tensor.is_complex()) {
        TORCH_CHECK(c10d::isComplexViewAsRealAllowed(reduction), title, " does not support ", name,
                    " on complex tensors");
        TORCH_CHECK(!tensor.is_sparse(), title, ": reductions of sparse complex tensors are not supported");
    } else {
        TORCH_CHECK_TYPE(is_transportable(type), title,
                         ": Input tensor data type is not supported for XCCL process group: ", type);
        TORCH_CHECK_TYPE(type != at::kBool || reduction.op_ != ReduceOp::AVG,
                         "Cannot use ReduceOp.AVG with boolean inputs");
    }
    const bool is_bitwise =
        reduction.op_ == ReduceOp::BAND || reduction.op_ == ReduceOp::BOR || reduction.op_ == ReduceOp::BXOR;
    TORCH_CHECK(!is_bitwise || c10::isIntegralType(type, true), "Cannot use ReduceOp.", name,
                " with non-integral dtype");
}

} // namespace

std::vector<uint64_t> CollectiveBackend::global_ranks() const {
    const auto &known = options_->global_ranks_in_group; // empty: these are all
    std::vector<uint64_t> ranks(known.begin(), known.end());
    for (auto rank = static_cast<int>(ranks.size()); rank < size_; rank++)
        ranks.push_back(static_cast<uint64_t>(rank));
    return ranks;
}

RecordedGroup CollectiveBackend::recorded_group() const {
    const auto &name = getGroupUid().empty() ? options_->group_name : getGroupUid();
    return {id_, name, getGroupDesc(), global_ranks(), options_->timeout, is_timed_};
}

std::shared_ptr<Recording> CollectiveBackend::record_call(const Collective &collective,
                                                          const CollectiveWork &work,
                                                          const TensorLists &inputs,
                                                          const TensorLists &outputs) {
    auto &recorder = Recorder::get();
    if (!recorder.is_enabled()) return nullptr;
    auto all = operations(collective, inputs, outputs, rank_, size_);
    std::shared_ptr<Recording> recording;
    Position position{.collective = work.number(), .is_p2p = collective.is_between_two};
    bool is_one_of_several = false;
    {
        const std::lock_guard guard(lock_);
        if (collective.is_between_two) {
            is_one_of_several = is_coalescing_;
            if (!is_coalescing_ || !together_) sent_off_++;
            if (is_coalescing_ && !together_) together_ = std::make_shared<Recording>();
            works_together_++;
        }
        if (is_one_of_several) recording = together_;
        position.p2p = sent_off_;
        position.operation = operations_ + 1;
        operations_ += all.size();
    }
    if (!recording) recording = std::make_shared<Recording>();
    const auto id = recorder.enter(recorded_group(), position, std::move(all));
    if (!is_one_of_several) recording->enter(id);
    return recording;
}

// Waits until all ranks have announced the same collective, because the transport does not check.
void CollectiveBackend::agree(CollectiveWork &work, const Exchange &said) {
    const auto exchange = c10::make_intrusive<ExchangeWork>(transport_, said, memory_);
    work.follow(exchange, {.exchange = exchange});
    std::string why;
    try {
        if (!exchange->finish(kNoTimeout, true)) why = "it was given up";
    } catch (const std::exception &error) { why = error.what(); }
    if (why.empty()) return;
    keep(exchange);
    end_out_of_step(why);
    C10_THROW_ERROR(DistBackendError, explain(work, why));
}

// Should the call wait for its input copies? A caller that waits for the whole collective can wait for them
// too. The transport's own collectives begin immediately. NVIDIA's driver runs a copy after everything
// submitted to any queue before it, so there it pays to wait and to submit nothing else in between.
static bool is_read_at_once(const Collective &collective, c10::Device device) {
    return collective.is_awaited || collective.is_read_at_once ||
           !(collective.is_straight || collective.is_between_two) ||
           (collective.reduces && collective.reduces->op_ == ReduceOp::PREMUL_SUM) ||
           properties_of(device.index()).vendor_id == XPU_VENDOR_NVIDIA;
}

static void check_nan(const char *title, const Tensors &tensors) {
    for (const auto &tensor : tensors) {
        if (!(tensor.is_floating_point() || tensor.is_complex())) continue;
        const auto &values = tensor.is_sparse() ? tensor._values() : tensor;
        TORCH_CHECK(!values.isnan().any().item<bool>(), title, ": found NaN in ", tensor.scalar_type(), ' ',
                    tensor.sizes(), " (TORCH_XCCL_NAN_CHECK)");
    }
}

WorkPtr CollectiveBackend::run(const Collective &collective, const TensorLists &inputs,
                               const TensorLists &outputs, const Issue &issue) {
    check_process(collective.title);
    Tensors read, written;
    for (const auto &list : inputs) read.insert(read.end(), list.begin(), list.end());
    for (const auto &list : outputs) written.insert(written.end(), list.begin(), list.end());
    Transfer transfer{.takes_cpu = takes_cpu_};
    for (const auto *all : {&read, &written})
        for (const auto &tensor : *all) {
            if (!transfer.device) transfer.device = tensor.device();
            TORCH_CHECK(tensor.device() == *transfer.device, collective.title,
                        ": expected all tensors on one device, but got ", tensor.device(), " and ",
                        *transfer.device);
            if (collective.reduces) check_reduction(collective.title, *collective.reduces, tensor);
        }
    if (transfer.device && transfer.device->is_xpu() &&
        xpu_stream_is_capturing(current_stream(transfer.device->index())))
        return record(collective, *transfer.device, inputs, outputs, issue);

    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::OptionalDeviceGuard guard(transfer.device);
    if (refuses_nan_) {
        check_nan(collective.title, read);
        if (collective.reads_outputs) check_nan(collective.title, written);
    }
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
    if (transfer.reads) {
        const auto there = std::make_shared<c10::Event>(c10::kXPU);
        there->record(*transfer.copying);
        if (is_read_at_once(collective, *transfer.device)) {
            try {
                there->synchronize();
            } catch (const c10::Error &) { // the input copies failed
                if (!collective.is_between_two) throw;
                transfer.said.ready = [failure = std::current_exception()] {
                    std::rethrow_exception(failure);
                }; // so that the partner hears of it
            }
        } else { // the caller continues
            transfer.said.ready = [there] { there->synchronize(); };
            for (const auto *all : {&read, &written})
                for (const auto &tensor : *all) tensor.record_stream(*transfer.copying);
        }
    }
    for (const auto *lists : {&sources, &targets})
        for (const auto &list : *lists)
            for (const auto &each : list)
                TORCH_CHECK(!each.is_sparse() || collective.type == OpType::ALLREDUCE, collective.title,
                            ": sparse tensors are supported by all_reduce only");
    if (collective.reduces && collective.reduces->op_ == ReduceOp::PREMUL_SUM)
        scale(factor_of(*collective.reduces), sources, targets, collective.reads_outputs);
    const bool averages =
        collective.reduces && collective.reduces->op_ == ReduceOp::AVG && !collective.is_straight;
    // A sum that is divided afterwards could be too large for fp16.
    const bool is_scaled = averages && targets[0][0].scalar_type() == at::kHalf;
    if (is_scaled) scale(1.0 / size_, sources, targets, collective.reads_outputs);

    auto work = c10::make_intrusive<CollectiveWork>(c10::intrusive_ptr<CollectiveBackend>::reclaim_copy(this),
                                                    collective, std::move(read), std::move(written));
    number(*work);
    const auto recording = record_call(collective, *work, inputs, outputs);
    work->set_recording(recording);
    auto &said = transfer.said;
    said.number = work->number();
    said.what = work->what();
    said.alike = work->alike();
    said.announces_sizes = collective.alike == Collective::nobodys;
    WorkPtr carried;
    try {
        if (!collective.is_straight && !collective.is_between_two) agree(*work, said);
        carried = issue(sources, targets, transfer);
    } catch (const c10::Error &error) { // the others wait, and find this when their time is over
        failure_log_.record_failure(work->number(),
                                    c10::str(work->what(), ": ", error.what_without_backtrace()));
        throw;
    } catch (const std::exception &error) { // Gloo's own, of a rank that is gone
        C10_THROW_ERROR(DistBackendError, explain(*work, error.what()));
    }
    if (recording) recording->begun(transfer.exchange ? transfer.exchange->timeout() : c10d::kUnsetTimeout);
    if (averages && !is_scaled)
        transfer.finish.push_back([sums = transfer.results, size = size_] { // the transport has sums only
            for (auto sum : sums) {
                if (sum.is_floating_point())
                    sum.div_(size);
                else
                    sum.div_(size, "trunc");
            }
        });
    work->follow(std::move(carried), std::move(transfer));
    bool is_awaited = collective.is_awaited;
    {
        const std::lock_guard lock(lock_);
        if (is_coalescing_) {
            coalesced_.push_back(work);
            is_awaited = false;
        }
    }
    if (work->continues_after_header())
        work->wait_aside();
    else if (collective.is_straight && is_awaited && !PyGILState_Check())
        work->wait_here();
    else if (collective.is_straight && work->claim())
        waiter_->add([work] { work->wait_for_transport(kNoTimeout, true); });
    return work;
}

WorkPtr CollectiveBackend::record(const Collective &collective, c10::Device where, const TensorLists &inputs,
                                  const TensorLists &outputs, const Issue &issue) {
    const auto device = where.index();
    bool is_sparse = false, has_tensors = false;
    auto replayed = collective;
    replayed.is_replayed = true;
    TensorLists from, to;
    Tensors written;
    for (const auto *lists : {&inputs, &outputs})
        for (const auto &list : *lists) {
            auto &there = (lists == &inputs ? from : to).emplace_back();
            for (const auto &tensor : list) {
                has_tensors = true;
                is_sparse = is_sparse || tensor.is_sparse();
                if (is_sparse || !is_host_device(device)) continue;
                there.push_back(borrowed(tensor, lists == &outputs));
                if (lists == &outputs) written.push_back(tensor);
            }
        }
    TORCH_CHECK(!has_tensors || (is_host_device(device) && !is_sparse),
                "operation not permitted when stream is capturing: ", collective.title,
                is_sparse ? " of sparse tensors" : ", on this device: its memory is not host memory");
    const auto self = c10::intrusive_ptr<CollectiveBackend>::reclaim_copy(this);
    Replayed call{collective.type == OpType::SEND, [=] {
                      if (replayed.type != OpType::SEND) return self->run(replayed, from, to, issue);
                      // The send runs while the graph continues and overwrites the tensor, so it needs a
                      // copy.
                      auto work = self->run(replayed, {{from[0][0].clone()}}, to, issue);
                      work->isCompleted(); // starts a thread that waits for it
                      return work;
                  }};
    auto work = c10::make_intrusive<RecordedWork>(rank_, collective, written);
    {
        const std::lock_guard guard(lock_);
        if (is_coalescing_ && collective.is_between_two) {
            replayed_.push_back(std::move(call));
            replayed_on_ = device;
            return work;
        }
    }
    record_on_host(device, collective.title, [call = std::move(call)] {
        const auto begun = call.begin();
        if (!call.is_send) begun->wait(kNoTimeout);
    });
    return work;
}

void CollectiveBackend::startCoalescing() {
    const std::lock_guard guard(lock_);
    is_coalescing_ = true;
    coalesced_.clear();
    together_ = nullptr;
    works_together_ = 0;
    replayed_.clear();
}

WorkPtr CollectiveBackend::endCoalescing() {
    std::vector<Replayed> replayed;
    {
        const std::lock_guard guard(lock_);
        is_coalescing_ = false;
        replayed.swap(replayed_);
    }
    // All begin before one is waited for, sends first, whatever their order is.
    std::stable_partition(replayed.begin(), replayed.end(), [](const auto &call) { return call.is_send; });
    if (!replayed.empty())
        record_on_host(replayed_on_, "xccl:sends and receives", [calls = std::move(replayed)] {
            std::vector<WorkPtr> begun;
            for (const auto &call : calls) {
                auto work = call.begin();
                if (!call.is_send) begun.push_back(std::move(work));
            }
            for (const auto &work : begun) work->wait(kNoTimeout);
        });
    std::shared_ptr<Recording> together;
    Position position{};
    std::vector<WorkPtr> coalesced;
    {
        const std::lock_guard guard(lock_);
        together.swap(together_);
        if (together) together->expect(works_together_);
        position = {.collective = issued_, .p2p = sent_off_, .operation = operations_, .is_p2p = true};
        coalesced.swap(coalesced_);
    }
    if (together)
        together->enter(Recorder::get().enter(recorded_group(), position, {{"xccl:coalesced", {}, {}}}));
    return c10::make_intrusive<CoalescedWork>(rank_, std::move(coalesced));
}

} // namespace openxpu
