#include "at_work.h"

#include <condition_variable>
#include <mutex>

namespace openxpu {

namespace {

struct Working {
    std::mutex lock; // guards what follows
    std::condition_variable changes;
    int threads = 0;
    bool ends = false;
};
Working &working() {
    static auto *all = new Working; // threads may outlive what is static
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
    auto one = std::make_unique<AtWork>(); // first, so that an end that begins now waits for it
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
