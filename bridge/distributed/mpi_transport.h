// Transport of CPU tensors over MPI: the sends and receives that an exchange needs of a backend.
//
// All MPI calls are in mpi/, which is compiled at run time; this loads that library. Any thread may call: the
// library serializes its MPI calls. Failures throw c10::DistBackendError.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <string>

#include "mpi/messages.h"

namespace openxpu {

// Loads the library; later calls do nothing.
void load_mpi(const std::string &path);
// Its functions.
const mpi_messages &mpi();
// Initializes MPI and returns rank and size. The first call is collective over all processes. Throws on
// failure.
mpi_messages_world start_mpi(std::chrono::milliseconds timeout);
// Broadcasts rank 0's bytes.
std::string broadcast_by_mpi(std::string bytes, std::chrono::milliseconds timeout);

class MpiTransport final : public c10d::Backend {
  public:
    // The ranks exchange their MPI ranks through the store.
    MpiTransport(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                 std::chrono::milliseconds timeout);
    ~MpiTransport() override;

    const std::string getBackendName() const override { return "mpi"; }
    void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
    std::chrono::milliseconds timeout() const { return timeout_; }
    void setSequenceNumberForGroup() override {}
    void abort() override;
    void shutdown() override {}

    c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor> &tensors, int to, int tag) override;
    c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor> &tensors, int from, int tag) override;
    c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor> &tensors, int tag) override;
    // Sums of sparse tensors only; everything else uses exchanges. Synchronous.
    c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor> &tensors,
                                             const c10d::AllreduceOptions &options) override;

    int rank_of(int process) const; // MPI rank to group rank

  private:
    std::vector<int> processes_; // MPI rank of each group rank
    uint64_t group_ = 0;
    std::atomic<std::chrono::milliseconds> timeout_;

    c10::intrusive_ptr<c10d::Work> begin(const at::Tensor &tensor, bool sends, int other, uint64_t tag);
};

} // namespace openxpu
