// torch.xpu.memory._record_memory_history and _snapshot.
#pragma once

#include <Python.h>

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <string_view>

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

// The bit of an action, given by its name in the list; throws for any other name.
unsigned trace_action_bit(std::string_view name);

void record_history(const HistoryOptions &options);

// The allocator calls these before it enters libxpu, whose hook runs under a lock where no stack can be
// taken.
void before_allocation();
void before_free();

// All segments and blocks of all devices, or of one pool, and the lists of what happened, as Python objects.
PyObject *memory_snapshot(c10::MempoolId_t pool);

} // namespace openxpu
