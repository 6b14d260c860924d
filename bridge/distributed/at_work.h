// Threads that process exit waits for. A background thread that runs Python code, or holds tensors known to
// Python, while the interpreter shuts down would abort the process. Such a thread holds an AtWork; shutdown
// waits for it.
#pragma once
#include <chrono>
#include <memory>

namespace openxpu {

// Marks the current thread's work for the object's lifetime. Any thread may create one.
class AtWork {
  public:
    AtWork();
    ~AtWork();
    AtWork(const AtWork &) = delete;
    // Null during shutdown: for work that can be skipped then.
    static std::unique_ptr<AtWork> unless_it_ends();
    // Called at shutdown: waits until no thread is at work, at most this long.
    static void end(std::chrono::milliseconds most);
};

} // namespace openxpu
