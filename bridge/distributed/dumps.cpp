// Writing of flight recorder dumps (Dumps in recorder.h): on failures, on other ranks' failures, and on
// request through a pipe. One background thread watches the store and the pipe. Errors are ignored: a dump
// must not add failures.
#include <fcntl.h>
#include <sys/stat.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <future>
#include <thread>

#include "at_work.h"
#include "recorder.h"

namespace openxpu {
namespace {

using std::chrono::milliseconds;

bool are_wanted() {
    static const bool wanted =
        c10d::getCvarBool({"TORCH_XCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"}, true);
    return wanted && Recorder::get().is_enabled();
}

milliseconds most_for_stacks() {
    static const milliseconds most(c10d::getCvarInt({"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"}, 15000));
    return most;
}

// A dump with stacks if the GIL can be taken in time, otherwise without.
std::string with_stacks() {
    const auto most = most_for_stacks();
    auto at_work = AtWork::unless_it_ends();
    if (!at_work) return Recorder::get().dump(true, false, false);
    std::promise<std::string> promise;
    auto found = promise.get_future();
    std::thread([promise = std::move(promise), at_work = std::move(at_work)]() mutable {
        try {
            promise.set_value(Recorder::get().dump(true, true, false));
        } catch (const std::exception &) { promise.set_exception(std::current_exception()); }
    }).detach();
    try {
        if (found.wait_for(most) == std::future_status::ready) return found.get();
    } catch (const std::exception &) {}
    return Recorder::get().dump(true, false, false);
}

// Can other threads use this store at any time?
bool is_shared(const c10::intrusive_ptr<c10d::Store> &store) {
    auto under = store;
    if (auto *prefix = dynamic_cast<c10d::PrefixStore *>(store.get()))
        under = prefix->getUnderlyingNonPrefixStore();
    return dynamic_cast<c10d::TCPStore *>(under.get()) || dynamic_cast<c10d::FileStore *>(under.get()) ||
           dynamic_cast<c10d::HashStore *>(under.get());
}

} // namespace

// A named pipe that any user may write to.
class Pipe {
  public:
    explicit Pipe(uint64_t rank) {
        const auto name =
            c10d::getCvarString({"TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"}, "");
        if (name.empty() || !Recorder::get().is_enabled()) return;
        name_ = c10::str(name, rank, ".pipe");
        unlink(name_.c_str());
        if (mkfifo(name_.c_str(), 0666) == 0) file_ = open(name_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (file_ < 0)
            TORCH_WARN("flight recorder: dumps can't be requested through the pipe ", name_, ": ",
                       std::strerror(errno));
    }
    ~Pipe() {
        if (file_ < 0) return;
        close(file_);
        unlink(name_.c_str());
    }
    bool is_open() const { return file_ >= 0; }
    bool has_line() const {
        char text[256];
        return file_ >= 0 && read(file_, text, sizeof text) > 0;
    }

  private:
    std::string name_;
    int file_ = -1;
};

// A process that fails announces it in the store, under the number of dumps that it knows of.
struct Dumps::State {
    const c10::intrusive_ptr<c10d::Store> store; // null: other processes are not told
    const uint64_t rank;
    const Pipe pipe;
    std::mutex writing; // guards count, and serializes dumps
    uint64_t count = 0;
    std::mutex lock; // guards ends and runs
    std::condition_variable changes;
    bool ends = false, runs = false;

    State(c10::intrusive_ptr<c10d::Store> shared, uint64_t of_rank)
        : store(std::move(shared)), rank(of_rank), pipe(of_rank) {}

    static std::string key(uint64_t count) { return c10::str("dump/", count); }

    void write_down(const std::string &text) {
        try {
            c10d::DebugInfoWriter::getWriter(static_cast<int>(rank)).write(text);
        } catch (const std::exception &error) {
            TORCH_WARN("flight recorder: could not write a dump: ", error.what());
        }
    }

    void write() {
        write_down(Recorder::get().dump(true, false, false));
        write_down(with_stacks());
    }

    void tell_and_write() {
        const std::lock_guard guard(writing);
        try {
            if (store) store->set(key(count++), "");
        } catch (const std::exception &) {} // for example, the store's process has ended
        write();
    }

    void look() {
        const auto at_work = AtWork::unless_it_ends();
        if (!at_work) return;
        const std::lock_guard guard(writing);
        try {
            if (store && store->check({key(count)})) {
                count++;
                return write();
            }
        } catch (const std::exception &) {}
        if (pipe.has_line()) write();
    }

    void watch() {
        std::unique_lock hold(lock);
        while (!changes.wait_for(hold, milliseconds(1000), [this] { return ends; })) {
            hold.unlock();
            look();
            hold.lock();
        }
        runs = false;
        changes.notify_all();
    }
};

namespace {

std::mutex current_lock; // guards `current`
std::weak_ptr<Dumps> current;

} // namespace

std::shared_ptr<Dumps> Dumps::make(const c10::intrusive_ptr<c10d::Store> &store, uint64_t rank) {
    const std::lock_guard guard(current_lock);
    if (current.lock()) return nullptr;
    auto state = std::make_shared<State>(
        are_wanted() && is_shared(store) ? store : c10::intrusive_ptr<c10d::Store>(), rank);
    state->runs = state->store || state->pipe.is_open();
    if (state->runs) std::thread([state] { state->watch(); }).detach();
    std::shared_ptr<Dumps> made(new Dumps(state));
    current = made;
    return made;
}

// Also ends the use of the store, unless the thread is waiting for the GIL.
Dumps::~Dumps() { end(); }

void Dumps::end_watching() {
    std::shared_ptr<Dumps> dumps;
    {
        const std::lock_guard guard(current_lock);
        dumps = current.lock();
    }
    if (dumps) dumps->end();
}

void Dumps::end() {
    std::unique_lock hold(state_->lock);
    state_->ends = true;
    state_->changes.notify_all();
    state_->changes.wait_for(hold, milliseconds(1000), [this] { return !state_->runs; });
}

std::future<void> Dumps::failed() {
    std::shared_ptr<Dumps> dumps;
    {
        const std::lock_guard guard(current_lock);
        dumps = current.lock();
    }
    std::promise<void> promise;
    auto written = promise.get_future();
    auto at_work = dumps && are_wanted() ? AtWork::unless_it_ends() : nullptr;
    if (!at_work)
        promise.set_value();
    else
        std::thread([promise = std::move(promise), state = dumps->state_,
                     at_work = std::move(at_work)]() mutable {
            state->tell_and_write();
            promise.set_value();
        }).detach();
    return written;
}

void Dumps::finish() {
    end_watching();
    AtWork::end(most_for_stacks() + milliseconds(1000));
}

} // namespace openxpu
