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
#include "work.h"

namespace openxpu {

using at::Tensor;
using c10d::OpType;
using c10d::ReduceOp;

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
      options_(std::move(options)), connect_(std::move(connect)), waiter_(std::make_unique<Waiter>()),
      board_(std::move(store), rank_, size_) {
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
    const bool counts = !work.is_between_two();
    const bool is_new = counts && size_ > 1 && successions_.insert(last_ * 31 + now).second;
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
    std::vector<c10::intrusive_ptr<CollectiveWork>> left;
    for (const auto &weak : works)
        if (auto work = weak.lock())
            if (!work->c10d::Work::isCompleted()) left.push_back(std::move(work));
    for (const auto &work : left) work->leave_carrier(); // at once: to explain takes seconds
    for (const auto &work : left) work->fail(explain(*work, reason));
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

namespace {

constexpr const char *reductions[] = {"SUM",  "AVG", "PRODUCT", "MIN",        "MAX",
                                      "BAND", "BOR", "BXOR",    "PREMUL_SUM", "UNUSED"};

// CUDA's errors for what NCCL doesn't reduce.
void check_reduction(const char *title, const ReduceOp &reduction, const Tensor &tensor) {
    const auto type = tensor.scalar_type();
    TORCH_CHECK(reduction.op_ < ReduceOp::UNUSED, "Unhandled ReduceOp");
    const auto *name = reductions[reduction.op_];
    if (c10::isFloat8Type(type)) {
        TORCH_CHECK(type == at::kFloat8_e4m3fn || type == at::kFloat8_e5m2, title,
                    ": Unsupported Float8 type for a reduction, ", type);
        TORCH_CHECK_TYPE(reduction.op_ != ReduceOp::PREMUL_SUM, title, ": PREMUL_SUM doesn't take ", type);
    } else if (tensor.is_complex()) {
        TORCH_CHECK(c10d::isComplexViewAsRealAllowed(reduction), title, " does not support ", name,
                    " on complex tensors");
        TORCH_CHECK(!tensor.is_sparse(), title, ": sparse complex tensors are not reduced");
    } else {
        TORCH_CHECK_TYPE(is_carried(type), title,
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
            if (collective.reduces) check_reduction(collective.title, *collective.reduces, tensor);
        }
    if (transfer.device && transfer.device->is_xpu() &&
        xpu_stream_is_capturing(current_stream(transfer.device->index())))
        return record(collective, inputs, outputs, issue);

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
    transfer.number = work->number();
    auto carried = issue(sources, targets, transfer);
    if (collective.reduces && collective.reduces->op_ == ReduceOp::AVG && collective.divides)
        transfer.finish.push_back([sums = transfer.results, size = size_](bool) { // the carrier has sums only
            for (auto sum : sums) {
                if (sum.is_floating_point())
                    sum.div_(size);
                else
                    sum.div_(size, "trunc");
            }
        });
    const bool is_exchange = transfer.is_exchange;
    work->follow(std::move(carried), std::move(transfer));
    bool is_awaited = collective.is_awaited;
    {
        const std::lock_guard lock(lock_);
        if (is_coalescing_) {
            coalesced_.push_back(work);
            is_awaited = false;
        }
    }
    if (is_exchange && is_awaited && !PyGILState_Check())
        work->wait_here();
    else if (is_exchange)
        waiter_->add(work);
    return work;
}

namespace {

using Again = std::function<void()>;

xpu_status call_again(xpu_stream *, const void *context) {
    try {
        (*static_cast<const Again *>(context))();
        return XPU_SUCCESS;
    } catch (const std::exception &error) { // must not pass through C
        TORCH_WARN("a replayed graph: ", error.what());
        return XPU_ERROR_INVALID_ARGUMENT;
    }
}

} // namespace

WorkPtr CollectiveBackend::record(const Collective &collective, const TensorLists &inputs,
                                  const TensorLists &outputs, const Issue &issue) {
    const auto &first = inputs.empty() || inputs[0].empty() ? outputs[0][0] : inputs[0][0];
    const auto device = first.device().index();
    TORCH_CHECK(is_host_device(device) && !collective.is_between_two && !first.is_sparse(),
                "operation not permitted when stream is capturing: ", collective.title,
                collective.is_between_two ? ", which waits for another rank's" : ", on this device");
    auto replayed = collective;
    replayed.is_replayed = true;
    TensorLists from, to;
    Tensors written;
    for (const auto &list : inputs) {
        auto &there = from.emplace_back();
        for (const auto &tensor : list) there.push_back(borrowed(tensor, false));
    }
    for (const auto &list : outputs) {
        auto &there = to.emplace_back();
        for (const auto &tensor : list) there.push_back(borrowed(tensor, true));
        written.insert(written.end(), list.begin(), list.end());
    }
    const auto self = c10::intrusive_ptr<CollectiveBackend>::reclaim_copy(this);
    check(xpu_graph_host_call(current_stream(device), collective.title, call_again,
                              new Again([=] { self->run(replayed, from, to, issue)->wait(kNoTimeout); }),
                              [](void *context) { delete static_cast<Again *>(context); }));
    return c10::make_intrusive<RecordedWork>(rank_, collective, written);
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

} // namespace openxpu
