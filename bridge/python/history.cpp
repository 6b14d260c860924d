// torch.xpu.memory._snapshot: the allocator's state and history as Python objects.
#include "../history.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/object_ptr.h>

#include <map>

#include "module.h"

namespace openxpu {
namespace {

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

PyObject *entry_dict(const HistoryEntry &entry, const Frames &frames) {
    return Py_BuildValue("{s:s,s:K,s:K,s:L,s:L,s:N}", "action", action_name(entry.action),
                         entry.action == XPU_TRACE_OOM ? "device_free" : "addr", number(entry.address),
                         "size", static_cast<unsigned long long>(entry.size), "stream",
                         static_cast<long long>(entry.stream), "time_us",
                         static_cast<long long>(entry.microseconds), "frames", frames.of(entry.stack.get()));
}

} // namespace

PyObject *memory_snapshot(c10::MempoolId_t pool) {
    const auto snapshot = take_snapshot(pool);
    const auto &[devices, blocks, trace, alive] = snapshot;
    Frames frames;
    for (const auto &stack : alive) frames.want(stack);
    for (const auto &entry : trace) frames.want(entry.stack);
    frames.resolve();

    THPObjectPtr segments(PyList_New(0)), traces(PyList_New(0));
    for (size_t first = 0, last; first < blocks.size(); first = last) {
        for (last = first + 1; last < blocks.size() && blocks[last].segment == blocks[first].segment;
             last++) {}
        append(segments, segment_dict(&blocks[first], &blocks[last], frames));
    }
    for (int device = 0; device < devices; device++) {
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
