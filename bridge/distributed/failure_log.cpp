// The failure log (failure_log.h): reads and writes the group's store, and process states from /proc.
#include "failure_log.h"

#include <unistd.h>

#include <fstream>
#include <thread>

namespace openxpu {
namespace {

using Clock = std::chrono::steady_clock;

std::string key(const char *kind, uint64_t number, int rank) {
    return c10::str(kind, "/", number, "/", rank);
}

// State and start time of a process on this machine, such as "S 12345"; "" if it does not exist. The start
// time distinguishes it from a later process with the same id.
std::string process_state(const std::string &pid) {
    std::ifstream file("/proc/" + pid + "/stat");
    std::string text;
    std::getline(file, text, '\0'); // unlike stream iterators, throws nothing if the process ends now
    const auto name_end = text.rfind(')');
    if (name_end == std::string::npos) return "";
    std::istringstream fields(text.substr(name_end + 1));
    std::string state, field;
    fields >> state;
    for (int i = 4; i <= 22; i++) fields >> field; // field 22 is the start time
    return state + " " + field;
}

// Identifies the PID namespace: processes with the same value see each other's process ids.
std::string machine() {
    char name[256] = "", space[64] = "";
    gethostname(name, sizeof name - 1);
    if (readlink("/proc/self/ns/pid", space, sizeof space - 1) < 0) return "";
    return c10::str(name, " ", space);
}

} // namespace

FailureLog::FailureLog(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
    : store_(std::move(store)), rank_(rank), size_(size) {
    const auto pid = std::to_string(getpid());
    store_->set(key("member", 0, rank), c10::str(machine(), "\n", pid, "\n", process_state(pid).substr(2)));
}

std::string FailureLog::of(const std::string &key) {
    if (!store_->check({key})) return "";
    const auto bytes = store_->get(key);
    return {bytes.begin(), bytes.end()};
}

std::string FailureLog::state_of(int rank) {
    const auto member = of(key("member", 0, rank));
    const auto first = member.find('\n'), second = member.rfind('\n');
    if (first == std::string::npos || member.substr(0, first) != machine() || first == 0) return "";
    const auto pid = member.substr(first + 1, second - first - 1);
    const auto state = process_state(pid);
    if (state.empty() || state.substr(2) != member.substr(second + 1) || state[0] == 'Z' || state[0] == 'X')
        return c10::str("rank ", rank, " (process ", pid, ") has ended");
    if (state[0] == 'T' || state[0] == 't') return c10::str("rank ", rank, " (process ", pid, ") is stopped");
    return "";
}

void FailureLog::record_failure(uint64_t number, const std::string &what) {
    store_->set(key("failed", number, rank_), what);
}

std::string FailureLog::failure(uint64_t number, const std::string &what) {
    std::string found;
    try {
        record_failure(number, what);
        const auto end = Clock::now() + std::chrono::seconds(3);
        for (int other = 0; other < size_; other++) {
            if (other == rank_) continue;
            std::string its, state;
            while ((its = of(key("failed", number, other))).empty() && (state = state_of(other)).empty() &&
                   Clock::now() < end)
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
            if (!its.empty())
                state = its == what ? "" : c10::str("rank ", other, " called ", its);
            else if (state.empty())
                state =
                    c10::str("rank ", other, " is running; its collective is in progress or has not started");
            if (!state.empty()) found += (found.empty() ? "" : "; ") + state;
        }
    } catch (const std::exception &error) {
        found += c10::str(found.empty() ? "" : "; ", "the process group's store does not respond (",
                          std::string(error.what()).substr(0, 80), ")");
    }
    return found;
}

} // namespace openxpu
