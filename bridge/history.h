// torch.xpu.memory._record_memory_history and _snapshot.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "export.h"
#include "xpu/memory.h"

namespace openxpu {

struct HistoryOptions {
    bool enabled;       // remember where living blocks were allocated
    bool trace;         // and keep a list of everything that happens
    bool alloc_stacks;  // with the Python stack of each allocation
    bool free_stacks;   // and of each free
    bool cpp;           // C++ frames too
    size_t max_entries; // of the list
    bool clear;         // forget the list so far
    unsigned skipped;   // kinds of actions that aren't listed, by trace_action_bit
};

// The name of an action in the history.
OPENXPU_API const char *action_name(xpu_trace_action action);
// The bit of an action, given by its name; throws for any other name.
OPENXPU_API unsigned trace_action_bit(std::string_view name);

OPENXPU_API void record_history(const HistoryOptions &options);
OPENXPU_API bool records_history();

// The allocator calls these before it enters libxpu, whose hook runs under a lock under which no stack
// can be captured.
void before_allocation();
void before_free();

using Stack = std::shared_ptr<torch::CapturedTraceback>;

struct HistoryEntry {
    xpu_trace_action action;
    int device;
    void *address;
    size_t size;
    int64_t stream, microseconds;
    Stack stack;
};

struct MemorySnapshot {
    int devices;
    std::vector<xpu_block_info> blocks; // one segment after the other; a block's context is its stack or null
    std::vector<HistoryEntry> trace;
    std::vector<Stack> alive; // those that blocks' contexts are
};

// All segments and blocks of all devices, or of one pool, and the history.
OPENXPU_API MemorySnapshot take_snapshot(c10::MempoolId_t pool);

} // namespace openxpu
