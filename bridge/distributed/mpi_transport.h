// Transport of CPU tensors over MPI: the sends and receives that an exchange needs of a backend.
//
// All MPI calls are in mpi/messages.c, which is compiled at run time; this loads that library.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <string>

#include "mpi/messages.h"

namespace openxpu {

// Loads that library, once.
void load_mpi(const std::string &path);
// Its functions.
const mpi_messages &mpi();
// What MPI says of itself; all processes meet in the first call. Throws where it doesn't begin.
mpi_messages_world start_mpi(std::chrono::milliseconds timeout);
// Rank 0's bytes, to all.
std::string broadcast_by_mpi(std::string bytes, std::chrono::milliseconds timeout);

class MpiTransport final : public c10d::Backend {
  public:
    // The ranks tell each other through the store which processes of MPI's they are.
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
    // Sums of sparse tensors only: all others are exchanges. Done when it returns.
    c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor> &tensors,
                                             const c10d::AllreduceOptions &options) override;

    int rank_of(int process) const; // of MPI's

  private:
    std::vector<int> processes_; // of each rank
    uint64_t group_ = 0;
    std::atomic<std::chrono::milliseconds> timeout_;

    c10::intrusive_ptr<c10d::Work> begin(const at::Tensor &tensor, bool sends, int other, uint64_t tag);
};

} // namespace openxpu
