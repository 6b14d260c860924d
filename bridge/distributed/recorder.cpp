// The flight recorder's ring buffer and its dump format (recorder.h).
#include "recorder.h"

#include <c10/util/ApproximateClock.h>
#include <c10/util/thread_name.h>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <torch/csrc/jit/serialization/pickler.h>

#include "xpu/version.h"

namespace openxpu {

using c10d::OpType;

// --- operations ---

namespace {

Operation::Shape shape(const at::Tensor &tensor) { return {tensor.sizes().vec(), tensor.scalar_type()}; }

std::vector<Operation::Shape> shapes(const TensorLists &lists) {
    std::vector<Operation::Shape> all;
    for (const auto &list : lists)
        for (const auto &tensor : list) all.push_back(shape(tensor));
    return all;
}

// Several tensors as one with an additional dimension.
Operation::Shape stacked(const at::Tensor &one, size_t count) {
    auto all = shape(one);
    all.sizes.insert(all.sizes.begin(), static_cast<int64_t>(count));
    return all;
}

// Several tensors as one flat tensor.
Operation::Shape row(const Tensors &list) {
    int64_t elements = 0;
    for (const auto &tensor : list) elements += tensor.numel();
    return {{elements}, list[0].scalar_type()};
}

bool are_alike(const Tensors &list) {
    return std::all_of(list.begin(), list.end(),
                       [&](const auto &each) { return each.sizes() == list[0].sizes(); });
}

// One for each tensor, from or for the rank of that index, and one for all.
std::vector<Operation> one_by_one(const Tensors &list, const char *each, const char *all) {
    std::vector<Operation> found;
    for (const auto &tensor : list) found.push_back({each, {shape(tensor)}, {shape(tensor)}});
    found.push_back({all, {}, {}});
    return found;
}

} // namespace

std::vector<Operation> operations(const Collective &collective, const TensorLists &inputs,
                                  const TensorLists &outputs, int rank, int size) {
    const auto count = static_cast<size_t>(size);
    Operation one{collective.title, shapes(inputs), shapes(outputs)};
    switch (collective.type) {
    case OpType::SEND: one.name = c10::str("xccl:send ", rank, "->", collective.root); break;
    case OpType::RECV:
    case OpType::RECVANYSOURCE: one.name = c10::str("xccl:recv ", rank, "<-", collective.root); break;
    case OpType::BARRIER: one.name = "xccl:all_reduce_barrier"; break;
    case OpType::ALLGATHER:
        if (!are_alike(outputs[0]))
            return one_by_one(outputs[0], "xccl:_broadcast_oop", "xccl:ALLGATHER_coalesced");
        one.outputs = {stacked(outputs[0][0], count)};
        break;
    case OpType::ALLGATHER_COALESCED:
        one.outputs.clear();
        for (const auto &tensor : inputs[0]) one.outputs.push_back(stacked(tensor, count));
        break;
    case OpType::REDUCE_SCATTER:
        if (collective.as == Collective::flat) break;
        if (!are_alike(inputs[0]))
            return one_by_one(inputs[0], "xccl:_reduce_oop", "xccl:REDUCE_SCATTER_coalesced");
        one.inputs = {stacked(inputs[0][0], count)};
        break;
    case OpType::ALLTOALL:
        one.inputs = {row(inputs[0])};
        one.outputs = {row(outputs[0])};
        break;
    default: break;
    }
    const bool has_one = collective.is_between_two || collective.reads_outputs ||
                         collective.type == OpType::BROADCAST; // list of tensors, which is both
    if (has_one && one.inputs.empty()) one.inputs = one.outputs;
    if (has_one && one.outputs.empty()) one.outputs = one.inputs;
    return {std::move(one)};
}

// --- ring buffer ---

Recorder &Recorder::get() {
    static auto *recorder = new Recorder();
    return *recorder;
}

Recorder::Recorder()
    : most_(static_cast<size_t>(
          std::max(c10d::getCvarInt({"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}, 2000), 0))),
      with_cpp_(c10d::getCvarBool({"TORCH_FR_CPP_STACK", "TORCH_NCCL_TRACE_CPP_STACK"}, false)) {}

uint64_t Recorder::enter(const RecordedGroup &group, const Position &position,
                         std::vector<Operation> operations) {
    Entry entry;
    entry.group = group.id;
    entry.position = position;
    entry.stack = torch::CapturedTraceback::gather(true, true, with_cpp_);
    entry.timeout = group.timeout;
    entry.created = c10::getTime();
    entry.thread = c10::str(std::this_thread::get_id());
    entry.thread_name = c10::getThreadName();
    const std::lock_guard guard(lock_);
    auto &known = groups_[group.id];
    known.group = group;
    known.enqueued = static_cast<int64_t>(position.is_p2p ? position.p2p : position.collective);
    for (auto &operation : operations) {
        entry.id = next_++;
        entry.operation = std::move(operation);
        if (entries_.size() < most_)
            entries_.push_back(entry);
        else
            entries_[entry.id % most_] = entry;
        entry.position.operation++;
    }
    return entry.id;
}

Recorder::Entry *Recorder::find(uint64_t id) {
    if (id >= next_ || next_ - id > entries_.size()) return nullptr;
    auto &entry = entries_[id % most_];
    return entry.id == id ? &entry : nullptr;
}

void Recorder::begun(uint64_t id, std::chrono::milliseconds timeout) {
    const std::lock_guard guard(lock_);
    auto *entry = find(id);
    if (!entry || entry->started) return;
    entry->started = c10::getTime();
    if (timeout != c10d::kUnsetTimeout) entry->timeout = timeout;
    auto &group = groups_[entry->group];
    if (group.group.is_timed)
        group.started = std::max(group.started, group.enqueued); // as in NCCL's recorder
}

void Recorder::over(uint64_t id, bool is_done) {
    const std::lock_guard guard(lock_);
    auto *entry = find(id);
    if (!entry || entry->is_retired) return;
    entry->is_retired = true;
    if (!is_done) return;
    entry->completed = c10::getTime();
    auto &group = groups_[entry->group];
    const auto number = entry->position.is_p2p ? entry->position.p2p : entry->position.collective;
    group.completed = std::max(group.completed, static_cast<int64_t>(number));
}

void Recorder::reset() {
    const std::lock_guard guard(lock_);
    entries_.clear();
    next_ = 0;
}

// --- dump ---

namespace {

std::string pickled(const c10::IValue &value) {
    std::string bytes;
    const auto append = [&bytes](const char *data, size_t size) { bytes.append(data, size); };
    torch::jit::Pickler pickler(append, nullptr, nullptr, nullptr, nullptr, false); // plain lists
    pickler.protocol();
    pickler.pushIValue(value);
    pickler.stop();
    return bytes;
}

void add_shapes(c10::Dict<c10::IValue, c10::IValue> &to, const std::vector<Operation::Shape> &shapes,
                const c10::IValue &sizes_key, const c10::IValue &dtypes_key) {
    auto sizes = c10d::new_list();
    std::vector<std::string> dtypes;
    for (const auto &each : shapes) {
        auto of_one = c10d::new_list();
        for (const auto size : each.sizes) of_one.push_back(size);
        sizes.push_back(of_one);
        dtypes.emplace_back(c10::toString(each.dtype));
    }
    to.insert(sizes_key, sizes);
    to.insert(dtypes_key, dtypes);
}

c10::IValue time_or_none(int64_t time) { return time ? c10::IValue(time) : c10::IValue(); }

} // namespace

std::string Recorder::dump(bool with_entries, bool stacks, bool only_active) {
    std::vector<Entry> entries;
    std::map<size_t, Group> groups;
    {
        const std::lock_guard guard(lock_);
        const auto count = entries_.size();
        for (uint64_t id = next_ - count; id < next_; id++) entries.push_back(entries_[id % most_]);
        groups = groups_;
    }
    auto result = c10d::new_dict(), config = c10d::new_dict(), status = c10d::new_dict();
    for (const auto &[id, each] : groups) {
        auto group = c10d::new_dict(), state = c10d::new_dict();
        group.insert("name", each.group.name);
        group.insert("desc", each.group.description);
        std::string ranks;
        for (const auto rank : each.group.ranks) ranks += c10::str(ranks.empty() ? "" : ", ", rank);
        group.insert("ranks", "[" + ranks + "]");
        config.insert(each.group.name, group);
        state.insert("last_enqueued_collective", each.enqueued);
        state.insert("last_started_collective", each.started);
        state.insert("last_completed_collective", each.completed);
        status.insert(std::to_string(id), state);
    }
    result.insert(c10d::version_key, c10d::version_val);
    result.insert(c10d::comm_lib_version_key,
                  c10::str("openxpu ", XPU_VERSION_MAJOR, ".", XPU_VERSION_MINOR, ".", XPU_VERSION_PATCH));
    result.insert(c10d::pg_config_key, config);
    result.insert(c10d::pg_status_key, status);
    if (!with_entries) return pickled(result);

    torch::SymbolizedTracebacks symbols;
    std::vector<c10::IValue> frames;
    if (stacks) {
        std::vector<torch::CapturedTraceback *> all;
        for (const auto &entry : entries) all.push_back(entry.stack.get());
        symbols = torch::symbolize(all);
        for (const auto &each : symbols.all_frames) {
            auto frame = c10d::new_dict();
            frame.insert(c10d::name_key, each.funcname);
            frame.insert(c10d::filename_key, each.filename);
            frame.insert(c10d::line_key, static_cast<int64_t>(each.lineno));
            frames.emplace_back(std::move(frame));
        }
    }
    auto list = c10d::new_list();
    for (size_t i = 0; i < entries.size(); i++) {
        const auto &entry = entries[i];
        if (only_active && entry.completed) continue;
        auto dict = c10d::new_dict();
        if (stacks) {
            auto stack = c10d::new_list();
            for (const auto frame : symbols.tracebacks.at(i)) stack.push_back(frames.at(frame));
            dict.insert(c10d::frames_key, stack);
        }
        const auto &group = groups[entry.group].group;
        dict.insert(c10d::record_id_key, static_cast<int64_t>(entry.id));
        dict.insert(c10d::pg_id_key, static_cast<int64_t>(entry.group));
        dict.insert(c10d::pg_name_key, std::make_tuple(group.name, group.description));
        dict.insert(c10d::thread_name_key, entry.thread_name);
        dict.insert(c10d::thread_id_key, entry.thread);
        dict.insert(c10d::collective_seq_id_key, static_cast<int64_t>(entry.position.collective));
        dict.insert(c10d::p2p_seq_id_key, static_cast<int64_t>(entry.position.p2p));
        dict.insert(c10d::op_id_key, static_cast<int64_t>(entry.position.operation));
        dict.insert(c10d::profiling_name_key, entry.operation.name);
        dict.insert(c10d::time_created_key, entry.created);
        if (group.is_timed && entry.completed)
            dict.insert(c10d::duration_key, 1e-6 * static_cast<double>(entry.completed - entry.started));
        add_shapes(dict, entry.operation.inputs, c10d::input_sizes_key, c10d::input_dtypes_key);
        add_shapes(dict, entry.operation.outputs, c10d::output_sizes_key, c10d::output_dtypes_key);
        dict.insert(c10d::state_key, entry.completed ? c10d::completed_state
                                     : entry.started ? c10d::started_state
                                                     : c10d::scheduled_state);
        dict.insert(c10d::time_discovered_started_key, time_or_none(entry.started));
        dict.insert(c10d::time_discovered_completed_key, time_or_none(entry.completed));
        dict.insert(c10d::retired_key, entry.is_retired);
        dict.insert(c10d::timeout_key, static_cast<int64_t>(entry.timeout.count()));
        dict.insert(c10d::is_p2p_key, entry.position.is_p2p);
        list.push_back(dict);
    }
    result.insert(c10d::entries_key, list);
    return pickled(result);
}

// --- recording of one call ---

Recording::~Recording() {
    if (id_) Recorder::get().over(*id_, false);
}

void Recording::enter(uint64_t id) {
    const std::lock_guard guard(lock_);
    id_ = id;
    if (is_begun_) Recorder::get().begun(id, timeout_);
    tell();
}

void Recording::begun(std::chrono::milliseconds timeout) {
    const std::lock_guard guard(lock_);
    is_begun_ = true;
    timeout_ = timeout;
    if (id_) Recorder::get().begun(*id_, timeout);
}

void Recording::over(bool is_done) {
    const std::lock_guard guard(lock_);
    over_++;
    has_failed_ = has_failed_ || !is_done;
    tell();
}

void Recording::expect(size_t works) {
    const std::lock_guard guard(lock_);
    expected_ = works;
    tell();
}

void Recording::tell() {
    if (id_ && (has_failed_ || over_ >= expected_)) Recorder::get().over(*id_, !has_failed_);
}

} // namespace openxpu
