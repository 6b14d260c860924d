// Failure log: the ranks of a group publish failed collectives through their store, so that error texts can
// say what the other ranks were doing. A group owns its log, which has no mutable state of its own.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

namespace openxpu {

class FailureLog {
  public:
    FailureLog(c10::intrusive_ptr<c10d::Store> store, int rank, int size);

    // Publishes that this rank's collective failed.
    void record_failure(uint64_t number, const std::string &what);
    // Also describes what the other ranks are doing; takes at most 3 s.
    std::string failure(uint64_t number, const std::string &what);

  private:
    const c10::intrusive_ptr<c10d::Store> store_;
    const int rank_, size_;

    std::string of(const std::string &key); // "" if there is none
    std::string state_of(int rank);
};

} // namespace openxpu
