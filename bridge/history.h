// torch.xpu.memory._record_memory_history and _snapshot.
#pragma once

#include <Python.h>

#include <cstddef>

namespace openxpu {

struct HistoryOptions {
    bool enabled;       // remember where living blocks were allocated
    bool trace;         // and keep a list of everything that happens
    bool alloc_stacks;  // with the Python stack of each allocation
    bool free_stacks;   // and of each free
    bool cpp;           // C++ frames too
    size_t max_entries; // of the list
    bool clear;         // forget the list so far
};

void record_history(const HistoryOptions &options);

// The allocator calls these before it enters libxpu, whose hook runs under a lock where no stack can be
// taken.
void before_allocation();
void before_free();

// All segments and blocks of all devices, and the lists of what happened, as Python objects.
PyObject *memory_snapshot();

} // namespace openxpu
