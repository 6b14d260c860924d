// Groups that are made, given up and destroyed while their ranks begin collectives, wait for them, refuse
// them or come too late. Built with ThreadSanitizer (target collective_races; `tests/sanitize.sh` runs it).
//
// All ranks are threads of this process. Their transport is one of memory, as Gloo is one of sockets: it has
// the address of a message's memory while that is open, and the message keeps that.
//
// Ranks that map one segment get one address (--wrap=mmap): ThreadSanitizer orders atomics by their address,
// and processes' different addresses for a segment would hide both its order and its races.
//
//     collective_races [SECONDS [ends]]
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <atomic>
#include <barrier>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include <sys/mman.h>
#include <sys/stat.h>

#include "distributed/backend.h"
#include "distributed/work.h"

// No interpreter is here, and nobody has its lock.
extern "C" {
int PyGILState_Check() { return 0; }
void *PyEval_SaveThread() { return nullptr; }
void PyEval_RestoreThread(void *) {}
}

namespace {

struct Mapping {
    ino_t file;
    int users;
};
std::mutex mappings_lock;
std::map<void *, Mapping> mappings;

} // namespace

extern "C" {
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
int __real_munmap(void *at, size_t bytes);

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    struct stat is;
    if (file < 0 || fstat(file, &is)) return __real_mmap(at, bytes, protection, flags, file, offset);
    const std::lock_guard guard(mappings_lock);
    for (auto &[address, mapping] : mappings)
        if (mapping.file == is.st_ino) {
            mapping.users++;
            return address;
        }
    auto *address = __real_mmap(at, bytes, protection, flags, file, offset);
    if (address != MAP_FAILED) mappings[address] = {is.st_ino, 1};
    return address;
}

int __wrap_munmap(void *at, size_t bytes) {
    const std::lock_guard guard(mappings_lock);
    const auto mapping = mappings.find(at);
    if (mapping != mappings.end()) {
        if (--mapping->second.users) return 0;
        mappings.erase(mapping);
    }
    return __real_munmap(at, bytes);
}
}

namespace {

using openxpu::CollectiveBackend;
using openxpu::CollectiveOptions;
using openxpu::Tensors;
using openxpu::WorkPtr;
using std::chrono::milliseconds;

std::atomic<int> wrong = 0;
std::atomic<uint64_t> through_memory = 0; // bytes

void complain(const std::string &what) {
    wrong++;
    std::fprintf(stderr, "wrong: %s\n", what.c_str());
}

// --- the transport ---

struct Message;

struct Wires {
    std::mutex lock; // guards what follows, and what is in the messages
    std::condition_variable changes;
    std::vector<Message *> open; // in their order

    size_t open_at(int rank);
};

struct Message final : c10d::Work {
    Message(std::shared_ptr<Wires> wires, bool sends, int from, int to, int tag, const at::Tensor &tensor)
        : Work(sends ? from : to, sends ? c10d::OpType::SEND : c10d::OpType::RECV), wires_(std::move(wires)),
          sends(sends), from(from), to(to), tag(tag), memory(static_cast<char *>(tensor.data_ptr())),
          bytes(tensor.nbytes()), tensor_(tensor) {
        const std::lock_guard guard(wires_->lock);
        auto &open = wires_->open;
        const auto partner = std::find_if(open.begin(), open.end(), [&](const Message *each) {
            return each->sends != sends && each->from == from && each->to == to && each->tag == tag;
        });
        if (partner == open.end()) {
            open.push_back(this);
            return;
        }
        auto *other = *partner;
        open.erase(partner);
        auto *source = sends ? this : other, *target = sends ? other : this;
        if (source->bytes > target->bytes) complain("more came than was expected");
        std::memcpy(target->memory, source->memory, std::min(source->bytes, target->bytes));
        is_over_ = other->is_over_ = true;
        wires_->changes.notify_all();
    }
    ~Message() override { leave(); }

    bool wait(milliseconds timeout) override {
        std::unique_lock hold(wires_->lock);
        const auto over = [this] { return is_over_ || is_aborted_; };
        if (timeout == kNoTimeout)
            wires_->changes.wait(hold, over);
        else if (!wires_->changes.wait_for(hold, timeout, over))
            throw std::runtime_error("timed out");
        return is_over_;
    }
    void abort() override {
        leave();
        const std::lock_guard guard(wires_->lock);
        is_aborted_ = true;
        wires_->changes.notify_all();
    }

    const std::shared_ptr<Wires> wires_;
    const bool sends;
    const int from, to, tag;
    char *const memory;
    const size_t bytes;
    const at::Tensor tensor_;
    bool is_over_ = false, is_aborted_ = false;

    void leave() {
        const std::lock_guard guard(wires_->lock);
        auto &open = wires_->open;
        open.erase(std::remove(open.begin(), open.end(), this), open.end());
    }
};

size_t Wires::open_at(int rank) {
    const std::lock_guard guard(lock);
    return static_cast<size_t>(std::count_if(open.begin(), open.end(), [rank](const Message *each) {
        return (each->sends ? each->from : each->to) == rank;
    }));
}

class Transport final : public c10d::Backend {
  public:
    Transport(std::shared_ptr<Wires> wires, int rank, int size)
        : Backend(rank, size), wires_(std::move(wires)) {}
    const std::string getBackendName() const override { return "memory"; }
    WorkPtr send(Tensors &tensors, int to, int tag) override {
        return c10::make_intrusive<Message>(wires_, true, rank_, to, tag, tensors[0]);
    }
    WorkPtr recv(Tensors &tensors, int from, int tag) override {
        return c10::make_intrusive<Message>(wires_, false, from, rank_, tag, tensors[0]);
    }
    void setTimeout(milliseconds) override {}
    void abort() override {}
    void shutdown() override {}

  private:
    const std::shared_ptr<Wires> wires_;
};

// --- a group ---

enum Fault { nothing, given_up, aborted, refused, late, faults, any };

struct Group {
    const int size;
    const Fault fault;
    const uint32_t seed;
    const bool is_small = seed / 1000 % 2;
    const std::shared_ptr<Wires> wires = std::make_shared<Wires>();
    std::vector<c10::intrusive_ptr<CollectiveBackend>> ranks;
    std::barrier<> begin;

    Group(int size, Fault fault, uint32_t seed)
        : size(size), fault(fault), seed(seed), begin(ends_it() ? 2 * size : size) {
        const auto store = c10::make_intrusive<c10d::HashStore>();
        auto options = c10::make_intrusive<CollectiveOptions>();
        options->timeout = milliseconds(fault == late ? 40 : 20000);
        for (int r = 0; r < size; r++)
            ranks.push_back(c10::make_intrusive<CollectiveBackend>(
                c10::make_intrusive<Transport>(wires, r, size), store, options, nullptr));
    }
    bool ends_it() const { return fault == given_up || fault == aborted; }

    // One rank's collectives. What comes of each is right, or it is an error that the fault explains.
    void work(int rank) {
        std::mt19937 all(seed), own(seed + static_cast<uint32_t>(rank) + 1);
        std::vector<std::pair<WorkPtr, std::function<void()>>> begun;
        if (fault != any) begin.arrive_and_wait();
        for (int call = 0; call < 8; call++) { // after some large ones they go through memory
            const auto kind = all() % 4;
            const int64_t n = all() % (is_small ? 16 : 2) ? 100 : call % 3 ? 80000 : 700001;
            const bool waits = own() % 2, is_off = call == 1 && rank == size - 1 && size > 1;
            if (fault == late && is_off) std::this_thread::sleep_for(milliseconds(100));
            try {
                auto [under_way, check] = issue(rank, kind, fault == refused && is_off ? -1 : n, waits);
                if (waits)
                    end(*under_way, check);
                else
                    begun.emplace_back(under_way, check);
            } catch (const std::exception &error) {
                explain(call, error);
                if (fault != refused) break;
            }
        }
        for (auto &[under_way, check] : begun) try {
                end(*under_way, check);
            } catch (const std::exception &error) { explain(1, error); }
        through_memory += ranks[static_cast<size_t>(rank)]->bytes_through_memory();
        ranks[static_cast<size_t>(rank)]->shutdown();
    }

    void end(c10d::Work &under_way, const std::function<void()> &check) {
        under_way.wait(kNoTimeout);
        check();
    }

    void explain(int call, const std::exception &error) const {
        const std::string text = error.what();
        const auto says = [&](const char *what) { return text.find(what) != std::string::npos; };
        const auto is_known = [&] {
            switch (fault) {
            case nothing: return false;
            case refused: return call == 1 && (says("refused") || says("equal to world_size times"));
            case late: return says("timed out") || says("not all ranks called the same collective");
            case any: return says("given up") || says("sent more");
            default: return says("given up") || says("aborted") || says("a test");
            }
        };
        if (!is_known()) complain(text);
    }

    std::pair<WorkPtr, std::function<void()>> issue(int rank, uint32_t kind, int64_t n, bool waits) {
        auto &backend = *ranks[static_cast<size_t>(rank)];
        const auto length = std::max<int64_t>(n, 1);
        const auto make = [](int64_t count, float value) {
            auto tensor = at::empty({count}, at::TensorOptions().device(c10::kXPU).dtype(at::kFloat));
            std::fill_n(static_cast<float *>(tensor.data_ptr()), count, value);
            return tensor;
        };
        if (kind == 0 && n > 0) return {backend.barrier({.timeout = timeout(), .asyncOp = !waits}), [] {}};
        auto x = make(length, static_cast<float>(rank + 1));
        if (kind < 3 && n > 0) {
            Tensors one{x};
            c10d::AllreduceOptions options;
            options.timeout = timeout();
            options.asyncOp = !waits;
            const auto sum = static_cast<float>(size * (size + 1) / 2);
            return {backend.allreduce(one, options), [=, this] { is(x, 0, length, sum); }};
        }
        auto y = make(n > 0 ? n * size : 7 * size, 0); // of a refused one: more than comes
        c10d::AllgatherOptions options;
        options.timeout = timeout();
        options.asyncOp = !waits;
        return {backend._allgather_base(y, x, options), [=, this] {
                    for (int r = 0; r < size; r++) is(y, r * length, length, static_cast<float>(r + 1));
                }};
    }

    milliseconds timeout() const { return milliseconds(fault == late ? 40 : 20000); }

    static void is(const at::Tensor &x, int64_t from, int64_t count, float value) {
        const auto *at = static_cast<const float *>(x.data_ptr()) + from;
        if (std::any_of(at, at + count, [value](float each) { return each != value; }))
            complain("a sum of " + std::to_string(at[0]) + " in place of " + std::to_string(value));
    }

    // Ends a rank's group while that works.
    void end_it(int rank) {
        std::mt19937 own(seed + static_cast<uint32_t>(rank) + 100);
        begin.arrive_and_wait();
        const auto till = std::chrono::steady_clock::now() + std::chrono::microseconds(own() % 1500);
        while (std::chrono::steady_clock::now() < till) std::this_thread::yield();
        auto &backend = *ranks[static_cast<size_t>(rank)];
        if (fault == given_up)
            backend.give_up("a test");
        else
            backend.abort();
    }

    void run() {
        std::vector<std::thread> threads;
        for (int r = 0; r < size; r++) {
            threads.emplace_back([this, r] { work(r); });
            if (ends_it()) threads.emplace_back([this, r] { end_it(r); });
        }
        for (auto &each : threads) each.join();
        if (ends_it()) // whatever had begun has ended
            for (int r = 0; r < size; r++)
                if (const auto left = wires->open_at(r))
                    complain(std::to_string(left) + " messages of rank " + std::to_string(r) +
                             " are open, whose group was given up");
        ranks.clear();
    }
};

[[noreturn]] void end_of_the_carrier() {
    throw std::runtime_error("Received data size doesn't match expected size");
}

// A group that has nothing under way when a thread of the transport ends is no one's when its owner leaves
// it.
void idle_group_ends() {
    auto group = std::make_unique<Group>(1, any, 0);
    group->issue(0, 0, 1, true).first->wait(kNoTimeout);
    const c10::weak_intrusive_ptr<CollectiveBackend> left(group->ranks[0]);
    std::thread(end_of_the_carrier).detach();
    std::this_thread::sleep_for(milliseconds(500));
    group.reset();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (left.use_count() && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(milliseconds(10));
    if (left.use_count()) complain("an idle group is kept by a thread of the transport that has ended");
}

} // namespace

int main(int count, char **arguments) {
    const auto seconds = std::chrono::seconds(count > 1 ? std::atoi(arguments[1]) : 15);
    const auto end = std::chrono::steady_clock::now() + seconds;
    std::atomic<int> groups[any + 2] = {}, lanes_left = 0;
    const auto lane = [&](uint32_t which, int size, const std::vector<Fault> &these) {
        for (uint32_t round = 0; std::chrono::steady_clock::now() < end; round++) {
            const auto fault = these[round % these.size()];
            Group(size, fault, 1000 * round + which).run();
            groups[fault]++;
        }
        lanes_left--;
    };
    const auto finish = [&](std::vector<std::thread> lanes) {
        while (lanes_left) {
            std::this_thread::sleep_for(milliseconds(100));
            if (std::chrono::steady_clock::now() < end + std::chrono::seconds(60)) continue;
            std::fprintf(stderr, "wrong: groups hang\n");
            std::_Exit(2);
        }
        for (auto &each : lanes) each.join();
    };
    std::vector<std::thread> lanes;
    const auto begin = [&](uint32_t lanes_of_it, int size, std::vector<Fault> these) {
        lanes_left += static_cast<int>(lanes_of_it);
        for (; lanes_of_it; lanes_of_it--)
            lanes.emplace_back(lane, static_cast<uint32_t>(lanes.size()), size, these);
    };
    if (count > 2) { // a thread of the transport ends, which all groups are told
        begin(4, 1, {any});
        while (std::chrono::steady_clock::now() < end) {
            std::thread(end_of_the_carrier).detach();
            groups[any + 1]++;
            std::this_thread::sleep_for(milliseconds(50));
        }
    } else { // of one rank nobody is asked what it did, so those are over soon; others wait for seconds
        begin(2, 1, {given_up, given_up, given_up, aborted, nothing});
        for (const int size : {2, 3}) {
            begin(1, size, {nothing, refused});
            begin(6, size, {given_up, aborted, late});
        }
    }
    finish(std::move(lanes));
    if (count > 2) idle_group_ends();
    if (count <= 2 && !through_memory) complain("nothing went through memory");
    std::printf("%.0f MB went through memory\n", static_cast<double>(through_memory) / 1e6);
    std::printf(
        "groups: %d in order, %d given up, %d aborted, %d refused, %d late, %d beside %d ends; wrong: %d\n",
        groups[nothing].load(), groups[given_up].load(), groups[aborted].load(), groups[refused].load(),
        groups[late].load(), groups[any].load(), groups[any + 1].load(), wrong.load());
    std::fflush(stdout);
    if (count > 2) std::_Exit(wrong != 0); // threads that have ended so wait for good
    return wrong != 0;
}
