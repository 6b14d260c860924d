// Failure log: the ranks of a group publish failed collectives through their store.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

namespace openxpu {

class FailureLog {
  public:
    FailureLog(c10::intrusive_ptr<c10d::Store> store, int rank, int size);

    // Notes what this rank's collective was, which failed.
    void record_failure(uint64_t number, const std::string &what);
    // Does so, and finds out what the others are at; takes 3 s at most.
    std::string failure(uint64_t number, const std::string &what);

  private:
    const c10::intrusive_ptr<c10d::Store> store_;
    const int rank_, size_;

    std::string of(const std::string &key); // "" where there is none
    std::string state_of(int rank);
};

} // namespace openxpu
