// Threads that process exit waits for.
#pragma once
#include <chrono>
#include <memory>

namespace openxpu {

// A thread of this library that is in Python, or holds tensors that Python knows: while Python ends it would
// abort the process, whose end waits for it.
class AtWork {
  public:
    AtWork();
    ~AtWork();
    AtWork(const AtWork &) = delete;
    // Null while the process ends: for what need not be done then.
    static std::unique_ptr<AtWork> unless_it_ends();
    // The process ends: waits until no thread is at work, but no longer than this.
    static void end(std::chrono::milliseconds most);
};

} // namespace openxpu
