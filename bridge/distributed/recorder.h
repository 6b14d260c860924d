// Flight recorder: the last operations of this process's groups, in the format of PyTorch's own
// (FlightRecorder.hpp) and its analyzer. PyTorch's wheels do not export the functions that write it. Any
// thread may call; the recorder's lock guards its entries.
#pragma once

#include <torch/csrc/profiler/combined_traceback.h>

#include <chrono>
#include <future>
#include <map>
#include <mutex>

#include "collective.h"

namespace openxpu {

// The description of an operation in an entry.
struct Operation {
    struct Shape {
        std::vector<int64_t> sizes;
        c10::ScalarType dtype;
    };
    std::string name; // "xccl:all_reduce", "xccl:send 0->1"
    std::vector<Shape> inputs, outputs;
};

// The operations of a call, in NCCL's form: a list of tensors is one tensor. If sizes differ, each tensor is
// an operation, followed by an empty one for the whole call.
std::vector<Operation> operations(const Collective &collective, const TensorLists &inputs,
                                  const TensorLists &outputs, int rank, int size);

struct RecordedGroup {
    size_t id; // unique in this process
    std::string name, description;
    std::vector<uint64_t> ranks; // global ranks
    std::chrono::milliseconds timeout;
    bool is_timed;
};

// Sequence numbers in a group.
struct Position {
    uint64_t collective, p2p; // last numbers issued
    uint64_t operation;       // number of the call's first operation, of any kind
    bool is_p2p;
};

class Recorder {
  public:
    // The process's recorder, which is never destroyed. Keeps TORCH_FR_BUFFER_SIZE entries.
    static Recorder &get();

    bool is_enabled() const { return most_ > 0; }
    // Adds operations as not started; returns the id of the last one's entry.
    uint64_t enter(const RecordedGroup &group, const Position &position, std::vector<Operation> operations);
    // Both ignore entries that have been overwritten.
    void begun(uint64_t id, std::chrono::milliseconds timeout);
    void over(uint64_t id, bool is_done);
    // Removes all entries.
    void reset();
    // Returns a pickled dictionary. `stacks` takes the GIL.
    std::string dump(bool entries, bool stacks, bool only_active);

  private:
    struct Entry {
        uint64_t id = 0;
        size_t group = 0;
        Position position = {};
        Operation operation = {};
        std::shared_ptr<torch::CapturedTraceback> stack = {};
        std::chrono::milliseconds timeout = {};
        int64_t created = 0, started = 0, completed = 0; // ns; 0: not yet
        bool is_retired = false;
        std::string thread, thread_name;
    };
    struct Group {
        RecordedGroup group;
        int64_t enqueued = -1, started = -1, completed = -1; // collectives
    };
    const size_t most_;
    const bool with_cpp_;
    std::mutex lock_; // guards the fields below
    std::vector<Entry> entries_;
    uint64_t next_ = 0; // id
    std::map<size_t, Group> groups_;

    Recorder();
    Entry *find(uint64_t id);
};

// Updates the entry of one call, which may consist of several works (coalesced sends and receives).
class Recording {
  public:
    ~Recording(); // retires an unfinished entry
    // Sets the entry; called once.
    void enter(uint64_t id);
    // `timeout`: the call's own, if it has one.
    void begun(std::chrono::milliseconds timeout = c10d::kUnsetTimeout);
    // Counts a finished work. The call is over when all expected works are, or one has failed.
    void over(bool is_done);
    void expect(size_t works);

  private:
    std::mutex lock_; // guards the fields below
    std::optional<uint64_t> id_;
    bool is_begun_ = false, has_failed_ = false;
    std::chrono::milliseconds timeout_ = c10d::kUnsetTimeout;
    size_t over_ = 0, expected_ = 1;

    void tell();
};

// Writes the recorder's dump to a file (TORCH_FR_DUMP_TEMP_FILE plus the rank) when an operation fails, and
// makes the other processes do the same, as NCCL does (TORCH_NCCL_DUMP_ON_TIMEOUT). Also dumps when a line
// arrives through a pipe (TORCH_FR_DEBUG_INFO_PIPE_FILE plus the rank and ".pipe").
class Dumps {
  public:
    // Created for the first group, with the store of all processes; null if one exists already.
    static std::shared_ptr<Dumps> make(const c10::intrusive_ptr<c10d::Store> &store, uint64_t rank);
    // An operation has failed. A file without stacks is written immediately, because stacks need the GIL and
    // take PyTorch seconds the first time.
    static std::future<void> failed();
    // Called at shutdown, when the store disappears: stops watching.
    static void end_watching();
    // The same, and waits for dumps in progress: a thread that runs Python code during interpreter shutdown
    // would abort the process.
    static void finish();
    ~Dumps();

  private:
    struct State;
    const std::shared_ptr<State> state_; // shared with its thread
    void end();
    explicit Dumps(std::shared_ptr<State> state) : state_(std::move(state)) {}
};

} // namespace openxpu
