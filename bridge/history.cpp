#include "history.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <torch/csrc/utils/object_ptr.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "lower.h"
#include "xpu/memory.h"

namespace openxpu {
namespace {

using Stack = std::shared_ptr<torch::CapturedTraceback>;

struct Entry {
    xpu_trace_action action;
    int device;
    void *address;
    size_t size;
    int64_t stream, microseconds;
    Stack stack;
};

std::atomic<bool> on{false};
HistoryOptions options{}; // changes only while no hook is set
std::mutex history_lock;  // guards the two below; taken under the allocator's lock
std::deque<Entry> entries;
std::map<const void *, Stack> held; // stacks of blocks that are handed out
thread_local Stack pending;         // of the call that is about to enter libxpu

Stack take_stack() { return torch::CapturedTraceback::gather(true, true, options.cpp); }

const void *hook(xpu_trace_action action, int device, void *address, size_t size, int64_t stream,
                 const void *context, void *) {
    std::lock_guard guard(history_lock);
    const void *kept = nullptr;
    Stack stack = pending;
    if (action == XPU_TRACE_ALLOC && stack) {
        kept = stack.get();
        held[kept] = stack;
    } else if (action == XPU_TRACE_FREE_COMPLETED && context) {
        stack = held[context];
        held.erase(context);
    }
    if (options.trace && !(options.skipped >> action & 1)) {
        const auto now = std::chrono::system_clock::now().time_since_epoch();
        entries.push_back({action, device, address, size, stream,
                           std::chrono::duration_cast<std::chrono::microseconds>(now).count(), stack});
        while (entries.size() > options.max_entries) entries.pop_front();
    }
    return kept;
}

int device_count() {
    int count;
    check(xpu_device_count(&count));
    return count;
}

// --- as Python objects ---

// Symbols for many stacks at once; each stack becomes a list of frames.
class Frames {
  public:
    void want(const Stack &stack) {
        if (stack) wanted.emplace(stack.get(), wanted.size());
    }
    void resolve() {
        std::vector<torch::CapturedTraceback *> stacks(wanted.size());
        for (const auto &[stack, index] : wanted) stacks[index] = stack;
        symbols = torch::symbolize(stacks);
    }
    PyObject *of(const torch::CapturedTraceback *stack) const {
        PyObject *list = PyList_New(0);
        const auto found = wanted.find(const_cast<torch::CapturedTraceback *>(stack));
        if (found == wanted.end()) return list;
        for (auto index : symbols.tracebacks[found->second]) {
            const auto &frame = symbols.all_frames[index];
            THPObjectPtr dict(Py_BuildValue("{s:s,s:s,s:K}", "filename", frame.filename.c_str(), "name",
                                            frame.funcname.c_str(), "line",
                                            static_cast<unsigned long long>(frame.lineno)));
            if (!dict || PyList_Append(list, dict)) throw python_error();
        }
        return list;
    }

  private:
    std::map<torch::CapturedTraceback *, size_t> wanted;
    torch::SymbolizedTracebacks symbols;
};

const char *name_of(xpu_block_state state) {
    switch (state) {
    case XPU_BLOCK_ALLOCATED: return "active_allocated";
    case XPU_BLOCK_PENDING_FREE: return "active_awaiting_free";
    default: return "inactive";
    }
}

const char *name_of(xpu_trace_action action) {
    switch (action) {
    case XPU_TRACE_ALLOC: return "alloc";
    case XPU_TRACE_FREE_REQUESTED: return "free_requested";
    case XPU_TRACE_FREE_COMPLETED: return "free_completed";
    case XPU_TRACE_SEGMENT_ALLOC: return "segment_alloc";
    case XPU_TRACE_SEGMENT_FREE: return "segment_free";
    case XPU_TRACE_OOM: return "oom";
    default: return "snapshot";
    }
}

unsigned long long number(const void *address) { return reinterpret_cast<uintptr_t>(address); }

void append(PyObject *list, PyObject *item) {
    THPObjectPtr owned(item);
    if (!owned || PyList_Append(list, owned)) throw python_error();
}

// One segment: blocks [first, last) of the visit.
PyObject *segment_dict(const xpu_block_info *first, const xpu_block_info *last, const Frames &frames) {
    unsigned long long allocated = 0, active = 0, requested = 0;
    THPObjectPtr blocks(PyList_New(0));
    for (const auto *block = first; block != last; block++) {
        if (block->state == XPU_BLOCK_ALLOCATED) allocated += block->size;
        if (block->state != XPU_BLOCK_INACTIVE) {
            active += block->size;
            requested += block->requested_size;
        }
        append(blocks,
               Py_BuildValue("{s:K,s:K,s:K,s:s,s:N}", "address", number(block->address), "size",
                             static_cast<unsigned long long>(block->size), "requested_size",
                             static_cast<unsigned long long>(block->requested_size), "state",
                             name_of(block->state), "frames",
                             frames.of(static_cast<const torch::CapturedTraceback *>(block->context))));
    }
    return Py_BuildValue(
        "{s:i,s:K,s:K,s:K,s:K,s:K,s:L,s:s,s:(KK),s:O,s:N,s:N}", "device", first->device, "address",
        number(first->segment), "total_size", static_cast<unsigned long long>(first->segment_size),
        "allocated_size", allocated, "active_size", active, "requested_size", requested, "stream",
        static_cast<long long>(first->stream_id), "segment_type", first->is_large ? "large" : "small",
        "segment_pool_id", static_cast<unsigned long long>(first->pool[0]),
        static_cast<unsigned long long>(first->pool[1]), "is_expandable", Py_False, "frames", PyList_New(0),
        "blocks", blocks.release());
}

PyObject *entry_dict(const Entry &entry, const Frames &frames) {
    return Py_BuildValue("{s:s,s:K,s:K,s:L,s:L,s:N}", "action", name_of(entry.action),
                         entry.action == XPU_TRACE_OOM ? "device_free" : "addr", number(entry.address),
                         "size", static_cast<unsigned long long>(entry.size), "stream",
                         static_cast<long long>(entry.stream), "time_us",
                         static_cast<long long>(entry.microseconds), "frames", frames.of(entry.stack.get()));
}

} // namespace

void record_history(const HistoryOptions &wanted) {
    const int count = device_count();
    for (int device = 0; device < count; device++) check(xpu_memory_set_hook(device, nullptr, nullptr));
    on = false;
    std::unique_lock guard(history_lock);
    if (wanted.clear || !wanted.enabled) entries.clear();
    options = wanted;
    guard.unlock();
    if (!wanted.enabled) return;
    on = true;
    for (int device = 0; device < count; device++) check(xpu_memory_set_hook(device, hook, nullptr));
}

void before_allocation() {
    if (C10_UNLIKELY(on.load(std::memory_order_relaxed)))
        pending = options.alloc_stacks ? take_stack() : nullptr;
}

void before_free() {
    if (C10_UNLIKELY(on.load(std::memory_order_relaxed)))
        pending = options.free_stacks ? take_stack() : nullptr;
}

unsigned trace_action_bit(std::string_view name) {
    // Memory is never mapped a second time: there is nothing to leave out.
    if (name == "segment_map" || name == "segment_unmap") return 0;
    for (int action = XPU_TRACE_ALLOC; action <= XPU_TRACE_OOM; action++)
        if (name == name_of(static_cast<xpu_trace_action>(action))) return 1u << action;
    TORCH_CHECK(false, "Unknown TraceEntry action: ", name);
}

PyObject *memory_snapshot(c10::MempoolId_t pool) {
    const int count = device_count();
    std::vector<xpu_block_info> blocks;
    for (int device = 0; device < count; device++)
        check(xpu_memory_visit_blocks(
            device,
            [](const xpu_block_info *block, void *user) {
                static_cast<std::vector<xpu_block_info> *>(user)->push_back(*block);
            },
            &blocks));
    if (pool.first || pool.second)
        std::erase_if(blocks, [&](const xpu_block_info &block) {
            return block.pool[0] != pool.first || block.pool[1] != pool.second;
        });
    std::vector<Entry> trace;
    Frames frames;
    std::vector<Stack> alive; // as long as their symbols are wanted
    {
        std::lock_guard guard(history_lock);
        trace.assign(entries.begin(), entries.end());
        for (const auto &[context, stack] : held) alive.push_back(stack);
    }
    for (const auto &stack : alive) frames.want(stack);
    for (const auto &entry : trace) frames.want(entry.stack);
    frames.resolve();

    THPObjectPtr segments(PyList_New(0)), traces(PyList_New(0));
    for (size_t first = 0, last; first < blocks.size(); first = last) {
        for (last = first + 1; last < blocks.size() && blocks[last].segment == blocks[first].segment;
             last++) {}
        append(segments, segment_dict(&blocks[first], &blocks[last], frames));
    }
    for (int device = 0; device < count; device++) {
        THPObjectPtr list(PyList_New(0));
        for (const auto &entry : trace)
            if (entry.device == device) append(list, entry_dict(entry, frames));
        append(traces, list.release());
    }
    return Py_BuildValue("{s:N,s:N,s:N,s:N}", "segments", segments.release(), "device_traces",
                         traces.release(), "allocator_settings",
                         Py_BuildValue("{s:O}", "expandable_segments", Py_False), "external_annotations",
                         PyList_New(0));
}

} // namespace openxpu
