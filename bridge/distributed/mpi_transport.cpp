// The MPI transport (mpi_transport.h). Failures throw c10::DistBackendError.
#include "mpi_transport.h"

#include <ATen/ATen.h>

#include <dlfcn.h>

#include <sstream>

namespace openxpu {

using at::Tensor;
using c10d::OpType;

namespace {

const mpi_messages *loaded;
std::mutex loading;

void complain(const char *why) {
    if (why) C10_THROW_ERROR(DistBackendError, why);
}

class MpiWork final : public c10d::Work {
  public:
    MpiWork(c10::intrusive_ptr<MpiTransport> transport, mpi_message *message, bool sends)
        : Work(transport->getRank(), sends ? OpType::SEND : OpType::RECV), transport_(std::move(transport)),
          message_(message), sends_(sends) {}
    ~MpiWork() override { mpi().let_go(message_); }

    bool isCompleted() override { return mpi().is_over(message_); }
    bool isSuccess() const override {
        return mpi().is_over(message_) && mpi().wait(message_, 1) == MPI_IS_OVER;
    }
    bool wait(std::chrono::milliseconds timeout) override {
        const auto most = timeout == kNoTimeout ? transport_->timeout() : timeout;
        switch (mpi().wait(message_, most.count())) {
        case MPI_IS_OVER: return true;
        case MPI_WAS_ABORTED: return false;
        case MPI_TIME_OVER:
            throw std::runtime_error(c10::str("Timed out waiting ", most.count(), "ms for ",
                                              sends_ ? "send" : "recv", " operation to complete"));
        default: throw std::runtime_error(mpi().why(message_));
        }
    }
    void synchronize() override {}
    void abort() override { mpi().abort(message_); }
    int sourceRank() const override { return transport_->rank_of(mpi().source(message_)); }

  private:
    const c10::intrusive_ptr<MpiTransport> transport_;
    mpi_message *const message_;
    const bool sends_;
};

// Work that is complete when it is created.
class DoneWork final : public c10d::Work {
  public:
    DoneWork(int rank, const std::vector<Tensor> &results)
        : Work(rank, OpType::ALLREDUCE),
          future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
        future_->markCompleted(c10::IValue(results));
        finish();
    }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

  private:
    const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

} // namespace

void load_mpi(const std::string &path) {
    const std::lock_guard guard(loading);
    if (loaded) return;
    // Open MPI loads plug-ins that resolve its symbols globally, so load it with RTLD_GLOBAL.
    auto *library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    TORCH_CHECK(library, "could not load openxpu's MPI library: ", dlerror());
    const auto *table = static_cast<const mpi_messages *>(dlsym(library, "openxpu_mpi_messages"));
    TORCH_CHECK(table && table->version == MPI_MESSAGES_VERSION, path,
                " was built for another version of openxpu");
    loaded = table;
}

const mpi_messages &mpi() {
    TORCH_CHECK(loaded, "openxpu's MPI library has not been loaded");
    return *loaded;
}

mpi_messages_world start_mpi(std::chrono::milliseconds timeout) {
    mpi_messages_world world;
    complain(mpi().start(timeout.count(), &world));
    return world;
}

std::string broadcast_by_mpi(std::string bytes, std::chrono::milliseconds timeout) {
    uint64_t length = bytes.size();
    complain(mpi().tell(&length, sizeof length, timeout.count()));
    bytes.resize(length);
    if (length) complain(mpi().tell(bytes.data(), length, timeout.count()));
    return bytes;
}

// A group's id consists of its first rank's process and a counter there.
MpiTransport::MpiTransport(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                           std::chrono::milliseconds timeout)
    : Backend(rank, size), timeout_(timeout) {
    static std::atomic<uint64_t> groups = 0;
    const auto world = start_mpi(timeout);
    const auto key = [](int each) { return c10::str("mpi/", each); };
    store->set(key(rank), c10::str(world.rank, " ", ++groups, " ", world.size));
    for (int each = 0; each < size; each++) {
        const auto bytes = store->get(key(each));
        std::istringstream text(std::string(bytes.begin(), bytes.end()));
        int process = -1, all = 0;
        uint64_t count = 0;
        text >> process >> count >> all;
        TORCH_CHECK(all == world.size && process >= 0 && process < all, "rank ", each, " runs with ", all,
                    " MPI processes, but rank ", rank, " with ", world.size);
        const auto same = std::find(processes_.begin(), processes_.end(), process);
        TORCH_CHECK(same == processes_.end(), "ranks ", same - processes_.begin(), " and ", each,
                    " are both MPI process ", process, " of ", all,
                    ": start the ranks with MPI's own launcher, mpirun or mpiexec, of ", world.library,
                    " (OPENXPU_MPICC selects the compiler of another MPI)");
        processes_.push_back(process);
        if (each == 0) group_ = static_cast<uint64_t>(process + 1) << 32 | count;
    }
}

MpiTransport::~MpiTransport() { mpi().close(group_); }

void MpiTransport::abort() { mpi().close(group_); }

int MpiTransport::rank_of(int process) const {
    const auto here = std::find(processes_.begin(), processes_.end(), process);
    TORCH_CHECK(here != processes_.end(), "the source rank is known only after a receive has completed");
    return static_cast<int>(here - processes_.begin());
}

c10::intrusive_ptr<c10d::Work> MpiTransport::begin(const Tensor &tensor, bool sends, int other,
                                                   uint64_t tag) {
    const mpi_address address{other < 0 ? -1 : processes_.at(static_cast<size_t>(other)), group_, tag};
    auto *kept = new Tensor(tensor);
    const auto release = [](void *held) { delete static_cast<Tensor *>(held); };
    auto *message = sends
                        ? mpi().send(&address, tensor.const_data_ptr(), tensor.nbytes(), kept, release)
                        : mpi().receive(&address, tensor.mutable_data_ptr(), tensor.nbytes(), kept, release);
    return c10::make_intrusive<MpiWork>(c10::intrusive_ptr<MpiTransport>::reclaim_copy(this), message, sends);
}

c10::intrusive_ptr<c10d::Work> MpiTransport::send(std::vector<Tensor> &tensors, int to, int tag) {
    return begin(tensors.at(0), true, to, static_cast<uint32_t>(tag));
}

c10::intrusive_ptr<c10d::Work> MpiTransport::recv(std::vector<Tensor> &tensors, int from, int tag) {
    return begin(tensors.at(0), false, from, static_cast<uint32_t>(tag));
}

c10::intrusive_ptr<c10d::Work> MpiTransport::recvAnysource(std::vector<Tensor> &tensors, int tag) {
    return begin(tensors.at(0), false, -1, static_cast<uint32_t>(tag));
}

// Sparse all-reduce: each rank sends the number of its elements, then indices and values, to all others, and
// adds in rank order. The tags are ones that no exchange uses; messages arrive in order.
c10::intrusive_ptr<c10d::Work> MpiTransport::allreduce(std::vector<Tensor> &tensors,
                                                       const c10d::AllreduceOptions &options) {
    auto &result = tensors.at(0);
    TORCH_CHECK(result.is_sparse(), "MPI's transport reduces sparse tensors only");
    TORCH_CHECK_VALUE(options.reduceOp == c10d::ReduceOp::SUM, "sparse tensors are only added up");
    constexpr uint64_t first_tag = uint64_t(1) << 32;
    const auto own = result.coalesce();
    const auto indices = own.indices().contiguous(), values = own.values().contiguous();
    const auto count = at::scalar_tensor(own._nnz(), at::kLong);
    const auto timeout = options.timeout == c10d::kUnsetTimeout ? timeout_.load() : options.timeout;
    std::vector<c10::intrusive_ptr<c10d::Work>> sent;
    const auto others = [this](const auto &call) {
        for (int i = 1; i < size_; i++) call((rank_ + i) % size_);
    };
    others([&](int other) {
        sent.push_back(begin(count, true, other, first_tag));
        if (indices.numel()) sent.push_back(begin(indices, true, other, first_tag + 1));
        if (values.numel()) sent.push_back(begin(values, true, other, first_tag + 2));
    });
    std::vector<Tensor> parts(static_cast<size_t>(size_));
    parts[static_cast<size_t>(rank_)] = own;
    others([&](int other) {
        const auto its_count = at::empty_like(count);
        begin(its_count, false, other, first_tag)->wait(timeout);
        auto shape = values.sizes().vec();
        shape[0] = its_count.item<int64_t>();
        const auto its_indices = at::empty({indices.size(0), shape[0]}, indices.options());
        const auto its_values = at::empty(shape, values.options());
        if (its_indices.numel()) begin(its_indices, false, other, first_tag + 1)->wait(timeout);
        if (its_values.numel()) begin(its_values, false, other, first_tag + 2)->wait(timeout);
        parts[static_cast<size_t>(other)] =
            at::sparse_coo_tensor(its_indices, its_values, result.sizes(), own.options(), true);
    });
    for (const auto &each : sent) each->wait(timeout);
    auto sum = parts[0];
    for (size_t i = 1; i < parts.size(); i++) sum = sum.add(parts[i]);
    sum = sum.coalesce();
    result.copy_(sum);
    return c10::make_intrusive<DoneWork>(rank_, tensors);
}

} // namespace openxpu
