// Counting of threads at work (at_work.h).
#include "at_work.h"

#include <condition_variable>
#include <mutex>

namespace openxpu {

namespace {

struct Working {
    std::mutex lock; // guards the fields below
    std::condition_variable changes;
    int threads = 0;
    bool ends = false;
};
Working &working() {
    static auto *all = new Working; // never freed: threads may outlive static objects
    return *all;
}

} // namespace

AtWork::AtWork() {
    const std::lock_guard guard(working().lock);
    working().threads++;
}

AtWork::~AtWork() {
    const std::lock_guard guard(working().lock);
    working().threads--;
    working().changes.notify_all();
}

std::unique_ptr<AtWork> AtWork::unless_it_ends() {
    auto one = std::make_unique<AtWork>(); // before the check, so that a concurrent end() waits for it
    const std::lock_guard guard(working().lock);
    if (working().ends) return nullptr;
    return one;
}

void AtWork::end(std::chrono::milliseconds most) {
    std::unique_lock hold(working().lock);
    working().ends = true;
    working().changes.wait_for(hold, most, [] { return !working().threads; });
}

} // namespace openxpu
