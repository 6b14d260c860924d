// Flight recorder: the last operations of this process's groups, in the format of PyTorch's own
// (FlightRecorder.hpp) and its analyzer. PyTorch's wheels don't export the functions that write it.
#pragma once

#include <torch/csrc/profiler/combined_traceback.h>

#include <chrono>
#include <future>
#include <map>
#include <mutex>

#include "backend.h"

namespace openxpu {

// What an entry says that an operation does.
struct Operation {
    struct Shape {
        std::vector<int64_t> sizes;
        c10::ScalarType dtype;
    };
    std::string name; // "xccl:all_reduce", "xccl:send 0->1"
    std::vector<Shape> inputs, outputs;
};

// Those of a call, as NCCL's are recorded: lists of tensors are one tensor, or where their sizes differ an
// operation each, and an empty one for all of them.
std::vector<Operation> operations(const Collective &collective, const TensorLists &inputs,
                                  const TensorLists &outputs, int rank, int size);

struct RecordedGroup {
    size_t id; // in this process
    std::string name, description;
    std::vector<uint64_t> ranks; // among all processes
    std::chrono::milliseconds timeout;
    bool is_timed;
};

// Numbers in a group.
struct Position {
    uint64_t collective, p2p; // the last ones
    uint64_t operation;       // the first one's, of any kind
    bool is_p2p;
};

class Recorder {
  public:
    // The process's, which never ends. Keeps TORCH_FR_BUFFER_SIZE entries.
    static Recorder &get();

    bool is_enabled() const { return most_ > 0; }
    // Enters operations, which are not begun; gives the number of the last one's entry.
    uint64_t enter(const RecordedGroup &group, const Position &position, std::vector<Operation> operations);
    // Entries that have been overwritten know nothing of it.
    void begun(uint64_t id, std::chrono::milliseconds timeout);
    void over(uint64_t id, bool is_done);
    // Forgets all entries.
    void reset();
    // A pickled dictionary. `stacks` takes the interpreter's lock.
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
    std::mutex lock_; // guards what follows
    std::vector<Entry> entries_;
    uint64_t next_ = 0; // id
    std::map<size_t, Group> groups_;

    Recorder();
    Entry *find(uint64_t id);
};

// What becomes of the entry of one call, which may be several works: sends that go together.
class Recording {
  public:
    ~Recording(); // what hasn't been over is retired
    // Has the entry, once.
    void enter(uint64_t id);
    // With a timeout of its own, if it has one.
    void begun(std::chrono::milliseconds timeout = c10d::kUnsetTimeout);
    // One work more; it is over when `expect`ed ones are, or one has failed.
    void over(bool is_done);
    void expect(size_t works);

  private:
    std::mutex lock_; // guards what follows
    std::optional<uint64_t> id_;
    bool is_begun_ = false, has_failed_ = false;
    std::chrono::milliseconds timeout_ = c10d::kUnsetTimeout;
    size_t over_ = 0, expected_ = 1;

    void tell();
};

// Writes the recorder's dump to a file where an operation fails, as NCCL's does (TORCH_NCCL_DUMP_ON_TIMEOUT;
// TORCH_FR_DUMP_TEMP_FILE and the rank are its name), and has the other processes do so, too; and where a
// line comes through a pipe (TORCH_FR_DEBUG_INFO_PIPE_FILE, the rank and ".pipe").
class Dumps {
  public:
    // The first group's, with all processes' store; null where there is one already.
    static std::shared_ptr<Dumps> make(const c10::intrusive_ptr<c10d::Store> &store, uint64_t rank);
    // An operation has failed. Without stacks, which need the interpreter's lock and take PyTorch seconds the
    // first time, the file is there at once.
    static std::future<void> failed();
    // The process ends, and its store with it: nothing is looked for any more.
    static void end_watching();
    // The same, and waits for what is being written: a thread that is in Python while Python ends would abort
    // the process.
    static void finish();
    ~Dumps();

  private:
    struct State;
    const std::shared_ptr<State> state_; // its thread's, too
    void end();
    explicit Dumps(std::shared_ptr<State> state) : state_(std::move(state)) {}
};

} // namespace openxpu
